//! Lists the persons or groups that were active in some number of intervals.

use crate::ranked::Ranked;
use crate::selection::Unit;
use crate::stickiness::Stickiness;
use crate::stickiness::active::{Rule, holds};
use crate::{Actor, InsightError, ProjectSettings};
use weir_api::node::{Content, NodeError, join};
use weir_api::nodes::actors::InsightActorsQuery;
use weir_api::nodes::insights::CriteriaOperator;
use weir_query::events::histories::{Fold, Row};
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::interner::Interner;
use weir_query::persons::people::Part;

/// Selects actors by series and number of intervals.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeriesSelection {
    /// The number of the series.
    pub series: usize,
    /// The number of intervals; `None` for any.
    pub intervals: Option<usize>,
    /// The comparison with that number; `None` for that of the response.
    pub operator: Option<CriteriaOperator>,
    /// Whether it is in the period that the current one is compared with.
    pub is_previous: bool,
}

impl SeriesSelection {
    /// Parses the `InsightActorsQuery` or `StickinessActorsQuery` at `path`.
    ///
    /// # Errors
    ///
    /// The day is not a number of intervals.
    pub fn of(sent: &InsightActorsQuery, path: &str) -> Result<Self, NodeError> {
        let day = sent.day.as_ref().map(|day| usize::read(day, &join(path, "day")));
        Ok(Self {
            series: sent.series.unwrap_or(0),
            intervals: day.transpose()?,
            operator: sent.operator,
            is_previous: sent.compare.as_deref() == Some("previous"),
        })
    }
}

impl Stickiness {
    /// The unit that the selected series counts.
    pub fn unit(&self, asked: &SeriesSelection) -> Unit {
        self.series.get(asked.series).map(|counted| counted.unit).unwrap_or_default()
    }

    /// The persons or groups with a number of intervals, those with the largest numbers first; one more than `part`
    /// has is returned if there are more.
    ///
    /// # Errors
    ///
    /// There is no such series or period; see [`InsightError`].
    pub async fn actors(
        &self,
        engine: &Engine,
        owner: &ProjectSettings,
        asked: &SeriesSelection,
        part: Part,
    ) -> Result<Vec<Actor>, InsightError> {
        let refused = |field: &str, detail: &str| {
            InsightError::from(NodeError { field: field.to_owned(), detail: detail.to_owned() })
        };
        let counted = self.series.get(asked.series);
        let counted = counted.ok_or_else(|| refused("series", "There is no such series."))?;
        let view = engine.view(owner.project).await?;
        let ranges = self.ranges(engine, &view, owner).await?;
        let range = ranges.get(usize::from(asked.is_previous));
        let range = range.ok_or_else(|| refused("compare", "There is no other period."))?;
        let (rule, intervals) = self.rule(range, owner)?;
        let plan = self.plan(engine, (&view, owner), counted, &intervals).await?;
        let usual =
            if self.is_cumulative { CriteriaOperator::AtLeast } else { CriteriaOperator::Exactly };
        let asked = match asked.intervals {
            Some(intervals) => (asked.operator.unwrap_or(usual), intervals),
            None => (CriteriaOperator::AtLeast, 1),
        };
        let fold = Finding { rule, asked, ranked: Ranked::new(part, counted.unit) };
        Ok(engine.histories(plan, self.rows(&intervals), fold).await?.ranked.into_actors())
    }
}

/// Collects the actors with some number of intervals.
#[derive(Debug)]
struct Finding {
    rule: Rule,
    asked: (CriteriaOperator, usize),
    ranked: Ranked,
}

impl Fold for Finding {
    #[expect(clippy::cast_precision_loss, reason = "few intervals")]
    fn actor(&mut self, actor: &str, rows: &[Row], _: &Interner) -> Result<(), QueryError> {
        let Self { rule, asked: (operator, asked), ranked } = self;
        let active = rule.active(rows.iter().filter_map(|row| usize::try_from(row.at).ok()));
        if active > 0 && holds(*operator, active, *asked) {
            ranked.add(actor, active as f64);
        }
        Ok(())
    }
}
