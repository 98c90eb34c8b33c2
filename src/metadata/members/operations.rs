//! Operations on organizations and members.

use std::sync::Arc;

use uuid::Uuid;

use crate::accounts::{
    CreatedKey, Grant, KeyId, KeyRow, PersonalKey, User, UserId, UserPatch, check_text, rows,
};
use crate::entity::{Entity, Patch, next_id};
use crate::error::MetadataError;
use crate::flag_rights::FlagRights;
use crate::members::{
    EMAIL_MAX_CHARS, FIRST_KEY_LABEL, FIRST_NAME_MAX_CHARS, Level, NewMember,
    ORGANIZATION_NAME_MAX_CHARS, Organization,
};
use crate::secrets::Seed;
use crate::violation::Violation;
use crate::{Metadata, Write, sessions};

impl Metadata {
    /// Renames an organization.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such an organization, [`MetadataError::Rejected`] for a
    /// blank or long name.
    pub async fn rename_organization(
        &self,
        id: Uuid,
        name: &str,
    ) -> Result<Arc<Organization>, MetadataError> {
        check_text("name", name, ORGANIZATION_NAME_MAX_CHARS)?;
        let mut write = self.begin().await?;
        let stored = write.base.organization(id).ok_or(MetadataError::NotFound("organization"))?;
        let renamed = Arc::new(Organization { name: name.to_owned(), ..stored.as_ref().clone() });
        renamed.update().execute(write.connection()).await?;
        write.commit_with(|next| next.put_organization(Arc::clone(&renamed))).await?;
        Ok(renamed)
    }

    /// Adds a member to the organization of `by`, with a first key that has the rights of `grant`: at most those of the
    /// key that asks. Nothing works again that a member who comes back signed in with before.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a user; [`MetadataError::Rejected`] for an invalid
    /// name or address, an address that another user has, or a level above that of `by`.
    pub async fn add_member(
        &self,
        by: UserId,
        new: NewMember,
        grant: Grant,
        seed: &Seed,
    ) -> Result<(Arc<User>, CreatedKey), MetadataError> {
        check_text("first_name", &new.first_name, FIRST_NAME_MAX_CHARS)?;
        check_email(&new.email)?;
        let mut write = self.begin().await?;
        let by = Arc::clone(write.user(by)?);
        if new.level > by.level {
            return Err(too_high().into());
        }
        let is_back = |user: &&Arc<User>| {
            user.is_removed() && user.email == new.email && user.organization == by.organization
        };
        let removed = write.base.users().find(is_back).cloned();
        check_email_is_free(&write, removed.as_ref().map(|user| user.id), &new.email)?;
        let user = match removed {
            Some(removed) => {
                let (first_name, level) = (new.first_name, new.level);
                User { first_name, level, removed_at: None, ..removed.as_ref().clone() }
            }
            None => User {
                id: UserId(next_id::<User>(write.connection()).await?),
                organization: by.organization,
                uuid: seed.uuid("user"),
                distinct_id: seed.distinct_id(),
                first_name: new.first_name,
                email: new.email,
                current_project: by.current_project,
                level: new.level,
                created_at: self.now(),
                ..User::default()
            },
        };
        let user = Arc::new(user);
        match write.base.user(user.id) {
            Some(_) => {
                user.update().execute(write.connection()).await?;
                // Sign-ins of before its removal, which an older version did not end.
                sessions::end_all(&mut write, user.id).await?;
            }
            None => {
                user.insert().execute(write.connection()).await?;
            }
        }
        let id = KeyId(next_id::<KeyRow>(write.connection()).await?);
        let made = self.make_key(id, &user, FIRST_KEY_LABEL, grant, seed);
        made.key.insert().execute(write.connection()).await?;
        let mut next = write.base.as_ref().clone();
        next.put_user(Arc::clone(&user));
        next.put_key(Arc::clone(&made.key));
        write.commit(next).await?;
        Ok((user, made))
    }

    /// Changes a user.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a user; [`MetadataError::Rejected`] for an invalid
    /// name or address, or a project of another organization.
    pub async fn update_user(
        &self,
        id: UserId,
        patch: UserPatch,
    ) -> Result<Arc<User>, MetadataError> {
        if let Some(name) = &patch.first_name {
            check_text("first_name", name, FIRST_NAME_MAX_CHARS)?;
        }
        patch.email.as_deref().map_or(Ok(()), check_email)?;
        let write = self.begin().await?;
        let stored = Arc::clone(write.user(id)?);
        if let Some(email) = &patch.email {
            check_email_is_free(&write, Some(id), email)?;
        }
        if let Some(Some(project)) = patch.current_project {
            let own = write.base.project(project);
            if own.is_none_or(|own| own.organization != stored.organization) {
                return Err(Violation::missing("set_current_team", project).into());
            }
        }
        let mut user = patch.applied(stored.as_ref().clone());
        // A new address is not verified.
        user.is_email_verified &= user.email == stored.email;
        self.put_user(write, user).await
    }

    /// Changes the level of the user `id`, in the name of `by`.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a member; [`MetadataError::Rejected`] for one's own
    /// level, for a level or a member above that of `by`, and for the last owner.
    pub async fn set_level(
        &self,
        by: UserId,
        id: UserId,
        level: Level,
    ) -> Result<Arc<User>, MetadataError> {
        let write = self.begin().await?;
        let (by, stored) = members(&write, by, id)?;
        if by.id == stored.id {
            return Err(Violation::general("You can't change your own access level.").into());
        }
        if level > by.level || stored.level > by.level {
            return Err(too_high().into());
        }
        if level < Level::Owner {
            check_other_owner(&write, &stored)?;
        }
        self.put_user(write, User { level, ..stored.as_ref().clone() }).await
    }

    /// Removes the user `id` from the organization, with its keys, roles, sessions and sign-in links, in the name of `by`.
    ///
    /// # Errors
    ///
    /// As of [`Metadata::set_level`]; every user may remove itself.
    pub async fn remove_member(&self, by: UserId, id: UserId) -> Result<(), MetadataError> {
        let mut write = self.begin().await?;
        let (by, stored) = members(&write, by, id)?;
        if stored.level > by.level {
            return Err(too_high().into());
        }
        check_other_owner(&write, &stored)?;
        let keys = write.base.keys().filter(|key| key.user.id == id);
        let keys: Vec<Arc<PersonalKey>> = keys.cloned().collect();
        let now = self.now();
        for key in &keys {
            rows::revoke_key(write.connection(), key.id, now).await?;
        }
        let user = User { removed_at: Some(now), ..stored.as_ref().clone() };
        user.update().execute(write.connection()).await?;
        sessions::end_all(&mut write, id).await?;
        write.take_roles(by.id, &user).await?;
        let rights = FlagRights::load(write.connection()).await?;
        let mut next = write.base.as_ref().clone();
        next.put_flag_rights(rights);
        keys.iter().for_each(|key| next.remove_key(key.hash));
        next.put_user(Arc::new(user));
        write.commit(next).await
    }

    /// Writes a changed user, and updates the user in its keys.
    async fn put_user(&self, mut write: Write, user: User) -> Result<Arc<User>, MetadataError> {
        let user = Arc::new(user);
        user.update().execute(write.connection()).await?;
        let mut next = write.base.as_ref().clone();
        for key in write.base.keys().filter(|key| key.user.id == user.id) {
            let key = PersonalKey::of(Arc::clone(&user), KeyRow::clone(key));
            next.put_key(Arc::new(key));
        }
        next.put_user(Arc::clone(&user));
        write.commit(next).await?;
        Ok(user)
    }
}

/// Two members of one organization.
fn members(write: &Write, by: UserId, id: UserId) -> Result<(Arc<User>, Arc<User>), MetadataError> {
    const MISSING: MetadataError = MetadataError::NotFound("member");
    let by = write.user(by).map_err(|_| MISSING)?;
    let is_own = |user: &&Arc<User>| user.organization == by.organization;
    let user = write.user(id).ok().filter(is_own).ok_or(MISSING)?;
    Ok((Arc::clone(by), Arc::clone(user)))
}

/// Checks that another owner remains if `user` ceases to be one.
fn check_other_owner(write: &Write, user: &User) -> Result<(), Violation> {
    let is_other = |other: &&Arc<User>| {
        other.id != user.id
            && other.organization == user.organization
            && other.level == Level::Owner
            && !other.is_removed()
    };
    if user.level < Level::Owner || write.base.users().any(|other| is_other(&other)) {
        return Ok(());
    }
    Err(Violation::general("An organization needs an owner."))
}

fn check_email_is_free(write: &Write, own: Option<UserId>, email: &str) -> Result<(), Violation> {
    let is_taken = |user: &Arc<User>| user.email == email && Some(user.id) != own;
    if write.base.users().any(is_taken) {
        let detail = "There is already a user with this email address.";
        return Err(Violation::unique("email", detail));
    }
    Ok(())
}

fn check_email(email: &str) -> Result<(), Violation> {
    check_text("email", email, EMAIL_MAX_CHARS)?;
    let is_address = email.split_once('@').is_some_and(|(local, domain)| {
        !local.is_empty() && !domain.is_empty() && !domain.contains('@')
    });
    if is_address && !email.contains(char::is_whitespace) {
        return Ok(());
    }
    let detail = "Enter a valid email address.".to_owned();
    Err(Violation { code: "invalid_input", detail, attr: Some("email") })
}

fn too_high() -> Violation {
    Violation::general("You cannot give or take rights above your own.")
}
