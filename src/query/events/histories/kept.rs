//! What keeps the rows of a plan while passes go over it: [`Kept`].

use arrow::array::{AsArray, Int64Array, RecordBatch, UInt32Array};
use datafusion::error::DataFusionError;

use crate::events::histories::{AT, MASK, Row};
use crate::kernel::error::QueryError;
use crate::kernel::interner::Interner;

/// Takes an actor, its rows in their order, and the texts that they name.
pub(super) type Take<'t> = dyn FnMut(Actor<'_>, &[Row], &Interner) -> Result<(), QueryError> + 't;

/// The rows of a plan, those of some actors in each pass over it.
pub(super) trait Kept: Send + 'static {
    /// Begins a pass; false if no actor is left.
    fn begin(&mut self) -> bool;

    /// Takes the rows of a batch that this pass is for.
    fn add(&mut self, batch: &RecordBatch) -> Result<(), QueryError>;

    /// The texts that the rows name.
    fn texts(&self) -> &Interner;

    /// Gives all actors of the pass to `take`, until it fails.
    fn each(&mut self, take: &mut Take<'_>) -> Result<(), QueryError>;
}

/// Whose rows are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Actor<'t> {
    /// As the plan has it.
    Name(&'t str),
    /// The same.
    Number(u32),
}

/// The columns of a batch that all plans have.
pub(super) fn times_and_masks(
    batch: &RecordBatch,
) -> Result<(&Int64Array, &UInt32Array), QueryError> {
    let at = batch.column_by_name(AT).and_then(|at| at.as_primitive_opt());
    let masks = batch.column_by_name(MASK).and_then(|masks| masks.as_primitive_opt());
    at.zip(masks).ok_or_else(no_column)
}

/// A plan is not as it has to be.
pub(super) fn no_column() -> QueryError {
    let error = "a plan of histories lacks a column, or has one of another type";
    QueryError::Internal(DataFusionError::Internal(error.to_owned()))
}

/// Goes over batches until no actor is left; how many passes that took.
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
