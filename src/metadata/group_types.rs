//! The group types of a project: names in the order in which they were first seen. The position is
//! the number of the column that holds the group's key. A name is never moved or removed. Display
//! names for people ([`CalledPatch`]) are set by users.

use std::collections::HashMap;

use crate::Metadata;
use crate::accounts::UserId;
use crate::activity::{Logged, Scope, Subject};
use crate::entity::{Columns, Entity, Patch, entity};
use crate::error::MetadataError;
use weir_event::id::ProjectId;
use weir_event::schema::GROUP_TYPES_MAX;

entity! {
    /// A group type.
    #[derive(Default)]
    pub struct GroupType in "group_types" {
        /// Its project.
        project: ProjectId as "project_id" [key],
        /// Its position.
        position: i64 [key],
        /// Its name.
        name: String [once],
    }
    /// New display names of the groups of a type; `None` leaves one unchanged.
    pub struct CalledPatch {
        /// What one group is called.
        name_singular: Option<String> [logged],
        /// What several are called.
        name_plural: Option<String> [logged],
    }
    with {
        /// Position of the type.
        position: u8,
    }
}

impl Logged for GroupType {
    fn subject(&self) -> Subject {
        let (item, name) = (self.position.to_string(), self.name.clone());
        Subject { scope: Scope::Group, item, name, project: Some(self.project) }
    }
}

impl Metadata {
    /// Gives each of `names` that is new the next free position, as long as there is one; the others are
    /// ignored, now and later. Durable when this returns, so that an event may refer to the column.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] for a deleted project, [`MetadataError::Database`], also for one that never existed.
    pub async fn ensure_group_types(
        &self,
        project: ProjectId,
        names: &[String],
    ) -> Result<(), MetadataError> {
        let mut write = self.begin().await?;
        if write.base.is_deleted(project) {
            return Err(MetadataError::NotFound("project"));
        }
        let mut next = (*write.base).clone();
        for name in names {
            let known = next.group_types(project);
            if known.len() >= GROUP_TYPES_MAX || known.contains(name) {
                continue;
            }
            let position = i64::try_from(known.len()).unwrap_or(i64::MAX);
            let new = GroupType { project, position, name: name.clone(), ..GroupType::default() };
            new.insert().execute(write.connection()).await?;
            next.put_group_type(project, name.clone());
        }
        write.commit(next).await
    }

    /// Display names of each group type of a project, by the name of the type.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn group_types_called(
        &self,
        project: ProjectId,
    ) -> Result<HashMap<String, GroupType>, MetadataError> {
        let select = GroupType::select("WHERE project_id = $1");
        let select = select.bind(project.0);
        let types: Vec<GroupType> = select.fetch_all(&mut self.shared.db.reader().await?).await?;
        Ok(types.into_iter().map(|own| (own.name.clone(), own)).collect())
    }

    /// Changes display names of group types, in the name of the user `by`; all types or none.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] if there is no such type, [`MetadataError::Database`].
    pub async fn call_group_types(
        &self,
        project: ProjectId,
        by: UserId,
        patches: &[CalledPatch],
    ) -> Result<(), MetadataError> {
        let mut write = self.begin().await?;
        for patch in patches {
            let select = GroupType::select("WHERE project_id = $1 AND position = $2")
                .bind(project.0)
                .bind(u32::from(patch.position));
            let stored: Option<GroupType> = select.fetch_optional(write.connection()).await?;
            let stored = stored.ok_or(MetadataError::NotFound("group type"))?;
            let called = patch.clone().applied(stored.clone());
            write.change(by, &stored, &called).await?;
        }
        write.commit_unseen().await
    }
}
