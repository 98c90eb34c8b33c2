//! Backups as the guide describes them: made, and restored elsewhere.

use serde_json::{Value, json};

use crate::flag_management::rollout;
use crate::harness::{TOKEN, TestServer};
use crate::standby::{Common, batch, persons};

const FLAGS: &str = "/api/projects/1/feature_flags/";
const COUNT: &str =
    "SELECT count(*) AS n, count(DISTINCT uuid) AS u, count(DISTINCT person_id) AS p FROM events";

fn send(server: &TestServer, events: &Value) {
    let answer = server.capture(events);
    assert_eq!(answer.status, 200, "{answer}");
}

fn verdict(server: &TestServer) -> Value {
    let body = json!({"token": TOKEN, "distinct_id": "person 3"}).to_string();
    let answer = server.send("POST", "/flags/?v=2", &[], body);
    assert_eq!(answer.status, 200, "{answer}");
    answer.json()["flags"]["kept"]["enabled"].clone()
}

/// Goal: with the log in the bucket, the bucket and the database of one moment are everything. Method: the moment is a kill,
/// after which events are in the log alone; the original goes on, and the backup is restored under another prefix, in
/// another database, on a machine without anything.
#[test]
fn a_backup_of_bucket_and_database_is_everything() {
    let common = Common::new();
    let mut server = common.server();
    server.set("WEIR_MEMTABLE_MAX_AGE", "1d");
    server.restart();
    let flag = json!({"key": "kept", "name": "", "active": true, "filters": rollout(100)});
    server.post(FLAGS, &flag).created();
    send(&server, &batch(0, 200));
    assert!(server.weir(&["flush"]).output().expect("weir flush").status.success());
    send(&server, &batch(200, 300));
    let merge = json!([{
        "event": "$identify", "distinct_id": "user",
        "properties": {"$anon_distinct_id": "person 3", "$set": {"plan": "x"}},
    }]);
    send(&server, &merge);
    let (before, people) = (server.query(COUNT), persons(&server));
    assert_eq!(before, [json!({"n": 301, "u": 301, "p": 23})]);
    server.kill();

    common.moto.copy("events", "backup");
    let dump = common.database.dump();
    server.restart();
    send(&server, &batch(300, 400));
    server.stop();

    let database = common.postgres.database();
    database.restore(&dump);
    common.moto.copy("backup", "restored");
    let mut restored = common.server();
    restored.set("WEIR_STORAGE_URL", "s3://weir-tests/restored");
    restored.set("WEIR_METADATA_URL", &database.url());
    restored.restart();
    assert_eq!(restored.query(COUNT), before, "every event, once, of its person");
    assert_eq!(persons(&restored), people);
    assert_eq!(verdict(&restored), true);
    restored.is_undamaged();
    send(&restored, &batch(1_000, 1_100));
    restored.kill();
    restored.lose_disk();
    restored.restart();
    assert_eq!(restored.query(COUNT), [json!({"n": 401, "u": 401, "p": 23})]);
}
