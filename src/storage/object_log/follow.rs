//! Follows a log in an object store that another process writes: [`LogFollower`] lists what was put since it last looked.
//! It puts and removes nothing.
//!
//! # What a look proves
//!
//! A record is acknowledged after its object is put, lists show every completed put, and the newest object is never removed.
//! So whoever lists the objects behind the newest known one learns of every record that was acknowledged before the list
//! began: of those in the list, or, if it is empty, that there is none. A list that goes on with a later record than the
//! next one tells that what is between was removed: it is durable in other stores, of which the follower has older states.

use std::sync::Arc;

use object_store::{Error, ObjectStore};
use tokio::runtime::Handle;

use crate::object_log::claim::{Opened, look};
use crate::object_log::list::{ObjectFiles, list_behind, object_at};
use crate::object_log::put::header_of;
use crate::object_log::settings::Pauses;
use crate::wal::{Elsewhere, Sequence, WalError};

/// Objects that are looked for one by one before the log is listed.
const STEPS_MAX: u32 = 3;

/// A handle on a log that another process writes; clones share the list of its objects.
#[derive(Clone, Debug)]
pub struct LogFollower {
    files: ObjectFiles,
}

impl LogFollower {
    /// Opens the log as it is now, to read it from the record after `had_by_all` on.
    ///
    /// # Errors
    ///
    /// [`WalError::Truncated`] if the next record was removed: the stores that are derived from the log are too old to go
    /// on from. [`WalError::CutOff`] and [`WalError::Store`].
    pub async fn open(
        objects: Arc<dyn ObjectStore>,
        elsewhere: Elsewhere,
        had_by_all: Sequence,
        pauses: Pauses,
        runtime: Handle,
    ) -> Result<Self, WalError> {
        let Opened { listed, before_oldest, .. } = look(&*objects, elsewhere, had_by_all).await?;
        if before_oldest > had_by_all {
            let (wanted, oldest) = (had_by_all.next(), before_oldest.next());
            return Err(WalError::Truncated { wanted, oldest });
        }
        let durable = elsewhere.durable;
        let files =
            ObjectFiles::new(objects, runtime, pauses, listed, (durable, before_oldest), true);
        Ok(Self { files })
    }

    /// The objects that are known.
    pub fn files(&self) -> &ObjectFiles {
        &self.files
    }

    /// The last record that is known.
    pub fn end(&self) -> Sequence {
        self.files.end()
    }

    /// Lists what was put since, and returns the last record: no record behind it was acknowledged before the call. One call
    /// at a time.
    ///
    /// # Errors
    ///
    /// [`WalError::Truncated`] if records were removed that are not in the list, for good; [`WalError::Store`].
    pub async fn look(&self) -> Result<Sequence, WalError> {
        let failed = |source| WalError::Store { action: "follow", source };
        let objects = self.files.objects();
        loop {
            let mut found = list_behind(objects, self.files.newest()).await.map_err(failed)?;
            let Some(newest) = found.last_mut() else { return Ok(self.files.end()) };
            match header_of(objects, newest.first).await {
                Ok(header) => newest.header = header.ok(),
                // It is not the newest any more: that is not removed.
                Err(Error::NotFound { .. }) => continue,
                Err(error) => return Err(failed(error)),
            }
            newest.is_damaged = newest.header.is_none();
            self.files.extend(found)?;
            return Ok(self.files.end());
        }
    }

    /// Learns of the objects up to a record, which is in the log, and returns the last record that is known then. One call at a
    /// time.
    ///
    /// # Errors
    ///
    /// As of [`LogFollower::look`].
    pub async fn reach(&self, wanted: Sequence) -> Result<Sequence, WalError> {
        let failed = |source| WalError::Store { action: "follow", source };
        for _ in 0..STEPS_MAX {
            let end = self.files.end();
            if end >= wanted {
                return Ok(end);
            }
            // The name of an object is its first record.
            let next = object_at(self.files.objects(), end.next()).await.map_err(failed)?;
            let Some(next) = next else { break };
            self.files.extend(vec![next])?;
        }
        match self.files.end() {
            end if end >= wanted => Ok(end),
            _ => self.look().await,
        }
    }

    /// Forgets objects whose records are all at or before `through`, which the follower has applied.
    pub fn forget_through(&self, through: Sequence) {
        self.files.forget_through(through);
    }
}
