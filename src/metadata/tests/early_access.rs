//! Early access features: feature and flag change together, in the snapshot and on disk, or not at all.

use serde_json::Value;
use uuid::Uuid;

use super::*;
use crate::early_access::{EarlyAccessFeature, FeatureEditor, FeaturePatch, Stage};

const EDITOR: FeatureEditor = FeatureEditor { user: USER, may_write_flags: true };

fn named(name: &str, stage: Stage) -> FeaturePatch {
    FeaturePatch { name: Some(name.to_owned()), stage: Some(stage), ..FeaturePatch::default() }
}

async fn create(
    bench: &Bench,
    number: u64,
    flag: Option<FlagId>,
    new: FeaturePatch,
) -> Result<Arc<EarlyAccessFeature>, MetadataError> {
    bench.metadata.create_feature(PROJECT, EDITOR, flag, new, &seed(number)).await
}

/// Whether users may enrol in a flag, as the snapshot has it.
fn is_open(bench: &Bench, flag: FlagId) -> bool {
    let snapshot = bench.metadata.snapshot();
    let flag = snapshot.flags(PROJECT).iter().find(|stored| stored.id == flag).expect("a flag");
    flag.filters.get("feature_enrollment") == Some(&Value::Bool(true))
}

#[tokio::test]
async fn a_feature_and_its_flag_change_together() {
    let bench = Bench::started().await;
    let first = create(&bench, 1, None, named("Big Thing", Stage::Alpha)).await.expect("create");
    let mine = bench.create("mine").await;
    bench.clock.advance(Duration::from_secs(1));
    let second = create(&bench, 2, Some(mine.id), named("Other", Stage::Draft)).await;
    let second = second.expect("create");
    bench.check_snapshot().await;
    let snapshot = bench.metadata.snapshot();
    let ids: Vec<Uuid> = snapshot.features(PROJECT).iter().map(|feature| feature.id).collect();
    assert_eq!(ids, [second.id, first.id], "newest first");
    assert_eq!(snapshot.feature_of(&mine), Some(&second));
    assert_eq!((is_open(&bench, first.flag), is_open(&bench, mine.id)), (true, false));

    let patch = FeaturePatch { stage: Some(Stage::Beta), ..FeaturePatch::default() };
    let changed = bench.metadata.update_feature(PROJECT, EDITOR, second.id, patch).await;
    assert_eq!(changed.expect("update").stage, Stage::Beta);
    assert!(is_open(&bench, mine.id));
    bench.check_snapshot().await;
    bench.metadata.delete_feature(PROJECT, EDITOR, first.id).await.expect("delete");
    assert!(!is_open(&bench, first.flag));
    assert_eq!(bench.metadata.snapshot().features(PROJECT).len(), 1);
    bench.check_snapshot().await;
    let again = bench.metadata.delete_feature(PROJECT, EDITOR, first.id).await;
    assert_eq!(kind(again), Kind::NotFound);
}

#[tokio::test]
async fn rejected_changes_leave_neither_feature_nor_flag() {
    let bench = Bench::started().await;
    bench.create("taken").await;
    let before = bench.metadata.snapshot();
    let refused = create(&bench, 1, None, named("Taken", Stage::Beta)).await;
    assert_eq!(code(refused), "unique");
    let may_not = FeatureEditor { may_write_flags: false, ..EDITOR };
    let new = named("New", Stage::Draft);
    let refused = bench.metadata.create_feature(PROJECT, may_not, None, new, &seed(2)).await;
    assert_eq!(kind(refused), Kind::Forbidden);
    assert_eq!(bench.metadata.snapshot(), before);
    bench.check_snapshot().await;
}
