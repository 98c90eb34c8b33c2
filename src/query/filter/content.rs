//! Contents of conditions that need nothing else than their rows, from which another process makes the same condition:
//! [`ConditionContent`].

use serde::{Deserialize, Serialize};

use weir_event::predicate::Predicate;
use weir_event::predicate::moment::Now;
use weir_event::predicate::tree::Tree;
use weir_event::schema::PropertyType;

/// What a condition tests.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ConditionContent {
    /// The values of a column.
    OfColumn(OfColumn),
    /// Rows of events.
    OfEvents(OfEvents),
}

/// A predicate on the values of the column of a property.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OfColumn {
    /// The type of the column.
    pub(crate) kind: PropertyType,
    /// The predicate.
    pub(crate) predicate: Predicate,
    /// What dates are read by.
    pub(crate) now: Now,
    /// Whether it holds where the column is null.
    pub(crate) without: bool,
}

/// Filters on what the rows of events have.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OfEvents {
    /// The filters.
    pub(crate) tree: Tree,
    /// What dates are read by.
    pub(crate) now: Now,
}
