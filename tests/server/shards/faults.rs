//! Nodes die, sleep and end at random.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::process::{Pid, Signal, kill_process};
use weir_base::clock::Clock;

use super::{Cluster, Load};
use crate::harness::{TestServer, outage};
use crate::standby::StopOnDrop;

/// Least reads between faults.
const READS_MIN: u32 = 20;

/// Longest additional time for these.
const BUSY: Duration = Duration::from_secs(120);

/// Goal: what was acknowledged by any node is read through any other one right after, and is there once, while nodes are killed,
/// sleep, and end in order. The time is that of `WEIR_TEST_SHARDS_OUTAGE_SECONDS`, or short.
#[test]
fn faults_lose_and_double_nothing() {
    let seed = rand::random_range(0..1_000_000);
    let mut cluster = Cluster::start(3, 6, &[("WEIR_NODE_SHARDS_MAX", "8")]);
    let projects = cluster.projects(4);
    let load = Load::new(&cluster, &projects);
    thread::scope(|scope| {
        let _stop = StopOnDrop(&load.stop);
        for thread in 0..3 {
            let load = &load;
            scope.spawn(move || load.run(seed + thread));
        }
        let (mut random, clock) = (StdRng::seed_from_u64(seed), Clock::system());
        let (began, time) = (clock.monotonic(), outage("SHARDS", 25));
        // Longer on a machine that is busy with other things.
        let is_enough = || load.reads.load(Ordering::Relaxed) > READS_MIN;
        while clock.monotonic() - began < if is_enough() { time } else { time + BUSY } {
            thread::sleep(Duration::from_millis(random.random_range(300..2000)));
            let at = random.random_range(0..cluster.nodes.len());
            let node = &mut cluster.nodes[at];
            match random.random_range(0..3) {
                0 => {
                    let pid = Pid::from_raw(i32::try_from(node.process_id()).unwrap()).unwrap();
                    kill_process(pid, Signal::STOP).expect("SIGSTOP");
                    thread::sleep(Duration::from_millis(8000));
                    kill_process(pid, Signal::CONT).expect("SIGCONT");
                    continue;
                }
                1 => node.stop(),
                _ => node.kill(),
            }
            thread::sleep(Duration::from_millis(random.random_range(0..1000)));
            // Another address, as of another machine, half of the time.
            *load.clients[at].lock() = match random.random_bool(0.5) {
                true => node.stand_by(),
                false => {
                    node.begin();
                    node.client()
                }
            };
        }
        load.stop.store(true, Ordering::Relaxed);
    });
    let (sent, reads) = (load.next.load(Ordering::Relaxed), load.reads.load(Ordering::Relaxed));
    eprintln!("{sent} sent, {reads} read");
    assert!(reads > READS_MIN, "seed {seed}: {sent} sent, {reads} read");
    cluster.settle();
    load.is_there(&cluster);
    cluster.has_not_panicked();
    // The same from files, and from the bucket alone.
    cluster.nodes.iter().for_each(TestServer::flush);
    load.is_there(&cluster);
    cluster.nodes.iter_mut().for_each(TestServer::stop);
    cluster.nodes.iter().for_each(TestServer::lose_disk);
    cluster.nodes.iter_mut().for_each(TestServer::begin);
    cluster.settle();
    load.is_there(&cluster);
}
