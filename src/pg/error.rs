//! Errors as clients of PostgreSQL know them: [`Failure`], a text with a code of five characters (SQLSTATE), by which
//! programs tell what happened.

use weir_base::attempts::Throttled;
use weir_base::error::Kind;
use weir_query::kernel::error::{Fault, QueryError};

/// What the client has to do after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// Nothing: it is a remark.
    Notice,
    /// Send another statement.
    Error,
    /// Connect again.
    Fatal,
}

/// An error that is sent to the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    /// Whether the connection goes on.
    pub(crate) severity: Severity,
    /// SQLSTATE.
    pub(crate) code: &'static str,
    /// What happened.
    pub(crate) message: String,
    /// What to do about it.
    pub(crate) hint: Option<String>,
}

impl Failure {
    /// An error after which the connection goes on.
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Error, code, message: message.into(), hint: None }
    }

    /// An error after which the connection ends.
    pub(crate) fn fatal(code: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Fatal, ..Self::new(code, message) }
    }

    /// The server ends, or does not have the project any more: the client connects again.
    pub(crate) fn shutdown(why: &str) -> Self {
        Self::fatal("57P01", format!("terminating connection {why}"))
    }

    /// A remark.
    pub(crate) fn notice(message: impl Into<String>) -> Self {
        Self { severity: Severity::Notice, ..Self::new("00000", message) }
    }

    /// The same with advice.
    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// A statement that would change something.
    pub(crate) fn read_only(what: &str) -> Self {
        Self::new("25006", format!("{what} is not possible: the PostgreSQL port only reads"))
    }

    /// Something that PostgreSQL has and this port has not.
    pub(crate) fn unsupported(what: impl Into<String>) -> Self {
        Self::new("0A000", what)
    }

    /// A value that does not have the form of its type.
    pub(crate) fn invalid_value(what: impl Into<String>) -> Self {
        Self::new("22P02", what)
    }

    /// The statement was cancelled.
    pub(crate) fn cancelled() -> Self {
        Self::new("57014", "canceling statement due to user request")
    }

    /// Statements, portals or parameters take more than a session may have.
    pub(crate) fn too_much(what: impl Into<String>) -> Self {
        Self::new("54000", what)
    }
}

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Self {
        let code = match &error {
            QueryError::Invalid(_) => match error.fault() {
                Some(Fault::Syntax) => "42601",
                Some(Fault::NoTable) => "42P01",
                Some(Fault::NoColumn) => "42703",
                Some(Fault::NoFunction) => "42883",
                Some(Fault::Write) => "25006",
                Some(Fault::Other) | None => "42000",
            },
            QueryError::Memory(_) => "53200",
            QueryError::Timeout(_) => "57014",
            QueryError::TooManyRows(_) => "54000",
            QueryError::Overloaded(_) => "53300",
            QueryError::Damaged(_) => "XX001",
            other => match other.kind() {
                Kind::Unavailable | Kind::Overloaded => "57P03",
                Kind::Timeout => "57014",
                Kind::Invalid => "42000",
                _ => "XX000",
            },
        };
        if code.starts_with("XX") {
            tracing::error!(error = &error as &dyn std::error::Error, "a query failed");
        }
        let failure = Self::new(code, error.to_string());
        match &error {
            QueryError::TooManyRows(_) => failure.with_hint(
                "query-rows-max is for single answers: a cursor (fetch size) and COPY (...) TO STDOUT have no limit",
            ),
            _ => failure,
        }
    }
}

impl From<Throttled> for Failure {
    fn from(error: Throttled) -> Self {
        Self::new("53400", error.to_string())
    }
}

/// Why the port cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// A file of the certificate cannot be read, or has another content.
    #[error("cannot use {file}: {why}")]
    Certificate {
        /// Its path.
        file: String,
        /// What is wrong.
        why: String,
    },
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Failure;
    use weir_query::kernel::error::QueryError;

    #[test]
    fn errors_have_codes() {
        let invalid = |text: &str| QueryError::Invalid(text.to_owned());
        for (error, code) in [
            (invalid("this is not valid SQL: Expected x"), "42601"),
            (invalid("there is no table x; there are: events"), "42P01"),
            (invalid("there is no column x"), "42703"),
            (invalid("there is no function x"), "42883"),
            (invalid("INSERT is not possible: SQL can only read here (SELECT)"), "25006"),
            (invalid("Cannot coerce"), "42000"),
            (QueryError::Memory("x".to_owned()), "53200"),
            (QueryError::Timeout(Duration::from_secs(1)), "57014"),
            (QueryError::TooManyRows(5), "54000"),
            (QueryError::Overloaded("x"), "53300"),
            (QueryError::Unavailable("x"), "57P03"),
            (QueryError::Damaged("x".to_owned()), "XX001"),
        ] {
            let text = error.to_string();
            assert_eq!(Failure::from(error).code, code, "{text}");
        }
    }
}
