//! Operations on dashboards only: copies of them ([`Source`]), moving tiles, the results of all insights at once, and
//! the documents that change together with one ([`connected`]).

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::auth;
use crate::auth::Principal;
use crate::body::{Field, body};
use crate::fields::{Fields, empty, refused};
use crate::members::{Member, Members};
use crate::openapi::{Parameter, Shape};
use crate::operation::input::{InQuery, Named, input, part};
use crate::operation::{Context, Operation};
use crate::request::Request;
use crate::response::Problem;
use crate::routes::documents::boards::Edit;
use crate::routes::documents::kinds::{Dashboards, Id};
use crate::routes::documents::results::Results;
use crate::routes::documents::rights::Viewer;
use crate::routes::documents::sent::{COPIED, Copied};
use crate::routes::documents::shown::Shown;
use crate::routes::documents::{boards, form, rights, tiles};
use crate::routes::store::problem;
use weir_api::documents as api;
use weir_event::id::ProjectId;
use weir_metadata::Metadata;
use weir_metadata::accounts::UserId;
use weir_metadata::documents::{Document, DocumentKey, DocumentText, Kind};
use weir_metadata::error::MetadataError;

/// The fields of an insight in the results of a dashboard.
const OF_RESULTS: [&str; 5] = ["id", "short_id", "name", "derived_name", "result"];

/// Longest name of a copy, in characters.
const NAME_MAX_CHARS: usize = 400;

/// The dashboard that is copied for a new one.
#[derive(Debug)]
pub(super) struct Source {
    dashboard: Document,
    insights: Vec<Document>,
    /// Whether the insights are copied, too.
    is_deep: bool,
    /// The fields that were sent for the copy.
    sent: Vec<&'static str>,
}

impl Source {
    /// Whether the insights are copied, too.
    pub(super) fn is_deep(&self) -> bool {
        self.is_deep
    }

    /// Reads the dashboard that is copied, with its insights.
    ///
    /// # Errors
    ///
    /// 400 if no dashboard has this id.
    pub(super) async fn of(cx: &Context<Principal>, copied: Copied) -> Result<Self, Problem> {
        let Copied { id, is_deep, sent } = copied;
        let dashboard = named(cx, ("use_dashboard", id)).await?;
        let mut held = cx.memory.reservation();
        let (_, insights) = tiles::placed(&cx.app, &dashboard, &mut held).await?;
        let insights = insights.iter().map(DocumentText::whole).collect::<Result<_, _>>();
        let insights = insights.map_err(problem)?;
        Ok(Self { dashboard, insights, is_deep, sent })
    }
}

/// Creates a dashboard with these fields, as a copy if there is a source, and puts its insights on it.
pub(super) async fn make(
    metadata: &Metadata,
    project: ProjectId,
    user: UserId,
    mut fields: Map<String, Value>,
    source: Option<Source>,
) -> Result<Arc<Document>, MetadataError> {
    let sent = fields.get("tiles").cloned().unwrap_or_default();
    let mut insights = boards::insights_sent(&sent);
    if let Some(source) = source {
        let ids = match source.is_deep {
            true => copies(metadata, project, user, &source.insights).await?,
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
    let fields = boards::fields_of_new(fields, project)?;
    let board = metadata.create_document(project, user, Kind::Dashboard, fields).await?;
    if insights.is_empty() {
        return Ok(board);
    }
    let insights = insights.into_iter().map(|id| (Kind::Insight, id)).collect();
    let put = |board: &mut Document, insights: &mut [Document]| {
        insights.iter_mut().for_each(|insight| boards::set_on(insight, board.id, true));
        Ok(())
    };
    metadata.edit_documents(user, board.key(), insights, put).await
}

/// Copies insights. Returns pairs of ids: of an insight, and of its copy.
async fn copies(
    metadata: &Metadata,
    project: ProjectId,
    user: UserId,
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
    let made = insights.iter().map(copy).collect();
    let made = metadata.create_insights(project, user, made).await?;
    Ok(insights.iter().zip(made).map(|(own, made)| (own.id, made.id)).collect())
}

/// The documents that change together with the document `before` when `edit` is applied.
///
/// # Errors
///
/// The caller may not change one of the dashboards among them.
pub(super) async fn connected(
    cx: &Context<Principal>,
    before: &Document,
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
            check_edits(cx, &[left.clone(), new].concat()).await?;
            Ok(left.into_iter().map(|id| (Kind::Dashboard, id)).collect())
        }
        Kind::Dashboard => {
            let sent = edit.fields.get("tiles").cloned().unwrap_or_default();
            let mut insights = boards::insights_sent(&sent);
            if edit.is_with_insights {
                let mut held = cx.memory.reservation();
                let (_, shown) = tiles::placed(&cx.app, before, &mut held).await?;
                insights.extend(shown.iter().map(|insight| insight.head.id));
            }
            insights.sort_unstable();
            insights.dedup();
            Ok(insights.into_iter().map(|id| (Kind::Insight, id)).collect())
        }
        Kind::Action | Kind::Annotation => Ok(Vec::new()),
    }
}

/// Checks that the caller may change these dashboards; missing ones pass.
pub(super) async fn check_edits(cx: &Context<Principal>, ids: &[i64]) -> Result<(), Problem> {
    let (project, kind) = (cx.who.project.id, Kind::Dashboard);
    let boards = cx.metadata().document_texts(project, kind, ids.to_vec()).await;
    let boards = boards.map_err(problem)?;
    for board in boards {
        let board = board.with(&[rights::RESTRICTION.into()]).map_err(problem)?;
        rights::check_edit(&board, &cx.who.user)?;
    }
    Ok(())
}

input! {
    /// Moves a tile to another dashboard.
    pub struct MoveTile {
        path id: Id<Dashboards>,
        body sent: DashboardsMoveTileUpdateBody,
    }
}

impl Operation for MoveTile {
    type Who = Principal;
    type Out = Shown<api::Dashboard>;
    const SCOPE: &'static str = "dashboard:write";

    async fn look_up(cx: &Context<Principal>, path: &Named) -> Result<(), Problem> {
        opened(cx, part(path, "id")?).await.map(drop)
    }

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let from = opened(cx, self.id.number).await?.id;
        let DashboardsMoveTileUpdateBody { tile: TileId(tile), toDashboard: GivenId(to) } =
            self.sent;
        let board = named(cx, ("toDashboard", to)).await?;
        if to == from {
            return Err(unknown("toDashboard", to));
        }
        rights::check_edit(&board, &cx.who.user)?;
        rights::check_shown(&cx.app, &cx.who, (Kind::Dashboard, &[from, to])).await?;
        let mut others = vec![(Kind::Dashboard, to)];
        others.extend(boards::insight_of_tile(tile).map(|insight| (Kind::Insight, insight)));
        let edit = move |from: &mut Document, others: &mut [Document]| match others {
            [to] if to.kind == Kind::Dashboard => boards::move_tile((from, to), tile, None),
            [to, insight] => boards::move_tile((from, to), tile, Some(insight)),
            // The insight was removed meanwhile.
            _ => Err(MetadataError::NotFound("document")),
        };
        edited(cx, (from, "move-tile"), (others, edit)).await
    }
}

body! {
    /// Which tile is moved, and where to.
    #[expect(non_snake_case, reason = "names of the API")]
    pub struct DashboardsMoveTileUpdateBody {
        /// The tile.
        tile: TileId,
        /// The dashboard that it is moved to.
        toDashboard: GivenId,
    }
}

input! {
    /// Puts a tile of another dashboard on this one, too.
    pub struct CopyTile {
        path id: Id<Dashboards>,
        body sent: DashboardsCopyTileBody,
    }
}

impl Operation for CopyTile {
    type Who = Principal;
    type Out = Shown<api::Dashboard>;
    const SCOPE: &'static str = "dashboard:write";

    async fn look_up(cx: &Context<Principal>, path: &Named) -> Result<(), Problem> {
        opened(cx, part(path, "id")?).await.map(drop)
    }

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let to = opened(cx, self.id.number).await?.id;
        let DashboardsCopyTileBody { fromDashboardId: GivenId(from), tileId: GivenId(tile) } =
            self.sent;
        let from = named(cx, ("fromDashboardId", from)).await?;
        rights::check_shown(&cx.app, &cx.who, (Kind::Dashboard, &[to])).await?;
        let insight = boards::insight_of_tile(tile).map(|insight| (Kind::Insight, insight));
        let edit = move |to: &mut Document, others: &mut [Document]| {
            boards::copy_tile((&from, to), tile, others.first_mut())
        };
        edited(cx, (to, "copy-tile"), (insight.into_iter().collect(), edit)).await
    }
}

body! {
    /// Which tile is copied.
    #[expect(non_snake_case, reason = "names of the API")]
    pub struct DashboardsCopyTileBody {
        /// The dashboard that has it.
        fromDashboardId: GivenId,
        /// The tile.
        tileId: GivenId,
    }
}

input! {
    /// Puts tiles first, in an order.
    pub struct ReorderTiles {
        path id: Id<Dashboards>,
        body sent: DashboardsReorderTilesBody,
    }
}

impl Operation for ReorderTiles {
    type Who = Principal;
    type Out = Shown<api::Dashboard>;
    const SCOPE: &'static str = "dashboard:write";

    async fn look_up(cx: &Context<Principal>, path: &Named) -> Result<(), Problem> {
        opened(cx, part(path, "id")?).await.map(drop)
    }

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let board = opened(cx, self.id.number).await?.id;
        let TileOrder(order) = self.sent.tile_order;
        rights::check_shown(&cx.app, &cx.who, (Kind::Dashboard, &[board])).await?;
        let insights = order.iter().filter_map(|tile| boards::insight_of_tile(*tile));
        let others = insights.map(|insight| (Kind::Insight, insight)).collect();
        let edit = move |board: &mut Document, insights: &mut [Document]| {
            boards::order_tiles(board, &order, insights)
        };
        edited(cx, (board, "reorder-tiles"), (others, edit)).await
    }
}

body! {
    /// The order of tiles.
    pub struct DashboardsReorderTilesBody {
        /// Those that come first.
        tile_order: TileOrder,
    }
}

/// The id of an object in a body. Null is an id that nothing has.
#[derive(Clone, Copy, Debug)]
pub struct GivenId(i64);

impl Field for GivenId {
    const IS_REQUIRED: bool = true;

    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        fields.require(name)?;
        Ok(Self(fields.nullable_integer(name)?.flatten().unwrap_or_default()))
    }

    fn schema() -> Value {
        json!({"type": "integer"})
    }
}

/// The id of a tile, of which clients also send other fields.
#[derive(Clone, Copy, Debug)]
pub struct TileId(i64);

impl Field for TileId {
    const IS_REQUIRED: bool = true;

    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        let tile = fields.object(name)?.unwrap_or_default();
        let id = tile.get("id").and_then(Value::as_i64).map(Self);
        id.ok_or_else(|| refused(name, "required", "Expected a tile with its id."))
    }

    fn schema() -> Value {
        json!({
            "type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}},
        })
    }
}

/// Ids of tiles, in their order.
#[derive(Clone, Debug)]
pub struct TileOrder(Vec<i64>);

impl Field for TileOrder {
    const IS_REQUIRED: bool = true;

    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        fields.require(name)?;
        let order = fields.ids(name)?.unwrap_or_default();
        if order.is_empty() {
            return Err(empty(name));
        }
        if order.len() > form::TILES_MAX {
            let detail = format!("A dashboard has at most {} tiles.", form::TILES_MAX);
            return Err(refused(name, "max_length", detail));
        }
        Ok(Self(order))
    }

    fn schema() -> Value {
        json!({
            "type": "array", "items": {"type": "integer"}, "minItems": 1,
            "maxItems": form::TILES_MAX,
        })
    }
}

/// Reads the dashboard with this id, and checks that the caller may change it.
async fn opened(cx: &Context<Principal>, id: i64) -> Result<Document, Problem> {
    let board = cx.metadata().document(cx.who.project.id, Kind::Dashboard, id).await;
    let board = board.map_err(problem)?;
    rights::check_edit(&board, &cx.who.user)?;
    Ok(board)
}

/// Reads the dashboard that a field names.
async fn named(
    cx: &Context<Principal>,
    (field, id): (&'static str, i64),
) -> Result<Document, Problem> {
    match cx.metadata().document(cx.who.project.id, Kind::Dashboard, id).await {
        Ok(board) if !board.deleted => Ok(board),
        Ok(_) | Err(MetadataError::NotFound(_)) => Err(unknown(field, id)),
        Err(error) => Err(problem(error)),
    }
}

fn unknown(field: &'static str, id: i64) -> Problem {
    refused(field, "does_not_exist", format!("Invalid pk \"{id}\" - object does not exist."))
}

/// Changes a dashboard, and other documents with it. Returns the changed dashboard.
async fn edited(
    cx: &Context<Principal>,
    (id, name): (i64, &'static str),
    edit: (
        Vec<(Kind, i64)>,
        impl FnOnce(&mut Document, &mut [Document]) -> Result<(), MetadataError> + Send + 'static,
    ),
) -> Result<Shown<api::Dashboard>, Problem> {
    let (user, (others, edit)) = (cx.user(), edit);
    let key = DocumentKey { project: cx.who.project.id, kind: Kind::Dashboard, id };
    let write =
        |metadata: Metadata| async move { metadata.edit_documents(user, key, others, edit).await };
    let changed = cx.write(name, write).await?;
    Shown::changed(cx, &changed).await
}

input! {
    /// The results of the insights of a dashboard.
    pub struct RunInsights {
        path id: Id<Dashboards>,
        query results: Results,
        query output_format: Json,
    }
}

/// The format of results: only `json`.
#[derive(Clone, Copy, Debug)]
pub struct Json;

impl InQuery for Json {
    fn describe(name: &'static str, _: &'static str, shape: &mut Shape) {
        shape.query.push(Parameter::one_of(name, &["json"]));
    }

    fn take(request: &Request, name: &'static str) -> Result<Self, Problem> {
        if request.query(name).is_some_and(|format| format != "json" && !format.is_empty()) {
            return Err(refused(name, "invalid_choice", "Results have the format json."));
        }
        Ok(Self)
    }
}

impl Operation for RunInsights {
    type Who = Principal;
    type Out = Shown<api::InsightsRun>;
    const SCOPE: &'static str = "query:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (project, id) = (cx.who.project.id, self.id.number);
        let board = cx.metadata().document_text(project, Kind::Dashboard, id).await;
        let board = board.map_err(problem)?;
        let asked = self.results.of(&cx.who.key)?;
        if asked.refresh.is_later() {
            let detail = "Expected one of force_cache, blocking, force_blocking.";
            return Err(refused("refresh", "invalid_choice", detail));
        }
        let viewer = Viewer::from(&cx.who);
        let whole = tiles::whole(&cx.app, &board, &viewer, (&asked, &cx.memory)).await?;
        let tiles::Whole { mut body, held } = whole;
        let tiles = match body.remove("tiles") {
            Some(Member::List(tiles)) => tiles,
            _ => Vec::new(),
        };
        let results = tiles.into_iter().filter_map(result).collect();
        let body = Members::from_iter([("results".to_owned(), Member::List(results))]);
        Ok(Shown::from(tiles::Whole { body, held }))
    }
}

/// The entry of a tile in the results of a dashboard; `None` without an insight.
fn result(mut tile: Members) -> Option<Members> {
    let Some(Member::Object(insight)) = tile.remove("insight") else { return None };
    let mut insight = insight.part(&OF_RESULTS);
    OF_RESULTS.iter().for_each(|name| insight.set_if_absent(name, Value::Null));
    let mut tile = tile.part(&["id", "error"]);
    tile.set("insight", Member::Object(insight));
    Some(tile)
}
