//! Resources: saved insights and dashboards, each with its numbers as text. Their URIs are
//! `weir://project/1/insights/12` and `weir://project/1/dashboards/3`, with the ids of the API.

use serde_json::{Value, json};

use crate::auth;
use crate::operation::output::Items;
use crate::page::Page;
use crate::response::Problem;
use crate::routes::documents::kinds::{Dashboards, DocumentKind, Insights};
use crate::routes::documents::listed::List;
use crate::routes::documents::results::{Frame, Question, question_of};
use crate::routes::mcp::protocol::Failure;
use crate::routes::mcp::said::{Grid, Said};
use crate::routes::mcp::talk::Talk;
use crate::routes::mcp::tools::insights::{ROWS_MAX, shown};
use crate::routes::pages::insights::boards::placed;
use crate::routes::pages::insights::load::saved;
use crate::routes::query::insight::kept_or_computed;
use crate::routes::store::problem;
use weir_metadata::documents::{Document, Kind};
use weir_metadata::error::MetadataError;
use weir_web::insight::dashboard::Tile;
use weir_web::insight::links;
use weir_web::parts::clipped;

/// Resources of a page of the list.
const PAGE: usize = 50;

/// Most insights of a dashboard whose numbers are computed, and rows of each.
const TILES_MAX: usize = 12;
const TILE_ROWS_MAX: usize = 15;

/// Longest text of a dashboard, in bytes.
const DASHBOARD_MAX_BYTES: usize = 96 << 10;

/// The kinds of resources, as URIs and cursors have them.
const DASHBOARDS: &str = "dashboards";
const INSIGHTS: &str = "insights";

/// `resources/list`: dashboards, then insights, the newest first; what the key may not read is left out.
pub(super) async fn list(talk: &Talk, cursor: Option<&Value>) -> Result<Value, Failure> {
    let may = |kind: &str| match kind {
        DASHBOARDS => talk.asking.may(Dashboards::READ),
        _ => talk.asking.may(Insights::READ),
    };
    let (mut kind, mut offset) = match cursor {
        None | Some(Value::Null) => (DASHBOARDS, 0),
        Some(cursor) => {
            place(cursor).ok_or_else(|| Failure::params("This cursor is none of this list."))?
        }
    };
    if kind == DASHBOARDS && !may(DASHBOARDS) {
        (kind, offset) = (INSIGHTS, 0);
    }
    if !may(kind) {
        return Ok(json!({"resources": []}));
    }
    let page = Page { limit: PAGE, offset };
    let found = match kind {
        DASHBOARDS => items(talk, List::<Dashboards>::basic(page)).await,
        _ => items(talk, List::<Insights>::basic(page)).await,
    };
    let (found, has_next) = found.map_err(|problem| failure(&problem))?;
    let next = match (has_next && !found.is_empty(), kind) {
        (true, kind) => Some(format!("{kind}:{}", offset.saturating_add(found.len()))),
        (false, DASHBOARDS) if may(INSIGHTS) => Some(format!("{INSIGHTS}:0")),
        (false, _) => None,
    };
    let resources: Vec<Value> = found.iter().map(|own| resource(talk, kind, own)).collect();
    let mut result = json!({"resources": resources});
    if let (Some(next), Value::Object(result)) = (next, &mut result) {
        result.insert("nextCursor".to_owned(), json!(next));
    }
    Ok(result)
}

/// The kind and the offset of a cursor.
fn place(cursor: &Value) -> Option<(&'static str, usize)> {
    let (kind, offset) = cursor.as_str()?.split_once(':')?;
    let kind = [DASHBOARDS, INSIGHTS].into_iter().find(|own| *own == kind)?;
    Some((kind, offset.parse().ok()?))
}

/// A page of documents as clients get them, and whether there are more.
async fn items<K: DocumentKind>(talk: &Talk, list: List<K>) -> Result<(Vec<Value>, bool), Problem> {
    let found = talk.asking.perform(list).await?;
    let (has_next, mut held) = (found.has_next(), talk.asking.memory().reservation());
    let items = found.into_items(&mut held)?;
    talk.asking.keep(held);
    Ok((items, has_next))
}

/// A document in the list.
fn resource(talk: &Talk, kind: &str, own: &Value) -> Value {
    let id = own.get("id").and_then(Value::as_i64).unwrap_or_default();
    let text = |name: &str| own.get(name).and_then(Value::as_str).unwrap_or_default();
    let name = [text("name"), text("derived_name")].into_iter().find(|name| !name.is_empty());
    let single = kind.trim_end_matches('s');
    let name = name.map_or_else(|| format!("{single} {id}"), |name| clipped(name, 200));
    json!({
        "uri": uri(talk, kind, id), "name": name, "title": name, "mimeType": "text/plain",
        "description": format!("{single} {}", clipped(text("description"), 300)).trim_end(),
    })
}

fn uri(talk: &Talk, kind: &str, id: i64) -> String {
    format!("weir://project/{}/{kind}/{id}", talk.asking.project())
}

/// `resources/templates/list`.
pub(super) fn templates(talk: &Talk) -> Value {
    let project = talk.asking.project();
    let all = [(INSIGHTS, "insight"), (DASHBOARDS, "dashboard")].map(|(kind, single)| {
        json!({
            "uriTemplate": format!("weir://project/{project}/{kind}/{{id}}"), "name": single,
            "description": format!("The numbers of a saved {single}, by its id"), "mimeType": "text/plain",
        })
    });
    json!({"resourceTemplates": all})
}

/// `resources/read`.
pub(super) async fn read(talk: &Talk, sent: &str) -> Result<Value, Failure> {
    let missing = || Failure::resource(sent, talk.revision);
    let mut parts = sent.strip_prefix("weir://project/").unwrap_or_default().split('/');
    let (Some(project), Some(kind), Some(id), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(missing());
    };
    let id: i64 = id.parse().map_err(|_| missing())?;
    if project != talk.asking.project().to_string() {
        return Err(missing());
    }
    let of = match kind {
        INSIGHTS => Kind::Insight,
        DASHBOARDS => Kind::Dashboard,
        _ => return Err(missing()),
    };
    let document = match document(talk, of, id).await.map_err(|problem| failure(&problem))? {
        Some(document) => document,
        None => return Err(missing()),
    };
    let text = match of {
        Kind::Dashboard => board(talk, &document).await,
        _ => insight(talk, &document, &Frame::default(), ROWS_MAX).await.map(Said::text),
    };
    let text = text.map_err(|problem| failure(&problem))?;
    let content = json!({"uri": uri(talk, kind, id), "mimeType": "text/plain", "text": text});
    Ok(json!({"contents": [content]}))
}

fn failure(problem: &Problem) -> Failure {
    Failure::server(problem.status(), problem.detail().to_owned())
}

/// A document that is not deleted, if the key may read it.
async fn document(talk: &Talk, kind: Kind, id: i64) -> Result<Option<Document>, Problem> {
    let scope = if kind == Kind::Dashboard { Dashboards::READ } else { Insights::READ };
    let asker = &talk.asking.asker;
    auth::require(&asker.key, scope)?;
    match talk.asking.app.node.metadata.document(asker.project.id, kind, id).await {
        Ok(document) => Ok(Some(document).filter(|document| !document.deleted)),
        Err(MetadataError::NotFound(_)) => Ok(None),
        Err(error) => Err(problem(error)),
    }
}

/// The numbers of a saved insight, with the filters of a dashboard.
async fn insight(
    talk: &Talk,
    document: &Document,
    frame: &Frame,
    rows_max: usize,
) -> Result<Said, Problem> {
    let (app, project) = (&talk.asking.app, &talk.asking.asker.project);
    let own = saved(document, &app.node.metadata.snapshot());
    let said = match question_of(&document.fields, frame)? {
        None => Said::new("It has no query."),
        Some(Question::Insight(node)) => {
            let (answer, _) = kept_or_computed(app, project, &node).await?;
            shown(talk, &node, &answer, rows_max)?
        }
        Some(Question::Rows(node)) => {
            let (answer, _) = kept_or_computed(app, project, &node).await?;
            let rows = talk.asking.rows_of(answer).await?;
            let said = Said::new("Rows").with(Grid::of_rows(rows, rows_max));
            match node.get("query").and_then(Value::as_str) {
                Some(sql) => said.by_sql(Ok(sql.to_owned())),
                None => said,
            }
        }
    };
    let page = talk.address(&links::saved(project.id.0, &own.short_id));
    Ok(said.under(&own.title()).at(page))
}

/// The numbers of the insights of a dashboard, as many as fit.
async fn board(talk: &Talk, document: &Document) -> Result<String, Problem> {
    let asking = &talk.asking;
    let own = saved(document, &asking.app.node.metadata.snapshot());
    let page = talk.address(&links::dashboard(asking.project(), document.id));
    let mut told = format!("Dashboard {}\n{}\nPage: {page}", own.title(), own.description);
    let frame = Frame::default().over(document);
    let tiles = placed(asking, document).await?;
    for (number, placed) in tiles.iter().enumerate() {
        let part = match &placed.tile {
            Tile::Text(text) => clipped(text, 1000),
            Tile::Insight(own) if number >= TILES_MAX => {
                format!("{}: read {}", own.title(), uri(talk, INSIGHTS, own.id))
            }
            Tile::Insight(own) => match self::document(talk, Kind::Insight, own.id).await {
                Ok(Some(document)) => match insight(talk, &document, &frame, TILE_ROWS_MAX).await {
                    Ok(said) => said.text(),
                    Err(problem) => format!("{}: {}", own.title(), problem.detail()),
                },
                Ok(None) => continue,
                Err(problem) => format!("{}: {}", own.title(), problem.detail()),
            },
        };
        if told.len() + part.len() > DASHBOARD_MAX_BYTES {
            told.push_str("\n\n(The rest is left out: read its insights one by one.)");
            break;
        }
        told.push_str("\n\n---\n");
        told.push_str(&part);
    }
    Ok(told)
}
