//! Capture v1 request parser, over the tape: the envelope of a body, the members of one event, and
//! the options beside its properties. The members are not interpreted here: that is `normalize`.
//!
//! A body is `{"created_at": "...", "batch": [...]}`. As in PostHog, an error in the shape of the body
//! or of an event rejects the whole request; an error in the contents of an event only that event.

use std::borrow::Cow;

use chrono::DateTime;
use hashbrown::HashSet;
use uuid::Uuid;

use crate::capture::take;
use crate::prepare::error::{BatchError, PrepareError};
use crate::tape::{Cursor, Value};

/// The members of the body besides its events.
#[derive(Debug)]
pub(super) struct Envelope<'a> {
    /// The cursor at the `batch` array.
    batch: Cursor<'a>,
    /// Ids of the events, in order.
    pub(super) uuids: Vec<Uuid>,
    /// `capture_internal`: the events are the server's own, and the client's address is meaningless.
    pub(super) is_internal: bool,
    /// `historical_migration`: whether the sender imports past events.
    pub(super) is_historical: bool,
}

impl<'a> Envelope<'a> {
    /// Reads the body that `root` is at, and checks the shape of every event.
    ///
    /// # Errors
    ///
    /// The body as a whole is invalid.
    pub(super) fn read(mut root: Cursor<'a>) -> Result<Self, PrepareError> {
        if !is_object(&root) {
            return Err(shape("the body is not an object"));
        }
        let (mut batch, mut created_at) = (None, None);
        let (mut is_internal, mut is_historical) = (Value::Null, Value::Null);
        root.object(|key, value| {
            match key.text {
                "batch" => {
                    batch = Some(*value);
                    value.skip_large();
                    return Ok::<(), PrepareError>(());
                }
                "created_at" => created_at = Some(value.value()),
                "capture_internal" => is_internal = value.value(),
                "historical_migration" => is_historical = value.value(),
                _ => {}
            }
            value.skip();
            Ok(())
        })?;
        let Some(Value::String(created_at)) = created_at else {
            return Err(shape("created_at is missing or not a string"));
        };
        let Some(batch) = batch.filter(is_array) else {
            return Err(shape("batch is missing or not an array"));
        };
        let is_flag = |value| matches!(value, Value::Null | Value::Boolean(_));
        if !is_flag(is_internal) || !is_flag(is_historical) {
            return Err(shape("capture_internal and historical_migration are booleans"));
        }
        let ids = read_ids(batch)?;
        if matches!(batch.value(), Value::Container { len: 0, .. }) {
            return Err(PrepareError::NoEvents);
        }
        if DateTime::parse_from_rfc3339(created_at).is_err() {
            return Err(BatchError::CreatedAt.into());
        }
        let is_true = |flag| flag == Value::Boolean(true);
        let (is_internal, is_historical) = (is_true(is_internal), is_true(is_historical));
        Ok(Self { batch, uuids: ids?, is_internal, is_historical })
    }

    /// Calls `event` with a cursor at each event, in order, and its id.
    pub(super) fn for_each(
        &self,
        mut event: impl FnMut(Cursor<'a>, Uuid) -> Result<(), PrepareError>,
    ) -> Result<(), PrepareError> {
        let mut uuids = self.uuids.iter().copied();
        let mut batch = self.batch;
        batch.array(|item| {
            event(*item, uuids.next().unwrap_or_default())?;
            item.skip();
            Ok(())
        })
    }
}

/// Ids of all events. The outer error is a wrong shape, which is reported in preference to the inner.
fn read_ids(mut batch: Cursor<'_>) -> Result<Result<Vec<Uuid>, PrepareError>, PrepareError> {
    let mut seen = HashSet::with_hasher(foldhash::fast::RandomState::default());
    let mut ids = Vec::new();
    let mut wrong = None;
    batch.array(|item| {
        let event = Event::read(*item)?;
        item.skip();
        match id_of(event.uuid.trim()) {
            Ok(id) if seen.insert(id) => ids.push(id),
            Ok(id) => wrong = wrong.or(Some(BatchError::DuplicateUuid(id))),
            Err(error) => wrong = wrong.or(Some(error)),
        }
        Ok::<(), PrepareError>(())
    })?;
    Ok(wrong.map_or(Ok(ids), |error| Err(error.into())))
}

fn id_of(text: &str) -> Result<Uuid, BatchError> {
    if text.is_empty() {
        return Err(BatchError::MissingUuid);
    }
    Uuid::try_parse(text).map_err(|_| BatchError::InvalidUuid)
}

/// The members of one event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event<'a> {
    pub(super) name: &'a str,
    pub(super) uuid: &'a str,
    pub(super) distinct_id: &'a str,
    pub(super) timestamp: &'a str,
    pub(super) session_id: Option<&'a str>,
    pub(super) window_id: Option<&'a str>,
    /// Cursor at the value, of any type.
    pub(super) options: Option<Cursor<'a>>,
    /// Cursor at the value, of any type.
    pub(super) properties: Option<Cursor<'a>>,
}

impl<'a> Event<'a> {
    /// Reads the event at `cursor`.
    ///
    /// # Errors
    ///
    /// A required member is missing, or a member has the wrong type.
    pub(super) fn read(mut cursor: Cursor<'a>) -> Result<Self, PrepareError> {
        if !is_object(&cursor) {
            return Err(shape("an event is not an object"));
        }
        let mut found: [Option<Value<'a>>; 6] = [None; 6];
        let [name, uuid, distinct_id, timestamp, session_id, window_id] = &mut found;
        let (mut options, mut properties) = (None, None);
        cursor.object(|key, value| {
            let member = match key.text {
                "event" => &mut *name,
                "uuid" => &mut *uuid,
                "distinct_id" => &mut *distinct_id,
                "timestamp" => &mut *timestamp,
                "session_id" => &mut *session_id,
                "window_id" => &mut *window_id,
                "options" => {
                    options = Some(*value);
                    value.skip();
                    return Ok(());
                }
                "properties" => {
                    properties = Some(*value);
                    value.skip();
                    return Ok(());
                }
                _ => {
                    value.skip();
                    return Ok(());
                }
            };
            *member = Some(take(value).value);
            Ok::<(), PrepareError>(())
        })?;
        let text = |member: &Option<Value<'a>>, what| match member {
            Some(Value::String(text)) => Ok(*text),
            _ => Err(shape(what)),
        };
        let optional = |member: &Option<Value<'a>>, what| match member {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(*text)),
            Some(_) => Err(shape(what)),
        };
        Ok(Self {
            name: text(name, "the event of an event is missing or not a string")?,
            uuid: text(uuid, "the uuid of an event is missing or not a string")?,
            distinct_id: text(distinct_id, "a distinct_id is missing or not a string")?,
            timestamp: text(timestamp, "a timestamp is missing or not a string")?,
            session_id: optional(session_id, "a session_id is not a string")?,
            window_id: optional(window_id, "a window_id is not a string")?,
            options,
            properties,
        })
    }
}

/// Processing options that an event has beside its properties.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Options<'a> {
    pub(super) cookieless_mode: Option<bool>,
    pub(super) disable_skew_correction: Option<bool>,
    pub(super) process_person_profile: Option<bool>,
    pub(super) product_tour_id: Option<Cow<'a, str>>,
}

impl<'a> Options<'a> {
    /// Reads the options at `cursor`. Unknown options are ignored, and `null` counts as absent. Returns
    /// `None` if an option has an invalid value.
    pub(super) fn read(mut cursor: Cursor<'a>) -> Option<Self> {
        match cursor.value() {
            Value::Null => return Some(Self::default()),
            Value::Container { is_object: true, .. } => {}
            _ => return None,
        }
        let mut options = Self::default();
        cursor
            .object(|key, value| {
                let raw = take(value);
                if raw.value == Value::Null {
                    return Ok(());
                }
                match key.text {
                    "cookieless_mode" => options.cookieless_mode = Some(flag(raw.value)?),
                    "disable_skew_correction" => {
                        options.disable_skew_correction = Some(flag(raw.value)?);
                    }
                    "process_person_profile" => {
                        options.process_person_profile = Some(flag(raw.value)?);
                    }
                    "product_tour_id" => {
                        let json = value.body().get(raw.range).unwrap_or_default();
                        options.product_tour_id = Some(label(raw.value, json)?);
                    }
                    _ => {}
                }
                Ok::<(), Unreadable>(())
            })
            .ok()?;
        Some(options)
    }
}

/// An option with an invalid value.
struct Unreadable;

fn flag(value: Value<'_>) -> Result<bool, Unreadable> {
    match value {
        Value::Boolean(truth) => Ok(truth),
        Value::Integer(number) => Ok(number != 0),
        Value::Number(number) => Ok(number != 0.0),
        Value::String(text) => match text.trim() {
            "1" => Ok(true),
            "0" => Ok(false),
            text if text.eq_ignore_ascii_case("true") => Ok(true),
            text if text.eq_ignore_ascii_case("false") => Ok(false),
            _ => Err(Unreadable),
        },
        Value::Null | Value::Container { .. } => Err(Unreadable),
    }
}

/// A string as it is, a whole number as its digits.
fn label<'a>(value: Value<'a>, json: &'a [u8]) -> Result<Cow<'a, str>, Unreadable> {
    match value {
        Value::String(text) => Ok(Cow::Borrowed(text)),
        Value::Integer(number) => Ok(Cow::Owned(number.to_string())),
        // A whole number beyond i64 is a float on the tape.
        Value::Number(_) => {
            let digits = std::str::from_utf8(json).map_err(|_| Unreadable)?;
            digits.parse::<u64>().map(|_| Cow::Borrowed(digits)).map_err(|_| Unreadable)
        }
        Value::Boolean(_) | Value::Null | Value::Container { .. } => Err(Unreadable),
    }
}

fn is_object(cursor: &Cursor<'_>) -> bool {
    matches!(cursor.value(), Value::Container { is_object: true, .. })
}

fn is_array(cursor: &Cursor<'_>) -> bool {
    matches!(cursor.value(), Value::Container { is_object: false, .. })
}

fn shape(what: &'static str) -> PrepareError {
    BatchError::Shape(what).into()
}
