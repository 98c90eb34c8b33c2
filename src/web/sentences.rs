//! Conditions of flags, rules of cohorts and filters of dashboards, as sentences.

use maud::{Markup, html};
use serde_json::Value;

use crate::parts;
use crate::parts::{clipped, is_true, items, text};
use crate::state::filters::OPERATORS;

/// Longest names in a sentence, in characters.
const NAME_MAX_CHARS: usize = 120;

/// Most levels of nested rules of a cohort that are described.
const RULES_DEPTH_MAX: usize = 8;

/// Operators whose wording in a sentence differs from that in a form.
const SPELLED: &[(&str, &str)] = &[
    ("gt", "is greater than"),
    ("gte", "is at least"),
    ("lt", "is less than"),
    ("lte", "is at most"),
    ("in", "is in"),
];

/// The rollout percentage of a condition.
pub fn percent(condition: &Value) -> String {
    match condition.get("rollout_percentage") {
        None | Some(Value::Null) => "100 %".to_owned(),
        Some(part) => format!("{} %", parts::plain(part)),
    }
}

/// Conditions as sentences: those of a flag (`groups`) or the rules of a cohort (`properties`).
pub fn conditions_of(filters: &Value) -> Markup {
    let groups = items(filters, "groups");
    html! {
        @if let Some(rules) = filters.get("properties") { (rules_of(rules)) }
        @else if groups.is_empty() { p { "No release condition: nobody matches." } }
        @else {
            ol {
                @for condition in groups { li { (condition_of(condition)) } }
            }
        }
    }
}

/// One condition of a flag.
pub fn condition_of(condition: &Value) -> Markup {
    let properties = items(condition, "properties");
    html! {
        b { (percent(condition)) } " of "
        @if properties.is_empty() { "everybody" } @else { "those whose " }
        @for (at, filter) in properties.iter().enumerate() {
            @if at > 0 { " and " } (sentence(filter))
        }
        @if let Some(variant) = condition.get("variant").and_then(Value::as_str) { ", always the variant " code { (clipped(variant, NAME_MAX_CHARS)) } }
    }
}

/// A tree of rules, or a list of rules joined by AND.
pub fn rules_of(rules: &Value) -> Markup {
    match rules.as_array() {
        Some(list) => {
            html! { ul { @for (at, rule) in list.iter().enumerate() { li { @if at > 0 { "and " } (rules_of_depth(rule, 1)) } } } }
        }
        None => rules_of_depth(rules, 0),
    }
}

fn rules_of_depth(rules: &Value, depth: usize) -> Markup {
    let values = items(rules, "values");
    if values.is_empty() || depth > RULES_DEPTH_MAX {
        return sentence(rules);
    }
    if let [only] = values {
        return rules_of_depth(only, depth + 1);
    }
    let word = if text(rules, "type").eq_ignore_ascii_case("or") { "or" } else { "and" };
    html! { ul { @for (at, rule) in values.iter().enumerate() { li { @if at > 0 { (word) " " } (rules_of_depth(rule, depth + 1)) } } } }
}

/// A behavioral filter: event, frequency and time range.
fn behavioral(filter: &Value) -> Markup {
    let number = |name: &str| parts::short(filter.get(name).unwrap_or(&Value::Null));
    let often = match text(filter, "operator") {
        "gt" => "more than ",
        "gte" => "at least ",
        "lt" => "less than ",
        "lte" => "at most ",
        _ => "",
    };
    let is_computed =
        matches!(text(filter, "value"), "performed_event" | "performed_event_multiple");
    html! {
        (text(filter, "value").trim_end_matches("_multiple").replace('_', " ")) " " b { (number("key")) }
        @if text(filter, "value") == "performed_event_multiple" { " " (often) (number("operator_value")) " times" }
        @if !text(filter, "explicit_datetime").is_empty() { " since " (clipped(text(filter, "explicit_datetime"), NAME_MAX_CHARS)) }
        @else if !number("time_value").is_empty() { " within " (number("time_value")) " " (clipped(text(filter, "time_interval"), NAME_MAX_CHARS)) "s" }
        @if !items(filter, "event_filters").is_empty() { ", where " @for (at, own) in items(filter, "event_filters").iter().take(20).enumerate() {
            @if at > 0 { " and " } (sentence(own))
        } }
        @if !is_computed { " " span class="quiet" { "(matches nobody: this server does not evaluate it)" } }
    }
}

/// One filter.
pub fn sentence(filter: &Value) -> Markup {
    let operator = text(filter, "operator");
    let word = SPELLED
        .iter()
        .chain(&OPERATORS)
        .find(|(name, _)| *name == operator)
        .map_or_else(|| operator.replace('_', " "), |(_, word)| (*word).to_owned());
    let word = if word.is_empty() { "is".to_owned() } else { word };
    let value = match filter.get("value") {
        Some(Value::Array(all)) => {
            all.iter().take(20).map(parts::short).collect::<Vec<_>>().join(" or ")
        }
        Some(value) => parts::short(value),
        None => String::new(),
    };
    let has_value = !operator.ends_with("set");
    html! {
        @if is_true(filter, "negation") { "not " }
        @match text(filter, "type") {
            "cohort" | "precalculated-cohort" | "static-cohort" => {
                "cohort is " b { (clipped(text(filter, "cohort_name"), NAME_MAX_CHARS)) " (" (value) ")" }
            },
            "behavioral" => {
                (behavioral(filter))
            },
            kind => {
                code { (parts::short(filter.get("key").unwrap_or(&Value::Null))) } @if kind == "group" { " of the group" }
                " " (word) @if has_value { " " b { (value) } }
            },
        }
    }
}
