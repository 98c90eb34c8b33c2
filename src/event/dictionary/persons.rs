//! The columns of persons, their distinct ids, and groups.

use crate::dictionary::column::Availability::{Files, Sql};
use crate::dictionary::column::Kind::{Boolean, Integer, Text, Timestamp};
use crate::dictionary::column::{Column, Table};

/// Persons.
pub const PERSONS: Table = Table {
    name: "persons",
    meaning: "A person; `events.person_id` is its `uuid`. In files as of some minutes ago.",
    has_files: true,
    columns: persons,
};

/// Distinct ids of persons.
pub const PERSON_DISTINCT_IDS: Table = Table {
    name: "person_distinct_ids",
    meaning: "A distinct id and the person that has it. In files as of some minutes ago.",
    has_files: true,
    columns: person_distinct_ids,
};

/// Groups.
pub const GROUPS: Table = Table {
    name: "groups",
    meaning: "A group, such as a company, and its properties.",
    has_files: false,
    columns: groups,
};

const OLD_UUID: &str = "0d9c2c44-8a53-5f6d-9a37-2b1a54f10d7e";
const UUID: &str = "7f3f0f2e-5bd4-5d0a-9c5c-3f8d8c1e6b52";

/// SQL and files differ in `id`: a column of a Delta table cannot change its type, and readers of the files rely on the
/// integer. `uuid` is the same in both.
#[rustfmt::skip]
fn persons() -> Vec<Column> {
    vec![
        Column::new("project_id", Integer, "the project", "1").only(Files),
        Column::new("id", Integer, "number of the person, which the API calls `id`; `number` in SQL. Join events by `uuid`", "17").only(Files),
        Column::new("id", Text, "the same as `uuid`, as in HogQL", UUID).unit("UUID").only(Sql),
        Column::new("uuid", Text, "the person, equal to `events.person_id`", UUID).unit("UUID"),
        Column::new("distinct_ids", Text, "all distinct ids of the person", "[\"ada@example.com\"]").unit("JSON array").only(Files),
        Column::new("properties", Text, "all properties of the person", "{\"email\":\"ada@example.com\"}").unit("JSON object").only(Files),
        Column::new("created_at", Timestamp, "when the person was created", "2026-11-21 08:00:00").unit("UTC"),
        Column::new("is_identified", Boolean, "whether an event has identified the person", "true"),
        Column::new("properties", Text, "all properties of the person", "{\"email\":\"ada@example.com\"}").unit("JSON object").only(Sql),
        Column::new("number", Integer, "number of the person, which the API calls `id`", "17").only(Sql),
        Column::new("version", Integer, "number of the last change of the row; it grows with each change", "3").only(Files),
    ]
}

#[rustfmt::skip]
fn person_distinct_ids() -> Vec<Column> {
    vec![
        Column::new("project_id", Integer, "the project", "1").only(Files),
        Column::new("distinct_id", Text, "the sender's id of the person, equal to `events.distinct_id`", "ada@example.com"),
        Column::new("person_id", Text, "the person as of now, equal to `persons.uuid`", UUID).unit("UUID"),
        Column::new("since", Timestamp, "time of the event, or of the request of an operator, by which the distinct id got this person; without a value if a version without this table stored it", "2026-11-21 08:00:00").unit("UTC").nullable().only(Files),
        Column::new("old_person_id", Text, "what its events have as `person_id` in files if they were captured before a merge; without a value if that is `person_id`", OLD_UUID).unit("UUID").nullable().only(Files),
        Column::new("person_number", Integer, "number of the person, equal to `persons.id` of the files", "17").only(Files),
    ]
}

#[rustfmt::skip]
fn groups() -> Vec<Column> {
    vec![
        Column::new("group_type_index", Integer, "number of the group type, from 0 to 4, as in `events.group_0`", "0").only(Sql),
        Column::new("key", Text, "the sender's id of the group, equal to `events.group_0` and so on", "acme").only(Sql),
        Column::new("created_at", Timestamp, "when the group was created", "2026-11-21 08:00:00").unit("UTC").only(Sql),
        Column::new("properties", Text, "all properties of the group", "{\"name\":\"Acme\"}").unit("JSON object").only(Sql),
    ]
}
