//! Persons and groups as query nodes: those behind a point of an insight, in its order ([`people_of`]), and lists of
//! selected columns: of those behind a point, of all persons or groups, and of those whose ids SQL returns.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::fields::refused;
use crate::response::Problem;
use crate::routes::persons::body::listed;
use crate::routes::query::problems;
use crate::routes::query::problems::{insight_problem, invalid};
use weir_api::node::{AnyNode, NodeError, Texts};
use weir_api::nodes::check::{check, is_nothing, parse};
use weir_api::nodes::filter::Properties;
use weir_api::nodes::lists as nodes;
use weir_api::nodes::lists::ListQuery;
use weir_api::query::Timing;
use weir_app::App;
use weir_identity::IdentityError;
use weir_identity::person::Group;
use weir_identity::view::View;
use weir_insights::actor_list::{ACTORS_MAX, ActorsQuery};
use weir_insights::answered::{Answered, ResponseFields};
use weir_insights::dependence::Dependence;
use weir_insights::insight::{ActorsOf, Insight};
use weir_insights::{Actor, InsightError, ProjectSettings, Who, actor_list};
use weir_metadata::accounts::Project;
use weir_query::kernel::error::QueryError;
use weir_query::persons::people::Part;
use weir_wire::query_node;
use weir_wire::query_node::SQL;

/// Kinds of nodes that select the persons behind a point of an insight.
pub(super) const SOURCES: [&str; 4] = [
    "InsightActorsQuery",
    "FunnelsActorsQuery",
    "FunnelCorrelationActorsQuery",
    "StickinessActorsQuery",
];

/// Columns of persons and groups behind a point that need no query on their table.
const COLUMNS: [&str; 8] =
    ["actor", "person", "group", "id", "created_at", "event_count", "value", "appearances"];

/// Persons per page by default (PostHog's figure).
const LIMIT: usize = 100;

/// Most persons of a page.
const LIMIT_MAX: usize = 1000;

/// Most persons of a row of a retention that are searched for those of a cell: the most active ones.
const CELL_ACTORS_MAX: usize = 100_000;

/// Most distinct ids of one person in a result (PostHog's figure).
const IDS_MAX: usize = 1000;

/// A query for persons or groups.
#[derive(Clone, Debug)]
pub(in crate::routes) enum ActorsQuestion {
    /// A page of the persons or groups behind a point, in the order of the insight.
    Behind {
        /// The point.
        point: Box<Behind>,
        /// Offset and limit.
        part: Part,
        /// The selected columns, all of [`COLUMNS`].
        columns: Vec<&'static str>,
    },
    /// A list with selected columns; of those behind a point, if there is one.
    List(Box<ActorsQuery>, Option<Box<Behind>>),
}

/// A point of an insight.
#[derive(Clone, Debug)]
pub(in crate::routes) struct Behind {
    insight: Insight,
    actors: ActorsOf,
}

impl ActorsQuestion {
    /// Parses a node of this kind.
    ///
    /// # Errors
    ///
    /// 400: a field is malformed, has too many values, or requests something that is not available.
    pub(super) fn parse(kind: &str, node: &Value) -> Result<Self, Problem> {
        let invalid = |error: NodeError| invalid(&error);
        if kind == actor_list::GROUPS {
            let list = ActorsQuery::groups(node).map_err(invalid)?;
            return Ok(Self::List(Box::new(list), None));
        }
        if SOURCES.contains(&kind) {
            check(node).map_err(invalid)?;
            let point = Box::new(behind(node, "", None).map_err(invalid)?);
            let part = Part { offset: 0, limit: LIMIT };
            return Ok(Self::Behind { point, part, columns: vec!["id"] });
        }
        let outer = parse::<nodes::ActorsQuery>(node).map_err(invalid)?;
        let of_point = outer.source.as_ref().map(|AnyNode(source)| {
            (source, source.get("kind").and_then(Value::as_str).unwrap_or_default())
        });
        let Some((source, kind)) = of_point.filter(|(_, kind)| *kind != SQL) else {
            let list = ActorsQuery::of(&outer).map_err(insight_problem)?;
            return Ok(Self::List(Box::new(list), None));
        };
        if !SOURCES.contains(&kind) {
            let sources = SOURCES.join(", ");
            let detail = format!("The source of an ActorsQuery is one of {sources}, {SQL}.");
            return Err(refused("query__source__kind", "invalid_input", detail));
        }
        let point = behind(source, "source", outer.search.as_deref()).map_err(invalid)?;
        let mut point = Box::new(point);
        match known(&outer.base) {
            Some(columns) => {
                let (limit, offset) = (outer.base.limit, outer.base.offset);
                let limit = limit.unwrap_or(LIMIT).clamp(1, LIMIT_MAX);
                let part = Part { offset: offset.unwrap_or(0), limit };
                Ok(Self::Behind { point, part, columns })
            }
            None => {
                let list = ActorsQuery::behind(&outer, point.actors.unit()).map_err(invalid)?;
                Ok(Self::List(Box::new(list), Some(point)))
            }
        }
    }

    /// The insight of the point; `None` without a point.
    pub(super) fn insight(&self) -> Option<&Insight> {
        match self {
            Self::Behind { point, .. } => Some(&point.insight),
            Self::List(_, point) => point.as_ref().map(|point| &point.insight),
        }
    }

    /// Adds the dependencies of the result.
    pub(super) fn depend(&self, on: &mut Dependence<'_>) {
        match self {
            Self::Behind { point, part: _, columns: _ } => point.insight.depend(on),
            Self::List(list, point) => {
                list.depend(on);
                point.iter().for_each(|point| point.insight.depend(on));
            }
        }
    }

    /// Runs the query.
    pub(super) async fn answer(
        &self,
        app: &App,
        owner: &ProjectSettings,
    ) -> Result<Answered, InsightError> {
        let known = app.node.metadata.snapshot();
        let project = known.project(owner.project).cloned();
        let project = project.ok_or(QueryError::Unavailable("the project is gone"))?;
        match self {
            Self::Behind { point, part, columns } => {
                let began = app.engine.monotonic();
                let people = found(app, &project, point.actors.clone(), (*part, None)).await?;
                Ok(told(&people, columns, app.engine.monotonic().saturating_sub(began))?)
            }
            Self::List(list, point) => {
                let found = match point {
                    Some(point) => Some(all(app, owner, point.actors.clone()).await?),
                    None => None,
                };
                let body: actor_list::Body = Arc::new(move |view, who| actor(view, &project, who));
                list.answer(&app.engine, owner, (found.as_deref(), body)).await
            }
        }
    }
}

/// Parses the point of an insight from the node at `path`; only actors that match the search `searched` are behind it.
fn behind(source: &Value, path: &str, searched: Option<&str>) -> Result<Behind, NodeError> {
    let (_, insight) = query_node::kind_of(source.get("source").unwrap_or(&Value::Null));
    let insight = Insight::parse(insight)?;
    let mut actors = insight.clone().actors_of(source, path)?;
    if let Some(text) = searched {
        actors.search(text)?;
    }
    Ok(Behind { insight, actors })
}

/// The columns that a list selects, if all are in [`COLUMNS`], the order is that of the insight, and there are no
/// filters.
fn known(list: &ListQuery) -> Option<Vec<&'static str>> {
    let is_given = |own: &Option<Properties>| {
        own.as_ref().is_some_and(|Properties(filters)| !is_nothing(filters))
    };
    if is_given(&list.properties) || is_given(&list.fixed_properties) || !list.order_by.0.is_empty()
    {
        return None;
    }
    let Texts(selected) = &list.select;
    if selected.is_empty() {
        return Some(vec!["actor"]);
    }
    let column = |name: &String| COLUMNS.into_iter().find(|known| known == name);
    selected.iter().map(column).collect()
}

/// All actors behind a point.
async fn all(
    app: &App,
    owner: &ProjectSettings,
    actors: ActorsOf,
) -> Result<Vec<Actor>, InsightError> {
    let part = Part { offset: 0, limit: ACTORS_MAX };
    let found = actors.find(&app.engine, owner, part).await?;
    if found.len() > ACTORS_MAX {
        let detail = format!(
            "More than {ACTORS_MAX} are behind this point: they are listed without orderBy, properties and expressions alone."
        );
        return Err(NodeError { field: "source".to_owned(), detail }.into());
    }
    Ok(found)
}

/// A page of the persons behind a point.
#[derive(Debug)]
pub(in crate::routes) struct People {
    found: Vec<Actor>,
    /// In the form of lists of persons.
    pub(in crate::routes) people: Vec<Value>,
    /// Whether there are more after this page.
    pub(in crate::routes) has_more: bool,
    /// Offset and limit of this page.
    pub(in crate::routes) part: Part,
}

/// A page of the persons behind the point in `source`; with a `cell`, only those persons of a row of a retention who
/// were active in this cell.
pub(in crate::routes) async fn people_of(
    app: &App,
    project: &Project,
    source: &Value,
    (part, cell): (Part, Option<usize>),
) -> Result<People, Problem> {
    let actors = behind(source, "source", None).map_err(|error| invalid(&error))?.actors;
    let (own, project) = (app.clone(), project.clone());
    let finding = Box::pin(async move { found(&own, &project, actors, (part, cell)).await });
    let finding = app.engine.within_time(app.engine.apart(finding));
    let found = finding.await.and_then(|found| found).map_err(problems::problem)?;
    found.map_err(insight_problem)
}

async fn found(
    app: &App,
    project: &Project,
    actors: ActorsOf,
    (part, cell): (Part, Option<usize>),
) -> Result<People, InsightError> {
    let settings = ProjectSettings::of(project);
    let asked = match cell {
        Some(_) => Part { offset: 0, limit: CELL_ACTORS_MAX },
        None => part,
    };
    let mut found = actors.find(&app.engine, &settings, asked).await?;
    if let Some(cell) = cell {
        found.retain(|actor| actor.appearances.contains(&cell));
        found.drain(..part.offset.min(found.len()));
    }
    let has_more = found.len() > part.limit;
    found.truncate(part.limit);
    let people = bodies(app, project, &found).await?;
    Ok(People { found, people, has_more, part })
}

/// The persons behind a point as rows of the selected columns.
fn told(people: &People, columns: &[&str], took: Duration) -> Result<Answered, NodeError> {
    let People { found, people, has_more, part } = people;
    let rows = found.iter().zip(people).map(|(actor, person)| row(actor, person, columns));
    let id = match found.iter().any(|actor| matches!(actor.who, Who::Group(..))) {
        true => "String",
        false => "UUID",
    };
    let rows: Vec<Vec<Value>> = rows.collect();
    let rows = Bytes::from(json!(rows).to_string());
    let told = ResponseFields {
        columns: columns.iter().map(|name| (*name).to_owned()).collect(),
        types: columns.iter().map(|name| type_of(name, id)).collect(),
        has_more: *has_more,
        limit: Some(part.limit),
        offset: part.offset,
        query: None,
        missing_actors_count: Some(0),
        timings: vec![Timing { k: "./answer", t: took.as_secs_f64() }],
    };
    Answered::of_rows(rows, &told, (true, Vec::new()))
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

/// The persons or groups in their order, in the form of lists, with the number that each contributes to the point. One
/// that was deleted meanwhile, or never had properties, has only its id.
pub(in crate::routes) async fn people(
    app: &App,
    project: &Project,
    actors: &[Actor],
) -> Result<Vec<Value>, Problem> {
    bodies(app, project, actors).await.map_err(problems::problem)
}

async fn bodies(app: &App, project: &Project, actors: &[Actor]) -> Result<Vec<Value>, QueryError> {
    let (actors, project) = (actors.to_vec(), project.clone());
    let read = app.engine.read(move |view, _| {
        let mut people = Vec::with_capacity(actors.len());
        for Actor { who, value, .. } in actors {
            let mut body = actor(&view, &project, &who)?;
            if let Value::Object(fields) = &mut body {
                fields.insert("matched_recordings".to_owned(), json!([]));
                fields.insert("value_at_data_point".to_owned(), json!(value));
            }
            people.push(body);
        }
        Ok(people)
    });
    read.await
}

/// A person or a group in the form of a list of actors.
fn actor(view: &View, project: &Project, who: &Who) -> Result<Value, IdentityError> {
    let (mut body, kind) = match who {
        Who::Person(id) => {
            let body = match view.person_by_uuid(project.id, *id)? {
                Some(person) => {
                    let ids = view.first_ids(project.id, person.number, IDS_MAX)?;
                    serde_json::to_value(listed(project, person, ids)).ok()
                }
                None => None,
            };
            (body.unwrap_or_else(|| json!({"uuid": id.to_string()})), "person")
        }
        Who::Group(index, key) => {
            let group = view.group(project.id, *index, key)?;
            (group_body(*index, key, group), "group")
        }
    };
    if let Value::Object(fields) = &mut body {
        fields.insert("type".to_owned(), json!(kind));
    }
    Ok(body)
}

/// A group in the form of a list of actors. Results of queries contain the properties under a second name, too.
fn group_body(index: u8, key: &str, group: Option<Group>) -> Value {
    let created_at = group.as_ref().map(|group| group.created_at.to_rfc3339());
    let properties = group.map(|group| group.properties).unwrap_or_default();
    json!({
        "id": key, "group_type_index": index, "group_key": key, "created_at": created_at,
        "properties": properties, "group_properties": properties,
    })
}
