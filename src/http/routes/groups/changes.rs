//! Changes of groups by operators: create a group, set and delete its properties, name a type. Each is an
//! operation in the log, as for persons.

use serde_json::{Map, Value, json};

use crate::auth::Principal;
use crate::body::{Exact, Field, body};
use crate::fields::{Fields, blank, check_chars, missing, null, refused};
use crate::openapi::{Body, Shape};
use crate::operation::input::{InBody, Reading, input};
use crate::operation::output::Created;
use crate::operation::{Context, Operation};
use crate::response::Problem;
use crate::routes::groups::{Key, TypeIndex, existing, group, shown, types};
use crate::routes::persons::changes::{AnyValue, PropertyUnset, PropertyWrite, carry_out};
use weir_api::groups as api;
use weir_identity::decide::group::is_group_name;
use weir_ingest::operation::Action;
use weir_metadata::Metadata;
use weir_metadata::group_types::CalledPatch;

/// Longest name of a type that users may set, in characters (PostHog's figure).
const NAME_MAX_CHARS: usize = 400;

/// The type index in a body. An index out of range is treated as a type that does not exist.
impl Field for TypeIndex {
    const IS_REQUIRED: bool = true;

    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        fields.require(name)?;
        let index = fields.nullable_integer(name)?.flatten();
        let index = index.ok_or_else(|| null(name))?;
        u8::try_from(index).map(Self).map_err(|_| Problem::not_found("Not found."))
    }

    fn schema() -> Value {
        json!({"type": "integer", "minimum": 0, "maximum": 4})
    }
}

impl Field for Key {
    const IS_REQUIRED: bool = true;

    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        let key = <String as Field>::take(fields, name)?;
        if key.is_empty() {
            return Err(blank(name));
        }
        if !is_group_name(&key) {
            let detail = "Ensure this field has no more than 400 characters.";
            return Err(refused(name, "max_length", detail));
        }
        Ok(Self(key))
    }

    fn schema() -> Value {
        json!({"type": "string", "minLength": 1, "maxLength": 400})
    }
}

/// Properties; null counts as empty.
#[derive(Debug, Default)]
pub struct Properties(Map<String, Value>);

impl Field for Option<Properties> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        if fields.peek(name).is_some_and(Value::is_null) {
            return Ok(None);
        }
        Ok(fields.object(name)?.map(Properties))
    }

    fn schema() -> Value {
        json!({"type": ["object", "null"]})
    }
}

body! {
    /// A new group.
    pub struct GroupWrite {
        /// The number of its type.
        group_type_index: TypeIndex,
        /// What it is called in events.
        group_key: Key,
        /// The properties.
        group_properties: Option<Properties>,
    }
}

input! {
    /// Makes a group.
    pub struct Create {
        body group: GroupWrite,
    }
}

impl Operation for Create {
    type Who = Principal;
    type Out = Created<api::Group>;
    const SCOPE: &'static str = "group:write";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let GroupWrite { group_type_index, group_key, group_properties } = self.group;
        let (TypeIndex(index), Key(key)) = (group_type_index, group_key);
        let Properties(set) = group_properties.unwrap_or_default();
        let is_taken = || {
            let detail = "A group with this key already exists";
            refused("detail", "invalid_input", detail)
        };
        if group(cx, index, &key).await?.is_some() {
            return Err(is_taken());
        }
        let edit = Edit { is_new: true, set, ..Edit::default() };
        let done = change(cx, index, &key, edit).await?;
        match group(cx, index, &key).await? {
            Some(made) if done => Ok(Created(shown(index, key, made))),
            Some(_) => Err(is_taken()),
            None => Err(too_large("group_properties")),
        }
    }
}

input! {
    /// Sets one property of a group.
    pub struct UpdateProperty {
        query group_type_index: TypeIndex,
        query group_key: Key,
        body property: PropertyWrite,
    }
}

impl Operation for UpdateProperty {
    type Who = Principal;
    type Out = api::Group;
    const SCOPE: &'static str = "group:write";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let Self { group_type_index: TypeIndex(index), group_key: Key(key), property } = self;
        existing(cx, index, &key).await?;
        let name = property.key.map(|Exact(name)| name).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| missing("key"))?;
        let value = property.value.map(|AnyValue(value)| value);
        let value = value.ok_or_else(|| missing("value"))?;
        let set = Map::from_iter([(name.clone(), value.clone())]);
        let done = change(cx, index, &key, Edit { set, ..Edit::default() }).await?;
        let now = existing(cx, index, &key).await?;
        // Setting a property to its current value is not a change.
        if !done && now.properties.get(&name) != Some(&value) {
            return Err(too_large("value"));
        }
        Ok(shown(index, key, now))
    }
}

/// `$unset`: the name of the property that is removed.
#[derive(Debug)]
pub struct Unset(pub String);

impl InBody for Unset {
    fn describe(shape: &mut Shape) {
        shape.body = Some(Body::of::<PropertyUnset>(false));
    }

    fn take(fields: &mut Fields) -> Result<Self, Problem> {
        match fields.nullable_value("$unset").flatten() {
            Some(Value::String(name)) => Ok(Self(name)),
            _ => {
                let detail =
                    "This field is required and must be a string (the property name to delete).";
                Err(refused("$unset", "invalid_input", detail))
            }
        }
    }
}

input! {
    /// Removes one property of a group.
    pub struct DeleteProperty {
        query group_type_index: TypeIndex,
        query group_key: Key,
        body property: Unset,
    }
}

impl Operation for DeleteProperty {
    type Who = Principal;
    type Out = api::Group;
    const SCOPE: &'static str = "group:write";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let Self { group_type_index: TypeIndex(index), group_key: Key(key), property } = self;
        let (before, Unset(name)) = (existing(cx, index, &key).await?, property);
        if !before.properties.contains_key(&name) {
            let detail = format!("Property '{name}' does not exist on this group.");
            return Err(refused("$unset", "invalid_input", detail));
        }
        change(cx, index, &key, Edit { unset: vec![name], ..Edit::default() }).await?;
        let now = existing(cx, index, &key).await?;
        Ok(shown(index, key, now))
    }
}

/// Display name of a group type. Null and the empty text remove a name.
#[derive(Debug)]
pub struct Called(Option<String>);

impl Field for Option<Called> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        let text = fields.nullable_text(name)?;
        if let Some(Some(text)) = &text {
            check_chars(name, text, NAME_MAX_CHARS)?;
        }
        Ok(text.map(|text| Called(text.filter(|text| !text.is_empty()))))
    }

    fn schema() -> Value {
        json!({"type": ["string", "null"], "maxLength": NAME_MAX_CHARS})
    }
}

body! {
    /// What the groups of a type are called.
    pub struct GroupTypeWrite {
        /// The number of the type.
        group_type_index: TypeIndex,
        /// What one group is called; null removes the name.
        name_singular: Option<Called>,
        /// What several are called; null removes the name.
        name_plural: Option<Called>,
    }
}

/// Display names of group types.
#[derive(Debug)]
pub struct TypesWrite(Vec<GroupTypeWrite>);

impl InBody for TypesWrite {
    const READING: Reading = Reading::List;

    fn describe(shape: &mut Shape) {
        shape.body = Some(Body::of::<Vec<GroupTypeWrite>>(false));
    }

    fn take(fields: &mut Fields) -> Result<Self, Problem> {
        let types = fields.items().into_iter().map(|mut own| GroupTypeWrite::read(&mut own));
        types.collect::<Result<_, _>>().map(Self)
    }
}

input! {
    /// Names types by their `group_type_index`, each with a `name_singular` or a `name_plural`, or both.
    pub struct UpdateTypes {
        body types: TypesWrite,
    }
}

impl Operation for UpdateTypes {
    type Who = Principal;
    type Out = Vec<api::Type>;
    const SCOPE: &'static str = "group:write";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (TypesWrite(types_written), project, by) = (self.types, cx.who.project.id, cx.user());
        let patch = |own: GroupTypeWrite| CalledPatch {
            position: own.group_type_index.0,
            name_singular: own.name_singular.map(|Called(name)| name),
            name_plural: own.name_plural.map(|Called(name)| name),
        };
        let patches: Vec<CalledPatch> = types_written.into_iter().map(patch).collect();
        let write = |metadata: Metadata| async move {
            metadata.call_group_types(project, by, &patches).await
        };
        cx.write("call-group-types", write).await?;
        types(cx).await
    }
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
    cx: &Context<Principal>,
    index: u8,
    key: &str,
    Edit { is_new, set, unset }: Edit,
) -> Result<bool, Problem> {
    let snapshot = cx.snapshot();
    let group_types = snapshot.group_types(cx.who.project.id).to_vec();
    let group_type = group_types.get(usize::from(index));
    let group_type = group_type.ok_or_else(|| Problem::not_found("Not found."))?.clone();
    let key = key.to_owned();
    let action = Action::ChangeGroup { group_type, group_types, key, is_new, set, unset };
    Ok(!carry_out(&cx.app, &cx.who, action, 1).await?.is_empty())
}

fn too_large(name: &'static str) -> Problem {
    let detail = "The properties of the group would be too large.";
    refused(name, "max_length", detail)
}
