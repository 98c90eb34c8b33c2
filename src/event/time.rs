//! Timestamps as senders write them.
