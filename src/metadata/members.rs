//! Organizations and their members: levels, and the rules for granting them.

use uuid::Uuid;

use crate::connection::Conn;
use crate::entity::{Columns, entity, stored};
use crate::error::MetadataError;
use weir_base::clock::UnixMicros;

mod operations;

/// Longest name of an organization, first name and email address, in characters; PostHog's column
/// widths.
const ORGANIZATION_NAME_MAX_CHARS: usize = 64;
const FIRST_NAME_MAX_CHARS: usize = 150;
const EMAIL_MAX_CHARS: usize = 254;

/// The label of the key that a new member starts with, as the first user does.
pub(super) const FIRST_KEY_LABEL: &str = "First key";

entity! {
    /// The owner of projects.
    pub struct Organization in "organizations" {
        /// Its id.
        id: Uuid [key],
        /// Its name.
        name: String,
        /// When it was created.
        created_at: UnixMicros [once],
    }
}

/// The level of a user in the organization. Each includes the rights of the previous ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Reads and writes the data of projects.
    #[default]
    Member,
    /// Creates projects, rotates their tokens, manages members.
    Admin,
    /// Appoints owners.
    Owner,
}

impl Level {
    /// The number in the API, which is PostHog's.
    pub fn number(self) -> i64 {
        match self {
            Self::Member => 1,
            Self::Admin => 8,
            Self::Owner => 15,
        }
    }

    /// The level with this number.
    pub fn from_number(number: i64) -> Option<Self> {
        [Self::Member, Self::Admin, Self::Owner].into_iter().find(|level| level.number() == number)
    }
}

stored! {
    Level as i64: |level| level.number(),
        |number| Self::from_number(number).ok_or_else(|| format!("level {number}"));
}

/// A client's data for a new member.
#[derive(Clone, Debug)]
pub struct NewMember {
    /// First name.
    pub first_name: String,
    /// Email address; unique.
    pub email: String,
    /// The member's level.
    pub level: Level,
}

/// Reads all organizations.
pub(super) async fn organizations(
    connection: &mut Conn,
) -> Result<Vec<Organization>, MetadataError> {
    Ok(Organization::select("").fetch_all(connection).await?)
}
