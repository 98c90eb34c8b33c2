//! Passwords of links, and the passes of those who gave one. A pass is valid for one link, as long as the password is
//! there and the link is neither turned off nor given another token; nothing of it is stored.

use std::time::Duration;

use crate::accounts::UserId;
use crate::activity::{Logged, Verb};
use crate::connection::Conn;
use crate::documents::shares::{Share, share_of};
use crate::documents::{DocumentKey, Kind, rows};
use crate::entity::{Columns, Entity, entity};
use crate::error::MetadataError;
use crate::passwords::PasswordHash;
use crate::violation::Violation;
use crate::{Metadata, sql};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;

/// Most passwords of one link. Whoever gives a wrong one costs as many hashes.
pub const PASSWORDS_MAX: i64 = 10;

/// Shortest and longest password, in characters.
pub const PASSWORD_MIN_CHARS: usize = 8;
/// See [`PASSWORD_MIN_CHARS`].
pub const PASSWORD_MAX_CHARS: usize = 200;

/// Longest note on a password, in characters.
pub const NOTE_MAX_CHARS: usize = 100;

/// How long a pass is valid, as in PostHog.
pub const PASS_LIFE: Duration = Duration::from_secs(24 * 60 * 60);

entity! {
    /// A password of a link.
    pub struct SharePassword in "share_passwords" {
        /// The kind of the document.
        kind: Kind [key],
        /// The document.
        document: i64 as "document_id" [key],
        /// Its id among the passwords of the link.
        id: i64 [key],
        /// The project of the document.
        project: ProjectId as "project_id" [once],
        /// The hash.
        hash: PasswordHash [once],
        /// Whom it is for, in words of who made it; may be empty.
        note: String [once],
        /// Who made it.
        created_by: UserId [once],
        /// When.
        created_at: UnixMicros [once],
    }
}

impl SharePassword {
    /// The pass through `share` of somebody who gave this password now.
    pub fn pass(&self, share: &Share, now: UnixMicros) -> String {
        let until = now.saturating_add(PASS_LIFE).0;
        format!("{}.{until}.{}", self.id, self.hash.sign(&signed(share, self.id, until)))
    }
}

/// Whether a pass leads through `share`, which has these passwords.
pub fn is_passed(share: &Share, passwords: &[SharePassword], pass: &str, now: UnixMicros) -> bool {
    let mut parts = pass.splitn(3, '.');
    let mut number = || parts.next()?.parse::<i64>().ok();
    let (Some(id), Some(until)) = (number(), number()) else { return false };
    let Some(own) = passwords.iter().find(|own| own.id == id) else { return false };
    let signature = parts.next().unwrap_or_default();
    own.hash.has_signed(&signed(share, id, until), signature) && now.0 < until
}

/// What a pass signs: all that makes it invalid when it changes.
fn signed(share: &Share, id: i64, until: i64) -> String {
    format!("{} {} {id} {until}", share.token, share.enabled_at.0)
}

impl Metadata {
    /// The passwords of the link to a document, newest first.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`], [`MetadataError::Corrupt`].
    pub async fn share_passwords(
        &self,
        key: DocumentKey,
    ) -> Result<Vec<SharePassword>, MetadataError> {
        let select = SharePassword::select(
            "WHERE kind = $1 AND document_id = $2 AND project_id = $3 ORDER BY id DESC",
        )
        .bind(key.kind.name())
        .bind(key.id)
        .bind(key.project.0);
        Ok(select.fetch_all(&mut self.shared.db.reader().await?).await?)
    }

    /// Gives the link to a document one more password.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a document in the project, [`MetadataError::Rejected`] if its link asks
    /// for no password, or has too many.
    pub async fn add_share_password(
        &self,
        user: UserId,
        key: DocumentKey,
        hash: PasswordHash,
        note: String,
    ) -> Result<SharePassword, MetadataError> {
        let DocumentKey { project, kind, id } = key;
        let mut write = self.begin().await?;
        write.user(user)?;
        let document = rows::by_id(write.connection(), key).await?;
        let document = document.ok_or(MetadataError::NotFound("document"))?;
        let share = share_of(write.connection(), key).await?;
        check_required(share.as_ref())?;
        if count(write.connection(), key).await? >= PASSWORDS_MAX {
            let detail = format!("A link has at most {PASSWORDS_MAX} passwords.");
            return Err(Violation::general(detail).into());
        }
        let next = sql::query_scalar(
            "UPDATE shares SET last_password = last_password + 1
             WHERE kind = $1 AND document_id = $2 RETURNING last_password",
        );
        let next: i64 = next.bind(kind.name()).bind(id).fetch_one(write.connection()).await?;
        let password = SharePassword {
            kind,
            document: id,
            id: next,
            project,
            hash,
            note,
            created_by: user,
            created_at: self.now(),
        };
        password.insert().execute(write.connection()).await?;
        let change = document.entry(Verb::SharingPasswordAdded, Vec::new());
        write.log(project, Some(user), change).await?;
        write.commit_unseen().await?;
        Ok(password)
    }

    /// Removes a password of the link to a document.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a document in the project, or such a password of its link.
    pub async fn remove_share_password(
        &self,
        user: UserId,
        key: DocumentKey,
        password: i64,
    ) -> Result<(), MetadataError> {
        let DocumentKey { project, kind, id } = key;
        let mut write = self.begin().await?;
        write.user(user)?;
        let document = rows::by_id(write.connection(), key).await?;
        let document = document.ok_or(MetadataError::NotFound("document"))?;
        let removed: Option<i64> = sql::query_scalar(
            "DELETE FROM share_passwords
             WHERE kind = $1 AND document_id = $2 AND project_id = $3 AND id = $4 RETURNING id",
        )
        .bind(kind.name())
        .bind(id)
        .bind(project.0)
        .bind(password)
        .fetch_optional(write.connection())
        .await?;
        removed.ok_or(MetadataError::NotFound("password"))?;
        let change = document.entry(Verb::SharingPasswordRemoved, Vec::new());
        write.log(project, Some(user), change).await?;
        write.commit_unseen().await
    }
}

/// Checks that a link asks for a password, so that nobody relies on one that is not asked for.
///
/// # Errors
///
/// What is wrong otherwise.
pub fn check_required(share: Option<&Share>) -> Result<(), Violation> {
    if share.is_some_and(|share| share.is_password_required) {
        return Ok(());
    }
    Err(Violation::general("The link asks for no password: set password_required first."))
}

async fn count(connection: &mut Conn, key: DocumentKey) -> Result<i64, MetadataError> {
    let count = "SELECT COUNT(*) FROM share_passwords WHERE kind = $1 AND document_id = $2";
    Ok(sql::query_scalar(count).bind(key.kind.name()).bind(key.id).fetch_one(connection).await?)
}
