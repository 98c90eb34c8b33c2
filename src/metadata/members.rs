//! Organizations and their members: levels, and the rules for granting them.

use std::sync::Arc;

use uuid::Uuid;

use crate::error::MetadataError;
use crate::{disk, sql};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;

mod operations;

/// Longest name of an organization, first name and email address, in characters; PostHog's column
/// widths.
const ORGANIZATION_NAME_MAX_CHARS: usize = 64;
const FIRST_NAME_MAX_CHARS: usize = 150;
const EMAIL_MAX_CHARS: usize = 254;

/// The label of the key that a new member starts with, as the first user does.
pub(super) const FIRST_KEY_LABEL: &str = "First key";

/// The owner of projects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Organization {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// When it was created.
    pub created_at: UnixMicros,
}

/// The level of a user in the organization. Each includes the rights of the previous ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Reads and writes the data of projects.
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

/// Changes of a user to itself; `None` leaves a field unchanged.
#[derive(Clone, Debug, Default)]
pub struct UserPatch {
    /// Another first name.
    pub first_name: Option<String>,
    /// Another email address.
    pub email: Option<String>,
    /// Another project for `@current`.
    pub current_project: Option<ProjectId>,
}

/// The columns of an organization.
type OrganizationRow = (String, String, i64);

/// Reads all organizations.
pub(super) async fn organizations(
    connection: &mut crate::connection::Conn,
) -> Result<Vec<Arc<Organization>>, MetadataError> {
    let rows: Vec<OrganizationRow> =
        sql::query_as("SELECT id, name, created_at FROM organizations")
            .fetch_all(connection)
            .await?;
    let organization = |(id, name, created_at): OrganizationRow| {
        let id = disk::from_uuid("organizations", &id)?;
        Ok(Arc::new(Organization { id, name, created_at: UnixMicros(created_at) }))
    };
    rows.into_iter().map(organization).collect()
}
