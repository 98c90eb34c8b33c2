//! What is computed over the rows of each actor: [`Fold`], with the [`Row`]s that it gets and the columns of the plans that
//! have them.

use crate::events::histories::marks::Marks;
use crate::kernel::error::QueryError;
use crate::kernel::interner::Interner;

/// Plan column: the actor of the event, a text or a person number; rows where it is null are left out.
pub const ACTOR: &str = "actor";
/// Plan column: its time or another number by which the rows of an actor are ordered: `Int64`.
pub const AT: &str = "at";
/// Plan column: facts about it, as bits: `UInt32`.
pub const MASK: &str = "mask";
/// Plan column: a text of it, or null. Optional.
pub const TEXT: &str = "text";

/// Actors after which a fold checks whether it has been cancelled.
pub(super) const ACTORS_PER_CHECK: usize = 1024;

/// An event of an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its time, or the other number by which rows are ordered.
    pub at: i64,
    /// Facts about it, as bits.
    pub mask: u32,
    /// The interned number of its text; [`NO_TEXT`] if there is none.
    pub text: u32,
    pub(super) actor: u32,
}

impl Row {
    /// A row without a text, of the first actor.
    pub fn new(at: i64, mask: u32) -> Self {
        Self { at, mask, text: NO_TEXT, actor: 0 }
    }
}

/// Value of [`Row::text`] without a text.
pub const NO_TEXT: u32 = u32::MAX;

/// Which rows of an actor a fold needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// All of them.
    All,
    /// One of each set of equal rows.
    Distinct,
    /// The same for a plan without texts of which all times and masks are known in advance.
    Marked(Marks),
}

/// A computation over the rows of each actor.
pub trait Fold: Send + 'static {
    /// Called before each pass, which covers some of the actors. Until the next pass, [`Row::text`] refers to these
    /// texts.
    ///
    /// # Errors
    ///
    /// The state that it derives from texts becomes too large.
    fn begin(&mut self, _texts: &Interner) -> Result<(), QueryError> {
        Ok(())
    }

    /// Processes the rows of an actor: at least one, ordered by [`Row::at`], then mask, then text. Each actor comes
    /// once, in no particular order.
    ///
    /// # Errors
    ///
    /// Its result becomes too large.
    fn actor(&mut self, actor: &str, rows: &[Row], texts: &Interner) -> Result<(), QueryError>;
}
