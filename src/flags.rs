//! What a feature flag is, and how its parts fit.
//!
//! Stored JSON becomes a checked [`definition::Definition`]; all definitions of a project become a
//! [`set::FlagSet`], ordered so that a flag comes after the flags it depends on; a request becomes
//! a [`subject::Subject`]; [`set::FlagSet::evaluate`] answers with a [`verdict::Verdict`] for each flag, and
//! [`evaluate::evaluate`] is the rule for one of them. [`bucket`] is the hash that both sides, the
//! SDKs and this server, must compute alike. All of it is pure: no I/O, no clock, no locks.
//!
//! # Cohorts
//!
//! Membership is asked of [`evaluate::Cohorts`]; [`cohorts`] answers it. A flag whose verdict depends
//! on a cohort that is not there, or that waits for itself, is reported as failed, and the response
//! carries `errorsWhileComputingFlags`, so that SDKs keep the value they had. A flag that is decided
//! before its cohort is asked gets its verdict.

pub mod bucket;
pub mod cohorts;
pub mod definition;
pub mod effort;
pub mod evaluate;
pub mod set;
pub mod subject;
pub mod trace;
pub mod verdict;
