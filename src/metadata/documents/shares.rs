//! Links to documents, for whoever has their token: [`Share`]. A document has at most one, which can be turned off, and
//! whose token can be replaced. It may ask for one of its [`passwords`].

use serde_json::{Map, Value};

use crate::accounts::UserId;
use crate::activity::{Verb, diff};
use crate::connection::Conn;
use crate::documents::{DocumentKey, Kind, rows};
use crate::error::MetadataError;
use crate::secrets::{KeyHash, Seed};
use crate::{Metadata, disk, sql};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;

pub mod passwords;

const TABLE: &str = "shares";

/// A link to a document.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// The kind of the document.
    pub kind: Kind,
    /// Its id.
    pub document: i64,
    /// Its project.
    pub project: ProjectId,
    /// Whether the link leads there.
    pub is_enabled: bool,
    /// What whoever has the link knows: 43 of `0-9A-Za-z`.
    pub token: String,
    /// How the document is shown.
    pub settings: Map<String, Value>,
    /// Whether whoever follows it has to give one of its passwords.
    pub is_password_required: bool,
    /// When it was turned on last.
    pub enabled_at: UnixMicros,
    /// When there was one first.
    pub created_at: UnixMicros,
    /// When it was changed last.
    pub updated_at: UnixMicros,
}

impl Share {
    /// The document that it leads to.
    pub fn key(&self) -> DocumentKey {
        DocumentKey { project: self.project, kind: self.kind, id: self.document }
    }
}

/// What is changed of a link.
#[derive(Clone, Debug, Default)]
pub struct ShareChange {
    /// Whether it leads to the document.
    pub is_enabled: Option<bool>,
    /// How the document is shown.
    pub settings: Option<Map<String, Value>>,
    /// Whether it asks for a password.
    pub is_password_required: Option<bool>,
    /// Whether it gets another token, so that the one before leads nowhere.
    pub has_new_token: bool,
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
        let select = "SELECT * FROM shares WHERE token_hash = $1 AND enabled";
        let hash = KeyHash::of(token).to_hex();
        let row: Option<Row> = sql::query_as(select)
            .bind(hash)
            .fetch_optional(&mut self.shared.db.reader().await?)
            .await?;
        row.map(Share::try_from).transpose()?.ok_or(MetadataError::NotFound("share"))
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
        let before = before.unwrap_or_else(|| Share {
            kind,
            document: id,
            project,
            is_enabled: false,
            token: seed.share_token(),
            settings: Map::new(),
            is_password_required: false,
            enabled_at: now,
            created_at: now,
            updated_at: now,
        });
        let mut after = before.clone();
        after.is_enabled = change.is_enabled.unwrap_or(after.is_enabled);
        if after.is_enabled && !before.is_enabled {
            after.enabled_at = now;
        }
        after.settings = change.settings.unwrap_or(after.settings);
        after.is_password_required =
            change.is_password_required.unwrap_or(after.is_password_required);
        if change.has_new_token && !is_new {
            after.token = seed.share_token();
        }
        if after == before && !is_new {
            return Ok(before);
        }
        after.updated_at = now;
        put(write.connection(), &after).await?;
        // The log has no tokens.
        if after.is_enabled != before.is_enabled {
            let verb = if after.is_enabled { Verb::SharingEnabled } else { Verb::SharingDisabled };
            write.log(project, Some(user), document.change(verb, Vec::new())).await?;
        }
        if after.token != before.token {
            let change = document.change(Verb::SharingTokenRefreshed, Vec::new());
            write.log(project, Some(user), change).await?;
        }
        let settings = |share: &Share| {
            Map::from_iter([
                ("sharing_settings".to_owned(), Value::from(share.settings.clone())),
                ("password_required".to_owned(), Value::from(share.is_password_required)),
            ])
        };
        let changes = diff(kind.scope(), &settings(&before), &settings(&after));
        if !changes.is_empty() {
            write.log(project, Some(user), document.change(Verb::Updated, changes)).await?;
        }
        write.commit_unseen().await?;
        Ok(after)
    }
}

async fn share_of(connection: &mut Conn, key: DocumentKey) -> Result<Option<Share>, MetadataError> {
    let select = "SELECT * FROM shares WHERE kind = $1 AND document_id = $2 AND project_id = $3";
    let row: Option<Row> = sql::query_as(select)
        .bind(key.kind.name())
        .bind(key.id)
        .bind(key.project.0)
        .fetch_optional(connection)
        .await?;
    row.map(Share::try_from).transpose()
}

async fn put(connection: &mut Conn, share: &Share) -> Result<(), MetadataError> {
    sql::query(
        "INSERT INTO shares
         (kind, document_id, project_id, enabled, token, token_hash, settings, created_at, updated_at,
          password_required, enabled_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
         ON CONFLICT (kind, document_id) DO UPDATE SET
             enabled = $4, token = $5, token_hash = $6, settings = $7, updated_at = $9,
             password_required = $10, enabled_at = $11",
    )
    .bind(share.kind.name())
    .bind(share.document)
    .bind(share.project.0)
    .bind(share.is_enabled)
    .bind(&share.token)
    .bind(KeyHash::of(&share.token).to_hex())
    .bind(rows::Fields(&share.settings).to_string())
    .bind(share.created_at.0)
    .bind(share.updated_at.0)
    .bind(share.is_password_required)
    .bind(share.enabled_at.0)
    .execute(connection)
    .await?;
    Ok(())
}

#[derive(sqlx_macros::FromRow)]
struct Row {
    kind: String,
    document_id: i64,
    project_id: i64,
    enabled: bool,
    token: String,
    settings: String,
    created_at: i64,
    updated_at: i64,
    password_required: bool,
    enabled_at: i64,
}

impl TryFrom<Row> for Share {
    type Error = MetadataError;

    fn try_from(row: Row) -> Result<Self, MetadataError> {
        Ok(Self {
            kind: rows::kind(TABLE, &row.kind)?,
            document: row.document_id,
            project: ProjectId(row.project_id),
            is_enabled: row.enabled,
            token: row.token,
            settings: disk::from_json(TABLE, &row.settings)?,
            is_password_required: row.password_required,
            enabled_at: UnixMicros(row.enabled_at),
            created_at: UnixMicros(row.created_at),
            updated_at: UnixMicros(row.updated_at),
        })
    }
}
