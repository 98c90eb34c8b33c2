//! Reads the JSON nodes in which clients describe insights: [`Node`], with errors that name the field.

use serde_json::{Map, Value};

/// Why a node is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct NodeError {
    /// The field, with dots between levels.
    pub field: String,
    /// What is wrong with it.
    pub detail: String,
}

/// An object, and where it stands in the request.
#[derive(Clone, Copy, Debug)]
pub struct Node<'v> {
    fields: Option<&'v Map<String, Value>>,
    path: &'v str,
}

impl<'v> Node<'v> {
    /// The object `value`, which stands at `path`. Null and an absent value are an empty one.
    pub fn new(value: Option<&'v Value>, path: &'v str) -> Result<Self, NodeError> {
        match value {
            None | Some(Value::Null) => Ok(Self { fields: None, path }),
            Some(Value::Object(fields)) => Ok(Self { fields: Some(fields), path }),
            Some(_) => {
                Err(NodeError { field: path.to_owned(), detail: "Expected an object.".to_owned() })
            }
        }
    }

    /// The refusal of one of its fields.
    pub fn refuse(&self, name: &str, detail: impl Into<String>) -> NodeError {
        let field =
            if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        NodeError { field, detail: detail.into() }
    }

    /// A field; `None` if it is absent or null.
    pub fn value(&self, name: &str) -> Option<&'v Value> {
        self.fields?.get(name).filter(|value| !value.is_null())
    }

    /// A text; an empty one counts as absent.
    pub fn text(&self, name: &str) -> Result<Option<&'v str>, NodeError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
            Some(_) => Err(self.refuse(name, "Expected a text.")),
        }
    }

    /// A truth value; absent is false.
    pub fn truth(&self, name: &str) -> Result<bool, NodeError> {
        match self.value(name) {
            None => Ok(false),
            Some(Value::Bool(truth)) => Ok(*truth),
            Some(_) => Err(self.refuse(name, "Expected true or false.")),
        }
    }

    /// A whole number that is not negative, or its text.
    pub fn number(&self, name: &str) -> Result<Option<usize>, NodeError> {
        let number = match self.value(name) {
            None => return Ok(None),
            Some(Value::Number(number)) => {
                number.as_u64().and_then(|number| usize::try_from(number).ok())
            }
            Some(Value::String(text)) => text.parse().ok(),
            Some(_) => None,
        };
        number.map(Some).ok_or_else(|| self.refuse(name, "Expected a whole number."))
    }

    /// A list; absent is empty.
    pub fn list(&self, name: &str) -> Result<&'v [Value], NodeError> {
        match self.value(name) {
            None => Ok(&[]),
            Some(Value::Array(list)) => Ok(list),
            Some(_) => Err(self.refuse(name, "Expected a list.")),
        }
    }

    /// Refuses fields that are given and would change the answer, but are not available.
    ///
    /// # Errors
    ///
    /// The first of them that is given with another value than false, null or an empty one.
    pub fn without(&self, names: &[&str]) -> Result<(), NodeError> {
        let is_given = |name: &&&str| {
            self.value(name).is_some_and(|value| match value {
                Value::Bool(truth) => *truth,
                Value::String(text) => !text.is_empty(),
                Value::Array(list) => !list.is_empty(),
                Value::Object(fields) => !fields.is_empty(),
                _ => true,
            })
        };
        match names.iter().find(is_given) {
            Some(name) => Err(self.refuse(name, format!("{name} is not available."))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Node;

    #[test]
    fn errors_name_the_field() {
        let value = json!({"text": 1, "truth": "x", "number": -1, "list": {}, "sampling": 0.1,
                           "empty": "", "none": null, "off": false});
        let node = Node::new(Some(&value), "source").unwrap();
        let fields = [
            node.text("text").unwrap_err().field,
            node.truth("truth").unwrap_err().field,
            node.number("number").unwrap_err().field,
            node.list("list").unwrap_err().field,
            node.without(&["none", "off", "empty", "absent", "sampling"]).unwrap_err().field,
            Node::new(Some(&json!(1)), "source.dateRange").unwrap_err().field,
        ];
        let expected = ["text", "truth", "number", "list", "sampling", "dateRange"];
        assert_eq!(fields, expected.map(|name| format!("source.{name}")));
        assert_eq!(node.text("empty"), Ok(None));
        assert_eq!(node.list("none").unwrap().len(), 0);
        assert_eq!(node.number("absent"), Ok(None));
        assert!(!Node::new(None, "").unwrap().truth("any").unwrap());
    }
}
