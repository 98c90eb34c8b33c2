//! Flag evaluation through the management API: reasons, the caller's own flags, the number of
//! persons that a condition matches.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::auth::Principal;
use crate::beside::beside;
use crate::body::{Field, body};
use crate::fields::Fields;
use crate::openapi::{Parameter, Shape};
use crate::operation::input::{InQuery, input};
use crate::operation::output::Long;
use crate::operation::{Context, Operation};
use crate::request::Request;
use crate::response::Problem;
use crate::routes::feature_flags::body::minimal;
use crate::routes::query::problems;
use weir_api::flags as api;
use weir_api::flags::FlagValue;
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
use weir_metadata::snapshot::Snapshot;

/// Parameters of an evaluation for one distinct id, without properties in the request.
pub(super) struct Plain {
    groups: Map<String, Value>,
    empty: Map<String, Value>,
}

impl Plain {
    /// Parameters with these groups.
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

/// The distinct id for which flags are evaluated.
#[derive(Debug)]
pub struct DistinctId(String);

impl InQuery for DistinctId {
    fn describe(name: &'static str, about: &'static str, shape: &mut Shape) {
        shape.query.push(Parameter::text(name).about(about).required());
    }

    fn take(request: &Request, name: &'static str) -> Result<Self, Problem> {
        let distinct_id = request.query(name).filter(|id| !id.is_empty());
        distinct_id
            .map(|id| Self(id.into_owned()))
            .ok_or_else(|| invalid("distinct_id is required"))
    }
}

/// Keys of groups by their types, as a JSON object; empty if it is malformed.
#[derive(Debug)]
pub struct Groups(Map<String, Value>);

impl InQuery for Groups {
    fn describe(name: &'static str, _: &'static str, shape: &mut Shape) {
        shape.query.push(Parameter::shared(name));
    }

    fn take(request: &Request, name: &'static str) -> Result<Self, Problem> {
        let groups = request.query(name);
        let groups = groups.and_then(|groups| json::read(groups.as_bytes()).ok());
        Ok(Self(groups.unwrap_or_default()))
    }
}

fn invalid(detail: impl Into<String>) -> Problem {
    Problem::new(Kind::Invalid, "invalid_input", detail.into())
}

input! {
    /// Why flags are what they are for a distinct id.
    pub struct Reasons {
        query distinct_id: DistinctId,
        query groups: Groups,
        /// A list with commas
        query flag_keys: Option<String>,
    }
}

impl Reasons {
    /// The evaluation of all flags for a distinct id without groups.
    pub(in crate::routes) fn of(distinct_id: &str) -> Self {
        let (distinct_id, groups) = (DistinctId(distinct_id.to_owned()), Groups(Map::new()));
        Self { distinct_id, groups, flag_keys: None }
    }
}

impl Operation for Reasons {
    type Who = Principal;
    type Out = Long<api::EvaluationReasons>;
    const SCOPE: &'static str = "feature_flag:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let Self { distinct_id: DistinctId(distinct_id), groups: Groups(groups), flag_keys } = self;
        let (snapshot, project) = (cx.snapshot(), cx.who.project.id);
        let keys = flag_keys.filter(|keys| !keys.is_empty());
        let is_asked = move |key: &str| {
            keys.as_ref().is_none_or(|keys| keys.split(',').any(|asked| asked.trim() == key))
        };
        let is_shown = is_asked.clone();
        let plain = Plain::about(groups);
        let shown = move |answers: &[Answer<'_>]| {
            let asked = answers.iter().filter(|answer| is_shown(answer.key));
            asked.map(|answer| (answer.key.to_owned(), reason(answer))).collect()
        };
        let mut reasons: BTreeMap<String, api::ExplainedValue> =
            answers(&cx.app, &snapshot, project, distinct_id, plain, shown).await?;
        let flags = snapshot.flags(project).iter();
        for flag in flags.filter(|flag| !flag.active && is_asked(&flag.key)) {
            let reason = "disabled".to_owned();
            let evaluation = api::Evaluation { condition_index: None, description: None, reason };
            let value = FlagValue::Is(false);
            reasons.insert(flag.key.clone(), api::ExplainedValue { evaluation, value });
        }
        Ok(Long(api::EvaluationReasons(reasons)))
    }
}

fn reason(answer: &Answer<'_>) -> api::ExplainedValue {
    let (condition_index, description, reason, value) = match &answer.result {
        Ok(verdict) => {
            let reason = verdict.reason.code();
            (verdict.condition_index, verdict.description(), reason, value(verdict))
        }
        Err(failure) => (None, failure.description(), failure.code(), FlagValue::Is(false)),
    };
    let (description, reason) = (Some(description.into_owned()), reason.to_owned());
    let evaluation = api::Evaluation { condition_index, description, reason };
    api::ExplainedValue { evaluation, value }
}

pub(super) fn value(verdict: &Verdict<'_>) -> FlagValue {
    match verdict.variant.filter(|_| verdict.enabled) {
        Some(variant) => FlagValue::Variant(variant.to_owned()),
        None => FlagValue::Is(verdict.enabled),
    }
}

input! {
    /// The flags as they are for the caller.
    pub struct Mine {
        query groups: Groups,
    }
}

impl Operation for Mine {
    type Who = Principal;
    type Out = Long<Vec<api::MyFlag>>;
    const SCOPE: &'static str = "feature_flag:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (snapshot, project) = (cx.snapshot(), cx.who.project.id);
        let (distinct_id, plain) = (cx.who.user.distinct_id.clone(), Plain::about(self.groups.0));
        let values = answers(&cx.app, &snapshot, project, distinct_id, plain, |answers| {
            let values = answers.iter().map(|answer| {
                let verdict = answer.result.as_ref().ok();
                (answer.id, verdict.map_or(FlagValue::Is(false), value))
            });
            values.collect::<HashMap<_, _>>()
        })
        .await?;
        let told = move || {
            let flags = snapshot.flags(project).iter().map(|flag| {
                let value = values.get(&flag.id.0).cloned().unwrap_or(FlagValue::Is(false));
                api::MyFlag { feature_flag: minimal(flag), value }
            });
            Ok(Long(flags.collect()))
        };
        beside(&cx.app.node.cpu, told).await
    }
}

/// Evaluates no flags: conditions on other flags are removed before the count.
struct NoFlags;

impl Dependencies for NoFlags {
    fn dependency(&self, _: i64) -> Dependency<'_> {
        Dependency::Off
    }
}

input! {
    /// The number of persons or groups that match the properties of a condition. Its rollout and its conditions on
    /// other flags are ignored, as in PostHog.
    pub struct BlastRadius {
        body question: AudienceQuestion,
    }
}

body! {
    /// A condition of a flag.
    pub struct AudienceQuestion {
        /// The condition, of which only the properties count
        condition: AskedCondition,
        /// The number of the type of groups that it is about; null is persons
        group_type_index: Option<Option<Value>> = {"type": ["integer", "null"]},
    }
}

/// A condition of a flag; only its properties are used.
#[derive(Debug)]
pub struct AskedCondition(Map<String, Value>);

impl AskedCondition {
    /// Checks that the value is an object.
    ///
    /// # Errors
    ///
    /// 400 if it is not.
    pub fn of(value: Option<Value>) -> Result<Self, Problem> {
        match value {
            Some(Value::Object(condition)) => Ok(Self(condition)),
            _ => Err(invalid("Missing condition for which to get blast radius")),
        }
    }
}

impl Field for AskedCondition {
    const IS_REQUIRED: bool = true;

    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        Self::of(fields.nullable_value(name).flatten())
    }

    fn schema() -> Value {
        let properties = json!({
            "properties": {"type": "array", "items": {"type": "object"}},
            "rollout_percentage": {"type": ["number", "null"]},
        });
        json!({"type": "object", "properties": properties})
    }
}

impl Operation for BlastRadius {
    type Who = Principal;
    type Out = api::Audience;
    const SCOPE: &'static str = "feature_flag:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (snapshot, project) = (cx.snapshot(), cx.who.project.id);
        let AudienceQuestion { condition: AskedCondition(condition), group_type_index } =
            self.question;
        let wrong_group = || invalid("Invalid group type index for feature flag condition.");
        let index = group_type(group_type_index.flatten().as_ref()).map_err(|_| wrong_group())?;
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
        let stored =
            Stored { matching: snapshot.matching(project), ..Stored::new(0, "", &filters) };
        let condition = Definition::parse(&stored).map_err(|error| invalid(error.to_string()))?;
        let audience = match condition.aggregation {
            Aggregation::Person => count_persons(&cx.app, &snapshot, project, condition).await?,
            Aggregation::Group(index) => {
                count_groups(&cx.app, &snapshot, project, index, condition).await?
            }
        };
        let audience::Audience { matching, total } = audience;
        Ok(api::Audience {
            affected: matching,
            total,
            total_users: total,
            users_affected: matching,
        })
    }
}

async fn count_persons(
    app: &App,
    snapshot: &Snapshot,
    project: ProjectId,
    condition: Definition,
) -> Result<audience::Audience, Problem> {
    let set = snapshot.cohort_set(project).cloned().unwrap_or_default();
    let now = snapshot.now(project, app.node.clock.now());
    let counted = audience::count_persons(&app.engine, project, move |view, person| {
        with_subject(view, project, person, String::new(), now, |subject, uuids| {
            let cohorts = Memberships::new(&set, uuids);
            let surroundings = Surroundings { flags: &NoFlags, cohorts: &cohorts };
            evaluate(&condition, subject, surroundings).is_ok_and(|verdict| verdict.enabled)
        })
    });
    counted.await.map_err(problems::problem)
}

async fn count_groups(
    app: &App,
    snapshot: &Snapshot,
    project: ProjectId,
    index: u8,
    condition: Definition,
) -> Result<audience::Audience, Problem> {
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
    counted.await.map_err(problems::problem)
}
