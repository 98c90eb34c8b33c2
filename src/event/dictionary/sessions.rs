//! The columns of sessions, which each query computes from events.

use crate::dictionary::column::Availability::Sql;
use crate::dictionary::column::Kind::{Boolean, Integer, Text, Timestamp};
use crate::dictionary::column::{Column, Kind, Table};

/// Sessions.
pub const SESSIONS: Table = Table {
    name: "sessions",
    meaning: "All events with the same `$session_id`. The entry event is the first one with a `$current_url`, the exit event the last one.",
    has_files: false,
    columns,
};

/// Name, type, meaning, unit, example.
type Row = (&'static str, Kind, &'static str, Option<&'static str>, &'static str);

#[rustfmt::skip]
const ROWS: [Row; 28] = [
    ("session_id", Text, "the `$session_id`", None, "0197f9a2-1111-7c1e-b0d6-2f0f4b0f9f11"),
    ("distinct_id", Text, "distinct id of the last event", None, "ada@example.com"),
    ("person_id", Text, "person of the last event, equal to `persons.uuid`", Some("UUID"), "7f3f0f2e-5bd4-5d0a-9c5c-3f8d8c1e6b52"),
    ("$start_timestamp", Timestamp, "time of the first event", Some("UTC"), "2026-11-21 08:00:00"),
    ("$end_timestamp", Timestamp, "time of the last event", Some("UTC"), "2026-11-21 08:12:30"),
    ("$session_duration", Integer, "time from the first to the last event", Some("seconds"), "750"),
    ("$pageview_count", Integer, "number of `$pageview`", Some("events"), "4"),
    ("$autocapture_count", Integer, "number of `$autocapture`", Some("events"), "11"),
    ("$screen_count", Integer, "number of `$screen`", Some("events"), "0"),
    ("$is_bounce", Boolean, "whether the visit was one page for less than 10 seconds, without an interaction; NULL without a page", None, "false"),
    ("$entry_current_url", Text, "address of the first page", Some("URL"), "https://example.com/?ref=a"),
    ("$entry_hostname", Text, "host of the first page", None, "example.com"),
    ("$entry_pathname", Text, "path of the first page", None, "/"),
    ("$end_current_url", Text, "address of the last page", Some("URL"), "https://example.com/pricing"),
    ("$end_hostname", Text, "host of the last page", None, "example.com"),
    ("$end_pathname", Text, "path of the last page", None, "/pricing"),
    ("$exit_current_url", Text, "former name of `$end_current_url`", Some("URL"), "https://example.com/pricing"),
    ("$exit_pathname", Text, "former name of `$end_pathname`", None, "/pricing"),
    ("$entry_referring_domain", Text, "`$referring_domain` of the entry event", None, "news.example.org"),
    ("$entry_utm_source", Text, "`utm_source` of the entry event", None, "newsletter"),
    ("$entry_utm_medium", Text, "`utm_medium` of the entry event", None, "email"),
    ("$entry_utm_campaign", Text, "`utm_campaign` of the entry event", None, "spring"),
    ("$entry_utm_content", Text, "`utm_content` of the entry event", None, "header"),
    ("$entry_utm_term", Text, "`utm_term` of the entry event", None, "analytics"),
    ("$entry_gclid", Text, "`gclid` of the entry event", None, "Cj0KCQiA"),
    ("$entry_gad_source", Text, "`gad_source` of the entry event", None, "1"),
    ("$entry_fbclid", Text, "`fbclid` of the entry event", None, "IwAR0"),
    ("$entry_msclkid", Text, "`msclkid` of the entry event", None, "9f1c"),
];

fn columns() -> Vec<Column> {
    let column = |(name, kind, meaning, unit, example): Row| {
        let column = Column::new(name, kind, meaning, example).nullable().only(Sql);
        Column { unit, ..column }
    };
    ROWS.into_iter().map(column).collect()
}
