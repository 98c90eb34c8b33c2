//! Deletion of persons and of their events. Each request is an operation in the log, like a split: it
//! is ordered among the events, survives a crash like an event, and is answered when it has taken
//! effect. From then on no response contains the person or the events. `deletion_status/` reports
//! when the events have left the files.

use std::borrow::Cow;

use hyper::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use crate::auth::Principal;
use crate::body::body;
use crate::call::Call;
use crate::fields::{Fields, refused};
use crate::openapi::{Description, INVALID, Parameter, by_hand};
use crate::page::Page;
use crate::request::Request;
use crate::response::{Problem, Response};
use crate::routes::persons::changes::operate;
use crate::routes::{persons, query};
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

/// Most distinct ids whose events wait to be removed from files: their state is in memory, about 100
/// bytes each. Above it, further requests are answered 503.
const PENDING_IDS_MAX: usize = 1_000_000;

/// Query values that mean no, besides an absent parameter; case-insensitive.
const NO: [&str; 8] = ["", "false", "0", "no", "f", "n", "off", "null"];

/// Result of a bulk deletion; the names are PostHog's.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "PersonsDeleted")]
struct BulkBody {
    persons_found: usize,
    persons_deleted: usize,
    events_queued_for_deletion: bool,
    recordings_queued_for_deletion: bool,
    deletion_errors: Vec<GoneBody>,
}

/// A person that was merged away, or deleted by another request, before this one was applied.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "PersonGone")]
struct GoneBody {
    person_uuid: Uuid,
}

/// One request to delete the events of a person; the names are PostHog's.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "EventDeletion")]
struct DeletionBody {
    person_uuid: Uuid,
    created_at: String,
    #[schemars(extend("enum" = ["pending", "completed"]))]
    status: &'static str,
    delete_verified_at: Option<String>,
}

/// Uuid and number of a person.
type Named = (Uuid, i64);

/// What a request deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    events: bool,
    persons: bool,
}

impl Wanted {
    /// Reads `delete_events` and `keep_person` from the query or the body. Also returns the other
    /// fields of the body.
    async fn read(request: Request) -> Result<(Self, Fields), Problem> {
        let in_query = |name: &str| is_yes(request.query(name));
        let (events, keep) = (in_query("delete_events"), in_query("keep_person"));
        let mut fields = Fields::read(request).await?;
        let sent = DeletionWrite::read(&mut fields)?;
        let events = sent.delete_events.unwrap_or(false) || events;
        let keep = sent.keep_person.unwrap_or(false) || keep;
        Ok((Self { events, persons: !keep }, fields))
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

body! {
    /// What of a person is deleted.
    struct DeletionWrite {
        /// Whether the events go too.
        delete_events: Option<bool>,
        /// Whether only the events go.
        keep_person: Option<bool>,
    }
}

fn is_yes(asked: Option<Cow<'_, str>>) -> bool {
    asked.is_some_and(|asked| !NO.iter().any(|no| asked.eq_ignore_ascii_case(no)))
}

pub(crate) const DELETE: Description =
    Description::empty("202", "Delete a person, its events, or both")
        .query(&[
            Parameter::boolean("delete_events").about("Whether the events go too"),
            Parameter::boolean("keep_person").about("Whether only the events go"),
        ])
        .optional_body::<DeletionWrite>();

/// `DELETE persons/:id/`; with `delete_events` also its events, with `keep_person` only those.
pub async fn delete(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let project = call.asker.project.id;
    let (person, _) = persons::find_one(app, project, call.id()).await?;
    let (wanted, _) = Wanted::read(call.request).await?;
    delete_one(app, &call.asker, wanted, &person).await
}

pub(crate) const DELETE_EVENTS: Description =
    Description::empty("202", "Delete the events of a person").or(&[INVALID]);

/// `POST persons/:id/delete_events/`: deletes the events and keeps the person.
pub async fn delete_events(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let project = call.asker.project.id;
    let (person, _) = persons::find_one(app, project, call.id()).await?;
    let wanted = Wanted { events: true, persons: false };
    delete_one(app, &call.asker, wanted, &person).await
}

pub(crate) const DELETE_RECORDINGS: Description =
    Description::empty("202", "Does nothing: there are no recordings").or(&[INVALID]);

/// `POST persons/:id/delete_recordings/`: Weir stores no recordings.
pub async fn delete_recordings(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    persons::find_one(app, call.asker.project.id, call.id()).await?;
    Ok(Response::empty(StatusCode::ACCEPTED))
}

/// A person that was merged away meanwhile gets a 404, as for a request a moment later. The person it
/// was merged into is not deleted, because the request did not name it.
async fn delete_one(
    app: &App,
    asker: &Principal,
    wanted: Wanted,
    person: &Person,
) -> Result<Response, Problem> {
    let gone = carry_out(app, asker, wanted, &[(person.uuid, person.number)]).await?;
    match gone.is_empty() {
        true => Ok(Response::empty(StatusCode::ACCEPTED)),
        false => Err(Problem::not_found("Not found.")),
    }
}

pub(crate) const BULK_DELETE: Description = Description::accepted::<BulkBody>("Delete persons")
    .says("What was deleted")
    .query(&[
        Parameter::boolean("delete_events").about("Whether the events go too"),
        Parameter::boolean("keep_person").about("Whether only the events go"),
    ])
    .body::<by_hand::PersonsDelete>();

/// `POST persons/bulk_delete/` with `ids`, uuids of persons, or `distinct_ids`.
pub async fn bulk_delete(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, .. } = call;
    let project = asker.project.id;
    let (wanted, mut fields) = Wanted::read(request).await?;
    let (ids, distinct_ids) = (fields.texts("ids")?, fields.exact_texts("distinct_ids")?);
    let refused = |detail: &str| Problem::new(Kind::Invalid, "invalid_input", detail.to_owned());
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
    let found = found(app, project, ids, distinct_ids).await?;
    let gone = carry_out(app, &asker, wanted, &found).await?;
    let body = BulkBody {
        persons_found: found.len(),
        persons_deleted: if wanted.persons { found.len() - gone.len() } else { 0 },
        events_queued_for_deletion: wanted.events,
        recordings_queued_for_deletion: false,
        deletion_errors: gone.into_iter().map(|person_uuid| GoneBody { person_uuid }).collect(),
    };
    Ok(Response::json(StatusCode::ACCEPTED, &body))
}

pub(crate) const STATUS: Description =
    Description::page::<DeletionBody>("What has become of deletions of events, newest first")
        .query(&[
            Parameter::one_of("status", &["pending", "completed", "all"]),
            Parameter::uuid("person_uuid"),
        ])
        .or(&[INVALID]);

/// `GET persons/deletion_status/`: the requests to delete events, newest first. `status` is
/// `pending`, `completed` or `all`; `person_uuid` selects those of one person.
pub async fn status(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, rendering, request, .. } = call;
    let wanted = match request.query("status").as_deref() {
        None | Some("" | "all") => None,
        Some("pending") => Some(false),
        Some("completed") => Some(true),
        Some(other) => {
            let detail = format!("\"{other}\" is not a valid choice.");
            return Err(refused("status", "invalid_choice", detail));
        }
    };
    let person = request.query("person_uuid").filter(|text| !text.is_empty());
    let person = person.map(|text| Uuid::try_parse(&text)).transpose();
    let person =
        person.map_err(|_| refused("person_uuid", "invalid_input", "Must be a valid UUID."))?;
    let is_wanted = move |deletion: &Deletion| {
        person.is_none_or(|person| deletion.person == person)
            && wanted.is_none_or(|done| deletion.done_at.is_some() == done)
    };
    let (page, project) = (Page::of(&request), asker.project.id);
    let read = app.engine.read(move |view, _| {
        let (mut count, mut bodies) = (0_usize, Vec::new());
        view.scan_deletions(project, |deletion| {
            if is_wanted(&deletion) {
                if count >= page.offset && bodies.len() < page.limit {
                    bodies.push(DeletionBody::of(&deletion));
                }
                count += 1;
            }
            Flow::Continue(())
        })?;
        Ok((count, bodies))
    });
    let (count, bodies) = read.await.map_err(query::problem)?;
    page.answer(app, &request, rendering, (count, bodies)).await
}

impl DeletionBody {
    fn of(deletion: &Deletion) -> Self {
        Self {
            person_uuid: deletion.person,
            created_at: deletion.asked_at.to_rfc3339(),
            status: if deletion.done_at.is_some() { "completed" } else { "pending" },
            delete_verified_at: deletion.done_at.map(UnixMicros::to_rfc3339),
        }
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
    app.engine.wait().await.map_err(query::problem)?;
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
    let Some(uuid) = read.await.map_err(query::problem)? else { return Ok(()) };
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
