//! Foundations that every layer uses and no layer owns: classes of errors, time, settings, logs and metrics, threads
//! and tasks, limits of attempts at secrets.
//!
//! Each of [`error`], [`clock`], [`config`], [`telemetry`] and [`tasks`] replaces something global: tests pass a clock
//! of their own, only [`config`] reads the environment, only [`tasks`] spawns, so that a shutdown can wait. Nothing
//! about events, files or requests belongs here. Begin with [`config`]: its types are the settings.

pub mod attempts;
pub mod clock;
pub mod config;
pub mod error;
pub mod tasks;
pub mod telemetry;
