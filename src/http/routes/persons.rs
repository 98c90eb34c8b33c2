//! Persons: list, export, retrieve. [`query::people`] finds the persons of a list; `body` is their
//! JSON form.
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

use hyper::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use crate::auth::Principal;
use crate::beside::beside;
use crate::call::{Call, Rendering};
use crate::fields::refused;
use crate::openapi::{Description, INVALID, Parameter};
use crate::page::Page;
use crate::response::{Problem, Response};
use crate::routes::persons::body::PersonBody;
use crate::routes::store::problem;
use crate::routes::{activity, cohorts, query};
use crate::rows::{Added, LONG_PAGE_MAX_BYTES, Rows};
use crate::{auth, csv};
use weir_app::App;
use weir_base::error::Kind;
use weir_event::id::ProjectId;
use weir_identity::IdentityError;
use weir_identity::person::Person;
use weir_identity::view::Flow;
use weir_metadata::activity::Scope;
use weir_query::persons::people::Part;

/// Most distinct ids of one person in a list (PostHog's figure).
const LISTED_IDS_MAX: usize = 1000;

/// Allowed methods of `persons/`.
const ALLOW: &str = "GET, HEAD, OPTIONS";

pub(crate) const LIST: Description = Description::page::<PersonBody>("Persons, newest first")
    .query(&[
        Parameter::shared("distinct_id"),
        Parameter::text("email"),
        Parameter::shared("search"),
        Parameter::texts("properties")
            .about("A JSON list of property filters; may be repeated, and all have to hold"),
        Parameter::integer("cohort"),
        Parameter::text("id").about("Numbers with commas between"),
        Parameter::text("uuid").about("Uuids with commas between"),
        Parameter::text("key_identifier").about("The email or a distinct id"),
        Parameter::boolean("is_identified"),
        Parameter::text("updated_after")
            .about("A date and time, or a span such as -7d; to the minute"),
    ])
    .or(&[INVALID]);

/// `GET persons/`: newest first. CSV contains the whole list, whatever page is requested.
pub async fn list(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, rendering, request, .. } = call;
    let mut question = question::read(&request)?;
    question.in_cohort = Some(cohorts::memberships(app, asker.project.id));
    let now = app.node.metadata.snapshot().now(asker.project.id, app.node.clock.now());
    if let Some(after) = question::updated_after(&request, now)? {
        // The arrival time of a record is stored before the record takes effect.
        app.engine.wait().await.map_err(query::problem)?;
        question.changed_since =
            Some(app.node.metadata.records_since(after).await.map_err(problem)?);
    }
    if rendering == Rendering::Csv {
        return export::export(app, asker, question).await;
    }
    let page = Page::of(&request);
    let part = Part { offset: page.offset, limit: page.limit };
    let project = asker.project.id;
    let found = app.engine.find_persons(project, question, part).await.map_err(query::problem)?;
    let count = found.count;
    let body = move |person, ids| PersonBody::listed(&asker.project, person, ids);
    let mut rows = Rows::within(&request.memory(), LONG_PAGE_MAX_BYTES);
    let read = app.engine.read(move |_, _| {
        let mut written = Ok(());
        found.each(LISTED_IDS_MAX, |person, ids| match rows.add(&body(person, ids)) {
            Ok(Added::Yes) => Flow::Continue(()),
            Ok(Added::PageIsFull) => Flow::Break(()),
            Err(problem) => {
                written = Err(problem);
                Flow::Break(())
            }
        })?;
        Ok(written.map(|()| rows))
    });
    let rows = read.await.map_err(query::problem)??;
    page.finished(app, &request, count, rows)
}

pub(crate) const CREATE: Description = Description::refused(
    "Refused: persons are made by events such as $identify",
    &[("405", "CreationRefused")],
);

/// `POST persons/`: refused with PostHog's text, which names the alternative.
pub async fn create(_app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let detail = "Creating persons via this API is not allowed. Please create persons by sending an \
                  $identify event.";
    let refused = Problem::method_not_allowed(&call.request.method, ALLOW);
    Err(refused.with_detail(detail))
}

pub(crate) const RETRIEVE: Description = Description::ok::<PersonBody>("One person").or(&[INVALID]);

/// `GET persons/:id/`, by number or uuid.
pub async fn retrieve(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let (person, ids) = find_one(app, call.asker.project.id, call.id()).await?;
    let body = PersonBody::retrieved(&call.asker.project, person, ids);
    csv::answer(&app.node.cpu, StatusCode::OK, call.rendering, body).await
}

/// The cohorts of a person, as sent to clients.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "CohortsOfPerson")]
struct CohortsBody {
    results: Vec<weir_api::cohorts::Cohort>,
}

pub(crate) const COHORTS: Description =
    Description::ok::<CohortsBody>("The cohorts that a person is in")
        .query(&[Parameter::text("person_id")
            .about("The number or the uuid of the person")
            .required()])
        .or(&[INVALID]);

/// `GET persons/cohorts/?person_id=`, by number or uuid: the cohorts that contain the person.
pub async fn cohorts(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    auth::require(&call.asker.key, "cohort:read")?;
    let project = call.asker.project.id;
    let Some(id) = call.request.query("person_id").filter(|id| !id.is_empty()) else {
        return Err(refused("person_id", "required", "This field is required."));
    };
    let (person, _) = find_one(app, project, &id).await?;
    let snapshot = app.node.metadata.snapshot();
    let is_member = cohorts::memberships(app, project);
    let view = app.shard.identities.view();
    let rendering = call.rendering;
    let told = move || {
        let all = snapshot.cohorts(project).iter();
        let own = all.filter(|cohort| is_member(&view, cohort.id.0, &person));
        let results = own.map(|cohort| cohorts::shown(cohort, &snapshot)).collect();
        Ok(csv::render(StatusCode::OK, rendering, &CohortsBody { results }))
    };
    beside(&app.node.cpu, told).await
}

pub(crate) const ACTIVITY: Description = Description::activity("What operators did to persons");

pub(crate) const ACTIVITY_OF_ONE: Description =
    Description::activity("What operators did to a person").or(&[INVALID]);

/// `GET persons/activity/` and `persons/:id/activity/`: changes of persons by operators. Only the
/// first contains those of deleted persons.
pub async fn activity(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let item = match call.parameters.is_empty() {
        true => None,
        false => Some(find_one(app, call.asker.project.id, call.id()).await?.0.number.to_string()),
    };
    activity::of_call(app, call, Scope::Person, item).await
}

/// One person by number or uuid, with all distinct ids, as of every event acknowledged so far.
async fn find_one(
    app: &App,
    project: ProjectId,
    id: &str,
) -> Result<(Person, Vec<String>), Problem> {
    app.engine.wait().await.map_err(query::problem)?;
    let view = app.shard.identities.view();
    let person = match (id.parse::<i64>(), Uuid::try_parse(id)) {
        (Ok(number), _) => view.person_by_number(project, number),
        (_, Ok(uuid)) => view.person_by_uuid(project, uuid),
        // No person has a number that long.
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
