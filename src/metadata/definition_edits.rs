//! Edits of definitions by users. [`Definition`] is what those of events and of properties differ in; both have
//! [`Notes`] beside them.

use serde_json::{Map, Value};
use uuid::Uuid;

use crate::accounts::UserId;
use crate::activity::{Logged, diff};
use crate::annotations::{Edit, Notes, NotesPatch};
use crate::connection::Conn;
use crate::entity::{Columns, Entity};
use crate::error::MetadataError;
use crate::violation::Violation;
use crate::{Metadata, Write, annotations};
use weir_event::id::ProjectId;

/// A definition of events or of properties.
#[expect(private_bounds, reason = "no other crate has definitions")]
pub trait Definition: Entity + Logged + Clone + Sync {
    /// Changes to it and to its annotations.
    type Patch: Send;

    /// What it defines, in texts of errors.
    const THING: &'static str;

    /// Its own name in errors.
    const NAME: &'static str;

    /// Its id.
    fn id(&self) -> Uuid;

    /// Its project.
    fn project(&self) -> ProjectId;

    /// The definition with the changes, and the changes to its annotations.
    fn patched(self, patch: Self::Patch) -> (Self, NotesPatch);

    /// Checks the values of a patch.
    ///
    /// # Errors
    ///
    /// The first violation.
    fn check(_: &Self::Patch) -> Result<(), Violation> {
        Ok(())
    }

    /// Why a change was not stored, in words for people if an index refused it. None does unless a patch changes what is
    /// unique.
    fn refused(error: MetadataError) -> MetadataError {
        error
    }

    /// Whether what was reported of `before` has to be reported again for this one.
    fn is_forgotten(&self, before: &Self) -> bool;
}

impl Metadata {
    /// One definition of a project.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] if the project has none with this id.
    pub async fn definition<D: Definition>(
        &self,
        project: ProjectId,
        id: Uuid,
    ) -> Result<(D, Notes), MetadataError> {
        let mut connection = self.shared.db.reader().await?;
        let definition = by_id(&mut connection, project, id).await?;
        Ok((definition, annotations::of(&mut connection, project, id).await?))
    }

    /// Changes a definition in the name of the user `by`.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] if the project has none with this id,
    /// [`MetadataError::Rejected`] for a name that is blank, long, or another definition's, and for
    /// annotations that break a rule.
    pub async fn update_definition<D: Definition>(
        &self,
        project: ProjectId,
        id: Uuid,
        patch: D::Patch,
        by: UserId,
    ) -> Result<(D, Notes), MetadataError> {
        D::check(&patch)?;
        let mut write = self.begin().await?;
        let stored: D = by_id(write.connection(), project, id).await?;
        let edit = Edit { by, at: self.now() };
        let (definition, notes) = write.edit_definition(&stored, patch, edit).await?;
        write.commit_unseen().await?;
        if definition.is_forgotten(&stored) {
            self.note_forgotten();
        }
        Ok((definition, notes))
    }

    /// Deletes a definition in the name of the user `by`. The next such event or property creates it again; pairs of
    /// events and properties stay.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] if the project has none with this id.
    pub async fn delete_definition<D: Definition>(
        &self,
        project: ProjectId,
        id: Uuid,
        by: UserId,
    ) -> Result<D, MetadataError> {
        let mut write = self.begin().await?;
        let definition: D = by_id(write.connection(), project, id).await?;
        write.remove(by, &definition).await?;
        annotations::forget(write.connection(), id).await?;
        write.commit_unseen().await?;
        self.note_forgotten();
        Ok(definition)
    }
}

impl Write {
    /// Changes a definition, and logs the changes.
    pub(super) async fn edit_definition<D: Definition>(
        &mut self,
        stored: &D,
        patch: D::Patch,
        edit: Edit,
    ) -> Result<(D, Notes), MetadataError> {
        let (definition, patch) = stored.clone().patched(patch);
        self.check_owner(&patch)?;
        let (project, id) = (stored.project(), stored.id());
        let noted = annotations::of(self.connection(), project, id).await?;
        let before = compared(stored, &noted);
        let notes = noted.edited(D::THING, patch, edit)?;
        let updated = definition.update().execute(self.connection()).await;
        updated.map_err(|error| D::refused(error.into()))?;
        notes.put().execute(self.connection()).await?;
        let scope = definition.subject().scope;
        let fields = diff(scope, &before, &compared(&definition, &notes));
        if !fields.is_empty() {
            self.log(project, Some(edit.by), definition.entry(D::CHANGED, fields)).await?;
        }
        Ok((definition, notes))
    }

    /// Checks that the owner that a patch sets is a user who was not removed.
    pub(super) fn check_owner(&self, patch: &NotesPatch) -> Result<(), Violation> {
        match patch.owner {
            Some(Some(owner)) if self.user(owner).is_err() => {
                Err(Violation::missing("owner", owner))
            }
            _ => Ok(()),
        }
    }
}

/// The fields that the activity log compares, with those of the annotations.
fn compared<D: Definition>(definition: &D, notes: &Notes) -> Map<String, Value> {
    definition.logged().into_iter().chain(notes.logged_cells()).collect()
}

/// One definition of a project.
pub(super) async fn by_id<D: Definition>(
    connection: &mut Conn,
    project: ProjectId,
    id: Uuid,
) -> Result<D, MetadataError> {
    let select =
        D::select("WHERE id = $1 AND project_id = $2").bind(id.to_string()).bind(project.0);
    select.fetch_optional(connection).await?.ok_or(MetadataError::NotFound(D::NAME))
}
