//! Runs the plan of paths, and shapes the response: the edges between steps.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::dataframe::DataFrame;
use datafusion::functions::expr_fn::{coalesce, starts_with};
use datafusion::logical_expr::{Expr, cast, when};
use datafusion::prelude::{col, ident, lit, not};

use crate::entity::note_named;
use crate::funnels::passage::Stretches;
use crate::interval::Interval;
use crate::paths::edges::{Counted, Edge, Edges, first, reachable};
use crate::paths::items::{Items, PAGE};
use crate::paths::walk::{Cut, SESSION_GAP_MICROS, Step};
use crate::paths::{Around, Kinds, PAGEVIEW, Paths, SCREEN};
use crate::{Context, InsightError, ProjectSettings};
use weir_api::insights::paths;
use weir_query::dialect::expression::{Expression, Taken};
use weir_query::events::event_property::event_text;
use weir_query::events::histories::{ACTOR, AT, Fold, MASK, NO_TEXT, Row, Rows, TEXT};
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::interner::Interner;
use weir_query::kernel::slice::Slice;
use weir_query::kernel::view::View;

/// Columns of rows of histories.
const COLUMNS: [&str; 4] = [ACTOR, AT, MASK, TEXT];

/// The column with the value of the expression.
const EXPRESSION: &str = "expression";

/// Represents the middle of a path that is too long (PostHog's).
const ELLIPSIS: &str = "...";

impl Paths {
    /// The edges of the response, as in PostHog's API, the most frequent ones first.
    pub async fn answer(
        &self,
        engine: &Engine,
        owner: &ProjectSettings,
    ) -> Result<Vec<paths::Edge>, InsightError> {
        note_named(engine, owner.project, self.entities())?;
        let events = self.steps(engine, owner).await?;
        let (mut left, mut found) = (vec![Slice::ALL], Vec::new());
        while let Some(slice) = left.pop() {
            let edges = Edges::new(slice, engine.reservation("edges of paths"));
            let fold = Counting { walks: self.walks(engine)?, edges };
            let mut fold = engine.histories(events.clone(), self.rows(), fold).await?;
            left.extend(fold.edges.take_left());
            found.extend(fold.edges.counted(&fold.walks.items, self.shown));
            found = first(found, self.shown.edges_max);
        }
        Ok(reachable(found).into_iter().map(Counted::into_shown).collect())
    }

    /// The plan that reads the steps as rows of histories.
    pub(super) async fn steps(
        &self,
        engine: &Engine,
        owner: &ProjectSettings,
    ) -> Result<DataFrame, InsightError> {
        let view = engine.view(owner.project).await?;
        let range = self.selection.dates.range(engine, (&view, owner), Interval::Day).await?;
        let bounds = (range.from, range.to);
        let mut events = self.selection.events(engine, (&view, owner), bounds).await?;
        if let Some(condition) = self.kinds.condition() {
            events = events.filter(condition)?;
        }
        let steps = self.named(&view, events).await?;
        let Some(Around { funnels, .. }) = &self.around else { return Ok(steps) };
        let (own, _) = funnels.own_rows(Context { engine, view: &view, owner }).await?;
        let own = own.with_column(TEXT, lit(ScalarValue::Utf8View(None)))?;
        Ok(own.union(steps)?)
    }

    /// The rows of steps, with their names.
    async fn named(&self, view: &View, events: DataFrame) -> Result<DataFrame, QueryError> {
        let text = |text: Expr| cast(text, DataType::Utf8View);
        let is_named = |name: &str, by_itself: bool| match by_itself {
            true => col("event").eq(lit(name)),
            false => lit(false),
        };
        let is_page = || is_named(PAGEVIEW, self.kinds.has_addresses());
        let is_screen = || is_named(SCREEN, self.kinds.has_screens());
        let other = match self.expression {
            Some(_) => lit(ScalarValue::Utf8View(None)),
            None => text(col("event")),
        };
        let place = |own: Expr| match (&self.around, &self.expression) {
            (None, None) => text(own),
            // A null text means that the expression names the step, or that the row belongs to the funnel.
            _ => coalesce(vec![text(own), text(lit(""))]),
        };
        let item = when(is_page(), place(event_text("$current_url")))
            .when(is_screen(), place(event_text("$screen_name")))
            .otherwise(other)?;
        let columns = vec![
            self.selection.unit.actor().alias(ACTOR),
            cast(col("timestamp"), DataType::Int64).alias(AT),
            when(is_page(), lit(PAGE)).otherwise(lit(0_u32))?.alias(MASK),
            text(item).alias(TEXT),
        ];
        let Some(expression) = &self.expression else { return Ok(events.select(columns)?) };
        let mut events = events;
        for (name, column) in COLUMNS.into_iter().zip(columns) {
            events = events.with_column(name, column)?;
        }
        let rows =
            Expression::add_all(view, events, &[(expression, Taken::Text, EXPRESSION)]).await?;
        let item = coalesce(vec![ident(TEXT), text(ident(EXPRESSION)), text(lit(""))]);
        let [actor, at, mask, _] = COLUMNS.map(ident);
        Ok(rows.select(vec![actor, at, mask, text(item).alias(TEXT)])?)
    }

    /// The rows that the fold needs. For a funnel duplicates are kept, since each event may complete a step.
    pub(super) fn rows(&self) -> Rows {
        if self.around.is_some() { Rows::All } else { Rows::Distinct }
    }

    /// Builds the converter from rows to paths.
    pub(super) fn walks(&self, engine: &Engine) -> Result<Walks, QueryError> {
        let mut items = Items::new(Arc::clone(&self.rules), engine.reservation("items of paths"));
        let mut number = |item: &Option<String>| match item {
            Some(item) => items.number(item).map(Some),
            None => Ok(None),
        };
        let (start, end) = (number(&self.start)?, number(&self.end)?);
        let ellipsis = items.number(ELLIPSIS)?;
        let stretches = self.around.as_ref().map(|around| around.stretches.clone());
        let gap = stretches.as_ref().map_or(SESSION_GAP_MICROS, Stretches::window);
        let cut = Cut { start, end, gap, steps_max: self.steps_max, ellipsis };
        Ok(Walks { items, cut, stretches, steps: Vec::new() })
    }
}

impl Kinds {
    /// The condition that an event is a step; `None` if all events are.
    fn condition(self) -> Option<Expr> {
        let event = || col("event");
        let pages = self.pages.then(|| event().eq(lit(PAGEVIEW)));
        let screens = self.screens.then(|| event().eq(lit(SCREEN)));
        let custom = self.custom.then(|| not(starts_with(event(), lit("$"))));
        [pages, screens, custom].into_iter().flatten().reduce(Expr::or)
    }
}

/// Converts the rows of an actor to paths.
#[derive(Debug)]
pub(super) struct Walks {
    pub(super) items: Items,
    cut: Cut,
    /// The time ranges in which steps count, if a funnel determines them.
    stretches: Option<Stretches>,
    /// Buffer of the steps of the current actor.
    steps: Vec<Step>,
}

impl Walks {
    /// Calls `each` with every path of an actor.
    pub(super) fn each(
        &mut self,
        rows: &[Row],
        texts: &Interner,
        mut each: impl FnMut(&[Step], &Items) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        let (first, last) = match &self.stretches {
            None => (i64::MIN, i64::MAX),
            Some(stretches) => match stretches.of(rows) {
                Some(stretch) => stretch,
                None => return Ok(()),
            },
        };
        self.steps.clear();
        let is_of_funnel = |row: &&Row| self.stretches.is_some() && row.text == NO_TEXT;
        let own = rows.iter().filter(|row| !is_of_funnel(row) && row.at >= first && row.at <= last);
        for row in own {
            if let Some(item) = self.items.of(row, texts)? {
                self.steps.push(Step { at: row.at, item });
            }
        }
        self.cut.paths(&self.steps, |path| each(path, &self.items))
    }
}

/// Counts edges.
#[derive(Debug)]
struct Counting {
    walks: Walks,
    edges: Edges,
}

impl Fold for Counting {
    fn begin(&mut self, texts: &Interner) -> Result<(), QueryError> {
        self.walks.items.begin(texts)
    }

    fn actor(&mut self, _: &str, rows: &[Row], texts: &Interner) -> Result<(), QueryError> {
        let Self { walks, edges } = self;
        walks.each(rows, texts, |path, items| {
            for ((before, after), place) in path.iter().zip(path.iter().skip(1)).zip(1..) {
                let edge = Edge { place, from: before.item, to: after.item };
                edges.add(edge, after.at.saturating_sub(before.at), items)?;
            }
            Ok(())
        })
    }
}
