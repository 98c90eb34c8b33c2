//! The list of persons: its form, its table, and how to run the same query elsewhere.

use chrono_tz::Tz;
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use crate::pages::persons::name;
use crate::parts;
use crate::parts::{Elsewhere, clipped, literal, page};
use crate::state::curl;
use crate::state::sql::{exactly, path_in_file, path_in_server};
use weir_api::cohorts::Member;
use weir_api::persons::Person;

/// Longest names and ids in a row, in characters.
const NAME_MAX_CHARS: usize = 120;

/// Conditions of a list of persons, as texts of the form.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// A substring of an email address, or an id.
    pub search: String,
    /// The key of a property, and its value.
    pub property: (String, String),
    /// Properties shown as columns, separated by commas.
    pub columns: String,
}

impl Wanted {
    /// The query string of the address.
    pub fn query(&self, more: &[(&str, &str)]) -> String {
        let own = [
            ("search", &*self.search),
            ("key", &self.property.0),
            ("value", &self.property.1),
            ("columns", &self.columns),
        ];
        parts::query(&[&own, more].concat())
    }

    /// The parameters of the API.
    pub fn parameters(&self) -> [(&'static str, String); 2] {
        let (key, value) = &self.property;
        let filter = json!([{"key": key, "value": value, "operator": "exact", "type": "person"}]);
        let properties = if key.is_empty() { String::new() } else { filter.to_string() };
        [("search", self.search.clone()), ("properties", properties)]
    }

    /// The properties shown as columns.
    pub fn shown(&self) -> Vec<&str> {
        parts::columns(&self.columns)
    }

    /// Whether there are conditions, so that persons may be missing from the list.
    pub fn is_limited(&self) -> bool {
        !self.search.is_empty() || !self.property.0.is_empty()
    }

    /// The SQL that finds the same persons. `None` for some values of properties.
    pub fn sql(&self, limit: &str) -> Option<String> {
        let mut conditions = Vec::new();
        if !self.search.is_empty() {
            let (lower, own) = (literal(&self.search.to_lowercase()), literal(&self.search));
            conditions.push(format!(
                "(strpos(lower(json_get_str(properties, 'email')), {lower}) > 0\n   OR uuid = {lower}\n   \
                 OR uuid IN (SELECT person_id FROM person_distinct_ids WHERE distinct_id = {own}))"
            ));
        }
        let (key, value) = &self.property;
        if !key.is_empty() {
            conditions.push(exactly(&path_in_server(key), value)?);
        }
        Some(list_of("persons", &conditions, limit))
    }

    /// The same for DuckDB: `table` is the directory of the copy of the persons. Also `None` for a property name that
    /// no JSON path can contain.
    fn sql_of_files(&self, project: i64, table: &str) -> Option<String> {
        let mut conditions = vec![format!("project_id = {project}")];
        if !self.search.is_empty() {
            let (lower, own) = (literal(&self.search.to_lowercase()), literal(&self.search));
            conditions.push(format!(
                "(contains(lower(properties ->> 'email'), {lower}) OR uuid = {lower}\n    \
                 OR list_contains(from_json(distinct_ids, '[\"VARCHAR\"]'), {own}))"
            ));
        }
        let (key, value) = &self.property;
        if !key.is_empty() {
            conditions.push(exactly(&path_in_file(key)?, value)?);
        }
        Some(list_of(&format!("delta_scan({})", literal(table)), &conditions, "100"))
    }

    /// How to run the same query elsewhere; `table` is the directory of the copy of the persons.
    pub fn source(&self, (project, server, table): (i64, &str, &str)) -> Markup {
        let parameters = self.parameters();
        let parameters = parameters.each_ref().map(|(name, value)| (*name, value.as_str()));
        let curl = curl::get(server, project, &format!("persons/?{}", parts::query(&parameters)));
        let (sql, duckdb) = (self.sql("100"), self.sql_of_files(project, table));
        let duckdb = duckdb.as_deref().ok_or(parts::NO_SQL_OF_PROPERTY);
        parts::source(project, &Elsewhere { sql: sql.as_deref(), duckdb, curl: &curl })
    }
}

/// SQL that lists the persons of a table that match all conditions.
fn list_of(table: &str, conditions: &[String], limit: &str) -> String {
    let limits = match conditions {
        [] => String::new(),
        all => format!("\nWHERE {}", all.join("\n  AND ")),
    };
    format!("SELECT *\nFROM {table}{limits}\nORDER BY created_at DESC\nLIMIT {limit}")
}

/// The form of the list.
pub fn form(project: i64, wanted: &Wanted) -> Markup {
    html! {
        form class="bar" method="get" action=(page(project, "persons")) role="search" {
            label { "Part of an email address, or an id" input type="search" name="search" value=(wanted.search) maxlength="400"; }
            label { "Property" input type="text" name="key" value=(wanted.property.0) maxlength="400"; }
            label { "is" input type="text" name="value" value=(wanted.property.1) maxlength="400"; }
            label { "Columns" input type="text" name="columns" value=(wanted.columns) placeholder="plan, company" maxlength="1000"; }
            button class="main" { "Show" }
        }
    }
}

/// A person in the table.
#[derive(Clone, Debug)]
pub struct Row<'p> {
    /// The id in the address of the page of the person.
    pub link: String,
    /// The name.
    pub name: String,
    /// The distinct ids.
    pub ids: Vec<&'p str>,
    /// The properties.
    pub properties: &'p Map<String, Value>,
    /// When the person was first seen.
    pub created_at: &'p str,
}

impl<'p> From<&'p Person> for Row<'p> {
    fn from(person: &'p Person) -> Self {
        Self {
            link: person.distinct_ids.first().unwrap_or(&person.uuid).clone(),
            name: name(person),
            ids: person.distinct_ids.iter().map(String::as_str).collect(),
            properties: &person.properties,
            created_at: &person.created_at,
        }
    }
}

impl<'p> From<&'p Member> for Row<'p> {
    fn from(person: &'p Member) -> Self {
        let first = person.distinct_ids.first();
        Self {
            link: first.unwrap_or(&person.uuid).clone(),
            name: parts::title(first.map(String::as_str).unwrap_or_default()),
            ids: person.distinct_ids.iter().map(String::as_str).collect(),
            properties: &person.properties,
            created_at: &person.created_at,
        }
    }
}

/// The table of persons, with these of their properties as columns.
pub fn table<'p, P>(
    project: i64,
    zone: Tz,
    persons: impl IntoIterator<Item = P>,
    columns: &[&str],
) -> Markup
where
    Row<'p>: From<P>,
{
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Persons" {
            table {
                thead { tr {
                    th scope="col" { "Person" } th scope="col" { "Distinct ids" }
                    @for column in columns { th scope="col" { (clipped(column, NAME_MAX_CHARS)) } }
                    th scope="col" { "First seen" }
                } }
                tbody { @for person in persons { (row(project, zone, &Row::from(person), columns)) } }
            }
        }
    }
}

fn row(project: i64, zone: Tz, person: &Row<'_>, columns: &[&str]) -> Markup {
    let ids = &person.ids;
    html! {
        tr {
            th scope="row" { a href=(parts::person(project, &person.link)) { (person.name) } }
            td {
                (clipped(ids.first().copied().unwrap_or_default(), NAME_MAX_CHARS))
                @if ids.len() > 1 { " " span class="badge" { "+" (ids.len() - 1) } }
            }
            @for column in columns { td { (parts::short(person.properties.get(*column).unwrap_or(&Value::Null))) } }
            td class="short" { (parts::time(person.created_at, zone)) }
        }
    }
}

/// Content of an empty list.
pub fn none(project: i64, is_limited: bool) -> Markup {
    html! {
        div class="empty" {
            @if is_limited {
                h2 { "Nobody matches" }
                p { "No email address contains this, no id equals it, or no person has this value. "
                    a href=(page(project, "persons")) { "Show all persons" } }
            } @else {
                h2 { "No persons yet" }
                p { "A person appears with the first event of a distinct id. " code { "identify" }
                    " gives it a name, and joins what it did before." }
            }
        }
    }
}
