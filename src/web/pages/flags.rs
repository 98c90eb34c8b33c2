//! Feature flags and early access features: lists, one flag with its conditions as sentences, and the trace of an
//! evaluation.

use chrono_tz::Tz;
use maud::Markup;
use maud::html;
use serde_json::Value;

use crate::web::parts;
use crate::web::parts::clipped;
use crate::web::parts::integer;
use crate::web::parts::is_true;
use crate::web::parts::items;
use crate::web::parts::page;
use crate::web::parts::text;

/// Longest names and ids in a row, in characters.
const NAME_MAX_CHARS: usize = 120;

/// Most nested rules of a cohort that are told.
const RULES_DEPTH_MAX: usize = 8;

/// Operators as words.
const OPERATORS: &[(&str, &str)] = &[
    ("exact", "is"),
    ("is_not", "is not"),
    ("icontains", "contains"),
    ("not_icontains", "does not contain"),
    ("regex", "matches"),
    ("not_regex", "does not match"),
    ("gt", "is greater than"),
    ("gte", "is at least"),
    ("lt", "is less than"),
    ("lte", "is at most"),
    ("is_set", "is set"),
    ("is_not_set", "is not set"),
    ("is_date_exact", "is on"),
    ("is_date_before", "is before"),
    ("is_date_after", "is after"),
    ("in", "is in"),
    ("not_in", "is not in"),
];

/// A list of flags.
pub fn list(project: i64, zone: Tz, flags: &[Value], is_limited: bool) -> Markup {
    if flags.is_empty() {
        return html! {
            div class="empty" {
                @if is_limited { h2 { "No flag matches" } } @else {
                    h2 { "No feature flags yet" }
                    p { "A flag turns a part of your product on for some persons, without a release. The API makes them:" }
                    (parts::code("make-flag", &format!("curl -X POST /api/projects/{project}/feature_flags/ -H 'Authorization: Bearer phx_...' \\\n  -H 'Content-Type: application/json' -d '{{\"key\": \"new-checkout\", \"filters\": {{\"groups\": [{{\"rollout_percentage\": 10}}]}}}}'")))
                }
            }
        };
    }
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Feature flags" {
            table {
                thead { tr { th scope="col" { "Flag" } th scope="col" { "State" } th scope="col" { "Rollout" } th scope="col" { "Last evaluated" } } }
                tbody {
                    @for flag in flags {
                        tr {
                            th scope="row" {
                                a href=(page(project, &format!("feature_flags/{}", integer(flag, "id").unwrap_or_default()))) { (clipped(text(flag, "key"), NAME_MAX_CHARS)) }
                                @if !text(flag, "name").is_empty() { div class="quiet" { (clipped(text(flag, "name"), 300)) } }
                            }
                            td { (state(flag)) }
                            td { (rollout(flag)) }
                            td class="short" { (parts::time(text(flag, "last_called_at"), zone)) }
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

fn percent(condition: &Value) -> String {
    match condition.get("rollout_percentage") {
        None | Some(Value::Null) => "100 %".to_owned(),
        Some(part) => format!("{} %", parts::plain(part)),
    }
}

/// One flag. `can_write` offers to turn it on or off.
pub fn one(project: i64, zone: Tz, flag: &Value, can_write: bool) -> Markup {
    let id = integer(flag, "id").unwrap_or_default();
    let empty = Value::Null;
    let filters = flag.get("filters").unwrap_or(&empty);
    let is_on = is_true(flag, "active");
    let variants = filters.get("multivariate").map(|of| items(of, "variants")).unwrap_or_default();
    html! {
        div class="actions" {
            (state(flag))
            @if can_write {
                form method="post" action=(page(project, &format!("feature_flags/{id}")))
                    data-confirm=(if is_on { "Turn this flag off for everybody?" } else { "Turn this flag on?" }) {
                    input type="hidden" name="active" value=(if is_on { "false" } else { "true" });
                    button class=(if is_on { "danger" } else { "main" }) { @if is_on { "Turn off" } @else { "Turn on" } }
                }
            }
        }
        br;
        div class="card" {
            @if !text(flag, "name").is_empty() { p { (clipped(text(flag, "name"), 2000)) } }
            h2 { "Who gets it" }
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
        div class="card" {
            dl class="facts" {
                dt { "Created" } dd { (parts::time(text(flag, "created_at"), zone)) }
                @if !text(flag, "updated_at").is_empty() { dt { "Changed" } dd { (parts::time(text(flag, "updated_at"), zone)) } }
                dt { "Version" } dd { (integer(flag, "version").unwrap_or_default()) }
            }
        }
    }
}

/// Conditions as sentences: those of a flag (`groups`) or the rules of a cohort (`properties`).
pub fn conditions_of(filters: &Value) -> Markup {
    let groups = items(filters, "groups");
    html! {
        @if let Some(rules) = filters.get("properties") { (rules_of(rules, 0)) }
        @else if groups.is_empty() { p { "Nobody: there is no condition." } }
        @else {
            ol {
                @for condition in groups {
                    @let properties = items(condition, "properties");
                    li {
                        b { (percent(condition)) } " of "
                        @if properties.is_empty() { "everybody" } @else { "those whose " }
                        @for (at, filter) in properties.iter().enumerate() {
                            @if at > 0 { " and " } (sentence(filter))
                        }
                        @if let Some(variant) = condition.get("variant").and_then(Value::as_str) { ", always the variant " code { (clipped(variant, NAME_MAX_CHARS)) } }
                    }
                }
            }
        }
    }
}

/// A tree of rules.
fn rules_of(rules: &Value, depth: usize) -> Markup {
    let values = items(rules, "values");
    if values.is_empty() || depth > RULES_DEPTH_MAX {
        return sentence(rules);
    }
    let word = if text(rules, "type").eq_ignore_ascii_case("or") { "or" } else { "and" };
    html! { ul { @for (at, rule) in values.iter().enumerate() { li { @if at > 0 { (word) " " } (rules_of(rule, depth + 1)) } } } }
}

/// One filter.
fn sentence(filter: &Value) -> Markup {
    let operator = text(filter, "operator");
    let word = OPERATORS
        .iter()
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
                (text(filter, "value").replace('_', " ")) " " b { (parts::short(filter.get("key").unwrap_or(&Value::Null))) }
            },
            kind => {
                code { (parts::short(filter.get("key").unwrap_or(&Value::Null))) } @if kind == "group" { " of the group" }
                " " (word) @if has_value { " " b { (value) } }
            },
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
        section id="result" class="card" {
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
                                    " " (sentence(filter)) ", it is " b { (parts::short(filter.get("actual_value").unwrap_or(&Value::Null))) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// What was changed, by whom.
pub fn activity(zone: Tz, entries: &[Value]) -> Markup {
    html! {
        h2 { "History" }
        @if entries.is_empty() { p class="quiet" { "Nothing is recorded." } }
        ul class="plain" {
            @for entry in entries {
                @let user = entry.get("user").unwrap_or(&Value::Null);
                @let detail = entry.get("detail").unwrap_or(&Value::Null);
                li {
                    (parts::time(text(entry, "created_at"), zone)) " "
                    b { (clipped(text(user, "email"), NAME_MAX_CHARS)) } " " (text(entry, "activity").replace('_', " "))
                    @for change in items(detail, "changes").iter().take(20) {
                        div class="quiet" {
                            (text(change, "field")) ": " (parts::short(change.get("before").unwrap_or(&Value::Null)))
                            " → " (parts::short(change.get("after").unwrap_or(&Value::Null)))
                        }
                    }
                }
            }
        }
    }
}

/// A list of early access features.
pub fn early_access(project: i64, features: &[Value]) -> Markup {
    if features.is_empty() {
        return html! {
            div class="empty" {
                h2 { "No early access features" }
                p { "Persons can turn these on for themselves. The API makes them: "
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
                            th scope="row" { (parts::named(feature)) div class="quiet" { (clipped(text(feature, "description"), 300)) } }
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
