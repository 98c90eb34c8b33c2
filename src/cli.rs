//! The command line.

pub mod load;
