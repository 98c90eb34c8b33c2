//! Record batches as rows of an answer or as a file.

pub mod lists;
pub mod rows;
pub mod value_rows;
