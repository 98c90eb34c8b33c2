//! Changes of groups by operators: create a group, set and delete its properties, name a type. Each is an
//! operation in the log, as for persons.

use hyper::StatusCode;
use serde_json::{Map, Value};

use crate::auth::Principal;
use crate::call::Call;
use crate::fields::{Fields, refused};
use crate::openapi::{Description, Parameter, by_hand};
use crate::response::{Problem, Response};
use crate::routes::groups::{GroupBody, TypeBody, group, named, types_of};
use crate::routes::persons::changes::carry_out;
use crate::routes::store;
use weir_app::App;
use weir_identity::decide::group::is_group_name;
use weir_identity::person::Group;
use weir_ingest::operation::Action;
use weir_metadata::group_types::CalledPatch;

/// Longest name of a type that users may set, in characters (PostHog's figure).
const NAME_MAX_CHARS: usize = 400;

const REQUIRED: &str = "This field is required.";

pub(crate) const CREATE: Description =
    Description::created::<GroupBody>("Make a group").optional_body::<by_hand::GroupWrite>();

/// `POST groups/` with `group_type_index`, `group_key` and `group_properties`.
pub async fn create(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, .. } = call;
    let mut fields = Fields::read(request).await?;
    fields.require("group_type_index")?;
    let index = type_index(&mut fields)?;
    fields.require("group_key")?;
    let key = fields.text("group_key")?.unwrap_or_default();
    if key.is_empty() {
        return Err(refused("group_key", "blank", "This field may not be blank."));
    }
    if !is_group_name(&key) {
        let detail = "Ensure this field has no more than 400 characters.";
        return Err(refused("group_key", "max_length", detail));
    }
    let set = match fields.peek("group_properties") {
        Some(Value::Null) => Map::new(),
        _ => fields.object("group_properties")?.unwrap_or_default(),
    };
    let (project, place) = (asker.project.id, (index, key.as_str()));
    let is_taken = || {
        let detail = "A group with this key already exists";
        refused("detail", "invalid_input", detail)
    };
    if group(app, project, place).await?.is_some() {
        return Err(is_taken());
    }
    let done = change(app, &asker, place, Edit { is_new: true, set, ..Edit::default() }).await?;
    match group(app, project, place).await? {
        Some(made) if done => {
            Ok(Response::json(StatusCode::CREATED, &GroupBody::new(index, key, made)))
        }
        Some(_) => Err(is_taken()),
        None => Err(too_large("group_properties")),
    }
}

pub(crate) const UPDATE_PROPERTY: Description = Description::ok::<GroupBody>("Set one property")
    .query(&[
        Parameter::between("group_type_index", 0, 4).required(),
        Parameter::text("group_key").required(),
    ])
    .optional_body::<by_hand::PropertyWrite>();

/// `POST groups/update_property/?group_type_index=&group_key=` with `key` and `value`.
pub async fn update_property(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, .. } = call;
    let named = named(&request);
    let mut fields = Fields::read(request).await?;
    let (index, key) = named?;
    found(app, &asker, (index, &key)).await?;
    let property = fields.exact_text_if_any("key")?.filter(|name| !name.is_empty());
    let property = property.ok_or_else(|| refused("key", "required", REQUIRED))?;
    let value = fields.nullable_value("value").flatten();
    let value = value.ok_or_else(|| refused("value", "required", REQUIRED))?;
    let set = Map::from_iter([(property.clone(), value.clone())]);
    let done = change(app, &asker, (index, &key), Edit { set, ..Edit::default() }).await?;
    let now = found(app, &asker, (index, &key)).await?;
    // A property that already has the value is not a change.
    if !done && now.properties.get(&property) != Some(&value) {
        return Err(too_large("value"));
    }
    Ok(Response::json(StatusCode::OK, &GroupBody::new(index, key, now)))
}

pub(crate) const DELETE_PROPERTY: Description = Description::ok::<GroupBody>("Remove one property")
    .query(&[
        Parameter::between("group_type_index", 0, 4).required(),
        Parameter::text("group_key").required(),
    ])
    .optional_body::<by_hand::PropertyUnset>();

/// `POST groups/delete_property/?group_type_index=&group_key=` with `$unset`, one key.
pub async fn delete_property(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, .. } = call;
    let named = named(&request);
    let fields = Fields::read(request).await?;
    let (index, key) = named?;
    let before = found(app, &asker, (index, &key)).await?;
    let Some(property) = fields.peek("$unset").and_then(Value::as_str) else {
        let detail = "This field is required and must be a string (the property name to delete).";
        return Err(refused("$unset", "invalid_input", detail));
    };
    if !before.properties.contains_key(property) {
        let detail = format!("Property '{property}' does not exist on this group.");
        return Err(refused("$unset", "invalid_input", detail));
    }
    let unset = vec![property.to_owned()];
    change(app, &asker, (index, &key), Edit { unset, ..Edit::default() }).await?;
    let now = found(app, &asker, (index, &key)).await?;
    Ok(Response::json(StatusCode::OK, &GroupBody::new(index, key, now)))
}

pub(crate) const UPDATE_TYPES: Description =
    Description::ok::<Vec<TypeBody>>("Say what the groups of types are called")
        .named("groups_types_update_metadata_partial")
        .optional_body::<Vec<by_hand::GroupTypeWrite>>();

/// `PATCH groups_types/update_metadata/`: a list of types by their `group_type_index`, each with a
/// `name_singular` or a `name_plural`, or both; null removes a name.
pub async fn update_types(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, .. } = call;
    let rows = Fields::read_many(request).await?;
    let patches = rows.into_iter().map(patch).collect::<Result<Vec<_>, _>>()?;
    let (metadata, project, by) = (app.node.metadata.clone(), asker.project.id, asker.user.id);
    let write = async move { metadata.call_group_types(project, by, &patches).await };
    store::write(app, "call-group-types", write).await?;
    types_of(app, project).await
}

fn patch(mut fields: Fields) -> Result<CalledPatch, Problem> {
    fields.require("group_type_index")?;
    let position = type_index(&mut fields)?;
    let mut name = |name: &'static str| {
        let text = fields.nullable_text(name)?;
        let is_long = |text: &String| text.chars().nth(NAME_MAX_CHARS).is_some();
        if text.as_ref().is_some_and(|text| text.as_ref().is_some_and(is_long)) {
            let detail = format!("Ensure this field has no more than {NAME_MAX_CHARS} characters.");
            return Err(refused(name, "max_length", detail));
        }
        Ok(text.map(|text| text.filter(|text| !text.is_empty())))
    };
    let (name_singular, name_plural) = (name("name_singular")?, name("name_plural")?);
    Ok(CalledPatch { position, name_singular, name_plural })
}

/// The type index in a body. An index out of range is treated as a type that does not exist.
fn type_index(fields: &mut Fields) -> Result<u8, Problem> {
    const NAME: &str = "group_type_index";
    let index = fields.nullable_integer(NAME)?.flatten();
    let index = index.ok_or_else(|| refused(NAME, "null", "This field may not be null."))?;
    u8::try_from(index).map_err(|_| Problem::not_found("Not found."))
}

/// A change of a group.
#[derive(Debug, Default)]
struct Edit {
    is_new: bool,
    set: Map<String, Value>,
    unset: Vec<String>,
}

/// Logs a change of a group, and waits until it has taken effect. Returns whether it changed anything.
async fn change(
    app: &App,
    asker: &Principal,
    (index, key): (u8, &str),
    Edit { is_new, set, unset }: Edit,
) -> Result<bool, Problem> {
    let snapshot = app.node.metadata.snapshot();
    let group_types = snapshot.group_types(asker.project.id).to_vec();
    let group_type = group_types.get(usize::from(index));
    let group_type = group_type.ok_or_else(|| Problem::not_found("Not found."))?.clone();
    let key = key.to_owned();
    let action = Action::ChangeGroup { group_type, group_types, key, is_new, set, unset };
    Ok(!carry_out(app, asker, action, 1).await?.is_empty())
}

async fn found(app: &App, asker: &Principal, place: (u8, &str)) -> Result<Group, Problem> {
    let group = group(app, asker.project.id, place).await?;
    group.ok_or_else(|| Problem::not_found("Not found."))
}

fn too_large(name: &'static str) -> Problem {
    let detail = "The properties of the group would be too large.";
    refused(name, "max_length", detail)
}
