//! The rules for one event: names, ids, time, properties, and what it says about persons.
//!
//! [`Batch::event`] is the whole road of one event from the tape to the columns; read it first.
//! Source of the rules: PostHog's capture and ingestion pipeline as described for each below. Where
//! the original refuses a whole request for one bad event, only that event is dropped here.

use std::borrow::Cow;

use hashbrown::HashMap;
use hashbrown::HashSet;
use serde_json::Map;
use uuid::Uuid;

use crate::clock::UnixMicros;
use crate::event::columns::Columns;
use crate::event::columns::View;
use crate::event::id::PersonId;
use crate::event::schema::GROUP_TYPES_MAX;
use crate::event::schema::PROMOTED;
use crate::event::schema::PropertyType;
use crate::event::schema::column;
use crate::event::time;
use crate::event::time::Claim;
use crate::event::time::Claimed;
use crate::identity::change::Force;
use crate::identity::change::Occasion;
use crate::identity::change::Op;
use crate::identity::change::OpKind;
use crate::identity::change::Update;
use crate::ingest::capture::Fields;
use crate::ingest::capture::Inner;
use crate::ingest::capture::Meaning;
use crate::ingest::capture::Raw;
use crate::ingest::capture::take;
use crate::ingest::prepare::Built;
use crate::ingest::prepare::COLUMNS;
use crate::ingest::prepare::Drop;
use crate::ingest::prepare::Drops;
use crate::ingest::prepare::PrepareError;
use crate::ingest::prepare::ProjectFacts;
use crate::ingest::prepare::Received;
use crate::ingest::tape::Cursor;
use crate::ingest::tape::Key;
use crate::ingest::tape::Value;

/// Longest event name and distinct id, in characters; longer ones are cut (PostHog's limit).
const NAME_MAX_CHARS: usize = 200;

/// Longest key of a group, in characters; longer ones are no groups (PostHog's limit).
const GROUP_KEY_MAX_CHARS: usize = 400;

/// Rows that room is made for at once. A body may hold a hundred million items that are no events,
/// and room for each in every column would be gigabytes.
const RESERVE_MAX_ROWS: usize = 1 << 14;

/// Length of a person's id as text.
const PERSON_ID_BYTES: usize = 36;

/// Hash of the tables here: fast, and seeded per table against crafted collisions.
type Hasher = foldhash::fast::RandomState;

/// What the server does with a property, by name.
#[derive(Debug)]
pub(super) struct KeyTable(HashMap<&'static str, KeyUse, Hasher>);

#[derive(Clone, Copy, Debug, Default)]
struct KeyUse {
    meaning: Option<Meaning>,
    column: Option<(usize, PropertyType)>,
}

impl KeyTable {
    pub(super) fn new() -> Self {
        let mut table: HashMap<&'static str, KeyUse, Hasher> = HashMap::default();
        for (index, (key, kind)) in PROMOTED.into_iter().enumerate() {
            table.entry(key).or_default().column = Some((column::PROMOTED + index, kind));
        }
        for (key, meaning) in Meaning::ALL {
            table.entry(key).or_default().meaning = Some(meaning);
        }
        Self(table)
    }
}

/// The rows of one body under construction.
#[derive(Debug)]
pub(super) struct Batch<'a, 'r> {
    keys: &'r KeyTable,
    received: &'r Received,
    project: &'r ProjectFacts,
    sent_at: Option<UnixMicros>,
    client_ip: Option<View>,
    event_max_bytes: usize,
    columns: Columns,
    event_ids: Vec<Uuid>,
    ops: Vec<Op>,
    names: HashSet<Cow<'a, str>, Hasher>,
    persons: HashMap<&'a str, Person, Hasher>,
    unknown_group_types: Vec<String>,
    drops: Drops,
    has_groups: bool,
    /// Members of the properties of the current event: from the key's quote to the value's end.
    members: Vec<Member>,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    meaning: Option<Meaning>,
    start: usize,
    end: usize,
}

/// What this batch already knows of a distinct id.
#[derive(Clone, Copy, Debug)]
struct Person {
    id: View,
    touched: bool,
    personless: bool,
}

impl<'a, 'r> Batch<'a, 'r> {
    pub(super) fn new(
        keys: &'r KeyTable,
        received: &'r Received,
        project: &'r ProjectFacts,
        sent_at: Option<Value<'a>>,
    ) -> Self {
        Self {
            keys,
            received,
            project,
            sent_at: sent_at.and_then(instant).or_else(|| received.sent_at()),
            client_ip: None,
            event_max_bytes: usize::MAX,
            columns: Columns::new(COLUMNS, 0),
            event_ids: Vec::new(),
            ops: Vec::new(),
            names: HashSet::default(),
            persons: HashMap::default(),
            unknown_group_types: Vec::new(),
            drops: Drops::default(),
            has_groups: false,
            members: Vec::new(),
        }
    }

    /// Makes room for `events` rows of at most `event_max_bytes` of JSON each.
    pub(super) fn reserve(&mut self, events: usize, event_max_bytes: usize, body_bytes: usize) {
        let rows = events.min(RESERVE_MAX_ROWS);
        self.columns = Columns::new(COLUMNS, rows);
        // Person ids, and properties that are rewritten: a third of the body in a usual mix.
        self.columns.reserve_side(body_bytes / 3 + rows * PERSON_ID_BYTES);
        self.event_ids.reserve(rows);
        self.event_max_bytes = event_max_bytes;
        if let Some(ip) = self.received.client_ip {
            self.client_ip = self.columns.side_view(ip.to_string().as_bytes());
        }
    }

    /// Takes the event at `cursor`, or counts why not.
    ///
    /// # Errors
    ///
    /// Only what makes the whole body impossible to hold.
    pub(super) fn event(&mut self, mut cursor: Cursor<'a>) -> Result<(), PrepareError> {
        if !matches!(cursor.value(), Value::Container { is_object: true, .. }) {
            self.drops.add(Drop::NotAnObject);
            return Ok(());
        }
        let start = cursor.offset();
        let fields = self.read(&mut cursor)?;
        let size = cursor.end().saturating_sub(usize::try_from(start).unwrap_or(0));
        match self.accept(cursor, &fields, size)? {
            None => self.columns.finish_row(),
            Some(reason) => {
                self.columns.abandon_row();
                self.drops.add(reason);
            }
        }
        Ok(())
    }

    /// Reads the fields; promoted properties go straight to their columns.
    fn read(&mut self, cursor: &mut Cursor<'a>) -> Result<Fields<'a>, PrepareError> {
        let mut fields = Fields::default();
        self.members.clear();
        cursor.object(|key, value| {
            if fields.member(key, value) {
                return Ok(());
            }
            if key.text != "properties" {
                value.skip();
                return Ok(());
            }
            let mut whole = *value;
            let range = whole.skip();
            if let Value::Container { is_object: true, .. } = value.value() {
                // Of two objects of that name the last counts, as in every JSON parser.
                if fields.properties.replace(range).is_some() {
                    fields.inner = Inner::default();
                    self.members.clear();
                    self.columns.abandon_row();
                }
                return value.object(|key, value| self.property(key, value, &mut fields));
            }
            *value = whole;
            Ok(())
        })?;
        Ok(fields)
    }

    fn property(
        &mut self,
        key: Key<'a>,
        value: &mut Cursor<'a>,
        fields: &mut Fields<'a>,
    ) -> Result<(), PrepareError> {
        let known = self.keys.0.get(key.text).copied().unwrap_or_default();
        let current = *value;
        let start = usize::try_from(key.offset).unwrap_or(0);
        self.members.push(Member { meaning: known.meaning, start, end: value.skip().end });
        if let Some((position, kind)) = known.column {
            match (kind, current.value()) {
                (PropertyType::Text, Value::String(text)) => {
                    let view = self.text(current, text)?;
                    self.columns.set_text(position, view);
                }
                (PropertyType::Double, Value::Number(number)) => {
                    self.columns.set_double(position, number);
                }
                (PropertyType::Double, Value::Integer(number)) => {
                    self.columns.set_double(position, to_double(number));
                }
                (PropertyType::Boolean, Value::Boolean(truth)) => {
                    self.columns.set_boolean(position, truth);
                }
                // The key may have stood here before, with a value of the right type.
                _ => self.columns.unset(position),
            }
        }
        if let Some(meaning) = known.meaning {
            let position = match meaning {
                Meaning::SessionId => Some(column::SESSION_ID),
                Meaning::WindowId => Some(column::WINDOW_ID),
                Meaning::ElementsChain => Some(column::ELEMENTS_CHAIN),
                _ => None,
            };
            match (position, current.value()) {
                (Some(position), Value::String(text)) => {
                    let view = self.text(current, text)?;
                    self.columns.set_text(position, view);
                }
                (Some(position), _) => self.columns.unset(position),
                (None, _) => {}
            }
            if meaning == Meaning::ElementsChain {
                fields.inner.elements_chain = matches!(current.value(), Value::String(_));
            }
            fields.inner.note(meaning, &current);
        }
        Ok(())
    }

    /// The view of a string of the document, without a copy where it stands in the body as such.
    fn text(&mut self, cursor: Cursor<'a>, text: &str) -> Result<View, PrepareError> {
        if text.len() <= 12 {
            return Ok(Columns::body_view(text.as_bytes(), 0));
        }
        match cursor.verbatim(text) {
            Some(offset) => Ok(Columns::body_view(text.as_bytes(), offset)),
            None => self.side(text),
        }
    }

    fn side(&mut self, text: &str) -> Result<View, PrepareError> {
        self.columns.side_view(text.as_bytes()).ok_or(PrepareError::TooLarge)
    }

    /// Decides about the event and sets its fixed columns. `Some` is why it is not taken.
    fn accept(
        &mut self,
        cursor: Cursor<'a>,
        fields: &Fields<'a>,
        size: usize,
    ) -> Result<Option<Drop>, PrepareError> {
        if size > self.event_max_bytes {
            return Ok(Some(Drop::TooLarge));
        }
        let name = match fields.event.as_ref().map(|raw| raw.value) {
            Some(Value::String(name)) => name,
            None | Some(Value::Null) if self.received.is_engage() => "$identify",
            _ => return Ok(Some(Drop::MissingEvent)),
        };
        if name.is_empty() {
            return Ok(Some(Drop::MissingEvent));
        }
        if name == "$performance_event" {
            return Ok(Some(Drop::NeverStored));
        }
        let name = match name.contains('\0') {
            false => Cow::Borrowed(cut(name)),
            true => Cow::Owned(cut(&name.replace('\0', "\u{fffd}")).to_owned()),
        };
        let raw_id = fields.distinct_id.as_ref().or(fields.inner.distinct_id.as_ref());
        let Some(distinct_id) = raw_id.and_then(|raw| DistinctId::read(raw, cursor)) else {
            return Ok(Some(Drop::MissingDistinctId));
        };
        let personless = fields.inner.process_person_profile == Some(Value::Boolean(false));
        let merges = matches!(name.as_ref(), "$identify" | "$create_alias" | "$merge_dangerously");
        if personless && merges {
            return Ok(Some(Drop::PersonlessMerge));
        }
        if !self.names.contains(name.as_ref()) {
            self.names.insert(name.clone());
        }
        let timestamp = self.timestamp(fields);
        let event_id = self.event_id(cursor, fields, timestamp)?;
        let name = name.as_ref();
        let event = Accepted { name, distinct_id: &distinct_id, timestamp, event_id, personless };
        self.fixed_columns(cursor, &event)?;
        if let Some(ip) = fields.inner.ip {
            let view = self.text(cursor, ip)?;
            self.columns.set_text(column::IP, view);
        } else if let Some(ip) = self.client_ip {
            self.columns.set_text(column::IP, ip);
        }
        self.properties(cursor, fields)?;
        self.groups(fields, personless)?;
        self.person_ops(cursor, fields, &event);
        Ok(None)
    }

    fn timestamp(&self, fields: &Fields<'a>) -> UnixMicros {
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

    /// Sets the uuid column. A malformed or missing id is replaced by one that depends only on the
    /// request's seed and the row, so that a replay gives it again.
    fn event_id(
        &mut self,
        cursor: Cursor<'a>,
        fields: &Fields<'a>,
        timestamp: UnixMicros,
    ) -> Result<Uuid, PrepareError> {
        let given = fields.uuid.and_then(|text| Some((text, Uuid::try_parse(text.trim()).ok()?)));
        let (id, view) = match given {
            Some((text, id)) if is_canonical(text) => (id, self.text(cursor, text)?),
            Some((_, id)) => (id, self.side(id.hyphenated().encode_lower(&mut [0; 36]))?),
            None => {
                let id = made_id(self.received.seed, self.columns.rows(), timestamp);
                (id, self.side(id.hyphenated().encode_lower(&mut [0; 36]))?)
            }
        };
        self.columns.set_text(column::UUID, view);
        self.event_ids.push(id);
        Ok(id)
    }

    fn fixed_columns(
        &mut self,
        cursor: Cursor<'a>,
        event: &Accepted<'a, '_>,
    ) -> Result<(), PrepareError> {
        self.columns.set_int(column::PROJECT_ID, self.project.id.0);
        let name = self.text(cursor, event.name)?;
        self.columns.set_text(column::EVENT, name);
        let distinct_id = event.distinct_id.as_str();
        let view = self.text(cursor, distinct_id)?;
        self.columns.set_text(column::DISTINCT_ID, view);
        let person = self.person(event.distinct_id)?;
        self.columns.set_text(column::PERSON_ID, person);
        self.columns.set_time(column::TIMESTAMP, event.timestamp.0);
        self.columns.set_time(column::RECEIVED_AT, self.received.at.0);
        Ok(())
    }

    fn person(&mut self, distinct_id: &DistinctId<'a>) -> Result<View, PrepareError> {
        if let DistinctId::Borrowed(text) = distinct_id
            && let Some(person) = self.persons.get(text)
        {
            return Ok(person.id);
        }
        let id = PersonId::of(self.project.id, distinct_id.as_str());
        let view = self.side(id.0.hyphenated().encode_lower(&mut [0; 36]))?;
        if let DistinctId::Borrowed(text) = distinct_id {
            self.persons.insert(text, Person { id: view, touched: false, personless: false });
        }
        Ok(view)
    }

    /// Sets the properties column: the object as it was written, unless something must come out
    /// of it or go into it.
    fn properties(&mut self, cursor: Cursor<'a>, fields: &Fields<'a>) -> Result<(), PrepareError> {
        let inner = &fields.inner;
        let lifted = [
            ("$set", &fields.set, &inner.set),
            ("$set_once", &fields.set_once, &inner.set_once),
            ("$unset", &fields.unset, &inner.unset),
        ];
        let lifts = lifted.iter().any(|(_, top, _)| top.is_some());
        let view = match &fields.properties {
            Some(range) if !lifts && !inner.elements_chain => {
                let text = cursor.body().get(range.clone()).unwrap_or_default();
                let offset = u32::try_from(range.start).map_err(|_| PrepareError::TooLarge)?;
                Columns::body_view(text, offset)
            }
            _ => {
                let members = &self.members;
                let view = self.columns.write_side(|out| {
                    rewrite(out, cursor.body(), (members, inner.elements_chain), &lifted);
                });
                view.ok_or(PrepareError::TooLarge)?
            }
        };
        self.columns.set_text(column::PROPERTIES, view);
        Ok(())
    }

    /// `$groups`: an object of group type to key; the type's index chooses the column.
    fn groups(&mut self, fields: &Fields<'a>, personless: bool) -> Result<(), PrepareError> {
        let Some(mut groups) = fields.inner.groups.filter(|_| !personless) else { return Ok(()) };
        groups.object(|group_type, value| {
            let current = *value;
            let raw = take(value);
            let known = self.project.group_types.iter().position(|name| name == group_type.text);
            match (known, DistinctId::group_key(&raw, current)) {
                (Some(index), Some(key)) if index < GROUP_TYPES_MAX => {
                    let view = self.text(current, key.as_str())?;
                    self.columns.set_text(column::GROUP_0 + index, view);
                }
                (None, Some(_)) => self.unknown_group_type(group_type.text),
                _ => {}
            }
            Ok(())
        })
    }

    fn group_types_op(&self) -> Op {
        Op {
            distinct_id: String::new(),
            event_id: Uuid::nil(),
            timestamp: self.received.at,
            kind: OpKind::GroupTypes(self.project.group_types.clone()),
        }
    }

    fn unknown_group_type(&mut self, name: &str) {
        let known = self.project.group_types.len() + self.unknown_group_types.len();
        if known < GROUP_TYPES_MAX && !self.unknown_group_types.iter().any(|known| known == name) {
            self.unknown_group_types.push(name.to_owned());
        }
    }

    /// What the event says about persons and groups.
    fn person_ops(&mut self, cursor: Cursor<'a>, fields: &Fields<'a>, event: &Accepted<'a, '_>) {
        let is_group = event.name == "$groupidentify" && !event.personless;
        let group = if is_group { self.group_update(fields, cursor) } else { None };
        let kind = op_kind(cursor, fields, event);
        if !self.is_said(event, &kind) {
            self.ops.push(op(event, kind));
        }
        self.ops.extend(group.map(|kind| op(event, kind)));
    }

    /// Whether an earlier event of the same person in this batch has said as much as `kind` does.
    fn is_said(&mut self, event: &Accepted<'a, '_>, kind: &OpKind) -> bool {
        let DistinctId::Borrowed(text) = event.distinct_id else { return false };
        let Some(seen) = self.persons.get_mut(text) else { return false };
        let said = match kind {
            OpKind::Personless => &mut seen.personless,
            _ => &mut seen.touched,
        };
        std::mem::replace(said, true) && matches!(kind, OpKind::Touch | OpKind::Personless)
    }

    fn group_update(&mut self, fields: &Fields<'a>, cursor: Cursor<'a>) -> Option<OpKind> {
        let inner = &fields.inner;
        let Value::String(group_type) = inner.group_type.as_ref()?.value else { return None };
        if group_type.is_empty() {
            return None;
        }
        let key = DistinctId::group_key(inner.group_key.as_ref()?, cursor)?;
        let set = inner.group_set.as_ref().and_then(|raw| object(raw, cursor.body()));
        if !self.project.group_types.iter().any(|name| name == group_type) {
            self.unknown_group_type(group_type);
        }
        self.has_groups = true;
        Some(OpKind::GroupUpdate {
            group_type: group_type.to_owned(),
            key: key.as_str().to_owned(),
            set: set.unwrap_or_default(),
        })
    }

    pub(super) fn finish(mut self) -> Built {
        // The identity store numbers group types as it sees them: it is shown the project's own
        // order before the first event that has a group, so that both agree for ever.
        if self.has_groups {
            self.ops.insert(0, self.group_types_op());
        }
        Built {
            project: self.project.id,
            columns: self.columns,
            event_ids: self.event_ids,
            ops: self.ops,
            names: self.names.into_iter().map(Cow::into_owned).collect(),
            unknown_group_types: self.unknown_group_types,
            drops: self.drops,
        }
    }
}

fn op(event: &Accepted<'_, '_>, kind: OpKind) -> Op {
    Op {
        distinct_id: event.distinct_id.as_str().to_owned(),
        event_id: event.event_id,
        timestamp: event.timestamp,
        kind,
    }
}

/// What the event does to its person. Every event with a person makes sure that there is one.
fn op_kind<'a>(cursor: Cursor<'a>, fields: &Fields<'a>, event: &Accepted<'a, '_>) -> OpKind {
    if event.personless {
        return OpKind::Personless;
    }
    let inner = &fields.inner;
    let other = match event.name {
        "$identify" => inner.anon_distinct_id.as_ref(),
        "$create_alias" | "$merge_dangerously" => inner.alias.as_ref(),
        _ => None,
    };
    let update = update(fields, cursor.body(), event.name);
    match other.and_then(|raw| DistinctId::read(raw, cursor)) {
        Some(other) => OpKind::Merge {
            other: other.as_str().to_owned(),
            force: if event.name == "$merge_dangerously" { Force::Yes } else { Force::No },
            update: update.unwrap_or_default(),
        },
        None => match update {
            // These say nothing of their person, whatever they carry.
            Some(_) if matches!(event.name, "$exception" | "$$heatmap" | "$groupidentify") => {
                OpKind::Touch
            }
            Some(update) => OpKind::Update(update),
            None => OpKind::Touch,
        },
    }
}

/// An event that is taken.
#[derive(Debug)]
struct Accepted<'a, 'e> {
    name: &'e str,
    distinct_id: &'e DistinctId<'a>,
    timestamp: UnixMicros,
    event_id: Uuid,
    personless: bool,
}

/// A distinct id as text: strings as they are, other JSON values as compact JSON, cut to
/// [`NAME_MAX_CHARS`], NUL replaced. `None` if it is null or blank.
#[derive(Debug)]
enum DistinctId<'a> {
    Borrowed(&'a str),
    Owned(String),
}

impl<'a> DistinctId<'a> {
    fn read(raw: &Raw<'a>, cursor: Cursor<'a>) -> Option<Self> {
        Some(match Self::uncut(raw, cursor)? {
            Self::Borrowed(text) => Self::Borrowed(cut(text)),
            Self::Owned(text) => Self::Owned(cut(&text).to_owned()),
        })
    }

    /// The key of a group: as a distinct id, but not cut, lest two groups become one.
    fn group_key(raw: &Raw<'a>, cursor: Cursor<'a>) -> Option<Self> {
        Self::uncut(raw, cursor)
            .filter(|key| key.as_str().chars().nth(GROUP_KEY_MAX_CHARS).is_none())
    }

    fn uncut(raw: &Raw<'a>, cursor: Cursor<'a>) -> Option<Self> {
        let id = match raw.value {
            Value::Null => return None,
            Value::String(text) => Self::Borrowed(text),
            _ => {
                let json = cursor.body().get(raw.range.clone())?;
                let value: serde_json::Value = serde_json::from_slice(json).ok()?;
                Self::Owned(value.to_string())
            }
        };
        if id.as_str().trim().is_empty() {
            return None;
        }
        if id.as_str().contains('\0') {
            return Some(Self::Owned(id.as_str().replace('\0', "\u{fffd}")));
        }
        Some(id)
    }

    fn as_str(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Owned(text) => text,
        }
    }
}

fn cut(text: &str) -> &str {
    if text.len() <= NAME_MAX_CHARS {
        return text;
    }
    match text.char_indices().nth(NAME_MAX_CHARS) {
        Some((end, _)) => text.get(..end).unwrap_or(text),
        None => text,
    }
}

/// `$set`, `$set_once` and `$unset` of an event, top level over properties.
fn update(fields: &Fields<'_>, body: &[u8], name: &str) -> Option<Update> {
    let inner = &fields.inner;
    let said = [&fields.set, &fields.set_once, &fields.unset, &inner.set, &inner.set_once];
    if said.iter().all(|part| part.is_none()) && inner.unset.is_none() {
        return None;
    }
    let merged = |top: &Option<Raw<'_>>, below: &Option<Raw<'_>>| {
        let mut map = below.as_ref().and_then(|raw| object(raw, body)).unwrap_or_default();
        map.extend(top.as_ref().and_then(|raw| object(raw, body)).unwrap_or_default());
        map
    };
    let mut unset = names(inner.unset.as_ref(), body);
    unset.extend(names(fields.unset.as_ref(), body));
    Some(Update {
        set: merged(&fields.set, &inner.set),
        set_once: merged(&fields.set_once, &inner.set_once),
        unset,
        occasion: match name {
            "$set" | "$identify" | "$create_alias" | "$merge_dangerously" => Occasion::PersonEvent,
            _ => Occasion::OtherEvent,
        },
    })
}

fn object(raw: &Raw<'_>, body: &[u8]) -> Option<Map<String, serde_json::Value>> {
    raw.is_object().then_some(())?;
    serde_json::from_slice(body.get(raw.range.clone())?).ok()
}

/// Names in `$unset`: an array of them, or an object whose keys they are.
fn names(raw: Option<&Raw<'_>>, body: &[u8]) -> Vec<String> {
    let value = raw.and_then(|raw| serde_json::from_slice(body.get(raw.range.clone())?).ok());
    match value {
        Some(serde_json::Value::Array(items)) => {
            items.into_iter().filter_map(|item| item.as_str().map(str::to_owned)).collect()
        }
        Some(serde_json::Value::Object(map)) => map.into_iter().map(|(key, _)| key).collect(),
        _ => Vec::new(),
    }
}

/// A part of an event that may stand at its top and in its properties.
type Lifted<'l, 'a> = (&'static str, &'l Option<Raw<'a>>, &'l Option<Raw<'a>>);

/// Writes the properties anew: without the elements chain, which has a column (and without the
/// elements it was made of), and with what stood at the top of the event merged in.
fn rewrite(
    out: &mut Vec<u8>,
    body: &[u8],
    (members, has_chain): (&[Member], bool),
    lifted: &[Lifted<'_, '_>],
) {
    let is_lifted = |name: &str| lifted.iter().any(|(key, top, _)| *key == name && top.is_some());
    let moved = |meaning: Option<Meaning>| match meaning {
        Some(Meaning::ElementsChain | Meaning::Elements) => has_chain,
        Some(Meaning::Set) => is_lifted("$set"),
        Some(Meaning::SetOnce) => is_lifted("$set_once"),
        Some(Meaning::Unset) => is_lifted("$unset"),
        _ => false,
    };
    out.push(b'{');
    let mut first = true;
    let mut separate = |out: &mut Vec<u8>| {
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
    };
    for member in members.iter().filter(|member| !moved(member.meaning)) {
        separate(out);
        out.extend_from_slice(body.get(member.start..member.end).unwrap_or_default());
    }
    for (key, top, below) in lifted {
        let Some(top) = top else { continue };
        separate(out);
        out.extend_from_slice(format!("\"{key}\":").as_bytes());
        match below.as_ref().and_then(|below| merged(key, (top, below), body)) {
            Some(both) => out.extend_from_slice(both.to_string().as_bytes()),
            None => out.extend_from_slice(body.get(top.range.clone()).unwrap_or_default()),
        }
    }
    out.push(b'}');
}

/// What stands at the top of an event over what stands in its properties: objects member by
/// member, names to remove as one list. `None` if the lower one has nothing to add.
fn merged(key: &str, (top, below): (&Raw<'_>, &Raw<'_>), body: &[u8]) -> Option<serde_json::Value> {
    if top.is_object() && below.is_object() {
        let mut map = object(below, body)?;
        map.extend(object(top, body)?);
        return Some(serde_json::Value::Object(map));
    }
    if key != "$unset" || !below.is_container() {
        return None;
    }
    Some([names(Some(below), body), names(Some(top), body)].concat().into())
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

#[expect(clippy::cast_precision_loss, reason = "JSON numbers are doubles to every reader of them")]
fn to_double(number: i64) -> f64 {
    number as f64
}

/// Whether `text` is how a uuid is written into columns: 36 characters, lower case, hyphens.
fn is_canonical(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
        })
}

/// A version 7 uuid of the event's time and of bits that depend on the seed and the row alone.
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

/// The finaliser of `SplitMix64` (Steele, Lea, Flood 2014): every input bit moves every output bit.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
