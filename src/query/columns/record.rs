//! What is noted of the files of columns at a clean end, for the next start.

use std::fs;
use std::io;
use std::path::Path;

use serde::Deserialize;
use serde::Serialize;

/// The file that has it.
const FILE: &str = "record.json";

/// All projects.
#[derive(Default, Deserialize, Serialize)]
pub(super) struct Record {
    pub(super) projects: Vec<ProjectRecord>,
}

/// The files of a project.
#[derive(Deserialize, Serialize)]
pub(super) struct ProjectRecord {
    pub(super) project: i64,
    /// The sequence of the store.
    pub(super) applied: u64,
    pub(super) chunks: Vec<ChunkRecord>,
    /// Numbers of persons, as the words of a set.
    pub(super) changed: Vec<u64>,
    /// Properties that were in memory.
    pub(super) asked: Vec<Box<str>>,
}

/// One file.
#[derive(Deserialize, Serialize)]
pub(super) struct ChunkRecord {
    pub(super) file: String,
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) persons: usize,
    pub(super) has_others: bool,
    pub(super) is_full: bool,
    /// Since when it has had what is not so any more, as Unix microseconds.
    pub(super) stale_since: Option<i64>,
}

impl Record {
    /// What was noted, which is true once: it is removed.
    pub(super) fn take(directory: &Path) -> io::Result<Self> {
        let path = directory.join(FILE);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error),
        };
        fs::remove_file(&path)?;
        fs::File::open(directory)?.sync_all()?;
        Ok(serde_json::from_slice(&text).unwrap_or_default())
    }

    /// Notes it, durably.
    pub(super) fn put(&self, directory: &Path) -> io::Result<()> {
        let draft = directory.join("record.tmp");
        fs::write(&draft, serde_json::to_vec(self)?)?;
        fs::File::open(&draft)?.sync_all()?;
        fs::rename(&draft, directory.join(FILE))?;
        fs::File::open(directory)?.sync_all()
    }
}
