//! Spill files of queries that exceed their memory: [`files`]. They belong to one process; files left by a killed
//! process are removed by the next.
//!
//! Plans of several partitions do not spill ([`without`]). The operator that repartitions rows blocks forever if
//! several of its inputs spill at once, and keeps all that it holds: DataFusion's issue 24883, in all releases up to
//! 55.2. Such a plan fails instead and is made again with one partition ([`sparing`](crate::kernel::sparing)).

use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use datafusion::error::DataFusionError;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};

/// The same environment, with the same memory and caches, but without spilling.
///
/// # Errors
///
/// DataFusion refuses the settings.
pub(crate) fn without(environment: &RuntimeEnv) -> Result<Arc<RuntimeEnv>, DataFusionError> {
    let none = DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled);
    RuntimeEnvBuilder::from_runtime_env(environment).with_disk_manager_builder(none).build_arc()
}

/// Where queries spill: to `directory`, which is used by nothing else, or the system's temporary directory; at most
/// `bytes_max` in total.
pub(crate) fn files(directory: Option<&Path>, bytes_max: u64) -> DiskManagerBuilder {
    let mode = match directory.map(|directory| (directory, emptied(directory))) {
        Some((directory, Ok(()))) => DiskManagerMode::Directories(vec![directory.to_path_buf()]),
        Some((directory, Err(error))) => {
            let path = directory.display().to_string();
            let reason = &error as &dyn std::error::Error;
            tracing::warn!(
                error = reason,
                path,
                "cannot use the directory for spill files; queries that need more memory than \
                 query-memory-max-bytes fail until it can be used and the server is restarted"
            );
            DiskManagerMode::Disabled
        }
        None => DiskManagerMode::OsTmpDirectory,
    };
    DiskManagerBuilder::default().with_mode(mode).with_max_temp_directory_size(bytes_max)
}

fn emptied(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::create_dir(directory)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use super::files;

    #[test]
    fn files_of_a_killed_process_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("spill");
        fs::create_dir_all(directory.join("datafusion-x")).unwrap();
        fs::write(directory.join("datafusion-x/left"), "rows").unwrap();
        let manager = Arc::new(files(Some(&directory), 1000).build().unwrap());
        assert!(!directory.join("datafusion-x").exists());
        assert_eq!(manager.max_temp_directory_size(), 1000);
        let own = manager.create_tmp_file("test").unwrap();
        let path = own.path().unwrap();
        assert!(path.starts_with(&directory), "{path:?}");
        drop((own, manager));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0, "a clean end leaves nothing");
    }

    #[test]
    fn a_directory_that_cannot_be_used_costs_spilling_alone() {
        let parent = tempfile::tempdir().unwrap();
        fs::write(parent.path().join("file"), "").unwrap();
        let manager = files(Some(&parent.path().join("file/spill")), 1000).build().unwrap();
        assert!(Arc::new(manager).create_tmp_file("test").is_err());
    }
}
