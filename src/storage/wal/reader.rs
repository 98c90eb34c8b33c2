//! Log reader: [`Reader`] reads all segments while the writer appends to the newest. It delivers every record
//! once and in order, and reports every record that it cannot deliver.

use std::io;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use crate::wal::files::WalFiles;
use crate::wal::frame::{FRAMES_START, Prefix};
use crate::wal::segment::Cursor;
use crate::wal::{Corruption, Damage, RecordLocation, Sequence, WalError, files, frame, segment};

/// One result of a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A valid record.
    Record {
        /// Its sequence.
        sequence: Sequence,
        /// The appended bytes.
        payload: Vec<u8>,
    },
    /// Records that cannot be delivered. Reading continues after them.
    Corrupt(Corruption),
}

/// A reader with its position in the log.
#[derive(Debug)]
pub struct Reader {
    files: WalFiles,
    /// The last record delivered or reported.
    position: Sequence,
    current: Option<Current>,
}

/// The segment at the position.
#[derive(Debug)]
struct Current {
    first: Sequence,
    path: PathBuf,
    cursor: Cursor,
    prefix: Prefix,
    offset: u64,
}

/// What a segment has at the position of the wanted record.
enum Step {
    Payload(Vec<u8>),
    /// No readable record from this offset on, up to the record `last`.
    Hole {
        offset: u64,
        last: Sequence,
    },
}

impl Reader {
    pub(super) fn new(files: WalFiles, after: Sequence) -> Self {
        Self { files, position: after, current: None }
    }

    /// The last record that was delivered or reported.
    pub fn position(&self) -> Sequence {
        self.position
    }

    /// The next record, or the next damage; `None` once `until` is reached.
    ///
    /// `until` must be durable: later records may be partly written.
    ///
    /// # Errors
    ///
    /// [`WalError::Truncated`] if the record was removed because it is durable elsewhere,
    /// [`WalError::Io`] and [`WalError::Version`]. The position stays.
    pub fn next(&mut self, until: Sequence) -> Result<Option<Item>, WalError> {
        if self.position >= until {
            return Ok(None);
        }
        let wanted = self.position.next();
        let place = self.files.locate(wanted);
        let (first, last) = match place {
            RecordLocation::File { first, last } => (first, last.unwrap_or(until).min(until)),
            RecordLocation::Removed { oldest } => {
                return Err(WalError::Truncated { wanted, oldest });
            }
            RecordLocation::Missing { last } => {
                return Ok(Some(self.missing(last.unwrap_or(until).min(until))));
            }
        };
        if self.current.as_ref().is_none_or(|current| current.first != first) {
            match self.enter(first) {
                Ok(Some(item)) => return Ok(Some(item)),
                Ok(None) => {}
                Err(WalError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                    // If the file was truncated since the lookup, the list has changed: look again. If the
                    // list is the same, something else has removed the file.
                    return match self.files.locate(wanted) == place {
                        true => Ok(Some(self.missing(last))),
                        false => self.next(until),
                    };
                }
                Err(error) => return Err(error),
            }
        }
        let Some(current) = &mut self.current else { return Ok(None) };
        current.deliver(&mut self.position, wanted..=last, &self.files).map(Some)
    }

    /// Opens the segment whose first sequence is `first`; reports damage of its header.
    fn enter(&mut self, first: Sequence) -> Result<Option<Item>, WalError> {
        let path = segment::path_of(self.files.dir(), first);
        let opened = Cursor::open(self.files.disk(), &path, first);
        let (cursor, prefix) = opened.map_err(WalError::io("open", &path))?;
        if let Prefix::Version(version) = prefix {
            return Err(WalError::Version { path, version, known: frame::VERSION });
        }
        let current = Current { first, path, cursor, prefix, offset: FRAMES_START };
        let item = matches!(prefix, Prefix::Damaged(_))
            .then(|| Item::Corrupt(current.corruption(Damage::Header, 0, &self.files)));
        self.current = Some(current);
        Ok(item)
    }

    /// Reports the records up to `last` as lost: their file is missing.
    fn missing(&mut self, last: Sequence) -> Item {
        let damage = Damage::Lost { first: self.position.next(), last };
        self.position = last;
        let path = self.files.dir().to_path_buf();
        Item::Corrupt(Corruption { path, offset: 0, damage, copy: None })
    }
}

impl Current {
    /// Delivers or reports the first of the `wanted` records, all of which belong to this segment.
    fn deliver(
        &mut self,
        position: &mut Sequence,
        wanted: RangeInclusive<Sequence>,
        files: &WalFiles,
    ) -> Result<Item, WalError> {
        let (first, end) = (*wanted.start(), *wanted.end());
        match self.step(wanted).map_err(WalError::io("read", &self.path))? {
            Step::Payload(payload) => {
                *position = first;
                Ok(Item::Record { sequence: first, payload })
            }
            Step::Hole { offset, last } => {
                // If no frame follows the hole, the next segment or the caller proves that it was durable.
                let is_lost = last == end
                    || self.confirms(first).map_err(WalError::io("read", &self.path))?;
                let damage = match is_lost {
                    true => Damage::Lost { first, last },
                    false => Damage::Unconfirmed { first, last },
                };
                *position = last;
                Ok(Item::Corrupt(self.corruption(damage, offset, files)))
            }
        }
    }

    fn step(&mut self, wanted: RangeInclusive<Sequence>) -> io::Result<Step> {
        let (first, end) = (*wanted.start(), *wanted.end());
        if self.prefix == Prefix::Invalid {
            return Ok(Step::Hole { offset: 0, last: end });
        }
        loop {
            let offset = self.offset;
            let mut search_from = offset + 1;
            if let Some(header) = self.cursor.header(offset)? {
                let behind = offset + header.frame_bytes();
                if header.sequence < first {
                    self.offset = behind;
                    continue;
                }
                if header.sequence == first
                    && let Some(payload) = self.cursor.payload(offset, &header)?
                {
                    self.offset = behind;
                    return Ok(Step::Payload(payload));
                }
                if header.sequence == first {
                    search_from = behind;
                } else if header.sequence <= end {
                    return Ok(Step::Hole { offset, last: header.sequence.previous() });
                }
            }
            let search = self.cursor.find(search_from, wanted.clone())?;
            let Some((found, header)) = search.found else {
                return Ok(Step::Hole { offset, last: end });
            };
            self.offset = found;
            if header.sequence > first {
                return Ok(Step::Hole { offset, last: header.sequence.previous() });
            }
        }
    }

    /// Whether a frame after the hole proves that `sequence` was durable.
    fn confirms(&mut self, sequence: Sequence) -> io::Result<bool> {
        let mut offset = self.offset;
        while let Some(header) = self.cursor.header(offset)? {
            if header.durable >= sequence {
                return Ok(true);
            }
            offset += header.frame_bytes();
        }
        Ok(false)
    }

    fn corruption(&self, damage: Damage, offset: u64, files: &WalFiles) -> Corruption {
        let copy = files::quarantine(files.disk(), files.dir(), self.first);
        Corruption { path: self.path.clone(), offset, damage, copy }
    }
}
