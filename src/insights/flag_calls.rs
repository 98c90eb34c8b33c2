//! Counts recent flag calls as reported by SDKs: [`calls`].

use std::collections::HashMap;
use std::time::Duration;

use arrow::array::AsArray;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::error::DataFusionError;

use weir_event::id::ProjectId;
use weir_query::dialect::sql_text::literal;
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;

/// Period over which calls are counted.
const CALLS_OVER: Duration = Duration::from_hours(7 * 24);

/// The number of calls of each flag with one of `keys`, of which there must be at least one; flags without calls are
/// omitted.
pub async fn calls(
    engine: &Engine,
    project: ProjectId,
    keys: &[&str],
) -> Result<HashMap<String, i64>, QueryError> {
    let now = engine.now().0;
    let since = now.saturating_sub(i64::try_from(CALLS_OVER.as_micros()).unwrap_or(i64::MAX));
    let keys: Vec<String> = keys.iter().map(|key| literal(key)).collect();
    let sql = format!(
        "SELECT json_get_str(properties, '$feature_flag') AS flag, count(*) AS calls FROM events
         WHERE event = '$feature_flag_called' AND timestamp >= to_timestamp_micros({since})
           AND json_get_str(properties, '$feature_flag') IN ({}) GROUP BY 1",
        keys.join(", ")
    );
    let view = engine.view(project).await?;
    let question = engine.planned(async move { view.sql(&sql).await }).await?;
    let (_, batches) = engine.collect(question).await?;
    let mut found = HashMap::new();
    for batch in &batches {
        let flags = cast(batch.column(0), &DataType::Utf8View).map_err(DataFusionError::from)?;
        let counts = batch.column(1).as_primitive_opt::<Int64Type>();
        let rows = flags.as_string_view_opt().zip(counts);
        for (flag, calls) in rows.into_iter().flat_map(|(flags, counts)| flags.iter().zip(counts)) {
            found.extend(flag.map(str::to_owned).zip(calls));
        }
    }
    Ok(found)
}
