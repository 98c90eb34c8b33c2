//! Determines the time of the last of the newest `wanted` rows: [`since`], and as a condition on events:
//! [`condition`].

use arrow::array::AsArray;
use arrow::datatypes::TimestampMicrosecondType;
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::Expr;
use datafusion::prelude::{col, lit};

use crate::columns::time;
use weir_base::clock::UnixMicros;
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::view::View;

/// Length of the first window, in microseconds: 15 minutes.
const WINDOW: i64 = 15 * 60 * 1_000_000;

/// Factor by which each window is longer than the one before.
const GROWTH: i64 = 4;

/// The condition that an event is no older than the last of the `wanted` newest of some events of a view. `times` has
/// the timestamps of these events; the bounds are exclusive.
pub(crate) async fn condition(
    engine: &Engine,
    (view, times): (&View, &DataFrame),
    (after, before): (Option<UnixMicros>, Option<UnixMicros>),
    wanted: usize,
) -> Result<Expr, QueryError> {
    let Some((oldest, newest)) = view.event_times() else { return Ok(lit(false)) };
    let oldest = after.map_or(oldest, |after| oldest.max(after));
    let newest = before.map_or(newest, |before| newest.min(before));
    let since = since(engine, (times, "timestamp"), (oldest, newest), wanted).await?;
    Ok(since.map_or(lit(false), |since| col("timestamp").gt_eq(time(UnixMicros(since)))))
}

/// The time of the last of the `wanted` newest rows, by a timestamp column with values between `oldest` and `newest`;
/// that of the oldest row if there are fewer, `None` if there is none. Reads only this column and those that the
/// filters need.
pub(crate) async fn since(
    engine: &Engine,
    (rows, column): (&DataFrame, &'static str),
    (oldest, newest): (UnixMicros, UnixMicros),
    wanted: usize,
) -> Result<Option<i64>, QueryError> {
    let (mut end, mut window) = (newest, WINDOW);
    let (mut missing, mut last) = (wanted, None);
    while missing > 0 && end >= oldest {
        let start = end.0.saturating_sub(window).max(oldest.0);
        let times = times(engine, (rows.clone(), column), (start, end.0), missing).await?;
        missing = missing.saturating_sub(times.len());
        last = times.last().copied().or(last);
        if start == i64::MIN {
            break;
        }
        end = UnixMicros(start - 1);
        window = window.saturating_mul(GROWTH);
    }
    Ok(last)
}

/// The newest times within a window, both ends inclusive; at most `limit`.
async fn times(
    engine: &Engine,
    (rows, column): (DataFrame, &'static str),
    (start, end): (i64, i64),
    limit: usize,
) -> Result<Vec<i64>, QueryError> {
    let within = col(column).between(time(UnixMicros(start)), time(UnixMicros(end)));
    let order = vec![col(column).sort(false, false)];
    let rows = rows.filter(within)?.select(vec![col(column)])?;
    let (_, batches) = engine.collect(rows.sort(order)?.limit(0, Some(limit))?).await?;
    let mut times = Vec::new();
    for batch in &batches {
        let column = batch.column(0).as_primitive::<TimestampMicrosecondType>();
        times.extend_from_slice(column.values());
    }
    Ok(times)
}
