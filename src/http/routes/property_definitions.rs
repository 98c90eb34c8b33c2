//! Property definitions: list, retrieve, edit, delete. Only events create them.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::auth::Principal;
use crate::body::{Field, body};
use crate::fields::{Fields, check_length, missing, not_a_choice, refused};
use crate::openapi::{Parameter, Shape};
use crate::operation::input::{InQuery, Named, Needed, input, part};
use crate::operation::output::{Done, Listed};
use crate::operation::{Context, Operation};
use crate::page::Page;
use crate::request::Request;
use crate::response::{Attr, Problem};
use crate::routes::definition_parameters::{Names, Terms, Truth, caught_up, notes};
use crate::routes::query::problems;
use crate::routes::store::problem;
use weir_api::definitions as api;
use weir_base::error::Kind;
use weir_event::json;
use weir_event::schema::GROUP_TYPES_MAX;
use weir_insights::property_definitions::{AllNotes, DefinitionsRequest, IS_SEEN, Owner};
use weir_metadata::Metadata;
use weir_metadata::annotations::{Notes, NotesPatch};
use weir_metadata::properties::{PropertyDefinition, PropertyPatch, ValueType};
use weir_metadata::snapshot::Snapshot;

/// Most words of a search: each is one more step of the query plan.
const TERMS_MAX: usize = 50;

/// Most events that one request may name together with a property.
const SEEN_MAX: usize = 1000;

input! {
    /// Properties that were seen.
    #[derive(Default)]
    pub struct List {
        query search: Terms,
        /// `type` and `group_type_index`
        query of: Owner,
        /// Names with commas
        query properties: Option<String>,
        query is_numerical: Truth,
        query is_feature_flag: Truth,
        /// A JSON list
        query excluded_properties: Names,
        /// A JSON list
        query event_names: Names,
        query filter_by_event_names: Truth,
        query exclude_core_properties: Truth,
        query exclude_hidden: Truth,
        query page: Page,
    }
}

impl Operation for List {
    type Who = Principal;
    type Out = Listed<api::PropertyDefinition>;
    const SCOPE: &'static str = "property_definition:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (project, page) = (cx.who.project.id, self.page);
        let wanted = self.wanted()?;
        let notes = cx.metadata().annotations(project).await.map_err(problem)?;
        let found = wanted.find(&cx.app.engine, project, &notes, page.part()).await;
        let (count, found) = found.map_err(problems::problem)?;
        let snapshot = cx.snapshot();
        let results = found.iter().map(|row| listed(row, &notes, &snapshot)).collect();
        Ok(Listed { page, count, results })
    }
}

impl List {
    fn wanted(self) -> Result<DefinitionsRequest, Problem> {
        let Terms(terms) = self.search;
        if terms.len() > TERMS_MAX {
            let detail = format!("A search has at most {TERMS_MAX} words.");
            return Err(refused("search", "invalid_input", detail));
        }
        let properties = self.properties.filter(|names| !names.is_empty());
        Ok(DefinitionsRequest {
            of: self.of,
            without_core: self.exclude_core_properties.is_true(),
            terms,
            properties: properties.map(|names| names.split(',').map(str::to_owned).collect()),
            is_numerical: self.is_numerical.is_true(),
            is_feature_flag: self.is_feature_flag.0,
            excluded: self.excluded_properties.0.unwrap_or_default(),
            events: self.event_names.0.filter(|names| !names.is_empty()),
            only_seen: self.filter_by_event_names.is_true(),
            without_hidden: self.exclude_hidden.is_true(),
        })
    }
}

input! {
    /// One definition.
    pub struct Retrieve {
        path id: Uuid,
    }
}

impl Operation for Retrieve {
    type Who = Principal;
    type Out = api::PropertyDefinition;
    const SCOPE: &'static str = "property_definition:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (own, notes) = find(cx, self.id).await?;
        Ok(definition(own, &notes, &cx.snapshot()))
    }
}

input! {
    /// Changes a definition: an absent field keeps its value. The name cannot be changed.
    pub struct Update {
        path id: Uuid,
        body change: PropertyDefinitionWrite,
    }
}

impl Operation for Update {
    type Who = Principal;
    type Out = api::PropertyDefinition;
    const SCOPE: &'static str = "property_definition:write";

    async fn look_up(cx: &Context<Principal>, path: &Named) -> Result<(), Problem> {
        find(cx, part(path, "id")?).await.map(drop)
    }

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        caught_up(cx).await?;
        let (project, by, id, sent) = (cx.who.project.id, cx.user(), self.id, self.change);
        let patch = PropertyPatch {
            value_type: sent.property_type,
            tags: sent.tags,
            notes: NotesPatch {
                description: sent.description,
                verified: sent.verified,
                hidden: sent.hidden,
                ..NotesPatch::default()
            },
        };
        let write = |metadata: Metadata| async move {
            metadata.update_definition(project, id, patch, by).await
        };
        let (own, notes) = cx.write("update-property-definition", write).await?;
        Ok(definition(own, &notes, &cx.snapshot()))
    }
}

input! {
    /// Forgets a definition, which returns when such a property arrives.
    pub struct Delete {
        path id: Uuid,
    }
}

impl Operation for Delete {
    type Who = Principal;
    type Out = Done;
    const SCOPE: &'static str = "property_definition:write";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        caught_up(cx).await?;
        let (project, by, id) = (cx.who.project.id, cx.user(), self.id);
        let write = |metadata: Metadata| async move {
            metadata.delete_definition::<PropertyDefinition>(project, id, by).await
        };
        cx.write("delete-property-definition", write).await?;
        Ok(Done)
    }
}

input! {
    /// Which of some events ever had a property, by their names.
    pub struct SeenTogether {
        /// Once for each name, or one JSON list
        query event_names: EventNames,
        query property_name: Needed,
    }
}

impl Operation for SeenTogether {
    type Who = Principal;
    type Out = BTreeMap<String, bool>;
    const SCOPE: &'static str = "property_definition:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let Self { event_names: EventNames(events), property_name: Needed(property) } = self;
        caught_up(cx).await?;
        let seen = cx.metadata().seen_together(cx.who.project.id, &events, &property).await;
        let seen = seen.map_err(problem)?;
        Ok(events.into_iter().map(|name| (name.clone(), seen.contains(&name))).collect())
    }
}

/// The names of events, at least one.
#[derive(Clone, Debug)]
pub struct EventNames(Vec<String>);

impl InQuery for EventNames {
    fn describe(name: &'static str, about: &'static str, shape: &mut Shape) {
        shape.query.push(Parameter::texts(name).about(about).required());
    }

    fn take(request: &Request, name: &'static str) -> Result<Self, Problem> {
        let given = request.query_all().filter(|(own, _)| own == name);
        let mut events: Vec<String> = given.map(|(_, value)| value.into_owned()).collect();
        if let [list] = events.as_slice()
            && let Ok(names) = json::read(list.as_bytes())
        {
            events = names;
        }
        if events.is_empty() {
            return Err(missing(name));
        }
        check_length(name, events.len(), SEEN_MAX)?;
        Ok(Self(events))
    }
}

/// `type` and `group_type_index`, whatever the name of the field. Only events have `event_names`.
impl InQuery for Owner {
    fn describe(_: &'static str, _: &'static str, shape: &mut Shape) {
        let kind = Parameter::one_of("type", &["event", "person", "group", "session"]);
        let index = Parameter::between("group_type_index", 0, 4).about("Only for groups");
        shape.query.extend([kind, index]);
    }

    fn take(request: &Request, _: &'static str) -> Result<Self, Problem> {
        let kind = request.query("type").unwrap_or_else(|| "event".into());
        let owner = owner(&kind, request.query("group_type_index").as_deref())?;
        let has_events = request.query("event_names").is_some_and(|names| !names.is_empty());
        if owner != Self::Event && has_events {
            return refuse("`event_names` can only be set for `event` type");
        }
        Ok(owner)
    }
}

/// The kind of object that has the properties, from its name and the index of a group type.
pub(super) fn owner(kind: &str, index: Option<&str>) -> Result<Owner, Problem> {
    match (kind, index.map(str::parse::<i64>)) {
        ("event", None) => Ok(Owner::Event),
        ("person", None) => Ok(Owner::Person),
        ("session", None) => Ok(Owner::Session),
        ("group", None) => refuse("`group_type_index` must be set for `group` type"),
        ("group", Some(index)) => match index {
            Ok(index) if usize::try_from(index).is_ok_and(|index| index < GROUP_TYPES_MAX) => {
                Ok(Owner::Group(index))
            }
            _ => refuse("Invalid value for `group_type_index`"),
        },
        ("event" | "person" | "session", Some(_)) => {
            refuse("`group_type_index` can only set for `group` type")
        }
        _ => Err(not_a_choice("type", kind)),
    }
}

fn refuse(detail: &'static str) -> Result<Owner, Problem> {
    Err(Problem::new(Kind::Invalid, "invalid_input", detail).with_attr(Attr::Null))
}

impl Field for Option<Option<ValueType>> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        let named = fields.nullable_choice(name, &ValueType::NAMES)?;
        Ok(named.map(|name| name.as_deref().and_then(ValueType::parse)))
    }

    fn schema() -> Value {
        let names = ValueType::NAMES.into_iter().map(Value::from);
        let names: Vec<Value> = names.chain([Value::Null]).collect();
        json!({"type": ["string", "null"], "enum": names})
    }
}

/// The definition with this id, and the notes of users on it, as of every event acknowledged so far.
async fn find(cx: &Context<Principal>, id: Uuid) -> Result<(PropertyDefinition, Notes), Problem> {
    caught_up(cx).await?;
    cx.metadata().definition(cx.who.project.id, id).await.map_err(problem)
}

body! {
    /// A change of a definition of a property.
    pub struct PropertyDefinitionWrite {
        /// The type of its values; null until the next value says it.
        property_type: Option<Option<ValueType>>,
        /// Labels.
        tags: Option<Vec<String>>,
        /// What it means.
        description: Option<Option<String>>,
        /// Whether it means what it says.
        verified: Option<bool>,
        /// Whether lists of choices leave it out.
        hidden: Option<bool>,
    }
}

/// A definition with its notes; `snapshot` contains the users in them.
fn definition(
    own: PropertyDefinition,
    said: &Notes,
    snapshot: &Snapshot,
) -> api::PropertyDefinition {
    api::PropertyDefinition {
        id: own.id.to_string(),
        is_numerical: own.is_numerical(),
        property_type: own.value_type.map(|own| own.name().to_owned()),
        name: own.name,
        tags: own.tags,
        is_seen_on_filtered_events: None,
        notes: notes(said, snapshot),
    }
}

/// Converts a row of the table `property_definitions`, or of the query with named events.
fn listed(
    row: &Map<String, Value>,
    all: &AllNotes,
    snapshot: &Snapshot,
) -> api::PropertyDefinition {
    let text = |name: &str| row.get(name).and_then(Value::as_str);
    let truth = |name: &str| row.get(name).and_then(Value::as_bool);
    let id = text("id").unwrap_or_default();
    let said = Uuid::try_parse(id).ok().and_then(|id| all.get(&id));
    // The table contains tags as JSON text.
    let tags = text("tags").and_then(|tags| json::restore(tags.as_bytes()).ok());
    api::PropertyDefinition {
        id: id.to_owned(),
        name: text("name").unwrap_or_default().to_owned(),
        is_numerical: truth("is_numerical").unwrap_or_default(),
        property_type: text("property_type").map(str::to_owned),
        tags: tags.unwrap_or_default(),
        is_seen_on_filtered_events: truth(IS_SEEN),
        notes: said.map_or_else(api::Notes::default, |said| notes(said, snapshot)),
    }
}
