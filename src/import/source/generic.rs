//! Events in the shape of capture, as JSON lines, CSV or Parquet: what has a meaning is found by its name, everything else
//! is a property.

use std::borrow::Cow;

use crate::event::Event;
use crate::ids::Ids;
use crate::json_text;
use crate::mapping::{Options, Output, Source, members, needed, object_text};
use crate::object::Object;
use crate::read::{Formats, Row, Wanted};
use crate::refusal::Refusal;

/// Fields of events, and the names that are read as them, the first that there is.
const FIELDS: [(&str, &[&str]); 5] = [
    ("event", &["event", "event_name", "name"]),
    ("distinct_id", &["distinct_id", "$distinct_id", "user_id", "anonymous_id"]),
    ("timestamp", &["timestamp", "time", "created_at"]),
    ("uuid", &["uuid", "id", "event_id", "insert_id"]),
    ("properties", &["properties"]),
];

/// Reads events in the shape of capture.
#[derive(Debug)]
pub(super) struct Generic {
    formats: Formats,
    options: Options,
    ids: Ids,
}

impl Generic {
    pub(super) fn new(formats: Formats, options: &Options) -> Self {
        Self { formats, options: options.clone(), ids: Ids::new("weir") }
    }

    /// The name of the member that is a field.
    fn name<'n>(&'n self, field: &str, row: &Object<'_>) -> Option<&'n str> {
        if let Some((_, column)) = self.options.columns.iter().find(|(known, _)| known == field) {
            return Some(column);
        }
        let (_, names) = FIELDS.iter().find(|(known, _)| *known == field)?;
        names.iter().find(|name| row.get(name).is_some()).copied()
    }
}

impl Source for Generic {
    fn wanted(&self) -> Wanted {
        Wanted { formats: self.formats, columns: false }
    }

    fn begin_file(&mut self) {
        self.ids.begin_file();
    }

    fn row(&mut self, row: &Row<'_>, out: &mut dyn Output) -> Result<(), Refusal> {
        let is_record = matches!(row, Row::Record(..));
        let row = members(row)?;
        let mut rest = row.clone();
        let mut take = |field: &str| {
            let name = self.name(field, &row)?;
            rest.take(name);
            row.get(name)
        };
        let [name, distinct_id, time, id, given] = FIELDS.map(|(field, _)| take(field));
        let properties = given.map(|given| {
            let text = object_text(given);
            text.ok_or_else(|| Refusal::new("its properties are no JSON object"))
        });
        let properties = properties.transpose()?;
        let mut properties = match &properties {
            Some(text) => Object::read(text).map_err(|error| {
                Refusal::new(format!("its properties are no JSON object: {error}"))
            })?,
            None => Object::default(),
        };
        let scalar =
            |value: Option<&'_ str>| value.and_then(json_text::scalar).map(Cow::into_owned);
        let inner = scalar(properties.get("distinct_id"));
        let distinct_id = needed(scalar(distinct_id).or(inner).map(Cow::Owned), "distinct_id")?;
        let name = needed(scalar(name).map(Cow::Owned), "event")?;
        let at = self.options.times.read(scalar(time).as_deref())?;
        let uuid = match scalar(id) {
            Some(id) => self.ids.of_id(&id),
            None => self.ids.of_row(&row.canonical()),
        };
        // A line may be a whole request of one event.
        for key in ["api_key", "token", "type", "sent_at", "offset"] {
            rest.take(key);
        }
        let chain = rest
            .take("elements_chain")
            .and_then(|text| json_text::scalar(&text).map(Cow::into_owned));
        for (key, value) in rest.iter() {
            let value = match is_record {
                true => json_text::string(value)
                    .map_or_else(|| value.to_owned(), |text| json_text::typed(&text)),
                false => value.to_owned(),
            };
            if properties.get(key).is_none() && value != "null" {
                properties.put(key.to_owned(), value);
            }
        }
        let mut event = Event::new(uuid, name, distinct_id, at, properties);
        event.elements_chain = chain.map(Cow::Owned);
        out.event(&event);
        Ok(())
    }
}
