//! The web interface: HTML, style sheets and small scripts as pure functions of the shown data. No network, no disk, no
//! store: `routes::pages` of the crate `weir-http` loads the data of a page, and sends the page.
//!
//! Begin with [`frame`], the layout around every content, then one of [`pages`]. [`state`] is the content of addresses
//! and saved insights as types, [`chart`] draws.

pub mod assets;
pub mod chart;
pub mod frame;
pub mod insight;
pub mod pages;
pub mod parts;
pub mod sentences;
pub mod state;
