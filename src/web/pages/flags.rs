//! Feature flags and early access features: lists, one flag, and the trace of an evaluation.

use std::collections::HashMap;

use chrono_tz::Tz;
use maud::{Markup, html};
use serde_json::Value;

use crate::parts;
use crate::parts::{clipped, integer, is_true, items, page, text};
use crate::sentences::{conditions_of, percent, sentence};

/// Longest names and ids in a row, in characters.
const NAME_MAX_CHARS: usize = 120;

/// What stands in the place of a list without flags.
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

/// A list of flags, with how often each was asked for within a week, if that is known.
pub fn list(
    project: i64,
    zone: Tz,
    flags: &[Value],
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
                                a href=(page(project, &format!("feature_flags/{}", integer(flag, "id").unwrap_or_default()))) { (clipped(text(flag, "key"), NAME_MAX_CHARS)) }
                                @if !text(flag, "name").is_empty() { div class="quiet" { (clipped(text(flag, "name"), 300)) } }
                            }
                            td { (state(flag)) }
                            td { (rollout(flag)) }
                            @if let Some(calls) = calls {
                                td class="number" { (parts::number(calls.get(text(flag, "key")).copied().unwrap_or(0))) }
                            }
                            td class="short" {
                                @if text(flag, "last_called_at").is_empty() { span class="quiet" { "never" } }
                                @else { (parts::time(text(flag, "last_called_at"), zone)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Whether a flag is on, as a badge.
pub fn state(flag: &Value) -> Markup {
    html! {
        @if is_true(flag, "archived") { span class="badge" { "Archived" } }
        @else if is_true(flag, "active") { span class="badge good" { "On" } }
        @else { span class="badge" { "Off" } }
        @if text(flag, "status") == "STALE" { " " span class="badge warn" { "Stale" } }
    }
}

fn rollout(flag: &Value) -> String {
    let groups = flag.get("filters").map(|filters| items(filters, "groups")).unwrap_or_default();
    match groups {
        [] => "Nobody".to_owned(),
        [one] => percent(one),
        more => format!("{} conditions", more.len()),
    }
}

/// One flag. `can_write` offers to turn it on or off.
pub fn one(project: i64, zone: Tz, flag: &Value, can_write: bool) -> Markup {
    let id = integer(flag, "id").unwrap_or_default();
    let empty = Value::Null;
    let filters = flag.get("filters").unwrap_or(&empty);
    let is_on = is_true(flag, "active");
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
            @if !text(flag, "name").is_empty() { p { (clipped(text(flag, "name"), 2000)) } }
            h2 { "Release conditions" }
            (filters_of(filters))
        }
        div class="card" {
            dl class="facts" {
                dt { "Created" } dd { (parts::time(text(flag, "created_at"), zone)) }
                @if !text(flag, "updated_at").is_empty() { dt { "Changed" } dd { (parts::time(text(flag, "updated_at"), zone)) } }
                dt { "Version" } dd { (integer(flag, "version").unwrap_or_default()) }
            }
        }
    }
}

/// How often a flag was asked for: a chart, which is that of an address.
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

/// The box that asks what a distinct id gets.
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
pub fn trace(answer: &Value) -> Markup {
    html! {
        section id="result" {
            p { (parts::flag_value(answer.get("result").unwrap_or(&Value::Null))) " " (text(answer, "reason_description")) }
            ol {
                @for condition in items(answer, "conditions") {
                    li {
                        @if is_true(condition, "matched") { span class="badge good" { "decides" } }
                        @else if is_true(condition, "rollout_excluded") { span class="badge warn" { "not in the rollout" } }
                        @else if is_true(condition, "properties_matched") { span class="badge" { "matches" } }
                        @else { span class="badge" { "does not match" } }
                        " " (clipped(text(condition, "explanation"), 1000))
                        ul {
                            @for filter in items(condition, "properties") {
                                li {
                                    @if is_true(filter, "matched") { span class="badge good" { "yes" } } @else { span class="badge bad" { "no" } }
                                    " " (sentence(filter)) ", it is "
                                    @match filter.get("actual_value") {
                                        None | Some(Value::Null) => "not there",
                                        Some(value) => b { (parts::short(value)) },
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

/// What was changed, by whom, newest first. `flag` is as it is now; with the right to change it, the forms that bring back
/// what was before a change.
pub fn activity(
    project: i64,
    zone: Tz,
    (flag, can_write): (&Value, bool),
    entries: &[Value],
) -> Markup {
    let address =
        page(project, &format!("feature_flags/{}/revert", integer(flag, "id").unwrap_or_default()));
    let mut version = integer(flag, "version").unwrap_or_default();
    let mut shown = Vec::new();
    for (entry, at) in entries.iter().zip(0_usize..) {
        let before = is_version(entry).then_some(version - 1).filter(|before| *before >= 1);
        version -= i64::from(is_version(entry));
        shown.push((entry, before.filter(|_| can_write), at == 0));
    }
    html! {
        h2 id="history" { "History" }
        @if entries.is_empty() { p class="quiet" { "Nothing is recorded." } }
        ul class="plain" {
            @for (entry, before, is_last) in shown {
                @let user = entry.get("user").unwrap_or(&Value::Null);
                @let detail = entry.get("detail").unwrap_or(&Value::Null);
                li class="card" {
                    div class="actions" {
                        span class="grow" {
                            (parts::time(text(entry, "created_at"), zone)) " "
                            b { (clipped(text(user, "email"), NAME_MAX_CHARS)) } " " (text(entry, "activity").replace('_', " "))
                        }
                        @if let Some(before) = before {
                            form method="post" action=(address) data-confirm="Restore the flag to the version before this change?" {
                                input type="hidden" name="version" value=(before);
                                button class="small" { @if is_last { "Undo" } @else { "Restore the version before this" } }
                            }
                        }
                    }
                    @for change in items(detail, "changes").iter().take(20) { (difference(change)) }
                }
            }
        }
    }
}

/// Whether a change made a version of the flag, as the API counts them.
fn is_version(entry: &Value) -> bool {
    let changes = items(entry.get("detail").unwrap_or(&Value::Null), "changes");
    let is_of_flag = |change: &Value| text(change, "field") != "role_access";
    text(entry, "activity") == "updated" && (changes.is_empty() || changes.iter().any(is_of_flag))
}

/// What one field was and is. Conditions are sentences.
fn difference(change: &Value) -> Markup {
    let side = |name: &str| change.get(name).unwrap_or(&Value::Null);
    let (before, after) = (side("before"), side("after"));
    html! {
        @if text(change, "field") == "filters" {
            @let (old, new) = (unlike(before, after), unlike(after, before));
            div class="sides" {
                div { span class="badge bad" { "before" } (filters_of(&old)) }
                div { span class="badge good" { "after" } (filters_of(&new)) }
            }
        } @else {
            div class="quiet" {
                (text(change, "field").replace('_', " ")) ": " del { (parts::short(before)) } " → " ins { (parts::short(after)) }
            }
        }
    }
}

/// Filters of a flag without variants and payloads that are the same on the other side.
fn unlike(filters: &Value, other: &Value) -> Value {
    let mut filters = filters.clone();
    if let Value::Object(own) = &mut filters {
        for name in ["multivariate", "payloads"] {
            if own.get(name) == other.get(name) {
                own.remove(name);
            }
        }
    }
    filters
}

/// Conditions, variants and payloads.
fn filters_of(filters: &Value) -> Markup {
    let variants = filters.get("multivariate").map(|of| items(of, "variants")).unwrap_or_default();
    html! {
        (conditions_of(filters))
        @if !variants.is_empty() {
            h3 { "Variants" }
            ul class="plain" {
                @for variant in variants {
                    li { code { (clipped(text(variant, "key"), NAME_MAX_CHARS)) } " to "
                        (parts::plain(variant.get("rollout_percentage").unwrap_or(&Value::Null))) " %"
                        @if !text(variant, "name").is_empty() { " " span class="quiet" { (clipped(text(variant, "name"), 300)) } } }
                }
            }
        }
        @if let Some(payloads) = filters.get("payloads").and_then(Value::as_object).filter(|all| !all.is_empty()) {
            h3 { "Payloads" }
            dl class="facts" { @for (key, payload) in payloads { dt { (clipped(key, NAME_MAX_CHARS)) } dd { code { (parts::short(payload)) } } } }
        }
    }
}

/// Changes at later times, and the form that adds one. Times are in the zone of the project.
pub fn schedule(
    project: i64,
    zone: Tz,
    (flag, can_write): (&Value, bool),
    changes: &[Value],
) -> Markup {
    let address = page(
        project,
        &format!("feature_flags/{}/schedule", integer(flag, "id").unwrap_or_default()),
    );
    html! {
        h2 id="schedule" { "Scheduled changes" }
        @if changes.is_empty() { p class="quiet" { "Nothing is scheduled." } }
        ul class="plain" {
            @for change in changes {
                li class="actions" {
                    span class="grow" {
                        (parts::time(text(change, "scheduled_at"), zone)) " " (operation(change.get("payload").unwrap_or(&Value::Null)))
                        @if is_true(change, "is_recurring") { ", " (text(change, "recurrence_interval")) (text(change, "cron_expression")) }
                        " "
                        @if !text(change, "failure_reason").is_empty() { span class="badge bad" { "failed" } " " (clipped(text(change, "failure_reason"), 300)) }
                        @else if !text(change, "executed_at").is_empty() { span class="badge good" { "done" } }
                        @else { span class="badge" { "waits" } }
                    }
                    @if can_write && text(change, "executed_at").is_empty() {
                        form method="post" action=(format!("{address}/cancel")) data-confirm="Cancel this change?" {
                            input type="hidden" name="id" value=(integer(change, "id").unwrap_or_default());
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

/// What a scheduled change does, in words.
fn operation(payload: &Value) -> Markup {
    let value = payload.get("value").unwrap_or(&Value::Null);
    match (text(payload, "operation"), value.as_bool()) {
        ("update_status", Some(true)) => html! { b { "turns it on" } },
        ("update_status", _) => html! { b { "turns it off" } },
        ("add_release_condition", _) => html! { "adds " (conditions_of(value)) },
        (other, _) => {
            html! { (clipped(&other.replace('_', " "), NAME_MAX_CHARS)) " " code { (parts::short(value)) } }
        }
    }
}

/// A list of early access features.
pub fn early_access(project: i64, features: &[Value]) -> Markup {
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
                        @let flag = feature.get("feature_flag").unwrap_or(&Value::Null);
                        tr {
                            th scope="row" {
                                a href=(page(project, &format!("early_access_features/{}", parts::part(text(feature, "id"))))) { (parts::named(feature)) }
                                div class="quiet" { (clipped(text(feature, "description"), 300)) } }
                            td { span class="badge" { (clipped(text(feature, "stage"), NAME_MAX_CHARS)) } }
                            td { @if let Some(id) = integer(flag, "id") {
                                a href=(page(project, &format!("feature_flags/{id}"))) { (clipped(text(flag, "key"), NAME_MAX_CHARS)) }
                            } }
                        }
                    }
                }
            }
        }
    }
}
