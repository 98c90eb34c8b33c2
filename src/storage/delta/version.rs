//! What a table consists of: its specification, files and versions, the changes of it, and the limits of its log.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;

use crate::delta::stats::FileStats;
use crate::derived::DerivedTag;
use crate::exact::ExactColumns;

/// Commits between two checkpoints of the log, as is usual for Delta. A reader that opens the table reads
/// at most this many commit files.
pub const CHECKPOINT_INTERVAL: u64 = 100;

/// Minimum retention of log files that a checkpoint has replaced. Time travel ends much earlier, when a
/// vacuum removes data files.
pub const LOG_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// Minimum number of commits that stay in the log, whatever the clocks say.
///
/// A committer writes the number after the last one that it knows. If a commit with this number existed and
/// was cleaned up, the put would succeed, and the new commit would be lost before a checkpoint. With this
/// minimum, a committer would have to miss this many commits since it last read the log, less than a minute
/// ago.
pub const LOG_COMMITS_MIN: u64 = 1_000;

/// Retention of the tombstones of removed files in the log; the grace of a vacuum must not be longer.
pub const TOMBSTONE_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// Application id whose transaction marks that the table has lost commits. Its number is the version at
/// which the loss was found, its time the time of that. From then on a vacuum keeps older data files that
/// are in no commit: they may belong to the lost commits.
pub(super) const DAMAGE_APP: &str = "weir/damage";

/// Maximum attempts of one commit. Each failed attempt means that another committer succeeded.
pub(super) const ATTEMPTS_MAX: u32 = 100;

/// Specification of a table.
#[derive(Clone, Debug)]
pub struct TableSpec {
    /// Name, for messages.
    pub name: &'static str,
    /// Columns of the data files, without the partition column. The table may have more columns, which a
    /// newer version of the program added. Timestamps are microseconds in UTC; strings may have any Arrow
    /// string type.
    pub schema: SchemaRef,
    /// Text column by whose value the files are partitioned into directories: `month=2026-11/`.
    pub partition_column: Option<&'static str>,
}

impl TableSpec {
    /// Path of a data file in the table, as in `month=2026-11/part-1.parquet`.
    pub fn file_path(&self, partition: Option<&str>, file_name: &str) -> String {
        match (self.partition_column, partition) {
            (Some(column), Some(value)) => format!("{column}={value}/{file_name}"),
            _ => file_name.to_owned(),
        }
    }
}

/// A Parquet file of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct DataFile {
    /// Path in the table, from [`TableSpec::file_path`]. A name must never be reused.
    pub path: String,
    /// Length of the file in bytes.
    pub size_bytes: u64,
    /// Rows in the file.
    pub rows: u64,
    /// Value of the partition column in all rows; letters, digits, `-`, `_` and `.` only.
    pub partition: Option<String>,
    /// Bounds of the columns for pruning.
    pub stats: FileStats,
    /// What a NULL means.
    pub exact: ExactColumns,
    /// Which columns were computed.
    pub derived: DerivedTag,
}

/// An immutable version of the table.
#[derive(Debug)]
pub struct TableVersion {
    /// Number of the commit; the first is 0, there are no gaps.
    pub version: u64,
    /// The live files, by path.
    pub files: Vec<Arc<DataFile>>,
    /// Columns of the data files as the table has them, without the partition column. A file
    /// may lack columns that were added after it.
    pub schema: SchemaRef,
    pub(super) transactions: BTreeMap<String, i64>,
}

impl TableVersion {
    /// The applications that have committed transactions.
    pub fn applications(&self) -> impl Iterator<Item = &str> {
        self.transactions.keys().map(String::as_str)
    }

    /// The last transaction that `app_id` has committed.
    pub fn transaction(&self, app_id: &str) -> Option<i64> {
        self.transactions.get(app_id).copied()
    }
}

/// One atomic change of a table.
#[derive(Clone, Debug)]
pub struct Edit {
    /// Files to add. They must be complete in the store, and used in this edit only.
    pub add: Vec<DataFile>,
    /// Files to remove; they stay on disk until a vacuum.
    pub remove: Vec<Arc<DataFile>>,
    /// Application and transaction number, which must be greater than the application's last.
    pub transaction: Option<(String, i64)>,
    /// Kind of the change.
    pub kind: EditKind,
}

/// Kind of an edit, which decides which concurrent changes it tolerates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EditKind {
    /// New rows; removes nothing. Always valid.
    Append,
    /// The same events in other files: without duplicates, and with current `person_id`s. Committed as no
    /// change of the data although `person_id` may change: otherwise a reader that streams the table would
    /// get all events again. Valid while the removed files are live.
    Compact,
    /// Other rows (or none) instead of those of the removed files. Valid while these are live.
    Replace,
    /// Replacement of the whole table. Valid while the removed files are exactly the live files.
    Overwrite,
}

/// A lost part of a table, which was skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The first affected version.
    pub first: u64,
    /// The last affected version.
    pub last: u64,
    /// What is wrong.
    pub reason: String,
}

/// Logs the damage for the operator.
pub(super) fn report(table: &'static str, damage: &[Damage]) {
    for Damage { first, last, reason } in damage {
        tracing::error!(
            table,
            first,
            last,
            reason,
            "damage in the log of the table: the rows of these versions are lost unless other \
             commits contain them; data files that are in no commit are kept. Restore the files of the \
             table from a backup to get them back"
        );
    }
}
