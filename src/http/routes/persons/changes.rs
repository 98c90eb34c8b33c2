//! What operators do to persons: change and delete properties, delete persons. Each is an operation
//! in the log, like a split: it has its place among the events, survives a crash as they do, and is
//! answered when it has taken effect.

use std::borrow::Cow;

use hyper::StatusCode;
use serde::Serialize;
use serde_json::Map;
use serde_json::Value;
use uuid::Uuid;

use crate::app::App;
use crate::error::Kind;
use crate::http::auth::Principal;
use crate::http::call::Call;
use crate::http::call::Rendering;
use crate::http::csv;
use crate::http::fields::Fields;
use crate::http::request::Request;
use crate::http::response::Attr;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::routes::persons;
use crate::http::routes::persons::body::PersonBody;
use crate::http::routes::query;
use crate::http::routes::store::wrong;
use crate::identity::IdentityError;
use crate::ingest::operation::Action;
use crate::ingest::operation::Operation;

/// Persons that one request may delete (PostHog's figure).
const BULK_MAX: usize = 1000;

/// What a deletion of many has done; the names are PostHog's.
#[derive(Debug, Serialize)]
struct BulkBody {
    persons_found: usize,
    persons_deleted: usize,
    events_queued_for_deletion: bool,
    recordings_queued_for_deletion: bool,
    deletion_errors: [Value; 0],
}

/// `PATCH persons/:id/`, and `PUT`, which does the same: the properties of the body are set, the
/// others stay.
pub async fn update(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let id = call.id().to_owned();
    let Call { asker, request, rendering, .. } = call;
    // An unknown person is told before a bad body.
    persons::find_one(app, asker.project.id, &id).await?;
    let mut fields = Fields::read(request).await?;
    if fields.peek("properties").is_none_or(Value::is_null) {
        return Err(missing("properties"));
    }
    let set = fields.object("properties")?.unwrap_or_default();
    change(app, &asker, &id, (set, Vec::new()), (StatusCode::ACCEPTED, rendering)).await
}

/// `POST persons/:id/update_property/` with `key` and `value`, in the body or in the query.
pub async fn update_property(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let id = call.id().to_owned();
    let Call { asker, request, rendering, .. } = call;
    persons::find_one(app, asker.project.id, &id).await?;
    let text = |name: &str| request.query(name).map(|text| Value::from(text.into_owned()));
    let (key, value) = (text("key"), text("value"));
    let mut fields = Fields::read(request).await?;
    let value = fields.nullable_value("value").flatten().or(value);
    let value = value.ok_or_else(|| missing("value"))?;
    let key = fields.text("key")?.or_else(|| Some(key?.as_str()?.to_owned()));
    let key = key.filter(|key| !key.is_empty()).ok_or_else(|| missing("key"))?;
    let set = Map::from_iter([(key, value)]);
    change(app, &asker, &id, (set, Vec::new()), (StatusCode::ACCEPTED, rendering)).await
}

/// `POST persons/:id/delete_property/` with `$unset`, one key, in the body or in the query.
pub async fn delete_property(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let id = call.id().to_owned();
    let Call { asker, request, rendering, .. } = call;
    persons::find_one(app, asker.project.id, &id).await?;
    let asked = request.query("$unset").map(Cow::into_owned);
    let mut fields = Fields::read(request).await?;
    let key = fields.text("$unset")?.or(asked).filter(|key| !key.is_empty());
    let key = key.ok_or_else(|| wrong("$unset", "required", "This field is required."))?;
    change(app, &asker, &id, (Map::new(), vec![key]), (StatusCode::CREATED, rendering)).await
}

/// `DELETE persons/:id/`.
pub async fn delete(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let project = call.asker.project.id;
    refuse_events(&call.request)?;
    let (person, _) = persons::find_one(app, project, call.id()).await?;
    delete_all(app, &call.asker, &[person.uuid]).await?;
    Ok(Response::empty(StatusCode::ACCEPTED))
}

/// `POST persons/bulk_delete/` with `ids`, uuids of persons, or `distinct_ids`.
pub async fn bulk_delete(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let project = call.asker.project.id;
    refuse_events(&call.request)?;
    let Call { asker, request, .. } = call;
    let mut fields = Fields::read(request).await?;
    if fields.boolean("delete_events")? == Some(true) {
        return Err(no_events());
    }
    let (ids, distinct_ids) = (fields.texts("ids")?, fields.texts("distinct_ids")?);
    let refused = |detail: &str| Problem::new(Kind::Invalid, "invalid_input", detail.to_owned());
    let (view, found) = match (ids, distinct_ids) {
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
        (ids, distinct_ids) => {
            app.engine.wait().await.map_err(query::problem)?;
            (app.identities.view(), (ids.unwrap_or_default(), distinct_ids.unwrap_or_default()))
        }
    };
    let failed = |error: IdentityError| Problem::of(error.kind(), &error);
    let mut uuids = Vec::new();
    for id in found.0 {
        let uuid = Uuid::try_parse(&id)
            .map_err(|_| wrong("ids", "invalid_input", "Must be a valid UUID."))?;
        uuids.extend(view.person_by_uuid(project, uuid).map_err(failed)?.map(|found| found.uuid));
    }
    for id in found.1 {
        uuids.extend(view.person_of(project, &id).map_err(failed)?.map(|found| found.uuid));
    }
    drop(view);
    uuids.sort_unstable();
    uuids.dedup();
    delete_all(app, &asker, &uuids).await?;
    let body = BulkBody {
        persons_found: uuids.len(),
        persons_deleted: uuids.len(),
        events_queued_for_deletion: false,
        recordings_queued_for_deletion: false,
        deletion_errors: [],
    };
    Ok(Response::json(StatusCode::ACCEPTED, &body))
}

/// `POST persons/reset_person_distinct_id/` with `distinct_id`: lets a distinct id be used again
/// after its person was deleted. Here that is so from the start; the id is only checked.
pub async fn reset_distinct_id(_app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let mut fields = Fields::read(call.request).await?;
    let given = match fields.peek("distinct_id") {
        Some(Value::String(_)) => fields.text("distinct_id")?,
        _ => None,
    };
    if given.is_none_or(|id| id.is_empty()) {
        let detail = "distinct_id is required";
        return Err(Problem::new(Kind::Invalid, "invalid_input", detail));
    }
    Ok(Response::empty(StatusCode::ACCEPTED))
}

/// Logs an operation on persons, and waits until it has taken effect.
pub(super) async fn operate(app: &App, asker: &Principal, action: Action) -> Result<(), Problem> {
    let (project, by) = (asker.project.id, Some(asker.user.id));
    let operation = Operation { project, at: app.clock.now(), by, action };
    let pipeline = app.pipeline.clone();
    let operating =
        app.tasks.0.detach("operate-on-persons", async move { pipeline.operate(operation).await });
    let done = operating.await.map_err(|error| Problem::of(error.kind(), &error))?;
    done.map_err(|error| Problem::of(error.kind(), &error))?;
    app.engine.wait().await.map_err(query::problem)
}

async fn change(
    app: &App,
    asker: &Principal,
    id: &str,
    (set, unset): (Map<String, Value>, Vec<String>),
    (status, rendering): (StatusCode, Rendering),
) -> Result<Response, Problem> {
    let project = asker.project.id;
    let (person, _) = persons::find_one(app, project, id).await?;
    let action = Action::ChangePerson { person: person.uuid.to_string(), set, unset };
    operate(app, asker, action).await?;
    let (person, ids) = persons::find_one(app, project, &person.number.to_string()).await?;
    let body = PersonBody::retrieved(&asker.project, person, ids);
    let body = if status == StatusCode::CREATED { body.succeeded() } else { body };
    Ok(csv::render(status, rendering, &body))
}

async fn delete_all(app: &App, asker: &Principal, uuids: &[Uuid]) -> Result<(), Problem> {
    if uuids.is_empty() {
        return Ok(());
    }
    let persons = uuids.iter().map(Uuid::to_string).collect();
    operate(app, asker, Action::DeletePersons { persons }).await
}

/// Nobody may believe that events are gone which are not.
fn refuse_events(request: &Request) -> Result<(), Problem> {
    let asked = request.query("delete_events").unwrap_or(Cow::Borrowed("false"));
    let no = ["", "false", "0", "no", "f", "n", "off"];
    if no.iter().any(|no| asked.eq_ignore_ascii_case(no)) {
        return Ok(());
    }
    Err(no_events())
}

fn no_events() -> Problem {
    let detail = "Events of a person cannot be deleted yet; delete the person without them.";
    wrong("delete_events", "not_supported", detail)
}

/// The answer that clients of PostHog know: code and detail stand in each other's place.
fn missing(name: &'static str) -> Problem {
    Problem::new(Kind::Invalid, "This field is required.", "required")
        .with_attr(Attr::Name(name.into()))
}
