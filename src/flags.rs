//! What a flag is, and how its parts fit.
