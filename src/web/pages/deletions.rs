//! Deletions: the requests with their states, and the proof that nothing is left.

use chrono_tz::Tz;
use maud::{Markup, html};

use crate::parts;
use crate::parts::{literal, page, query};
use weir_api::persons::EventDeletion;

/// Rows of a person that were found.
#[derive(Clone, Debug, Default)]
pub struct Proof {
    /// The uuid.
    pub person: String,
    /// Rows in memory.
    pub in_memory: usize,
    /// Files that contain rows, and the number of rows in each.
    pub files: Vec<(String, usize)>,
    /// Live files that were searched.
    pub looked_into: usize,
    /// The directory of the events.
    pub table: String,
}

/// The requests, as the API returns them.
pub fn list(project: i64, zone: Tz, requests: &[EventDeletion]) -> Markup {
    let proof = |person: &str| {
        let own = query(&[("person", person)]);
        format!("{}?{own}#proof", page(project, "data-management/deletions"))
    };
    html! {
        p class="quiet" {
            "A deletion counts at once: no answer has the events any more. The files that have them are written again without \
             them, and the request is done when no live file, no memory and no part of the log that a start reads has one."
        }
        @if requests.is_empty() {
            div class="empty" {
                h2 { "Nothing was deleted" }
                p { "The page of a person deletes it, its events, or both." }
            }
        } @else {
            div class="scroll" tabindex="0" role="region" aria-label="Deletions" {
                table {
                    thead { tr { th scope="col" { "Person" } th scope="col" { "Requested" } th scope="col" { "State" } th scope="col" { "Completed" } th scope="col" { "Proof" } } }
                    tbody {
                        @for request in requests {
                            @let person = request.person_uuid.as_str();
                            tr {
                                th scope="row" { code { (person) } }
                                td class="short" { (parts::time(&request.created_at, zone)) }
                                td { @if request.status == "completed" { span class="badge good" { "done" } } @else { span class="badge warn" { "in files still" } } }
                                td class="short" { (parts::time(request.delete_verified_at.as_deref().unwrap_or_default(), zone)) }
                                td { a href=(proof(person)) { "Look through the files" } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Rows of a person that the files contain now.
pub fn proof(project: i64, own: &Proof) -> Markup {
    let rows: usize = own.files.iter().map(|(_, rows)| rows).sum();
    let sql = format!(
        "SELECT count(*)\nFROM delta_scan({})\nWHERE project_id = {project}\n  AND person_id = {}",
        literal(&own.table),
        literal(&own.person)
    );
    html! {
        section class="card" id="proof" {
            h2 { "What is left of " code { (own.person) } }
            @if rows == 0 && own.in_memory == 0 {
                p { span class="badge good" { "nothing" } " Just now " b { (counted(own.looked_into)) }
                    " and the memory were looked through: none has an event that came in as one of this person." }
            } @else {
                p { span class="badge warn" { "something" } " " (counted(own.looked_into)) " and the memory were looked through. "
                    "In memory and in the log: " (own.in_memory) ". In files: " (rows) "." }
                @if !own.files.is_empty() {
                    ul class="plain" { @for (path, rows) in &own.files { li { code { (path) } " " span class="quiet" { (rows) " rows" } } } }
                    p class="quiet" { "After a deletion these rows are in no result, and leave the files when these are rewritten." }
                }
            }
            h3 { "The same in DuckDB" }
            (parts::code("as-duckdb", &sql))
        }
    }
}

fn counted(files: usize) -> String {
    if files == 1 { "1 live file".to_owned() } else { format!("{files} live files") }
}
