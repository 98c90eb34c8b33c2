//! Scheduled changes of flags: list, create, retrieve, change, delete. `maintenance` triggers them,
//! `metadata` applies them. Fields and errors are those of PostHog's API, except that a payload
//! without a change is refused at once and not when it is due.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::auth::Principal;
use crate::body::{Field, body};
use crate::fields::{Fields, blank, check_chars, refused};
use crate::operation::input::{Creates, Named, New, input, part};
use crate::operation::output::{Created, Done, PageRows, Paged};
use crate::operation::{Context, Operation};
use crate::page::Page;
use crate::response::{Attr, Problem};
use crate::routes::store::problem;
use crate::routes::user_body::user;
use crate::rows::{Added, PAGE_MAX_BYTES};
use weir_api::schedules as api;
use weir_base::clock::UnixMicros;
use weir_base::error::Kind;
use weir_metadata::Metadata;
use weir_metadata::flags::FlagId;
use weir_metadata::schedules::{
    CRON_MAX_CHARS, Interval, NewSchedule, ScheduleId, SchedulePatch, ScheduledChange, TimingPatch,
};
use weir_metadata::snapshot::Snapshot;

/// PostHog's name of the only model that can be changed.
const MODEL: &str = "FeatureFlag";

/// Changes that are read together; a payload may be as long as the filters of a flag.
const READ_AT_ONCE: usize = 16;

/// Longest `record_id`, in characters; the column width of PostHog.
const RECORD_ID_MAX_CHARS: usize = 200;

input! {
    /// Changes of flags that are made at a time, in the order in which they were scheduled.
    pub struct List {
        query model_name: Option<String>,
        /// The id of the flag
        query record_id: Option<String>,
        query page: Page,
    }
}

impl Operation for List {
    type Who = Principal;
    type Out = Paged<api::ScheduledChange>;
    const SCOPE: &'static str = "feature_flag:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (snapshot, page, project) = (cx.snapshot(), self.page, cx.who.project.id);
        let is_of_other = self.model_name.is_some_and(|name| name != MODEL);
        let flag = self.record_id.map(|id| id.parse().map(FlagId));
        let mut rows = cx.rows(PAGE_MAX_BYTES);
        // A value that is not a number matches no flag.
        let Some(flag) = flag.transpose().ok().filter(|_| !is_of_other) else {
            return Ok(Paged { page, count: 0, rows });
        };
        loop {
            let (rest, at) = (page.limit - rows.count(), page.offset.saturating_add(rows.count()));
            let part = rest.min(READ_AT_ONCE);
            let found = cx.metadata().scheduled_changes(project, flag, part, at).await;
            let (count, changes) = found.map_err(problem)?;
            let is_last = changes.len() < part || changes.len() == rest;
            let users = Arc::clone(&snapshot);
            let write = move |rows: &mut PageRows<api::ScheduledChange>| {
                rows.add_all(changes.iter().map(|own| change(own, &users)))
            };
            let (written, added) = rows.add_on(&cx.app.node.cpu, write).await?;
            rows = written;
            if is_last || added == Added::PageIsFull {
                made_are_seen(cx).await?;
                return Ok(Paged { page, count, rows });
            }
        }
    }
}

/// Waits until flags are evaluated with every change that the database says is made: a change is there some moments before the
/// snapshot has it.
async fn made_are_seen(cx: &Context<Principal>) -> Result<(), Problem> {
    cx.metadata().refresh().await.map_err(problem)
}

input! {
    /// Schedules a change.
    pub struct Create {
        body change: New<ScheduledChangeWrite>,
    }
}

impl Operation for Create {
    type Who = Principal;
    type Out = Created<api::ScheduledChange>;
    const SCOPE: &'static str = "feature_flag:write";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let not_found = |_| {
            let detail = "Feature flag not found";
            Problem::new(Kind::Invalid, "invalid_input", detail).with_attr(Attr::Null)
        };
        let New(sent) = self.change;
        let flag = sent.record_id.as_ref().map_or("", |id| id.0.as_str());
        let flag = flag.parse().map(FlagId).map_err(not_found)?;
        let patch = sent.patch();
        let new = NewSchedule {
            flag,
            payload: patch.payload.unwrap_or_default(),
            timing: patch.timing.into(),
        };
        let (snapshot, project, user) = (cx.snapshot(), cx.who.project.id, cx.user());
        let write = |metadata: Metadata| async move { metadata.schedule(project, user, new).await };
        let made = cx.write("schedule", write).await?;
        Ok(Created(change(&made, &snapshot)))
    }
}

input! {
    /// One scheduled change.
    pub struct Retrieve {
        path id: i64,
    }
}

impl Operation for Retrieve {
    type Who = Principal;
    type Out = api::ScheduledChange;
    const SCOPE: &'static str = "feature_flag:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        Ok(change(&find(cx, self.id).await?, &cx.snapshot()))
    }
}

input! {
    /// Changes what is scheduled; an absent field keeps its value.
    pub struct Update {
        path id: i64,
        body change: ScheduledChangeWrite,
    }
}

impl Operation for Update {
    type Who = Principal;
    type Out = api::ScheduledChange;
    const SCOPE: &'static str = "feature_flag:write";

    async fn look_up(cx: &Context<Principal>, path: &Named) -> Result<(), Problem> {
        find(cx, part(path, "id")?).await.map(drop)
    }

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (snapshot, known) = (cx.snapshot(), find(cx, self.id).await?);
        if self.change.record_id.as_ref().is_some_and(|id| id.0 != known.flag.to_string()) {
            let detail = "Cannot change the target record of an existing scheduled change.";
            return Err(refused("record_id", "invalid_input", detail));
        }
        let (project, user, patch) = (cx.who.project.id, cx.user(), self.change.patch());
        let write = |metadata: Metadata| async move {
            metadata.reschedule(project, user, known.id, patch).await
        };
        let changed = cx.write("reschedule", write).await?;
        Ok(change(&changed, &snapshot))
    }
}

input! {
    /// The same with the fields that a new one needs.
    pub struct Replace {
        path id: i64,
        body change: New<ScheduledChangeWrite>,
    }
}

impl Operation for Replace {
    type Who = Principal;
    type Out = api::ScheduledChange;
    const SCOPE: &'static str = "feature_flag:write";

    async fn look_up(cx: &Context<Principal>, path: &Named) -> Result<(), Problem> {
        Update::look_up(cx, path).await
    }

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        Update { id: self.id, change: self.change.0 }.perform(cx).await
    }
}

input! {
    /// Deletes a scheduled change; a pending one will not be made.
    pub struct Delete {
        path id: i64,
    }
}

impl Operation for Delete {
    type Who = Principal;
    type Out = Done;
    const SCOPE: &'static str = "feature_flag:write";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let id = find(cx, self.id).await?.id;
        let (project, user) = (cx.who.project.id, cx.user());
        let write =
            |metadata: Metadata| async move { metadata.unschedule(project, user, id).await };
        cx.write("unschedule", write).await?;
        Ok(Done)
    }
}

async fn find(cx: &Context<Principal>, id: i64) -> Result<ScheduledChange, Problem> {
    let found = cx.metadata().scheduled_change(cx.who.project.id, ScheduleId(id)).await;
    made_are_seen(cx).await?;
    found.map_err(problem)
}

body! {
    /// A new scheduled change, or a change of one. The fields are in the order in which PostHog validates them.
    #[derive(Default)]
    pub struct ScheduledChangeWrite {
        /// The id of the flag; it cannot be changed
        record_id: Option<RecordId>,
        /// What is changed: a flag.
        model_name: Option<Model>,
        /// The change.
        payload: Option<Payload>,
        /// When it is made, at first.
        scheduled_at: Option<UnixMicros>,
        /// Whether it is made again and again.
        is_recurring: Option<bool>,
        /// How often.
        recurrence_interval: Option<Option<Interval>>,
        /// How often, as a cron expression.
        cron_expression: Option<Cron>,
        /// When a recurring change ends.
        end_date: Option<Option<UnixMicros>>,
    }
}

impl Creates for ScheduledChangeWrite {
    const NEEDS: &'static [&'static str] = &["record_id", "model_name", "payload", "scheduled_at"];
}

impl ScheduledChangeWrite {
    fn patch(self) -> SchedulePatch {
        SchedulePatch {
            payload: self.payload.map(|own| own.0),
            timing: TimingPatch {
                scheduled_at: self.scheduled_at,
                is_recurring: self.is_recurring,
                interval: self.recurrence_interval,
                cron: self.cron_expression.map(|own| own.0),
                end_date: self.end_date,
            },
        }
    }
}

/// The id of a flag as a text.
#[derive(Debug)]
pub struct RecordId(pub String);

impl Field for Option<RecordId> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        Ok(text(fields, name, RECORD_ID_MAX_CHARS)?.map(RecordId))
    }

    fn schema() -> Value {
        json!({"type": "string", "maxLength": RECORD_ID_MAX_CHARS})
    }
}

/// The model of the change; only flags are valid.
#[derive(Debug)]
pub struct Model;

impl Field for Option<Model> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        Ok(fields.choice(name, &[MODEL])?.map(|_| Model))
    }

    fn schema() -> Value {
        json!({"const": MODEL})
    }
}

/// An operation on a flag, which `metadata` parses.
#[derive(Debug)]
pub struct Payload(pub Value);

impl Field for Option<Payload> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        Ok(fields.value(name)?.map(Payload))
    }

    fn schema() -> Value {
        let operations = ["update_status", "add_release_condition", "update_variants"];
        let operation = json!({"type": "string", "enum": operations});
        json!({
            "type": "object",
            "required": ["operation", "value"],
            "properties": {"operation": operation, "value": {}},
        })
    }
}

impl Field for Option<Option<Interval>> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        let interval = fields.nullable_choice(name, &Interval::NAMES)?;
        Ok(interval.map(|name| name.as_deref().and_then(Interval::parse)))
    }

    fn schema() -> Value {
        let names = Interval::NAMES.into_iter().map(Value::from);
        let names: Vec<Value> = names.chain([Value::Null]).collect();
        json!({"type": ["string", "null"], "enum": names})
    }
}

/// A cron expression; none for null and for a blank one.
#[derive(Debug)]
pub struct Cron(Option<String>);

impl Field for Option<Cron> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        Ok(nullable_text(fields, name, CRON_MAX_CHARS)?.map(Cron))
    }

    fn schema() -> Value {
        json!({"type": ["string", "null"]})
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
        return Err(blank(name));
    }
    check_chars(name, &text, chars_max)?;
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

fn change(own: &ScheduledChange, snapshot: &Snapshot) -> api::ScheduledChange {
    let time = |time: Option<UnixMicros>| time.map(UnixMicros::to_rfc3339);
    let timing = &own.timing;
    api::ScheduledChange {
        id: own.id.0,
        team_id: own.project.0,
        record_id: own.flag.to_string(),
        model_name: MODEL.to_owned(),
        payload: own.payload.clone(),
        scheduled_at: timing.scheduled_at.to_rfc3339(),
        executed_at: time(own.executed_at),
        failure_reason: own.failure_reason.clone(),
        created_at: own.created_at.to_rfc3339(),
        created_by: snapshot.user(own.created_by).map(|found| user(found)),
        updated_at: own.updated_at.to_rfc3339(),
        is_recurring: timing.is_recurring,
        recurrence_interval: timing.interval.map(|own| own.name().to_owned()),
        cron_expression: timing.cron.clone(),
        last_executed_at: time(own.last_executed_at),
        end_date: time(timing.end_date),
        timezone: own.timezone.clone(),
    }
}
