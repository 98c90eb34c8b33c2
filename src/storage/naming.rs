//! Names of data files, which contain a log sequence.
//!
//! A name starts with the kind of the file (flushed or merged) and the highest log sequence that any of its
//! rows may come from: `part-00000000000000000042-<uuid>.parquet`. So a reader of the table knows without
//! opening files which of them can contain rows before a given record.

use uuid::Uuid;

use crate::delta::DataFile;
use crate::wal::Sequence;

/// Prefix of files that a flush writes.
const FLUSHED: &str = "part";

/// Prefix of files that a merge writes.
const MERGED: &str = "merge";

/// Digits of a sequence in a name, so that names sort in the order of sequences.
const DIGITS: usize = 20;

/// A new name for a flushed file with rows up to `last`.
pub fn flushed(last: Sequence) -> String {
    named(FLUSHED, last, Uuid::new_v4())
}

/// A new name for a file with the rows of `files`, all of which come from records up to `through`. Files
/// whose names contain no sequence count as `through`.
pub fn merged<'a>(files: impl IntoIterator<Item = &'a DataFile>, through: Sequence) -> String {
    let last = |file: &DataFile| match position(file) {
        Sequence(0) => through,
        known => known,
    };
    let last = files.into_iter().map(last).max().unwrap_or_default();
    named(MERGED, last, Uuid::now_v7())
}

fn named(kind: &str, last: Sequence, id: Uuid) -> String {
    format!("{kind}-{:0DIGITS$}-{id}.parquet", last.0)
}

/// The last log record that any row of a file may come from. 0 for a file whose name contains no sequence, as
/// those of other engines.
pub fn position(file: &DataFile) -> Sequence {
    let name = file.path.rsplit('/').next().unwrap_or_default();
    let rest = [FLUSHED, MERGED].into_iter().find_map(|kind| name.strip_prefix(kind));
    let digits = rest.and_then(|rest| rest.strip_prefix('-')?.split('-').next());
    let digits = digits.filter(|digits| digits.len() == DIGITS);
    Sequence(digits.and_then(|digits| digits.parse().ok()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::{flushed, merged, position};
    use crate::delta::DataFile;
    use crate::delta::stats::FileStats;
    use crate::derived::DerivedTag;
    use crate::exact::ExactColumns;
    use crate::wal::Sequence;

    fn file(name: &str) -> DataFile {
        DataFile {
            path: format!("month=2026-11/{name}"),
            size_bytes: 1,
            rows: 1,
            partition: Some("2026-11".to_owned()),
            stats: FileStats::default(),
            exact: ExactColumns::ALL,
            derived: DerivedTag::default(),
        }
    }

    #[test]
    fn a_name_contains_the_log_sequence() {
        for sequence in [0, 1, 42, u64::MAX] {
            assert_eq!(position(&file(&flushed(Sequence(sequence)))), Sequence(sequence));
        }
        let parts = [7, 3, 9, 1].map(|sequence| file(&flushed(Sequence(sequence))));
        let through = Sequence(20);
        let once = file(&merged(&parts, through));
        assert_eq!(position(&once), Sequence(9));
        let more = [file(&flushed(Sequence(8))), once];
        assert_eq!(position(&file(&merged(&more, through))), Sequence(9));
        assert_ne!(merged(&more, through), merged(&more, through), "a name is used once");
        // Rows of files of other engines may be as late as any in the table.
        let others = [file(&flushed(Sequence(8))), file("part-00000-x.snappy.parquet")];
        assert_eq!(position(&file(&merged(&others, through))), through);
        // Names of earlier versions, and of other engines.
        for name in [
            "merge-0192f0c1-7f3a-7b9e-8a53-1f0e6a9b3c4d.parquet",
            "part-00000-0192f0c1-7f3a-7b9e-8a53-1f0e6a9b3c4d-c000.snappy.parquet",
            "part-99999999999999999999-x.parquet",
            "x.parquet",
            "",
        ] {
            assert_eq!(position(&file(name)), Sequence(0), "{name}");
        }
    }
}
