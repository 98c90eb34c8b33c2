//! Limit of open files (`RLIMIT_NOFILE`): raises it, and divides descriptors between connections and files.
//! `disk/lib.rs` handles the error of a process that runs out of descriptors.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors reserved for files: those that the identity store keeps open (`identity/tables.rs`), and as
/// many for the log, tables, metadata and queries.
const FOR_FILES: u64 = 512;

/// Connections get at least the limit divided by this, however small the limit is.
const SMALLEST_PART: u64 = 4;

/// Raises the soft limit of open files to the hard limit, and returns it; `None` for no limit. Most systems
/// start with 1024, for programs that use `select`, and allow far more.
pub(super) fn raise() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return current;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum,
        Err(error) => {
            tracing::warn!(%error, "cannot raise the limit of open files; the server accepts fewer connections");
            current
        }
    }
}

/// The number of connections that may be open within this limit of open files, at most `wanted`.
pub(super) fn for_connections(wanted: u32, limit: Option<u64>) -> u32 {
    let Some(limit) = limit else { return wanted };
    let most = limit.saturating_sub(FOR_FILES).max(limit / SMALLEST_PART).max(1);
    match u32::try_from(most) {
        Ok(most) if most < wanted => {
            tracing::warn!(
                wanted,
                connections_max = most,
                open_files_max = limit,
                "the limit of open files allows fewer connections than connections-max, which is lowered"
            );
            most
        }
        _ => wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::for_connections;

    #[test]
    fn connections_leave_descriptors_to_files() {
        for (wanted, limit, expected) in [
            (4096, None, 4096),
            (4096, Some(u64::MAX), 4096),
            (4096, Some(4608), 4096),
            (4096, Some(4607), 4095),
            (4096, Some(1024), 512),
            (100, Some(1024), 100),
            (4096, Some(512), 128),
            (4096, Some(256), 64),
            (4096, Some(1), 1),
        ] {
            assert_eq!(for_connections(wanted, limit), expected, "{wanted} of {limit:?}");
        }
    }
}
