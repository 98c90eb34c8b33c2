//! The page behind a share link: a dashboard or an insight with its numbers, without links to other pages; or the form
//! for its password.

use chrono_tz::Tz;
use maud::{Markup, html};
use serde::de::DeserializeSeed;
use serde_json::{Map, Value};

use crate::chart::table;
use crate::frame::{Theme, opening};
use crate::insight::dashboard::{Place, Tile};
use crate::insight::links::Links;
use crate::insight::result::NO_CHART;
use crate::insight::saved::Saved;
use crate::insight::{dashboard, result};
use crate::pages::sql;
use crate::parts;
use crate::parts::{items, text};
use crate::state::stored;
use weir_api::insights::AnswerTo;
use weir_api::query::Rows;
use weir_wire::query_node::unwrapped;

/// The query of a saved insight, from its JSON; null without one.
pub type QueryOf<'a> = &'a dyn Fn(&Value) -> Value;

/// The whole document: `told` is the API's JSON of the shared resource, `settings` are those of the link.
pub fn document(
    theme: Theme,
    settings: &Map<String, Value>,
    told: &Value,
    query_of: QueryOf<'_>,
) -> Markup {
    let is_set = |name: &str| settings.get(name) == Some(&Value::Bool(true));
    let (title, description, content) = match told.get("dashboard") {
        Some(board) => (parts::named(board), text(board, "description"), tiles(board, query_of)),
        None => {
            let insight = told.get("insight").unwrap_or(&Value::Null);
            let own = saved(insight, query_of);
            let title = if is_set("hideExtraDetails") { "Insight".to_owned() } else { own.title() };
            (
                title,
                text(insight, "description"),
                html! { div class="card" { (answer(insight, true, query_of)) } },
            )
        }
    };
    html! {
        (opening(&title, theme))
        body {
            main class="shared" id="content" {
                @if !is_set("noHeader") {
                    div class="title" { h1 { bdi { (title) } } }
                    @if !description.is_empty() { p { (parts::clipped(description, 2000)) } }
                }
                (content)
                footer class="source" { (as_of(told)) @if !is_set("whitelabel") { " Shown by Weir." } }
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
fn as_of(told: &Value) -> Markup {
    let of = told.get("dashboard").or_else(|| told.get("insight")).unwrap_or(&Value::Null);
    let first = items(of, "tiles").iter().filter_map(|tile| tile.get("insight")).chain([of]);
    let zone = first.map(|one| text(one, "timezone")).find(|name| !name.is_empty());
    let zone: Tz = zone.and_then(|name| name.parse().ok()).unwrap_or(Tz::UTC);
    let at = text(of, "last_refresh");
    html! { @if !at.is_empty() { "As of " (parts::time(at, zone)) ", " (zone.name()) "." } }
}

fn tiles(board: &Value, query_of: QueryOf<'_>) -> Markup {
    let mut placed: Vec<(Place, &Value)> =
        items(board, "tiles").iter().map(|tile| (Place::of(tile), tile)).collect();
    placed.sort_by_key(|(place, _)| place.order());
    html! {
        @if placed.is_empty() { p class="quiet" { "This dashboard is empty." } }
        div class="tiles" {
            @for ((place, tile), number) in placed.iter().zip(0_usize..) {
                @let insight = tile.get("insight").filter(|insight| insight.is_object());
                @match insight {
                    Some(insight) => {
                        (dashboard::tile(None, (&Tile::Insight(saved(insight, query_of)), number, place.is_wide), &answer_of(tile, insight, query_of)))
                    },
                    None => {
                        (dashboard::tile(None, (&Tile::Text(text_of(tile)), number, place.is_wide), &html! {}))
                    },
                }
            }
        }
    }
}

fn text_of(tile: &Value) -> String {
    match tile.get("text") {
        Some(Value::String(text)) => text.clone(),
        Some(of) => text(of, "body").to_owned(),
        None => String::new(),
    }
}

fn answer_of(tile: &Value, insight: &Value, query_of: QueryOf<'_>) -> Markup {
    match tile.get("error").filter(|error| !error.is_null()) {
        Some(error) => parts::failed(text(error, "message")),
        None => answer(insight, false, query_of),
    }
}

/// The chart of an insight, with its numbers as a table if it is the only one on the page.
fn answer(insight: &Value, is_alone: bool, query_of: QueryOf<'_>) -> Markup {
    let results = insight.get("result").unwrap_or(&Value::Null);
    if results.is_null() {
        return html! { p class="quiet" { "There is no result." } };
    }
    if insight.get("columns").is_some_and(Value::is_array) {
        let part = |name: &str| insight.get(name).cloned().unwrap_or_default();
        let rows = Rows::of(part("columns"), part("types"), results.clone());
        return sql::saved(&rows, &query_of(insight), is_alone);
    }
    let query = query_of(insight);
    let (Some(sketch), Ok(answer)) =
        (stored::sketch(&query), AnswerTo(unwrapped(&query)).deserialize(results))
    else {
        return html! { p class="quiet" { (NO_CHART) } };
    };
    let zone = text(insight, "timezone").parse().unwrap_or(Tz::UTC);
    let at = parts::local(text(insight, "last_refresh"), zone);
    let shown = result::shown(&answer, &Links::without(0, &sketch, &query).as_of(&at));
    html! {
        @if shown.is_empty { p class="quiet" { "Nothing happened in this time." } } @else {
            (shown.chart)
            @if is_alone && !shown.is_table { (table::details(&shown.table)) }
        }
    }
}

fn saved(insight: &Value, query_of: QueryOf<'_>) -> Saved {
    let names = [text(insight, "name"), text(insight, "derived_name")];
    Saved {
        short_id: text(insight, "short_id").to_owned(),
        name: names.into_iter().find(|name| !name.is_empty()).unwrap_or_default().to_owned(),
        description: text(insight, "description").to_owned(),
        query: query_of(insight),
        ..Saved::default()
    }
}
