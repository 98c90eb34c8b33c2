//! Form fields, and their suggestions.

use maud::{Markup, html};

use crate::state::filters;
use crate::state::filters::{FILTERS_MAX, Filter, OPERATORS};

/// Suggestions for form fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suggestions {
    /// Names of events.
    pub events: Vec<String>,
    /// Names of properties.
    pub properties: Vec<String>,
    /// Types of groups, by their index.
    pub groups: Vec<(u8, String)>,
}

/// A select box: values and their display names.
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

/// The same for words that are their own display names.
pub(super) fn choice(name: &str, chosen: &str, words: &[&str]) -> Markup {
    html! {
        select name=(name) {
            @for word in words { option value=(word) selected[*word == chosen] { (word.replace('_', " ")) } }
        }
    }
}

/// A number in parentheses, unless it is 0.
pub(super) fn count(number: usize) -> String {
    if number == 0 { String::new() } else { format!(" ({number})") }
}

/// The filters, and an empty one while there are fewer than the maximum.
pub fn filter_rows(own: &[Filter], prefix: &str, known: &Suggestions) -> Markup {
    let rows = (own.len() + 1).min(FILTERS_MAX);
    html! {
        @for number in 1..=rows {
            @let filter = own.get(number - 1);
            (filter_row(filter, &|field| format!("{prefix}f{number}.{field}"), known))
        }
    }
}

fn filter_row(
    filter: Option<&Filter>,
    name: &dyn Fn(&str) -> String,
    known: &Suggestions,
) -> Markup {
    let group = |index: u8| known.groups.iter().find(|(own, _)| *own == index);
    let owner = |owner: &'static str| {
        let text = match owner {
            "event_metadata" => "event's own".to_owned(),
            "person_metadata" => "person's own".to_owned(),
            _ => match owner.strip_prefix("group").and_then(|index| index.parse().ok()) {
                Some(index) => group(index)?.1.clone(),
                None => owner.to_owned(),
            },
        };
        Some((owner, text))
    };
    let owners: Vec<(&str, String)> = filters::OWNERS.into_iter().filter_map(owner).collect();
    let owners = owners.iter().map(|(value, text)| match *value {
        "event" => ("", text.as_str()),
        value => (value, text.as_str()),
    });
    let chosen = filter.map(|own| own.owner).filter(|own| *own != "event").unwrap_or("");
    let operator = filter.map(|own| own.operator).filter(|own| *own != "exact").unwrap_or("");
    let operators = OPERATORS.into_iter().map(|(value, text)| match value {
        "exact" => ("", text),
        value => (value, text),
    });
    let values = filter.map(|own| own.values.as_slice()).unwrap_or_default();
    html! {
        div class="row filter" {
            label { span class="unseen" { "Of" } (select(&name("of"), chosen, owners)) }
            label {
                span class="unseen" { "Property" }
                input name=(name("key")) list="properties" placeholder="add a filter: property" autocomplete="off"
                    value=[filter.map(|own| &own.key)];
            }
            label { span class="unseen" { "Operator" } (select(&name("op"), operator, operators)) }
            @for value in values {
                label { span class="unseen" { "Value" } input name=(name("value")) value=(value) autocomplete="off"; }
            }
            label {
                span class="unseen" { "Value" }
                input name=(name("value")) autocomplete="off" placeholder=(if values.is_empty() { "value" } else { "or" });
            }
        }
    }
}
