//! Fields of forms, and what they suggest.

use maud::Markup;
use maud::html;

/// What fields suggest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suggestions {
    /// Names of events.
    pub events: Vec<String>,
    /// Names of properties.
    pub properties: Vec<String>,
    /// Types of groups, by their index.
    pub groups: Vec<(u8, String)>,
}

/// A list of words to choose from: values and what they are called.
pub fn select<'w>(
    name: &str,
    chosen: &str,
    words: impl IntoIterator<Item = (&'w str, &'w str)>,
) -> Markup {
    html! {
        select name=(name) {
            @for (value, text) in words { option value=(value) selected[value == chosen] { (text) } }
        }
    }
}

/// The same of words that are their own names.
pub(super) fn choice(name: &str, chosen: &str, words: &[&str]) -> Markup {
    html! {
        select name=(name) {
            @for word in words { option value=(word) selected[*word == chosen] { (word.replace('_', " ")) } }
        }
    }
}
