//! Capture v1 rules, where they differ from v0: events that v0 repairs are dropped, the time of an event
//! is corrected by the clock in the header, and members of the envelope become properties.
//!
//! Source: `rust/capture/src/v1/analytics` of PostHog.

use uuid::Uuid;

use crate::capture::{Decided, Fields, Meaning, Raw};
use crate::capture_v1::{Event, Options};
use crate::drops::Drop;
use crate::normalize::batch::{Batch, Member};
use crate::normalize::moment;
use crate::normalize::names::cut;
use crate::prepare::error::PrepareError;
use crate::prepared::EventOutcome;
use crate::tape::{Cursor, Value};
use crate::warnings::{Kind, Sample};
use weir_base::clock::UnixMicros;
use weir_event::columns::View;
use weir_event::schema::{PropertyType, column};
use weir_event::time;
use weir_event::time::{Claim, Claimed};
use weir_wire::capture_v1::Sdk;

/// Longest event name and distinct id, in bytes; events with longer ones are dropped.
const NAME_MAX_BYTES: usize = 200;

/// Placeholder ids, in any letter case: an event with one has no effect on persons.
const PLACEHOLDER_IDS: [&str; 20] = [
    "0",
    "00000000-0000-0000-0000-000000000000",
    "[object object]",
    "anonymous",
    "anonymous-user",
    "backend",
    "distinct_id",
    "distinctid",
    "email",
    "false",
    "guest",
    "id",
    "nan",
    "none",
    "not_authenticated",
    "null",
    "system",
    "true",
    "undefined",
    "user",
];

const PROFILE: &str = "$process_person_profile";

/// Additions to every event of a body.
#[derive(Debug, Default)]
pub(crate) struct Additions {
    /// `$lib` and `$lib_version` as members of the properties.
    json: Vec<u8>,
    /// The same as values of their columns.
    columns: [Option<(usize, View)>; 2],
    /// Whether the events are the server's own.
    is_internal: bool,
}

impl<'a> Batch<'a, '_> {
    /// Prepares the additions to every event of the body.
    ///
    /// # Errors
    ///
    /// [`PrepareError::TooLarge`]: the columns cannot hold more text.
    pub(crate) fn additions(
        &mut self,
        sdk: Option<&Sdk>,
        is_internal: bool,
    ) -> Result<Additions, PrepareError> {
        let mut additions = Additions { is_internal, ..Additions::default() };
        let Some(sdk) = sdk else { return Ok(additions) };
        let values = [("$lib", &sdk.name), ("$lib_version", &sdk.version)];
        for ((key, text), column) in values.into_iter().zip(&mut additions.columns) {
            write_member(&mut additions.json, key, text);
            let view = self.view(text)?;
            *column = self.text_column(key).map(|position| (position, view));
        }
        Ok(additions)
    }

    fn text_column(&self, key: &str) -> Option<usize> {
        self.keys.get(key).column.filter(|(_, kind)| *kind == PropertyType::Text).map(|(at, _)| at)
    }

    /// Takes the event at `cursor`, whose shape is valid, or returns why it is dropped.
    ///
    /// # Errors
    ///
    /// [`PrepareError::TooLarge`]: the body as a whole cannot be stored.
    pub(crate) fn event_v1(
        &mut self,
        mut cursor: Cursor<'a>,
        additions: &Additions,
    ) -> Result<EventOutcome, PrepareError> {
        let event = Event::read(cursor)?;
        let size = cursor.skip().len();
        let (options, at) = match check(&event) {
            Ok(checked) => checked,
            Err(reason) => return Ok(self.dropped(reason, &event)),
        };
        let distinct_id = event.distinct_id.trim();
        let personless = PLACEHOLDER_IDS.iter().any(|id| id.eq_ignore_ascii_case(distinct_id));
        let options = Options {
            // A placeholder id has no person profile.
            process_person_profile: match personless {
                true => Some(false),
                false => options.process_person_profile,
            },
            ..options
        };
        let (at, warning) = self.moment_v1(at, &options);
        let text = |text| Some(Raw { value: Value::String(text), range: 0..0, cursor });
        let mut fields = Fields {
            event: text(event.name),
            distinct_id: text(distinct_id),
            uuid: Some(Value::String(event.uuid)),
            decided: Some(Decided { at, warning, personless }),
            ..Fields::default()
        };
        self.members.clear();
        self.auto_sets.clear();
        self.memo.begin();
        if let Some(mut properties) = event.properties {
            let mut whole = properties;
            fields.properties = Some(whole.skip());
            properties.object(|key, value| {
                if !is_replaced(key.text, &event, &options, additions) {
                    return self.property(key, value, &mut fields);
                }
                let start = usize::try_from(key.offset).unwrap_or(0);
                let end = value.skip().end;
                self.members.push(Member { meaning: Meaning::NeverStored, start, end });
                Ok(())
            })?;
        }
        fields.inner.is_internal |= additions.is_internal;
        self.inject(&event, &options, additions, &mut fields)?;
        match self.accept(cursor, &fields, size)? {
            Some(reason) => Ok(self.dropped(reason, &event)),
            None => {
                self.columns.finish_row();
                Ok(if personless { EventOutcome::TakenPersonless } else { EventOutcome::Taken })
            }
        }
    }

    fn dropped(&mut self, reason: Drop, event: &Event<'a>) -> EventOutcome {
        self.columns.abandon_row();
        self.definitions.abandon();
        self.drops.add(reason);
        let kind = Kind::Dropped(reason);
        self.warnings.add(kind, || Sample {
            kind,
            event: cut(event.name).to_owned(),
            distinct_id: cut(event.distinct_id).to_owned(),
            event_id: Uuid::nil(),
            detail: String::new(),
        });
        EventOutcome::Dropped(reason)
    }

    /// The timestamp of an event, corrected by the sender's clock skew. If the event disables the
    /// correction or is imported, its timestamp may even be far in the future.
    fn moment_v1(
        &self,
        timestamp: UnixMicros,
        options: &Options<'_>,
    ) -> (UnixMicros, Option<Kind>) {
        let is_exact = options.disable_skew_correction == Some(true);
        if is_exact || self.is_imported(false) {
            return moment::imported(timestamp);
        }
        let timestamp = Claimed::At(timestamp);
        let claim = Claim { timestamp, sent_at: self.sent_at, offset_millis: None };
        let decided = time::event_time(&claim, self.received.at);
        (decided.at, decided.warning.map(moment::warning))
    }

    /// Writes members of the envelope as properties, and sets their columns.
    fn inject(
        &mut self,
        event: &Event<'a>,
        options: &Options<'a>,
        additions: &Additions,
        fields: &mut Fields<'a>,
    ) -> Result<(), PrepareError> {
        self.injected.clear();
        for (key, position, text) in [
            ("$session_id", column::SESSION_ID, event.session_id),
            ("$window_id", column::WINDOW_ID, event.window_id),
        ] {
            let Some(text) = text else { continue };
            write_member(&mut self.injected, key, text);
            self.define_added(key, Value::String(text));
            self.put(position, text)?;
        }
        for (key, flag) in [
            ("$cookieless_mode", options.cookieless_mode),
            ("$ignore_sent_at", options.disable_skew_correction),
            // `true` is the default, and is not stored.
            (PROFILE, options.process_person_profile.filter(|profile| !profile)),
        ] {
            let Some(flag) = flag else { continue };
            write_member(&mut self.injected, key, &flag);
            self.define_added(key, Value::Boolean(flag));
            if let Some((position, PropertyType::Boolean)) = self.keys.get(key).column {
                self.columns.set_boolean(position, flag);
            }
        }
        if let Some(tour) = &options.product_tour_id {
            let key = "$product_tour_id";
            write_member(&mut self.injected, key, tour);
            self.define_added(key, Value::String(""));
        }
        fields.inner.process_person_profile = options
            .process_person_profile
            .map(Value::Boolean)
            .or(fields.inner.process_person_profile);
        if !additions.json.is_empty() {
            separate(&mut self.injected);
            self.injected.extend_from_slice(&additions.json);
            // Any string will do: a definition only keeps the type.
            for key in ["$lib", "$lib_version"] {
                self.define_added(key, Value::String(""));
            }
            for (position, view) in additions.columns.iter().flatten() {
                self.columns.set_text(*position, *view);
            }
        }
        Ok(())
    }
}

/// The checks that only v1 has, in its order.
fn check<'a>(event: &Event<'a>) -> Result<(Options<'a>, UnixMicros), Drop> {
    let distinct_id = event.distinct_id.trim();
    if event.name == "$performance_event" {
        return Err(Drop::NeverStored);
    }
    if event.name.is_empty() {
        return Err(Drop::MissingEvent);
    }
    if event.name.len() > NAME_MAX_BYTES {
        return Err(Drop::NameTooLong);
    }
    if distinct_id.is_empty() {
        return Err(Drop::MissingDistinctId);
    }
    if distinct_id.len() > NAME_MAX_BYTES {
        return Err(Drop::DistinctIdTooLong);
    }
    let at = time::parse_rfc3339(event.timestamp).ok_or(Drop::InvalidTimestamp)?;
    let is_object =
        |at: &Cursor<'_>| matches!(at.value(), Value::Container { is_object: true, .. });
    if event.properties.as_ref().is_some_and(|properties| !is_object(properties)) {
        return Err(Drop::InvalidProperties);
    }
    let options = match event.options {
        Some(options) => Options::read(options).ok_or(Drop::InvalidOptions)?,
        None => Options::default(),
    };
    Ok((options, at))
}

/// Whether the property `key` is replaced by a member of the envelope or a header.
fn is_replaced(key: &str, event: &Event<'_>, options: &Options<'_>, additions: &Additions) -> bool {
    match key {
        "$session_id" => event.session_id.is_some(),
        "$window_id" => event.window_id.is_some(),
        "$cookieless_mode" => options.cookieless_mode.is_some(),
        "$ignore_sent_at" => options.disable_skew_correction.is_some(),
        PROFILE => options.process_person_profile.is_some(),
        "$product_tour_id" => options.product_tour_id.is_some(),
        "$lib" | "$lib_version" => !additions.json.is_empty(),
        _ => false,
    }
}

/// Appends a member to the members of an object, without braces.
fn write_member(json: &mut Vec<u8>, key: &str, value: &(impl serde::Serialize + ?Sized)) {
    separate(json);
    // Writing a string or boolean to memory cannot fail, and no key needs escapes.
    json.push(b'"');
    json.extend_from_slice(key.as_bytes());
    json.extend_from_slice(b"\":");
    let _ = serde_json::to_writer(json, value);
}

fn separate(json: &mut Vec<u8>) {
    if !json.is_empty() {
        json.push(b',');
    }
}
