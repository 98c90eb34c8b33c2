//! Lists the persons or groups behind a correlation: those that do or have something and complete the funnel, or do
//! not. They are selected in the same way as they are counted, so that their number equals that of the row.

use arrow::datatypes::DataType;
use datafusion::logical_expr::cast;
use datafusion::prelude::lit;
use serde_json::Value;

use crate::correlation::plan::of_actors;
use crate::correlation::values::Exact;
use crate::correlation::{Correlation, Of};
use crate::entity::Entity;
use crate::funnels::passage::Passages;
use crate::ranked::Ranked;
use crate::selection::Unit;
use crate::{Actor, Context, InsightError, ProjectSettings};
use weir_api::node::{NodeError, join};
use weir_api::nodes::actors::FunnelCorrelationActorsQuery;
use weir_api::nodes::filter::Properties;
use weir_api::nodes::series as nodes;
use weir_query::events::expression_columns::with_columns;
use weir_query::events::histories::{Fold, NO_TEXT, Row, Rows};
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::interner::Interner;
use weir_query::persons::people::Part;

/// The request field of the event.
const ENTITY: &str = "funnelCorrelationPersonEntity";

/// The request field of the properties.
const VALUES: &str = "funnelCorrelationPropertyValues";

/// Most property filters.
const VALUES_MAX: usize = 100;

/// Selects actors: the fields of a `FunnelCorrelationActorsQuery` besides its source.
#[derive(Clone, Debug)]
pub struct ActorSelection {
    subject: Subject,
    /// Whether they complete the funnel; `None` for both.
    is_converted: Option<bool>,
}

#[derive(Clone, Debug)]
enum Subject {
    /// Actors with such events between the first step and the end.
    Events(Box<Entity>, Exact),
    /// Actors with these property values; filters that are not exact restrict the funnel instead.
    Values(Exact),
}

impl Correlation {
    /// The actors that a `FunnelCorrelationActorsQuery` at `path` with this correlation as its source requests. Filters on
    /// persons or groups are added to the filters of the funnel.
    ///
    /// # Errors
    ///
    /// A field is malformed or absent.
    pub fn asked(
        &mut self,
        sent: FunnelCorrelationActorsQuery,
        path: &str,
    ) -> Result<ActorSelection, NodeError> {
        self.read(sent).map_err(|error| error.within(path))
    }

    fn read(&mut self, sent: FunnelCorrelationActorsQuery) -> Result<ActorSelection, NodeError> {
        let is_converted = is_converted(sent.person_converted.as_ref())?;
        let subject = match &self.of {
            Of::Events(_) | Of::EventValues(..) => event_asked(sent.person_entity)?,
            Of::Values(wanted) => {
                let has_absent = wanted.has_absent();
                let mut filters = filters(sent.property_values, VALUES)?;
                if filters.is_empty() {
                    let detail =
                        "Property correlation expects at least one property to get persons for.";
                    return Err(NodeError::new(VALUES, detail));
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
        Ok(ActorSelection { subject, is_converted })
    }

    /// The persons or groups, by their ids; one more than `part` has is returned if there are more.
    pub async fn actors(
        &self,
        engine: &Engine,
        owner: &ProjectSettings,
        asked: &ActorSelection,
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

fn event_asked(sent: Option<nodes::Entity>) -> Result<Subject, NodeError> {
    let Some(mut sent) = sent else {
        return Err(NodeError::new(ENTITY, "No entity for persons specified."));
    };
    // A group of filters may be an OR, so it is not split.
    if matches!(&sent.properties, Some(Properties(Value::Object(_)))) {
        return Ok(Subject::Events(Box::new(Entity::of(sent, ENTITY)?), Exact::default()));
    }
    let mut filters = filters(sent.properties.take(), &join(ENTITY, "properties"))?;
    let exact = Exact::taken_from(&mut filters, "event", true);
    sent.properties = Some(Properties(Value::Array(filters)));
    Ok(Subject::Events(Box::new(Entity::of(sent, ENTITY)?), exact))
}

/// The filters of a field, which must be a list.
fn filters(sent: Option<Properties>, field: &str) -> Result<Vec<Value>, NodeError> {
    match sent {
        None => Ok(Vec::new()),
        Some(Properties(Value::Array(list))) if list.len() <= VALUES_MAX => Ok(list),
        Some(Properties(Value::Array(_))) => {
            Err(NodeError::new(field, format!("Expected at most {VALUES_MAX} filters.")))
        }
        Some(_) => Err(NodeError::new(field, "Expected a list.")),
    }
}

/// Parses a boolean, which older clients send as text.
fn is_converted(sent: Option<&Value>) -> Result<Option<bool>, NodeError> {
    match sent {
        None => return Ok(None),
        Some(Value::Bool(truth)) => return Ok(Some(*truth)),
        Some(Value::String(text)) => match text.to_ascii_lowercase().as_str() {
            "" => return Ok(None),
            "true" | "1" => return Ok(Some(true)),
            "false" | "0" => return Ok(Some(false)),
            _ => {}
        },
        Some(_) => {}
    }
    Err(NodeError::new("funnelCorrelationPersonConverted", "Expected true or false."))
}

/// Collects the actors that are selected.
#[derive(Debug)]
struct Finding {
    passages: Passages,
    is_timed: bool,
    is_converted: Option<bool>,
    /// Whether an actor must have a row besides those of the funnel.
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
    use weir_api::nodes::actors::FunnelCorrelationActorsQuery;
    use weir_api::nodes::check::parse;

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
            let sent = parse::<FunnelCorrelationActorsQuery>(&asked);
            let found = sent.and_then(|sent| correlation.asked(sent, "")).err();
            let found = found.map(|error| error.field);
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
            let asked = parse::<FunnelCorrelationActorsQuery>(&asked).unwrap();
            assert_eq!(is_converted(asked.person_converted.as_ref()).unwrap(), expected);
        }
    }
}
