//! The engine that answers questions.
