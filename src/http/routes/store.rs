//! How routes write to the metadata store, and what its errors are to a client.

use std::future::Future;

use crate::app::App;
use crate::error::Kind;
use crate::http::response::Attr;
use crate::http::response::Problem;
use crate::metadata::MetadataError;

/// Runs `write` to its end, whatever becomes of the client.
pub(super) async fn write<T: Send + 'static>(
    app: &App,
    name: &'static str,
    write: impl Future<Output = Result<T, MetadataError>> + Send + 'static,
) -> Result<T, Problem> {
    let written = app.tasks.0.detach(name, write).await;
    written.map_err(|error| Problem::of(error.kind(), &error))?.map_err(problem)
}

/// The answer to a failed look-up or write.
pub(super) fn problem(error: MetadataError) -> Problem {
    match error {
        MetadataError::NotFound(_) => Problem::not_found("Not found."),
        MetadataError::Rejected(violation) => {
            let attr = violation.attr.map_or(Attr::Null, |attr| Attr::Name(attr.into()));
            Problem::new(Kind::Invalid, violation.code, violation.detail).with_attr(attr)
        }
        other => Problem::of(other.kind(), &other),
    }
}

/// The answer to a field that is wrong.
pub(super) fn wrong(
    name: &'static str,
    code: &'static str,
    detail: impl Into<std::borrow::Cow<'static, str>>,
) -> Problem {
    Problem::new(Kind::Invalid, code, detail).with_attr(Attr::Name(name.into()))
}
