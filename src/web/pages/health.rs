//! Health of the server, and of what was sent to it.

use chrono_tz::Tz;
use maud::Markup;
use maud::html;
use serde_json::Value;

use crate::web::chart::figure;
use crate::web::parts;
use crate::web::parts::integer;
use crate::web::parts::items;
use crate::web::parts::text;

/// Width of a meter, in its own units.
const METER: u64 = 1000;

/// Part of a limit from which a meter warns, in thousandths.
const HIGH: u64 = 850;

/// Longest example of a warning, in characters.
const EXAMPLE_MAX_CHARS: usize = 160;

/// A use, and what it may be.
#[derive(Clone, Debug)]
pub struct Use {
    /// What is used.
    pub name: &'static str,
    /// How much, in bytes.
    pub bytes: u64,
    /// The limit, in bytes.
    pub limit_bytes: u64,
}

/// Figures of the server.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Why no events are taken; `None` if they are.
    pub unready: Option<String>,
    /// Counts since the start, with what they count.
    pub counts: Vec<(&'static str, u64)>,
    /// Uses of memory and disk.
    pub uses: Vec<Use>,
    /// Refused requests since the start: route, status, count.
    pub refused: Vec<(String, u16, u64)>,
    /// The endpoints that took most time since the start: requests, and seconds of all of them together.
    pub times: Vec<(String, u64, f64)>,
}

/// The page.
pub fn figures(figures: &Figures) -> Markup {
    html! {
        @match &figures.unready {
            None => div class="note" { span class="badge good" { "Ready" } " Events are taken." },
            Some(reason) => div class="problem" role="alert" { "Events are not taken at the moment: " (reason) "." },
        }
        div class="cards few" {
            @for (name, count) in &figures.counts {
                div class="card" {
                    div class="figure" { (parts::number(i64::try_from(*count).unwrap_or(i64::MAX))) }
                    p class="quiet" {
                        @if name.contains("deleted") { a href="data-management/deletions" { (name) } } @else { (name) }
                    }
                }
            }
        }
        h2 { "Memory and disk" }
        div class="cards" { @for own in &figures.uses { (meter(own)) } }
        @if !figures.times.is_empty() { (times(&figures.times)) }
        h2 { "Refused requests since the start" }
        @if figures.refused.is_empty() { p class="quiet" { "None." } } @else {
            (refused(&figures.refused))
        }
    }
}

/// Where time goes, from the head of a request to the last byte of its answer.
fn times(rows: &[(String, u64, f64)]) -> Markup {
    let count = |count: u64| parts::number(i64::try_from(count).unwrap_or(i64::MAX));
    html! {
        h2 { "What took most time since the start" }
        div class="scroll" tabindex="0" role="region" aria-label="Times of requests" {
            table {
                thead { tr { th scope="col" { "Endpoint" } th scope="col" class="number" { "Requests" } th scope="col" class="number" { "Each, on average" } th scope="col" class="number" { "Together" } } }
                tbody {
                    @for (route, requests, seconds) in rows {
                        tr { th scope="row" { code { (route) } }
                            td class="number" { (count(*requests)) }
                            td class="number" { (figure::span(seconds / (*requests).max(1) as f64)) }
                            td class="number" { (figure::span(*seconds)) } }
                    }
                }
            }
        }
    }
}

fn refused(rows: &[(String, u16, u64)]) -> Markup {
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Refused requests" {
            table {
                thead { tr { th scope="col" { "Endpoint" } th scope="col" { "Status" } th scope="col" class="number" { "Requests" } } }
                tbody {
                    @for (route, status, count) in rows {
                        tr { th scope="row" { code { (route) } } td { (status) " " span class="quiet" { (meaning(*status)) } }
                            td class="number" { (parts::number(i64::try_from(*count).unwrap_or(i64::MAX))) } }
                    }
                }
            }
        }
    }
}

/// What was sent and is not stored, since the start of the server.
#[derive(Clone, Debug, Default)]
pub struct NotStored {
    /// Dropped events: why, how many.
    pub dropped: Vec<(String, u64)>,
    /// Refused requests: route, status, count.
    pub refused: Vec<(String, u16, u64)>,
}

/// What does not appear among the events, and why.
pub fn not_stored(own: &NotStored) -> Markup {
    html! {
        h2 { "Sent and not stored, since the start of the server" }
        @if own.dropped.is_empty() && own.refused.is_empty() { p class="quiet" { "Nothing: all that was sent is stored." } }
        @if !own.dropped.is_empty() {
            ul class="plain" {
                @for (reason, count) in &own.dropped {
                    li { b { (parts::number(i64::try_from(*count).unwrap_or(i64::MAX))) } " events: " (reason.replace('_', " ")) }
                }
            }
        }
        @if !own.refused.is_empty() { (refused(&own.refused)) }
    }
}

fn meter(own: &Use) -> Markup {
    let share = match own.limit_bytes {
        0 => 0,
        limit => (own.bytes.min(limit) / limit.div_ceil(METER).max(1)).min(METER),
    };
    html! {
        div class="card" {
            b { (own.name) }
            p class="quiet" { (parts::size(own.bytes)) @if own.limit_bytes > 0 { " of " (parts::size(own.limit_bytes)) } }
            @if own.limit_bytes > 0 {
                svg class="meter" viewBox=(format!("0 0 {METER} 8")) preserveAspectRatio="none" aria-hidden="true" {
                    rect class="all" width=(METER) height="8" {}
                    rect class=(if share >= HIGH { "part high" } else { "part" }) width=(share) height="8" {}
                }
            }
        }
    }
}

fn meaning(status: u16) -> &'static str {
    match status {
        400 => "not understood",
        401 => "no valid key",
        403 => "not allowed",
        404 => "not there",
        405 => "wrong method",
        408 => "too slow",
        413 => "too large",
        429 => "too many",
        499 => "client hung up",
        503 => "too busy",
        504 => "took too long",
        _ => "",
    }
}

/// Warnings about events that were stored with less effect than intended.
pub fn warnings(zone: Tz, found: &Value) -> Markup {
    let warnings = items(found, "results");
    html! {
        h2 { "Warnings about events" }
        @if warnings.is_empty() { p class="quiet" { "None: every event had the effect that its sender intended." } } @else {
            div class="scroll" tabindex="0" role="region" aria-label="Warnings" {
                table {
                    thead { tr { th scope="col" { "Kind" } th scope="col" class="number" { "Events" } th scope="col" { "Last" } th scope="col" { "Example" } } }
                    tbody {
                        @for warning in warnings {
                            tr {
                                th scope="row" { (parts::clipped(&text(warning, "type").replace('_', " "), 120)) }
                                td class="number" { (parts::number(integer(warning, "count").unwrap_or_default())) }
                                td class="short" { (parts::time(text(warning, "lastSeen"), zone)) }
                                td { @if let Some(first) = items(warning, "warnings").first() {
                                    code { (parts::clipped(&parts::plain(first.get("details").unwrap_or(&Value::Null)), EXAMPLE_MAX_CHARS)) }
                                } }
                            }
                        }
                    }
                }
            }
        }
    }
}
