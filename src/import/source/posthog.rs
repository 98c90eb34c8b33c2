//! PostHog, and Weir itself: events and persons of batch exports as Parquet, JSON lines and CSV, answers of the API of
//! events, and CSV of SQL. Older and newer exports have other columns: all are found by their names.
//!
//! This is the one source that has to be fast: the properties of an event are never read into values, but checked and
//! copied.

mod persons;

use std::borrow::Cow;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use memchr::memmem::Finder;
use serde::de::IgnoredAny;
use uuid::Uuid;

use crate::event::{CREATED_AT, Event, ID, Properties, SOURCE};
use crate::ids::{Ids, Latest};
use crate::json_text;
use crate::mapping::{Options, Output, Source, members, names, needed, object_text};
use crate::object::Object;
use crate::read::columns::Columns;
use crate::read::{Formats, Row, Wanted};
use crate::refusal::Refusal;
use crate::source::posthog::persons::Persons;
use weir_base::clock::UnixMicros;
use weir_event::json;

/// Columns that are read.
const COLUMNS: [&str; 13] = [
    "uuid",
    "id",
    "event",
    "distinct_id",
    "properties",
    "person_properties",
    "elements_chain",
    "timestamp",
    "created_at",
    "person_id",
    "ip",
    "is_deleted",
    "elements",
];

/// A row of either kind, as texts. Objects are the texts of JSON objects.
#[derive(Debug, Default)]
struct Fields<'r> {
    uuid: Option<Cow<'r, str>>,
    event: Option<Cow<'r, str>>,
    distinct_id: Option<Cow<'r, str>>,
    properties: Option<Cow<'r, str>>,
    person_properties: Option<Cow<'r, str>>,
    elements_chain: Option<Cow<'r, str>>,
    /// The array of elements, as the API tells them, where there is no chain.
    elements: Option<Cow<'r, str>>,
    time: Option<UnixMicros>,
    /// A time that has to be read.
    time_text: Option<Cow<'r, str>>,
    created_at: Option<UnixMicros>,
    person_id: Option<Cow<'r, str>>,
    ip: Option<Cow<'r, str>>,
    is_deleted: bool,
    /// Columns of a CSV file that are properties.
    more: Vec<(&'r str, &'r str)>,
}

/// Reads exports of PostHog.
#[derive(Debug)]
pub(super) struct Posthog {
    options: Options,
    ids: Ids,
    /// What the persons of events had, so that it is told once.
    told: Latest,
    persons: Persons,
    /// Finds marks of an earlier import.
    marks: Finder<'static>,
    /// Positions of [`COLUMNS`] in batches of this schema.
    positions: (Option<SchemaRef>, [Option<usize>; COLUMNS.len()]),
}

impl Posthog {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            options: options.clone(),
            ids: Ids::new("posthog"),
            told: Latest::default(),
            persons: Persons::new(options.keep_person_ids),
            marks: Finder::new("\"$import_"),
            positions: (None, [None; COLUMNS.len()]),
        }
    }

    fn of_columns<'r>(&mut self, columns: &'r Columns, row: usize) -> Result<Fields<'r>, Refusal> {
        let schema = columns.schema();
        if !self.positions.0.as_ref().is_some_and(|known| Arc::ptr_eq(known, schema)) {
            let positions = COLUMNS.map(|name| columns.position(name));
            self.positions = (Some(Arc::clone(schema)), positions);
        }
        let [
            uuid,
            _,
            event,
            distinct_id,
            properties,
            person,
            chain,
            time,
            created,
            person_id,
            ip,
            deleted,
            _,
        ] = self.positions.1;
        let text = |position| columns.text(position, row).filter(|text| !text.is_empty());
        let at = columns.time(time, row);
        Ok(Fields {
            uuid: text(uuid),
            event: text(event),
            distinct_id: text(distinct_id),
            properties: text(properties).map(checked).transpose()?,
            person_properties: text(person).map(checked).transpose()?,
            elements_chain: text(chain),
            elements: None,
            time: at,
            time_text: if at.is_none() { text(time) } else { None },
            created_at: columns.time(created, row).or_else(|| instant(text(created))),
            person_id: text(person_id),
            ip: text(ip),
            is_deleted: text(deleted).is_some_and(|text| is_true(&text)),
            more: Vec::new(),
        })
    }

    fn event(
        &mut self,
        fields: &Fields<'_>,
        canonical: &dyn Fn() -> String,
        out: &mut dyn Output,
    ) -> Result<(), Refusal> {
        let name = needed(fields.event.as_deref().map(Cow::Borrowed), "event")?;
        let distinct_id = needed(fields.distinct_id.as_deref().map(Cow::Borrowed), "distinct_id")?;
        let at = match fields.time {
            Some(at) => self.options.times.check(at)?,
            None => self.options.times.read(fields.time_text.as_deref())?,
        };
        let known = fields.uuid.as_deref().and_then(|text| Uuid::try_parse(text).ok());
        let uuid = known.unwrap_or_else(|| self.ids.of_row(&canonical()));
        let text = fields.properties.as_deref().unwrap_or("{}");
        let mut created_at = fields.created_at;
        let properties = match fields.is_alone() && self.marks.find(text.as_bytes()).is_none() {
            true => Properties::Text(text),
            false => Properties::Members(fields.amended(text, &mut created_at)?),
        };
        let person = fields.person_properties.as_deref().filter(|text| {
            let is_empty = text.trim_end_matches([' ', '}']).trim() == "{";
            !is_empty && self.told.changes(&distinct_id, text)
        });
        out.event(&Event {
            uuid,
            name,
            distinct_id,
            at,
            properties,
            elements_chain: fields.elements_chain.as_deref().map(Cow::Borrowed),
            created_at,
            person: person.map(Cow::Borrowed),
        });
        Ok(())
    }
}

impl Source for Posthog {
    fn wanted(&self) -> Wanted {
        Wanted { formats: Formats::Any, columns: true }
    }

    fn begin_file(&mut self) {
        self.ids.begin_file();
    }

    fn row(&mut self, row: &Row<'_>, out: &mut dyn Output) -> Result<(), Refusal> {
        let object;
        let (fields, canonical): (Fields<'_>, Box<dyn Fn() -> String>) = match row {
            Row::Columns(columns, number) => {
                let fields = self.of_columns(columns, *number)?;
                (fields, Box::new(|| columns.json(*number)))
            }
            _ => {
                object = members(row)?;
                let mut fields = Fields::of_object(&object)?;
                if let Row::Record(names, record) = row {
                    let all = names.iter().map(String::as_str).zip(record.iter());
                    fields.more = all
                        .filter(|(name, field)| name.starts_with('$') && !field.is_empty())
                        .collect();
                }
                (fields, Box::new(|| object.canonical()))
            }
        };
        if fields.event.is_none() && fields.person_id.is_some() && fields.distinct_id.is_some() {
            return self.persons.row(&fields.person(), self.options.times.now, out);
        }
        self.event(&fields, &*canonical, out)
    }

    fn is_person(&self, row: &Row<'_>) -> bool {
        let has = |name: &str| match row {
            Row::Columns(columns, _) => columns.position(name).is_some(),
            _ => names(row).iter().any(|known| known == name),
        };
        has("person_id") && has("distinct_id") && !has("event")
    }

    fn is_unfinished(&mut self) -> bool {
        self.persons.is_unfinished()
    }
}

impl<'r> Fields<'r> {
    fn of_object(object: &'r Object<'_>) -> Result<Self, Refusal> {
        let inner = |key| object.get(key).map(|value| object_member(key, value)).transpose();
        let of_person = object.object("person").and_then(|person| {
            person.get("properties").filter(|text| text.starts_with('{')).map(str::to_owned)
        });
        let elements =
            object.get("elements").filter(|text| text.len() > 2 && text.starts_with('['));
        let chain = object.text("elements_chain");
        Ok(Self {
            uuid: object.first_text(&["uuid", "id"]),
            event: object.text("event"),
            distinct_id: object.text("distinct_id"),
            properties: inner("properties")?,
            person_properties: inner("person_properties")?.or(of_person.map(Cow::Owned)),
            elements: elements.filter(|_| chain.is_none()).map(Cow::Borrowed),
            elements_chain: chain,
            time: None,
            time_text: object.text("timestamp"),
            created_at: instant(object.text("created_at")),
            person_id: object.text("person_id"),
            ip: object.text("ip"),
            is_deleted: object.text("is_deleted").is_some_and(|text| is_true(&text)),
            more: Vec::new(),
        })
    }

    fn person(&self) -> persons::Row<'_> {
        persons::Row {
            person_id: self.person_id.as_deref().unwrap_or_default(),
            distinct_id: self.distinct_id.as_deref().unwrap_or_default(),
            // Of persons the column has this name, too.
            properties: self.properties.as_deref().or(self.person_properties.as_deref()),
            created_at: self.created_at,
            is_deleted: self.is_deleted,
        }
    }

    /// Whether the row has nothing beside its properties that becomes one.
    fn is_alone(&self) -> bool {
        self.more.is_empty() && self.ip.is_none() && self.elements.is_none()
    }

    /// The properties with what the row has beside them, and without the marks of an earlier import.
    fn amended<'t>(
        &'t self,
        text: &'t str,
        created_at: &mut Option<UnixMicros>,
    ) -> Result<Object<'t>, Refusal> {
        let mut properties = Object::read(text).map_err(|error| no_object("properties", &error))?;
        properties.take(SOURCE);
        properties.take(ID);
        let before = properties.take(CREATED_AT);
        let before = before.and_then(|text| instant(json_text::scalar(&text)));
        *created_at = before.or(*created_at);
        properties.put_missing("$ip", self.ip.as_deref().map(json_text::quoted).as_deref());
        properties.put_missing("$elements", self.elements.as_deref());
        for (name, field) in &self.more {
            properties.put_missing(name, Some(&json_text::typed(field)));
        }
        Ok(properties)
    }
}

/// A member that has to be an object, or the text of one.
fn object_member<'t>(name: &str, value: &'t str) -> Result<Cow<'t, str>, Refusal> {
    object_text(value).ok_or_else(|| Refusal::new(format!("its {name} are no JSON object")))
}

/// The text of a column that has to be a JSON object.
fn checked(text: Cow<'_, str>) -> Result<Cow<'_, str>, Refusal> {
    if !text.trim_start().starts_with('{') {
        return Err(Refusal::new("its properties are no JSON object"));
    }
    match json::read_as(std::marker::PhantomData::<IgnoredAny>, text.as_bytes()) {
        Ok(_) => Ok(text),
        Err(error) => Err(no_object("properties", &error)),
    }
}

fn no_object(name: &str, error: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(format!("its {name} are no JSON object: {error}"))
}

fn instant(text: Option<Cow<'_, str>>) -> Option<UnixMicros> {
    weir_event::time::parse_timestamp(&text?)
}

fn is_true(text: &str) -> bool {
    matches!(text.to_ascii_lowercase().as_str(), "true" | "t" | "1")
}
