//! SQL queries: [`SqlQuery`], a statement with filters for its placeholder `{filters}`.

use futures::future::BoxFuture;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::answered::{Answered, ResponseFields, timings};
use crate::dependence::Dependence;
use crate::interval::Interval;
use crate::selection::Selection;
use crate::{InsightError, ProjectSettings, cohort_tables};
use weir_api::node::NodeError;
use weir_api::nodes::check::parse;
use weir_api::nodes::lists::{HogQLQuery, SqlFilters, Variable};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_query::dialect::paging::page_of;
use weir_query::dialect::placeholders::filled;
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::files::File;
use weir_query::kernel::view::View;
use weir_query::output::format::Format;
use weir_query::output::lists::{Layout, Lists};

/// A statement, and the selection of events for its placeholder `{filters}`.
#[derive(Clone, Debug)]
pub struct SqlQuery {
    /// The statement.
    pub text: String,
    filters: Option<Selection>,
}

impl SqlQuery {
    /// A statement without filters.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), filters: None }
    }

    /// Parses a `HogQLQuery`: its `query`, with placeholders replaced from `values` and `variables`, and its
    /// `filters`.
    ///
    /// # Errors
    ///
    /// A field is malformed, or a placeholder has no value.
    pub fn parse(node: &Value) -> Result<Self, InsightError> {
        let sent = parse::<HogQLQuery>(node)?;
        let text = sent.query.filter(|text| !text.trim().is_empty());
        let text = text.ok_or_else(|| NodeError::new("query", "This field is required."))?;
        let mut values: Map<String, Value> = sent.values.into_iter().collect();
        let variables = values_of_variables(sent.variables);
        if !variables.is_empty() {
            values.insert("variables".to_owned(), Value::Object(variables));
        }
        let filters =
            sent.filters.map(|SqlFilters { date_range, properties, filter_test_accounts }| {
                Selection::of_persons(date_range, properties, filter_test_accounts).map_err(within)
            });
        Ok(Self { text: filled(&text, &values)?, filters: filters.transpose()? })
    }

    /// The tables of the project as of now, with the events that `{filters}` selects. Without dates these are events
    /// of any time.
    ///
    /// # Errors
    ///
    /// A date is malformed, there are too many filters; see [`InsightError`].
    pub fn view<'a>(
        &'a self,
        engine: &'a Engine,
        owner: &'a ProjectSettings,
    ) -> BoxFuture<'a, Result<View, InsightError>> {
        Box::pin(async move {
            let view = view_of(engine, owner.project).await?;
            let Some(selection) = &self.filters else { return Ok(view) };
            let dates = &selection.dates;
            let range = dates.range_at(engine.now(), owner, Interval::Day);
            let range = range.map_err(|error| match error {
                InsightError::Node(error) => InsightError::Node(within(error)),
                error => error,
            })?;
            let all = view.event_times().unwrap_or((UnixMicros(0), UnixMicros(0)));
            let is_open = dates.from.as_deref().is_none_or(|from| from == "all");
            let from = if is_open { all.0 } else { range.from };
            let to = if dates.to.is_none() { all.1 } else { range.to };
            let events = selection.events(engine, (&view, owner), (from, to)).await?;
            Ok(view.with_filtered(events).await?)
        })
    }
}

impl SqlQuery {
    /// Runs the query and returns its rows as lists, and whether there are more than its `LIMIT`. Without a `LIMIT`
    /// all rows are returned, or the query is refused if there are too many.
    pub fn answer<'a>(
        &'a self,
        engine: &'a Engine,
        owner: &'a ProjectSettings,
    ) -> BoxFuture<'a, Result<Answered, InsightError>> {
        Box::pin(async move {
            let page = page_of(&self.text);
            let most = engine.rows_max();
            // Requests one more row than is returned, which shows whether there are more. If the row limit does not
            // allow that, a full page counts as having more, and a client that reads page by page gets an empty last
            // page.
            let (asked, layout) = match (page.limit, page.with_one_more(&self.text)) {
                (Some(limit), Some(asked)) if limit < most => {
                    (asked, Layout::all(limit, limit.saturating_add(1)))
                }
                (Some(limit), _) if limit == most => (self.text.clone(), Layout::all(limit, limit)),
                _ => (self.text.clone(), Layout::all(usize::MAX, usize::MAX)),
            };
            let view = self.view(engine, owner).await?;
            let lists = engine.lists(owner.project, async move { view.sql(&asked).await }, layout);
            let Lists { columns, types, rows, has_more, is_cacheable, events, took } =
                lists.await?;
            let types = columns.iter().zip(types).map(|(name, own)| json!([name, own])).collect();
            let query = Some(self.text.clone());
            let (limit, offset) = (page.limit, page.offset);
            let (missing_actors_count, timings) = (None, timings(took));
            let told = ResponseFields {
                columns,
                types,
                has_more,
                limit,
                offset,
                query,
                missing_actors_count,
                timings,
            };
            Ok(Answered::of_rows(rows, &told, (is_cacheable, events))?)
        })
    }
}

impl SqlQuery {
    /// Runs the query and encodes its rows as a file.
    pub fn file<'a>(
        &'a self,
        engine: &'a Engine,
        owner: &'a ProjectSettings,
        format: Format,
    ) -> BoxFuture<'a, Result<File, InsightError>> {
        Box::pin(async move {
            let view = self.view(engine, owner).await?;
            Ok(engine.file(owner.project, view, &self.text, format).await?)
        })
    }
}

/// Runs a statement without filters and encodes its rows as a file.
pub async fn file(
    engine: &Engine,
    project: ProjectId,
    sql: &str,
    format: Format,
) -> Result<File, QueryError> {
    let view = view_of(engine, project).await?;
    engine.file(project, view, sql, format).await
}

/// The tables of the project as of now that SQL can read, with the members of its cohorts.
pub async fn view_of(engine: &Engine, project: ProjectId) -> Result<View, QueryError> {
    let view = engine.view(project).await?;
    cohort_tables::register(engine, &view, project).await?;
    Ok(view)
}

/// The values of variables, by the names that placeholders use.
pub(crate) fn values_of_variables(variables: BTreeMap<String, Variable>) -> Map<String, Value> {
    let values = variables.into_values();
    values.filter_map(|own| Some((own.code_name?, own.value.unwrap_or_default()))).collect()
}

/// Prefixes the field of an error with `filters.`.
fn within(error: NodeError) -> NodeError {
    match error.field.starts_with("filters") {
        true => error,
        false => NodeError { field: format!("filters.{}", error.field), ..error },
    }
}

impl SqlQuery {
    /// Adds the dependencies of its result.
    pub fn depend(&self, on: &mut Dependence<'_>) {
        // The text is covered by the plan, which determines whether the result is cacheable.
        let Self { text: _, filters } = self;
        filters.iter().for_each(|selection| on.selection(selection, Interval::Day));
    }
}
