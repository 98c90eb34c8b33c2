//! The persons of a row of a retention, and in which of its cells each was active.

use crate::insights::Actor;
use crate::insights::InsightError;
use crate::insights::ProjectSettings;
use crate::insights::node::NodeError;
use crate::insights::ranked::Ranked;
use crate::insights::retention::Retention;
use crate::insights::retention::plan::Folded;
use crate::insights::retention::rows::Activity;
use crate::insights::retention::rows::Rule;
use crate::insights::selection::Unit;
use crate::query::engine::Engine;
use crate::query::error::QueryError;
use crate::query::histories::Fold;
use crate::query::histories::Row;
use crate::query::interner::Interner;
use crate::query::people::Part;

/// Bits of a number.
const BITS: usize = 64;

impl Retention {
    /// The persons of the row with this number, those who were active in most of its cells first; one more than the
    /// part has where there are more. Their values are the numbers of these cells.
    ///
    /// # Errors
    ///
    /// There is no such row, or groups are counted; see [`InsightError`].
    pub async fn actors(
        &self,
        engine: &Engine,
        owner: &ProjectSettings,
        row: usize,
        part: Part,
    ) -> Result<Vec<Actor>, InsightError> {
        let refused = |field: &str, detail: &str| {
            InsightError::from(NodeError { field: field.to_owned(), detail: detail.to_owned() })
        };
        if self.selection.unit != Unit::Persons {
            let detail = "The groups of a row are not available.";
            return Err(refused("aggregation_group_type_index", detail));
        }
        let Folded { plan, rows, rule, intervals } = self.folded(engine, owner).await?;
        if row >= intervals.len() {
            return Err(refused("interval", "There is no such interval."));
        }
        let ranked = Ranked::new(part);
        let fold = Finding { rule, row, ranked, activity: Activity::default() };
        let found = engine.histories(plan, rows, fold).await?.ranked;
        let actor =
            |(actor, cells): (Actor, Cells)| Actor { appearances: cells.numbers(), ..actor };
        Ok(found.into_known().map(actor).collect())
    }
}

/// Finds the actors of a row.
#[derive(Debug)]
struct Finding {
    rule: Rule,
    row: usize,
    ranked: Ranked<Cells>,
    /// Of the actor.
    activity: Activity,
}

impl Fold for Finding {
    #[expect(clippy::cast_precision_loss, reason = "few cells")]
    fn actor(&mut self, actor: &str, rows: &[Row], _: &Interner) -> Result<(), QueryError> {
        let Self { rule, row, ranked, activity } = self;
        rule.read(rows.iter().map(|row| (row.at, row.mask)), activity);
        if activity.starts.contains(row) {
            let count = rule.seen(activity, *row).count();
            ranked.add_with(actor, count as f64, || Cells::of(rule.seen(activity, *row)));
        }
        Ok(())
    }
}

/// Some cells of a row, a bit for each: many persons may come before those that are asked for.
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
