//! A Delta table: its live files and its commits.
