//! The page: HTML, style and small scripts as pure functions of what is shown. No network, no disk, no store:
//! `routes::pages` of the crate `weir-http` loads what a page shows, and sends it.
//!
//! Begin with [`frame`], the page around every content, then one of [`pages`]. [`state`] is what addresses and saved
//! insights say, [`chart`] draws.

pub mod assets;
pub mod chart;
pub mod frame;
pub mod insight;
pub mod pages;
pub mod parts;
pub mod sentences;
pub mod state;
