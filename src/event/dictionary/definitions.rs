//! The columns of definitions, which are made of events as they arrive, and of warnings.

use crate::dictionary::column::Availability::Sql;
use crate::dictionary::column::Kind::{Boolean, Date, Integer, Text, Timestamp};
use crate::dictionary::column::{Column, Table};

/// Names of events.
pub const EVENT_DEFINITIONS: Table = Table {
    name: "event_definitions",
    meaning: "A name of events that was seen, or was defined beforehand.",
    has_files: false,
    columns: event_definitions,
};

/// Properties.
pub const PROPERTY_DEFINITIONS: Table = Table {
    name: "property_definitions",
    meaning: "A property of events, persons or groups that was seen.",
    has_files: false,
    columns: property_definitions,
};

/// Properties of events.
pub const EVENT_PROPERTIES: Table = Table {
    name: "event_properties",
    meaning: "An event name and a property that was seen together with it.",
    has_files: false,
    columns: event_properties,
};

/// Warnings.
pub const INGESTION_WARNINGS: Table = Table {
    name: "ingestion_warnings",
    meaning: "The problems of one kind with received events on one day.",
    has_files: false,
    columns: ingestion_warnings,
};

const UUID: &str = "0197f9a2-4444-7c1e-b0d6-2f0f4b0f9f11";

#[rustfmt::skip]
fn event_definitions() -> Vec<Column> {
    vec![
        Column::new("id", Text, "id of the definition", UUID).unit("UUID").only(Sql),
        Column::new("name", Text, "name of the events", "$pageview").only(Sql),
        Column::new("created_at", Timestamp, "when it was seen first, or defined", "2026-11-21 08:00:00").unit("UTC").only(Sql),
        Column::new("last_seen_at", Timestamp, "when it was seen last", "2026-11-22 09:30:00").unit("UTC").nullable().only(Sql),
        Column::new("tags", Text, "tags of the definition", "[\"core\"]").unit("JSON array").only(Sql),
        Column::new("post_to_slack", Boolean, "kept for clients of PostHog, without an effect", "false").only(Sql),
    ]
}

#[rustfmt::skip]
fn property_definitions() -> Vec<Column> {
    vec![
        Column::new("id", Text, "id of the definition", UUID).unit("UUID").only(Sql),
        Column::new("name", Text, "key of the property", "plan").only(Sql),
        Column::new("type", Text, "whose property it is: `event`, `person` or `group`", "event").only(Sql),
        Column::new("group_type_index", Integer, "number of the group type of a property of groups", "0").nullable().only(Sql),
        Column::new("is_numerical", Boolean, "whether the values are numbers", "false").only(Sql),
        Column::new("property_type", Text, "type of the first value: `String`, `Numeric`, `Boolean` or `DateTime`", "String").nullable().only(Sql),
        Column::new("tags", Text, "tags of the definition", "[]").unit("JSON array").only(Sql),
    ]
}

#[rustfmt::skip]
fn event_properties() -> Vec<Column> {
    vec![
        Column::new("event", Text, "name of the events", "signed up").only(Sql),
        Column::new("property", Text, "key of the property", "plan").only(Sql),
    ]
}

#[rustfmt::skip]
fn ingestion_warnings() -> Vec<Column> {
    vec![
        Column::new("type", Text, "kind of the problem", "cannot_merge_with_illegal_distinct_id").only(Sql),
        Column::new("day", Date, "day on which the events were received, in UTC", "2026-11-21").only(Sql),
        Column::new("count", Integer, "how often it happened", "3").unit("occurrences").only(Sql),
        Column::new("first_seen_at", Timestamp, "when it happened first on this day", "2026-11-21 08:00:00").unit("UTC").only(Sql),
        Column::new("last_seen_at", Timestamp, "when it happened last on this day", "2026-11-21 17:00:00").unit("UTC").only(Sql),
        Column::new("samples", Text, "a few of the occurrences, with their times and details", "[{\"timestamp\":\"2026-11-21T08:00:00Z\",\"details\":{}}]").unit("JSON array").only(Sql),
    ]
}
