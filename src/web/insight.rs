//! What pages of insights show: [`form`] is the question as fields, [`result`] the answer of the API as a chart and a
//! table, [`persons`] who is behind a mark, [`saved`] and [`dashboard`] what was saved.

mod answer;
pub mod dashboard;
pub mod form;
mod funnel;
pub mod links;
mod paths;
pub mod persons;
pub mod result;
mod retention;
pub mod saved;
mod trends;

#[cfg(test)]
mod tests;
