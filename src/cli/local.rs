//! The server that runs on a data directory of this machine, for commands that ask it.

use std::path::Path;

use anyhow::bail;

use weir_app::lock::{DirectoryLock, Holder, ServerAddress};

/// The server on a data directory. `advice` is what to do if there is none.
///
/// # Errors
///
/// No server runs there, or the lock of the directory cannot be read.
pub(super) fn server(data_dir: &Path, advice: &str) -> anyhow::Result<ServerAddress> {
    let name = data_dir.display();
    if !data_dir.is_dir() {
        bail!("no server runs on {name}, which is no directory: {advice}");
    }
    match DirectoryLock::share(data_dir)? {
        Holder::Server(server) => Ok(server),
        Holder::Nobody(_) | Holder::Unknown => bail!("no server runs on {name}: {advice}"),
    }
}
