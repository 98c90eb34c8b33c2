//! JSON objects of which some members are JSON text already, because they are stored or were computed that way:
//! [`Members`]. Such members are copied to the output unparsed, so that a response takes the memory of its text and not
//! that of its parsed values.

use std::collections::BTreeMap;

use bytes::Bytes;
use hyper::StatusCode;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::beside::beside;
use crate::budget::{Memory, Reservation};
use crate::response::{Problem, Response};
use weir_base::error::Kind;
use weir_base::tasks::CpuPool;

/// Estimated length of a value that is not a text yet; most are short.
const VALUE_BYTES: usize = 24;

/// An object, whose members are written in the order of their names.
#[derive(Clone, Debug, Default)]
pub(super) struct Members(BTreeMap<String, Member>);

/// A value of an object.
#[derive(Clone, Debug)]
pub(super) enum Member {
    /// A value.
    Value(Value),
    /// The stored JSON text of a value.
    Stored(Box<RawValue>),
    /// The computed JSON text of a value.
    Text(Bytes),
    /// An object.
    Object(Members),
    /// A list of objects.
    List(Vec<Members>),
}

impl From<Value> for Member {
    fn from(value: Value) -> Self {
        Self::Value(value)
    }
}

impl FromIterator<(String, Member)> for Members {
    fn from_iter<I: IntoIterator<Item = (String, Member)>>(members: I) -> Self {
        Self(members.into_iter().collect())
    }
}

/// The members of an object; none of any other value.
impl From<Value> for Members {
    fn from(value: Value) -> Self {
        match value {
            Value::Object(members) => {
                members.into_iter().map(|(name, value)| (name, Member::Value(value))).collect()
            }
            _ => Self::default(),
        }
    }
}

impl Members {
    /// Sets a member.
    pub(super) fn set(&mut self, name: &str, value: impl Into<Member>) {
        self.0.insert(name.to_owned(), value.into());
    }

    /// Sets a member unless it exists.
    pub(super) fn set_if_absent(&mut self, name: &str, value: impl Into<Member>) {
        self.0.entry(name.to_owned()).or_insert_with(|| value.into());
    }

    /// Sets the members of another object.
    pub(super) fn extend(&mut self, other: impl IntoIterator<Item = (String, Member)>) {
        self.0.extend(other);
    }

    /// Takes a member out.
    pub(super) fn remove(&mut self, name: &str) -> Option<Member> {
        self.0.remove(name)
    }

    /// A member that is a value.
    pub(super) fn value(&self, name: &str) -> Option<&Value> {
        match self.0.get(name) {
            Some(Member::Value(value)) => Some(value),
            _ => None,
        }
    }

    /// Removes the members whose names are not wanted.
    pub(super) fn retain(&mut self, is_wanted: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| is_wanted(name));
    }

    /// The members with these names.
    #[must_use]
    pub(super) fn part(mut self, names: &[&str]) -> Self {
        self.retain(|name| names.contains(&name));
        self
    }

    /// Estimated length of its text.
    fn length(&self) -> usize {
        let one = |(name, member): (&String, &Member)| {
            let value = match member {
                Member::Value(_) => VALUE_BYTES,
                Member::Stored(stored) => stored.get().len(),
                Member::Text(text) => text.len(),
                Member::Object(members) => members.length(),
                Member::List(items) => {
                    items.iter().map(Self::length).fold(items.len(), usize::saturating_add)
                }
            };
            name.len().saturating_add(value).saturating_add(4)
        };
        self.0.iter().map(one).fold(2, usize::saturating_add)
    }

    /// Appends the text of the object.
    ///
    /// # Errors
    ///
    /// A value has no JSON form: a bug.
    pub(super) fn write(&self, text: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        text.push(b'{');
        for (index, (name, member)) in self.0.iter().enumerate() {
            if index > 0 {
                text.push(b',');
            }
            append(text, name)?;
            text.push(b':');
            member.write(text)?;
        }
        text.push(b'}');
        Ok(())
    }

    /// The response with the object, which is written outside the threads of sockets. `read` holds the memory of the
    /// data that the object was made of, until the text is written.
    ///
    /// # Errors
    ///
    /// 503 if the memory budget is used up.
    pub(super) async fn answer(
        self,
        cpu: &CpuPool,
        status: StatusCode,
        (memory, read): (&Memory, Reservation),
    ) -> Result<Response, Problem> {
        let mut answer = memory.reservation();
        let write = move || {
            let mut text = Vec::with_capacity(self.length());
            answer.hold(text.capacity())?;
            self.write(&mut text).map_err(|error| Problem::of(Kind::Internal, &error))?;
            drop((self, read));
            Ok::<_, Problem>(answer.counted(text)?)
        };
        let written = beside(cpu, write).await?;
        Ok(Response::counted_json(status, &written))
    }
}

impl Member {
    fn write(&self, text: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        match self {
            Self::Value(value) => append(text, value)?,
            Self::Stored(stored) => text.extend_from_slice(stored.get().as_bytes()),
            Self::Text(own) => text.extend_from_slice(own),
            Self::Object(members) => members.write(text)?,
            Self::List(items) => {
                text.push(b'[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        text.push(b',');
                    }
                    item.write(text)?;
                }
                text.push(b']');
            }
        }
        Ok(())
    }
}

fn append(text: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) -> Result<(), serde_json::Error> {
    serde_json::to_writer(text, value)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::json;
    use serde_json::value::RawValue;

    use super::{Member, Members};

    #[test]
    fn texts_are_written_as_they_are() {
        let stored = RawValue::from_string(r#"{"b": 1.0,  "a":[]}"#.to_owned()).unwrap();
        let mut object = Members::from(json!({"z": [1], "\"": null, "gone": 1}));
        object.set("query", Member::Stored(stored));
        object.set("result", Member::Text(Bytes::from_static(b"[1e3]")));
        object
            .set("tiles", Member::List(vec![Members::from(json!({"id": 1})), Members::default()]));
        object.set("insight", Member::Object(Members::default()));
        object.retain(|name| name != "gone");
        let mut text = Vec::new();
        object.write(&mut text).unwrap();
        let expected = r#"{"\"":null,"insight":{},"query":{"b": 1.0,  "a":[]},"result":[1e3],"tiles":[{"id":1},{}],"z":[1]}"#;
        assert_eq!(String::from_utf8(text).unwrap(), expected);
        assert_eq!(object.value("z"), Some(&json!([1])));
        assert!(object.value("query").is_none());
    }
}
