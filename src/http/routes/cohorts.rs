//! Cohort management: list, create, retrieve, change, members. `metadata` validates rules, `flags` evaluates
//! membership.
//!
//! The size of a cohort with a rule is counted after each change, in the background, and at intervals
//! (`maintenance`); later responses contain it. A cohort is deleted by setting `deleted`; DELETE is refused.

mod body;
mod upload;

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use uuid::Uuid;

use crate::auth;
use crate::auth::Principal;
use crate::beside::beside;
use crate::fields::refused;
use crate::openapi::{AnyObject, Parameter, Shape};
use crate::operation::input::{InQuery, Named, New, Shared, input, part};
use crate::operation::output::{Created, Never, PageRows, Paged};
use crate::operation::{Context, Operation};
use crate::page::Page;
use crate::request::Request;
use crate::response::Problem;
use crate::routes::activity::Logged;
use crate::routes::cohorts::body::member;
pub(in crate::routes) use crate::routes::cohorts::body::{
    Change, CohortWrite, Description, Persons, Rule, shown,
};
use crate::routes::query::problems;
use crate::routes::store::problem;
use crate::routes::{feature_flags, store};
use crate::rows::{Added, LONG_PAGE_MAX_BYTES, PAGE_MAX_BYTES};
use weir_api::cohorts as api;
use weir_app::App;
use weir_base::error::Kind;
use weir_evaluation::membership;
use weir_event::id::ProjectId;
use weir_identity::IdentityError;
use weir_insights::audience;
use weir_metadata::Metadata;
use weir_metadata::accounts::UserId;
use weir_metadata::activity::Scope;
use weir_metadata::cohorts::{CohortId, NewCohort, StoredCohort};
use weir_metadata::error::MetadataError;
use weir_query::filter::subject::InCohort;

input! {
    /// Cohorts that are not deleted, newest first.
    pub struct List {
        query search: Shared,
        query kind: Option<IsStatic>,
        query page: Page,
    }
}

/// `type`: `static`, or another text for cohorts with a rule.
#[derive(Clone, Copy, Debug)]
pub struct IsStatic(pub bool);

impl InQuery for Option<IsStatic> {
    fn describe(_: &'static str, _: &'static str, shape: &mut Shape) {
        shape.query.push(Parameter::one_of("type", &["static", "dynamic"]));
    }

    fn take(request: &Request, _: &'static str) -> Result<Self, Problem> {
        Ok(request.query("type").map(|kind| IsStatic(kind == "static")))
    }
}

impl Operation for List {
    type Who = Principal;
    type Out = Paged<api::Cohort>;
    const SCOPE: &'static str = "cohort:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let Self { search: Shared(search), kind, page } = self;
        let (snapshot, search) = (cx.snapshot(), search.to_lowercase());
        let is_wanted = |cohort: &&Arc<StoredCohort>| {
            kind.is_none_or(|IsStatic(wanted)| wanted == cohort.is_static)
                && cohort.name.to_lowercase().contains(&search)
        };
        let all = snapshot.cohorts(cx.who.project.id).iter();
        let found: Vec<Arc<StoredCohort>> = all.filter(is_wanted).map(Arc::clone).collect();
        let (count, users) = (found.len(), Arc::clone(&snapshot));
        let part = found.into_iter().skip(page.offset).take(page.limit);
        let rows = part.map(move |cohort| shown(&cohort, &users));
        cx.paged(page, count, PAGE_MAX_BYTES, rows).await
    }
}

input! {
    /// Makes a cohort. A static one may have its first members, as uuids of persons, as distinct ids, or in a file.
    pub struct Create {
        body cohort: New<Change>,
    }
}

impl Operation for Create {
    type Who = Principal;
    type Out = Created<api::Cohort>;
    const SCOPE: &'static str = "cohort:write";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let New(Change { fields, csv }) = self.cohort;
        let (project, snapshot) = (cx.who.project.id, cx.snapshot());
        let is_static = fields.is_static.unwrap_or_default();
        let (values, named) = fields.parts();
        let mut members = persons(&cx.app, project, named).await?;
        if let Some(csv) = csv {
            require_static(is_static)?;
            members.extend(upload::persons(&cx.app, project, csv).await?);
        }
        let new = NewCohort { values, is_static, members };
        let cohort = add(&cx.app, project, cx.user(), new).await?.map_err(problem)?;
        Ok(Created(shown(&cohort, &snapshot)))
    }
}

/// Stores a new cohort and starts its count. The caller maps errors of the store.
pub(super) async fn add(
    app: &App,
    project: ProjectId,
    user: UserId,
    new: NewCohort,
) -> Result<Result<Arc<StoredCohort>, MetadataError>, Problem> {
    let metadata = app.node.metadata.clone();
    let write = async move { metadata.create_cohort(project, user, new).await };
    let cohort = store::attempt(app, "create-cohort", write).await?;
    if let Ok(cohort) = &cohort {
        begin_count(app, cohort);
    }
    Ok(cohort)
}

input! {
    /// One cohort, deleted or not.
    pub struct Retrieve {
        path id: i64,
    }
}

impl Operation for Retrieve {
    type Who = Principal;
    type Out = api::Cohort;
    const SCOPE: &'static str = "cohort:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let snapshot = cx.snapshot();
        Ok(shown(&*find(cx, CohortId(self.id)).await?, &snapshot))
    }
}

input! {
    /// Changes a cohort.
    pub struct Update {
        path id: i64,
        body change: Change,
    }
}

impl Operation for Update {
    type Who = Principal;
    type Out = api::Cohort;
    const SCOPE: &'static str = "cohort:write";

    async fn look_up(cx: &Context<Principal>, path: &Named) -> Result<(), Problem> {
        look_up(cx, path).await
    }

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (id, Change { fields, csv }) = (CohortId(self.id), self.change);
        let (snapshot, before) = (cx.snapshot(), find(cx, id).await?);
        let (project, user, (patch, _)) = (cx.who.project.id, cx.user(), fields.parts());
        let is_another_rule = patch.filters.is_some() || patch.deleted == Some(false);
        let added = match csv {
            Some(csv) => {
                require_static(before.is_static)?;
                Some(upload::persons(&cx.app, project, csv).await?)
            }
            None => None,
        };
        let write = |metadata: Metadata| async move {
            metadata.update_cohort(project, user, id, patch).await
        };
        let mut cohort = cx.write("update-cohort", write).await?;
        if let Some(added) = added.filter(|_| !cohort.deleted) {
            cohort = with_members(cx, id, added, Vec::new()).await?;
        }
        if is_another_rule {
            begin_count(&cx.app, &cohort);
        }
        Ok(shown(&cohort, &snapshot))
    }
}

input! {
    /// Changes a cohort by `PUT`, which keeps what the body does not have, too.
    pub struct Replace {
        path id: i64,
        body change: New<Change>,
    }
}

impl Operation for Replace {
    type Who = Principal;
    type Out = api::Cohort;
    const SCOPE: &'static str = "cohort:write";

    async fn look_up(cx: &Context<Principal>, path: &Named) -> Result<(), Problem> {
        look_up(cx, path).await
    }

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        Update { id: self.id, change: self.change.0 }.perform(cx).await
    }
}

/// Changes the members of a static cohort.
async fn with_members(
    cx: &Context<Principal>,
    id: CohortId,
    added: Vec<Uuid>,
    removed: Vec<Uuid>,
) -> Result<Arc<StoredCohort>, Problem> {
    let (project, user) = (cx.who.project.id, cx.user());
    let write = |metadata: Metadata| async move {
        metadata.change_members(project, user, id, &added, &removed).await
    };
    cx.write("change-members", write).await
}

/// Checks that the cohort of a path exists.
async fn look_up(cx: &Context<Principal>, path: &Named) -> Result<(), Problem> {
    find(cx, CohortId(part::<i64>(path, "id")?)).await.map(drop)
}

async fn find(cx: &Context<Principal>, id: CohortId) -> Result<Arc<StoredCohort>, Problem> {
    cx.metadata().cohort(cx.who.project.id, id).await.map_err(problem)
}

/// Refuses a file with a list of persons for a cohort that is not static.
fn require_static(is_static: bool) -> Result<(), Problem> {
    if is_static {
        return Ok(());
    }
    let detail = "Only a static cohort takes a list of persons; send is_static.";
    Err(refused("csv", "invalid_input", detail))
}

input! {
    /// Refused: a cohort is deleted by setting `deleted`.
    pub struct Delete {}
}

impl Operation for Delete {
    type Who = Principal;
    type Out = Never;
    const SCOPE: &'static str = "cohort:write";

    async fn perform(self, _: &Context<Principal>) -> Result<Never, Problem> {
        Err(feature_flags::delete_refused())
    }
}

input! {
    /// Adds persons to a static cohort.
    pub struct AddMembers {
        path id: i64,
        body persons: Persons,
    }
}

impl Operation for AddMembers {
    type Who = Principal;
    type Out = AnyObject;
    const SCOPE: &'static str = "cohort:write";

    async fn look_up(cx: &Context<Principal>, path: &Named) -> Result<(), Problem> {
        look_up(cx, path).await
    }

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let added = some_persons(cx, self.persons, "person_ids is required").await?;
        with_members(cx, CohortId(self.id), added, Vec::new()).await?;
        Ok(AnyObject::new())
    }
}

input! {
    /// Removes persons from a static cohort.
    pub struct RemoveMembers {
        path id: i64,
        body persons: Persons,
    }
}

impl Operation for RemoveMembers {
    type Who = Principal;
    type Out = AnyObject;
    const SCOPE: &'static str = "cohort:write";

    async fn look_up(cx: &Context<Principal>, path: &Named) -> Result<(), Problem> {
        look_up(cx, path).await
    }

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let removed = some_persons(cx, self.persons, "person_id is required").await?;
        with_members(cx, CohortId(self.id), Vec::new(), removed).await?;
        Ok(AnyObject::new())
    }
}

/// The uuids of the named persons; refused with `detail` if none is named.
async fn some_persons(
    cx: &Context<Principal>,
    named: Persons,
    detail: &'static str,
) -> Result<Vec<Uuid>, Problem> {
    if named.is_empty() {
        return Err(Problem::new(Kind::Invalid, "invalid_input", detail));
    }
    persons(&cx.app, cx.who.project.id, named).await
}

input! {
    /// One page of the members, found by a scan.
    pub struct Members {
        path id: i64,
        query page: Page,
    }
}

impl Operation for Members {
    type Who = Principal;
    type Out = Paged<api::Member>;
    const SCOPE: &'static str = "cohort:read";

    /// The response contains persons.
    fn permit(who: &Principal) -> Result<(), Problem> {
        auth::require(&who.key, "person:read")
    }

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (snapshot, page) = (cx.snapshot(), self.page);
        let (project, id) = (cx.who.project.id, CohortId(self.id));
        snapshot.cohort(project, id).ok_or_else(|| Problem::not_found("Not found."))?;
        let set = snapshot.cohort_set(project).cloned().unwrap_or_default();
        let now = snapshot.now(project, cx.app.node.clock.now());
        let is_inside = membership::membership(set, project, id, now);
        let rows: PageRows<api::Member> = cx.rows(LONG_PAGE_MAX_BYTES);
        let collector = Arc::new(Mutex::new((0, Ok((rows, Added::Yes)))));
        let collected = Arc::clone(&collector);
        let visited = audience::visit_persons(&cx.app.engine, project, move |view, person| {
            if !is_inside(view, person) {
                return;
            }
            let mut collected = collected.lock();
            let place = collected.0;
            collected.0 += 1;
            if place >= page.offset
                && place - page.offset < page.limit
                && let Ok((rows, added @ Added::Yes)) = &mut collected.1
            {
                let ids = view.distinct_ids(project, person.uuid).unwrap_or_default();
                match rows.add(member(person, ids)) {
                    Ok(now) => *added = now,
                    Err(problem) => collected.1 = Err(problem),
                }
            }
        });
        visited.await.map_err(problems::problem)?;
        let none = (0, Err(Problem::not_found("Not found.")));
        let (count, rows) = std::mem::replace(&mut *collector.lock(), none);
        Ok(Paged { page, count, rows: rows?.0 })
    }
}

/// Tests membership in the current cohorts, as flags evaluate it. An unknown cohort has no members.
pub(super) fn memberships(app: &App, project: ProjectId) -> InCohort {
    let snapshot = app.node.metadata.snapshot();
    let set = snapshot.cohort_set(project).cloned().unwrap_or_default();
    Box::new(membership::memberships(set, project, snapshot.now(project, app.node.clock.now())))
}

impl Logged for StoredCohort {
    const SCOPE: Scope = Scope::Cohort;
    const READ: &'static str = "cohort:read";
    type Id = i64;

    async fn item(cx: &Context<Principal>, id: i64) -> Result<String, Problem> {
        Ok(find(cx, CohortId(id)).await?.id.to_string())
    }
}

/// Counts the members of a cohort with a rule in the background.
fn begin_count(app: &App, cohort: &StoredCohort) {
    let (project, id) = (cohort.project, cohort.id);
    if cohort.is_static || cohort.deleted {
        return;
    }
    let engine = app.engine.clone();
    app.node.tasks.0.spawn("count-cohort", async move {
        if let Err(error) = weir_insights::cohorts::recount(&engine, project, id).await {
            tracing::warn!(cohort = id.0, %error, "the size of a cohort was not noted");
        }
    });
}

/// The uuids of the named persons. Unknown persons are ignored.
async fn persons(app: &App, project: ProjectId, named: Persons) -> Result<Vec<Uuid>, Problem> {
    if named.is_empty() {
        return Ok(Vec::new());
    }
    app.engine.wait().await.map_err(problems::problem)?;
    let view = app.shard.identities.view();
    let uuids: BTreeSet<Uuid> = named.uuids.into_iter().collect();
    let distinct_ids: BTreeSet<String> = named.distinct_ids.into_iter().collect();
    let look_up = move || -> Result<Vec<Uuid>, IdentityError> {
        let mut persons = BTreeSet::new();
        for uuid in uuids {
            persons.extend(view.person_by_uuid(project, uuid)?.map(|person| person.uuid));
        }
        for distinct_id in distinct_ids {
            persons.extend(view.person_of(project, &distinct_id)?.map(|person| person.uuid));
        }
        Ok(persons.into_iter().collect())
    };
    let failed = |error: IdentityError| Problem::of(error.kind(), &error);
    beside(&app.node.cpu, move || look_up().map_err(failed)).await
}
