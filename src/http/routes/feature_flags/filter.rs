//! Filters and order of a list of flags: the parameters of `GET feature_flags/`.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::auth::Principal;
use crate::fields::refused;
use crate::openapi::{Parameter, Shape};
use crate::operation::Context;
use crate::operation::input::InQuery;
use crate::request::Request;
use crate::response::Problem;
use crate::routes::feature_flags::status::Calls;
use crate::routes::query::problems;
use weir_base::error::Kind;
use weir_event::json;
use weir_event::pattern::Pattern;
use weir_metadata::flags::StoredFlag;

/// Longest search in characters; PostHog's.
const SEARCH_MAX_CHARS: usize = 200;

/// Names of filters, also for deletion; PostHog's list.
const NAMES: [&str; 10] = [
    "active",
    "archived",
    "created_by_id",
    "search",
    "type",
    "evaluation_runtime",
    "tags",
    "excluded_tags",
    "excluded_properties",
    "has_evaluation_contexts",
];

/// The parameters of the query with the filters of lists.
const PARAMETERS: [Parameter; 12] = [
    Parameter::one_of("active", &["true", "false", "STALE"]),
    Parameter::one_of("archived", &["true", "false"]),
    Parameter::text("created_by_id").about("An id, or a list"),
    Parameter::shared("search"),
    Parameter::text("key"),
    Parameter::one_of("type", &["boolean", "multivariant", "remote_config", "experiment"]),
    Parameter::one_of("evaluation_runtime", &["server", "client", "all"]),
    Parameter::text("tags").about("A JSON list"),
    Parameter::text("excluded_tags").about("A JSON list"),
    Parameter::text("excluded_properties").about("A JSON list of keys of flags"),
    Parameter::one_of("has_evaluation_contexts", &["true", "false"]),
    Parameter::one_of("eligible_for_experiment", &["true", "false"])
        .about("Only flags of two variants or more, control first"),
];

/// The filters of a list, unparsed: values by the names of parameters.
#[derive(Debug, Default)]
pub struct Filters(HashMap<&'static str, String>);

impl Filters {
    /// Flags with this text in the key or the description; all if it is empty.
    pub fn searching(text: &str) -> Self {
        Self(HashMap::from([("search", text.to_owned())]))
    }
}

impl InQuery for Filters {
    fn describe(_: &'static str, _: &'static str, shape: &mut Shape) {
        shape.query.extend(PARAMETERS);
    }

    fn take(request: &Request, _: &'static str) -> Result<Self, Problem> {
        let names = PARAMETERS.iter().map(|parameter| parameter.name);
        let named = names.filter_map(|name| Some((name, request.query(name)?.into_owned())));
        Ok(Self(named.collect()))
    }
}

/// Prefix of the keys of flags that target surveys; lists omit them.
const SURVEY_TARGETING: &str = "survey-targeting-";

/// Filters of flags. The default matches all flags that are not archived.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    active: Option<bool>,
    /// The last calls of flags, if only stale flags match.
    stale: Option<Calls>,
    archived: bool,
    created_by: Vec<i64>,
    search: Option<Arc<Pattern>>,
    key: Option<String>,
    kind: Option<String>,
    runtime: Option<String>,
    tags: Vec<String>,
    excluded_tags: Vec<String>,
    /// Keys of omitted flags; PostHog calls the parameter `excluded_properties`.
    excluded_keys: Vec<String>,
    has_contexts: Option<bool>,
    /// Whether only flags match that an experiment could use.
    for_experiment: bool,
}

impl Wanted {
    /// Parses the filters of a query.
    pub(super) async fn of_query(
        cx: &Context<Principal>,
        filters: &Filters,
    ) -> Result<Self, Problem> {
        Self::read(cx, &filters.0).await
    }

    /// Parses the filters of a bulk deletion; [`unknown_names`] has checked their names. A value
    /// that is unreadable, or that would match all flags, is refused: a list would only show too
    /// much, a deletion would delete it.
    pub(super) async fn of_filters(
        cx: &Context<Principal>,
        filters: &Map<String, Value>,
    ) -> Result<Self, Problem> {
        let mut named = HashMap::with_capacity(filters.len());
        for (name, value) in filters {
            let Some(text) = readable(name, value) else {
                let detail = "This filter cannot be read.";
                return Err(refused(format!("filters__{name}"), "invalid_input", detail));
            };
            named.insert(name.as_str(), text);
        }
        Self::read(cx, &named).await
    }

    async fn read(cx: &Context<Principal>, named: &HashMap<&str, String>) -> Result<Self, Problem> {
        let text = |name: &str| named.get(name).filter(|text| !text.is_empty()).cloned();
        let search = text("search").map(|search| search.trim().to_owned()).unwrap_or_default();
        if search.chars().count() > SEARCH_MAX_CHARS {
            let detail = "Search term cannot exceed 200 characters";
            return Err(Problem::new(Kind::Invalid, "invalid_input", detail));
        }
        let search = match search.is_empty() {
            true => None,
            false => Some(searched(&search).ok_or_else(|| {
                let detail = "This search cannot be read.";
                Problem::new(Kind::Invalid, "invalid_input", detail)
            })?),
        };
        let active = text("active").map(|active| active.to_lowercase());
        let stale = match active.as_deref() {
            Some("stale") => {
                cx.app.engine.wait().await.map_err(problems::problem)?;
                Some(Calls::of_project(&cx.app, cx.who.project.id).await?)
            }
            _ => None,
        };
        Ok(Self {
            active: match active.as_deref() {
                None | Some("stale") => None,
                // Anything else means false, as for PostHog.
                Some(active) => Some(active == "true"),
            },
            stale,
            archived: text("archived").is_some_and(|archived| archived == "true"),
            created_by: list(text("created_by_id"))
                .iter()
                .filter_map(|id| id.parse().ok())
                .collect(),
            search,
            key: text("key").map(|key| key.to_lowercase()),
            kind: text("type"),
            runtime: text("evaluation_runtime"),
            tags: list(text("tags")),
            excluded_tags: list(text("excluded_tags")),
            excluded_keys: list(text("excluded_properties")),
            has_contexts: text("has_evaluation_contexts").and_then(|has| match &*has {
                "true" => Some(true),
                "false" => Some(false),
                _ => None,
            }),
            for_experiment: text("eligible_for_experiment").is_some_and(|only| only == "true"),
        })
    }

    /// Whether the flag matches.
    pub(super) fn includes(&self, flag: &StoredFlag) -> bool {
        let is_stale = |calls: &Calls| calls.state(flag).0 == "stale";
        let variants = flag.filters.pointer("/multivariate/variants").and_then(Value::as_array);
        let is_multivariant = variants.is_some_and(|variants| !variants.is_empty());
        let is_of_kind = |kind: &str| match kind {
            "boolean" => !is_multivariant,
            "multivariant" => is_multivariant,
            "remote_config" => flag.plain.is_remote_configuration,
            // Weir has no experiments.
            "experiment" => false,
            _ => true,
        };
        let creator = flag.created_by.map(|user| user.0);
        let runtime = flag.plain.evaluation_runtime.as_deref().unwrap_or("all");
        !flag.key.starts_with(SURVEY_TARGETING)
            && self.active.is_none_or(|active| active == flag.active)
            && self.stale.as_ref().is_none_or(is_stale)
            && self.archived == flag.plain.archived
            && (self.created_by.is_empty()
                || creator.is_some_and(|creator| self.created_by.contains(&creator)))
            && self.search.as_ref().is_none_or(|search| {
                [&flag.key, &flag.name].iter().any(|text| search.is_match(text).unwrap_or(false))
            })
            && self.key.as_ref().is_none_or(|key| *key == flag.key.to_lowercase())
            && self.kind.as_deref().is_none_or(is_of_kind)
            && self.runtime.as_deref().is_none_or(|wanted| wanted == runtime)
            && (self.tags.is_empty() || self.tags.iter().any(|tag| flag.plain.tags.contains(tag)))
            && !self.excluded_tags.iter().any(|tag| flag.plain.tags.contains(tag))
            && !self.excluded_keys.contains(&flag.key)
            && self.has_contexts.is_none_or(|has| has != flag.plain.evaluation_contexts.is_empty())
            && (!self.for_experiment || is_eligible_for_experiment(flag))
    }
}

/// Whether an experiment could use a flag: it has at least two variants, `control` first.
pub(super) fn is_eligible_for_experiment(flag: &StoredFlag) -> bool {
    let variants = flag.filters.pointer("/multivariate/variants").and_then(Value::as_array);
    let variants = variants.map_or(&[][..], Vec::as_slice);
    let first = variants.first().and_then(|variant| variant.get("key")?.as_str());
    variants.len() >= 2 && first == Some("control")
}

/// The unknown names of filters of a deletion, in alphabetical order.
pub(super) fn unknown_names(filters: &Map<String, Value>) -> Vec<&str> {
    let names = filters.keys().map(String::as_str);
    let mut unknown: Vec<&str> = names.filter(|name| !NAMES.contains(name)).collect();
    unknown.sort_unstable();
    unknown
}

/// A filter of a deletion in the form of a query parameter; `None` if it is empty, or has an invalid
/// value.
fn readable(name: &str, value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Array(items) if items.iter().all(|item| item.is_string() || item.is_i64()) => {
            value.to_string()
        }
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Null | Value::Array(_) | Value::Object(_) => return None,
    };
    let is_text = value.is_string();
    let is_one_of = |choices: &[&str]| !value.is_array() && choices.contains(&&*text);
    let listed = || list(Some(text.clone()));
    let is_good = match name {
        "active" => is_one_of(&["true", "false", "STALE"]),
        "archived" | "has_evaluation_contexts" => is_one_of(&["true", "false"]),
        "type" => is_one_of(&["boolean", "multivariant", "experiment", "remote_config"]),
        "evaluation_runtime" => is_one_of(&["server", "client", "all"]),
        "search" => is_text && !text.is_empty(),
        "created_by_id" => {
            let ids = listed();
            !ids.is_empty() && ids.iter().all(|id| id.parse::<i64>().is_ok())
        }
        "tags" | "excluded_tags" | "excluded_properties" => {
            let items = listed();
            (is_text || value.is_array())
                && !items.is_empty()
                && items.iter().all(|item| !item.is_empty())
        }
        _ => false,
    };
    is_good.then_some(text)
}

/// The pattern of a search: case-insensitive, where a space matches any separators between words, or
/// nothing.
fn searched(search: &str) -> Option<Arc<Pattern>> {
    let words: Vec<_> = search.split(' ').map(fancy_regex::escape).collect();
    let pattern = format!("(?i){}", words.join(r"[\s\-_]*"));
    Pattern::new(&pattern).ok()
}

/// A list in the query: JSON, or texts separated by commas.
fn list(text: Option<String>) -> Vec<String> {
    let Some(text) = text else { return Vec::new() };
    match json::read(text.as_bytes()) {
        Ok(Value::Array(items)) => items
            .iter()
            .map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned))
            .collect(),
        _ => text.split(',').map(|item| item.trim().to_owned()).collect(),
    }
}

/// Sorts by the order of a request: `created_at`, `-created_at`, `key`, `-key` and others.
pub(super) fn sort(flags: &mut [&std::sync::Arc<StoredFlag>], order: Option<&str>) {
    let Some(order) = order else { return };
    let (name, is_descending) = match order.strip_prefix('-') {
        Some(name) => (name, true),
        None => (order, false),
    };
    match name {
        "created_at" => flags.sort_by_key(|flag| (flag.created_at.0, flag.id)),
        "updated_at" => flags.sort_by_key(|flag| (flag.updated_at.0, flag.id)),
        "key" => flags.sort_by(|a, b| a.key.cmp(&b.key)),
        "name" => flags.sort_by(|a, b| a.name.cmp(&b.name)),
        _ => return,
    }
    if is_descending {
        flags.reverse();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{list, readable, searched, unknown_names};

    #[test]
    fn lists_have_two_forms() {
        for (text, expected) in
            [("[1, \"2\"]", vec!["1", "2"]), ("1,2 , x", vec!["1", "2", "x"]), ("7", vec!["7"])]
        {
            assert_eq!(list(Some(text.to_owned())), expected, "{text}");
        }
    }

    /// PostHog: case-insensitive, a space means `[\s\-_]*`; all other characters are literals.
    #[test]
    fn searches_cross_what_separates_words() {
        for (search, text, expected) in [
            ("big flag", "My_BIG-flag", true),
            ("big flag", "bigflag", true),
            ("big flag", "big _- flag", true),
            ("big -flag", "big-flag", true),
            ("big flag", "big.flag", false),
            ("big-flag", "big_flag", false),
            ("big-flag", "bigflag", false),
            ("-", "plain", false),
            ("a.c", "abc", false),
            ("(", "x(y", true),
        ] {
            let pattern = searched(search).expect("a pattern");
            assert_eq!(pattern.is_match(text).unwrap(), expected, "{search} in {text}");
        }
    }

    /// Deletion accepts only PostHog's names of filters, and only valid values.
    #[test]
    fn filters_of_a_deletion_say_something() {
        let with =
            |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), json!(1))).collect();
        assert_eq!(unknown_names(&with(&["tags", "order", "key"])), ["key", "order"]);
        assert_eq!(unknown_names(&with(&["eligible_for_experiment"])), ["eligible_for_experiment"]);
        for (name, value, expected) in [
            ("active", json!(false), Some("false")),
            ("active", json!("STALE"), Some("STALE")),
            ("active", json!("no"), None),
            ("active", json!(null), None),
            ("active", json!(["true"]), None),
            ("archived", json!(true), Some("true")),
            ("archived", json!("yes"), None),
            ("has_evaluation_contexts", json!("false"), Some("false")),
            ("has_evaluation_contexts", json!(0), None),
            ("type", json!("experiment"), Some("experiment")),
            ("type", json!("boolan"), None),
            ("evaluation_runtime", json!("all"), Some("all")),
            ("evaluation_runtime", json!(""), None),
            ("search", json!(" old "), Some("old")),
            ("search", json!(" "), None),
            ("search", json!(5), None),
            ("created_by_id", json!(3), Some("3")),
            ("created_by_id", json!("1, 2"), Some("1, 2")),
            ("created_by_id", json!([1, "2"]), Some("[1,\"2\"]")),
            ("created_by_id", json!([]), None),
            ("created_by_id", json!("[1"), None),
            ("created_by_id", json!(true), None),
            ("tags", json!(["x"]), Some("[\"x\"]")),
            ("tags", json!("[\"x\"]"), Some("[\"x\"]")),
            ("tags", json!([]), None),
            ("tags", json!([""]), None),
            ("tags", json!([{}]), None),
            ("tags", json!({}), None),
            ("excluded_tags", json!(["x"]), Some("[\"x\"]")),
            ("excluded_tags", json!(""), None),
            ("excluded_properties", json!(1), None),
            ("order", json!("key"), None),
        ] {
            assert_eq!(readable(name, &value).as_deref(), expected, "{name}: {value}");
        }
        assert_eq!(readable("search", &Value::Null), None);
    }
}
