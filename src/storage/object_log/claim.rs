//! Opening of a log in an object store: [`claim`] takes it over for writing, [`look`] only looks at it.

use bytes::{Bytes, BytesMut};
use object_store::{Error, ObjectStore};

use crate::object_log::format::{Header, Purpose, push_frame};
use crate::object_log::list::{Listed, list};
use crate::object_log::put::{Put, header_of, put_until_known};
use crate::object_log::settings::ObjectLogSettings;
use crate::wal::{Elsewhere, Sequence, WalError};

/// A log as it was opened.
#[derive(Debug)]
pub(super) struct Opened {
    /// Its objects, oldest first.
    pub(super) listed: Vec<Listed>,
    /// The last record.
    pub(super) last: Sequence,
    /// The sequence before the first record that may be in it, of those that are needed.
    pub(super) before_oldest: Sequence,
}

/// Puts a claim at the first free number; see [`crate::object_log`].
pub(super) async fn claim(settings: &ObjectLogSettings) -> Result<Opened, WalError> {
    let ObjectLogSettings { objects, writer, claim, elsewhere, had_by_all, pauses, doubt } =
        settings;
    let objects = &**objects;
    loop {
        let found = look(objects, *elsewhere, *had_by_all).await?;
        let first = found.last.max(elsewhere.seen).next();
        let header = Header { purpose: Purpose::Claim, writer: *writer, first, records: 1 };
        let object = object_of(&header, claim);
        if put_until_known(objects, &header, &object, pauses, doubt).await? == Put::Taken {
            continue;
        }
        let mut found = look(objects, *elsewhere, *had_by_all).await?;
        // The log had gone on behind this number before the claim was put, and was truncated; or another claim has followed.
        // Another writer is alive, and two that begin again for each other would never end.
        if found.last > first {
            return Err(WalError::Fenced);
        }
        for object in &mut found.listed {
            if object.first == first {
                object.header = Some(header);
            }
        }
        return Ok(found);
    }
}

/// The log as it is now. Its end may change until it is claimed.
pub(super) async fn look(
    objects: &dyn ObjectStore,
    elsewhere: Elsewhere,
    had_by_all: Sequence,
) -> Result<Opened, WalError> {
    let failed = |source| WalError::Store { action: "open", source };
    loop {
        let mut listed = list(objects).await.map_err(failed)?;
        let Some(newest) = listed.last_mut() else {
            let before_oldest = elsewhere.seen;
            return Ok(Opened { listed, last: Sequence(0), before_oldest });
        };
        newest.header = match header_of(objects, newest.first).await {
            Ok(header) => header.ok(),
            // Nobody removes the newest object: it is not that any more.
            Err(Error::NotFound { .. }) => continue,
            Err(error) => return Err(failed(error)),
        };
        newest.is_damaged = newest.header.is_none();
        // How many records a damaged one has is unknown: as many as others have seen, at least one.
        let last = newest.header.map_or(newest.first.max(elsewhere.seen), |header| header.last());
        // Others have read these records in this log, and the newest object is never removed.
        if last < elsewhere.seen && listed.iter().any(|object| object.first > Sequence(1)) {
            return Err(WalError::CutOff { end: last, seen: elsewhere.seen });
        }
        match before_oldest(objects, &mut listed, had_by_all).await {
            Ok(before_oldest) => return Ok(Opened { listed, last, before_oldest }),
            Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(failed(error)),
        }
    }
}

/// The sequence before the first record that may be in the log, of those after `had`; `had` itself, or less, if the log has
/// the next one.
async fn before_oldest(
    objects: &dyn ObjectStore,
    listed: &mut [Listed],
    had: Sequence,
) -> Result<Sequence, Error> {
    let after = listed.partition_point(|object| object.first <= had.next());
    let next = listed.get(after).map(|object| object.first.previous());
    let Some(object) = after.checked_sub(1).and_then(|at| listed.get_mut(at)) else {
        return Ok(next.unwrap_or(had));
    };
    if object.header.is_none() && !object.is_damaged {
        object.header = header_of(objects, object.first).await?.ok();
        object.is_damaged = object.header.is_none();
    }
    match object.header {
        // Nothing in it is needed: a claim that was kept, or the end of the log.
        Some(header) if header.last() <= had => Ok(next.unwrap_or(had)),
        _ => Ok(had.min(object.first.previous())),
    }
}

/// An object with one record.
fn object_of(header: &Header, payload: &[u8]) -> Bytes {
    let mut object = BytesMut::from(&header.encode()[..]);
    push_frame(&mut object, header.first, header.first.previous(), header.salt(), &[payload]);
    object.freeze()
}
