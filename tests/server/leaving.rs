//! A server whose log is in a bucket goes back to a disk, and one whose log is on a disk into a bucket: whatever was
//! acknowledged is there once, or the way is refused.

use std::process::Command;

use serde_json::json;

use crate::harness::TestServer;
use crate::s3::{MOVED_TO, moving, refused, run};
use crate::standby::{Common, batch, persons, started};
use crate::support::bucket::Fate;

const COUNT: &str = "SELECT count(*) AS n FROM events";

fn directory(server: &TestServer) -> String {
    server.data_dir().to_str().expect("UTF-8").to_owned()
}

/// `weir move` out of the bucket, with the settings of the servers.
fn leaving(common: &Common, server: &TestServer) -> Command {
    let mut command = moving(&common.gate.url(), MOVED_TO, &directory(server));
    command.env("WEIR_METADATA_URL", common.database.url());
    command
}

/// Starts a server on the disk after its tables were moved there.
fn start_locally(server: &mut TestServer) {
    server.unset("WEIR_STORAGE_URL");
    server.unset("WEIR_STORAGE_LOG");
    server.restart();
}

fn send(server: &TestServer, from: u32, to: u32) {
    let answer = server.capture(&batch(from, to));
    assert_eq!(answer.status, 200, "{answer}");
}

fn has_all_once(server: &TestServer, events: u64) {
    assert_eq!(server.count(COUNT), events);
    server.has_no_twins();
}

/// Goal: events that were acknowledged before a kill are not left in the log. Afterwards, whoever follows the advice has all
/// of them, all persons, and a log that goes on behind them; and nobody begins in the bucket again.
#[test]
fn a_log_is_left_with_all_that_was_acknowledged() {
    let common = Common::new();
    let mut server = common.server();
    server.set("WEIR_MEMTABLE_MAX_AGE", "1d");
    server.restart();
    send(&server, 0, 300);
    let merge = json!([{
        "event": "$identify", "distinct_id": "user",
        "properties": {"$anon_distinct_id": "person 3", "$set": {"plan": "x"}},
    }]);
    assert_eq!(server.capture(&merge).status, 200);
    let before = persons(&server);
    server.kill();

    let keys = common.moto.keys();
    let said = refused(leaving(&common, &server));
    assert!(said.contains("did not end in order"), "{said}");
    assert!(said.contains(&format!("start it again on {}", directory(&server))), "{said}");
    // Whoever ends the lease by hand is told what would be lost.
    let lease = "UPDATE weir.leases SET holder = '' WHERE name LIKE 'shard/0000 %'";
    common.database.value(lease);
    let said = refused(leaving(&common, &server));
    assert!(said.contains("are in no file yet"), "{said}");
    let mut elsewhere = leaving(&common, &server);
    elsewhere.env_remove("WEIR_METADATA_URL");
    assert!(refused(elsewhere).contains("set WEIR_METADATA_URL"));
    assert_eq!(common.moto.keys(), keys, "nothing has changed");
    assert!(server.data_dir().join("storage-url").exists());
    assert!(!server.data_dir().join("tables").exists());

    // The advice.
    server.restart();
    has_all_once(&server, 301);
    server.stop();
    let said = run(leaving(&common, &server));
    assert!(said.contains("Start the server without --storage-url"), "{said}");
    start_locally(&mut server);
    has_all_once(&server, 301);
    assert_eq!(persons(&server), before);
    assert_eq!(server.metric("weir_identity_incomplete"), 0);
    send(&server, 300, 400);
    server.kill();
    server.restart();
    has_all_once(&server, 401);
    assert_eq!(server.query("SELECT count(*) AS n FROM persons"), [json!({"n": 23})]);
    server.is_undamaged();
    server.stop();
    assert!(run(server.weir(&["inspect", "--verify"])).contains("no damage found"));
    has_all_once(&server, 401);

    let said = common.server().try_start().expect_err("on the tables that were left");
    assert!(said.contains("were moved to the data directory"), "{said}");
    let url = common.gate.url();
    let said = refused(moving(&url, &directory(&server), MOVED_TO));
    assert!(said.contains("has the log of servers that had their tables there"), "{said}");

    // And there again, at another place.
    run(moving(&url, &directory(&server), "s3://weir-tests/again"));
    server.set("WEIR_STORAGE_URL", "s3://weir-tests/again");
    server.set("WEIR_STORAGE_LOG", "bucket");
    server.restart();
    send(&server, 400, 450);
    server.kill();
    server.lose_disk();
    server.restart();
    has_all_once(&server, 451);
}

/// Goal: nothing is moved from under a server that serves, and not to a directory that another server has left behind.
#[test]
fn a_log_is_left_by_the_last_server_alone() {
    let common = Common::new();
    let mut former = started(&common);
    send(&former, 0, 100);
    former.stop();
    let mut last = started(&common);
    send(&last, 100, 200);
    let said = refused(leaving(&common, &former));
    assert!(said.contains("a server has s3://weir-tests/events"), "{said}");
    last.stop();
    let said = refused(leaving(&common, &former));
    assert!(said.contains("is not that of the last server"), "{said}");
    assert!(!former.data_dir().join("tables").exists());
    // A refusal gives the lease back: the next server need not wait for it.
    former.restart();
    has_all_once(&former, 200);
    former.stop();
    run(leaving(&common, &former));
    start_locally(&mut former);
    has_all_once(&former, 200);
    assert_eq!(persons(&former).len(), 23);
}

/// Goal: a move that is interrupted between its mark in the bucket and the change of the data directory keeps nobody out: the
/// mark is removed, or the advice leads to a move that ends.
#[test]
fn a_move_that_did_not_end_is_run_again() {
    const MARK: &str = "events/shards/0000/moved";
    let common = Common::new();
    let mut server = started(&common);
    send(&server, 0, 100);
    server.stop();
    for can_remove in [true, false] {
        let mut is_marked = false;
        common.gate.judge(move |request| {
            if !is_marked {
                is_marked = request.starts_with("PUT ") && request.contains(MARK);
                return Fate::Passed;
            }
            let removes = request.starts_with("DELETE ") || request.contains("?delete");
            if removes && can_remove { Fate::Passed } else { Fate::Lost }
        });
        let said = refused(leaving(&common, &server));
        common.gate.judge(|_| Fate::Passed);
        let has_stayed = common.moto.keys().iter().any(|key| key == MARK);
        assert_eq!(has_stayed, !can_remove, "{said}");
        assert_eq!(said.contains("/shards/0000/moved, with which no"), has_stayed, "{said}");
        assert!(server.data_dir().join("storage-url").exists());
        if can_remove {
            server.restart();
            has_all_once(&server, 100);
            server.stop();
        }
    }

    // As after a kill of the move, which has the lease then.
    let lease = "UPDATE weir.leases SET holder = 'killed' WHERE name LIKE 'shard/0000 %'";
    common.database.value(lease);
    let said = refused(leaving(&common, &server));
    let advice = format!("also one of a move, start it again on {}", directory(&server));
    assert!(said.contains(&advice), "{said}");
    let said = server.try_start().expect_err("everything was moved");
    let advice = format!("were moved to the data directory {}", directory(&server));
    assert!(said.contains(&advice), "{said}");
    assert!(said.contains("run it again"), "{said}");
    run(leaving(&common, &server));
    start_locally(&mut server);
    has_all_once(&server, 100);
    assert_eq!(persons(&server).len(), 23);
}

/// Goal: records of a log on a disk, acknowledged and in no file, are not left behind by a server on another machine that
/// begins a log in the bucket: also if none of the log has ever been in a file.
#[test]
fn a_log_in_the_bucket_begins_after_the_one_on_the_disk() {
    for has_flushed in [true, false] {
        let common = Common::new();
        let mut server = common.server();
        for name in ["WEIR_STORAGE_URL", "WEIR_STORAGE_LOG"] {
            server.unset(name);
        }
        server.set("WEIR_MEMTABLE_MAX_AGE", "1d");
        server.restart();
        send(&server, 0, 100);
        if has_flushed {
            server.flush();
        }
        send(&server, 100, 200);
        server.kill();
        run(moving(&common.gate.url(), &directory(&server), MOVED_TO));
        let said = common.server().try_start().expect_err("on another machine");
        assert!(said.contains("whose log is on a disk"), "{said}");
        server.set("WEIR_STORAGE_URL", MOVED_TO);
        server.set("WEIR_STORAGE_LOG", "bucket");
        let said = server.try_start().expect_err("records are in the log on the disk alone");
        assert!(said.contains("start with --storage-log disk"), "{said}");
        server.set("WEIR_STORAGE_LOG", "disk");
        server.restart();
        has_all_once(&server, 200);
        server.stop();
        server.set("WEIR_STORAGE_LOG", "bucket");
        server.restart();
        server.kill();
        let mut other = started(&common);
        has_all_once(&other, 200);
        assert_eq!(persons(&other).len(), 23);
        other.stop();
    }
}
