//! Writer of a log in an object store: [`ObjectLog`] collects records and puts them as one object. One thread owns it.

use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use object_store::ObjectStore;
use tokio::runtime::Handle;
use uuid::Uuid;

use crate::object_log::claim::{Opened, claim, look};
use crate::object_log::format::{HEADER_BYTES, Header, Purpose, push_frame};
use crate::object_log::list::{Listed, ObjectFiles};
use crate::object_log::put::{Put, put_until_known};
use crate::object_log::rivals::Rivals;
use crate::object_log::settings::{Doubt, ObjectLogSettings, Pauses};
use crate::wal::{Elsewhere, Sequence, WalError, frame};

/// The log, open for writing.
#[derive(Debug)]
pub struct ObjectLog {
    files: ObjectFiles,
    writer: Uuid,
    doubt: Telling,
    /// The next object: room for its header, and frames.
    object: BytesMut,
    appended: Sequence,
    durable: Sequence,
    state: State,
}

/// Whether records can be appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Another writer has taken the log over.
    Fenced,
    /// The attempts to put an object were ended before its outcome was known; or it was opened for reading.
    Ended,
}

/// [`Doubt`] with an empty `Debug` output.
struct Telling(Doubt);

impl std::fmt::Debug for Telling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Telling")
    }
}

impl ObjectLog {
    /// Takes the log over, and begins it if there is none. The former writer acknowledges nothing from now on. The claim
    /// is the last record then; the next one has the next sequence.
    ///
    /// # Errors
    ///
    /// [`WalError::Fenced`] if another writer takes it over meanwhile; [`WalError::Store`], [`WalError::CutOff`]. Damage is
    /// no error; a reader reports it.
    pub async fn claim(settings: ObjectLogSettings, runtime: Handle) -> Result<Self, WalError> {
        let Opened { listed, last, before_oldest } = claim(&settings).await?;
        let ObjectLogSettings { objects, writer, elsewhere, pauses, doubt, .. } = settings;
        let durable = elsewhere.durable;
        let files =
            ObjectFiles::new(objects, runtime, pauses, listed, (durable, before_oldest), false);
        let (appended, durable, state) = (last, last, State::Open);
        let object = BytesMut::new();
        Ok(Self { files, writer, doubt: Telling(doubt), object, appended, durable, state })
    }

    /// Opens the log for reading what is in it now. Appends fail.
    ///
    /// # Errors
    ///
    /// As of [`ObjectLog::claim`].
    pub async fn read(
        objects: Arc<dyn ObjectStore>,
        elsewhere: Elsewhere,
        had_by_all: Sequence,
        pauses: Pauses,
        runtime: Handle,
    ) -> Result<Self, WalError> {
        let Opened { listed, last, before_oldest } = look(&*objects, elsewhere, had_by_all).await?;
        let last = last.max(elsewhere.seen);
        let durable = elsewhere.durable;
        let files =
            ObjectFiles::new(objects, runtime, pauses, listed, (durable, before_oldest), false);
        Ok(Self {
            files,
            writer: Uuid::nil(),
            doubt: Telling(Arc::new(|_| ())),
            object: BytesMut::new(),
            appended: last,
            durable: last,
            state: State::Ended,
        })
    }

    /// Appends one record, whose payload is the concatenation of `parts`, and returns its sequence. It is durable, and
    /// readable, after the next [`ObjectLog::put`].
    ///
    /// # Errors
    ///
    /// After [`WalError::TooLarge`] nothing has changed; [`WalError::Fenced`] and [`WalError::Poisoned`] are for good.
    pub fn append(&mut self, parts: &[&[u8]]) -> Result<Sequence, WalError> {
        self.check()?;
        let bytes = parts.iter().map(|part| part.len()).sum();
        let fits = |length: &u32| *length <= frame::PAYLOAD_MAX_BYTES;
        if !u32::try_from(bytes).is_ok_and(|length| fits(&length)) {
            return Err(WalError::TooLarge { bytes, max_bytes: frame::PAYLOAD_MAX_BYTES });
        }
        if self.object.is_empty() {
            self.object.put_bytes(0, HEADER_BYTES);
        }
        let sequence = self.appended.next();
        let salt = self.header(0).salt();
        push_frame(&mut self.object, sequence, self.durable, salt, parts);
        self.appended = sequence;
        Ok(sequence)
    }

    /// Makes all appended records durable. Returns when the outcome is known, however long that takes.
    ///
    /// # Errors
    ///
    /// [`WalError::Fenced`]: another writer has taken the log over, and none of the records is in it. [`WalError::Store`]:
    /// the attempts were ended, and whether they are in it is unknown. The log is closed then.
    pub async fn put(&mut self) -> Result<(), WalError> {
        self.check()?;
        let records = self.appended.0.saturating_sub(self.durable.0);
        if records == 0 {
            return Ok(());
        }
        let header = self.header(u32::try_from(records).unwrap_or(u32::MAX));
        let mut object = std::mem::take(&mut self.object);
        if let Some(room) = object.first_chunk_mut() {
            *room = header.encode();
        }
        let object = object.freeze();
        let bytes = u64::try_from(object.len()).unwrap_or(u64::MAX);
        // Until the outcome is known: this future may be dropped.
        self.state = State::Ended;
        let (objects, pauses) = (self.files.objects(), self.files.pauses());
        match put_until_known(objects, &header, &object, pauses, &self.doubt.0).await? {
            Put::Done => {
                self.state = State::Open;
                self.durable = self.appended;
                self.files.push(Listed::new(header, bytes));
                // The next object has the room of this one, once the store has dropped it.
                self.object = object.try_into_mut().unwrap_or_default();
                self.object.clear();
                Ok(())
            }
            Put::Taken => {
                self.state = State::Fenced;
                Err(WalError::Fenced)
            }
        }
    }

    /// The last appended record, durable or not.
    pub fn last_appended(&self) -> Sequence {
        self.appended
    }

    /// Looks for other writers, also while this one waits.
    pub fn rivals(&self) -> Rivals {
        Rivals { files: self.files.clone(), writer: self.writer }
    }

    /// A handle on the objects, for readers and truncation.
    pub fn files(&self) -> &ObjectFiles {
        &self.files
    }

    fn check(&self) -> Result<(), WalError> {
        match self.state {
            State::Open => Ok(()),
            State::Fenced => Err(WalError::Fenced),
            State::Ended => Err(WalError::Poisoned),
        }
    }

    /// The header of the next object.
    fn header(&self, records: u32) -> Header {
        let (purpose, first) = (Purpose::Records, self.durable.next());
        Header { purpose, writer: self.writer, first, records }
    }
}
