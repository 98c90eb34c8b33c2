//! Definitions: the names of events and properties that were seen.

use chrono_tz::Tz;
use maud::Markup;
use maud::html;
use serde_json::Value;

use crate::web::chart::figure;
use crate::web::chart::series::Unit;
use crate::web::chart::spark::spark;
use crate::web::parts;
use crate::web::parts::clipped;
use crate::web::parts::is_true;
use crate::web::parts::items;
use crate::web::parts::page;
use crate::web::parts::query;
use crate::web::parts::text;

/// Longest name in a row, in characters.
const NAME_MAX_CHARS: usize = 120;

/// Links to both kinds.
pub fn tabs(project: i64, current: &str) -> Markup {
    html! {
        nav class="tabs" aria-label="Kinds of definitions" {
            @for (path, title) in [("events", "Events"), ("properties", "Properties")] {
                a href=(page(project, &format!("data-management/{path}"))) aria-current=[(path == current).then_some("page")] { (title) }
            }
        }
    }
}

/// How often an event came.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Volume {
    /// The event.
    pub name: String,
    /// Events of each of the last days, today last.
    pub days: Vec<f64>,
}

/// Names of events, with how often each came within the last days.
pub fn events((project, zone): (i64, Tz), definitions: &[Value], volumes: &[Volume]) -> Markup {
    if definitions.is_empty() {
        return none();
    }
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Events" {
            table {
                thead { tr { th scope="col" { "Event" } th scope="col" class="number" { "30 days" } th scope="col" { "First seen" } th scope="col" { "Last seen" } } }
                tbody {
                    @for definition in definitions {
                        @let name = text(definition, "name");
                        tr {
                            th scope="row" {
                                a href=(page(project, &format!("data-management/events/{}", parts::part(text(definition, "id"))))) { (clipped(name, NAME_MAX_CHARS)) }
                                (marks(definition))
                                (described(definition))
                                @if let Some(other) = like(definition, definitions) {
                                    div class="quiet" { "Like " b { (clipped(other, NAME_MAX_CHARS)) } ": one of them may be a slip." }
                                }
                            }
                            td class="number" { (volume(volumes.iter().find(|own| own.name == name))) }
                            td class="short" { (parts::time(text(definition, "created_at"), zone)) }
                            td class="short" { (parts::time(text(definition, "last_seen_at"), zone)) }
                        }
                    }
                }
            }
        }
    }
}

fn volume(own: Option<&Volume>) -> Markup {
    let days = own.map(|own| own.days.as_slice()).unwrap_or_default();
    let sum: f64 = days.iter().sum();
    html! {
        @if sum > 0.0 { (figure::text(sum, Unit::Count)) " " (spark(days, "Events by day")) }
        @else { span class="quiet" { "none" } }
    }
}

/// Another name that differs in nothing but its case and what is between the words.
fn like<'d>(definition: &Value, all: &'d [Value]) -> Option<&'d str> {
    let bare = |name: &str| -> String {
        name.chars().filter(|own| own.is_alphanumeric()).flat_map(char::to_lowercase).collect()
    };
    let name = text(definition, "name");
    let own = bare(name);
    let mut others = all.iter().map(|other| text(other, "name")).filter(|other| *other != name);
    others.find(|other| !own.is_empty() && bare(other) == own)
}

/// One event: what is known of it, and the form that describes it.
pub fn event(
    (project, zone): (i64, Tz),
    definition: &Value,
    own: &Volume,
    can_write: bool,
) -> Markup {
    let name = text(definition, "name");
    let link = |path: &str, parameter: &str| {
        format!("{}?{}", page(project, path), query(&[(parameter, name)]))
    };
    let tags: Vec<String> = items(definition, "tags").iter().map(parts::plain).collect();
    html! {
        p class="back" { a href=(page(project, "data-management/events")) { "← Events" } }
        div class="actions above" {
            a class="button" href=(link("insights/trends", "a")) { "Count it by day" }
            a class="button" href=(link("activity/explore", "event")) { "Its newest events" }
        }
        div class="card" {
            dl class="facts" {
                dt { "Last 30 days" } dd { (volume(Some(own))) }
                dt { "First seen" } dd { (parts::time(text(definition, "created_at"), zone)) }
                dt { "Last seen" } dd { (parts::time(text(definition, "last_seen_at"), zone)) }
                @if !can_write {
                    dt { "Description" } dd { (text(definition, "description")) }
                    dt { "Tags" } dd { (tags.join(", ")) }
                }
            }
        }
        @if can_write {
            form class="card stack" method="post" {
                label class="full" { "Description" textarea name="description" rows="3" maxlength="4000" { (text(definition, "description")) } }
                label { "Tags, separated by commas" input class="wide" name="tags" value=(tags.join(", ")) maxlength="1000"; }
                label class="check" { input type="checkbox" name="verified" value="1" checked[is_true(definition, "verified")]; "Verified: it means what it says" }
                label class="check" { input type="checkbox" name="hidden" value="1" checked[is_true(definition, "hidden")]; "Hidden from lists of choices" }
                button class="main" { "Save" }
            }
        }
    }
}

/// Names of properties.
pub fn properties(project: i64, definitions: &[Value]) -> Markup {
    if definitions.is_empty() {
        return none();
    }
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Properties" {
            table {
                thead { tr { th scope="col" { "Property" } th scope="col" { "Type" } th scope="col" { "Examples" } } }
                tbody {
                    @for definition in definitions {
                        @let name = text(definition, "name");
                        tr {
                            th scope="row" { (clipped(name, NAME_MAX_CHARS)) (marks(definition)) (described(definition)) }
                            td class="quiet short" { (kind_of(text(definition, "property_type"))) }
                            td class="short" {
                                a href=(format!("{}?{}", page(project, "sql"), query(&[("q", &values(name))])))
                                    aria-label=(format!("Values of the last 7 days of {}", clipped(name, NAME_MAX_CHARS))) {
                                    "Values of the last 7 days"
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The SQL that counts the values of a property, and says when each was seen first and last.
fn values(name: &str) -> String {
    let value = format!("properties[{}]", parts::literal(name));
    format!(
        "SELECT {value} AS value, count(*) AS events, min(timestamp) AS first_seen, max(timestamp) AS last_seen\n\
         FROM events\n\
         WHERE timestamp > now() - INTERVAL '7 days' AND {value} IS NOT NULL\n\
         GROUP BY 1\nORDER BY events DESC\nLIMIT 20"
    )
}

/// The SQL that lists the same names; `table` has them.
pub fn sql(table: &str, wanted: &str) -> String {
    let condition = match wanted {
        "" => String::new(),
        text => {
            format!("\nWHERE strpos(lower(name), {}) > 0", parts::literal(&text.to_lowercase()))
        }
    };
    format!("SELECT *\nFROM {table}{condition}\nORDER BY name\nLIMIT 100")
}

fn marks(definition: &Value) -> Markup {
    html! {
        @if is_true(definition, "verified") { " " span class="badge good" { "verified" } }
        @if is_true(definition, "hidden") { " " span class="badge" { "hidden" } }
        @for tag in items(definition, "tags").iter().take(10) { " " span class="badge" { (parts::short(tag)) } }
    }
}

fn described(definition: &Value) -> Markup {
    let description = text(definition, "description");
    html! { @if !description.is_empty() { div class="quiet" { (clipped(description, 300)) } } }
}

/// A type of the API in the words that tables of properties have.
fn kind_of(property_type: &str) -> &str {
    match property_type {
        "String" => "text",
        "Numeric" => "number",
        "Boolean" => "boolean",
        "DateTime" => "time",
        "Duration" => "duration",
        other => other,
    }
}

fn none() -> Markup {
    html! {
        div class="empty" {
            h2 { "Nothing here" }
            p { "Names appear by themselves with the first event that has them." }
        }
    }
}
