//! One series of an insight: which events count, and what is computed of them: [`Series`].

use datafusion::dataframe::DataFrame;
use datafusion::prelude::col;
use datafusion::prelude::lit;
use serde_json::Value;

use crate::event::id::ProjectId;
use crate::event::schema::GROUP_TYPES_MAX;
use crate::insights::filters::Filters;
use crate::insights::node::Node;
use crate::insights::node::NodeError;
use crate::query::engine::Engine;
use crate::query::error::QueryError;

/// Most series of one insight: the letters of formulas.
pub const SERIES_MAX: usize = 26;

/// What is computed of values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Statistic {
    /// Their sum.
    Sum,
    /// Their mean.
    Average,
    /// The smallest.
    Minimum,
    /// The largest.
    Maximum,
    /// The value at this part of the sorted values, linear between two of them.
    Quantile(f64),
}

/// What a series counts.
#[derive(Clone, Debug, PartialEq)]
pub enum Math {
    /// Events.
    Total,
    /// Persons.
    Actors,
    /// Persons of the last so many days.
    ActiveIn(u32),
    /// Sessions.
    Sessions,
    /// Groups of a type.
    Groups(u8),
    /// A statistic of a number that events have.
    Property(Statistic, String),
    /// A statistic of the numbers of events that persons have.
    PerActor(Statistic),
    /// Persons whose first event this is: of all events of the name, or of those that match the filters.
    First {
        /// Of those that match.
        matching: bool,
    },
}

/// A series.
#[derive(Clone, Debug)]
pub struct Series {
    /// The name of its events; `None` for all.
    pub event: Option<String>,
    /// The name that a user gave it.
    pub custom_name: Option<String>,
    /// What it counts.
    pub math: Math,
    /// Its filters.
    pub filters: Filters,
    /// What clients get back as the entity of the series.
    pub action: Value,
}

impl Series {
    /// Reads the node `value`, which is the series with this number.
    ///
    /// # Errors
    ///
    /// A field is malformed, or asks for something that is not available.
    pub fn parse(value: &Value, order: usize) -> Result<Self, NodeError> {
        let path = format!("series.{order}");
        let node = Node::new(Some(value), &path)?;
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
        node.without(&["math_hogql", "math_multiplier"])?;
        let mut filters = Filters::default();
        for name in ["fixedProperties", "properties"] {
            if let Some(properties) = node.value(name) {
                filters.add(properties, &format!("{path}.{name}"))?;
            }
        }
        let event = node.text("event")?.map(str::to_owned);
        let custom_name = node.text("custom_name")?.map(str::to_owned);
        let math = math(&node)?;
        let name = node.text("name")?.or(event.as_deref()).unwrap_or(ALL_EVENTS);
        let of = |name: &str| node.value(name).cloned().unwrap_or_default();
        let properties = node.value("properties").cloned();
        let action = serde_json::json!({
            "id": event, "type": "events", "order": order, "name": name, "custom_name": custom_name,
            "math": node.text("math")?.unwrap_or("total"), "math_property": of("math_property"),
            "math_group_type_index": of("math_group_type_index"), "math_hogql": null,
            "properties": properties.unwrap_or_else(|| Value::Array(Vec::new())),
        });
        Ok(Self { event, custom_name, math, filters, action })
    }

    /// The name that labels show.
    pub fn label(&self) -> &str {
        self.custom_name.as_deref().or(self.event.as_deref()).unwrap_or(ALL_EVENTS)
    }

    /// Those of `events` that it counts, by its name and filters and those of the whole insight.
    ///
    /// # Errors
    ///
    /// A bug in the plan.
    pub fn of(
        &self,
        events: DataFrame,
        engine: &Engine,
        (project, filters): (ProjectId, &Filters),
    ) -> Result<DataFrame, QueryError> {
        let events = self.named(events)?;
        let conditions = [filters, &self.filters].map(|filters| filters.condition(engine, project));
        conditions.into_iter().flatten().try_fold(events, |events, condition| {
            events.filter(condition).map_err(QueryError::from)
        })
    }

    /// Those of `events` that have its name.
    ///
    /// # Errors
    ///
    /// A bug in the plan.
    pub fn named(&self, events: DataFrame) -> Result<DataFrame, QueryError> {
        match &self.event {
            Some(event) => Ok(events.filter(col("event").eq(lit(event.as_str())))?),
            None => Ok(events),
        }
    }
}

/// How a series of all events is called.
const ALL_EVENTS: &str = "All events";

fn math(node: &Node<'_>) -> Result<Math, NodeError> {
    let name = node.text("math")?.unwrap_or("total");
    if let Some(statistic) = statistic(name) {
        let Some(property) = node.text("math_property")? else {
            let detail = "This field is required when `math` is set to a function.";
            return Err(node.refuse("math_property", detail));
        };
        if let Some(kind) =
            node.text("math_property_type")?.filter(|kind| *kind != "event_properties")
        {
            let kind: String = kind.chars().take(100).collect();
            let detail = format!("{kind} are not available. Use a property of events.");
            return Err(node.refuse("math_property_type", detail));
        }
        if property == "$session_duration" {
            let detail = "$session_duration is not available.";
            return Err(node.refuse("math_property", detail));
        }
        return Ok(Math::Property(statistic, property.to_owned()));
    }
    if let Some(statistic) = name.strip_suffix("_count_per_actor").and_then(statistic) {
        return Ok(Math::PerActor(statistic));
    }
    Ok(match name {
        "total" => Math::Total,
        "dau" => Math::Actors,
        "weekly_active" => Math::ActiveIn(7),
        "monthly_active" => Math::ActiveIn(30),
        "unique_session" => Math::Sessions,
        "unique_group" => {
            let index = node.number("math_group_type_index")?.unwrap_or(GROUP_TYPES_MAX);
            let index = u8::try_from(index).ok().filter(|at| usize::from(*at) < GROUP_TYPES_MAX);
            let wrong =
                || node.refuse("math_group_type_index", "A valid group type index is required.");
            Math::Groups(index.ok_or_else(wrong)?)
        }
        "first_time_for_user" => Math::First { matching: false },
        "first_matching_event_for_user" => Math::First { matching: true },
        _ => {
            let name: String = name.chars().take(100).collect();
            return Err(node.refuse("math", format!("\"{name}\" is not a valid choice.")));
        }
    })
}

fn statistic(name: &str) -> Option<Statistic> {
    Some(match name {
        "sum" => Statistic::Sum,
        "avg" => Statistic::Average,
        "min" => Statistic::Minimum,
        "max" => Statistic::Maximum,
        "median" => Statistic::Quantile(0.5),
        "p75" => Statistic::Quantile(0.75),
        "p90" => Statistic::Quantile(0.9),
        "p95" => Statistic::Quantile(0.95),
        "p99" => Statistic::Quantile(0.99),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Math;
    use super::Series;
    use super::Statistic;

    #[test]
    fn math_has_what_it_needs() {
        for (node, expected) in [
            (json!({"event": "a"}), Ok(Math::Total)),
            (json!({"math": "dau"}), Ok(Math::Actors)),
            (json!({"math": "monthly_active"}), Ok(Math::ActiveIn(30))),
            (
                json!({"math": "p90", "math_property": "price"}),
                Ok(Math::Property(Statistic::Quantile(0.9), "price".to_owned())),
            ),
            (json!({"math": "sum"}), Err("series.0.math_property")),
            (json!({"math": "avg_count_per_actor"}), Ok(Math::PerActor(Statistic::Average))),
            (json!({"math": "sum_count_per_actor"}), Ok(Math::PerActor(Statistic::Sum))),
            (json!({"math": "unique_group", "math_group_type_index": 4}), Ok(Math::Groups(4))),
            (json!({"math": "unique_group"}), Err("series.0.math_group_type_index")),
            (json!({"math": "nothing"}), Err("series.0.math")),
            (json!({"kind": "ActionsNode", "id": 4}), Err("series.0.kind")),
            (json!({"properties": 4}), Err("series.0.properties")),
            (json!([]), Err("series.0")),
        ] {
            let series = Series::parse(&node, 0);
            let math = series.map(|series| series.math).map_err(|error| error.field);
            assert_eq!(math, expected.map_err(str::to_owned), "{node}");
        }
    }

    #[test]
    fn clients_get_their_entity_back() {
        let node = json!({"kind": "EventsNode", "event": "$pageview", "name": "$pageview",
                          "math": "dau", "properties": [{"key": "a", "value": 1}]});
        let series = Series::parse(&node, 2).unwrap();
        let (id, order) = (&series.action["id"], &series.action["order"]);
        assert_eq!((id, order), (&json!("$pageview"), &json!(2)));
        assert_eq!(series.action["properties"], node["properties"]);
        assert_eq!(series.label(), "$pageview");
        assert_eq!(Series::parse(&json!({"event": null}), 0).unwrap().label(), "All events");
    }
}
