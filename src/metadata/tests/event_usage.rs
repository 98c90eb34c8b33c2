//! Usage of event definitions: queries that named an event, of the last thirty days.

use super::*;
use crate::definitions::{DefinitionPatch, DefinitionSeen, EventDefinition, Sightings};
use crate::event_usage::EventUsage;
use crate::sql;

async fn define(bench: &Bench, name: &str) -> uuid::Uuid {
    let event = DefinitionSeen { project: PROJECT, name: name.to_owned(), seen_at: START };
    let seen = Sightings { events: vec![event], ..Sightings::default() };
    bench.metadata.upsert_definitions(&seen).await.expect("upsert");
    bench.metadata.definition_by_name(PROJECT, name).await.expect("a definition").0.id
}

#[tokio::test]
async fn queries_are_counted_by_definition_for_thirty_days() {
    let bench = Bench::started().await;
    let metadata = &bench.metadata;
    let (order, other) = (define(&bench, "order").await, define(&bench, "other").await);
    let today = EventUsage::day_of(START);
    let asked = |event: &str, day, count| EventUsage {
        project: PROJECT,
        event: event.to_owned(),
        day,
        count,
    };
    let usage = [
        asked("order", today, 2),
        asked("order", today - 29, 3),
        asked("order", today - 30, 100),
        asked("nothing", today, 7),
    ];
    metadata.add_event_usage(&usage).await.expect("usage");
    metadata.add_event_usage(&[asked("order", today, 4)]).await.expect("usage");
    let elsewhere = EventUsage { project: ProjectId(2), ..asked("order", today, 50) };
    metadata.add_event_usage(&[elsewhere]).await.expect("usage");
    let used = async |id| metadata.event_usage(id).await.expect("a number");
    assert_eq!((used(order).await, used(other).await), (9, 0));
    // The definition keeps its usage when it is renamed.
    let name = DefinitionPatch { name: Some("bought".to_owned()), ..DefinitionPatch::default() };
    metadata
        .update_definition::<EventDefinition>(PROJECT, order, name, USER)
        .await
        .expect("renamed");
    metadata.add_event_usage(&[asked("bought", today, 1)]).await.expect("usage");
    assert_eq!(used(order).await, 10);
    // A day later the oldest one is too old, and old ones are not stored any more.
    bench.clock.advance(std::time::Duration::from_hours(24));
    assert_eq!(used(order).await, 7);
    metadata.add_event_usage(&[asked("bought", today + 1, 1)]).await.expect("usage");
    let rows = sql::query_scalar("SELECT COUNT(*) FROM event_usage");
    let rows: i64 = rows.fetch_one(&mut bench.reader().await).await.expect("a count");
    assert_eq!((rows, used(order).await), (2, 8));
    metadata.delete_definition::<EventDefinition>(PROJECT, order, USER).await.expect("deleted");
    assert_eq!(used(order).await, 0);
}
