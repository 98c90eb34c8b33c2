//! Errors of planning in words that say how to go on, where DataFusion's do not.

use datafusion::common::utils::datafusion_strsim::levenshtein;
use datafusion::error::DataFusionError;
use datafusion::prelude::SessionContext;

use crate::query::clickhouse;
use crate::query::error::QueryError;
use crate::query::functions;

/// The error of a query that was planned in `context`.
pub(super) fn explained(error: DataFusionError, context: &SessionContext) -> QueryError {
    let text = error.find_root().strip_backtrace();
    if let Some(name) = unknown_table(&text) {
        return QueryError::Invalid(format!(
            "there is no table {name}; there are: {}",
            tables(context).join(", ")
        ));
    }
    if let Some(name) = unknown_function(&text) {
        let nearest = nearest_function(name, context);
        return QueryError::Invalid(format!(
            "there is no function {name}{}",
            nearest.map_or(String::new(), |nearest| format!("; the nearest one is {nearest}"))
        ));
    }
    error.into()
}

/// The table that `text` says is not found.
fn unknown_table(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("table '")?;
    let name = rest.strip_suffix("' not found")?;
    Some(name.strip_prefix("weir.public.").unwrap_or(name))
}

/// The function that `text` says is not found.
fn unknown_function(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("Invalid function '")?;
    rest.split_once('\'').map(|(name, _)| name)
}

/// The function whose name is most like another one, of ClickHouse first.
fn nearest_function(name: &str, context: &SessionContext) -> Option<String> {
    let state = context.state();
    let here = state
        .scalar_functions()
        .keys()
        .chain(state.aggregate_functions().keys())
        .chain(state.window_functions().keys());
    let known = clickhouse::names().chain(functions::names()).map(str::to_owned);
    let known = known.chain(here.cloned());
    let distance = |own: &str| levenshtein(&own.to_lowercase(), name);
    known.min_by_key(|own| distance(own))
}

/// The names of the tables, sorted.
fn tables(context: &SessionContext) -> Vec<String> {
    let mut names: Vec<String> = context
        .catalog("weir")
        .and_then(|catalog| catalog.schema("public"))
        .map(|schema| schema.table_names())
        .unwrap_or_default();
    names.sort_unstable();
    names
}
