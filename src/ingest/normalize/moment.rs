//! Timestamp of an event, from the claims of its sender. The arithmetic is in `event::time`.

use crate::capture::Fields;
use crate::normalize::batch::Batch;
use crate::request::Received;
use crate::tape::Value;
use crate::warnings::Kind;
use weir_base::clock::UnixMicros;
use weir_event::time;
use weir_event::time::{Claim, Claimed, TimeWarning};

impl<'a> Batch<'a, '_> {
    /// The timestamp to store, and a warning for the sender.
    pub(super) fn timestamp(&self, fields: &Fields<'a>) -> (UnixMicros, Option<Kind>) {
        if let Some(decided) = fields.decided {
            return (decided.at, decided.warning);
        }
        // Another server has stored it under this time.
        if self.history.import().is_some()
            && let Some(at) = fields.timestamp.and_then(instant).and_then(time::within_bounds)
        {
            return (at, None);
        }
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
        (decided.at, decided.warning.map(warning))
    }
}

/// The ingestion warning for a time warning.
pub(super) fn warning(warning: TimeWarning) -> Kind {
    match warning {
        TimeWarning::Unreadable => Kind::InvalidTimestamp,
        TimeWarning::InFuture => Kind::TimestampInFuture,
        TimeWarning::OutOfBounds => Kind::TimestampOutOfRange,
    }
}

/// The sender's `sent_at`, if it shows a clock skew. A difference to the time of arrival of at most
/// `skew_ignored_millis` counts as network delay.
pub(super) fn sent_at(given: Option<Value<'_>>, received: &Received) -> Option<UnixMicros> {
    let sent_at = given.and_then(instant).or_else(|| received.sent_at())?;
    let error_micros = sent_at.0.abs_diff(received.at.0);
    let ignored_micros = u64::from(received.skew_ignored_millis) * 1000;
    (error_micros > ignored_micros).then_some(sent_at)
}

/// Parses an instant as SDKs write it: text in many forms, or a number of seconds or milliseconds.
fn instant(value: Value<'_>) -> Option<UnixMicros> {
    match value {
        Value::String(text) => time::parse_timestamp(text),
        Value::Integer(number) => Some(time::from_integer(number)),
        Value::Number(number) => time::from_float(number),
        _ => None,
    }
}
