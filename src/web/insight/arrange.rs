//! Forms that edit what was saved: a dashboard with its tiles, an insight, and the sharing of either by link, with its
//! passwords.

use maud::{Markup, html};

use crate::insight::dashboard::Tile;
use crate::insight::form::fields::{Suggestions, filter_rows};
use crate::insight::form::{dates, property_names};
use crate::insight::links;
use crate::insight::saved::{NAME_MAX_CHARS, Saved};
use crate::parts;
use crate::state::filters::Filter;
use crate::state::range::Range;
use weir_api::sharing::{SharePassword, Sharing};

/// Longest description of an insight and of a dashboard, in characters.
const DESCRIPTION_MAX_CHARS: usize = 400;
const BOARD_DESCRIPTION_MAX_CHARS: usize = 8192;

/// Longest text of a tile, in characters.
const TEXT_MAX_CHARS: usize = 4000;

/// Longest note on a password of a link, and its shortest and longest password, in characters.
const NOTE_MAX_CHARS: usize = 100;
const PASSWORD_MIN_CHARS: usize = 8;
const PASSWORD_MAX_CHARS: usize = 200;

/// Field by which a form declares that it contains fields for filters.
pub const HAS_FILTERS: &str = "has_filters";

/// Field by which a form removes filters for which it has no fields.
pub const WITHOUT_FILTERS: &str = "without_filters";

/// A dashboard to be edited.
#[derive(Clone, Debug)]
pub struct Board<'a> {
    /// The project.
    pub project: i64,
    /// The dashboard.
    pub own: &'a Saved,
    /// Whether it comes first in lists.
    pub is_pinned: bool,
    /// The date range that applies to all of its insights.
    pub range: &'a Range,
    /// The filters that apply to all of its insights; `None` where a form cannot represent them.
    pub filters: Option<&'a [Filter]>,
    /// Suggestions for the fields.
    pub known: &'a Suggestions,
    /// Its tiles, each with its id and whether it takes the whole width.
    pub tiles: &'a [(i64, &'a Tile, bool)],
    /// Insights that are not on it.
    pub others: &'a [Saved],
}

/// The forms of a dashboard.
pub fn board(own: &Board<'_>) -> Markup {
    let address = links::dashboard(own.project, own.own.id);
    html! {
        p class="back" { a href=(address) { "← Back to the dashboard" } }
        div class="card" {
            form class="stack" method="post" action=(address) {
                label { "Name" input class="wide" name="name" value=(own.own.name) maxlength=(NAME_MAX_CHARS); }
                label class="full" { "Description" textarea name="description" rows="2" maxlength=(BOARD_DESCRIPTION_MAX_CHARS) { (own.own.description) } }
                div class="fields" { (dates(own.range, "as saved")) span class="quiet" { "for all tiles" } }
                (filters(own.filters, own.known))
                label class="check" { input type="checkbox" name="pinned" value="1" checked[own.is_pinned]; "Pinned" }
                button class="main" name="do" value="save" { "Save" }
            }
        }
        h2 { "Tiles" }
        @if own.tiles.is_empty() { p class="quiet" { "This dashboard is empty." } }
        ol class="plain" { @for (at, tile) in own.tiles.iter().enumerate() { (row(&address, *tile, (at, own.tiles.len()))) } }
        (adding(&address, own.others))
        div class="card" {
            h2 { "Delete" }
            form class="actions" method="post" action=(address) data-confirm="Delete this dashboard?" {
                label class="check" { input type="checkbox" name="with_insights" value="1"; "with the insights that are on no other dashboard" }
                button class="danger" name="do" value="delete" { "Delete dashboard" }
            }
        }
    }
}

/// The filters that apply to all tiles.
fn filters(own: Option<&[Filter]>, known: &Suggestions) -> Markup {
    html! {
        details class="filters full" open[own.is_none_or(|own| !own.is_empty())] {
            summary { "Filters for all tiles" }
            @match own {
                Some(filters) => div {
                    input type="hidden" name=(HAS_FILTERS) value="1";
                    (filter_rows(filters, "", known))
                    (property_names(known))
                },
                None => div {
                    p class="quiet" { "These filters have groups, which have no fields here; the API changes them. They stay as they are." }
                    label class="check" { input type="checkbox" name=(WITHOUT_FILTERS) value="1"; "Remove them" }
                },
            }
        }
    }
}

fn row(
    address: &str,
    (id, tile, is_wide): (i64, &Tile, bool),
    (at, count): (usize, usize),
) -> Markup {
    let name = match tile {
        Tile::Insight(own) => own.title(),
        Tile::Text(text) => parts::clipped(text, NAME_MAX_CHARS),
    };
    let press = |what: &str, shown: &str, is_off: bool| {
        html! {
            button class="small" name="do" value=(what) disabled[is_off] aria-label=(format!("{shown}: {name}")) { (shown) }
        }
    };
    html! {
        li class="card" id=(format!("tile-{id}")) {
            form class="actions" method="post" action=(address) {
                input type="hidden" name="tile" value=(id);
                b class="grow" { bdi { (name) } }
                (press("up", "Up", at == 0))
                (press("down", "Down", at + 1 == count))
                @if is_wide { (press("narrow", "Half width", false)) } @else { (press("wide", "Full width", false)) }
                (press("remove", "Remove", false))
            }
            @if let Tile::Text(text) = tile {
                details {
                    summary class="quiet" { "Edit text" }
                    form class="stack" method="post" action=(address) {
                        input type="hidden" name="tile" value=(id);
                        label class="full" { "Text" textarea name="text" rows="3" required maxlength=(TEXT_MAX_CHARS) { (text) } }
                        button name="do" value="text" { "Save text" }
                    }
                }
            }
        }
    }
}

fn adding(address: &str, others: &[Saved]) -> Markup {
    html! {
        div class="cards" {
            div class="card" {
                h3 { "Add an insight" }
                @if others.is_empty() { p class="quiet" { "All saved insights are on this dashboard." } } @else {
                    form class="stack" method="post" action=(address) {
                        label { "Insight" select name="insight" { @for own in others { option value=(own.id) { (own.title()) } } } }
                        button name="do" value="add" { "Add insight" }
                    }
                }
            }
            div class="card" {
                h3 { "Add a text" }
                form class="stack" method="post" action=(address) {
                    label class="full" { "Text" textarea name="text" rows="3" required maxlength=(TEXT_MAX_CHARS) {} }
                    button name="do" value="add" { "Add text" }
                }
            }
        }
    }
}

/// The forms of a saved insight: name and description, sharing, deletion.
pub fn insight(project: i64, own: &Saved, share: Option<&Markup>) -> Markup {
    let address = links::saved(project, &own.short_id);
    html! {
        details class="card" {
            summary { "Details" }
            div {
                form class="stack" method="post" action=(address) {
                    label { "Name" input class="wide" name="name" value=(own.name) maxlength=(NAME_MAX_CHARS); }
                    label class="full" { "Description" textarea name="description" rows="2" maxlength=(DESCRIPTION_MAX_CHARS) { (own.description) } }
                    label class="check" { input type="checkbox" name="favorited" value="1" checked[own.is_favourite]; "Favourite" }
                    button class="main" name="do" value="save" { "Save" }
                }
                form method="post" action=(address) data-confirm="Delete this insight? It disappears from all dashboards." {
                    button class="danger" name="do" value="delete" { "Delete insight" }
                }
            }
        }
        @if let Some(share) = share { (share) }
    }
}

/// Whether a document is shared by link, and the form that turns this on and off: `address` receives the changes;
/// without the right to change it, only the link is shown.
pub fn sharing(address: &str, server: &str, share: &Sharing, can_write: bool) -> Markup {
    let token = share.access_token.as_deref().unwrap_or_default();
    let is_on = share.enabled && !token.is_empty();
    html! {
        div class="card" id="sharing" {
            h2 { "Public link" }
            @if is_on {
                p { "Anyone with this link can see the results without signing in:" }
                (parts::code("link", &format!("{server}/shared/{token}")))
                details { summary class="quiet" { "Embed" }
                    (parts::code("frame", &format!("<iframe src=\"{server}/embedded/{token}\" width=\"100%\" height=\"600\"></iframe>"))) }
            } @else { p class="quiet" { "Only signed-in users can see this." } }
            @if can_write {
                form class="actions" method="post" action=(address) {
                    @if is_on {
                        button class="danger" name="do" value="off" { "Turn off" }
                        button name="do" value="new" title="The link above stops working" { "Rotate link" }
                    } @else { button name="do" value="on" { "Create public link" } }
                }
            }
            @if is_on { (passwords(address, share, can_write)) }
        }
    }
}

/// Whether a share link requires a password, and its passwords.
fn passwords(address: &str, share: &Sharing, can_write: bool) -> Markup {
    let (is_locked, own) = (share.password_required, &share.share_passwords);
    html! {
        h3 { "Passwords" }
        @if !is_locked {
            p class="quiet" { "The link requires no password." }
        } @else if own.is_empty() {
            p class="note warn" { "The link requires a password and has none, so nobody can open it." }
        } @else {
            p { "The link requires one of these passwords. A browser has to enter it again after 24 hours." }
            table {
                thead { tr { th { "For" } th { "By" } th { "Since" } @if can_write { th {} } } }
                tbody {
                    @for one in own {
                        tr {
                            td { bdi { (parts::clipped(named(one), NAME_MAX_CHARS)) } }
                            td { (one.created_by_email) }
                            td { (one.created_at.chars().take(10).collect::<String>()) }
                            @if can_write { td { (removal(address, one)) } }
                        }
                    }
                }
            }
        }
        @if can_write {
            @if is_locked {
                form class="stack" method="post" action=(address) {
                    label { "Note" input name="note" maxlength=(NOTE_MAX_CHARS) placeholder="Board members"; }
                    label {
                        "Password (generated if empty)"
                        input type="password" name="raw_password" autocomplete="new-password"
                            minlength=(PASSWORD_MIN_CHARS) maxlength=(PASSWORD_MAX_CHARS);
                    }
                    button name="do" value="add" { "Add password" }
                }
            }
            form class="actions" method="post" action=(address) {
                @if is_locked { button name="do" value="unlock" { "Require no password" } }
                @else { button name="do" value="lock" { "Require a password" } }
            }
        }
    }
}

fn named(password: &SharePassword) -> &str {
    match password.note.as_str() {
        "" => "whoever has it",
        note => note,
    }
}

fn removal(address: &str, password: &SharePassword) -> Markup {
    html! {
        form method="post" action=(address)
            data-confirm="Remove this password? Everyone who used it loses access." {
            input type="hidden" name="password" value=(password.id);
            button class="danger" name="do" value="remove" { "Remove" }
        }
    }
}

/// A generated password: only this page shows it.
pub fn new_password(back: &str, password: &str) -> Markup {
    html! {
        div class="card" {
            p { "The link also accepts this password. It is shown only once:" }
            (parts::code("password", password))
            p { a class="button" href=(back) { "Back" } }
        }
    }
}
