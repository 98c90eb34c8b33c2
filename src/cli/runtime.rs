//! The asynchronous runtime of commands other than the server.

/// A tokio runtime for commands that mostly wait for I/O.
pub(super) fn small_runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}
