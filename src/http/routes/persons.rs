//! Persons: list, export, retrieve. [`query::people`] selects the persons of a list; `body` is their JSON form.
//!
//! [`query::people`]: weir_query::persons::people

pub(in crate::routes) mod body;
pub mod changes;
pub mod deletions;
mod export;
mod question;
pub mod split;
pub mod timeline;
pub mod values;

use hyper::Method;
use serde_json::Value;
use uuid::Uuid;

use crate::auth;
use crate::auth::Principal;
use crate::beside::beside;
use crate::budget::Reservation;
use crate::openapi::Shape;
use crate::operation::input::{Needed, input};
use crate::operation::output::{Items, Long, Never, Output, PageRows, Paged, Reply};
use crate::operation::{Context, Operation};
use crate::page::Page;
use crate::response::{Problem, Response};
use crate::routes::activity::Logged;
use crate::routes::cohorts;
use crate::routes::persons::body::{listed, retrieved};
use crate::routes::persons::export::Export;
pub(in crate::routes) use crate::routes::persons::question::Filters;
use crate::routes::query::problems;
use crate::routes::store::problem;
use crate::rows::{Added, LONG_PAGE_MAX_BYTES};
use weir_api::persons as api;
use weir_app::App;
use weir_base::error::Kind;
use weir_event::id::ProjectId;
use weir_identity::IdentityError;
use weir_identity::person::Person;
use weir_identity::view::Flow;
use weir_metadata::activity::Scope;

/// Most distinct ids of one person in a list (PostHog's figure).
const LISTED_IDS_MAX: usize = 1000;

/// Allowed methods of `persons/`.
const ALLOW: &str = "GET, HEAD, OPTIONS";

input! {
    /// Persons, newest first. A file contains the whole list, whatever page is requested.
    pub struct List {
        query filters: Filters,
        query page: Page,
    }
}

/// A page of a list of persons, or all of them as a file.
#[derive(Debug)]
pub enum Persons {
    /// A page.
    Page(Paged<api::Person>),
    /// A file.
    File(Export),
}

impl Persons {
    /// The page; for callers that did not request a file.
    ///
    /// # Errors
    ///
    /// 406 if it is a file.
    pub fn page(self) -> Result<Paged<api::Person>, Problem> {
        match self {
            Self::Page(page) => Ok(page),
            Self::File(_) => Err(Problem::not_acceptable()),
        }
    }
}

impl Items for Persons {
    fn into_items(self, held: &mut Reservation) -> Result<Vec<Value>, Problem> {
        self.page()?.into_items(held)
    }

    fn has_next(&self) -> bool {
        match self {
            Self::Page(page) => page.has_next(),
            Self::File(_) => false,
        }
    }
}

impl Output for Persons {
    fn describe(shape: &mut Shape) {
        Paged::<api::Person>::describe(shape);
    }

    async fn respond(self, reply: &Reply<'_>) -> Result<Response, Problem> {
        match self {
            Self::Page(page) => page.respond(reply).await,
            Self::File(file) => Ok(file.respond()),
        }
    }
}

impl Operation for List {
    type Who = Principal;
    type Out = Persons;
    const SCOPE: &'static str = "person:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let Self { filters, page } = self;
        let (app, project) = (&cx.app, &cx.who.project);
        let now = cx.snapshot().now(project.id, app.node.clock.now());
        let changed_after = filters.changed_after(now)?;
        let mut question = filters.question;
        question.in_cohort = Some(cohorts::memberships(app, project.id));
        if let Some(after) = changed_after {
            // The arrival time of a record is stored before the record takes effect.
            app.engine.wait().await.map_err(problems::problem)?;
            question.changed_since =
                Some(cx.app.shard.metadata.records_since(after).await.map_err(problem)?);
        }
        if let Some(format) = cx.rendering.format() {
            return Export::of(cx, question, format).await.map(Persons::File);
        }
        let found = app.engine.find_persons(project.id, question, page.part()).await;
        let found = found.map_err(problems::problem)?;
        let (count, project) = (found.count, project.clone());
        let mut rows: PageRows<api::Person> = cx.rows(LONG_PAGE_MAX_BYTES);
        let read = app.engine.read(move |_, _| {
            let mut written = Ok(());
            found.each(LISTED_IDS_MAX, |person, ids| {
                match rows.add(listed(&project, person, ids)) {
                    Ok(Added::Yes) => Flow::Continue(()),
                    Ok(Added::PageIsFull) => Flow::Break(()),
                    Err(problem) => {
                        written = Err(problem);
                        Flow::Break(())
                    }
                }
            })?;
            Ok(written.map(|()| rows))
        });
        let rows = read.await.map_err(problems::problem)??;
        Ok(Persons::Page(Paged { page, count, rows }))
    }
}

input! {
    /// Refused: persons are made by events such as `$identify`.
    pub struct Create {}
}

impl Operation for Create {
    type Who = Principal;
    type Out = Never;
    const SCOPE: &'static str = "person:write";

    /// Refuses with PostHog's text, which names the alternative.
    async fn perform(self, _: &Context<Principal>) -> Result<Never, Problem> {
        let detail = "Creating persons via this API is not allowed. Please create persons by sending an \
                      $identify event.";
        Err(Problem::method_not_allowed(&Method::POST, ALLOW).with_detail(detail))
    }
}

input! {
    /// One person, by number or uuid.
    pub struct Retrieve {
        path id: String,
    }
}

impl Operation for Retrieve {
    type Who = Principal;
    type Out = Long<api::Person>;
    const SCOPE: &'static str = "person:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let project = &cx.who.project;
        let (person, ids) = find_one(&cx.app, project.id, &self.id).await?;
        Ok(Long(retrieved(project, person, ids)))
    }
}

input! {
    /// The cohorts that contain a person.
    pub struct Cohorts {
        /// The number or the uuid of the person
        query person_id: Needed,
    }
}

impl Operation for Cohorts {
    type Who = Principal;
    type Out = Long<api::Cohorts>;
    const SCOPE: &'static str = "person:read";

    fn permit(who: &Principal) -> Result<(), Problem> {
        auth::require(&who.key, "cohort:read")
    }

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (app, project, Needed(id)) = (&cx.app, cx.who.project.id, self.person_id);
        let (person, _) = find_one(app, project, &id).await?;
        let (snapshot, is_member) = (cx.snapshot(), cohorts::memberships(app, project));
        let view = app.shard.identities.view();
        let look = move || {
            let all = snapshot.cohorts(project).iter();
            let own = all.filter(|cohort| is_member(&view, cohort.id.0, &person));
            let results = own.map(|cohort| cohorts::shown(cohort, &snapshot)).collect();
            Ok(Long(api::Cohorts { results }))
        };
        beside(&app.node.cpu, look).await
    }
}

/// The activity log has only those changes of persons that operators made, also of deleted persons.
impl Logged for Person {
    const SCOPE: Scope = Scope::Person;
    const READ: &'static str = "person:read";
    type Id = String;

    async fn item(cx: &Context<Principal>, id: String) -> Result<String, Problem> {
        let (person, _) = find_one(&cx.app, cx.who.project.id, &id).await?;
        Ok(person.number.to_string())
    }
}

/// One person by number or uuid, with all distinct ids, as of every event acknowledged so far.
async fn find_one(
    app: &App,
    project: ProjectId,
    id: &str,
) -> Result<(Person, Vec<String>), Problem> {
    app.engine.wait().await.map_err(problems::problem)?;
    let view = app.shard.identities.view();
    let person = match (id.parse::<i64>(), Uuid::try_parse(id)) {
        (Ok(number), _) => view.person_by_number(project, number),
        (_, Ok(uuid)) => view.person_by_uuid(project, uuid),
        // Longer than any number of a person.
        _ if is_integer(id) => Ok(None),
        _ => return Err(not_an_id()),
    };
    let failed = |error: IdentityError| Problem::of(error.kind(), &error);
    let person = person.map_err(failed)?.ok_or_else(|| Problem::not_found("Not found."))?;
    let ids = view.distinct_ids(project, person.uuid).map_err(failed)?;
    Ok((person, ids))
}

fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn not_an_id() -> Problem {
    let detail = "The ID provided does not look like a personID. If you are using a distinctId, \
                  please use /persons?distinct_id=<id> instead.";
    Problem::new(Kind::Invalid, "invalid_input", detail)
}
