//! Insights by the filters of older clients: `insights/trend/`, which also computes stickiness and lifecycle; the
//! modules have other kinds, and the persons behind their points. Filters are in the query string, and with POST in the
//! body, too.

pub mod correlation;
mod filters;
pub mod funnels;
pub mod paths;
mod people;
pub mod points;
pub mod retention;

use std::collections::HashMap;
use std::marker::PhantomData;

use hyper::StatusCode;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::auth::Principal;
use crate::beside::beside;
use crate::fields::refused;
use crate::objects;
use crate::openapi::{Parameter, Shape, Success};
use crate::operation::input::input;
use crate::operation::output::{Output, Reply};
use crate::operation::{Context, Operation};
use crate::page::Page;
use crate::rendering::Rendering;
use crate::response::{Problem, Response};
use crate::routes::insights::filters::{Sent, parameters};
use crate::routes::query::question::Question;
use crate::routes::query::{problems, status};
use weir_api::insights::older::{Computed, TrendAnswer};
use weir_api::insights::series::{Period, Series};
use weir_api::insights::value::{AsSent, BreakdownValue, Number, PersonsUrl};
use weir_api::node::{Content, NodeError};
use weir_api::nodes::base::BreakdownFilter;
use weir_app::App;
use weir_base::clock::UnixMicros;
use weir_base::error::Kind;
use weir_event::json;
use weir_insights::breakdown::{Breakdown, OTHER};
use weir_insights::cache::Answer;
use weir_insights::insight::Insight;
use weir_insights::jobs::ID_MAX_BYTES;
use weir_insights::legacy::Filter;
use weir_insights::lifecycle::legacy::lifecycle_query;
use weir_insights::stickiness::legacy::stickiness_query;
use weir_insights::{InsightError, ProjectSettings, legacy};
use weir_query::output::format::Format;

/// Parameters that select the persons of a point, or control how a result is obtained; they do not identify the
/// insight.
const OF_POINTS: [&str; 4] = ["client_query_id", "entity_id", "entity_math", "entity_order"];

/// Offset of the values of a breakdown in a result: as a parameter of requests, and in URLs of persons.
const OFFSET: &str = "offset";
const BREAKDOWN_OFFSET: &str = "breakdown_offset";

/// Most bytes of all filters in the URLs of persons behind points; a longer response has no URLs.
pub(super) const URLS_MAX_BYTES: usize = 4 << 20;

parameters! {
    /// Parameters of a trend.
    OfTrend: [
        Parameter::text("events"),
        Parameter::text("actions"),
        Parameter::text("properties"),
        Parameter::text("date_from"),
        Parameter::text("date_to"),
        Parameter::text("interval"),
        Parameter::text("display"),
        Parameter::text("breakdown"),
        Parameter::text("breakdown_type"),
        Parameter::text("compare"),
        Parameter::text("formula"),
    ]
}

input! {
    /// What series of events count in each interval.
    pub struct Trend {
        both sent: Sent<OfTrend>,
    }
}

input! {
    /// The same with the insight LIFECYCLE.
    pub struct Lifecycle {
        both sent: Sent<OfTrend>,
    }
}

input! {
    /// The same with the insight STICKINESS.
    pub struct Stickiness {
        both sent: Sent<OfTrend>,
    }
}

/// Implements the operations whose results are series.
macro_rules! series {
    ($($name:ident: $insight:expr;)*) => {$(
        impl Operation for $name {
            type Who = Principal;
            type Out = SeriesAnswer;
            const SCOPE: &'static str = "insight:read";

            async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
                series_of(cx, self.sent, $insight).await
            }
        }
    )*};
}

series! {
    Trend: None;
    Lifecycle: Some("LIFECYCLE");
    Stickiness: Some("STICKINESS");
}

async fn series_of(
    cx: &Context<Principal>,
    sent: Sent<OfTrend>,
    insight: Option<&str>,
) -> Result<SeriesAnswer, Problem> {
    let Sent { mut filter, offset, .. } = sent;
    if let Some(insight) = insight {
        filter.insert("insight".to_owned(), json!(insight));
    }
    // The offset in the query takes precedence, so that the link to the next page works with the same body. It counts
    // values of the breakdown, and has another name in URLs of persons, which have pages of their own.
    if let Some(offset) = offset.map(Value::String).or_else(|| filter.get(OFFSET).cloned()) {
        filter.insert(BREAKDOWN_OFFSET.to_owned(), offset);
    }
    filter.remove(OFFSET);
    filter.remove("limit");
    let settings = ProjectSettings::of(&cx.who.project);
    let node = node_of(&filter).map_err(|error| invalid(&error))?;
    let told = told(cx, (&node, &filter), plain).await?;
    let (project, rendering) = (cx.who.project.id.0, cx.rendering);
    let show = move || {
        let breakdown = node.get("breakdownFilter");
        let breakdown = breakdown.and_then(|own| Option::<BreakdownFilter>::read(own, "").ok());
        let breakdown = breakdown.flatten().and_then(|own| Breakdown::of(own).ok());
        Ok(shown(told, (&filter, project), breakdown, (&settings, rendering)))
    };
    beside(&cx.app.node.cpu, show).await
}

/// The response with series and the URLs of the persons behind their points; as a file without URLs.
fn shown(
    told: OlderAnswer<Vec<Series>>,
    (filter, project): (&Filter, i64),
    breakdown: Option<Breakdown>,
    (settings, rendering): (&ProjectSettings, Rendering),
) -> SeriesAnswer {
    let mut series = told.result;
    if rendering != Rendering::Json {
        return file(&series);
    }
    let points = series.iter().map(|series| series.days.len().max(1));
    let length = serde_json::to_string(filter).map_or(usize::MAX, |text| text.len());
    let has_urls = points.sum::<usize>().saturating_mul(length) <= URLS_MAX_BYTES;
    for series in series.iter_mut().filter(|_| has_urls) {
        add_urls(series, filter, project);
    }
    let is_other = |series: &Series| match &series.breakdown_value {
        Some(BreakdownValue::One(value)) => value == OTHER,
        Some(BreakdownValue::Several(values)) => matches!(&values[..], [value] if value == OTHER),
        _ => false,
    };
    let next = series.iter().any(is_other).then(|| breakdown.map_or(0, |own| own.end_of_page()));
    SeriesAnswer::Answer(TrendAnswer::of(told.how.computed(settings), series), next)
}

/// A file with one row per series: its label, and its value in each interval, in columns named by the labels of the
/// intervals. Where clocks go back, two hours of a day have the same label, and a column each.
fn file(series: &[Series]) -> SeriesAnswer {
    let mut head = vec!["series".to_owned()];
    let mut places: HashMap<(String, usize), usize> = HashMap::new();
    let mut lines: Vec<Vec<Value>> = Vec::new();
    for one in series {
        let mut line = vec![Value::from(one.label.as_str())];
        let mut cells: Vec<(String, Number)> =
            one.labels.iter().cloned().zip(one.data.iter().copied()).collect();
        // A single value for the whole range has no label.
        cells.extend(one.aggregated_value.map(|number| ("value".to_owned(), number)));
        let mut times: HashMap<String, usize> = HashMap::new();
        for (label, number) in cells {
            let time = times.entry(label.clone()).or_default();
            *time += 1;
            let place = *places.entry((label.clone(), *time)).or_insert_with(|| {
                head.push(label);
                head.len() - 1
            });
            line.resize(line.len().max(place + 1), Value::Null);
            if let Some(cell) = line.get_mut(place) {
                *cell = as_json(&number);
            }
        }
        lines.push(line);
    }
    SeriesAnswer::File(head, lines)
}

/// Response with series, for an older client.
#[derive(Debug)]
pub enum SeriesAnswer {
    /// The series, and the offset of further values of the breakdown, if there are any.
    Answer(TrendAnswer, Option<usize>),
    /// Header and rows of a file.
    File(Vec<String>, Vec<Vec<Value>>),
}

impl Output for SeriesAnswer {
    fn describe(shape: &mut Shape) {
        shape.success = Some(Success::of::<TrendAnswer>(StatusCode::OK, "The answer"));
    }

    async fn respond(self, reply: &Reply<'_>) -> Result<Response, Problem> {
        let cpu = &reply.app.node.cpu;
        match self {
            Self::File(head, lines) => {
                let format = reply.rendering.format().unwrap_or(Format::Csv);
                beside(cpu, move || objects::of_rows(format, &head, &lines)).await
            }
            Self::Answer(answer, further) => {
                let public_url = reply.app.node.config.http.public_url.as_deref();
                let next = further.map(|further| {
                    let link = Page::link_to(reply.request, public_url, &[]);
                    let separator = if link.ends_with('?') { "" } else { "&" };
                    format!("{link}{separator}{OFFSET}={further}")
                });
                let answer = TrendAnswer { next, ..answer };
                objects::answer(cpu, StatusCode::OK, reply.rendering, answer).await
            }
        }
    }
}

/// The node of a trend, or of another kind of insight that older clients request from the same endpoint.
fn node_of(filter: &Filter) -> Result<Value, NodeError> {
    match legacy::text(filter, "insight").as_deref() {
        Some("LIFECYCLE") => lifecycle_query(filter),
        Some("STICKINESS") => stickiness_query(filter),
        _ => legacy::trends_query(filter),
    }
}

/// The result of the filters of an older client.
#[derive(Debug)]
pub(super) struct OlderAnswer<R> {
    /// The result.
    pub(super) result: R,
    /// Metadata of the computation.
    pub(super) how: How,
}

/// Metadata of the computation of a result.
#[derive(Debug)]
pub(super) struct How {
    is_cached: bool,
    at: UnixMicros,
    timings: Vec<Value>,
}

impl How {
    /// For a result that needs no data.
    pub(super) fn now(app: &App) -> Self {
        Self { is_cached: false, at: app.node.clock.now(), timings: Vec::new() }
    }

    /// The fields of the response.
    pub(super) fn computed(self, settings: &ProjectSettings) -> Computed {
        let Self { is_cached, at, timings } = self;
        let timezone = settings.timezone.clone();
        Computed { is_cached, last_refresh: at.to_rfc3339(), timezone, timings }
    }
}

/// The result of the node of filters: from the cache if it is still valid and `refresh` requests no new one, else
/// computed. A computation can be cancelled by the `client_query_id` of the filters. `read` parses the result.
pub(super) async fn told<R: Send + 'static>(
    cx: &Context<Principal>,
    (node, filter): (&Value, &Filter),
    read: impl FnOnce(&Answer) -> Result<R, serde_json::Error> + Send + 'static,
) -> Result<OlderAnswer<R>, Problem> {
    let (app, asker) = (&cx.app, &cx.who);
    let settings = &ProjectSettings::of(&asker.project);
    let insight = Insight::parse(node).map_err(|error| invalid(&error))?;
    let question = Question::Insight(Box::new(insight));
    let key = question.key(node, settings, app.node.clock.now());
    let is_new = legacy::truth(filter, "refresh")
        || legacy::text(filter, "refresh").as_deref() == Some("force_blocking");
    let kept = match is_new {
        true => None,
        false => question.kept(app, &key, settings)?,
    };
    let is_cached = kept.is_some();
    let answer = match kept {
        Some(answer) => answer,
        None => {
            let computing = Box::pin(question.computed(app, (&key, node), settings));
            let computing = async { computing.await.map_err(problem) };
            let id = legacy::text(filter, "client_query_id");
            let id = id.filter(|id| id.len() <= ID_MAX_BYTES);
            status::cancellable(app, asker, id, computing).await?
        }
    };
    let read = move || {
        let failed = |error: serde_json::Error| Problem::of(Kind::Internal, &error);
        let result = read(&answer).map_err(failed)?;
        let timings = match answer.told().map_err(failed)?.remove("timings") {
            Some(Value::Array(timings)) => timings,
            _ => Vec::new(),
        };
        Ok(OlderAnswer { result, how: How { is_cached, at: answer.at, timings } })
    };
    beside(&app.node.cpu, read).await
}

/// Parses a result that has only one form.
pub(super) fn plain<R: DeserializeOwned>(answer: &Answer) -> Result<R, serde_json::Error> {
    json::read_as(PhantomData, &answer.results)
}

/// Adds the URL of the persons behind it to each point of a series.
fn add_urls(series: &mut Series, filter: &Filter, project: i64) {
    let Some(action) = &series.action else { return };
    let mut base: Filter = filter.clone();
    for name in OF_POINTS {
        base.remove(name);
    }
    let mut of_entity = Map::new();
    for (name, value) in [
        ("entity_id", as_json(&action.id)),
        ("entity_type", as_json(&action.kind)),
        ("entity_math", as_json(&action.math)),
        ("entity_order", as_json(&action.order)),
    ] {
        of_entity.insert(name.to_owned(), value);
    }
    if let Some(value) = &series.breakdown_value {
        of_entity.insert("breakdown_value".to_owned(), as_json(value));
    }
    if series.compare_label == Some(Period::Previous) {
        of_entity.insert("period".to_owned(), json!("previous"));
    }
    if let Some(status) = &series.status {
        of_entity.insert("lifecycle_type".to_owned(), as_json(status));
    }
    let (list, name) = match legacy::text(filter, "insight").as_deref() {
        Some("LIFECYCLE") => ("persons/lifecycle/", "target_date"),
        Some("STICKINESS") => ("persons/stickiness/", "stickiness_days"),
        _ => ("persons/trends/", "day"),
    };
    let url = |day: Value| {
        let mut point = base.clone();
        point.extend(of_entity.clone());
        point.insert(name.to_owned(), day);
        PersonsUrl { filter: AsSent::of(&point), url: address(project, list, &point) }
    };
    series.persons_urls = Some(match series.days.is_empty() {
        true => vec![url(Value::Null)],
        false => series.days.iter().map(|day| url(as_json(day))).collect(),
    });
}

/// A part of a result as a value of a filter.
pub(super) fn as_json(part: &impl Serialize) -> Value {
    serde_json::to_value(part).unwrap_or_default()
}

/// The URL of a list of a project with filters.
pub(super) fn address(project: i64, list: &str, filter: &Filter) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in filter {
        match value {
            Value::Null => {}
            Value::String(text) => _ = query.append_pair(name, text),
            other => _ = query.append_pair(name, &other.to_string()),
        }
    }
    format!("api/projects/{project}/{list}?{}", query.finish())
}

pub(super) fn invalid(error: &NodeError) -> Problem {
    refused(error.field.replace('.', "__"), "invalid_input", error.detail.clone())
}

pub(super) fn problem(error: InsightError) -> Problem {
    match error {
        InsightError::Node(error) => invalid(&error),
        other => problems::insight_problem(other),
    }
}
