//! Requests, rows and disks that no node made so.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use serde_json::json;

use super::{Cluster, JSON, Load, sql};
use crate::harness::{TestServer, outage, patiently};
use crate::standby::StopOnDrop;
use crate::support::bucket::Fate;

/// A client that says that it is a node is not believed, by the node that has the shard nor by others.
#[test]
fn who_guesses_the_header_of_nodes_is_a_client() {
    let cluster = Cluster::start(2, 3, &[("WEIR_TRUSTED_PROXIES", "none")]);
    let project = &cluster.projects(3)[2];
    let (owner, other) = cluster.sides(project);
    let secret = "SELECT secret FROM leases WHERE name LIKE 'shard/%' LIMIT 1";
    let secret = cluster.common.metadata(secret);
    let (holder, _) = secret.split_once('.').expect("a secret");
    let of_holder = format!("{holder}.{holder}");
    let forged = [
        ("x-forwarded-for", "2.125.160.216"),
        ("forwarded", "for=2.125.160.216"),
        ("x-real-ip", "2.125.160.216"),
    ];
    let mut sent = 0;
    for node in [owner, other] {
        for guess in ["guess", "", ".", holder, &of_holder] {
            for claim in forged {
                let id = format!("client {sent}");
                sent += 1;
                let body =
                    json!({"api_key": project.token, "event": "e", "distinct_id": id}).to_string();
                let answer = node.send("POST", "/e/", &[JSON, ("x-weir-node", guess), claim], body);
                assert_eq!(answer.status, 200, "{guess}: {answer}");
                let query = format!("SELECT properties.$ip FROM events WHERE distinct_id = '{id}'");
                assert_eq!(
                    sql(other, project.id, &query),
                    json!([["127.0.0.1"]]),
                    "{guess} {claim:?}"
                );
            }
        }
        let answer = node.send("POST", "/_internal/position", &[("x-weir-node", "guess")], "");
        assert!(answer.status >= 400, "{answer}");
    }
    // Who knows it is a node: what is not here is for another one.
    let body = json!({"api_key": project.token, "event": "e", "distinct_id": "x"}).to_string();
    for (node, status) in [(owner, 200), (other, 421)] {
        let answer = node.send("POST", "/e/", &[JSON, ("x-weir-node", &secret)], body.clone());
        assert_eq!(answer.status, status, "{answer}");
    }
}

/// Goal: rows that were changed by hand, so that a node takes a shard that another one has, double and lose nothing.
#[test]
fn two_nodes_that_believe_to_have_a_shard_double_nothing() {
    let cluster = Cluster::start(2, 3, &[]);
    let projects = cluster.projects(3);
    let load = Load::new(&cluster, &projects);
    thread::scope(|scope| {
        let _stop = StopOnDrop(&load.stop);
        load.clients(scope, 3, Load::run_blindly);
        for project in &projects {
            let (owner, other) = cluster.sides(project);
            let shard = format!("(SELECT shard FROM projects WHERE id = {})", project.id);
            let name = format!("'shard/' || lpad({shard}::text, 4, '0') || ' %'");
            let (loses, goes) = (owner.stderr().len(), other.url());
            // One transaction: the other one takes it before the owner looks.
            cluster.common.metadata(&format!(
                "UPDATE shards SET wanted = '{goes}', ready = '' WHERE shard = {shard}; \
                 UPDATE leases SET holder = '', url = '', secret = '', beat = beat + 1 WHERE name LIKE {name}"
            ));
            let lost =
                patiently(|| owner.stderr().get(loses..)?.contains("closed here").then_some(()));
            assert!(lost.is_some(), "{}", owner.stderr());
            cluster.settle();
            // A holder that nobody knows.
            cluster.common.metadata(&format!(
                "UPDATE leases SET holder = 'x', url = '{goes}', secret = 'x.y', beat = beat + 1 WHERE name LIKE {name}"
            ));
            thread::sleep(Duration::from_secs(2));
            cluster.settle();
        }
        load.stop.store(true, Ordering::Relaxed);
    });
    assert!(load.next.load(Ordering::Relaxed) > 20);
    cluster.settle();
    load.is_there(&cluster);
    cluster.has_not_panicked();
}

/// Goal: a node opens shards whose directories are gone from images and the log.
#[test]
fn lost_directories_of_shards_come_from_the_bucket() {
    let mut cluster = Cluster::start(2, 4, &[]);
    let projects = cluster.projects(4);
    let load = Load::new(&cluster, &projects);
    thread::scope(|scope| {
        let _stop = StopOnDrop(&load.stop);
        scope.spawn(|| load.run(1));
        let written = patiently(|| (load.next.load(Ordering::Relaxed) > 60).then_some(()));
        written.expect("a load");
        load.stop.store(true, Ordering::Relaxed);
    });
    load.is_there(&cluster);
    cluster.nodes.iter_mut().for_each(TestServer::kill);
    let shards = cluster.nodes[0].data_dir().join("shards");
    let found: Vec<_> = std::fs::read_dir(&shards).expect("shards").flatten().collect();
    assert!(found.len() >= 2, "{found:?}");
    // One is gone, and one has lost half of it.
    std::fs::remove_dir_all(found[0].path()).expect("it is removed");
    let identity = found[1].path().join("identity");
    assert!(identity.is_dir(), "{identity:?}");
    std::fs::remove_dir_all(identity).expect("it is removed");
    cluster.nodes[1].lose_disk();
    cluster.nodes.iter_mut().for_each(TestServer::begin);
    cluster.nodes.iter_mut().for_each(TestServer::take_over);
    cluster.settle();
    load.is_there(&cluster);
    let counted: u64 = projects
        .iter()
        .map(|project| {
            let persons = sql(&cluster.nodes[0], project.id, "SELECT count() FROM persons");
            persons[0][0].as_u64().expect("a number")
        })
        .sum();
    assert!(counted > 20, "{counted}");
    cluster.has_not_panicked();
}

/// Goal: while the bucket is away, requests wait or are refused, and nothing is lost or stored twice.
#[test]
fn a_bucket_that_is_away_loses_nothing() {
    let cluster = Cluster::start(2, 3, &[]);
    let projects = cluster.projects(3);
    let load = Load::new(&cluster, &projects);
    thread::scope(|scope| {
        let _stop = StopOnDrop(&load.stop);
        load.clients(scope, 3, Load::run);
        thread::sleep(Duration::from_secs(1));
        cluster.common.gate.judge(|_| Fate::Lost);
        thread::sleep(outage("BUCKET", 10));
        cluster.common.gate.judge(|_| Fate::Passed);
        let before = load.reads.load(Ordering::Relaxed);
        let goes_on =
            patiently(|| (load.reads.load(Ordering::Relaxed) > before + 20).then_some(()));
        goes_on.expect("it goes on");
        load.stop.store(true, Ordering::Relaxed);
    });
    assert!(cluster.common.gate.disturbed() > 5);
    cluster.settle();
    load.is_there(&cluster);
    cluster.has_not_panicked();
}
