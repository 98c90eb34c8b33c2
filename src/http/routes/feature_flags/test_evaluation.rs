//! `POST feature_flags/:id/test_evaluation/`: explains the value of one flag for one person, now or as
//! of a time in the past.
//!
//! The evaluation as of a time uses that time for relative dates, and the properties that the person's
//! events had set by then. Properties that no event of the person sets have their current value, and so
//! do flags, cohorts and groups, because no log contains their past values.

use std::sync::Arc;

use hyper::StatusCode;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::auth;
use crate::auth::Principal;
use crate::call::Call;
use crate::fields::Fields;
use crate::openapi::{Description, by_hand};
use crate::response::{Problem, Response};
use crate::routes::feature_flags::evaluations::{Plain, value};
use crate::routes::feature_flags::find;
use crate::routes::query;
use weir_app::App;
use weir_base::clock::UnixMicros;
use weir_base::error::Kind;
use weir_event::id::ProjectId;
use weir_event::json;
use weir_flags::definition::Stored;
use weir_flags::set::{FlagSet, Selection};
use weir_identity::person::Person;
use weir_identity::property_replay::PropertyReplay;
use weir_identity::{IdentityError, property_replay};
use weir_insights::events::history;

/// The id of a flag that is not saved yet; those that are have numbers from 1 on.
const NEW: i64 = 0;

pub(crate) const TEST_EVALUATION: Description = Description::ok::<by_hand::TestedEvaluation>(
    "The answer for one person and every step that leads to it; needs person:read besides",
)
.body::<by_hand::TestEvaluation>();

/// Evaluates the flag for `distinct_id` or `person_id` (a uuid), with `groups`, as of `timestamp`.
pub async fn test_evaluation(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let snapshot = app.node.metadata.snapshot();
    // The response contains the properties of the person.
    auth::require(&call.asker.key, "person:read")?;
    let project = call.asker.project.id;
    let flag = find(app, project, call.id()).await?;
    let mut fields = Fields::read(call.request).await?;
    let person_id = fields.text("person_id")?;
    let distinct_id = match (fields.exact_text("distinct_id")?, person_id) {
        (Some(distinct_id), _) => distinct_id,
        (None, Some(person_id)) => distinct_id_of(app, project, &person_id).await?,
        (None, None) => {
            let detail = "distinct_id or person_id is required";
            return Err(Problem::new(Kind::Invalid, "invalid_input", detail));
        }
    };
    let plain = Plain::about(match fields.nullable_value("groups").flatten() {
        Some(Value::Object(groups)) => groups,
        _ => Map::new(),
    });
    let as_of = fields.time("timestamp")?;
    let Some(flags) = snapshot.flag_set(project).cloned() else {
        return Err(Problem::not_found("Not found."));
    };
    let asked = Asked {
        flags,
        id: flag.id.0,
        key: flag.key.clone(),
        filters: flag.filters.clone(),
        distinct_id,
        plain,
        as_of,
    };
    Ok(Response::json(StatusCode::OK, &explained(app, project, asked).await?))
}

/// The same of a flag that is not saved: `body` has the fields of one. `id` is that of the flag which it would change.
pub(in crate::routes) async fn of_draft(
    app: &App,
    asker: &Principal,
    (id, body): (Option<i64>, &Value),
    distinct_id: &str,
) -> Result<Value, Problem> {
    auth::require(&asker.key, "person:read")?;
    let project = asker.project.id;
    let of = |name: &str| body.get(name).cloned().unwrap_or_default();
    let (id, key, filters) = (id.unwrap_or(NEW), plain_text(&of("key")), of("filters"));
    let stored = Stored {
        active: of("active") == Value::Bool(true),
        continuity: of("ensure_experience_continuity") == Value::Bool(true),
        ..Stored::new(id, &key, &filters)
    };
    let flags = Arc::new(app.node.metadata.snapshot().flag_set_with(project, &stored));
    let (distinct_id, plain) = (distinct_id.to_owned(), Plain::about(Map::new()));
    let asked = Asked { flags, id, key, filters, distinct_id, plain, as_of: None };
    explained(app, project, asked).await
}

fn plain_text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// What is explained.
struct Asked {
    /// The flags of the project.
    flags: Arc<FlagSet>,
    id: i64,
    key: String,
    filters: Value,
    distinct_id: String,
    plain: Plain,
    as_of: Option<UnixMicros>,
}

/// The value of a flag for a person, and why.
async fn explained(app: &App, project: ProjectId, asked: Asked) -> Result<Value, Problem> {
    let Asked { flags, id, key, filters, distinct_id, plain, as_of } = asked;
    let snapshot = app.node.metadata.snapshot();
    let question = plain.question(project, &distinct_id);
    let mut known = app.shard.evaluator.load(&snapshot, &question).await?;
    if let (Some(as_of), Some(person)) = (as_of, known.person()) {
        let properties = properties_at(app, project, person, as_of).await?;
        known.assume(properties);
    }
    let now = as_of.unwrap_or_else(|| app.node.clock.now());
    let evaluation = move || {
        let properties = known.person().map(|person| &person.properties);
        let question = plain.question(project, &distinct_id);
        known.evaluate(&snapshot, &question, now, |subject, cohorts| {
            let answers = flags.evaluate(subject, &Selection::default(), cohorts);
            let found = answers.flags.iter().find(|answer| answer.id == id);
            let result = found.map(|answer| &answer.result);
            let verdict = result.and_then(|result| result.as_ref().ok());
            let failure = result.and_then(|result| result.as_ref().err());
            json!({
                "flag_key": key,
                "result": verdict.map_or(Value::Bool(false), value),
                "reason": match (verdict, failure) {
                    (Some(verdict), _) => verdict.reason.code(),
                    (None, Some(failure)) => failure.code(),
                    (None, None) => "flag_disabled",
                },
                "reason_description": match (verdict, failure) {
                    (Some(verdict), _) => verdict.description(),
                    (None, Some(failure)) => failure.description(),
                    (None, None) => "Feature flag is disabled".into(),
                },
                "condition_index": verdict.and_then(|verdict| verdict.condition_index),
                "payload": verdict.and_then(|verdict| verdict.payload),
                "person_properties": properties,
                "evaluation_distinct_id": distinct_id,
                "conditions": flags.trace(&answers, &key, &filters, subject, cohorts),
            })
        })
    };
    // Without a cost limit: users send this request and wait only for it.
    Ok(app.shard.evaluator.run(u64::MAX, evaluation).await?)
}

async fn distinct_id_of(app: &App, project: ProjectId, person_id: &str) -> Result<String, Problem> {
    app.engine.wait().await.map_err(query::problem)?;
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
    let mut events =
        history::of_person(&app.engine, project, person.uuid, now).await.map_err(query::problem)?;
    while let Some(rows) = events.next().await {
        for row in rows.map_err(query::problem)? {
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
