//! Changes of dashboards with their tiles, of saved insights, and of links to both. All changes are operations of the
//! API.

use maud::{Markup, html};
use serde_json::{Value, json};

use crate::body::Exact;
use crate::operation::Operation;
use crate::response::Problem;
use crate::routes::documents::kinds::{Dashboards, DocumentKind, Id, Insights, Linked};
use crate::routes::documents::sent::Change;
use crate::routes::documents::sharing::{SharePasswordWrite, SharingWrite};
use crate::routes::documents::{Update, sharing};
use crate::routes::pages::insights::boards;
use crate::routes::pages::insights::boards::Placed;
use crate::routes::pages::insights::load::{saved, saved_of, suggestions};
use crate::routes::pages::insights::saved::{document_of, new_board, query_over};
use crate::routes::pages::visit::{Asking, Page, Sent, Visit, form, see_other, turned_back, wrong};
use weir_metadata::documents::{Document, Kind};
use weir_web::insight::arrange::Board;
use weir_web::insight::dashboard::{HEIGHT, Tile};
use weir_web::insight::saved::{ASK, NEW_DASHBOARD, PLACE};
use weir_web::insight::{arrange as shown, links};
use weir_web::parts;
use weir_web::state::board::{BoardFrame, HALF};
use weir_web::state::node::properties;
use weir_web::state::parameters::{Parameters, Wrong};
use weir_web::state::{board, filters};

/// Actions on a dashboard.
const OF_BOARDS: [&str; 9] =
    ["save", "up", "down", "wide", "narrow", "remove", "add", "text", "delete"];

/// Actions on a link.
const OF_LINKS: [&str; 7] = ["on", "off", "new", "lock", "unlock", "add", "remove"];

/// `GET dashboard/:id/edit`.
pub(in crate::routes::pages) async fn edit(visit: Visit) -> Result<Sent, Problem> {
    if let Some(back) = turned_back(
        &visit.asking,
        "dashboard:write",
        &format!("dashboard/{}", parts::part(visit.id())),
    )? {
        return Ok(back);
    }
    let (asking, document) = (&visit.asking, boards::board_of(&visit).await?);
    let (app, asker) = (&asking.app, &asking.asker);
    let own = saved(&document, &app.node.metadata.snapshot());
    let placed = boards::placed(asking, &document).await?;
    let mut others = saved_of(app, asker, Kind::Insight).await?;
    others.retain(|other| {
        !placed.iter().any(|it| matches!(&it.tile, Tile::Insight(own) if own.id == other.id))
    });
    let frame = BoardFrame::of(&document.fields);
    let known = suggestions(app, asker).await?;
    let board = Board {
        project: asking.project(),
        filters: frame.filters.as_deref(),
        known: &known,
        own: &own,
        is_pinned: own.is_favourite,
        range: &frame.range,
        tiles: &placed.iter().map(|it| (it.id, &it.tile, it.is_wide)).collect::<Vec<_>>(),
        others: &others,
    };
    let share = link_of::<Dashboards>(asking, &document).await?;
    let content = html! { (shown::board(&board)) @if let Some(share) = share { (share) } };
    Ok(Sent::Page(Page::new(format!("Edit {}", own.title()), content)))
}

/// `POST dashboard/:id`.
pub(in crate::routes::pages) async fn change(mut visit: Visit) -> Result<Sent, Problem> {
    let document = boards::board_of(&visit).await?;
    let mut form = form(visit.take_request()?).await?;
    let asking = &visit.asking;
    let what = form.choice("do", &OF_BOARDS).map_err(|error| wrong(&error))?.unwrap_or_default();
    let tile: i64 = form.number("tile").map_err(|error| wrong(&error))?.unwrap_or_default();
    let edit = format!("{}/edit", links::dashboard(asking.project(), document.id));
    let (body, next) = match what {
        "save" => (board_fields(&document, &mut form).map_err(|error| wrong(&error))?, edit),
        "delete" => {
            let is_with = !form.get("with_insights").is_empty();
            let body = json!({"deleted": true, "delete_insights": is_with});
            (body, links::dashboards(asking.project()))
        }
        "add" if form.get("insight").is_empty() => {
            (json!({"tiles": [{"text": {"body": form.get("text")}}]}), edit)
        }
        "add" => {
            let insight: Option<i64> = form.number("insight").map_err(|error| wrong(&error))?;
            (json!({"tiles": [{"insight": insight}]}), edit)
        }
        "text" => (json!({"tiles": [{"id": tile, "text": {"body": form.get("text")}}]}), edit),
        "remove" => (json!({"tiles": [{"id": tile, "deleted": true}]}), edit),
        _ => {
            let mut placed = boards::placed(asking, &document).await?;
            arrange(&mut placed, tile, what)?;
            (json!({"tiles": laid_out(&placed)}), format!("{edit}#tile-{tile}"))
        }
    };
    update::<Dashboards>(asking, document.id, &body).await?;
    Ok(Sent::Other(see_other(&next)?))
}

/// Changes the given fields of a document.
pub(super) async fn update<K: DocumentKind>(
    asking: &Asking,
    id: i64,
    fields: &Value,
) -> Result<(), Problem> {
    let change = Change::<K>::of(fields)?;
    asking.perform(Update { id: Id::new(id), change }).await?;
    Ok(())
}

/// The fields of a dashboard in a form. Filters for which the form has no fields stay.
fn board_fields(document: &Document, form: &mut Parameters) -> Result<Value, Wrong> {
    let mut filters = board::filters_of(&document.fields);
    for (field, name) in [("date_from", "from"), ("date_to", "to")] {
        match form.get(name) {
            "" => _ = filters.remove(field),
            date => _ = filters.insert(field.to_owned(), json!(date)),
        }
    }
    let rows = filters::parse(form, "")?;
    if !form.get(shown::HAS_FILTERS).is_empty() || !form.get(shown::WITHOUT_FILTERS).is_empty() {
        match rows.is_empty() {
            true => _ = filters.remove("properties"),
            false => _ = filters.insert("properties".to_owned(), properties(&rows)),
        }
    }
    Ok(json!({
        "name": form.get("name"), "description": form.get("description"),
        "pinned": !form.get("pinned").is_empty(), "filters": filters,
    }))
}

/// Moves a tile by one place, or changes its width.
fn arrange(placed: &mut [Placed], tile: i64, what: &str) -> Result<(), Problem> {
    let missing = || Problem::not_found("There is no such tile.");
    let at = placed.iter().position(|it| it.id == tile).ok_or_else(missing)?;
    match what {
        "up" => placed.swap(at, at.saturating_sub(1)),
        "down" if at + 1 < placed.len() => placed.swap(at, at + 1),
        "wide" | "narrow" => {
            if let Some(own) = placed.get_mut(at) {
                own.is_wide = what == "wide";
            }
        }
        _ => {}
    }
    Ok(())
}

/// The layout of the tiles in their order, with two of half width in a row.
fn laid_out(placed: &[Placed]) -> Vec<Value> {
    let (mut x, mut y) = (0, 0);
    let mut tiles = Vec::with_capacity(placed.len());
    for own in placed {
        let width = if own.is_wide { 2 * HALF } else { HALF };
        if x + width > 2 * HALF {
            (x, y) = (0, y + HEIGHT);
        }
        tiles.push(own.at((x, y, width)));
        x += width;
    }
    tiles
}

/// `POST insights/:short_id`.
pub(in crate::routes::pages) async fn change_insight(mut visit: Visit) -> Result<Sent, Problem> {
    let document = document_of(&visit).await?;
    let mut form = form(visit.take_request()?).await?;
    let asking = &visit.asking;
    let whats = ["save", "delete", ASK, PLACE];
    let what = form.choice("do", &whats).map_err(|error| wrong(&error))?;
    let (body, next) = match what {
        Some(PLACE) => return place(asking, &document, &mut form).await,
        Some(ASK) => {
            let own = saved(&document, &asking.app.node.metadata.snapshot());
            let query = query_over(&own, &mut form).map_err(|error| wrong(&error))?;
            (json!({"query": query}), links::saved(asking.project(), document.text("short_id")))
        }
        Some("delete") => (json!({"deleted": true}), links::insights(asking.project())),
        _ => {
            let body = json!({
                "name": form.get("name"), "description": form.get("description"),
                "favorited": !form.get("favorited").is_empty(),
            });
            (body, links::saved(asking.project(), document.text("short_id")))
        }
    };
    update::<Insights>(asking, document.id, &body).await?;
    Ok(Sent::Other(see_other(&next)?))
}

/// Puts an insight on a dashboard, which is created if the form requests a new one.
async fn place(
    asking: &Asking,
    document: &Document,
    form: &mut Parameters,
) -> Result<Sent, Problem> {
    let board = match form.get("dashboard") == NEW_DASHBOARD {
        true => {
            let own = saved(document, &asking.app.node.metadata.snapshot());
            Some(new_board(asking, &own.title()).await?)
        }
        false => form.number("dashboard").map_err(|error| wrong(&error))?,
    };
    let missing = || wrong(&Wrong::new("dashboard", "Choose a dashboard."));
    let board: i64 = board.ok_or_else(missing)?;
    let body = json!({"tiles": [{"insight": document.id}]});
    update::<Dashboards>(asking, board, &body).await?;
    Ok(Sent::Other(see_other(&links::dashboard(asking.project(), board))?))
}

/// `POST dashboard/:id/share`.
pub(in crate::routes::pages) async fn share_board(visit: Visit) -> Result<Sent, Problem> {
    let document = boards::board_of(&visit).await?;
    share::<Dashboards>(visit, &document).await
}

/// `POST insights/:short_id/share`.
pub(in crate::routes::pages) async fn share_insight(visit: Visit) -> Result<Sent, Problem> {
    let document = document_of(&visit).await?;
    share::<Insights>(visit, &document).await
}

async fn share<K: Linked>(mut visit: Visit, document: &Document) -> Result<Sent, Problem> {
    let mut form = form(visit.take_request()?).await?;
    let what = form.choice("do", &OF_LINKS).map_err(|error| wrong(&error))?;
    let asking = &visit.asking;
    let edit = if document.kind == Kind::Dashboard { "/edit" } else { "" };
    let back = format!("{}{edit}#sharing", page_of(asking.project(), document));
    let id = Id::<K>::new(document.id);
    let changed = |enabled, password_required| {
        let change = SharingWrite { enabled, password_required, settings: None };
        sharing::Update::<K> { id: Id::new(document.id), change }
    };
    match what {
        Some("new") => {
            asking.perform(sharing::Refresh { id }).await?;
        }
        Some("add") => {
            let (sent, note) = (form.get("raw_password"), form.get("note").trim());
            let password = SharePasswordWrite {
                raw_password: Some(Exact(sent.to_owned())),
                note: Some(Some(note.to_owned())),
            };
            let made = asking.perform(sharing::AddPassword { id, password }).await?.0;
            if sent.is_empty() {
                let content = shown::new_password(&back, &made.password);
                return Ok(Sent::Page(Page::new("New password", content)));
            }
        }
        Some("remove") => {
            let password: i64 =
                form.number("password").map_err(|error| wrong(&error))?.unwrap_or_default();
            asking.perform(sharing::RemovePassword { id, password }).await?;
        }
        Some(what @ ("lock" | "unlock")) => {
            asking.perform(changed(None, Some(what == "lock"))).await?;
        }
        what => {
            asking.perform(changed(Some(what == Some("on")), None)).await?;
        }
    }
    Ok(Sent::Other(see_other(&back)?))
}

/// The URL of the page of a document.
fn page_of(project: i64, document: &Document) -> String {
    match document.kind {
        Kind::Dashboard => links::dashboard(project, document.id),
        _ => links::saved(project, document.text("short_id")),
    }
}

/// The card with the link to a document; `None` without the right to see it.
pub(super) async fn link_of<K: Linked>(
    asking: &Asking,
    document: &Document,
) -> Result<Option<Markup>, Problem> {
    let id = Id::new(document.id);
    let Some(share) = asking.if_may(sharing::Retrieve::<K> { id }).await? else { return Ok(None) };
    let can_write = asking.may(<sharing::Update<K> as Operation>::SCOPE);
    let address = format!("{}/share", page_of(asking.project(), document));
    Ok(Some(shown::sharing(&address, &asking.server, &share, can_write)))
}
