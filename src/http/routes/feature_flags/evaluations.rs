//! Flag evaluation through the management API: reasons, the caller's own flags, the number of
//! persons that a condition matches.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use hyper::StatusCode;
use serde_json::{Map, Value, json};

use crate::auth::Principal;
use crate::beside::beside;
use crate::call::{Call, Rendering};
use crate::csv;
use crate::fields::Fields;
use crate::openapi::{Description, INVALID, Parameter, by_hand};
use crate::request::Request;
use crate::response::{Problem, Response};
use crate::routes::feature_flags::minimal;
use crate::routes::query;
use weir_app::App;
use weir_base::error::Kind;
use weir_evaluation::EvaluationRequest;
use weir_evaluation::membership::with_subject;
use weir_event::id::ProjectId;
use weir_event::json;
use weir_event::predicate::filter::group_type;
use weir_flags::cohorts::Memberships;
use weir_flags::definition::{Aggregation, Definition, Stored};
use weir_flags::evaluate::{Dependencies, Dependency, Surroundings, evaluate};
use weir_flags::set::{Answer, Selection};
use weir_flags::subject::{GroupTypes, Subject};
use weir_flags::verdict::Verdict;
use weir_insights::audience;
use weir_insights::audience::Audience;
use weir_metadata::snapshot::Snapshot;

/// Parameters of an evaluation for one distinct id, without properties in the request.
pub(super) struct Plain {
    groups: Map<String, Value>,
    empty: Map<String, Value>,
}

impl Plain {
    /// Parses the query; `groups` is a JSON object.
    fn of(request: &Request) -> Self {
        let groups = request.query("groups");
        let groups = groups.and_then(|groups| json::read(groups.as_bytes()).ok());
        Self::about(groups.unwrap_or_default())
    }

    /// For these groups.
    pub(super) fn about(groups: Map<String, Value>) -> Self {
        Self { groups, empty: Map::new() }
    }

    pub(super) fn question<'q>(
        &'q self,
        project: ProjectId,
        distinct_id: &'q str,
    ) -> EvaluationRequest<'q> {
        EvaluationRequest {
            project,
            distinct_id,
            anon_distinct_id: None,
            device_id: None,
            groups: &self.groups,
            person_properties: &self.empty,
            group_properties: &self.empty,
            supplied_only: false,
        }
    }
}

/// Passes the results of all active flags to `show`.
async fn answers<T: Default + Send + 'static>(
    app: &App,
    snapshot: &Arc<Snapshot>,
    project: ProjectId,
    distinct_id: String,
    plain: Plain,
    show: impl FnOnce(&[Answer<'_>]) -> T + Send + 'static,
) -> Result<T, Problem> {
    let Some(flags) = snapshot.flag_set(project).cloned() else { return Ok(T::default()) };
    let question = plain.question(project, &distinct_id);
    let known = app.shard.evaluator.load(snapshot, &question).await?;
    let (now, snapshot) = (app.node.clock.now(), Arc::clone(snapshot));
    let evaluation = app.shard.evaluator.run(flags.effort().nanos(0), move || {
        let question = plain.question(project, &distinct_id);
        known.evaluate(&snapshot, &question, now, |subject, cohorts| {
            show(&flags.evaluate(subject, &Selection::default(), cohorts).flags)
        })
    });
    Ok(evaluation.await?)
}

pub(crate) const EVALUATION_REASONS: Description =
    Description::ok::<by_hand::EvaluationReasons>("Why flags are what they are for a distinct id")
        .query(&[
            Parameter::text("distinct_id").required(),
            Parameter::shared("groups"),
            Parameter::text("flag_keys").about("A list with commas"),
        ])
        .or(&[INVALID]);

/// `GET feature_flags/evaluation_reasons/?distinct_id=&groups=&flag_keys=`.
pub async fn evaluation_reasons(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, .. } = call;
    let snapshot = app.node.metadata.snapshot();
    let distinct_id = request.query("distinct_id").filter(|id| !id.is_empty());
    let Some(distinct_id) = distinct_id else {
        let detail = "distinct_id is required";
        return Err(Problem::new(Kind::Invalid, "invalid_input", detail));
    };
    let keys = request.query("flag_keys").filter(|keys| !keys.is_empty()).map(Cow::into_owned);
    let is_asked = move |key: &str| {
        keys.as_ref().is_none_or(|keys| keys.split(',').any(|asked| asked.trim() == key))
    };
    let project = asker.project.id;
    let (distinct_id, plain) = (distinct_id.into_owned(), Plain::of(&request));
    let is_shown = is_asked.clone();
    let mut reasons = answers(app, &snapshot, project, distinct_id, plain, move |answers| {
        let asked = answers.iter().filter(|answer| is_shown(answer.key));
        asked.map(|answer| (answer.key.to_owned(), reason(answer))).collect::<Map<_, _>>()
    })
    .await?;
    for flag in snapshot.flags(project).iter().filter(|flag| !flag.active && is_asked(&flag.key)) {
        let disabled = json!({"reason": "disabled", "condition_index": null});
        reasons.insert(flag.key.clone(), json!({"value": false, "evaluation": disabled}));
    }
    csv::answer(&app.node.cpu, StatusCode::OK, Rendering::Json, reasons).await
}

fn reason(answer: &Answer<'_>) -> Value {
    match &answer.result {
        Ok(verdict) => json!({
            "value": value(verdict),
            "evaluation": {
                "reason": verdict.reason.code(),
                "condition_index": verdict.condition_index,
                "description": verdict.description(),
            },
        }),
        Err(failure) => json!({
            "value": false,
            "evaluation": {
                "reason": failure.code(),
                "condition_index": null,
                "description": failure.description(),
            },
        }),
    }
}

pub(super) fn value(verdict: &Verdict<'_>) -> Value {
    match verdict.variant.filter(|_| verdict.enabled) {
        Some(variant) => Value::String(variant.to_owned()),
        None => Value::Bool(verdict.enabled),
    }
}

pub(crate) const MY_FLAGS: Description =
    Description::ok::<Vec<by_hand::MyFlag>>("The flags as they are for the asker")
        .query(&[Parameter::shared("groups")]);

/// `GET feature_flags/my_flags/?groups=`: the flags evaluated for the caller.
pub async fn my_flags(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, .. } = call;
    let snapshot = app.node.metadata.snapshot();
    let project = asker.project.id;
    let (distinct_id, plain) = (asker.user.distinct_id.clone(), Plain::of(&request));
    let values = answers(app, &snapshot, project, distinct_id, plain, |answers| {
        let values = answers.iter().map(|answer| {
            let verdict = answer.result.as_ref().ok();
            (answer.id, verdict.map_or(Value::Bool(false), value))
        });
        values.collect::<HashMap<_, _>>()
    })
    .await?;
    let told = move || {
        let flags = snapshot.flags(project).iter().map(|flag| {
            let value = values.get(&flag.id.0).cloned().unwrap_or(Value::Bool(false));
            json!({"feature_flag": minimal(flag), "value": value})
        });
        Ok(Response::json(StatusCode::OK, &flags.collect::<Vec<_>>()))
    };
    beside(&app.node.cpu, told).await
}

/// Evaluates no flags: conditions on other flags are removed before the count.
struct NoFlags;

impl Dependencies for NoFlags {
    fn dependency(&self, _: i64) -> Dependency<'_> {
        Dependency::Off
    }
}

pub(crate) const BLAST_RADIUS: Description =
    Description::ok::<by_hand::Audience>("How many persons or groups a condition matches")
        .body::<by_hand::AudienceQuestion>();

/// `POST feature_flags/user_blast_radius/`: the number of persons or groups that match the
/// properties of a condition. Its rollout and its conditions on other flags are ignored, as in
/// PostHog.
pub async fn blast_radius(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, .. } = call;
    let snapshot = app.node.metadata.snapshot();
    let project = asker.project.id;
    let mut fields = Fields::read(request).await?;
    let invalid = |detail: &str| Problem::new(Kind::Invalid, "invalid_input", detail.to_owned());
    let Some(Some(Value::Object(condition))) = fields.nullable_value("condition") else {
        return Err(invalid("Missing condition for which to get blast radius"));
    };
    let wrong_group = || invalid("Invalid group type index for feature flag condition.");
    let index = fields.nullable_value("group_type_index").flatten();
    let index = group_type(index.as_ref()).map_err(|_| wrong_group())?;
    let properties = condition.get("properties").and_then(Value::as_array);
    let properties = properties.map_or(&[][..], Vec::as_slice);
    let is_wrong = |property: &Value| match index {
        Some(index) => property.get("group_type_index") != Some(&Value::from(index)),
        None => property.get("type") == Some(&Value::from("group")),
    };
    if properties.iter().any(is_wrong) {
        return Err(wrong_group());
    }
    let is_counted = |property: &&Value| property.get("type") != Some(&Value::from("flag"));
    let properties: Vec<&Value> = properties.iter().filter(is_counted).collect();
    let filters = json!({
        "groups": [{"properties": properties, "rollout_percentage": 100}],
        "aggregation_group_type_index": index,
    });
    let stored = Stored { matching: snapshot.matching(project), ..Stored::new(0, "", &filters) };
    let condition = Definition::parse(&stored).map_err(|error| invalid(&error.to_string()))?;
    let audience = match condition.aggregation {
        Aggregation::Person => count_persons(app, &snapshot, project, condition).await?,
        Aggregation::Group(index) => {
            count_groups(app, &snapshot, project, index, condition).await?
        }
    };
    let body = json!({
        "users_affected": audience.matching,
        "total_users": audience.total,
        "affected": audience.matching,
        "total": audience.total,
    });
    Ok(Response::json(StatusCode::OK, &body))
}

async fn count_persons(
    app: &App,
    snapshot: &Snapshot,
    project: ProjectId,
    condition: Definition,
) -> Result<Audience, Problem> {
    let set = snapshot.cohort_set(project).cloned().unwrap_or_default();
    let now = snapshot.now(project, app.node.clock.now());
    let counted = audience::count_persons(&app.engine, project, move |view, person| {
        with_subject(view, project, person, String::new(), now, |subject, uuids| {
            let cohorts = Memberships::new(&set, uuids);
            let surroundings = Surroundings { flags: &NoFlags, cohorts: &cohorts };
            evaluate(&condition, subject, surroundings).is_ok_and(|verdict| verdict.enabled)
        })
    });
    counted.await.map_err(query::problem)
}

async fn count_groups(
    app: &App,
    snapshot: &Snapshot,
    project: ProjectId,
    index: u8,
    condition: Definition,
) -> Result<Audience, Problem> {
    let types = snapshot.group_types(project);
    let name = types.get(usize::from(index)).cloned().unwrap_or_default();
    let now = snapshot.now(project, app.node.clock.now());
    let counted = audience::count_groups(&app.engine, project, index, move |key, group| {
        let types = GroupTypes::new([(index, name.as_str())]);
        let keys = Map::from_iter([(name.clone(), Value::String(key.to_owned()))]);
        let mut subject = Subject::new(String::new(), now);
        subject.add_groups(&types, Some(&keys), None);
        subject.store_group(index, &group.properties);
        let set = weir_flags::cohorts::CohortSet::default();
        let cohorts = Memberships::new(&set, &|| None);
        let surroundings = Surroundings { flags: &NoFlags, cohorts: &cohorts };
        evaluate(&condition, &subject, surroundings).is_ok_and(|verdict| verdict.enabled)
    });
    counted.await.map_err(query::problem)
}
