//! PostgreSQL's catalog: what clients ask to learn which tables, columns, keys and types there are. [`concerns`] tells
//! statements about it apart, which [`Catalog`] plans over the tables of the project and the schemas `pg_catalog` and
//! `information_schema`. Both are made of the tables that the key sees anyway, for each statement, and have nothing of
//! other projects.

mod functions;
mod information;
mod live;
mod relations;
mod schemas;
mod table;

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::catalog::SchemaProvider;

use crate::catalog::relations::{Relation, relations};
use crate::catalog::schemas::{Information, PgCatalog, is_empty};
use crate::lexer::{Lexeme, tokens};
use weir_query::dialect::postgres::CATALOG;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::view::View;

/// The schema of the standard's catalog.
const INFORMATION: &str = "information_schema";

/// Functions of PostgreSQL by which a statement is one about the catalog, even without a table of it.
const FUNCTIONS: [&str; 26] = [
    "col_description",
    "current_catalog",
    "current_database",
    "current_role",
    "current_schema",
    "current_schemas",
    "current_setting",
    "current_user",
    "format_type",
    "has_any_column_privilege",
    "has_column_privilege",
    "has_database_privilege",
    "has_schema_privilege",
    "has_table_privilege",
    "inet_server_addr",
    "obj_description",
    "quote_ident",
    "regclass",
    "regtype",
    "session_user",
    "set_config",
    "shobj_description",
    "to_regclass",
    "to_regtype",
    "txid_current",
    "version",
];

/// Whether a statement is about the catalog.
pub(crate) fn concerns(sql: &str) -> bool {
    let tokens = tokens(sql);
    let is_about = |at: usize, name: &str| {
        let is_qualified =
            at.checked_sub(1).and_then(|at| tokens.get(at)).is_some_and(|own| own.is_sign("."));
        let is_known = FUNCTIONS.contains(&name) && !is_qualified;
        // A column may be named like a function, which has parentheses behind its name.
        let is_call = tokens.get(at.saturating_add(1)).is_some_and(|own| own.is_sign("("));
        let needs_call = matches!(name, "version" | "quote_ident" | "format_type");
        name == CATALOG
            || name == INFORMATION
            || name.starts_with("pg_")
            || is_known && (is_call || !needs_call)
    };
    tokens.iter().enumerate().any(|(at, own)| match own.lexeme {
        Lexeme::Word | Lexeme::Quoted => own.name().is_some_and(|name| is_about(at, &name)),
        _ => false,
    })
}

/// What the catalog is made of.
#[derive(Debug)]
pub(crate) struct Facts {
    /// The name of the database, as the client named it.
    pub(crate) database: String,
    /// The name of the user, as the client named it.
    pub(crate) user: String,
    /// Number of the session.
    pub(crate) process: i32,
    /// The settings of the session.
    pub(crate) settings: BTreeMap<String, String>,
}

/// See the head of this file.
#[derive(Debug)]
struct Catalog {
    facts: Facts,
    relations: Vec<Relation>,
}

/// The tables of a view, and the catalog of them.
///
/// # Errors
///
/// The engine refuses a table or a function: a bug.
pub(crate) fn with_catalog(view: View, facts: Facts) -> Result<View, QueryError> {
    let relations = relations(&view);
    let catalog = Arc::new(Catalog { facts, relations });
    let functions = functions::all(&catalog);
    let schemas: Vec<(&'static str, Arc<dyn SchemaProvider>)> = vec![
        (CATALOG, Arc::new(PgCatalog(Arc::clone(&catalog)))),
        (INFORMATION, Arc::new(Information(catalog))),
    ];
    view.with_schemas(schemas, functions)
}

/// Whether a table of the catalog never has rows.
pub(crate) fn has_no_rows(table: &str) -> bool {
    is_empty(table)
}

#[cfg(test)]
mod tests {
    use super::concerns;

    #[test]
    fn statements_about_the_catalog_are_told_apart() {
        for (sql, expected) in [
            ("SELECT * FROM events", false),
            ("SELECT version FROM events", false),
            ("SELECT version()", true),
            ("SELECT 'pg_class', $$information_schema$$", false),
            ("SELECT relname FROM pg_class", true),
            ("SELECT relname FROM pg_catalog.pg_class", true),
            ("SELECT 1 FROM \"information_schema\".tables", true),
            ("select current_schema", true),
            ("SELECT properties.version FROM events", false),
            ("SELECT properties.current_user FROM events", false),
            ("SELECT c.oid::regclass FROM x c", true),
        ] {
            assert_eq!(concerns(sql), expected, "{sql}");
        }
    }
}
