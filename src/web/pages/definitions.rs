//! Definitions: the names of events and properties that were seen.

use chrono_tz::Tz;
use maud::Markup;
use maud::html;
use serde_json::Value;

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

/// Names of events.
pub fn events(project: i64, zone: Tz, definitions: &[Value]) -> Markup {
    if definitions.is_empty() {
        return none();
    }
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Events" {
            table {
                thead { tr { th scope="col" { "Event" } th scope="col" { "Description" } th scope="col" { "First seen" } th scope="col" { "Last seen" } } }
                tbody {
                    @for definition in definitions {
                        @let name = text(definition, "name");
                        tr {
                            th scope="row" {
                                a href=(format!("{}?{}", page(project, "activity/explore"), query(&[("event", name)]))) { (clipped(name, NAME_MAX_CHARS)) }
                                (marks(definition))
                            }
                            td { (clipped(text(definition, "description"), 300)) }
                            td class="short" { (parts::time(text(definition, "created_at"), zone)) }
                            td class="short" { (parts::time(text(definition, "last_seen_at"), zone)) }
                        }
                    }
                }
            }
        }
    }
}

/// Names of properties.
pub fn properties(definitions: &[Value]) -> Markup {
    if definitions.is_empty() {
        return none();
    }
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Properties" {
            table {
                thead { tr { th scope="col" { "Property" } th scope="col" { "Type" } th scope="col" { "Description" } } }
                tbody {
                    @for definition in definitions {
                        tr {
                            th scope="row" { (clipped(text(definition, "name"), NAME_MAX_CHARS)) (marks(definition)) }
                            td { (text(definition, "property_type")) }
                            td { (clipped(text(definition, "description"), 300)) }
                        }
                    }
                }
            }
        }
    }
}

fn marks(definition: &Value) -> Markup {
    html! {
        @if is_true(definition, "verified") { " " span class="badge good" { "verified" } }
        @if is_true(definition, "hidden") { " " span class="badge" { "hidden" } }
        @for tag in items(definition, "tags").iter().take(10) { " " span class="badge" { (parts::short(tag)) } }
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
