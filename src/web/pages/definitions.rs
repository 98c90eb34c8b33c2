//! Definitions: the names of all events and properties received so far.

use chrono_tz::Tz;
use maud::{Markup, html};

use crate::chart::figure;
use crate::chart::series::Unit;
use crate::chart::spark::spark;
use crate::parts;
use crate::parts::{clipped, page, query};
use weir_api::definitions::{EventDefinition, Notes, PromotedProperty, PropertyDefinition};
use weir_event::promotion::PromotedTable;

/// Longest name in a row, in characters.
const NAME_MAX_CHARS: usize = 120;

/// Longest descriptions and tags in a row, in characters.
const TEXT_MAX_CHARS: usize = 300;

/// API name of persons as owners of properties.
pub const PERSONS: &str = "person";

/// Types of values: the API's name and the displayed one.
const TYPES: [(&str, &str); 5] = [
    ("String", "text"),
    ("Numeric", "number"),
    ("Boolean", "boolean"),
    ("DateTime", "time"),
    ("Duration", "duration"),
];

/// Types of columns, and the API's name of the values that fit into each.
const COLUMN_TYPES: [(&str, &str); 3] =
    [("text", "String"), ("number", "Numeric"), ("boolean", "Boolean")];

/// Links to all kinds, one of them current: events, or properties by their owner.
pub fn tabs(project: i64, current: (&str, &str)) -> Markup {
    let all = [
        (("events", ""), "Events"),
        (("properties", ""), "Properties of events"),
        (("properties", PERSONS), "Properties of persons"),
    ];
    let address = |(path, of): (&str, &str)| {
        let path = page(project, &format!("data-management/{path}"));
        if of.is_empty() { path } else { format!("{path}?{}", query(&[("type", of)])) }
    };
    html! {
        nav class="tabs" aria-label="Kinds of definitions" {
            @for (own, title) in all {
                a href=(address(own)) aria-current=[(own == current).then_some("page")] { (title) }
            }
        }
    }
}

/// Number of events of a name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Volume {
    /// The event.
    pub name: String,
    /// Events of each of the last days, today last.
    pub days: Vec<f64>,
}

/// Event definitions, with the number of events per day within the last days.
pub fn events(
    (project, zone): (i64, Tz),
    definitions: &[EventDefinition],
    volumes: &[Volume],
) -> Markup {
    if definitions.is_empty() {
        return none();
    }
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Events" {
            table {
                thead { tr { th scope="col" { "Event" } th scope="col" class="number" { "30 days" } th scope="col" { "First seen" } th scope="col" { "Last seen" } } }
                tbody {
                    @for definition in definitions {
                        @let name = definition.name.as_str();
                        tr {
                            th scope="row" {
                                a href=(page(project, &format!("data-management/events/{}", parts::part(&definition.id)))) { (clipped(name, NAME_MAX_CHARS)) }
                                (marks(&definition.tags, &definition.notes))
                                (described(&definition.notes))
                                @if let Some(other) = like(definition, definitions) {
                                    div class="quiet" { "Like " b { (clipped(other, NAME_MAX_CHARS)) } ": one of them may be a slip." }
                                }
                            }
                            td class="number" { (volume(volumes.iter().find(|own| own.name == name))) }
                            td class="short" { (parts::time(&definition.created_at, zone)) }
                            td class="short" { (last_seen(definition, zone)) }
                        }
                    }
                }
            }
        }
    }
}

fn last_seen(definition: &EventDefinition, zone: Tz) -> Markup {
    parts::time(definition.last_seen_at.as_deref().unwrap_or_default(), zone)
}

fn volume(own: Option<&Volume>) -> Markup {
    let days = own.map(|own| own.days.as_slice()).unwrap_or_default();
    let sum: f64 = days.iter().sum();
    html! {
        @if sum > 0.0 { (figure::text(sum, Unit::Count)) " " (spark(days, "Events by day")) }
        @else { span class="quiet" { "none" } }
    }
}

/// Another name that differs only in case and in what separates the words.
fn like<'d>(definition: &EventDefinition, all: &'d [EventDefinition]) -> Option<&'d str> {
    let bare = |name: &str| -> String {
        name.chars().filter(|own| own.is_alphanumeric()).flat_map(char::to_lowercase).collect()
    };
    let name = definition.name.as_str();
    let own = bare(name);
    let mut others = all.iter().map(|other| other.name.as_str()).filter(|other| *other != name);
    others.find(|other| !own.is_empty() && bare(other) == own)
}

/// One event definition: its metadata, and the form that edits it.
pub fn event(
    (project, zone): (i64, Tz),
    definition: &EventDefinition,
    own: &Volume,
    can_write: bool,
) -> Markup {
    let EventDefinition { name, tags, notes, .. } = definition;
    let link = |path: &str, parameter: &str| {
        format!("{}?{}", page(project, path), query(&[(parameter, name)]))
    };
    html! {
        p class="back" { a href=(page(project, "data-management/events")) { "← Events" } }
        div class="actions above" {
            a class="button" href=(link("insights/trends", "a")) { "Count it by day" }
            a class="button" href=(link("activity/explore", "event")) { "Its newest events" }
        }
        div class="card" {
            dl class="facts" {
                dt { "Last 30 days" } dd { (volume(Some(own))) }
                dt { "First seen" } dd { (parts::time(&definition.created_at, zone)) }
                dt { "Last seen" } dd { (last_seen(definition, zone)) }
                @if !can_write { (facts(tags, notes)) }
            }
        }
        @if can_write { (form(tags, notes, &html! {})) }
    }
}

/// What users entered for a definition, among its metadata.
fn facts(tags: &[String], notes: &Notes) -> Markup {
    html! {
        dt { "Description" } dd { (notes.description.as_deref().unwrap_or_default()) }
        dt { "Tags" } dd { (tags.join(", ")) }
    }
}

/// The form that edits a definition; `more` contains the fields of its kind.
fn form(tags: &[String], notes: &Notes, more: &Markup) -> Markup {
    let description = notes.description.as_deref().unwrap_or_default();
    html! {
        form class="card stack" method="post" {
            label class="full" { "Description" textarea name="description" rows="3" maxlength="4000" { (description) } }
            label { "Tags, separated by commas" input class="wide" name="tags" value=(tags.join(", ")) maxlength="1000"; }
            (more)
            label class="check" { input type="checkbox" name="verified" value="1" checked[notes.verified]; "Verified: it means what it says" }
            label class="check" { input type="checkbox" name="hidden" value="1" checked[notes.hidden]; "Hidden from lists of choices" }
            button class="main" { "Save" }
        }
    }
}

/// One property definition: its metadata, and the form that edits it.
pub fn property(project: i64, definition: &PropertyDefinition, can_write: bool) -> Markup {
    let PropertyDefinition { tags, notes, .. } = definition;
    let own = definition.property_type.as_deref().unwrap_or_default();
    let types = html! {
        label {
            "Type"
            select name="property_type" {
                option value="" selected[own.is_empty()] { "unknown" }
                @for (name, title) in TYPES { option value=(name) selected[name == own] { (title) } }
            }
        }
    };
    html! {
        p class="back" { a href=(page(project, "data-management/properties")) { "← Properties" } }
        @if can_write { (form(tags, notes, &types)) } @else {
            div class="card" { dl class="facts" {
                dt { "Type" } dd { (kind_of(own)) }
                (facts(tags, notes))
            } }
        }
    }
}

/// The column of a property of a table's rows, and the form that promotes it to one, or stops that.
pub fn column(
    project: i64,
    (table, definition): (PromotedTable, &PropertyDefinition),
    promoted: Option<&PromotedProperty>,
    can_write: bool,
) -> Markup {
    let id = parts::part(&definition.id);
    let action = page(project, &format!("data-management/properties/{id}/column"));
    let values = definition.property_type.as_deref().unwrap_or_default();
    if promoted.is_none() && !can_write {
        return html! {};
    }
    html! {
        div class="card" id="column" {
            h2 { "Column" }
            @match promoted {
                Some(own) => {
                    p { code { (clipped(&own.column, NAME_MAX_CHARS)) } ", " (own.r#type) ": in SQL, in files and for BI tools." }
                    @if can_write {
                        form method="post" action=(action) data-confirm="Queries that name the column are refused from then on. Stop?" {
                            input type="hidden" name="do" value="stop";
                            button class="small danger" { "Stop" }
                        }
                    }
                }
                None => {
                    p { (gain(table)) " Its type is for good." }
                    form class="bar" method="post" action=(action) {
                        input type="hidden" name="do" value="promote";
                        label { "Type of the column" select name="type" {
                            @for (kind, fitting) in COLUMN_TYPES { option value=(kind) selected[fitting == values] { (kind) } }
                        } }
                        button class="main" { "Promote" }
                    }
                }
            }
        }
    }
}

/// What a column is good for.
fn gain(table: PromotedTable) -> &'static str {
    match table {
        PromotedTable::Events => {
            "A column of its own makes queries for this property faster, and gives it to files and BI tools."
        }
        PromotedTable::Persons => {
            "A column of its own gives this property a type in SQL, in files and for BI tools."
        }
    }
}

/// Definitions of properties of events, or of persons; `promoted` has those of them with a column.
pub fn properties(
    project: i64,
    of: &str,
    definitions: &[PropertyDefinition],
    promoted: &[PromotedProperty],
) -> Markup {
    if definitions.is_empty() {
        return none();
    }
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Properties" {
            table {
                thead { tr { th scope="col" { "Property" } th scope="col" { "Type" } th scope="col" { "Examples" } } }
                tbody {
                    @for definition in definitions {
                        @let name = definition.name.as_str();
                        tr {
                            th scope="row" {
                                a href=(page(project, &format!("data-management/properties/{}", parts::part(&definition.id)))) { (clipped(name, NAME_MAX_CHARS)) }
                                @if let Some(own) = promoted.iter().find(|own| own.key == name) {
                                    " " span class="badge" { (clipped(&own.column, NAME_MAX_CHARS)) ", " (own.r#type) }
                                }
                                (marks(&definition.tags, &definition.notes))
                                (described(&definition.notes))
                            }
                            td class="quiet short" { (kind_of(definition.property_type.as_deref().unwrap_or_default())) }
                            td class="short" {
                                @let title = if of == PERSONS { "Values of persons" } else { "Values of the last 7 days" };
                                a href=(format!("{}?{}", page(project, "sql"), query(&[("q", &values(of, name))])))
                                    aria-label=(format!("{title} of {}", clipped(name, NAME_MAX_CHARS))) { (title) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The SQL that counts the values of a property; for properties of events also with the time of the first and last
/// event.
fn values(of: &str, name: &str) -> String {
    let value = format!("properties[{}]", parts::literal(name));
    if of == PERSONS {
        return format!(
            "SELECT {value} AS value, count(*) AS persons\nFROM persons\nWHERE {value} IS NOT NULL\n\
             GROUP BY 1\nORDER BY persons DESC\nLIMIT 20"
        );
    }
    format!(
        "SELECT {value} AS value, count(*) AS events, min(timestamp) AS first_seen, max(timestamp) AS last_seen\n\
         FROM events\n\
         WHERE timestamp > now() - INTERVAL '7 days' AND {value} IS NOT NULL\n\
         GROUP BY 1\nORDER BY events DESC\nLIMIT 20"
    )
}

/// The SQL that lists the same names from `table`; for properties only those of the owner `of`.
pub fn sql(table: &str, wanted: &str, of: &str) -> String {
    let mut conditions = Vec::new();
    if table == "property_definitions" {
        let of = if of.is_empty() { "event" } else { of };
        conditions.push(format!("type = {}", parts::literal(of)));
    }
    if !wanted.is_empty() {
        let wanted = parts::literal(&wanted.to_lowercase());
        conditions.push(format!("strpos(lower(name), {wanted}) > 0"));
    }
    let condition = match conditions.is_empty() {
        true => String::new(),
        false => format!("\nWHERE {}", conditions.join(" AND ")),
    };
    format!("SELECT *\nFROM {table}{condition}\nORDER BY name\nLIMIT 100")
}

fn marks(tags: &[String], notes: &Notes) -> Markup {
    html! {
        @if notes.verified { " " span class="badge good" { "verified" } }
        @if notes.hidden { " " span class="badge" { "hidden" } }
        @for tag in tags.iter().take(10) { " " span class="badge" { (clipped(tag, TEXT_MAX_CHARS)) } }
    }
}

fn described(notes: &Notes) -> Markup {
    let description = notes.description.as_deref().unwrap_or_default();
    html! { @if !description.is_empty() { div class="quiet" { (clipped(description, TEXT_MAX_CHARS)) } } }
}

/// The displayed name of an API type in tables of properties.
fn kind_of(property_type: &str) -> &str {
    let own = TYPES.iter().find(|(name, _)| *name == property_type);
    own.map_or(property_type, |(_, title)| title)
}

fn none() -> Markup {
    html! {
        div class="empty" {
            h2 { "No definitions" }
            p { "Names appear by themselves with the first event that has them." }
        }
    }
}
