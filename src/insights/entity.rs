//! The events of a series, a funnel step or a retention cohort: [`Entity`]. They are selected by name or by an
//! action.

use datafusion::logical_expr::Expr;
use datafusion::prelude::{col, lit};
use serde_json::Value;

use crate::action::Action;
use crate::filters::Filters;
use weir_api::insights::value::{EntityId, EntityKind};
use weir_api::node::{Content, NodeError, join, shortened};
use weir_api::nodes::filter::Properties;
use weir_api::nodes::series as nodes;
use weir_event::id::ProjectId;
use weir_query::kernel::engine::Engine;
use weir_query::kernel::view::View;

/// The label of all events together.
const ALL_EVENTS: &str = "All events";

/// Events with a name or of an action, restricted by filters.
#[derive(Clone, Debug)]
pub struct Entity {
    /// The name of the events; `None` for all, and for those of an action.
    pub event: Option<String>,
    /// The id of the action, if the events are those of one.
    pub action: Option<i64>,
    /// The label that a user gave it.
    pub custom_name: Option<String>,
    /// Its filters.
    pub filters: Filters,
    /// The stored name of its action, after [`Self::look_up`].
    action_name: Option<String>,
    /// Its name and its properties as they were sent.
    name: String,
    properties: Value,
    /// Its path in the request.
    path: String,
}

impl Entity {
    /// Parses the `EventsNode` or `ActionsNode` at `path`, or an entity of the filters of older clients, which has
    /// its event name as `id`. Whether the action exists is checked only when it is looked up.
    ///
    /// # Errors
    ///
    /// A field is malformed, or requests something that is not available.
    pub fn of(sent: nodes::Entity, path: &str) -> Result<Self, NodeError> {
        let mut is_action = false;
        match sent.kind.as_deref() {
            None | Some("EventsNode") => {}
            Some("ActionsNode") => is_action = true,
            Some(other) => {
                let detail = format!("{} is not available.", shortened(other));
                return Err(NodeError::new(join(path, "kind"), detail));
            }
        }
        match sent.kind_of_older.as_deref() {
            None | Some("events") => {}
            Some("actions") => is_action = true,
            Some(_) => {
                let detail = "Only entities of the types events and actions are available.";
                return Err(NodeError::new(join(path, "type"), detail));
            }
        }
        let mut filters = Filters::default();
        for (name, properties) in
            [("fixedProperties", &sent.fixed_properties), ("properties", &sent.properties)]
        {
            if let Some(Properties(properties)) = properties {
                filters.add(properties, &join(path, name))?;
            }
        }
        let id = sent.id.as_ref();
        let action = if is_action { Some(action_id(id, path)?) } else { None };
        let event = match sent.event {
            _ if is_action => None,
            Some(event) => Some(event),
            None => match id {
                Some(id) => Option::<String>::read(id, &join(path, "id"))?,
                None => None,
            },
        };
        let name = match (sent.name.or_else(|| event.clone()), action) {
            (Some(name), _) => name,
            (None, Some(id)) => format!("Action {id}"),
            (None, None) => ALL_EVENTS.to_owned(),
        };
        let properties = sent.properties.map(|Properties(own)| own);
        Ok(Self {
            custom_name: sent.custom_name,
            properties: properties.unwrap_or_else(|| Value::Array(Vec::new())),
            event,
            action,
            action_name: None,
            filters,
            name,
            path: path.to_owned(),
        })
    }

    /// All events with a name.
    pub fn named(event: &str) -> Self {
        Self {
            event: Some(event.to_owned()),
            action: None,
            action_name: None,
            custom_name: None,
            filters: Filters::default(),
            name: event.to_owned(),
            properties: Value::Array(Vec::new()),
            path: String::new(),
        }
    }

    /// Whether another entity selects the same events.
    pub fn is_same(&self, other: &Self) -> bool {
        let own = (&self.event, self.action, &self.properties);
        own == (&other.event, other.action, &other.properties)
    }

    /// The label in the response.
    pub fn label(&self) -> &str {
        let own = match self.action {
            Some(_) => self.action_name.as_deref().or(Some(&self.name)),
            None => self.event.as_deref(),
        };
        self.custom_name.as_deref().or(own).unwrap_or(ALL_EVENTS)
    }

    /// The stored name of its action, if it was looked up; else the name that it was sent with, or that of its event.
    pub fn name(&self) -> &str {
        self.action_name.as_deref().unwrap_or(&self.name)
    }

    /// Looks up the current name of its action, if it has one, for the label.
    ///
    /// # Errors
    ///
    /// There is no such action.
    pub fn look_up(&mut self, engine: &Engine, project: ProjectId) -> Result<(), NodeError> {
        if let Some(id) = self.action {
            let field = format!("{}.id", self.path);
            self.action_name = Action::name_of(engine, project, (id, &field))?;
        }
        Ok(())
    }

    /// The name of its action, once it was looked up.
    pub fn action_name(&self) -> Option<&str> {
        self.action_name.as_deref()
    }

    /// Its id in the response: that of its action, or the name of its events.
    pub fn id(&self) -> Option<EntityId> {
        let event = || self.event.clone().map(EntityId::Event);
        self.action.map(EntityId::Action).or_else(event)
    }

    /// Whether it selects by an action or by events.
    pub fn kind(&self) -> EntityKind {
        if self.action.is_some() { EntityKind::Actions } else { EntityKind::Events }
    }

    /// Its filters as they were sent.
    pub fn properties(&self) -> &Value {
        &self.properties
    }

    /// The condition that an event of the view matches it; never null.
    ///
    /// # Errors
    ///
    /// There is no such action.
    pub fn condition(
        &self,
        engine: &Engine,
        (view, project): (&View, ProjectId),
    ) -> Result<Expr, NodeError> {
        let named = self.of_name(engine, (view, project))?;
        let filters = self.filters.condition(engine, project, view.exact());
        Ok(named.into_iter().chain(filters).reduce(Expr::and).unwrap_or_else(|| lit(true)))
    }

    /// The condition that an event of the view has its name or matches its action, without the filters.
    ///
    /// # Errors
    ///
    /// There is no such action.
    pub fn is_named(
        &self,
        engine: &Engine,
        (view, project): (&View, ProjectId),
    ) -> Result<Expr, NodeError> {
        Ok(self.of_name(engine, (view, project))?.unwrap_or_else(|| lit(true)))
    }

    fn of_name(
        &self,
        engine: &Engine,
        (view, project): (&View, ProjectId),
    ) -> Result<Option<Expr>, NodeError> {
        let action = self.found(engine, project)?;
        let of_action = action.map(|action| action.condition(engine, (view, project)));
        Ok(of_action.or_else(|| self.event.as_deref().map(|event| col("event").eq(lit(event)))))
    }

    /// Looks up and parses the action, if it has one.
    fn found(&self, engine: &Engine, project: ProjectId) -> Result<Option<Action>, NodeError> {
        let field = format!("{}.id", self.path);
        self.action.map(|id| Action::find(engine, project, (id, &field))).transpose()
    }
}

/// Counts a use of the event names of these entities in a query, including those of actions.
///
/// # Errors
///
/// There is no such action.
pub fn note_named<'e>(
    engine: &Engine,
    project: ProjectId,
    entities: impl IntoIterator<Item = &'e Entity>,
) -> Result<(), NodeError> {
    let names = names_of(engine, project, entities)?;
    engine.note_events_named(project, names.iter().map(String::as_str));
    Ok(())
}

/// The event names of these entities, including those of actions.
///
/// # Errors
///
/// There is no such action.
pub fn names_of<'e>(
    engine: &Engine,
    project: ProjectId,
    entities: impl IntoIterator<Item = &'e Entity>,
) -> Result<Vec<String>, NodeError> {
    let mut names: Vec<String> = Vec::new();
    for entity in entities {
        names.extend(entity.event.clone());
        if let Some(action) = entity.found(engine, project)? {
            names.extend(action.events().map(str::to_owned));
        }
    }
    Ok(names)
}

/// The id of an action.
fn action_id(id: Option<&Value>, path: &str) -> Result<i64, NodeError> {
    let number = id.and_then(|id| usize::read(id, path).ok());
    let id = number.and_then(|id| i64::try_from(id).ok());
    id.ok_or_else(|| NodeError::new(join(path, "id"), "Expected the id of an action."))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Content, Entity, EntityId, EntityKind, NodeError, Value, nodes};

    fn read(node: &Value) -> Result<Entity, NodeError> {
        Entity::of(nodes::Entity::read(node, "series.0")?, "series.0")
    }

    #[test]
    fn nodes_and_entities_of_older_clients_mean_the_same() {
        let properties = json!([{"key": "a", "value": 1}]);
        for (node, event, label) in [
            (json!({"kind": "EventsNode", "event": "a", "properties": properties}), Some("a"), "a"),
            (json!({"id": "a", "type": "events", "name": "b"}), Some("a"), "a"),
            (json!({"id": null, "type": "events"}), None, "All events"),
            (json!({"event": "a", "custom_name": "c"}), Some("a"), "c"),
        ] {
            let entity = read(&node).unwrap();
            assert_eq!((entity.event.as_deref(), entity.label()), (event, label), "{node}");
        }
        for node in [
            json!({"kind": "ActionsNode", "id": 4, "name": "Bought"}),
            json!({"type": "actions", "id": "4", "custom_name": "Bought", "event": "x"}),
        ] {
            let entity = read(&node).unwrap();
            assert_eq!((entity.action, entity.event.as_deref()), (Some(4), None), "{node}");
            assert_eq!(entity.label(), "Bought", "{node}");
            let sent = (entity.id(), entity.kind());
            assert_eq!(sent, (Some(EntityId::Action(4)), EntityKind::Actions), "{node}");
        }
        for (node, field) in [
            (json!({"kind": "ActionsNode"}), "series.0.id"),
            (json!({"kind": "ActionsNode", "id": "x"}), "series.0.id"),
            (json!({"kind": "DataWarehouseNode"}), "series.0.kind"),
            (json!({"id": 4, "type": "data_warehouse"}), "series.0.type"),
            (json!({"id": 4}), "series.0.id"),
            (json!({"properties": 4}), "series.0.properties"),
            (json!([]), "series.0"),
        ] {
            assert_eq!(read(&node).unwrap_err().field, field, "{node}");
        }
    }
}
