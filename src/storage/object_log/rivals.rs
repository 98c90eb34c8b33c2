//! [`Rivals`]: whether another writer has taken the log over, found out without a put.

use object_store::Error;
use uuid::Uuid;

use crate::object_log::list::ObjectFiles;
use crate::object_log::put::header_of;
use crate::wal::WalError;

/// Looks for other writers of a log.
#[derive(Clone, Debug)]
pub struct Rivals {
    pub(super) files: ObjectFiles,
    pub(super) writer: Uuid,
}

impl Rivals {
    /// Looks whether another writer has put an object behind the last one that is known here: it can only be a claim.
    ///
    /// # Errors
    ///
    /// [`WalError::Fenced`] if there is one; [`WalError::Store`] if the store does not say.
    pub async fn look(&self) -> Result<(), WalError> {
        match header_of(self.files.objects(), self.files.end().next()).await {
            Ok(Ok(header)) if header.writer == self.writer => Ok(()),
            Ok(_) => Err(WalError::Fenced),
            Err(Error::NotFound { .. }) => Ok(()),
            Err(source) => Err(WalError::Store { action: "look into", source }),
        }
    }
}
