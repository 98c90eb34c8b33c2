//! JSON values from untrusted text: [`read`] parses requests, [`restore`] parses stored values. Keys are
//! not interpreted.
//!
//! Not `serde_json::from_slice`: with the feature `raw_value`, its `Value` treats an object whose first
//! key is `$serde_json::private::RawValue` as the JSON in its string value, and parses that with a
//! depth limit of its own. So a few kB become an object a thousand levels deep, although the body is not
//! nested, and other readers reject it. Any sender can use that key.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Error, Map, Number, Value};
use simd_json::{Buffers, Node, StaticNode, Tape};

/// Nesting limit of what is read: that of `serde_json`, and so of PostHog's capture.
pub const DEPTH_MAX: usize = 127;

/// Nesting limit of what is restored: twice what can be written now. Earlier versions could write deeper
/// values. Their deeper parts become null, because recursion over a value needs a stack.
const STORED_DEPTH_MAX: usize = 2 * DEPTH_MAX;

/// Why and where a text is not valid JSON: `: expected value at line 1 column 5`, as the end of a sentence. Empty if
/// the text is refused for another reason, such as its depth.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fault(Option<Box<str>>);

impl Fault {
    /// The fault of `text`.
    pub fn of(text: &[u8]) -> Self {
        let read = serde_json::from_slice::<IgnoredAny>(text);
        Self(read.err().map(|error| error.to_string().into()))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(fault) => write!(formatter, ": {fault}"),
            None => Ok(()),
        }
    }
}

/// Types that JSON can be read as.
pub trait FromJson: Sized {
    /// `None` if the JSON has another type.
    fn from_json(value: Value) -> Option<Self>;
}

impl FromJson for Value {
    fn from_json(value: Value) -> Option<Self> {
        Some(value)
    }
}

impl FromJson for Map<String, Value> {
    fn from_json(value: Value) -> Option<Self> {
        match value {
            Value::Object(object) => Some(object),
            _ => None,
        }
    }
}

impl FromJson for String {
    fn from_json(value: Value) -> Option<Self> {
        match value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }
}

impl FromJson for bool {
    fn from_json(value: Value) -> Option<Self> {
        value.as_bool()
    }
}

impl FromJson for i64 {
    fn from_json(value: Value) -> Option<Self> {
        value.as_i64()
    }
}

impl<T: FromJson> FromJson for Vec<T> {
    fn from_json(value: Value) -> Option<Self> {
        match value {
            Value::Array(items) => items.into_iter().map(T::from_json).collect(),
            _ => None,
        }
    }
}

/// `None` for null.
impl<T: FromJson> FromJson for Option<T> {
    fn from_json(value: Value) -> Option<Self> {
        match value {
            Value::Null => Some(None),
            value => T::from_json(value).map(Some),
        }
    }
}

/// Parses a client's JSON, nested at most [`DEPTH_MAX`] deep.
///
/// # Errors
///
/// The text is not valid JSON, is nested deeper, or has another type.
pub fn read<T: FromJson>(text: &[u8]) -> Result<T, Error> {
    read_within(DEPTH_MAX, text)
}

/// As [`read`], with a lower nesting limit.
///
/// # Errors
///
/// As of [`read`].
pub fn read_within<T: FromJson>(depth_max: usize, text: &[u8]) -> Result<T, Error> {
    of_kind(read_as(Levels(depth_max), text)?)
}

/// Reads JSON as the type of `seed`, at most as deep as the parser allows by itself (128). For types that contain no
/// `Value`: these would interpret the key of raw values.
///
/// # Errors
///
/// The text is not valid JSON, is nested deeper, or has another type.
pub fn read_as<'t, S: DeserializeSeed<'t>>(seed: S, text: &'t [u8]) -> Result<S::Value, Error> {
    let mut parser = serde_json::Deserializer::from_slice(text);
    let value = seed.deserialize(&mut parser)?;
    parser.end()?;
    Ok(value)
}

/// The members of a client's JSON object that have one of these keys. The others are skipped, which takes a fraction of
/// the time of parsing them; of one key the last value counts.
///
/// # Errors
///
/// The text is not a JSON object, or one of the values is nested more than [`DEPTH_MAX`] deep.
pub fn read_members(text: &[u8], keys: &[Box<str>]) -> Result<Map<String, Value>, Error> {
    let mut parser = serde_json::Deserializer::from_slice(text);
    let members = parser.deserialize_map(Members(keys))?;
    parser.end()?;
    Ok(members)
}

/// The members of a stored JSON object as they are stored, each the text of a value, in the order of their keys; of one
/// key the last value counts. Values nested deeper than the limit of [`restore`] are cut in the same way.
///
/// # Errors
///
/// The text is not a JSON object.
pub fn members(text: &[u8]) -> Result<BTreeMap<String, Box<RawValue>>, Error> {
    if depth(text) <= STORED_DEPTH_MAX {
        return serde_json::from_slice(text);
    }
    let restored: Map<String, Value> = restore(text)?;
    let member = |(name, value): (String, Value)| {
        RawValue::from_string(value.to_string()).map(|text| (name, text))
    };
    restored.into_iter().map(member).collect()
}

/// The greatest number of brackets of a JSON text that are open at once.
fn depth(text: &[u8]) -> usize {
    let (mut open, mut most) = (0_usize, 0);
    let (mut is_in_text, mut is_escaped) = (false, false);
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_in_text => is_escaped = true,
            b'"' => is_in_text = !is_in_text,
            _ if is_in_text => {}
            b'{' | b'[' => {
                open += 1;
                most = most.max(open);
            }
            b'}' | b']' => open = open.saturating_sub(1),
            _ => {}
        }
    }
    most
}

/// Parses stored JSON of any depth.
///
/// # Errors
///
/// The text is not valid JSON, or has another type.
pub fn restore<T: FromJson>(text: &[u8]) -> Result<T, Error> {
    let mut text = text.to_vec();
    // This parser keeps its stack on the heap, so any depth is safe.
    let mut buffers = Buffers::with_max_depth(text.len(), usize::MAX);
    let mut tape = Tape(Vec::new());
    simd_json::fill_tape(&mut text, &mut buffers, &mut tape).map_err(Error::custom)?;
    of_kind(restored(&mut tape.0.iter(), STORED_DEPTH_MAX))
}

fn of_kind<T: FromJson>(value: Value) -> Result<T, Error> {
    T::from_json(value).ok_or_else(|| Error::custom("JSON of another kind"))
}

/// Takes one value off `nodes`. Loops instead of iterators, to use less stack.
fn restored<'n>(nodes: &mut std::slice::Iter<'n, Node<'n>>, levels: usize) -> Value {
    match nodes.next() {
        None | Some(Node::Static(StaticNode::Null)) => Value::Null,
        Some(Node::Static(StaticNode::Bool(truth))) => Value::Bool(*truth),
        Some(Node::Static(StaticNode::I64(number))) => Value::from(*number),
        Some(Node::Static(StaticNode::U64(number))) => Value::from(*number),
        Some(Node::Static(StaticNode::F64(number))) => {
            Number::from_f64(*number).map_or(Value::Null, Value::Number)
        }
        Some(Node::String(text)) => Value::String((*text).to_owned()),
        Some(Node::Array { count, .. } | Node::Object { count, .. }) if levels == 0 => {
            *nodes = nodes.as_slice().get(*count..).unwrap_or_default().iter();
            Value::Null
        }
        Some(Node::Array { len, .. }) => {
            let mut items = Vec::with_capacity(*len);
            for _ in 0..*len {
                items.push(restored(nodes, levels - 1));
            }
            Value::Array(items)
        }
        Some(Node::Object { len, .. }) => {
            let mut members = Vec::with_capacity(*len);
            for _ in 0..*len {
                let Some(Node::String(key)) = nodes.next() else { continue };
                members.push(((*key).to_owned(), restored(nodes, levels - 1)));
            }
            // In bulk they fill the nodes of the map; inserted in order they would fill half of each.
            Value::Object(members.into_iter().collect())
        }
    }
}

/// A value that serde reads, for instance as a field of a body: of any depth that the format allows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plain(pub Value);

impl<'de> Deserialize<'de> for Plain {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Levels(usize::MAX).deserialize(deserializer).map(Self)
    }
}

/// Reads an object, as `deserialize_with` of a field.
///
/// # Errors
///
/// The value is not an object.
pub fn object<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Map<String, Value>, D::Error> {
    let Plain(value) = Plain::deserialize(deserializer)?;
    FromJson::from_json(value).ok_or_else(|| D::Error::custom("no object"))
}

/// Deserializes a value that is nested at most this deep.
#[derive(Clone, Copy)]
struct Levels(usize);

impl Levels {
    fn below<E: serde::de::Error>(self) -> Result<Self, E> {
        self.0.checked_sub(1).map(Self).ok_or_else(|| E::custom("nested too deeply"))
    }
}

impl<'de> DeserializeSeed<'de> for Levels {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Levels {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Value, E> {
        Ok(Value::Bool(truth))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Number::from_f64(number).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut sent: S) -> Result<Value, S::Error> {
        let below = self.below()?;
        let mut items = Vec::new();
        while let Some(item) = sent.next_element_seed(below)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<M: MapAccess<'de>>(self, mut sent: M) -> Result<Value, M::Error> {
        let below = self.below()?;
        let mut members = Map::new();
        while let Some(key) = sent.next_key::<String>()? {
            members.insert(key, sent.next_value_seed(below)?);
        }
        Ok(Value::Object(members))
    }
}

/// Reads the members of an object with these keys.
struct Members<'k>(&'k [Box<str>]);

impl<'de> Visitor<'de> for Members<'_> {
    type Value = Map<String, Value>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut sent: M) -> Result<Self::Value, M::Error> {
        let mut members = Map::new();
        while let Some(key) = sent.next_key_seed(OneOf(self.0))? {
            match key {
                Some(key) => {
                    members.insert(key, sent.next_value_seed(Levels(DEPTH_MAX - 1))?);
                }
                None => {
                    sent.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(members)
    }
}

/// Reads a key if it is one of these, without a copy of the others.
struct OneOf<'k>(&'k [Box<str>]);

impl<'de> DeserializeSeed<'de> for OneOf<'_> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for OneOf<'_> {
    type Value = Option<String>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().any(|own| **own == *key).then(|| key.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::{Map, Value, json};

    use super::{
        DEPTH_MAX, Plain, STORED_DEPTH_MAX, members, read, read_members, read_within, restore,
    };

    /// The key that `serde_json` interprets.
    const KEY: &str = "$serde_json::private::RawValue";

    fn nested(depth: usize) -> String {
        format!("{}0{}", "{\"a\":[".repeat(depth / 2), "]}".repeat(depth / 2))
    }

    fn depth(mut value: &Value) -> usize {
        let mut depth = 0;
        while let Some(below) = value.get("a").or_else(|| value.get(0)) {
            (depth, value) = (depth + 1, below);
        }
        depth
    }

    /// The text of each member is unchanged, whatever its key; members that are too deep are cut as by [`restore`].
    #[test]
    fn members_are_split_and_not_read() {
        let text =
            format!(r#"{{"b": [1.0, 1e3 ], "a":"x\"{{", "b":{{"{KEY}":"[0"}}, "{KEY}": 1}}"#);
        let split = members(text.as_bytes()).unwrap();
        let texts: Vec<(&str, &str)> =
            split.iter().map(|(name, text)| (name.as_str(), text.get())).collect();
        let last = format!(r#"{{"{KEY}":"[0"}}"#);
        assert_eq!(texts, [(KEY, "1"), ("a", r#""x\"{""#), ("b", last.as_str())]);
        let deep = nested(STORED_DEPTH_MAX + 100);
        let split = members(deep.as_bytes()).unwrap();
        let expected: Value = restore(deep.as_bytes()).unwrap();
        assert_eq!(split["a"].get(), expected["a"].to_string());
        for wrong in ["[1]", "1", "{", "{\"a\":}", ""] {
            assert!(members(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn no_key_has_a_meaning() {
        let deep = nested(100);
        let inner = json!({KEY: deep}).to_string();
        for text in ["[1, 2]", "not JSON", "", &deep, &inner] {
            for value in [
                json!({KEY: text}),
                json!({KEY: text, "b": 1}),
                json!([{"a": {KEY: text}}]),
                json!({KEY: {KEY: text}}),
                json!({"$serde_json::private::Number": text}),
            ] {
                let json = value.to_string();
                assert_eq!(read::<Value>(json.as_bytes()).unwrap(), value);
                assert_eq!(restore::<Value>(json.as_bytes()).unwrap(), value);
                assert_eq!(serde_json::from_str::<Plain>(&json).unwrap().0, value);
                assert_eq!(Plain::deserialize(value.clone()).unwrap().0, value);
            }
        }
    }

    #[test]
    fn the_depth_of_what_is_read_is_limited() {
        let at = |depth| read::<Value>(nested(depth).as_bytes());
        assert_eq!(depth(&at(DEPTH_MAX - 1).unwrap()), DEPTH_MAX - 1);
        assert!(read::<Value>(format!("[{}]", nested(DEPTH_MAX - 1)).as_bytes()).is_ok());
        assert!(at(DEPTH_MAX + 1).is_err());
        for (levels, text, is_read) in [
            (0, "1", true),
            (0, "[]", false),
            (1, "{}", true),
            (2, "[[]]", true),
            (2, "[[{}]]", false),
        ] {
            assert_eq!(read_within::<Value>(levels, text.as_bytes()).is_ok(), is_read, "{text}");
        }
    }

    /// Twenty times the depth limit of bodies.
    #[test]
    fn what_was_stored_is_read_however_deep_it_is() {
        let text = format!("{{\"deep\":{},\"after\":[{{}},[],1]}}", nested(3000));
        let object = restore::<Map<String, Value>>(text.as_bytes()).unwrap();
        assert_eq!(object["after"], json!([{}, [], 1]));
        assert_eq!(depth(&object["deep"]), STORED_DEPTH_MAX - 1);
        let whole = restore::<Value>(nested(STORED_DEPTH_MAX).as_bytes()).unwrap();
        assert_eq!(whole.to_string(), nested(STORED_DEPTH_MAX));
    }

    #[test]
    fn values_are_those_of_the_text() {
        for (text, expected) in [
            ("null", json!(null)),
            (" [true, false] ", json!([true, false])),
            (
                "[0, -1, 18446744073709551615, -9223372036854775808]",
                json!([0, -1, u64::MAX, i64::MIN]),
            ),
            (
                "[0.5, -0.0, 1e300, 18446744073709551616]",
                json!([0.5, -0.0, 1e300, 1.8446744073709552e19]),
            ),
            // Between two doubles that an inexact parser would confuse.
            (
                "[58.050000000000004, 122.416294033786585, 2.2250738585072014e-308]",
                json!([58.050000000000004, 122.416_294_033_786_58, 2.2250738585072014e-308]),
            ),
            (r#""\ud83d\ude00\n""#, json!("😀\n")),
            (r#"{"a": 1, "\u0061": 2}"#, json!({"a": 2})),
        ] {
            assert_eq!(read::<Value>(text.as_bytes()).unwrap(), expected, "{text}");
            assert_eq!(restore::<Value>(text.as_bytes()).unwrap(), expected, "{text}");
        }
        for text in ["", " ", "{", "{} {}", "[1,]", "\"\\x\"", "nul", "{1: 2}"] {
            assert!(read::<Value>(text.as_bytes()).is_err(), "{text}");
            assert!(restore::<Value>(text.as_bytes()).is_err(), "{text}");
        }
    }

    /// Goal: the members are those of the whole object, whatever other members there are.
    #[test]
    fn members_are_those_of_the_object() {
        let keys: Vec<Box<str>> = ["a", "b", "é"].map(Box::from).into();
        for text in [
            "{}",
            r#"{"a": 1, "c": {"a": 2, "b": [1, {"a": 3}]}, "b": {"c": [null]}}"#,
            r#"{"a": 1, "\u0061": 2, "\u00e9": "x"}"#,
            r#"{"c": "\ud83d\ude00", "d": 1e300, "b": null}"#,
            r#"{"ab": 1, "": 2}"#,
        ] {
            let mut expected = read::<Map<String, Value>>(text.as_bytes()).unwrap();
            expected.retain(|key, _| keys.iter().any(|own| **own == **key));
            assert_eq!(read_members(text.as_bytes(), &keys).unwrap(), expected, "{text}");
        }
        for text in ["", "[]", "1", "{", "{} {}", r#"{"a": }"#, r#"{"c": [}"#] {
            assert!(read_members(text.as_bytes(), &keys).is_err(), "{text}");
        }
        // Only the selected members have to be within the limit.
        let (deep, deeper) = (nested(DEPTH_MAX - 1), nested(DEPTH_MAX + 1));
        let whole = read_members(format!("{{\"a\": {deep}, \"c\": {deeper}}}").as_bytes(), &keys);
        assert_eq!(depth(&whole.unwrap()["a"]), DEPTH_MAX - 1);
        assert!(read_members(format!("{{\"a\": {deeper}}}").as_bytes(), &keys).is_err());
    }

    #[test]
    fn other_kinds_are_refused() {
        assert_eq!(read::<Vec<String>>(br#"["a", "b"]"#).unwrap(), ["a", "b"]);
        assert_eq!(restore::<Vec<i64>>(b"[1, -2]").unwrap(), [1, -2]);
        assert!(read::<Vec<String>>(br#"["a", 1]"#).is_err());
        assert!(restore::<Vec<i64>>(b"[1, 1.5]").is_err());
        assert!(read::<Map<String, Value>>(b"[]").is_err());
        assert!(restore::<bool>(b"true").unwrap());
        assert!(restore::<bool>(b"1").is_err());
        assert_eq!(restore::<Vec<Option<bool>>>(b"[null, false]").unwrap(), [None, Some(false)]);
        assert!(restore::<Option<String>>(b"1").is_err());
        assert!(restore::<Vec<Map<String, Value>>>(b"[{}, 1]").is_err());
    }
}
