//! An encoded row of a person: properties are read without decoding the rest. A query reads one of
//! a hundred properties, and building a map of all of them takes longer than everything else.

use serde_json::{Map, Value};
use uuid::Uuid;

use crate::person::Person;
use crate::{IdentityError, codec};
use weir_base::clock::UnixMicros;

/// The name of a property, as it is encoded in rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key(Box<str>);

impl Key {
    /// The property with this name.
    pub fn new(name: &str) -> Self {
        // The same encoder as that of rows, so the same name has the same escapes.
        Self(Value::from(name).to_string().into())
    }

    /// The name as JSON.
    pub fn json(&self) -> &str {
        &self.0
    }
}

/// A row that is not decoded.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The number of the person.
    pub number: i64,
    /// The uuid of the person.
    pub uuid: Uuid,
    /// Time of the event that created it.
    pub created_at: UnixMicros,
    /// Whether a merge event ever named the person.
    pub is_identified: bool,
    /// Grows with every change of the row.
    pub version: u64,
    /// Sequence of the last record that changed the row or its distinct ids.
    pub changed_sequence: u64,
    bytes: &'a [u8],
    properties: &'a str,
}

impl<'a> Row<'a> {
    pub(super) fn new(number: i64, bytes: &'a [u8]) -> Result<Self, IdentityError> {
        let (uuid, created_at) = codec::decode_person_place(bytes)?;
        let is_identified = codec::decode_person_identified(bytes)?;
        let (version, changed_sequence) = codec::decode_person_edition(bytes)?;
        let properties = codec::person_json(bytes)?;
        Ok(Self {
            number,
            uuid,
            created_at,
            is_identified,
            version,
            changed_sequence,
            bytes,
            properties,
        })
    }

    /// The value of a property as compact JSON; `None` if the person does not have it.
    pub fn property(&self, key: &Key) -> Option<&'a str> {
        property(self.properties, key)
    }

    /// All properties: names, as [`Key::json`], and values, as compact JSON.
    pub fn properties(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        Members::of(self.properties)
    }

    /// All properties as a compact JSON object.
    pub fn properties_json(&self) -> &'a str {
        self.properties
    }

    /// Length of all properties as JSON, in bytes.
    pub fn properties_len(&self) -> usize {
        self.properties.len()
    }

    /// Decodes the whole person.
    ///
    /// # Errors
    ///
    /// If the row is damaged.
    pub fn person(&self) -> Result<Person, IdentityError> {
        codec::decode_person(self.number, self.bytes)
    }
}

/// The value of a property in what [`Row::properties_json`] returned, as [`Row::property`] returns it.
pub fn property<'a>(properties: &'a str, key: &Key) -> Option<&'a str> {
    Members::of(properties).find(|(name, _)| *name == &*key.0).map(|(_, value)| value)
}

/// Parses the value that [`Row::property`] returned.
///
/// # Errors
///
/// If it is not JSON.
pub fn value(json: &str) -> Result<Value, IdentityError> {
    Ok(match json {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        "null" => Value::Null,
        json => match json.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
            Some(text) if !text.contains('\\') => Value::String(text.to_owned()),
            _ => {
                let object: Map<String, Value> =
                    codec::decode_object(format!("{{\"\":{json}}}").as_bytes())?;
                object.into_iter().next().map_or(Value::Null, |(_, value)| value)
            }
        },
    })
}

/// The members of a compact JSON object, names and values, up to the end or to the first damage.
struct Members<'a> {
    rest: &'a str,
}

impl<'a> Members<'a> {
    fn of(object: &'a str) -> Self {
        Self { rest: object.strip_prefix('{').unwrap_or_default() }
    }

    fn member(&mut self) -> Option<(&'a str, &'a str)> {
        let rest = std::mem::take(&mut self.rest);
        let name = rest.get(..text_end(rest).filter(|_| rest.starts_with('"'))?)?;
        let value = rest.get(name.len()..)?.strip_prefix(':')?;
        let end = value_end(value)?;
        self.rest = value.get(end..)?.strip_prefix(',').unwrap_or_default();
        Some((name, value.get(..end)?))
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        self.member()
    }
}

/// The end of the JSON value at the front.
fn value_end(json: &str) -> Option<usize> {
    match json.as_bytes().first()? {
        b'"' => text_end(json),
        b'{' | b'[' => container_end(json),
        _ => json.bytes().position(|byte| byte == b',' || byte == b'}' || byte == b']'),
    }
}

/// The end of the JSON string at the front, after its last quote. Byte by byte: most strings are
/// too short for a vectorised search to pay off.
fn text_end(json: &str) -> Option<usize> {
    let mut is_escaped = false;
    for (at, byte) in json.bytes().enumerate().skip(1) {
        match byte {
            b'"' if !is_escaped => return Some(at + 1),
            b'\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    None
}

/// The end of the array or object at the front.
fn container_end(json: &str) -> Option<usize> {
    let (mut at, mut depth) = (0_usize, 0_usize);
    loop {
        match json.as_bytes().get(at)? {
            b'"' => {
                at += text_end(json.get(at..)?)?;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Just, Strategy, any};
    use proptest::{prop_oneof, proptest};
    use serde_json::{Value, json};

    use super::{Key, Members, Row, value};
    use crate::codec;
    use crate::person::Person;
    use weir_base::clock::UnixMicros;

    fn names() -> impl Strategy<Value = String> {
        let hard = ["", "a", "\"", "\\", "a\\\"", ",", ":", "\",\"a", "{", "é\u{0}", "}"];
        prop_oneof![(0..hard.len()).prop_map(move |at| hard[at].to_owned()), "[ab\"\\\\]{0,3}"]
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            names().prop_map(Value::from),
            Just(json!({"$serde_json::private::Number": "1"})),
        ];
        leaf.prop_recursive(3, 12, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map(names(), inner, 0..4)
                    .prop_map(|object| Value::Object(object.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(proptest::test_runner::Config::with_failure_persistence(
            proptest::test_runner::FileFailurePersistence::WithSource("regressions"),
        ))]
        /// Goal: a property read from a row equals that of the decoded person exactly.
        #[test]
        fn properties_are_those_of_the_person(
            object in proptest::collection::btree_map(names(), values(), 0..6),
            other in names(),
        ) {
            let person = Person {
                number: 7,
                uuid: uuid::Uuid::from_u128(5),
                created_at: UnixMicros(-3),
                properties: object.into_iter().collect(),
                is_identified: true,
                version: 1,
                changed_sequence: 2,
            };
            let bytes = codec::encode_person(&person).unwrap();
            let row = Row::new(7, &bytes).unwrap();
            assert_eq!((row.uuid, row.created_at), (person.uuid, person.created_at));
            assert!(row.is_identified);
            assert_eq!(row.changed_sequence, person.changed_sequence);
            let person = row.person().unwrap();
            for name in person.properties.keys().chain([&other]) {
                let found = row.property(&Key::new(name)).map(|json| value(json).unwrap());
                assert_eq!(found.as_ref(), person.properties.get(name), "{name:?}");
            }
            let all = row.properties().map(|(name, json)| {
                (value(name).unwrap().as_str().unwrap().to_owned(), value(json).unwrap())
            });
            assert_eq!(all.collect::<serde_json::Map<_, _>>(), person.properties);
        }
    }

    #[test]
    fn damaged_rows_have_no_property_and_no_end() {
        for text in
            ["", "{", "{\"a", "{\"a\"", "{\"a\":", "{\"a\":\"", "{\"a\":[", "{\"b\":1", "[]"]
        {
            assert!(Members::of(text).all(|(name, _)| name != "\"a\""), "{text}");
        }
    }
}
