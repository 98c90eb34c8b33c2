//! Nodes: the JSON objects in which clients describe queries. [`node!`](crate::node!) declares one: from the one
//! declaration its fields are parsed ([`Content`]), checked for names that nothing reads ([`Fields`]), and described in
//! the API. A field that is absent or null has the default of its type.
//!
//! The meaning of a node is not defined here: `weir-insights` makes queries of them.

pub mod declare;
pub mod nearest;

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value};

/// Most items of a list, and fields of an object with names of the client's own: an empty item of a few bytes takes hundreds
/// of bytes as a type. Each list has a lower limit of its own where it is used.
const ITEMS_MAX: usize = 10_000;

/// Why a node is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct NodeError {
    /// The field, with dots between levels.
    pub field: String,
    /// What is wrong with it.
    pub detail: String,
}

impl NodeError {
    /// The refusal of a field.
    pub fn new(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { field: field.into(), detail: detail.into() }
    }

    /// The same error for a node in the field `name`.
    #[must_use]
    pub fn within(self, name: &str) -> Self {
        Self { field: join(name, &self.field), ..self }
    }
}

/// Types of field values.
pub trait Content: Sized {
    /// Its form, as far as it has fields itself.
    const FORM: Form = Form::Value;

    /// Whether an empty text in place of the value counts as absent.
    const IS_TEXT: bool = false;

    /// Reads a value that is not null, at `path`.
    ///
    /// # Errors
    ///
    /// It has another form.
    fn read(value: &Value, path: &str) -> Result<Self, NodeError>;

    /// Its JSON; `None` where it is the default of its type, as what is absent.
    fn write(&self) -> Option<Value>;

    /// Its JSON in a field where absence has another meaning than the default.
    fn write_given(&self) -> Option<Value> {
        self.write()
    }
}

/// An object with declared fields.
pub trait Node: Content + Default {
    /// Its fields.
    const FIELDS: Fields;

    /// Reads its fields from the object at `path`.
    ///
    /// # Errors
    ///
    /// The first field that is malformed, in the order of their declaration.
    fn of(sent: &Map<String, Value>, path: &str) -> Result<Self, NodeError>;

    /// Adds its fields that say something to an object.
    fn add_to(&self, object: &mut Map<String, Value>);

    /// The node as a query: with its kind, and the fields that say something.
    fn query(&self) -> Value {
        let mut object = Map::new();
        if let Some(kind) = Self::FIELDS.kinds.first() {
            object.insert("kind".to_owned(), Value::from(*kind));
        }
        self.add_to(&mut object);
        Value::Object(object)
    }
}

/// Reads the object at `path`.
///
/// # Errors
///
/// It is none, or a field is malformed.
pub fn read<T: Node>(value: &Value, path: &str) -> Result<T, NodeError> {
    T::of(object(value, path)?, path)
}

/// Reads the field `name` of the object at `path`.
///
/// # Errors
///
/// It is malformed.
pub fn field<T: Content + Default>(
    sent: &Map<String, Value>,
    name: &str,
    path: &str,
) -> Result<T, NodeError> {
    match sent.get(name) {
        None | Some(Value::Null) => Ok(T::default()),
        Some(value) => T::read(value, &join(path, name)),
    }
}

/// Writes the field `name` of an object.
pub fn add_field(object: &mut Map<String, Value>, name: &str, content: &impl Content) {
    if let Some(value) = content.write() {
        object.insert(name.to_owned(), value);
    }
}

/// The JSON of an object in a field; `None` if it has no kind and no field of it says anything.
pub fn write(node: &impl Node) -> Option<Value> {
    let written = node.query();
    Some(written).filter(|written| written.as_object().is_some_and(|own| !own.is_empty()))
}

/// The path of a field in the object at `path`.
pub fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// The beginning of what a client sent, as an error repeats it.
pub fn shortened(text: &str) -> String {
    text.chars().take(100).collect()
}

/// The fields of an object.
#[derive(Debug)]
pub struct Fields {
    /// The kinds of the node, if it has any; the first one is that of today.
    pub kinds: &'static [&'static str],
    /// The fields of a supertype, all of which this type has, too.
    pub base: Option<&'static Self>,
    /// Fields that are read, and the form of their values.
    pub read: &'static [(&'static str, Form)],
    /// Fields that PostHog's clients send and that change no number here, by the reason.
    pub ignored: &'static [(&'static str, &'static [&'static str])],
    /// Fields that would change the result and are not available; only empty values are accepted.
    pub lacking: &'static [&'static str],
    /// Whether it is an entity: there are some of other kinds, with other fields, which their reader refuses.
    pub is_entity: bool,
}

/// No fields.
pub const NOTHING: Fields =
    Fields { kinds: &[], base: None, read: &[], ignored: &[], lacking: &[], is_entity: false };

/// The form of a field's value, as far as it has fields itself. A value of another form is refused by its reader.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// A value.
    Value,
    /// One of these values, as JSON, which describe what is the case anyway.
    Fixed(&'static [&'static str]),
    /// An object.
    Object(&'static Fields),
    /// A list of objects.
    List(&'static Fields),
    /// Objects by names of the client's own.
    Map(&'static Fields),
    /// Filters of properties, in a list or in groups.
    Filters,
    /// Another node.
    Node,
}

impl Fields {
    fn all(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |own| own.base)
    }

    /// The form of a field that is read.
    pub(crate) fn form(&self, name: &str) -> Option<Form> {
        if name == "kind" && !self.kinds.is_empty() {
            return Some(Form::Value);
        }
        let known = |own: &Self| own.read.iter().find(|(known, _)| *known == name);
        self.all().find_map(known).map(|(_, form)| *form)
    }

    /// Whether a field is accepted without an effect.
    pub(crate) fn is_ignored(&self, name: &str) -> bool {
        let mut lists = self.all().flat_map(|own| own.ignored);
        lists.any(|(_, names)| names.contains(&name))
    }

    /// Whether a field accepts only empty values.
    pub(crate) fn is_lacking(&self, name: &str) -> bool {
        self.all().any(|own| own.lacking.contains(&name))
    }

    /// The names that a misspelt one may mean: its own, then those of the objects in it.
    pub(crate) fn names(&self) -> Vec<String> {
        let own = || self.all().flat_map(|own| own.read);
        let mut names: Vec<String> = own().map(|(name, _)| (*name).to_owned()).collect();
        for (name, form) in own() {
            if let Form::Object(inner) = form {
                let inner = inner.all().flat_map(|own| own.read);
                names.extend(inner.map(|(field, _)| format!("{name}.{field}")));
            }
        }
        names
    }
}

/// A node of one of several kinds, which its reader knows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AnyNode(pub Value);

/// A list of texts, or one of them.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema)]
#[schemars(inline)]
pub struct Texts(pub Vec<String>);

impl Content for Texts {
    fn read(value: &Value, path: &str) -> Result<Self, NodeError> {
        match value {
            Value::String(text) => {
                Ok(Self(Some(text.clone()).filter(|text| !text.is_empty()).into_iter().collect()))
            }
            list => Vec::read(list, path).map(Self),
        }
    }

    fn write(&self) -> Option<Value> {
        self.0.write()
    }
}

impl Content for AnyNode {
    const FORM: Form = Form::Node;

    fn read(value: &Value, _: &str) -> Result<Self, NodeError> {
        Ok(Self(value.clone()))
    }

    fn write(&self) -> Option<Value> {
        self.0.write()
    }
}

impl Content for Value {
    fn read(value: &Value, _: &str) -> Result<Self, NodeError> {
        Ok(value.clone())
    }

    fn write(&self) -> Option<Value> {
        Some(self.clone()).filter(|value| !value.is_null())
    }
}

impl Content for String {
    const IS_TEXT: bool = true;

    fn read(value: &Value, path: &str) -> Result<Self, NodeError> {
        let text = value.as_str().map(str::to_owned);
        text.ok_or_else(|| NodeError::new(path, "Expected a text."))
    }

    fn write(&self) -> Option<Value> {
        Some(Self::clone(self).into())
    }
}

impl Content for bool {
    fn read(value: &Value, path: &str) -> Result<Self, NodeError> {
        value.as_bool().ok_or_else(|| NodeError::new(path, "Expected true or false."))
    }

    fn write(&self) -> Option<Value> {
        self.then_some(Value::Bool(true))
    }

    fn write_given(&self) -> Option<Value> {
        Some(Value::Bool(*self))
    }
}

impl Content for usize {
    fn read(value: &Value, path: &str) -> Result<Self, NodeError> {
        let number = match value {
            Value::String(text) => text.parse().ok(),
            other => other.as_u64().and_then(|number| Self::try_from(number).ok()),
        };
        number.ok_or_else(|| NodeError::new(path, "Expected a whole number."))
    }

    fn write(&self) -> Option<Value> {
        Some(Value::from(*self))
    }
}

impl Content for i64 {
    fn read(value: &Value, path: &str) -> Result<Self, NodeError> {
        let number = match value {
            Value::String(text) => text.parse().ok(),
            other => other.as_i64(),
        };
        number.ok_or_else(|| NodeError::new(path, "Expected a whole number."))
    }

    fn write(&self) -> Option<Value> {
        Some(Value::from(*self))
    }
}

impl Content for f64 {
    fn read(value: &Value, path: &str) -> Result<Self, NodeError> {
        value.as_f64().ok_or_else(|| NodeError::new(path, "Expected a number."))
    }

    fn write(&self) -> Option<Value> {
        Some(Value::from(*self))
    }
}

impl<T: Content> Content for Option<T> {
    const FORM: Form = T::FORM;

    fn read(value: &Value, path: &str) -> Result<Self, NodeError> {
        match value {
            Value::String(text) if T::IS_TEXT && text.is_empty() => Ok(None),
            value => T::read(value, path).map(Some),
        }
    }

    fn write(&self) -> Option<Value> {
        self.as_ref()?.write_given()
    }
}

impl<T: Content> Content for Vec<T> {
    const FORM: Form = match T::FORM {
        Form::Object(fields) => Form::List(fields),
        _ => Form::Value,
    };

    fn read(value: &Value, path: &str) -> Result<Self, NodeError> {
        let Value::Array(list) = value else {
            return Err(NodeError::new(path, "Expected a list."));
        };
        if list.len() > ITEMS_MAX {
            return Err(NodeError::new(path, format!("Expected at most {ITEMS_MAX} items.")));
        }
        // A plain value has no fields: the error names the list.
        let has_fields = matches!(T::FORM, Form::Object(_));
        let read = |(at, own): (usize, &Value)| match has_fields {
            true => T::read(own, &format!("{path}.{at}")),
            false => T::read(own, path),
        };
        list.iter().enumerate().map(read).collect()
    }

    fn write(&self) -> Option<Value> {
        let list = || self.iter().map(|own| own.write_given().unwrap_or_default()).collect();
        (!self.is_empty()).then(list)
    }
}

impl<T: Content> Content for BTreeMap<String, T> {
    const FORM: Form = match T::FORM {
        Form::Object(fields) => Form::Map(fields),
        _ => Form::Value,
    };

    fn read(value: &Value, path: &str) -> Result<Self, NodeError> {
        let named = object(value, path)?;
        if named.len() > ITEMS_MAX {
            return Err(NodeError::new(path, format!("Expected at most {ITEMS_MAX} fields.")));
        }
        let named = named.iter();
        named.map(|(name, own)| Ok((name.clone(), T::read(own, &join(path, name))?))).collect()
    }

    fn write(&self) -> Option<Value> {
        let written = |(name, own): (&String, &T)| Some((name.clone(), own.write()?));
        let object: Map<_, _> = self.iter().filter_map(written).collect();
        Some(object).filter(|object| !object.is_empty()).map(Value::Object)
    }
}

/// The fields of the object at `path`.
///
/// # Errors
///
/// It is not an object.
fn object<'v>(value: &'v Value, path: &str) -> Result<&'v Map<String, Value>, NodeError> {
    value.as_object().ok_or_else(|| NodeError::new(path, "Expected an object."))
}

impl JsonSchema for AnyNode {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "AnyNode".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object", "required": ["kind"], "properties": {"kind": {"type": "string"}}})
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::{Content, ITEMS_MAX, Node};
    use crate::nodes::insights::TrendsQuery;

    #[test]
    fn lists_and_objects_are_bounded_before_they_are_read() {
        for (items, is_read) in [(ITEMS_MAX, true), (ITEMS_MAX + 1, false)] {
            let series = json!({"series": vec![json!({}); items]});
            let error = TrendsQuery::read(&series, "").err().map(|error| error.field);
            assert_eq!(error, (!is_read).then(|| "series".to_owned()));
            let named = (0..items).map(|at| (at.to_string(), json!(1)));
            let named = BTreeMap::<String, Value>::read(&Value::Object(named.collect()), "values");
            assert_eq!(named.is_ok(), is_read);
        }
    }

    #[test]
    fn what_is_read_is_written_again() {
        for query in [
            json!({"kind": "TrendsQuery"}),
            json!({
                "kind": "TrendsQuery", "interval": "week", "dateRange": {"date_from": "-7d"},
                "series": [{"event": "a", "math": "sum", "math_property": "p", "properties": [{"key": "k"}]}, {}],
                "trendsFilter": {"display": "ActionsPie", "formulaNodes": [{"formula": "A"}]},
                "compareFilter": {"compare": true}, "samplingFactor": 1.0,
                "breakdownFilter": {"breakdown": ["a", 1], "breakdown_limit": 3},
            }),
        ] {
            // What is absent, null, false or empty says the same.
            let mut sent = query.clone();
            sent["filterTestAccounts"] = json!(false);
            sent["properties"] = json!(null);
            let read = TrendsQuery::read(&sent, "").unwrap();
            let written = read.query();
            assert_eq!(TrendsQuery::read(&written, "").unwrap(), read);
            assert_eq!(written, query);
        }
    }
}
