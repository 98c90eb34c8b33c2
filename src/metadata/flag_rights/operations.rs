//! Operations on the rights to change flags, and what they decide.

use uuid::Uuid;

use crate::accounts::{User, UserId};
use crate::activity::{Change, Scope, Verb, diff};
use crate::entity::{Columns, Entity, next_id};
use crate::error::MetadataError;
use crate::flag_rights::{FEATURE_FLAGS, FlagRights, NO_EDITOR, NO_EDITOR_OF_ALL, ResourceAccess};
use crate::flags::StoredFlag;
use crate::roles::check_level;
use crate::snapshot::Snapshot;
use crate::violation::Violation;
use crate::{Metadata, Write, disk};

impl Snapshot {
    /// Whether a user may change a flag.
    pub fn may_edit(&self, user: &User, flag: &StoredFlag) -> bool {
        let rights = self.flag_rights();
        let granted = rights.granted.get(&user.id);
        rights.may_grant(user, flag) || granted.is_some_and(|flags| flags.contains(&flag.id))
    }

    /// Whether a user may grant roles the right to change a flag.
    pub fn may_grant(&self, user: &User, flag: &StoredFlag) -> bool {
        self.flag_rights().may_grant(user, flag)
    }
}

impl Metadata {
    /// The defaults of an organization.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn resource_accesses(
        &self,
        organization: Uuid,
    ) -> Result<Vec<ResourceAccess>, MetadataError> {
        let select = ResourceAccess::select("WHERE organization = $1 ORDER BY id")
            .bind(organization.to_string());
        Ok(select.fetch_all(&mut self.shared.db.reader().await?).await?)
    }

    /// Sets the default of the organization of `by` for a kind of object.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Rejected`] for another kind than flags, an unknown level, or if there is a
    /// default already.
    pub async fn add_resource_access(
        &self,
        by: UserId,
        resource: &str,
        access_level: i64,
    ) -> Result<ResourceAccess, MetadataError> {
        if resource != FEATURE_FLAGS {
            let detail = format!("\"{resource}\" is not a valid choice.");
            return Err(Violation::choice("resource", detail).into());
        }
        check_level("access_level", access_level)?;
        let mut write = self.begin().await?;
        let organization = write.user(by)?.organization;
        let (id, now) = (next_id::<ResourceAccess>(write.connection()).await?, self.now().0);
        let access = ResourceAccess {
            id,
            organization: organization.to_string(),
            resource: resource.to_owned(),
            access_level,
            created_by: Some(by.0),
            created_at: now,
            updated_at: now,
        };
        let inserted = access.insert().execute(write.connection()).await;
        inserted.map_err(|error| {
            let detail = "This resource access already exists.";
            disk::unless_taken(error.into(), || Violation::unique("resource", detail))
        })?;
        write.log_default(by, None, Some(&access)).await?;
        write.commit_rights().await?;
        Ok(access)
    }

    /// Changes a default of the organization of `by`.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without it, [`MetadataError::Rejected`] for an unknown level.
    pub async fn change_resource_access(
        &self,
        by: UserId,
        id: i64,
        access_level: i64,
    ) -> Result<ResourceAccess, MetadataError> {
        check_level("access_level", access_level)?;
        let mut write = self.begin().await?;
        let organization = write.user(by)?.organization;
        let before = write.resource_access(organization, id).await?;
        let access = ResourceAccess { access_level, updated_at: self.now().0, ..before.clone() };
        access.update().execute(write.connection()).await?;
        write.log_default(by, Some(&before), Some(&access)).await?;
        write.commit_rights().await?;
        Ok(access)
    }

    /// Removes a default of the organization of `by`.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without it.
    pub async fn remove_resource_access(&self, by: UserId, id: i64) -> Result<(), MetadataError> {
        let mut write = self.begin().await?;
        let organization = write.user(by)?.organization;
        let gone = write.resource_access(organization, id).await?;
        gone.delete().execute(write.connection()).await?;
        write.log_default(by, Some(&gone), None).await?;
        write.commit_rights().await
    }
}

impl Write {
    /// Checks that the user may change the flag.
    pub(crate) fn check_editor(
        &self,
        user: UserId,
        flag: &StoredFlag,
    ) -> Result<(), MetadataError> {
        let user = self.user(user)?;
        match self.base.may_edit(user, flag) {
            true => Ok(()),
            false => Err(MetadataError::Forbidden(NO_EDITOR)),
        }
    }

    /// Checks that the user may change every flag, and so the settings of all.
    pub(crate) fn check_editor_of_all(&self, user: UserId) -> Result<(), MetadataError> {
        let user = self.user(user)?;
        match self.base.flag_rights().may_edit_all(user) {
            true => Ok(()),
            false => Err(MetadataError::Forbidden(NO_EDITOR_OF_ALL)),
        }
    }

    /// A default of an organization, as it is in this transaction.
    async fn resource_access(
        &mut self,
        organization: Uuid,
        id: i64,
    ) -> Result<ResourceAccess, MetadataError> {
        let select = ResourceAccess::select("WHERE id = $1 AND organization = $2");
        let select = select.bind(id).bind(organization.to_string());
        let found = select.fetch_optional(self.connection()).await?;
        found.ok_or(MetadataError::NotFound("resource access"))
    }

    /// Logs a change of the default of the organization of `by`.
    async fn log_default(
        &mut self,
        by: UserId,
        before: Option<&ResourceAccess>,
        after: Option<&ResourceAccess>,
    ) -> Result<(), MetadataError> {
        let organization = self.user(by)?.organization;
        let logged =
            |own: Option<&ResourceAccess>| own.map(Columns::logged_cells).unwrap_or_default();
        let fields = diff(Scope::Organization, &logged(before), &logged(after));
        if fields.is_empty() {
            return Ok(());
        }
        let name = self.base.organization(organization).map(|own| own.name.clone());
        let (item, name) = (organization.to_string(), name.unwrap_or_default());
        let verb = Verb::Updated;
        let change = Change { scope: Scope::Organization, item, verb, name, fields };
        self.log_everywhere(by, change).await
    }

    /// Commits changes that affect the rights to flags.
    pub(crate) async fn commit_rights(mut self) -> Result<(), MetadataError> {
        let rights = FlagRights::load(self.connection()).await?;
        if rights == *self.base.flag_rights() {
            return self.commit_unseen().await;
        }
        self.commit_with(|next| next.put_flag_rights(rights)).await
    }
}
