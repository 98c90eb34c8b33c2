//! Why a request is rejected: [`IngestError`], the error of the whole write path.

use crate::prepare::error::PrepareError;
use weir_base::error::Kind;
use weir_base::tasks::TaskError;
use weir_metadata::error::MetadataError;
use weir_wire::encoding::error::DecodeError;

/// Why a request is rejected. Nothing of it is stored.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    /// The body cannot be decoded: compression, encoding or wrapping.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The decoded body cannot be read as events.
    #[error(transparent)]
    Prepare(PrepareError),
    /// A limit is reached; the condition passes without an operator.
    #[error("{0}")]
    Overloaded(&'static str),
    /// The server accepts no events until an operator acts.
    #[error("{0}")]
    Unavailable(&'static str),
    /// The metadata store failed.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// A background task ended or panicked.
    #[error(transparent)]
    Task(#[from] TaskError),
}

impl IngestError {
    /// The class of the error: what the sender can do about it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Decode(error) => error.kind(),
            Self::Prepare(error) => error.kind(),
            Self::Overloaded(_) => Kind::Overloaded,
            Self::Unavailable(_) => Kind::Unavailable,
            Self::Metadata(error) => error.kind(),
            Self::Task(error) => error.kind(),
        }
    }
}

impl From<PrepareError> for IngestError {
    fn from(error: PrepareError) -> Self {
        match error {
            PrepareError::Crowded => Self::Overloaded("too many bytes are in flight"),
            error => Self::Prepare(error),
        }
    }
}
