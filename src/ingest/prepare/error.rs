//! Why a whole body is rejected: [`PrepareError`], and [`BatchError`] for what only capture v1 checks.

use uuid::Uuid;

use weir_base::error::Kind;
use weir_event::json::Fault;
use weir_event::key_kind::KeyKind;

/// Why a whole body is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrepareError {
    /// It is not valid JSON.
    #[error("the body is not valid JSON{0}")]
    Malformed(Fault),
    /// It is JSON, but not an object or array of events.
    #[error("the body is neither an event, nor an array of events, nor a batch")]
    NoObject,
    /// Its `batch` is not an array.
    #[error("batch is not an array of events")]
    BatchNotArray,
    /// It is an empty array or batch.
    #[error("the request holds no event")]
    NoEvents,
    /// Its `import` is not what an import has.
    #[error(
        "import is not an object with person_properties, one of fill, overwrite and ignore, and only, which is absent or \
         one of events and persons"
    )]
    Import,
    /// It has no token.
    #[error("the request holds no project API key")]
    NoToken,
    /// No project has this token.
    #[error("no project has this API key")]
    UnknownToken(KeyKind),
    /// The events have tokens of different projects.
    #[error("the events hold different project API keys")]
    InconsistentTokens,
    /// It has more text than one batch of columns can hold, or needs more memory than one body may use.
    #[error("the body is too large for one batch")]
    TooLarge,
    /// Its events have more distinct ids than one body may have.
    #[error("the body has events of more than {max} distinct ids; send them in several requests")]
    TooManyIds {
        /// The limit.
        max: usize,
    },
    /// Other requests hold the memory that it needs. Passes by itself.
    #[error("too many bytes are in flight")]
    Crowded,
    /// A body of capture v1 is invalid as a whole.
    #[error(transparent)]
    Batch(#[from] BatchError),
}

impl PrepareError {
    /// The class of the error: what the sender can do about it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::NoToken | Self::UnknownToken(_) => Kind::Unauthorized,
            Self::TooLarge | Self::TooManyIds { .. } => Kind::TooLarge,
            Self::Crowded => Kind::Overloaded,
            Self::Malformed(_)
            | Self::NoObject
            | Self::BatchNotArray
            | Self::NoEvents
            | Self::Import
            | Self::InconsistentTokens
            | Self::Batch(_) => Kind::Invalid,
        }
    }
}

/// Why all events of a body are rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// A member is missing, or has the wrong type.
    #[error("{0}")]
    Shape(&'static str),
    /// `created_at` is not a valid time.
    #[error("created_at is not valid RFC 3339")]
    CreatedAt,
    /// An event has no uuid.
    #[error("event submitted without a uuid")]
    MissingUuid,
    /// The uuid of an event is not valid.
    #[error("event submitted with an invalid uuid")]
    InvalidUuid,
    /// Two events have the same uuid.
    #[error("duplicate event uuid: {0}")]
    DuplicateUuid(Uuid),
}
