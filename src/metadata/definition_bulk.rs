//! Changes of many event definitions at once: their labels, or whether someone vouched for them.

use uuid::Uuid;

use crate::event::id::ProjectId;
use crate::metadata::Metadata;
use crate::metadata::MetadataError;
use crate::metadata::accounts::UserId;
use crate::metadata::definition_notes;
use crate::metadata::definition_notes::Edit;
use crate::metadata::definition_notes::NotesPatch;
use crate::metadata::definitions;
use crate::metadata::definitions::DefinitionPatch;
use crate::metadata::definitions::EventDefinition;
use crate::metadata::flags::tags::TagChange;

/// What becomes of each of many definitions.
#[derive(Clone, Debug)]
pub enum BulkChange {
    /// Other labels.
    Tags(TagChange),
    /// Whether someone vouches for them; who does is brought out of hiding.
    Verified(bool),
}

/// What became of many definitions.
#[derive(Clone, Debug, Default)]
pub struct BulkChanged {
    /// Those that are as wanted now; of [`BulkChange::Verified`] without those that were so before.
    pub definitions: Vec<EventDefinition>,
    /// Ids that no definition of the project has.
    pub missing: Vec<Uuid>,
}

impl Metadata {
    /// Changes definitions in the name of the user `by`, in the order of `ids` and all in one
    /// transaction. One that is as wanted already is not written.
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
            let stored = match definitions::by_id(write.connection(), project, *id).await {
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
                    let notes = definition_notes::of(write.connection(), *id).await?;
                    if notes.verified == *wanted {
                        continue;
                    }
                    let notes = NotesPatch { verified: Some(*wanted), ..NotesPatch::default() };
                    DefinitionPatch { notes, ..DefinitionPatch::default() }
                }
            };
            changed.definitions.push(write.edit_definition(stored, patch, edit).await?.0);
        }
        write.commit_unseen().await?;
        Ok(changed)
    }
}
