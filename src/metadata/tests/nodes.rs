//! The list of nodes.

use super::*;
use crate::nodes::NodeRow;

#[tokio::test]
async fn nodes_are_listed_until_they_end_or_are_forgotten() {
    let bench = Bench::started().await;
    let metadata = &bench.metadata;
    let list = async || metadata.nodes().await.expect("a list");
    assert_eq!(list().await, []);
    for (url, build) in [("b", "1.0"), ("a", "1.0"), ("b", "1.1")] {
        metadata.register_node(url, build, 4).await.expect("it registers");
    }
    let node = |url: &str, build: &str, beat, is_draining| NodeRow {
        url: url.to_owned(),
        build: build.to_owned(),
        beat,
        is_draining,
        shards_max: 4,
    };
    assert_eq!(list().await, [node("a", "1.0", 1, false), node("b", "1.1", 2, false)]);
    assert!(metadata.drain_node("a", true).await.expect("a row"));
    assert!(!metadata.drain_node("c", true).await.expect("no row"));
    metadata.register_node("a", "1.0", 4).await.expect("it registers");
    assert_eq!(list().await, [node("a", "1.0", 2, true), node("b", "1.1", 2, false)]);
    assert!(metadata.drain_node("a", false).await.expect("a row"));
    assert_eq!(list().await.first(), Some(&node("a", "1.0", 2, false)));
    // Whether it drains is no sign of life.
    for (seen, is_gone) in [
        (node("a", "1.0", 1, false), false),
        (node("c", "1.0", 1, false), false),
        (node("a", "1.0", 2, true), true),
        (node("a", "1.0", 2, true), false),
    ] {
        assert_eq!(metadata.forget_node(&seen).await.expect("a row"), is_gone, "{seen:?}");
    }
    assert_eq!(list().await, [node("b", "1.1", 2, false)]);
    metadata.remove_node("b").await.expect("it is removed");
    metadata.remove_node("b").await.expect("it may be gone");
    assert_eq!(list().await, []);
    bench.check_snapshot().await;
}
