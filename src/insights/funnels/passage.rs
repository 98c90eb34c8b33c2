//! When an actor is in a funnel, for queries on what else it does meanwhile: [`Passages`] computes the [`Passage`] of
//! an actor.

use datafusion::dataframe::DataFrame;

use crate::breakdown::Breakdown;
use crate::funnels::Funnels;
use crate::funnels::actors::Stop;
use crate::funnels::walk::{Course, Moment, Outcome, Way};
use crate::{Context, InsightError};
use weir_api::node::{NodeError, join};
use weir_api::nodes::actors::FunnelsActorsQuery;
use weir_api::nodes::paths::FunnelPathType;
use weir_base::clock::UnixMicros;
use weir_query::events::histories::{NO_TEXT, Row};

/// The passage of an actor through a funnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// The time of the first step in microseconds.
    pub first: i64,
    /// The time of the last step, or the end of the conversion window if the actor does not reach it.
    pub end: i64,
    /// Whether the actor reaches the last step.
    pub is_converted: bool,
}

impl Passage {
    /// Whether a time is between the first step and the end, both exclusive.
    pub fn has(&self, at: i64) -> bool {
        self.first < at && at < self.end
    }
}

/// Computes the time range before a step, between it and the previous one, or after it, for actors that reach the
/// step, or that drop off before it.
#[derive(Clone, Debug)]
pub struct Stretches {
    passages: Passages,
    part: FunnelPathType,
    /// The index of the step; for actors that drop off, of the last required step before.
    step: usize,
    /// How long after the step the range after it begins: the conversion window for actors that drop off, else 0.
    delay: i64,
}

impl Stretches {
    /// The time range for the actor of `rows`, both ends inclusive; `None` if it does not reach the step.
    pub fn of(&self, rows: &[Row]) -> Option<(i64, i64)> {
        let times = self.passages.times(rows)?;
        let step = (*times.get(self.step)?)?;
        match self.part {
            FunnelPathType::Before => Some((i64::MIN, step)),
            // From the last step before that was not skipped.
            FunnelPathType::Between => {
                let before = times.get(..self.step)?.iter().rev().find_map(|at| *at)?;
                Some((before, step))
            }
            FunnelPathType::After => Some((step.saturating_add(self.delay), i64::MAX)),
        }
    }

    /// The conversion window of the funnel in microseconds.
    pub fn window(&self) -> i64 {
        self.passages.course.window
    }
}

/// Computes the passages of actors that meet a condition on their steps.
#[derive(Clone, Debug)]
pub struct Passages {
    course: Course,
    stop: Stop,
}

impl Passages {
    /// The passage of the actor of `rows`, of which those without a text belong to the funnel. `None` if the actor
    /// does not meet the condition, or is excluded.
    pub fn of(&self, rows: &[Row]) -> Option<Passage> {
        let times = self.times(rows)?;
        // The furthest step is never a skipped one.
        let (first, last) = ((*times.first()?)?, (*times.last()?)?);
        let is_converted = times.len() == self.course.steps;
        let end = if is_converted { last } else { first.saturating_add(self.course.window) };
        Some(Passage { first, end, is_converted })
    }

    /// The times of the steps that the actor reaches.
    fn times(&self, rows: &[Row]) -> Option<Way> {
        let own = rows.iter().filter(|row| row.text == NO_TEXT);
        let own: Vec<Row> = own.copied().collect();
        let events: Vec<Moment> = self.course.thinned(&own).map(Moment::own).collect();
        let Outcome::Reached(times) = self.course.walk(&events, &(i64::MIN..=i64::MAX)) else {
            return None;
        };
        self.stop.is(&times).then_some(times)
    }
}

impl Funnels {
    /// The same funnel without its breakdown.
    pub fn unsplit(self) -> Self {
        Self { breakdown: Breakdown::Nothing, ..self }
    }

    /// The passages of the actors that the fields of a `FunnelsActorsQuery` at `path` select; if these name no steps,
    /// of all actors that reach the first step.
    ///
    /// # Errors
    ///
    /// There is no such step.
    pub fn passages(&self, sent: &FunnelsActorsQuery, path: &str) -> Result<Passages, NodeError> {
        let (step, custom) = (sent.funnel_step, &sent.funnel_custom_steps);
        let is_named = step.is_some() || !custom.is_empty();
        let stop = if is_named { self.stop_asked(step, custom, path)? } else { Stop::Any };
        Ok(Passages { course: self.course.clone(), stop })
    }

    /// The time ranges that a `funnelPathsFilter` with this funnel as its source selects.
    ///
    /// # Errors
    ///
    /// A field is absent, or there is no such step.
    pub fn stretches(
        &self,
        part: Option<FunnelPathType>,
        step: Option<i64>,
    ) -> Result<Stretches, NodeError> {
        const PATH: &str = "funnelPathsFilter";
        let absent = || NodeError::new(join(PATH, "funnelPathType"), FunnelPathType::expected());
        let part = part.ok_or_else(absent)?;
        let stop = self.stop_asked(step, &[], PATH)?;
        let (step, is_drop_off) = match &stop {
            Stop::Did(step) => (*step, false),
            Stop::Left { before, .. } => (*before, true),
            // Not possible here: `stop_asked` has refused it above.
            Stop::Last(_) | Stop::Any => (0, false),
        };
        if part == FunnelPathType::Between && step == 0 {
            let detail = "There is no step before it, so nothing is between both.";
            return Err(NodeError::new(join(PATH, "funnelStep"), detail));
        }
        let delay = if is_drop_off { self.course.window } else { 0 };
        let passages = Passages { course: self.course.clone(), stop };
        Ok(Stretches { passages, part, step, delay })
    }

    /// The plan of the rows of the funnel, which have no text; and the bounds of the times of its events.
    pub(crate) async fn own_rows(
        &self,
        context: Context<'_>,
    ) -> Result<(DataFrame, (UnixMicros, UnixMicros)), InsightError> {
        let bounds = self.bounds(context).await?;
        Ok((self.rows(context, bounds, None).await?, bounds))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::funnels::Funnels;
    use crate::funnels::actors::Stop;
    use weir_api::node::{Content, NodeError};
    use weir_api::nodes::actors::FunnelsActorsQuery;
    use weir_api::nodes::paths::FunnelPathsFilter;
    use weir_query::events::histories::Row;

    #[test]
    fn everybody_who_enters_is_asked_for_unless_steps_are_named() {
        let query = json!({"series": [{"event": "a"}, {"event": "b"}, {"event": "c"}]});
        let funnels = Funnels::parse(&query).unwrap().unsplit();
        for (asked, expected) in [
            (json!({}), Ok(Stop::Any)),
            (json!({"funnelStep": 2}), Ok(Stop::Did(1))),
            (json!({"funnelStep": -3}), Ok(Stop::Left { before: 1, at: 2 })),
            (json!({"funnelCustomSteps": [1, 3]}), Ok(Stop::Last(vec![1, 3]))),
            (json!({"funnelStep": 4}), Err("source.funnelStep")),
            (json!({"funnelCustomSteps": [0]}), Err("source.funnelCustomSteps")),
        ] {
            let asked: Value = asked;
            let sent = FunnelsActorsQuery::read(&asked, "source").unwrap();
            let found = funnels.passages(&sent, "source");
            let found = found.map(|own| own.stop).map_err(|error| error.field);
            assert_eq!(found, expected.map_err(str::to_owned), "{asked}");
        }
    }

    #[test]
    fn stretches_lie_around_the_step() {
        const DAY: i64 = 86_400_000_000;
        let query = json!({"series": [{"event": "a"}, {"event": "b"}, {"event": "c"}],
                           "funnelsFilter": {"funnelWindowInterval": 1, "funnelWindowIntervalUnit": "day"}});
        let funnels = Funnels::parse(&query).unwrap().unsplit();
        let stretches = |sent: &Value| -> Result<_, NodeError> {
            let FunnelPathsFilter { funnel_path_type, funnel_step, .. } =
                FunnelPathsFilter::read(sent, "funnelPathsFilter")?;
            funnels.stretches(funnel_path_type, funnel_step)
        };
        let rows = |masks: &[u32]| -> Vec<Row> {
            masks.iter().zip(1..).map(|(mask, at)| Row::new(at, *mask)).collect()
        };
        // The times of the steps a, b and c are 1, 2 and 4.
        let (whole, started) = (rows(&[1, 2, 0, 4]), rows(&[1, 0, 4]));
        for (kind, step, of_whole, of_started) in [
            ("before_step", 2, Some((i64::MIN, 2)), None),
            ("before_step", 1, Some((i64::MIN, 1)), Some((i64::MIN, 1))),
            ("before_step", -2, None, Some((i64::MIN, 1))),
            ("between_steps", 3, Some((2, 4)), None),
            ("after_step", 3, Some((4, i64::MAX)), None),
            ("after_step", -2, None, Some((1 + DAY, i64::MAX))),
            ("after_step", -3, None, None),
        ] {
            let sent = json!({"funnelPathType": format!("funnel_path_{kind}"), "funnelStep": step});
            let own = stretches(&sent).unwrap();
            let found = (own.of(&whole), own.of(&started));
            assert_eq!(found, (of_whole, of_started), "{sent}");
        }
        for (sent, field) in [
            (json!({"funnelStep": 1}), "funnelPathType"),
            (json!({"funnelPathType": "funnel_path_after_step"}), "funnelStep"),
            (json!({"funnelPathType": "funnel_path_after_step", "funnelStep": 4}), "funnelStep"),
            (json!({"funnelPathType": "funnel_path_between_steps", "funnelStep": 1}), "funnelStep"),
            (
                json!({"funnelPathType": "funnel_path_between_steps", "funnelStep": -2}),
                "funnelStep",
            ),
        ] {
            let field = format!("funnelPathsFilter.{field}");
            assert_eq!(stretches(&sent).unwrap_err().field, field, "{sent}");
        }
    }
}
