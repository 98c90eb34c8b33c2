//! Why a body cannot be decoded: [`DecodeError`].

use weir_base::error::Kind;

/// Why a body cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The body and `?data=` are empty, as received or after decompression.
    #[error("request missing data payload")]
    Empty,
    /// A wrapping is malformed; the text names it.
    #[error("failed to decode request: {0}")]
    Malformed(&'static str),
    /// The decompressed text exceeds the limit.
    #[error("maximum event size exceeded: the decoded body has more than {limit_bytes} bytes")]
    TooLarge {
        /// The limit that was passed in.
        limit_bytes: u64,
    },
    /// `Content-Encoding` has a coding that is not supported, and the bytes are not readable without it.
    #[error("failed to decode request: content encoding is not supported")]
    Unsupported,
}

impl DecodeError {
    /// The class of the error: what the sender can do about it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Empty | Self::Malformed(_) | Self::Unsupported => Kind::Invalid,
            Self::TooLarge { .. } => Kind::TooLarge,
        }
    }
}
