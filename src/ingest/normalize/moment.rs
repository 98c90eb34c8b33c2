//! When an event happened, by what its sender says of it. The arithmetic is in `event::time`.

use crate::clock::UnixMicros;
use crate::event::time;
use crate::event::time::Claim;
use crate::event::time::Claimed;
use crate::event::time::TimeWarning;
use crate::ingest::capture::Fields;
use crate::ingest::normalize::Batch;
use crate::ingest::prepare::Received;
use crate::ingest::tape::Value;
use crate::ingest::warnings::Kind;

impl<'a> Batch<'a, '_> {
    /// The time to store the event under, and what the sender should hear of it.
    pub(super) fn timestamp(&self, fields: &Fields<'a>) -> (UnixMicros, Option<Kind>) {
        let claim = Claim {
            timestamp: match fields.timestamp {
                None | Some(Value::Null) => Claimed::Absent,
                Some(given) => Claimed::from(instant(given)),
            },
            sent_at: self.sent_at.filter(|_| !fields.inner.ignore_sent_at),
            offset_millis: match fields.offset {
                Some(Value::Integer(millis)) => Some(millis),
                _ => None,
            },
        };
        let decided = time::event_time(&claim, self.received.at);
        let warning = decided.warning.map(|warning| match warning {
            TimeWarning::Unreadable => Kind::InvalidTimestamp,
            TimeWarning::InFuture => Kind::TimestampInFuture,
            TimeWarning::OutOfBounds => Kind::TimestampOutOfRange,
        });
        (decided.at, warning)
    }
}

/// When the sender says it sent the request, if that tells an error of its clock. Within the dead
/// zone the difference to the time of arrival is taken for the way of the request.
pub(super) fn sent_at(given: Option<Value<'_>>, received: &Received) -> Option<UnixMicros> {
    let from_query =
        received.sent_at_query_millis.map(|millis| UnixMicros(millis.saturating_mul(1000)));
    let sent_at = given.and_then(instant).or(from_query)?;
    let error_micros = sent_at.0.abs_diff(received.at.0);
    let ignored_micros = u64::from(received.skew_ignored_millis) * 1000;
    (error_micros > ignored_micros).then_some(sent_at)
}

/// An instant as SDKs write it: text in many forms, or a number of seconds or milliseconds.
fn instant(value: Value<'_>) -> Option<UnixMicros> {
    match value {
        Value::String(text) => time::parse_timestamp(text),
        Value::Integer(number) => Some(time::from_integer(number)),
        Value::Number(number) => time::from_float(number),
        _ => None,
    }
}
