//! Converts `$elements` of old SDKs to the chain that current ones send: `tag.class:key="value"...`,
//! one for each element, innermost first, separated by `;`.
//!
//! Source: `elements-chain.ts` of PostHog's ingestion, whose chains the product's filters read.
//! Values of types at which it would fail are left out, or written as JSON.

use std::cmp::Ordering;

use serde_json::{Map, Value};

/// Limit of an element's text, in characters.
const TEXT_MAX_CHARS: usize = 400;

/// Limit of a link, in characters. The attribute itself is kept in full.
const HREF_MAX_CHARS: usize = 2048;

/// ASCII that is neither letter nor digit, in the order of the Unicode collation, by which the
/// attributes are sorted; digits and letters come after it.
const PUNCTUATION: &str = "_-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$";

/// The chain of an array of elements; items that are not objects are left out.
pub(super) fn chain(elements: &[Value]) -> String {
    let elements = elements.iter().filter_map(Value::as_object);
    elements.map(element).collect::<Vec<_>>().join(";")
}

fn element(element: &Map<String, Value>) -> String {
    let mut out = element.get("tag_name").and_then(truthy).unwrap_or_default();
    for class in classes(element) {
        out.push('.');
        out.extend(class.chars().filter(|character| *character != '"'));
    }
    let cut = |key: &str, chars: usize| {
        element.get(key).and_then(truthy).map(|text| text.chars().take(chars).collect::<String>())
    };
    let number = |key: &str| element.get(key).and_then(text).unwrap_or_else(|| "0".to_owned());
    let mut attributes: Vec<(&str, String)> = Vec::new();
    attributes.extend(cut("$el_text", TEXT_MAX_CHARS).map(|text| ("text", text)));
    attributes.push(("nth-child", number("nth_child")));
    attributes.push(("nth-of-type", number("nth_of_type")));
    attributes.extend(cut("attr__href", HREF_MAX_CHARS).map(|href| ("href", href)));
    attributes.extend(element.get("attr__id").and_then(truthy).map(|id| ("attr_id", id)));
    let own = element.iter().filter(|(key, _)| key.starts_with("attr__"));
    attributes.extend(own.filter_map(|(key, value)| match value {
        // Sorting the classes sorts the attribute too.
        Value::Array(_) if key == "attr__class" => Some((key.as_str(), classes(element).join(","))),
        _ => Some((key.as_str(), text(value)?)),
    }));
    attributes.sort_by(|(left, _), (right, _)| collate(left, right));
    out.push(':');
    for (key, value) in attributes {
        out.push_str(&key.replace('"', "\\\""));
        out.push_str("=\"");
        out.push_str(&value.replace('"', "\\\""));
        out.push('"');
    }
    out
}

/// The classes of an element, sorted: from an array, or from one string separated by spaces.
fn classes(element: &Map<String, Value>) -> Vec<String> {
    let mut classes = match element.get("attr__class") {
        Some(Value::Array(classes)) => classes.iter().filter_map(text).collect(),
        Some(value) => truthy(value).map_or_else(Vec::new, |classes| {
            classes.split(' ').map(str::to_owned).collect::<Vec<_>>()
        }),
        None => Vec::new(),
    };
    classes.sort();
    classes
}

/// A value as JavaScript converts it to a string, except for objects; `None` for null.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Array(items) => {
            let items = items.iter().map(|item| text(item).unwrap_or_default());
            Some(items.collect::<Vec<_>>().join(","))
        }
        other => Some(other.to_string()),
    }
}

/// A value as a string, if it is truthy in JavaScript.
fn truthy(value: &Value) -> Option<String> {
    let is_falsy = match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        _ => false,
    };
    text(value).filter(|_| !is_falsy)
}

/// Collation of names: punctuation, digits, letters without regard to case.
fn collate(left: &str, right: &str) -> Ordering {
    let weight = |character: char| match PUNCTUATION.find(character) {
        Some(place) => (0, u32::try_from(place).unwrap_or(u32::MAX)),
        None => (1, u32::from(character.to_ascii_lowercase())),
    };
    let alike = left.chars().map(weight).cmp(right.chars().map(weight));
    // Among equal names lower case is first.
    alike.then_with(|| right.cmp(left))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::chain;

    /// The format of PostHog's ingestion: classes sorted, attributes sorted, positions always.
    #[test]
    fn elements_become_the_chain_of_the_original() {
        for (elements, expected) in [
            (json!([]), ""),
            (json!([{}]), ":nth-child=\"0\"nth-of-type=\"0\""),
            (
                json!([{"tag_name": "a", "$el_text": "Go", "attr__href": "/x", "nth_child": 2,
                        "nth_of_type": 1, "attr__class": "b a", "attr__id": "i"}]),
                "a.a.b:attr__class=\"b a\"attr__href=\"/x\"attr__id=\"i\"attr_id=\"i\"href=\"/x\"\
                 nth-child=\"2\"nth-of-type=\"1\"text=\"Go\"",
            ),
            (
                json!([{"tag_name": "button", "attr__class": ["two", "on\"e"]}, {"tag_name": "div"}]),
                "button.one.two:attr__class=\"on\\\"e,two\"nth-child=\"0\"nth-of-type=\"0\";\
                 div:nth-child=\"0\"nth-of-type=\"0\"",
            ),
            (
                json!([{"tag_name": "p", "attr__data-x": "say \"hi\"", "attr__aria": true,
                        "attr__none": null, "other": "left out"}, 7, null]),
                "p:attr__aria=\"true\"attr__data-x=\"say \\\"hi\\\"\"nth-child=\"0\"nth-of-type=\"0\"",
            ),
            (
                json!([{"attr__class": "a  b", "attr__B": "1", "attr__a": "2", "attr__b": "3"}]),
                "..a.b:attr__a=\"2\"attr__b=\"3\"attr__B=\"1\"attr__class=\"a  b\"nth-child=\"0\"nth-of-type=\"0\"",
            ),
        ] {
            let items = elements.as_array().map(Vec::as_slice).unwrap_or_default();
            assert_eq!(chain(items), expected, "{elements}");
        }
    }

    #[test]
    fn texts_and_links_are_cut() {
        let (text, href) = ("\u{e9}".repeat(401), "h".repeat(2049));
        let elements = [json!({"$el_text": text, "attr__href": href})];
        let Value::Object(_) = &elements[0] else { panic!("an object") };
        let chain = chain(&elements);
        assert!(chain.contains(&format!("text=\"{}\"", "\u{e9}".repeat(400))));
        assert!(chain.contains(&format!("href=\"{}\"nth", "h".repeat(2048))));
        assert!(chain.contains(&format!("attr__href=\"{href}\"")));
    }
}
