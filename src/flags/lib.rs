//! Feature flag evaluation: parsed flags, subjects, and verdicts.
//!
//! Stored JSON is parsed into a checked [`definition::Definition`]. All definitions of a project
//! form a [`set::FlagSet`], sorted so that a flag comes after its dependencies. A request becomes a
//! [`subject::Subject`]. [`set::FlagSet::evaluate`] returns a [`verdict::Verdict`] for each flag,
//! and [`evaluate::evaluate`] is the rule for one of them. [`bucket`] is the hash that the SDKs and
//! this server must compute alike. All of it is pure: no I/O, no clock, no locks.
//!
//! # Cohorts
//!
//! Membership is read through [`evaluate::Cohorts`], which [`cohorts`] implements. A flag fails if
//! its verdict depends on a cohort that does not exist or that is in a dependency cycle. The
//! response then has `errorsWhileComputingFlags`, so that SDKs keep the previous value. A flag that
//! is decided before its cohort is read gets its verdict.

pub mod bucket;
pub mod cohorts;
pub mod definition;
pub mod effort;
pub mod evaluate;
pub mod set;
pub mod subject;
pub mod trace;
pub mod verdict;
