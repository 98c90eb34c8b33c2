//! One series of an insight: the events that it selects, and the aggregation of them. See [`Series`].

use crate::entity::Entity;
use crate::selection::Unit;
use weir_api::insights::series::SeriesEntity;
use weir_api::insights::value::AsSent;
use weir_api::node::{NodeError, join, shortened};
use weir_api::nodes::series as nodes;
use weir_event::id::ProjectId;
use weir_query::dialect::expression::Expression;
use weir_query::events::event_sessions;
use weir_query::events::event_sessions::Kind;
use weir_query::kernel::engine::Engine;

/// Most series of one insight: formulas name them by letters.
pub const SERIES_MAX: usize = 26;

/// The session property that is recognized without a `math_property_type`.
const DURATION: &str = "$session_duration";

/// An aggregation of numbers.
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
    /// The quantile at this fraction, interpolated linearly.
    Quantile(f64),
}

/// The value of a series: `math`.
#[derive(Clone, Debug, PartialEq)]
pub enum Math {
    /// The number of events.
    Total,
    /// The number of distinct persons.
    Actors,
    /// The number of distinct persons that were active in the last days; this is the number of days.
    ActiveIn(u32),
    /// The number of distinct sessions.
    Sessions,
    /// The number of distinct groups of a type.
    Groups(u8),
    /// A statistic of a numeric property of events.
    Property(Statistic, String),
    /// A statistic of a numeric property of the persons of events, counted once for each event.
    OfPersons(Statistic, String),
    /// The value of an SQL aggregate over the events.
    Sql(Expression),
    /// A statistic of a numeric property of the sessions of events, counted once for each session.
    OfSessions(Statistic, String),
    /// A statistic of the number of events per person.
    PerActor(Statistic),
    /// The number of persons whose first event this is.
    First(First),
}

/// Among which events the first one of a person is determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// Among events with the name, regardless of filters; that first event must match the filters.
    OfName,
    /// Among events that match the filters of the series and of the whole insight.
    Matching,
}

impl First {
    /// Parses a `math`; `None` if it is another one. PostHog's trends and funnels have different names for the second
    /// variant.
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
    /// The events that it selects.
    pub entity: Entity,
    /// The aggregation.
    pub math: Math,
    /// The entity of the series in the response.
    pub action: SeriesEntity,
}

impl Series {
    /// Parses the node of the series with this number.
    ///
    /// # Errors
    ///
    /// A field is malformed, or requests something that is not available.
    pub fn of(sent: nodes::Series, order: usize) -> Result<Self, NodeError> {
        let path = format!("series.{order}");
        let math = math(&sent, &path)?;
        let entity = Entity::of(sent.base, &path)?;
        let action = SeriesEntity {
            custom_name: entity.custom_name.clone(),
            id: entity.id(),
            math: sent.math.unwrap_or_else(|| "total".to_owned()),
            math_group_type_index: sent.math_group_type_index,
            math_hogql: sent.math_hogql,
            math_property: sent.math_property,
            name: entity.name().to_owned(),
            order,
            properties: AsSent::of(entity.properties()),
            kind: entity.kind(),
        };
        Ok(Self { entity, math, action })
    }

    /// Parses all series of an insight.
    ///
    /// # Errors
    ///
    /// There are none, or too many; or one is malformed.
    pub fn all(sent: Vec<nodes::Series>) -> Result<Vec<Self>, NodeError> {
        if sent.is_empty() || sent.len() > SERIES_MAX {
            return Err(NodeError::new("series", format!("Expected 1 to {SERIES_MAX} series.")));
        }
        sent.into_iter().zip(0..).map(|(series, order)| Self::of(series, order)).collect()
    }

    /// Looks up the current name of its action, if it has one: see [`Entity::look_up`].
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

fn math(sent: &nodes::Series, path: &str) -> Result<Math, NodeError> {
    let refuse = |name: &str, detail: String| NodeError::new(join(path, name), detail);
    let name = sent.math.as_deref().unwrap_or("total");
    if let Some(statistic) = statistic(name) {
        let Some(property) = sent.math_property.as_deref() else {
            let detail = "This field is required when `math` is set to a function.";
            return Err(refuse("math_property", detail.to_owned()));
        };
        return match sent.math_property_type.as_deref() {
            // The form in which older clients send it.
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
                    let detail =
                        format!("{} is no number that sessions have.", shortened(property));
                    Err(refuse("math_property", detail))
                }
            },
            Some(kind) => {
                let detail = format!(
                    "{} are not available. Use a property of events, persons or sessions.",
                    shortened(kind)
                );
                Err(refuse("math_property_type", detail))
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
        "unique_group" => {
            let field = join(path, "math_group_type_index");
            match Unit::of(sent.math_group_type_index, &field)? {
                Unit::Groups(index) => Math::Groups(index),
                Unit::Persons => {
                    return Err(NodeError::new(field, "A valid group type index is required."));
                }
            }
        }
        "hogql" => {
            const NAME: &str = "math_hogql";
            let detail = "This field is required when `math` is set to hogql.";
            let text = sent.math_hogql.as_deref();
            let text = text.ok_or_else(|| refuse(NAME, detail.to_owned()))?;
            let parsed = Expression::parse(text);
            Math::Sql(parsed.map_err(|error| refuse(NAME, error.to_string()))?)
        }
        _ => match First::of(name) {
            Some(first) => Math::First(first),
            None => {
                let detail = format!("\"{}\" is not a valid choice.", shortened(name));
                return Err(refuse("math", detail));
            }
        },
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
    use serde_json::{Value, json};
    use weir_api::nodes::check::parse;

    use super::{Expression, Math, NodeError, Series, Statistic, nodes};

    fn read(node: &Value, order: usize) -> Result<Series, NodeError> {
        Series::of(parse::<nodes::Series>(node)?, order)
    }

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
            let series = read(&node, 0);
            let math = series.map(|series| series.math).map_err(|error| error.field);
            assert_eq!(math, expected.map_err(str::to_owned), "{node}");
        }
    }

    #[test]
    fn clients_get_their_entity_back() {
        let node = json!({"kind": "EventsNode", "event": "$pageview", "name": "$pageview",
                          "math": "dau", "properties": [{"key": "a", "value": 1}]});
        let series = read(&node, 2).unwrap();
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
