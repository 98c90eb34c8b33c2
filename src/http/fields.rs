//! Typed access to the fields of a JSON body: [`Fields`]. Takes fields one by one and checks their types; their meaning
//! is up to the callers.
//!
//! Conversion rules and error texts are those of Django REST Framework, on which PostHog's API is built: numbers are
//! accepted as texts, `"true"` as a boolean. Its code `invalid` becomes `invalid_input` in the response
//! (drf-exceptions-hog); its other codes stay. The error of every field is the problem of the response.

use std::borrow::Cow;
use std::fmt::Display;

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::multipart;
use crate::request::Request;
use crate::response::{Attr, Problem};
use weir_base::clock::UnixMicros;
use weir_base::error::Kind;
use weir_event::json;
use weir_event::time::parse_timestamp;
use weir_metadata::flag_rules::python_type;

/// Longest body: twice the longest filters of a flag (`flag_rules::FILTERS_MAX_BYTES`).
const BODY_MAX_BYTES: u64 = 1 << 20;

/// Most objects of a body that is a list of them.
const OBJECTS_MAX: usize = 1000;

/// Most items of a list in a body, unless its field has another limit.
const ITEMS_MAX: usize = 10_000;

/// Texts that count as true and as false besides JSON's own; `BooleanField` of Django REST Framework.
const TRUE: [&str; 13] =
    ["t", "T", "y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"];
const FALSE: [&str; 13] =
    ["f", "F", "n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"];

/// Texts that a nullable boolean accepts as null.
const NULL: [&str; 4] = ["null", "Null", "NULL", ""];

/// The fields of one body. Fields that are not taken are ignored, because clients send back what they received; fields
/// that are in no response either are refused, if the request has a list of its fields (`body_fields`).
#[derive(Debug, Default)]
pub struct Fields {
    values: Map<String, Value>,
    /// The file of a form.
    file: Option<Bytes>,
    /// The fields of each object, if the body is a list of objects.
    items: Vec<Self>,
    /// Names of fields that are required, whatever their types.
    needed: &'static [&'static str],
}

impl From<Map<String, Value>> for Fields {
    fn from(values: Map<String, Value>) -> Self {
        Self { values, ..Self::default() }
    }
}

impl Fields {
    /// Deepest nesting of a body. Responses and the activity log nest stored values deeper, and clients
    /// may use readers that stop at [`json::DEPTH_MAX`].
    pub(super) const DEPTH_MAX: usize = 100;

    /// Reads the body of `request`; fields that the endpoint does not know are refused.
    pub async fn read(mut request: Request) -> Result<Self, Problem> {
        Self::take(&mut request).await
    }

    /// As [`Self::read`], for a request whose head is needed afterwards.
    pub(super) async fn take(request: &mut Request) -> Result<Self, Problem> {
        let content_type = request.header("content-type").unwrap_or_default().to_owned();
        let known = request.body_fields.clone();
        let body = request.body.take().read_to_parse(BODY_MAX_BYTES).await?;
        let fields = Self::parse(&content_type, &body)?;
        known.map_or(Ok(()), |known| known.check(&fields.values))?;
        Ok(fields)
    }

    /// Reads the body of `request`, a list of objects; a single object counts as a list of one.
    pub(super) async fn take_many(request: &mut Request) -> Result<Self, Problem> {
        let content_type = request.header("content-type").unwrap_or_default().to_owned();
        let known = request.body_fields.clone();
        let body = request.body.take().read_to_parse(BODY_MAX_BYTES).await?;
        let items: Vec<Self> = match document(&content_type, &body)? {
            Some(Value::Array(items)) if items.len() > OBJECTS_MAX => {
                let detail = format!("Ensure this list has no more than {OBJECTS_MAX} elements.");
                return Err(Problem::new(Kind::Invalid, "max_length", detail));
            }
            Some(Value::Array(items)) => {
                items.into_iter().map(Self::of).collect::<Result<_, _>>()?
            }
            one => vec![one.map_or_else(|| Ok(Self::default()), Self::of)?],
        };
        let check =
            |fields: &Self| known.as_ref().map_or(Ok(()), |known| known.check(&fields.values));
        items.iter().try_for_each(check)?;
        Ok(Self { items, ..Self::default() })
    }

    /// The text in the field `name` of the body of `request`, if it is a JSON object that has one. The
    /// body can be read afterwards.
    pub async fn peek_text(request: &mut Request, name: &str) -> Option<String> {
        let mut fields = Self::peek_all(request).await?;
        fields.values.remove(name)?.as_str().map(str::to_owned)
    }

    /// The fields in the body of `request`, if it is a JSON object. The body can be read afterwards.
    pub(super) async fn peek_all(request: &mut Request) -> Option<Self> {
        let content_type = request.header("content-type").unwrap_or_default().to_owned();
        // Not JSON, and longer than the limit of `peek`.
        if multipart::is_it(&content_type) {
            return None;
        }
        let body = request.body.peek(BODY_MAX_BYTES).await?;
        Self::parse(&content_type, body).ok()
    }

    /// These fields, with the file of a form.
    pub(super) fn with_file(self, file: Option<Bytes>) -> Self {
        Self { file, ..self }
    }

    /// The file of a form.
    pub(super) fn file(&mut self) -> Option<Bytes> {
        self.file.take()
    }

    /// The fields of each object, if the body is a list of objects.
    pub(super) fn items(&mut self) -> Vec<Self> {
        std::mem::take(&mut self.items)
    }

    /// All fields as they were sent.
    pub fn into_values(self) -> Map<String, Value> {
        self.values
    }

    /// Parses a JSON object; an empty body counts as an empty one. An empty media type is JSON.
    pub fn parse(content_type: &str, body: &[u8]) -> Result<Self, Problem> {
        document(content_type, body)?.map_or_else(|| Ok(Self::default()), Self::of)
    }

    fn of(value: Value) -> Result<Self, Problem> {
        match value {
            Value::Object(fields) => Ok(Self::from(fields)),
            other => {
                let kind = python_type(&other);
                let detail = format!("Invalid data. Expected a dictionary, but got {kind}.");
                Err(Problem::new(Kind::Invalid, "invalid_input", detail))
            }
        }
    }

    /// Sets the required fields, besides those whose type requires them.
    pub(super) fn need(&mut self, names: &'static [&'static str]) {
        self.needed = names;
    }

    /// An error if the body lacks a field that [`Self::need`] requires.
    pub(super) fn check_needed(&self, name: &'static str) -> Result<(), Problem> {
        if !self.needed.contains(&name) {
            return Ok(());
        }
        self.require(name)
    }

    /// An error if the body lacks the field.
    pub fn require(&self, name: &'static str) -> Result<(), Problem> {
        if self.values.contains_key(name) {
            return Ok(());
        }
        Err(missing(name))
    }

    /// A field of any type, which stays in the body.
    pub(super) fn peek(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }

    /// A field of any type; null is refused.
    pub fn value(&mut self, name: &'static str) -> Result<Option<Value>, Problem> {
        match self.values.remove(name) {
            Some(Value::Null) => Err(null(name)),
            other => Ok(other),
        }
    }

    /// A field of any type; `Some(None)` for null.
    pub fn nullable_value(&mut self, name: &'static str) -> Option<Option<Value>> {
        self.values.remove(name).map(|value| Some(value).filter(|value| !value.is_null()))
    }

    /// A text, trimmed.
    pub fn text(&mut self, name: &'static str) -> Result<Option<String>, Problem> {
        self.value(name)?.map(|value| text(name, value)).transpose()
    }

    /// A text with its white space: an id, or the name of a property, which events contain in this form.
    pub(super) fn exact_text(&mut self, name: &'static str) -> Result<Option<String>, Problem> {
        self.value(name)?.map(|value| exact_text(name, value)).transpose()
    }

    /// A boolean.
    pub fn boolean(&mut self, name: &'static str) -> Result<Option<bool>, Problem> {
        self.value(name)?.map(|value| boolean(name, &value)).transpose()
    }

    /// One of the given texts; `Some(None)` for null.
    pub fn nullable_choice(
        &mut self,
        name: &'static str,
        choices: &[&str],
    ) -> Result<Option<Option<String>>, Problem> {
        match self.nullable_value(name) {
            None => Ok(None),
            Some(None) => Ok(Some(None)),
            Some(Some(Value::String(text))) if choices.contains(&text.as_str()) => {
                Ok(Some(Some(text)))
            }
            Some(Some(other)) => {
                Err(not_a_choice(name, other.as_str().unwrap_or(&other.to_string())))
            }
        }
    }

    /// One of the given texts.
    pub(super) fn choice(
        &mut self,
        name: &'static str,
        choices: &[&str],
    ) -> Result<Option<String>, Problem> {
        if self.peek(name).is_some_and(Value::is_null) {
            return Err(null(name));
        }
        Ok(self.nullable_choice(name, choices)?.flatten())
    }

    /// A boolean; `Some(None)` for null.
    pub fn nullable_boolean(
        &mut self,
        name: &'static str,
    ) -> Result<Option<Option<bool>>, Problem> {
        let read = |value: Value| match value {
            Value::Null => Ok(None),
            Value::String(text) if NULL.contains(&text.as_str()) => Ok(None),
            value => boolean(name, &value).map(Some),
        };
        self.values.remove(name).map(read).transpose()
    }

    /// A point in time; `Some(None)` for null.
    pub(super) fn nullable_time(
        &mut self,
        name: &'static str,
    ) -> Result<Option<Option<UnixMicros>>, Problem> {
        if self.peek(name).is_some_and(Value::is_null) {
            self.values.remove(name);
            return Ok(Some(None));
        }
        Ok(self.time(name)?.map(Some))
    }

    /// A point in time.
    pub fn time(&mut self, name: &'static str) -> Result<Option<UnixMicros>, Problem> {
        let Some(value) = self.value(name)? else { return Ok(None) };
        let time = value.as_str().and_then(parse_timestamp);
        time.map(Some).ok_or_else(|| {
            let detail = "Datetime has wrong format. Use one of these formats instead: \
                          YYYY-MM-DDThh:mm[:ss[.uuuuuu]][+HH:MM|-HH:MM|Z].";
            refused(name, "invalid_input", detail)
        })
    }

    /// A text; `Some(None)` for null.
    pub(super) fn nullable_text(
        &mut self,
        name: &'static str,
    ) -> Result<Option<Option<String>>, Problem> {
        let read = |value: Option<Value>| value.map(|value| text(name, value)).transpose();
        self.nullable_value(name).map(read).transpose()
    }

    /// As [`Self::exact_text`]; null counts as absent.
    pub(super) fn exact_text_if_any(
        &mut self,
        name: &'static str,
    ) -> Result<Option<String>, Problem> {
        self.nullable_value(name).flatten().map(|value| exact_text(name, value)).transpose()
    }

    /// An integer, as number or text; `Some(None)` for null.
    pub(super) fn nullable_integer(
        &mut self,
        name: &'static str,
    ) -> Result<Option<Option<i64>>, Problem> {
        let read = |value: Option<Value>| {
            let Some(value) = value else { return Ok(None) };
            let number = value.as_i64().or_else(|| value.as_str()?.trim().parse().ok());
            number
                .map(Some)
                .ok_or_else(|| refused(name, "invalid_input", "A valid integer is required."))
        };
        self.nullable_value(name).map(read).transpose()
    }

    /// A JSON object.
    pub(super) fn object(
        &mut self,
        name: &'static str,
    ) -> Result<Option<Map<String, Value>>, Problem> {
        match self.value(name)? {
            None => Ok(None),
            Some(Value::Object(object)) => Ok(Some(object)),
            Some(other) => {
                let kind = python_type(&other);
                let detail = format!("Expected a dictionary of items but got type \"{kind}\".");
                Err(refused(name, "not_a_dict", detail))
            }
        }
    }

    /// A list of texts.
    pub fn texts(&mut self, name: &'static str) -> Result<Option<Vec<String>>, Problem> {
        self.each_text((name, ITEMS_MAX), text)
    }

    /// As [`Self::texts`], with at most this many.
    pub(super) fn texts_within(
        &mut self,
        name: &'static str,
        most: usize,
    ) -> Result<Option<Vec<String>>, Problem> {
        self.each_text((name, most), text)
    }

    /// A list of texts with their white space; see [`Self::exact_text`].
    pub(super) fn exact_texts(
        &mut self,
        name: &'static str,
    ) -> Result<Option<Vec<String>>, Problem> {
        self.each_text((name, ITEMS_MAX), exact_text)
    }

    /// As [`Self::exact_texts`], with at most this many.
    pub(super) fn exact_texts_within(
        &mut self,
        name: &'static str,
        most: usize,
    ) -> Result<Option<Vec<String>>, Problem> {
        self.each_text((name, most), exact_text)
    }

    fn each_text(
        &mut self,
        (name, most): (&'static str, usize),
        read: impl Fn(String, Value) -> Result<String, Problem>,
    ) -> Result<Option<Vec<String>>, Problem> {
        let Some(items) = self.list(name, most)? else { return Ok(None) };
        let numbered = items.into_iter().enumerate();
        let texts = numbered.map(|(index, item)| read(format!("{name}__{index}"), item));
        texts.collect::<Result<_, _>>().map(Some)
    }

    /// A list of ids: integers, as numbers or texts.
    pub fn ids(&mut self, name: &'static str) -> Result<Option<Vec<i64>>, Problem> {
        self.ids_within(name, ITEMS_MAX)
    }

    /// As [`Self::ids`], with at most this many.
    pub(super) fn ids_within(
        &mut self,
        name: &'static str,
        most: usize,
    ) -> Result<Option<Vec<i64>>, Problem> {
        let Some(items) = self.list(name, most)? else { return Ok(None) };
        let id = |item: &Value| {
            let id = item.as_i64().or_else(|| item.as_str()?.trim().parse().ok());
            id.ok_or_else(|| {
                let kind = python_type(item);
                let detail = format!("Incorrect type. Expected pk value, received {kind}.");
                refused(name, "incorrect_type", detail)
            })
        };
        items.iter().map(id).collect::<Result<_, _>>().map(Some)
    }

    /// A list of items of any type, at most this many.
    pub(super) fn list(
        &mut self,
        name: &'static str,
        most: usize,
    ) -> Result<Option<Vec<Value>>, Problem> {
        match self.value(name)? {
            None => Ok(None),
            Some(Value::Array(items)) => {
                check_length(name, items.len(), most)?;
                Ok(Some(items))
            }
            Some(other) => {
                let kind = python_type(&other);
                let detail = format!("Expected a list of items but got type \"{kind}\".");
                Err(refused(name, "not_a_list", detail))
            }
        }
    }
}

/// The error for a missing field that is required.
pub(super) fn missing(name: &'static str) -> Problem {
    refused(name, "required", "This field is required.")
}

/// The error for a field that is null.
pub(super) fn null(name: &'static str) -> Problem {
    refused(name, "null", "This field may not be null.")
}

/// The error for a text that is empty.
pub(super) fn blank(name: &'static str) -> Problem {
    refused(name, "blank", "This field may not be blank.")
}

/// The error for a list that is empty.
pub(super) fn empty(name: &'static str) -> Problem {
    refused(name, "empty", "This list may not be empty.")
}

/// The error for a value that is none of the permitted choices.
pub(super) fn not_a_choice(name: &'static str, given: impl Display) -> Problem {
    refused(name, "invalid_choice", format!("\"{given}\" is not a valid choice."))
}

/// An error for a text that is too long.
pub(super) fn check_chars(name: &'static str, text: &str, chars_max: usize) -> Result<(), Problem> {
    if text.chars().nth(chars_max).is_none() {
        return Ok(());
    }
    let detail = format!("Ensure this field has no more than {chars_max} characters.");
    Err(refused(name, "max_length", detail))
}

/// An error for a list that is too long.
pub(super) fn check_length(name: &'static str, items: usize, most: usize) -> Result<(), Problem> {
    if items <= most {
        return Ok(());
    }
    let detail = format!("Ensure this field has no more than {most} elements.");
    Err(refused(name, "max_length", detail))
}

/// Whether a `Content-Type` is JSON.
pub fn is_json(content_type: &str) -> bool {
    media_type(content_type).eq_ignore_ascii_case("application/json")
}

fn media_type(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

/// The JSON of a body; `None` if the body is empty.
fn document(content_type: &str, body: &[u8]) -> Result<Option<Value>, Problem> {
    if body.is_empty() {
        return Ok(None);
    }
    if !media_type(content_type).is_empty() && !is_json(content_type) {
        return Err(Problem::unsupported_media_type(content_type));
    }
    let value = json::read_within(Fields::DEPTH_MAX, body);
    value.map(Some).map_err(|error| Problem::parse_error(&error))
}

fn text(name: impl Into<Cow<'static, str>>, value: Value) -> Result<String, Problem> {
    exact_text(name, value).map(|text| text.trim().to_owned())
}

fn exact_text(name: impl Into<Cow<'static, str>>, value: Value) -> Result<String, Problem> {
    match value {
        Value::String(text) => Ok(text),
        Value::Number(number) => Ok(number.to_string()),
        _ => Err(refused(name, "invalid_input", "Not a valid string.")),
    }
}

fn boolean(name: &'static str, value: &Value) -> Result<bool, Problem> {
    let found = match value {
        Value::Bool(value) => Some(*value),
        Value::String(text) if text == "1" || TRUE.contains(&text.as_str()) => Some(true),
        Value::String(text) if text == "0" || FALSE.contains(&text.as_str()) => Some(false),
        Value::Number(number) if number.as_f64() == Some(1.0) => Some(true),
        Value::Number(number) if number.as_f64() == Some(0.0) => Some(false),
        _ => None,
    };
    found.ok_or_else(|| refused(name, "invalid_input", "Must be a valid boolean."))
}

/// The error for a refused field.
pub fn refused(
    name: impl Into<Cow<'static, str>>,
    code: &'static str,
    detail: impl Into<Cow<'static, str>>,
) -> Problem {
    Problem::new(Kind::Invalid, code, detail).with_attr(Attr::Name(name.into()))
}

#[cfg(test)]
mod tests;
