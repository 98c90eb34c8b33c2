//! Property definitions: list, retrieve, edit, delete. Only events create them. `body` is the JSON form of a
//! definition.

mod body;

use std::collections::BTreeMap;

use hyper::StatusCode;
use serde_json::{Map, Value, json};

use crate::auth::Principal;
use crate::body::{Field, body};
use crate::call::Call;
use crate::csv;
use crate::fields::{Fields, refused};
use crate::openapi::{Description, INVALID, Parameter};
use crate::page::Page;
use crate::request::Request;
use crate::response::{Attr, Problem, Response};
use crate::routes::definition_parameters::{boolean, id, names};
use crate::routes::property_definitions::body::DefinitionBody;
use crate::routes::store::problem;
use crate::routes::{query, store};
use weir_app::App;
use weir_base::error::Kind;
use weir_event::json;
use weir_event::schema::GROUP_TYPES_MAX;
use weir_insights::property_definitions::{DefinitionsRequest, Owner};
use weir_metadata::annotations::NotesPatch;
use weir_metadata::properties::ValueType;
use weir_metadata::property_edits::PropertyPatch;

/// Most words of a search: each is one more step of the plan.
const TERMS_MAX: usize = 50;

/// Most events that one request may name together with a property.
const SEEN_MAX: usize = 1000;

pub(crate) const LIST: Description =
    Description::page::<DefinitionBody>("Properties that were seen")
        .query(&[
            Parameter::shared("search"),
            Parameter::one_of("type", &["event", "person", "group", "session"]),
            Parameter::between("group_type_index", 0, 4).about("Only for groups"),
            Parameter::text("properties").about("Names with commas"),
            Parameter::boolean("is_numerical"),
            Parameter::boolean("is_feature_flag"),
            Parameter::text("excluded_properties").about("A JSON list"),
            Parameter::text("event_names").about("A JSON list"),
            Parameter::boolean("filter_by_event_names"),
            Parameter::boolean("exclude_core_properties"),
            Parameter::boolean("exclude_hidden"),
        ])
        .or(&[INVALID]);

/// `GET property_definitions/`.
pub async fn list(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, rendering, request, .. } = call;
    let page = Page::of(&request);
    let notes = app.node.metadata.annotations(asker.project.id).await.map_err(problem)?;
    let found = wanted(&request)?.find(&app.engine, asker.project.id, &notes, page.part()).await;
    let (count, found) = found.map_err(query::problem)?;
    let snapshot = app.node.metadata.snapshot();
    let bodies = found.into_iter().map(|row| DefinitionBody::of_row(row, &notes, &snapshot));
    page.answer(app, &request, rendering, (count, bodies.collect())).await
}

pub(crate) const RETRIEVE: Description = Description::ok::<DefinitionBody>("One definition");

/// `GET property_definitions/:id/`.
pub async fn retrieve(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let id = id(call.id())?;
    app.engine.wait().await.map_err(query::problem)?;
    let found = app.node.metadata.property_definition(call.asker.project.id, id).await;
    let (own, notes) = found.map_err(problem)?;
    let body = DefinitionBody::new(own, notes, &app.node.metadata.snapshot());
    csv::answer(&app.node.cpu, StatusCode::OK, call.rendering, body).await
}

pub(crate) const UPDATE: Description = Description::ok::<DefinitionBody>("Change a definition")
    .optional_body::<PropertyDefinitionWrite>();

/// `PATCH property_definitions/:id/`, and `PUT`, which requires no more fields: an absent field
/// keeps its value. The name cannot be changed.
pub async fn update(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let id = id(call.id())?;
    let Call { asker, request, .. } = call;
    app.engine.wait().await.map_err(query::problem)?;
    let (metadata, project, by) = (app.node.metadata.clone(), asker.project.id, asker.user.id);
    // 404 for an unknown definition precedes 400 for a bad body.
    metadata.property_definition(project, id).await.map_err(problem)?;
    let patch = patch(Fields::read(request).await?)?;
    let write = async move { metadata.update_property_definition(project, id, patch, by).await };
    let (own, notes) = store::write(app, "update-property-definition", write).await?;
    let body = DefinitionBody::new(own, notes, &app.node.metadata.snapshot());
    Ok(Response::json(StatusCode::OK, &body))
}

pub(crate) const DELETE: Description =
    Description::empty("204", "Forget a definition, until such a property arrives");

/// `DELETE property_definitions/:id/`. The definition returns when such a property arrives.
pub async fn delete(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let (id, project, by) = (id(call.id())?, call.asker.project.id, call.asker.user.id);
    app.engine.wait().await.map_err(query::problem)?;
    let metadata = app.node.metadata.clone();
    let write = async move { metadata.delete_property_definition(project, id, by).await };
    store::write(app, "delete-property-definition", write).await?;
    Ok(Response::empty(StatusCode::NO_CONTENT))
}

pub(crate) const SEEN_TOGETHER: Description =
    Description::ok::<BTreeMap<String, bool>>("Which events ever had a property")
        .says("By the names of the events")
        .query(&[
            Parameter::texts("event_names")
                .about("Once for each name, or one JSON list")
                .required(),
            Parameter::text("property_name").required(),
        ])
        .or(&[INVALID]);

/// `GET property_definitions/seen_together/?event_names=a&event_names=b&property_name=`: the named
/// events that ever had the property. The names may also be one JSON list.
pub async fn seen_together(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let request = &call.request;
    let required = |name| refused(name, "required", "This field is required.");
    let given = request.query_all().filter(|(name, _)| name == "event_names");
    let mut events: Vec<String> = given.map(|(_, value)| value.into_owned()).collect();
    if let [list] = events.as_slice()
        && let Ok(names) = json::read(list.as_bytes())
    {
        events = names;
    }
    if events.is_empty() {
        return Err(required("event_names"));
    }
    if events.len() > SEEN_MAX {
        let detail = format!("Ensure this field has no more than {SEEN_MAX} elements.");
        return Err(refused("event_names", "max_length", detail));
    }
    let property = request.query("property_name").filter(|name| !name.is_empty());
    let property = property.ok_or_else(|| required("property_name"))?;
    app.engine.wait().await.map_err(query::problem)?;
    let seen = app.node.metadata.seen_together(call.asker.project.id, &events, &property).await;
    let seen = seen.map_err(problem)?;
    let seen_by_name: Map<String, Value> =
        events.into_iter().map(|name| (name.clone(), seen.contains(&name).into())).collect();
    Ok(Response::json(StatusCode::OK, &seen_by_name))
}

impl Field for Option<Option<ValueType>> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        let named = fields.nullable_choice(name, &ValueType::ALL.map(ValueType::name))?;
        let value_type = |name: String| ValueType::ALL.into_iter().find(|own| own.name() == name);
        Ok(named.map(|name| name.and_then(value_type)))
    }

    fn schema() -> Value {
        let names = ValueType::ALL.map(|own| Value::from(own.name())).into_iter();
        let names: Vec<Value> = names.chain([Value::Null]).collect();
        json!({"type": ["string", "null"], "enum": names})
    }
}

body! {
    /// A change of a definition of a property.
    struct PropertyDefinitionWrite {
        property_type: Option<Option<ValueType>>,
        tags: Option<Vec<String>>,
        description: Option<Option<String>>,
        verified: Option<bool>,
        hidden: Option<bool>,
    }
}

/// Reads a change. The first invalid field is the error.
fn patch(mut fields: Fields) -> Result<PropertyPatch, Problem> {
    let sent = PropertyDefinitionWrite::read(&mut fields)?;
    Ok(PropertyPatch {
        value_type: sent.property_type,
        tags: sent.tags,
        notes: NotesPatch {
            description: sent.description,
            verified: sent.verified,
            hidden: sent.hidden,
            ..NotesPatch::default()
        },
    })
}

/// Parses the filters of a list.
fn wanted(request: &Request) -> Result<DefinitionsRequest, Problem> {
    let of = kind(request)?;
    let search = request.query("search").unwrap_or_default();
    let terms: Vec<String> = search.split_whitespace().map(str::to_owned).collect();
    if terms.len() > TERMS_MAX {
        let detail = format!("A search has at most {TERMS_MAX} words.");
        return Err(refused("search", "invalid_input", detail));
    }
    let properties = request.query("properties").filter(|names| !names.is_empty());
    Ok(DefinitionsRequest {
        of,
        without_core: boolean(request, "exclude_core_properties")? == Some(true),
        terms,
        properties: properties.map(|names| names.split(',').map(str::to_owned).collect()),
        is_numerical: boolean(request, "is_numerical")? == Some(true),
        is_feature_flag: boolean(request, "is_feature_flag")?,
        excluded: names(request, "excluded_properties")?.unwrap_or_default(),
        events: names(request, "event_names")?.filter(|names| !names.is_empty()),
        only_seen: boolean(request, "filter_by_event_names")? == Some(true),
        without_hidden: boolean(request, "exclude_hidden")? == Some(true),
    })
}

/// The kind of object that has the properties.
fn kind(request: &Request) -> Result<Owner, Problem> {
    let kind = request.query("type").unwrap_or_else(|| "event".into());
    if !matches!(&*kind, "event" | "person" | "group" | "session") {
        let problem = invalid("invalid_choice", format!("\"{kind}\" is not a valid choice."));
        return Err(problem.with_attr(Attr::Name("type".into())));
    }
    let refuse = |detail: &str| Err(invalid("invalid_input", detail.to_owned()));
    let index = request.query("group_type_index");
    let owner = match (&*kind, index.as_deref().map(str::parse::<i64>)) {
        ("group", None) => return refuse("`group_type_index` must be set for `group` type"),
        ("group", Some(index)) => match index {
            Ok(index) if usize::try_from(index).is_ok_and(|index| index < GROUP_TYPES_MAX) => {
                Owner::Group(index)
            }
            _ => return refuse("Invalid value for `group_type_index`"),
        },
        (_, Some(_)) => return refuse("`group_type_index` can only set for `group` type"),
        ("event", None) => Owner::Event,
        ("person", None) => Owner::Person,
        (_, None) => Owner::Session,
    };
    if owner != Owner::Event && request.query("event_names").is_some_and(|names| !names.is_empty())
    {
        return refuse("`event_names` can only be set for `event` type");
    }
    Ok(owner)
}

fn invalid(code: &'static str, detail: String) -> Problem {
    Problem::new(Kind::Invalid, code, detail).with_attr(Attr::Null)
}
