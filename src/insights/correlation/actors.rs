//! The persons or groups behind a correlation: those who do or have something, and come through the funnel or not. They are
//! found as they are counted, so that there are as many as a row says.

use arrow::datatypes::DataType;
use datafusion::logical_expr::cast;
use datafusion::prelude::lit;
use serde_json::Value;

use crate::correlation::plan::of_actors;
use crate::correlation::values::Exact;
use crate::correlation::{Correlation, Of};
use crate::entity::Entity;
use crate::funnels::passage::Passages;
use crate::node::{Node, NodeError};
use crate::ranked::Ranked;
use crate::selection::Unit;
use crate::{Actor, Context, InsightError, ProjectSettings};
use weir_query::events::expression_columns::with_columns;
use weir_query::events::histories::{Fold, NO_TEXT, Row, Rows};
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::interner::Interner;
use weir_query::persons::people::Part;

/// The field of the event.
const ENTITY: &str = "funnelCorrelationPersonEntity";

/// The field of properties.
const VALUES: &str = "funnelCorrelationPropertyValues";

/// Most filters for values.
const VALUES_MAX: usize = 100;

/// Who is asked for: the fields of a `FunnelCorrelationActorsQuery` beside its source.
#[derive(Clone, Debug)]
pub struct Asked {
    subject: Subject,
    /// Whether they come through the funnel; `None` for both.
    is_converted: Option<bool>,
}

#[derive(Clone, Debug)]
enum Subject {
    /// Events between the first step and the end.
    Events(Box<Entity>, Exact),
    /// Values of properties of persons or groups; others than exact ones narrow the funnel.
    Values(Exact),
}

impl Correlation {
    /// Reads the fields of a `FunnelCorrelationActorsQuery` beside its source, which is this one. Filters of persons
    /// or groups become filters of the funnel.
    ///
    /// # Errors
    ///
    /// A field is malformed or absent.
    pub fn asked(&mut self, node: &Node<'_>) -> Result<Asked, NodeError> {
        let subject = match &self.of {
            Of::Events(_) | Of::EventValues(..) => event_asked(node)?,
            Of::Values(wanted) => {
                let has_absent = wanted.has_absent();
                let mut filters = filters(node, VALUES)?;
                if filters.is_empty() {
                    let detail =
                        "Property correlation expects at least one property to get persons for.";
                    return Err(node.refuse(VALUES, detail));
                }
                let kind = match self.funnels.unit() {
                    Unit::Persons => "person",
                    Unit::Groups(_) => "group",
                };
                let mut exact = Exact::taken_from(&mut filters, kind, false);
                exact.has_absent = has_absent;
                self.selection_mut().narrow(&Value::Array(filters), VALUES)?;
                Subject::Values(exact)
            }
        };
        Ok(Asked { subject, is_converted: is_converted(node)? })
    }

    /// The persons or groups, by their ids; one more than the part has where there are more.
    pub async fn actors(
        &self,
        engine: &Engine,
        owner: &ProjectSettings,
        asked: &Asked,
        part: Part,
    ) -> Result<Vec<Actor>, InsightError> {
        let view = engine.view(owner.project).await?;
        let context = Context { engine, view: &view, owner };
        let (mut rows, bounds) = self.funnel_rows(context).await?;
        let found = || cast(lit(""), DataType::Utf8View);
        let mut needs_row = true;
        match asked.subject.clone() {
            Subject::Events(entity, exact) => {
                let mut events = self.events(context, bounds, &[]).await?;
                let of_entity = entity.condition(engine, (&view, owner.project))?;
                events = with_columns(&view, events, bounds, [&of_entity]).await?;
                events = events.filter(of_entity)?;
                if let Some(condition) = exact.condition() {
                    events = events.filter(condition)?;
                }
                rows = rows.union(self.of_events(events, lit(0_u32), found())?)?;
            }
            Subject::Values(exact) => match exact.condition() {
                Some(condition) => {
                    let (actors, actor) = self.actors_table(context).await?;
                    rows = rows.union(of_actors(actors.filter(condition)?, actor, found())?)?;
                }
                None => needs_row = false,
            },
        }
        let fold = Finding {
            passages: self.passages.clone(),
            is_timed: self.of.is_timed(),
            is_converted: asked.is_converted,
            needs_row,
            found: Ranked::new(part, self.funnels.unit()),
        };
        Ok(engine.histories(rows, Rows::All, fold).await?.found.into_actors())
    }
}

fn event_asked(node: &Node<'_>) -> Result<Subject, NodeError> {
    let Some(sent) = node.value(ENTITY) else {
        return Err(node.refuse(ENTITY, "No entity for persons specified."));
    };
    let inner = Node::new(Some(sent), ENTITY)?;
    let mut filters = match inner.value("properties") {
        // A group of filters may say that one is enough.
        Some(Value::Object(_)) => {
            return Ok(Subject::Events(Box::new(Entity::parse(sent, ENTITY)?), Exact::default()));
        }
        _ => filters(&inner, "properties")?,
    };
    let exact = Exact::taken_from(&mut filters, "event", true);
    let mut sent = sent.clone();
    if let Value::Object(fields) = &mut sent {
        fields.insert("properties".to_owned(), Value::Array(filters));
    }
    Ok(Subject::Events(Box::new(Entity::parse(&sent, ENTITY)?), exact))
}

/// A list of filters.
fn filters(node: &Node<'_>, name: &str) -> Result<Vec<Value>, NodeError> {
    let list = node.list(name)?;
    if list.len() > VALUES_MAX {
        return Err(node.refuse(name, format!("Expected at most {VALUES_MAX} filters.")));
    }
    Ok(list.to_vec())
}

/// Older clients send texts.
fn is_converted(node: &Node<'_>) -> Result<Option<bool>, NodeError> {
    const NAME: &str = "funnelCorrelationPersonConverted";
    match node.value(NAME) {
        None => Ok(None),
        Some(Value::Bool(truth)) => Ok(Some(*truth)),
        Some(Value::String(text)) => match text.to_ascii_lowercase().as_str() {
            "" => Ok(None),
            "true" | "1" => Ok(Some(true)),
            "false" | "0" => Ok(Some(false)),
            _ => Err(node.refuse(NAME, "Expected true or false.")),
        },
        Some(_) => Err(node.refuse(NAME, "Expected true or false.")),
    }
}

/// Finds those who are asked for.
#[derive(Debug)]
struct Finding {
    passages: Passages,
    is_timed: bool,
    is_converted: Option<bool>,
    /// Whether there is a row besides those of the funnel.
    needs_row: bool,
    found: Ranked,
}

impl Fold for Finding {
    fn actor(&mut self, actor: &str, rows: &[Row], _: &Interner) -> Result<(), QueryError> {
        let Some(passage) = self.passages.of(rows) else { return Ok(()) };
        if self.is_converted.is_some_and(|is_converted| is_converted != passage.is_converted) {
            return Ok(());
        }
        let is_in = |row: &Row| row.text != NO_TEXT && (!self.is_timed || passage.has(row.at));
        if !self.needs_row || rows.iter().any(is_in) {
            self.found.add(actor, 1.0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::is_converted;
    use crate::correlation::Correlation;
    use crate::node::Node;

    #[test]
    fn wrong_fields_are_named() {
        let funnel = json!({"source": {"series": [{"event": "a"}, {"event": "b"}]}});
        for (kind, asked, field) in [
            ("events", json!({"funnelCorrelationPersonEntity": {"event": "x"}}), None),
            (
                "events",
                json!({"funnelCorrelationPersonEntity": {"event": "x", "properties": [
                    {"key": "a", "value": "A"}, {"key": "a", "operator": "is_set"}]}}),
                None,
            ),
            ("events", json!({}), Some("funnelCorrelationPersonEntity")),
            (
                "events",
                json!({"funnelCorrelationPersonEntity": {"event": 1}}),
                Some("funnelCorrelationPersonEntity.event"),
            ),
            (
                "events",
                json!({"funnelCorrelationPersonEntity": {"event": "x", "properties": [1]}}),
                Some("funnelCorrelationPersonEntity.properties"),
            ),
            (
                "events",
                json!({"funnelCorrelationPersonEntity": {"event": "x"}, "funnelCorrelationPersonConverted": 1}),
                Some("funnelCorrelationPersonConverted"),
            ),
            ("properties", json!({}), Some("funnelCorrelationPropertyValues")),
            (
                "properties",
                json!({"funnelCorrelationPropertyValues": [{"key": "a", "value": "A", "type": "person"}]}),
                None,
            ),
            (
                "properties",
                json!({"funnelCorrelationPropertyValues": [{"value": "A", "type": "person"}]}),
                Some("funnelCorrelationPropertyValues"),
            ),
        ] {
            let query = json!({
                "source": funnel, "funnelCorrelationType": kind, "funnelCorrelationNames": ["a"],
            });
            let mut correlation = Correlation::parse(&query).unwrap();
            let node = Node::new(Some(&asked), "").unwrap();
            let found = correlation.asked(&node).err().map(|error| error.field);
            assert_eq!(found.as_deref(), field, "{asked}");
        }
    }

    #[test]
    fn success_is_a_truth_value_or_its_text() {
        for (sent, expected) in [
            (json!(null), None),
            (json!(""), None),
            (json!("true"), Some(true)),
            (json!("False"), Some(false)),
            (json!(false), Some(false)),
        ] {
            let asked = json!({"funnelCorrelationPersonConverted": sent});
            assert_eq!(is_converted(&Node::new(Some(&asked), "").unwrap()).unwrap(), expected);
        }
    }
}
