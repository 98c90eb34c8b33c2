//! Event id: the sender's uuid, or a generated one.

use uuid::Uuid;

use crate::capture::Fields;
use crate::normalize::batch::Batch;
use crate::prepare::error::PrepareError;
use crate::tape::Value;
use weir_base::clock::UnixMicros;
use weir_event::schema::column;

impl<'a> Batch<'a, '_> {
    /// Sets the uuid column. A malformed or missing id is replaced by one that depends only on the
    /// request's seed, the row and the timestamp, so that a replay generates it again. Returns whether it
    /// was malformed.
    pub(super) fn event_id(
        &mut self,
        fields: &Fields<'a>,
        timestamp: UnixMicros,
    ) -> Result<(Uuid, bool), PrepareError> {
        let text = match (fields.uuid, fields.id) {
            (Some(Value::String(text)), _) => Some(text.trim()).filter(|text| !text.is_empty()),
            // What a list of events returns has its uuid as `id`. In other events, it is an id of the sender's own, which
            // different events may have.
            (None | Some(Value::Null), Some(Value::String(id))) if self.is_import(fields) => {
                Some(id.trim()).filter(|id| Uuid::try_parse(id).is_ok())
            }
            _ => None,
        };
        let given = text.and_then(|text| Some((text, Uuid::try_parse(text).ok()?)));
        let is_absent = text.is_none() && !matches!(fields.uuid, Some(value) if is_wrong(value));
        let (id, view) = match given {
            Some((text, id)) if is_canonical(text) => (id, self.view(text)?),
            Some((_, id)) => (id, self.view(id.hyphenated().encode_lower(&mut [0; 36]))?),
            None => {
                let id = made_id(self.received.seed, self.columns.rows(), timestamp);
                (id, self.view(id.hyphenated().encode_lower(&mut [0; 36]))?)
            }
        };
        self.columns.set_text(column::UUID, view);
        Ok((id, given.is_none() && !is_absent))
    }
}

/// Whether a value is neither a string nor null.
fn is_wrong(value: Value<'_>) -> bool {
    !matches!(value, Value::String(_) | Value::Null)
}

/// Whether `text` has the form in which columns store a uuid: 36 characters, lower case, hyphens.
fn is_canonical(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
        })
}

/// A version 7 uuid of the event's time and of bits that depend only on the seed and the row.
fn made_id(seed: u64, row: usize, timestamp: UnixMicros) -> Uuid {
    let row = u64::try_from(row).unwrap_or(u64::MAX);
    let high = mix(seed ^ mix(row));
    let low = mix(high);
    let mut random = [0; 10];
    let bytes = high.to_le_bytes().into_iter().chain(low.to_le_bytes());
    random.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    let millis = u64::try_from(timestamp.0 / 1000).unwrap_or(0);
    uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
}

/// The finaliser of `SplitMix64` (Steele, Lea, Flood 2014): every input bit affects every output bit.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
