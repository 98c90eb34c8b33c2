//! Which flags a list has: the parameters of `GET feature_flags/`.

use std::collections::HashMap;

use serde_json::Map;
use serde_json::Value;

use crate::app::App;
use crate::error::Kind;
use crate::event::json;
use crate::http::auth::Principal;
use crate::http::request::Request;
use crate::http::response::Problem;
use crate::http::routes::feature_flags::status::Calls;
use crate::http::routes::query;
use crate::metadata::flags::StoredFlag;

/// Longest search, in characters; PostHog's.
const SEARCH_MAX_CHARS: usize = 200;

/// Names that select.
const NAMES: [&str; 13] = [
    "active",
    "archived",
    "created_by_id",
    "search",
    "key",
    "type",
    "evaluation_runtime",
    "tags",
    "excluded_tags",
    "excluded_properties",
    "has_evaluation_contexts",
    "eligible_for_experiment",
    "order",
];

/// Keys of flags that decide who sees a survey start so; lists leave them out.
const SURVEY_TARGETING: &str = "survey-targeting-";

/// Which flags are wanted. The default is all that are not archived.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    active: Option<bool>,
    /// When flags were last called, if only stale ones are wanted.
    stale: Option<Calls>,
    archived: bool,
    created_by: Vec<i64>,
    search: String,
    key: Option<String>,
    kind: Option<String>,
    runtime: Option<String>,
    tags: Vec<String>,
    excluded_tags: Vec<String>,
    /// Keys of flags that are left out; PostHog calls the parameter `excluded_properties`.
    excluded_keys: Vec<String>,
    has_contexts: Option<bool>,
    /// Whether only flags that an experiment could use are wanted.
    for_experiment: bool,
}

impl Wanted {
    /// Reads the query.
    pub(super) async fn of_request(
        app: &App,
        asker: &Principal,
        request: &Request,
    ) -> Result<Self, Problem> {
        let named = NAMES.iter().filter_map(|name| Some((*name, request.query(name)?)));
        let named: HashMap<&str, String> =
            named.map(|(name, value)| (name, value.into_owned())).collect();
        Self::read(app, asker, &named).await
    }

    /// Reads an object with the same names.
    pub(super) async fn of_filters(
        app: &App,
        asker: &Principal,
        filters: &Map<String, Value>,
    ) -> Result<Self, Problem> {
        let unknown: Vec<&str> =
            filters.keys().map(String::as_str).filter(|name| !NAMES.contains(name)).collect();
        if !unknown.is_empty() {
            let detail = format!("Unknown filter keys: {}", unknown.join(", "));
            return Err(Problem::new(Kind::Invalid, "invalid_input", detail));
        }
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let named = filters.iter().map(|(name, value)| (name.as_str(), text(value)));
        Self::read(app, asker, &named.collect()).await
    }

    async fn read(
        app: &App,
        asker: &Principal,
        named: &HashMap<&str, String>,
    ) -> Result<Self, Problem> {
        let text = |name: &str| named.get(name).filter(|text| !text.is_empty()).cloned();
        let search = text("search").unwrap_or_default();
        if search.chars().count() > SEARCH_MAX_CHARS {
            let detail = "Search term cannot exceed 200 characters";
            return Err(Problem::new(Kind::Invalid, "invalid_input", detail));
        }
        let active = text("active").map(|active| active.to_lowercase());
        let stale = match active.as_deref() {
            Some("stale") => {
                app.engine.wait().await.map_err(query::problem)?;
                Some(Calls::of_project(app, asker.project.id).await?)
            }
            _ => None,
        };
        Ok(Self {
            active: match active.as_deref() {
                Some("true") => Some(true),
                Some("false") => Some(false),
                _ => None,
            },
            stale,
            archived: text("archived").is_some_and(|archived| archived == "true"),
            created_by: list(text("created_by_id"))
                .iter()
                .filter_map(|id| id.parse().ok())
                .collect(),
            search: plain(&search),
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

    /// Whether the list has the flag.
    pub(super) fn includes(&self, flag: &StoredFlag) -> bool {
        let is_stale = |calls: &Calls| calls.state(flag).0 == "stale";
        let variants = flag.filters.pointer("/multivariate/variants").and_then(Value::as_array);
        let is_multivariant = variants.is_some_and(|variants| !variants.is_empty());
        let is_of_kind = |kind: &str| match kind {
            "boolean" => !is_multivariant && !flag.is_remote_configuration,
            "multivariant" => is_multivariant,
            "remote_config" => flag.is_remote_configuration,
            // Nothing makes experiments.
            "experiment" => false,
            _ => true,
        };
        let creator = flag.created_by.map(|user| user.0);
        let runtime = flag.evaluation_runtime.as_deref().unwrap_or("all");
        !flag.key.starts_with(SURVEY_TARGETING)
            && self.active.is_none_or(|active| active == flag.active)
            && self.stale.as_ref().is_none_or(is_stale)
            && self.archived == flag.archived
            && (self.created_by.is_empty()
                || creator.is_some_and(|creator| self.created_by.contains(&creator)))
            && (self.search.is_empty()
                || [&flag.key, &flag.name].iter().any(|text| plain(text).contains(&self.search)))
            && self.key.as_ref().is_none_or(|key| *key == flag.key.to_lowercase())
            && self.kind.as_deref().is_none_or(is_of_kind)
            && self.runtime.as_deref().is_none_or(|wanted| wanted == runtime)
            && (self.tags.is_empty() || self.tags.iter().any(|tag| flag.tags.contains(tag)))
            && !self.excluded_tags.iter().any(|tag| flag.tags.contains(tag))
            && !self.excluded_keys.contains(&flag.key)
            && self.has_contexts.is_none_or(|has| has != flag.evaluation_contexts.is_empty())
            && (!self.for_experiment || is_eligible_for_experiment(flag))
    }
}

/// Whether an experiment could use a flag: it has two variants at least, `control` first.
pub(super) fn is_eligible_for_experiment(flag: &StoredFlag) -> bool {
    let variants = flag.filters.pointer("/multivariate/variants").and_then(Value::as_array);
    let variants = variants.map_or(&[][..], Vec::as_slice);
    let first = variants.first().and_then(|variant| variant.get("key")?.as_str());
    variants.len() >= 2 && first == Some("control")
}

/// Lower case, and without what separates words: a space in a search stands for any of these.
fn plain(text: &str) -> String {
    let text = text.to_lowercase();
    text.chars().filter(|c| !c.is_whitespace() && *c != '-' && *c != '_').collect()
}

/// A list in the query: JSON, or texts with commas between.
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

/// The order that a list is asked for: `created_at`, `-created_at`, `key`, `-key` and the like.
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
    use super::list;
    use super::plain;

    #[test]
    fn searches_cross_what_separates_words_and_lists_have_two_forms() {
        assert!(plain("My_big-flag").contains(&plain("big flag")));
        for (text, expected) in
            [("[1, \"2\"]", vec!["1", "2"]), ("1,2 , x", vec!["1", "2", "x"]), ("7", vec!["7"])]
        {
            assert_eq!(list(Some(text.to_owned())), expected, "{text}");
        }
    }
}
