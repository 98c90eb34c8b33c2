//! Runs work outside the threads that serve sockets: [`beside`]. Everything that reads or writes a response of
//! unbounded length goes through here, so that other requests do not wait for it; [`objects::answer`] does this for a
//! serializable value.
//!
//! [`objects::answer`]: crate::objects::answer

use crate::response::Problem;
use weir_base::tasks::CpuPool;

/// Runs `work` on `cpu`, the thread pool for responses, and returns its result. Work that has not begun is skipped when
/// the future is dropped.
///
/// # Errors
///
/// Those of `work`; `work` panicked, or the server stops.
pub(super) async fn beside<T: Send + 'static>(
    cpu: &CpuPool,
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    cpu.run(work).await.map_err(|error| Problem::of(error.kind(), &error))?
}
