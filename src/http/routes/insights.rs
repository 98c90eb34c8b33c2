//! Insights by the filters of older clients: `insights/trend/`, which also answers stickiness and lifecycle, and
//! `persons/trends/` for the persons behind a point of a trend; the modules have those of others. Filters stand in
//! the query string, and with POST in the body, too.

pub mod correlation;
pub mod funnels;
pub mod paths;
pub mod points;
pub mod retention;

use std::collections::HashMap;

use hyper::{Method, StatusCode};
use serde_json::{Map, Value, json};

use crate::auth::Principal;
use crate::beside::beside;
use crate::call::{Call, Rendering};
use crate::csv;
use crate::fields::{Fields, refused};
use crate::openapi::{Description, INVALID, Parameter, by_hand};
use crate::page::Page;
use crate::request::Request;
use crate::response::{Attr, Problem, Response};
use crate::routes::query::question::Question;
use crate::routes::query::{actors, insight, status};
use weir_app::App;
use weir_base::clock::UnixMicros;
use weir_base::error::Kind;
use weir_event::json;
use weir_insights::breakdown::{Breakdown, OTHER};
use weir_insights::insight::{ActorsOf, Insight};
use weir_insights::jobs::ID_MAX_BYTES;
use weir_insights::legacy::Filter;
use weir_insights::lifecycle::legacy::lifecycle_query;
use weir_insights::node::NodeError;
use weir_insights::stickiness::legacy::stickiness_query;
use weir_insights::trends::Trends;
use weir_insights::trends::actors::Point;
use weir_insights::{Actor, InsightError, ProjectSettings, known, legacy};
use weir_metadata::accounts::Project;
use weir_query::persons::people::Part;

/// Parameters that say where the persons of a point are, or how an answer is obtained, not which insight it is.
const OF_POINTS: [&str; 4] = ["client_query_id", "entity_id", "entity_math", "entity_order"];

/// How many values of a breakdown come before those of an answer: in requests, and in addresses of persons.
const OFFSET: &str = "offset";
const BREAKDOWN_OFFSET: &str = "breakdown_offset";

/// Most bytes of all filters in the addresses of persons behind points; an answer with more has no addresses.
pub(super) const URLS_MAX_BYTES: usize = 4 << 20;

pub(crate) const TREND: Description =
    Description::ok::<by_hand::TrendAnswer>("What series of events count in each interval")
        .notes("With insight STICKINESS or LIFECYCLE, the series of these")
        .query(&[
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
        ])
        .body::<by_hand::AnyObject>()
        .or(&[INVALID]);

/// `GET insights/trend/` and `POST`.
pub async fn trend(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    series_of(app, call, None).await
}

/// `GET insights/lifecycle/` and `POST`: the same as [`trend`] with that insight.
pub async fn lifecycle(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    series_of(app, call, Some("LIFECYCLE")).await
}

/// `GET insights/stickiness/` and `POST`: the same as [`trend`] with that insight.
pub async fn stickiness(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    series_of(app, call, Some("STICKINESS")).await
}

async fn series_of(
    app: &App,
    call: Call<Principal>,
    insight: Option<&str>,
) -> Result<Response, Problem> {
    let Call { asker, request, rendering, .. } = call;
    let link = Page::link_to(&request, app.node.config.http.public_url.as_deref(), &[]);
    let sent = request.query(OFFSET).map(|offset| Value::String(offset.into_owned()));
    let mut filter = filter(request).await?;
    if let Some(insight) = insight {
        filter.insert("insight".to_owned(), json!(insight));
    }
    // That of the query comes first, so that the link of a page leads on with the same body. It counts values of the
    // breakdown, and is called so in addresses of persons, which have pages of their own.
    if let Some(offset) = sent.or_else(|| filter.get(OFFSET).cloned()) {
        filter.insert(BREAKDOWN_OFFSET.to_owned(), offset);
    }
    filter.remove(OFFSET);
    filter.remove("limit");
    let settings = insight::settings(&asker.project);
    let node = node_of(&filter).map_err(|error| invalid(&error))?;
    let told = told(app, &asker, (&node, &filter)).await?;
    let show = move || {
        let next = Next { link, breakdown: node.get("breakdownFilter") };
        shown(told, (&filter, asker.project.id.0), next, (&settings, rendering))
    };
    beside(&app.node.cpu, show).await
}

/// The link to more values of a breakdown.
struct Next<'n> {
    /// The address of the request without its offset.
    link: String,
    breakdown: Option<&'n Value>,
}

/// The response with series and the addresses of the persons behind their points; as a file without these.
fn shown(
    mut told: Told,
    (filter, project): (&Filter, i64),
    Next { link, breakdown }: Next<'_>,
    (settings, rendering): (&ProjectSettings, Rendering),
) -> Result<Response, Problem> {
    let series = told.result.as_array_mut().map(Vec::as_mut_slice).unwrap_or_default();
    if rendering == Rendering::Csv {
        return Ok(file(series));
    }
    let points = series
        .iter()
        .filter_map(|series| series.get("days")?.as_array())
        .map(|days| days.len().max(1));
    let length = serde_json::to_string(filter).map_or(usize::MAX, |text| text.len());
    let has_urls = points.sum::<usize>().saturating_mul(length) <= URLS_MAX_BYTES;
    for series in series.iter_mut().filter(|_| has_urls) {
        add_urls(series, filter, project);
    }
    let is_other = |series: &Value| {
        let value = series.get("breakdown_value");
        value.is_some_and(|value| *value == json!(OTHER) || *value == json!([OTHER]))
    };
    let next = series.iter().any(is_other).then(|| {
        let further = Breakdown::end_of_page(breakdown);
        let separator = if link.ends_with('?') { "" } else { "&" };
        format!("{link}{separator}{OFFSET}={further}")
    });
    let mut body = told.into_body(settings);
    body.insert("next".to_owned(), json!(next));
    Ok(Response::json(StatusCode::OK, &Value::Object(body)))
}

/// A file with a line for each series: how it is called, and its number in each interval, by the labels of these. Where
/// clocks go back two hours of a day have one label, and a column each.
fn file(series: &[Value]) -> Response {
    let mut head = vec!["series".to_owned()];
    let mut places: HashMap<(String, usize), usize> = HashMap::new();
    let mut lines: Vec<Vec<Value>> = Vec::new();
    for one in series {
        let list =
            |name: &str| one.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
        let mut line = vec![one.get("label").cloned().unwrap_or_default()];
        let labels = list("labels").into_iter();
        let labels = labels.map(|label| label.as_str().unwrap_or_default().to_owned());
        let mut cells: Vec<(String, Value)> = labels.zip(list("data")).collect();
        // One number for the whole range has no label.
        let whole = one.get("aggregated_value").cloned();
        cells.extend(whole.map(|number| ("value".to_owned(), number)));
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
                *cell = number;
            }
        }
        lines.push(line);
    }
    csv::of_lines(&head, &lines)
}

/// The node of a trend, or of a kind of insight that older clients ask for at the same place.
fn node_of(filter: &Filter) -> Result<Value, NodeError> {
    match legacy::text(filter, "insight").as_deref() {
        Some("LIFECYCLE") => lifecycle_query(filter),
        Some("STICKINESS") => stickiness_query(filter),
        _ => legacy::trends_query(filter),
    }
}

/// The answer to an insight as older clients get it.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) result: Value,
    is_cached: bool,
    at: UnixMicros,
    timings: Value,
}

impl Told {
    /// One that was made without data.
    pub(super) fn now(app: &App, result: Value) -> Self {
        Self { result, is_cached: false, at: app.node.clock.now(), timings: json!([]) }
    }

    /// The body of its response.
    pub(super) fn into_body(self, settings: &ProjectSettings) -> Map<String, Value> {
        Map::from_iter([
            ("result".to_owned(), self.result),
            ("timezone".to_owned(), json!(settings.timezone)),
            ("is_cached".to_owned(), json!(self.is_cached)),
            ("last_refresh".to_owned(), json!(self.at.to_rfc3339())),
            ("timings".to_owned(), self.timings),
        ])
    }
}

/// The answer to the node of filters: the kept one if it is still right and no new one is asked for by `refresh`. One that
/// is computed can be cancelled by the `client_query_id` of the filters meanwhile.
pub(super) async fn told(
    app: &App,
    asker: &Principal,
    (node, filter): (&Value, &Filter),
) -> Result<Told, Problem> {
    let settings = &insight::settings(&asker.project);
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
        let result = json::restore(&answer.results).map_err(failed)?;
        let timings = answer.told().map_err(failed)?.remove("timings").unwrap_or_else(|| json!([]));
        Ok(Told { result, is_cached, at: answer.at, timings })
    };
    beside(&app.node.cpu, read).await
}

pub(crate) const TREND_PERSONS: Description = Description::ok::<by_hand::PersonsOfPoint>(
    "Persons behind a point of a trend, those with the largest numbers first",
)
.notes("Beside these, the filters of the trend, as for insights/trend/")
.query(&[
    Parameter::text("entity_id").about("Name of the event"),
    Parameter::one_of("entity_type", &["events"]),
    Parameter::text("entity_math"),
    Parameter::integer("entity_order").about("Of the series"),
    Parameter::text("day").about("Interval, as in days; absent for all"),
    Parameter::text("breakdown_value"),
    Parameter::one_of("period", &["previous"]),
    Parameter::text("search").about("Part of email, name or distinct id"),
    Parameter::shared("limit"),
    Parameter::shared("offset"),
])
.or(&[INVALID]);

/// `GET persons/trends/`: the persons or groups with an event of an entity within the range of dates.
pub async fn trend_persons(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, mut request, rendering, .. } = call;
    let paging = Paging::of(app, &mut request).await?;
    let mut filter = filter(request).await?;
    let entity = entity(&filter)?;
    filter.insert("events".to_owned(), json!([entity]));
    filter.remove("actions");
    filter.remove("formula");
    let read = || Trends::parse(&legacy::trends_query(&filter)?);
    let trends = read().map_err(|error| invalid(&error))?;
    let breakdown = legacy::text(&filter, "breakdown_value").map(|text| match text.as_str() {
        text if text.starts_with('[') => {
            json::read(text.as_bytes()).unwrap_or_else(|_| json!(text))
        }
        text => text
            .parse::<i64>()
            .ok()
            .filter(|_| is_by_cohort(&filter))
            .map_or(json!(text), |id| json!(id)),
    });
    let day = legacy::text(&filter, "day");
    let is_previous = legacy::text(&filter, "period").as_deref() == Some("previous");
    let point = Point { day, breakdown, is_previous, ..Point::default() };
    let actors = ActorsOf::Trends(trends, point);
    let found = find(app, &asker.project, actors, (&filter, paging.page.part())).await;
    paging.answer(app, (&asker, rendering), found.map_err(problem)?).await
}

/// The persons or groups who are asked for, of those that `search` finds: one more than the part has where there are
/// more.
pub(super) async fn find(
    app: &App,
    project: &Project,
    mut actors: ActorsOf,
    (filter, part): (&Filter, Part),
) -> Result<Vec<Actor>, InsightError> {
    if let Some(text) = legacy::text(filter, "search") {
        actors.search(&text)?;
    }
    let (engine, settings) = (app.engine.clone(), insight::settings(project));
    let finding = Box::pin(async move { actors.find(&engine, &settings, part).await });
    app.engine.within_time(app.engine.apart(finding)).await??
}

/// A page of the persons behind a point, and the links of it.
pub(super) struct Paging {
    pub(super) page: Page,
    next: String,
    initial: String,
}

impl Paging {
    /// The page that a request asks for.
    ///
    /// # Errors
    ///
    /// 400: `limit` or `offset` is no whole number.
    pub(super) async fn of(app: &App, request: &mut Request) -> Result<Self, Problem> {
        let page = Page::of_either(request).await?;
        let public_url = app.node.config.http.public_url.as_deref();
        let further = page.offset.saturating_add(page.limit);
        let (next, initial) =
            (page.link(request, public_url, further), page.link(request, public_url, 0));
        Ok(Self { page, next, initial })
    }

    /// The response with the persons who were found, one more than the page has where there are more.
    pub(super) async fn answer(
        self,
        app: &App,
        (asker, rendering): (&Principal, Rendering),
        mut found: Vec<Actor>,
    ) -> Result<Response, Problem> {
        let has_more = found.len() > self.page.limit;
        found.truncate(self.page.limit);
        let people = actors::people(app, &asker.project, &found).await?;
        let answer = move || {
            if rendering == Rendering::Csv {
                return Ok(csv::render(StatusCode::OK, rendering, &people));
            }
            let count = people.len();
            let body = json!({
                "results": [{"people": people, "count": count}], "next": has_more.then_some(self.next),
                "initial": self.initial, "missing_persons": 0, "is_cached": false, "last_refresh": null,
            });
            Ok(csv::render(StatusCode::OK, rendering, &body))
        };
        beside(&app.node.cpu, answer).await
    }
}

fn is_by_cohort(filter: &Filter) -> bool {
    legacy::text(filter, "breakdown_type").as_deref() == Some("cohort")
}

/// The filters of a request.
pub(super) async fn filter(request: Request) -> Result<Filter, Problem> {
    let mut filter: Filter = request
        .query_all()
        .map(|(name, value)| (name.into_owned(), Value::String(value.into_owned())))
        .collect();
    filter.remove("personal_api_key");
    if request.method == Method::POST {
        filter.extend(Fields::read(request).await?.into_values());
    }
    known::legacy::check(&filter).map_err(|error| invalid(&error))?;
    Ok(filter)
}

/// The entity whose persons are asked for: by its order, by its id and math, or one that no series has.
fn entity(filter: &Filter) -> Result<Value, Problem> {
    let text = |name: &str| match filter.get(name) {
        Some(Value::Number(number)) => Some(number.to_string()),
        _ => legacy::text(filter, name),
    };
    let mut entities = Vec::new();
    for kind in ["events", "actions"] {
        let list = match filter.get(kind) {
            Some(Value::String(text)) => json::read(text.as_bytes()).ok(),
            other => other.cloned(),
        };
        for mut entity in list.as_ref().and_then(Value::as_array).cloned().unwrap_or_default() {
            if let Value::Object(fields) = &mut entity {
                fields.entry("type").or_insert_with(|| json!(kind));
            }
            entities.push(entity);
        }
    }
    let order = text("entity_order").and_then(|order| order.parse::<u64>().ok());
    let of_order = |entity: &&Value| entity.get("order").and_then(Value::as_u64) == order;
    if let Some(entity) = order.and_then(|_| entities.iter().find(of_order)) {
        return Ok(entity.clone());
    }
    let id = match filter.get("entity_id") {
        Some(Value::Null) => Some(Value::Null),
        _ => text("entity_id").map(Value::String),
    };
    let (Some(id), Some(kind)) = (id, text("entity_type")) else {
        let detail = "An entity id and the entity type must be provided to determine an entity";
        return Err(Problem::new(Kind::Invalid, "invalid_input", detail).with_attr(Attr::Null));
    };
    let math = text("entity_math").unwrap_or_else(|| "total".to_owned());
    let is = |entity: &&Value| {
        let own = entity.get("math").and_then(Value::as_str).unwrap_or("total");
        // Ids of actions are numbers, which query strings have as texts.
        let is_it = match (entity.get("id"), &id) {
            (Some(Value::Number(number)), Value::String(id)) => number.to_string() == *id,
            (own, id) => own == Some(id),
        };
        is_it && entity.get("type").and_then(Value::as_str) == Some(&kind) && own == math
    };
    let made = || json!({"id": id, "type": kind, "math": math});
    Ok(entities.iter().find(is).cloned().unwrap_or_else(made))
}

/// Adds to each point of a series the address of the persons behind it.
fn add_urls(series: &mut Value, filter: &Filter, project: i64) {
    let Value::Object(fields) = series else { return };
    let Some(action) = fields.get("action").filter(|action| !action.is_null()).cloned() else {
        return;
    };
    let mut base: Filter = filter.clone();
    for name in OF_POINTS {
        base.remove(name);
    }
    let days = fields.get("days").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut of_entity = Map::new();
    for (name, key) in [
        ("entity_id", "id"),
        ("entity_type", "type"),
        ("entity_math", "math"),
        ("entity_order", "order"),
    ] {
        of_entity.insert(name.to_owned(), action.get(key).cloned().unwrap_or_default());
    }
    if let Some(value) = fields.get("breakdown_value") {
        of_entity.insert("breakdown_value".to_owned(), value.clone());
    }
    if fields.get("compare_label").and_then(Value::as_str) == Some("previous") {
        of_entity.insert("period".to_owned(), json!("previous"));
    }
    if let Some(status) = fields.get("status") {
        of_entity.insert("lifecycle_type".to_owned(), status.clone());
    }
    let (list, name) = match legacy::text(filter, "insight").as_deref() {
        Some("LIFECYCLE") => ("persons/lifecycle/", "target_date"),
        Some("STICKINESS") => ("persons/stickiness/", "stickiness_days"),
        _ => ("persons/trends/", "day"),
    };
    let url = |day: &Value| {
        let mut point = base.clone();
        point.extend(of_entity.clone());
        point.insert(name.to_owned(), day.clone());
        let url = address(project, list, &point);
        json!({"filter": point, "url": url})
    };
    let urls =
        if days.is_empty() { vec![url(&Value::Null)] } else { days.iter().map(url).collect() };
    fields.insert("persons_urls".to_owned(), Value::Array(urls));
}

/// The address of a list of a project with filters.
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
        other => insight::problem(other),
    }
}
