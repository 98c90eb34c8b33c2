//! The lock on a data directory that no server uses, for commands that change it.

use std::path::Path;

use anyhow::{Context, bail};

use weir_app::lock::{DirectoryLock, Holder};

/// Locks an existing data directory.
pub(super) fn lock(data_dir: &Path) -> anyhow::Result<DirectoryLock> {
    let name = data_dir.display();
    if !data_dir.is_dir() {
        bail!("there is no directory {name}");
    }
    match DirectoryLock::take(data_dir).with_context(|| format!("cannot lock {name}"))? {
        Holder::Nobody(lock) => Ok(lock),
        Holder::Server(server) => {
            bail!("{name} is served by process {}: stop it first", server.pid)
        }
        Holder::Unknown => bail!("{name} is in use by another process; try again"),
    }
}
