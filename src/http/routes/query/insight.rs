//! Insights by nodes: `{"query": {"kind": "TrendsQuery", ...}}`, and the persons or groups behind their points. Answers to
//! insights may be kept ones, and may be computed while the client does not wait; these are always looked for.

use std::sync::Arc;

use hyper::StatusCode;
use serde::Serialize;
use serde_json::Value;
use serde_json::json;
use serde_json::value::RawValue;

use crate::app::App;
use crate::http::auth::Principal;
use crate::http::fields::refused;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::routes::persons::body::PersonBody;
use crate::http::routes::query;
use crate::http::routes::query::refresh::Refresh;
use crate::http::routes::query::status;
use crate::identity::person::Group;
use crate::insights::Actor;
use crate::insights::InsightError;
use crate::insights::ProjectSettings;
use crate::insights::Who;
use crate::insights::cache::Answer;
use crate::insights::cache::Key;
use crate::insights::insight::Insight;
use crate::insights::insight::KINDS;
use crate::insights::node::Node;
use crate::insights::node::NodeError;
use crate::metadata::accounts::Project;
use crate::query::people::Part;

/// Kinds of nodes around an insight that say how it is shown.
const WRAPPERS: [&str; 2] = ["InsightVizNode", "DataTableNode"];

/// Most nodes around an insight.
const WRAPPERS_MAX: usize = 5;

/// Kinds of nodes that say which persons of an insight are meant.
const SOURCES: [&str; 4] = [
    "InsightActorsQuery",
    "FunnelsActorsQuery",
    "FunnelCorrelationActorsQuery",
    "StickinessActorsQuery",
];

/// Columns of persons and groups that can be selected.
const COLUMNS: [&str; 8] =
    ["actor", "person", "group", "id", "created_at", "event_count", "value", "appearances"];

/// Persons of a page, unless the request says otherwise (PostHog's figure).
const LIMIT: usize = 100;

/// Most persons of a page.
const LIMIT_MAX: usize = 1000;

/// Most persons of a row of a retention among whom those of a cell are looked for: the most active ones.
const CELL_ACTORS_MAX: usize = 100_000;

/// Most distinct ids of one person in an answer (PostHog's figure).
const IDS_MAX: usize = 1000;

/// The kind of a node, and the node without what only says how it is shown.
pub(in crate::http::routes) fn unwrapped(mut node: &Value) -> (Option<&str>, &Value) {
    let kind = |node: &'_ Value| node.get("kind").and_then(Value::as_str).map(str::to_owned);
    for _ in 0..WRAPPERS_MAX {
        match (kind(node), node.get("source")) {
            (Some(kind), Some(source)) if WRAPPERS.contains(&kind.as_str()) => node = source,
            _ => break,
        }
    }
    (node.get("kind").and_then(Value::as_str), node)
}

/// Whether a kind is one of an insight, or of persons behind one.
pub(super) fn is_insight(kind: &str) -> bool {
    KINDS.contains(&kind) || SOURCES.contains(&kind) || kind == "ActorsQuery"
}

/// An answer to an insight as clients get it.
#[derive(Debug, Serialize)]
pub(super) struct AnswerBody<'a> {
    results: &'a RawValue,
    timezone: &'a str,
    timings: [(); 0],
    #[serde(rename = "hasMore")]
    has_more: bool,
    is_cached: bool,
    last_refresh: String,
    next_allowed_client_refresh: String,
    cache_key: String,
    error: Option<()>,
    query_status: Option<()>,
}

impl<'a> AnswerBody<'a> {
    pub(super) fn new(
        key: Key,
        answer: &'a Answer,
        owner: &'a ProjectSettings,
        is_cached: bool,
    ) -> Self {
        Self {
            results: &answer.results,
            timezone: &owner.timezone,
            timings: [],
            has_more: false,
            is_cached,
            last_refresh: answer.at.to_rfc3339(),
            next_allowed_client_refresh: answer.at.to_rfc3339(),
            cache_key: key.to_string(),
            error: None,
            query_status: None,
        }
    }
}

/// The answer to an insight, or the persons behind a point of one. `id` is the name under which the client will
/// ask for an answer that comes later.
pub(super) async fn answer(
    app: &App,
    asker: &Principal,
    (kind, node): (&str, &Value),
    (refresh, id): (Refresh, Option<String>),
) -> Result<Response, Problem> {
    if kind == "ActorsQuery" || SOURCES.contains(&kind) {
        return actors(app, asker, (kind, node)).await;
    }
    let insight = Insight::parse(node).map_err(|error| invalid(&error))?;
    let settings = settings(&asker.project);
    let key = Key::of(node, &settings, app.engine.now());
    if refresh.takes_kept()
        && let Some(answer) = kept(app, (&key, &insight), &settings)?
    {
        return Ok(Response::json(StatusCode::OK, &AnswerBody::new(key, &answer, &settings, true)));
    }
    if refresh == Refresh::ForceCache {
        let body = json!({"cache_key": key.to_string(), "query_status": null});
        return Ok(Response::json(StatusCode::OK, &body));
    }
    if refresh.is_later() {
        return status::begin(app, asker, (key, node.clone(), insight), (id, settings));
    }
    let answer = computed(app, (&key, node, &insight), &settings).await?;
    Ok(Response::json(StatusCode::OK, &AnswerBody::new(key, &answer, &settings, false)))
}

/// The answer to an insight of a project, and whether it is a kept one, which is given while it is still right.
pub(in crate::http::routes) async fn kept_or_computed(
    app: &App,
    project: &Project,
    node: &Value,
) -> Result<(Arc<Answer>, bool), Problem> {
    let insight = Insight::parse(node).map_err(|error| invalid(&error))?;
    let settings = settings(project);
    let key = Key::of(node, &settings, app.engine.now());
    match kept(app, (&key, &insight), &settings)? {
        Some(answer) => Ok((answer, true)),
        None => Ok((computed(app, (&key, node, &insight), &settings).await?, false)),
    }
}

/// The kept answer, if it is still right.
fn kept(
    app: &App,
    (key, insight): (&Key, &Insight),
    settings: &ProjectSettings,
) -> Result<Option<Arc<Answer>>, Problem> {
    let answer = app.answers.get(key, &app.engine, settings.project);
    if answer.is_some() {
        insight.note(&app.engine, settings).map_err(|error| invalid(&error))?;
    }
    Ok(answer)
}

/// A new answer.
async fn computed(
    app: &App,
    asked: (&Key, &Value, &Insight),
    settings: &ProjectSettings,
) -> Result<Arc<Answer>, Problem> {
    let computing = app.answers.compute(asked, &app.engine, settings);
    let answer = app.engine.within_time(computing).await;
    answer.map_err(query::problem)?.map_err(problem)
}

/// What an insight depends on besides its request.
pub(in crate::http::routes) fn settings(project: &Project) -> ProjectSettings {
    ProjectSettings::of(project)
}

/// The response to a refused node. Nested names are joined as in all errors.
fn invalid(error: &NodeError) -> Problem {
    let name = format!("query__{}", error.field.replace('.', "__"));
    refused(name, "invalid_input", error.detail.clone())
}

/// The response to a failed insight.
pub(in crate::http::routes) fn problem(error: InsightError) -> Problem {
    match error {
        InsightError::Node(error) => invalid(&error),
        InsightError::Query(error) => query::problem(error),
    }
}

/// The persons behind a point as rows of the selected columns.
async fn actors(
    app: &App,
    asker: &Principal,
    (kind, node): (&str, &Value),
) -> Result<Response, Problem> {
    let outer = Node::new(Some(node), "").map_err(|error| invalid(&error))?;
    let (source, columns) = if SOURCES.contains(&kind) {
        (node, vec!["id"])
    } else {
        let source = outer.value("source").unwrap_or(&Value::Null);
        let is_source = |kind: &str| SOURCES.contains(&kind);
        if !source.get("kind").and_then(Value::as_str).is_some_and(is_source) {
            let detail = format!("The source of an ActorsQuery is one of {}.", SOURCES.join(", "));
            return Err(refused("query__source__kind", "invalid_input", detail));
        }
        (source, columns(&outer).map_err(|error| invalid(&error))?)
    };
    let people = people_of(app, &asker.project, (&outer, source), None).await?;
    let People { found, people, has_more, part } = people;
    let rows = found.iter().zip(&people).map(|(actor, person)| row(actor, person, &columns));
    let id = if found.iter().any(|actor| matches!(actor.who, Who::Group(..))) {
        "String"
    } else {
        "UUID"
    };
    let types: Vec<[&str; 2]> = columns.iter().map(|name| [*name, type_of(name, id)]).collect();
    let body = json!({
        "results": rows.collect::<Vec<_>>(), "columns": columns, "types": types, "hasMore": has_more,
        "limit": part.limit, "offset": part.offset, "missing_actors_count": 0, "timings": [],
        "is_cached": false, "last_refresh": app.clock.now().to_rfc3339(), "error": null,
    });
    Ok(Response::json(StatusCode::OK, &body))
}

/// A page of the persons behind a point.
#[derive(Debug)]
pub(in crate::http::routes) struct People {
    found: Vec<Actor>,
    /// As lists of persons show them.
    pub(in crate::http::routes) people: Vec<Value>,
    /// Whether there are more after them.
    pub(in crate::http::routes) has_more: bool,
    /// Which part of all they are.
    pub(in crate::http::routes) part: Part,
}

/// The persons behind the point that `source` says, a page of them as `outer` says; with `cell` those of a row of a
/// retention who were active in this cell of it.
pub(in crate::http::routes) async fn people_of(
    app: &App,
    project: &Project,
    (outer, source): (&Node<'_>, &Value),
    cell: Option<usize>,
) -> Result<People, Problem> {
    let read = || {
        outer.without(&["properties", "fixedProperties", "orderBy"])?;
        let limit = outer.number("limit")?.unwrap_or(LIMIT).clamp(1, LIMIT_MAX);
        let part = Part { offset: outer.number("offset")?.unwrap_or(0), limit };
        let inner = Node::new(Some(source), "source")?;
        let (_, insight) = unwrapped(source.get("source").unwrap_or(&Value::Null));
        let mut actors = Insight::parse(insight)?.actors_of(&inner)?;
        if let Some(text) = outer.text("search")? {
            actors.search(text)?;
        }
        Ok((actors, part))
    };
    let (actors, part) = read().map_err(|error| invalid(&error))?;
    let settings = settings(project);
    let asked = match cell {
        Some(_) => Part { offset: 0, limit: CELL_ACTORS_MAX },
        None => part,
    };
    let found = app.engine.within_time(actors.find(&app.engine, &settings, asked)).await;
    let mut found = found.map_err(query::problem)?.map_err(problem)?;
    if let Some(cell) = cell {
        found.retain(|actor| actor.appearances.contains(&cell));
        found.drain(..part.offset.min(found.len()));
    }
    let has_more = found.len() > part.limit;
    found.truncate(part.limit);
    let people = people(app, project, &found).await?;
    Ok(People { found, people, has_more, part })
}

fn columns<'n>(node: &Node<'n>) -> Result<Vec<&'n str>, NodeError> {
    let selected = node.list("select")?;
    if selected.is_empty() {
        return Ok(vec!["actor"]);
    }
    let column = |column: &'n Value| {
        let name = column.as_str().filter(|name| COLUMNS.contains(name));
        let detail = || format!("Expected some of {}.", COLUMNS.join(", "));
        name.ok_or_else(|| node.refuse("select", detail()))
    };
    selected.iter().map(column).collect()
}

fn type_of<'t>(column: &str, id: &'t str) -> &'t str {
    match column {
        "actor" | "person" | "group" => "Tuple",
        "id" => id,
        "created_at" => "DateTime64(6, 'UTC')",
        "appearances" => "Array(UInt64)",
        _ => "Float64",
    }
}

fn row(actor: &Actor, person: &Value, columns: &[&str]) -> Vec<Value> {
    let cell = |name: &&str| match *name {
        "actor" | "person" | "group" => person.clone(),
        "id" => match &actor.who {
            Who::Person(id) => json!(id.to_string()),
            Who::Group(_, key) => json!(key),
        },
        "created_at" => person.get("created_at").cloned().unwrap_or_default(),
        "appearances" => json!(actor.appearances),
        _ => json!(actor.value),
    };
    columns.iter().map(cell).collect()
}

/// The persons or groups in their order, as lists of them show them, with the number that each adds to the point. One
/// that was deleted meanwhile, or never had properties, has its id alone.
pub(in crate::http::routes) async fn people(
    app: &App,
    project: &Project,
    actors: &[Actor],
) -> Result<Vec<Value>, Problem> {
    let (actors, project) = (actors.to_vec(), project.clone());
    let read = app.engine.read(move |view, _| {
        let mut people = Vec::with_capacity(actors.len());
        for Actor { who, value, .. } in actors {
            let (mut body, kind) = match who {
                Who::Person(id) => {
                    let body = match view.person_by_uuid(project.id, id)? {
                        Some(person) => {
                            let ids = view.first_ids(project.id, person.number, IDS_MAX)?;
                            serde_json::to_value(PersonBody::listed(&project, person, ids)).ok()
                        }
                        None => None,
                    };
                    (body.unwrap_or_else(|| json!({"uuid": id.to_string()})), "person")
                }
                Who::Group(index, key) => {
                    let group = view.group(project.id, index, &key)?;
                    (group_body(index, key, group), "group")
                }
            };
            if let Value::Object(fields) = &mut body {
                fields.insert("type".to_owned(), json!(kind));
                fields.insert("matched_recordings".to_owned(), json!([]));
                fields.insert("value_at_data_point".to_owned(), json!(value));
            }
            people.push(body);
        }
        Ok(people)
    });
    read.await.map_err(query::problem)
}

/// A group as a list of actors shows it. Properties have a second name in answers to queries.
fn group_body(index: u8, key: String, group: Option<Group>) -> Value {
    let created_at = group.as_ref().map(|group| group.created_at.to_rfc3339());
    let properties = group.map(|group| group.properties).unwrap_or_default();
    json!({
        "id": key, "group_type_index": index, "group_key": key, "created_at": created_at,
        "properties": properties, "group_properties": properties,
    })
}
