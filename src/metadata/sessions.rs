//! Sign-ins of the page: links that work once, and sessions. Only hashes of their values are stored.

use std::time::Duration;

use crate::accounts::{KeyId, UserId};
use crate::entity::{Numbered, entity};
use crate::secrets::KeyHash;
use weir_base::clock::UnixMicros;

mod operations;

pub(super) use crate::sessions::operations::{end_all, end_of_key};

/// How long a link works.
pub const LINK_LIFE: Duration = Duration::from_mins(15);

/// How long a session lasts without use.
pub const SESSION_LIFE: Duration = Duration::from_hours(30 * 24);

/// A session's last use is stored at most this often.
const USED_INTERVAL: Duration = Duration::from_hours(1);

/// Most sessions of one user; a further one ends the one that was not used for longest.
const SESSIONS_MAX: i64 = 100;

/// Most links that work at the same time.
const LINKS_MAX: i64 = 100;

/// Longest description of a client, in characters.
const CLIENT_MAX_CHARS: usize = 200;

entity! {
    /// One session.
    pub struct Session in "sessions" {
        /// The id. Positive, never reused.
        id: i64 [key],
        /// The hash of the value of its cookie.
        hash: KeyHash as "value_sha256" [once],
        /// Who signed in.
        user: UserId as "user_id" [once],
        /// The key that the user signed in with, whose rights the session has; `None` after a link.
        key: Option<KeyId> as "key_id" [once],
        /// What the browser said of itself.
        client: String [once],
        /// When the user signed in.
        created_at: UnixMicros [once],
        /// Time of the last use, accurate to an hour.
        used_at: UnixMicros,
    }
}

/// The newest row stays after its end, so no id is given again.
impl Numbered for Session {}

impl Session {
    /// Whether a use at `now` is within an hour of the stored one.
    pub fn is_use_noted(&self, now: UnixMicros) -> bool {
        now.since(self.used_at) < USED_INTERVAL
    }

    /// Whether the session was not used for too long at `now`.
    pub fn is_over(&self, now: UnixMicros) -> bool {
        now.since(self.used_at) >= SESSION_LIFE
    }
}
