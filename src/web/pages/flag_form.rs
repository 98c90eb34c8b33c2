//! The form of a flag: [`form`] shows the entered values, with their errors. There is an empty row for one more filter
//! of each condition and one more variant; buttons add conditions and rows, so nothing needs a script.

use maud::{Markup, html};
use serde_json::Value;

use crate::insight::form::fields::select;
use crate::pages::flags::trace;
use crate::parts::clipped;
use crate::state::flag::{
    Condition, Draft, FILTERS_MAX, Filter, OWNERS, PARTS_MAX, Variant, operators, takes_several,
};
use crate::state::rules;
use crate::{parts, sentences};
use weir_api::cohorts::Cohort;
use weir_api::flags::TestedEvaluation;
use weir_api::groups::Type;

/// Longest keys, names and values, in characters.
const KEY_MAX_CHARS: usize = 400;
const NAME_MAX_CHARS: usize = 4000;
const VALUE_MAX_CHARS: usize = 4000;

/// Data of a form besides the entered values.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Types of groups.
    pub groups: Vec<Type>,
    /// Cohorts.
    pub cohorts: Vec<Cohort>,
    /// Names of properties of persons.
    pub properties: Vec<String>,
    /// Names of events.
    pub events: Vec<String>,
    /// Why the flag was refused.
    pub problem: Option<String>,
    /// How many persons or groups each condition matches, of how many in all; `Err` contains why this is not known.
    pub reach: Vec<Result<(i64, i64), String>>,
    /// The distinct id that the flag was tested with.
    pub tried: String,
    /// The evaluation for that distinct id; `Err` contains why it is not known.
    pub trial: Option<Result<TestedEvaluation, String>>,
}

/// The form; `address` receives it, `back` is the link away from it.
pub fn form(address: &str, back: &str, draft: &Draft, known: &Known) -> Markup {
    html! {
        p class="back" { a href=(back) { "← Back" } }
        @if let Some(problem) = &known.problem { (parts::failed(problem)) }
        form method="post" action=(address) class="flag" {
            // Enter saves: browsers submit a form with its first button.
            button class="unseen" name="do" value="save" tabindex="-1" { "Save" }
            (head(draft, known))
            h2 { "Release conditions" }
            input type="hidden" name="conditions" value=(draft.conditions.len());
            @for (condition, number) in draft.conditions.iter().zip(1_usize..) {
                (one(condition, number, draft, known))
            }
            @if draft.conditions.is_empty() { p { "No release condition: nobody matches." } }
            p class="actions" {
                @if draft.conditions.len() < PARTS_MAX { button name="do" value="condition" { "Add a condition" } }
                button name="do" value="reach" title="Counts without the part in percent" { "How many are these?" }
            }
            (variants(draft))
            (trying(known))
            p class="actions" { button class="main" name="do" value="save" { "Save" } a href=(back) { "Cancel" } }
            datalist id="variant-keys" { @for own in &draft.variants { option value=(own.key) {} } }
            (lists(known))
        }
    }
}

/// Suggestions for the fields.
pub fn lists(known: &Known) -> Markup {
    html! {
        datalist id="properties" { @for name in &known.properties { option value=(name) {} } }
        datalist id="cohort-ids" {
            @for own in &known.cohorts { option value=(own.id) { (clipped(&own.name, 120)) } }
        }
    }
}

fn head(draft: &Draft, known: &Known) -> Markup {
    let groups: Vec<(String, &str)> = known
        .groups
        .iter()
        .map(|own| (own.group_type_index.to_string(), own.group_type.as_str()))
        .collect();
    let subjects = std::iter::once(("", "persons"))
        .chain(groups.iter().map(|(index, name)| (index.as_str(), *name)));
    html! {
        div class="card" {
            div class="stack" {
                label { "Key" input class="wide" name="key" required value=(draft.key) maxlength=(KEY_MAX_CHARS) autocomplete="off" spellcheck="false" placeholder="new-checkout"; }
                label class="full" { "What it is for" textarea class="low" name="name" rows="2" maxlength=(NAME_MAX_CHARS) { (draft.name) } }
                label class="check" { input type="checkbox" name="active" value="1" checked[draft.is_active]; "On" }
                label class="check" { input type="checkbox" name="continuity" value="1" checked[draft.is_continuous]; "Keep the value across sign-in" }
                @if groups.is_empty() && draft.group.is_empty() {} @else {
                    label { "Given to" (select("group", &draft.group, subjects)) }
                }
            }
        }
    }
}

fn one(condition: &Condition, number: usize, draft: &Draft, known: &Known) -> Markup {
    let name = |field: &str| format!("c{number}.{field}");
    let sentence = condition.node(number).ok();
    html! {
        fieldset class="card" {
            legend { "Condition " (number) }
            @if let Some(node) = &sentence { p { (sentences::condition(&rules::Condition::of(node))) } }
            @match known.reach.get(number - 1) {
                Some(Ok((some, all))) => p class="note" { (parts::number(*some)) " of " (parts::number(*all)) " " @if draft.group.is_empty() { "persons" } @else { "groups" } " match, before the part in percent." },
                Some(Err(problem)) => (parts::failed(problem)),
                None => {},
            }
            @match &condition.whole {
                Some(whole) => label class="full" {
                    "This condition has parts without a field. As JSON:"
                    textarea name=(name("whole")) rows="8" spellcheck="false" { (whole) }
                },
                None => {
                    (fields(condition, number, known))
                },
            }
            label class="check" { input type="checkbox" name=(name("remove")) value="1"; "Remove this condition" }
        }
    }
}

fn fields(condition: &Condition, number: usize, known: &Known) -> Markup {
    let name = |field: &str| format!("c{number}.{field}");
    html! {
        @if !condition.rest.is_empty() { input type="hidden" name=(name("rest")) value=(condition.rest); }
        (filters(&condition.filters, &format!("c{number}."), known, &OWNERS))
        div class="fields" {
            label { "Part in percent" input name=(name("rollout")) inputmode="decimal" size="5" maxlength="20" value=(condition.rollout) placeholder="100" autocomplete="off"; }
            label { "Always the variant" input name=(name("variant")) list="variant-keys" size="14" maxlength=(KEY_MAX_CHARS) value=(condition.variant) placeholder="by chance" autocomplete="off"; }
        }
    }
}

/// Rows of filters, and an empty one while there are fewer than the maximum. `prefix` begins their names, `owners` are
/// the selectable ones.
pub fn filters(own: &[Filter], prefix: &str, known: &Known, owners: &[&'static str]) -> Markup {
    let rows = (own.len() + 1).min(FILTERS_MAX);
    html! {
        @for row in 1..=rows { (filter(own.get(row - 1), &|field| format!("{prefix}p{row}.{field}"), (known, owners))) }
    }
}

fn filter(
    own: Option<&Filter>,
    name: &dyn Fn(&str) -> String,
    (known, owners): (&Known, &[&'static str]),
) -> Markup {
    let owner = |owner: &'static str| {
        let text = match owner.strip_prefix("group") {
            None => owner,
            Some(index) => {
                let is_it = |of: &&Type| Some(of.group_type_index) == index.parse().ok();
                known.groups.iter().find(is_it)?.group_type.as_str()
            }
        };
        Some((owner, text))
    };
    let typed = own.map_or("person", |own| own.owner.as_str());
    let operator = own.map_or("exact", |own| own.operator.as_str());
    let values = own.map(|own| own.values.as_slice()).unwrap_or_default();
    let list = if typed == "cohort" { "cohort-ids" } else { "properties" };
    html! {
        div class="row filter" {
            label { span class="unseen" { "Of" } (select(&name("of"), typed, owners.iter().copied().filter_map(owner))) }
            label {
                span class="unseen" { "Property, or the id of a cohort or flag" }
                input name=(name("key")) list=(list) maxlength=(KEY_MAX_CHARS) placeholder="add a filter" autocomplete="off"
                    value=[own.map(|own| &own.key)];
            }
            label { span class="unseen" { "Operator" } (select(&name("op"), operator, operators())) }
            @for value in values {
                @if !(operator.ends_with("_set") && value == operator) {
                    label { span class="unseen" { "Value" } input name=(name("value")) value=(value) maxlength=(VALUE_MAX_CHARS) autocomplete="off"; }
                }
            }
            @if values.is_empty() || takes_several(operator) {
                label {
                    span class="unseen" { "Value" }
                    input name=(name("value")) maxlength=(VALUE_MAX_CHARS) autocomplete="off" placeholder=(if values.is_empty() { "value" } else { "or" });
                }
            }
        }
    }
}

/// Test of the flag as entered, before anything is saved.
fn trying(known: &Known) -> Markup {
    html! {
        h2 { "Try it before you save" }
        div class="card" {
            div class="fields" {
                label { "Distinct id" input class="wide" name="try_id" value=(known.tried) maxlength=(KEY_MAX_CHARS) autocomplete="off"; }
                button name="do" value="try" formnovalidate { "Try" }
            }
            @match &known.trial {
                Some(Ok(answer)) => (trace(answer)),
                Some(Err(problem)) => (parts::failed(problem)),
                None => p class="quiet" { "Shows which condition would decide for one person, and why. It does not change the flag." },
            }
        }
    }
}

fn variants(draft: &Draft) -> Markup {
    let rows = (draft.variants.len() + 1).min(PARTS_MAX);
    let empty = Variant::default();
    html! {
        h2 { "What they get" }
        fieldset class="card" {
            legend { "Variants" }
            p class="quiet" { "Without variants they get true. The parts of all variants make 100 percent together." }
            input type="hidden" name="variants" value=(rows);
            @for number in 1..=rows {
                @let own = draft.variants.get(number - 1).unwrap_or(&empty);
                @let name = |field: &str| format!("v{number}.{field}");
                div class="fields" {
                    label { "Key" input name=(name("key")) value=(own.key) size="20" maxlength=(KEY_MAX_CHARS) autocomplete="off" placeholder="add a variant"; }
                    label { "Percent" input name=(name("rollout")) value=(own.rollout) inputmode="decimal" size="5" maxlength="20" autocomplete="off"; }
                    label { "Called" input name=(name("name")) value=(own.name) size="14" maxlength=(KEY_MAX_CHARS) autocomplete="off"; }
                    label class="grow" { "Payload (JSON)" input class="mono" name=(name("payload")) value=(own.payload) size="20" autocomplete="off" spellcheck="false"; }
                    @if *own != empty { label class="check" { input type="checkbox" name=(name("remove")) value="1"; "Remove" } }
                }
            }
            p class="actions" { button class="small" name="do" value="rows" { "One more variant" } }
        }
        @if draft.variants.is_empty() {
            div class="card" {
                label class="full" { "Payload with true (JSON)" textarea class="low" name="payload" rows="2" spellcheck="false" { (draft.payload) } }
            }
        } @else if !draft.payload.is_empty() { input type="hidden" name="payload" value=(draft.payload); }
    }
}

/// Code by which clients evaluate a flag, in some languages.
pub fn snippets(key: &str, server: &str, token: &str, has_variants: bool) -> Markup {
    let quoted = Value::from(key).to_string();
    let (js, python) = match has_variants {
        true => (
            format!("if (posthog.getFeatureFlag({quoted}) === \"...\") {{\n  // ...\n}}"),
            format!("if posthog.get_feature_flag({quoted}, \"distinct-id\") == \"...\":\n    ..."),
        ),
        false => (
            format!("if (posthog.isFeatureEnabled({quoted})) {{\n  // ...\n}}"),
            format!("if posthog.feature_enabled({quoted}, \"distinct-id\"):\n    ..."),
        ),
    };
    let node = format!("const value = await posthog.getFeatureFlag({quoted}, \"distinct-id\");");
    let curl = format!(
        "curl {server}/flags/?v=2 -H 'Content-Type: application/json' \\\n  -d '{{\"api_key\": \"{token}\", \"distinct_id\": \"distinct-id\"}}'"
    );
    html! {
        details class="source" {
            summary { "Evaluate it in your product" }
            div {
                @for (id, title, code) in [("in-js", "In a browser", &js), ("in-node", "Node.js", &node), ("in-python", "Python", &python), ("in-curl", "By hand", &curl)] {
                    h3 { (title) } (parts::code(id, code))
                }
            }
        }
    }
}
