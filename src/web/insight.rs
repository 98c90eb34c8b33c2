//! Pages of insights: [`form`] is the query as form fields, [`result`] the API's answer as a chart and a table,
//! [`persons`] the persons behind a mark of the chart, [`saved`] and [`dashboard`] saved insights and dashboards, which
//! [`arrange`] edits; [`shared`] is the content of a share link.

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
