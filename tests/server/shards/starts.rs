//! How a bucket with one shard becomes a cluster, and what nodes tell of themselves.

use std::collections::BTreeSet;

use rustix::process::{Pid, Signal, kill_process};

use super::{Cluster, sql};
use crate::harness::{TOKEN, patiently};
use crate::standby::{Common, batch, started};

use serde_json::json;

/// Shards are added while nobody serves; who waited meanwhile does not take all projects for those of one shard.
#[test]
fn shards_are_added_while_nobody_serves() {
    let common = Common::new();
    let mut owner = started(&common);
    assert_eq!(owner.capture(&batch(0, 50)).status, 200);
    let mut standby = common.server();
    standby.stand_by();
    let stands_by = patiently(|| standby.stderr().contains("follows").then_some(()));
    assert!(stands_by.is_some(), "{}", standby.stderr());
    let add = || owner.weir_of_place(&["shards"]).args(["add", "2"]).output().expect("weir shards");
    let refused = add();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("stop all of them"), "{said}");
    assert_eq!(common.metadata("SELECT count(*) FROM shards"), "0");
    // It sleeps, so that it does not take over at once.
    let pid = Pid::from_raw(i32::try_from(standby.process_id()).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).expect("SIGSTOP");
    owner.stop();
    let add = || owner.weir_of_place(&["shards"]).args(["add", "2"]).output().expect("weir shards");
    let added = add();
    assert!(added.status.success(), "{added:?}");
    assert_eq!(
        String::from_utf8_lossy(&added.stdout),
        "there are 3 shards now, which all servers divide\n"
    );
    kill_process(pid, Signal::CONT).expect("SIGCONT");
    assert_eq!(standby.failed_end(), Some(1));
    assert!(standby.stderr().contains("shards were added meanwhile"), "{}", standby.stderr());
    owner.begin();
    owner.take_over();
    assert_eq!(sql(&owner, 1, "SELECT count() FROM events"), json!([[50]]));
    // While it runs, more may be added.
    assert!(add_to(&owner).status.success());
    let all = patiently(|| {
        let free = "SELECT count(*) FROM leases WHERE holder <> '' AND name LIKE 'shard/%'";
        (common.metadata(free) == "4").then_some(())
    });
    assert!(all.is_some(), "{}", owner.stderr());
    owner.stop();
}

fn add_to(owner: &crate::harness::TestServer) -> std::process::Output {
    owner.weir_of_place(&["shards"]).args(["add", "1"]).output().expect("weir shards")
}

/// The page of metrics of a node is one of each shard that it has; each family is told once.
#[test]
fn metrics_of_a_node_have_its_shards() {
    let cluster = Cluster::start(2, 4, &[]);
    for project in cluster.projects(4) {
        let body = json!({"api_key": project.token, "event": "e", "distinct_id": "x"}).to_string();
        assert_eq!(cluster.nodes[0].send("POST", "/e/", &[super::JSON], body).status, 200);
    }
    let mut shards = BTreeSet::new();
    for node in &cluster.nodes {
        assert_eq!(node.get("/_readiness").status, 200);
        assert_eq!(node.get("/_liveness").status, 200);
        let answer = node.get("/metrics");
        let kind = answer.header("content-type").unwrap_or_default().to_owned();
        assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
        let page = String::from_utf8(answer.body).expect("UTF-8");
        shards.extend(checked(&page));
        assert!(!page.contains(TOKEN));
    }
    assert_eq!(shards, ["0000", "0001", "0002", "0003"].map(str::to_owned).into());
}

/// Checks the syntax of a page. Returns the values of the label `shard`.
fn checked(page: &str) -> BTreeSet<String> {
    let (mut families, mut samples, mut shards) =
        (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut family = String::new();
    let body = page.strip_suffix("# EOF\n").expect("an end");
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let (what, rest) = rest.split_once(' ').expect("a word");
            let name = rest.split(' ').next().expect("a name");
            assert!(["HELP", "TYPE", "UNIT"].contains(&what), "{line}");
            if name != family {
                name.clone_into(&mut family);
                assert!(families.insert(family.clone()), "{family} is told twice");
            }
            continue;
        }
        let (name, rest) = line.split_at(line.find(['{', ' ']).expect("a name"));
        assert!(name.starts_with(&family), "{line} is none of {family}");
        let (sample, value) = line.rsplit_once(' ').expect("a value");
        assert!(value.parse::<f64>().is_ok(), "{line}");
        assert!(samples.insert(sample.to_owned()), "{sample} is told twice");
        let shard = rest.split_once("shard=\"").and_then(|(_, rest)| rest.split('"').next());
        shards.extend(shard.map(str::to_owned));
    }
    shards
}
