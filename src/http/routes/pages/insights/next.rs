//! The next events of the persons behind a step of a funnel: the event after the last one of that step. For persons who
//! dropped off, the event that they did instead.

use maud::{Markup, html};
use serde_json::Value;

use crate::response::Problem;
use crate::routes::pages::insights::people::{FILE_PERSONS, behind};
use crate::routes::pages::insights::span;
use crate::routes::pages::visit::Asking;
use weir_web::insight::next as shown;
use weir_web::parts::literal;
use weir_web::state::actor::ActorRow;
use weir_web::state::insight::{Kind, Question};
use weir_web::state::node::node;
use weir_web::state::point::Point;
use weir_web::state::sql;

/// Most events that are shown.
const EVENTS_SHOWN: usize = 10;

/// The table of next events; empty for a mark that is not a step.
pub(super) async fn events(
    asking: &Asking,
    question: &Question,
    point: &Point,
) -> Result<Markup, Problem> {
    let (Kind::Funnel, Some(step)) = (question.kind(), point.step) else { return Ok(html! {}) };
    // Persons who dropped off did the step before.
    let before = if step < 0 { 2 } else { 1 };
    let done = usize::from(step.unsigned_abs()).checked_sub(before);
    let Some(series) = done.and_then(|at| question.series.get(at)) else { return Ok(html! {}) };
    let project = &asking.asker.project;
    let Some(span) = span(project, &node(question), asking.app.node.clock.now()) else {
        return Ok(html! {});
    };
    let Ok(source) = sql::source(question, series, &span) else { return Ok(html! {}) };
    let found = behind(asking, (question, point), (FILE_PERSONS, 0)).await?;
    let persons: Vec<String> =
        found.people.iter().map(|person| ActorRow::of(person).uuid).collect();
    if persons.is_empty() {
        return Ok(html! {});
    }
    let answer = asking.sql(&statement(&source, &persons)).await?;
    let row = |row: &Vec<Value>| Some((row.first()?.as_str()?.to_owned(), row.get(1)?.as_u64()?));
    let events: Vec<(String, u64)> = answer.results.iter().filter_map(row).collect();
    let is_part = found.has_more;
    Ok(shown::events(
        asking.project(),
        (&series.title(), step < 0),
        (&events, persons.len(), is_part),
    ))
}

/// The next event of each person after the last of the events in `source`, counted by name.
fn statement(source: &str, persons: &[String]) -> String {
    let persons: Vec<String> = persons.iter().map(|uuid| literal(uuid)).collect();
    let persons = persons.join(", ");
    format!(
        "WITH stopped AS (\n  SELECT person_id, max(timestamp) AS at\n  {source}\n  AND person_id IN ({persons})\n  \
         GROUP BY person_id\n), following AS (\n  SELECT events.person_id AS person, \
         first_value(events.event ORDER BY events.timestamp) AS event\n  FROM events JOIN stopped ON \
         events.person_id = stopped.person_id\n  WHERE events.timestamp > stopped.at AND events.person_id IN ({persons})\n  \
         GROUP BY events.person_id\n)\nSELECT event, count(*) AS persons FROM following\nGROUP BY event\n\
         ORDER BY persons DESC, event LIMIT {EVENTS_SHOWN}"
    )
}
