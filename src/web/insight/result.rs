//! The result of an insight as a chart and a table: [`shown`].

use maud::{Markup, html};

use crate::chart::table;
use crate::chart::table::Table;
use crate::insight::answer::Shown;
use crate::insight::links::Links;
use crate::insight::{funnel, paths, retention, trends};
use crate::parts;
use crate::parts::{Elsewhere, code, page, query};
use crate::state::node::node;
use crate::state::sql::Span;
use crate::state::{curl, sql};
use weir_api::insights::Answer;

/// Text in place of the chart of a query that has none.
pub const NO_CHART: &str = "The page has no chart for this kind of insight.";

/// How and when a result was computed.
#[derive(Clone, Debug, Default)]
pub struct Made {
    /// How long it took, in milliseconds.
    pub millis: u64,
    /// Whether it came from the cache.
    pub is_cached: bool,
    /// The time as of which it was computed, in the time zone of the project.
    pub at: String,
    /// The time zone of the project.
    pub timezone: String,
    /// The address of this server, without a slash at its end.
    pub server: String,
    /// The resolved time range; `None` where no SQL is shown.
    pub span: Option<Span>,
    /// The directory of the files of events.
    pub files: String,
}

/// The chart and the table of a result.
pub fn shown(answer: &Answer, links: &Links<'_>) -> Shown {
    match answer {
        Answer::Series(series) => trends::shown(series, links),
        Answer::Funnel(answer) => funnel::shown(answer, links),
        Answer::Retention(rows) => retention::shown(rows, links),
        Answer::Paths(edges) => paths::shown(edges, links),
        Answer::Correlations(_) => Shown {
            chart: html! { p class="quiet" { (NO_CHART) } },
            table: Table::default(),
            is_table: true,
            is_empty: false,
        },
    }
}

/// The whole result: chart, table, its source and how to run the same query elsewhere.
pub fn whole(answer: &Answer, links: &Links<'_>, made: &Made) -> Markup {
    let shown = shown(answer, &links.as_of(&made.at));
    html! {
        @if shown.is_empty {
            div class="empty" {
                h2 { "Nothing happened in this time" }
                p { "No event matches the query. Try a longer date range, another event, or fewer filters." }
            }
        } @else {
            div class="card" {
                (shown.chart)
                @if !shown.is_table { (table::details(&shown.table)) }
            }
        }
        (source(links, made))
    }
}

/// How the result was computed, and how to run the same query elsewhere.
fn source(links: &Links<'_>, made: &Made) -> Markup {
    let asked = links.query.map_or_else(|| node(links.question), Clone::clone);
    let curl = curl::command(&made.server, links.project, &asked);
    html! {
        footer class="source" {
            p {
                "As of " (made.at) ", " (made.timezone) " · "
                @if made.is_cached { "cached: nothing has changed since" } @else { "computed in " (made.millis) " ms" }
                @if links.has_files() { " · " (parts::files(|format| links.download(format))) }
            }
            @match &made.span {
                Some(span) if links.has_address() => (elsewhere(links, (made, span), &curl)),
                _ => (parts::source(links.project, &Elsewhere { sql: None, duckdb: Err(sql::OF_SAVED), curl: &curl })),
            }
        }
    }
}

/// The footer of a tile: links to its files, and the curl command of the same query.
pub fn below(links: &Links<'_>, made: &Made) -> Markup {
    let asked = links.query.map_or_else(|| node(links.question), Clone::clone);
    html! {
        footer class="quiet below" {
            @if links.has_files() { (parts::files(|format| links.download(format))) }
            button class="small" type="button" data-clip=(curl::command(&made.server, links.project, &asked)) { "Copy as curl" }
        }
    }
}

/// The same query as SQL, for DuckDB and as a curl command.
fn elsewhere(links: &Links<'_>, (made, span): (&Made, &Span), curl: &str) -> Markup {
    let address = |sql: &str| format!("{}?{}", page(links.project, "sql"), query(&[("q", sql)]));
    let own = sql::of(links.question, span);
    let of_files = sql::of_files(links.question, span, (&made.files, links.project));
    html! {
        details {
            summary { "Use this query elsewhere" }
            div {
                @match (&own, &of_files) {
                    (Err(reason), Err(other)) if reason == other => {
                        h3 { "As SQL, or in DuckDB" }
                        p { (reason) }
                    },
                    _ => {
                        @match &own {
                            Ok(sql) => {
                                h3 { "As SQL " a href=(address(sql)) { "Open" } }
                                p { "It gives the numbers above; what is zero has no row, and all values of a split have one." }
                                (code("as-sql", sql))
                            },
                            Err(reason) => { h3 { "As SQL" } p { (reason) } },
                        }
                        h3 { "In DuckDB" }
                        @match &of_files {
                            Ok(sql) => {
                                p { "It reads the files of this server, which have an event a moment after it came in." }
                                (code("as-duckdb", sql))
                            },
                            Err(reason) => p { (reason) },
                        }
                    },
                }
                h3 { "With a personal API key" }
                (code("as-curl", curl))
            }
        }
    }
}
