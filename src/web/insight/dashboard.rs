//! Dashboards: their list, and one with its tiles. Tiles come in the order in which their answers are ready, and
//! take the places that the page has for them.

use maud::Markup;
use maud::PreEscaped;
use maud::html;

use crate::web::chart::table::Cell;
use crate::web::chart::table::Table;
use crate::web::chart::table::table;
use crate::web::insight::form::dates;
use crate::web::insight::links;
use crate::web::insight::saved::NAME_MAX_CHARS;
use crate::web::insight::saved::Saved;
use crate::web::state::range::Range;

/// The list of dashboards, and the form that makes one.
pub fn list(project: i64, dashboards: &[Saved]) -> Markup {
    let row = |own: &Saved| {
        let link = links::dashboard(project, own.id);
        vec![
            Cell::linked(own.title(), link),
            Cell::text(own.description.clone()),
            Cell::text(own.by.clone()),
            Cell::text(own.updated_at.clone()),
        ]
    };
    let head = ["Name", "Description", "By", "Changed (UTC)"];
    let rows = Table {
        caption: "Dashboards".to_owned(),
        head: head.iter().map(|name| (*name).to_owned()).collect(),
        rows: dashboards.iter().map(row).collect(),
    };
    html! {
        @if dashboards.is_empty() {
            div class="empty" {
                h2 { "No dashboard yet" }
                p { "A dashboard shows several saved insights at once. Make one, then save insights onto it." }
            }
        } @else { (table(&rows)) }
        form class="save" method="post" action=(links::dashboards(project)) {
            label { "Name " input name="name" required maxlength=(NAME_MAX_CHARS) placeholder="Weekly numbers"; }
            button { "Make dashboard" }
        }
    }
}

/// The range of dates of all tiles, instead of their own.
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

/// A place of a dashboard.
#[derive(Clone, Debug)]
pub enum Tile {
    /// A text.
    Text(String),
    /// A saved insight.
    Insight(Saved),
}

/// The beginning of the tiles: places for all of them, in their order, which are filled by what follows. [`end`]
/// closes it.
pub fn begin(tiles: &[Tile]) -> Markup {
    // A template of a shadow root cannot be closed by a macro before its siblings come.
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

/// A tile, for the place with its number; `inner` is the answer of an insight.
pub fn tile(project: i64, (tile, number): (&Tile, usize), inner: &Markup) -> Markup {
    html! {
        section class="tile" slot=(slot(number)) {
            @match tile {
                Tile::Text(text) => { p class="tile-text" { (text) } },
                Tile::Insight(own) => {
                    h2 { a href=(links::saved(project, &own.short_id)) { bdi { (own.title()) } } }
                    @if !own.description.is_empty() { p class="quiet" { (own.description) } }
                    (inner)
                },
            }
        }
    }
}

/// What a dashboard without tiles shows.
pub fn empty(project: i64) -> Markup {
    html! {
        div class="empty" {
            h2 { "Nothing is on this dashboard yet" }
            p {
                "Ask something on a page of "
                a href=(links::insights(project)) { "insights" }
                ", and choose this dashboard where you save it."
            }
        }
    }
}
