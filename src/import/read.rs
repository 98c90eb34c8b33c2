//! Files as rows, in bounded memory: [`read`] opens compressions and archives, finds out what is inside, and passes each
//! row on. It panics on no input: a file that is damaged ends in an error after all rows before the damage.

mod budget;
pub mod columns;
mod elements;
mod layers;
mod lines;
mod parquet;
mod rows;
mod table;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

pub use crate::read::rows::{Formats, ROW_MAX_BYTES, Row, RowLocation, Sink, Wanted};

use crate::files::Input;
use crate::read::rows::Rows;
use crate::refusal::ReadError;

/// Reads the rows of a file. `read_bytes` grows by what has been read of it.
///
/// # Errors
///
/// The file cannot be opened, or not be read on: see [`ReadError`].
pub fn read(
    input: &Input,
    wanted: Wanted,
    read_bytes: &Arc<AtomicU64>,
    sink: &mut Sink<'_>,
) -> Result<(), ReadError> {
    layers::open(input, read_bytes, &mut Rows::new(wanted, sink))
}

#[cfg(test)]
mod tests;
