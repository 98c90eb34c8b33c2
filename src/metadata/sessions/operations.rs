//! Operations on sign-ins: a link is made and used, a session begins, is found, and ends.

use crate::accounts::{KeyId, UserId};
use crate::entity::{Columns, Entity, next_id};
use crate::error::MetadataError;
use crate::secrets::{KeyHash, Seed};
use crate::sessions::{
    CLIENT_MAX_CHARS, LINK_LIFE, LINKS_MAX, SESSION_LIFE, SESSIONS_MAX, Session,
};
use crate::{Metadata, Write, sql};
use weir_base::clock::UnixMicros;

impl Metadata {
    /// Makes a link with which `user` can sign in once, and returns its secret part.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a user, [`MetadataError::Database`].
    pub async fn create_sign_in_link(
        &self,
        user: UserId,
        seed: &Seed,
    ) -> Result<String, MetadataError> {
        let value = seed.sign_in_link();
        let now = self.now();
        let mut write = self.begin().await?;
        write.user(user)?;
        sql::query(
            "DELETE FROM sign_in_links WHERE expires_at <= $1 OR value_sha256 NOT IN
             (SELECT value_sha256 FROM sign_in_links ORDER BY expires_at DESC LIMIT $2)",
        )
        .bind(now.0)
        .bind(LINKS_MAX - 1)
        .execute(write.connection())
        .await?;
        sql::query(
            "INSERT INTO sign_in_links (value_sha256, user_id, expires_at) VALUES ($1, $2, $3)",
        )
        .bind(KeyHash::of(&value).to_hex())
        .bind(user.0)
        .bind(now.saturating_add(LINK_LIFE).0)
        .execute(write.connection())
        .await?;
        write.commit_unseen().await?;
        Ok(value)
    }

    /// Begins a session by a link, which then works no more; returns the value of its cookie. `None` for a link
    /// that does not work.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn use_sign_in_link(
        &self,
        link: &str,
        client: &str,
        seed: &Seed,
    ) -> Result<Option<String>, MetadataError> {
        let mut write = self.begin().await?;
        let found: Option<(i64, i64)> = sql::query_as(
            "DELETE FROM sign_in_links WHERE value_sha256 = $1 RETURNING user_id, expires_at",
        )
        .bind(KeyHash::of(link).to_hex())
        .fetch_optional(write.connection())
        .await?;
        let Some((user, expires_at)) = found else { return Ok(None) };
        let user = UserId(user);
        if expires_at <= self.now().0 || write.user(user).is_err() {
            write.commit_unseen().await?;
            return Ok(None);
        }
        let value = begin_session(&mut write, user, None, client, seed).await?;
        write.commit_unseen().await?;
        Ok(Some(value))
    }

    /// Begins a session with the rights of a key; returns the value of its cookie.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a key, [`MetadataError::Database`].
    pub async fn create_session(
        &self,
        key: KeyId,
        client: &str,
        seed: &Seed,
    ) -> Result<String, MetadataError> {
        let mut write = self.begin().await?;
        let user = write.base.keys().find(|own| own.id == key).map(|own| own.user.id);
        let user = user.ok_or(MetadataError::NotFound("key"))?;
        let value = begin_session(&mut write, user, Some(key), client, seed).await?;
        write.commit_unseen().await?;
        Ok(value)
    }

    /// The session of a cookie, unless it has ended.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn session(&self, value: &str) -> Result<Option<Session>, MetadataError> {
        let select = Session::select("WHERE value_sha256 = $1 AND ended_at IS NULL")
            .bind(KeyHash::of(value).to_hex());
        let found: Option<Session> =
            select.fetch_optional(&mut self.shared.db.reader().await?).await?;
        let now = self.now();
        Ok(found.filter(|session| !session.is_over(now)))
    }

    /// Whether a session has not ended.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub(crate) async fn has_session(&self, id: i64) -> Result<bool, MetadataError> {
        let found: Option<bool> =
            sql::query_scalar("SELECT TRUE FROM sessions WHERE id = $1 AND ended_at IS NULL")
                .bind(id)
                .fetch_optional(&mut self.shared.db.reader().await?)
                .await?;
        Ok(found.is_some())
    }

    /// Stores that a session was used now, unless a use within the last hour is stored.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`]; it may be ignored.
    pub async fn record_session_use(&self, session: &Session) -> Result<(), MetadataError> {
        let now = self.now();
        if session.is_use_noted(now) {
            return Ok(());
        }
        let mut write = self.begin().await?;
        sql::query("UPDATE sessions SET used_at = $1 WHERE id = $2")
            .bind(now.0)
            .bind(session.id)
            .execute(write.connection())
            .await?;
        write.commit_unseen().await
    }

    /// The sessions of a user that have not ended, newest first.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn sessions(&self, user: UserId) -> Result<Vec<Session>, MetadataError> {
        let select = Session::select(
            "WHERE user_id = $1 AND ended_at IS NULL
             ORDER BY id DESC LIMIT $2",
        )
        .bind(user.0)
        .bind(SESSIONS_MAX);
        let all: Vec<Session> = select.fetch_all(&mut self.shared.db.reader().await?).await?;
        let now = self.now();
        Ok(all.into_iter().filter(|session| !session.is_over(now)).collect())
    }

    /// Ends a session of a user.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] if the user has no such session.
    pub async fn end_session(&self, user: UserId, id: i64) -> Result<(), MetadataError> {
        let mut write = self.begin().await?;
        let ended = sql::query(
            "UPDATE sessions SET ended_at = $1 WHERE id = $2 AND user_id = $3 AND ended_at IS NULL",
        )
        .bind(self.now().0)
        .bind(id)
        .bind(user.0)
        .execute(write.connection())
        .await?;
        if ended == 0 {
            return Err(MetadataError::NotFound("session"));
        }
        write.commit_unseen().await
    }
}

/// Ends all sessions of a user, and removes the links with which it could sign in.
pub(crate) async fn end_all(write: &mut Write, user: UserId) -> Result<(), MetadataError> {
    let now = write.shared.clock.now();
    sql::query("UPDATE sessions SET ended_at = $1 WHERE user_id = $2 AND ended_at IS NULL")
        .bind(now.0)
        .bind(user.0)
        .execute(write.connection())
        .await?;
    sql::query("DELETE FROM sign_in_links WHERE user_id = $1")
        .bind(user.0)
        .execute(write.connection())
        .await?;
    Ok(())
}

/// Ends the sessions that a key began.
pub(crate) async fn end_of_key(write: &mut Write, key: KeyId) -> Result<(), MetadataError> {
    let now = write.shared.clock.now();
    sql::query("UPDATE sessions SET ended_at = $1 WHERE key_id = $2 AND ended_at IS NULL")
        .bind(now.0)
        .bind(key.0)
        .execute(write.connection())
        .await?;
    Ok(())
}

async fn begin_session(
    write: &mut Write,
    user: UserId,
    key: Option<KeyId>,
    client: &str,
    seed: &Seed,
) -> Result<String, MetadataError> {
    let value = seed.session();
    let now = write.shared.clock.now();
    let oldest = UnixMicros(now.0.saturating_sub(micros(SESSION_LIFE)));
    sql::query(
        "UPDATE sessions SET ended_at = $1 WHERE ended_at IS NULL AND (used_at <= $2 OR user_id = $3 AND id NOT IN
         (SELECT id FROM sessions WHERE user_id = $3 AND ended_at IS NULL ORDER BY used_at DESC, id DESC LIMIT $4))",
    )
    .bind(now.0)
    .bind(oldest.0)
    .bind(user.0)
    .bind(SESSIONS_MAX - 1)
    .execute(write.connection())
    .await?;
    // The newest row stays, so that its id is not given again.
    sql::query("DELETE FROM sessions WHERE ended_at <= $1 AND id < (SELECT MAX(id) FROM sessions)")
        .bind(oldest.0)
        .execute(write.connection())
        .await?;
    let session = Session {
        id: next_id::<Session>(write.connection()).await?,
        hash: KeyHash::of(&value),
        user,
        key,
        client: client.chars().take(CLIENT_MAX_CHARS).collect(),
        created_at: now,
        used_at: now,
    };
    session.insert().execute(write.connection()).await?;
    Ok(value)
}

fn micros(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
