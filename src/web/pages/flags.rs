//! Feature flags and early access features: lists, a single flag, and the trace of an evaluation.

use std::collections::HashMap;

use chrono_tz::Tz;
use maud::{Markup, html};
use serde_json::{Value, json};

use crate::parts;
use crate::parts::{clipped, page};
use crate::sentences::{conditions, sentence};
use crate::state::flag_filters::{Change, FlagFilters, ScheduledEffect};
use crate::state::rules::{Condition, Filter};
use weir_api::activity::Entry;
use weir_api::early_access::Feature;
use weir_api::flags::{Flag, FlagValue, PropertyTrace, TestedEvaluation};
use weir_api::schedules::ScheduledChange;

/// Longest names and ids in a row, in characters.
const NAME_MAX_CHARS: usize = 120;

/// Content of an empty list of flags.
pub fn none((project, server): (i64, &str), is_limited: bool) -> Markup {
    html! {
        div class="empty" {
            @if is_limited { h2 { "No flag matches" } } @else {
                h2 { "No feature flags yet" }
                p { "A flag turns a part of your product on for some persons, without a release. The button above makes one, and so does the API:" }
                (parts::code("make-flag", &format!("curl -X POST {server}/api/projects/{project}/feature_flags/ -H 'Authorization: Bearer phx_...' \\\n  -H 'Content-Type: application/json' -d '{{\"key\": \"new-checkout\", \"filters\": {{\"groups\": [{{\"rollout_percentage\": 10}}]}}}}'")))
            }
        }
    }
}

/// A list of flags, with the number of evaluations of each within a week, if known.
pub fn list(
    project: i64,
    zone: Tz,
    flags: &[Flag],
    calls: Option<&HashMap<String, i64>>,
) -> Markup {
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Feature flags" {
            table {
                thead { tr {
                    th scope="col" { "Flag" } th scope="col" { "State" } th scope="col" { "Rollout" }
                    @if calls.is_some() { th scope="col" class="number" { "Calls in 7 days" } }
                    th scope="col" { "Last evaluated" }
                } }
                tbody {
                    @for flag in flags {
                        tr {
                            th scope="row" {
                                a href=(page(project, &format!("feature_flags/{}", flag.id))) { (clipped(&flag.key, NAME_MAX_CHARS)) }
                                @if !flag.name.is_empty() { div class="quiet" { (clipped(&flag.name, 300)) } }
                            }
                            td { (state(flag)) }
                            td { (rollout(flag)) }
                            @if let Some(calls) = calls {
                                td class="number" { (parts::number(calls.get(&flag.key).copied().unwrap_or(0))) }
                            }
                            td class="short" {
                                @match &flag.last_called_at {
                                    None => span class="quiet" { "never" },
                                    Some(called) => (parts::time(called, zone)),
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Whether a flag is on, as a badge.
pub fn state(flag: &Flag) -> Markup {
    html! {
        @if flag.archived { span class="badge" { "Archived" } }
        @else if flag.active { span class="badge good" { "On" } }
        @else { span class="badge" { "Off" } }
        @if flag.status == "stale" { " " span class="badge warn" { "Stale" } }
    }
}

fn rollout(flag: &Flag) -> String {
    match &*Condition::all(&flag.filters) {
        [] => "Nobody".to_owned(),
        [one] => one.percent.clone(),
        more => format!("{} conditions", more.len()),
    }
}

/// One flag. With `can_write` it has the button that turns it on or off.
pub fn one(project: i64, zone: Tz, flag: &Flag, can_write: bool) -> Markup {
    let (id, is_on) = (flag.id, flag.active);
    html! {
        div class="actions" {
            (state(flag))
            @if can_write {
                form method="post" action=(page(project, &format!("feature_flags/{id}")))
                    data-confirm=(if is_on { "Turn this flag off for everybody?" } else { "Turn this flag on?" }) {
                    input type="hidden" name="active" value=(if is_on { "false" } else { "true" });
                    button class=(if is_on { "danger" } else { "main" }) { @if is_on { "Turn off" } @else { "Turn on" } }
                }
                a class="button" href=(page(project, &format!("feature_flags/{id}/edit"))) { "Edit" }
                form method="post" action=(page(project, &format!("feature_flags/{id}/delete"))) data-confirm="Delete this flag?" {
                    button class="danger" { "Delete" }
                }
            }
        }
        br;
        div class="card" {
            @if !flag.name.is_empty() { p { (clipped(&flag.name, 2000)) } }
            h2 { "Release conditions" }
            (filters(&FlagFilters::of(&flag.filters)))
        }
        div class="card" {
            dl class="facts" {
                dt { "Created" } dd { (parts::time(&flag.created_at, zone)) }
                dt { "Changed" } dd { (parts::time(&flag.updated_at, zone)) }
                dt { "Version" } dd { (flag.version) }
            }
        }
    }
}

/// The evaluations of a flag as a chart; `address` is that of the chart's query.
pub fn calls(address: &str, chart: &Markup) -> Markup {
    html! {
        h2 { "Evaluations by value" }
        div class="card" {
            p class="quiet" {
                "By the events " code { "$feature_flag_called" } ", of which SDKs send one for each person and value. "
                a href=(address) { "Ask more of them" }
            }
            (chart)
        }
    }
}

/// The form that evaluates the flags for a distinct id.
pub fn test_form(distinct_id: &str) -> Markup {
    html! {
        h2 { "Who gets what, and why" }
        form class="bar" method="get" {
            label { "Distinct id" input class="wide" type="text" name="distinct_id" value=(distinct_id) required maxlength="400"; }
            button class="main" { "Test" }
        }
    }
}

/// The trace of an evaluation.
pub fn trace(answer: &TestedEvaluation) -> Markup {
    let value = match &answer.result {
        FlagValue::Is(is_on) => Value::from(*is_on),
        FlagValue::Variant(key) => Value::from(key.as_str()),
    };
    html! {
        section id="result" {
            p { (parts::flag_value(&value)) " " (answer.reason_description) }
            ol {
                @for condition in &answer.conditions {
                    li {
                        @if condition.matched { span class="badge good" { "decides" } }
                        @else if condition.rollout_excluded { span class="badge warn" { "not in the rollout" } }
                        @else if condition.properties_matched { span class="badge" { "matches" } }
                        @else { span class="badge" { "does not match" } }
                        " " (clipped(&condition.explanation, 1000))
                        ul {
                            @for filter in &condition.properties {
                                li {
                                    @if filter.matched { span class="badge good" { "yes" } } @else { span class="badge bad" { "no" } }
                                    " " (compared(filter)) ", it is "
                                    @match &filter.actual_value {
                                        Value::Null => "not there",
                                        value => b { (parts::short(value)) },
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The filter of a trace as a sentence.
fn compared(filter: &PropertyTrace) -> Markup {
    let PropertyTrace { key, operator, value, r#type, .. } = filter;
    sentence(&Filter::of(
        &json!({"key": key, "operator": operator, "value": value, "type": r#type}),
    ))
}

/// The changes of a flag and their authors, newest first. `flag` is the current one; with the right to change it, there
/// are forms that restore the values before a change.
pub fn activity(
    project: i64,
    zone: Tz,
    (flag, can_write): (&Flag, bool),
    entries: &[Entry],
) -> Markup {
    let address = page(project, &format!("feature_flags/{}/revert", flag.id));
    let mut version = flag.version;
    let mut shown = Vec::new();
    for (entry, at) in entries.iter().zip(0_usize..) {
        let changes = Change::all(entry);
        let is_version = is_version(entry, &changes);
        let before = is_version.then_some(version - 1).filter(|before| *before >= 1);
        version -= i64::from(is_version);
        shown.push((entry, changes, before.filter(|_| can_write), at == 0));
    }
    html! {
        h2 id="history" { "History" }
        @if entries.is_empty() { p class="quiet" { "Nothing is recorded." } }
        ul class="plain" {
            @for (entry, changes, before, is_last) in shown {
                li class="card" {
                    div class="actions" {
                        span class="grow" {
                            (parts::time(&entry.created_at, zone)) " "
                            b { (clipped(entry.user.email.as_deref().unwrap_or_default(), NAME_MAX_CHARS)) } " " (entry.activity.replace('_', " "))
                        }
                        @if let Some(before) = before {
                            form method="post" action=(address) data-confirm="Restore the flag to the version before this change?" {
                                input type="hidden" name="version" value=(before);
                                button class="small" { @if is_last { "Undo" } @else { "Restore the version before this" } }
                            }
                        }
                    }
                    @for change in changes.iter().take(20) { (difference(change)) }
                }
            }
        }
    }
}

/// Whether a change made a version of the flag, in the API's numbering.
fn is_version(entry: &Entry, changes: &[Change]) -> bool {
    entry.activity == "updated" && (changes.is_empty() || changes.iter().any(Change::is_of_flag))
}

/// One field before and after a change. Conditions are sentences.
fn difference(change: &Change) -> Markup {
    html! {
        @match change {
            Change::Filters(sides) => {
                @let [before, after] = &**sides;
                div class="sides" {
                    div { span class="badge bad" { "before" } (filters(before)) }
                    div { span class="badge good" { "after" } (filters(after)) }
                }
            },
            Change::Field(field, [before, after]) => div class="quiet" {
                (field.replace('_', " ")) ": " del { (before) } " → " ins { (after) }
            },
        }
    }
}

/// Conditions, variants and payloads.
fn filters(own: &FlagFilters) -> Markup {
    html! {
        (conditions(&own.conditions))
        @if !own.variants.is_empty() {
            h3 { "Variants" }
            ul class="plain" {
                @for variant in &own.variants {
                    li { code { (clipped(&variant.key, NAME_MAX_CHARS)) } " to " (variant.percent) " %"
                        @if !variant.name.is_empty() { " " span class="quiet" { (clipped(&variant.name, 300)) } } }
                }
            }
        }
        @if !own.payloads.is_empty() {
            h3 { "Payloads" }
            dl class="facts" { @for (key, payload) in &own.payloads { dt { (clipped(key, NAME_MAX_CHARS)) } dd { code { (payload) } } } }
        }
    }
}

/// Scheduled changes, and the form that adds one. Times are in the zone of the project.
pub fn schedule(
    project: i64,
    zone: Tz,
    (flag, can_write): (&Flag, bool),
    changes: &[ScheduledChange],
) -> Markup {
    let address = page(project, &format!("feature_flags/{}/schedule", flag.id));
    html! {
        h2 id="schedule" { "Scheduled changes" }
        @if changes.is_empty() { p class="quiet" { "Nothing is scheduled." } }
        ul class="plain" {
            @for change in changes {
                li class="actions" {
                    span class="grow" {
                        (parts::time(&change.scheduled_at, zone)) " " (operation(&ScheduledEffect::of(&change.payload)))
                        @if change.is_recurring { ", " (change.recurrence_interval.as_deref().unwrap_or_default()) (change.cron_expression.as_deref().unwrap_or_default()) }
                        " "
                        @if let Some(reason) = change.failure_reason.as_ref().filter(|reason| !reason.is_empty()) { span class="badge bad" { "failed" } " " (clipped(reason, 300)) }
                        @else if change.executed_at.is_some() { span class="badge good" { "done" } }
                        @else { span class="badge" { "waits" } }
                    }
                    @if can_write && change.executed_at.is_none() {
                        form method="post" action=(format!("{address}/cancel")) data-confirm="Cancel this change?" {
                            input type="hidden" name="id" value=(change.id);
                            button class="small" { "Cancel" }
                        }
                    }
                }
            }
        }
        @if can_write {
            form class="bar" method="post" action=(address) {
                label { "What" select name="what" {
                    option value="on" { "Turn on" } option value="off" { "Turn off" } option value="add" { "Also give it to a part of all" }
                } }
                label { "Percent of all" input name="rollout" inputmode="numeric" size="4" maxlength="3" placeholder="100" autocomplete="off"; }
                label { "When (" (zone.name()) ")" input type="datetime-local" name="at" required; }
                label { "Repeat" select name="interval" {
                    option value="" { "once" } option value="daily" { "daily" } option value="weekly" { "weekly" }
                    option value="monthly" { "monthly" } option value="yearly" { "yearly" }
                } }
                button { "Schedule" }
            }
        }
    }
}

/// The effect of a scheduled change, in words.
fn operation(effect: &ScheduledEffect) -> Markup {
    match effect {
        ScheduledEffect::Switch(true) => html! { b { "turns it on" } },
        ScheduledEffect::Switch(false) => html! { b { "turns it off" } },
        ScheduledEffect::Conditions(added) => html! { "adds " (conditions(added)) },
        ScheduledEffect::Other(name, value) => {
            html! { (clipped(name, NAME_MAX_CHARS)) " " code { (value) } }
        }
    }
}

/// A list of early access features.
pub fn early_access(project: i64, features: &[Feature]) -> Markup {
    if features.is_empty() {
        return html! {
            div class="empty" {
                h2 { "No early access features" }
                p { "Persons can turn these on for themselves. The button above makes one, and so does the API: "
                    code { "POST /api/projects/" (project) "/early_access_feature/" } }
            }
        };
    }
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Early access features" {
            table {
                thead { tr { th scope="col" { "Feature" } th scope="col" { "Stage" } th scope="col" { "Flag" } } }
                tbody {
                    @for feature in features {
                        tr {
                            th scope="row" {
                                a href=(page(project, &format!("early_access_features/{}", parts::part(&feature.id)))) { (parts::title(&feature.name)) }
                                div class="quiet" { (clipped(&feature.description, 300)) } }
                            td { span class="badge" { (clipped(&feature.stage, NAME_MAX_CHARS)) } }
                            td { @if let Some(flag) = &feature.feature_flag {
                                a href=(page(project, &format!("feature_flags/{}", flag.id))) { (clipped(&flag.key, NAME_MAX_CHARS)) }
                            } }
                        }
                    }
                }
            }
        }
    }
}
