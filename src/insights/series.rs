//! One series of an insight: which events count, and what is computed of them: [`Series`].

use serde_json::Value;

use crate::entity::Entity;
use crate::node::{Node, NodeError};
use crate::selection::Unit;
use weir_api::insights::series::SeriesEntity;
use weir_api::insights::value::AsSent;
use weir_event::id::ProjectId;
use weir_query::dialect::expression::Expression;
use weir_query::events::event_sessions;
use weir_query::events::event_sessions::Kind;
use weir_query::kernel::engine::Engine;

/// Most series of one insight: the letters of formulas.
pub const SERIES_MAX: usize = 26;

/// The property of sessions that needs no type to be one.
const DURATION: &str = "$session_duration";

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
    /// A statistic of a number that the persons of events have, of each event once.
    OfPersons(Statistic, String),
    /// What an expression of SQL is of events together.
    Sql(Expression),
    /// A statistic of a number that the sessions of events have, of each session once.
    OfSessions(Statistic, String),
    /// A statistic of the numbers of events that persons have.
    PerActor(Statistic),
    /// Persons whose first event this is.
    First(First),
}

/// The first time of which events counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// Of those with its name, whatever its filters are; that one has to match these.
    OfName,
    /// Of those that match its filters and those of the whole insight.
    Matching,
}

impl First {
    /// That of a `math`, if it is one. Trends and funnels of PostHog have different names for the second.
    pub fn of(math: &str) -> Option<Self> {
        match math {
            "first_time_for_user" => Some(Self::OfName),
            "first_matching_event_for_user" | "first_time_for_user_with_filters" => {
                Some(Self::Matching)
            }
            _ => None,
        }
    }
}

/// A series.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its events.
    pub entity: Entity,
    /// What it counts.
    pub math: Math,
    /// What clients get back as the entity of the series.
    pub action: SeriesEntity,
}

impl Series {
    /// Reads the node `value`, which is the series with this number.
    ///
    /// # Errors
    ///
    /// A field is malformed, or asks for something that is not available.
    pub fn parse(value: &Value, order: usize) -> Result<Self, NodeError> {
        let path = format!("series.{order}");
        let entity = Entity::parse(value, &path)?;
        let node = Node::new(Some(value), &path)?;
        node.without(&["math_multiplier"])?;
        let math = math(&node)?;
        let of = |name: &str| node.value(name).map(AsSent::of).unwrap_or_default();
        let action = SeriesEntity {
            custom_name: entity.custom_name.clone(),
            id: entity.id(),
            math: node.text("math")?.unwrap_or("total").to_owned(),
            math_group_type_index: of("math_group_type_index"),
            math_hogql: of("math_hogql"),
            math_property: of("math_property"),
            name: entity.name().to_owned(),
            order,
            properties: AsSent::of(entity.properties()),
            kind: entity.kind(),
        };
        Ok(Self { entity, math, action })
    }

    /// Looks up how its action is called now, if it is of one: see [`Entity::look_up`].
    ///
    /// # Errors
    ///
    /// There is no such action.
    pub fn look_up(&mut self, engine: &Engine, project: ProjectId) -> Result<(), NodeError> {
        self.entity.look_up(engine, project)?;
        self.action.name = self.entity.name().to_owned();
        Ok(())
    }
}

fn math(node: &Node<'_>) -> Result<Math, NodeError> {
    let name = node.text("math")?.unwrap_or("total");
    if let Some(statistic) = statistic(name) {
        let Some(property) = node.text("math_property")? else {
            let detail = "This field is required when `math` is set to a function.";
            return Err(node.refuse("math_property", detail));
        };
        return match node.text("math_property_type")? {
            // As older clients send it.
            None | Some("event_properties") if property == DURATION => {
                Ok(Math::OfSessions(statistic, property.to_owned()))
            }
            None | Some("event_properties") => Ok(Math::Property(statistic, property.to_owned())),
            Some("person_properties") => Ok(Math::OfPersons(statistic, property.to_owned())),
            Some("session_properties") => match event_sessions::kind(property) {
                Some(Kind::Number | Kind::Truth) => {
                    Ok(Math::OfSessions(statistic, property.to_owned()))
                }
                Some(Kind::Text | Kind::Time) | None => {
                    let property: String = property.chars().take(100).collect();
                    let detail = format!("{property} is no number that sessions have.");
                    Err(node.refuse("math_property", detail))
                }
            },
            Some(kind) => {
                let kind: String = kind.chars().take(100).collect();
                let detail = format!(
                    "{kind} are not available. Use a property of events, persons or sessions."
                );
                Err(node.refuse("math_property_type", detail))
            }
        };
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
        "unique_group" => match Unit::parse(node, "math_group_type_index")? {
            Unit::Groups(index) => Math::Groups(index),
            Unit::Persons => {
                let detail = "A valid group type index is required.";
                return Err(node.refuse("math_group_type_index", detail));
            }
        },
        "hogql" => {
            const NAME: &str = "math_hogql";
            let text = node.text(NAME)?;
            let detail = "This field is required when `math` is set to hogql.";
            let text = text.ok_or_else(|| node.refuse(NAME, detail))?;
            let parsed = Expression::parse(text);
            Math::Sql(parsed.map_err(|error| node.refuse(NAME, error.to_string()))?)
        }
        _ => {
            if let Some(first) = First::of(name) {
                return Ok(Math::First(first));
            }
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

    use super::{Expression, Math, Series, Statistic};

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
            (
                json!({"math": "avg", "math_property": "$session_duration"}),
                Ok(Math::OfSessions(Statistic::Average, "$session_duration".to_owned())),
            ),
            (
                json!({"math": "max", "math_property": "$pageview_count", "math_property_type": "session_properties"}),
                Ok(Math::OfSessions(Statistic::Maximum, "$pageview_count".to_owned())),
            ),
            (
                json!({"math": "max", "math_property": "$entry_pathname", "math_property_type": "session_properties"}),
                Err("series.0.math_property"),
            ),
            (
                json!({"math": "max", "math_property": "a", "math_property_type": "person_properties"}),
                Ok(Math::OfPersons(Statistic::Maximum, "a".to_owned())),
            ),
            (
                json!({"math": "max", "math_property": "a", "math_property_type": "group_properties"}),
                Err("series.0.math_property_type"),
            ),
            (
                json!({"math": "hogql", "math_hogql": "sum(properties.price) / count()"}),
                Ok(Math::Sql(Expression::parse("sum(properties.price) / count()").unwrap())),
            ),
            (json!({"math": "hogql"}), Err("series.0.math_hogql")),
            (
                json!({"math": "hogql", "math_hogql": "(SELECT max(name) FROM event_definitions)"}),
                Err("series.0.math_hogql"),
            ),
            (json!({"math": "sum"}), Err("series.0.math_property")),
            (json!({"math": "avg_count_per_actor"}), Ok(Math::PerActor(Statistic::Average))),
            (json!({"math": "sum_count_per_actor"}), Ok(Math::PerActor(Statistic::Sum))),
            (json!({"math": "unique_group", "math_group_type_index": 4}), Ok(Math::Groups(4))),
            (json!({"math": "unique_group"}), Err("series.0.math_group_type_index")),
            (json!({"math": "nothing"}), Err("series.0.math")),
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
        assert_eq!(
            serde_json::to_string(&series.action).unwrap(),
            r#"{"custom_name":null,"id":"$pageview","math":"dau","math_group_type_index":null,"#
                .to_owned()
                + r#""math_hogql":null,"math_property":null,"name":"$pageview","order":2,"#
                + r#""properties":[{"key":"a","value":1}],"type":"events"}"#
        );
        assert_eq!(series.entity.label(), "$pageview");
    }
}
