//! Deletion of persons and of their events. Each request is an operation in the log, like a split: it
//! is ordered among the events, survives a crash like an event, and is answered when it has taken
//! effect. From then on no response contains the person or the events. `deletion_status/` reports
//! when the events have left the files.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::auth::Principal;
use crate::body::{Field, body};
use crate::fields::{Fields, not_a_choice, refused};
use crate::openapi::{Body, Parameter, Shape};
use crate::operation::input::{InBody, InQuery, input};
use crate::operation::output::{Accepted, Listed, Taken};
use crate::operation::{Context, Operation};
use crate::page::Page;
use crate::request::Request;
use crate::response::Problem;
use crate::routes::persons;
use crate::routes::persons::changes::operate;
use crate::routes::query::problems;
use weir_api::persons as api;
use weir_app::App;
use weir_base::clock::UnixMicros;
use weir_base::error::Kind;
use weir_event::id::ProjectId;
use weir_identity::IdentityError;
use weir_identity::change::OPERATION_MAX_IDS;
use weir_identity::deletions::Deletion;
use weir_identity::person::Person;
use weir_identity::view::Flow;
use weir_ingest::operation::Action;

/// Most persons that one request may delete (PostHog's figure).
const BULK_MAX: usize = 1000;

/// Most distinct ids whose events wait to be removed from files: their state is in memory, about 100 bytes each. Above
/// it, further requests are answered 503.
const PENDING_IDS_MAX: usize = 1_000_000;

/// Query values that mean no, besides an absent parameter; case-insensitive.
const NO: [&str; 8] = ["", "false", "0", "no", "f", "n", "off", "null"];

/// Uuid and number of a person.
type Named = (Uuid, i64);

/// What a request deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    events: bool,
    persons: bool,
}

impl Wanted {
    /// Combines the flags of the query and the body: each applies if either sets it.
    fn of(query: (IsYes, IsYes), body: &DeletionWrite) -> Self {
        let (IsYes(events), IsYes(keep)) = query;
        let events = body.delete_events.unwrap_or(false) || events;
        let keep = body.keep_person.unwrap_or(false) || keep;
        Self { events, persons: !keep }
    }

    /// The operation for these persons; `None` if there is nothing to delete.
    fn action(self, wanted: &[Named]) -> Option<Action> {
        let persons: Vec<String> = wanted.iter().map(|(uuid, _)| uuid.to_string()).collect();
        match self {
            _ if persons.is_empty() => None,
            Self { events: true, persons: also } => {
                Some(Action::DeleteEvents { persons, keep_persons: !also })
            }
            Self { events: false, persons: true } => Some(Action::DeletePersons { persons }),
            Self { events: false, persons: false } => None,
        }
    }
}

/// Whether a parameter is given, and its value is none of `NO`.
#[derive(Clone, Copy, Debug, Default)]
pub struct IsYes(pub bool);

impl InQuery for IsYes {
    fn describe(name: &'static str, about: &'static str, shape: &mut Shape) {
        shape.query.push(Parameter::boolean(name).about(about));
    }

    fn take(request: &Request, name: &'static str) -> Result<Self, Problem> {
        let is_yes = |asked: &str| !NO.iter().any(|no| asked.eq_ignore_ascii_case(no));
        Ok(Self(request.query(name).is_some_and(|asked| is_yes(&asked))))
    }
}

body! {
    /// What of a person is deleted.
    #[derive(Default)]
    pub struct DeletionWrite {
        /// Whether the events go too.
        delete_events: Option<bool>,
        /// Whether only the events go.
        keep_person: Option<bool>,
    }
}

input! {
    /// Deletes a person; with `delete_events` also its events, with `keep_person` only those.
    pub struct Delete {
        path id: String,
        /// Whether the events go too
        query delete_events: IsYes,
        /// Whether only the events go
        query keep_person: IsYes,
        body deletion: DeletionWrite,
    }
}

impl Operation for Delete {
    type Who = Principal;
    type Out = Taken;
    const SCOPE: &'static str = "person:write";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (person, _) = persons::find_one(&cx.app, cx.who.project.id, &self.id).await?;
        let query = (self.delete_events, self.keep_person);
        delete_one(cx, Wanted::of(query, &self.deletion), &person).await
    }
}

input! {
    /// Deletes the events of a person, and keeps the person.
    pub struct DeleteEvents {
        path id: String,
    }
}

impl Operation for DeleteEvents {
    type Who = Principal;
    type Out = Taken;
    const SCOPE: &'static str = "person:write";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (person, _) = persons::find_one(&cx.app, cx.who.project.id, &self.id).await?;
        delete_one(cx, Wanted { events: true, persons: false }, &person).await
    }
}

input! {
    /// Does nothing: Weir stores no recordings.
    pub struct DeleteRecordings {
        path id: String,
    }
}

impl Operation for DeleteRecordings {
    type Who = Principal;
    type Out = Taken;
    const SCOPE: &'static str = "person:write";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        persons::find_one(&cx.app, cx.who.project.id, &self.id).await?;
        Ok(Taken)
    }
}

/// A person that was merged away meanwhile gets a 404, as for a request a moment later. The person it
/// was merged into is not deleted, because the request did not name it.
async fn delete_one(
    cx: &Context<Principal>,
    wanted: Wanted,
    person: &Person,
) -> Result<Taken, Problem> {
    let gone = carry_out(&cx.app, &cx.who, wanted, &[(person.uuid, person.number)]).await?;
    match gone.is_empty() {
        true => Ok(Taken),
        false => Err(Problem::not_found("Not found.")),
    }
}

/// Distinct ids, with their white space.
#[derive(Debug)]
pub struct DistinctIds(Vec<String>);

impl Field for Option<DistinctIds> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        Ok(fields.exact_texts(name)?.map(DistinctIds))
    }

    fn schema() -> Value {
        json!({"type": "array", "items": {"type": "string"}})
    }
}

body! {
    /// Which persons are deleted, and what of them.
    struct PersonsDelete {
        /// Whether their events go too
        delete_events: Option<bool>,
        /// Whether only the events go
        keep_person: Option<bool>,
        /// Not beside distinct_ids
        ids: Option<Vec<String>> = {
            "items": {"type": "string", "format": "uuid"}, "maxItems": BULK_MAX,
        },
        /// Not beside ids
        distinct_ids: Option<DistinctIds> = {"maxItems": BULK_MAX},
    }
}

/// The parsed body: what is deleted, and the persons.
#[derive(Debug)]
pub struct Bulk {
    deletion: DeletionWrite,
    ids: Vec<String>,
    distinct_ids: Vec<String>,
}

impl InBody for Bulk {
    fn describe(shape: &mut Shape) {
        shape.body = Some(Body::of::<PersonsDelete>(true));
    }

    fn take(fields: &mut Fields) -> Result<Self, Problem> {
        let read = PersonsDelete::read(fields)?;
        let PersonsDelete { delete_events, keep_person, ids, distinct_ids } = read;
        let distinct_ids = distinct_ids.map(|DistinctIds(ids)| ids);
        let refused =
            |detail: &str| Problem::new(Kind::Invalid, "invalid_input", detail.to_owned());
        let (ids, distinct_ids) = match (ids, distinct_ids) {
            (Some(_), Some(_)) => {
                return Err(refused("You must provide either distinct_ids or ids, not both"));
            }
            (None, None) => return Err(refused("You need to specify either distinct_ids or ids")),
            (Some(ids), None) if ids.len() > BULK_MAX => {
                return Err(refused("You can only pass 1000 ids in one call"));
            }
            (None, Some(ids)) if ids.len() > BULK_MAX => {
                return Err(refused("You can only pass 1000 distinct_ids in one call"));
            }
            (ids, distinct_ids) => (ids.unwrap_or_default(), distinct_ids.unwrap_or_default()),
        };
        let deletion = DeletionWrite { delete_events, keep_person };
        Ok(Self { deletion, ids, distinct_ids })
    }
}

input! {
    /// Deletes the persons with these uuids, or with these distinct ids.
    pub struct BulkDelete {
        /// Whether the events go too
        query delete_events: IsYes,
        /// Whether only the events go
        query keep_person: IsYes,
        body persons: Bulk,
    }
}

impl Operation for BulkDelete {
    type Who = Principal;
    type Out = Accepted<api::Deleted>;
    const SCOPE: &'static str = "person:write";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let Bulk { deletion, ids, distinct_ids } = self.persons;
        let wanted = Wanted::of((self.delete_events, self.keep_person), &deletion);
        let found = found(&cx.app, cx.who.project.id, ids, distinct_ids).await?;
        let gone = carry_out(&cx.app, &cx.who, wanted, &found).await?;
        let persons_deleted = if wanted.persons { found.len() - gone.len() } else { 0 };
        let gone = gone.into_iter().map(|uuid| api::Gone { person_uuid: uuid.to_string() });
        Ok(Accepted(api::Deleted {
            persons_found: found.len(),
            persons_deleted,
            events_queued_for_deletion: wanted.events,
            recordings_queued_for_deletion: false,
            deletion_errors: gone.collect(),
        }))
    }
}

input! {
    /// The requests to delete events, newest first.
    pub struct Status {
        query status: IsDone,
        query person_uuid: Option<PersonUuid>,
        query page: Page,
    }
}

/// Whether deletions are completed; `None` for all.
#[derive(Clone, Copy, Debug, Default)]
pub struct IsDone(pub Option<bool>);

impl InQuery for IsDone {
    fn describe(name: &'static str, _: &'static str, shape: &mut Shape) {
        shape.query.push(Parameter::one_of(name, &["pending", "completed", "all"]));
    }

    fn take(request: &Request, name: &'static str) -> Result<Self, Problem> {
        match request.query(name).as_deref() {
            None | Some("" | "all") => Ok(Self(None)),
            Some("pending") => Ok(Self(Some(false))),
            Some("completed") => Ok(Self(Some(true))),
            Some(other) => Err(not_a_choice(name, other)),
        }
    }
}

/// The uuid of a person.
#[derive(Clone, Copy, Debug)]
pub struct PersonUuid(pub Uuid);

impl InQuery for Option<PersonUuid> {
    fn describe(name: &'static str, _: &'static str, shape: &mut Shape) {
        shape.query.push(Parameter::uuid(name));
    }

    fn take(request: &Request, name: &'static str) -> Result<Self, Problem> {
        let text = request.query(name).filter(|text| !text.is_empty());
        let uuid = text.map(|text| Uuid::try_parse(&text).map(PersonUuid)).transpose();
        uuid.map_err(|_| refused(name, "invalid_input", "Must be a valid UUID."))
    }
}

impl Operation for Status {
    type Who = Principal;
    type Out = Listed<api::EventDeletion>;
    const SCOPE: &'static str = "person:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let Self { status: IsDone(wanted), person_uuid, page } = self;
        let is_wanted = move |deletion: &Deletion| {
            person_uuid.is_none_or(|PersonUuid(person)| deletion.person == person)
                && wanted.is_none_or(|done| deletion.done_at.is_some() == done)
        };
        let project = cx.who.project.id;
        let read = cx.app.engine.read(move |view, _| {
            let (mut count, mut results) = (0_usize, Vec::new());
            view.scan_deletions(project, |deletion| {
                if is_wanted(&deletion) {
                    if count >= page.offset && results.len() < page.limit {
                        results.push(shown(&deletion));
                    }
                    count += 1;
                }
                Flow::Continue(())
            })?;
            Ok((count, results))
        });
        let (count, results) = read.await.map_err(problems::problem)?;
        Ok(Listed { page, count, results })
    }
}

/// A deletion as clients get it.
fn shown(deletion: &Deletion) -> api::EventDeletion {
    let status = if deletion.done_at.is_some() { "completed" } else { "pending" };
    api::EventDeletion {
        person_uuid: deletion.person.to_string(),
        created_at: deletion.asked_at.to_rfc3339(),
        status: status.to_owned(),
        delete_verified_at: deletion.done_at.map(UnixMicros::to_rfc3339),
    }
}

/// The persons that a request names, by uuid or by distinct id, deduplicated; unknown ones are
/// ignored.
async fn found(
    app: &App,
    project: ProjectId,
    ids: Vec<String>,
    distinct_ids: Vec<String>,
) -> Result<Vec<Named>, Problem> {
    app.engine.wait().await.map_err(problems::problem)?;
    let view = app.shard.identities.view();
    let failed = |error: IdentityError| Problem::of(error.kind(), &error);
    let mut found = Vec::new();
    for id in ids {
        let uuid = Uuid::try_parse(&id)
            .map_err(|_| refused("ids", "invalid_input", "Must be a valid UUID."))?;
        found.extend(view.person_by_uuid(project, uuid).map_err(failed)?);
    }
    for id in distinct_ids {
        found.extend(view.person_of(project, &id).map_err(failed)?);
    }
    let mut found: Vec<Named> = found.iter().map(|person| (person.uuid, person.number)).collect();
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// An error for persons with more distinct ids than one operation may change.
pub(super) async fn check_ids(
    app: &App,
    project: ProjectId,
    persons: &[Named],
) -> Result<(), Problem> {
    let persons = persons.to_vec();
    let read = app.engine.read(move |view, _| {
        for (uuid, number) in persons {
            if view.count_ids(project, number, OPERATION_MAX_IDS + 1)? > OPERATION_MAX_IDS {
                return Ok(Some(uuid));
            }
        }
        Ok(None)
    });
    let Some(uuid) = read.await.map_err(problems::problem)? else { return Ok(()) };
    let detail = format!(
        "Person {uuid} has more than {OPERATION_MAX_IDS} distinct ids, too many to be deleted or split."
    );
    Err(Problem::new(Kind::Invalid, "too_many_distinct_ids", detail))
}

/// Runs the operation, and returns the persons that no longer existed.
async fn carry_out(
    app: &App,
    asker: &Principal,
    wanted: Wanted,
    persons: &[Named],
) -> Result<Vec<Uuid>, Problem> {
    let Some(action) = wanted.action(persons) else { return Ok(Vec::new()) };
    if wanted.events && app.shard.identities.deletions().ids() >= PENDING_IDS_MAX {
        let detail = "Too many deletions of events are under way.";
        return Err(Problem::new(Kind::Overloaded, "overloaded", detail));
    }
    check_ids(app, asker.project.id, persons).await?;
    let deleted = operate(app, asker, action, persons.len()).await?;
    let gone = persons.iter().filter(|(_, number)| !deleted.contains(number));
    Ok(gone.map(|(uuid, _)| *uuid).collect())
}
