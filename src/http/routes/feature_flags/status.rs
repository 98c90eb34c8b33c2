//! Whether a flag is still of use: `active`, `stale`, `archived`, `deleted`. A flag is stale if SDKs
//! said that they called it, and not for 30 days; or if none ever said so, and it is 30 days old and
//! open for everyone.

use std::collections::HashMap;

use hyper::StatusCode;
use serde_json::Value;
use serde_json::json;

use crate::app::App;
use crate::clock::UnixMicros;
use crate::event::id::ProjectId;
use crate::http::auth::Principal;
use crate::http::call::Call;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::routes::feature_flags::flag_id;
use crate::http::routes::query;
use crate::http::routes::store::problem;
use crate::metadata::MetadataError;
use crate::metadata::flags::FlagId;
use crate::metadata::flags::StoredFlag;

/// Age from which a flag can be stale; PostHog's.
const STALE_AFTER_MICROS: i64 = 30 * 24 * 3600 * 1_000_000;

/// How far a flag is rolled out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rollout {
    /// Everybody gets it, by a condition without properties.
    pub(super) is_full: bool,
    /// Some condition asks for properties.
    pub(super) has_targeting: bool,
    /// The largest percentage of a condition.
    pub(super) max: f64,
    /// It has variants.
    pub(super) is_multivariate: bool,
}

impl Rollout {
    /// Reads the conditions of a flag.
    pub(super) fn of(flag: &StoredFlag) -> Self {
        let groups = flag.filters.get("groups").and_then(Value::as_array);
        let (mut is_full, mut has_targeting, mut max) = (false, false, 0.0_f64);
        for group in groups.into_iter().flatten() {
            let properties = group.get("properties").and_then(Value::as_array);
            let is_open = properties.is_none_or(Vec::is_empty);
            let share = group.get("rollout_percentage").and_then(Value::as_f64).unwrap_or(100.0);
            is_full |= is_open && share >= 100.0;
            has_targeting |= !is_open;
            max = max.max(share);
        }
        let variants = flag.filters.pointer("/multivariate/variants").and_then(Value::as_array);
        let is_multivariate = variants.is_some_and(|variants| !variants.is_empty());
        // With variants, everybody gets the same only if one has it all.
        let one_has_all = variants.into_iter().flatten().any(|variant| {
            variant.get("rollout_percentage").and_then(Value::as_f64) == Some(100.0)
        });
        is_full &= !is_multivariate || one_has_all;
        Self { is_full, has_targeting, max, is_multivariate }
    }
}

/// `GET feature_flags/:id/status/`.
pub async fn status(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let project = call.asker.project.id;
    let flag = match app.metadata.flag(project, flag_id(call.id())?).await {
        Ok(flag) => flag,
        Err(MetadataError::NotFound(_)) => {
            let body = json!({"status": "unknown", "reason": "Flag could not be found"});
            return Ok(Response::json(StatusCode::NOT_FOUND, &body));
        }
        Err(error) => return Err(problem(error)),
    };
    app.engine.wait().await.map_err(query::problem)?;
    let calls = Calls::of_flag(app, flag.id).await?;
    let rollout = Rollout::of(&flag);
    let (status, reason) = calls.state(&flag);
    let last_called = calls.last(&flag);
    let body = json!({
        "status": status,
        "reason": reason,
        "reason_states_rollout": status == "stale" && last_called.is_none(),
        "last_called_at": last_called.map(UnixMicros::to_rfc3339),
        "rollout": {
            "effectively_full_rollout": rollout.is_full,
            "has_targeting_conditions": rollout.has_targeting,
            "max_rollout_percentage": rollout.max,
            "is_multivariate": rollout.is_multivariate,
        },
    });
    Ok(Response::json(StatusCode::OK, &body))
}

/// When SDKs last said that they called flags, and what follows from it now.
#[derive(Debug)]
pub(super) struct Calls {
    last: HashMap<FlagId, UnixMicros>,
    now: UnixMicros,
}

impl Calls {
    /// Who was not called is absent.
    pub(super) fn new(last: HashMap<FlagId, UnixMicros>, now: UnixMicros) -> Self {
        Self { last, now }
    }

    /// Of a flag that is new.
    pub(super) fn none(app: &App) -> Self {
        Self::new(HashMap::new(), app.clock.now())
    }

    /// Of all flags of a project.
    pub(super) async fn of_project(app: &App, project: ProjectId) -> Result<Self, Problem> {
        let last = app.metadata.flag_calls(project).await.map_err(problem)?;
        Ok(Self::new(last, app.clock.now()))
    }

    /// Of one flag.
    pub(super) async fn of_flag(app: &App, flag: FlagId) -> Result<Self, Problem> {
        let last = app.metadata.flag_called(flag).await.map_err(problem)?;
        let last = last.map(|last| (flag, last)).into_iter().collect();
        Ok(Self::new(last, app.clock.now()))
    }

    /// When a flag was last called, if ever.
    pub(super) fn last(&self, flag: &StoredFlag) -> Option<UnixMicros> {
        self.last.get(&flag.id).copied()
    }

    /// The state of a flag, and why.
    pub(super) fn state(&self, flag: &StoredFlag) -> (&'static str, &'static str) {
        let is_old = |time: UnixMicros| self.now.0.saturating_sub(time.0) > STALE_AFTER_MICROS;
        match self.last(flag) {
            _ if flag.deleted => ("deleted", "Flag has been deleted"),
            _ if flag.archived => ("archived", "Flag has been archived"),
            Some(called) if is_old(called) => ("stale", "Flag has not been called in 30 days"),
            None if flag.active && is_old(flag.created_at) && Rollout::of(flag).is_full => {
                ("stale", "This boolean flag will always evaluate to \"true\"")
            }
            _ => ("active", "Flag is not fully rolled out and may still be active"),
        }
    }
}
