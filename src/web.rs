//! The page: HTML, style and small scripts as pure functions of what is shown. No network, no disk, no store:
//! `http::routes::pages` loads what a page shows, and sends it.

pub mod assets;
pub mod chart;
pub mod frame;
pub mod insight;
pub mod pages;
pub mod parts;
pub mod sentences;
pub mod state;
