//! Errors of planning in words that say how to go on, where DataFusion's do not.

use datafusion::error::DataFusionError;
use datafusion::prelude::SessionContext;

use crate::query::error::QueryError;

/// The error of a query that was planned in `context`.
pub(super) fn explained(error: DataFusionError, context: &SessionContext) -> QueryError {
    let text = error.find_root().strip_backtrace();
    if let Some(name) = unknown_table(&text) {
        return QueryError::Invalid(format!(
            "there is no table {name}; there are: {}",
            tables(context).join(", ")
        ));
    }
    if text.contains("only supports a single SQL statement") {
        return QueryError::Invalid("a query is one statement; there are more".to_owned());
    }
    error.into()
}

/// The table that `text` says is not found.
fn unknown_table(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("table '")?;
    let name = rest.strip_suffix("' not found")?;
    Some(name.strip_prefix("weir.public.").unwrap_or(name))
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
