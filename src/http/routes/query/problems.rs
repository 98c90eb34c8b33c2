//! Responses to queries that fail: to SQL, and to nodes.

use crate::fields::refused;
use crate::response::Problem;
use weir_api::node::NodeError;
use weir_insights::InsightError;
use weir_query::kernel::error::QueryError;

/// The response to a failed query.
pub(in crate::routes) fn problem(error: QueryError) -> Problem {
    match &error {
        // The operator needs the name of the file; the caller made no mistake.
        QueryError::Damaged(_) => {
            Problem::new(error.kind(), "data_file_damaged", error.to_string()).because(&error)
        }
        QueryError::Store(_) => {
            Problem::new(error.kind(), "object_store_unavailable", error.to_string())
                .because(&error)
        }
        _ => Problem::of(error.kind(), &error),
    }
}

/// The problem for an invalid node. Nested names are joined as in all errors.
pub(in crate::routes) fn invalid(error: &NodeError) -> Problem {
    let name = format!("query__{}", error.field.replace('.', "__"));
    refused(name, "invalid_input", error.detail.clone())
}

/// The problem for a failed query.
pub(in crate::routes) fn insight_problem(error: InsightError) -> Problem {
    match error {
        InsightError::Node(error) => invalid(&error),
        InsightError::Query(error) => problem(error),
    }
}
