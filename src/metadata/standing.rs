//! Whether whoever asked may still be answered: [`Standing`]. An answer that lasts, such as a stream or one that is
//! computed while nobody waits, looks at it again and again, so that it ends with the key, the session or the token by
//! which it was asked for, and with the project that it is about.

use std::sync::Arc;
use std::time::Duration;

use crate::Metadata;
use crate::accounts::{PersonalKey, UserId};
use crate::secrets::KeyHash;
use crate::sessions::Session;
use weir_event::id::ProjectId;

/// Time between two looks. What took the right away, here or on another server, is known within it and the second in
/// which a server learns of the changes of others.
const LOOK_PAUSE: Duration = Duration::from_secs(2);

/// What somebody asks by, which may end.
#[derive(Clone, Debug)]
pub struct Standing {
    metadata: Metadata,
    by: By,
    /// The project that is asked about, if it is one.
    project: Option<ProjectId>,
}

#[derive(Clone, Debug)]
enum By {
    Key(KeyHash),
    /// A session, with the key that it began with.
    Session {
        id: i64,
        user: UserId,
        key: Option<KeyHash>,
    },
    /// The public token of a project.
    Token(ProjectId, Arc<str>),
}

impl Standing {
    /// That of a key; `session` is the one that a cookie named, if one did.
    pub fn of(metadata: &Metadata, key: &PersonalKey, session: Option<&Session>) -> Self {
        let by = match session {
            None => By::Key(key.hash),
            Some(session) => By::Session {
                id: session.id,
                user: session.user,
                key: session.key.map(|_| key.hash),
            },
        };
        Self { metadata: metadata.clone(), by, project: None }
    }

    /// The same, which ends with the project as well.
    pub fn within(self, project: Option<ProjectId>) -> Self {
        Self { project, ..self }
    }

    /// That of whoever has the token of a project.
    pub fn of_token(metadata: &Metadata, project: ProjectId, token: &str) -> Self {
        let by = By::Token(project, token.into());
        Self { metadata: metadata.clone(), by, project: None }
    }

    /// Returns once it has ended.
    pub async fn ended(&self) {
        loop {
            tokio::time::sleep(LOOK_PAUSE).await;
            if !self.lasts().await {
                return;
            }
        }
    }

    /// Whether it has not ended.
    pub async fn lasts(&self) -> bool {
        let snapshot = self.metadata.snapshot();
        let has_key = |hash: &KeyHash| snapshot.key(*hash).is_some();
        if self.project.is_some_and(|project| snapshot.is_deleted(project)) {
            return false;
        }
        match &self.by {
            By::Key(hash) => has_key(hash),
            By::Token(project, token) => {
                snapshot.project_by_token(token).is_some_and(|own| own.id == *project)
            }
            By::Session { id, user, key } => {
                let has_user = snapshot.user(*user).is_some_and(|user| !user.is_removed());
                // While the database is away nobody can sign out either; the first look after that tells.
                has_user
                    && key.as_ref().is_none_or(has_key)
                    && self.metadata.has_session(*id).await.unwrap_or(true)
            }
        }
    }
}
