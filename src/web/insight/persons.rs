//! The persons behind a mark of a chart: [`list`].

use chrono_tz::Tz;
use maud::{Markup, html};
use serde_json::json;

use crate::chart::series::Unit;
use crate::chart::table::{Cell, Table, table};
use crate::insight::links;
use crate::parts;
use crate::parts::Elsewhere;
use crate::state::actor::ActorRow;
use crate::state::curl;
use crate::state::insight::Question;
use crate::state::parameters::Printer;
use crate::state::point::Point;
use crate::state::sql::OF_PERSONS;

/// Distinct ids that a row shows.
const IDS_SHOWN: usize = 3;

/// A page of the persons behind a mark.
#[derive(Clone, Debug)]
pub struct Persons<'a> {
    /// The project.
    pub project: i64,
    /// The zone of the project, in which times are shown.
    pub zone: Tz,
    /// The address of this server.
    pub server: &'a str,
    /// The query.
    pub question: &'a Question,
    /// The mark.
    pub point: &'a Point,
    /// The persons.
    pub people: &'a [ActorRow],
    /// How many precede them.
    pub offset: usize,
    /// The offset of the next page, if there is one.
    pub next: Option<usize>,
    /// Whether they may be saved as a cohort.
    pub can_save: bool,
}

/// The list, with a link back to the chart.
pub fn list(own: &Persons<'_>) -> Markup {
    let project = own.project;
    html! {
        p class="back" {
            a href=(links::question(project, own.question)) { "← " (own.question.kind().title()) }
            " " span class="quiet" { (own.question.range_text()) }
        }
        @if own.people.is_empty() {
            div class="empty" {
                h2 { "No persons" }
                p {
                    "Visitors are not listed before they are identified. Or events came in or were deleted since the chart \
                     was drawn, or persons became one."
                }
            }
        } @else {
            p { (counted(own)) }
            (table(&rows(own)))
            @if own.can_save {
                form class="save" method="post" action=(address(own, 0)) {
                    label { "Save all of them as a cohort " input name="name" required maxlength="400" placeholder=(own.point.text(own.question)); }
                    button { "Create cohort" }
                }
            }
        }
        @if own.offset > 0 || own.next.is_some() {
            nav class="pager" aria-label="Parts of the list" {
                @if own.offset > 0 { a href=(address(own, 0)) { "First" } }
                @if let Some(next) = own.next { a href=(address(own, next)) rel="next" { "Next" } }
            }
        }
        footer class="source" {
            p { (parts::files(|format| format!("{}&format={format}", address(own, own.offset)))) }
            (parts::source(project, &Elsewhere { sql: None, duckdb: Err(OF_PERSONS), curl: &command(own) }))
        }
    }
}

/// The curl command that requests the same persons from the API.
fn command(own: &Persons<'_>) -> String {
    let query = json!({"kind": "ActorsQuery", "source": own.point.node(own.question), "offset": own.offset});
    curl::command(own.server, own.project, &query)
}

fn counted(own: &Persons<'_>) -> String {
    let last = own.offset.saturating_add(own.people.len());
    match (own.offset, own.next) {
        (0, None) if last == 1 => "1 person".to_owned(),
        (0, None) => format!("{last} persons"),
        (offset, next) => {
            let more = if next.is_some() { ", and there are more" } else { "" };
            format!("Persons {} to {last}{more}", offset.saturating_add(1))
        }
    }
}

/// The address of the page at this offset.
fn address(own: &Persons<'_>, offset: usize) -> String {
    let mut printer = Printer::default();
    own.question.add_to(&mut printer);
    own.point.add_to(&mut printer);
    printer.add("offset", Some(offset).filter(|offset| *offset > 0));
    format!("{}/persons?{}", links::kind(own.project, own.question.kind()), printer.finish())
}

fn rows(own: &Persons<'_>) -> Table {
    let row = |person: &ActorRow| {
        let ids = &person.distinct_ids;
        let link = ids.first().map(|id| parts::person(own.project, id));
        let shown = ids.get(..IDS_SHOWN).unwrap_or(ids).join(", ");
        let more = ids.len().saturating_sub(IDS_SHOWN);
        let shown = if more > 0 { format!("{shown} and {more} more") } else { shown };
        vec![
            Cell { text: person.name.clone(), link, ..Cell::default() },
            Cell::text(shown),
            Cell::number_if(person.value, Unit::Count, None),
            Cell::text(parts::local(&person.created_at, own.zone)),
        ]
    };
    let head = ["Person", "Distinct ids", "Value", "First seen"];
    Table {
        caption: "Persons".to_owned(),
        head: head.iter().map(|name| (*name).to_owned()).collect(),
        rows: own.people.iter().map(row).collect(),
    }
}
