//! A JSON object as its members, each the text of a value: what sources read rows as, and make properties of.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::json_text;
use weir_event::json;

/// Members with the texts of their values, in the order in which they were written.
#[derive(Clone, Debug, Default)]
pub struct Object<'a> {
    members: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

impl<'a> Object<'a> {
    /// Reads an object. Its values are checked to be JSON, and not read.
    ///
    /// # Errors
    ///
    /// The text is no JSON object.
    pub fn read(text: &'a str) -> Result<Self, serde_json::Error> {
        json::read_as(Members, text.as_bytes())
    }

    /// The text of a member's value; of one that occurs twice, the last. Null is as absent.
    pub fn get(&self, key: &str) -> Option<&str> {
        let (_, value) = self.members.iter().rev().find(|(name, _)| name == key)?;
        Some(&**value).filter(|value| *value != "null")
    }

    /// The first of these members that there is.
    pub fn first(&self, keys: &[&str]) -> Option<&str> {
        keys.iter().find_map(|key| self.get(key))
    }

    /// A member as text: of a string, a number or a boolean. Blank text is as absent.
    pub fn text(&self, key: &str) -> Option<Cow<'_, str>> {
        json_text::scalar(self.get(key)?)
    }

    /// The first of these members that has text.
    pub fn first_text(&self, keys: &[&str]) -> Option<Cow<'_, str>> {
        keys.iter().find_map(|key| self.text(key))
    }

    /// A member that is a whole number, also one in quotes.
    pub fn integer(&self, key: &str) -> Option<i64> {
        json_text::integer(self.get(key)?)
    }

    /// A member that is an object. `None` for other kinds.
    pub fn object(&self, key: &str) -> Option<Object<'_>> {
        Object::read(self.get(key).filter(|text| text.starts_with('{'))?).ok()
    }

    /// Whether there is such a member, null included.
    pub fn has(&self, key: &str) -> bool {
        self.members.iter().any(|(name, _)| name == key)
    }

    /// Removes a member, and returns the text of its value.
    pub fn take(&mut self, key: &str) -> Option<Cow<'a, str>> {
        let mut found = None;
        while let Some(place) = self.members.iter().rposition(|(name, _)| name == key) {
            let (_, value) = self.members.remove(place);
            found = found.or(Some(value));
        }
        found.filter(|value| value != "null")
    }

    /// Sets a member to the text of a value. It replaces one of the same name.
    pub fn put(&mut self, key: impl Into<Cow<'a, str>>, value: impl Into<Cow<'a, str>>) {
        let (key, value) = (key.into(), value.into());
        match self.members.iter_mut().find(|(name, _)| *name == key) {
            Some((_, old)) => *old = value,
            None => self.members.push((key, value)),
        }
    }

    /// Appends a member of a name that is not there yet.
    pub fn push(&mut self, key: impl Into<Cow<'a, str>>, value: impl Into<Cow<'a, str>>) {
        self.members.push((key.into(), value.into()));
    }

    /// Sets a member to text.
    pub fn put_text(&mut self, key: impl Into<Cow<'a, str>>, text: &str) {
        self.put(key, json_text::quoted(text));
    }

    /// Sets a member to text, if there is some.
    pub fn put_some(&mut self, key: impl Into<Cow<'a, str>>, text: Option<impl AsRef<str>>) {
        if let Some(text) = text {
            self.put_text(key, text.as_ref());
        }
    }

    /// Sets a member, unless there is one of that name.
    pub fn put_missing(&mut self, key: &'a str, value: Option<&str>) {
        if let Some(value) = value.filter(|_| self.get(key).is_none()) {
            self.put(key, value.to_owned());
        }
    }

    /// Gives members other names, if they are there.
    pub fn rename(&mut self, names: &[(&str, &'static str)]) {
        for (old, new) in names {
            if let Some(value) = self.take(old) {
                self.put(*new, value);
            }
        }
    }

    /// The members.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.members.iter().map(|(key, value)| (&**key, &**value))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Appends the object as JSON, without its braces.
    pub fn write_members(&self, out: &mut Vec<u8>) {
        for (place, (key, value)) in self.iter().enumerate() {
            if place > 0 {
                out.push(b',');
            }
            json_text::write_quoted(out, key);
            out.push(b':');
            out.extend_from_slice(value.as_bytes());
        }
    }

    /// The object as JSON.
    pub fn to_text(&self) -> String {
        let mut out = vec![b'{'];
        self.write_members(&mut out);
        out.push(b'}');
        String::from_utf8(out).unwrap_or_default()
    }

    /// The same in one order of the names, whatever that of the file is.
    pub fn canonical(&self) -> String {
        let mut sorted: Vec<_> = self.members.iter().collect();
        sorted.sort();
        sorted.dedup();
        let members = sorted.into_iter().cloned().collect();
        Object { members }.to_text()
    }
}

/// Reads an object as [`Object`].
struct Members;

impl<'de> DeserializeSeed<'de> for Members {
    type Value = Object<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Members {
    type Value = Object<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut sent: M) -> Result<Self::Value, M::Error> {
        let mut members = Vec::with_capacity(16);
        while let Some(key) = sent.next_key_seed(Key)? {
            let value: &'de RawValue = sent.next_value()?;
            members.push((key, Cow::Borrowed(value.get())));
        }
        Ok(Object { members })
    }
}

/// Reads a key without a copy, where it has no escapes.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key {
    type Value = Cow<'de, str>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a key")
    }

    fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(key))
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(key.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::Object;

    #[test]
    fn members_stay_as_they_were_written() {
        let text = r#"{"a": 1.0, "b\n":"x\"{", "big":123456789012345678901234567890, "a":{"c": [1 , 2]}, "n":null}"#;
        let object = Object::read(text).unwrap();
        assert_eq!(object.get("a"), Some(r#"{"c": [1 , 2]}"#));
        assert_eq!(object.text("b\n").unwrap(), "x\"{");
        assert_eq!(object.get("big"), Some("123456789012345678901234567890"));
        assert_eq!((object.get("n"), object.has("n")), (None, true));
        assert!(object.object("a").unwrap().get("c").is_some());
    }

    /// The key under which `serde_json` looks for raw values is one like any other.
    #[test]
    fn no_key_has_a_meaning() {
        let text = r#"{"$serde_json::private::RawValue":"[0"}"#;
        let object = Object::read(text).unwrap();
        assert_eq!(object.get("$serde_json::private::RawValue"), Some("\"[0\""));
        assert_eq!(object.to_text(), text);
    }

    #[test]
    fn depth_takes_no_stack() {
        let text = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(Object::read(&text).is_ok());
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for text in ["", "[1]", "1", "{", "{\"a\":}", "{} {}", "{\"a\":1,}", "{\"a\":\"\u{0}\"}"] {
            assert!(Object::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_order_of_members_does_not_matter_to_the_canonical_form() {
        let of = |text: &'static str| Object::read(text).unwrap().canonical();
        assert_eq!(of(r#"{"b":1,"a":2}"#), of(r#"{ "a":2, "b":1 }"#));
        assert_ne!(of(r#"{"b":1,"a":2}"#), of(r#"{"b":2,"a":1}"#));
    }

    #[test]
    fn members_are_replaced_and_renamed() {
        let mut object = Object::read(r#"{"a":1,"b":2}"#).unwrap();
        object.put("a", "3");
        object.rename(&[("b", "c"), ("x", "y")]);
        object.put_missing("c", Some("9"));
        object.put_text("d", "\"");
        assert_eq!(object.to_text(), r#"{"a":3,"c":2,"d":"\""}"#);
        assert_eq!(object.take("a").as_deref(), Some("3"));
        assert!(!object.has("a"));
    }
}
