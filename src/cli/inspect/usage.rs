//! Disk space by part of a data directory: [`Usage`].

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::{fs, io};

/// Size of the blocks that `stat` counts.
const BLOCK_BYTES: u64 = 512;

/// Paths of the parts; all other files count as the rest.
const PARTS: [&str; 6] = [
    "tables/events",
    "tables/persons",
    "tables/person_distinct_ids",
    "wal",
    "identity",
    "query-spill",
];

/// Bytes that files take on disk, preallocated space included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Usage {
    /// Name and bytes of each part; the last one is the rest.
    pub(super) parts: Vec<(&'static str, u64)>,
    /// Bytes of all parts.
    pub(super) total: u64,
}

impl Usage {
    /// Walks the directory. Files that a running server removes meanwhile do not count.
    pub(super) fn of(data_dir: &Path) -> io::Result<Self> {
        let total = bytes_in(data_dir)?;
        let mut parts = Vec::new();
        for part in PARTS {
            parts.push((part, bytes_in(&data_dir.join(part))?));
        }
        let named: u64 = parts.iter().map(|(_, bytes)| bytes).sum();
        parts.push(("metadata and others", total.saturating_sub(named)));
        Ok(Self { parts, total })
    }
}

fn bytes_in(path: &Path) -> io::Result<u64> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let mut bytes = metadata.blocks().saturating_mul(BLOCK_BYTES);
    if metadata.is_dir() {
        let entries = match fs::read_dir(path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(error),
        };
        for entry in entries {
            bytes = bytes.saturating_add(bytes_in(&entry?.path())?);
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::Usage;

    #[test]
    fn every_file_counts_for_its_part() {
        let directory = tempfile::tempdir().unwrap();
        for (name, bytes) in [
            ("tables/events/month=2026-11/a.parquet", 100_000),
            ("wal/00000000000000000001.wal", 50_000),
            ("metadata.db", 20_000),
        ] {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, vec![1; bytes]).unwrap();
        }
        let usage = Usage::of(directory.path()).unwrap();
        let of = |name: &str| usage.parts.iter().find(|(part, _)| *part == name).unwrap().1;
        for (part, least) in
            [("tables/events", 100_000), ("wal", 50_000), ("metadata and others", 20_000)]
        {
            assert!((least..least + 50_000).contains(&of(part)), "{part}: {usage:?}");
        }
        assert_eq!((of("identity"), of("tables/persons")), (0, 0));
        assert_eq!(usage.parts.iter().map(|(_, bytes)| bytes).sum::<u64>(), usage.total);
    }
}
