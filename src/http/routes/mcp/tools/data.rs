//! Tools for the data themselves: `schema`, what events, properties and tables there are, and `sql`.

use std::collections::HashMap;

use hyper::StatusCode;
use serde_json::{Map, Value, json};

use crate::operation::input::Needed;
use crate::page::Page;
use crate::response::Problem;
use crate::routes::definition_parameters::{Names, Terms, Truth};
use crate::routes::mcp::said::{Grid, Said};
use crate::routes::mcp::talk::{Talk, limit, of_argument};
use crate::routes::{event_definitions, property_definitions, schema};
use weir_api::definitions::{EventDefinition, PropertyDefinition};
use weir_api::node::nearest::hint;
use weir_api::nodes::tools::{SchemaArguments, SqlArguments};
use weir_event::json;
use weir_web::parts::{clipped, literal, page, query};

/// Rows of lists of definitions.
const DEFINITIONS: (usize, usize) = (100, 500);

/// Most columns of a table of SQL; of events each property with a column of its own is one.
const COLUMNS_MAX: usize = 500;

/// Rows of SQL.
const ROWS: (usize, usize) = (100, 1000);

/// Definitions that are read, of which the most frequent are shown.
const READ_MAX: usize = 2000;

/// Newest events of which examples are taken.
const SAMPLE: usize = 100;

/// Longest properties of an event of which examples are taken, in characters.
const SAMPLED_MAX_CHARS: usize = 16_384;

/// Most examples of a property, and the characters of each.
const EXAMPLES: (usize, usize) = (3, 60);

/// The tool `schema`.
pub(in crate::routes::mcp) async fn schema(
    talk: &Talk,
    own: SchemaArguments,
) -> Result<Said, Problem> {
    let most = limit(own.limit, DEFINITIONS.0, DEFINITIONS.1);
    let search = Terms::of(own.search.as_deref().unwrap_or_default());
    match own.event {
        Some(event) => one(talk, &event, search, most).await,
        None => all(talk, search, most).await,
    }
}

/// All events by how often they come, the properties, and the tables.
async fn all(talk: &Talk, search: Terms, most: usize) -> Result<Said, Problem> {
    let asking = &talk.asking;
    let list = event_definitions::List {
        search: search.clone(),
        page: Page { limit: READ_MAX, offset: 0 },
        ..event_definitions::List::default()
    };
    let mut events = asking.perform(list).await?.results;
    let counts = counts(talk).await?;
    let count = |own: &EventDefinition| counts.get(&own.name).copied().unwrap_or_default();
    events.sort_by_key(|own| std::cmp::Reverse(count(own)));
    let rows = events.into_iter().map(|own| {
        vec![
            json!(own.name),
            json!(count(&own)),
            json!(own.last_seen_at),
            json!(own.notes.description),
        ]
    });
    let head = ["event", "in 30 days", "last seen", "description"];
    let mut said = Said::new(
        "Events and their properties. Ask for one event to see its own properties with examples.",
    )
    .with(Grid::new("Events", &head, rows, most));
    for (kind, title) in [("event", "Properties of events"), ("person", "Properties of persons")] {
        let found = properties(talk, kind, search.clone(), None, most).await?;
        let (count, rows) = found;
        let rows = rows.into_iter().map(|own| {
            vec![json!(own.name), json!(own.property_type), json!(own.notes.description)]
        });
        let mut grid = Grid::new(title, &["property", "type", "description"], rows, most);
        grid.total = Some(count);
        said = said.with(grid);
    }
    if asking.may("query:read") && search.0.is_empty() {
        for table in asking.perform(schema::List::default()).await?.0.tables {
            let columns = table.columns.into_iter().filter(|own| own.in_sql);
            let rows =
                columns.map(|own| vec![json!(own.name), json!(own.r#type), json!(own.description)]);
            let title = format!("Table of SQL: {}. {}", table.name, table.description);
            said = said.with(Grid::new(&title, &["column", "type", "meaning"], rows, COLUMNS_MAX));
        }
    }
    Ok(said.at(talk.page("data-management/events")))
}

/// Events of the last 30 days by name; empty without the right to query.
async fn counts(talk: &Talk) -> Result<HashMap<String, u64>, Problem> {
    if !talk.asking.may("query:read") {
        return Ok(HashMap::new());
    }
    let sql = format!(
        "SELECT event, count(*) AS n FROM events WHERE timestamp > now() - INTERVAL '30 days' \
         GROUP BY event ORDER BY n DESC LIMIT {READ_MAX}"
    );
    let found = talk.asking.sql(&sql).await?;
    let row = |row: &Vec<Value>| Some((row.first()?.as_str()?.to_owned(), row.get(1)?.as_u64()?));
    Ok(found.results.iter().filter_map(row).collect())
}

/// Definitions of properties of a kind; with an event those that it has.
async fn properties(
    talk: &Talk,
    kind: &str,
    search: Terms,
    event: Option<&str>,
    most: usize,
) -> Result<(usize, Vec<PropertyDefinition>), Problem> {
    let list = property_definitions::List {
        search,
        of: property_definitions::owner(kind, None)?,
        event_names: Names(event.map(|event| vec![event.to_owned()])),
        filter_by_event_names: Truth(event.map(|_| true)),
        page: Page { limit: most, offset: 0 },
        ..property_definitions::List::default()
    };
    let found = talk.asking.perform(list).await?;
    Ok((found.count, found.results))
}

/// One event, and its properties with examples of the newest ones.
async fn one(talk: &Talk, event: &str, search: Terms, most: usize) -> Result<Said, Problem> {
    let asking = &talk.asking;
    let named = event_definitions::ByName { name: Needed(event.to_owned()) };
    let definition = match asking.perform(named).await {
        Err(problem) if problem.status() == StatusCode::NOT_FOUND => {
            return Err(unknown(talk, event).await);
        }
        found => found?,
    };
    let (count, found) = properties(talk, "event", search, Some(event), most).await?;
    let samples = if asking.may("query:read") { samples(talk, event).await? } else { Vec::new() };
    let rows = found.into_iter().map(|own| {
        let values = samples.iter().filter_map(|sample| sample.get(&own.name));
        let share = values.clone().count().saturating_mul(100).checked_div(samples.len());
        vec![
            json!(own.name),
            json!(own.property_type),
            json!(share.map(|share| format!("{share} %"))),
            json!(examples(values)),
            json!(own.notes.description),
        ]
    });
    let head = ["property", "type", "of the newest", "examples", "description"];
    let mut grid = Grid::new("Properties", &head, rows, most);
    grid.total = Some(count);
    let seen = definition.last_seen_at.as_deref().unwrap_or("never");
    let about = definition.notes.description.unwrap_or_default();
    let said = Said::new(format!("Event {event}, last seen {seen}. {about}").trim().to_owned());
    let path = format!("data-management/events/{}", definition.id);
    Ok(said
        .with(grid)
        .noting(format!("Examples are of the newest {} events.", samples.len()))
        .at(talk.page(&path)))
}

/// The problem of an event that nobody sent, with the nearest name.
async fn unknown(talk: &Talk, event: &str) -> Problem {
    let page = Page { limit: READ_MAX, offset: 0 };
    let list = event_definitions::List { page, ..event_definitions::List::default() };
    let known = talk.asking.perform(list).await.map(|found| found.results).unwrap_or_default();
    let known: Vec<String> = known.into_iter().map(|own| own.name).collect();
    let shown = clipped(event, 200);
    of_argument("event", format!("No event is called \"{shown}\" so far.{}", hint(&shown, &known)))
}

/// The properties of the newest events of a name.
async fn samples(talk: &Talk, event: &str) -> Result<Vec<Map<String, Value>>, Problem> {
    let sql = format!(
        "SELECT properties FROM events WHERE event = {} AND char_length(properties) < {SAMPLED_MAX_CHARS} \
         ORDER BY timestamp DESC LIMIT {SAMPLE}",
        literal(event)
    );
    let found = talk.asking.sql(&sql).await?;
    let read = |row: Vec<Value>| match row.into_iter().next()? {
        Value::String(text) => json::restore(text.as_bytes()).ok(),
        Value::Object(properties) => Some(properties),
        _ => None,
    };
    Ok(found.results.into_iter().filter_map(read).collect())
}

/// A few different values.
fn examples<'v>(values: impl Iterator<Item = &'v Value>) -> String {
    let mut found: Vec<String> = Vec::new();
    for value in values {
        let text = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let text = clipped(&text, EXAMPLES.1);
        if !found.contains(&text) {
            found.push(text);
        }
        if found.len() == EXAMPLES.0 {
            break;
        }
    }
    found.join("; ")
}

/// The tool `sql`.
pub(in crate::routes::mcp) async fn sql(talk: &Talk, own: SqlArguments) -> Result<Said, Problem> {
    let most = limit(own.limit, ROWS.0, ROWS.1);
    let sql = own.query.unwrap_or_default();
    let text = if own.explain { format!("EXPLAIN {sql}") } else { sql.clone() };
    let rows = match talk.asking.sql(&text).await {
        Err(problem) if problem.status() == StatusCode::BAD_REQUEST => {
            let hint = "The tool schema lists tables, events and properties.";
            let detail = format!("{} {hint}", problem.detail());
            return Err(problem.with_detail(detail));
        }
        found => found?,
    };
    let count = rows.results.len();
    let title = match (own.explain, count) {
        (true, _) => "The plan".to_owned(),
        (false, 1) => "1 row".to_owned(),
        (false, count) => format!("{count} rows"),
    };
    let types = json!(rows.types);
    let said = Said::new(title).with(Grid::of_rows(rows, most)).having("types", types);
    let path = page(talk.asking.project(), "sql");
    Ok(said.at(talk.address(&format!("{path}?{}", query(&[("q", &sql)])))))
}
