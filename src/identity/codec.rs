//! Binary encoding of rows and keys.
//!
//! Numbers in keys are big endian, so that the order of keys is the order of numbers; all are
//! positive.
//!
//! | keyspace | key | value |
//! |---|---|---|
//! | `ids` | project, distinct id | number of the person, 0 if personless |
//! | `persons` | project, number | [`encode_person`] |
//! | `person_ids` | project, number, position | [`encode_distinct_id`] |
//! | `uuids` | project, uuid | number |
//! | `overrides` | project, uuid | uuid |
//! | `groups` | project, index of the type (1 byte), group key | [`encode_group`] |
//! | `listed` | project, `created_at` and uuid, both descending | number |
//! | `emails` | project, [`email_hash`], number | nothing |
//! | `deletions` | project, sequence, number within the record (4 bytes) | [`encode_deletion`] |
//! | `meta` | `format`, `counters` | [`FORMAT`], [`Counters`] |
//! | `meta` | `types/`, project | JSON array of group types, in the order of their indexes |
//! | `meta` | `count/`, project | number of persons |
//! | `meta` | `incomplete` | nothing: records were lost that are not applied |
//! | `meta` | `split/`, project, uuid | nothing: a person with this uuid was split |
//! | `meta` | `gone/`, project | [`encode_gone`]: the project was deleted |
//! | `meta` | `deleting/`, key in `deletions` | JSON array of distinct ids whose events are still to be deleted |
//!
//! The position of a distinct id is the number of ids given to persons before it, in all projects;
//! it stays the same when the id moves to another person.

use serde_json::{Map, Value};
use uuid::Uuid;

use crate::IdentityError;
use crate::deletions::{Deletion, RequestKey};
use crate::gone::Gone;
use crate::person::{DistinctId, Group, Person};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_event::json;

/// The version of everything in this file.
///
/// 1 had no times in `person_ids`. Its rows are read as they are.
pub(super) const FORMAT: u64 = 2;

/// The oldest version that can be read.
pub(super) const FORMAT_OLDEST: u64 = 1;

pub(super) const FORMAT_KEY: &[u8] = b"format";
pub(super) const COUNTERS_KEY: &[u8] = b"counters";
pub(super) const INCOMPLETE_KEY: &[u8] = b"incomplete";
pub(super) const TYPES_PREFIX: &[u8] = b"types/";
pub(super) const COUNT_PREFIX: &[u8] = b"count/";
pub(super) const SPLIT_PREFIX: &[u8] = b"split/";
pub(super) const DELETING_PREFIX: &[u8] = b"deleting/";
pub(super) const GONE_PREFIX: &[u8] = b"gone/";

/// Prefixes of the rows of `meta` that go with their project.
pub(super) const META_OF_PROJECTS: [&[u8]; 4] =
    [DELETING_PREFIX, TYPES_PREFIX, COUNT_PREFIX, SPLIT_PREFIX];
/// Present once every person is in `listed` and `emails`.
pub(super) const LISTED_KEY: &[u8] = b"listed 2";

/// Bytes of a person before its properties.
const PERSON_HEAD_BYTES: usize = 16 + 8 + 8 + 8 + 1;

/// The progress of the store: applied records, and the next numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counters {
    /// Sequence of the last applied record.
    pub(super) applied: u64,
    /// Number of the next new person.
    pub(super) next_person: i64,
    /// Position of the next distinct id that is given to a person.
    pub(super) next_position: i64,
    /// The progress in the record behind `applied`.
    pub(super) progress: Progress,
}

/// The progress in a record that is applied in parts. A replay brings the same ops in the same
/// order, so it continues behind those that are counted here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// The record; 0 if none is begun.
    pub(super) sequence: u64,
    /// Its first ops, which are applied.
    pub(super) ops: u64,
    /// Distinct ids that its merges moved and that count towards the limit.
    pub(super) moves: u64,
    /// Requests to delete events in it that were applied.
    pub(super) marks: u32,
    /// Operations of operators in it that had an effect.
    pub(super) effects: u32,
}

/// A state between two batches. Each batch leads to a later one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// The last record that is applied as a whole.
    applied: u64,
    /// Ops that are applied of the next one.
    ops: u64,
}

impl Counters {
    pub(super) const START: Self = Self {
        applied: 0,
        next_person: 1,
        next_position: 1,
        progress: Progress { sequence: 0, ops: 0, moves: 0, marks: 0, effects: 0 },
    };

    /// The state that these are the counters of.
    pub(super) fn point(self) -> Point {
        Point { applied: self.applied, ops: self.progress.ops }
    }

    /// `applied`, `next_person`, `next_position` (8 bytes each); if a record is begun, its sequence,
    /// ops, moves (8 each), marks and effects (4 each).
    pub(super) fn encode(self) -> Vec<u8> {
        let Self { applied, next_person, next_position, progress } = self;
        let mut bytes =
            [applied.to_be_bytes(), next_person.to_be_bytes(), next_position.to_be_bytes()]
                .concat();
        if progress != Progress::default() {
            let Progress { sequence, ops, moves, marks, effects } = progress;
            bytes.extend([sequence, ops, moves].iter().flat_map(|field| field.to_be_bytes()));
            bytes.extend([marks, effects].iter().flat_map(|field| field.to_be_bytes()));
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, IdentityError> {
        let mut rest = Fields::new(bytes, "counters");
        Ok(Self {
            applied: u64::from_be_bytes(rest.take()?),
            next_person: i64::from_be_bytes(rest.take()?),
            next_position: i64::from_be_bytes(rest.take()?),
            progress: match rest.bytes {
                [] => Progress::default(),
                _ => Progress {
                    sequence: u64::from_be_bytes(rest.take()?),
                    ops: u64::from_be_bytes(rest.take()?),
                    moves: u64::from_be_bytes(rest.take()?),
                    marks: u32::from_be_bytes(rest.take()?),
                    effects: u32::from_be_bytes(rest.take()?),
                },
            },
        })
    }
}

/// A key that begins with the project, followed by `parts`.
pub(super) fn key(project: ProjectId, parts: &[&[u8]]) -> Vec<u8> {
    let length = parts.iter().map(|part| part.len()).sum::<usize>();
    let mut key = Vec::with_capacity(length.saturating_add(8));
    key.extend_from_slice(&project.0.to_be_bytes());
    parts.iter().for_each(|part| key.extend_from_slice(part));
    key
}

/// A key of `meta` that belongs to a project.
pub(super) fn meta_key(prefix: &[u8], project: ProjectId) -> Vec<u8> {
    [prefix, &project.0.to_be_bytes()].concat()
}

/// The project of a [`meta_key`] with this prefix.
pub(super) fn meta_project(prefix: &[u8], key: &[u8]) -> Result<ProjectId, IdentityError> {
    let rest = key.strip_prefix(prefix).ok_or(IdentityError::Damaged { what: "meta key" })?;
    number(rest, "meta key").map(ProjectId)
}

/// Longest distinct id or group key that is looked up. Stored ones are far shorter, and the
/// database panics at keys beyond 64 KiB.
pub(super) const TEXT_MAX_BYTES: usize = 32 << 10;

/// The key that marks this uuid as one of a split person.
pub(super) fn split_key(project: ProjectId, uuid: Uuid) -> Vec<u8> {
    [SPLIT_PREFIX, &project.0.to_be_bytes(), uuid.as_bytes()].concat()
}

/// The project and the uuid of a [`split_key`].
pub(super) fn decode_split_key(key: &[u8]) -> Result<(ProjectId, Uuid), IdentityError> {
    let rest =
        key.strip_prefix(SPLIT_PREFIX).ok_or(IdentityError::Damaged { what: "split key" })?;
    let mut rest = Fields::new(rest, "split key");
    Ok((ProjectId(i64::from_be_bytes(rest.take()?)), Uuid::from_bytes(rest.take()?)))
}

/// The key of a request to delete events.
pub(super) fn deletion_key(place: RequestKey) -> Vec<u8> {
    key(place.project, &[&place.sequence.to_be_bytes(), &place.ordinal.to_be_bytes()])
}

/// The key of the distinct ids of a request to delete events that is not finished.
pub(super) fn deleting_key(place: RequestKey) -> Vec<u8> {
    [DELETING_PREFIX, &deletion_key(place)].concat()
}

/// The request of a [`deleting_key`].
pub(super) fn decode_deleting_key(key: &[u8]) -> Result<RequestKey, IdentityError> {
    const WHAT: &str = "key of a deletion";
    let rest = key.strip_prefix(DELETING_PREFIX);
    let mut rest = Fields::new(rest.ok_or(IdentityError::Damaged { what: WHAT })?, WHAT);
    Ok(RequestKey {
        project: ProjectId(i64::from_be_bytes(rest.take()?)),
        sequence: u64::from_be_bytes(rest.take()?),
        ordinal: u32::from_be_bytes(rest.take()?),
    })
}

/// The distinct ids that are the value of a [`deleting_key`].
pub(super) fn encode_deleting(ids: &[Box<str>]) -> Result<Vec<u8>, IdentityError> {
    Ok(serde_json::to_vec(ids)?)
}

pub(super) fn decode_deleting(bytes: &[u8]) -> Result<Vec<Box<str>>, IdentityError> {
    serde_json::from_slice(bytes).map_err(|_| IdentityError::Damaged { what: "deletion" })
}

/// Uuid (16 bytes), time of the request (8), time it was finished (8) or nothing.
pub(super) fn encode_deletion(deletion: &Deletion) -> Vec<u8> {
    let mut bytes = deletion.person.as_bytes().to_vec();
    bytes.extend_from_slice(&deletion.asked_at.0.to_be_bytes());
    bytes.extend(deletion.done_at.iter().flat_map(|done_at| done_at.0.to_be_bytes()));
    bytes
}

pub(super) fn decode_deletion(bytes: &[u8]) -> Result<Deletion, IdentityError> {
    let mut rest = Fields::new(bytes, "deletion");
    let person = Uuid::from_bytes(rest.take()?);
    let asked_at = UnixMicros(i64::from_be_bytes(rest.take()?));
    let done_at = match rest.bytes {
        [] => None,
        _ => Some(UnixMicros(i64::from_be_bytes(rest.take()?))),
    };
    Ok(Deletion { person, asked_at, done_at })
}

/// A deleted project: the sequence of the record, the time of the request and, if it is done, that time.
pub(super) fn encode_gone(gone: &Gone) -> Vec<u8> {
    let mut bytes = gone.sequence.to_be_bytes().to_vec();
    bytes.extend_from_slice(&gone.asked_at.0.to_be_bytes());
    bytes.extend(gone.done_at.iter().flat_map(|done_at| done_at.0.to_be_bytes()));
    bytes
}

pub(super) fn decode_gone(bytes: &[u8]) -> Result<Gone, IdentityError> {
    let mut rest = Fields::new(bytes, "deleted project");
    let sequence = u64::from_be_bytes(rest.take()?);
    let asked_at = UnixMicros(i64::from_be_bytes(rest.take()?));
    let done_at = match rest.bytes {
        [] => None,
        _ => Some(UnixMicros(i64::from_be_bytes(rest.take()?))),
    };
    Ok(Gone { sequence, asked_at, done_at })
}

/// A number that is the whole value.
pub(super) fn number(bytes: &[u8], what: &'static str) -> Result<i64, IdentityError> {
    let bytes = bytes.try_into().map_err(|_| IdentityError::Damaged { what })?;
    Ok(i64::from_be_bytes(bytes))
}

/// A uuid that is the whole value.
pub(super) fn uuid(bytes: &[u8], what: &'static str) -> Result<Uuid, IdentityError> {
    Uuid::from_slice(bytes).map_err(|_| IdentityError::Damaged { what })
}

/// A text that is the whole value.
pub(super) fn text(bytes: &[u8], what: &'static str) -> Result<String, IdentityError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| IdentityError::Damaged { what })
}

/// The project and the uuid that an `overrides` key consists of.
pub(super) fn decode_override_key(bytes: &[u8]) -> Result<(ProjectId, Uuid), IdentityError> {
    let mut rest = Fields::new(bytes, "key of an override");
    let project = ProjectId(i64::from_be_bytes(rest.take()?));
    Ok((project, Uuid::from_bytes(rest.take()?)))
}

/// The key of a person in the order of lists: `created_at` descending, then uuid descending.
pub(super) fn listed_key(project: ProjectId, created_at: UnixMicros, uuid: Uuid) -> Vec<u8> {
    // With the sign bit flipped, the order of the bytes is the order of the numbers.
    let ascending = u64::from_be_bytes(created_at.0.to_be_bytes()) ^ (1 << 63);
    let uuid = !uuid.as_u128();
    key(project, &[&(!ascending).to_be_bytes(), &uuid.to_be_bytes()])
}

/// The property that has an index.
pub(super) const EMAIL: &str = "email";

/// Namespace of [`email_hash`], drawn at random once for this purpose.
const EMAIL_NAMESPACE: Uuid = Uuid::from_u128(0xa1f3_5d0e_77c2_4b86_9d14_c05e_8f6a_2b39);

/// The index entry of a value of the property `email`: a hash of its text in lower case. Other
/// values may have the same hash, so the person's value must be compared.
pub(super) fn email_hash(email: &Value) -> Uuid {
    let text = match email {
        Value::String(text) => text.to_lowercase(),
        other => other.to_string().to_lowercase(),
    };
    Uuid::new_v5(&EMAIL_NAMESPACE, text.as_bytes())
}

/// The key of a person in `emails`.
pub(super) fn email_key(project: ProjectId, email: &Value, number: i64) -> Vec<u8> {
    key(project, &[email_hash(email).as_bytes(), &number.to_be_bytes()])
}

/// The number in an `emails` key.
pub(super) fn decode_email_key(bytes: &[u8]) -> Result<i64, IdentityError> {
    let mut rest = Fields::new(bytes, "key of an email");
    let _project: [u8; 8] = rest.take()?;
    let _hash: [u8; 16] = rest.take()?;
    Ok(i64::from_be_bytes(rest.take()?))
}

/// The number and the position in a `person_ids` key.
pub(super) fn decode_person_id_key(bytes: &[u8]) -> Result<(i64, i64), IdentityError> {
    let mut rest = Fields::new(bytes, "key of a distinct id");
    let _project: [u8; 8] = rest.take()?;
    Ok((i64::from_be_bytes(rest.take()?), i64::from_be_bytes(rest.take()?)))
}

/// Stands in `person_ids` between a distinct id and its time. No byte of UTF-8 has this value.
const TIME_MARK: u8 = 0xff;

/// A distinct id as text; if its time is known, [`TIME_MARK`] and the time (8 bytes).
pub(super) fn encode_distinct_id(DistinctId { text, since }: &DistinctId) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len().saturating_add(9));
    bytes.extend_from_slice(text.as_bytes());
    if let Some(since) = since {
        bytes.push(TIME_MARK);
        bytes.extend_from_slice(&since.0.to_be_bytes());
    }
    bytes
}

pub(super) fn decode_distinct_id(bytes: &[u8]) -> Result<DistinctId, IdentityError> {
    let (bytes, since) = match bytes.split_last_chunk::<9>() {
        Some((text, [TIME_MARK, time @ ..])) => (text, Some(i64::from_be_bytes(*time))),
        _ => (bytes, None),
    };
    let text = text(bytes, "distinct id")?.into_boxed_str();
    Ok(DistinctId { text, since: since.map(UnixMicros) })
}

/// The project and the number in a `persons` key.
pub(super) fn decode_person_key(bytes: &[u8]) -> Result<(ProjectId, i64), IdentityError> {
    let mut rest = Fields::new(bytes, "key of a person");
    let project = ProjectId(i64::from_be_bytes(rest.take()?));
    Ok((project, i64::from_be_bytes(rest.take()?)))
}

/// The uuid and `created_at` of a row of `persons`, the person's sort key in lists.
pub(super) fn decode_person_place(bytes: &[u8]) -> Result<(Uuid, UnixMicros), IdentityError> {
    let mut rest = Fields::new(bytes, "person");
    let uuid = Uuid::from_bytes(rest.take()?);
    Ok((uuid, UnixMicros(i64::from_be_bytes(rest.take()?))))
}

/// The version of a row of `persons`, and the sequence of its last change.
pub(super) fn decode_person_edition(bytes: &[u8]) -> Result<(u64, u64), IdentityError> {
    let mut rest = Fields::new(bytes, "person");
    let _uuid: [u8; 16] = rest.take()?;
    let _created_at: [u8; 8] = rest.take()?;
    Ok((u64::from_be_bytes(rest.take()?), u64::from_be_bytes(rest.take()?)))
}

/// Whether the person of a row of `persons` is identified.
pub(super) fn decode_person_identified(bytes: &[u8]) -> Result<bool, IdentityError> {
    const DAMAGED: IdentityError = IdentityError::Damaged { what: "person" };
    Ok(*bytes.get(PERSON_HEAD_BYTES - 1).ok_or(DAMAGED)? != 0)
}

/// The properties of a row of `persons` as stored: compact JSON.
pub(super) fn person_json(bytes: &[u8]) -> Result<&str, IdentityError> {
    const DAMAGED: IdentityError = IdentityError::Damaged { what: "person" };
    let json = bytes.get(PERSON_HEAD_BYTES..).ok_or(DAMAGED)?;
    std::str::from_utf8(json).map_err(|_| DAMAGED)
}

/// A person without its number, which is in the key: uuid (16 bytes), `created_at` (8), version
/// (8), `changed_sequence` (8), `is_identified` (1), properties as JSON text (the rest).
pub(super) fn encode_person(person: &Person) -> Result<Vec<u8>, IdentityError> {
    let mut bytes = Vec::with_capacity(512);
    bytes.extend_from_slice(person.uuid.as_bytes());
    bytes.extend_from_slice(&person.created_at.0.to_be_bytes());
    bytes.extend_from_slice(&person.version.to_be_bytes());
    bytes.extend_from_slice(&person.changed_sequence.to_be_bytes());
    bytes.push(u8::from(person.is_identified));
    serde_json::to_writer(&mut bytes, &person.properties)?;
    Ok(bytes)
}

pub(super) fn decode_person(number: i64, bytes: &[u8]) -> Result<Person, IdentityError> {
    let mut rest = Fields::new(bytes, "person");
    Ok(Person {
        number,
        uuid: Uuid::from_bytes(rest.take()?),
        created_at: UnixMicros(i64::from_be_bytes(rest.take()?)),
        version: u64::from_be_bytes(rest.take()?),
        changed_sequence: u64::from_be_bytes(rest.take()?),
        is_identified: rest.take::<1>()? != [0],
        properties: decode_object(rest.bytes)?,
    })
}

/// `created_at` (8 bytes), properties as JSON text (the rest).
pub(super) fn encode_group(group: &Group) -> Result<Vec<u8>, IdentityError> {
    let mut bytes = group.created_at.0.to_be_bytes().to_vec();
    serde_json::to_writer(&mut bytes, &group.properties)?;
    Ok(bytes)
}

pub(super) fn decode_group(bytes: &[u8]) -> Result<Group, IdentityError> {
    let mut rest = Fields::new(bytes, "group");
    let created_at = UnixMicros(i64::from_be_bytes(rest.take()?));
    Ok(Group { created_at, properties: decode_object(rest.bytes)? })
}

pub(super) fn encode_types(types: &[String]) -> Result<Vec<u8>, IdentityError> {
    Ok(serde_json::to_vec(types)?)
}

pub(super) fn decode_types(bytes: &[u8]) -> Result<Vec<String>, IdentityError> {
    serde_json::from_slice(bytes).map_err(|_| IdentityError::Damaged { what: "group types" })
}

/// Decodes properties: exactly as they were written, at any depth of nesting.
pub(super) fn decode_object(json: &[u8]) -> Result<Map<String, Value>, IdentityError> {
    json::restore(json).map_err(|_| IdentityError::Damaged { what: "properties" })
}

/// Reads fields of fixed length off the front.
struct Fields<'a> {
    bytes: &'a [u8],
    what: &'static str,
}

impl<'a> Fields<'a> {
    fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self { bytes, what }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], IdentityError> {
        let what = self.what;
        let (field, rest) =
            self.bytes.split_first_chunk().ok_or(IdentityError::Damaged { what })?;
        self.bytes = rest;
        Ok(*field)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::{
        Counters, Progress, decode_distinct_id, decode_group, decode_person, encode_distinct_id,
        encode_person,
    };
    use crate::person::{DistinctId, Person};
    use weir_base::clock::UnixMicros;

    /// Goal: readers get exactly the values that were stored.
    #[test]
    fn rows_come_back_as_they_were() {
        let value = json!({
            "doubles": [0.1, -0.0, 1e300, 5e-324, 2.2250738585072014e-308, 7.038531e-26,
                        1.7976931348623157e308, 0.123_456_789_012_345_68, 9_007_199_254_740_993.0],
            "integers": [0, -1, i64::MIN, i64::MAX, u64::MAX],
            "texts": ["", "\u{0}\u{1f}\"\\/", "é\u{10ffff}\u{2028}"],
            "deep": {"a": {"": [null, true, false, {}]}},
            "$serde_json::private::RawValue": {"$serde_json::private::RawValue": 5},
            "$serde_json::private::Number": {"$serde_json::private::Number": "x"},
        });
        let Value::Object(properties) = value else { panic!("an object") };
        let person = Person {
            number: 7,
            uuid: Uuid::from_u128(0x1234),
            created_at: UnixMicros(-5),
            properties,
            is_identified: true,
            version: u64::MAX,
            changed_sequence: 3,
        };
        let bytes = encode_person(&person).expect("encodes");
        assert_eq!(decode_person(7, &bytes).expect("decodes"), person);
    }

    /// Goal: a distinct id and its time are read as they were written, also if its bytes or those of the time look like
    /// something else, and those of earlier versions, which had no times.
    #[test]
    fn distinct_ids_come_back_as_they_were() {
        let times = [None, Some(0), Some(-1), Some(i64::MAX), Some(i64::MIN), Some(0x00ff_ff00)];
        for text in ["", "a", "12345678", "123456789", "é\u{0}\u{10ffff}", &"ÿ".repeat(9)] {
            for since in times.map(|time| time.map(UnixMicros)) {
                let id = DistinctId { text: text.into(), since };
                let bytes = encode_distinct_id(&id);
                assert_eq!(decode_distinct_id(&bytes).expect("decodes"), id);
                assert!(since.is_some() || bytes == text.as_bytes());
            }
        }
        for damaged in [&b"\xff"[..], b"a\xff\0\0\0\0\0\0\0", b"\xc3\xff\0\0\0\0\0\0\0\0"] {
            decode_distinct_id(damaged).expect_err("is no text");
        }
    }

    /// Earlier versions could write rows of any depth.
    #[test]
    fn deep_rows_are_read() {
        let head = [0_u8; 41];
        let deep = format!(r#"{{"a":{}{},"b":2}}"#, "[".repeat(4000), "]".repeat(4000));
        let person = decode_person(1, &[head.as_slice(), deep.as_bytes()].concat()).expect("read");
        assert!(person.properties["a"].is_array());
        assert_eq!(person.properties["b"], 2);
        let again = encode_person(&person).expect("encodes");
        assert_eq!(decode_person(1, &again).expect("decodes"), person);
        let group = decode_group(&[&[0; 8], deep.as_bytes()].concat()).expect("read");
        assert_eq!(group.properties["b"], 2);
    }

    #[test]
    fn cut_rows_are_damaged() {
        let empty = [0_u8; 41];
        for length in 0..empty.len() {
            assert!(decode_person(1, &empty[..length]).is_err(), "{length}");
        }
        assert!(decode_person(1, &[empty.as_slice(), b"[]"].concat()).is_err());
        assert!(decode_person(1, &[empty.as_slice(), b"{}"].concat()).is_ok());
        assert!(decode_group(&[0; 8]).is_err());
        assert!(Counters::decode(&[0; 23]).is_err());
        let counters = Counters { applied: 1, next_person: 2, next_position: 3, ..Counters::START };
        assert_eq!(counters.encode().len(), 24, "as it was before records were applied in parts");
        assert_eq!(Counters::decode(&counters.encode()).expect("whole"), counters);
        let progress = Progress { sequence: 4, ops: 5, moves: 6, marks: 7, effects: 8 };
        let begun = Counters { progress, ..counters };
        assert_eq!(Counters::decode(&begun.encode()).expect("whole"), begun);
        assert!(Counters::decode(begun.encode().split_last().expect("bytes").1).is_err());
        assert!(counters.point() < begun.point());
    }
}
