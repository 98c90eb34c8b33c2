//! The page.

pub mod insights;
