//! JSON objects with duplicate keys. The last one counts, as in common JSON readers; the JSON functions of SQL take the
//! first. So earlier members are cut out of such a text before it is read, and the rest remains as it was sent.
//!
//! This is done when texts are read instead of when they are stored: senders hardly ever write such objects, detecting
//! them would cost a scan of all keys at all levels of every event, and what is stored is what was sent.

use std::borrow::Cow;
use std::ops::Range;

use hashbrown::HashMap;
use memchr::memchr2;

use weir_event::json;

/// A step of a path into a text: a key of an object, or the index of an item in a list.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step<'p> {
    /// A key; in a list, the index that it is parsed as.
    Key(&'p str),
    /// An index, from the end if it is negative.
    Place(i64),
}

/// `text` without the members along `path` that are replaced by a later one of the same key and, if `with_end`, without
/// such members of the object at its end. `None` if there are none, or if the text is not valid JSON.
pub(crate) fn along(text: &str, path: &[Step<'_>], with_end: bool) -> Option<String> {
    let mut reader = Reader { bytes: text.as_bytes(), at: 0 };
    let mut replaced = Vec::new();
    let mut steps = path.iter();
    loop {
        let step = steps.next();
        let found = match (reader.first()?, step) {
            (b'{', Some(Step::Key(key))) => {
                let name = |own: &[u8]| own == key.as_bytes();
                let object = reader.object(name)?;
                replaced.extend(object.replaced());
                object.value
            }
            (b'{', None) if with_end => {
                replaced.extend(reader.object(|_| true)?.replaced());
                None
            }
            (b'[', Some(Step::Key(key))) => key.parse().ok().and_then(|place| reader.item(place)),
            (b'[', Some(Step::Place(place))) => reader.item(*place),
            _ => None,
        };
        match found {
            Some(at) => reader.at = at,
            None => return without(text, replaced),
        }
    }
}

/// The first byte of the value along `path`, with the last of duplicate keys. `None` if there is no value, or if the
/// text is not valid JSON.
pub(crate) fn first_byte(text: &str, path: &[Step<'_>]) -> Option<u8> {
    let mut reader = Reader { bytes: text.as_bytes(), at: 0 };
    for step in path {
        reader.at = match (reader.first()?, step) {
            (b'{', Step::Key(key)) => reader.object(|own: &[u8]| own == key.as_bytes())?.value?,
            (b'[', Step::Key(key)) => reader.item(key.parse().ok()?)?,
            (b'[', Step::Place(place)) => reader.item(*place)?,
            _ => return None,
        };
    }
    reader.first()
}

/// `text` without the members of any of its objects that are replaced by a later one of the same key. `None` if there
/// are none, or if the text is not valid JSON.
pub(crate) fn everywhere(text: &str) -> Option<String> {
    let mut reader = Reader { bytes: text.as_bytes(), at: 0 };
    let mut replaced = Vec::new();
    // The open objects and lists, as a stack instead of recursion: nesting may be as deep as the text is long.
    let mut around: Vec<Option<Members<'_>>> = Vec::new();
    while let Some(byte) = reader.first() {
        match byte {
            b'{' => around.push(Some(Members::default())),
            b'[' => around.push(None),
            b'}' | b']' => replaced.extend(around.pop()?.iter().flat_map(Members::replaced)),
            b'"' => {
                let quoted = reader.string()?;
                if let (Some(b':'), Some(Some(members))) = (reader.first(), around.last_mut()) {
                    members.add(name_of(reader.bytes.get(quoted.clone())?)?, quoted.start);
                }
                continue;
            }
            _ => {}
        }
        reader.at += 1;
    }
    if around.is_empty() { without(text, replaced) } else { None }
}

/// The members of an object that were read.
#[derive(Default)]
struct Members<'t> {
    starts: Vec<usize>,
    /// The index of the last member of each key.
    last: HashMap<Cow<'t, [u8]>, usize>,
    /// The indexes of members that are replaced by later ones.
    earlier: Vec<usize>,
    /// Offset of the value of the last member with a key that was searched for.
    value: Option<usize>,
}

impl<'t> Members<'t> {
    fn add(&mut self, key: Cow<'t, [u8]>, start: usize) {
        self.earlier.extend(self.last.insert(key, self.starts.len()));
        self.starts.push(start);
    }

    /// The byte ranges of replaced members, each up to the next one: a replaced member is never the last.
    fn replaced(&self) -> impl Iterator<Item = Range<usize>> {
        self.earlier
            .iter()
            .filter_map(|at| Some(*self.starts.get(*at)?..*self.starts.get(*at + 1)?))
    }
}

/// A position in a JSON text.
struct Reader<'t> {
    bytes: &'t [u8],
    at: usize,
}

impl<'t> Reader<'t> {
    /// Skips white space; returns the next byte.
    fn first(&mut self) -> Option<u8> {
        let rest = self.bytes.get(self.at..)?;
        self.at += rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        self.bytes.get(self.at).copied()
    }

    /// Skips one byte that must follow.
    fn take(&mut self, byte: u8) -> Option<()> {
        (self.first()? == byte).then(|| self.at += 1)
    }

    /// Skips a quoted string; returns its range, including the quotes.
    fn string(&mut self) -> Option<Range<usize>> {
        let start = self.at;
        self.take(b'"')?;
        loop {
            let found = memchr2(b'"', b'\\', self.bytes.get(self.at..)?)?;
            self.at += found + 1;
            if self.bytes.get(self.at - 1) == Some(&b'"') {
                return Some(start..self.at);
            }
            self.at += 1;
        }
    }

    /// Skips a value.
    fn value(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.first()? {
                b'"' => {
                    self.string()?;
                }
                b'{' | b'[' => {
                    (depth, self.at) = (depth + 1, self.at + 1);
                    continue;
                }
                b'}' | b']' => (depth, self.at) = (depth.checked_sub(1)?, self.at + 1),
                b',' | b':' if depth > 0 => {
                    self.at += 1;
                    continue;
                }
                _ => {
                    let is_end = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b':' | b'"');
                    let rest = self.bytes.get(self.at..)?;
                    let is_scalar = |byte: &&u8| !is_end(byte) && !byte.is_ascii_whitespace();
                    let length = rest.iter().take_while(is_scalar).count();
                    self.at += Some(length).filter(|length| *length > 0)?;
                }
            }
            if depth == 0 {
                return Some(());
            }
        }
    }

    /// Skips an object; returns its members, and the value of the last one with a key that is `looked_for`. Duplicates
    /// are detected only among such keys.
    fn object(&mut self, looked_for: impl Fn(&[u8]) -> bool) -> Option<Members<'t>> {
        let mut members = Members::default();
        self.take(b'{')?;
        if self.take(b'}').is_some() {
            return Some(members);
        }
        loop {
            self.first()?;
            let quoted = self.string()?;
            let key = name_of(self.bytes.get(quoted.clone())?)?;
            self.take(b':')?;
            self.first()?;
            if looked_for(&key) {
                members.add(key, quoted.start);
                members.value = Some(self.at);
            } else {
                members.starts.push(quoted.start);
            }
            self.value()?;
            if self.take(b'}').is_some() {
                return Some(members);
            }
            self.take(b',')?;
        }
    }

    /// Offset of the list item at an index.
    fn item(&mut self, place: i64) -> Option<usize> {
        self.take(b'[')?;
        let mut items = Vec::new();
        while self.first()? != b']' {
            items.push(self.at);
            self.value()?;
            if self.take(b',').is_none() {
                break;
            }
        }
        let place = match usize::try_from(place) {
            Ok(place) => place,
            Err(_) => items.len().checked_sub(usize::try_from(place.unsigned_abs()).ok()?)?,
        };
        items.get(place).copied()
    }
}

/// The unescaped key of a quoted one.
fn name_of(quoted: &[u8]) -> Option<Cow<'_, [u8]>> {
    if quoted.contains(&b'\\') {
        let name: String = json::read(quoted).ok()?;
        return Some(Cow::Owned(name.into_bytes()));
    }
    quoted.get(1..quoted.len().checked_sub(1)?).map(Cow::Borrowed)
}

/// `text` without these ranges; `None` if there are none.
fn without(text: &str, mut parts: Vec<Range<usize>>) -> Option<String> {
    if parts.is_empty() {
        return None;
    }
    // A range may be inside another one.
    parts.sort_unstable_by_key(|part| part.start);
    let (mut kept, mut at) = (String::with_capacity(text.len()), 0);
    for part in parts {
        if part.start >= at {
            kept.push_str(text.get(at..part.start)?);
        }
        at = at.max(part.end);
    }
    kept.push_str(text.get(at..)?);
    Some(kept)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::{Step, along, everywhere};

    #[test]
    fn earlier_members_along_a_path_are_cut_out() {
        let (a, b) = (Step::Key("a"), Step::Key("b"));
        for (text, path, expected) in [
            (r#"{"a":1,"a":2}"#, &[a][..], Some(r#"{"a":2}"#)),
            (r#"{"a":1,"b":{"a":3},"a":2}"#, &[a], Some(r#"{"b":{"a":3},"a":2}"#)),
            (
                r#"{ "a" : 1 , "x" : "\"a\"" , "a" : [2] }"#,
                &[a],
                Some(r#"{ "x" : "\"a\"" , "a" : [2] }"#),
            ),
            (r#"{"\u0061":1,"a":2}"#, &[a], Some(r#"{"a":2}"#)),
            (r#"{"a":1,"\u0061":2}"#, &[a], Some(r#"{"\u0061":2}"#)),
            (r#"{"a":{"b":1},"a":{"b":2,"b":3},"c":4}"#, &[a, b], Some(r#"{"a":{"b":3},"c":4}"#)),
            (r#"{"a":{"b":1,"b":2}}"#, &[a], None),
            (r#"{"a":1,"b":2}"#, &[a, b], None),
            (r#"{"b":1,"b":2,"a":3}"#, &[a], None),
            (r#"{"a":[{"b":1,"b":2}]}"#, &[a, Step::Place(0), b], Some(r#"{"a":[{"b":2}]}"#)),
            (r#"[0,{"b":1,"b":2}]"#, &[Step::Place(-1), b], Some(r#"[0,{"b":2}]"#)),
            (r#"[{"b":1,"b":2}]"#, &[Step::Key("0"), b], Some(r#"[{"b":2}]"#)),
            (r#"[{"b":1,"b":2}]"#, &[Step::Place(7), b], None),
            (r#"{"":1,"":2}"#, &[Step::Key("")], Some(r#"{"":2}"#)),
            ("{}", &[a], None),
            ("", &[a], None),
            ("no JSON", &[a], None),
            (r#"{"a":1,"a""#, &[a], None),
            (r#"{"a":1,"a":}"#, &[a], None),
            (r#"{"a":1 "a":2}"#, &[a], None),
            ("[}", &[Step::Place(0)], None),
        ] {
            assert_eq!(along(text, path, false).as_deref(), expected, "{text} {path:?}");
        }
        let text = r#"{"a":{"b":1,"c":2,"b":3}}"#;
        assert_eq!(along(text, &[a], true).as_deref(), Some(r#"{"a":{"c":2,"b":3}}"#));
    }

    #[test]
    fn earlier_members_of_all_objects_are_cut_out() {
        for (text, expected) in [
            (r#"{"a":{"x":1,"x":2},"a":{"y":3,"y":4}}"#, Some(r#"{"a":{"y":4}}"#)),
            (r#"[{"a":1,"a":"a"},{"a":1}]"#, Some(r#"[{"a":"a"},{"a":1}]"#)),
            (r#"{"a":1,"b":{"a":1}}"#, None),
            (r#"{"a":"b","b":"a"}"#, None),
            ("17", None),
            ("{", None),
            ("]", None),
        ] {
            assert_eq!(everywhere(text).as_deref(), expected, "{text}");
        }
        let deep = format!("{}{{\"a\":1,\"a\":2}}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(everywhere(&deep).map(|text| text.len()), Some(200_000 + 7));
    }

    /// JSON texts of values in which objects have duplicate keys.
    fn texts() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![Just("1".to_owned()), Just("null".to_owned()), "\"[ab:,{}]{0,3}\""];
        leaf.prop_recursive(4, 24, 5, |inner| {
            let member = (prop_oneof![Just("a"), Just("b"), Just("\\u0061")], inner.clone());
            prop_oneof![
                prop::collection::vec(member, 0..5).prop_map(|members| {
                    let members: Vec<String> =
                        members.iter().map(|(key, value)| format!("\"{key}\" : {value}")).collect();
                    format!("{{ {} }}", members.join(" , "))
                }),
                prop::collection::vec(inner, 0..4)
                    .prop_map(|items| format!("[{}]", items.join(","))),
            ]
        })
    }

    proptest! {
        #![proptest_config(proptest::test_runner::Config::with_failure_persistence(
            proptest::test_runner::FileFailurePersistence::WithSource("regressions"),
        ))]
        /// Goal: the value remains the same for readers for which the last key counts. serde's reader is the oracle.
        #[test]
        fn the_value_stays(text in texts()) {
            let expected: Value = serde_json::from_str(&text).unwrap();
            for shorter in [
                everywhere(&text),
                along(&text, &[Step::Key("a"), Step::Key("b")], true),
                along(&text, &[Step::Key("b"), Step::Place(0)], true),
            ].into_iter().flatten() {
                prop_assert!(shorter.len() < text.len());
                prop_assert_eq!(&serde_json::from_str::<Value>(&shorter).unwrap(), &expected, "{}", shorter);
            }
            let shorter = everywhere(&text).unwrap_or_else(|| text.clone());
            prop_assert_eq!(everywhere(&shorter), None, "{}", shorter);
        }

        #[test]
        fn takes_any_text(text in "[ab\"\\\\{}\\[\\]:, 1]{0,40}") {
            everywhere(&text);
            along(&text, &[Step::Key("a"), Step::Key("b")], true);
        }
    }
}
