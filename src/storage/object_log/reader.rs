//! Reader of a log in an object store: [`ObjectReader`] delivers every record once and in order, and reports every record
//! that it cannot deliver. It reads some objects ahead.

use std::collections::VecDeque;
use std::path::PathBuf;

use bytes::Bytes;
use object_store::{Error, ObjectStoreExt};
use tokio::task::JoinHandle;

use crate::object_log::format;
use crate::object_log::format::{HEADER_BYTES, Header, Unreadable, path_of, split_frame};
use crate::object_log::list::ObjectFiles;
use crate::object_log::put::read_until_known;
use crate::wal::reader::Item;
use crate::wal::{Corruption, Damage, RecordLocation, Sequence, WalError};

/// Objects that are read ahead: a request takes some tens of milliseconds, whatever its size.
const AHEAD_MAX: usize = 16;

/// Bytes of the objects that are read ahead together; one of any size.
const AHEAD_MAX_BYTES: u64 = 64 << 20;

/// A reader with its position in the log.
#[derive(Debug)]
pub struct ObjectReader {
    files: ObjectFiles,
    /// The last record delivered or reported.
    position: Sequence,
    current: Option<Current>,
    ahead: VecDeque<Ahead>,
}

/// The object at the position.
#[derive(Debug)]
struct Current {
    header: Header,
    /// The record of the first of the frames.
    at: Sequence,
    frames: Bytes,
}

/// An object that is being read.
#[derive(Debug)]
struct Ahead {
    first: Sequence,
    bytes: u64,
    reading: JoinHandle<Result<Bytes, Error>>,
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

impl ObjectFiles {
    /// A reader of the records after `after`.
    pub fn reader(&self, after: Sequence) -> ObjectReader {
        let files = self.clone();
        ObjectReader { files, position: after, current: None, ahead: VecDeque::new() }
    }
}

impl ObjectReader {
    pub(crate) fn files(&self) -> &ObjectFiles {
        &self.files
    }

    /// The next record, or the next damage; `None` once `until` is reached, which must be durable.
    ///
    /// # Errors
    ///
    /// [`WalError::Truncated`] if the record was removed because it is durable elsewhere, [`WalError::Store`] and
    /// [`WalError::Version`]. The position stays.
    pub async fn next(&mut self, until: Sequence) -> Result<Option<Item>, WalError> {
        while self.position < until {
            let wanted = self.position.next();
            if let Some(current) = self.current.as_mut().filter(|current| current.has(wanted)) {
                let header = current.header;
                return match current.take(wanted) {
                    Some(payload) => {
                        self.position = wanted;
                        let payload = payload.to_vec();
                        Ok(Some(Item::Record { sequence: wanted, payload }))
                    }
                    None => Ok(Some(self.lost(Some(header.first), header.last().min(until)))),
                };
            }
            self.current = None;
            let place = self.files.locate(wanted);
            let (first, last) = match place {
                RecordLocation::File { first, last } => (first, last.unwrap_or(until).min(until)),
                RecordLocation::Removed { oldest } => {
                    return Err(WalError::Truncated { wanted, oldest });
                }
                // Claims stay where what is behind them is removed.
                RecordLocation::Missing { last: Some(last) } if self.files.is_followed() => {
                    return Err(WalError::Truncated { wanted, oldest: last.next() });
                }
                RecordLocation::Missing { last } => {
                    return Ok(Some(self.lost(None, last.unwrap_or(until).min(until))));
                }
            };
            let object = match self.object(first).await {
                // The process that writes the log has removed it; see `follow`.
                Err(WalError::Store { source: Error::NotFound { .. }, .. })
                    if self.files.is_followed() =>
                {
                    return Err(WalError::Truncated { wanted, oldest: last.next() });
                }
                Err(WalError::Store { source: Error::NotFound { .. }, .. }) => {
                    // If it was truncated since the lookup, the list has changed: look again.
                    if self.files.locate(wanted) == place {
                        return Ok(Some(self.lost(Some(first), last)));
                    }
                    continue;
                }
                object => object?,
            };
            match Header::decode(&object, first) {
                Ok(header) => {
                    self.files.note_header(first, Some(header));
                    let frames = object.slice(HEADER_BYTES..);
                    self.current = Some(Current { header, at: first, frames });
                }
                Err(Unreadable::Damaged) => {
                    self.files.note_header(first, None);
                    return Ok(Some(self.lost(Some(first), last)));
                }
                Err(Unreadable::Version(version)) => {
                    let path = PathBuf::from(path_of(first).to_string());
                    return Err(WalError::Version { path, version, known: format::VERSION });
                }
            }
        }
        Ok(None)
    }

    /// Reports the records up to `last` as lost.
    fn lost(&mut self, first: Option<Sequence>, last: Sequence) -> Item {
        let damage = Damage::Lost { first: self.position.next(), last };
        self.position = last;
        self.current = None;
        let path = first.map_or_else(|| "log".to_owned(), |first| path_of(first).to_string());
        Item::Corrupt(Corruption { path: PathBuf::from(path), offset: 0, damage, copy: None })
    }

    /// The bytes of an object; begins to read those behind it.
    async fn object(&mut self, first: Sequence) -> Result<Bytes, WalError> {
        if self.ahead.front().is_none_or(|ahead| ahead.first != first) {
            self.ahead.clear();
            self.read_ahead(first, 0);
        }
        let begun = self.ahead.pop_front();
        let mut bytes: u64 = self.ahead.iter().map(|ahead| ahead.bytes).sum();
        let last = self.ahead.back().map_or(first, |ahead| ahead.first);
        for (first, more) in self.files.behind(last, AHEAD_MAX - self.ahead.len()) {
            bytes = bytes.saturating_add(more);
            if bytes > AHEAD_MAX_BYTES {
                break;
            }
            self.read_ahead(first, more);
        }
        let mut begun = begun;
        read_until_known(self.files.pauses(), async || match begun.take() {
            Some(mut ahead) => match (&mut ahead.reading).await {
                Ok(read) => read,
                Err(error) => Err(Error::JoinError { source: error }),
            },
            None => self.files.objects().get(&path_of(first)).await?.bytes().await,
        })
        .await
    }

    fn read_ahead(&mut self, first: Sequence, bytes: u64) {
        let objects = self.files.store();
        let read = async move { objects.get(&path_of(first)).await?.bytes().await };
        let reading = self.files.runtime().spawn(read);
        self.ahead.push_back(Ahead { first, bytes, reading });
    }
}

impl Current {
    fn has(&self, wanted: Sequence) -> bool {
        self.at <= wanted && wanted <= self.header.last()
    }

    /// The payload of a record of this object that was not passed yet; `None` if it is damaged, or one before it is.
    fn take(&mut self, wanted: Sequence) -> Option<Bytes> {
        loop {
            let (payload, rest) = split_frame(&self.frames, self.at, self.header.salt())?;
            let taken = self.at;
            self.frames = rest;
            self.at = taken.next();
            if taken == wanted {
                return Some(payload);
            }
        }
    }
}
