//! Conditions of flags, rules of cohorts and filters of dashboards, as sentences: on pages, and as plain text for
//! assistants ([`conditions_text`]). Both are written from the same parts.

use maud::{Markup, html};

use crate::parts::clipped;
use crate::state::filters::OPERATORS;
use crate::state::rules::{Behavior, Condition, Conditions, Filter, Rule, Subject};

/// Longest names in a sentence, in characters.
const NAME_MAX_CHARS: usize = 120;

/// Operators whose wording in a sentence differs from that in a form.
const SPELLED: &[(&str, &str)] = &[
    ("gt", "is greater than"),
    ("gte", "is at least"),
    ("lt", "is less than"),
    ("lte", "is at most"),
    ("in", "is in"),
];

/// A part of a sentence.
enum Part {
    /// Words between the others.
    Words(String),
    /// The name of a property or a variant.
    Name(String),
    /// A value.
    Value(String),
    /// A remark.
    Remark(&'static str),
}

impl Part {
    fn words(text: impl Into<String>) -> Self {
        Self::Words(text.into())
    }
}

/// Parts as a page shows them.
fn drawn(parts: &[Part]) -> Markup {
    html! {
        @for part in parts {
            @match part {
                Part::Words(text) => (text),
                Part::Name(text) => code { (text) },
                Part::Value(text) => b { (text) },
                Part::Remark(text) => span class="quiet" { (text) },
            }
        }
    }
}

/// Parts as plain text.
fn plain(parts: &[Part]) -> String {
    let text = |part: &Part| match part {
        Part::Words(text) | Part::Name(text) | Part::Value(text) => text.clone(),
        Part::Remark(text) => (*text).to_owned(),
    };
    parts.iter().map(text).collect()
}

/// Conditions as sentences.
pub fn conditions(conditions: &Conditions) -> Markup {
    html! {
        @match conditions {
            Conditions::OfCohort(rule) => (self::rule(rule)),
            Conditions::OfFlag(all) if all.is_empty() => p { "No release condition: nobody matches." },
            Conditions::OfFlag(all) => ol { @for own in all { li { (condition(own)) } } },
        }
    }
}

/// Conditions as plain text; "nobody" without any.
pub fn conditions_text(conditions: &Conditions) -> String {
    match conditions {
        Conditions::OfCohort(rule) => rule_text(rule),
        Conditions::OfFlag(all) if all.is_empty() => "nobody".to_owned(),
        Conditions::OfFlag(all) => {
            all.iter().map(|own| plain(&of_condition(own))).collect::<Vec<_>>().join("; ")
        }
    }
}

/// One condition of a flag.
pub fn condition(condition: &Condition) -> Markup {
    drawn(&of_condition(condition))
}

fn of_condition(condition: &Condition) -> Vec<Part> {
    let mut parts = vec![Part::Value(condition.percent.clone()), Part::words(" of ")];
    parts.push(Part::words(match condition.filters.is_empty() {
        true => "everybody",
        false => "those whose ",
    }));
    parts.extend(all_of(&condition.filters));
    if let Some(variant) = &condition.variant {
        let name = Part::Name(clipped(variant, NAME_MAX_CHARS));
        parts.extend([Part::words(", always the variant "), name]);
    }
    parts
}

/// A tree of rules.
pub fn rule(rule: &Rule) -> Markup {
    match rule {
        Rule::Filter(filter) => sentence(filter),
        Rule::Group { is_any, rules } => {
            let word = if *is_any { "or" } else { "and" };
            html! { ul { @for (at, own) in rules.iter().enumerate() { li { @if at > 0 { (word) " " } (self::rule(own)) } } } }
        }
    }
}

/// The same as plain text.
fn rule_text(rule: &Rule) -> String {
    match rule {
        Rule::Filter(filter) => plain(&of_filter(filter)),
        Rule::Group { is_any, rules } => {
            let word = if *is_any { " or " } else { " and " };
            format!("({})", rules.iter().map(rule_text).collect::<Vec<_>>().join(word))
        }
    }
}

/// A behavioral filter: event, frequency and time range.
fn of_behavior(own: &Behavior) -> Vec<Part> {
    let (often, count) = &own.times;
    let (within, unit) = &own.within;
    let kind = own.kind.trim_end_matches("_multiple").replace('_', " ");
    let mut parts = vec![Part::Words(format!("{kind} ")), Part::Value(own.event.clone())];
    if !count.is_empty() || !often.is_empty() {
        parts.push(Part::Words(format!(" {often}{count} times")));
    }
    if !own.since.is_empty() {
        parts.push(Part::Words(format!(" since {}", clipped(&own.since, NAME_MAX_CHARS))));
    } else if !within.is_empty() {
        let unit = clipped(unit, NAME_MAX_CHARS);
        parts.push(Part::Words(format!(" within {within} {unit}s")));
    }
    if !own.filters.is_empty() {
        parts.push(Part::words(", where "));
        parts.extend(all_of(&own.filters));
    }
    if !own.is_computed() {
        let remark = "(matches nobody: this server does not evaluate it)";
        parts.extend([Part::words(" "), Part::Remark(remark)]);
    }
    parts
}

/// One filter.
pub fn sentence(filter: &Filter) -> Markup {
    drawn(&of_filter(filter))
}

/// Filters, all of which have to match.
fn all_of(filters: &[Filter]) -> Vec<Part> {
    let mut parts = Vec::new();
    for (at, filter) in filters.iter().enumerate() {
        if at > 0 {
            parts.push(Part::words(" and "));
        }
        parts.extend(of_filter(filter));
    }
    parts
}

fn of_filter(filter: &Filter) -> Vec<Part> {
    let Filter { of, operator, value, is_not } = filter;
    let word = SPELLED
        .iter()
        .chain(&OPERATORS)
        .find(|(name, _)| name == operator)
        .map_or_else(|| operator.replace('_', " "), |(_, word)| (*word).to_owned());
    let word = if word.is_empty() { "is".to_owned() } else { word };
    let has_value = !operator.ends_with("set");
    let mut parts = Vec::new();
    if *is_not {
        parts.push(Part::words("not "));
    }
    match of {
        Subject::Cohort(name) => {
            let name = clipped(name, NAME_MAX_CHARS);
            parts.extend([Part::words("cohort is "), Part::Value(format!("{name} ({value})"))]);
        }
        Subject::Behavior(own) => parts.extend(of_behavior(own)),
        Subject::Property { key, is_of_group } => {
            let of_group = if *is_of_group { " of the group" } else { "" };
            let words = Part::Words(format!("{of_group} {word}"));
            parts.extend([Part::Name(key.clone()), words]);
            if has_value {
                parts.extend([Part::words(" "), Part::Value(value.clone())]);
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{condition, conditions_text};
    use crate::state::flag_filters::FlagFilters;
    use crate::state::rules::Condition;

    #[test]
    fn conditions_are_the_same_on_pages_and_as_text() {
        let cohort = json!({"key": "id", "type": "cohort", "value": 7, "cohort_name": "Staff", "negation": true});
        let group = json!({"key": "size", "type": "group", "operator": "gte", "value": [50]});
        let set = json!({"key": "email", "type": "person", "operator": "is_set"});
        let filters = json!({"groups": [
            {"properties": [cohort, group], "rollout_percentage": 20, "variant": "blue"},
            {"properties": [set]},
            {},
        ]});
        let FlagFilters { conditions, .. } = FlagFilters::of(&filters);
        assert_eq!(
            conditions_text(&conditions),
            "20 % of those whose not cohort is Staff (7) and size of the group is at least 50, always the variant blue; \
             100 % of those whose email is set; 100 % of everybody"
        );
        assert_eq!(
            condition(&Condition::of(&filters["groups"][0])).into_string(),
            "<b>20 %</b> of those whose not cohort is <b>Staff (7)</b> and <code>size</code> of the group is at least \
             <b>50</b>, always the variant <code>blue</code>"
        );
        let none = FlagFilters::of(&json!({"groups": []}));
        assert_eq!(conditions_text(&none.conditions), "nobody");
    }
}
