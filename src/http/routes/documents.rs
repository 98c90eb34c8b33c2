//! What users save beside events: actions, insights, annotations and dashboards. One set of functions for all of
//! them: list, create, retrieve, change; `form` says which fields each kind has, `body` what clients get. A document is
//! deleted by setting `deleted`; DELETE is refused, as for cohorts.

mod boards;
mod body;
pub mod dashboards;
pub mod described;
pub(in crate::routes) mod form;
pub mod kinds;
pub mod listed;
mod question;
pub(in crate::routes) mod results;
pub(in crate::routes) mod rights;
pub mod shared;
pub mod sharing;
pub(in crate::routes) mod tiles;
pub mod unlock;

use std::collections::HashSet;
use std::sync::Arc;

use hyper::{Method, StatusCode};
use serde_json::{Map, Value, json};

use crate::auth;
use crate::auth::Principal;
use crate::budget::Memory;
use crate::call::Call;
use crate::fields::{Fields, refused};
use crate::response::{Problem, Response};
use crate::routes::documents::boards::Edit;
use crate::routes::documents::results::Asked;
use crate::routes::documents::rights::Viewer;
use crate::routes::store::problem;
use crate::routes::{activity, store};
use weir_app::App;
use weir_base::error::Kind as ErrorKind;
use weir_event::id::ProjectId;
use weir_metadata::documents::{Document, DocumentKey, DocumentText, Kind};
use weir_metadata::error::MetadataError;

/// Insights in the list of those that the caller looked at last (PostHog's figure).
const LAST_VIEWED_MAX: usize = 5;

/// `POST`. A dashboard may be a copy of another one; see [`dashboards`].
pub async fn create(app: &App, call: Call<Principal>, kind: Kind) -> Result<Response, Problem> {
    let Call { asker, request, .. } = call;
    let memory = request.memory();
    let sent = (Fields::read(request).await?, &memory);
    let made = add(app, &asker, sent, kind).await?;
    let document = DocumentText::of(&made);
    let shown = (&document, &Viewer::from(&asker));
    tiles::answer(app, StatusCode::CREATED, shown, (&Asked::kept(), &memory)).await
}

/// Creates a document with the fields that were sent.
pub(super) async fn add(
    app: &App,
    asker: &Principal,
    (mut sent, memory): (Fields, &Memory),
    kind: Kind,
) -> Result<Arc<Document>, Problem> {
    let place = (asker.project.id, asker.user.id);
    let source = match kind {
        Kind::Dashboard => {
            dashboards::Source::read(app, asker.project.id, (&mut sent, memory)).await?
        }
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
    let metadata = app.node.metadata.clone();
    let write = async move {
        match kind {
            Kind::Dashboard => dashboards::make(&metadata, place, fields, source).await,
            _ => metadata.create_document(place.0, place.1, kind, fields).await,
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
    let document = app.node.metadata.document_text(project.id, kind, id).await.map_err(problem)?;
    let mut asked = Asked::of(&request, &asker.key)?;
    let board = request.query("from_dashboard").filter(|id| !id.is_empty());
    if let Some(board) = board.filter(|_| kind == Kind::Insight) {
        let unknown = || {
            let detail = format!("Invalid pk \"{board}\" - object does not exist.");
            refused("from_dashboard", "does_not_exist", detail)
        };
        let board: i64 = board.parse().map_err(|_| unknown())?;
        match app.node.metadata.document(project.id, Kind::Dashboard, board).await {
            Ok(board) => asked.frame = asked.frame.over(&board),
            Err(MetadataError::NotFound(_)) => return Err(unknown()),
            Err(error) => return Err(problem(error)),
        }
    }
    let shown = (&document, &Viewer::from(&asker));
    tiles::answer(app, StatusCode::OK, shown, (&asked, &request.memory())).await
}

/// `PATCH :id/`, and `PUT`, which requires nothing more; `deleted` deletes and restores, with `delete_insights` the
/// insights that are on no other dashboard, too.
pub async fn update(app: &App, call: Call<Principal>, kind: Kind) -> Result<Response, Problem> {
    let id = form::document_id(call.id())?;
    let Call { asker, request, .. } = call;
    let (user, key) = (asker.user.id, DocumentKey { project: asker.project.id, kind, id });
    // 404 for an unknown document precedes 400 for a bad body.
    let before = app.node.metadata.document(asker.project.id, kind, id).await.map_err(problem)?;
    rights::check_edit(&before, &asker.user)?;
    let memory = request.memory();
    let mut sent = Fields::read(request).await?;
    let deleted = sent.boolean("deleted")?;
    let is_with_insights =
        kind == Kind::Dashboard && sent.boolean("delete_insights")?.unwrap_or(false);
    let mut fields = form::read(&mut sent, kind, false)?;
    rights::check_restriction(&before, &fields, &asker.user)?;
    check_references(app, asker.project.id, kind, &mut fields).await?;
    let edit = Edit { fields, deleted, is_with_insights };
    rights::check_change(app, &asker, (&before, &edit)).await?;
    let others = dashboards::connected(app, &asker, (&before, &memory), &edit).await?;
    let metadata = app.node.metadata.clone();
    let write = async move {
        let edit = |document: &mut Document, others: &mut [Document]| edit.apply(document, others);
        metadata.edit_documents(user, key, others, edit).await
    };
    let changed = store::write(app, "update-document", write).await?;
    let document = DocumentText::of(&changed);
    let shown = (&document, &Viewer::from(&asker));
    tiles::answer(app, StatusCode::OK, shown, (&Asked::kept(), &memory)).await
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
        app.node.metadata.document(project, kind, id).await.map_err(problem)?;
    }
    activity::of_scope(app, call, kind.scope()).await
}

/// `POST :id/viewed/`: notes that the caller looked at the document.
pub async fn viewed(app: &App, call: Call<Principal>, kind: Kind) -> Result<Response, Problem> {
    let (project, user) = (call.asker.project.id, call.asker.user.id);
    let key = DocumentKey { project, kind, id: form::document_id(call.id())? };
    let metadata = app.node.metadata.clone();
    let write = async move { metadata.view_document(user, key).await };
    store::write(app, "view-document", write).await?;
    Ok(Response::empty(StatusCode::CREATED))
}

/// `GET my_last_viewed/`: what the caller looked at last, without what was deleted since.
pub async fn my_last_viewed(
    app: &App,
    call: Call<Principal>,
    kind: Kind,
) -> Result<Response, Problem> {
    let Call { asker, request, .. } = call;
    let (project, user) = (asker.project.id, asker.user.id);
    let viewed = app.node.metadata.viewed_documents(project, user, kind).await.map_err(problem)?;
    let ids = viewed.iter().map(|(id, _)| *id).collect();
    let heads = app.node.metadata.document_texts(project, kind, ids).await.map_err(problem)?;
    let mut shown: Vec<DocumentText> = heads;
    shown.retain(|document| !document.head.deleted);
    shown.truncate(LAST_VIEWED_MAX);
    let mut text = vec![b'['];
    let bodies = body::bodies(app, &shown, &Viewer::from(&asker)).await?;
    for (document, mut body) in shown.iter().zip(bodies) {
        let id = document.head.id;
        let at = viewed.iter().find(|(own, _)| *own == id).map(|(_, at)| at.to_rfc3339());
        body.set("last_viewed_at", json!(at));
        if text.len() > 1 {
            text.push(b',');
        }
        body.write(&mut text).map_err(|error| Problem::of(ErrorKind::Internal, &error))?;
    }
    text.push(b']');
    let answer = request.memory().reservation().counted(text)?;
    Ok(Response::counted_json(StatusCode::OK, &answer))
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
        let ids = form::ids(value);
        let found = app.node.metadata.document_texts(project, of, ids.clone()).await;
        let mut found = found.map_err(problem)?;
        found.retain(|document| !document.head.deleted);
        let known: HashSet<i64> = found.iter().map(|document| document.head.id).collect();
        if let Some(id) = ids.iter().find(|id| !known.contains(id)) {
            let detail = format!("Invalid pk \"{id}\" - object does not exist.");
            return Err(refused(name, "does_not_exist", detail));
        }
        if let Some(last) = found.last() {
            let last = last.with(&["short_id".into()]).map_err(problem)?;
            short_id = last.fields.get("short_id").cloned().unwrap_or_default();
        }
        if kind == Kind::Annotation && of == Kind::Insight {
            short_ids.push(("insight_short_id".to_owned(), short_id));
        }
    }
    fields.extend(short_ids);
    Ok(())
}
