//! The group types of a project: names in the order of first sight, whose position is the number of
//! the column that holds the group's key. A name never moves and never leaves.

use crate::event::id::ProjectId;
use crate::event::schema::GROUP_TYPES_MAX;
use crate::metadata::Metadata;
use crate::metadata::MetadataError;

impl Metadata {
    /// Gives each of `names` that is new the next free position, as long as there are any; the
    /// others are left out, now and later. Durable when this returns, so that an event may name
    /// its column.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`], also for a project that does not exist.
    pub async fn ensure_group_types(
        &self,
        project: ProjectId,
        names: &[String],
    ) -> Result<(), MetadataError> {
        let mut write = self.begin().await?;
        let mut next = (*write.base).clone();
        for name in names {
            let known = next.group_types(project);
            if known.len() >= GROUP_TYPES_MAX || known.contains(name) {
                continue;
            }
            let position = i64::try_from(known.len()).unwrap_or(i64::MAX);
            let insert = "INSERT INTO group_types (project_id, position, name) VALUES ($1, $2, $3)";
            sqlx::query(insert)
                .bind(project.0)
                .bind(position)
                .bind(name)
                .execute(write.connection())
                .await?;
            next.put_group_type(project, name.clone());
        }
        write.commit(next).await
    }
}
