//! Writes of routes to the metadata store, and the mapping of its errors to responses.

use std::future::Future;

use crate::response::{Attr, Problem};
use weir_app::App;
use weir_base::error::Kind;
use weir_metadata::error::MetadataError;

/// Runs `write` to its end even if the client disconnects. The caller maps the errors.
pub(crate) async fn attempt<T: Send + 'static>(
    app: &App,
    name: &'static str,
    write: impl Future<Output = Result<T, MetadataError>> + Send + 'static,
) -> Result<Result<T, MetadataError>, Problem> {
    let written = app.node.tasks.0.detach(name, write).await;
    written.map_err(|error| Problem::of(error.kind(), &error))
}

/// As [`attempt`], with errors mapped by [`problem`].
pub(crate) async fn write<T: Send + 'static>(
    app: &App,
    name: &'static str,
    write: impl Future<Output = Result<T, MetadataError>> + Send + 'static,
) -> Result<T, Problem> {
    attempt(app, name, write).await?.map_err(problem)
}

/// The response to a failed look-up or write.
pub(crate) fn problem(error: MetadataError) -> Problem {
    match error {
        MetadataError::NotFound(_) => Problem::not_found("Not found."),
        MetadataError::Rejected(violation) => {
            let attr = violation.attr.map_or(Attr::Null, |attr| Attr::Name(attr.into()));
            Problem::new(Kind::Invalid, violation.code, violation.detail).with_attr(attr)
        }
        other => Problem::of(other.kind(), &other),
    }
}

#[cfg(test)]
mod tests {
    use super::problem;
    use crate::response::Response;
    use weir_metadata::error::MetadataError;
    use weir_metadata::flag_rules;

    #[test]
    fn errors_of_the_store_have_their_status() {
        for (error, status) in [
            (MetadataError::NotFound("flag"), 404),
            (MetadataError::Rejected(flag_rules::key_is_taken()), 400),
            (MetadataError::Database(sqlx::Error::PoolClosed), 503),
            (MetadataError::Corrupt { table: "flags", problem: "key".to_owned() }, 500),
        ] {
            let text = error.to_string();
            assert_eq!(Response::from(problem(error)).status, status, "{text}");
        }
    }
}
