//! Limits of what is read: progress of the file, bombs, and records without an end.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many times larger than the file its content may be, beyond the first gibibyte. One layer of gzip is at most 1,032
/// times smaller than its content, so this stops what is compressed twice for no other purpose, and zstd of nothing.
const INFLATE_RATIO_MAX: u64 = 2_000;
/// Content that is read whatever its ratio.
const INFLATE_FREE_BYTES: u64 = 1 << 30;

/// Counts what is read of a file.
#[derive(Debug)]
pub(super) struct Counted<R> {
    inner: R,
    read_bytes: Arc<AtomicU64>,
}

impl<R> Counted<R> {
    pub(super) fn new(inner: R, read_bytes: &Arc<AtomicU64>) -> Self {
        Self { inner, read_bytes: Arc::clone(read_bytes) }
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.read_bytes.fetch_add(u64::try_from(count).unwrap_or(0), Ordering::Relaxed);
        Ok(count)
    }
}

impl<R: io::Seek> io::Seek for Counted<R> {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }
}

/// Fails when the content becomes far larger than the file.
#[derive(Debug)]
pub(super) struct Inflated<R> {
    inner: R,
    /// What has been read of the file, since `begun_bytes`.
    read_bytes: Arc<AtomicU64>,
    begun_bytes: u64,
    content_bytes: u64,
}

impl<R> Inflated<R> {
    /// Around a reader of content, before anything is read.
    pub(super) fn new(inner: R, read_bytes: &Arc<AtomicU64>) -> Self {
        let begun_bytes = read_bytes.load(Ordering::Relaxed);
        Self { inner, read_bytes: Arc::clone(read_bytes), begun_bytes, content_bytes: 0 }
    }
}

impl<R: Read> Read for Inflated<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.content_bytes = self.content_bytes.saturating_add(u64::try_from(count).unwrap_or(0));
        let read = self.read_bytes.load(Ordering::Relaxed).saturating_sub(self.begun_bytes);
        let limit = INFLATE_FREE_BYTES.saturating_add(read.saturating_mul(INFLATE_RATIO_MAX));
        if self.content_bytes > limit {
            let message = format!("it inflates to more than {INFLATE_RATIO_MAX} times its size");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        Ok(count)
    }
}

/// Fails when more is read than was allowed.
#[derive(Debug)]
pub(super) struct Allowance<R> {
    inner: R,
    left: Rc<Cell<usize>>,
}

impl<R> Allowance<R> {
    /// The reader, and what is left of what it may read, to be set for each record.
    pub(super) fn new(inner: R) -> (Self, Rc<Cell<usize>>) {
        let left = Rc::new(Cell::new(0));
        (Self { inner, left: Rc::clone(&left) }, left)
    }
}

impl<R: Read> Read for Allowance<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        let left = self.left.get().checked_sub(count);
        self.left.set(left.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "a record has no end within 16 MiB")
        })?);
        Ok(count)
    }
}
