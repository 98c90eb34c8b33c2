//! When an event happened, by what its sender says of it. The arithmetic is in `event::time`.

use crate::clock::UnixMicros;
use crate::event::time;
use crate::event::time::Claim;
use crate::event::time::Claimed;
use crate::ingest::capture::Fields;
use crate::ingest::normalize::Batch;
use crate::ingest::tape::Value;

impl<'a> Batch<'a, '_> {
    pub(super) fn timestamp(&self, fields: &Fields<'a>) -> UnixMicros {
        if let Some(decided) = fields.decided {
            return decided.at;
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
        time::event_time(&claim, self.received.at).at
    }
}

/// An instant as SDKs write it: text in many forms, or a number of seconds or milliseconds.
pub(super) fn instant(value: Value<'_>) -> Option<UnixMicros> {
    match value {
        Value::String(text) => time::parse_timestamp(text),
        Value::Integer(number) => Some(time::from_integer(number)),
        Value::Number(number) => time::from_float(number),
        _ => None,
    }
}
