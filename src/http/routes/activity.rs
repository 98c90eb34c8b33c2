//! The activity log: changes of one object, of all objects of a kind, of the project.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;

use hyper::StatusCode;
use serde_json::Value;

use crate::auth::Principal;
use crate::beside::beside;
use crate::openapi::{Paging, Parameter, Shape, Success};
use crate::operation::input::{InPath, InQuery, Of, input};
use crate::operation::output::{Output, PageRows, Reply};
use crate::operation::{Context, Operation};
use crate::page::Page;
use crate::rendering::Rendering;
use crate::request::Request;
use crate::response::{Problem, Response};
use crate::routes::store::problem;
use crate::rows::{Added, PAGE_MAX_BYTES};
use crate::{auth, objects};
use weir_api::activity as api;
use weir_base::error::Kind;
use weir_event::json;
use weir_metadata::accounts::UserId;
use weir_metadata::activity::{ActivityFilter, EntryText, Scope, Start};
use weir_metadata::snapshot::Snapshot;

/// Default number of entries of a page; PostHog's number.
const LIMIT_DEFAULT: usize = 10;

/// Most entries of a page.
const LIMIT_MAX: usize = 1000;

/// Entries that are read at once; each contains the object before and after the change.
const READ_AT_ONCE: usize = 16;

/// The requested part of the log: `limit`, and `page` or `offset`.
#[derive(Clone, Copy, Debug)]
pub struct EntryRange {
    limit: usize,
    /// Page number, from 1 on.
    page: usize,
    /// Entries to skip, whatever the page is.
    offset: Option<usize>,
}

impl EntryRange {
    /// The newest entries.
    pub fn newest(limit: usize) -> Self {
        Self { limit, page: 1, offset: None }
    }

    fn skipped(self) -> usize {
        self.offset.unwrap_or((self.page - 1).saturating_mul(self.limit))
    }
}

impl InQuery for EntryRange {
    fn describe(_: &'static str, _: &'static str, shape: &mut Shape) {
        shape.paging = Paging::Number;
    }

    fn take(request: &Request, _: &'static str) -> Result<Self, Problem> {
        let number = |name: &str| request.query(name).and_then(|text| text.parse::<usize>().ok());
        let limit = number("limit").filter(|limit| *limit > 0).unwrap_or(LIMIT_DEFAULT);
        let page = number("page").filter(|page| *page > 0).unwrap_or(1);
        Ok(Self { limit: limit.min(LIMIT_MAX), page, offset: number("offset") })
    }
}

/// A page of the log.
#[derive(Debug)]
pub struct Entries {
    place: EntryRange,
    count: usize,
    rows: PageRows<api::Entry>,
}

impl Entries {
    /// The entries to render.
    pub fn into_values(self) -> Vec<api::Entry> {
        self.rows.into_values()
    }
}

impl Output for Entries {
    fn describe(shape: &mut Shape) {
        shape.success =
            Some(Success::of::<api::Page>(StatusCode::OK, "A page of what was changed"));
    }

    async fn respond(self, reply: &Reply<'_>) -> Result<Response, Problem> {
        let Self { place: EntryRange { limit, page, offset }, count, rows } = self;
        let base = reply.app.node.config.http.public_url.as_deref();
        let link =
            |part: (&str, usize)| Page::link_to(reply.request, base, &[part, ("limit", limit)]);
        let shown = rows.count();
        let after = self.place.skipped().saturating_add(shown);
        // If a page was cut short by its length, the next page begins after its last entry.
        let next = (shown > 0 && after < count).then(|| match shown == limit && offset.is_none() {
            true => link(("page", page + 1)),
            false => link(("offset", after)),
        });
        let previous = match offset {
            Some(offset) => (offset > 0).then(|| link(("offset", offset.saturating_sub(limit)))),
            None => (page > 1).then(|| link(("page", page - 1))),
        };
        let head = api::Page { next, previous, total_count: count, results: Vec::new() };
        let text = rows.within(&head)?;
        if reply.rendering == Rendering::Json {
            return Ok(Response::counted_json(StatusCode::OK, &text));
        }
        let rendering = reply.rendering;
        let file = move || {
            let body: Value =
                json::restore(text.bytes()).map_err(|error| Problem::of(Kind::Internal, &error))?;
            Ok(objects::render(StatusCode::OK, rendering, &body))
        };
        beside(&reply.app.node.cpu, file).await
    }
}

/// The changes of the object with the id `item`, or of all objects of the kind. The key must grant `activity_log:read`
/// besides the scope of the operation.
pub(super) async fn of_item(
    cx: &Context<Principal>,
    scope: Scope,
    item: Option<String>,
    place: EntryRange,
) -> Result<Entries, Problem> {
    auth::require(&cx.who.key, "activity_log:read")?;
    let asked = ActivityFilter { scopes: vec![scope], item, user: None };
    entries(cx, &cx.snapshot(), &asked, place).await
}

/// A page of the selected entries, for a caller who may read them.
async fn entries(
    cx: &Context<Principal>,
    snapshot: &Arc<Snapshot>,
    asked: &ActivityFilter,
    place: EntryRange,
) -> Result<Entries, Problem> {
    let (project, metadata) = (cx.who.project.id, cx.metadata());
    let count = metadata.activity_count(project, asked).await.map_err(problem)?;
    let mut rows = cx.rows(PAGE_MAX_BYTES);
    let (mut start, mut is_done) = (Start::Offset(place.skipped()), false);
    while !is_done {
        let part = (place.limit - rows.count()).min(READ_AT_ONCE);
        let found = metadata.activity_texts(project, asked, start, part).await;
        let found = found.map_err(problem)?;
        let Some(last) = found.last() else { break };
        start = Start::Before(last.position);
        let users = Arc::clone(snapshot);
        let write = move |rows: &mut PageRows<api::Entry>| {
            for stored in &found {
                if rows.add(entry(stored, &users)?)? == Added::PageIsFull {
                    return Ok(Added::PageIsFull);
                }
            }
            Ok(Added::Yes)
        };
        let (written, added) = rows.add_on(&cx.app.node.cpu, write).await?;
        is_done = added == Added::PageIsFull || written.count() == place.limit;
        rows = written;
    }
    Ok(Entries { place, count, rows })
}

/// A kind of objects with endpoints for their activity.
pub trait Logged: Debug + Send + Sync + 'static {
    /// The kind in the log.
    const SCOPE: Scope;

    /// The scope that a key needs besides `activity_log:read`.
    const READ: &'static str;

    /// The id of an object in a path.
    type Id: InPath + Debug + Send;

    /// The id of the object in the log.
    ///
    /// # Errors
    ///
    /// 404: the object does not exist.
    fn item(
        cx: &Context<Principal>,
        id: Self::Id,
    ) -> impl Future<Output = Result<String, Problem>> + Send;
}

input! {
    /// What was changed of all objects of a kind.
    pub struct OfAll<K: Logged> {
        query kind: Of<K>,
        query place: EntryRange,
    }
}

impl<K: Logged> Operation for OfAll<K> {
    type Who = Principal;
    type Out = Entries;
    const SCOPE: &'static str = K::READ;

    async fn perform(self, cx: &Context<Principal>) -> Result<Entries, Problem> {
        of_item(cx, K::SCOPE, None, self.place).await
    }
}

input! {
    /// What was changed of one object.
    pub struct OfOne<K: Logged> {
        path id: K::Id,
        query place: EntryRange,
    }
}

impl<K: Logged> Operation for OfOne<K> {
    type Who = Principal;
    type Out = Entries;
    const SCOPE: &'static str = K::READ;

    async fn perform(self, cx: &Context<Principal>) -> Result<Entries, Problem> {
        let item = K::item(cx, self.id).await?;
        of_item(cx, K::SCOPE, Some(item), self.place).await
    }
}

input! {
    /// All changes in the project.
    pub struct OfProject {
        query scope: Option<String>,
        /// A list with commas.
        query scopes: Option<String>,
        query item_id: Option<String>,
        query user: Option<UserUuid>,
        query place: EntryRange,
    }
}

/// The uuid of a user; an unknown one has no entries.
#[derive(Debug)]
pub struct UserUuid(String);

impl InQuery for Option<UserUuid> {
    fn describe(name: &'static str, about: &'static str, shape: &mut Shape) {
        shape.query.push(Parameter::uuid(name).about(about));
    }

    fn take(request: &Request, name: &'static str) -> Result<Self, Problem> {
        Ok(request.query(name).map(|uuid| UserUuid(uuid.into_owned())))
    }
}

impl Operation for OfProject {
    type Who = Principal;
    type Out = Entries;
    const SCOPE: &'static str = "activity_log:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Entries, Problem> {
        let snapshot = cx.snapshot();
        let names = [self.scope.unwrap_or_default(), self.scopes.unwrap_or_default()];
        let names = names.iter().flat_map(|names| names.split(','));
        let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
        let scopes: Vec<Scope> = names.iter().filter_map(|name| Scope::parse(name)).collect();
        let user = self.user.map(|UserUuid(wanted)| {
            let known = snapshot.users().find(|user| user.uuid.to_string() == wanted);
            known.map_or(NOBODY, |user| user.id)
        });
        // No entry is of an unknown kind.
        let is_none = scopes.is_empty() && !names.is_empty();
        let user = if is_none { Some(NOBODY) } else { user };
        let asked = ActivityFilter { scopes, item: self.item_id, user };
        entries(cx, &snapshot, &asked, self.place).await
    }
}

/// No user has this id.
const NOBODY: UserId = UserId(-1);

fn entry(stored: &EntryText, snapshot: &Snapshot) -> Result<api::Entry, Problem> {
    let entry = &stored.entry;
    let user = match entry.user.and_then(|user| snapshot.user(user)) {
        Some(user) => api::Author {
            email: Some(user.email.clone()),
            first_name: user.first_name.clone(),
            id: Some(user.id.0),
            is_system: None,
            uuid: Some(user.uuid.to_string()),
        },
        None => api::Author {
            email: None,
            first_name: "System".to_owned(),
            id: None,
            is_system: Some(true),
            uuid: None,
        },
    };
    let mut members = stored.members().map_err(problem)?;
    Ok(api::Entry {
        activity: entry.activity.to_string(),
        created_at: entry.created_at.to_rfc3339(),
        detail: api::Detail {
            changes: members.remove("changes"),
            id: Some(entry.item.clone()),
            merge: (),
            name: members.remove("name"),
            short_id: (),
            trigger: members.remove("trigger"),
            r#type: (),
        },
        id: entry.id.to_string(),
        item_id: Some(entry.item.clone()),
        scope: entry.scope.to_string(),
        user,
    })
}
