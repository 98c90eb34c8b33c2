//! Why a row is not imported, and why a file cannot be read on.

use std::borrow::Cow;
use std::fmt;

/// Why one row is not imported; it goes to the rejects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(Cow<'static, str>);

impl Refusal {
    /// With this reason: a clause without a period.
    pub fn new(reason: impl Into<Cow<'static, str>>) -> Self {
        Self(reason.into())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Why a file cannot be read on. All rows before have been read.
#[derive(Debug, thiserror::Error)]
#[error("{}{at}: {cause}", within(member))]
pub struct ReadError {
    /// The member of the archive; empty outside of one.
    pub member: String,
    /// Where: the line, or the row.
    pub at: String,
    /// What happened.
    pub cause: Cause,
}

/// What happened to a file.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// The file system, or the compression: a file that ends too early, or is damaged.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The archive.
    #[error("the zip archive is damaged: {0}")]
    Zip(#[from] zip::result::ZipError),
    /// The Parquet file.
    #[error("the Parquet file cannot be read: {0}")]
    Parquet(String),
    /// What is in the file.
    #[error("{0}")]
    Content(String),
}

fn within(member: &str) -> String {
    if member.is_empty() { String::new() } else { format!("in {member}, ") }
}

impl ReadError {
    /// At a place of a member.
    pub fn new(member: &str, at: impl Into<String>, cause: impl Into<Cause>) -> Self {
        Self { member: member.to_owned(), at: at.into(), cause: cause.into() }
    }
}
