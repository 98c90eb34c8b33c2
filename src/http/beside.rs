//! Work beside the threads of sockets: [`beside`]. All that reads or writes an answer of any length goes through here,
//! so that nobody else waits for it; to write a value of some type there is [`csv::answer`].
//!
//! [`csv::answer`]: crate::csv::answer

use crate::response::Problem;
use weir_base::tasks::CpuPool;

/// What `work` gives, which is done by `cpu`, the threads for answers. Work that has not begun is skipped when the future
/// is dropped.
///
/// # Errors
///
/// Those of `work`; it panicked, or the server stops.
pub(super) async fn beside<T: Send + 'static>(
    cpu: &CpuPool,
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    cpu.run(work).await.map_err(|error| Problem::of(error.kind(), &error))?
}
