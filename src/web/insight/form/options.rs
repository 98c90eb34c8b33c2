//! The form fields that only one kind of insight has.

use maud::{Markup, html};

use crate::insight::form::fields::{Suggestions, choice, count, filter_rows, select};
use crate::state::breakdown;
use crate::state::breakdown::{Breakdown, KEYS_MAX};
use crate::state::exclusion::EXCLUSIONS_MAX;
use crate::state::insight::{
    ATTRIBUTIONS, FUNNELS_SHOWN, ORDERS, Options, PATH_EVENTS, Question, RETENTION_SHOWN,
    RETENTION_TYPES, STATUSES, TRENDS_SHOWN, WINDOW_UNITS,
};

/// Comparison periods that forms offer.
const COMPARED: [(&str, &str); 6] = [
    ("", "nothing"),
    ("previous", "previous period"),
    ("-1d", "a day before"),
    ("-1w", "a week before"),
    ("-1m", "a month before"),
    ("-1y", "a year before"),
];

/// The fields.
pub(super) fn fields(question: &Question, known: &Suggestions) -> Markup {
    match &question.options {
        Options::Trends { breakdown, .. } => html! {
            (split(breakdown, known)) (trends(&question.options))
        },
        Options::Funnel { breakdown, .. } => html! {
            (funnel(&question.options)) (exclusions(question, known)) (split(breakdown, known))
        },
        Options::Retention { .. } => retention(&question.options),
        Options::Paths { .. } => paths(&question.options),
        Options::Lifecycle { only } => html! {
            div class="row" { (checks("Show only", "only", &STATUSES, only)) }
        },
        Options::Stickiness { .. } => stickiness(&question.options),
    }
}

fn number(name: &str, text: &str, value: Option<impl std::fmt::Display>, usual: &str) -> Markup {
    html! {
        label {
            (text) " "
            input name=(name) inputmode="numeric" size="5" placeholder=(usual) autocomplete="off"
                value=[value.map(|value| value.to_string())];
        }
    }
}

fn field(name: &str, text: &str, value: Option<&String>, hint: &str) -> Markup {
    html! {
        label { (text) " " input name=(name) value=[value] placeholder=(hint) autocomplete="off" spellcheck="false"; }
    }
}

fn truth(name: &str, text: &str, value: bool) -> Markup {
    html! {
        label class="check" { input type="checkbox" name=(name) value="1" checked[value]; " " (text) }
    }
}

fn checks(title: &str, name: &str, words: &[&'static str], chosen: &[&'static str]) -> Markup {
    html! {
        fieldset class="row" {
            legend { (title) }
            @for word in words {
                label class="check" {
                    input type="checkbox" name=(name) value=(word) checked[chosen.contains(word)];
                    " " (word.replace('_', " "))
                }
            }
        }
    }
}

/// All values of a list, and an empty one.
fn list(name: &str, text: &str, values: &[String], hint: &str) -> Markup {
    html! {
        @for value in values { (field(name, text, Some(value), "")) }
        (field(name, text, None, hint))
    }
}

fn compared(compare: Option<&str>) -> Markup {
    let chosen = compare.unwrap_or("");
    let other = COMPARED.iter().all(|(value, _)| *value != chosen).then_some((chosen, chosen));
    html! { label { "Compare with " (select("compare", chosen, COMPARED.into_iter().chain(other))) } }
}

fn split(own: &Breakdown, known: &Suggestions) -> Markup {
    let rows = (own.keys.len() + 1).min(KEYS_MAX);
    let owner = |owner: &'static str| {
        let text = match owner.strip_prefix("group").and_then(|index| index.parse::<u8>().ok()) {
            Some(index) => known.groups.iter().find(|(own, _)| *own == index)?.1.clone(),
            None => owner.to_owned(),
        };
        Some((if owner == "event" { "" } else { owner }, text))
    };
    let owners: Vec<(&str, String)> = breakdown::OWNERS.into_iter().filter_map(owner).collect();
    html! {
        div class="row" {
            @for number in 1..=rows {
                @let key = own.keys.get(number - 1);
                @let chosen = key.map(|(owner, _)| *owner).filter(|own| *own != "event").unwrap_or("");
                label {
                    @if number == 1 { "Split by " } @else { "and " }
                    (select(&format!("by{number}.of"), chosen, owners.iter().map(|(value, text)| (*value, text.as_str()))))
                }
                label {
                    span class="unseen" { "Property" }
                    input name={ "by" (number) ".key" } list="properties" autocomplete="off" placeholder="property"
                        value=[key.map(|(_, key)| key)];
                }
            }
            @if !own.keys.is_empty() {
                (number_of("by.limit", "Values", own.limit))
                (truth("by.hide_other", "Hide all others", own.is_other_hidden))
            }
        }
    }
}

fn number_of(name: &str, text: &str, value: Option<u16>) -> Markup {
    number(name, text, value, "25")
}

fn trends(options: &Options) -> Markup {
    let Options::Trends { compare, shown, formulas, smoothing, .. } = options else {
        return html! {};
    };
    html! {
        div class="row" {
            label { "Show as " (choice("show", shown, &TRENDS_SHOWN)) }
            (compared(compare.as_deref()))
            (list("formula", "Formula", formulas, "A / B"))
            (number("smoothing", "Mean of", *smoothing, "1"))
        }
    }
}

fn funnel(options: &Options) -> Markup {
    let Options::Funnel { breakdown, attribution, shown, order, window, window_unit, .. } = options
    else {
        return html! {};
    };
    html! {
        div class="row" {
            label { "Show as " (choice("show", shown, &FUNNELS_SHOWN)) }
            label { "Order " (choice("order", order, &ORDERS)) }
            (number("window", "Within", *window, "14"))
            label { span class="unseen" { "Unit" } (choice("window.unit", window_unit, &WINDOW_UNITS)) }
            @if !breakdown.keys.is_empty() {
                label { "Value of " (choice("attribution", attribution, &ATTRIBUTIONS)) }
            }
        }
    }
}

/// The exclusions of a funnel, and an empty one while there are fewer than the maximum.
fn exclusions(question: &Question, known: &Suggestions) -> Markup {
    let Options::Funnel { exclusions, .. } = &question.options else { return html! {} };
    let rows = (exclusions.len() + 1).min(EXCLUSIONS_MAX);
    let last = question.series.len().max(2).to_string();
    html! {
        details class="filters" open[!exclusions.is_empty()] {
            summary { "Without those who do something in between" (count(exclusions.len())) }
            @for number in 1..=rows {
                @let own = exclusions.get(number - 1);
                @let filters = own.map(|own| own.filters.as_slice()).unwrap_or_default();
                div class="row one-series" {
                    label {
                        span class="unseen" { "Event that excludes" }
                        input name={ "not" (number) } list="events" autocomplete="off" spellcheck="false"
                            placeholder="add an event" value=[own.map(|own| own.event.text())];
                    }
                    (self::number(&format!("not{number}.from"), "after step", own.and_then(|own| own.from), "1"))
                    (self::number(&format!("not{number}.to"), "and before step", own.and_then(|own| own.to), &last))
                    details class="filters" open[!filters.is_empty()] {
                        summary { "where" (count(filters.len())) }
                        (filter_rows(filters, &format!("not{number}."), known))
                    }
                }
            }
        }
    }
}

fn retention(options: &Options) -> Markup {
    let Options::Retention { shown, type_, intervals, is_cumulative, occurrences } = options else {
        return html! {};
    };
    html! {
        div class="row" {
            label { "Show as " (choice("show", shown, &RETENTION_SHOWN)) }
            label { "Began " (choice("type", type_, &RETENTION_TYPES)) }
            (number("intervals", "Intervals", *intervals, "7"))
            (number("occurrences", "Events to come back", *occurrences, "1"))
            (truth("cumulative", "Or later", *is_cumulative))
        }
    }
}

fn paths(options: &Options) -> Markup {
    let Options::Paths { include, start, end, steps, edges, least, groupings, exclude } = options
    else {
        return html! {};
    };
    html! {
        (checks("Steps are", "include", &PATH_EVENTS, include))
        div class="row" {
            (field("start", "Start at", start.as_ref(), "/pricing"))
            (field("end", "End at", end.as_ref(), "/signup"))
            (number("steps", "Steps", *steps, "5"))
            (number("edges", "Edges", *edges, "50"))
            (number("least", "Taken at least", *least, "1"))
        }
        div class="row" {
            (list("pattern", "Count as one", groupings, "/order/*"))
            (list("exclude", "Leave out", exclude, "/health"))
        }
    }
}

fn stickiness(options: &Options) -> Markup {
    let Options::Stickiness { compare, interval_count, is_cumulative, criteria } = options else {
        return html! {};
    };
    let operators = [("gte", "at least"), ("lte", "at most"), ("exact", "exactly")];
    let chosen = criteria.map_or("gte", |(operator, _)| operator);
    html! {
        div class="row" {
            (compared(compare.as_deref()))
            (number("interval.count", "Intervals at once", *interval_count, "1"))
            label { "An interval needs " (select("criteria", chosen, operators)) }
            (number("criteria.value", "events:", criteria.map(|(_, value)| value), "1"))
            (truth("cumulative", "Or more", *is_cumulative))
        }
    }
}
