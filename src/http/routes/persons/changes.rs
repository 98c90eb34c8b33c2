//! Changes of persons by operators: set and delete properties. Each is an operation in the log, like a split: it is
//! ordered among the events, survives a crash like an event, and is answered when it has taken effect.

use std::borrow::Cow;
use std::collections::HashSet;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use crate::auth::Principal;
use crate::body::{Exact, Field, body};
use crate::fields;
use crate::fields::Fields;
use crate::openapi::{Body, Parameter, Shape};
use crate::operation::input::{InBody, InQuery, Named, input, part};
use crate::operation::output::{Accepted, Created, Taken};
use crate::operation::{Context, Operation};
use crate::request::Request;
use crate::response::{Attr, Problem};
use crate::routes::persons;
use crate::routes::persons::body::{retrieved, succeeded};
use crate::routes::query::problems;
use crate::routes::store::problem;
use weir_api::persons as api;
use weir_app::App;
use weir_base::error::Kind;
use weir_event::id::ProjectId;
use weir_identity::IdentityError;
use weir_identity::person::Person;
use weir_ingest::operation::Action;
use weir_ingest::{activity, operation};

/// The field or parameter with the name of a property to remove.
const UNSET: &str = "$unset";

/// Properties to set.
#[derive(Debug)]
pub struct Properties(Map<String, Value>);

impl Field for Properties {
    const IS_REQUIRED: bool = true;

    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        if fields.peek(name).is_none_or(Value::is_null) {
            return Err(missing(name));
        }
        Ok(Self(fields.object(name)?.unwrap_or_default()))
    }

    fn schema() -> Value {
        json!({"type": "object"})
    }
}

body! {
    /// A change of a person.
    pub struct PersonPatch {
        /// These are set, the others stay
        properties: Properties,
    }
}

/// Checks that the person of a path exists.
async fn look_up(cx: &Context<Principal>, path: &Named) -> Result<(), Problem> {
    let id: String = part(path, "id")?;
    persons::find_one(&cx.app, cx.who.project.id, &id).await.map(drop)
}

input! {
    /// Sets the properties of the body and keeps all others.
    pub struct Update {
        path id: String,
        body person: PersonPatch,
    }
}

impl Operation for Update {
    type Who = Principal;
    type Out = Accepted<api::Person>;
    const SCOPE: &'static str = "person:write";

    async fn look_up(cx: &Context<Principal>, path: &Named) -> Result<(), Problem> {
        look_up(cx, path).await
    }

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let Properties(set) = self.person.properties;
        change(cx, &self.id, Edit { set, ..Edit::default() }).await.map(Accepted)
    }
}

input! {
    /// Sets one property, of the body or of the query.
    pub struct UpdateProperty {
        path id: String,
        query key: Option<String>,
        query value: Option<String>,
        body property: PropertyWrite,
    }
}

impl Operation for UpdateProperty {
    type Who = Principal;
    type Out = Accepted<api::Person>;
    const SCOPE: &'static str = "person:write";

    async fn look_up(cx: &Context<Principal>, path: &Named) -> Result<(), Problem> {
        look_up(cx, path).await
    }

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let Self { id, key, value, property } = self;
        persons::find_one(&cx.app, cx.who.project.id, &id).await?;
        let value = property.value.map(|AnyValue(value)| value).or(value.map(Value::from));
        let value = value.ok_or_else(|| missing("value"))?;
        let key = property.key.map(|Exact(key)| key).or(key).filter(|key| !key.is_empty());
        let key = key.ok_or_else(|| missing("key"))?;
        let set = Map::from_iter([(key, value)]);
        change(cx, &id, Edit { set, ..Edit::default() }).await.map(Accepted)
    }
}

/// `$unset`, the name of a property, in a query.
#[derive(Debug)]
pub struct UnsetInQuery(Option<String>);

impl InQuery for UnsetInQuery {
    fn describe(_: &'static str, _: &'static str, shape: &mut Shape) {
        shape.query.push(Parameter::text(UNSET));
    }

    fn take(request: &Request, _: &'static str) -> Result<Self, Problem> {
        Ok(Self(request.query(UNSET).map(Cow::into_owned)))
    }
}

/// The same field in a body.
#[derive(Debug)]
pub struct UnsetInBody(Option<String>);

impl InBody for UnsetInBody {
    fn describe(shape: &mut Shape) {
        shape.body = Some(Body::of::<PropertyUnset>(false));
    }

    fn take(fields: &mut Fields) -> Result<Self, Problem> {
        fields.exact_text(UNSET).map(Self)
    }
}

input! {
    /// Removes one property, which the body or the query names.
    pub struct DeleteProperty {
        path id: String,
        query property: UnsetInQuery,
        body unset: UnsetInBody,
    }
}

impl Operation for DeleteProperty {
    type Who = Principal;
    type Out = Created<api::Person>;
    const SCOPE: &'static str = "person:write";

    async fn look_up(cx: &Context<Principal>, path: &Named) -> Result<(), Problem> {
        look_up(cx, path).await
    }

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let Self { id, property: UnsetInQuery(in_query), unset: UnsetInBody(in_body) } = self;
        persons::find_one(&cx.app, cx.who.project.id, &id).await?;
        let key = in_body.or(in_query).filter(|key| !key.is_empty());
        let key = key.ok_or_else(|| fields::missing(UNSET))?;
        let edit = Edit { unset: vec![key], ..Edit::default() };
        change(cx, &id, edit).await.map(succeeded).map(Created)
    }
}

/// A distinct id; only a text is valid.
#[derive(Debug)]
pub struct DistinctId;

impl Field for DistinctId {
    const IS_REQUIRED: bool = true;

    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        match fields.nullable_value(name).flatten() {
            Some(Value::String(id)) if !id.is_empty() => Ok(Self),
            _ => {
                let detail = "distinct_id is required";
                Err(Problem::new(Kind::Invalid, "invalid_input", detail))
            }
        }
    }

    fn schema() -> Value {
        json!({"type": "string", "minLength": 1})
    }
}

body! {
    /// A distinct id whose person was deleted.
    pub struct DistinctIdReset {
        /// The id.
        distinct_id: DistinctId,
    }
}

input! {
    /// Makes a distinct id usable again after its person was deleted. In Weir it is usable at once; the request is only
    /// validated.
    pub struct ResetDistinctId {
        body reset: DistinctIdReset,
    }
}

impl Operation for ResetDistinctId {
    type Who = Principal;
    type Out = Taken;
    const SCOPE: &'static str = "person:write";

    async fn perform(self, _: &Context<Principal>) -> Result<Self::Out, Problem> {
        let DistinctIdReset { distinct_id: DistinctId } = self.reset;
        Ok(Taken)
    }
}

/// Any value; null counts as absent.
#[derive(Debug)]
pub struct AnyValue(pub Value);

impl Field for Option<AnyValue> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        Ok(fields.nullable_value(name).flatten().map(AnyValue))
    }

    fn schema() -> Value {
        json!({})
    }
}

body! {
    /// One property, and its value.
    pub struct PropertyWrite {
        /// The name of the property.
        key: Option<Exact>,
        /// Its value.
        value: Option<AnyValue>,
    }
}

/// The schema of a body with `$unset`, the name of a property.
#[derive(Debug)]
pub struct PropertyUnset;

impl JsonSchema for PropertyUnset {
    fn schema_name() -> Cow<'static, str> {
        "PropertyUnset".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object", "properties": {(UNSET): {"type": "string"}}})
    }
}

/// Logs an operation on `persons` persons, and waits until it has taken effect. Returns the numbers of the persons that
/// it changed. It does not change a person that was merged away or deleted before the operation was logged, or that
/// already has the requested state.
pub(super) async fn operate(
    app: &App,
    asker: &Principal,
    action: Action,
    persons: usize,
) -> Result<HashSet<i64>, Problem> {
    let changed = carry_out(app, asker, action, persons).await?;
    Ok(changed.iter().filter_map(|number| number.parse().ok()).collect())
}

/// As [`operate`], for persons or groups. Returns their items in the activity log.
pub(in crate::routes) async fn carry_out(
    app: &App,
    asker: &Principal,
    action: Action,
    subjects: usize,
) -> Result<HashSet<String>, Problem> {
    let (project, by, at) = (asker.project.id, Some(asker.user.id), app.node.clock.now());
    let operation = operation::Operation { project, at, by, action };
    let pipeline = app.shard.pipeline.clone();
    let operating = app
        .node
        .tasks
        .0
        .detach("operate-on-persons", async move { pipeline.operate(operation).await });
    let done = operating.await.map_err(|error| Problem::of(error.kind(), &error))?;
    let sequence = done.map_err(|error| Problem::of(error.kind(), &error))?;
    app.engine.wait().await.map_err(problems::problem)?;
    // Each effect has an activity entry, which is written before it.
    let entries = activity::entry_ids(project, at, sequence, subjects);
    app.node.metadata.items_logged(&entries).await.map_err(problem)
}

/// A person after an operation has changed it: its current state, or the person that it was merged into since.
pub(super) async fn find_again(
    app: &App,
    project: ProjectId,
    person: &Person,
) -> Result<(Person, Vec<String>), Problem> {
    let failed = |error: IdentityError| Problem::of(error.kind(), &error);
    let survivor = app.shard.identities.overrides().get(project, person.uuid).map_err(failed)?;
    let is_here = app.shard.identities.view().person_by_number(project, person.number);
    let is_here = is_here.map_err(failed)?.is_some();
    match survivor.filter(|_| !is_here) {
        Some(survivor) => persons::find_one(app, project, &survivor.to_string()).await,
        None => persons::find_one(app, project, &person.number.to_string()).await,
    }
}

/// A change of a person's properties.
#[derive(Debug, Default)]
struct Edit {
    set: Map<String, Value>,
    unset: Vec<String>,
}

async fn change(
    cx: &Context<Principal>,
    id: &str,
    Edit { set, unset }: Edit,
) -> Result<api::Person, Problem> {
    let (app, project) = (&cx.app, &cx.who.project);
    let (person, _) = persons::find_one(app, project.id, id).await?;
    let action = Action::ChangePerson { person: person.uuid.to_string(), set, unset };
    let changed = operate(app, &cx.who, action, 1).await?;
    let (person, ids) = match changed.contains(&person.number) {
        true => find_again(app, project.id, &person).await?,
        // The person already has the requested state, or no longer exists, which is a 404.
        false => persons::find_one(app, project.id, &person.number.to_string()).await?,
    };
    Ok(retrieved(project, person, ids))
}

/// The error format that clients of PostHog expect: code and detail are swapped.
fn missing(name: &'static str) -> Problem {
    Problem::new(Kind::Invalid, "This field is required.", "required")
        .with_attr(Attr::Name(name.into()))
}
