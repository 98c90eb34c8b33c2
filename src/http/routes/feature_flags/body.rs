//! JSON form of flags: bodies of requests, [`FlagWrite`], and stored flags in responses. `metadata` has the rules that
//! relate fields.

use serde_json::{Map, Value, json};

use crate::auth::Principal;
use crate::body::{Field, body};
use crate::fields::Fields;
use crate::operation::input::Creates;
use crate::response::Problem;
use crate::routes::early_access_features::summary;
use crate::routes::feature_flags::filter::is_eligible_for_experiment;
use crate::routes::feature_flags::status::Calls;
use crate::routes::user_body::user;
use weir_api::flags as api;
use weir_base::clock::UnixMicros;
use weir_metadata::cohorts::CohortId;
use weir_metadata::flag_rules::cohorts::filters_mut;
use weir_metadata::flag_rules::{cohort_id, cohort_ids};
use weir_metadata::flags::plain::PlainPatch;
use weir_metadata::flags::{FlagPatch, Seen, StoredFlag};
use weir_metadata::snapshot::Snapshot;

/// Most dashboards of a flag.
const DASHBOARDS_MAX: usize = 500;

body! {
    /// A new flag, or a change of one: what is not there has its default, or keeps its value. The first field that
    /// cannot be read, in their order, is the error.
    #[derive(Default)]
    pub struct FlagWrite {
        /// Description of the flag
        name: Option<String>,
        /// By which SDKs ask for it
        key: Option<String>,
        /// Conditions: groups, multivariate, payloads and more, as PostHog writes them; keys that a change lacks stay
        filters: Option<Value> = {"type": "object"},
        /// True deletes, false restores
        deleted: Option<bool>,
        /// Whether it is on
        active: Option<bool>,
        /// Now, if it is absent
        created_at: Option<UnixMicros>,
        /// Whether a person keeps its value across signing in; null is false
        ensure_experience_continuity: Option<Option<bool>>,
        /// Any JSON
        rollback_conditions: Option<Option<Value>>,
        /// Whether it was rolled back
        performed_rollback: Option<Option<bool>>,
        /// Labels, which replace those that it has
        tags: Option<Vec<String>>,
        /// Dashboards about it, which are added to those that it has
        analytics_dashboards: Option<Dashboards>,
        /// Whether SDKs send more events about it
        has_enriched_analytics: Option<Option<bool>>,
        /// What is hashed; null is distinct_id
        bucketing_identifier: Option<BucketingIdentifier>,
        /// Where it is evaluated; null is all
        evaluation_runtime: Option<EvaluationRuntime>,
        /// The contexts in which it is evaluated; empty for all
        evaluation_contexts: Option<Vec<String>>,
        /// Whether it is read only for its payload; null is false
        is_remote_configuration: Option<Option<bool>>,
        /// Only a flag that is off can be
        archived: Option<bool>,
        /// What the client saw, for original_flag
        version: Option<Option<Value>> = {"type": "integer"},
        /// The flag that the client saw. If it has another version by now, fields that are sent as they were are
        /// left alone, and 409 refuses a change of one that somebody else changed
        original_flag: Option<Option<Value>> = {"type": "object"},
    }
}

impl Creates for FlagWrite {
    const NEEDS: &'static [&'static str] = &["key"];
}

impl FlagWrite {
    /// Converts the body to a change of the flag.
    pub(super) fn into_patch(self) -> FlagPatch {
        let plain = PlainPatch {
            // PostHog's column may be null, and null is read as false.
            ensure_experience_continuity: self
                .ensure_experience_continuity
                .map(Option::unwrap_or_default),
            // Any JSON: PostHog's own user interface sends a list.
            rollback_conditions: self.rollback_conditions,
            performed_rollback: self.performed_rollback,
            tags: self.tags,
            analytics_dashboards: self.analytics_dashboards.map(|own| own.0),
            has_enriched_analytics: self.has_enriched_analytics,
            bucketing_identifier: self.bucketing_identifier.map(|own| own.0),
            evaluation_runtime: self.evaluation_runtime.map(|own| own.0),
            evaluation_contexts: self.evaluation_contexts,
            is_remote_configuration: self.is_remote_configuration.map(Option::unwrap_or_default),
            archived: self.archived,
        };
        FlagPatch {
            name: self.name,
            key: self.key,
            filters: self.filters,
            deleted: self.deleted,
            active: self.active,
            created_at: self.created_at,
            plain,
            seen: seen(self.version.flatten(), self.original_flag.flatten()),
            ..FlagPatch::default()
        }
    }
}

/// The version that the client saw before it made the change.
fn seen(version: Option<Value>, original: Option<Value>) -> Option<Seen> {
    let fields = match original {
        Some(Value::Object(original)) => Some(original),
        _ => None,
    };
    Some(Seen { version: version?.as_i64()?, fields })
}

/// Dashboards about a flag.
#[derive(Debug)]
pub struct Dashboards(Vec<i64>);

impl Field for Option<Dashboards> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        Ok(fields.ids_within(name, DASHBOARDS_MAX)?.map(Dashboards))
    }

    fn schema() -> Value {
        json!({"type": "array", "items": {"type": "integer"}})
    }
}

/// The identifier that is hashed for a flag.
#[derive(Debug)]
pub struct BucketingIdentifier(Option<String>);

impl Field for Option<BucketingIdentifier> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        let choice = fields.nullable_choice(name, &["distinct_id", "device_id"])?;
        Ok(choice.map(BucketingIdentifier))
    }

    fn schema() -> Value {
        json!({"type": ["string", "null"], "enum": ["distinct_id", "device_id", null]})
    }
}

/// The runtimes in which a flag is evaluated.
#[derive(Debug)]
pub struct EvaluationRuntime(Option<String>);

impl Field for Option<EvaluationRuntime> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        let choice = fields.nullable_choice(name, &["server", "client", "all"])?;
        Ok(choice.map(EvaluationRuntime))
    }

    fn schema() -> Value {
        json!({"type": ["string", "null"], "enum": ["server", "client", "all", null]})
    }
}

/// `flag` as sent to `asker`; `snapshot` contains its creator, `calls` the times of its calls.
pub(super) fn whole(
    flag: &StoredFlag,
    snapshot: &Snapshot,
    asker: &Principal,
    calls: &Calls,
) -> api::Flag {
    let can_edit = asker.key.grants("feature_flag:write") && snapshot.may_edit(&asker.user, flag);
    let known = |id| snapshot.user(id).map(|found| user(found));
    let plain = flag.plain.clone();
    api::Flag {
        id: flag.id.0,
        name: flag.name.clone(),
        key: flag.key.clone(),
        filters: filters(flag, snapshot),
        deleted: flag.deleted,
        active: flag.active,
        created_by: flag.created_by.and_then(known),
        created_at: flag.created_at.to_rfc3339(),
        is_simple_flag: flag.is_simple(),
        rollout_percentage: flag.rollout_percentage().clone(),
        ensure_experience_continuity: plain.ensure_experience_continuity,
        experiment_set: Vec::new(),
        surveys: Map::new(),
        features: features(flag, snapshot),
        rollback_conditions: plain.rollback_conditions.unwrap_or_default(),
        performed_rollback: plain.performed_rollback,
        can_edit,
        tags: plain.tags,
        usage_dashboard: flag.usage_dashboard,
        analytics_dashboards: plain.analytics_dashboards,
        has_enriched_analytics: plain.has_enriched_analytics,
        version: flag.version,
        updated_at: flag.updated_at.to_rfc3339(),
        last_modified_by: flag.last_modified_by.and_then(known),
        archived: plain.archived,
        bucketing_identifier: plain.bucketing_identifier,
        evaluation_runtime: plain.evaluation_runtime.unwrap_or_else(|| "all".to_owned()),
        evaluation_contexts: plain.evaluation_contexts,
        is_remote_configuration: plain.is_remote_configuration,
        has_encrypted_payloads: false,
        experiment_set_metadata: Vec::new(),
        user_access_level: if can_edit { "editor" } else { "viewer" }.to_owned(),
        is_used_in_replay_settings: false,
        is_eligible_for_experiment: is_eligible_for_experiment(flag),
        status: calls.state(flag).0.to_owned(),
        last_called_at: calls.last(flag).map(UnixMicros::to_rfc3339),
    }
}

/// The short form of a flag inside another object.
pub(in crate::routes) fn minimal(flag: &StoredFlag) -> api::MinimalFlag {
    api::MinimalFlag {
        active: flag.active,
        deleted: flag.deleted,
        ensure_experience_continuity: flag.plain.ensure_experience_continuity,
        filters: flag.filters.clone(),
        id: flag.id.0,
        key: flag.key.clone(),
        name: flag.name.clone(),
        team_id: flag.project.0,
        version: flag.version,
    }
}

/// The filters with the names of cohorts added to their conditions; null for an unknown cohort.
fn filters(flag: &StoredFlag, snapshot: &Snapshot) -> Value {
    let mut filters = flag.filters.clone();
    if cohort_ids(&filters).next().is_none() {
        return filters;
    }
    for filter in filters_mut(&mut filters) {
        let id = filter.get("value").and_then(cohort_id).map(CohortId);
        let cohort = id.and_then(|id| snapshot.cohort(flag.project, id));
        let name = cohort.map(|cohort| cohort.name.clone());
        filter.insert("cohort_name".to_owned(), name.into());
    }
    filters
}

fn features(flag: &StoredFlag, snapshot: &Snapshot) -> Map<String, Value> {
    let feature = snapshot.feature_of(flag).and_then(|feature| {
        let shown = serde_json::to_value(summary(feature, &flag.key)).ok()?;
        Some((feature.id.to_string(), shown))
    });
    feature.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use serde_json::{Value, json};

    use super::{FlagWrite, whole};
    use crate::auth::Principal;
    use crate::fields::Fields;
    use crate::operation::input::{InBody, New};
    use crate::response::Problem;
    use crate::routes::feature_flags::status::Calls;
    use weir_base::clock::{Clock, UnixMicros};
    use weir_metadata::Metadata;
    use weir_metadata::bootstrap::FirstStart;
    use weir_metadata::flags::FlagPatch;
    use weir_metadata::secrets::Seed;

    const NOON: UnixMicros = UnixMicros(1_795_262_400_000_000);

    fn fields(value: &Value) -> Fields {
        Fields::parse("application/json", value.to_string().as_bytes()).unwrap()
    }

    fn new_flag(body: &Value) -> Result<FlagPatch, Problem> {
        New::<FlagWrite>::take(&mut fields(body)).map(|new| new.0.into_patch())
    }

    fn flag_patch(body: &Value) -> Result<FlagPatch, Problem> {
        FlagWrite::read(&mut fields(body)).map(FlagWrite::into_patch)
    }

    fn error_text<T: std::fmt::Debug>(result: Result<T, Problem>) -> String {
        format!("{:?}", result.unwrap_err())
    }

    /// Every writable field of the API specification.
    #[test]
    fn every_writable_field_is_read() {
        let body = json!({
            "name": "Beta", "key": "beta", "filters": {"groups": []}, "deleted": true,
            "active": false, "created_at": "2026-11-21T12:00:00Z",
            "ensure_experience_continuity": true, "rollback_conditions": {"a": 1},
            "performed_rollback": true, "tags": ["x"], "analytics_dashboards": [3],
            "has_enriched_analytics": true,
        });
        let new = new_flag(&body).unwrap();
        assert_eq!((new.name.as_deref(), new.key.as_deref()), (Some("Beta"), Some("beta")));
        assert_eq!(new.filters, Some(json!({"groups": []})));
        assert_eq!((new.deleted, new.active), (Some(true), Some(false)));
        assert_eq!(new.created_at, Some(NOON));
        let plain = new.plain;
        assert_eq!(plain.ensure_experience_continuity, Some(true));
        assert_eq!(plain.rollback_conditions, Some(Some(json!({"a": 1}))));
        assert_eq!(plain.performed_rollback, Some(Some(true)));
        assert_eq!(plain.tags, Some(vec!["x".to_owned()]));
        assert_eq!(plain.analytics_dashboards, Some(vec![3]));
        assert_eq!(plain.has_enriched_analytics, Some(Some(true)));

        assert_eq!(new.usage_dashboard, None, "clients do not write it");
    }

    #[test]
    fn absent_fields_stay_and_null_empties() {
        let patch = flag_patch(&json!({})).unwrap();
        assert_eq!(format!("{patch:?}"), format!("{:?}", FlagPatch::default()));
        let body = json!({
            "rollback_conditions": null, "performed_rollback": null,
            "has_enriched_analytics": null, "ensure_experience_continuity": null,
        });
        let plain = flag_patch(&body).unwrap().plain;
        assert_eq!(plain.rollback_conditions, Some(None));
        assert_eq!(plain.performed_rollback, Some(None));
        assert_eq!(plain.has_enriched_analytics, Some(None));
        assert_eq!(plain.ensure_experience_continuity, Some(false));
    }

    #[test]
    fn the_first_wrong_field_is_told() {
        for (body, code, attr) in [
            (json!({}), "required", "key"),
            (json!({"active": 7}), "required", "key"),
            (json!({"name": [], "active": 7}), "invalid_input", "name"),
            (json!({"key": null}), "null", "key"),
            (json!({"key": {}}), "invalid_input", "key"),
            (json!({"key": "a", "filters": null}), "null", "filters"),
            (json!({"key": "a", "created_at": "soon", "tags": 1}), "invalid_input", "created_at"),
            (json!({"key": "a", "tags": "x"}), "not_a_list", "tags"),
        ] {
            let text = error_text(new_flag(&body));
            assert!(text.contains(&format!("code: \"{code}\"")), "{text}");
            assert!(text.contains(&format!("Name(\"{attr}\")")), "{text}");
        }
    }

    /// The fields of the API specification, in its order.
    const ORDER: [&str; 21] = [
        "id",
        "name",
        "key",
        "filters",
        "deleted",
        "active",
        "created_by",
        "created_at",
        "is_simple_flag",
        "rollout_percentage",
        "ensure_experience_continuity",
        "experiment_set",
        "surveys",
        "features",
        "rollback_conditions",
        "performed_rollback",
        "can_edit",
        "tags",
        "usage_dashboard",
        "analytics_dashboards",
        "has_enriched_analytics",
    ];

    /// Names and order from the table of the API specification; the values follow from the request.
    #[tokio::test]
    async fn flags_are_shown_as_documented() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("metadata.db");
        let metadata = Metadata::open(&path, Clock::test(NOON)).await.unwrap();
        let seed = Seed::new(&mut StdRng::seed_from_u64(1));
        let started = metadata.bootstrap(FirstStart::default(), &seed).await.unwrap();
        let (project, user) = (started.project, started.user);
        let new = FlagPatch { key: Some("beta".to_owned()), ..FlagPatch::default() };
        let flag = metadata.create_flag(project.id, user.id, new).await.unwrap();
        let snapshot = metadata.snapshot();
        let key = Arc::clone(snapshot.key_by_value(&started.personal_key.unwrap()).unwrap());
        let asker = Principal { key, user: Arc::clone(&user), project };

        let called = UnixMicros(NOON.0 - 1);
        let calls = Calls::new([(flag.id, called)].into(), NOON);
        let text = serde_json::to_string(&whole(&flag, &snapshot, &asker, &calls)).unwrap();
        let creator = json!({
            "id": user.id.0,
            "uuid": user.uuid.to_string(),
            "distinct_id": user.distinct_id,
            "first_name": user.first_name,
            "email": user.email,
            "is_email_verified": user.is_email_verified,
        });
        let expected = json!({
            "id": flag.id.0,
            "name": "",
            "key": "beta",
            "filters": {"groups": [{"properties": [], "rollout_percentage": null}]},
            "deleted": false,
            "active": true,
            "created_by": creator,
            "created_at": "2026-11-21T12:00:00.000000Z",
            "is_simple_flag": true,
            "rollout_percentage": null,
            "ensure_experience_continuity": false,
            "experiment_set": [],
            "surveys": {},
            "features": {},
            "rollback_conditions": null,
            "performed_rollback": null,
            "can_edit": true,
            "tags": [],
            "usage_dashboard": 1,
            "analytics_dashboards": [],
            "has_enriched_analytics": null,
            "version": 1,
            "updated_at": "2026-11-21T12:00:00.000000Z",
            "last_modified_by": creator,
            "archived": false,
            "bucketing_identifier": null,
            "evaluation_runtime": "all",
            "evaluation_contexts": [],
            "is_remote_configuration": false,
            "has_encrypted_payloads": false,
            "experiment_set_metadata": [],
            "user_access_level": "editor",
            "is_used_in_replay_settings": false,
            "is_eligible_for_experiment": false,
            "status": "active",
            "last_called_at": "2026-11-21T11:59:59.999999Z",
        });
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
        let mut rest = text.as_str();
        for name in ORDER {
            let place = rest.find(&format!("\"{name}\":"));
            rest = &rest[place.unwrap_or_else(|| panic!("{name} is missing or too early"))..];
        }
    }
}
