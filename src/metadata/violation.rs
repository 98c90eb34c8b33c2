//! A broken rule about values: [`Violation`].

/// A broken rule, in the words of the API's error body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The code that programs match on, such as `unique`.
    pub code: &'static str,
    /// The text for people.
    pub detail: String,
    /// The field with the violation, if it is one.
    pub attr: Option<&'static str>,
}

impl Violation {
    /// A violation of code `invalid_input` without a field.
    pub fn general(detail: impl Into<String>) -> Self {
        Self { code: "invalid_input", detail: detail.into(), attr: None }
    }

    /// A required text is blank.
    pub fn blank(attr: &'static str) -> Self {
        Self { code: "blank", detail: "This field may not be blank.".to_owned(), attr: Some(attr) }
    }

    /// A text that is too long.
    pub fn too_long(attr: &'static str, chars_max: usize) -> Self {
        let detail = format!("Ensure this field has no more than {chars_max} characters.");
        Self { code: "max_length", detail, attr: Some(attr) }
    }

    /// A value of a unique field that another object has.
    pub(super) fn unique(attr: &'static str, detail: impl Into<String>) -> Self {
        Self { code: "unique", detail: detail.into(), attr: Some(attr) }
    }

    /// A value that is not among the allowed ones.
    pub(super) fn choice(attr: &'static str, detail: impl Into<String>) -> Self {
        Self { code: "invalid_choice", detail: detail.into(), attr: Some(attr) }
    }

    /// The id of an object that does not exist.
    pub(super) fn missing(attr: &'static str, id: impl std::fmt::Display) -> Self {
        let detail = format!("Invalid pk \"{id}\" - object does not exist.");
        Self { code: "does_not_exist", detail, attr: Some(attr) }
    }

    /// A violation of code `invalid_input` in `filters`.
    pub(super) fn filters(detail: impl Into<String>) -> Self {
        Self::coded("invalid_input", detail)
    }

    /// A violation in `filters`.
    pub(super) fn coded(code: &'static str, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), attr: Some("filters") }
    }
}
