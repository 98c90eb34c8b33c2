//! The interface of row buffers for passes over a plan: [`Kept`].

use arrow::array::{AsArray, Int64Array, RecordBatch, UInt32Array};
use datafusion::error::DataFusionError;

use crate::events::histories::fold::{AT, MASK, Row};
use crate::kernel::error::QueryError;
use crate::kernel::interner::Interner;

/// Receives an actor, its rows in order, and the texts to which they refer.
pub(super) type Take<'t> = dyn FnMut(Actor<'_>, &[Row], &Interner) -> Result<(), QueryError> + 't;

/// A buffer of a plan's rows, with some of the actors in each pass over it.
pub(super) trait Kept: Send + 'static {
    /// Starts a pass; false if no actor is left.
    fn begin(&mut self) -> bool;

    /// Starts the same pass again, without its rows.
    fn again(&mut self);

    /// Adds the rows of a batch that belong to this pass.
    fn add(&mut self, batch: &RecordBatch) -> Result<(), QueryError>;

    /// The texts to which the rows refer.
    fn texts(&self) -> &Interner;

    /// Passes all actors of the pass to `take`, until it fails.
    fn each(&mut self, take: &mut Take<'_>) -> Result<(), QueryError>;
}

/// An actor, in the form in which the plan provides it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Actor<'t> {
    /// A text.
    Name(&'t str),
    /// The number of a person.
    Number(u32),
}

/// The columns that every plan of histories has.
pub(super) fn times_and_masks(
    batch: &RecordBatch,
) -> Result<(&Int64Array, &UInt32Array), QueryError> {
    let at = batch.column_by_name(AT).and_then(|at| at.as_primitive_opt());
    let masks = batch.column_by_name(MASK).and_then(|masks| masks.as_primitive_opt());
    at.zip(masks).ok_or_else(no_column)
}

/// The error for a plan with missing columns.
pub(super) fn no_column() -> QueryError {
    let error = "a plan of histories lacks a column, or has one of another type";
    QueryError::Internal(DataFusionError::Internal(error.to_owned()))
}

/// Runs passes over batches until no actor is left; returns the number of passes.
#[cfg(test)]
pub(super) fn passes(
    mut kept: impl Kept,
    batches: &[RecordBatch],
    take: &mut Take<'_>,
) -> Result<usize, QueryError> {
    let mut passes = 0;
    while kept.begin() {
        passes += 1;
        batches.iter().try_for_each(|batch| kept.add(batch))?;
        kept.each(take)?;
    }
    Ok(passes)
}
