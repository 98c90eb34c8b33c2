//! Bulk changes of event definitions: labels and verification.

use uuid::Uuid;

use crate::accounts::UserId;
use crate::annotations::{Edit, NotesPatch};
use crate::definition_edits::by_id;
use crate::definitions::{DefinitionPatch, EventDefinition};
use crate::error::MetadataError;
use crate::flags::tags::TagChange;
use crate::{Metadata, annotations};
use weir_event::id::ProjectId;

/// The change to make to each definition.
#[derive(Clone, Debug)]
pub enum BulkChange {
    /// Other labels.
    Tags(TagChange),
    /// Whether they are verified; verifying ends hiding.
    Verified(bool),
}

/// The result of a bulk change.
#[derive(Clone, Debug, Default)]
pub struct BulkChanged {
    /// The definitions in the wanted state; of [`BulkChange::Verified`] only those that changed.
    pub definitions: Vec<EventDefinition>,
    /// Ids that no definition of the project has.
    pub missing: Vec<Uuid>,
}

impl Metadata {
    /// Changes definitions in the name of the user `by`, in the order of `ids` and all in one
    /// transaction. A definition that is in the wanted state already is not written.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`], [`MetadataError::Corrupt`]; nothing is changed then.
    pub async fn change_definitions(
        &self,
        project: ProjectId,
        ids: &[Uuid],
        change: BulkChange,
        by: UserId,
    ) -> Result<BulkChanged, MetadataError> {
        let mut write = self.begin().await?;
        let (edit, mut changed) = (Edit { by, at: self.now() }, BulkChanged::default());
        for id in ids {
            let stored: EventDefinition = match by_id(write.connection(), project, *id).await {
                Err(MetadataError::NotFound(_)) => {
                    changed.missing.push(*id);
                    continue;
                }
                found => found?,
            };
            let patch = match &change {
                BulkChange::Tags(tags) => {
                    let tags = tags.of(stored.tags.clone());
                    if tags == stored.tags {
                        changed.definitions.push(stored);
                        continue;
                    }
                    DefinitionPatch { tags: Some(tags), ..DefinitionPatch::default() }
                }
                BulkChange::Verified(wanted) => {
                    let notes = annotations::of(write.connection(), project, *id).await?;
                    if notes.verified == *wanted {
                        continue;
                    }
                    let notes = NotesPatch { verified: Some(*wanted), ..NotesPatch::default() };
                    DefinitionPatch { notes, ..DefinitionPatch::default() }
                }
            };
            changed.definitions.push(write.edit_definition(&stored, patch, edit).await?.0);
        }
        write.commit_unseen().await?;
        Ok(changed)
    }
}
