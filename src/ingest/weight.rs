//! What a request takes of memory, by what is in it. Pure. Who bounds it is `budget`.
//!
//! A body of a megabyte can take a hundred: a member of an object may have seven bytes as text, and
//! a node of a B-tree when it is read. So a large body is looked at twice before memory is taken for
//! it: as text before it is parsed, and as a tape before columns are built. A usual batch is not, and
//! what follows from any is weighed in the end.

use hashbrown::HashSet;
use serde_json::Map;
use serde_json::Value;

use crate::event::id::EventKey;
use crate::identity::change::GroupChange;
use crate::identity::change::Keep;
use crate::identity::change::Op;
use crate::identity::change::OpKind;
use crate::identity::change::Update;
use crate::identity::lifted::Lift;
use crate::identity::lifted::Lifted;
use crate::ingest::budget::Share;
use crate::ingest::prepare::PrepareError;
use crate::ingest::prepare::Prepared;
use crate::ingest::tape::Census;

/// What compressed bodies of events are taken to inflate to until it is known: JSON of SDKs gets 5
/// to 15 times smaller under gzip.
const INFLATE_RATIO: u64 = 12;

/// Bodies up to this are not looked at before they are read: a batch of 500 events of SDKs. Read,
/// one takes some 80 MiB at most, and no more of them are read at once than there are threads.
pub(super) const SMALL_BYTES: usize = 1 << 20;

/// Values and keys of one body. Of what SDKs send each takes 10 bytes or more, and so fits into the
/// default limit of a decoded body.
const NODES_MAX: usize = 12 << 20;

/// Memory for one body, at most, and never more than all bodies may take together.
const BODY_MEMORY_MAX_BYTES: u64 = 3 << 29;

/// Distinct ids of one body. Each may make a person, of some ten microseconds, and who asks about persons
/// waits for all of them. SDKs send hundreds of events at once, imports thousands.
const DISTINCT_IDS_MAX: usize = 250_000;

/// Memory of a node while a body is parsed: 24 bytes on the tape, and for each of two structural
/// characters an offset, in a list that grows.
const PARSED_NODE_BYTES: u64 = 36;

/// A body, what is parsed in place of it, and room for text without escapes.
const COPIES: u64 = 3;

/// Memory of an object: an event has a row and an op, any other may become a map, whose smallest
/// is a node of a B-tree ([`MAP_NODE_BYTES`]).
const OBJECT_BYTES: u64 = 640;

/// Memory of a key or a value of what is said of a person: half of a member in [`MAP_NODE_BYTES`],
/// and text of its own.
const SAID_NODE_BYTES: u64 = 64;

/// A node of a map: 11 keys of 24 bytes, 11 values of 32, and what it has besides.
const MAP_NODE_BYTES: usize = 640;

/// Members in a node when keys come in order: it is split in the middle, and then left alone.
const MAP_NODE_MEMBERS: usize = 6;

/// Smallest piece of memory.
const PIECE_BYTES: usize = 16;

/// Bytes that a body of `sent` bytes is taken to decode to until it is known.
pub(super) fn expected_bytes(body: &[u8]) -> u64 {
    let sent = to_u64(body.len());
    if is_plain(body) { sent } else { sent.saturating_mul(INFLATE_RATIO) }
}

/// Whether a body is JSON as it is.
pub(super) fn is_plain(body: &[u8]) -> bool {
    matches!(body.first(), Some(b'{' | b'['))
}

/// Makes room for parsing `text`.
///
/// # Errors
///
/// [`PrepareError::TooLarge`] if it is more than one body may take, [`PrepareError::Crowded`].
pub(super) fn allow_parsing(text: &[u8], share: &mut Share) -> Result<(), PrepareError> {
    if text.len() <= SMALL_BYTES {
        return Ok(());
    }
    let nodes = nodes_at_most(text);
    if nodes > NODES_MAX {
        return Err(PrepareError::TooLarge);
    }
    share.cover_memory(parsed_bytes(text.len(), nodes))
}

/// Makes room for building columns and ops of a parsed body of `text_bytes`.
///
/// # Errors
///
/// As of [`allow_parsing`].
pub(super) fn allow_building(
    text_bytes: usize,
    census: Census,
    share: &mut Share,
) -> Result<(), PrepareError> {
    let built = to_u64(census.objects).saturating_mul(OBJECT_BYTES)
        + to_u64(census.below).saturating_mul(SAID_NODE_BYTES);
    let memory = parsed_bytes(text_bytes, census.nodes).saturating_add(built);
    if memory > BODY_MEMORY_MAX_BYTES.min(share.all_memory_bytes()) {
        return Err(PrepareError::TooLarge);
    }
    share.cover_memory(memory)
}

/// Checks of how many distinct ids the events of a body are, those that they merge included.
///
/// # Errors
///
/// [`PrepareError::TooManyIds`].
pub(super) fn allow_ids(ops: &[Op]) -> Result<(), PrepareError> {
    // Each op names two at most.
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

/// Values and keys that JSON has at most, by the characters that come before each but the first.
/// Those in strings count too: this is to be fast.
fn nodes_at_most(text: &[u8]) -> usize {
    let begins = |byte: &u8| u8::from(matches!(byte, b',' | b':' | b'{' | b'['));
    // As many as a byte can count, so that the compiler adds many at once.
    let counts = text.chunks(255).map(|chunk| usize::from(chunk.iter().map(begins).sum::<u8>()));
    1 + counts.sum::<usize>()
}

/// Whether what an object has under this key is kept until it was derived from.
pub(super) fn is_said(key: &str) -> bool {
    key.starts_with('$')
        && matches!(key, "$set" | "$set_once" | "$unset" | "$group_set" | "$groups")
}

/// Memory that a body keeps until it is published.
pub(super) fn of_prepared(prepared: &Prepared) -> u64 {
    let keys = prepared.keys.capacity() * size_of::<EventKey>();
    to_u64(prepared.said_bytes + prepared.memory_bytes + keys)
}

/// Memory of what events say of persons and groups, without the text of the request that it refers
/// to.
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
    let lifted = update.lifted.iter().flatten();
    let lifts: usize = lifted.map(Lifted::iter).map(Iterator::count).sum();
    of_map(&update.set)
        + of_map(&update.set_once)
        + of_texts(&update.unset)
        + lifts * size_of::<Lift>()
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
