//! Forms of cohorts and early access features.

use maud::{Markup, html};

use crate::insight::form::fields::select;
use crate::pages::flag_form;
use crate::pages::flag_form::Known;
use crate::state::cohort::{BEHAVIORAL_MAX, Behavioral, DAYS, Draft, TIMES};
use crate::state::flag::PARTS_MAX;
use crate::state::rules::Rule;
use crate::{parts, sentences};
use weir_api::cohorts::Cohort;
use weir_api::early_access::Feature;
use weir_api::flags::Flag;

/// Longest names and descriptions, in characters.
const NAME_MAX_CHARS: usize = 400;
const DESCRIPTION_MAX_CHARS: usize = 4000;

/// Owner of the property that a filter of a cohort reads.
const OWNERS: [&str; 2] = ["person", "cohort"];

/// Stages of early access features.
pub const STAGES: [&str; 6] =
    ["draft", "concept", "alpha", "beta", "general-availability", "archived"];

/// The form of a cohort; `is_new` offers the choice of the kind. `address` receives it, `back` is the link away from
/// it.
pub fn cohort((address, back): (&str, &str), draft: &Draft, known: &Known, is_new: bool) -> Markup {
    let kind = if draft.is_static { "list" } else { "rule" };
    html! {
        p class="back" { a href=(back) { "← Back" } }
        @if let Some(problem) = &known.problem { (parts::failed(problem)) }
        form method="post" action=(address) {
            button class="unseen" name="do" value="save" tabindex="-1" { "Save" }
            div class="card" {
                div class="stack" {
                    label { "Name" input class="wide" name="name" required value=(draft.name) maxlength=(NAME_MAX_CHARS) autocomplete="off"; }
                    label class="full" { "Description" textarea name="description" rows="2" maxlength=(DESCRIPTION_MAX_CHARS) { (draft.description) } }
                    @if is_new {
                        label { "Kind" (select("kind", kind, [("rule", "by a rule, always up to date"), ("list", "a list of persons")])) }
                    } @else { input type="hidden" name="kind" value=(kind); }
                }
            }
            @if is_new {
                details class="card" open[draft.is_static] {
                    summary { "Persons of a list" }
                    label class="full" { "Distinct ids, or uuids of persons, one a line" textarea name="ids" rows="6" spellcheck="false" { (draft.ids) } }
                }
            }
            @if is_new || !draft.is_static { (rule(draft, known)) }
            br;
            p class="actions" { button class="main" name="do" value="save" { "Save" } a href=(back) { "Cancel" } }
            (flag_form::lists(known))
        }
    }
}

fn rule(draft: &Draft, known: &Known) -> Markup {
    let count = draft.groups.len().max(1);
    html! {
        h2 { "Criteria" }
        @if draft.whole.is_empty() {
            p class="quiet" { "Persons that match all conditions of one of the groups, by properties and by behavior. Behavior is evaluated periodically." }
            input type="hidden" name="groups" value=(count);
            @for number in 1..=count {
                @let group = draft.groups.get(number - 1);
                @let filters = group.map(|own| own.filters.as_slice()).unwrap_or_default();
                fieldset class="card" {
                    legend { @if number == 1 { "Group 1" } @else { "or group " (number) } }
                    (flag_form::filters(filters, &format!("c{number}."), known, &OWNERS))
                    (behavioral(group.map(|own| own.behavioral.as_slice()).unwrap_or_default(), &format!("c{number}.")))
                }
            }
            datalist id="events" { @for name in &known.events { option value=(name) {} } }
            p class="actions" {
                @if count < PARTS_MAX { button name="do" value="group" { "Add a group" } }
                button name="do" value="rows" { "More filters" }
            }
            details { summary class="quiet" { "As JSON instead, for groups within groups" }
                label class="full" { "Rule" textarea name="whole" rows="6" spellcheck="false" {} } }
        } @else {
            @if let Ok(rule) = draft.rule() { (sentences::rule(&Rule::of(&rule))) }
            label class="full" { "The rule as JSON" textarea name="whole" rows="14" spellcheck="false" { (draft.whole) } }
        }
    }
}

/// Behavioral filters, and an empty row while there are fewer than the maximum.
fn behavioral(own: &[Behavioral], prefix: &str) -> Markup {
    let rows = (own.len() + 1).min(BEHAVIORAL_MAX);
    html! { @for row in 1..=rows { (one(own.get(row - 1), &|field| format!("{prefix}d{row}.{field}"))) } }
}

fn one(own: Option<&Behavioral>, name: &dyn Fn(&str) -> String) -> Markup {
    let is_not = own.is_some_and(|own| own.is_not);
    let words = TIMES.into_iter().zip(["at least", "at most", "exactly"]);
    html! {
        div class="row filter" {
            label { span class="unseen" { "Did or did not" } (select(&name("not"), if is_not { "1" } else { "0" }, [("0", "did"), ("1", "did not")])) }
            label {
                span class="unseen" { "Event" }
                input name=(name("event")) list="events" maxlength=(NAME_MAX_CHARS) placeholder="add an event" autocomplete="off" spellcheck="false"
                    value=[own.map(|own| &own.event)];
            }
            label { span class="unseen" { "How often" } (select(&name("op"), own.map_or("gte", |own| own.operator), words)) }
            label { span class="unseen" { "Times" } input name=(name("count")) inputmode="numeric" size="5" maxlength="9" placeholder="1 time" autocomplete="off" value=[own.map(|own| own.count)]; }
            label { span class="unseen" { "Days before now" } input name=(name("days")) inputmode="numeric" size="9" maxlength="5" placeholder=(format!("{DAYS} days")) autocomplete="off" value=[own.map(|own| own.days)]; }
        }
    }
}

/// Actions on a cohort.
pub fn actions(project: i64, cohort: &Cohort) -> Markup {
    let address = parts::page(project, &format!("cohorts/{}", cohort.id));
    html! {
        div class="actions" {
            a class="button" href=(format!("{address}/edit")) { "Edit" }
            form method="post" action=(format!("{address}/delete")) data-confirm="Delete this cohort?" { button class="danger" { "Delete" } }
        }
        br;
        @if cohort.is_static {
            details class="card" {
                summary { "Add or remove persons" }
                form class="stack" method="post" action=(format!("{address}/members")) {
                    label class="full" { "Distinct ids, or uuids of persons, one a line" textarea name="ids" rows="5" required spellcheck="false" {} }
                    div class="actions" { button class="main" name="do" value="add" { "Add" } button name="do" value="remove" { "Remove" } }
                }
            }
        }
    }
}

/// An early access feature, as entered or as stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureDraft {
    /// Its name.
    pub name: String,
    /// Its description.
    pub description: String,
    /// Stage, which decides whether people may enrol; empty for a draft.
    pub stage: String,
    /// URL of its documentation.
    pub documentation_url: String,
    /// Flag id for a new feature; empty to create a flag.
    pub flag: String,
}

impl FeatureDraft {
    /// The draft of a stored feature.
    pub fn of(own: &Feature) -> Self {
        Self {
            name: own.name.clone(),
            description: own.description.clone(),
            stage: own.stage.clone(),
            documentation_url: own.documentation_url.clone(),
            flag: String::new(),
        }
    }
}

/// The form of an early access feature. A new one gets a new flag, or one of `flags`.
pub fn feature(
    (address, back): (&str, &str),
    own: &FeatureDraft,
    flags: &[Flag],
    problem: Option<&str>,
    is_new: bool,
) -> Markup {
    let stages = STAGES.into_iter().map(|stage| (stage, stage));
    let stage = if own.stage.is_empty() { "draft" } else { &own.stage };
    html! {
        p class="back" { a href=(back) { "← Back" } }
        @if let Some(problem) = problem { (parts::failed(problem)) }
        form class="card" method="post" action=(address) {
            div class="stack" {
                label { "Name" input class="wide" name="name" required value=(own.name) maxlength="200" autocomplete="off"; }
                label class="full" { "Description" textarea name="description" rows="3" maxlength=(DESCRIPTION_MAX_CHARS) { (own.description) } }
                label { "Stage" (select("stage", stage, stages)) }
                label { "Where it is described" input class="wide" type="url" name="documentation_url" value=(own.documentation_url) maxlength="800" placeholder="https://"; }
                @if is_new {
                    label { "Flag" select name="flag" {
                        option value="" { "a new one" }
                        @for flag in flags {
                            option value=(flag.id) selected[own.flag == flag.id.to_string()] { (parts::clipped(&flag.key, 120)) }
                        }
                    } }
                }
                button class="main" name="do" value="save" { "Save" }
            }
        }
        @if !is_new {
            form method="post" action=(address) data-confirm="Delete this feature? Its flag stays." { button class="danger" name="do" value="delete" { "Delete feature" } }
        }
    }
}
