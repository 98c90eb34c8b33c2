//! Errors of queries: [`QueryError`].

use std::time::Duration;

use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use tokio::task::JoinError;

use crate::dialect::unknown_column;
use crate::kernel::damage;
use weir_base::error::Kind;
use weir_identity::IdentityError;
use weir_metadata::error::MetadataError;
use weir_progress::barrier::BarrierError;

/// What DataFusion appends to some errors, addressed to its authors.
const PLEA: &str = "\nThis issue was likely caused by a bug in DataFusion's code. Please help us to resolve this by filing \
                    a bug report in our issue tracker: https://github.com/apache/datafusion/issues";

/// Prefix of parser errors.
const PARSER: &str = "sql parser error: ";

/// How the text of an error of each [`Fault`] begins.
pub(crate) const SYNTAX: &str = "this is not valid SQL: ";
pub(crate) const NO_TABLE: &str = "there is no table ";
pub(crate) const NO_COLUMN: &str = "there is no column ";
pub(crate) const NO_FUNCTION: &str = "there is no function ";
/// What the text of an error about a statement that changes something contains.
pub(crate) const READ_ONLY: &str = "SQL can only read here";

/// What is wrong with a query, for protocols that tell it by a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It does not parse.
    Syntax,
    /// It names a table that does not exist.
    NoTable,
    /// It names a column that does not exist.
    NoColumn,
    /// It calls a function that does not exist.
    NoFunction,
    /// It would change something.
    Write,
    /// Anything else, such as types and values.
    Other,
}

/// Why a query failed or was refused.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The query itself: syntax, names, types, values.
    #[error("{0}")]
    Invalid(String),
    /// It needs more memory than queries may use.
    #[error("the query needs more memory than it may have: {0}")]
    Memory(String),
    /// It took too long.
    #[error("the query took longer than {0:?}")]
    Timeout(Duration),
    /// Its result has more rows than this.
    #[error("the answer has more than {0} rows: aggregate, or add a LIMIT")]
    TooManyRows(usize),
    /// Its result has more rows than `query-rows-max`, in a format with this limit.
    #[error(
        "the answer has more than {0} rows, which query-rows-max allows: aggregate, add a LIMIT, or ask for a file, \
         which may have any number of rows: csv, jsonl, parquet or arrow"
    )]
    TooManyRowsOfSql(usize),
    /// The state that it must read is not available yet.
    #[error("{0}")]
    Unavailable(&'static str),
    /// Too many queries are running or queued; a later one may find a slot.
    #[error("{0}")]
    Overloaded(&'static str),
    /// The identity store failed.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The metadata store failed.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// A data file that it needs is missing or damaged.
    #[error("a data file cannot be read: {0}")]
    Damaged(String),
    /// The object store of the tables failed.
    #[error("the object store that has the files of events does not answer; try again")]
    Store(#[source] DataFusionError),
    /// A bug.
    #[error("the query failed")]
    Internal(#[source] DataFusionError),
}

impl QueryError {
    /// The kind of the error, from which follows what the client can do about it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Invalid(_)
            | Self::Memory(_)
            | Self::TooManyRows(_)
            | Self::TooManyRowsOfSql(_) => Kind::Invalid,
            Self::Timeout(_) => Kind::Timeout,
            Self::Unavailable(_) | Self::Store(_) => Kind::Unavailable,
            Self::Overloaded(_) => Kind::Overloaded,
            Self::Identity(error) => error.kind(),
            Self::Metadata(error) => error.kind(),
            Self::Damaged(_) | Self::Internal(_) => Kind::Internal,
        }
    }

    /// What is wrong with the query, if the query is at fault ([`QueryError::Invalid`]).
    pub fn fault(&self) -> Option<Fault> {
        let Self::Invalid(text) = self else { return None };
        let known = [
            (SYNTAX, Fault::Syntax),
            (NO_TABLE, Fault::NoTable),
            (NO_COLUMN, Fault::NoColumn),
            (NO_FUNCTION, Fault::NoFunction),
        ];
        if text.contains(READ_ONLY) {
            return Some(Fault::Write);
        }
        let found = known.into_iter().find(|(begin, _)| text.starts_with(begin));
        Some(found.map_or(Fault::Other, |(_, fault)| fault))
    }

    /// Reclassifies an internal error of a query that the client wrote: what is not about files is the query's fault,
    /// such as an invalid regular expression, or a bug of the planner that another query avoids.
    pub(crate) fn of_query(self) -> Self {
        let Self::Internal(error) = self else { return self };
        match error.find_root() {
            DataFusionError::IoError(_)
            | DataFusionError::ObjectStore(_)
            | DataFusionError::ParquetError(_)
            | DataFusionError::ExecutionJoin(_)
            | DataFusionError::External(_) => Self::Internal(error),
            _ => {
                let text = error.strip_backtrace();
                // What follows is addressed to the authors of DataFusion.
                let text = text.split("\nThis issue was likely").next().unwrap_or_default();
                Self::Invalid(text.to_owned())
            }
        }
    }

    /// Whether it is the same wherever the query runs.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Timeout(_) | Self::TooManyRows(_) | Self::TooManyRowsOfSql(_))
    }

    pub(crate) fn outcome(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "invalid",
            Self::Memory(_) => "memory",
            Self::Timeout(_) => "timeout",
            Self::Damaged(_) => "damaged",
            _ => "failed",
        }
    }
}

impl From<BarrierError> for QueryError {
    fn from(error: BarrierError) -> Self {
        match error {
            BarrierError::Replaying => Self::Unavailable("the log is still being replayed"),
            BarrierError::Identity(error) => Self::Identity(error),
        }
    }
}

impl From<DataFusionError> for QueryError {
    fn from(error: DataFusionError) -> Self {
        if damage::is_unreachable(&error) {
            return Self::Store(error);
        }
        if let Some(damage) = damage::in_files(&error) {
            return Self::Damaged(damage);
        }
        if let DataFusionError::SchemaError(schema, _) = error.find_root()
            && let SchemaError::FieldNotFound { field, valid_fields } = schema.as_ref()
        {
            return Self::Invalid(unknown_column::told(field, valid_fields));
        }
        match error.find_root() {
            DataFusionError::SQL(parser, _) => {
                let text = parser.to_string();
                let reason = text.strip_prefix(PARSER).unwrap_or(&text);
                Self::Invalid(format!("{SYNTAX}{reason}"))
            }
            DataFusionError::Plan(_)
            | DataFusionError::SchemaError(..)
            | DataFusionError::Configuration(_)
            | DataFusionError::NotImplemented(_)
            | DataFusionError::Execution(_)
            | DataFusionError::ArrowError(..) => {
                // Wrapping errors only name the step of planning that failed.
                Self::Invalid(error.find_root().strip_backtrace().replace(PLEA, ""))
            }
            DataFusionError::ResourcesExhausted(text) => {
                // The rest would reveal how much memory the queries of others have left.
                Self::Memory(text.split(" - ").next().unwrap_or_default().to_owned())
            }
            DataFusionError::External(inner)
                if inner.downcast_ref().is_some_and(IdentityError::may_pass) =>
            {
                Self::Identity(IdentityError::Reopening)
            }
            _ => Self::Internal(error),
        }
    }
}
/// The answer to a query whose threads did not come to their end.
pub(crate) fn given_up(_: JoinError) -> QueryError {
    QueryError::Unavailable("the query was given up")
}
