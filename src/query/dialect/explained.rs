//! Errors of planning with advice on how to fix the query, where DataFusion's messages give none.

use datafusion::common::utils::datafusion_strsim::levenshtein;
use datafusion::error::DataFusionError;
use datafusion::prelude::SessionContext;

use crate::dialect::clickhouse;
use crate::functions;
use crate::kernel::error::{NO_FUNCTION, NO_TABLE, QueryError, READ_ONLY};

/// Keywords that begin statements that change something, in common SQL dialects.
const WRITES: [&str; 38] = [
    "ALTER",
    "ANALYZE",
    "ATTACH",
    "BEGIN",
    "CALL",
    "COMMIT",
    "COPY",
    "CREATE",
    "DEALLOCATE",
    "DELETE",
    "DETACH",
    "DO",
    "DROP",
    "EXECUTE",
    "EXPORT",
    "GRANT",
    "IMPORT",
    "INSERT",
    "KILL",
    "LOAD",
    "LOCK",
    "MERGE",
    "OPTIMIZE",
    "PREPARE",
    "REFRESH",
    "RENAME",
    "REPLACE",
    "RESET",
    "REVOKE",
    "ROLLBACK",
    "SAVEPOINT",
    "SET",
    "START",
    "SYSTEM",
    "TRUNCATE",
    "UPDATE",
    "USE",
    "VACUUM",
];

/// Maximum characters of a name in comparisons and messages.
const NAME_MAX_CHARS: usize = 100;

/// DataFusion's messages for statements that change something, nested within others, such as after EXPLAIN.
const REFUSED: [&str; 3] = ["DDL not supported", "DML not supported", "Statement not supported"];

/// Prefix of planning errors.
const OF_PLANNING: &str = "Error during planning: ";

/// The error of the query `sql` that was planned in `context`.
pub(crate) fn explained(error: DataFusionError, context: &SessionContext, sql: &str) -> QueryError {
    let text = error.find_root().strip_backtrace();
    let verb = first_word(sql);
    if WRITES.contains(&verb.as_str()) {
        return QueryError::Invalid(format!(
            "{verb} is not possible: {READ_ONLY} (SELECT, EXPLAIN, SHOW, DESCRIBE)"
        ));
    }
    let why = text.strip_prefix(OF_PLANNING).unwrap_or(&text);
    if REFUSED.iter().any(|refused| why.starts_with(refused)) {
        return QueryError::Invalid(format!("{READ_ONLY} (SELECT, EXPLAIN, SHOW, DESCRIBE)"));
    }
    if let Some(name) = unknown_table(&text) {
        return QueryError::Invalid(format!(
            "{NO_TABLE}{name}; there are: {}",
            tables(context).join(", ")
        ));
    }
    if let Some(name) = unknown_function(&text) {
        let name = &name.chars().take(NAME_MAX_CHARS).collect::<String>();
        let nearest = nearest_function(name, context);
        return QueryError::Invalid(format!(
            "{NO_FUNCTION}{name}{}",
            nearest.map_or(String::new(), |nearest| format!("; the nearest one is {nearest}"))
        ));
    }
    error.into()
}

/// The first word of a statement in upper case, after whitespace and comments.
fn first_word(sql: &str) -> String {
    let mut rest = sql.trim_start();
    loop {
        let after = match (rest.strip_prefix("--"), rest.strip_prefix("/*")) {
            (Some(comment), _) => comment.split_once('\n'),
            (None, Some(comment)) => comment.split_once("*/"),
            (None, None) => break,
        };
        let Some((_, after)) = after else { return String::new() };
        rest = after.trim_start();
    }
    let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    rest.get(..end).unwrap_or_default().to_ascii_uppercase()
}

/// The table that according to the message `text` is not found.
fn unknown_table(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("table '")?;
    let name = rest.strip_suffix("' not found")?;
    Some(name.strip_prefix("weir.public.").unwrap_or(name))
}

/// The function that according to the message `text` is not found.
fn unknown_function(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("Invalid function '")?;
    rest.split_once('\'').map(|(name, _)| name)
}

/// The function with the most similar name; ClickHouse's functions take precedence.
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

#[cfg(test)]
mod tests {
    use super::first_word;

    #[test]
    fn the_first_word_is_behind_comments() {
        for (sql, expected) in [
            ("INSERT INTO events", "INSERT"),
            (" \n insert\tinto", "INSERT"),
            ("-- why\n/* and\n how */ Update events", "UPDATE"),
            ("DROP", "DROP"),
            ("(SELECT 1)", ""),
            ("-- only this", ""),
            ("/* open", ""),
            ("", ""),
            ("é", ""),
        ] {
            assert_eq!(first_word(sql), expected, "{sql}");
        }
    }
}
