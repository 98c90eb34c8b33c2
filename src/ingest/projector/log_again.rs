//! What the projector needs to apply the log again after the identity store has failed; `recover` does it.

use std::sync::Arc;

use crate::ingest::disk_room::DiskRoom;
use crate::ingest::holes::Holes;
use crate::ingest::reread::Rereader;
use crate::storage::log::LogFiles;
use crate::tasks::Shutdown;

/// What the projector needs to apply the log again.
#[derive(Debug)]
pub(in crate::ingest) struct LogAgain {
    pub(in crate::ingest) files: Arc<dyn LogFiles>,
    pub(in crate::ingest) rereader: Rereader,
    pub(in crate::ingest) holes: Holes,
    pub(in crate::ingest) room: DiskRoom,
    pub(in crate::ingest) shutdown: Shutdown,
}

impl LogAgain {
    pub(in crate::ingest) fn new(
        files: Arc<dyn LogFiles>,
        rereader: &Rereader,
        holes: &Holes,
        room: &DiskRoom,
        shutdown: &Shutdown,
    ) -> Self {
        Self {
            files,
            rereader: rereader.clone(),
            holes: holes.clone(),
            room: room.clone(),
            shutdown: shutdown.clone(),
        }
    }
}
