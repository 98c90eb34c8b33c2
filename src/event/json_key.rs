//! Detects that a JSON text has no member of a name, without parsing it: [`KeyFinder`].

use memchr::memmem::Finder;
use memchr::{memchr, memmem};

/// Searches JSON texts for a key. False positives are possible, false negatives are not.
#[derive(Clone, Debug)]
pub struct KeyFinder {
    quoted: Finder<'static>,
}

impl KeyFinder {
    /// `None` for a key that JSON can write in several ways without a backslash, or only with one.
    pub fn new(key: &str) -> Option<Self> {
        let is_plain = |character: char| character >= ' ' && !matches!(character, '"' | '\\');
        let quoted = format!("\"{key}\"");
        key.chars().all(is_plain).then(|| Self { quoted: Finder::new(&quoted).into_owned() })
    }

    /// Whether `text` may have the key, at any depth. A text with a backslash may have any: `"\u0061"` is `"a"`.
    pub fn may_be_in(&self, text: &[u8]) -> bool {
        self.quoted.find(text).is_some() || memchr(b'\\', text).is_some()
    }

    /// Whether `text` may have the key twice, at whatever depths.
    pub fn may_be_twice_in(&self, text: &[u8]) -> bool {
        // In a key without quotes and backslashes, only a letter (by its number) and a slash can be escaped.
        let may_be_escaped =
            |text| memmem::find(text, b"\\u").is_some() || memmem::find(text, b"\\/").is_some();
        if memchr(b'\\', text).is_some() && may_be_escaped(text) {
            return true;
        }
        let found = self.quoted.find(text);
        // The closing quote of one key may be the opening quote of the next one.
        let rest = found.and_then(|at| text.get(at + self.quoted.needle().len() - 1..));
        rest.is_some_and(|rest| self.quoted.find(rest).is_some())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::KeyFinder;

    #[test]
    fn keys_are_found_however_they_are_written() {
        for (key, text, expected) in [
            ("a", r#"{"a":1}"#, true),
            ("a", r#"{"b":{"a":1}}"#, true),
            ("a", r#"{ "a" : 1}"#, true),
            ("a", r#"{"\u0061":1}"#, true),
            ("a", r#"{"ab":1,"b":"ba"}"#, false),
            ("é", r#"{"\u00e9":1}"#, true),
            ("é", r#"{"é":1}"#, true),
            ("a b", r#"{"a b":1}"#, true),
            ("", r#"{"a":1}"#, false),
            ("", r#"{"":1}"#, true),
        ] {
            let finder = KeyFinder::new(key).expect("a plain key");
            assert_eq!(finder.may_be_in(text.as_bytes()), expected, "{key} in {text}");
        }
        for key in ["a\"", "a\\b", "a\nb", "\u{1}"] {
            assert!(KeyFinder::new(key).is_none(), "{key:?}");
        }
    }

    #[test]
    fn a_key_is_found_twice() {
        for (key, text, expected) in [
            ("a", r#"{"a":1,"a":2}"#, true),
            ("a", r#"{"a":1,"b":{"a":2}}"#, true),
            ("a", r#"{"a":1,"\u0061":2}"#, true),
            ("a/b", r#"{"a\/b":1,"a/b":2}"#, true),
            ("a", r#"{"a":"\"b\""}"#, false),
            ("a", r#"{"a":1,"aa":2}"#, false),
            ("a", "{}", false),
        ] {
            let finder = KeyFinder::new(key).expect("a plain key");
            assert_eq!(finder.may_be_twice_in(text.as_bytes()), expected, "{key} in {text}");
        }
    }

    proptest! {
        #![proptest_config(proptest::test_runner::Config::with_failure_persistence(
            proptest::test_runner::FileFailurePersistence::WithSource("regressions"),
        ))]
        #[test]
        fn a_key_that_is_there_is_never_missed(
            object in prop::collection::btree_map("[a-c\"\\\\é\n]{0,3}", 0..9, 0..4),
            key in "[a-c\"\\\\é\n]{0,3}",
        ) {
            let text = Value::from_iter(object.clone()).to_string();
            let found = KeyFinder::new(&key).is_none_or(|finder| finder.may_be_in(text.as_bytes()));
            prop_assert!(found || !object.contains_key(&key), "{} in {}", key, text);
        }
    }
}
