//! Normalization of one event: names, ids, time, properties, and its effects on persons.
//!
//! [`Batch::event`] is the whole path of one event from the tape to the columns; read it first.
//! The parts: `batch` (the state), `keys` (properties with a meaning), `names`, `event_id`, `moment`
//! (time), `elements`, `auto_set` (event properties that become person properties), `properties` (the
//! stored JSON), `persons`, `groups`, `addresses` and `place` (the address, and its GeoIP properties),
//! and `v1`, the entry for capture v1.
//!
//! Source of the rules: PostHog's capture and ingestion pipeline as described for each below. Where
//! the original refuses a whole request for one bad event, only that event is dropped here.

mod addresses;
mod auto_set;
pub(super) mod batch;
mod elements;
mod event_id;
mod groups;
mod imported;
pub(super) mod keys;
mod moment;
mod names;
mod persons;
mod place;
mod properties;
pub(super) mod v1;

use arrow::buffer::Buffer;
use hashbrown::HashMap;
use uuid::Uuid;

use crate::capture::{Fields, Inner, Meaning, Raw};
use crate::definitions::collect::{Collector, bit, slots};
use crate::drops::{Drop, Drops};
use crate::history::{Effects, History};
use crate::normalize::addresses::{Address, Addresses};
use crate::normalize::auto_set::Lifts;
use crate::normalize::batch::{Accepted, Batch, FLAG_CALLED, Member};
use crate::normalize::keys::{KeyTable, KeyUse, Memo};
use crate::normalize::moment::sent_at;
use crate::normalize::names::{DistinctId, cut, event_name};
use crate::prepare::error::PrepareError;
use crate::prepared::Prepared;
use crate::project_facts::ProjectFacts;
use crate::request::{Received, Rules};
use crate::tape::{Cursor, Key, Value};
use crate::warnings::{Kind, Sample, Warnings};
use crate::{memory_estimate, prepared};
use weir_event::columns::{Columns, View};
use weir_event::id::EventKey;
use weir_event::schema::{PROMOTED, PropertyType, column};

/// Rows that capacity is reserved for at most. A body may have a hundred million items that are not
/// events, and capacity for each in every column would be gigabytes.
const RESERVE_MAX_ROWS: usize = 1 << 14;

/// Number of columns of the `events` table.
const COLUMNS: usize = column::HISTORICAL_MIGRATION + 1;

/// Length of a person's id as text.
const PERSON_ID_BYTES: usize = 36;

impl<'a, 'r> Batch<'a, 'r> {
    /// Starts a batch; the events are read from `body`.
    pub(super) fn new(
        keys: &'r KeyTable,
        body: &'r Buffer,
        received: &'r Received,
        project: &'r ProjectFacts,
        given_sent_at: Option<Value<'a>>,
        history: History,
    ) -> Self {
        Self {
            keys,
            body,
            received,
            project,
            // What is imported has the times of another clock than the one that sends it now.
            sent_at: sent_at(given_sent_at, received).filter(|_| !history.is_past()),
            addresses: Addresses::default(),
            columns: Columns::new(COLUMNS, 0),
            keys_of_events: Vec::new(),
            ops: Vec::new(),
            memo: Memo::default(),
            definitions: Collector::new(received.at),
            persons: HashMap::default(),
            unknown_group_types: Vec::new(),
            drops: Drops::default(),
            warnings: Warnings::default(),
            mismatched: 0,
            has_groups: false,
            history,
            members: Vec::new(),
            auto_sets: Lifts::default(),
            injected: Vec::new(),
        }
    }

    /// Reserves capacity for `events` rows of a body of this length.
    pub(super) fn reserve(&mut self, events: usize, body_bytes: usize) {
        let rows = events.min(RESERVE_MAX_ROWS);
        self.columns = Columns::new(COLUMNS, rows);
        // The properties are most of the body, and values with columns of their own are stored
        // once more. Unused capacity is released at the end.
        self.columns.reserve_text(body_bytes + body_bytes / 4 + rows * PERSON_ID_BYTES);
        self.keys_of_events.reserve(rows);
        self.ops.reserve(rows);
        if self.history.import().is_none() {
            self.client_address();
        }
    }

    /// Takes the event at `cursor` and steps over it, or counts it as dropped.
    ///
    /// # Errors
    ///
    /// [`PrepareError::TooLarge`]: the body as a whole cannot be stored.
    pub(super) fn event(&mut self, cursor: &mut Cursor<'a>) -> Result<(), PrepareError> {
        if !matches!(cursor.value(), Value::Container { is_object: true, .. }) {
            cursor.skip();
            self.drops.add(Drop::NotAnObject);
            self.warnings.add_unknown(Kind::Dropped(Drop::NotAnObject), 1);
            return Ok(());
        }
        let start = cursor.offset();
        let fields = self.read(cursor)?;
        let size = cursor.end().saturating_sub(usize::try_from(start).unwrap_or(0));
        let is_person = self.is_imported_person(&fields);
        match self.accept(*cursor, &fields, size)? {
            None if is_person => {
                self.columns.abandon_row();
                self.definitions.abandon();
            }
            None if self.history.effects() == Effects::Persons => {
                self.columns.abandon_row();
                self.keys_of_events.pop();
            }
            None => self.columns.finish_row(),
            Some(reason) => {
                self.columns.abandon_row();
                self.definitions.abandon();
                self.drops.add(reason);
                self.warnings.add(Kind::Dropped(reason), || dropped(reason, &fields));
            }
        }
        Ok(())
    }

    /// Reads the fields; promoted properties go straight to their columns.
    fn read(&mut self, cursor: &mut Cursor<'a>) -> Result<Fields<'a>, PrepareError> {
        let mut fields = Fields::default();
        self.members.clear();
        self.auto_sets.clear();
        self.memo.begin();
        cursor.object(|key, value| {
            if fields.member(key, value) {
                return Ok(());
            }
            if key.text != "properties" {
                value.skip();
                return Ok(());
            }
            if !matches!(value.value(), Value::Container { is_object: true, .. }) {
                value.skip();
                return Ok::<(), PrepareError>(());
            }
            // If `properties` occurs twice, the last one counts, as in every JSON parser.
            if fields.properties.is_some() {
                fields.inner = Inner::default();
                self.members.clear();
                self.auto_sets.clear();
                self.columns.abandon_row();
                self.definitions.abandon();
            }
            let start = usize::try_from(value.offset()).unwrap_or(0);
            value.object(|key, value| self.property(key, value, &mut fields))?;
            fields.properties = Some(start..value.end());
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
        let (known, hash) = self.memo.look_up(key.text, self.keys);
        let current = *value;
        let start = usize::try_from(key.offset).unwrap_or(0);
        let range = value.skip();
        if let Some(meaning) = known.meaning {
            self.members.push(Member { meaning, start, end: range.end });
        }
        self.define(key.text, hash, known, current.value());
        if let Some(index) = known.lift {
            self.auto_sets.note(index, range.clone(), current);
        }
        if let Some((position, kind)) = known.column {
            match (kind, current.value()) {
                (PropertyType::Text, Value::String(text)) => self.put(position, text)?,
                (PropertyType::Double, Value::Number(number)) => {
                    self.columns.set_double(position, number);
                }
                (PropertyType::Double, Value::Integer(number)) => {
                    self.columns.set_double(position, to_double(number));
                }
                (PropertyType::Boolean, Value::Boolean(truth)) => {
                    self.columns.set_boolean(position, truth);
                }
                (PropertyType::Text, Value::Boolean(_) | Value::Number(_) | Value::Integer(_))
                    if known.takes_scalars =>
                {
                    let written = current.body().get(range).map(str::from_utf8);
                    self.put(position, written.and_then(Result::ok).unwrap_or_default().trim())?;
                }
                // The key may have occurred before, with a value of the right type.
                (_, other) => {
                    if other != Value::Null {
                        let number = u8::try_from(position - column::PROMOTED).unwrap_or(u8::MAX);
                        fields.inner.mismatched |= bit(number);
                    }
                    self.columns.unset(position);
                }
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
                (Some(position), Value::String(text)) => self.put(position, text)?,
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

    /// Records the definition of a property that is stored.
    fn define(&mut self, key: &'a str, hash: u64, known: KeyUse, value: Value<'a>) {
        // `true` is the default, and is not stored.
        let is_removed =
            known.meaning == Some(Meaning::ProcessPersonProfile) && value != Value::Boolean(false);
        if !is_removed {
            self.definitions.property(key, hash, known.track, value);
        }
    }

    /// Records the definition of a property that the sender gave outside of `properties`.
    fn define_added(&mut self, key: &'a str, value: Value<'a>) {
        self.define(key, self.keys.hash(key), self.keys.get(key), value);
    }

    /// Sets a text column, for a value that is likely to repeat.
    fn put(&mut self, position: usize, text: &str) -> Result<(), PrepareError> {
        self.columns.put_text(position, text).ok_or(PrepareError::TooLarge)
    }

    fn view(&mut self, text: &str) -> Result<View, PrepareError> {
        self.columns.view(text).ok_or(PrepareError::TooLarge)
    }

    /// Decides whether the event is stored, and sets its fixed columns. Returns the reason if it is dropped.
    fn accept(
        &mut self,
        cursor: Cursor<'a>,
        fields: &Fields<'a>,
        size: usize,
    ) -> Result<Option<Drop>, PrepareError> {
        if u32::try_from(size).is_ok_and(|size| size > self.received.event_max_bytes) {
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
        let name = event_name(name);
        let raw_id = fields.distinct_id.as_ref().or(fields.inner.distinct_id.as_ref());
        let Some(distinct_id) = raw_id.and_then(|raw| DistinctId::read(raw, cursor)) else {
            return Ok(Some(Drop::MissingDistinctId));
        };
        let (timestamp, time_warning) = self.timestamp(fields);
        let decided = fields.decided.is_some_and(|decided| decided.personless);
        let opted_out = fields.inner.process_person_profile == Some(Value::Boolean(false));
        let mut event = Accepted {
            name: name.name.as_ref(),
            distinct_id: &distinct_id.name,
            timestamp,
            event_id: Uuid::nil(),
            personless: opted_out || decided,
            os: None,
            address: Address::default(),
        };
        let merges = matches!(event.name, "$identify" | "$create_alias" | "$merge_dangerously");
        if event.personless && merges && !decided {
            return Ok(Some(Drop::PersonlessMerge));
        }
        let is_uuid_wrong;
        (event.event_id, is_uuid_wrong) = self.event_id(fields, timestamp)?;
        for (kind, applies) in [
            (Kind::EventNameCut, name.is_cut),
            (Kind::DistinctIdCut, distinct_id.is_cut),
            (Kind::InvalidUuid, is_uuid_wrong),
        ] {
            if applies {
                self.warn(kind, &event);
            }
        }
        if let Some(kind) = time_warning {
            self.warn(kind, &event);
        }
        if self.is_imported_person(fields) {
            self.person_ops(cursor, fields, &event);
            return Ok(None);
        }
        let profile = fields.inner.process_person_profile;
        if !matches!(profile, None | Some(Value::Boolean(_) | Value::Null)) {
            self.warn(Kind::InvalidProcessPersonProfile, &event);
        }
        self.warn_of_mismatches(fields, &event);
        self.take(cursor, fields, event)?;
        match self.history.effects() {
            Effects::All | Effects::Rows => self.definitions.commit(name.name),
            Effects::Persons => self.definitions.abandon(),
        }
        Ok(None)
    }

    /// Sets the columns of an event that is stored, and records its effects on persons.
    fn take(
        &mut self,
        cursor: Cursor<'a>,
        fields: &Fields<'a>,
        mut event: Accepted<'a, '_>,
    ) -> Result<(), PrepareError> {
        self.fixed_columns(fields, &event)?;
        event.address = self.address(cursor, fields)?;
        self.elements(fields)?;
        if event.name == FLAG_CALLED
            && self.history.effects() != Effects::Persons
            && let Some(flag) = fields.inner.flag
        {
            self.definitions.called(flag, event.timestamp);
        }
        if event.name != "$snapshot"
            && self.history.effects() == Effects::All
            && let Some((os, place)) = self.auto_sets.missing_os(fields.inner.is_server)
        {
            if let (Some(position), Value::String(text)) = (self.keys.os_column, os.value()) {
                self.put(position, text)?;
            }
            self.define_added("$os", os.value());
            event.os = Some(place);
        }
        if event.says_nothing()
            || event.name == "$snapshot"
            || self.history.effects() == Effects::Rows
        {
            self.auto_sets.clear();
        } else {
            let imported = self.history.import().and(fields.person.as_ref());
            self.auto_sets.settle(self.keys, fields, imported);
        }
        if let Some(position) = self.keys.profile_column.filter(|_| !event.personless) {
            self.columns.unset(position);
        }
        let groups = self.groups(fields, &event)?;
        self.properties(cursor, fields, &event, groups)?;
        self.person_ops(cursor, fields, &event);
        Ok(())
    }

    /// Whether the event is stored with the time and the address that it has, because its sender imports
    /// what happened elsewhere.
    fn is_import(&self, fields: &Fields<'a>) -> bool {
        self.is_imported(fields.is_historical)
    }

    /// The same of an event that itself says so, or does not.
    fn is_imported(&self, is_marked: bool) -> bool {
        self.received.rules >= Rules::ExactImports && (is_marked || self.history.is_past())
    }

    fn is_historical(&self, fields: &Fields<'a>) -> bool {
        self.history.is_past() || self.is_import(fields)
    }

    /// Stores `$elements` as a chain, unless the event has a chain.
    fn elements(&mut self, fields: &Fields<'a>) -> Result<(), PrepareError> {
        let beside = fields.elements_chain.filter(|_| self.received.rules >= Rules::ExactImports);
        if let Some(chain) = beside.filter(|_| !fields.inner.elements_chain) {
            return self.put(column::ELEMENTS_CHAIN, chain);
        }
        let Some(cursor) = fields.inner.elements.filter(|_| !fields.inner.elements_chain) else {
            return Ok(());
        };
        let mut ahead = cursor;
        let range = ahead.skip();
        let Some(serde_json::Value::Array(elements)) = properties::value(cursor, &range) else {
            return Ok(());
        };
        if !elements.is_empty() {
            self.put(column::ELEMENTS_CHAIN, &elements::chain(&elements))?;
        }
        Ok(())
    }

    /// Records a warning for the sender of an event.
    fn warn(&mut self, kind: Kind, event: &Accepted<'a, '_>) {
        self.warnings.add(kind, || Sample {
            kind,
            event: event.name.to_owned(),
            distinct_id: event.distinct_id.as_str().to_owned(),
            event_id: event.event_id,
            detail: String::new(),
        });
    }

    /// Warns of promoted properties whose values do not have the type of their columns, once per property.
    fn warn_of_mismatches(&mut self, fields: &Fields<'a>, event: &Accepted<'a, '_>) {
        let new = fields.inner.mismatched & !self.mismatched;
        self.mismatched |= new;
        for number in slots(new) {
            let Some((key, column)) = PROMOTED.get(usize::from(number)) else { continue };
            let wanted = match column {
                PropertyType::Text => "text",
                PropertyType::Double => "a number",
                PropertyType::Boolean => "true or false",
            };
            self.warnings.add(Kind::PropertyTypeMismatch, || Sample {
                kind: Kind::PropertyTypeMismatch,
                event: event.name.to_owned(),
                distinct_id: event.distinct_id.as_str().to_owned(),
                event_id: event.event_id,
                detail: format!("{key} is not {wanted}"),
            });
        }
    }

    fn fixed_columns(
        &mut self,
        fields: &Fields<'a>,
        event: &Accepted<'a, '_>,
    ) -> Result<(), PrepareError> {
        self.columns.set_int(column::PROJECT_ID, self.project.id.0);
        self.put(column::EVENT, event.name)?;
        self.put(column::DISTINCT_ID, event.distinct_id.as_str())?;
        let person = self.person(event.distinct_id)?;
        self.columns.set_text(column::PERSON_ID, person);
        let key = EventKey::new(event.event_id, event.name, event.distinct_id.as_str());
        self.keys_of_events.push(key);
        self.columns.set_time(column::TIMESTAMP, event.timestamp.0);
        self.columns.set_time(column::RECEIVED_AT, self.received.at.0);
        if self.is_historical(fields) {
            self.columns.set_boolean(column::HISTORICAL_MIGRATION, true);
        }
        Ok(())
    }

    /// The rows of the body with what is derived from them.
    pub(super) fn finish(mut self) -> Prepared {
        // The identity store numbers group types in the order in which it sees them. This op gives it
        // the project's order before the first event with a group, so that both always agree.
        if self.has_groups {
            self.ops.insert(0, self.group_types_op());
        }
        let (rows, observed) = (self.columns.rows(), self.definitions.finish());
        let columns = self.columns.finish();
        Prepared {
            project: self.project.id,
            rows,
            memory_bytes: prepared::memory_bytes(&columns),
            said_bytes: self.body.len()
                + memory_estimate::of_ops(&self.ops)
                + observed.memory_bytes(),
            columns,
            mismatched: self.mismatched,
            keys: self.keys_of_events,
            ops: self.ops,
            received_at: self.received.at,
            observed,
            unknown_group_types: self.unknown_group_types,
            drops: self.drops,
            outcomes: Vec::new(),
            warnings: self.warnings,
            places: self.addresses.places(),
            anonymize_ips: self.project.anonymize_ips,
            by: None,
        }
    }
}

/// The sample for the warning about a dropped event.
fn dropped(reason: Drop, fields: &Fields<'_>) -> Sample {
    let text = |raw: Option<&Raw<'_>>| match raw.map(|raw| raw.value) {
        Some(Value::String(text)) => cut(text).to_owned(),
        _ => String::new(),
    };
    Sample {
        kind: Kind::Dropped(reason),
        event: text(fields.event.as_ref()),
        distinct_id: text(fields.distinct_id.as_ref().or(fields.inner.distinct_id.as_ref())),
        event_id: Uuid::nil(),
        detail: String::new(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "JSON numbers are doubles to every reader of them")]
fn to_double(number: i64) -> f64 {
    number as f64
}
