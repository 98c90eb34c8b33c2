//! The page behind a share link: a dashboard or an insight with its numbers, without links to other pages; or the form
//! for its password.

use chrono_tz::Tz;
use maud::{Markup, html};
use serde::de::DeserializeSeed;

use crate::chart::table;
use crate::frame::{Theme, opening};
use crate::insight::dashboard::Tile;
use crate::insight::links::Links;
use crate::insight::result::NO_CHART;
use crate::insight::saved::Saved;
use crate::insight::{dashboard, result};
use crate::pages::sql;
use crate::parts;
use crate::state::board::TilePosition;
use crate::state::stored;
use weir_api::insights::AnswerTo;
use weir_api::shared;
use weir_api::shared::{Content, Insight, Shared};
use weir_api::sharing::SharingSettings;
use weir_wire::query_node::unwrapped;

/// The whole document; `settings` are those of the link.
pub fn document(theme: Theme, settings: &SharingSettings, shared: &Shared) -> Markup {
    let is_bare = settings.hide_extra_details == Some(true);
    let (title, description, content) = match shared {
        Shared::Dashboard(board) => {
            (parts::title(&board.name), board.description.as_str(), tiles(&board.tiles))
        }
        Shared::Insight(own) => {
            let title = if is_bare { "Insight".to_owned() } else { saved(own).title() };
            let card = html! { div class="card" { (answer(own, true)) } };
            (title, own.description.as_str(), card)
        }
    };
    let (has_header, has_name) =
        (settings.no_header != Some(true), settings.whitelabel != Some(true));
    html! {
        (opening(&title, theme))
        body {
            main class="shared" id="content" {
                @if has_header {
                    div class="title" { h1 { bdi { (title) } } }
                    @if !description.is_empty() { p { (parts::clipped(description, 2000)) } }
                }
                (content)
                footer class="source" { (as_of(shared)) @if has_name { " Shown by Weir." } }
            }
        }
        (maud::PreEscaped("</html>"))
    }
}

/// The form for the password of a link, sent to the address of the link itself.
pub fn lock(failure: Option<&str>) -> Markup {
    html! {
        @if let Some(failure) = failure { (parts::failed(failure)) }
        form class="stack" method="post" {
            label {
                "Password"
                input type="password" name="password" autocomplete="current-password" required autofocus;
            }
            button class="main" { "Show" }
        }
        p class="quiet" { br; "Ask the person who sent you the link for it." }
    }
}

/// When the oldest of the shown results was computed.
fn as_of(shared: &Shared) -> Markup {
    let (at, zone) = match shared {
        Shared::Insight(own) => (&own.last_refresh, Some(&own.timezone)),
        Shared::Dashboard(board) => {
            let zones = board.tiles.iter().filter_map(|tile| match &tile.content {
                Content::Insight(own) | Content::Failed(own, _) => Some(&own.timezone),
                Content::Text(_) => None,
            });
            (&board.last_refresh, zones.into_iter().find(|zone| !zone.is_empty()))
        }
    };
    let zone: Tz = zone.and_then(|name| name.parse().ok()).unwrap_or(Tz::UTC);
    html! { @if !at.is_empty() { "As of " (parts::time(at, zone)) ", " (zone.name()) "." } }
}

fn tiles(tiles: &[shared::Tile]) -> Markup {
    let mut placed: Vec<(TilePosition, &Content)> =
        tiles.iter().map(|tile| (TilePosition::of(&tile.layouts), &tile.content)).collect();
    placed.sort_by_key(|(place, _)| place.order());
    html! {
        @if placed.is_empty() { p class="quiet" { "This dashboard is empty." } }
        div class="tiles" {
            @for ((place, content), number) in placed.iter().zip(0_usize..) {
                @let (tile, inner) = tile(content);
                (dashboard::tile(None, (&tile, number, place.is_wide), &inner))
            }
        }
    }
}

/// A tile, and its result.
fn tile(content: &Content) -> (Tile, Markup) {
    match content {
        Content::Text(text) => (Tile::Text(text.clone()), html! {}),
        Content::Insight(own) => (Tile::Insight(saved(own)), answer(own, false)),
        Content::Failed(own, message) => (Tile::Insight(saved(own)), parts::failed(message)),
    }
}

/// The chart of an insight, with its numbers as a table if it is the only one on the page.
fn answer(own: &Insight, is_alone: bool) -> Markup {
    let results = match &own.result {
        shared::Result::None => return html! { p class="quiet" { "There is no result." } },
        shared::Result::Rows(rows) => return sql::saved(rows, &own.query, is_alone),
        shared::Result::Answer(results) => results,
    };
    let query = &own.query;
    let (Some(sketch), Ok(answer)) =
        (stored::sketch(query), AnswerTo(unwrapped(query)).deserialize(results))
    else {
        return html! { p class="quiet" { (NO_CHART) } };
    };
    let zone = own.timezone.parse().unwrap_or(Tz::UTC);
    let at = parts::local(&own.last_refresh, zone);
    let shown = result::shown(&answer, &Links::without(0, &sketch, query).as_of(&at));
    html! {
        @if shown.is_empty { p class="quiet" { "Nothing happened in this time." } } @else {
            (shown.chart)
            @if is_alone && !shown.is_table { (table::details(&shown.table)) }
        }
    }
}

fn saved(own: &Insight) -> Saved {
    Saved {
        short_id: own.short_id.clone(),
        name: own.name.clone(),
        description: own.description.clone(),
        query: own.query.clone(),
        ..Saved::default()
    }
}
