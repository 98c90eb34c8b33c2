//! The insight query as form fields: [`form`]. It is sent by GET, so the result has a URL; rows that are left empty are
//! dropped. There is always one more empty row, so nothing needs a script.

pub mod fields;
mod options;

use maud::{Markup, html};

use crate::insight::form::fields::{Suggestions, count, filter_rows, select};
use crate::insight::links;
use crate::state::insight::{INTERVALS, Kind, Question};
use crate::state::range::{PRESETS, Range};
use crate::state::series::{LETTERS, MATHS, Series};

/// The form of a query.
pub fn form(project: i64, question: &Question, known: &Suggestions) -> Markup {
    form_at(&links::kind(project, question.kind()), question, known)
}

/// The same, sent to this address.
pub fn form_at(address: &str, question: &Question, known: &Suggestions) -> Markup {
    let kind = question.kind();
    html! {
        form class="question" method="get" action=(address) data-swap="result" {
            @if kind.series_max() > 0 { (all_series(question, known)) }
            (options::fields(question, known))
            div class="row" {
                (range(question))
                @if kind != Kind::Paths { (interval(question)) }
                label class="check" {
                    input type="checkbox" name="without_tests" value="1" checked[question.is_without_tests];
                    " Without test accounts"
                }
            }
            details class="filters" open[!question.filters.is_empty()] {
                summary { "Filters" (count(question.filters.len())) }
                (filter_rows(&question.filters, "", known))
            }
            @if let Some(group) = question.group { input type="hidden" name="group" value=(group); }
            datalist id="events" {
                option value="*" { "All events" }
                @for event in &known.events { option value=(event) {} }
            }
            (property_names(known))
            div class="row" {
                button class="main" { "Show" }
                a class="quiet" href=(address) { "Start over" }
            }
        }
    }
}

/// Suggestions for names of properties.
pub(super) fn property_names(known: &Suggestions) -> Markup {
    html! { datalist id="properties" { @for name in &known.properties { option value=(name) {} } } }
}

fn range(question: &Question) -> Markup {
    // Without a start date a retention goes back as many intervals as it has.
    let usual = if question.kind() == Kind::Retention { "" } else { "-7d" };
    dates(&question.range, usual)
}

/// The fields of a date range; `usual` is its start if none is given.
pub(super) fn dates(own: &Range, usual: &str) -> Markup {
    html! {
        label {
            "From "
            input name="from" list="ranges" size="12" maxlength="40" placeholder=(usual) autocomplete="off"
                value=[own.from.as_ref()];
        }
        label {
            "To "
            input name="to" size="12" maxlength="40" placeholder="now" autocomplete="off" value=[own.to.as_ref()];
        }
        datalist id="ranges" { @for (from, text) in PRESETS { option value=(from) { (text) } } }
    }
}

fn interval(question: &Question) -> Markup {
    let usual = ("", "by day");
    let names = ["by minute", "by hour", "by day", "by week", "by month"];
    let words = INTERVALS.into_iter().zip(names).filter(|(value, _)| *value != "day");
    let chosen = question.interval.filter(|own| *own != "day").unwrap_or("");
    html! { label { "Interval " (select("interval", chosen, std::iter::once(usual).chain(words))) } }
}

/// The series, and an empty one while there are fewer than the maximum.
fn all_series(question: &Question, known: &Suggestions) -> Markup {
    let kind = question.kind();
    let rows = (question.series.len() + 1).min(kind.series_max()).max(match kind {
        Kind::Funnel => 2,
        _ => 1,
    });
    let title = |at: usize| match (kind, at) {
        (Kind::Funnel, at) => format!("Step {}", at + 1),
        (Kind::Retention, 0) => "Began with".to_owned(),
        (Kind::Retention, _) => "Came back with".to_owned(),
        (Kind::Lifecycle, _) => "Event".to_owned(),
        (_, at) => LETTERS.get(at).map_or(String::new(), |letter| letter.to_uppercase()),
    };
    html! {
        fieldset class="series" {
            legend class="unseen" { @if kind == Kind::Funnel { "Steps" } @else { "Events" } }
            @for (letter, at) in LETTERS.into_iter().zip(0_usize..rows) {
                (one_series(question.series.get(at), (letter, &title(at)), kind, known))
            }
        }
    }
}

fn one_series(
    series: Option<&Series>,
    (letter, title): (&str, &str),
    kind: Kind,
    known: &Suggestions,
) -> Markup {
    let has_math = kind == Kind::Trends;
    let filters = series.map(|own| own.filters.as_slice()).unwrap_or_default();
    let name = |field: &str| format!("{letter}.{field}");
    let event = series.map(|own| own.event.text());
    html! {
        div class="row one-series" {
            label {
                span class="letter" { (title) } " "
                input name=(letter) list="events" value=[event] autocomplete="off" spellcheck="false"
                    placeholder=(if series.is_some() { "" } else { "add an event" });
            }
            @if has_math { (math(series, &name)) }
            @if kind == Kind::Funnel && LETTERS.first() != Some(&letter) {
                label class="check" {
                    input type="checkbox" name=(name("optional")) value="1" checked[series.is_some_and(|own| own.is_optional)];
                    "optional"
                }
            }
            details class="filters" open[!filters.is_empty()] {
                summary { "where" (count(filters.len())) }
                label {
                    "Called "
                    input name=(name("name")) value=[series.and_then(|own| own.name.as_ref())] autocomplete="off";
                }
                (filter_rows(filters, &format!("{letter}."), known))
            }
        }
    }
}

/// The aggregation of a series, and its property.
fn math(series: Option<&Series>, name: &impl Fn(&str) -> String) -> Markup {
    let chosen = series.map_or("total", |own| own.math);
    let value = |math: &'static str| if math == "total" { "" } else { math };
    let words = MATHS.into_iter().map(|(math, text, _)| (value(math), text));
    html! {
        label { span class="unseen" { "Count" } (select(&name("math"), value(chosen), words)) }
        label {
            span class="unseen" { "Property" }
            input name=(name("property")) list="properties" size="14" autocomplete="off" placeholder="property"
                value=[series.and_then(|own| own.math_property.as_ref())];
        }
        @if let Some(group) = series.and_then(|own| own.math_group) {
            input type="hidden" name=(name("group")) value=(group);
        }
    }
}
