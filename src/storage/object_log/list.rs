//! List of the objects that writer, readers and truncation share: [`ObjectFiles`]. It maps sequences to objects, and reads
//! no records.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{Error, ObjectStore};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::object_log::format::{Header, Purpose, first_of, path_of};
use crate::object_log::put::{head_of, header_of};
use crate::object_log::settings::{DIRECTORY, Pauses};
use crate::wal::{RecordLocation, Sequence, WalError};

/// Most objects that one truncation removes at once.
const REMOVED_AT_ONCE_MAX: usize = 1000;

/// A handle on the objects of a log for threads that do not write it; clones are cheap.
#[derive(Clone, Debug)]
pub struct ObjectFiles {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    objects: Arc<dyn ObjectStore>,
    runtime: Handle,
    pauses: Pauses,
    /// Whether another process writes the log, and removes what is durable elsewhere.
    is_followed: bool,
    /// Never held across requests.
    list: Mutex<List>,
}

#[derive(Debug)]
struct List {
    /// Oldest first.
    objects: Vec<Listed>,
    /// Records up to this sequence are durable in other stores, and may have been truncated.
    durable_elsewhere: Sequence,
    before_oldest: Sequence,
}

/// One object of the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listed {
    /// Sequence of its first record.
    pub(super) first: Sequence,
    pub(super) bytes: u64,
    /// Its header, once it was read.
    pub(super) header: Option<Header>,
    /// Whether its header was read and is damaged. It may be a claim, so it stays for good.
    pub(super) is_damaged: bool,
}

impl Listed {
    pub(super) fn new(header: Header, bytes: u64) -> Self {
        Self { first: header.first, bytes, header: Some(header), is_damaged: false }
    }
}

/// The objects of the log, oldest first.
pub(super) async fn list(objects: &dyn ObjectStore) -> Result<Vec<Listed>, Error> {
    list_behind(objects, None).await
}

/// The objects behind the one that begins with this record, or all, oldest first.
pub(super) async fn list_behind(
    objects: &dyn ObjectStore,
    first: Option<Sequence>,
) -> Result<Vec<Listed>, Error> {
    let mut listed = Vec::new();
    let directory = Path::from(DIRECTORY);
    let mut stream = match first {
        None => objects.list(Some(&directory)),
        Some(first) => objects.list_with_offset(Some(&directory), &path_of(first)),
    };
    while let Some(object) = stream.try_next().await? {
        if let Some(first) = first_of(&object.location) {
            let (bytes, header, is_damaged) = (object.size, None, false);
            listed.push(Listed { first, bytes, header, is_damaged });
        }
    }
    // Stores list in the order of names; S3 Express does not.
    listed.sort_unstable_by_key(|object| object.first);
    Ok(listed)
}

/// The object that begins with this record; `None` if there is none, or none of a log.
pub(super) async fn object_at(
    objects: &dyn ObjectStore,
    first: Sequence,
) -> Result<Option<Listed>, Error> {
    match head_of(objects, first).await {
        Ok((header, bytes)) => Ok(header.ok().map(|header| Listed::new(header, bytes))),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

impl ObjectFiles {
    pub(super) fn new(
        objects: Arc<dyn ObjectStore>,
        runtime: Handle,
        pauses: Pauses,
        listed: Vec<Listed>,
        (durable_elsewhere, before_oldest): (Sequence, Sequence),
        is_followed: bool,
    ) -> Self {
        let list = Mutex::new(List { objects: listed, durable_elsewhere, before_oldest });
        Self { shared: Arc::new(Shared { objects, runtime, pauses, is_followed, list }) }
    }

    /// Whether another process writes the log.
    pub(super) fn is_followed(&self) -> bool {
        self.shared.is_followed
    }

    /// The first record of the newest object.
    pub(super) fn newest(&self) -> Option<Sequence> {
        self.shared.list.lock().objects.last().map(|newest| newest.first)
    }

    /// Adds objects that another process has put behind all others.
    ///
    /// # Errors
    ///
    /// [`WalError::Truncated`]: some between them were removed, and nothing is added.
    pub(super) fn extend(&self, found: Vec<Listed>) -> Result<(), WalError> {
        let mut list = self.shared.list.lock();
        let Some(first) = found.first().map(|object| object.first) else { return Ok(()) };
        // How many records a damaged object has is told by the one behind it.
        let end = match list.objects.last() {
            Some(newest) => newest.header.map(|header| header.last()),
            None => Some(list.before_oldest),
        };
        if let Some(end) = end.filter(|end| first > end.next()) {
            return Err(WalError::Truncated { wanted: end.next(), oldest: first });
        }
        list.objects.extend(found);
        Ok(())
    }

    /// Removes objects from the list, but for the newest one, whose records are all at or before `through`.
    pub(super) fn forget_through(&self, through: Sequence) {
        let mut list = self.shared.list.lock();
        let count = list.removable(through).count();
        let last = count.checked_sub(1).and_then(|at| list.objects.get(at + 1));
        if let Some(next) = last.map(|next| next.first) {
            list.before_oldest = list.before_oldest.max(next.previous());
            list.durable_elsewhere = list.durable_elsewhere.max(next.previous());
        }
        list.objects.drain(..count);
    }

    /// Size of the log in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.shared.list.lock().objects.iter().map(|object| object.bytes).sum()
    }

    /// The sequence before the first record that may be in the log, and is needed.
    pub fn before_oldest(&self) -> Sequence {
        self.shared.list.lock().before_oldest
    }

    /// Removes the objects whose records are all at or before `through`, which must be durable in other stores, and
    /// returns the freed bytes. Claims and the newest object stay.
    ///
    /// # Errors
    ///
    /// [`WalError::Store`]; some of the objects may be removed. Calling again is safe.
    pub async fn truncate_through(&self, through: Sequence) -> Result<u64, WalError> {
        let failed = |source| WalError::Store { action: "truncate", source };
        self.note_durable_elsewhere(through);
        let mut freed = 0;
        loop {
            if let Some(first) = self.unknown(through) {
                let header = header_of(self.objects(), first).await;
                match header {
                    Ok(header) => self.note_header(first, header.ok()),
                    // An earlier call removed it, and failed afterwards.
                    Err(Error::NotFound { .. }) => drop(self.forget(first)),
                    Err(error) => return Err(failed(error)),
                }
                continue;
            }
            let removable = self.removable(through);
            if removable.is_empty() {
                return Ok(freed);
            }
            let paths: Vec<_> = removable.iter().map(|first| Ok(path_of(*first))).collect();
            let mut removed = self.objects().delete_stream(futures::stream::iter(paths).boxed());
            while let Some(one) = removed.next().await {
                match one {
                    Ok(_) | Err(Error::NotFound { .. }) => {}
                    Err(error) => return Err(failed(error)),
                }
            }
            freed += removable.iter().map(|first| self.forget(*first)).sum::<u64>();
        }
    }

    /// The last record of the newest object.
    pub(super) fn end(&self) -> Sequence {
        let list = self.shared.list.lock();
        let newest = list.objects.last();
        newest.map_or(list.before_oldest, |newest| {
            newest.header.map_or(newest.first, |header| header.last())
        })
    }

    /// Whether there is anything but claims. Reads headers until it finds an object of records.
    ///
    /// # Errors
    ///
    /// [`WalError::Store`].
    pub async fn has_requests(&self) -> Result<bool, WalError> {
        let objects = self.shared.list.lock().objects.clone();
        for object in objects {
            let header = match object.header {
                Some(header) => header,
                None => match header_of(self.objects(), object.first).await {
                    Ok(Ok(header)) => header,
                    // Damaged, or truncated meanwhile: there were some.
                    Ok(Err(_)) | Err(Error::NotFound { .. }) => return Ok(true),
                    Err(source) => return Err(WalError::Store { action: "read", source }),
                },
            };
            if header.purpose == Purpose::Records {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.shared.runtime
    }

    pub(super) fn pauses(&self) -> &Pauses {
        &self.shared.pauses
    }

    pub(super) fn objects(&self) -> &dyn ObjectStore {
        &*self.shared.objects
    }

    /// The store, for tasks.
    pub(super) fn store(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.shared.objects)
    }

    /// Adds an object that the writer has put.
    pub(super) fn push(&self, object: Listed) {
        self.shared.list.lock().objects.push(object);
    }

    /// Keeps the header of an object; `None` says that it is damaged.
    pub(super) fn note_header(&self, first: Sequence, header: Option<Header>) {
        let mut list = self.shared.list.lock();
        if let Some(object) = list.objects.iter_mut().find(|object| object.first == first) {
            object.header = header;
            object.is_damaged = header.is_none();
        }
    }

    pub(super) fn locate(&self, wanted: Sequence) -> RecordLocation {
        let list = self.shared.list.lock();
        let after = list.objects.partition_point(|object| object.first <= wanted);
        let next = list.objects.get(after).map(|object| object.first);
        let at = after.checked_sub(1).and_then(|at| list.objects.get(at));
        let may_have =
            |object: &&Listed| object.header.is_none_or(|header| header.last() >= wanted);
        if let Some(object) = at.filter(may_have) {
            let last = next.map(Sequence::previous);
            return RecordLocation::File { first: object.first, last };
        }
        match next {
            Some(oldest) if wanted <= list.durable_elsewhere => RecordLocation::Removed { oldest },
            next => RecordLocation::Missing { last: next.map(Sequence::previous) },
        }
    }

    /// The objects behind the one that begins with `first`, with their sizes.
    pub(super) fn behind(&self, first: Sequence, count: usize) -> Vec<(Sequence, u64)> {
        let list = self.shared.list.lock();
        let behind = list.objects.iter().filter(|object| object.first > first).take(count);
        behind.map(|object| (object.first, object.bytes)).collect()
    }

    fn note_durable_elsewhere(&self, through: Sequence) {
        let mut list = self.shared.list.lock();
        list.durable_elsewhere = list.durable_elsewhere.max(through);
    }

    /// An object that could be removed if it is no claim, which is not known yet.
    fn unknown(&self, through: Sequence) -> Option<Sequence> {
        let list = self.shared.list.lock();
        let is_unknown = |object: &&Listed| object.header.is_none() && !object.is_damaged;
        list.removable(through).find(is_unknown).map(|object| object.first)
    }

    fn removable(&self, through: Sequence) -> Vec<Sequence> {
        let list = self.shared.list.lock();
        let is_known = |object: &&Listed| {
            object.header.is_some_and(|header| header.purpose == Purpose::Records)
        };
        let removable = list.removable(through).filter(is_known).map(|object| object.first);
        removable.take(REMOVED_AT_ONCE_MAX).collect()
    }

    /// Removes an object from the list. Returns its bytes, if it was still there.
    fn forget(&self, first: Sequence) -> u64 {
        let mut list = self.shared.list.lock();
        let Some(at) = list.objects.iter().position(|object| object.first == first) else {
            return 0;
        };
        let object = list.objects.remove(at);
        if let Some(header) = object.header {
            list.before_oldest = list.before_oldest.max(header.last());
        }
        object.bytes
    }
}

impl List {
    /// The objects of which all records are at or before `through`, but for the newest object; claims, too.
    fn removable(&self, through: Sequence) -> impl Iterator<Item = &Listed> {
        let pairs = self.objects.iter().zip(self.objects.iter().skip(1));
        let removable = pairs.take_while(move |(_, next)| next.first.previous() <= through);
        removable.map(|(object, _)| object)
    }
}
