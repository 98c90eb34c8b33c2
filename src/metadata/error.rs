//! Why an operation of the metadata store failed: [`MetadataError`].

use std::path::PathBuf;

use crate::codes;
use crate::violation::Violation;
use weir_base::error::Kind;
use weir_event::id::ProjectId;

/// Why an operation failed. Nothing is stored after an error.
#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
    /// The file cannot be opened or created.
    #[error("cannot open the metadata store {}", path.display())]
    Open {
        /// The database file.
        path: PathBuf,
        /// SQLite's error.
        #[source]
        source: sqlx::Error,
    },
    /// The file is damaged.
    #[error(
        "the metadata store {} is damaged ({problem}). Restore it from a backup together with \
         its -wal file, or start with --recreate-metadata, which loses projects, keys and flags, and \
         keeps the events",
        path.display()
    )]
    Damaged {
        /// The database file.
        path: PathBuf,
        /// SQLite's error.
        problem: String,
    },
    /// A newer version of the program has changed the tables.
    #[error(
        "the metadata store was made by a newer Weir: it has the migration {found}, and this version knows those up \
         to {known}. Start the newer version, or restore a backup of before it"
    )]
    Newer {
        /// A migration of the store that this program does not know.
        found: i64,
        /// The newest migration of this program.
        known: i64,
    },
    /// The tables are not those of this program, or the migrations failed.
    #[error("cannot bring the metadata store to the schema of this version")]
    Migrate(#[source] sqlx::migrate::MigrateError),
    /// PostgreSQL cannot be reached, or refuses the connection.
    #[error("cannot connect to the metadata store {place} (--metadata-url, WEIR_METADATA_URL)")]
    Connect {
        /// Its address, without the password.
        place: String,
        /// The error of the connection.
        #[source]
        source: sqlx::Error,
    },
    /// The PostgreSQL database cannot hold the store.
    #[error("the metadata store {place} {problem}")]
    Unfit {
        /// Its address, without the password.
        place: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The store was opened to be read only.
    #[error("the metadata store was opened to be read only")]
    ReadOnly,
    /// The database that was to take over another store has one already.
    #[error(
        "there are rows in the table {0} already: only an empty database can take over a store"
    )]
    NotEmpty(String),
    /// PostgreSQL is away, as an earlier operation found.
    #[error("the metadata store cannot be reached at the moment")]
    Away,
    /// The database failed to execute a statement.
    #[error("the metadata store failed")]
    Database(#[source] sqlx::Error),
    /// A row has a value that this program never stores.
    #[error("{table} holds a row that cannot be read: {problem}")]
    Corrupt {
        /// The table of the row.
        table: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The values break a rule that the API documents.
    #[error("{}", .0.detail)]
    Rejected(Violation),
    /// The value of an operator's setting is not allowed.
    #[error("{setting} {problem}")]
    Setting {
        /// The setting, in words.
        setting: &'static str,
        /// What is wrong with the value.
        problem: &'static str,
    },
    /// The settings give the first project a token that differs from the stored one.
    #[error(
        "the project API key of the settings (--project-api-key, WEIR_PROJECT_API_KEY) is not that of project \
         {project}, {stored}: clients that send with it would be refused. Remove the setting, or set it to \
         {stored}. To give the project a new key, start without the setting, ask PATCH \
         /api/projects/{project}/reset_token/, and set the new one"
    )]
    OtherToken {
        /// The first project.
        project: ProjectId,
        /// Its token, which is no secret.
        stored: String,
    },
    /// The project has no such row.
    #[error("no such {0}")]
    NotFound(&'static str),
    /// The user may not do this; in words for people.
    #[error("{0}")]
    Forbidden(&'static str),
    /// Another user changed the object meanwhile; in words for people.
    #[error("{0}")]
    Conflict(String),
    /// The transaction that contained the rows of several callers failed.
    #[error("the write failed")]
    NotKept,
    /// Another object has the token or key value.
    #[error("the {0} is in use already")]
    Taken(&'static str),
}

impl MetadataError {
    /// The error for a change that is meant for an older version of a flag.
    pub fn changed_since(version: i64) -> Self {
        Self::Conflict(format!(
            "The feature flag has changed since version {version}. Read it again, and send its \
             new version."
        ))
    }

    /// The class of the error for the receiver.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Open { .. }
            | Self::Damaged { .. }
            | Self::Connect { .. }
            | Self::Unfit { .. }
            | Self::Away
            | Self::ReadOnly
            | Self::Migrate(_)
            | Self::Newer { .. }
            | Self::NotKept => Kind::Unavailable,
            Self::Database(error) => codes::class(error),
            Self::Corrupt { .. } => Kind::Internal,
            Self::Rejected(_) | Self::Setting { .. } | Self::OtherToken { .. } => Kind::Invalid,
            Self::NotFound(_) => Kind::NotFound,
            Self::Forbidden(_) => Kind::Forbidden,
            Self::Taken(_) | Self::Conflict(_) | Self::NotEmpty(_) => Kind::Conflict,
        }
    }
}

/// A row that an entity does not take keeps its own error.
impl From<sqlx::Error> for MetadataError {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::Decode(source) => match source.downcast::<Self>() {
                Ok(own) => *own,
                Err(source) => Self::Database(sqlx::Error::Decode(source)),
            },
            error => Self::Database(error),
        }
    }
}

impl From<Violation> for MetadataError {
    fn from(violation: Violation) -> Self {
        Self::Rejected(violation)
    }
}
