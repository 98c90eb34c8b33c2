//! Dashboards: their list, and one with its tiles. Tiles are streamed in the order in which their results are ready,
//! and fill the slots that the page has reserved for them.

use maud::{Markup, PreEscaped, html};
use serde_json::Value;

use crate::insight::form::dates;
use crate::insight::links;
use crate::insight::saved::{NAME_MAX_CHARS, Saved, rows};
use crate::parts::clipped;
use crate::sentences;
use crate::state::board::BoardFrame;
use crate::state::range::Range;

/// The height of a tile that this page places.
pub const HEIGHT: i64 = 5;

/// The list of dashboards, and the form that makes one.
pub fn list(project: i64, dashboards: &[Saved]) -> Markup {
    html! {
        @if dashboards.is_empty() {
            div class="empty" {
                h2 { "No dashboard yet" }
                p { "A dashboard shows several saved insights at once. Make one, then save insights onto it." }
            }
        } @else { (rows("Dashboards", dashboards, false, |own| links::dashboard(project, own.id))) }
        form class="save" method="post" action=(links::dashboards(project)) {
            label { "Name " input name="name" required maxlength=(NAME_MAX_CHARS) placeholder="Weekly numbers"; }
            button { "Create dashboard" }
        }
    }
}

/// Form field with the JSON of a dashboard.
pub const IMPORTED: &str = "dashboard";

/// The form that creates a dashboard from JSON.
pub fn import(project: i64) -> Markup {
    html! {
        details class="card" {
            summary { "Import a dashboard" }
            form class="stack" method="post" action=(format!("{}/import", links::dashboards(project))) {
                label class="full" {
                    "JSON of a dashboard: exported from here, or what PostHog answers to "
                    code { "GET /api/projects/1/dashboards/1/" }
                    textarea name=(IMPORTED) rows="8" spellcheck="false" required {}
                }
                button class="main" { "Import" }
            }
        }
    }
}

/// The form of the date range that replaces those of all tiles.
pub fn range(project: i64, id: i64, range: &Range) -> Markup {
    html! {
        form class="question" method="get" action=(links::dashboard(project, id)) {
            div class="row" {
                (dates(range, "as saved"))
                button { "Show" }
            }
        }
    }
}

/// Actions on a dashboard.
pub fn actions(project: i64, id: i64, can_write: bool) -> Markup {
    html! {
        div class="actions" {
            @if can_write {
                a class="button" href=(format!("{}/edit", links::dashboard(project, id))) { "Edit and share" }
            }
            a class="button" href=(format!("{}/export", links::dashboard(project, id))) { "Export" }
            button type="button" data-full="content" hidden { "Full screen" }
        }
        br;
    }
}

/// The settings of a dashboard that override those of all its insights: dates, filters and values of variables.
pub fn frame(own: &BoardFrame) -> Markup {
    let BoardFrame { range, rule, has_breakdown, variables, .. } = own;
    let has_range = *range != Range::default();
    html! {
        @if has_range || rule.is_some() || *has_breakdown || !variables.is_empty() {
            div class="note" {
                b { "For all tiles: " }
                @if has_range { (range.text()) " " }
                @if *has_breakdown { "a breakdown of the dashboard " }
                @for (name, value) in variables {
                    code { (clipped(name, NAME_MAX_CHARS)) } " = " b { (value) } " "
                }
                @if let Some(rule) = rule { (sentences::rule(rule)) }
            }
        }
    }
}

/// A tile of a dashboard.
#[derive(Clone, Debug)]
pub enum Tile {
    /// A text.
    Text(String),
    /// A saved insight.
    Insight(Saved),
}

impl Tile {
    /// The query of an insight; null for others.
    pub fn query(&self) -> &Value {
        match self {
            Self::Text(_) => &Value::Null,
            Self::Insight(own) => &own.query,
        }
    }
}

/// The beginning of the tiles: a slot for each of them, in their order; the tiles that follow are assigned to their
/// slots. [`end`] closes it.
pub fn begin(tiles: &[&Tile]) -> Markup {
    // Tags as text: the `div` stays open until the tiles have come, which an element of the macro cannot.
    html! {
        (PreEscaped("<div class=\"tiles\"><template shadowrootmode=\"open\">"))
        @for (tile, number) in tiles.iter().zip(0_usize..) {
            slot name=(slot(number)) {
                @if let Tile::Insight(own) = tile { p { (own.title()) " …" } }
            }
        }
        (PreEscaped("</template>"))
    }
}

/// The end of the tiles.
pub fn end() -> Markup {
    PreEscaped("</div>".to_owned())
}

fn slot(number: usize) -> String {
    format!("tile-{number}")
}

/// A tile for the slot with its number, over one half of the width or all of it; `inner` is the rendered result of an
/// insight. Without a project there are no links to its pages.
pub fn tile(
    project: Option<i64>,
    (tile, number, is_wide): (&Tile, usize, bool),
    inner: &Markup,
) -> Markup {
    html! {
        section class=(if is_wide { "tile wide" } else { "tile" }) slot=(slot(number)) {
            @match tile {
                Tile::Text(text) => { p class="tile-text" { (text) } },
                Tile::Insight(own) => {
                    @match project {
                        Some(project) => h2 { a href=(links::saved(project, &own.short_id)) { bdi { (own.title()) } } },
                        None => h2 { bdi { (own.title()) } },
                    }
                    @if !own.description.is_empty() { p class="quiet" { (own.description) } }
                    (inner)
                },
            }
        }
    }
}

/// Content of a dashboard without tiles.
pub fn empty(project: i64) -> Markup {
    html! {
        div class="empty" {
            h2 { "This dashboard is empty" }
            p {
                "Create one on a page of "
                a href=(links::insights(project)) { "insights" }
                ", and choose this dashboard where you save it."
            }
        }
    }
}
