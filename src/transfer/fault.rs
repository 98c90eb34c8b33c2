//! Why a request of a copy failed: [`Fault`], with the server and the request where it did.

use std::fmt;
use std::time::Duration;

use serde_json::Value;

/// Longest text of an error that is shown, in characters. It comes from a server that may be hostile.
const DETAIL_MAX_CHARS: usize = 300;

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {what}")]
pub struct Fault {
    /// The server and the request.
    pub at: String,
    /// What went wrong.
    pub what: What,
}

/// What went wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// No answer came.
    Unreachable(String),
    /// No answer came within this time.
    Late {
        /// The limit.
        limit: Duration,
    },
    /// The server answered with an error.
    Refused {
        /// Its status.
        status: u16,
        /// What it says.
        detail: String,
        /// The field of the request that it names.
        field: Option<String>,
    },
    /// The answer is larger than this.
    TooLarge {
        /// The limit.
        max_bytes: usize,
    },
    /// The answer is not what the API documents.
    Malformed(String),
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "no answer: {why}"),
            Self::Late { limit } => write!(f, "no answer within {} s", limit.as_secs()),
            Self::Refused { status, detail, field: Some(field) } => {
                write!(f, "{status}: {field}: {detail}")
            }
            Self::Refused { status, detail, field: None } => write!(f, "{status}: {detail}"),
            Self::TooLarge { max_bytes } => {
                write!(f, "the answer has more than {max_bytes} bytes")
            }
            Self::Malformed(what) => f.write_str(what),
        }
    }
}

impl Fault {
    /// An answer that is not what the API documents.
    pub fn malformed(at: &str, what: impl Into<String>) -> Self {
        Self { at: at.to_owned(), what: What::Malformed(shown(&what.into())) }
    }

    /// The error that a server answered with.
    pub fn refused(at: &str, status: u16, answer: &Value) -> Self {
        let text = |name: &str| answer.get(name).and_then(Value::as_str).map(shown);
        let detail = text("detail").or_else(|| text("error"));
        let detail = detail.unwrap_or_else(|| "an error without an explanation".to_owned());
        let what = What::Refused { status, detail, field: text("attr") };
        Self { at: at.to_owned(), what }
    }

    /// The status that refuses one object or one list, after which others may still succeed; `None` for what ends the
    /// copy.
    pub fn refusal(&self) -> Option<u16> {
        match self.what {
            What::Refused { status, .. } if (400..429).contains(&status) && status != 401 => {
                Some(status)
            }
            _ => None,
        }
    }

    /// The field of the request that the server refused.
    pub fn field(&self) -> Option<&str> {
        match &self.what {
            What::Refused { status: 400, field, .. } => field.as_deref(),
            _ => None,
        }
    }
}

/// A text of a server, short and without characters that control a terminal.
pub fn shown(text: &str) -> String {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    let mut short: String = text.chars().take(DETAIL_MAX_CHARS).map(clean).collect();
    if text.chars().nth(DETAIL_MAX_CHARS).is_some() {
        short.push_str("...");
    }
    short
}
