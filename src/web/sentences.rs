//! Conditions of flags, rules of cohorts and filters of dashboards, as sentences.

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

/// One condition of a flag.
pub fn condition(condition: &Condition) -> Markup {
    html! {
        b { (condition.percent) } " of "
        @if condition.filters.is_empty() { "everybody" } @else { "those whose " }
        @for (at, filter) in condition.filters.iter().enumerate() {
            @if at > 0 { " and " } (sentence(filter))
        }
        @if let Some(variant) = &condition.variant { ", always the variant " code { (clipped(variant, NAME_MAX_CHARS)) } }
    }
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

/// A behavioral filter: event, frequency and time range.
fn behavior(own: &Behavior) -> Markup {
    let (often, count) = &own.times;
    let (within, unit) = &own.within;
    html! {
        (own.kind.trim_end_matches("_multiple").replace('_', " ")) " " b { (own.event) }
        @if !count.is_empty() || !often.is_empty() { " " (often) (count) " times" }
        @if !own.since.is_empty() { " since " (clipped(&own.since, NAME_MAX_CHARS)) }
        @else if !within.is_empty() { " within " (within) " " (clipped(unit, NAME_MAX_CHARS)) "s" }
        @if !own.filters.is_empty() { ", where " @for (at, filter) in own.filters.iter().enumerate() {
            @if at > 0 { " and " } (sentence(filter))
        } }
        @if !own.is_computed() { " " span class="quiet" { "(matches nobody: this server does not evaluate it)" } }
    }
}

/// One filter.
pub fn sentence(filter: &Filter) -> Markup {
    let Filter { of, operator, value, is_not } = filter;
    let word = SPELLED
        .iter()
        .chain(&OPERATORS)
        .find(|(name, _)| name == operator)
        .map_or_else(|| operator.replace('_', " "), |(_, word)| (*word).to_owned());
    let word = if word.is_empty() { "is".to_owned() } else { word };
    let has_value = !operator.ends_with("set");
    html! {
        @if *is_not { "not " }
        @match of {
            Subject::Cohort(name) => { "cohort is " b { (clipped(name, NAME_MAX_CHARS)) " (" (value) ")" } },
            Subject::Behavior(own) => { (behavior(own)) },
            Subject::Property { key, is_of_group } => {
                code { (key) } @if *is_of_group { " of the group" }
                " " (word) @if has_value { " " b { (value) } }
            },
        }
    }
}
