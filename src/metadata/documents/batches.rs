//! All documents of a kind, some at a time: [`Batches`]. Each batch is a read of its own, so no connection is held, and no
//! snapshot of the database, while the caller looks at one.

use crate::Metadata;
use crate::documents::{DocumentText, Kind, rows};
use crate::error::MetadataError;
use weir_event::id::ProjectId;

/// Documents of a batch.
const BATCH_DOCUMENTS: u32 = 64;

/// The documents of a kind in a project that are not deleted, newest first.
#[derive(Debug)]
pub struct Batches<'m> {
    metadata: &'m Metadata,
    project: ProjectId,
    kind: Kind,
    like: String,
    /// The ids that are left are below it; `None` at the end.
    before: Option<i64>,
}

impl Metadata {
    /// Those of all documents of the kind whose fields match `like`, a pattern of `LIKE` for their text, such as `%`.
    pub fn document_batches(&self, project: ProjectId, kind: Kind, like: String) -> Batches<'_> {
        Batches { metadata: self, project, kind, like, before: Some(i64::MAX) }
    }
}

impl Batches<'_> {
    /// The next ones; `None` at the end.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`], [`MetadataError::Corrupt`].
    pub async fn next(&mut self) -> Result<Option<Vec<DocumentText>>, MetadataError> {
        let Some(before) = self.before else { return Ok(None) };
        let mut reader = self.metadata.shared.db.reader().await?;
        let (project, kind, most) = (self.project, self.kind, BATCH_DOCUMENTS);
        let some = rows::before(&mut reader, project, kind, before, most, &self.like).await?;
        let is_full = u32::try_from(some.len()).is_ok_and(|count| count == BATCH_DOCUMENTS);
        self.before = some.last().map(|last| last.head.id).filter(|_| is_full);
        Ok(Some(some).filter(|some| !some.is_empty()))
    }
}
