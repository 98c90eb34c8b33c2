//! [`put_until_known`]: puts an object of the log if nothing is there, again and again until the store has said which of
//! the two it is. Also how headers are read, and reads repeated.

use std::time::Duration;

use bytes::Bytes;
use object_store::{Error, GetOptions, GetRange, ObjectStore, PutMode};

use crate::object_log::format::{HEADER_BYTES, Header, Unreadable, path_of};
use crate::object_log::settings::{Doubt, Pauses};
use crate::wal::{Sequence, WalError};

/// Longest time for one attempt of a put. Another one may overtake it, and does no harm.
const ATTEMPT_MAX: Duration = Duration::from_secs(10);

/// The outcome of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    /// The object is there.
    Done,
    /// An object of another writer is.
    Taken,
}

/// Puts `object`, which begins with `header`, under the number of its first record.
pub(super) async fn put_until_known(
    objects: &dyn ObjectStore,
    header: &Header,
    object: &Bytes,
    pauses: &Pauses,
    doubt: &Doubt,
) -> Result<Put, WalError> {
    let path = path_of(header.first);
    let mut attempt = 0;
    loop {
        let put = objects.put_opts(&path, object.clone().into(), PutMode::Create.into());
        let put = tokio::time::timeout(ATTEMPT_MAX, put).await;
        let late = |late| Error::Generic { store: "log", source: Box::new(late) };
        let failure = match put.map_err(late).and_then(|put| put) {
            Ok(_) => break Ok(Put::Done),
            // The answer to a former attempt may have been lost.
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {
                match header_of(objects, header.first).await {
                    Ok(Ok(found)) if found.writer == header.writer => break Ok(Put::Done),
                    // What is there, and cannot be read, is not what this writer has put.
                    Ok(_) => break Ok(Put::Taken),
                    // Also if nothing is there: the next writer has truncated what this one has put, or the store refuses
                    // a put beside another attempt that is under way.
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        doubt(true);
        if attempt == 0 {
            let error = &failure as &dyn std::error::Error;
            tracing::warn!(
                error,
                first = header.first.0,
                "the outcome of a put to the log is unknown; it is repeated until it is known, and requests wait"
            );
        }
        if !pauses.pause(attempt).await {
            return Err(WalError::Store { action: "write to", source: failure });
        }
        attempt = attempt.saturating_add(1);
    }
    .inspect(|_| {
        doubt(false);
        if attempt > 0 {
            tracing::info!(attempt, first = header.first.0, "the outcome of the put is known");
        }
    })
}

/// The header of the object whose first record is `first`.
pub(super) async fn header_of(
    objects: &dyn ObjectStore,
    first: Sequence,
) -> Result<Result<Header, Unreadable>, Error> {
    head_of(objects, first).await.map(|(header, _)| header)
}

/// The same, and the size of the object.
pub(super) async fn head_of(
    objects: &dyn ObjectStore,
    first: Sequence,
) -> Result<(Result<Header, Unreadable>, u64), Error> {
    let end = u64::try_from(HEADER_BYTES).unwrap_or(u64::MAX);
    let options = GetOptions { range: Some(GetRange::Bounded(0..end)), ..GetOptions::default() };
    let got = objects.get_opts(&path_of(first), options).await?;
    let bytes = got.meta.size;
    Ok((Header::decode(&got.bytes().await?, first), bytes))
}

/// Repeats a request for reading until it succeeds, or the object is not there.
pub(super) async fn read_until_known<T>(
    pauses: &Pauses,
    mut read: impl AsyncFnMut() -> Result<T, Error>,
) -> Result<T, WalError> {
    let mut attempt = 0;
    loop {
        let error = match read().await {
            Ok(read) => return Ok(read),
            Err(error) => error,
        };
        if matches!(error, Error::NotFound { .. }) || !pauses.pause(attempt).await {
            return Err(WalError::Store { action: "read", source: error });
        }
        attempt = attempt.saturating_add(1);
    }
}
