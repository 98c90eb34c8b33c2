//! Definitions of events and properties: each is stored once, and known ones keep their values.

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::annotations::NotesPatch;
use crate::definition_quota::{Limit, OverQuota};
use crate::definitions::{
    DefinitionPatch, DefinitionSeen, EVENT_DEFINITIONS_MAX, EventDefinition, Sightings,
};
use crate::properties::{
    EVENT_PROPERTIES_MAX, PROPERTY_DEFINITIONS_MAX, PairSeen, PropertyKind, PropertySeen, ValueType,
};
use crate::sql;

fn seen(name: &str, at: i64) -> DefinitionSeen {
    DefinitionSeen { project: PROJECT, name: name.to_owned(), seen_at: UnixMicros(at) }
}

fn events(seen: &[DefinitionSeen]) -> Sightings {
    Sightings { events: seen.to_vec(), ..Sightings::default() }
}

/// All event definitions, read in pages of two.
async fn all(metadata: &Metadata, project: ProjectId) -> Vec<EventDefinition> {
    let mut all: Vec<EventDefinition> = Vec::new();
    loop {
        let after = all.last().map_or("", |last| &last.name).to_owned();
        let page = metadata.definitions(project, &after, 2).await.expect("a page");
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

fn property(kind: PropertyKind, name: &str, value_type: Option<ValueType>) -> PropertySeen {
    PropertySeen { project: PROJECT, kind, name: name.to_owned(), value_type }
}

fn properties(seen: &[PropertySeen]) -> Sightings {
    Sightings { properties: seen.to_vec(), ..Sightings::default() }
}

type Property = (PropertyKind, String, Option<ValueType>);

/// All property definitions, read in pages of two.
async fn all_properties(metadata: &Metadata, project: ProjectId) -> Vec<Property> {
    let mut all = Vec::new();
    loop {
        let page = metadata.property_definitions(project, all.last(), 2).await.expect("a page");
        if page.is_empty() {
            break;
        }
        all.extend(page);
    }
    all.into_iter().map(|one| (one.kind, one.name, one.value_type)).collect()
}

/// All pairs of event and property, read in pages of two.
async fn all_pairs(metadata: &Metadata) -> Vec<(String, String)> {
    let mut all = Vec::new();
    loop {
        let page = metadata.event_properties(PROJECT, all.last(), 2).await.expect("a page");
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

#[tokio::test]
async fn everything_survives_a_restart() {
    let bench = Bench::started().await;
    bench.create("a").await;
    bench.metadata.upsert_definitions(&events(&[seen("signed up", 5)])).await.expect("upsert");
    let before = bench.metadata.snapshot();
    let definitions = all(&bench.metadata, PROJECT).await;
    bench.metadata.close().await;
    let reopened = bench.other().await;
    assert_eq!(reopened.snapshot(), before);
    assert_eq!(all(&reopened, PROJECT).await, definitions);
    assert_eq!(kind(bench.metadata.create_flag(PROJECT, USER, new("b")).await), Kind::Unavailable);
}

#[tokio::test]
async fn definitions_come_from_what_was_seen() {
    let bench = Bench::started().await;
    let metadata = &bench.metadata;
    metadata.upsert_definitions(&Sightings::default()).await.expect("nothing");
    let batch = [seen("b", 20), seen("$pageview", 10), seen("b", 5)];
    metadata.upsert_definitions(&events(&batch)).await.expect("upsert");
    let stored = all(metadata, PROJECT).await;
    let short = |all: &[EventDefinition]| {
        all.iter()
            .map(|one| (one.name.clone(), one.created_at.0, one.last_seen_at.map(|seen| seen.0)))
            .collect::<Vec<_>>()
    };
    let expected = [("$pageview".to_owned(), 10, Some(10)), ("b".to_owned(), 20, Some(20))];
    assert_eq!(short(&stored), expected);
    // The same again, as in a replay, changes nothing; a later event advances the last time.
    metadata.upsert_definitions(&events(&batch)).await.expect("upsert");
    assert_eq!(all(metadata, PROJECT).await, stored);
    metadata.upsert_definitions(&events(&[seen("b", 30)])).await.expect("upsert");
    let b = metadata.definition_by_name(PROJECT, "b").await.expect("b").0;
    assert_eq!((b.created_at, b.last_seen_at), (UnixMicros(20), Some(UnixMicros(30))));
    assert_eq!((b.tags.len(), b.post_to_slack), (0, false));
    assert_eq!(metadata.definition::<EventDefinition>(PROJECT, b.id).await.expect("b").0, b);

    // Python: uuid.uuid5(uuid.UUID("6f1d0c9e-5a47-4b3f-9c55-2f7de0b7a8d4"), "1:b")
    assert_eq!(b.id, Uuid::parse_str("11e2c151-3092-5c9c-8ab2-0558670aa075").expect("uuid"));

    let other = metadata
        .create_project(USER, "Other", ProjectPatch::default(), &seed(2))
        .await
        .expect("project")
        .id;
    assert_eq!(all(metadata, other).await, []);
    assert_eq!(kind(metadata.definition::<EventDefinition>(other, b.id).await), Kind::NotFound);
    assert_eq!(kind(metadata.definition_by_name(PROJECT, "B").await), Kind::NotFound);
}

#[tokio::test]
async fn a_batch_of_definitions_is_all_or_nothing() {
    let bench = Bench::started().await;
    let nowhere = DefinitionSeen { project: ProjectId(9), ..seen("x", 1) };
    let result = bench.metadata.upsert_definitions(&events(&[seen("a", 1), nowhere])).await;
    assert_eq!(kind(result), Kind::Internal);
    assert_eq!(all(&bench.metadata, PROJECT).await, []);
}

#[tokio::test]
async fn definitions_are_edited_and_deleted() {
    let bench = Bench::started().await;
    let metadata = &bench.metadata;
    metadata.upsert_definitions(&events(&[seen("a", 1), seen("b", 2)])).await.expect("upsert");
    let a = metadata.definition_by_name(PROJECT, "a").await.expect("a").0;
    let patch = DefinitionPatch {
        name: Some("renamed".to_owned()),
        created_at: Some(UnixMicros(7)),
        last_seen_at: Some(Some(UnixMicros(8))),
        tags: Some(vec![" X".to_owned(), "x".to_owned()]),
        post_to_slack: Some(true),
        notes: NotesPatch::default(),
    };
    let renamed = metadata
        .update_definition::<EventDefinition>(PROJECT, a.id, patch, USER)
        .await
        .expect("update")
        .0;
    let expected = EventDefinition {
        id: a.id,
        project: PROJECT,
        name: "renamed".to_owned(),
        created_at: UnixMicros(7),
        last_seen_at: Some(UnixMicros(8)),
        tags: vec!["x".to_owned()],
        post_to_slack: true,
    };
    assert_eq!(renamed, expected);
    assert_eq!(metadata.definition::<EventDefinition>(PROJECT, a.id).await.expect("a").0, expected);
    let same = metadata
        .update_definition::<EventDefinition>(PROJECT, a.id, DefinitionPatch::default(), USER)
        .await;
    assert_eq!(same.expect("update").0, expected);

    let set_name =
        |name: &str| DefinitionPatch { name: Some(name.to_owned()), ..DefinitionPatch::default() };
    for (name, expected) in [("b", "unique"), (" ", "blank"), (&"n".repeat(401), "max_length")] {
        let result = metadata
            .update_definition::<EventDefinition>(PROJECT, a.id, set_name(name), USER)
            .await;
        assert_eq!(code(result), expected, "{name}");
    }

    // Events of the old name get a new definition, whose id cannot be the usual one.
    metadata.upsert_definitions(&events(&[seen("a", 9)])).await.expect("upsert");
    let new = metadata.definition_by_name(PROJECT, "a").await.expect("a").0;
    assert_ne!(new.id, a.id);
    metadata.upsert_definitions(&events(&[seen("a", 10)])).await.expect("upsert");
    assert_eq!(metadata.definition_by_name(PROJECT, "a").await.expect("a").0.id, new.id);

    assert_eq!(
        metadata.delete_definition::<EventDefinition>(PROJECT, a.id, USER).await.expect("delete"),
        expected
    );
    assert_eq!(
        kind(metadata.delete_definition::<EventDefinition>(PROJECT, a.id, USER).await),
        Kind::NotFound
    );
    assert_eq!(kind(metadata.definition::<EventDefinition>(PROJECT, a.id).await), Kind::NotFound);
    let gone = metadata
        .update_definition::<EventDefinition>(PROJECT, a.id, DefinitionPatch::default(), USER)
        .await;
    assert_eq!(kind(gone), Kind::NotFound);
    assert_eq!(all(metadata, PROJECT).await.len(), 2);
}

#[tokio::test]
async fn definitions_are_made_before_their_events() {
    let bench = Bench::started().await;
    let metadata = &bench.metadata;
    let new = |name: &str| DefinitionPatch {
        name: Some(name.to_owned()),
        tags: Some(vec![" X".to_owned()]),
        notes: NotesPatch { hidden: Some(true), ..NotesPatch::default() },
        ..DefinitionPatch::default()
    };
    let (made, notes) = metadata.create_definition(PROJECT, new("a"), USER).await.expect("made");
    assert_eq!((made.created_at, made.last_seen_at), (START, None));
    assert_eq!((made.tags.as_slice(), notes.hidden), (&["x".to_owned()][..], true));
    let stored = metadata.definition::<EventDefinition>(PROJECT, made.id).await.expect("a");
    assert_eq!(stored, (made.clone(), notes));
    for (name, expected) in [("a", "invalid_input"), (" ", "blank")] {
        let refused = metadata.create_definition(PROJECT, new(name), USER).await;
        assert_eq!(code(refused), expected, "{name}");
    }
    let nobody = NotesPatch { owner: Some(Some(UserId(9))), ..NotesPatch::default() };
    let refused = DefinitionPatch { notes: nobody, ..new("b") };
    let refused = metadata.create_definition(PROJECT, refused, USER).await;
    assert_eq!(code(refused), "does_not_exist");
    metadata.upsert_definitions(&events(&[seen("a", 7)])).await.expect("upsert");
    let all = all(metadata, PROJECT).await;
    assert_eq!(all, [EventDefinition { last_seen_at: Some(UnixMicros(7)), ..made.clone() }]);
    // The annotations are deleted with the definition.
    metadata.delete_definition::<EventDefinition>(PROJECT, made.id, USER).await.expect("deleted");
    metadata.upsert_definitions(&events(&[seen("a", 9)])).await.expect("upsert");
    let (again, notes) = metadata.definition_by_name(PROJECT, "a").await.expect("a");
    assert_eq!((again.id, notes.hidden), (made.id, false));
    let other = metadata
        .create_project(USER, "Other", ProjectPatch::default(), &seed(2))
        .await
        .expect("project")
        .id;
    assert_eq!(metadata.create_definition(other, new("a"), USER).await.expect("made").0.name, "a");
    assert_eq!(metadata.annotations(PROJECT).await.expect("notes").len(), 0);
}

#[tokio::test]
async fn property_definitions_come_from_what_was_seen() {
    use PropertyKind::{Event, Group, Person};
    let bench = Bench::started().await;
    let metadata = &bench.metadata;
    let pair = |event: &str, property: &str| PairSeen {
        project: PROJECT,
        event: event.to_owned(),
        property: property.to_owned(),
    };
    let seen = Sightings {
        events: vec![seen("order", 5)],
        properties: vec![
            property(Event, "price", Some(ValueType::Numeric)),
            property(Event, "note", None),
            property(Event, "", Some(ValueType::String)),
            property(Person, "price", Some(ValueType::String)),
            property(Group(1), "price", Some(ValueType::DateTime)),
            property(Group(0), "price", Some(ValueType::Boolean)),
        ],
        pairs: vec![pair("order", "price"), pair("order", ""), pair("a", "price")],
        ..Sightings::default()
    };
    metadata.upsert_definitions(&seen).await.expect("upsert");
    let expected = vec![
        (Event, String::new(), Some(ValueType::String)),
        (Event, "note".to_owned(), None),
        (Event, "price".to_owned(), Some(ValueType::Numeric)),
        (Person, "price".to_owned(), Some(ValueType::String)),
        (Group(0), "price".to_owned(), Some(ValueType::Boolean)),
        (Group(1), "price".to_owned(), Some(ValueType::DateTime)),
    ];
    assert_eq!(all_properties(metadata, PROJECT).await, expected);
    let pairs = [("a", "price"), ("order", ""), ("order", "price")];
    let pairs = pairs.map(|(event, property)| (event.to_owned(), property.to_owned()));
    assert_eq!(all_pairs(metadata).await, pairs);
    let ids = metadata.property_definitions(PROJECT, None, 10).await.expect("a page");
    // Python: uuid.uuid5(uuid.UUID("3b7a9c42-81d5-4e0f-a6c8-5d14f2e97b06"), "1:1:-1:price")
    let price = ids.iter().find(|one| one.kind == Event && one.name == "price").expect("price");
    assert_eq!(price.id.to_string(), "bd7361ae-9b42-5575-b92c-f7d2c2d896d5");
    assert!(price.is_numerical());
    // The same again, as in a replay, changes nothing.
    metadata.upsert_definitions(&seen).await.expect("upsert");
    assert_eq!(metadata.property_definitions(PROJECT, None, 10).await.expect("a page"), ids);
    assert_eq!(all_pairs(metadata).await, pairs);
    let other = metadata
        .create_project(USER, "Other", ProjectPatch::default(), &super::seed(2))
        .await
        .expect("one")
        .id;
    assert_eq!(all_properties(metadata, other).await, []);
}

#[tokio::test]
async fn more_definitions_than_one_statement_takes_are_stored() {
    let bench = Bench::started().await;
    let many: Vec<PropertySeen> = (0..1_000)
        .map(|n| property(PropertyKind::Event, &format!("key {n:04}"), Some(ValueType::String)))
        .collect();
    bench.metadata.upsert_definitions(&properties(&many)).await.expect("upsert");
    let stored = bench.metadata.property_definitions(PROJECT, None, 2_000).await.expect("all");
    assert!(stored.iter().map(|one| &one.name).eq(many.iter().map(|one| &one.name)));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24,
        ..ProptestConfig::with_failure_persistence(proptest::test_runner::FileFailurePersistence::WithSource("regressions"))
    })]

    /// The first known type stays, however sightings are split into batches.
    #[test]
    fn the_first_type_stays(
        sightings in prop::collection::vec((0_usize..3, 0_usize..6), 1..40),
        cuts in prop::collection::vec(1_usize..8, 40),
    ) {
        let seen: Vec<PropertySeen> = sightings
            .iter()
            .map(|(key, value_type)| {
                // The last two have no type.
                let value_type = ValueType::NAMES.get(*value_type);
                let value_type = value_type.and_then(|name| ValueType::parse(name));
                property(PropertyKind::Event, ["a", "b", "c"][*key], value_type)
            })
            .collect();
        let mut expected: std::collections::BTreeMap<&str, Option<ValueType>> = Default::default();
        for one in &seen {
            let first = expected.entry(&one.name).or_default();
            *first = first.or(one.value_type);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let stored = runtime.block_on(async {
            let bench = Bench::started().await;
            let mut rest = seen.as_slice();
            for cut in cuts {
                let (batch, after) = rest.split_at(cut.min(rest.len()));
                bench.metadata.upsert_definitions(&properties(batch)).await.expect("upsert");
                rest = after;
            }
            all_properties(&bench.metadata, PROJECT).await
        });
        let stored: Vec<_> = stored.iter().map(|(_, name, kind)| (name.as_str(), *kind)).collect();
        prop_assert_eq!(stored, expected.into_iter().collect::<Vec<_>>());
    }
}

/// Inserts rows as if so many names had arrived, because only constants set the limits.
async fn fill(bench: &Bench, sql: &str, count: u32) {
    let sql = format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) {sql}"
    );
    bench.run(&sql).await;
}

/// Goal: a public token can neither fill the store nor make lists slow; known definitions stay up to date.
#[tokio::test]
async fn definitions_are_bounded() {
    let bench = Bench::started().await;
    let metadata = &bench.metadata;
    let rows =
        "INSERT INTO event_definitions SELECT 'id' || i, 1, 'e' || i, 0, 0, '[]', FALSE FROM n";
    fill(&bench, rows, EVENT_DEFINITIONS_MAX - 1).await;
    let batch = [seen("last", 5), seen("beyond", 5), seen("e7", 5), seen("further", 5)];
    let beyond = |limit, event: Option<&str>, property: Option<&str>| OverQuota {
        project: PROJECT,
        limit,
        event: event.map(str::to_owned),
        property: property.map(str::to_owned),
    };
    let told = metadata.upsert_definitions(&events(&batch)).await.expect("upsert");
    assert_eq!(told, [beyond(Limit::Events, Some("beyond"), None)], "the first is told");
    let find = async |name: &str| metadata.definition_by_name(PROJECT, name).await;
    find("last").await.expect("there was room for one");
    assert_eq!(kind(find("beyond").await), Kind::NotFound);
    let known = async || -> i64 {
        let select =
            sql::query_scalar("SELECT last_seen_at FROM event_definitions WHERE name = 'e7'");
        select.fetch_one(&mut bench.reader().await).await.expect("a time")
    };
    assert_eq!(known().await, 5_i64);
    metadata
        .upsert_definitions(&events(&[seen("beyond", 9), seen("e7", 9)]))
        .await
        .expect("upsert");
    assert_eq!(known().await, 9_i64);
    let by_hand = DefinitionPatch { name: Some("hand".to_owned()), ..DefinitionPatch::default() };
    let by_hand = metadata.create_definition(PROJECT, by_hand, USER).await;
    assert_eq!(code(by_hand), "invalid_input");

    let rows = "INSERT INTO property_definitions (id, project_id, kind, group_type_index, name)
                SELECT 'id' || i, 1, 1, -1, 'p' || i FROM n";
    fill(&bench, rows, PROPERTY_DEFINITIONS_MAX - 1).await;
    let rows = "INSERT INTO event_properties SELECT 1, 'e' || i, 'p' FROM n";
    fill(&bench, rows, EVENT_PROPERTIES_MAX - 1).await;
    let property = |name: &str| PropertySeen {
        project: PROJECT,
        kind: PropertyKind::Event,
        name: name.to_owned(),
        value_type: Some(ValueType::Numeric),
    };
    let pair = |property: &str| PairSeen {
        project: PROJECT,
        event: "last".to_owned(),
        property: property.to_owned(),
    };
    let sightings = Sightings {
        properties: ["a", "b", "p7"].map(property).to_vec(),
        pairs: ["a", "b"].map(pair).to_vec(),
        ..Sightings::default()
    };
    let mut told = metadata.upsert_definitions(&sightings).await.expect("upsert");
    told.sort_by_key(|beyond| beyond.limit == Limit::Pairs);
    let pairs = beyond(Limit::Pairs, Some("last"), Some("b"));
    assert_eq!(told, [beyond(Limit::Properties, None, Some("b")), pairs]);
    // Known definitions are not rejected, although the quota is used up.
    let known = Sightings {
        properties: ["a", "p7"].map(property).to_vec(),
        pairs: vec![pair("a")],
        ..Sightings::default()
    };
    assert_eq!(metadata.upsert_definitions(&known).await.expect("upsert"), []);
    let select =
        "SELECT name FROM property_definitions WHERE property_type = 'Numeric' ORDER BY name";
    let typed: Vec<String> =
        sql::query_scalar(select).fetch_all(&mut bench.reader().await).await.expect("names");
    assert_eq!(typed, ["a", "p7"]);
    let select = "SELECT property FROM event_properties WHERE event = 'last'";
    let pairs: Vec<String> =
        sql::query_scalar(select).fetch_all(&mut bench.reader().await).await.expect("pairs");
    assert_eq!(pairs, ["a"]);
}
