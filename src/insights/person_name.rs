//! The display name of a person: the first of a list of properties that it has.

use serde_json::{Map, Value};

/// The default properties, in order of preference.
const USUAL: [&str; 8] =
    ["email", "Email", "$email", "name", "Name", "username", "Username", "UserName"];

/// The properties of a project, where `own` are those that it has set.
pub fn keys(own: Option<&[String]>) -> Vec<&str> {
    own.map_or_else(|| USUAL.to_vec(), |own| own.iter().map(String::as_str).collect())
}

/// The display name of a person with these properties; `None` if none is usable.
pub fn of(own: Option<&[String]>, properties: &Map<String, Value>) -> Option<String> {
    let text = |key: &str| match properties.get(key) {
        Some(Value::String(text)) if !text.is_empty() => Some(text.clone()),
        Some(Value::Number(number)) if number.as_f64() != Some(0.0) => Some(number.to_string()),
        _ => None,
    };
    keys(own).into_iter().find_map(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::of;

    #[test]
    fn names_are_texts_and_numbers_that_are_there() {
        let own = ["nick".to_owned(), "number".to_owned()];
        for (properties, usual, named) in [
            (json!({}), None, None),
            (json!({"email": "a@x", "name": "A", "nick": "n"}), Some("a@x"), Some("n")),
            (json!({"email": "", "name": "A", "number": 7}), Some("A"), Some("7")),
            (json!({"email": true, "username": "u", "number": 0}), Some("u"), None),
        ] {
            let properties = properties.as_object().unwrap();
            assert_eq!(of(None, properties).as_deref(), usual, "{properties:?}");
            assert_eq!(of(Some(&own), properties).as_deref(), named, "{properties:?}");
        }
    }
}
