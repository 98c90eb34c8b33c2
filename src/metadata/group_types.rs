//! The group types of a project: names in the order in which they were first seen. The position is
//! the number of the column that holds the group's key. A name is never moved or removed. Display
//! names for people ([`Called`]) are stored separately.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use crate::accounts::UserId;
use crate::activity::{Change, Scope, Verb};
use crate::error::MetadataError;
use crate::{Metadata, activity, sql};
use weir_event::id::ProjectId;
use weir_event::schema::GROUP_TYPES_MAX;

/// Display names of the groups of a type.
#[derive(Clone, Debug, Default, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct Called {
    /// Singular.
    pub name_singular: Option<String>,
    /// Plural.
    pub name_plural: Option<String>,
}

/// New display names of the groups of a type; `None` leaves one unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CalledPatch {
    /// Position of the type.
    pub position: u8,
    /// Singular.
    pub name_singular: Option<Option<String>>,
    /// Plural.
    pub name_plural: Option<Option<String>>,
}

impl Called {
    fn fields(&self) -> Map<String, Value> {
        activity::fields(
            json!({"name_singular": self.name_singular, "name_plural": self.name_plural}),
        )
    }
}

impl Metadata {
    /// Gives each of `names` that is new the next free position, as long as there is one; the others are
    /// ignored, now and later. Durable when this returns, so that an event may refer to the column.
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
            sql::query(insert)
                .bind(project.0)
                .bind(position)
                .bind(name)
                .execute(write.connection())
                .await?;
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
    ) -> Result<HashMap<String, Called>, MetadataError> {
        #[derive(sqlx_macros::FromRow)]
        struct Row {
            name: String,
            #[sqlx(flatten)]
            called: Called,
        }
        let select =
            "SELECT name, name_singular, name_plural FROM group_types WHERE project_id = $1";
        let select = sql::query_as(select).bind(project.0);
        let rows: Vec<Row> = select.fetch_all(&mut self.shared.db.reader().await?).await?;
        Ok(rows.into_iter().map(|row| (row.name, row.called)).collect())
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
            let types = write.base.group_types(project);
            let name = types.get(usize::from(patch.position)).cloned();
            let name = name.ok_or(MetadataError::NotFound("group type"))?;
            let select = "SELECT name_singular, name_plural FROM group_types
                          WHERE project_id = $1 AND position = $2";
            let position = i64::from(patch.position);
            let stored = sql::query_as(select).bind(project.0).bind(position);
            let before: Called = stored.fetch_one(write.connection()).await?;
            let mut called = before.clone();
            if let Some(singular) = &patch.name_singular {
                called.name_singular.clone_from(singular);
            }
            if let Some(plural) = &patch.name_plural {
                called.name_plural.clone_from(plural);
            }
            if called == before {
                continue;
            }
            let update = "UPDATE group_types SET name_singular = $3, name_plural = $4
                          WHERE project_id = $1 AND position = $2";
            sql::query(update)
                .bind(project.0)
                .bind(position)
                .bind(&called.name_singular)
                .bind(&called.name_plural)
                .execute(write.connection())
                .await?;
            let fields = activity::diff(Scope::Group, &before.fields(), &called.fields());
            let item = patch.position.to_string();
            let change = Change { scope: Scope::Group, item, verb: Verb::Updated, name, fields };
            write.log(project, Some(by), change).await?;
        }
        write.commit_unseen().await
    }
}
