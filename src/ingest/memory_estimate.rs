//! Estimates the heap memory of a request. Pure. Enforced by `budget`.
//!
//! A body of 1 MB can take 100 MB: a member of an object may have 7 bytes as text, and a node of a
//! B-tree when it is read. So a large body is estimated twice before its memory is allocated: from its
//! text before it is parsed, and from its tape before columns are built. A small body is not. The
//! columns and ops of every body are measured in the end.

use hashbrown::HashSet;
use serde_json::{Map, Value};

use crate::budget::MemoryPermit;
use crate::prepare::error::PrepareError;
use crate::tape::Census;
use weir_identity::auto_set::{AutoSet, AutoSetProperty};
use weir_identity::change::{GroupChange, Keep, Op, OpKind, Update};

/// Assumed inflate ratio of a compressed body until it is decoded: JSON of SDKs gets 5 to 15 times
/// smaller under gzip.
const INFLATE_RATIO: u64 = 12;

/// Bodies up to this size are not estimated before they are read: a batch of 500 events of SDKs. One
/// takes about 80 MiB at most, and no more of them are read at once than there are threads.
pub(super) const SMALL_BYTES: usize = 1 << 20;

/// Limit of values and keys in one body. In bodies of SDKs each takes 10 bytes or more, so the default
/// limit of a decoded body is reached first.
const NODES_MAX: usize = 12 << 20;

/// Memory limit of one body; the memory budget of all bodies is a limit too.
const BODY_MEMORY_MAX_BYTES: u64 = 3 << 29;

/// Limit of distinct ids in one body. Each may create a person, which takes about 10 us, and queries on
/// persons wait for all of them. SDKs send hundreds of events at once, imports thousands.
const DISTINCT_IDS_MAX: usize = 250_000;

/// Memory of a node while a body is parsed: 24 bytes on the tape, and the offsets of two structural
/// characters, in a list that grows.
const PARSED_NODE_BYTES: u64 = 36;

/// Copies of a body while it is read: the body, the copy that is parsed in place, unescaped text.
const COPIES: u64 = 3;

/// Memory of an object: an event becomes a row and an op. Any other may become a map, and the smallest
/// map is one node of a B-tree ([`MAP_NODE_BYTES`]).
const OBJECT_BYTES: u64 = 640;

/// Memory of a key or a value in properties of a person or group: half of a member in
/// [`MAP_NODE_BYTES`], and its own text.
const SAID_NODE_BYTES: u64 = 64;

/// A B-tree node of a map: 11 keys of 24 bytes, 11 values of 32 bytes, and its links.
const MAP_NODE_BYTES: usize = 640;

/// Members per node when keys are inserted in order: a full node is split in the middle and not filled
/// again.
const MAP_NODE_MEMBERS: usize = 6;

/// Smallest allocation.
const PIECE_BYTES: usize = 16;

/// Estimates how many bytes `body` decodes to, before it is decoded.
pub(super) fn expected_bytes(body: &[u8]) -> u64 {
    let sent = to_u64(body.len());
    if is_plain(body) { sent } else { sent.saturating_mul(INFLATE_RATIO) }
}

/// Whether a body is JSON without compression or wrapping.
pub(super) fn is_plain(body: &[u8]) -> bool {
    matches!(body.first(), Some(b'{' | b'['))
}

/// Grows `permit` for parsing `text`.
///
/// # Errors
///
/// [`PrepareError::TooLarge`] if it exceeds the limit of one body, [`PrepareError::Crowded`].
pub(super) fn allow_parsing(text: &[u8], permit: &mut MemoryPermit) -> Result<(), PrepareError> {
    if text.len() <= SMALL_BYTES {
        return Ok(());
    }
    let nodes = nodes_at_most(text);
    if nodes > NODES_MAX {
        return Err(PrepareError::TooLarge);
    }
    permit.cover_memory(parsed_bytes(text.len(), nodes))
}

/// Grows `permit` for building columns and ops of a parsed body of `text_bytes`.
///
/// # Errors
///
/// As of [`allow_parsing`].
pub(super) fn allow_building(
    text_bytes: usize,
    census: Census,
    permit: &mut MemoryPermit,
) -> Result<(), PrepareError> {
    let built = to_u64(census.objects).saturating_mul(OBJECT_BYTES)
        + to_u64(census.below).saturating_mul(SAID_NODE_BYTES);
    let memory = parsed_bytes(text_bytes, census.nodes).saturating_add(built);
    if memory > BODY_MEMORY_MAX_BYTES.min(permit.all_memory_bytes()) {
        return Err(PrepareError::TooLarge);
    }
    permit.cover_memory(memory)
}

/// Checks the number of distinct ids in a body, including those that its events merge.
///
/// # Errors
///
/// [`PrepareError::TooManyIds`].
pub(super) fn allow_ids(ops: &[Op]) -> Result<(), PrepareError> {
    // Each op has at most two distinct ids.
    if ops.len() <= DISTINCT_IDS_MAX / 2 {
        return Ok(());
    }
    let mut ids = HashSet::new();
    for op in ops {
        ids.insert(op.distinct_id.as_str());
        if let OpKind::Merge { other, .. } = &op.kind {
            ids.insert(other);
        }
        if ids.len() > DISTINCT_IDS_MAX {
            return Err(PrepareError::TooManyIds { max: DISTINCT_IDS_MAX });
        }
    }
    Ok(())
}

fn parsed_bytes(text_bytes: usize, nodes: usize) -> u64 {
    to_u64(text_bytes) * COPIES + to_u64(nodes) * PARSED_NODE_BYTES
}

/// Upper bound of values and keys in JSON, by the characters that precede each but the first.
/// Characters in strings count too: this has to be fast.
fn nodes_at_most(text: &[u8]) -> usize {
    let begins = |byte: &u8| u8::from(matches!(byte, b',' | b':' | b'{' | b'['));
    // Chunks that a byte can count, so that the compiler can vectorise the sum.
    let counts = text.chunks(255).map(|chunk| usize::from(chunk.iter().map(begins).sum::<u8>()));
    1 + counts.sum::<usize>()
}

/// Whether the object under this key is kept in memory until the projector has read it.
pub(super) fn is_said(key: &str) -> bool {
    match key.as_bytes().first() {
        Some(b'$') => matches!(key, "$set" | "$set_once" | "$unset" | "$group_set" | "$groups"),
        _ => key == "person_properties",
    }
}

/// Memory of the ops on persons and groups, without the text of the request that they refer to.
pub(super) fn of_ops(ops: &[Op]) -> usize {
    size_of_val(ops) + ops.iter().map(of_op).sum::<usize>()
}

fn of_op(op: &Op) -> usize {
    let kind = match &op.kind {
        OpKind::Touch | OpKind::Personless | OpKind::Delete { .. } => 0,
        OpKind::Update(update) | OpKind::UpdateExisting(update) | OpKind::Change { update, .. } => {
            of_update(update)
        }
        OpKind::Merge { other, update, .. } => of_text(other) + of_update(update),
        OpKind::GroupUpdate { group_type, key, set } => {
            of_text(group_type) + of_text(key) + of_map(set)
        }
        OpKind::ChangeGroup(GroupChange { group_type, key, set, unset, .. }) => {
            of_text(group_type) + of_text(key) + of_map(set) + of_texts(unset)
        }
        OpKind::GroupTypes(names) => of_texts(names),
        OpKind::Split { keep, .. } => match keep {
            Keep::Own => 0,
            Keep::One(id) => of_text(id),
            Keep::AllBut(ids) => of_texts(ids),
        },
    };
    of_text(&op.distinct_id) + kind
}

fn of_update(update: &Update) -> usize {
    let auto_set = update.auto_set.iter().flatten();
    let auto_sets: usize = auto_set.map(AutoSet::iter).map(Iterator::count).sum();
    of_map(&update.set)
        + of_map(&update.set_once)
        + of_texts(&update.unset)
        + auto_sets * size_of::<AutoSetProperty>()
}

fn of_texts(texts: &[String]) -> usize {
    size_of_val(texts) + texts.iter().map(of_text).sum::<usize>()
}

fn of_text(text: &String) -> usize {
    if text.capacity() == 0 { 0 } else { text.capacity().max(PIECE_BYTES) }
}

fn of_map(map: &Map<String, Value>) -> usize {
    let members = map.iter().map(|(key, value)| of_text(key) + of_value(value));
    map.len().div_ceil(MAP_NODE_MEMBERS) * MAP_NODE_BYTES + members.sum::<usize>()
}

fn of_value(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => of_text(text),
        Value::Array(items) => {
            items.capacity() * size_of::<Value>() + items.iter().map(of_value).sum::<usize>()
        }
        Value::Object(map) => of_map(map),
    }
}

fn to_u64(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
