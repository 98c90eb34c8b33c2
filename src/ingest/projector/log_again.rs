//! What the projector needs to apply the log again after the identity store has failed; `recover` does it.

use std::sync::Arc;

use crate::disk_room::DiskRoom;
use crate::holes::Holes;
use crate::reread::Rereader;
use weir_base::tasks::Shutdown;
use weir_storage::log::LogFiles;

/// What the projector needs to apply the log again.
#[derive(Debug)]
pub(crate) struct LogAgain {
    pub(crate) files: Arc<dyn LogFiles>,
    pub(crate) rereader: Rereader,
    pub(crate) holes: Holes,
    pub(crate) room: DiskRoom,
    pub(crate) shutdown: Shutdown,
}

impl LogAgain {
    pub(crate) fn new(
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
