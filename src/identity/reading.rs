//! [`Reading`]: a snapshot of a database that may be closed while the snapshot exists.
//!
//! After a failed write the database has to be closed before it can be reopened, and it closes when
//! the last handle on it is dropped. So a snapshot keeps no strong handle between reads. Once the
//! database is closed, its reads fail with [`IdentityError::Reopening`], and a running scan fails
//! at its next entry.

use std::ops::RangeBounds;
use std::sync::{Arc, Weak};

use fjall::{Guard, Keyspace, Readable, Snapshot, UserValue};

use crate::IdentityError;
use crate::cache::Decoded;
use crate::tables::Tables;

/// Selects a keyspace.
type Pick = fn(&Tables) -> &Keyspace;

/// The snapshot; `None` if the database was closed when it was taken.
pub(super) struct Reading(Option<At>);

struct At {
    tables: Weak<Tables>,
    decoded: Arc<Decoded>,
    snapshot: Snapshot,
}

impl Reading {
    /// A snapshot of an open database.
    pub(super) fn new(tables: &Arc<Tables>, decoded: Arc<Decoded>) -> Self {
        let snapshot = tables.database.snapshot();
        Self(Some(At { tables: Arc::downgrade(tables), decoded, snapshot }))
    }

    /// The snapshot of a closed database: every read fails.
    pub(super) fn closed() -> Self {
        Self(None)
    }

    fn at(&self) -> Result<(&At, Arc<Tables>), IdentityError> {
        let at = self.0.as_ref().ok_or(IdentityError::Reopening)?;
        Ok((at, at.tables.upgrade().ok_or(IdentityError::Reopening)?))
    }

    /// The readers' cache of decoded persons.
    pub(super) fn decoded(&self) -> Result<&Decoded, IdentityError> {
        Ok(&self.0.as_ref().ok_or(IdentityError::Reopening)?.decoded)
    }

    pub(super) fn get(
        &self,
        pick: Pick,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<UserValue>, IdentityError> {
        let (at, tables) = self.at()?;
        Ok(at.snapshot.get(pick(&tables), key)?)
    }

    pub(super) fn prefix(
        &self,
        pick: Pick,
        prefix: impl AsRef<[u8]>,
    ) -> Result<Entries, IdentityError> {
        let (at, tables) = self.at()?;
        Ok(Entries { iter: at.snapshot.prefix(pick(&tables), prefix), tables })
    }

    pub(super) fn range(
        &self,
        pick: Pick,
        range: impl RangeBounds<Vec<u8>>,
    ) -> Result<Entries, IdentityError> {
        let (at, tables) = self.at()?;
        Ok(Entries { iter: at.snapshot.range(pick(&tables), range), tables })
    }
}

/// Entries of a keyspace in order. Keeps the database open.
pub(super) struct Entries {
    /// Before `tables`, because it reads them: fields are dropped in declaration order.
    iter: fjall::Iter,
    tables: Arc<Tables>,
}

impl Entries {
    fn read(&self, entry: Guard) -> Result<Guard, IdentityError> {
        if self.tables.is_closing() { Err(IdentityError::Reopening) } else { Ok(entry) }
    }
}

impl Iterator for Entries {
    type Item = Result<Guard, IdentityError>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.iter.next()?;
        Some(self.read(entry))
    }
}

impl DoubleEndedIterator for Entries {
    fn next_back(&mut self) -> Option<Self::Item> {
        let entry = self.iter.next_back()?;
        Some(self.read(entry))
    }
}
