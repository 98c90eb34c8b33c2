//! What users save beside events: actions, insights, annotations and dashboards. One set of functions for all of
//! them: list, create, retrieve, change; `form` says which fields each kind has, `body` what clients get. A document is
//! deleted by setting `deleted`; DELETE is refused, as for cohorts.

mod boards;
mod body;
pub mod dashboards;
pub mod described;
pub(in crate::http::routes) mod form;
mod question;
pub(in crate::http::routes) mod results;
pub(in crate::http::routes) mod rights;
pub mod shared;
pub mod sharing;
pub(in crate::http::routes) mod tiles;
pub mod unlock;

use std::sync::Arc;

use hyper::Method;
use hyper::StatusCode;
use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::app::App;
use crate::event::id::ProjectId;
use crate::http::auth;
use crate::http::auth::Principal;
use crate::http::call::Call;
use crate::http::fields::Fields;
use crate::http::fields::refused;
use crate::http::page::Page;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::routes::activity;
use crate::http::routes::documents::boards::Edit;
use crate::http::routes::documents::results::Asked;
use crate::http::routes::documents::results::Reader;
use crate::http::routes::documents::rights::Viewer;
use crate::http::routes::store;
use crate::http::routes::store::problem;
use crate::metadata::documents::Document;
use crate::metadata::documents::Kind;
use crate::metadata::error::MetadataError;

/// Most documents of a page, each of which may be as long as `FIELDS_MAX_BYTES`.
const LIMIT_MAX: usize = 500;

/// Insights in the list of those that the caller looked at last (PostHog's figure).
const LAST_VIEWED_MAX: usize = 5;

/// `GET`: documents that are not deleted, newest first; see `question` for the parameters. Insights come with their
/// results, as `refresh` says, unless `basic` is true.
pub async fn list(app: &App, call: Call<Principal>, kind: Kind) -> Result<Response, Problem> {
    let Call { asker, request, .. } = call;
    let project = asker.project.id;
    let mut question = question::Question::of(&request, &asker, app.clock.now())?;
    let asked = Asked::of(&request, &asker.key)?;
    for board in question.boards() {
        question.add_placed(board, &placed_on(app, project, board).await?);
    }
    let mut page = Page::of(&request);
    page.limit = page.limit.min(LIMIT_MAX);
    let mut found = Vec::new();
    let visit =
        |document| found.extend(question.place_of(&document).map(|place| (place, document.id)));
    app.metadata.visit_documents(project, kind, visit).await.map_err(problem)?;
    question.sort(&mut found);
    let mut documents = Vec::new();
    for (_, id) in found.iter().skip(page.offset).take(page.limit) {
        documents.push(app.metadata.document(project, kind, *id).await.map_err(problem)?);
    }
    let snapshot = app.metadata.snapshot();
    let viewer = Viewer::from(&asker);
    let body = |document| body::body(document, &snapshot, viewer);
    let mut bodies: Vec<Value> = documents.iter().map(body).collect();
    if kind == Kind::Dashboard {
        let shared = app.metadata.shared_documents(project, kind).await.map_err(problem)?;
        for (document, body) in documents.iter().zip(&mut bodies) {
            body::set_shared(body, shared.contains(&document.id));
        }
    }
    if question.is_basic {
        bodies.iter_mut().for_each(body::make_basic);
    } else if kind == Kind::Insight {
        let reader = Reader::new(app, viewer);
        reader.add_all(documents.iter().zip(&mut bodies).collect(), &asked).await;
    }
    let public_url = app.config.http.public_url.as_deref();
    let envelope = page.envelope(&request, public_url, found.len(), bodies);
    Ok(Response::json(StatusCode::OK, &envelope))
}

/// The insights with a place on a dashboard; none without such a dashboard.
async fn placed_on(app: &App, project: ProjectId, board: i64) -> Result<Vec<i64>, Problem> {
    match app.metadata.document(project, Kind::Dashboard, board).await {
        Ok(board) => Ok(board.fields.get("tiles").map(form::ids).unwrap_or_default()),
        Err(MetadataError::NotFound(_)) => Ok(Vec::new()),
        Err(error) => Err(problem(error)),
    }
}

/// `POST`. A dashboard may be a copy of another one; see [`dashboards`].
pub async fn create(app: &App, call: Call<Principal>, kind: Kind) -> Result<Response, Problem> {
    let Call { asker, request, .. } = call;
    let document = add(app, &asker, Fields::read(request).await?, kind).await?;
    let body = tiles::whole(app, &document, Viewer::from(&asker), &Asked::kept()).await?;
    Ok(Response::json(StatusCode::CREATED, &body))
}

/// Creates a document with the fields that were sent.
pub(super) async fn add(
    app: &App,
    asker: &Principal,
    mut sent: Fields,
    kind: Kind,
) -> Result<Arc<Document>, Problem> {
    let place = (asker.project.id, asker.user.id);
    let source = match kind {
        Kind::Dashboard => dashboards::Source::read(app, asker.project.id, &mut sent).await?,
        _ => None,
    };
    let mut fields = form::read(&mut sent, kind, true)?;
    rights::check_new(app, asker, (kind, &fields)).await?;
    if source.as_ref().is_some_and(dashboards::Source::is_deep) {
        auth::require(&asker.key, "insight:write")?;
    }
    check_references(app, asker.project.id, kind, &mut fields).await?;
    let boards = fields.get("dashboards").map(form::ids).unwrap_or_default();
    dashboards::check_edits(app, asker, &boards).await?;
    if kind == Kind::Insight {
        fields.insert("short_id".to_owned(), Value::from(auth::seed().short_id()));
    }
    let metadata = app.metadata.clone();
    let write = async move {
        match kind {
            Kind::Dashboard => dashboards::make(&metadata, place, fields, source).await,
            _ => metadata.create_document(place, kind, fields).await,
        }
    };
    store::write(app, "create-document", write).await
}

/// `GET :id/`, also for a deleted document. `refresh` says how results are obtained; `from_dashboard` is the dashboard
/// whose filters and variables hold for an insight.
pub async fn retrieve(app: &App, call: Call<Principal>, kind: Kind) -> Result<Response, Problem> {
    let id = form::document_id(call.id())?;
    let Call { asker, request, .. } = call;
    let project = &asker.project;
    let document = app.metadata.document(project.id, kind, id).await.map_err(problem)?;
    let mut asked = Asked::of(&request, &asker.key)?;
    let board = request.query("from_dashboard").filter(|id| !id.is_empty());
    if let Some(board) = board.filter(|_| kind == Kind::Insight) {
        let unknown = || {
            let detail = format!("Invalid pk \"{board}\" - object does not exist.");
            refused("from_dashboard", "does_not_exist", detail)
        };
        let board: i64 = board.parse().map_err(|_| unknown())?;
        match app.metadata.document(project.id, Kind::Dashboard, board).await {
            Ok(board) => asked.frame = asked.frame.over(&board),
            Err(MetadataError::NotFound(_)) => return Err(unknown()),
            Err(error) => return Err(problem(error)),
        }
    }
    let body = tiles::whole(app, &document, Viewer::from(&asker), &asked).await?;
    Ok(Response::json(StatusCode::OK, &body))
}

/// `PATCH :id/`, and `PUT`, which requires nothing more; `deleted` deletes and restores, with `delete_insights` the
/// insights that are on no other dashboard, too.
pub async fn update(app: &App, call: Call<Principal>, kind: Kind) -> Result<Response, Problem> {
    let id = form::document_id(call.id())?;
    let Call { asker, request, .. } = call;
    let place = (asker.project.id, asker.user.id);
    // 404 for an unknown document precedes 400 for a bad body.
    let before = app.metadata.document(asker.project.id, kind, id).await.map_err(problem)?;
    rights::check_edit(&before, &asker.user)?;
    let mut sent = Fields::read(request).await?;
    let deleted = sent.boolean("deleted")?;
    let is_with_insights =
        kind == Kind::Dashboard && sent.boolean("delete_insights")?.unwrap_or(false);
    let mut fields = form::read(&mut sent, kind, false)?;
    rights::check_restriction(&before, &fields, &asker.user)?;
    check_references(app, asker.project.id, kind, &mut fields).await?;
    let edit = Edit { fields, deleted, is_with_insights };
    rights::check_change(app, &asker, (&before, &edit)).await?;
    let others = dashboards::connected(app, &asker, &before, &edit).await?;
    let metadata = app.metadata.clone();
    let write = async move {
        let edit = |document: &mut Document, others: &mut [Document]| edit.apply(document, others);
        metadata.edit_documents(place, (kind, id), (others, edit)).await
    };
    let document = store::write(app, "update-document", write).await?;
    let body = tiles::whole(app, &document, Viewer::from(&asker), &Asked::kept()).await?;
    Ok(Response::json(StatusCode::OK, &body))
}

/// Allowed methods of one document.
const ALLOW: &str = "GET, PUT, PATCH, HEAD, OPTIONS";

/// `DELETE :id/`: refused; documents are deleted by `deleted`.
pub async fn delete(_app: &App, _call: Call<Principal>, _kind: Kind) -> Result<Response, Problem> {
    Err(Problem::method_not_allowed(&Method::DELETE, ALLOW)
        .with_detail("Method \"DELETE\" not allowed. Change the field deleted to true instead."))
}

/// `GET :id/activity/`; without an id, of all documents of the kind.
pub async fn activity(app: &App, call: Call<Principal>, kind: Kind) -> Result<Response, Problem> {
    if !call.parameters.is_empty() {
        let (project, id) = (call.asker.project.id, form::document_id(call.id())?);
        app.metadata.document(project, kind, id).await.map_err(problem)?;
    }
    activity::of_scope(app, call, kind.scope()).await
}

/// `POST :id/viewed/`: notes that the caller looked at the document.
pub async fn viewed(app: &App, call: Call<Principal>, kind: Kind) -> Result<Response, Problem> {
    let (place, id) = ((call.asker.project.id, call.asker.user.id), form::document_id(call.id())?);
    let metadata = app.metadata.clone();
    let write = async move { metadata.view_document(place, kind, id).await };
    store::write(app, "view-document", write).await?;
    Ok(Response::empty(StatusCode::CREATED))
}

/// `GET my_last_viewed/`: what the caller looked at last, without what was deleted since.
pub async fn my_last_viewed(
    app: &App,
    call: Call<Principal>,
    kind: Kind,
) -> Result<Response, Problem> {
    let asker = call.asker;
    let place = (asker.project.id, asker.user.id);
    let viewed = app.metadata.viewed_documents(place, kind).await.map_err(problem)?;
    let mut bodies: Vec<Value> = Vec::new();
    for (id, at) in viewed {
        if bodies.len() == LAST_VIEWED_MAX {
            break;
        }
        let document = match app.metadata.document(asker.project.id, kind, id).await {
            Ok(document) if !document.deleted => document,
            Ok(_) | Err(MetadataError::NotFound(_)) => continue,
            Err(error) => return Err(problem(error)),
        };
        let mut body = body::body(&document, &app.metadata.snapshot(), Viewer::from(&asker));
        if let Value::Object(fields) = &mut body {
            fields.insert("last_viewed_at".to_owned(), json!(at.to_rfc3339()));
        }
        bodies.push(body);
    }
    Ok(Response::json(StatusCode::OK, &bodies))
}

/// Checks that the documents exist whose ids stand in fields. The short id of an insight is immutable, and kept with an
/// annotation of it.
async fn check_references(
    app: &App,
    project: ProjectId,
    kind: Kind,
    fields: &mut Map<String, Value>,
) -> Result<(), Problem> {
    let mut short_ids = Vec::new();
    for (name, of) in form::references(kind) {
        let Some(value) = fields.get(name) else { continue };
        let mut short_id = Value::Null;
        for id in form::ids(value) {
            match app.metadata.document(project, of, id).await {
                Ok(document) if !document.deleted => {
                    short_id = document.fields.get("short_id").cloned().unwrap_or_default();
                }
                Ok(_) | Err(MetadataError::NotFound(_)) => {
                    let detail = format!("Invalid pk \"{id}\" - object does not exist.");
                    return Err(refused(name, "does_not_exist", detail));
                }
                Err(error) => return Err(problem(error)),
            }
        }
        if kind == Kind::Annotation && of == Kind::Insight {
            short_ids.push(("insight_short_id".to_owned(), short_id));
        }
    }
    fields.extend(short_ids);
    Ok(())
}
