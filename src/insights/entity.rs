//! Which events a series, a step or a cohort of an insight is about: [`Entity`].

use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::Expr;
use datafusion::prelude::col;
use datafusion::prelude::lit;
use serde_json::Value;

use crate::event::id::ProjectId;
use crate::insights::filters::Filters;
use crate::insights::node::Node;
use crate::insights::node::NodeError;
use crate::query::engine::Engine;
use crate::query::error::QueryError;
use crate::query::view::View;

/// How all events together are called.
const ALL_EVENTS: &str = "All events";

/// Events of a name that match filters.
#[derive(Clone, Debug)]
pub struct Entity {
    /// The name of the events; `None` for all.
    pub event: Option<String>,
    /// The name that a user gave it.
    pub custom_name: Option<String>,
    /// Its filters.
    pub filters: Filters,
    /// Its name, and its properties as they were sent.
    name: String,
    properties: Value,
}

impl Entity {
    /// Reads an `EventsNode`, or the entity of a filter that older clients send, which has its event as `id`.
    ///
    /// # Errors
    ///
    /// A field is malformed, or asks for something that is not available.
    pub fn parse(value: &Value, path: &str) -> Result<Self, NodeError> {
        let node = Node::new(Some(value), path)?;
        match node.text("kind")? {
            None | Some("EventsNode") => {}
            Some("ActionsNode") => {
                let detail = "Actions are not available. Name the event instead.";
                return Err(node.refuse("kind", detail));
            }
            Some(other) => {
                let other: String = other.chars().take(100).collect();
                return Err(node.refuse("kind", format!("{other} is not available.")));
            }
        }
        if node.text("type")?.is_some_and(|kind| kind != "events") {
            let detail = "Only entities of the type events are available.";
            return Err(node.refuse("type", detail));
        }
        let mut filters = Filters::default();
        for name in ["fixedProperties", "properties"] {
            if let Some(properties) = node.value(name) {
                filters.add(properties, &format!("{path}.{name}"))?;
            }
        }
        let event = match node.text("event")? {
            Some(event) => Some(event),
            None => node.text("id")?,
        };
        let event = event.map(str::to_owned);
        let name = node.text("name")?.or(event.as_deref()).unwrap_or(ALL_EVENTS).to_owned();
        let properties = node.value("properties").cloned();
        Ok(Self {
            custom_name: node.text("custom_name")?.map(str::to_owned),
            properties: properties.unwrap_or_else(|| Value::Array(Vec::new())),
            event,
            filters,
            name,
        })
    }

    /// All events of a name.
    pub fn named(event: &str) -> Self {
        Self {
            event: Some(event.to_owned()),
            custom_name: None,
            filters: Filters::default(),
            name: event.to_owned(),
            properties: Value::Array(Vec::new()),
        }
    }

    /// The name that labels show.
    pub fn label(&self) -> &str {
        self.custom_name.as_deref().or(self.event.as_deref()).unwrap_or(ALL_EVENTS)
    }

    /// The name that it was sent with, or that of its event.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What clients get back as the entity with this number, in the form of older clients.
    pub fn body(&self, order: usize) -> Value {
        serde_json::json!({
            "id": self.event, "type": "events", "order": order, "name": self.name,
            "custom_name": self.custom_name, "properties": self.properties,
        })
    }

    /// The condition that an event is of it: true or false.
    pub fn condition(&self, engine: &Engine, (view, project): (&View, ProjectId)) -> Expr {
        let named = self.event.as_deref().map(|event| col("event").eq(lit(event)));
        let filters = self.filters.condition(engine, project, view.exact());
        named.into_iter().chain(filters).reduce(Expr::and).unwrap_or_else(|| lit(true))
    }

    /// Those of `events` that have its name.
    ///
    /// # Errors
    ///
    /// A bug in the plan.
    pub fn of_name(&self, events: DataFrame) -> Result<DataFrame, QueryError> {
        match &self.event {
            Some(event) => Ok(events.filter(col("event").eq(lit(event.as_str())))?),
            None => Ok(events),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Entity;

    #[test]
    fn nodes_and_entities_of_older_clients_mean_the_same() {
        let properties = json!([{"key": "a", "value": 1}]);
        for (node, event, label) in [
            (json!({"kind": "EventsNode", "event": "a", "properties": properties}), Some("a"), "a"),
            (json!({"id": "a", "type": "events", "name": "b"}), Some("a"), "a"),
            (json!({"id": null, "type": "events"}), None, "All events"),
            (json!({"event": "a", "custom_name": "c"}), Some("a"), "c"),
        ] {
            let entity = Entity::parse(&node, "series.0").unwrap();
            assert_eq!((entity.event.as_deref(), entity.label()), (event, label), "{node}");
        }
        for (node, field) in [
            (json!({"kind": "ActionsNode", "id": 4}), "series.0.kind"),
            (json!({"kind": "DataWarehouseNode"}), "series.0.kind"),
            (json!({"id": 4, "type": "actions"}), "series.0.type"),
            (json!({"id": 4}), "series.0.id"),
            (json!({"properties": 4}), "series.0.properties"),
            (json!([]), "series.0"),
        ] {
            assert_eq!(Entity::parse(&node, "series.0").unwrap_err().field, field, "{node}");
        }
    }
}
