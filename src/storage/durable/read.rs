//! Reads of the durable store: the result of a get as a stream of chunks of bounded size.

use std::io;
use std::ops::Range;
use std::path::Path as FilePath;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, stream};
use object_store::path::Path;
use object_store::{
    Attributes, Error, GetOptions, GetResult, GetResultPayload, ObjectMeta, Result,
};

use crate::durable::STORE;
use crate::durable::files::{failed, object_meta};
use weir_disk::{Disk, DiskFile};

/// Maximum bytes of one chunk of a get. Columns of row groups and files of the table's log are smaller, so
/// a usual get is one chunk.
const STEP_MAX_BYTES: u64 = 8 << 20;

/// Maximum attempts to open a file that is being replaced at the same time.
const OPEN_ATTEMPTS: usize = 8;

/// Runs a get of the object in `path`. Blocks; the returned stream does not.
pub(super) fn get(
    disk: Arc<dyn Disk>,
    path: &FilePath,
    location: Path,
    options: &GetOptions,
) -> Result<GetResult> {
    let (file, meta) = open(&*disk, path, &location).map_err(|error| failed(&location, error))?;
    options.check_preconditions(&meta)?;
    let range = match &options.range {
        Some(range) => range
            .as_range(meta.size)
            .map_err(|error| Error::Generic { store: STORE, source: Box::new(error) })?,
        None => 0..meta.size,
    };
    let wanted = if options.head { 0..0 } else { range.clone() };
    let payload = if wanted.end.saturating_sub(wanted.start) <= STEP_MAX_BYTES {
        let bytes = exactly(&*file, wanted).map_err(|error| failed(&location, error));
        stream::once(async move { bytes }).boxed()
    } else {
        steps(Arc::from(file), location, wanted).boxed()
    };
    Ok(GetResult {
        payload: GetResultPayload::Stream(payload),
        meta,
        range,
        attributes: Attributes::default(),
    })
}

/// Opens a file and returns it with its own metadata, not that of a file that replaced it.
fn open(
    disk: &dyn Disk,
    path: &FilePath,
    location: &Path,
) -> io::Result<(Box<dyn DiskFile>, ObjectMeta)> {
    for _ in 0..OPEN_ATTEMPTS {
        let before = disk.metadata(path)?;
        if before.is_dir {
            return Err(io::ErrorKind::NotFound.into());
        }
        let file = disk.open(path)?;
        let after = disk.metadata(path)?;
        if before == after && file.len_bytes()? == after.len_bytes {
            return Ok((file, object_meta(location.clone(), &after)));
        }
    }
    Err(io::Error::other("the object is replaced faster than it can be opened"))
}

/// The range as a stream of chunks, each read when it is polled.
fn steps(
    file: Arc<dyn DiskFile>,
    location: Path,
    range: Range<u64>,
) -> impl futures::Stream<Item = Result<Bytes>> + Send {
    stream::try_unfold(range, move |rest| {
        let file = Arc::clone(&file);
        let location = location.clone();
        async move {
            if rest.is_empty() {
                return Ok(None);
            }
            let middle = rest.end.min(rest.start.saturating_add(STEP_MAX_BYTES));
            let step = rest.start..middle;
            let read = tokio::task::spawn_blocking(move || exactly(&*file, step)).await?;
            let bytes = read.map_err(|error| failed(&location, error))?;
            Ok(Some((bytes, middle..rest.end)))
        }
    })
}

/// Reads the whole range, or fails.
pub(super) fn exactly(file: &dyn DiskFile, range: Range<u64>) -> io::Result<Bytes> {
    let len = range.end.saturating_sub(range.start);
    let mut buffer = vec![0; usize::try_from(len).map_err(io::Error::other)?];
    let read = file.read_at(&mut buffer, range.start)?;
    if read < buffer.len() {
        let message = format!("wanted bytes {range:?}, the file ends after {read} of them");
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
    }
    Ok(buffer.into())
}
