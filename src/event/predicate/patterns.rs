//! Checks the patterns in filters as they are sent and stored, before any filter is parsed: [`check`].

use serde_json::{Map, Value};

use crate::pattern::{PatternError, Size, check_together};
use crate::predicate::text_of;

/// The states of all patterns in a JSON value together, wherever in it filters are. A pattern that is refused counts 0:
/// it is never compiled.
pub fn states_in(json: &Value) -> usize {
    let mut states = 0_usize;
    each(json, |pattern| {
        if let Ok(size) = Size::of(&text_of(pattern)) {
            states = states.saturating_add(size.states);
        }
    });
    states
}

/// The first reason why one of the patterns in a JSON value is beyond a limit. One that is not a regular expression at
/// all gives no reason.
pub fn large_in(json: &Value) -> Option<PatternError> {
    let mut large = None;
    each(json, |pattern| match Size::of(&text_of(pattern)) {
        Ok(_) | Err(PatternError::Invalid) => {}
        Err(error) => large = large.or(Some(error)),
    });
    large
}

/// Calls `of` with each pattern in a JSON value.
fn each(json: &Value, mut of: impl FnMut(&Value)) {
    let mut waiting = vec![json];
    while let Some(json) = waiting.pop() {
        match json {
            Value::Array(items) => waiting.extend(items),
            Value::Object(members) => {
                patterns(members).for_each(&mut of);
                waiting.extend(members.values());
            }
            _ => {}
        }
    }
}

/// Checks all patterns in a JSON value together: those of a request, a flag or a cohort.
///
/// # Errors
///
/// [`PatternError::TooMany`].
pub fn check(json: &Value) -> Result<(), PatternError> {
    check_together([states_in(json)])
}

/// The patterns of an object: the value of a filter, or of the oldest form of one.
fn patterns(members: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let operator = members.get("operator").and_then(Value::as_str);
    let own = members.get("value").filter(|_| matches!(operator, Some("regex" | "not_regex")));
    let is_oldest = |name: &str| name.ends_with("__regex") || name.ends_with("__not_regex");
    let oldest = members.iter().filter(move |(name, _)| is_oldest(name)).map(|(_, value)| value);
    own.into_iter().chain(oldest)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{check, states_in};
    use crate::pattern::PatternError;

    #[test]
    fn patterns_count_together_wherever_they_are() {
        let pattern = |value: &str| json!({"key": "a", "operator": "regex", "value": value});
        let one = states_in(&pattern(r"\w{50}"));
        assert!(one > 30_000, "{one}");
        for (json, count) in [
            (json!([]), 0),
            (json!({"key": "a", "operator": "icontains", "value": r"\w{50}"}), 0),
            (json!([pattern(r"\w{50}"), {"values": [pattern(r"\w{50}")]}]), 2),
            (json!({"series": [{"properties": {"a__regex": r"\w{50}"}}]}), 1),
            // Beyond the limit of one.
            (pattern(r"\w{5000}"), 0),
            (pattern("("), 0),
        ] {
            assert_eq!(states_in(&json), count * one, "{json}");
        }
        assert_eq!(super::large_in(&json!([pattern("("), pattern(r"\w")])), None);
        let large = super::large_in(&json!({"values": [{"event_filters": [pattern(r"\w{999}")]}]}));
        assert!(matches!(large, Some(PatternError::TooLarge(_))), "{large:?}");
        let many = |count: usize| Value::Array(vec![pattern(r"\w{50}"); count]);
        assert_eq!(check(&many(5)), Ok(()));
        assert!(matches!(check(&many(6)), Err(PatternError::TooMany(_))));
    }
}
