//! One segment file: name, creation, and a [`Cursor`] that finds frames in it. It decides whether a frame is
//! valid; `recovery` and `reader` decide what a missing one means.

use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use crate::wal::frame::{
    FRAME_HEADER_BYTES, FrameHeader, PREFIX_BYTES, Prefix, Salt, SegmentHeader,
};
use crate::wal::{Sequence, spare};
use weir_disk::{Disk, DiskFile, is_out_of_descriptors};

/// Digits of the largest `u64`, so that file names sort in the order of sequences.
const NAME_DIGITS: usize = 20;

const EXTENSION: &str = "wal";

/// Bytes that a cursor reads per call: few calls for small frames, and little memory.
const WINDOW_BYTES: usize = 256 * 1024;

/// Path of the segment whose first sequence is `first`, such as `00000000000000000001.wal`.
pub(super) fn path_of(dir: &Path, first: Sequence) -> PathBuf {
    dir.join(format!("{first:0width$}.{EXTENSION}", width = NAME_DIGITS))
}

/// The first sequence of the segment with this path; `None` if it is no segment's path.
pub(super) fn first_of(path: &Path) -> Option<Sequence> {
    let digits = path.file_stem()?.to_str()?;
    let is_name = path.extension()? == EXTENSION
        && digits.len() == NAME_DIGITS
        && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_name { digits.parse().ok().map(Sequence) } else { None }
}

/// Why a segment could not be created.
pub(super) enum CreateError {
    /// The file cannot be created: no disk space, no descriptor, no permission. Nothing is left that could be
    /// mistaken for a segment.
    Refused(io::Error),
    /// Its header or name may or may not be on the disk.
    Failed(io::Error),
}

impl CreateError {
    /// For an error of renaming the spare. The disk may fail after the name was changed.
    fn of_rename(error: io::Error) -> Self {
        let kind = error.kind();
        let is_refused = is_out_of_descriptors(&error)
            || matches!(
                kind,
                io::ErrorKind::PermissionDenied
                    | io::ErrorKind::ReadOnlyFilesystem
                    | io::ErrorKind::StorageFull
                    | io::ErrorKind::QuotaExceeded
                    | io::ErrorKind::OutOfMemory
            );
        if is_refused { Self::Refused(error) } else { Self::Failed(error) }
    }
}

/// Creates a segment of `len_bytes`, from the spare if there is a usable one, and returns whether it was the
/// spare. When this returns, name and header are durable, and the segment may take frames.
pub(super) fn create(
    disk: &dyn Disk,
    dir: &Path,
    header: SegmentHeader,
    len_bytes: u64,
) -> Result<(Box<dyn DiskFile>, bool), CreateError> {
    let path = path_of(dir, header.first);
    // Opened first, so that running out of descriptors leaves no name that has to be synced.
    let names = disk.open_dir(dir).map_err(CreateError::Refused)?;
    let (file, is_spare) = match headed_spare(disk, dir, header, len_bytes) {
        Some(spare) => {
            // A rename would replace an existing segment silently.
            check_free(disk, &path)?;
            disk.rename(&spare::path(dir), &path).map_err(CreateError::of_rename)?;
            (spare, true)
        }
        None => {
            let file = reserve(disk, &path, len_bytes)?;
            write_header(&*file, header).map_err(CreateError::Failed)?;
            (file, false)
        }
    };
    names.sync().map_err(CreateError::Failed)?;
    Ok((file, is_spare))
}

/// The spare with a durable header. `None` if there is none, or it cannot be read or written: it contains
/// no record, so the log continues in another file. If a damaged spare were an error, it would stop the log
/// after every restart.
fn headed_spare(
    disk: &dyn Disk,
    dir: &Path,
    header: SegmentHeader,
    len_bytes: u64,
) -> Option<Box<dyn DiskFile>> {
    let spare = spare::open(disk, dir, len_bytes).ok().flatten()?;
    match write_header(&*spare, header) {
        Ok(()) => Some(spare),
        Err(error) => {
            tracing::warn!(%error, "cannot write the spare segment of the log; a new segment file is created");
            // Removed so that another one is made. If the removal fails, the next segment cannot use it
            // either.
            let _ = disk.remove(&spare::path(dir));
            None
        }
    }
}

fn write_header(file: &dyn DiskFile, header: SegmentHeader) -> io::Result<()> {
    file.write_all_at(&header.encode(), 0)?;
    file.sync_data()
}

fn check_free(disk: &dyn Disk, path: &Path) -> Result<(), CreateError> {
    match disk.metadata(path) {
        Ok(_) => Err(CreateError::Failed(io::ErrorKind::AlreadyExists.into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(CreateError::Refused(error)),
    }
}

fn reserve(disk: &dyn Disk, path: &Path, len: u64) -> Result<Box<dyn DiskFile>, CreateError> {
    let file = disk.create_new(path).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => CreateError::Failed(error),
        _ => CreateError::Refused(error),
    })?;
    match file.allocate(len) {
        Ok(()) => Ok(file),
        Err(error) => {
            // An empty segment that stayed would claim the sequences that still fit into the previous
            // segment.
            disk.remove(path).map_err(CreateError::Failed)?;
            Err(CreateError::Refused(error))
        }
    }
}

/// Result of a search for a frame.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Search {
    /// The first valid frame, and its offset.
    pub(super) found: Option<(u64, FrameHeader)>,
    /// The highest durable sequence in the headers that the search passed, the found one included.
    pub(super) durable: Sequence,
}

/// Reads a segment at any offset, also while it is written: bytes that do not look valid are read a second
/// time before they count as damaged.
#[derive(Debug)]
pub(super) struct Cursor {
    file: Box<dyn DiskFile>,
    salt: Salt,
    len_bytes: u64,
    /// Read buffer. Never shrinks; its first `window_len` bytes are valid.
    window: Vec<u8>,
    window_len: usize,
    window_start: u64,
}

impl Cursor {
    /// Opens the segment whose first sequence is `first`. The cursor is usable only if the prefix has a
    /// header.
    pub(super) fn open(
        disk: &dyn Disk,
        path: &Path,
        first: Sequence,
    ) -> io::Result<(Self, Prefix)> {
        let file = disk.open(path)?;
        let len_bytes = file.len_bytes()?;
        let mut cursor = Self {
            file,
            salt: Salt::new(0),
            len_bytes,
            window: Vec::new(),
            window_len: 0,
            window_start: 0,
        };
        let prefix = Prefix::decode(cursor.view(0, PREFIX_BYTES)?, first);
        if let Prefix::Valid(header) | Prefix::Damaged(header) = prefix {
            cursor.salt = Salt::new(header.salt);
        }
        Ok((cursor, prefix))
    }

    pub(super) fn file(&self) -> &dyn DiskFile {
        &*self.file
    }

    pub(super) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// The frame header at `offset`, if there is a valid one and the file is long enough for its
    /// payload.
    pub(super) fn header(&mut self, offset: u64) -> io::Result<Option<FrameHeader>> {
        if let Some(header) = self.header_in_window(offset)? {
            return Ok(Some(header));
        }
        self.window_len = 0;
        self.header_in_window(offset)
    }

    fn header_in_window(&mut self, offset: u64) -> io::Result<Option<FrameHeader>> {
        let (salt, free_bytes) = (self.salt, self.len_bytes.saturating_sub(offset));
        let header = FrameHeader::decode(self.view(offset, FRAME_HEADER_BYTES)?, salt);
        Ok(header.filter(|header| header.frame_bytes() <= free_bytes))
    }

    /// The payload of the frame at `offset` with this `header`; `None` if it is damaged.
    pub(super) fn payload(
        &mut self,
        offset: u64,
        header: &FrameHeader,
    ) -> io::Result<Option<Vec<u8>>> {
        let start = offset.saturating_add(to_u64(FRAME_HEADER_BYTES));
        let length = to_usize(u64::from(header.length))?;
        if length <= WINDOW_BYTES {
            let payload = self.view(start, length)?.to_vec();
            if self.is_payload(header, &payload) {
                return Ok(Some(payload));
            }
        }
        let mut payload = vec![0; length];
        let read = self.file.read_at(&mut payload, start)?;
        payload.truncate(read);
        Ok(self.is_payload(header, &payload).then_some(payload))
    }

    fn is_payload(&self, header: &FrameHeader, payload: &[u8]) -> bool {
        to_u64(payload.len()) == u64::from(header.length)
            && self.salt.checksum(payload) == header.payload_checksum
    }

    /// Finds the first valid frame at or after `from` with a sequence in `wanted`.
    ///
    /// Every offset is tried, except those inside frames with a valid header: a payload may contain bytes
    /// that look like a frame.
    pub(super) fn find(
        &mut self,
        from: u64,
        wanted: RangeInclusive<Sequence>,
    ) -> io::Result<Search> {
        let mut search = Search::default();
        let mut offset = from;
        self.window_len = 0;
        while let Some((at, header)) = self.next_header(offset, &wanted)? {
            search.durable = search.durable.max(header.durable);
            if self.payload(at, &header)?.is_some() {
                search.found = Some((at, header));
                break;
            }
            offset = at.saturating_add(header.frame_bytes());
        }
        Ok(search)
    }

    fn next_header(
        &mut self,
        from: u64,
        wanted: &RangeInclusive<Sequence>,
    ) -> io::Result<Option<(u64, FrameHeader)>> {
        let (salt, len_bytes) = (self.salt, self.len_bytes);
        let mut offset = from;
        while offset.saturating_add(to_u64(FRAME_HEADER_BYTES)) <= len_bytes {
            let bytes = self.view(offset, WINDOW_BYTES)?;
            let candidates = if is_zero(bytes) { &[] } else { bytes };
            for (at, bytes) in candidates.windows(FRAME_HEADER_BYTES).enumerate() {
                if !FrameHeader::sequence_at(bytes).is_some_and(|found| wanted.contains(&found)) {
                    continue;
                }
                let at = offset.saturating_add(to_u64(at));
                let fits = |header: &FrameHeader| header.frame_bytes() <= len_bytes - at;
                if let Some(header) = FrameHeader::decode(bytes, salt).filter(fits) {
                    return Ok(Some((at, header)));
                }
            }
            // A header may cross the end of the bytes seen so far.
            let seen = bytes.len().saturating_sub(FRAME_HEADER_BYTES - 1);
            offset = offset.saturating_add(to_u64(seen.max(1)));
        }
        Ok(None)
    }

    /// The offset after the last nonzero byte at or after `from`; `from` if there is none.
    pub(super) fn end_of_bytes(&mut self, from: u64) -> io::Result<u64> {
        let (mut offset, mut end) = (from, from);
        while offset < self.len_bytes {
            let bytes = self.view(offset, WINDOW_BYTES)?;
            if bytes.is_empty() {
                break;
            }
            let after_last = if is_zero(bytes) {
                None
            } else {
                bytes.iter().rposition(|byte| *byte != 0).map(|last| last + 1)
            };
            let next = offset.saturating_add(to_u64(bytes.len()));
            if let Some(after_last) = after_last {
                end = offset.saturating_add(to_u64(after_last));
            }
            offset = next;
        }
        Ok(end)
    }

    /// Exactly `len` bytes from `offset`, or fewer at the end of the file.
    fn view(&mut self, offset: u64, len: usize) -> io::Result<&[u8]> {
        let window_end = self.window_start.saturating_add(to_u64(self.window_len));
        let end = offset.saturating_add(to_u64(len));
        if offset < self.window_start || end > window_end {
            let rest = to_usize(self.len_bytes.saturating_sub(offset))?;
            let size = rest.min(len.max(WINDOW_BYTES));
            if self.window.len() < size {
                self.window = vec![0; size];
            }
            let window = self.window.get_mut(..size).unwrap_or_default();
            self.window_len = 0;
            self.window_len = self.file.read_at(window, offset)?;
            self.window_start = offset;
        }
        let from = to_usize(offset - self.window_start)?;
        let bytes = self.window.get(from..self.window_len).unwrap_or_default();
        Ok(bytes.get(..len).unwrap_or(bytes))
    }
}

/// Whether all bytes are zero. Implemented as a memory comparison for speed: the unused part of a segment is
/// checked at every start.
fn is_zero(bytes: &[u8]) -> bool {
    const ZEROS: [u8; 4096] = [0; 4096];
    bytes.chunks(ZEROS.len()).all(|chunk| ZEROS.starts_with(chunk))
}

pub(super) fn to_usize(bytes: u64) -> io::Result<usize> {
    usize::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge.into())
}

pub(super) fn to_u64(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
