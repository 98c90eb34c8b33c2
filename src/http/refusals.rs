//! Requests refused for overload: a log line per reason and interval reports their number.

use std::time::Duration;

use hyper::StatusCode;

use weir_base::telemetry::repeats::Repeats;

/// Requests refused for overload, by route and cause.
pub(super) type Refusals = Repeats<(&'static str, Box<str>)>;

/// The status of requests refused for overload.
pub(super) const REFUSED: u16 = StatusCode::SERVICE_UNAVAILABLE.as_u16();

/// Logs the refused requests that no log line has reported yet.
pub(super) fn log_refusals(refusals: &Refusals, now: Duration) {
    refusals.take(now).iter().for_each(|(why, refused)| log_refused(why, *refused));
}

/// Logs that requests were refused for one reason.
pub(super) fn log_refused((route, cause): &(&'static str, Box<str>), refused: u64) {
    tracing::warn!(
        target: "weir::http",
        route = *route,
        status = REFUSED,
        cause = &**cause,
        refused,
        "requests refused"
    );
}
