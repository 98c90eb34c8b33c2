//! Calls of flags: the latest one is stored for existing flags, and does not change the flag.

use std::collections::HashMap;

use super::*;
use crate::definitions::Sightings;
use crate::flag_calls::FlagCalled;

async fn call(bench: &Bench, calls: &[(&str, i64)]) {
    let calls = calls.iter().map(|(key, at)| FlagCalled {
        project: PROJECT,
        key: (*key).to_owned(),
        at: UnixMicros(*at),
    });
    let seen = Sightings { flags: calls.collect(), ..Sightings::default() };
    bench.metadata.upsert_definitions(&seen).await.expect("upsert");
}

#[tokio::test]
async fn the_latest_call_of_a_flag_is_known() {
    let bench = Bench::started().await;
    let (a, b) = (bench.create("a").await, bench.create("b").await);
    let revision = bench.metadata.snapshot().revision(PROJECT).cloned().expect("flags");
    call(&bench, &[("a", 5), ("nobody", 9)]).await;
    call(&bench, &[("a", 3)]).await;
    assert_eq!(
        bench.metadata.flag_calls(PROJECT).await.expect("calls"),
        HashMap::from([(a.id, UnixMicros(5))])
    );
    call(&bench, &[("a", 8), ("b", 1)]).await;
    let called = bench.metadata.flag_calls(PROJECT).await.expect("calls");
    assert_eq!(called, HashMap::from([(a.id, UnixMicros(8)), (b.id, UnixMicros(1))]));
    assert_eq!(bench.metadata.flag_called(a.id).await.expect("a call"), Some(UnixMicros(8)));
    assert_eq!(bench.metadata.flag_calls(ProjectId(2)).await.expect("calls"), HashMap::new());
    // Local evaluators have nothing to reload.
    let snapshot = bench.metadata.snapshot();
    assert!(Arc::ptr_eq(&revision, snapshot.revision(PROJECT).expect("flags")));
}

#[tokio::test]
async fn calls_stay_with_a_renamed_flag_and_go_with_one_that_is_no_more() {
    let bench = Bench::started().await;
    let a = bench.create("a").await;
    call(&bench, &[("a", 5)]).await;
    bench.update(a.id, FlagPatch { key: Some("c".to_owned()), ..FlagPatch::default() }).await;
    call(&bench, &[("a", 7)]).await;
    assert_eq!(bench.metadata.flag_called(a.id).await.expect("a call"), Some(UnixMicros(5)));
    bench.update(a.id, FlagPatch { deleted: Some(true), ..FlagPatch::default() }).await;
    call(&bench, &[("c", 8)]).await;
    assert_eq!(bench.metadata.flag_called(a.id).await.expect("a call"), Some(UnixMicros(5)));
    let next = bench.create("c").await;
    assert_eq!(bench.metadata.flag_calls(PROJECT).await.expect("calls"), HashMap::new());
    assert_eq!(bench.metadata.flag_called(next.id).await.expect("no call"), None);
}
