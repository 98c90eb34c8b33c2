//! Tags of many flags at once.

use std::sync::Arc;

use crate::event::id::ProjectId;
use crate::metadata::Metadata;
use crate::metadata::MetadataError;
use crate::metadata::accounts::UserId;
use crate::metadata::definitions::normal_tags;
use crate::metadata::flags::FlagId;
use crate::metadata::flags::FlagPatch;
use crate::metadata::flags::StoredFlag;
use crate::metadata::flags::rows;

/// What becomes of the tags of flags. Tags are as typed.
#[derive(Clone, Debug)]
pub enum TagChange {
    /// These besides.
    Add(Vec<String>),
    /// Without these.
    Remove(Vec<String>),
    /// These alone.
    Set(Vec<String>),
}

impl TagChange {
    fn of(&self, mut tags: Vec<String>) -> Vec<String> {
        match self {
            Self::Set(new) => normal_tags(new.clone()),
            Self::Add(new) => {
                tags.extend(new.iter().cloned());
                normal_tags(tags)
            }
            Self::Remove(gone) => {
                let gone = normal_tags(gone.clone());
                tags.retain(|tag| !gone.contains(tag));
                tags
            }
        }
    }
}

impl Metadata {
    /// Changes the tags of flags, of all in one transaction, and gives those that there are and that
    /// are not deleted, in the order of `ids`. A flag whose tags stay the same gets no new version.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`]; nothing is changed then.
    pub async fn change_tags(
        &self,
        project: ProjectId,
        user: UserId,
        ids: &[FlagId],
        change: TagChange,
    ) -> Result<Vec<Arc<StoredFlag>>, MetadataError> {
        let mut write = self.begin().await?;
        let base = Arc::clone(&write.base);
        let (mut flags, mut changed) = (Vec::with_capacity(ids.len()), Vec::new());
        for id in ids {
            let found = base.flags(project).iter().find(|flag| flag.id == *id);
            let Some(flag) = found else { continue };
            let tags = change.of(flag.tags.clone());
            if tags == flag.tags {
                flags.push(Arc::clone(flag));
                continue;
            }
            let patch = FlagPatch { tags: Some(tags), ..FlagPatch::default() };
            write.change_flag(user, flag, patch, None).await?;
            let flag = rows::by_id(write.connection(), project, *id).await?;
            let flag = Arc::new(flag.ok_or(MetadataError::NotFound("flag"))?);
            changed.push(Arc::clone(&flag));
            flags.push(flag);
        }
        write.commit_with(|next| next.change_flags(project, &changed)).await?;
        Ok(flags)
    }
}
