//! Counts the actors of each cell of a retention, and shapes the response: a row for each interval, and for each
//! breakdown value.

use std::borrow::Cow;

use chrono::SecondsFormat;
use datafusion::execution::memory_pool::MemoryReservation;
use serde::{Deserialize, Serialize};

use crate::breakdown::{Breakdown, OTHER, SEPARATOR};
use crate::entity::note_named;
use crate::interval::Buckets;
use crate::retention::plan::Folded;
use crate::retention::split::Splitter;
use crate::retention::sums::Sums;
use crate::retention::tables::{Table, Tables};
use crate::retention::{Measure, Retention};
use crate::selection::zone;
use crate::{Context, InsightError, ProjectSettings};
use weir_api::insights::retention::{Cell, Row as Shown};
use weir_query::events::histories::{Fold, PartialFold, Row};
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::interner::Interner;

/// Separates the values of several properties in a response (PostHog's).
const BETWEEN: &str = "::";

/// The breakdown value that represents all persons (PostHog's).
const EVERYBODY: &str = "0";

impl Retention {
    /// The rows of the response, as in PostHog's API: one for each interval, in order; with a breakdown those of each
    /// value, the largest value first.
    pub async fn answer(
        &self,
        engine: &Engine,
        owner: &ProjectSettings,
    ) -> Result<Vec<Shown>, InsightError> {
        note_named(engine, owner.project, self.entities())?;
        let view = engine.view(owner.project).await?;
        let context = Context { engine, view: &view, owner };
        let intervals = self.intervals(context).await?;
        let mut answer = Vec::new();
        match &self.breakdown {
            Breakdown::Nothing => {
                let (_, all) = self.counted(context, &intervals, None).await?.into_tables(&[]);
                self.show(&mut answer, (context, &intervals), (None, &all))?;
            }
            Breakdown::Cohorts(cohorts) => {
                let mut counted = Vec::with_capacity(cohorts.len());
                for cohort in cohorts {
                    let tables = self.counted(context, &intervals, *cohort).await?;
                    counted.push((value_of(*cohort), tables.into_tables(&[]).1));
                }
                counted.sort_by(|a, b| b.1.size.cmp(&a.1.size).then_with(|| a.0.cmp(&b.0)));
                for (value, table) in &counted {
                    self.show(&mut answer, (context, &intervals), (Some(value), table))?;
                }
            }
            Breakdown::Properties { limit, is_other_hidden, .. } => {
                let mut tables = self.counted(context, &intervals, None).await?;
                let (values, others) = tables.largest(*limit);
                let values: Vec<String> = values.into_iter().map(str::to_owned).collect();
                if let Some(uncounted) = tables.uncounted(*limit) {
                    tables = self.count(context, (&intervals, None), uncounted).await?;
                }
                let (own, rest) = tables.into_tables(&values);
                for (value, table) in &own {
                    self.show(&mut answer, (context, &intervals), (Some(value), table))?;
                }
                if others > 0 && !is_other_hidden {
                    self.show(&mut answer, (context, &intervals), (Some(OTHER), &rest))?;
                }
            }
        }
        Ok(answer)
    }

    /// Counts by breakdown value, restricted to a cohort if one is given.
    pub(super) async fn counted(
        &self,
        context: Context<'_>,
        intervals: &Buckets,
        cohort: Option<i64>,
    ) -> Result<Tables, InsightError> {
        let cells = self.spans.len().saturating_mul(intervals.len());
        let reservation = context.engine.reservation("values of a retention");
        let tables = Tables::new(cells, self.measure.is_some(), reservation);
        self.count(context, (intervals, cohort), tables).await
    }

    async fn count(
        &self,
        context: Context<'_>,
        (intervals, cohort): (&Buckets, Option<i64>),
        tables: Tables,
    ) -> Result<Tables, InsightError> {
        let Folded { plan, rows, splitter } = self.folded(context, intervals, cohort).await?;
        let sums = self.measure.as_ref().map(|measure| (measure.is_same, Sums::default()));
        let counting = Counting { splitter, tables, sums };
        let counted = match &self.measure {
            // The order in which numbers are added decides their last digits.
            Some(_) => context.engine.histories(plan, rows, counting).await?,
            None => context.engine.histories_in_parts(plan, rows, counting).await?,
        };
        Ok(counted.tables)
    }

    /// Appends the rows of a breakdown value.
    fn show(
        &self,
        answer: &mut Vec<Shown>,
        (context, intervals): (Context<'_>, &Buckets),
        (value, table): (Option<&str>, &Table),
    ) -> Result<(), QueryError> {
        let (zone, period) = (zone(context.owner)?, self.title());
        let row = |((counts, sums), at): ((&[u64], &[f64]), usize)| {
            let start = intervals.bounds_of(at).map(|(start, _)| start.to_datetime());
            let date = start
                .map(|start| start.with_timezone(&zone).to_rfc3339_opts(SecondsFormat::Secs, true));
            let cell = |(count, at): (&u64, usize)| {
                let measured = self.measure.as_ref().zip(sums.get(at));
                Cell {
                    aggregation_value: measured.map(|(measure, sum)| measure.told(*sum, *count)),
                    count: *count,
                    label: self.spans.label(&period, at),
                    ..Cell::default()
                }
            };
            Shown {
                breakdown_value: value.map(|value| shown_value(value).into_owned()),
                date,
                label: format!("{period} {at}"),
                people_url: None,
                values: counts.iter().zip(0..).map(cell).collect(),
            }
        };
        let cells = self.spans.len();
        let counts = table.counts.chunks(cells);
        let sums = table.sums.chunks(cells).chain(std::iter::repeat::<&[f64]>(&[]));
        answer.extend(counts.zip(sums).zip(0..).map(row));
        Ok(())
    }

    /// The title of an interval, such as `Day`.
    fn title(&self) -> String {
        let name = self.period.name();
        let (first, rest) = name.split_at_checked(1).unwrap_or((name, ""));
        format!("{}{rest}", first.to_uppercase())
    }
}

impl Measure {
    /// The aggregated value of a cell with this sum and this number of actors.
    #[expect(clippy::cast_precision_loss, reason = "fewer actors than 2^53")]
    fn told(&self, sum: f64, actors: u64) -> f64 {
        match (self.is_mean, actors) {
            (false, _) => sum,
            (true, 0) => 0.0,
            (true, actors) => sum / actors as f64,
        }
    }
}

/// A breakdown value in the form of the response.
pub(super) fn shown_value(value: &str) -> Cow<'_, str> {
    match value.contains(SEPARATOR) {
        true => Cow::Owned(value.replace(SEPARATOR, BETWEEN)),
        false => Cow::Borrowed(value),
    }
}

/// The breakdown value of a cohort in the response.
pub(super) fn value_of(cohort: Option<i64>) -> String {
    cohort.map_or(EVERYBODY.to_owned(), |id| id.to_string())
}

/// Counts actors.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Counting {
    splitter: Splitter,
    tables: Tables,
    /// If a property is aggregated: whether the target and the returning events are the same, and the sums.
    #[serde(skip)]
    sums: Option<(bool, Sums)>,
}

/// Of those without sums.
impl PartialFold for Counting {
    const NAME: &'static str = "cells of a retention";

    fn merge(&mut self, other: Self) -> Result<(), QueryError> {
        self.tables.merge(other.tables)
    }

    fn account(&mut self, memory: MemoryReservation) {
        self.tables.account(memory);
    }
}

impl Fold for Counting {
    fn actor(&mut self, _: &str, rows: &[Row], texts: &Interner) -> Result<(), QueryError> {
        let Self { splitter, tables, sums } = self;
        splitter.each(rows, texts, |rule, value, (activity, rows)| {
            let table = tables.of_value(value)?;
            let first = |start: usize| start * rule.spans.len();
            for start in &activity.starts {
                table.enlarge();
                rule.counted(activity, *start, |cell| table.count(first(*start) + cell));
            }
            let Some((is_same, sums)) = sums else { return Ok(()) };
            let noted = |row: &Row| (row.at, row.mask, texts.get(row.text).unwrap_or_default());
            sums.read(rule, rows.iter().map(noted));
            for start in &activity.starts {
                let add = |cell, number| table.add(first(*start) + cell, number);
                sums.each(rule, (*start, *is_same), add);
            }
            Ok(())
        })
    }
}
