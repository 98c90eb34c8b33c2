//! Read-only verification of a log that is not opened: reads every frame of every segment, repairs and copies
//! nothing.

use std::io;
use std::path::Path;

use crate::wal::frame::FRAMES_START;
use crate::wal::recovery::Looked;
use crate::wal::{Corruption, Damage, Sequence, WalError, recovery};
use weir_disk::Disk;

/// Result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Segments that were read.
    pub segments: usize,
    /// Valid records.
    pub records: u64,
    /// The first and the last sequence of the segments, the damaged ones included.
    pub range: Option<(Sequence, Sequence)>,
    /// Damage, oldest first.
    pub findings: Vec<Corruption>,
}

/// Verifies the log in `dir`; a missing directory counts as a log without segments. The newest segment is
/// skipped if a server writes to it (`is_written`).
///
/// # Errors
///
/// [`WalError::Io`] and [`WalError::Version`].
pub fn verify(disk: &dyn Disk, dir: &Path, is_written: bool) -> Result<Verified, WalError> {
    let mut segments = match recovery::list(disk, dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        listed => listed.map_err(WalError::io("list", dir))?,
    };
    let newest = if is_written { segments.pop() } else { None };
    let mut verified = Verified { segments: segments.len(), ..Verified::default() };
    for (at, segment) in segments.iter().enumerate() {
        let next = segments.get(at + 1).or(newest.as_ref()).map(|next| next.first.previous());
        let (path, looked) = match recovery::look(disk, dir, *segment) {
            // The server has removed the segment since it was listed: all its records are in files.
            Err(WalError::Io { source, .. })
                if is_written && source.kind() == io::ErrorKind::NotFound =>
            {
                verified.segments -= 1;
                continue;
            }
            looked => looked?,
        };
        let mut found = |offset, damage| {
            let path = path.clone();
            verified.findings.push(Corruption { path, offset, damage, copy: None });
        };
        let mut last = segment.first.previous();
        match looked {
            Looked::Empty => {}
            Looked::Unreadable { last: most } => {
                last = next.unwrap_or(most);
                found(0, Damage::Lost { first: segment.first, last });
            }
            Looked::Frames { records, end, last: whole, damages } => {
                verified.records += records;
                damages.into_iter().for_each(|(offset, damage)| found(offset, damage));
                last = whole;
                if let Some(next) = next.filter(|next| *next > last) {
                    let first = last.next();
                    found(end.max(FRAMES_START), Damage::Lost { first, last: next });
                    last = next;
                }
            }
        }
        let first = verified.range.map_or(segment.first, |(first, _)| first);
        if last >= first {
            verified.range = Some((first, last));
        }
    }
    Ok(verified)
}
