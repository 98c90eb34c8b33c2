//! An event on its way to `/batch/`, and how it is written.

use std::borrow::Cow;

use uuid::Uuid;

use crate::json_text::write_quoted;
use crate::object::Object;
use weir_base::clock::UnixMicros;
use weir_event::time;

/// Name of what tells of a person, and is no event (`ingest/normalize/imported.rs`): its `alias` is another distinct id of
/// the same person.
pub const IMPORTED_PERSON: &str = "$import_person";
/// Property of imported events: the source.
pub const SOURCE: &str = "$import_source";
/// Property of imported events: the import.
pub const ID: &str = "$import_id";
/// Property of imported events: when the source had received it.
pub const CREATED_AT: &str = "$import_created_at";

/// One event, or one person.
#[derive(Clone, Debug)]
pub struct Event<'a> {
    /// Its id.
    pub uuid: Uuid,
    /// Its name.
    pub name: Cow<'a, str>,
    /// Its distinct id.
    pub distinct_id: Cow<'a, str>,
    /// When it happened.
    pub at: UnixMicros,
    /// Its properties.
    pub properties: Properties<'a>,
    /// `$elements_chain`, if it is not among the properties.
    pub elements_chain: Option<Cow<'a, str>>,
    /// When the source received it.
    pub created_at: Option<UnixMicros>,
    /// What the person has, as a JSON object; it is not stored with the event.
    pub person: Option<Cow<'a, str>>,
}

/// Properties of an event.
#[derive(Clone, Debug)]
pub enum Properties<'a> {
    /// A JSON object as it was written. It has none of the marks of an import.
    Text(&'a str),
    /// Members.
    Members(Object<'a>),
}

impl<'a> Event<'a> {
    /// One that has nothing but its properties.
    pub fn new(
        uuid: Uuid,
        name: impl Into<Cow<'a, str>>,
        distinct_id: impl Into<Cow<'a, str>>,
        at: UnixMicros,
        properties: Object<'a>,
    ) -> Self {
        Self {
            uuid,
            name: name.into(),
            distinct_id: distinct_id.into(),
            at,
            properties: Properties::Members(properties),
            elements_chain: None,
            created_at: None,
            person: None,
        }
    }

    /// Whether it is a person, which is not stored as an event.
    pub fn is_person(&self) -> bool {
        self.name == IMPORTED_PERSON
    }

    /// Appends it as JSON. `marks` are the members that every event of the import gets.
    pub fn write(&self, marks: &Marks, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"uuid\":\"");
        let mut uuid = [0; 36];
        out.extend_from_slice(self.uuid.hyphenated().encode_lower(&mut uuid).as_bytes());
        out.extend_from_slice(b"\",\"event\":");
        write_quoted(out, &self.name);
        out.extend_from_slice(b",\"distinct_id\":");
        write_quoted(out, &self.distinct_id);
        out.extend_from_slice(b",\"timestamp\":\"");
        out.extend_from_slice(self.at.to_rfc3339().as_bytes());
        out.extend_from_slice(b"\",\"properties\":{");
        let empty = out.len();
        match &self.properties {
            Properties::Text(text) => {
                let inner = text.trim().strip_prefix('{').and_then(|text| text.strip_suffix('}'));
                out.extend_from_slice(inner.unwrap_or_default().trim().as_bytes());
            }
            Properties::Members(members) => members.write_members(out),
        }
        if let Some(chain) = self.elements_chain.as_deref().filter(|chain| !chain.is_empty()) {
            separate(out, empty);
            out.extend_from_slice(b"\"$elements_chain\":");
            write_quoted(out, chain);
        }
        if !self.is_person() {
            separate(out, empty);
            out.extend_from_slice(marks.text.as_bytes());
            if let Some(at) = self.created_at {
                out.extend_from_slice(b",\"$import_created_at\":\"");
                out.extend_from_slice(at.to_rfc3339().as_bytes());
                out.push(b'"');
            }
        }
        out.push(b'}');
        if let Some(person) = &self.person {
            out.extend_from_slice(b",\"person_properties\":");
            out.extend_from_slice(person.as_bytes());
        }
        out.push(b'}');
    }
}

fn separate(out: &mut Vec<u8>, empty: usize) {
    if out.len() > empty {
        out.push(b',');
    }
}

/// What every event of an import has: its source and the id of the import, by which all of them are found.
#[derive(Clone, Debug)]
pub struct Marks {
    text: String,
}

impl Marks {
    /// Of an import.
    pub fn new(source: &str, id: &str) -> Self {
        let mut marks = Object::default();
        marks.put_text(SOURCE, source);
        marks.put_text(ID, id);
        let mut text = Vec::new();
        marks.write_members(&mut text);
        Self { text: String::from_utf8(text).unwrap_or_default() }
    }
}

/// Stored properties without the marks of an import, and the time at which the source had received the event. The marks are
/// cut out of the text; nothing else of it changes.
pub fn unmarked(properties: &str) -> (Cow<'_, str>, Option<UnixMicros>) {
    let Some(start) = properties.find("\"$import_source\":\"") else {
        return (Cow::Borrowed(properties), None);
    };
    let mut rest = properties.get(start..).unwrap_or_default();
    let mut created_at = None;
    for key in [SOURCE, ID, CREATED_AT] {
        let begun = rest.strip_prefix(',').filter(|_| key != SOURCE).unwrap_or(rest);
        let value = begun.strip_prefix(&format!("\"{key}\":\""));
        // The values of the marks need no escapes.
        let Some((value, behind)) = value.and_then(|value| value.split_once('"')) else { continue };
        if key == CREATED_AT {
            created_at = time::parse_timestamp(value);
        }
        rest = behind;
    }
    let before = properties.get(..start).unwrap_or_default();
    let (before, rest) = match before.strip_suffix(',') {
        Some(before) => (before, rest),
        None => (before, rest.strip_prefix(',').unwrap_or(rest)),
    };
    (Cow::Owned(format!("{before}{rest}")), created_at)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::{Event, Marks, Properties, unmarked};
    use crate::object::Object;
    use weir_base::clock::UnixMicros;

    fn written(event: &Event<'_>) -> String {
        let mut out = Vec::new();
        event.write(&Marks::new("x", "1"), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn marks_are_taken_out_and_nothing_else() {
        let marks = r#""$import_source":"x","$import_id":"1""#;
        let created = r#""$import_created_at":"1970-01-01T00:00:00.000001Z""#;
        for (given, expected, at) in [
            (r#"{ "a" : 1 }"#.to_owned(), r#"{ "a" : 1 }"#, None),
            (format!("{{{marks}}}"), "{}", None),
            (format!(r#"{{"a": 1.0,{marks}}}"#), r#"{"a": 1.0}"#, None),
            (format!(r#"{{"a":1,{marks},{created},"$ip":"x"}}"#), r#"{"a":1,"$ip":"x"}"#, Some(1)),
            (format!(r#"{{{marks},{created},"$ip":"x"}}"#), r#"{"$ip":"x"}"#, Some(1)),
            (r#"{"$import_source":5}"#.to_owned(), r#"{"$import_source":5}"#, None),
        ] {
            let (found, found_at) = unmarked(&given);
            assert_eq!((&*found, found_at.map(|at| at.0)), (expected, at), "{given}");
        }
    }

    #[test]
    fn properties_are_spliced_and_marked() {
        let mut event =
            Event::new(Uuid::nil(), "a\"b", "é", UnixMicros(1), Object::read("{}").unwrap());
        let head = r#"{"uuid":"00000000-0000-0000-0000-000000000000","event":"a\"b","distinct_id":"é","timestamp":"1970-01-01T00:00:00.000001Z","properties":"#;
        let marks = r#""$import_source":"x","$import_id":"1""#;
        assert_eq!(written(&event), format!("{head}{{{marks}}}}}"));
        event.properties = Properties::Text(" { \"a\": 1.0 } ");
        event.elements_chain = Some("a:x=\"1\"".into());
        event.created_at = Some(UnixMicros(0));
        event.person = Some(r#"{"p":1}"#.into());
        let chain = r#""$elements_chain":"a:x=\"1\"""#;
        let created = r#""$import_created_at":"1970-01-01T00:00:00.000000Z""#;
        let tail = r#","person_properties":{"p":1}}"#;
        assert_eq!(
            written(&event),
            format!("{head}{{\"a\": 1.0,{chain},{marks},{created}}}{tail}")
        );
        event.name = super::IMPORTED_PERSON.into();
        event.elements_chain = None;
        assert!(written(&event).contains(r#""properties":{"a": 1.0},"person"#));
    }
}
