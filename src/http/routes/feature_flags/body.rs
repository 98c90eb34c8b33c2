//! JSON form of flags: parses requests into a [`NewFlag`] or a [`FlagPatch`], and writes stored flags as a
//! [`FlagBody`]. `metadata` has the rules that relate fields.

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::auth;
use crate::auth::Principal;
use crate::fields::Fields;
use crate::response::Problem;
use crate::routes::early_access_features::Summary;
use crate::routes::feature_flags::filter::is_eligible_for_experiment;
use crate::routes::feature_flags::status::Calls;
use crate::routes::user_body::user;
use weir_base::clock::UnixMicros;
use weir_metadata::cohorts::CohortId;
use weir_metadata::flag_rules::cohorts::filters_mut;
use weir_metadata::flag_rules::{cohort_id, cohort_ids};
use weir_metadata::flags::plain::{PlainFields, PlainPatch};
use weir_metadata::flags::{FlagPatch, NewFlag, Seen, StoredFlag};
use weir_metadata::snapshot::Snapshot;

/// The plain fields that the API specification puts at a place of their own in the order of a [`FlagBody`].
const PLACED: [&str; 6] = [
    "ensure_experience_continuity",
    "rollback_conditions",
    "performed_rollback",
    "tags",
    "analytics_dashboards",
    "has_enriched_analytics",
];

/// Most dashboards of a flag.
const DASHBOARDS_MAX: usize = 500;

/// Required fields of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Required {
    /// None: the body may be empty.
    Nothing,
    /// `key`.
    Key,
}

/// Reads a change. The first invalid field, in the order of the API specification, is the error.
pub(super) fn flag_patch(mut fields: Fields, required: Required) -> Result<FlagPatch, Problem> {
    let name = fields.text("name")?;
    if required == Required::Key {
        fields.require("key")?;
    }
    Ok(FlagPatch {
        name,
        key: fields.text("key")?,
        filters: fields.value("filters")?,
        deleted: fields.boolean("deleted")?,
        active: fields.boolean("active")?,
        created_at: fields.time("created_at")?,
        plain: plain_patch(&mut fields)?,
        seen: seen(&mut fields)?,
        ..FlagPatch::default()
    })
}

fn plain_patch(fields: &mut Fields) -> Result<PlainPatch, Problem> {
    Ok(PlainPatch {
        // PostHog's column may be null, and null is read as false.
        ensure_experience_continuity: fields
            .nullable_boolean("ensure_experience_continuity")?
            .map(Option::unwrap_or_default),
        // Any JSON: PostHog's own user interface sends a list.
        rollback_conditions: fields.nullable_value("rollback_conditions"),
        performed_rollback: fields.nullable_boolean("performed_rollback")?,
        tags: fields.texts("tags")?,
        analytics_dashboards: fields.ids_within("analytics_dashboards", DASHBOARDS_MAX)?,
        has_enriched_analytics: fields.nullable_boolean("has_enriched_analytics")?,
        bucketing_identifier: fields
            .nullable_choice("bucketing_identifier", &["distinct_id", "device_id"])?,
        evaluation_runtime: fields
            .nullable_choice("evaluation_runtime", &["server", "client", "all"])?,
        evaluation_contexts: fields.texts("evaluation_contexts")?,
        is_remote_configuration: fields
            .nullable_boolean("is_remote_configuration")?
            .map(Option::unwrap_or_default),
        archived: fields.boolean("archived")?,
    })
}

/// The version that the client saw before it made the change.
fn seen(fields: &mut Fields) -> Result<Option<Seen>, Problem> {
    let original = match fields.nullable_value("original_flag").flatten() {
        Some(Value::Object(original)) => Some(original),
        _ => None,
    };
    let version = fields.nullable_value("version").flatten();
    let Some(version) = version.as_ref().and_then(Value::as_i64) else { return Ok(None) };
    Ok(Some(Seen { version, fields: original }))
}

/// Reads a new flag.
pub(super) fn new_flag(fields: Fields) -> Result<NewFlag, Problem> {
    let given = flag_patch(fields, Required::Key)?;
    Ok(NewFlag {
        name: given.name.unwrap_or_default(),
        key: given.key.unwrap_or_default(),
        filters: given.filters,
        active: given.active,
        deleted: given.deleted.unwrap_or_default(),
        created_at: given.created_at,
        plain: given.plain,
    })
}

/// A flag as sent to clients: the fields of the API specification in its order, then `version` and
/// `updated_at`.
#[derive(Debug, Serialize)]
pub(super) struct FlagBody<'a> {
    id: i64,
    name: &'a str,
    key: &'a str,
    filters: Cow<'a, Value>,
    deleted: bool,
    active: bool,
    created_by: Option<weir_api::accounts::User>,
    created_at: String,
    is_simple_flag: bool,
    /// A number as received, or null.
    rollout_percentage: &'a Value,
    ensure_experience_continuity: bool,
    /// Weir has no experiments and no surveys, so flags have none.
    experiment_set: [i64; 0],
    surveys: Map<String, Value>,
    /// The early access feature of the flag, by its id.
    features: Map<String, Value>,
    rollback_conditions: Option<&'a Value>,
    performed_rollback: Option<bool>,
    /// Whether the caller may change it.
    can_edit: bool,
    tags: &'a [String],
    usage_dashboard: Option<i64>,
    analytics_dashboards: &'a [i64],
    has_enriched_analytics: Option<bool>,
    version: i64,
    updated_at: String,
    last_modified_by: Option<weir_api::accounts::User>,
    #[serde(flatten)]
    rest: Rest<'a>,
    /// Weir never encrypts payloads.
    has_encrypted_payloads: bool,
    experiment_set_metadata: [i64; 0],
    user_access_level: &'static str,
    /// Weir does not record sessions.
    is_used_in_replay_settings: bool,
    is_eligible_for_experiment: bool,
    /// `active`, `stale`, `archived` or `deleted`.
    status: &'static str,
    /// When an SDK last reported a call of the flag, up to half a minute late.
    last_called_at: Option<String>,
}

impl<'a> FlagBody<'a> {
    /// `flag` as sent to `asker`; `snapshot` contains its creator, `calls` its calls.
    pub(super) fn new(
        flag: &'a StoredFlag,
        snapshot: &'a Snapshot,
        asker: &Principal,
        calls: &Calls,
    ) -> Self {
        let can_edit =
            auth::grants(&asker.key, "feature_flag:write") && snapshot.may_edit(&asker.user, flag);
        let created_by = flag.created_by.and_then(|user| snapshot.user(user));
        let plain = &flag.plain;
        Self {
            id: flag.id.0,
            name: &flag.name,
            key: &flag.key,
            filters: filters(flag, snapshot),
            deleted: flag.deleted,
            active: flag.active,
            created_by: created_by.map(|found| user(found)),
            created_at: flag.created_at.to_rfc3339(),
            is_simple_flag: flag.is_simple(),
            rollout_percentage: flag.rollout_percentage(),
            ensure_experience_continuity: plain.ensure_experience_continuity,
            experiment_set: [],
            surveys: Map::new(),
            features: features(flag, snapshot),
            rollback_conditions: plain.rollback_conditions.as_ref(),
            performed_rollback: plain.performed_rollback,
            can_edit,
            tags: &plain.tags,
            usage_dashboard: flag.usage_dashboard,
            analytics_dashboards: &plain.analytics_dashboards,
            has_enriched_analytics: plain.has_enriched_analytics,
            version: flag.version,
            updated_at: flag.updated_at.to_rfc3339(),
            last_modified_by: flag
                .last_modified_by
                .and_then(|user| snapshot.user(user))
                .map(|found| user(found)),
            rest: Rest(plain),
            has_encrypted_payloads: false,
            experiment_set_metadata: [],
            user_access_level: if can_edit { "editor" } else { "viewer" },
            is_used_in_replay_settings: false,
            is_eligible_for_experiment: is_eligible_for_experiment(flag),
            status: calls.state(flag).0,
            last_called_at: calls.last(flag).map(UnixMicros::to_rfc3339),
        }
    }
}

/// The plain fields that a [`FlagBody`] does not have in another place.
#[derive(Debug)]
struct Rest<'a>(&'a PlainFields);

impl Serialize for Rest<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rest = self.0.entries().filter(|(name, _)| !PLACED.contains(name));
        serializer.collect_map(rest.map(|(name, value)| match (name, value) {
            ("evaluation_runtime", Value::Null) => (name, "all".into()),
            shown => shown,
        }))
    }
}

/// The filters with the names of cohorts added to their conditions; null for an unknown cohort.
fn filters<'a>(flag: &'a StoredFlag, snapshot: &Snapshot) -> Cow<'a, Value> {
    if cohort_ids(&flag.filters).next().is_none() {
        return Cow::Borrowed(&flag.filters);
    }
    let mut filters = flag.filters.clone();
    for filter in filters_mut(&mut filters) {
        let id = filter.get("value").and_then(cohort_id).map(CohortId);
        let cohort = id.and_then(|id| snapshot.cohort(flag.project, id));
        let name = cohort.map(|cohort| cohort.name.clone());
        filter.insert("cohort_name".to_owned(), name.into());
    }
    Cow::Owned(filters)
}

fn features(flag: &StoredFlag, snapshot: &Snapshot) -> Map<String, Value> {
    let feature = snapshot.feature_of(flag).and_then(|feature| {
        let shown = serde_json::to_value(Summary::of(feature, &flag.key)).ok()?;
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

    use super::{FlagBody, PLACED, Required, flag_patch, new_flag};
    use crate::auth::Principal;
    use crate::fields::Fields;
    use crate::response::Problem;
    use crate::routes::feature_flags::status::Calls;
    use weir_base::clock::{Clock, UnixMicros};
    use weir_metadata::Metadata;
    use weir_metadata::bootstrap::FirstStart;
    use weir_metadata::flags::NewFlag;
    use weir_metadata::secrets::Seed;

    const NOON: UnixMicros = UnixMicros(1_795_262_400_000_000);

    fn fields(value: &Value) -> Fields {
        Fields::parse("application/json", value.to_string().as_bytes()).unwrap()
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
        let new = new_flag(fields(&body)).unwrap();
        assert_eq!((new.name.as_str(), new.key.as_str()), ("Beta", "beta"));
        assert_eq!(new.filters, Some(json!({"groups": []})));
        assert_eq!((new.deleted, new.active), (true, Some(false)));
        assert_eq!(new.created_at, Some(NOON));
        let plain = new.plain;
        assert_eq!(plain.ensure_experience_continuity, Some(true));
        assert_eq!(plain.rollback_conditions, Some(Some(json!({"a": 1}))));
        assert_eq!(plain.performed_rollback, Some(Some(true)));
        assert_eq!(plain.tags, Some(vec!["x".to_owned()]));
        assert_eq!(plain.analytics_dashboards, Some(vec![3]));
        assert_eq!(plain.has_enriched_analytics, Some(Some(true)));

        let patch = flag_patch(fields(&body), Required::Nothing).unwrap();
        assert_eq!((patch.name.as_deref(), patch.key.as_deref()), (Some("Beta"), Some("beta")));
        assert_eq!((patch.deleted, patch.active), (Some(true), Some(false)));
        assert_eq!(patch.usage_dashboard, None, "clients do not write it");
    }

    #[test]
    fn absent_fields_stay_and_null_empties() {
        let patch = flag_patch(fields(&json!({})), Required::Nothing).unwrap();
        assert_eq!(format!("{patch:?}"), format!("{:?}", super::FlagPatch::default()));
        let body = json!({
            "rollback_conditions": null, "performed_rollback": null,
            "has_enriched_analytics": null, "ensure_experience_continuity": null,
        });
        let plain = flag_patch(fields(&body), Required::Nothing).unwrap().plain;
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
            let text = error_text(new_flag(fields(&body)));
            assert!(text.contains(&format!("code: \"{code}\"")), "{text}");
            assert!(text.contains(&format!("Name(\"{attr}\")")), "{text}");
        }
        assert!(error_text(flag_patch(fields(&json!({})), Required::Key)).contains("required"));
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
        let new = NewFlag { key: "beta".to_owned(), ..NewFlag::default() };
        let flag = metadata.create_flag(project.id, user.id, new).await.unwrap();
        let snapshot = metadata.snapshot();
        let key = Arc::clone(snapshot.key_by_value(&started.personal_key.unwrap()).unwrap());
        let asker = Principal { key, user: Arc::clone(&user), project };

        let called = UnixMicros(NOON.0 - 1);
        let calls = Calls::new([(flag.id, called)].into(), NOON);
        let text = serde_json::to_string(&FlagBody::new(&flag, &snapshot, &asker, &calls)).unwrap();
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
        for name in PLACED {
            assert_eq!(text.matches(&format!("\"{name}\":")).count(), 1, "{name} once");
        }
    }
}
