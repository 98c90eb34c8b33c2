//! Bulk changes of the tags of flags.

use std::sync::Arc;

use crate::Metadata;
use crate::accounts::UserId;
use crate::error::MetadataError;
use crate::flags::plain::PlainPatch;
use crate::flags::{FlagId, FlagPatch, StoredFlag};
use crate::tags::normal_tags;
use weir_event::id::ProjectId;

/// Why a flag is skipped; PostHog's words. One text for both cases, so that it does not reveal
/// which ids exist.
const NOT_EDITABLE: &str = "Not found or no edit access";

/// A change of tags. Tags need not be normalised.
#[derive(Clone, Debug)]
pub enum TagChange {
    /// Adds these.
    Add(Vec<String>),
    /// Removes these.
    Remove(Vec<String>),
    /// Replaces all by these.
    Set(Vec<String>),
}

impl TagChange {
    /// The tags after the change.
    pub(crate) fn of(&self, mut tags: Vec<String>) -> Vec<String> {
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

/// The result of a bulk change of tags.
#[derive(Clone, Debug, Default)]
pub struct Tagged {
    /// Flags that have the wanted tags now.
    pub flags: Vec<Arc<StoredFlag>>,
    /// Flags that were skipped, with the reason in words for people.
    pub skipped: Vec<(FlagId, String)>,
}

impl Metadata {
    /// Changes the tags of flags, in one transaction; each list is in the order of `ids`. Skips
    /// flags that are deleted or missing, that the user may not change, or whose change breaks a
    /// rule. A flag whose tags stay the same gets no new version.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a user, [`MetadataError::Database`]; nothing is
    /// changed then.
    pub async fn change_tags(
        &self,
        project: ProjectId,
        user: UserId,
        ids: &[FlagId],
        change: TagChange,
    ) -> Result<Tagged, MetadataError> {
        let mut write = self.begin().await?;
        let base = Arc::clone(&write.base);
        let editor = base.user(user).ok_or(MetadataError::NotFound("user"))?;
        let (mut tagged, mut changed) = (Tagged::default(), Vec::new());
        for id in ids {
            let found = base.flags(project).iter().find(|flag| flag.id == *id);
            let Some(flag) = found.filter(|flag| base.may_edit(editor, flag)) else {
                tagged.skipped.push((*id, NOT_EDITABLE.to_owned()));
                continue;
            };
            let tags = change.of(flag.plain.tags.clone());
            if tags == flag.plain.tags {
                tagged.flags.push(Arc::clone(flag));
                continue;
            }
            let plain = PlainPatch { tags: Some(tags), ..PlainPatch::default() };
            let patch = FlagPatch { plain, ..FlagPatch::default() };
            match write.change_flag(user, flag, patch, None).await {
                Ok(()) => {}
                // Rules are checked before anything is written.
                Err(MetadataError::Rejected(violation)) => {
                    tagged.skipped.push((*id, violation.detail));
                    continue;
                }
                Err(error) => return Err(error),
            }
            let flag = write.read_flag(project, *id).await?;
            changed.push(Arc::clone(&flag));
            tagged.flags.push(flag);
        }
        write.commit_with(|next| next.change_flags(project, &changed)).await?;
        Ok(tagged)
    }
}
