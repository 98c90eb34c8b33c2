//! Capture v0 request parser, over the tape: the envelope of a body, its events, and the fields of
//! one event. The fields are not interpreted here: that is `normalize`.
//!
//! A body is an array of events, an envelope with a `batch` array, or one event
//! (reference of the field names: the PostHog capture API; SDKs use all aliases read here).

use std::ops::Range;

use crate::definitions::collect::Slots;
use crate::history::{Effects, History, PersonProperties};
use crate::prepare::error::PrepareError;
use crate::tape::{Cursor, Key, Value};
use crate::warnings::Kind;
use weir_base::clock::UnixMicros;

/// The members of the body besides its events.
#[derive(Debug, Default)]
pub(super) struct Envelope<'a> {
    /// The project's token.
    pub(super) token: Option<&'a str>,
    /// When the sender says it sent the request.
    pub(super) sent_at: Option<Value<'a>>,
    /// `historical_migration`: whether the sender imports past events.
    pub(super) is_historical: bool,
    /// `import`, of a whole import: how its events change persons.
    import: Option<Cursor<'a>>,
    /// The cursor at the `batch` array.
    batch: Option<Cursor<'a>>,
    /// Whether `batch` is present and not an array.
    is_batch_wrong: bool,
    /// Whether the body has `event`, the name of an event.
    has_name: bool,
    /// Whether the body has members that only an event has, besides its name.
    has_subject: bool,
}

impl<'a> Envelope<'a> {
    /// Reads the envelope of the body that `root` is at.
    ///
    /// # Errors
    ///
    /// The body is neither an object nor an array, or its events name different projects.
    pub(super) fn read(root: Cursor<'a>) -> Result<Self, PrepareError> {
        let mut envelope = Self::default();
        let mut cursor = root;
        match root.value() {
            Value::Container { is_object: true, .. } => cursor.object(|key, value| {
                envelope.member(key, value);
                Ok::<(), PrepareError>(())
            })?,
            Value::Container { is_object: false, .. } => envelope.batch = Some(root),
            _ => return Err(PrepareError::NoObject),
        }
        // A token of the envelope wins; otherwise those of the events must agree.
        if envelope.token.is_none() {
            let mut found: Option<&'a str> = None;
            envelope.for_each(root, |event| {
                match (found, token_of(event)) {
                    (Some(first), Some(token)) if first.trim() != token.trim() => {
                        return Err(PrepareError::InconsistentTokens);
                    }
                    (None, token) => found = token,
                    _ => {}
                }
                Ok(())
            })?;
            envelope.token = found;
        }
        Ok(envelope)
    }

    fn member(&mut self, key: Key<'a>, value: &mut Cursor<'a>) {
        match (key.text, value.value()) {
            ("batch", Value::Container { is_object: false, .. }) => {
                self.batch = Some(*value);
                value.skip_large();
                return;
            }
            ("batch", _) => self.is_batch_wrong = true,
            ("event", Value::String(_)) => self.has_name = true,
            ("distinct_id" | "$distinct_id" | "properties", _) => self.has_subject = true,
            ("api_key" | "token" | "$token", Value::String(token)) => self.token = Some(token),
            ("sent_at" | "sentAt", sent_at) => self.sent_at = Some(sent_at),
            ("historical_migration", given) => self.is_historical = given == Value::Boolean(true),
            ("import", _) => self.import = Some(*value),
            _ => {}
        }
        value.skip();
    }

    /// What the body says about the past. `import` has a meaning only in a batch that is marked as historical.
    ///
    /// # Errors
    ///
    /// [`PrepareError::Import`].
    pub(super) fn history(&self) -> Result<History, PrepareError> {
        match self.import.filter(|_| self.batch.is_some()) {
            _ if !self.is_historical => Ok(History::Live),
            None => Ok(History::Marked),
            Some(import) => history_of(import),
        }
    }

    /// Whether the body is a batch whose `batch` is not an array. An event may have a member `batch`
    /// too. On `/engage` an event may lack a name.
    pub(super) fn is_malformed(&self, is_engage: bool) -> bool {
        let is_event = self.has_name || (is_engage && self.has_subject);
        self.is_batch_wrong && self.batch.is_none() && !is_event
    }

    /// Upper bound of the number of events.
    pub(super) fn events_max(&self) -> usize {
        match self.batch.map(|batch| batch.value()) {
            Some(Value::Container { len, .. }) => len,
            _ => 1,
        }
    }

    /// Calls `event` with a cursor at each event, in order. It has to step over the event.
    pub(super) fn for_each(
        &self,
        root: Cursor<'a>,
        event: impl FnMut(&mut Cursor<'a>) -> Result<(), PrepareError>,
    ) -> Result<(), PrepareError> {
        let (mut root, mut event) = (root, event);
        match self.batch {
            Some(mut batch) => batch.array(event),
            None => event(&mut root),
        }
    }
}

/// The members of an `import`: `person_properties`, and `only`, which may be absent.
fn history_of(mut import: Cursor<'_>) -> Result<History, PrepareError> {
    if !matches!(import.value(), Value::Container { is_object: true, .. }) {
        return Err(PrepareError::Import);
    }
    let (mut properties, mut effects) = (None, Effects::All);
    import.object(|key, value| {
        let known = match (key.text, value.value()) {
            ("person_properties", Value::String(word)) => {
                PersonProperties::of(word).map(|own| properties = Some(own))
            }
            ("only", Value::String(word)) => Effects::of(word).map(|own| effects = own),
            _ => None,
        };
        value.skip();
        known.ok_or(PrepareError::Import)
    })?;
    let properties = properties.ok_or(PrepareError::Import)?;
    Ok(History::Import(properties, effects))
}

/// The token of one event: at its top, or `token` in its properties, where posthog-js puts it.
fn token_of<'a>(event: &mut Cursor<'a>) -> Option<&'a str> {
    let mut top = None;
    let mut inner = None;
    let _: Result<(), PrepareError> = event.object(|key, value| {
        match (key.text, value.value()) {
            ("api_key" | "token" | "$token", Value::String(token)) => top = Some(token),
            ("properties", Value::Container { is_object: true, .. }) => {
                return value.object(|key, value| {
                    if let ("token", Value::String(token)) = (key.text, value.value()) {
                        inner = Some(token);
                    }
                    value.skip();
                    Ok(())
                });
            }
            _ => {}
        }
        value.skip();
        Ok(())
    });
    top.or(inner)
}

/// A value and the range of the body it was read from.
#[derive(Clone, Debug)]
pub(super) struct Raw<'a> {
    /// The value.
    pub(super) value: Value<'a>,
    /// Its bytes in the body.
    pub(super) range: Range<usize>,
    /// The cursor at it.
    pub(super) cursor: Cursor<'a>,
}

/// Reads the value at `cursor` and steps over it.
pub(super) fn take<'a>(cursor: &mut Cursor<'a>) -> Raw<'a> {
    let (at, value) = (*cursor, cursor.value());
    Raw { value, range: cursor.skip(), cursor: at }
}

impl Raw<'_> {
    /// Whether the value is a JSON object or array.
    pub(super) fn is_container(&self) -> bool {
        matches!(self.value, Value::Container { .. })
    }

    /// Whether the value is a JSON object.
    pub(super) fn is_object(&self) -> bool {
        matches!(self.value, Value::Container { is_object: true, .. })
    }
}

/// The fields of one event that have a meaning to the server.
#[derive(Debug, Default)]
pub(super) struct Fields<'a> {
    pub(super) event: Option<Raw<'a>>,
    pub(super) distinct_id: Option<Raw<'a>>,
    pub(super) uuid: Option<Value<'a>>,
    pub(super) timestamp: Option<Value<'a>>,
    pub(super) offset: Option<Value<'a>>,
    pub(super) set: Option<Raw<'a>>,
    pub(super) set_once: Option<Raw<'a>>,
    pub(super) unset: Option<Raw<'a>>,
    /// `person_properties`: what the person had, told beside an event that is imported.
    pub(super) person: Option<Raw<'a>>,
    /// Whether one of these three has a type that cannot be applied.
    pub(super) is_set_invalid: bool,
    /// Range of the `properties` object.
    pub(super) properties: Option<Range<usize>>,
    pub(super) inner: Inner<'a>,
    /// Decisions that capture v1 has made already.
    pub(super) decided: Option<Decided>,
}

/// Decisions of v1 about an event, made before the rules that all events share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decided {
    /// The timestamp.
    pub(super) at: UnixMicros,
    /// The warning for the sender about the timestamp.
    pub(super) warning: Option<Kind>,
    /// Whether it has no effect on persons, whatever its properties contain.
    pub(super) personless: bool,
}

/// The properties that have a meaning to the server.
#[derive(Debug, Default)]
pub(super) struct Inner<'a> {
    pub(super) distinct_id: Option<Raw<'a>>,
    pub(super) set: Option<Raw<'a>>,
    pub(super) set_once: Option<Raw<'a>>,
    pub(super) unset: Option<Raw<'a>>,
    pub(super) groups: Option<Cursor<'a>>,
    pub(super) anon_distinct_id: Option<Raw<'a>>,
    pub(super) alias: Option<Raw<'a>>,
    pub(super) group_type: Option<Raw<'a>>,
    pub(super) group_key: Option<Raw<'a>>,
    pub(super) group_set: Option<Raw<'a>>,
    pub(super) ip: Option<&'a str>,
    /// Whether `$ip` is neither a string nor falsy.
    pub(super) has_odd_ip: bool,
    pub(super) geoip_disable: bool,
    /// Whether the event has a `$geoip_` property.
    pub(super) has_place: bool,
    /// Whether `capture_internal` is present: the server itself is the sender.
    pub(super) is_internal: bool,
    pub(super) elements: Option<Cursor<'a>>,
    /// Whether `$elements_chain` is a string.
    pub(super) elements_chain: bool,
    pub(super) process_person_profile: Option<Value<'a>>,
    pub(super) ignore_sent_at: bool,
    /// Promoted properties, by number, whose value does not have the type of their column.
    pub(super) mismatched: Slots,
    pub(super) is_server: bool,
    /// The key of the flag that the event is about.
    pub(super) flag: Option<&'a str>,
}

impl<'a> Fields<'a> {
    /// Reads one member of the event. Returns `false` if it is not one of these fields; the cursor
    /// still stands on the value then. `properties` is left to the caller.
    pub(super) fn member(&mut self, key: Key<'a>, value: &mut Cursor<'a>) -> bool {
        match key.text {
            "event" => self.event = Some(take(value)),
            "distinct_id" | "$distinct_id" => {
                let raw = take(value);
                if raw.value != Value::Null {
                    self.distinct_id = Some(raw);
                }
            }
            "uuid" => self.uuid = Some(take(value).value),
            "timestamp" => self.timestamp = Some(take(value).value),
            "offset" => self.offset = Some(take(value).value),
            // A value that cannot be merged into the properties counts as absent; SDKs send nulls.
            "$set" => self.set = self.kept(take(value), Raw::is_object),
            "$set_once" => self.set_once = self.kept(take(value), Raw::is_object),
            "$unset" => self.unset = self.kept(take(value), Raw::is_container),
            "person_properties" => self.person = Some(take(value)).filter(Raw::is_object),
            _ => return false,
        }
        true
    }

    fn kept(&mut self, raw: Raw<'a>, is_sound: impl Fn(&Raw<'a>) -> bool) -> Option<Raw<'a>> {
        self.is_set_invalid |= !is_sound(&raw) && raw.value != Value::Null;
        Some(raw).filter(is_sound)
    }
}

impl<'a> Inner<'a> {
    /// Records one property that has a meaning. The cursor stays on the value.
    pub(super) fn note(&mut self, meaning: Meaning, cursor: &Cursor<'a>) {
        let mut ahead = *cursor;
        let value = cursor.value();
        match meaning {
            Meaning::DistinctId => self.distinct_id = Some(take(&mut ahead)),
            Meaning::Set => self.set = Some(take(&mut ahead)),
            Meaning::SetOnce => self.set_once = Some(take(&mut ahead)),
            Meaning::Unset => self.unset = Some(take(&mut ahead)),
            Meaning::Groups => self.groups = Some(*cursor),
            Meaning::AnonDistinctId => self.anon_distinct_id = Some(take(&mut ahead)),
            Meaning::Alias => self.alias = Some(take(&mut ahead)),
            Meaning::GroupType => self.group_type = Some(take(&mut ahead)),
            Meaning::GroupKey => self.group_key = Some(take(&mut ahead)),
            Meaning::GroupSet => self.group_set = Some(take(&mut ahead)),
            Meaning::ProcessPersonProfile => self.process_person_profile = Some(value),
            Meaning::IgnoreSentAt => self.ignore_sent_at = value == Value::Boolean(true),
            Meaning::IsServer => self.is_server = value == Value::Boolean(true),
            Meaning::CaptureInternal => self.is_internal = true,
            Meaning::Elements => {
                let is_array = matches!(value, Value::Container { is_object: false, .. });
                self.elements = is_array.then_some(*cursor);
            }
            Meaning::Ip => {
                self.ip = match value {
                    Value::String(ip) => Some(ip).filter(|ip| !ip.is_empty()),
                    _ => None,
                };
                self.has_odd_ip = match value {
                    Value::Null | Value::String(_) | Value::Integer(0) => false,
                    Value::Boolean(truth) => truth,
                    Value::Number(number) => number != 0.0,
                    Value::Integer(_) | Value::Container { .. } => true,
                };
            }
            Meaning::GeoipDisable => self.geoip_disable = value == Value::Boolean(true),
            Meaning::Place => self.has_place = true,
            Meaning::Flag => {
                self.flag = match value {
                    Value::String(key) => Some(key),
                    _ => None,
                };
            }
            // The caller sets their columns, or only the rewrite of the properties uses them.
            Meaning::ElementsChain
            | Meaning::SessionId
            | Meaning::WindowId
            | Meaning::GroupIndex(_)
            | Meaning::NeverStored => {}
        }
    }
}

/// The meaning of a property to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    DistinctId,
    Set,
    SetOnce,
    Unset,
    Groups,
    AnonDistinctId,
    Alias,
    GroupType,
    GroupKey,
    GroupSet,
    Ip,
    GeoipDisable,
    /// One of the names of `geoip::NAMES`.
    Place,
    SessionId,
    WindowId,
    ElementsChain,
    Elements,
    ProcessPersonProfile,
    IgnoreSentAt,
    IsServer,
    CaptureInternal,
    /// The key of a flag.
    Flag,
    /// `$group_0` to `$group_4`, which the server derives from `$groups`.
    GroupIndex(usize),
    /// State of an SDK, unrelated to the event; PostHog's ingestion removes it too.
    NeverStored,
}

impl Meaning {
    /// Property names and their meanings.
    pub(super) const ALL: [(&'static str, Self); 29] = [
        ("distinct_id", Self::DistinctId),
        ("$set", Self::Set),
        ("$set_once", Self::SetOnce),
        ("$unset", Self::Unset),
        ("$groups", Self::Groups),
        ("$anon_distinct_id", Self::AnonDistinctId),
        ("alias", Self::Alias),
        ("$group_type", Self::GroupType),
        ("$group_key", Self::GroupKey),
        ("$group_set", Self::GroupSet),
        ("$ip", Self::Ip),
        ("$geoip_disable", Self::GeoipDisable),
        ("$session_id", Self::SessionId),
        ("$window_id", Self::WindowId),
        ("$elements_chain", Self::ElementsChain),
        ("$elements", Self::Elements),
        ("$process_person_profile", Self::ProcessPersonProfile),
        ("$ignore_sent_at", Self::IgnoreSentAt),
        ("$is_server", Self::IsServer),
        ("capture_internal", Self::CaptureInternal),
        ("$feature_flag", Self::Flag),
        ("$group_0", Self::GroupIndex(0)),
        ("$group_1", Self::GroupIndex(1)),
        ("$group_2", Self::GroupIndex(2)),
        ("$group_3", Self::GroupIndex(3)),
        ("$group_4", Self::GroupIndex(4)),
        ("ph_product_tours", Self::NeverStored),
        ("$product_tours_activated", Self::NeverStored),
        ("$override_feature_flag_payloads", Self::NeverStored),
    ];
}
