//! The nodes of all kinds of queries, declared once: parsing, checks and description follow from the declaration. Their
//! names and fields are those of PostHog's schema. Fields that its clients send without a meaning here are `ignored`,
//! with the reason.

pub mod actors;
pub mod base;
pub mod check;
pub mod correlation;
pub mod filter;
pub mod frame;
pub mod insights;
pub mod lists;
pub mod older;
pub mod paths;
mod reasons;
pub mod series;
pub mod tools;
pub mod wrapper;
