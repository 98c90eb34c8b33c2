//! The nodes of all kinds of queries, declared once: what is read of them, checked and described is here. Their names and
//! fields are those of PostHog's schema. What its clients send without a meaning here is `ignored`, with the reason.

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
pub mod wrapper;
