//! Shards move while they are written.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use super::{Cluster, Load};
use crate::standby::StopOnDrop;

/// Goal: a shard that moves back and forth loses nothing, and lets clients wait for a short time.
#[test]
fn a_shard_moves_while_it_is_written() {
    let cluster = Cluster::start(3, 6, &[]);
    let projects = cluster.projects(3);
    let load = Load::new(&cluster, &projects);
    let urls: Vec<String> = cluster.nodes.iter().map(crate::harness::TestServer::url).collect();
    thread::scope(|scope| {
        let _stop = StopOnDrop(&load.stop);
        load.clients(scope, 3, Load::run);
        for turn in 0..6 {
            let to = &urls[turn % urls.len()];
            let told = cluster.told(&["move", "1", to]);
            assert!(told.starts_with(&format!("{to} has shard 0001")), "{told}");
        }
        // What an operator has moved stays, and another shard goes back for it.
        cluster.settle();
        let list = cluster.told(&["list"]);
        let line = list.lines().find(|line| line.starts_with("0001")).expect("a line");
        assert!(line.contains(&urls[2]), "{list}");
        load.stop.store(true, Ordering::Relaxed);
    });
    let longest = *load.longest.lock();
    let refused = load.refused.load(Ordering::Relaxed);
    eprintln!("the longest wait for one event: {longest:?}; {refused} requests were refused");
    // Far more than it takes, for a machine that does other things.
    assert!(longest < Duration::from_secs(20), "{longest:?}");
    assert!(load.reads.load(Ordering::Relaxed) > 20);
    load.is_there(&cluster);
    cluster.has_not_panicked();
}

/// Goal: nodes come, end and are drained while clients write, and get or give shards.
#[test]
fn nodes_come_and_go() {
    let mut cluster = Cluster::start(3, 6, &[]);
    let projects = cluster.projects(3);
    let load = Load::new(&cluster, &projects);
    thread::scope(|scope| {
        let _stop = StopOnDrop(&load.stop);
        load.clients(scope, 2, Load::run);
        let url = cluster.nodes[1].url();
        assert_eq!(
            cluster.told(&["drain", &url]),
            format!("{url} has no shards, and can be stopped\n")
        );
        assert_eq!(cluster.counts()[1], 0);
        let list = cluster.told(&["list"]);
        let line = list.lines().rfind(|line| line.starts_with(&url)).expect("a line");
        assert!(line.ends_with("0  drains"), "{list}");
        assert_eq!(cluster.told(&["drain", &url, "--undo"]), format!("{url} takes shards again\n"));
        cluster.wait();
        let unknown = cluster.shards(&["drain", "http://127.0.0.1:1"]);
        assert!(!unknown.status.success(), "{unknown:?}");
        // A new one gets its share, and one that ends gives it away.
        let mut new = cluster.common.server();
        new.begin();
        new.take_over();
        cluster.nodes.push(new);
        cluster.wait();
        assert!(cluster.counts()[3] >= 1, "{:?}", cluster.counts());
        cluster.nodes[3].stop();
        cluster.nodes.pop();
        cluster.wait();
        load.stop.store(true, Ordering::Relaxed);
    });
    assert!(load.reads.load(Ordering::Relaxed) > 20);
    load.is_there(&cluster);
    cluster.has_not_panicked();
}
