//! Writing of record batches: rows of a JSON response, text, or files.

pub mod lists;
pub mod rows;
pub mod value_rows;
