//! Lists the persons or groups with a status.

use crate::lifecycle::Lifecycle;
use crate::lifecycle::plan::{rows, statuses};
use crate::lifecycle::status::Status;
use crate::ranked::Ranked;
use crate::{Actor, InsightError, ProjectSettings};
use weir_api::node::{Content, NodeError, join};
use weir_api::nodes::actors::InsightActorsQuery;
use weir_query::events::histories::{Fold, Row};
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::interner::Interner;
use weir_query::persons::people::Part;

/// Selects actors by interval and status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stage {
    /// The beginning of the interval, as in `days` of the response; `None` for any.
    pub day: Option<String>,
    /// The status; `None` for any.
    pub status: Option<Status>,
}

impl Stage {
    /// Parses the `InsightActorsQuery` at `path`.
    ///
    /// # Errors
    ///
    /// The day is not a text.
    pub fn of(sent: &InsightActorsQuery, path: &str) -> Result<Self, NodeError> {
        let day = sent.day.as_ref().map(|day| Option::read(day, &join(path, "day")));
        Ok(Self { day: day.transpose()?.flatten(), status: sent.status })
    }
}

impl Lifecycle {
    /// The persons or groups with a status in an interval; one more than `part` has is returned if there are more.
    /// Their values are the numbers of intervals in which they have it.
    ///
    /// # Errors
    ///
    /// There is no such interval; see [`InsightError`].
    pub async fn actors(
        &self,
        engine: &Engine,
        owner: &ProjectSettings,
        stage: &Stage,
        part: Part,
    ) -> Result<Vec<Actor>, InsightError> {
        let refused = |field: &str, detail: &str| {
            InsightError::from(NodeError { field: field.to_owned(), detail: detail.to_owned() })
        };
        let view = engine.view(owner.project).await?;
        let intervals = self.intervals(engine, (&view, owner)).await?;
        let interval = match stage.day.as_deref() {
            Some(day) => {
                let interval = intervals.bucket_of_day(day);
                Some(interval.ok_or_else(|| refused("day", "There is no such interval."))?)
            }
            None => None,
        };
        let plan = self.plan(engine, (&view, owner), &intervals).await?;
        let asked = (interval, stage.status);
        let ranked = Ranked::new(part, self.selection.unit);
        let fold = Finding { intervals: intervals.len(), asked, ranked };
        Ok(engine.histories(plan, rows(&intervals), fold).await?.ranked.into_actors())
    }
}

/// Collects the actors with a status.
#[derive(Debug)]
struct Finding {
    intervals: usize,
    asked: (Option<usize>, Option<Status>),
    ranked: Ranked,
}

impl Fold for Finding {
    fn actor(&mut self, actor: &str, rows: &[Row], _: &Interner) -> Result<(), QueryError> {
        let (asked_interval, asked_status) = self.asked;
        let mut count = 0_u32;
        statuses(rows, self.intervals, |interval, status| {
            let is_asked = asked_interval.is_none_or(|own| own == interval)
                && asked_status.is_none_or(|own| own == status);
            count += u32::from(is_asked);
        });
        if count > 0 {
            self.ranked.add(actor, f64::from(count));
        }
        Ok(())
    }
}
