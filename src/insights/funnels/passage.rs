//! When an actor is in a funnel, for those who ask what else the actor does meanwhile: [`Passages`] finds the
//! [`Passage`] of each.

use datafusion::dataframe::DataFrame;

use crate::clock::UnixMicros;
use crate::insights::Context;
use crate::insights::InsightError;
use crate::insights::breakdown::Breakdown;
use crate::insights::funnels::Funnels;
use crate::insights::funnels::walk::Course;
use crate::insights::funnels::walk::Moment;
use crate::insights::funnels::walk::Outcome;
use crate::insights::node::Node;
use crate::insights::node::NodeError;
use crate::query::histories::NO_TEXT;
use crate::query::histories::Row;

/// The way of an actor through a funnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// The time of the first step in microseconds.
    pub first: i64,
    /// The time of the last step, or the end of the window of those who do not come to it.
    pub end: i64,
    /// Whether the actor comes to the last step.
    pub is_converted: bool,
}

impl Passage {
    /// Whether a time is between the first step and the end.
    pub fn has(&self, at: i64) -> bool {
        self.first < at && at < self.end
    }
}

/// Finds passages: of those who come to one of some numbers of steps.
#[derive(Clone, Debug)]
pub struct Passages {
    course: Course,
    stops: Vec<usize>,
}

impl Passages {
    /// The passage of the actor of `rows`, of which those without a text are those of the funnel. `None` for those
    /// who do not come to any of the steps, and those who are excluded.
    pub fn of(&self, rows: &[Row]) -> Option<Passage> {
        let own = rows.iter().filter(|row| row.text == NO_TEXT);
        let events: Vec<Moment> = own.map(|row| Moment { at: row.at, mask: row.mask }).collect();
        let Outcome::Reached(times) = self.course.walk(&events, &(i64::MIN..=i64::MAX)) else {
            return None;
        };
        if !self.stops.contains(&times.len()) {
            return None;
        }
        let (first, last) = (*times.first()?, *times.last()?);
        let is_converted = times.len() == self.course.steps;
        let end = if is_converted { last } else { first.saturating_add(self.course.window) };
        Some(Passage { first, end, is_converted })
    }
}

impl Funnels {
    /// The same funnel, with all values of its breakdown together.
    pub fn unsplit(self) -> Self {
        Self { breakdown: Breakdown::Nothing, ..self }
    }

    /// The passages of those whom the fields of a `FunnelsActorsQuery` beside its source ask for; of all who come to
    /// the first step if they name no steps.
    ///
    /// # Errors
    ///
    /// There is no such step.
    pub fn passages(&self, node: &Node<'_>) -> Result<Passages, NodeError> {
        let is_named =
            node.value("funnelStep").is_some() || !node.list("funnelCustomSteps")?.is_empty();
        let stops = match is_named {
            true => self.steps_asked(node)?,
            false => (1..=self.steps.len()).collect(),
        };
        Ok(Passages { course: self.course.clone(), stops })
    }

    /// The plan of the rows of the funnel, which have no text; and the first and the last time of its events.
    ///
    /// # Errors
    ///
    /// See [`InsightError`].
    pub(in crate::insights) async fn own_rows(
        &self,
        context: Context<'_>,
    ) -> Result<(DataFrame, (UnixMicros, UnixMicros)), InsightError> {
        let bounds = self.bounds(context).await?;
        Ok((self.rows(context, bounds, None).await?, bounds))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use serde_json::json;

    use crate::insights::funnels::Funnels;
    use crate::insights::node::Node;

    #[test]
    fn everybody_who_enters_is_asked_for_unless_steps_are_named() {
        let query = json!({"series": [{"event": "a"}, {"event": "b"}, {"event": "c"}]});
        let funnels = Funnels::parse(&query).unwrap().unsplit();
        for (asked, expected) in [
            (json!({}), Ok(vec![1, 2, 3])),
            (json!({"funnelStep": 2}), Ok(vec![2, 3])),
            (json!({"funnelStep": -3}), Ok(vec![2])),
            (json!({"funnelCustomSteps": [1, 3]}), Ok(vec![1, 3])),
            (json!({"funnelStep": 4}), Err("source.funnelStep")),
            (json!({"funnelCustomSteps": [0]}), Err("source.funnelCustomSteps")),
        ] {
            let asked: Value = asked;
            let node = Node::new(Some(&asked), "source").unwrap();
            let found = funnels.passages(&node).map(|own| own.stops).map_err(|error| error.field);
            assert_eq!(found, expected.map_err(str::to_owned), "{asked}");
        }
    }
}
