//! The list of workers.

use super::*;
use crate::workers::RegisteredWorker;

#[tokio::test]
async fn workers_of_a_bucket_are_listed_until_they_end_or_are_forgotten() {
    let bench = Bench::started().await;
    let metadata = &bench.metadata;
    let list = async |bucket: &str| metadata.workers(bucket).await.expect("a list");
    for (bucket, url) in [("a", "2"), ("a", "1"), ("b", "3"), ("a", "1")] {
        metadata.register_worker(bucket, url).await.expect("it registers");
    }
    let worker = |url: &str, beat| RegisteredWorker { url: url.to_owned(), beat };
    assert_eq!(list("a").await, [worker("1", 2), worker("2", 1)]);
    assert_eq!(list("b").await, [worker("3", 1)]);
    assert_eq!(list("c").await, []);
    for (seen, is_gone) in
        [(worker("1", 1), false), (worker("1", 2), true), (worker("1", 2), false)]
    {
        assert_eq!(metadata.forget_worker("a", &seen).await.expect("a row"), is_gone, "{seen:?}");
    }
    metadata.remove_worker("a", "2").await.expect("it is removed");
    metadata.remove_worker("a", "2").await.expect("it may be gone");
    assert_eq!(list("a").await, []);
    assert_eq!(list("b").await, [worker("3", 1)]);
    bench.check_snapshot().await;
}
