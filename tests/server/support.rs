//! What several tests need beside the harness: random histories of persons with what is known of them.

pub(crate) mod spring;
pub(crate) mod world;
