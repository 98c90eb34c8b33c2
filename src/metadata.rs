//! The metadata store: projects, users, keys, flags.
