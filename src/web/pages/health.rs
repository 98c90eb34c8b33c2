//! Health of the server, and of the ingested data.

use std::time::Duration;

use chrono_tz::Tz;
use maud::{Markup, html};

use crate::chart::figure;
use crate::parts;
use weir_api::warnings::Kind;
use weir_base::clock::UnixMicros;

/// Width of a meter, in its own units.
const METER: u64 = 1000;

/// Fraction of a limit from which a meter warns, in thousandths.
const HIGH: u64 = 850;

/// Longest example of a warning, in characters.
const EXAMPLE_MAX_CHARS: usize = 160;

/// Requests to one endpoint that were refused for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The endpoint, as metrics name it.
    pub route: &'static str,
    /// The status of the responses.
    pub status: u16,
    /// Error code of the responses; empty without one.
    pub code: &'static str,
    /// How many, since the start.
    pub requests: u64,
    /// When the last one was.
    pub last_at: UnixMicros,
}

/// Use of a resource, and its limit.
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
    /// Why no events are accepted; `None` if they are.
    pub unready: Option<String>,
    /// Rates, with their names; `None` while there is no measurement.
    pub rates: Vec<(&'static str, Option<f64>)>,
    /// Age of the oldest event that is not in a file yet, and number of log records that are not in a file.
    pub unflushed: (Duration, u64),
    /// Counters, with their names.
    pub counts: Vec<(&'static str, u64)>,
    /// Uses of memory and disk.
    pub uses: Vec<Use>,
    /// Free space, and the minimum below which no events are accepted.
    pub disk_free: Option<Use>,
    /// The endpoints with the largest total time since the start: name, requests, and seconds of all of them together.
    pub times: Vec<(String, u64, f64)>,
}

fn count(number: u64) -> String {
    parts::number(i64::try_from(number).unwrap_or(i64::MAX))
}

/// The page.
pub fn figures(figures: &Figures) -> Markup {
    let (age, records) = figures.unflushed;
    let card = |figure: &str, name: &str| {
        html! {
            div class="card" {
                div class="figure" { (figure) }
                p class="quiet" {
                    @if name.contains("deleted") { a href="data-management/deletions" { (name) } } @else { (name) }
                }
            }
        }
    };
    html! {
        @match &figures.unready {
            None => div class="note" { span class="badge good" { "Ready" } " Events are taken." },
            Some(reason) => div class="problem" role="alert" { "The server is not accepting events: " (reason) "." },
        }
        div class="cards few" {
            @for (name, rate) in &figures.rates {
                (card(&rate.map_or_else(|| "-".to_owned(), |rate| figure::plain(rounded(rate))), name))
            }
            (card(&figure::span(rounded(age.as_secs_f64())), &format!("from the log to files, so far; {} log records wait", count(records))))
            @for (name, number) in &figures.counts { (card(&count(*number), name)) }
        }
        h2 { "Memory and disk" }
        div class="cards" {
            @for own in &figures.uses { (meter(own)) }
            @if let Some(free) = &figures.disk_free { (room(free)) }
        }
        @if !figures.times.is_empty() { (times(&figures.times)) }
    }
}

/// One decimal for small values, none for large ones.
fn rounded(value: f64) -> f64 {
    if value < 100.0 { (value * 10.0).round() / 10.0 } else { value.round() }
}

/// Free space, and how much of it is reserved.
fn room(free: &Use) -> Markup {
    let is_low = free.bytes < free.limit_bytes.saturating_mul(2);
    html! {
        div class="card" {
            b { (free.name) }
            p class="quiet" {
                @if is_low { span class="badge bad" { "Low" } " " }
                (parts::size(free.bytes)) "; below " (parts::size(free.limit_bytes)) " no events are taken"
            }
        }
    }
}

/// A slow query.
#[derive(Clone, Debug)]
pub struct SlowQuery {
    /// When its response was sent.
    pub at: UnixMicros,
    /// How long that took.
    pub took: Duration,
    /// Whether it succeeded.
    pub is_answered: bool,
    /// SQL, or a kind of insight and its events.
    pub text: Box<str>,
}

/// The slowest queries of a project.
pub fn slow(zone: Tz, rows: &[SlowQuery]) -> Markup {
    html! {
        h2 { "The slowest queries of the last hour" }
        @if rows.is_empty() { p class="quiet" { "No queries of this project." } } @else {
            div class="scroll" tabindex="0" role="region" aria-label="Slow queries" {
                table {
                    thead { tr { th scope="col" { "Query" } th scope="col" class="number" { "Took" } th scope="col" { "When" } } }
                    tbody {
                        @for row in rows {
                            tr {
                                td { code { (row.text) } @if !row.is_answered { " " span class="badge warn" { "failed" } } }
                                td class="number" { (figure::span(rounded(row.took.as_secs_f64() * 1000.0) / 1000.0)) }
                                td class="short" { (parts::time(&row.at.to_rfc3339(), zone)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Refused requests of all endpoints.
pub fn refusals(zone: Tz, rows: &[Refusal]) -> Markup {
    html! {
        h2 { "Refused requests since the start" }
        @if rows.is_empty() { p class="quiet" { "None." } } @else { (refused(zone, rows)) }
    }
}

/// Total time by endpoint, from the head of a request to the last byte of its response.
fn times(rows: &[(String, u64, f64)]) -> Markup {
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

fn refused(zone: Tz, rows: &[Refusal]) -> Markup {
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Refused requests" {
            table {
                thead { tr { th scope="col" { "Endpoint" } th scope="col" { "Reason" } th scope="col" class="number" { "Requests" } th scope="col" { "Last" } } }
                tbody {
                    @for own in rows {
                        tr { th scope="row" { code { (own.route) } } td { (why(own.status, own.code)) }
                            td class="number" { (count(own.requests)) }
                            td class="short" { (parts::time(&own.last_at.to_rfc3339(), zone)) } }
                    }
                }
            }
        }
    }
}

/// Why a request was refused: the response's error code, and its status.
fn why(status: u16, code: &str) -> Markup {
    let meaning = meaning(status);
    html! {
        @if code.is_empty() { (meaning) } @else { (code.replace('_', " ")) }
        " " span class="quiet" { (status) @if !code.is_empty() && !meaning.is_empty() { ", " (meaning) } }
    }
}

/// Received data that is not stored, since the start of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotStored {
    /// Dropped events: reason and number.
    pub dropped: Vec<(&'static str, u64)>,
    /// Refused requests.
    pub refused: Vec<Refusal>,
}

/// Received data that does not appear among the events, and why.
pub fn not_stored(zone: Tz, own: &NotStored) -> Markup {
    html! {
        h2 { "Discarded since the start of the server" }
        @if own.dropped.is_empty() && own.refused.is_empty() { p class="quiet" { "Nothing: all that was sent is stored." } }
        @if !own.dropped.is_empty() {
            ul class="plain" {
                @for (reason, number) in &own.dropped {
                    li { b { (count(*number)) } " events: " (reason.replace('_', " ")) }
                }
            }
        }
        @if !own.refused.is_empty() { (refused(zone, &own.refused)) }
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
pub fn warnings(zone: Tz, warnings: &[Kind]) -> Markup {
    html! {
        h2 { "Warnings about events" }
        @if warnings.is_empty() { p class="quiet" { "None: every event had the effect that its sender intended." } } @else {
            div class="scroll" tabindex="0" role="region" aria-label="Warnings" {
                table {
                    thead { tr { th scope="col" { "Kind" } th scope="col" class="number" { "Events" } th scope="col" { "Last" } th scope="col" { "Example" } } }
                    tbody {
                        @for warning in warnings {
                            tr {
                                th scope="row" { (parts::clipped(&warning.r#type.replace('_', " "), 120)) }
                                td class="number" { (parts::number(i64::try_from(warning.count).unwrap_or(i64::MAX))) }
                                td class="short" { (parts::time(&warning.last_seen, zone)) }
                                td { @if let Some(first) = warning.warnings.first() {
                                    code { (parts::clipped(&serde_json::to_string(&first.details).unwrap_or_default(), EXAMPLE_MAX_CHARS)) }
                                } }
                            }
                        }
                    }
                }
            }
        }
    }
}
