//! The columns of events: what the fixed ones mean. Their types are those of the schema, and promoted properties are
//! described by `properties`.

use std::borrow::Cow;

use crate::dictionary::column::{Availability, Column, Kind, Table};
use crate::dictionary::properties;
use crate::schema::{PARTITION_COLUMN, events_schema};

/// Events.
pub const EVENTS: Table = Table {
    name: "events",
    meaning: "An event that an SDK or another sender has sent.",
    has_files: true,
    columns,
};

/// Name, meaning, unit, example.
type Fixed = (&'static str, &'static str, Option<&'static str>, &'static str);

#[rustfmt::skip]
const FIXED: [Fixed; 19] = [
    ("project_id", "the project", None, "1"),
    ("uuid", "id of the event, from the sender or generated; a retry with the same one is stored once", Some("UUID"), "0197f9a2-6d52-7c1e-b0d6-2f0f4b0f9f11"),
    ("event", "name of the event", None, "$pageview"),
    ("distinct_id", "the sender's id of the person", None, "ada@example.com"),
    ("person_id", "the person, equal to `persons.uuid`; in files the person at ingest, in SQL the person as of now, after merges and splits", Some("UUID"), "7f3f0f2e-5bd4-5d0a-9c5c-3f8d8c1e6b52"),
    ("timestamp", "when it happened, after correction of the sender's clock", Some("UTC"), "2026-11-21 08:00:00.001310"),
    ("received_at", "when the server received it; SQL also knows it as `created_at`", Some("UTC"), "2026-11-21 08:00:01.250000"),
    ("session_id", "property `$session_id`: the events of one visit share it", None, "0197f9a2-1111-7c1e-b0d6-2f0f4b0f9f11"),
    ("window_id", "property `$window_id`: the browser tab", None, "0197f9a2-2222-7c1e-b0d6-2f0f4b0f9f11"),
    ("elements_chain", "the clicked element and its ancestors, as PostHog writes them (`$elements_chain`)", None, "button.main:text=\"Buy\"nth-child=\"1\";div;body"),
    ("ip", "property `$ip`, or the client's address; without a value if the project does not keep addresses", None, "203.0.113.7"),
    ("group_0", "key of the event's group of type 0", None, "acme"),
    ("group_1", "key of the event's group of type 1", None, "berlin"),
    ("group_2", "key of the event's group of type 2", None, "team-7"),
    ("group_3", "key of the event's group of type 3", None, "workspace-12"),
    ("group_4", "key of the event's group of type 4", None, "order-99"),
    ("properties", "all properties as they were sent, also those with a column", Some("JSON object"), "{\"plan\":\"pro\",\"$browser\":\"Firefox\"}"),
    ("historical_migration", "true if the sender marked the event as imported history", None, "true"),
    (PARTITION_COLUMN, "the partition: calendar month of `timestamp` in UTC, as in the name of the directory", Some("YYYY-MM"), "2026-11"),
];

/// Columns that SQL does not have: it sees one project, and finds the files itself.
const OF_FILES: [&str; 2] = ["project_id", PARTITION_COLUMN];

fn columns() -> Vec<Column> {
    let schema = events_schema();
    let partition = (PARTITION_COLUMN, Kind::Text, true);
    let fields = schema.fields().iter().map(|field| {
        let kind = Kind::of(field.data_type()).unwrap_or(Kind::Text);
        (field.name().as_str(), kind, field.is_nullable())
    });
    fields.chain([partition]).filter_map(column).collect()
}

fn column((name, kind, is_nullable): (&str, Kind, bool)) -> Option<Column> {
    let Some((own, meaning, unit, example)) = FIXED.iter().find(|(own, ..)| *own == name) else {
        let key = properties::property_key(name)?;
        return Some(properties::described(name.to_owned(), &key, kind));
    };
    Some(Column {
        name: Cow::Borrowed(own),
        kind,
        is_nullable,
        meaning: Cow::Borrowed(meaning),
        unit: *unit,
        example: Cow::Borrowed(example),
        since: 1,
        place: if OF_FILES.contains(&name) { Availability::Files } else { Availability::Both },
    })
}
