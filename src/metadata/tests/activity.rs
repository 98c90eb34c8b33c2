//! The activity log: a change outside of the store is logged once.

use super::*;
use crate::activity::{ActivityFilter, Change, Elsewhere, Scope, Start, Verb};
use crate::definitions::{DefinitionPatch, DefinitionSeen, EventDefinition, Sightings};
use crate::entity::Entity;

fn elsewhere(id: u128, item: &str) -> Elsewhere {
    Elsewhere {
        id: uuid::Uuid::from_u128(id),
        project: PROJECT,
        user: Some(USER),
        at: UnixMicros(5),
        change: Change {
            scope: Scope::Person,
            item: item.to_owned(),
            verb: Verb::Deleted,
            name: "somebody".to_owned(),
            fields: Vec::new(),
        },
        forgotten: None,
    }
}

#[tokio::test]
async fn repeated_entries_are_ignored() {
    let bench = Bench::started().await;
    let metadata = &bench.metadata;
    let first = [elsewhere(1, "a"), elsewhere(2, "b")];
    metadata.record_activity(&first).await.expect("log");
    let later = [elsewhere(2, "changed"), elsewhere(3, "c"), elsewhere(1, "changed")];
    metadata.record_activity(&later).await.expect("log");
    let page =
        metadata.activity(PROJECT, &ActivityFilter::default(), 10, 0).await.expect("activity");
    let items: Vec<_> = page.entries.iter().map(|entry| entry.item.as_str()).collect();
    assert_eq!((page.count, items), (3, vec!["c", "b", "a"]));
    assert_eq!(page.entries[0].detail["name"], "somebody");
    let ids = [1, 3, 7].map(uuid::Uuid::from_u128);
    let items = metadata.items_logged(&ids).await.expect("items");
    assert_eq!(items, ["a", "c"].map(str::to_owned).into(), "of those that there are");
    assert!(page.entries[0].detail["changes"].is_null());
    let nowhere = Elsewhere { project: ProjectId(99), ..elsewhere(4, "d") };
    let all_or_none = metadata.record_activity(&[elsewhere(5, "e"), nowhere]).await;
    assert!(all_or_none.is_err());
    let page =
        metadata.activity(PROJECT, &ActivityFilter::default(), 10, 0).await.expect("activity");
    assert_eq!(page.count, 3);
}

/// A person would be skipped whose deletion comes second, if this were no error.
#[tokio::test]
async fn another_entry_at_the_same_position_is_an_error() {
    let bench = Bench::started().await;
    bench.metadata.record_activity(&[elsewhere(1, "a")]).await.expect("log");
    let (all, start) = (ActivityFilter::default(), Start::Offset(0));
    let texts = bench.metadata.activity_texts(PROJECT, &all, start, 1).await;
    let mut text = texts.expect("activity").remove(0);
    let mut write = bench.metadata.begin().await.expect("begin");
    assert_eq!(text.insert_new().execute(write.connection()).await.expect("insert"), 0);
    text.entry.id = uuid::Uuid::from_u128(2);
    assert!(text.insert_new().execute(write.connection()).await.is_err());
}

/// Caches of written definitions are invalidated when definitions are deleted.
#[tokio::test]
async fn deleted_definitions_are_counted() {
    let bench = Bench::started().await;
    let metadata = &bench.metadata;
    let seen = DefinitionSeen { project: PROJECT, name: "paid".to_owned(), seen_at: START };
    let sightings = Sightings { events: vec![seen], ..Sightings::default() };
    metadata.upsert_definitions(&sightings).await.expect("upsert");
    let id = metadata.definition_by_name(PROJECT, "paid").await.expect("paid").0.id;
    assert_eq!(metadata.forgotten(), 0);
    let patch = |name: &str| DefinitionPatch { name: Some(name.to_owned()), ..Default::default() };
    metadata
        .update_definition::<EventDefinition>(PROJECT, id, patch("paid"), USER)
        .await
        .expect("update");
    assert_eq!(metadata.forgotten(), 0);
    metadata
        .update_definition::<EventDefinition>(PROJECT, id, patch("bought"), USER)
        .await
        .expect("update");
    assert_eq!(metadata.forgotten(), 1);
    metadata.delete_definition::<EventDefinition>(PROJECT, id, USER).await.expect("delete");
    assert_eq!(metadata.forgotten(), 2);
}
