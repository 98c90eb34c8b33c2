//! Trees of filters on events and persons as conditions of a plan: [`tree`].

pub mod condition;
pub(super) mod content;
pub mod elements;
pub(super) mod event_properties;
pub mod matches;
pub(super) mod person_answers;
pub mod person_filter;
pub mod subject;
pub mod subject_sets;
pub mod tree;
