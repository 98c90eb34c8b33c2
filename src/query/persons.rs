//! Tables and lists of persons: [`tables`] for SQL, [`people`] for lists.

pub mod people;
pub(super) mod person_columns;
pub(super) mod person_keys;
pub mod person_numbers;
pub(super) mod person_rows;
pub(super) mod person_scan;
pub(super) mod person_selection;
pub mod person_table;
pub mod tables;
