//! The list of workers.

use super::*;
use crate::workers::{RegisteredWorker, WorkerPort};

#[tokio::test]
async fn workers_of_a_bucket_are_listed_until_they_end_or_are_forgotten() {
    let bench = Bench::started().await;
    let metadata = &bench.metadata;
    let list = async |bucket: &str| metadata.workers(bucket).await.expect("a list");
    let port = |url: &str, host: &str| WorkerPort { url: url.to_owned(), host: host.to_owned() };
    for (bucket, url, host) in
        [("a", "2", ""), ("a", "1", "x"), ("b", "3", ""), ("a", "1", "x"), ("a", "1", "y")]
    {
        metadata.register_worker(bucket, &port(url, host)).await.expect("it registers");
    }
    let worker = |url: &str, host: &str, beat| RegisteredWorker { port: port(url, host), beat };
    assert_eq!(list("a").await, [worker("1", "x", 2), worker("1", "y", 1), worker("2", "", 1)]);
    assert_eq!(list("b").await, [worker("3", "", 1)]);
    assert_eq!(list("c").await, []);
    for (seen, is_gone) in
        [(worker("1", "x", 1), false), (worker("1", "x", 2), true), (worker("1", "x", 2), false)]
    {
        assert_eq!(metadata.forget_worker("a", &seen).await.expect("a row"), is_gone, "{seen:?}");
    }
    metadata.remove_worker("a", &port("2", "")).await.expect("it is removed");
    metadata.remove_worker("a", &port("2", "")).await.expect("it may be gone");
    assert_eq!(list("a").await, [worker("1", "y", 1)]);
    assert_eq!(list("b").await, [worker("3", "", 1)]);
    metadata.probe().await.expect("it is there");
    bench.check_snapshot().await;
}
