//! The background: flush, compact, expire.
