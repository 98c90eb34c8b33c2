//! Dashboards with their tiles: [`whole`]. A tile shows a text, or an insight. Insights that name a dashboard in
//! `dashboards` are tiles of it, too, without a place of their own.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use crate::beside::beside;
use crate::budget::{Memory, Reservation};
use crate::members::{Member, Members};
use crate::response::Problem;
use crate::routes::documents::results::{Frame, Reader, ResultsRequest};
use crate::routes::documents::rights::Viewer;
use crate::routes::documents::{boards, body};
use crate::routes::store::problem;
use weir_app::App;
use weir_metadata::documents::{Document, DocumentText, Kind};

/// Most insights without a place of their own among the tiles of a response; further ones are left out.
const UNPLACED_MAX: usize = 500;

/// Most bytes of the insights of a dashboard; further ones without a place of their own are left out.
const INSIGHTS_MAX_BYTES: usize = 32 << 20;

/// A document as sent to clients, with the memory of the data that it was made of.
#[derive(Debug)]
pub(in crate::routes) struct Whole {
    pub(in crate::routes) body: Members,
    pub(in crate::routes) held: Reservation,
}

/// A document as sent to clients: an insight with its result, a dashboard with its tiles, and the results of these.
pub(in crate::routes) async fn whole(
    app: &App,
    document: &DocumentText,
    viewer: &Viewer,
    (asked, memory): (&ResultsRequest, &Memory),
) -> Result<Whole, Problem> {
    let reader = Reader::new(app, viewer);
    let mut held = memory.reservation();
    held.hold(document.bytes())?;
    let mut body = body::one(app, document, viewer).await?;
    let head = &document.head;
    match head.kind {
        Kind::Insight => reader.add_one((document, &mut body), (asked, &mut held)).await?,
        Kind::Dashboard => {
            let share = app.node.metadata.share(head.key()).await;
            let share = share.map_err(problem)?;
            body::set_shared(&mut body, share.is_some_and(|share| share.is_enabled));
            let dashboard = document.whole().map_err(problem)?;
            let frame = asked.frame.over(&dashboard);
            let asked = ResultsRequest { refresh: asked.refresh, frame };
            let tiles = tiles(app, &dashboard, (&reader, viewer), (&asked, &mut held)).await?;
            add(&mut body, asked.frame, tiles);
        }
        Kind::Action | Kind::Annotation => {}
    }
    Ok(Whole { body, held })
}

/// Adds its tiles to the body of a dashboard, and the filters and variables that apply to them.
fn add(whole: &mut Members, frame: Frame, tiles: Vec<Members>) {
    // The oldest; times have one format, in which text order is time order.
    let times = tiles.iter().filter_map(|tile| tile.value("last_refresh")?.as_str());
    let refreshed = times.min().map(str::to_owned);
    let (filters, variables) = frame.into_values();
    for (name, stored, value) in
        [("filters", "persisted_filters", filters), ("variables", "persisted_variables", variables)]
    {
        let before = whole.remove(name).unwrap_or_else(|| json!({}).into());
        whole.set(name, value);
        whole.set(stored, before);
    }
    whole.set("last_refresh", json!(refreshed));
    whole.set("tiles", Member::List(tiles));
}

/// The tiles of a dashboard with their insights, and the results of these, or the errors.
async fn tiles(
    app: &App,
    dashboard: &Document,
    (reader, viewer): (&Reader<'_>, &Viewer),
    (asked, held): (&ResultsRequest, &mut Reservation),
) -> Result<Vec<Members>, Problem> {
    let (tiles, insights) = placed(app, dashboard, held).await?;
    for insight in &insights {
        held.hold_more(insight.bytes())?;
    }
    let bodies = body::bodies(app, &insights, viewer).await?;
    let mut by_id: HashMap<i64, (&DocumentText, Members)> =
        insights.iter().zip(bodies).map(|own| (own.0.head.id, own)).collect();
    let mut shown: Vec<(Members, Option<(&DocumentText, Members)>)> =
        Vec::with_capacity(tiles.len());
    for tile in tiles {
        let Some(id) = tile.get("insight").and_then(Value::as_i64) else {
            shown.push((Members::from(tile), None));
            continue;
        };
        // The tile of a deleted insight is hidden until the insight is restored.
        if let Some(insight) = by_id.remove(&id) {
            shown.push((Members::from(tile), Some(insight)));
        }
    }
    let bodies = shown.iter_mut().filter_map(|(_, insight)| insight.as_mut());
    let bodies = bodies.map(|(insight, body)| (*insight, body)).collect();
    let mut errors = reader.add_all(bodies, (asked, held)).await?.into_iter();
    let with_insight = |(mut tile, insight): (Members, Option<(&DocumentText, Members)>)| {
        if let Some((_, body)) = insight {
            for name in ["is_cached", "last_refresh"] {
                tile.set(name, body.value(name).cloned().unwrap_or_default());
            }
            tile.set("error", errors.next().flatten().unwrap_or_default());
            tile.set("insight", Member::Object(body));
        }
        tile
    };
    Ok(shown.into_iter().map(with_insight).collect())
}

/// The tiles of a dashboard, with their ids and those of their insights; and these insights in stored form. Their
/// memory is counted in `held`.
pub(in crate::routes) async fn placed(
    app: &App,
    dashboard: &Document,
    held: &mut Reservation,
) -> Result<(Vec<Value>, Vec<DocumentText>), Problem> {
    let mut tiles = boards::tiles(dashboard);
    let ids: Vec<i64> = tiles.iter().filter_map(|tile| tile.get("insight")?.as_i64()).collect();
    let (project, kind) = (dashboard.project, Kind::Insight);
    let insights = app.node.metadata.document_texts(project, kind, ids.clone()).await;
    let mut insights = insights.map_err(problem)?;
    insights.retain(|insight| !insight.head.deleted);
    let mut bytes = insights.iter().map(DocumentText::bytes).fold(0, usize::saturating_add);
    held.hold_more(bytes)?;
    let is_placed: HashSet<i64> = ids.into_iter().collect();
    // Preselects insights by text: those that may name the dashboard, and some with the same digits elsewhere.
    let like = format!("%\"dashboards\":[%{}%", dashboard.id);
    let mut unplaced = 0;
    let mut batches = app.node.metadata.document_batches(project, kind, like);
    while let Some(some) = batches.next().await.map_err(problem)? {
        let board = dashboard.id;
        let look = move || -> Result<Vec<DocumentText>, Problem> {
            let mut own = Vec::new();
            for insight in some {
                let fields = insight.with(&["dashboards".into()]).map_err(problem)?;
                if boards::boards_of(&fields).contains(&board) {
                    own.push(insight);
                }
            }
            Ok(own)
        };
        for insight in beside(&app.node.cpu, look).await? {
            let id = insight.head.id;
            let has_room = unplaced < UNPLACED_MAX && bytes < INSIGHTS_MAX_BYTES;
            if is_placed.contains(&id) || !has_room {
                continue;
            }
            tiles.push(json!({
                "id": boards::tile_of_insight(id), "insight": id, "text": null, "color": null,
                "layouts": {},
            }));
            unplaced += 1;
            bytes = bytes.saturating_add(insight.bytes());
            held.hold_more(insight.bytes())?;
            insights.push(insight);
        }
        if unplaced >= UNPLACED_MAX || bytes >= INSIGHTS_MAX_BYTES {
            break;
        }
    }
    Ok((tiles, insights))
}
