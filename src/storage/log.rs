//! What a log is to those who write, read and truncate it: [`LogWriter`], [`LogFiles`], [`LogReader`]. [`super::wal`]
//! keeps one in segment files, and [`super::object_log`] in an object store; their calls are passed on here. The traits do
//! not say where records are.

use std::fmt::Debug;
use std::sync::Arc;

use crate::object_log::list::ObjectFiles;
use crate::object_log::reader::ObjectReader;
use crate::object_log::writer::ObjectLog;
use crate::wal::files::WalFiles;
use crate::wal::reader::{Item, Reader};
use crate::wal::writer::Wal;
use crate::wal::{Sequence, WalError};

/// A log, open for writing. One thread owns it. All calls block.
pub trait LogWriter: Debug + Send {
    /// Appends one record, whose payload is the concatenation of `parts`, and returns its sequence. It is durable, and
    /// readable, after the next [`LogWriter::sync`].
    ///
    /// # Errors
    ///
    /// See [`Wal::append`] and [`ObjectLog::append`].
    fn append(&mut self, parts: &[&[u8]]) -> Result<Sequence, WalError>;

    /// Makes all appended records durable.
    ///
    /// # Errors
    ///
    /// See [`Wal::sync`] and [`ObjectLog::put`].
    fn sync(&mut self) -> Result<(), WalError>;

    /// The last appended record, durable or not.
    fn last_appended(&self) -> Sequence;

    /// The stored log, for readers and truncation.
    fn files(&self) -> Arc<dyn LogFiles>;
}

/// A stored log, for threads that do not write it.
pub trait LogFiles: Debug + Send + Sync {
    /// Size of the log in bytes.
    fn size_bytes(&self) -> u64;

    /// The sequence before the first record that may be in the log.
    fn before_oldest(&self) -> Sequence;

    /// Removes records at or before `through`, which must be durable in other stores, and returns the freed bytes.
    /// Some of them may stay.
    ///
    /// # Errors
    ///
    /// See [`WalFiles::truncate_through`]. Calling again is safe.
    fn truncate_through(&self, through: Sequence) -> Result<u64, WalError>;

    /// A reader of the records after `after`.
    fn reader(&self, after: Sequence) -> Box<dyn LogReader>;
}

/// A reader with its position in the log.
pub trait LogReader: Debug + Send {
    /// The next record, or the next damage; `None` once `until` is reached, which must be durable.
    ///
    /// # Errors
    ///
    /// See [`Reader::next`]. The position stays.
    fn next(&mut self, until: Sequence) -> Result<Option<Item>, WalError>;
}

impl LogWriter for Wal {
    fn append(&mut self, parts: &[&[u8]]) -> Result<Sequence, WalError> {
        Self::append(self, parts)
    }

    fn sync(&mut self) -> Result<(), WalError> {
        Self::sync(self)
    }

    fn last_appended(&self) -> Sequence {
        Self::last_appended(self)
    }

    fn files(&self) -> Arc<dyn LogFiles> {
        Arc::new(Self::files(self))
    }
}

impl LogFiles for WalFiles {
    fn size_bytes(&self) -> u64 {
        Self::size_bytes(self)
    }

    fn before_oldest(&self) -> Sequence {
        Self::before_oldest(self)
    }

    fn truncate_through(&self, through: Sequence) -> Result<u64, WalError> {
        Self::truncate_through(self, through)
    }

    fn reader(&self, after: Sequence) -> Box<dyn LogReader> {
        Box::new(Self::reader(self, after))
    }
}

impl LogReader for Reader {
    fn next(&mut self, until: Sequence) -> Result<Option<Item>, WalError> {
        Self::next(self, until)
    }
}

impl LogWriter for ObjectLog {
    fn append(&mut self, parts: &[&[u8]]) -> Result<Sequence, WalError> {
        Self::append(self, parts)
    }

    fn sync(&mut self) -> Result<(), WalError> {
        let runtime = self.files().runtime().clone();
        runtime.block_on(self.put())
    }

    fn last_appended(&self) -> Sequence {
        Self::last_appended(self)
    }

    fn files(&self) -> Arc<dyn LogFiles> {
        Arc::new(Self::files(self).clone())
    }
}

impl LogFiles for ObjectFiles {
    fn size_bytes(&self) -> u64 {
        Self::size_bytes(self)
    }

    fn before_oldest(&self) -> Sequence {
        Self::before_oldest(self)
    }

    fn truncate_through(&self, through: Sequence) -> Result<u64, WalError> {
        self.runtime().block_on(Self::truncate_through(self, through))
    }

    fn reader(&self, after: Sequence) -> Box<dyn LogReader> {
        Box::new(Self::reader(self, after))
    }
}

impl LogReader for ObjectReader {
    fn next(&mut self, until: Sequence) -> Result<Option<Item>, WalError> {
        let runtime = self.files().runtime().clone();
        runtime.block_on(Self::next(self, until))
    }
}
