//! Links to documents, for whoever has their token: [`Share`]. A document has at most one, which can be turned off, and
//! whose token can be replaced. It may ask for one of its [`passwords`].

use serde_json::{Map, Value};

use crate::accounts::UserId;
use crate::activity::{Logged, Verb, diff};
use crate::connection::Conn;
use crate::documents::{DocumentKey, Kind, rows};
use crate::entity::{Columns, Entity, Patch, entity};
use crate::error::MetadataError;
use crate::secrets::{KeyHash, Seed};
use crate::{Metadata, sql};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;

pub mod passwords;

entity! {
    /// A link to a document.
    #[derive(Default)]
    pub struct Share in "shares" {
        /// The kind of the document.
        kind: Kind [key],
        /// Its id.
        document: i64 as "document_id" [key],
        /// Its project.
        project: ProjectId as "project_id" [once],
        /// What whoever has the link knows: 43 of `0-9A-Za-z`.
        token: String,
        /// What a link is found by.
        token_hash: KeyHash,
        /// When it was turned on last.
        enabled_at: UnixMicros,
        /// When there was one first.
        created_at: UnixMicros [once],
        /// When it was changed last.
        updated_at: UnixMicros,
    }
    /// What is changed of a link.
    pub struct ShareChange {
        /// Whether the link leads to the document.
        is_enabled: bool as "enabled",
        /// How the document is shown.
        settings: Map<String, Value> [logged_as("sharing_settings")],
        /// Whether whoever follows it has to give one of its passwords.
        is_password_required: bool as "password_required" [logged],
    }
    with {
        /// Whether it gets another token, so that the one before leads nowhere.
        has_new_token: bool,
    }
}

impl Share {
    /// The document that it leads to.
    pub fn key(&self) -> DocumentKey {
        DocumentKey { project: self.project, kind: self.kind, id: self.document }
    }

    fn with_token(self, token: String) -> Self {
        Self { token_hash: KeyHash::of(&token), token, ..self }
    }
}

impl Metadata {
    /// The link to a document, if it ever had one.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`], [`MetadataError::Corrupt`].
    pub async fn share(&self, key: DocumentKey) -> Result<Option<Share>, MetadataError> {
        share_of(&mut self.shared.db.reader().await?, key).await
    }

    /// The enabled link with a token.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without one, others as [`Metadata::share`].
    pub async fn share_by_token(&self, token: &str) -> Result<Share, MetadataError> {
        let select =
            Share::select("WHERE token_hash = $1 AND enabled").bind(KeyHash::of(token).to_hex());
        let found = select.fetch_optional(&mut self.shared.db.reader().await?).await?;
        found.ok_or(MetadataError::NotFound("share"))
    }

    /// The ids of the documents of a kind in the project that an enabled link leads to.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn shared_documents(
        &self,
        project: ProjectId,
        kind: Kind,
    ) -> Result<Vec<i64>, MetadataError> {
        let select =
            "SELECT document_id FROM shares WHERE project_id = $1 AND kind = $2 AND enabled";
        let ids = sql::query_scalar(select).bind(project.0).bind(kind.name());
        Ok(ids.fetch_all(&mut self.shared.db.reader().await?).await?)
    }

    /// Changes the link to a document, and makes it if there is none. The token of a new one comes from `seed`.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a document in the project.
    pub async fn change_share(
        &self,
        user: UserId,
        key: DocumentKey,
        change: ShareChange,
        seed: Seed,
    ) -> Result<Share, MetadataError> {
        let DocumentKey { project, kind, id } = key;
        let mut write = self.begin().await?;
        write.user(user)?;
        let document = rows::by_id(write.connection(), key).await?;
        let document = document.ok_or(MetadataError::NotFound("document"))?;
        let now = self.now();
        let before = share_of(write.connection(), key).await?;
        let is_new = before.is_none();
        let initial = || Share {
            kind,
            document: id,
            project,
            enabled_at: now,
            created_at: now,
            updated_at: now,
            ..Share::default()
        };
        let before = before.unwrap_or_else(|| initial().with_token(seed.share_token()));
        let has_new_token = change.has_new_token && !is_new;
        let mut after = change.applied(before.clone());
        if after.is_enabled && !before.is_enabled {
            after.enabled_at = now;
        }
        if has_new_token {
            after = after.with_token(seed.share_token());
        }
        if after == before && !is_new {
            return Ok(before);
        }
        after.updated_at = now;
        after.put().execute(write.connection()).await?;
        // The log has no tokens.
        if after.is_enabled != before.is_enabled {
            let verb = if after.is_enabled { Verb::SharingEnabled } else { Verb::SharingDisabled };
            write.log(project, Some(user), document.entry(verb, Vec::new())).await?;
        }
        if after.token != before.token {
            let change = document.entry(Verb::SharingTokenRefreshed, Vec::new());
            write.log(project, Some(user), change).await?;
        }
        let changes = diff(kind.scope(), &before.logged_cells(), &after.logged_cells());
        if !changes.is_empty() {
            write.log(project, Some(user), document.entry(Verb::Updated, changes)).await?;
        }
        write.commit_unseen().await?;
        Ok(after)
    }
}

async fn share_of(connection: &mut Conn, key: DocumentKey) -> Result<Option<Share>, MetadataError> {
    let select = Share::select("WHERE kind = $1 AND document_id = $2 AND project_id = $3")
        .bind(key.kind.name())
        .bind(key.id)
        .bind(key.project.0);
    Ok(select.fetch_optional(connection).await?)
}
