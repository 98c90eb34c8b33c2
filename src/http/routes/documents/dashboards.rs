//! What dashboards alone do: copies of them ([`Source`]), tiles that move, the results of all insights at once, and
//! which documents change with one ([`connected`]).

use std::collections::HashSet;
use std::sync::Arc;

use hyper::StatusCode;
use serde_json::{Map, Value, json};

use crate::auth;
use crate::auth::Principal;
use crate::budget::Memory;
use crate::call::Call;
use crate::fields::{Fields, refused};
use crate::members::{Member, Members};
use crate::openapi::{Description, INVALID, Parameter, by_hand};
use crate::response::{Problem, Response};
use crate::routes::documents::boards::Edit;
use crate::routes::documents::results::Asked;
use crate::routes::documents::rights::Viewer;
use crate::routes::documents::{boards, form, rights, tiles};
use crate::routes::store;
use crate::routes::store::problem;
use weir_app::App;
use weir_event::id::ProjectId;
use weir_metadata::Metadata;
use weir_metadata::accounts::UserId;
use weir_metadata::documents::{Document, DocumentKey, DocumentText, Kind};
use weir_metadata::error::MetadataError;

/// What a copy has of its source, unless something else is sent.
const COPIED: [&str; 4] = ["filters", "variables", "breakdown_colors", "data_color_theme_id"];

/// The field with the order of tiles.
const ORDER: &str = "tile_order";

/// What the results of a dashboard tell of an insight.
const OF_RESULTS: [&str; 5] = ["id", "short_id", "name", "derived_name", "result"];

/// Longest name of a copy, in characters.
const NAME_MAX_CHARS: usize = 400;

/// The dashboard that a new one is a copy of.
#[derive(Debug)]
pub(super) struct Source {
    dashboard: Document,
    insights: Vec<Document>,
    /// Whether the insights are copied, too.
    is_deep: bool,
    /// What is sent for the copy.
    sent: Vec<&'static str>,
}

impl Source {
    /// Whether the insights are copied, too.
    pub(super) fn is_deep(&self) -> bool {
        self.is_deep
    }

    /// Reads `use_dashboard` and `duplicate_tiles`.
    pub(super) async fn read(
        app: &App,
        project: ProjectId,
        (sent, memory): (&mut Fields, &Memory),
    ) -> Result<Option<Self>, Problem> {
        let is_deep = sent.boolean("duplicate_tiles")?.unwrap_or(false);
        let Some(id) = sent.nullable_integer("use_dashboard")?.flatten() else { return Ok(None) };
        let dashboard = named(app, project, ("use_dashboard", id)).await?;
        let mut held = memory.reservation();
        let (_, insights) = tiles::placed(app, &dashboard, &mut held).await?;
        let insights = insights.iter().map(DocumentText::whole).collect::<Result<_, _>>();
        let insights = insights.map_err(problem)?;
        let sent = COPIED.into_iter().filter(|name| sent.peek(name).is_some()).collect();
        Ok(Some(Self { dashboard, insights, is_deep, sent }))
    }
}

/// Makes a dashboard with these fields, as a copy if there is a source, and puts its insights on it.
pub(super) async fn make(
    metadata: &Metadata,
    place: (ProjectId, UserId),
    mut fields: Map<String, Value>,
    source: Option<Source>,
) -> Result<Arc<Document>, MetadataError> {
    let sent = fields.get("tiles").cloned().unwrap_or_default();
    let mut insights = boards::insights_sent(&sent);
    if let Some(source) = source {
        let ids = match source.is_deep {
            true => copies(metadata, place, &source.insights).await?,
            false => source.insights.iter().map(|insight| (insight.id, insight.id)).collect(),
        };
        let other = |id: i64| ids.iter().find(|(own, _)| *own == id).map(|(_, other)| *other);
        let mut all = boards::copied(&source.dashboard, other);
        all.extend(sent.as_array().cloned().unwrap_or_default());
        fields.insert("tiles".to_owned(), Value::Array(all));
        insights.extend(ids.iter().map(|(_, id)| *id));
        for name in COPIED.into_iter().filter(|name| !source.sent.contains(name)) {
            let value = source.dashboard.fields.get(name).cloned();
            fields.extend(value.map(|value| (name.to_owned(), value)));
        }
        fields.insert("creation_mode".to_owned(), json!("duplicate"));
    }
    let fields = boards::fields_of_new(fields, place.0)?;
    let board = metadata.create_document(place.0, place.1, Kind::Dashboard, fields).await?;
    if insights.is_empty() {
        return Ok(board);
    }
    let insights = insights.into_iter().map(|id| (Kind::Insight, id)).collect();
    let put = |board: &mut Document, insights: &mut [Document]| {
        insights.iter_mut().for_each(|insight| boards::set_on(insight, board.id, true));
        Ok(())
    };
    metadata.edit_documents(place.1, board.key(), insights, put).await
}

/// Copies insights. Pairs of an insight and its copy.
async fn copies(
    metadata: &Metadata,
    place: (ProjectId, UserId),
    insights: &[Document],
) -> Result<Vec<(i64, i64)>, MetadataError> {
    let copy = |insight: &Document| {
        let mut fields = insight.fields.clone();
        let name = insight.text("name");
        if !name.is_empty() {
            let name: String = format!("{name} (Copy)").chars().take(NAME_MAX_CHARS).collect();
            fields.insert("name".to_owned(), json!(name));
        }
        fields.insert("short_id".to_owned(), json!(auth::seed().short_id()));
        fields.insert("dashboards".to_owned(), json!([]));
        fields
    };
    let all = insights.iter().map(copy).collect();
    let made = metadata.create_insights(place.0, place.1, all).await?;
    Ok(insights.iter().zip(made).map(|(own, made)| (own.id, made.id)).collect())
}

/// The documents that may change together with one, which `edit` changes.
///
/// # Errors
///
/// The asker may not change one of the dashboards among them.
pub(super) async fn connected(
    app: &App,
    asker: &Principal,
    (before, memory): (&Document, &Memory),
    edit: &Edit,
) -> Result<Vec<(Kind, i64)>, Problem> {
    match before.kind {
        Kind::Insight => {
            let Some(after) = edit.fields.get("dashboards").map(form::ids) else {
                return Ok(Vec::new());
            };
            let own: HashSet<i64> = boards::boards_of(before).into_iter().collect();
            let after: HashSet<i64> = after.into_iter().collect();
            let new: Vec<i64> = after.difference(&own).copied().collect();
            let left: Vec<i64> = own.difference(&after).copied().collect();
            check_edits(app, asker, &[left.clone(), new].concat()).await?;
            Ok(left.into_iter().map(|id| (Kind::Dashboard, id)).collect())
        }
        Kind::Dashboard => {
            let sent = edit.fields.get("tiles").cloned().unwrap_or_default();
            let mut insights = boards::insights_sent(&sent);
            if edit.is_with_insights {
                let mut held = memory.reservation();
                let (_, shown) = tiles::placed(app, before, &mut held).await?;
                insights.extend(shown.iter().map(|insight| insight.head.id));
            }
            insights.sort_unstable();
            insights.dedup();
            Ok(insights.into_iter().map(|id| (Kind::Insight, id)).collect())
        }
        Kind::Action | Kind::Annotation => Ok(Vec::new()),
    }
}

/// Checks that the asker may change dashboards; those that are not there count as such.
pub(super) async fn check_edits(app: &App, asker: &Principal, ids: &[i64]) -> Result<(), Problem> {
    let (project, kind) = (asker.project.id, Kind::Dashboard);
    let boards = app.node.metadata.document_texts(project, kind, ids.to_vec()).await;
    let boards = boards.map_err(problem)?;
    for board in boards {
        let board = board.with(&[rights::RESTRICTION.into()]).map_err(problem)?;
        rights::check_edit(&board, &asker.user)?;
    }
    Ok(())
}

pub(crate) const MOVE_TILE: Description =
    Description::ok::<by_hand::Dashboard>("Move a tile to another dashboard")
        .optional_body::<by_hand::DashboardsMoveTileUpdateBody>();

/// `PATCH :id/move_tile/` with `tile`, which has its `id`, and `toDashboard`: moves a tile to another dashboard.
pub async fn move_tile(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let ((asker, memory), from, mut sent) = opened(app, call).await?;
    let tile = sent.object("tile")?.unwrap_or_default();
    let tile = tile.get("id").and_then(Value::as_i64);
    let tile = tile.ok_or_else(|| refused("tile", "required", "Expected a tile with its id."))?;
    sent.require("toDashboard")?;
    let to = sent.nullable_integer("toDashboard")?.flatten().unwrap_or_default();
    let board = named(app, asker.project.id, ("toDashboard", to)).await?;
    if to == from.id {
        return Err(unknown("toDashboard", to));
    }
    rights::check_edit(&board, &asker.user)?;
    rights::check_shown(app, &asker, (Kind::Dashboard, &[from.id, to])).await?;
    let mut others = vec![(Kind::Dashboard, to)];
    others.extend(boards::insight_of_tile(tile).map(|insight| (Kind::Insight, insight)));
    let edit = move |from: &mut Document, others: &mut [Document]| match others {
        [to] if to.kind == Kind::Dashboard => boards::move_tile((from, to), tile, None),
        [to, insight] => boards::move_tile((from, to), tile, Some(insight)),
        // It is gone by now.
        _ => Err(MetadataError::NotFound("document")),
    };
    edited(app, (&asker, &memory), (from.id, "move-tile"), (others, edit)).await
}

pub(crate) const COPY_TILE: Description =
    Description::ok::<by_hand::Dashboard>("Put a tile of another dashboard on this one, too")
        .body::<by_hand::DashboardsCopyTileBody>();

/// `POST :id/copy_tile/` with `fromDashboardId` and `tileId`: puts a tile of another dashboard on this one, too.
pub async fn copy_tile(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let ((asker, memory), to, mut sent) = opened(app, call).await?;
    sent.require("fromDashboardId")?;
    sent.require("tileId")?;
    let from = sent.nullable_integer("fromDashboardId")?.flatten().unwrap_or_default();
    let tile = sent.nullable_integer("tileId")?.flatten().unwrap_or_default();
    let from = named(app, asker.project.id, ("fromDashboardId", from)).await?;
    rights::check_shown(app, &asker, (Kind::Dashboard, &[to.id])).await?;
    let insight = boards::insight_of_tile(tile).map(|insight| (Kind::Insight, insight));
    let edit = move |to: &mut Document, others: &mut [Document]| {
        boards::copy_tile((&from, to), tile, others.first_mut())
    };
    edited(app, (&asker, &memory), (to.id, "copy-tile"), (insight.into_iter().collect(), edit))
        .await
}

pub(crate) const REORDER_TILES: Description =
    Description::ok::<by_hand::Dashboard>("Put tiles in an order")
        .body::<by_hand::DashboardsReorderTilesBody>();

/// `POST :id/reorder_tiles/` with `tile_order`, the ids of tiles: puts them first, in this order.
pub async fn reorder_tiles(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let ((asker, memory), board, mut sent) = opened(app, call).await?;
    sent.require(ORDER)?;
    let order = sent.ids(ORDER)?.unwrap_or_default();
    let wrong = |code, detail: String| Err(refused(ORDER, code, detail));
    if order.is_empty() {
        return wrong("empty", "This list may not be empty.".to_owned());
    }
    if order.len() > form::TILES_MAX {
        return wrong("max_length", format!("A dashboard has at most {} tiles.", form::TILES_MAX));
    }
    rights::check_shown(app, &asker, (Kind::Dashboard, &[board.id])).await?;
    let insights = order.iter().filter_map(|tile| boards::insight_of_tile(*tile));
    let others = insights.map(|insight| (Kind::Insight, insight)).collect();
    let edit = move |board: &mut Document, insights: &mut [Document]| {
        boards::order_tiles(board, &order, insights)
    };
    edited(app, (&asker, &memory), (board.id, "reorder-tiles"), (others, edit)).await
}

/// The dashboard of a request, which the asker may change, and what is sent.
async fn opened(
    app: &App,
    call: Call<Principal>,
) -> Result<((Principal, Memory), Document, Fields), Problem> {
    let id = form::document_id(call.id())?;
    let Call { asker, request, .. } = call;
    let memory = request.memory();
    let board = app.node.metadata.document(asker.project.id, Kind::Dashboard, id).await;
    let board = board.map_err(problem)?;
    rights::check_edit(&board, &asker.user)?;
    Ok(((asker, memory), board, Fields::read(request).await?))
}

/// The dashboard that a field names.
async fn named(
    app: &App,
    project: ProjectId,
    (field, id): (&'static str, i64),
) -> Result<Document, Problem> {
    match app.node.metadata.document(project, Kind::Dashboard, id).await {
        Ok(board) if !board.deleted => Ok(board),
        Ok(_) | Err(MetadataError::NotFound(_)) => Err(unknown(field, id)),
        Err(error) => Err(problem(error)),
    }
}

fn unknown(field: &'static str, id: i64) -> Problem {
    refused(field, "does_not_exist", format!("Invalid pk \"{id}\" - object does not exist."))
}

/// Changes a dashboard, and others with it; the response with the dashboard.
async fn edited(
    app: &App,
    (asker, memory): (&Principal, &Memory),
    (id, name): (i64, &'static str),
    edit: (
        Vec<(Kind, i64)>,
        impl FnOnce(&mut Document, &mut [Document]) -> Result<(), MetadataError> + Send + 'static,
    ),
) -> Result<Response, Problem> {
    let (metadata, user) = (app.node.metadata.clone(), asker.user.id);
    let key = DocumentKey { project: asker.project.id, kind: Kind::Dashboard, id };
    let (others, edit) = edit;
    let write = async move { metadata.edit_documents(user, key, others, edit).await };
    let changed = store::write(app, name, write).await?;
    let document = DocumentText::of(&changed);
    let shown = (&document, &Viewer::from(asker));
    tiles::answer(app, StatusCode::OK, shown, (&Asked::kept(), memory)).await
}

pub(crate) const RUN_INSIGHTS: Description = Description::ok::<
    by_hand::DashboardsRunInsightsRetrieveAnswer,
>("The results of the insights of a dashboard")
.query(&[
    Parameter::shared("refresh"),
    Parameter::shared("filters_override"),
    Parameter::shared("variables_override"),
    Parameter::one_of("output_format", &["json"]),
])
.or(&[INVALID]);

/// `GET :id/run_insights/`: the results of the insights of a dashboard.
pub async fn run_insights(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let id = form::document_id(call.id())?;
    let Call { asker, request, .. } = call;
    let project = &asker.project;
    let board = app.node.metadata.document_text(project.id, Kind::Dashboard, id).await;
    let board = board.map_err(problem)?;
    let asked = Asked::of(&request, &asker.key)?;
    if asked.refresh.is_later() {
        let detail = "Expected one of force_cache, blocking, force_blocking.";
        return Err(refused("refresh", "invalid_choice", detail));
    }
    if request.query("output_format").is_some_and(|format| format != "json" && !format.is_empty()) {
        return Err(refused("output_format", "invalid_choice", "Results have the format json."));
    }
    let memory = request.memory();
    let whole = tiles::whole(app, &board, &Viewer::from(&asker), (&asked, &memory)).await?;
    let tiles::Whole { mut body, held } = whole;
    let tiles = match body.remove("tiles") {
        Some(Member::List(tiles)) => tiles,
        _ => Vec::new(),
    };
    let result = |mut tile: Members| {
        let Some(Member::Object(insight)) = tile.remove("insight") else { return None };
        let mut insight = insight.part(&OF_RESULTS);
        OF_RESULTS.iter().for_each(|name| insight.set_if_absent(name, Value::Null));
        let mut tile = tile.part(&["id", "error"]);
        tile.set("insight", Member::Object(insight));
        Some(tile)
    };
    let results = tiles.into_iter().filter_map(result).collect();
    let body = Members::from_iter([("results".to_owned(), Member::List(results))]);
    body.answer(&app.node.cpu, StatusCode::OK, (&memory, held)).await
}
