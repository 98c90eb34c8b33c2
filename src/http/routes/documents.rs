//! Documents, the objects that users save besides events: actions, insights, annotations and dashboards. All kinds
//! share one set of operations: list, create, retrieve, change; `form` defines the fields of each kind, `body` their
//! JSON form. A document is deleted by setting `deleted`; DELETE is refused, as for cohorts.

mod boards;
mod body;
pub mod dashboards;
pub(in crate::routes) mod form;
pub mod kinds;
pub mod listed;
mod question;
pub mod results;
pub(in crate::routes) mod rights;
pub mod sent;
pub mod shared;
pub mod sharing;
pub mod shown;
pub(in crate::routes) mod tiles;
pub mod unlock;

use std::borrow::Cow;
use std::collections::HashSet;
use std::marker::PhantomData;
use std::sync::Arc;

use hyper::Method;
use serde_json::{Map, Value, json};

use crate::auth;
use crate::auth::Principal;
use crate::fields::refused;
use crate::openapi::Shape;
use crate::operation::input::{InQuery, Named, Of, input, part};
use crate::operation::output::{Never, Noted};
use crate::operation::{Context, Operation};
use crate::request::Request;
use crate::response::Problem;
use crate::routes::activity::Logged;
use crate::routes::documents::boards::Edit;
use crate::routes::documents::kinds::{DocumentKind, Id, Insights};
use crate::routes::documents::results::{Results, ResultsRequest};
use crate::routes::documents::rights::Viewer;
use crate::routes::documents::sent::{Change, Copied, New};
use crate::routes::documents::shown::{Made, Seen, Shown};
use crate::routes::store::problem;
use weir_metadata::Metadata;
use weir_metadata::activity::Scope;
use weir_metadata::documents::{Document, DocumentKey, DocumentText, Kind};
use weir_metadata::error::MetadataError;

/// Most insights in the list of those that the caller viewed last (PostHog's figure).
const LAST_VIEWED_MAX: usize = 5;

/// Allowed methods of one document.
const ALLOW: &str = "GET, PUT, PATCH, HEAD, OPTIONS";

input! {
    /// Makes a document. A dashboard may be a copy of another one; see [`dashboards`].
    pub struct Create<K: DocumentKind> {
        body document: New<K>,
    }
}

impl<K: DocumentKind> Operation for Create<K> {
    type Who = Principal;
    type Out = Made<K::Shown>;
    const SCOPE: &'static str = K::WRITE;

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let New { fields, copied, .. } = self.document;
        let made = add(cx, K::KIND, fields, copied).await?;
        let shown = Shown::changed(cx, &made).await?;
        Ok(Made { id: made.id, short_id: made.text("short_id").to_owned(), shown })
    }
}

/// Creates a document with these fields.
async fn add(
    cx: &Context<Principal>,
    kind: Kind,
    mut fields: Map<String, Value>,
    copied: Option<Copied>,
) -> Result<Arc<Document>, Problem> {
    let (app, asker, project, user) = (&cx.app, &cx.who, cx.who.project.id, cx.user());
    let source = match copied {
        Some(copied) => Some(dashboards::Source::of(cx, copied).await?),
        None => None,
    };
    rights::check_new(app, asker, (kind, &fields)).await?;
    if source.as_ref().is_some_and(dashboards::Source::is_deep) {
        auth::require(&asker.key, "insight:write")?;
    }
    check_references(cx, kind, &mut fields).await?;
    let boards = fields.get("dashboards").map(form::ids).unwrap_or_default();
    dashboards::check_edits(cx, &boards).await?;
    if kind == Kind::Insight {
        fields.insert("short_id".to_owned(), Value::from(auth::seed().short_id()));
    }
    let write = |metadata: Metadata| async move {
        match kind {
            Kind::Dashboard => dashboards::make(&metadata, project, user, fields, source).await,
            _ => metadata.create_document(project, user, kind, fields).await,
        }
    };
    cx.write("create-document", write).await
}

input! {
    /// One document, also a deleted one.
    pub struct Retrieve<K: DocumentKind> {
        path id: Id<K>,
        query how: How<K>,
    }
}

/// How a document is returned: with results as of [`Results`], and an insight with the filters and variables of a
/// dashboard.
#[derive(Debug)]
pub struct How<K> {
    results: Results,
    /// The id of the dashboard whose filters and variables apply.
    board: Option<String>,
    kind: PhantomData<K>,
}

impl<K: DocumentKind> InQuery for How<K> {
    fn describe(_: &'static str, _: &'static str, shape: &mut Shape) {
        K::describe_one(shape);
    }

    fn take(request: &Request, name: &'static str) -> Result<Self, Problem> {
        let results = Results::take(request, name)?;
        let board = request.query("from_dashboard").filter(|id| !id.is_empty());
        let board = board.filter(|_| K::KIND == Kind::Insight).map(Cow::into_owned);
        Ok(Self { results, board, kind: PhantomData })
    }
}

impl<K: DocumentKind> Operation for Retrieve<K> {
    type Who = Principal;
    type Out = Shown<K::Shown>;
    const SCOPE: &'static str = K::READ;

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (id, How { results, board, .. }) = (self.id.number, self.how);
        let document = cx.metadata().document_text(cx.who.project.id, K::KIND, id).await;
        let document = document.map_err(problem)?;
        let asked = framed(cx, results.of(&cx.who.key)?, board).await?;
        Shown::of(cx, &document, &asked).await
    }
}

/// Adds the filters and variables of the dashboard with this id.
async fn framed(
    cx: &Context<Principal>,
    mut asked: ResultsRequest,
    board: Option<String>,
) -> Result<ResultsRequest, Problem> {
    let Some(board) = board else { return Ok(asked) };
    let unknown = || {
        let detail = format!("Invalid pk \"{board}\" - object does not exist.");
        refused("from_dashboard", "does_not_exist", detail)
    };
    let id: i64 = board.parse().map_err(|_| unknown())?;
    match cx.metadata().document(cx.who.project.id, Kind::Dashboard, id).await {
        Ok(board) => asked.frame = asked.frame.over(&board),
        Err(MetadataError::NotFound(_)) => return Err(unknown()),
        Err(error) => return Err(problem(error)),
    }
    Ok(asked)
}

input! {
    /// Changes a document; `deleted` deletes and restores it, with `delete_insights` the insights of a dashboard that
    /// are on no other one, too.
    pub struct Update<K: DocumentKind> {
        path id: Id<K>,
        body change: Change<K>,
    }
}

impl<K: DocumentKind> Operation for Update<K> {
    type Who = Principal;
    type Out = Shown<K::Shown>;
    const SCOPE: &'static str = K::WRITE;

    async fn look_up(cx: &Context<Principal>, path: &Named) -> Result<(), Problem> {
        part::<Id<K>>(path, "id")?.document(cx).await.map(drop)
    }

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let Change { fields, deleted, is_with_insights, .. } = self.change;
        let change = Edit { fields, deleted, is_with_insights };
        let (project, id) = (cx.who.project.id, self.id.number);
        let key = DocumentKey { project, kind: K::KIND, id };
        let changed = edit(cx, key, change).await?;
        Shown::changed(cx, &changed).await
    }
}

/// Changes a document, and the documents that are connected with it.
async fn edit(
    cx: &Context<Principal>,
    key: DocumentKey,
    mut edit: Edit,
) -> Result<Arc<Document>, Problem> {
    let (app, asker, user) = (&cx.app, &cx.who, cx.user());
    let DocumentKey { project, kind, id } = key;
    let before = cx.metadata().document(project, kind, id).await.map_err(problem)?;
    rights::check_edit(&before, &asker.user)?;
    rights::check_restriction(&before, &edit.fields, &asker.user)?;
    check_references(cx, kind, &mut edit.fields).await?;
    rights::check_change(app, asker, (&before, &edit)).await?;
    let others = dashboards::connected(cx, &before, &edit).await?;
    let write = |metadata: Metadata| async move {
        let edit = |document: &mut Document, others: &mut [Document]| edit.apply(document, others);
        metadata.edit_documents(user, key, others, edit).await
    };
    cx.write("update-document", write).await
}

input! {
    /// Refused; documents are deleted by `deleted`.
    pub struct Delete<K: DocumentKind> {
        query kind: Of<K>,
    }
}

impl<K: DocumentKind> Operation for Delete<K> {
    type Who = Principal;
    type Out = Never;
    const SCOPE: &'static str = K::WRITE;

    async fn perform(self, _: &Context<Principal>) -> Result<Never, Problem> {
        let detail = "Method \"DELETE\" not allowed. Change the field deleted to true instead.";
        Err(Problem::method_not_allowed(&Method::DELETE, ALLOW).with_detail(detail))
    }
}

impl<K: DocumentKind> Logged for K {
    const SCOPE: Scope = K::KIND.scope();
    const READ: &'static str = "activity_log:read";
    type Id = Id<K>;

    async fn item(cx: &Context<Principal>, id: Id<K>) -> Result<String, Problem> {
        id.document(cx).await.map(|document| document.id.to_string())
    }
}

input! {
    /// Notes that the caller looked at an insight.
    pub struct View {
        path id: Id<Insights>,
    }
}

impl Operation for View {
    type Who = Principal;
    type Out = Noted;
    const SCOPE: &'static str = "insight:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Noted, Problem> {
        let (project, id) = (cx.who.project.id, self.id.number);
        let (user, key) = (cx.user(), DocumentKey { project, kind: Kind::Insight, id });
        let write = |metadata: Metadata| async move { metadata.view_document(user, key).await };
        cx.write("view-document", write).await?;
        Ok(Noted)
    }
}

input! {
    /// The insights that the caller looked at last, without what was deleted since.
    pub struct MyLastViewed {}
}

impl Operation for MyLastViewed {
    type Who = Principal;
    type Out = Seen;
    const SCOPE: &'static str = "insight:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Seen, Problem> {
        let (project, kind) = (cx.who.project.id, Kind::Insight);
        let viewed = cx.metadata().viewed_documents(project, cx.user(), kind).await;
        let viewed = viewed.map_err(problem)?;
        let ids = viewed.iter().map(|(id, _)| *id).collect();
        let found = cx.metadata().document_texts(project, kind, ids).await;
        let mut shown: Vec<DocumentText> = found.map_err(problem)?;
        shown.retain(|document| !document.head.deleted);
        shown.truncate(LAST_VIEWED_MAX);
        let mut bodies = body::bodies(&cx.app, &shown, &Viewer::from(&cx.who)).await?;
        for (document, body) in shown.iter().zip(&mut bodies) {
            let own = viewed.iter().find(|(id, _)| *id == document.head.id);
            body.set("last_viewed_at", json!(own.map(|(_, at)| at.to_rfc3339())));
        }
        Ok(Seen { bodies })
    }
}

/// Checks that the documents whose ids are in fields exist. The short id of an insight is immutable; an annotation of
/// an insight stores it.
async fn check_references(
    cx: &Context<Principal>,
    kind: Kind,
    fields: &mut Map<String, Value>,
) -> Result<(), Problem> {
    let mut short_ids = Vec::new();
    for (name, of) in form::references(kind) {
        let Some(value) = fields.get(name) else { continue };
        let mut short_id = Value::Null;
        let ids = form::ids(value);
        let found = cx.metadata().document_texts(cx.who.project.id, of, ids.clone()).await;
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
