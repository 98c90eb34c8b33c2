//! Writing of record batches: rows of a JSON response, text, or files.

pub(super) mod encoder;
pub mod format;
pub mod formulas;
pub mod lists;
pub(super) mod plain;
pub mod rows;
pub mod table;
pub mod value_rows;
