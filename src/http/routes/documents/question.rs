//! Which documents a list shows, and in which order: [`Question`], from the parameters of a request. `search` finds
//! texts and tags in any case; `saved`, `favorited`, `pinned`, `short_id` and `scope` compare fields; `created_by` is
//! the id of a user, `user` stands for the caller; `insight` is the kind of an insight, as older clients name it.

use serde_json::Value;

use crate::http::auth::Principal;
use crate::http::fields::refused;
use crate::http::request::Request;
use crate::http::response::Problem;
use crate::metadata::documents::Document;

/// Fields that can be true or false.
const TRUTHS: [&str; 3] = ["saved", "favorited", "pinned"];

/// Fields that are compared with texts.
const TEXTS: [&str; 2] = ["short_id", "scope"];

/// Fields that are searched.
const SEARCHED: [&str; 4] = ["name", "derived_name", "description", "content"];

/// Fields by which lists can be sorted.
const ORDERS: [&str; 5] = ["name", "created_at", "updated_at", "last_modified_at", "date_marker"];

/// What a request asks for.
#[derive(Debug)]
pub(super) struct Question {
    /// In lower case.
    search: String,
    truths: Vec<(&'static str, bool)>,
    texts: Vec<(&'static str, String)>,
    created_by: Option<i64>,
    insight: Option<String>,
    order: Option<(&'static str, bool)>,
}

/// The place of a document in its order.
pub(super) type Place = (i64, String);

impl Question {
    /// The question of a request.
    pub(super) fn of(request: &Request, asker: &Principal) -> Result<Self, Problem> {
        let text = |name: &str| request.query(name).filter(|text| !text.is_empty());
        let truth = |name: &'static str| match text(name).as_deref() {
            Some("true" | "1") => Some((name, true)),
            Some("false" | "0") => Some((name, false)),
            _ => None,
        };
        let given = text("created_by").map(|id| {
            id.parse::<i64>()
                .map_err(|_| refused("created_by", "invalid_input", "A valid integer is required."))
        });
        let mine = text("user").map(|_| asker.user.id.0);
        let order = text("order").map(|order| {
            let (name, is_down) = match order.strip_prefix('-') {
                Some(name) => (name, true),
                None => (order.as_ref(), false),
            };
            let known = ORDERS.into_iter().find(|known| *known == name);
            let detail = format!("Lists can be ordered by {}.", ORDERS.join(", "));
            known
                .map(|name| (name, is_down))
                .ok_or_else(|| refused("order", "invalid_choice", detail))
        });
        Ok(Self {
            search: text("search").unwrap_or_default().to_lowercase(),
            truths: TRUTHS.into_iter().filter_map(truth).collect(),
            texts: TEXTS
                .into_iter()
                .filter_map(|name| Some((name, text(name)?.into_owned())))
                .collect(),
            created_by: given.transpose()?.or(mine),
            insight: text("insight").map(|kind| kind.to_lowercase()),
            order: order.transpose()?,
        })
    }

    /// The place of a document in the list; `None` if it is not in it.
    pub(super) fn place_of(&self, document: &Document) -> Option<Place> {
        let is_in = self.finds(document)
            && self.truths.iter().all(|(name, truth)| document.is(name) == *truth)
            && self.texts.iter().all(|(name, text)| document.text(name) == text)
            && self.created_by.is_none_or(|id| document.created_by.is_some_and(|by| by.0 == id))
            && self.insight.as_ref().is_none_or(|kind| insight(document).as_ref() == Some(kind));
        is_in.then(|| match self.order {
            None => (0, String::new()),
            Some(("created_at", _)) => (document.created_at.0, String::new()),
            Some(("updated_at" | "last_modified_at", _)) => (document.updated_at.0, String::new()),
            // Times are written alike, so that their texts are in their order.
            Some((name, _)) => (0, document.text(name).to_lowercase()),
        })
    }

    /// Sorts documents with their places, which are newest first.
    pub(super) fn sort(&self, found: &mut [(Place, i64)]) {
        match self.order {
            None => {}
            Some((_, false)) => found.sort(),
            Some((_, true)) => found.sort_by(|left, right| right.cmp(left)),
        }
    }

    fn finds(&self, document: &Document) -> bool {
        let has = |text: &str| text.to_lowercase().contains(&self.search);
        let tags = document.fields.get("tags").and_then(Value::as_array).into_iter().flatten();
        self.search.is_empty()
            || SEARCHED.iter().any(|name| has(document.text(name)))
            || tags.filter_map(Value::as_str).any(has)
    }
}

/// The kind of an insight in lower case, such as `trends`: of its filters, or of its query.
fn insight(document: &Document) -> Option<String> {
    let of_filters = document.fields.get("filters").and_then(|filters| filters.get("insight"));
    if let Some(kind) = of_filters.and_then(Value::as_str) {
        return Some(kind.to_lowercase());
    }
    let query = document.fields.get("query")?;
    let node = query.get("source").unwrap_or(query);
    let kind = node.get("kind")?.as_str()?;
    Some(kind.strip_suffix("Query").unwrap_or(kind).to_lowercase())
}
