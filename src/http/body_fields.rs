//! The fields that the body of a request may have: [`BodyFields`]. A field that is neither read nor part of the
//! response is refused, because the sender expects an effect of it.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::response::{Attr, Problem};
use weir_api::node::nearest::hint;
use weir_base::error::Kind;

/// Fields that PostHog's clients send and that have no effect here, by the reason.
const IGNORED: [(&str, &[&str]); 4] = [
    ("is the key of the request, and read before", &["personal_api_key"]),
    ("says in which folder of a user interface a new thing is put", &["_create_in_folder"]),
    (
        "says in which part of a user interface a thing was made",
        &["creation_context", "limit_context"],
    ),
    (
        "asks for a dashboard about a flag, of which Weir makes none",
        &["_should_create_usage_dashboard"],
    ),
];

/// Fields that PostHog's clients send empty when they do not use them.
const EMPTY: [&str; 1] = ["use_template"];

/// The fields of the bodies of one endpoint.
#[derive(Debug)]
pub struct BodyFields {
    /// Fields that are read.
    read: Vec<String>,
    /// Fields of the response, which clients send back along with their changes.
    answered: BTreeSet<String>,
}

impl BodyFields {
    /// The fields with these names.
    pub(super) fn new(read: BTreeSet<String>, answered: BTreeSet<String>) -> Self {
        Self { read: read.into_iter().collect(), answered }
    }

    /// Refuses a body that has another field.
    ///
    /// # Errors
    ///
    /// 400 with the name of the field and the most similar known one.
    pub(super) fn check(&self, body: &Map<String, Value>) -> Result<(), Problem> {
        let is_known = |name: &str| {
            self.read.iter().any(|known| known == name)
                || self.answered.contains(name)
                || IGNORED.iter().any(|(_, names)| names.contains(&name))
        };
        let is_empty = |name: &str, value: &Value| {
            EMPTY.contains(&name) && (value.is_null() || value.as_str() == Some(""))
        };
        let mut sent = body.iter();
        match sent.find(|(name, value)| !is_known(name) && !is_empty(name, value)) {
            None => Ok(()),
            Some((name, _)) => {
                let name: String = name.chars().take(100).collect();
                let detail = format!("Unknown field \"{name}\".{}", hint(&name, &self.read));
                let problem = Problem::new(Kind::Invalid, "invalid_input", detail);
                Err(problem.with_attr(Attr::Name(name.into())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::BodyFields;

    #[test]
    fn what_is_neither_read_nor_answered_is_refused() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let fields =
            BodyFields::new(names(&["name", "tags"]), names(&["id", "name", "created_by"]));
        for (body, refused) in [
            (json!({}), None),
            (json!({"name": "a", "tags": []}), None),
            (json!({"name": "a", "id": 7, "created_by": {"id": 1}}), None),
            (json!({"name": "a", "_create_in_folder": "x", "use_template": ""}), None),
            (json!({"use_template": "web"}), Some(("use_template", "Known are name, tags."))),
            (json!({"nmae": "a"}), Some(("nmae", "Did you mean \"name\"?"))),
            (json!({"Tag": null}), Some(("Tag", "Did you mean \"tags\"?"))),
            (json!({"colour": 1}), Some(("colour", "Known are name, tags."))),
        ] {
            let Value::Object(sent) = &body else { panic!("an object") };
            let problem = fields.check(sent).err().map(|problem| format!("{problem:?}"));
            match (problem, refused) {
                (None, None) => {}
                (Some(problem), Some((name, hint))) => {
                    assert!(problem.contains(&format!("Name(\"{name}\")")), "{body}: {problem}");
                    let hint = hint.replace('"', "\\\"");
                    assert!(problem.contains(&hint), "{body}: {problem}");
                }
                (found, _) => panic!("{body}: {found:?}"),
            }
        }
    }
}
