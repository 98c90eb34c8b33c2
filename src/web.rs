//! The page: HTML, charts and small scripts as pure functions of what is shown. No network, no disk, no store:
//! `http::routes::pages` loads what a page shows, and sends it.

pub mod chart;
pub mod insight;
pub mod state;
