//! Status of a flag: `active`, `stale`, `archived`, `deleted`. A flag that is on is stale if SDKs reported calls of it,
//! but none in the last 30 days. A flag without any reported call is stale if it is 30 days old and rolled out to all
//! persons.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::{Value, json};

use crate::auth::Principal;
use crate::operation::input::input;
use crate::operation::{Context, Operation};
use crate::response::Problem;
use crate::routes::query::problems;
use crate::routes::store::problem;
use weir_api::flags as api;
use weir_app::App;
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_metadata::error::MetadataError;
use weir_metadata::flags::{FlagId, StoredFlag};

/// Age from which a flag can be stale; PostHog's figure.
const STALE_AFTER_MICROS: i64 = 30 * DAY_MICROS;

const DAY_MICROS: i64 = 24 * 3600 * 1_000_000;

/// Summary of a flag's rollout.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rollout<'f> {
    /// All persons match, by a condition without properties, and all get the same variant.
    pub(super) is_full: bool,
    /// Some condition has filters on properties.
    pub(super) has_targeting: bool,
    /// The largest percentage of the conditions, if there are any.
    pub(super) max: Option<f64>,
    /// It has variants.
    pub(super) is_multivariate: bool,
    /// The variant that all persons get.
    pub(super) variant: Option<&'f str>,
}

impl<'f> Rollout<'f> {
    /// Summarizes the conditions of a flag. A condition without a percentage applies to all persons.
    pub(super) fn of(flag: &'f StoredFlag) -> Self {
        let groups = flag.filters.get("groups").and_then(Value::as_array);
        let groups = groups.map_or(&[][..], Vec::as_slice);
        let percentage = |of: &Value| of.get("rollout_percentage").and_then(Value::as_f64);
        let share = |group: &Value| percentage(group).unwrap_or(100.0);
        let is_targeted = |group: &&Value| {
            let properties = group.get("properties").and_then(Value::as_array);
            properties.is_some_and(|properties| !properties.is_empty())
        };
        let open = groups.iter().find(|group| !is_targeted(group) && share(group) >= 100.0);
        let variants = flag.filters.pointer("/multivariate/variants").and_then(Value::as_array);
        let variants = variants.map_or(&[][..], Vec::as_slice);
        let is_multivariate = !variants.is_empty();
        // The variant of the condition, or the single variant of the distribution.
        let pinned = open.and_then(|open| open.get("variant")?.as_str());
        let pinned = pinned.filter(|variant| is_multivariate && !variant.is_empty());
        let only = variants.iter().find(|variant| percentage(variant) == Some(100.0));
        let only = only.filter(|_| open.is_some()).and_then(|variant| variant.get("key")?.as_str());
        let variant = pinned.or(only);
        Self {
            is_full: open.is_some() && (!is_multivariate || variant.is_some()),
            has_targeting: groups.iter().any(|group| is_targeted(&group)),
            max: groups.iter().map(share).reduce(f64::max),
            is_multivariate,
            variant,
        }
    }
}

/// A number in PostHog's format of percentages: integers without a fraction.
fn number(value: f64) -> Value {
    value.to_string().parse().unwrap_or_default()
}

input! {
    /// Whether a flag is still of use.
    pub struct Status {
        path id: i64,
    }
}

impl Operation for Status {
    type Who = Principal;
    type Out = api::FlagStatus;
    const SCOPE: &'static str = "feature_flag:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let flag = match cx.metadata().flag(cx.who.project.id, FlagId(self.id)).await {
            Ok(flag) => flag,
            Err(MetadataError::NotFound(_)) => {
                let reason = "Flag could not be found";
                let body = json!({"status": "unknown", "reason": reason});
                return Err(Problem::not_found(reason).with_body(Some(body)));
            }
            Err(error) => return Err(problem(error)),
        };
        cx.app.engine.wait().await.map_err(problems::problem)?;
        let calls = Calls::of_flag(&cx.app, flag.id).await?;
        let rollout = Rollout::of(&flag);
        let (status, reason) = calls.state(&flag);
        let last_called = calls.last(&flag);
        Ok(api::FlagStatus {
            last_called_at: last_called.map(UnixMicros::to_rfc3339),
            reason: reason.into_owned(),
            reason_states_rollout: status == "stale" && last_called.is_none(),
            rollout: api::FlagRollout {
                effectively_full_rollout: rollout.is_full,
                has_targeting_conditions: rollout.has_targeting,
                is_multivariate: rollout.is_multivariate,
                max_rollout_percentage: rollout.max.map(number),
            },
            status: status.to_owned(),
        })
    }
}

/// Times of the last calls of flags that SDKs reported, and the current time.
#[derive(Debug)]
pub(super) struct Calls {
    last: HashMap<FlagId, UnixMicros>,
    now: UnixMicros,
}

impl Calls {
    /// Flags without a call are absent from `last`.
    pub(super) fn new(last: HashMap<FlagId, UnixMicros>, now: UnixMicros) -> Self {
        Self { last, now }
    }

    /// Without calls, for a new flag.
    pub(super) fn none(app: &App) -> Self {
        Self::new(HashMap::new(), app.node.clock.now())
    }

    /// Calls of all flags of a project.
    pub(super) async fn of_project(app: &App, project: ProjectId) -> Result<Self, Problem> {
        let last = app.node.metadata.flag_calls(project).await.map_err(problem)?;
        Ok(Self::new(last, app.node.clock.now()))
    }

    /// Calls of one flag.
    pub(super) async fn of_flag(app: &App, flag: FlagId) -> Result<Self, Problem> {
        let last = app.node.metadata.flag_called(flag).await.map_err(problem)?;
        let last = last.map(|last| (flag, last)).into_iter().collect();
        Ok(Self::new(last, app.node.clock.now()))
    }

    /// Time of the last call of a flag; `None` if it was never called.
    pub(super) fn last(&self, flag: &StoredFlag) -> Option<UnixMicros> {
        self.last.get(&flag.id).copied()
    }

    /// The status of a flag, with its reason.
    pub(super) fn state(&self, flag: &StoredFlag) -> (&'static str, Cow<'static, str>) {
        let age = |time: UnixMicros| self.now.0.saturating_sub(time.0);
        let days = |time: UnixMicros| age(time) / DAY_MICROS;
        let is_old = |time: UnixMicros| age(time) > STALE_AFTER_MICROS;
        match self.last(flag) {
            _ if flag.deleted => ("deleted", "Flag has been deleted".into()),
            _ if flag.plain.archived => ("archived", "Flag has been archived".into()),
            _ if !flag.active => {
                ("active", "Flag is disabled (not evaluated for staleness)".into())
            }
            Some(called) if is_old(called) => {
                ("stale", format!("Flag has not been called in {} days", days(called)).into())
            }
            Some(called) => ("active", called_ago(days(called))),
            None if is_old(flag.created_at) => match Rollout::of(flag) {
                Rollout { is_full: true, variant: Some(variant), .. } => {
                    ("stale", format!("This flag will always use the variant \"{variant}\"").into())
                }
                Rollout { is_full: true, .. } => {
                    ("stale", "This boolean flag will always evaluate to \"true\"".into())
                }
                _ => ("active", "Flag has no usage data yet".into()),
            },
            None => ("active", "Flag has no usage data yet".into()),
        }
    }
}

fn called_ago(days: i64) -> Cow<'static, str> {
    match days {
        1 => "Flag was last called 1 day ago".into(),
        2.. => format!("Flag was last called {days} days ago").into(),
        _ => "Flag was called today".into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Calls, DAY_MICROS, Rollout, number};
    use weir_base::clock::UnixMicros;
    use weir_event::id::ProjectId;
    use weir_metadata::flags::plain::PlainFields;
    use weir_metadata::flags::{FlagId, StoredFlag};

    const NOW: UnixMicros = UnixMicros(1_795_262_400_000_000);

    fn flag(filters: Value) -> StoredFlag {
        StoredFlag {
            id: FlagId(1),
            project: ProjectId(1),
            name: String::new(),
            key: "beta".to_owned(),
            filters,
            active: true,
            deleted: false,
            created_by: None,
            created_at: UnixMicros(0),
            updated_at: UnixMicros(0),
            version: 1,
            usage_dashboard: None,
            plain: PlainFields::default(),
            last_modified_by: None,
        }
    }

    fn days_ago(days: i64) -> UnixMicros {
        UnixMicros(NOW.0 - days * DAY_MICROS - 1)
    }

    fn with_variants(shares: [u8; 2], groups: Value) -> Value {
        let [a, b] = shares;
        json!({"groups": groups, "multivariate": {"variants": [
            {"key": "a", "rollout_percentage": a}, {"key": "b", "rollout_percentage": b}]}})
    }

    /// PostHog's summary, except for conditions without a percentage and flags without conditions.
    #[test]
    fn rollouts_are_summed_up() {
        let asks = json!([{"key": "plan", "value": "pro"}]);
        let all = |variant: Value| json!({"rollout_percentage": 100, "variant": variant});
        let full = all(Value::Null);
        let few = json!({"properties": asks, "rollout_percentage": 100, "variant": "a"});
        for (filters, is_full, has_targeting, max, variant) in [
            (json!({"groups": []}), false, false, None, None),
            (json!({"groups": [{}]}), true, false, Some(100.0), None),
            (json!({"groups": [full]}), true, false, Some(100.0), None),
            (json!({"groups": [{"rollout_percentage": 12.5}]}), false, false, Some(12.5), None),
            (json!({"groups": [{"rollout_percentage": 0}]}), false, false, Some(0.0), None),
            (json!({"groups": [few]}), false, true, Some(100.0), None),
            (json!({"groups": [few, full]}), true, true, Some(100.0), None),
            (with_variants([50, 50], json!([full])), false, false, Some(100.0), None),
            (with_variants([0, 100], json!([full])), true, false, Some(100.0), Some("b")),
            (
                with_variants([50, 50], json!([all(json!("a"))])),
                true,
                false,
                Some(100.0),
                Some("a"),
            ),
            (
                with_variants([0, 100], json!([all(json!("a"))])),
                true,
                false,
                Some(100.0),
                Some("a"),
            ),
            (with_variants([0, 100], json!([few])), false, true, Some(100.0), None),
        ] {
            let flag = flag(filters);
            let is_multivariate = flag.filters.get("multivariate").is_some();
            let expected = Rollout { is_full, has_targeting, max, is_multivariate, variant };
            assert_eq!(Rollout::of(&flag), expected, "{}", flag.filters);
        }
        assert_eq!([100.0, 12.5, 0.0].map(number), [json!(100), json!(12.5), json!(0)]);
    }

    /// The states and texts of PostHog's `FeatureFlagStatusChecker`.
    #[test]
    fn a_flag_that_is_off_is_not_stale() {
        let everybody = json!({"groups": [{"rollout_percentage": 100}]});
        let half = json!({"groups": [{"rollout_percentage": 50}]});
        let of = |filters: &Value| StoredFlag { created_at: days_ago(40), ..flag(filters.clone()) };
        let on = of(&everybody);
        let young = StoredFlag { created_at: days_ago(20), ..on.clone() };
        let off = StoredFlag { active: false, ..on.clone() };
        let plain = PlainFields { archived: true, ..PlainFields::default() };
        let archived = StoredFlag { plain, ..off.clone() };
        let deleted = StoredFlag { deleted: true, ..archived.clone() };
        let one = of(&with_variants([0, 100], json!([{"rollout_percentage": 100}])));
        for (flag, called, status, reason) in [
            (&on, None, "stale", "This boolean flag will always evaluate to \"true\""),
            (&one, None, "stale", "This flag will always use the variant \"b\""),
            (&young, None, "active", "Flag has no usage data yet"),
            (&of(&half), None, "active", "Flag has no usage data yet"),
            (&of(&half), Some(31), "stale", "Flag has not been called in 31 days"),
            (&on, Some(0), "active", "Flag was called today"),
            (&on, Some(1), "active", "Flag was last called 1 day ago"),
            (&on, Some(29), "active", "Flag was last called 29 days ago"),
            (&off, None, "active", "Flag is disabled (not evaluated for staleness)"),
            (&off, Some(31), "active", "Flag is disabled (not evaluated for staleness)"),
            (&archived, Some(31), "archived", "Flag has been archived"),
            (&deleted, Some(31), "deleted", "Flag has been deleted"),
        ] {
            let called = called.map(|days| (flag.id, days_ago(days)));
            let calls = Calls::new(called.into_iter().collect(), NOW);
            assert_eq!(calls.state(flag), (status, reason.into()), "{flag:?}");
        }
    }
}
