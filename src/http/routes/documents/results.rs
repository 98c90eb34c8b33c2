//! Results of saved insights: [`Reader`] computes them, or reads them from the cache, depending on the request
//! ([`ResultsRequest`]).
//!
//! The computation of one request is bounded: by the number of insights, by the time limit of a query for all of them
//! together, and by the length of the results. A client that hangs up ends its queries.

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use serde_json::{Map, Value, json};

use crate::auth;
use crate::beside::beside;
use crate::budget::{Busy, Reservation};
use crate::fields::refused;
use crate::members::{Member, Members};
use crate::openapi::Shape;
use crate::operation::input::InQuery;
use crate::request::Request;
use crate::response::Problem;
use crate::routes::documents::kinds::RESULTS;
use crate::routes::documents::rights::Viewer;
use crate::routes::query::refresh::Refresh;
use crate::routes::query::{problems, question, status};
use crate::routes::store::problem;
use weir_api::node::NodeError;
use weir_api::nodes::check;
use weir_app::App;
use weir_base::clock::UnixMicros;
use weir_base::error::Kind as ErrorKind;
use weir_event::json;
use weir_insights::cache::{Answer, Key};
use weir_insights::insight::KINDS;
use weir_insights::{ProjectSettings, legacy, saved};
use weir_metadata::accounts::{KeyId, PersonalKey};
use weir_metadata::documents::{Document, DocumentText};
use weir_wire::query_node;

/// Most insights that one request computes; further ones get cached results only.
const COMPUTED_MAX: usize = 100;

/// Insights that one request computes at a time.
const AT_ONCE: usize = 4;

/// Most bytes of the results of one response; further insights have none.
const RESULTS_MAX_BYTES: usize = 32 << 20;

/// The fields of an insight with its query.
const ASKING: [&str; 2] = ["query", "filters"];

/// How a request obtains results.
#[derive(Clone, Debug)]
pub(in crate::routes) struct ResultsRequest {
    /// Whether cached results are accepted.
    pub(in crate::routes) refresh: Refresh,
    /// Filters and variables of the dashboard.
    pub(in crate::routes) frame: Frame,
}

/// Filters and variables of a dashboard, which override those of its insights.
#[derive(Clone, Debug, Default)]
pub(in crate::routes) struct Frame {
    filters: Map<String, Value>,
    variables: Map<String, Value>,
    /// Whether a caller without the right to row queries has set filters or variables: such a query is refused then.
    is_without_rows: bool,
}

impl Frame {
    /// A frame with filters that the owner of this key sets.
    pub(in crate::routes) fn of_filters(filters: Map<String, Value>, key: &PersonalKey) -> Self {
        Self::chosen(filters, Map::new(), key)
    }

    /// A frame with filters and variables that the owner of this key sets.
    fn chosen(
        filters: Map<String, Value>,
        variables: Map<String, Value>,
        key: &PersonalKey,
    ) -> Self {
        let is_own = !filters.is_empty() || !variables.is_empty();
        let is_without_rows = is_own && !key.grants("query:read");
        Self { filters, variables, is_without_rows }
    }

    /// Adds the filters and variables of a dashboard; those of `self` take precedence.
    pub(in crate::routes) fn over(&self, dashboard: &Document) -> Self {
        let both = |name: &str, own: &Map<String, Value>| {
            let base = dashboard.fields.get(name).and_then(Value::as_object);
            let mut both = base.cloned().unwrap_or_default();
            both.extend(own.clone());
            both
        };
        Self {
            filters: both("filters", &self.filters),
            variables: both("variables", &self.variables),
            is_without_rows: self.is_without_rows,
        }
    }

    /// The filters and the variables as JSON.
    pub(super) fn into_values(self) -> (Value, Value) {
        (Value::Object(self.filters), Value::Object(self.variables))
    }
}

impl ResultsRequest {
    /// Cached results only.
    pub(in crate::routes) fn kept() -> Self {
        Self { refresh: Refresh::ForceCache, frame: Frame::default() }
    }

    /// Cached results, and new ones where no cached one is valid.
    pub(in crate::routes) fn computed() -> Self {
        Self { refresh: Refresh::Blocking, frame: Frame::default() }
    }
}

/// Parameters about results: `refresh`, `filters_override` and `variables_override`.
#[derive(Debug)]
pub struct Results {
    refresh: Refresh,
    filters: Map<String, Value>,
    variables: Map<String, Value>,
}

impl InQuery for Results {
    fn describe(_: &'static str, _: &'static str, shape: &mut Shape) {
        shape.query.extend(RESULTS);
    }

    fn take(request: &Request, _: &'static str) -> Result<Self, Problem> {
        let object = |name: &'static str| match request.query(name) {
            Some(text) if !text.is_empty() => match json::read(text.as_bytes()) {
                Ok(Value::Object(fields)) => Ok(fields),
                _ => Err(refused(name, "invalid_input", "Expected a JSON object.")),
            },
            _ => Ok(Map::new()),
        };
        let refresh = Refresh::of(request)?;
        let (filters, variables) = (object("filters_override")?, object("variables_override")?);
        let sent = Value::Object(filters);
        check::check_frame(&sent, "filters_override").map_err(of_frame)?;
        let filters = match sent {
            Value::Object(filters) => filters,
            _ => Map::new(),
        };
        Ok(Self { refresh, filters, variables })
    }
}

impl Results {
    /// Cached results only, with the saved filters and variables.
    pub(super) fn kept() -> Self {
        let (filters, variables) = (Map::new(), Map::new());
        Self { refresh: Refresh::ForceCache, filters, variables }
    }

    /// Checks the parameters against the rights of this key. With filters or variables a saved query becomes a query of
    /// the caller, who needs the right to it.
    ///
    /// # Errors
    ///
    /// 403 if the key does not grant insights.
    pub(super) fn of(self, key: &PersonalKey) -> Result<ResultsRequest, Problem> {
        let Self { refresh, filters, variables } = self;
        let frame = Frame::chosen(filters, variables, key);
        if frame.is_without_rows {
            auth::require(key, "insight:read")?;
        }
        Ok(ResultsRequest { refresh, frame })
    }
}

/// Obtains results for one request. Saved queries are parsed, and looked up in the cache, outside the threads of
/// sockets.
pub(in crate::routes) struct Reader<'a> {
    app: &'a App,
    settings: Arc<ProjectSettings>,
    /// The key that may fetch results that are computed later; without one, nobody may.
    by: Option<KeyId>,
}

/// The result of an insight; without a result, its fields are empty.
#[derive(Debug, Default)]
struct InsightResult {
    /// Whether the insight has a query, valid or not.
    is_asking: bool,
    result: Bytes,
    columns: Value,
    types: Value,
    query_status: Value,
    has_more: bool,
    is_cached: bool,
    at: Option<UnixMicros>,
    bytes: usize,
}

impl InsightResult {
    fn of(answer: &Answer, is_cached: bool) -> Result<Self, Problem> {
        let unreadable = |error| Problem::of(ErrorKind::Internal, &error);
        let mut told = answer.told().map_err(unreadable)?;
        let mut part = |name: &str| told.remove(name).unwrap_or_default();
        Ok(Self {
            is_asking: true,
            result: answer.results.clone(),
            columns: part("columns"),
            types: part("types"),
            has_more: part("hasMore") == Value::Bool(true),
            query_status: Value::Null,
            is_cached,
            at: Some(answer.at),
            bytes: usize::try_from(answer.bytes()).unwrap_or(usize::MAX),
        })
    }

    /// Adds the result to the body of its insight.
    fn add_to(self, body: &mut Members) {
        let at = self.at.map(UnixMicros::to_rfc3339);
        for (name, value) in [
            ("hasMore", json!(self.has_more)),
            ("columns", self.columns),
            ("types", self.types),
            ("is_cached", json!(self.is_cached)),
            ("last_refresh", json!(at)),
            ("next_allowed_client_refresh", json!(at)),
            ("cache_target_age", Value::Null),
            ("query_status", self.query_status),
        ] {
            body.set(name, value);
        }
        body.set(
            "result",
            match self.result.is_empty() {
                true => Member::Value(Value::Null),
                false => Member::Text(self.result),
            },
        );
    }
}

impl<'a> Reader<'a> {
    /// A reader for this viewer.
    pub(in crate::routes) fn new(app: &'a App, viewer: &Viewer) -> Self {
        Self { app, settings: Arc::new(ProjectSettings::of(&viewer.project)), by: viewer.key }
    }

    /// Adds the result of an insight to its body.
    ///
    /// # Errors
    ///
    /// The result has to be computed, and that fails.
    pub(super) async fn add_one(
        &self,
        (insight, body): (&DocumentText, &mut Members),
        (asked, held): (&ResultsRequest, &mut Reservation),
    ) -> Result<(), Problem> {
        let found = self.find(insight, asked).await?;
        held.hold_more(found.bytes)?;
        found.add_to(body);
        Ok(())
    }

    /// Adds the results of insights to their bodies. Results that are computed at once are of one state of the data.
    /// Returns for each insight the error if its result cannot be computed: `{"type", "message"}`. Their memory is
    /// counted in `held`.
    ///
    /// # Errors
    ///
    /// The memory budget is used up.
    pub(super) async fn add_all(
        &self,
        insights: Vec<(&DocumentText, &mut Members)>,
        (asked, held): (&ResultsRequest, &mut Reservation),
    ) -> Result<Vec<Option<Value>>, Problem> {
        let is_at_once = asked.refresh != Refresh::ForceCache && !asked.refresh.is_later();
        let one_state = match is_at_once && insights.len() > 1 {
            // If this fails, each insight reports the error.
            true => self.app.holding(self.settings.project).await.ok(),
            false => None,
        };
        let reader = Reader {
            app: one_state.as_ref().unwrap_or(self.app),
            settings: Arc::clone(&self.settings),
            by: self.by,
        };
        let kept = ResultsRequest { refresh: Refresh::ForceCache, frame: asked.frame.clone() };
        let mut finding = Vec::with_capacity(insights.len());
        for (at, (insight, _)) in insights.iter().enumerate() {
            let asked = if at < COMPUTED_MAX { asked } else { &kept };
            finding.push(reader.find(insight, asked));
        }
        let is_left_out = |at: usize, one: &InsightResult| {
            let is_computed = asked.refresh != Refresh::ForceCache;
            is_computed && at >= COMPUTED_MAX && one.at.is_none() && one.is_asking
        };
        let mut found = Vec::with_capacity(insights.len());
        let (mut bytes, mut is_busy): (usize, bool) = (0, false);
        let mut finding = futures::stream::iter(finding).buffered(AT_ONCE);
        let collecting = async {
            while let Some(one) = finding.next().await {
                let at = found.len();
                let one = one.and_then(|one| {
                    if is_left_out(at, &one) {
                        return Err(too_many());
                    }
                    let sum = bytes.saturating_add(one.bytes);
                    if sum > RESULTS_MAX_BYTES {
                        return Err(too_long());
                    }
                    bytes = sum;
                    is_busy |= held.hold_more(one.bytes).is_err();
                    Ok(one)
                });
                if is_busy {
                    break;
                }
                found.push(one);
            }
        };
        let late = self.app.engine.within_time(collecting).await.err();
        if is_busy {
            return Err(Problem::from(Busy));
        }
        let mut found = found.into_iter();
        let mut errors = Vec::with_capacity(insights.len());
        for (_, body) in insights {
            let one = found.next().unwrap_or_else(|| match &late {
                Some(error) => Err(Problem::of(ErrorKind::Timeout, error)),
                None => Ok(InsightResult::default()),
            });
            let (one, error) = match one {
                Ok(one) => (one, None),
                Err(problem) => {
                    if let Some(cause) = problem.cause() {
                        tracing::warn!(cause, "an insight has no result");
                    }
                    (InsightResult::default(), Some(problem.told_inside()))
                }
            };
            one.add_to(body);
            errors.push(error);
        }
        Ok(errors)
    }

    async fn find(
        &self,
        document: &DocumentText,
        asked: &ResultsRequest,
    ) -> Result<InsightResult, Problem> {
        let Self { app, settings, by } = self;
        let refresh = asked.refresh;
        let (document, frame) = (document.clone(), asked.frame.clone());
        let (own, owner) = (App::clone(app), Arc::clone(settings));
        let look = move || look_up(&own, &owner, (&document, &frame), refresh);
        let Prepared { key, node, asked } = match beside(&app.node.cpu, look).await? {
            Looked::Found(found) => return Ok(found),
            Looked::Open(prepared) => *prepared,
        };
        if let Some(by) = by.filter(|_| refresh.is_later()) {
            let query_status = status::begin_saved(app, by, (key, node, asked), settings)?;
            return Ok(InsightResult { query_status, is_asking: true, ..InsightResult::default() });
        }
        let answer = asked.computed(app, (&key, &node), settings).await;
        let answer = answer.map_err(problems::insight_problem)?;
        InsightResult::of(&answer, false)
    }
}

/// Result of the cache look-up for an insight.
enum Looked {
    /// The insight has a cached result, or needs no computation.
    Found(InsightResult),
    /// The query that has to be computed.
    Open(Box<Prepared>),
}

/// Parses the query of an insight, and looks up its result in the cache if `refresh` accepts a cached one.
fn look_up(
    app: &App,
    settings: &ProjectSettings,
    (document, frame): (&DocumentText, &Frame),
    refresh: Refresh,
) -> Result<Looked, Problem> {
    let none =
        |is_asking| Ok(Looked::Found(InsightResult { is_asking, ..InsightResult::default() }));
    let prepared = match prepared((app, settings), document, frame) {
        Ok(Some(prepared)) => prepared,
        Ok(None) => return none(false),
        // With cached results only, a query that cannot be parsed has no result, and no error.
        Err(_) if refresh == Refresh::ForceCache => return none(true),
        Err(problem) => return Err(problem),
    };
    if refresh.takes_kept()
        && let Some(answer) = prepared.asked.kept(app, &prepared.key, settings)?
    {
        return InsightResult::of(&answer, true).map(Looked::Found);
    }
    match refresh {
        Refresh::ForceCache => none(true),
        _ => Ok(Looked::Open(Box::new(prepared))),
    }
}

fn prepared(
    (app, settings): (&App, &ProjectSettings),
    document: &DocumentText,
    frame: &Frame,
) -> Result<Option<Prepared>, Problem> {
    let document = document.with(&ASKING.map(Box::from)).map_err(problem)?;
    let Some(node) = node_of(&document.fields, frame)? else { return Ok(None) };
    let asked = question::Question::parse(kind_of(&node), &node)?;
    let key = asked.key(&node, settings, app.engine.now());
    Ok(Some(Prepared { key, node, asked }))
}

/// The query of a saved insight.
#[derive(Clone, Debug)]
pub(in crate::routes) enum Question {
    /// A node of one of [`KINDS`].
    Insight(Value),
    /// A node whose result is rows, such as a SQL query.
    Rows(Value),
}

/// The query of an insight with these fields on a dashboard; `None` if it has none.
///
/// # Errors
///
/// The query is malformed, or the filters or variables of the dashboard are.
pub(in crate::routes) fn question_of(
    fields: &Map<String, Value>,
    frame: &Frame,
) -> Result<Option<Question>, Problem> {
    let Some(node) = node_of(fields, frame)? else { return Ok(None) };
    match kind_of(&node) {
        Some(kind) if KINDS.contains(&kind) => Ok(Some(Question::Insight(node))),
        kind => question::Question::parse(kind, &node).map(|_| Some(Question::Rows(node))),
    }
}

fn kind_of(node: &Value) -> Option<&str> {
    node.get("kind").and_then(Value::as_str)
}

/// The query node of an insight with these fields, with the filters and variables of the dashboard applied.
fn node_of(fields: &Map<String, Value>, frame: &Frame) -> Result<Option<Value>, Problem> {
    let of_filters = |error: NodeError| {
        let name = format!("filters__{}", error.field.replace('.', "__"));
        refused(name, "invalid_input", error.detail)
    };
    if let (None | Some(Value::Null), Some(Value::Object(filter))) =
        (fields.get("query"), fields.get("filters"))
    {
        legacy::check(filter).map_err(of_filters)?;
    }
    let mut node = match fields.get("query").filter(|query| !query.is_null()) {
        Some(query) => query_node::unwrapped(query).clone(),
        None => match saved::query_of(fields).map_err(of_filters)? {
            Some(node) => node,
            None => return Ok(None),
        },
    };
    let (filters, variables) = frame.clone().into_values();
    saved::with_frame(&mut node, (&filters, &variables)).map_err(of_frame)?;
    let is_insight = kind_of(&node).is_some_and(|kind| KINDS.contains(&kind));
    if frame.is_without_rows && !is_insight {
        let detail = "Other filters and variables of a query of rows need the scope 'query:read'.";
        return Err(Problem::permission_denied(detail));
    }
    Ok(Some(node))
}

/// A parsed query with its cache key.
struct Prepared {
    key: Key,
    node: Value,
    asked: question::Question,
}

/// The problem for invalid filters or variables of a dashboard.
fn of_frame(error: NodeError) -> Problem {
    refused(error.field.replace('.', "__"), "invalid_input", error.detail)
}

fn too_many() -> Problem {
    let detail = format!("One request computes at most {COMPUTED_MAX} insights.");
    Problem::new(ErrorKind::Invalid, "too_many", detail)
}

fn too_long() -> Problem {
    let detail = format!("The results of one answer have at most {RESULTS_MAX_BYTES} bytes.");
    Problem::new(ErrorKind::Invalid, "too_long", detail)
}
