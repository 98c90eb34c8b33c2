//! Whether a flag is still of use: `active`, `stale`, `archived`, `deleted`. A flag is stale if SDKs
//! said that they called it, and not for 30 days; or if none ever said so, and it is 30 days old and
//! open for everyone.

use std::collections::HashMap;

use arrow::array::AsArray;
use arrow::array::RecordBatch;
use arrow::datatypes::Int64Type;
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
use crate::metadata::flags::StoredFlag;
use crate::query::QueryError;

/// Age from which a flag can be stale; PostHog's.
const STALE_AFTER_MICROS: i64 = 30 * 24 * 3600 * 1_000_000;

/// When SDKs last said that they called each flag. The key stands in the properties of the event.
const LAST_CALLED: &str = "SELECT json_get_str(properties, '$feature_flag') AS flag,
            CAST(max(timestamp) AS BIGINT) AS last_called
     FROM events WHERE event = '$feature_flag_called' GROUP BY 1";

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
    let called = last_called(app, project).await?;
    let rollout = Rollout::of(&flag);
    let (status, reason) = state(&flag, called.get(&flag.key).copied(), app.clock.now());
    let body = json!({
        "status": status,
        "reason": reason,
        "reason_states_rollout": status == "stale" && !called.contains_key(&flag.key),
        "last_called_at": called.get(&flag.key).map(|time| time.to_rfc3339()),
        "rollout": {
            "effectively_full_rollout": rollout.is_full,
            "has_targeting_conditions": rollout.has_targeting,
            "max_rollout_percentage": rollout.max,
            "is_multivariate": rollout.is_multivariate,
        },
    });
    Ok(Response::json(StatusCode::OK, &body))
}

/// The state of a flag, and why.
pub(super) fn state(
    flag: &StoredFlag,
    called: Option<UnixMicros>,
    now: UnixMicros,
) -> (&'static str, &'static str) {
    let is_old = |time: UnixMicros| now.0.saturating_sub(time.0) > STALE_AFTER_MICROS;
    match called {
        _ if flag.deleted => ("deleted", "Flag has been deleted"),
        _ if flag.archived => ("archived", "Flag has been archived"),
        Some(called) if is_old(called) => ("stale", "Flag has not been called in 30 days"),
        None if flag.active && is_old(flag.created_at) && Rollout::of(flag).is_full => {
            ("stale", "This boolean flag will always evaluate to \"true\"")
        }
        _ => ("active", "Flag is not fully rolled out and may still be active"),
    }
}

/// When SDKs last said that they called each flag of a project, by key.
pub(super) async fn last_called(
    app: &App,
    project: ProjectId,
) -> Result<HashMap<String, UnixMicros>, Problem> {
    let rows = async {
        let question = app.engine.view(project).await?.sql(LAST_CALLED).await?;
        let (_, batches) = app.engine.collect(question).await?;
        Ok::<_, QueryError>(batches)
    };
    let batches = rows.await.map_err(query::problem)?;
    Ok(batches.iter().flat_map(pairs).collect())
}

fn pairs(batch: &RecordBatch) -> Vec<(String, UnixMicros)> {
    let column = |name: &str| batch.column_by_name(name);
    let keys: Vec<Option<String>> = match column("flag") {
        Some(keys) => match (keys.as_string_opt::<i32>(), keys.as_string_view_opt()) {
            (Some(keys), _) => keys.iter().map(|key| key.map(str::to_owned)).collect(),
            (_, Some(keys)) => keys.iter().map(|key| key.map(str::to_owned)).collect(),
            _ => Vec::new(),
        },
        None => Vec::new(),
    };
    let times = column("last_called").and_then(|times| times.as_primitive_opt::<Int64Type>());
    let times = times.into_iter().flat_map(|times| times.iter());
    keys.into_iter().zip(times).filter_map(|(key, time)| Some((key?, UnixMicros(time?)))).collect()
}
