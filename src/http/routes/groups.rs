//! Groups, such as companies: list by type, find by key, properties and their values. Most are
//! created by events.

pub mod changes;

use std::borrow::Cow;
use std::collections::BTreeMap;

use hyper::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::auth::Principal;
use crate::call::{Call, Rendering};
use crate::csv;
use crate::openapi::{Description, INVALID, Parameter};
use crate::page::Page;
use crate::request::Request;
use crate::response::{Attr, Problem, Response};
use crate::routes::persons::values::ValueBody;
use crate::routes::store::problem;
use crate::routes::{activity, query};
use crate::rows::{LONG_PAGE_MAX_BYTES, Rows};
use weir_app::App;
use weir_base::error::Kind;
use weir_event::id::ProjectId;
use weir_identity::person::Group;
use weir_ingest::activity::group_item;
use weir_insights::groups;
use weir_insights::groups::Counts;
use weir_metadata::activity::Scope;
use weir_query::persons::people::Part;

/// Most values in a response.
const VALUES_MAX: usize = 20;

/// A group as sent to clients.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "Group")]
struct GroupBody {
    group_type_index: u8,
    group_key: String,
    group_properties: Map<String, Value>,
    created_at: String,
}

/// A group type as sent to clients.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "GroupType")]
struct TypeBody {
    group_type: String,
    group_type_index: usize,
    /// Null unless a user has set it.
    name_singular: Option<String>,
    name_plural: Option<String>,
}

impl GroupBody {
    fn new(group_type_index: u8, group_key: String, group: Group) -> Self {
        let created_at = group.created_at.to_rfc3339();
        Self { group_type_index, group_key, group_properties: group.properties, created_at }
    }
}

pub(crate) const LIST: Description =
    Description::page::<GroupBody>("Groups of a type, newest first")
        .query(&[
            Parameter::between("group_type_index", 0, 4).required(),
            Parameter::shared("search"),
        ])
        .or(&[INVALID]);

/// `GET groups/?group_type_index=`: newest first.
pub async fn list(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, rendering, request, .. } = call;
    let (index, page) = (type_index(&request)?, Page::of(&request));
    let part = Part { offset: page.offset, limit: page.limit };
    let search = request.query("search").filter(|text| !text.is_empty()).map(Cow::into_owned);
    let found = groups::find_groups(&app.engine, asker.project.id, index, search, part).await;
    let (count, groups) = found.map_err(query::problem)?;
    let body = |(key, group)| GroupBody::new(index, key, group);
    if rendering == Rendering::Csv {
        let groups = groups.into_iter().map(body).collect();
        return page.answer(app, &request, rendering, (count, groups)).await;
    }
    let rows = Rows::within(&request.memory(), LONG_PAGE_MAX_BYTES);
    let write = move |rows: &mut Rows| {
        rows.add_all(groups.into_iter().map(|(key, group)| GroupBody::new(index, key, group)))
    };
    page.written(app, &request, (count, rows), write).await
}

pub(crate) const FIND: Description = Description::ok::<GroupBody>("One group")
    .query(&[
        Parameter::between("group_type_index", 0, 4).required(),
        Parameter::text("group_key").required(),
    ])
    .or(&[INVALID]);

/// `GET groups/find/?group_type_index=&group_key=`.
pub async fn find(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let (index, key, group) = find_one(app, call.asker.project.id, &call.request).await?;
    Ok(Response::json(StatusCode::OK, &GroupBody::new(index, key, group)))
}

pub(crate) const ACTIVITY: Description = Description::activity("What operators did to a group")
    .query(&[
        Parameter::between("group_type_index", 0, 4).required(),
        Parameter::text("group_key").required(),
    ])
    .or(&[INVALID]);

/// `GET groups/activity/?group_type_index=&group_key=`: changes of a group by operators.
pub async fn activity(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let (index, key, _) = find_one(app, call.asker.project.id, &call.request).await?;
    activity::of_call(app, call, Scope::Group, Some(group_item(index, &key))).await
}

/// The group in the query, as of every event acknowledged so far.
async fn find_one(
    app: &App,
    project: ProjectId,
    request: &Request,
) -> Result<(u8, String, Group), Problem> {
    let (index, key) = named(request)?;
    let group = group(app, project, (index, &key)).await?;
    let group = group.ok_or_else(|| Problem::not_found("Not found."))?;
    Ok((index, key, group))
}

/// The type index and the key of the group in the query.
fn named(request: &Request) -> Result<(u8, String), Problem> {
    let index = type_index(request)?;
    let key = request.query("group_key").filter(|key| !key.is_empty());
    Ok((index, key.ok_or_else(|| missing("group_key"))?.into_owned()))
}

async fn group(
    app: &App,
    project: ProjectId,
    (index, key): (u8, &str),
) -> Result<Option<Group>, Problem> {
    app.engine.wait().await.map_err(query::problem)?;
    let group = app.shard.identities.group(project, index, key);
    group.map_err(|error| Problem::of(error.kind(), &error))
}

pub(crate) const PROPERTY_DEFINITIONS: Description =
    Description::ok::<BTreeMap<String, Vec<ValueBody>>>(
        "Properties of groups by the index of their type",
    )
    .says("Names and numbers");

/// `GET groups/property_definitions/`: the properties of each type of groups, the most frequent
/// first.
pub async fn property_definitions(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let project = call.asker.project.id;
    app.engine.wait().await.map_err(query::problem)?;
    let types = app.node.metadata.snapshot().group_types(project).len();
    let types = u8::try_from(types).unwrap_or(u8::MAX);
    let found =
        groups::group_properties(&app.engine, project, types).await.map_err(query::problem)?;
    let bodies: BTreeMap<String, Vec<ValueBody>> =
        found.into_iter().map(|(index, counts)| (index.to_string(), ranked(counts))).collect();
    csv::answer(&app.node.cpu, StatusCode::OK, Rendering::Json, bodies).await
}

pub(crate) const PROPERTY_VALUES: Description =
    Description::ok::<Vec<ValueBody>>("Values of a property of groups")
        .query(&[
            Parameter::between("group_type_index", 0, 4).required(),
            Parameter::text("key").required(),
            Parameter::text("value").about("Part of the values"),
        ])
        .or(&[INVALID]);

/// `GET groups/property_values/?group_type_index=&key=&value=`: the most frequent values.
pub async fn property_values(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let index = type_index(&call.request)?;
    let Some(key) = call.request.query("key").filter(|key| !key.is_empty()) else {
        return Err(missing("key"));
    };
    let part = call.request.query("value").unwrap_or_default().to_lowercase();
    let found =
        groups::group_values(&app.engine, call.asker.project.id, index, key.into_owned()).await;
    let mut counts = found.map_err(query::problem)?;
    counts.retain(|value, _| value.to_lowercase().contains(&part));
    let mut values = ranked(counts);
    values.truncate(VALUES_MAX);
    Ok(Response::json(StatusCode::OK, &values))
}

pub(crate) const TYPES: Description = Description::ok::<Vec<TypeBody>>("Types of groups");

/// `GET groups_types/`, in the order of their indexes: the types that an event has named in
/// `$groups` or in `$groupidentify`.
pub async fn types(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    types_of(app, call.asker.project.id).await
}

async fn types_of(app: &App, project: ProjectId) -> Result<Response, Problem> {
    let mut called = app.node.metadata.group_types_called(project).await.map_err(problem)?;
    let snapshot = app.node.metadata.snapshot();
    let names = snapshot.group_types(project);
    let body = |(group_type_index, group_type): (usize, &String)| {
        let called = called.remove(group_type).unwrap_or_default();
        TypeBody {
            group_type: group_type.clone(),
            group_type_index,
            name_singular: called.name_singular,
            name_plural: called.name_plural,
        }
    };
    let bodies: Vec<TypeBody> = names.iter().enumerate().map(body).collect();
    Ok(Response::json(StatusCode::OK, &bodies))
}

/// The type index in the query.
fn type_index(request: &Request) -> Result<u8, Problem> {
    let Some(text) = request.query("group_type_index").filter(|text| !text.is_empty()) else {
        return Err(missing("group_type_index"));
    };
    text.parse().map_err(|_| {
        let problem = Problem::new(Kind::Invalid, "invalid_input", "A valid integer is required.");
        problem.with_attr(Attr::Name("group_type_index".into()))
    })
}

fn missing(name: &'static str) -> Problem {
    let detail = format!("You must pass ?{name}= in this API query");
    Problem::new(Kind::Invalid, "required", detail).with_attr(Attr::Name(name.into()))
}

/// Ordered by count, the largest first; equal counts by name.
fn ranked(counts: Counts) -> Vec<ValueBody> {
    let mut bodies: Vec<_> =
        counts.into_iter().map(|(name, count)| ValueBody { name, count }).collect();
    bodies.sort_unstable_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
    bodies
}
