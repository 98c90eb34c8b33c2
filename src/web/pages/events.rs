//! Events: the list, a single one, and the live view.

use chrono::DateTime;
use chrono_tz::Tz;
use maud::{Markup, html};
use serde_json::Value;

use crate::chart::figure::duration;
use crate::parts;
use crate::parts::{Elsewhere, clipped, literal, page, query};
use crate::state::curl;
use crate::state::properties::{has_person, name_of, place_of};
use crate::state::sql::{exactly, path_in_file, path_in_server};
use weir_api::events::Event;
use weir_event::json;

/// Longest names and ids in a row, in characters.
const NAME_MAX_CHARS: usize = 120;

/// Delay in seconds from which an event is marked as late: SDKs send in batches.
const LATE_FROM_SECONDS: f64 = 60.0;

/// An event as pages display it.
#[derive(Clone, Debug, Default)]
pub struct Drawn {
    /// The uuid.
    pub id: String,
    /// The name.
    pub event: String,
    /// The distinct id that the sender gave.
    pub distinct_id: String,
    /// The name of the person, if it has one.
    pub person: Option<String>,
    /// When it happened (RFC 3339).
    pub timestamp: String,
    /// When the server received it, if known.
    pub received_at: Option<String>,
    /// The properties.
    pub properties: Value,
    /// The HTML elements, in the format of SDKs.
    pub elements_chain: String,
}

impl From<Event> for Drawn {
    fn from(event: Event) -> Self {
        Self {
            person: event.person.and_then(|person| name_of(&person.properties).map(str::to_owned)),
            // JSON is checked before it is stored, so this does not fail.
            properties: json::restore(event.properties.get().as_bytes()).unwrap_or_default(),
            id: event.id,
            event: event.event,
            distinct_id: event.distinct_id,
            timestamp: event.timestamp,
            received_at: None,
            elements_chain: event.elements_chain,
        }
    }
}

impl Drawn {
    /// Whether it belongs to a person. Browser SDKs send events without one until they call `identify`.
    pub fn has_person(&self) -> bool {
        has_person(&self.properties)
    }

    /// Seconds from the event's time until it was received; `None` if one of both is not known.
    fn delay(&self, received_at: &str) -> Option<f64> {
        let moment = |text: &str| DateTime::parse_from_rfc3339(text).ok();
        let (received, own) = moment(received_at).zip(moment(&self.timestamp))?;
        Some((received - own).as_seconds_f64())
    }
}

/// Conditions of a list of events, as texts of the form.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The name of the event.
    pub event: String,
    /// The distinct id.
    pub distinct_id: String,
    /// The key of a property, and its value.
    pub property: (String, String),
    /// Start of the time range.
    pub after: String,
    /// Properties shown as columns, separated by commas.
    pub columns: String,
}

impl Wanted {
    /// The query string of the address.
    pub fn query(&self, more: &[(&str, &str)]) -> String {
        let own = [
            ("event", &*self.event),
            ("distinct_id", &self.distinct_id),
            ("key", &self.property.0),
            ("value", &self.property.1),
            ("after", &self.after),
            ("columns", &self.columns),
        ];
        query(&[&own, more].concat())
    }

    /// The property filter in the API's format.
    pub fn properties(&self) -> Option<Value> {
        let (key, value) = &self.property;
        let filter =
            serde_json::json!({"key": key, "value": value, "operator": "exact", "type": "event"});
        (!key.is_empty()).then(|| serde_json::json!([filter]))
    }

    /// The properties shown as columns.
    pub fn shown(&self) -> Vec<&str> {
        parts::columns(&self.columns)
    }
}

/// The form of a list; `names` are names of events to choose from.
pub fn form(project: i64, path: &str, wanted: &Wanted, names: &[String]) -> Markup {
    html! {
        form class="bar" method="get" action=(page(project, path)) {
            label { "Event" input type="text" name="event" value=(wanted.event) list="event-names" maxlength="400"; }
            datalist id="event-names" { @for name in names { option value=(name) {} } }
            label { "Distinct id" input type="text" name="distinct_id" value=(wanted.distinct_id) maxlength="400"; }
            label { "Property" input type="text" name="key" value=(wanted.property.0) maxlength="400"; }
            label { "is" input type="text" name="value" value=(wanted.property.1) maxlength="400"; }
            @if path == "activity/explore" {
                label { "Since" select name="after" {
                    @for (value, title) in [("", "Always"), ("-1h", "1 hour"), ("-24h", "24 hours"), ("-7d", "7 days"), ("-30d", "30 days")] {
                        option value=(value) selected[wanted.after == value] { (title) }
                    }
                } }
                label { "Columns" input type="text" name="columns" value=(wanted.columns) placeholder="$current_url, plan" maxlength="1000"; }
            }
            button class="main" { "Show" }
        }
    }
}

/// Table rows of events.
pub fn rows(project: i64, zone: Tz, events: &[Drawn], columns: &[&str]) -> Markup {
    html! { @for event in events { (row(project, zone, event, columns)) } }
}

/// One table row.
pub fn row(project: i64, zone: Tz, event: &Drawn, columns: &[&str]) -> Markup {
    let Drawn { id, distinct_id, properties, .. } = event;
    html! {
        tr data-id=(id) {
            td { a href=(page(project, &format!("events/{}", parts::part(id)))) { (shown_name(&event.event)) } }
            td { a href=(parts::person(project, distinct_id)) { (clipped(event.person.as_ref().unwrap_or(distinct_id), NAME_MAX_CHARS)) } }
            @if columns.is_empty() {
                td class="clip" { (clipped(place_of(properties), NAME_MAX_CHARS)) }
            } @else {
                @for column in columns { td { (parts::short(properties.get(column).unwrap_or(&Value::Null))) } }
            }
            td class="short" { (parts::time(&event.timestamp, zone)) (behind(event)) }
        }
    }
}

/// Badge with the delay of an event, if the time of receipt is known and the delay is at least [`LATE_FROM_SECONDS`].
fn behind(event: &Drawn) -> Markup {
    let seconds = event.received_at.as_deref().and_then(|at| event.delay(at)).unwrap_or_default();
    html! { @if seconds >= LATE_FROM_SECONDS { " " span class="badge" { (duration(seconds)) " late" } } }
}

/// Row in place of events that arrived together with others and are not shown.
pub fn skipped(project: i64, number: usize) -> Markup {
    let number = i64::try_from(number).unwrap_or(i64::MAX);
    html! {
        tr class="skipped" {
            td colspan="4" {
                (parts::number(number)) " more " @if number == 1 { "event" } @else { "events" } " came at the same time. "
                a href=(page(project, "activity/explore")) { "All events" }
            }
        }
    }
}

fn shown_name(name: &str) -> String {
    if name.trim().is_empty() { "(no name)".to_owned() } else { clipped(name, NAME_MAX_CHARS) }
}

/// The table around rows. `live` is the address of the stream of further rows.
pub fn table(columns: &[&str], live: Option<&str>, rows: &Markup) -> Markup {
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Events" {
            table {
                thead { tr {
                    th scope="col" { "Event" } th scope="col" { "Person" }
                    @if columns.is_empty() { th scope="col" { "Where" } }
                    @for column in columns { th scope="col" { (clipped(column, NAME_MAX_CHARS)) } }
                    th scope="col" { "Time" }
                } }
                tbody data-live=[live] { (rows) }
            }
        }
    }
}

/// Content of an empty list.
pub fn none(project: i64, is_limited: bool) -> Markup {
    html! {
        div class="empty" id="live-empty" {
            @if is_limited {
                h2 { "No event matches" }
                p { "Nothing that was stored has all of this. " a href=(page(project, "activity/explore")) { "Show all events" } }
            } @else {
                h2 { "No events yet" }
                p { "Events appear here as soon as they are stored. " a href=(page(project, "onboarding")) { "Send the first one" } }
            }
        }
    }
}

/// One event.
pub fn one(project: i64, zone: Tz, event: &Drawn) -> Markup {
    let Drawn { id, distinct_id, timestamp, properties, elements_chain, .. } = event;
    html! {
        div class="card" {
            dl class="facts" {
                dt { "Time" } dd { (parts::time(timestamp, zone)) }
                dt { "Person" } dd { a href=(parts::person(project, distinct_id)) { (clipped(distinct_id, NAME_MAX_CHARS)) } }
                dt { "Id" } dd { code { (id) } }
                @if !elements_chain.is_empty() { dt { "Elements" } dd { code { (clipped(elements_chain, 2000)) } } }
            }
        }
        (parts::properties(properties))
    }
}

/// Processing state of an event.
#[derive(Clone, Debug, Default)]
pub struct Journey {
    /// When the server received it (RFC 3339); empty if not known.
    pub received_at: String,
    /// The uuid of its person.
    pub person_id: String,
    /// Kinds of warnings about the event.
    pub warnings: Vec<String>,
    /// Whether its row is in memory and in the log.
    pub in_memory: bool,
    /// The files that contain its row, by their paths in the table.
    pub files: Vec<String>,
    /// The table's directory within the data directory, or its URL.
    pub table: String,
}

/// The stages of an event's processing in the server.
pub fn journey((project, zone): (i64, Tz), event: &Drawn, own: &Journey) -> Markup {
    let name = clipped(&event.event, NAME_MAX_CHARS);
    html! {
        h2 id="journey" { "Processing" }
        ol class="card steps" {
            @if !own.received_at.is_empty() {
                li { b { "Received" } " at " (parts::time(&own.received_at, zone)) (late(event, &own.received_at)) "." }
            }
            li { b { "Kept" } ": it was no copy of another event, and its project takes it."
                @for warning in &own.warnings { " " span class="badge warn" { (clipped(warning, NAME_MAX_CHARS)) } } }
            li {
                @if event.has_person() {
                    b { "Belongs" } " to the person "
                    a href=(parts::person(project, &event.distinct_id)) { (clipped(&event.distinct_id, NAME_MAX_CHARS)) }
                    " " span class="quiet" { (own.person_id) } "."
                } @else { b { "Belongs" } " to a visitor, who is no person yet." }
            }
            li { b { "Counted" } " as " a href=(format!("{}?{}", page(project, "data-management/events"), query(&[("search", &name)]))) { (name) } "." }
            li {
                @if own.in_memory { b { "In the log" } ", which is on disk, and in memory; the next flush writes it to a Parquet file." }
                @else if own.files.is_empty() { b { "Between the log and a file" } ": look again in a moment." }
                @else { b { "Stored" } " in " @for path in &own.files { code { (own.table) "/" (path) } " " } }
            }
        }
    }
}

/// Text with the difference between an event's time and its receipt, if it is at least one second.
fn late(event: &Drawn, received_at: &str) -> Markup {
    let seconds = event.delay(received_at).unwrap_or_default();
    html! {
        @if seconds >= 1.0 { ", " (duration(seconds)) " after it happened" }
        @else if seconds <= -1.0 { ", " (duration(-seconds)) " before the time that it has" }
    }
}

/// The SQL that lists the same events. `None` for some values of properties.
pub fn sql(wanted: &Wanted, limit: &str) -> Option<String> {
    list_of("events", Vec::new(), wanted, (&|key| Some(path_in_server(key)), limit))
}

/// The same for DuckDB: `table` is the directory of the events. Also `None` for a property name that no JSON path can
/// contain.
fn sql_of_files(project: i64, table: &str, wanted: &Wanted) -> Option<String> {
    let own = vec![format!("project_id = {project}")];
    list_of(&format!("delta_scan({})", literal(table)), own, wanted, (&path_in_file, "100"))
}

/// Converts a property to an SQL expression.
type InSql<'a> = &'a dyn Fn(&str) -> Option<String>;

/// SQL that lists the events of a table that match all conditions.
fn list_of(
    table: &str,
    mut conditions: Vec<String>,
    wanted: &Wanted,
    (property, limit): (InSql<'_>, &str),
) -> Option<String> {
    if !wanted.event.is_empty() {
        conditions.push(format!("event = {}", literal(&wanted.event)));
    }
    if !wanted.distinct_id.is_empty() {
        conditions.push(format!("distinct_id = {}", literal(&wanted.distinct_id)));
    }
    if !wanted.property.0.is_empty() {
        let own = property(&wanted.property.0)?;
        conditions.push(exactly(&own, &wanted.property.1)?);
    }
    if let Some(span) = wanted.after.strip_prefix('-') {
        let (count, unit) = span.split_at(span.len().saturating_sub(1));
        if let Ok(count) = count.parse::<u32>() {
            let unit = if unit == "h" { "hours" } else { "days" };
            conditions.push(format!("timestamp > now() - INTERVAL '{count} {unit}'"));
        }
    }
    let limits = if conditions.is_empty() {
        String::new()
    } else {
        format!("\nWHERE {}", conditions.join(" AND "))
    };
    Some(format!(
        "SELECT timestamp, event, distinct_id, properties\nFROM {table}{limits}\nORDER BY timestamp DESC\nLIMIT {limit}"
    ))
}

/// How to run the same query elsewhere; `table` is the directory of the events.
pub fn source(
    (project, server, table): (i64, &str, &str),
    wanted: &Wanted,
    api_query: &str,
) -> Markup {
    let (sql, duckdb) = (sql(wanted, "100"), sql_of_files(project, table, wanted));
    let duckdb = duckdb.as_deref().ok_or(parts::NO_SQL_OF_PROPERTY);
    let curl = curl::get(server, project, &format!("events/?{api_query}"));
    parts::source(project, &Elsewhere { sql: sql.as_deref(), duckdb, curl: &curl })
}
