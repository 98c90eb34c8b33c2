//! Filters and order of a list of documents: [`Question`], parsed from the parameters of a request. `search` matches
//! substrings of texts and tags, case-insensitively; `favorited`, `pinned`, `short_id` and `scope` compare fields;
//! `saved` insights include those on a dashboard; `created_by` is the id of a user, or a list of them, `user` is the
//! caller; `insight` is the kind of an insight in older clients' names; `tags` is a list of which one must match,
//! `dashboards` a list of which all must contain the insight; `date_from` and `date_to` bound the time of the last
//! change.

use serde_json::Value;

use crate::auth::Principal;
use crate::fields::refused;
use crate::request::Request;
use crate::response::Problem;
use crate::routes::documents::form;
use weir_base::clock::UnixMicros;
use weir_event::json;
use weir_insights::ProjectSettings;
use weir_insights::date_range::Parameters;
use weir_insights::selection::zone;
use weir_metadata::documents::Document;
use weir_wire::query_node::SQL;

/// The names of all parameters.
const PARAMETERS: [&str; 15] = [
    "search",
    "favorited",
    "pinned",
    "short_id",
    "scope",
    "saved",
    "created_by",
    "user",
    "insight",
    "tags",
    "dashboards",
    "date_from",
    "date_to",
    "order",
    "basic",
];

/// Boolean fields that can be compared.
const TRUTHS: [&str; 2] = ["favorited", "pinned"];

/// Most values of a parameter that is a list.
const VALUES_MAX: usize = 100;

/// Text fields that can be compared.
const TEXTS: [&str; 2] = ["short_id", "scope"];

/// Fields that `search` covers.
const SEARCHED: [&str; 4] = ["name", "derived_name", "description", "content"];

/// Fields by which lists can be sorted.
const ORDERS: [&str; 5] = ["name", "created_at", "updated_at", "last_modified_at", "date_marker"];

/// The parameters that select and order documents, unparsed; an empty one counts as absent.
#[derive(Debug, Default)]
pub(super) struct Texts(Vec<(&'static str, String)>);

impl Texts {
    /// The parameters of a request.
    pub(super) fn of(request: &Request) -> Self {
        let own = |name: &'static str| Some((name, request.query(name)?.into_owned()));
        let sent = PARAMETERS.into_iter().filter_map(own);
        Self(sent.filter(|(_, text)| !text.is_empty()).collect())
    }

    /// Parameters for a list without results.
    pub(super) fn basic() -> Self {
        Self(vec![("basic", "true".to_owned())])
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(own, _)| *own == name).map(|(_, text)| text.as_str())
    }
}

/// The parsed query.
#[derive(Debug)]
pub(super) struct Question {
    /// In lower case.
    search: String,
    truths: Vec<(&'static str, bool)>,
    saved: Option<bool>,
    texts: Vec<(&'static str, String)>,
    created_by: Vec<i64>,
    insight: Option<String>,
    /// In lower case.
    tags: Vec<String>,
    /// Ids of dashboards, each with the insights that have a place on it.
    boards: Vec<(i64, Vec<i64>)>,
    /// Bounds of the time of the last change: after, and before.
    changed: (Option<UnixMicros>, Option<UnixMicros>),
    order: Option<(&'static str, bool)>,
    /// Whether the basic fields are enough.
    pub(super) is_basic: bool,
}

/// The sort key of a document.
pub(super) type SortKey = (i64, String);

impl Question {
    /// Parses the parameters.
    pub(super) fn of(texts: &Texts, asker: &Principal, now: UnixMicros) -> Result<Self, Problem> {
        let text = |name: &str| texts.get(name);
        let truth = |name: &'static str| match text(name).map(str::to_lowercase) {
            None => Ok(None),
            Some(text) => match text.as_str() {
                "true" | "1" => Ok(Some(true)),
                "false" | "0" => Ok(Some(false)),
                _ => Err(refused(name, "invalid_input", "Must be a valid boolean.")),
            },
        };
        let ids = |name: &'static str| text(name).map_or(Ok(Vec::new()), |text| ids(name, text));
        let mut created_by = ids("created_by")?;
        if created_by.is_empty() && text("user").is_some() {
            created_by.push(asker.user.id.0);
        }
        let mut truths = Vec::new();
        for name in TRUTHS {
            truths.extend(truth(name)?.map(|is| (name, is)));
        }
        let tags = text("tags").map_or(Ok(Vec::new()), tags)?;
        let time = |name| text(name).map(|text| time(name, text, (asker, now))).transpose();
        let changed = (time("date_from")?, time("date_to")?);
        if let (Some(from), Some(to)) = changed
            && from > to
        {
            let detail = "date_from is after date_to.";
            return Err(refused("date_from", "invalid_input", detail));
        }
        Ok(Self {
            search: text("search").unwrap_or_default().to_lowercase(),
            truths,
            saved: truth("saved")?,
            texts: TEXTS
                .into_iter()
                .filter_map(|name| Some((name, text(name)?.to_owned())))
                .collect(),
            created_by,
            insight: text("insight").map(str::to_lowercase),
            tags,
            boards: ids("dashboards")?.into_iter().map(|id| (id, Vec::new())).collect(),
            changed,
            order: text("order").map(ordered).transpose()?,
            is_basic: truth("basic")?.unwrap_or(false),
        })
    }

    /// The ids of the dashboards in the query.
    pub(super) fn boards(&self) -> Vec<i64> {
        self.boards.iter().map(|(board, _)| *board).collect()
    }

    /// Adds the insights that have a place on a dashboard.
    pub(super) fn add_placed(&mut self, board: i64, insights: &[i64]) {
        let known = self.boards.iter_mut().filter(|(known, _)| *known == board);
        known.for_each(|(_, placed)| placed.extend(insights));
    }

    /// The fields needed to match a document and compute its sort key.
    pub(super) fn fields(&self) -> Vec<Box<str>> {
        let mut names: Vec<&str> = Vec::new();
        if !self.search.is_empty() {
            names.extend(SEARCHED);
            names.push("tags");
        }
        names.extend(self.truths.iter().map(|(name, _)| *name));
        names.extend(self.texts.iter().map(|(name, _)| *name));
        if self.saved.is_some() {
            names.extend(["saved", "dashboards"]);
        }
        if !self.tags.is_empty() {
            names.push("tags");
        }
        if !self.boards.is_empty() {
            names.push("dashboards");
        }
        if self.insight.is_some() {
            names.extend(["filters", "query"]);
        }
        if let Some((name @ ("name" | "date_marker"), _)) = self.order {
            names.push(name);
        }
        names.into_iter().map(Box::from).collect()
    }

    /// The sort key of a document; `None` if it does not match.
    pub(super) fn place_of(&self, document: &Document) -> Option<SortKey> {
        let is_in = self.finds(document)
            && self.truths.iter().all(|(name, truth)| document.is(name) == *truth)
            && self.texts.iter().all(|(name, text)| document.text(name) == text)
            && (self.created_by.is_empty()
                || document.created_by.is_some_and(|by| self.created_by.contains(&by.0)))
            && self.saved.is_none_or(|saved| is_saved(document, saved))
            && self.has_tag(document)
            && self.is_on_boards(document)
            && self.changed.0.is_none_or(|from| document.updated_at > from)
            && self.changed.1.is_none_or(|to| document.updated_at < to)
            && self.insight.as_ref().is_none_or(|kind| insight(document).as_ref() == Some(kind));
        is_in.then(|| match self.order {
            None => (0, String::new()),
            Some(("created_at", _)) => (document.created_at.0, String::new()),
            Some(("updated_at" | "last_modified_at", _)) => (document.updated_at.0, String::new()),
            // Times have one format, in which text order is time order.
            Some((name, _)) => (0, document.text(name).to_lowercase()),
        })
    }

    /// Sorts pairs of sort key and id; without an order they stay as they are, newest first.
    pub(super) fn sort(&self, found: &mut [(SortKey, i64)]) {
        match self.order {
            None => {}
            Some((_, false)) => found.sort(),
            Some((_, true)) => found.sort_by(|left, right| right.cmp(left)),
        }
    }

    fn finds(&self, document: &Document) -> bool {
        let has = |text: &str| text.to_lowercase().contains(&self.search);
        self.search.is_empty()
            || SEARCHED.iter().any(|name| has(document.text(name)))
            || tags_of(document).any(has)
    }

    fn has_tag(&self, document: &Document) -> bool {
        let is_meant = |tag: &str| self.tags.contains(&tag.to_lowercase());
        self.tags.is_empty() || tags_of(document).any(is_meant)
    }

    fn is_on_boards(&self, document: &Document) -> bool {
        let own = document.fields.get("dashboards").map(form::ids).unwrap_or_default();
        let is_on =
            |(id, placed): &(i64, Vec<i64>)| own.contains(id) || placed.contains(&document.id);
        self.boards.iter().all(is_on)
    }
}

fn tags_of(document: &Document) -> impl Iterator<Item = &str> {
    let tags = document.fields.get("tags").and_then(Value::as_array).into_iter().flatten();
    tags.filter_map(Value::as_str)
}

/// Whether an insight matches `saved`. An insight on a dashboard counts as saved.
fn is_saved(document: &Document, saved: bool) -> bool {
    let boards = document.fields.get("dashboards").map(form::ids).unwrap_or_default();
    match saved {
        true => document.is("saved") || !boards.is_empty(),
        false => !document.is("saved"),
    }
}

/// Parses one id, or a JSON list of ids.
fn ids(name: &'static str, text: &str) -> Result<Vec<i64>, Problem> {
    let wrong = || refused(name, "invalid_input", "Expected an integer, or a JSON list of them.");
    let ids = match text.parse() {
        Ok(id) => vec![id],
        Err(_) => json::read::<Vec<i64>>(text.as_bytes()).map_err(|_| wrong())?,
    };
    if ids.len() > VALUES_MAX { Err(too_many(name)) } else { Ok(ids) }
}

/// Parses a JSON list of texts, to lower case.
fn tags(text: &str) -> Result<Vec<String>, Problem> {
    let wrong = |_| refused("tags", "invalid_input", "Expected a JSON list of texts.");
    let tags: Vec<String> = json::read(text.as_bytes()).map_err(wrong)?;
    if tags.len() > VALUES_MAX {
        return Err(too_many("tags"));
    }
    Ok(tags.into_iter().map(|tag| tag.to_lowercase()).collect())
}

fn too_many(name: &'static str) -> Problem {
    refused(name, "max_length", format!("Expected at most {VALUES_MAX} values."))
}

/// Parses a date, or a span such as `-7d`, in the time zone of the project.
fn time(
    name: &'static str,
    text: &str,
    (asker, now): (&Principal, UnixMicros),
) -> Result<UnixMicros, Problem> {
    let wrong = || refused(name, "invalid_input", "Expected a date, or a span such as -7d.");
    let settings = ProjectSettings::of(&asker.project);
    let zone = zone(&settings).map_err(|_| wrong())?;
    let is_monday_first = settings.is_monday_first;
    let plain = Parameters { is_explicit: true, is_monday_first, ..Parameters::default() };
    let parameters = match name {
        "date_from" => Parameters { from: Some(text), ..plain },
        _ => Parameters { to: Some(text), ..plain },
    };
    let range = parameters.range(zone, now).map_err(|_| wrong())?;
    Ok(if name == "date_from" { range.from } else { range.to })
}

fn ordered(order: &str) -> Result<(&'static str, bool), Problem> {
    let (name, is_down) = match order.strip_prefix('-') {
        Some(name) => (name, true),
        None => (order, false),
    };
    let known = ORDERS.into_iter().find(|known| *known == name);
    let detail = || format!("Lists can be ordered by {}.", ORDERS.join(", "));
    known.map(|name| (name, is_down)).ok_or_else(|| refused("order", "invalid_choice", detail()))
}

/// The kind of an insight in lower case, such as `trends`: of its filters, or of its query; `sql` for SQL.
fn insight(document: &Document) -> Option<String> {
    let of_filters = document.fields.get("filters").and_then(|filters| filters.get("insight"));
    if let Some(kind) = of_filters.and_then(Value::as_str) {
        return Some(kind.to_lowercase());
    }
    let query = document.fields.get("query")?;
    let node = query.get("source").unwrap_or(query);
    let kind = node.get("kind")?.as_str()?;
    if kind == SQL {
        return Some("sql".to_owned());
    }
    Some(kind.strip_suffix("Query").unwrap_or(kind).to_lowercase())
}
