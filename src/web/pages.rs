//! The content of pages, one file per family. Pure functions of values of the API.

pub mod cohort_form;
pub mod definitions;
pub mod deletions;
pub mod events;
pub mod flag_form;
pub mod flags;
pub mod health;
pub mod home;
pub mod members;
pub mod onboarding;
pub mod person_list;
pub mod persons;
pub mod settings;
pub mod sign_in;
pub mod sql;
pub mod sql_chart;

#[cfg(test)]
mod tests;
