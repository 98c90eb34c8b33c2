//! What all sources are made of: the trait, what they write to, and how they read their rows.

use std::borrow::Cow;

use crate::event::Event;
use crate::ids::Ids;
use crate::json_text;
use crate::moment::Times;
use crate::object::Object;
use crate::read::{Formats, Row, Wanted};
use crate::refusal::Refusal;
use weir_base::clock::UnixMicros;

/// How rows are mapped.
#[derive(Clone, Debug)]
pub struct Options {
    /// How times are read.
    pub times: Times,
    /// Whether events are kept that only say that a session begins or ends.
    pub keep_sessions: bool,
    /// Whether persons keep their id of the source as a property.
    pub keep_person_ids: bool,
    /// Fields of events and the columns that have them, for files in a shape of their own.
    pub columns: Vec<(String, String)>,
}

/// Takes what a row becomes.
pub trait Output {
    /// An event, or a person.
    fn event(&mut self, event: &Event<'_>);

    /// The row is nothing to import, for this reason.
    fn skip(&mut self, why: &'static str);
}

/// Maps rows to events. What it remembers is bounded.
pub trait Source: Send {
    /// What it reads.
    fn wanted(&self) -> Wanted;

    /// A file begins.
    fn begin_file(&mut self) {}

    /// Maps a row.
    ///
    /// # Errors
    ///
    /// Why the row is not imported.
    fn row(&mut self, row: &Row<'_>, out: &mut dyn Output) -> Result<(), Refusal>;

    /// Whether a row is one of persons, which are read before events.
    fn is_person(&self, _row: &Row<'_>) -> bool {
        false
    }

    /// All files of persons have been read. Whether they have to be read once more, because there were more persons than
    /// fit into memory.
    fn is_unfinished(&mut self) -> bool {
        false
    }

    /// What the first row of a file tells against importing it at all.
    fn objection(&self, _row: &Row<'_>) -> Option<String> {
        None
    }
}

/// JSON, and Parquet as JSON.
pub(crate) const JSON: Wanted = Wanted { formats: Formats::Json, columns: false };
/// JSON, CSV, and Parquet as JSON.
pub(crate) const ANY: Wanted = Wanted { formats: Formats::Any, columns: false };

/// The members of a row; the fields of a record are strings, and absent where they are empty.
pub(crate) fn members<'r>(row: &'r Row<'_>) -> Result<Object<'r>, Refusal> {
    match row {
        Row::Json(text) => Object::read(text)
            .map_err(|error| Refusal::new(format!("it is no JSON object: {error}"))),
        Row::Record(names, record) => {
            let mut object = Object::default();
            for (name, field) in names.iter().zip(record.iter()) {
                if !field.is_empty() && field != "\\N" {
                    object.push(name.as_str(), json_text::quoted(field));
                }
            }
            Ok(object)
        }
        Row::Columns(..) => Err(Refusal::new("it is a row of columns")),
        Row::Unreadable(_, reason) => Err(reason.clone()),
    }
}

/// The names of the columns or members of a row.
pub(crate) fn names(row: &Row<'_>) -> Vec<String> {
    match row {
        Row::Record(names, _) => names.to_vec(),
        Row::Json(text) => Object::read(text).map_or_else(
            |_| Vec::new(),
            |object| object.iter().map(|(name, _)| name.to_owned()).collect(),
        ),
        Row::Columns(..) | Row::Unreadable(..) => Vec::new(),
    }
}

/// What an event cannot do without.
pub(crate) fn needed<'t>(found: Option<Cow<'t, str>>, what: &str) -> Result<Cow<'t, str>, Refusal> {
    found.ok_or_else(|| Refusal::new(format!("it has no {what}")))
}

/// A JSON object that may be written as the text of one.
pub(crate) fn object_text(value: &str) -> Option<Cow<'_, str>> {
    if value.starts_with('{') {
        return Some(Cow::Borrowed(value));
    }
    let text = json_text::string(value)?;
    let is_object = text.trim_start().starts_with('{') && Object::read(&text).is_ok();
    is_object.then_some(text)
}

/// An `$identify` for the first event that has both ids of a person.
pub(crate) fn identify<'a>(ids: &Ids, user: &'a str, device: &str, at: UnixMicros) -> Event<'a> {
    let mut properties = Object::default();
    properties.put_text("$anon_distinct_id", device);
    let id = ids.of_name(&format!("$identify\n{user}\n{device}"));
    Event::new(id, "$identify", user, at, properties)
}
