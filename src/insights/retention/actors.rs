//! Lists the persons or groups of a row of a retention, with the cells in which each was active.

use std::collections::{BTreeSet, HashSet};

use serde_json::Value;

use crate::breakdown::{Breakdown, OTHER, OfValue, of_value, value_sent};
use crate::entity::note_named;
use crate::interval::Buckets;
use crate::ranked::Ranked;
use crate::retention::Retention;
use crate::retention::answer::{shown_value, value_of};
use crate::retention::plan::Folded;
use crate::retention::split::Splitter;
use crate::{Actor, Context, InsightError, ProjectSettings};
use weir_api::node::NodeError;
use weir_api::nodes::actors::InsightActorsQuery;
use weir_query::events::histories::{Fold, Row};
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::interner::Interner;
use weir_query::persons::people::Part;

/// Bits of a word.
const BITS: usize = 64;

/// Selects a row of a retention.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowSelection {
    /// Its index among the rows of its breakdown value.
    pub row: usize,
    /// The breakdown value, a list for several properties; `None` for all values.
    pub breakdown: Option<Value>,
}

impl RowSelection {
    /// Reads the fields of an `InsightActorsQuery`.
    pub fn of(sent: &InsightActorsQuery) -> Self {
        let breakdown = of_value(sent.breakdown.as_ref());
        Self { row: sent.interval.unwrap_or(0), breakdown }
    }
}

impl Retention {
    /// The persons or groups of a row, those that were active in the most cells first; one more than `part` has is
    /// returned if there are more. Their values are the numbers of these cells, for all selected breakdown values
    /// together.
    ///
    /// # Errors
    ///
    /// There is no such row; see [`InsightError`].
    pub async fn actors(
        &self,
        engine: &Engine,
        owner: &ProjectSettings,
        asked: &RowSelection,
        part: Part,
    ) -> Result<Vec<Actor>, InsightError> {
        // An aggregation does not affect which actors are in a row.
        let counted = Self { measure: None, ..self.clone() };
        counted.found(engine, owner, asked, part).await
    }

    async fn found(
        &self,
        engine: &Engine,
        owner: &ProjectSettings,
        asked: &RowSelection,
        part: Part,
    ) -> Result<Vec<Actor>, InsightError> {
        let refused = |field: &str, detail: &str| {
            InsightError::from(NodeError { field: field.to_owned(), detail: detail.to_owned() })
        };
        note_named(engine, owner.project, self.entities())?;
        let view = engine.view(owner.project).await?;
        let context = Context { engine, view: &view, owner };
        let intervals = self.intervals(context).await?;
        if asked.row >= intervals.len() {
            return Err(refused("interval", "There is no such interval."));
        }
        let (of, cohort) = self.value_asked(context, &intervals, asked.breakdown.as_ref()).await?;
        let Folded { plan, rows, splitter } = self.folded(context, &intervals, cohort).await?;
        let ranked = Ranked::new(part, self.selection.unit);
        let fold = Finding { splitter, row: asked.row, of, ranked };
        let found = engine.histories(plan, rows, fold).await?.ranked;
        let actor =
            |(actor, cells): (Actor, Cells)| Actor { appearances: cells.numbers(), ..actor };
        Ok(found.into_known().map(actor).collect())
    }

    /// Resolves a breakdown value of the response to the values that it represents, or to a cohort.
    async fn value_asked(
        &self,
        context: Context<'_>,
        intervals: &Buckets,
        value: Option<&Value>,
    ) -> Result<(OfValue, Option<i64>), InsightError> {
        let Some(value) = value else { return Ok((OfValue::Any, None)) };
        let value = value_sent(value);
        match &self.breakdown {
            Breakdown::Nothing => Ok((OfValue::Any, None)),
            Breakdown::Cohorts(cohorts) => {
                let is_asked = |cohort: &&Option<i64>| {
                    value_of(**cohort) == value || (cohort.is_none() && value == "all")
                };
                let wrong = || NodeError {
                    field: "breakdown".to_owned(),
                    detail: "The retention is not split by this cohort.".to_owned(),
                };
                Ok((OfValue::Any, *cohorts.iter().find(is_asked).ok_or_else(wrong)?))
            }
            Breakdown::Properties { limit, .. } if value == OTHER => {
                let tables = self.counted(context, intervals, None).await?;
                let shown: HashSet<String> =
                    tables.largest(*limit).0.into_iter().map(str::to_owned).collect();
                // The property may have this text as a value of its own.
                if shown.contains(OTHER) {
                    return Ok((OfValue::One(value), None));
                }
                Ok((OfValue::Others(shown), None))
            }
            Breakdown::Properties { .. } => Ok((OfValue::One(value), None)),
        }
    }
}

/// Collects the actors of a row.
#[derive(Debug)]
struct Finding {
    splitter: Splitter,
    row: usize,
    of: OfValue,
    ranked: Ranked<Cells>,
}

impl Fold for Finding {
    #[expect(clippy::cast_precision_loss, reason = "few cells")]
    fn actor(&mut self, actor: &str, rows: &[Row], texts: &Interner) -> Result<(), QueryError> {
        let Self { splitter, row, of, ranked } = self;
        let mut seen = BTreeSet::new();
        splitter.each(rows, texts, |rule, value, (activity, _)| {
            if is_meant(of, value) && activity.starts.contains(row) {
                seen.extend(rule.seen(activity, *row));
            }
            Ok(())
        })?;
        if !seen.is_empty() {
            ranked.add_with(actor, seen.len() as f64, || Cells::of(seen.iter().copied()));
        }
        Ok(())
    }
}

/// A compact bit set of the cells of a row: many persons may rank before the requested page.
#[derive(Debug)]
struct Cells(Box<[u64]>);

impl Cells {
    fn of(cells: impl Iterator<Item = usize>) -> Self {
        let mut bits = Vec::new();
        for cell in cells {
            let place = cell / BITS;
            if bits.len() <= place {
                bits.resize(place + 1, 0);
            }
            if let Some(bits) = bits.get_mut(place) {
                *bits |= 1_u64 << (cell % BITS);
            }
        }
        Self(bits.into())
    }

    fn numbers(&self) -> Vec<usize> {
        let has = |cell: &usize| {
            self.0.get(cell / BITS).is_some_and(|bits| bits >> (cell % BITS) & 1 == 1)
        };
        (0..self.0.len() * BITS).filter(has).collect()
    }
}

/// Whether a value is selected, by the list of its parts or by its text in responses.
fn is_meant(of: &OfValue, value: &str) -> bool {
    of.has(value) || matches!(of, OfValue::One(own) if *own == shown_value(value))
}

#[cfg(test)]
mod tests {
    use super::Cells;

    #[test]
    fn cells_are_kept() {
        for cells in [vec![], vec![0], vec![0, 3, 63, 64, 399]] {
            assert_eq!(Cells::of(cells.iter().copied()).numbers(), cells);
        }
    }
}
