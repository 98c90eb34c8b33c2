//! What pages of insights show: [`form`] is the question as fields, [`result`] the answer of the API as a chart and a
//! table, [`persons`] who is behind a mark, [`saved`] and [`dashboard`] what was saved, and
//! [`arrange`] changes it; [`shared`] is what a link shows.

mod answer;
pub mod arrange;
pub mod dashboard;
pub mod form;
mod funnel;
pub mod links;
pub mod next;
mod paths;
pub mod persons;
pub mod result;
mod retention;
pub mod saved;
pub mod shared;
mod trends;

#[cfg(test)]
pub(super) mod tests;
