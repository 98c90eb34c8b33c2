//! `POST feature_flags/:id/test_evaluation/`: explains the value of one flag for one person, now or as of a time in the
//! past.
//!
//! The evaluation as of a time uses that time for relative dates, and the properties that the person's
//! events had set by then. Properties that no event of the person sets have their current value, and so
//! do flags, cohorts and groups, because no log contains their past values.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::auth;
use crate::auth::Principal;
use crate::body::{Field, Later, body};
use crate::fields::Fields;
use crate::operation::input::input;
use crate::operation::{Context, Operation};
use crate::response::Problem;
use crate::routes::feature_flags::evaluations::{Plain, value};
use crate::routes::feature_flags::find;
use crate::routes::query::problems;
use weir_api::flags as api;
use weir_api::flags::FlagValue;
use weir_app::App;
use weir_base::clock::UnixMicros;
use weir_base::error::Kind;
use weir_event::id::ProjectId;
use weir_event::json;
use weir_flags::definition::Stored;
use weir_flags::set::{FlagSet, Selection};
use weir_flags::trace::{ConditionTrace, PropertyTrace};
use weir_identity::person::Person;
use weir_identity::property_replay::PropertyReplay;
use weir_identity::{IdentityError, property_replay};
use weir_insights::events::history;

/// The id of a flag that is not saved yet; saved flags have ids from 1 on.
const NEW: i64 = 0;

input! {
    /// Evaluates a flag for a person, and explains the value.
    pub struct Test {
        path id: i64,
        body question: TestEvaluation,
    }
}

body! {
    /// For whom a flag is evaluated: one of `distinct_id` and `person_id`.
    pub struct TestEvaluation {
        /// The person
        person_id: Option<String> = {"format": "uuid"},
        /// Or a person_id
        distinct_id: Option<ExactId>,
        /// Keys of groups by their types
        groups: Option<Option<Value>> = {"type": "object", "additionalProperties": {"type": "string"}},
        /// As of when: relative dates count from here, and the person has the properties that its events had made by
        /// then
        timestamp: Later<Option<UnixMicros>>,
    }
}

/// A distinct id with its white space.
#[derive(Debug)]
pub struct ExactId(String);

impl Field for Option<ExactId> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        Ok(fields.exact_text(name)?.map(ExactId))
    }

    fn schema() -> Value {
        json!({"type": "string"})
    }
}

impl TestEvaluation {
    /// The evaluation for a distinct id, as of now.
    pub fn of(distinct_id: String) -> Self {
        let distinct_id = Some(ExactId(distinct_id));
        Self { person_id: None, distinct_id, groups: None, timestamp: Later(Ok(None)) }
    }
}

impl Operation for Test {
    type Who = Principal;
    type Out = api::TestedEvaluation;
    const SCOPE: &'static str = "feature_flag:read";

    /// The response contains the properties of the person.
    fn permit(who: &Principal) -> Result<(), Problem> {
        auth::require(&who.key, "person:read")
    }

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let project = cx.who.project.id;
        let flag = find(cx, self.id).await?;
        let TestEvaluation { person_id, distinct_id, groups, timestamp } = self.question;
        let distinct_id = match (distinct_id, person_id) {
            (Some(ExactId(distinct_id)), _) => distinct_id,
            (None, Some(person_id)) => distinct_id_of(&cx.app, project, &person_id).await?,
            (None, None) => {
                let detail = "distinct_id or person_id is required";
                return Err(Problem::new(Kind::Invalid, "invalid_input", detail));
            }
        };
        let plain = Plain::about(match groups.flatten() {
            Some(Value::Object(groups)) => groups,
            _ => Map::new(),
        });
        let as_of = timestamp.0?;
        let Some(flags) = cx.snapshot().flag_set(project).cloned() else {
            return Err(Problem::not_found("Not found."));
        };
        let asked = EvaluationInput {
            flags,
            id: flag.id.0,
            key: flag.key.clone(),
            filters: flag.filters.clone(),
            distinct_id,
            plain,
            as_of,
        };
        explained(&cx.app, project, asked).await
    }
}

/// A flag that is not saved, or an unsaved change of one.
#[derive(Debug)]
pub struct Unsaved {
    /// The id of the flag that the change is for.
    pub id: Option<i64>,
    /// The key.
    pub key: String,
    /// Conditions, variants and payloads.
    pub filters: Value,
    /// Whether it is on.
    pub is_active: bool,
    /// Whether a person keeps the value across signing in.
    pub is_continuous: bool,
}

/// As the operation, for a flag that is not saved.
pub(in crate::routes) async fn of_unsaved(
    app: &App,
    asker: &Principal,
    flag: Unsaved,
    distinct_id: &str,
) -> Result<api::TestedEvaluation, Problem> {
    auth::require(&asker.key, "person:read")?;
    let project = asker.project.id;
    let Unsaved { id, key, filters, is_active, is_continuous } = flag;
    let id = id.unwrap_or(NEW);
    let stored =
        Stored { active: is_active, continuity: is_continuous, ..Stored::new(id, &key, &filters) };
    let flags = Arc::new(app.node.metadata.snapshot().flag_set_with(project, &stored));
    let (distinct_id, plain) = (distinct_id.to_owned(), Plain::about(Map::new()));
    let asked = EvaluationInput { flags, id, key, filters, distinct_id, plain, as_of: None };
    explained(app, project, asked).await
}

/// Input of the evaluation to explain.
struct EvaluationInput {
    /// The flags of the project.
    flags: Arc<FlagSet>,
    id: i64,
    key: String,
    filters: Value,
    distinct_id: String,
    plain: Plain,
    as_of: Option<UnixMicros>,
}

/// Evaluates a flag for a person, and explains the value.
async fn explained(
    app: &App,
    project: ProjectId,
    asked: EvaluationInput,
) -> Result<api::TestedEvaluation, Problem> {
    let EvaluationInput { flags, id, key, filters, distinct_id, plain, as_of } = asked;
    let snapshot = app.node.metadata.snapshot();
    let question = plain.question(project, &distinct_id);
    let mut known = app.shard.evaluator.load(&snapshot, &question).await?;
    if let (Some(as_of), Some(person)) = (as_of, known.person()) {
        let properties = properties_at(app, project, person, as_of).await?;
        known.assume(properties);
    }
    let now = as_of.unwrap_or_else(|| app.node.clock.now());
    let evaluation = move || {
        let properties = known.person().map(|person| person.properties.clone());
        let question = plain.question(project, &distinct_id);
        known.evaluate(&snapshot, &question, now, |subject, cohorts| {
            let answers = flags.evaluate(subject, &Selection::default(), cohorts);
            let found = answers.flags.iter().find(|answer| answer.id == id);
            let result = found.map(|answer| &answer.result);
            let verdict = result.and_then(|result| result.as_ref().ok());
            let (reason, description) = match result {
                Some(Ok(verdict)) => (verdict.reason.code(), verdict.description()),
                Some(Err(failure)) => (failure.code(), failure.description()),
                None => ("flag_disabled", "Feature flag is disabled".into()),
            };
            let traces = flags.trace(&answers, &key, &filters, subject, cohorts);
            api::TestedEvaluation {
                condition_index: verdict.and_then(|verdict| verdict.condition_index),
                conditions: traces.into_iter().map(condition).collect(),
                evaluation_distinct_id: distinct_id.clone(),
                flag_key: key.clone(),
                payload: verdict.and_then(|verdict| verdict.payload).cloned().unwrap_or_default(),
                person_properties: properties,
                reason: reason.to_owned(),
                reason_description: description.into_owned(),
                result: verdict.map_or(FlagValue::Is(false), value),
            }
        })
    };
    // Without a cost limit: users send this request and wait only for it.
    Ok(app.shard.evaluator.run(u64::MAX, evaluation).await?)
}

fn condition(trace: ConditionTrace) -> api::ConditionTrace {
    api::ConditionTrace {
        index: trace.index,
        properties: trace.properties.into_iter().map(property).collect(),
        rollout_percentage: trace.rollout_percentage,
        variant: trace.variant,
        matched: trace.matched,
        properties_matched: trace.properties_matched,
        rollout_excluded: trace.rollout_excluded,
        explanation: trace.explanation,
    }
}

fn property(trace: PropertyTrace) -> api::PropertyTrace {
    api::PropertyTrace {
        key: trace.key,
        operator: trace.operator,
        value: trace.value,
        r#type: trace.r#type,
        actual_value: trace.actual_value,
        matched: trace.matched,
        explanation: trace.explanation,
    }
}

async fn distinct_id_of(app: &App, project: ProjectId, person_id: &str) -> Result<String, Problem> {
    app.engine.wait().await.map_err(problems::problem)?;
    let not_found = || Problem::not_found("Not found.");
    let uuid = Uuid::try_parse(person_id).map_err(|_| not_found())?;
    let view = app.shard.identities.view();
    let first = || match view.person_by_uuid(project, uuid)? {
        Some(person) => view.first_ids(project, person.number, 1),
        None => Ok(Vec::new()),
    };
    let ids = first().map_err(|error: IdentityError| Problem::of(error.kind(), &error))?;
    ids.into_iter().next().ok_or_else(not_found)
}

/// The properties of a person as of a time.
async fn properties_at(
    app: &App,
    project: ProjectId,
    person: &Person,
    as_of: UnixMicros,
) -> Result<Map<String, Value>, Problem> {
    let mut past = Past { as_of, then: person.properties.clone(), told: PropertyReplay::default() };
    let now = app.node.clock.now();
    let mut events = history::of_person(&app.engine, project, person.uuid, now)
        .await
        .map_err(problems::problem)?;
    while let Some(rows) = events.next().await {
        for row in rows.map_err(problems::problem)? {
            let properties = json::read(row.properties.as_bytes()).unwrap_or_default();
            past.step(row.timestamp, &row.event, &properties);
        }
    }
    Ok(past.properties())
}

/// Replays the events of a person, oldest first.
struct Past {
    as_of: UnixMicros,
    /// The stored properties, without those that events set.
    then: Map<String, Value>,
    /// The properties set by the events up to `as_of`.
    told: PropertyReplay,
}

impl Past {
    fn step(&mut self, at: UnixMicros, name: &str, event: &Map<String, Value>) {
        let Some(update) = property_replay::update(name, event) else { return };
        for key in update.set.keys().chain(update.set_once.keys()) {
            self.then.remove(key);
        }
        if at <= self.as_of {
            self.told.step(update);
        }
    }

    fn properties(mut self) -> Map<String, Value> {
        self.then.extend(self.told.into_properties());
        self.then
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::{Past, PropertyReplay};
    use weir_base::clock::UnixMicros;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn properties_were_what_events_had_made_of_them() {
        let events = [
            (10, json!({"$set_once": {"first": 1}, "$set": {"plan": "free"}})),
            (15, json!({"utm_source": "mail"})),
            (20, json!({"$set_once": {"first": 2}, "$set": {"plan": "pro", "seats": 5}})),
            (30, json!({"$unset": ["seats"]})),
            (40, json!({"$unset": {"plan": null}, "$set": "no object"})),
        ];
        let source = json!({"utm_source": "mail", "$initial_utm_source": "mail"});
        let mut stored = json!({"first": 1, "of_no_event": true});
        stored.as_object_mut().unwrap().extend(object(source));
        for (as_of, expected) in [
            (5, json!({"of_no_event": true})),
            (10, json!({"of_no_event": true, "first": 1, "plan": "free"})),
            (
                25,
                json!({"of_no_event": true, "first": 1, "plan": "pro", "seats": 5,
                       "utm_source": "mail", "$initial_utm_source": "mail"}),
            ),
            (
                30,
                json!({"of_no_event": true, "first": 1, "plan": "pro",
                       "utm_source": "mail", "$initial_utm_source": "mail"}),
            ),
            (99, stored.clone()),
        ] {
            let (as_of, then) = (UnixMicros(as_of), object(stored.clone()));
            let mut past = Past { as_of, then, told: PropertyReplay::default() };
            for (at, event) in &events {
                past.step(UnixMicros(*at), "x", &object(event.clone()));
            }
            assert_eq!(Value::Object(past.properties()), expected, "{as_of:?}");
        }
    }
}
