//! Scheduled changes of flags: list, create, retrieve, change, delete. `maintenance` triggers them,
//! `metadata` applies them. Fields and errors are those of PostHog's API, except that a payload
//! without a change is refused at once and not when it is due.

use std::sync::Arc;

use hyper::{Method, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::auth::Principal;
use crate::call::Call;
use crate::fields::{Fields, refused};
use crate::openapi::{Description, Parameter, by_hand};
use crate::page::Page;
use crate::response::{Attr, Problem, Response};
use crate::routes::store;
use crate::routes::store::problem;
use crate::routes::user_body::user;
use crate::rows::{Added, Rows};
use weir_app::App;
use weir_base::clock::UnixMicros;
use weir_metadata::flags::FlagId;
use weir_metadata::schedules::{
    CRON_MAX_CHARS, Interval, NewSchedule, ScheduleId, SchedulePatch, ScheduledChange, Timing,
};
use weir_metadata::snapshot::Snapshot;

/// PostHog's name of the model that can be changed.
const MODEL: &str = "FeatureFlag";

/// Changes that are read at once; a payload may be as long as the filters of a flag.
const READ_AT_ONCE: usize = 16;

/// Longest `record_id`, in characters; the column width of PostHog.
const RECORD_ID_MAX_CHARS: usize = 200;

pub(crate) const LIST: Description =
    Description::page::<ChangeBody>("Changes of flags that are made at a time").query(&[
        Parameter::text("model_name"),
        Parameter::text("record_id").about("The id of the flag"),
    ]);

/// `GET scheduled_changes/`, in the order in which they were scheduled, filtered by `model_name` and
/// `record_id`.
pub async fn list(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, .. } = call;
    let snapshot = app.node.metadata.snapshot();
    let page = Page::of(&request);
    let is_of_other = request.query("model_name").is_some_and(|name| name != MODEL);
    let flag = request.query("record_id").map(|id| id.parse().map(FlagId));
    let mut rows = Rows::new(&request.memory());
    // A value that is not a number matches no flag.
    let Some(flag) = flag.transpose().ok().filter(|_| !is_of_other) else {
        return page.finished(app, &request, 0, rows);
    };
    let project = asker.project.id;
    loop {
        let (rest, at) = (page.limit - rows.count(), page.offset.saturating_add(rows.count()));
        let part = rest.min(READ_AT_ONCE);
        let (count, changes) =
            app.node.metadata.scheduled_changes(project, flag, part, at).await.map_err(problem)?;
        let is_last = changes.len() < part || changes.len() == rest;
        let users = Arc::clone(&snapshot);
        let write =
            move |rows: &mut Rows| rows.add_all(changes.iter().map(|change| body(change, &users)));
        let (written, added) = rows.add_on(&app.node.cpu, write).await?;
        if is_last || added == Added::PageIsFull {
            return page.finished(app, &request, count, written);
        }
        rows = written;
    }
}

pub(crate) const CREATE: Description = Description::created::<ChangeBody>("Schedule a change")
    .optional_body::<by_hand::ScheduledChangeWrite>()
    .requires(&["record_id", "model_name", "payload", "scheduled_at"]);

/// `POST scheduled_changes/`.
pub async fn create(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, .. } = call;
    let snapshot = app.node.metadata.snapshot();
    let given = Given::read(Fields::read(request).await?, true)?;
    let not_found = || {
        let detail = "Feature flag not found";
        Problem::new(weir_base::error::Kind::Invalid, "invalid_input", detail).with_attr(Attr::Null)
    };
    let flag = given.record_id.unwrap_or_default().trim().parse().map(FlagId);
    let patch = given.patch;
    let new = NewSchedule {
        flag: flag.map_err(|_| not_found())?,
        payload: patch.payload.unwrap_or_default(),
        timing: Timing {
            scheduled_at: patch.scheduled_at.unwrap_or_default(),
            is_recurring: patch.is_recurring.unwrap_or_default(),
            interval: patch.interval.flatten(),
            cron: patch.cron.flatten(),
            end_date: patch.end_date.flatten(),
        },
    };
    let (metadata, project, user) = (app.node.metadata.clone(), asker.project.id, asker.user.id);
    let write = async move { metadata.schedule(project, user, new).await };
    let change = store::write(app, "schedule", write).await?;
    Ok(Response::json(StatusCode::CREATED, &body(&change, &snapshot)))
}

pub(crate) const RETRIEVE: Description = Description::ok::<ChangeBody>("One scheduled change");

/// `GET scheduled_changes/:id/`.
pub async fn retrieve(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let snapshot = app.node.metadata.snapshot();
    let change = find(app, &call).await?;
    Ok(Response::json(StatusCode::OK, &body(&change, &snapshot)))
}

pub(crate) const UPDATE: Description = Description::ok::<ChangeBody>("Change what is scheduled")
    .optional_body::<by_hand::ScheduledChangeWrite>()
    .requires(&["record_id", "model_name", "payload", "scheduled_at"]);

/// `PATCH scheduled_changes/:id/`, and `PUT`, which requires what a new one requires.
pub async fn update(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let snapshot = app.node.metadata.snapshot();
    let known = find(app, &call).await?;
    let Call { asker, request, .. } = call;
    let is_whole = request.method == Method::PUT;
    let given = Given::read(Fields::read(request).await?, is_whole)?;
    if given.record_id.is_some_and(|id| id != known.flag.to_string()) {
        let detail = "Cannot change the target record of an existing scheduled change.";
        return Err(refused("record_id", "invalid_input", detail));
    }
    let (metadata, project, user) = (app.node.metadata.clone(), asker.project.id, asker.user.id);
    let write = async move { metadata.reschedule(project, user, known.id, given.patch).await };
    let change = store::write(app, "reschedule", write).await?;
    Ok(Response::json(StatusCode::OK, &body(&change, &snapshot)))
}

pub(crate) const DELETE: Description =
    Description::empty("204", "Delete a scheduled change; what is not made yet will not be");

/// `DELETE scheduled_changes/:id/`: a pending change will not be made.
pub async fn delete(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let id = find(app, &call).await?.id;
    let (metadata, project, user) =
        (app.node.metadata.clone(), call.asker.project.id, call.asker.user.id);
    let write = async move { metadata.unschedule(project, user, id).await };
    store::write(app, "unschedule", write).await?;
    Ok(Response::empty(StatusCode::NO_CONTENT))
}

async fn find(app: &App, call: &Call<Principal>) -> Result<ScheduledChange, Problem> {
    let id = call.id().parse().map(ScheduleId).map_err(|_| Problem::not_found("Not found."))?;
    app.node.metadata.scheduled_change(call.asker.project.id, id).await.map_err(problem)
}

/// The fields of a body, in the order in which PostHog validates them.
struct Given {
    record_id: Option<String>,
    patch: SchedulePatch,
}

impl Given {
    fn read(mut fields: Fields, is_whole: bool) -> Result<Self, Problem> {
        let require = |fields: &Fields, name| match is_whole {
            true => fields.require(name),
            false => Ok(()),
        };
        require(&fields, "record_id")?;
        let record_id = text(&mut fields, "record_id", RECORD_ID_MAX_CHARS)?;
        require(&fields, "model_name")?;
        if let Some(name) = fields.value("model_name")?.filter(|name| name != MODEL) {
            let text = name.as_str().map_or_else(|| name.to_string(), str::to_owned);
            let detail = format!("\"{text}\" is not a valid choice.");
            return Err(refused("model_name", "invalid_choice", detail));
        }
        require(&fields, "payload")?;
        let payload = fields.value("payload")?;
        require(&fields, "scheduled_at")?;
        let scheduled_at = fields.time("scheduled_at")?;
        let is_recurring = fields.boolean("is_recurring")?;
        let interval = fields.nullable_choice("recurrence_interval", &Interval::NAMES)?;
        let interval = interval.map(|name| name.as_deref().and_then(Interval::parse));
        let cron = nullable_text(&mut fields, "cron_expression", CRON_MAX_CHARS)?;
        let end_date = fields.nullable_time("end_date")?;
        let patch = SchedulePatch { payload, scheduled_at, is_recurring, interval, cron, end_date };
        Ok(Self { record_id, patch })
    }
}

/// A text that is not blank.
fn text(
    fields: &mut Fields,
    name: &'static str,
    chars_max: usize,
) -> Result<Option<String>, Problem> {
    let Some(text) = fields.text(name)? else { return Ok(None) };
    if text.is_empty() {
        return Err(refused(name, "blank", "This field may not be blank."));
    }
    if text.chars().count() > chars_max {
        let detail = format!("Ensure this field has no more than {chars_max} characters.");
        return Err(refused(name, "max_length", detail));
    }
    Ok(Some(text))
}

/// A text; `Some(None)` for null and for a blank one.
fn nullable_text(
    fields: &mut Fields,
    name: &'static str,
    chars_max: usize,
) -> Result<Option<Option<String>>, Problem> {
    let is_empty = |value: &Value| {
        value.is_null() || value.as_str().is_some_and(|text| text.trim().is_empty())
    };
    if fields.peek(name).is_some_and(is_empty) {
        fields.nullable_value(name);
        return Ok(Some(None));
    }
    Ok(text(fields, name, chars_max)?.map(Some))
}

/// A scheduled change as sent to clients.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "ScheduledChange")]
struct ChangeBody {
    id: i64,
    team_id: i64,
    record_id: String,
    #[schemars(extend("enum" = ["FeatureFlag"]))]
    model_name: &'static str,
    #[schemars(with = "by_hand::AnyObject")]
    payload: Value,
    scheduled_at: String,
    executed_at: Option<String>,
    failure_reason: Option<String>,
    created_at: String,
    created_by: Option<weir_api::accounts::User>,
    updated_at: String,
    is_recurring: bool,
    recurrence_interval: Option<&'static str>,
    cron_expression: Option<String>,
    last_executed_at: Option<String>,
    #[schemars(extend("format" = "date-time"))]
    end_date: Option<String>,
    /// Where days and months of a recurring change begin.
    timezone: String,
}

fn body(change: &ScheduledChange, snapshot: &Snapshot) -> ChangeBody {
    let time = |time: Option<UnixMicros>| time.map(UnixMicros::to_rfc3339);
    let timing = &change.timing;
    ChangeBody {
        id: change.id.0,
        team_id: change.project.0,
        record_id: change.flag.to_string(),
        model_name: MODEL,
        payload: change.payload.clone(),
        scheduled_at: timing.scheduled_at.to_rfc3339(),
        executed_at: time(change.executed_at),
        failure_reason: change.failure_reason.clone(),
        created_at: change.created_at.to_rfc3339(),
        created_by: snapshot.user(change.created_by).map(|found| user(found)),
        updated_at: change.updated_at.to_rfc3339(),
        is_recurring: timing.is_recurring,
        recurrence_interval: timing.interval.map(Interval::name),
        cron_expression: timing.cron.clone(),
        last_executed_at: time(change.last_executed_at),
        end_date: time(timing.end_date),
        timezone: change.timezone.clone(),
    }
}
