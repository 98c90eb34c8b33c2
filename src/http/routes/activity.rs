//! Activity log endpoints: entries of one object, of all objects of a kind, of the project.

use std::sync::Arc;

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::auth::Principal;
use crate::beside::beside;
use crate::call::{Call, Rendering};
use crate::members::{Member, Members};
use crate::openapi::{Operation, Parameter};
use crate::page::Page;
use crate::response::{Problem, Response};
use crate::routes::store::problem;
use crate::rows::{Added, Rows};
use crate::{auth, csv};
use weir_app::App;
use weir_base::error::Kind;
use weir_event::json;
use weir_metadata::accounts::UserId;
use weir_metadata::activity::{Asked, EntryText, Scope, Start};
use weir_metadata::snapshot::Snapshot;

/// Default number of entries of a page; PostHog's number.
const LIMIT_DEFAULT: usize = 10;

/// Most entries of a page.
const LIMIT_MAX: usize = 1000;

/// Entries that are read at once; one has what was changed before and after.
const READ_AT_ONCE: usize = 16;

/// `GET feature_flags/activity/`, `feature_flags/:id/activity/` and similar: a page of the changes
/// of one object, or of all objects of the kind. The key must grant `activity_log:read` besides the
/// scope of the row.
pub async fn of_scope(app: &App, call: Call<Principal>, scope: Scope) -> Result<Response, Problem> {
    let item = call.parameters.first().cloned();
    of_item(app, call, scope, item).await
}

/// The same for the object with the id `item`, where the path has another id, or for all objects.
pub(super) async fn of_item(
    app: &App,
    call: Call<Principal>,
    scope: Scope,
    item: Option<String>,
) -> Result<Response, Problem> {
    auth::require(&call.asker.key, "activity_log:read")?;
    let asked = Asked { scopes: vec![scope], item, user: None };
    page(app, &app.node.metadata.snapshot(), &asked, &call).await
}

/// Entries of one object, which the caller has found, for a user who may read it.
async fn page(
    app: &App,
    snapshot: &Arc<Snapshot>,
    asked: &Asked,
    call: &Call<Principal>,
) -> Result<Response, Problem> {
    let (project, request) = (call.asker.project.id, &call.request);
    let number = |name: &str| request.query(name).and_then(|text| text.parse::<usize>().ok());
    let limit = number("limit").filter(|limit| *limit > 0).unwrap_or(LIMIT_DEFAULT).min(LIMIT_MAX);
    let page = number("page").filter(|page| *page > 0).unwrap_or(1);
    // The page after one that ended early begins where that ended.
    let offset = number("offset").unwrap_or((page - 1).saturating_mul(limit));
    let count = app.node.metadata.activity_count(project, asked).await.map_err(problem)?;
    let mut rows = Rows::new(&request.memory());
    let (mut start, mut is_done) = (Start::Offset(offset), false);
    while !is_done {
        let part = (limit - rows.count()).min(READ_AT_ONCE);
        let found = app.node.metadata.activity_texts(project, asked, (start, part)).await;
        let found = found.map_err(problem)?;
        let Some(last) = found.last() else { break };
        start = Start::Before(last.position);
        let users = Arc::clone(snapshot);
        let write = move |rows: &mut Rows| {
            for entry in &found {
                let body = body(entry, &users)?;
                if rows.add_by(|text| body.write(text))? == Added::PageIsFull {
                    return Ok(Added::PageIsFull);
                }
            }
            Ok(Added::Yes)
        };
        let (written, added) = rows.add_on(&app.node.cpu, write).await?;
        is_done = added == Added::PageIsFull || written.count() == limit;
        rows = written;
    }
    let base = app.node.config.http.public_url.as_deref();
    let link = |place: (&str, usize)| Page::link_to(request, base, &[place, ("limit", limit)]);
    let (shown, is_by_offset) = (rows.count(), number("offset").is_some());
    let after = offset.saturating_add(shown);
    let next = (shown > 0 && after < count).then(|| match shown == limit && !is_by_offset {
        true => link(("page", page + 1)),
        false => link(("offset", after)),
    });
    let previous = match is_by_offset {
        true => (offset > 0).then(|| link(("offset", offset.saturating_sub(limit)))),
        false => (page > 1).then(|| link(("page", page - 1))),
    };
    let head = json!({"next": next, "previous": previous, "total_count": count}).to_string();
    let text = rows.within_object(&head)?;
    if call.rendering == Rendering::Json {
        return Ok(Response::counted_json(StatusCode::OK, &text));
    }
    let rendering = call.rendering;
    let file = move || {
        let body: Value =
            json::restore(text.bytes()).map_err(|error| Problem::of(Kind::Internal, &error))?;
        Ok(csv::render(StatusCode::OK, rendering, &body))
    };
    beside(&app.node.cpu, file).await
}

pub(crate) const OF_PROJECT: Operation = Operation::activity("What was changed in the project")
    .query(&[
        Parameter::text("scope"),
        Parameter::text("scopes").about("A list with commas"),
        Parameter::text("item_id"),
        Parameter::uuid("user"),
    ]);

/// `GET activity_log/`: all changes in the project, filtered by `scope`, `scopes` (a list with
/// commas), `item_id` and `user` (a uuid).
pub async fn of_project(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let request = &call.request;
    let snapshot = app.node.metadata.snapshot();
    let names = ["scope", "scopes"].map(|name| request.query(name).unwrap_or_default());
    let names = names.iter().flat_map(|names| names.split(','));
    let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
    let scopes: Vec<Scope> = names.iter().filter_map(|name| Scope::parse(name)).collect();
    let user = request.query("user");
    let user = user.map(|wanted| {
        let known = snapshot.users().find(|user| user.uuid.to_string() == *wanted);
        // An unknown user has no entries.
        known.map_or(UserId(-1), |user| user.id)
    });
    let item = request.query("item_id").map(|item| item.into_owned());
    let asked = Asked { scopes: scopes.clone(), item, user };
    if scopes.is_empty() && !names.is_empty() {
        let none = Asked { user: Some(UserId(-1)), ..asked };
        return page(app, &snapshot, &none, &call).await;
    }
    page(app, &snapshot, &asked, &call).await
}

fn body(stored: &EntryText, snapshot: &Snapshot) -> Result<Members, Problem> {
    let entry = &stored.entry;
    let user = entry.user.and_then(|user| snapshot.user(user));
    let user = match user {
        Some(user) => json!({
            "id": user.id.0,
            "uuid": user.uuid.to_string(),
            "first_name": user.first_name,
            "email": user.email,
        }),
        None => json!({"first_name": "System", "email": null, "is_system": true}),
    };
    let mut told = Members::from(json!({
        "id": entry.item, "changes": null, "merge": null, "trigger": null, "name": null,
        "short_id": null, "type": null,
    }));
    let mut stored = stored.members().map_err(problem)?;
    for name in ["changes", "trigger", "name"] {
        if let Some(text) = stored.remove(name) {
            told.set(name, Member::Stored(text));
        }
    }
    let mut body = Members::from(json!({
        "id": entry.id.to_string(),
        "user": user,
        "activity": entry.activity,
        "scope": entry.scope,
        "item_id": entry.item,
        "created_at": entry.created_at.to_rfc3339(),
    }));
    body.set("detail", Member::Object(told));
    Ok(body)
}
