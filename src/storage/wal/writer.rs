//! Log writer: [`Wal`] appends records and syncs them. One thread owns it. All calls block.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::wal::files::{Segment, WalFiles};
use crate::wal::frame::{FRAMES_START, FrameHeader, Salt, SegmentHeader};
use crate::wal::segment::CreateError;
use crate::wal::{Elsewhere, Recovered, Sequence, WalError, WalSettings, frame, recovery, segment};
use weir_disk::{Disk, DiskFile};

/// Parts of at most this size are copied into the write buffer, so that a small record costs a copy and not a
/// system call. A copy of 16 KiB takes about as long as a system call.
const GATHER_MAX_BYTES: usize = 16 * 1024;

/// Size of the write buffer at which it is written: large enough to make the system call cheap per byte.
const BUFFER_MAX_BYTES: usize = 256 * 1024;

/// The log, open for writing.
#[derive(Debug)]
pub struct Wal {
    files: WalFiles,
    segment_max_bytes: u64,
    salt: u64,
    /// The newest segment; `None` until the first append, so that the log opens on a full disk.
    active: Option<Active>,
    appended: Sequence,
    durable: Sequence,
    /// Bytes since the last sync.
    unsynced_bytes: u64,
    is_poisoned: bool,
}

#[derive(Debug)]
struct Active {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    salt: Salt,
    len_bytes: u64,
    /// File offset of the buffered bytes.
    offset: u64,
    buffer: Vec<u8>,
    /// Whether the segment was made from a spare, or a move to a spare has failed already.
    is_spare: bool,
}

impl Wal {
    /// Opens the log, and creates it if there is none. Records up to [`Recovered::last`] are then durable;
    /// the next record has the next sequence.
    ///
    /// An empty log continues after the sequences of `elsewhere`. `salt` must be random.
    ///
    /// # Errors
    ///
    /// [`WalError::Io`] and [`WalError::Version`]. Damaged contents are no error: see
    /// [`Recovered::corruptions`].
    pub fn open(
        disk: Arc<dyn Disk>,
        settings: WalSettings,
        elsewhere: Elsewhere,
        salt: u64,
    ) -> Result<(Self, Recovered), WalError> {
        let (segments, recovered) = recovery::recover(&*disk, &settings.dir, elsewhere)?;
        let end = recovered.last;
        let wal = Self {
            files: WalFiles::new(disk, settings.dir, segments, elsewhere.durable, end),
            segment_max_bytes: settings.segment_max_bytes,
            salt,
            active: None,
            appended: end,
            durable: end,
            unsynced_bytes: 0,
            is_poisoned: false,
        };
        Ok((wal, recovered))
    }

    /// Appends one record, whose payload is the concatenation of `parts`, and returns its sequence. It is
    /// durable, and readable, after the next [`Self::sync`].
    ///
    /// # Errors
    ///
    /// After [`WalError::NoSegment`] and [`WalError::TooLarge`] nothing has changed. Any other error
    /// poisons the log.
    pub fn append(&mut self, parts: &[&[u8]]) -> Result<Sequence, WalError> {
        self.check()?;
        let bytes = parts.iter().map(|part| part.len()).sum();
        let length = u32::try_from(bytes)
            .ok()
            .filter(|length| *length <= frame::PAYLOAD_MAX_BYTES)
            .ok_or(WalError::TooLarge { bytes, max_bytes: frame::PAYLOAD_MAX_BYTES })?;
        let (sequence, frame_bytes) = (self.appended.next(), frame::frame_bytes(length));
        if !self.active.as_ref().is_some_and(|active| active.has_room(frame_bytes)) {
            self.rotate(frame_bytes)?;
        } else if self.files.has_spare() {
            self.move_to_spare(frame_bytes)?;
        }
        let durable = self.durable;
        self.write(|active| {
            let payload_checksum = active.salt.checksum_parts(parts);
            let header = FrameHeader { length, payload_checksum, sequence, durable };
            active.put(&header.encode(active.salt))?;
            parts.iter().try_for_each(|part| active.put(part))
        })?;
        self.appended = sequence;
        self.unsynced_bytes = self.unsynced_bytes.saturating_add(frame_bytes);
        Ok(sequence)
    }

    /// Makes all appended records durable.
    ///
    /// # Errors
    ///
    /// [`WalError::Io`]: the state of all records since the last sync is unknown, and the log is poisoned;
    /// [`WalError::Poisoned`] from then on.
    pub fn sync(&mut self) -> Result<(), WalError> {
        self.check()?;
        if self.durable < self.appended {
            self.write(|active| {
                active.flush()?;
                active.file.sync_data()
            })?;
            self.durable = self.appended;
            self.files.note_sync(std::mem::take(&mut self.unsynced_bytes));
        }
        Ok(())
    }

    /// The last appended record, durable or not.
    pub fn last_appended(&self) -> Sequence {
        self.appended
    }

    /// The last record that is durable.
    pub fn last_durable(&self) -> Sequence {
        self.durable
    }

    /// A handle on the files, for readers and truncation.
    pub fn files(&self) -> WalFiles {
        self.files.clone()
    }

    fn check(&self) -> Result<(), WalError> {
        if self.is_poisoned { Err(WalError::Poisoned) } else { Ok(()) }
    }

    /// Writes to the newest segment; a failure poisons the log.
    fn write(&mut self, write: impl FnOnce(&mut Active) -> io::Result<()>) -> Result<(), WalError> {
        let Some(active) = &mut self.active else { return Ok(()) };
        write(active).map_err(|source| {
            self.is_poisoned = true;
            WalError::io("write", &active.path)(source)
        })
    }

    /// Makes all previous records durable, then creates a segment with space for `frame_bytes`.
    fn rotate(&mut self, frame_bytes: u64) -> Result<(), WalError> {
        self.sync()?;
        let first = self.appended.next();
        let header = SegmentHeader { salt: mix(self.salt, first), first };
        let len_bytes = self.segment_max_bytes.max(FRAMES_START.saturating_add(frame_bytes));
        let path = segment::path_of(self.files.dir(), first);
        let created = segment::create(self.files.disk(), self.files.dir(), header, len_bytes);
        self.files.forget_spare();
        let (file, is_spare) = created.map_err(|error| match error {
            CreateError::Refused(source) => WalError::NoSegment { bytes: len_bytes, source },
            CreateError::Failed(source) => {
                self.is_poisoned = true;
                WalError::io("create", &path)(source)
            }
        })?;
        self.files.push(Segment { first, len_bytes });
        let buffer = self.active.take().map(|active| active.buffer).unwrap_or_default();
        let salt = Salt::new(header.salt);
        let offset = FRAMES_START;
        self.active = Some(Active { file, path, salt, len_bytes, offset, buffer, is_spare });
        Ok(())
    }

    /// Leaves a segment that was created without a spare, as the first of a log is: each sync to it costs
    /// twice as much, and with little traffic it would be used for days.
    fn move_to_spare(&mut self, frame_bytes: u64) -> Result<(), WalError> {
        if self.active.as_ref().is_none_or(|active| active.is_spare) {
            return Ok(());
        }
        match self.rotate(frame_bytes) {
            // The current segment has space.
            Ok(()) | Err(WalError::NoSegment { .. }) => {}
            Err(error) => return Err(error),
        }
        if let Some(active) = &mut self.active {
            // Tried once: if this spare is unusable, so are later ones.
            active.is_spare = true;
        }
        Ok(())
    }
}

impl Active {
    fn has_room(&self, frame_bytes: u64) -> bool {
        let used = self.offset.saturating_add(segment::to_u64(self.buffer.len()));
        used.saturating_add(frame_bytes) <= self.len_bytes
    }

    /// Copies small pieces into the buffer, and writes large ones directly.
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() > GATHER_MAX_BYTES {
            self.flush()?;
            self.file.write_all_at(bytes, self.offset)?;
            self.offset = self.offset.saturating_add(segment::to_u64(bytes.len()));
            return Ok(());
        }
        if self.buffer.len().saturating_add(bytes.len()) > BUFFER_MAX_BYTES {
            self.flush()?;
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.buffer.is_empty() {
            self.file.write_all_at(&self.buffer, self.offset)?;
            self.offset = self.offset.saturating_add(segment::to_u64(self.buffer.len()));
            self.buffer.clear();
        }
        Ok(())
    }
}

/// Derives the salt of a segment (finalizer of `SplitMix64`).
fn mix(salt: u64, first: Sequence) -> u64 {
    let z = salt.wrapping_add(first.0.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
