//! What several tests need beside the harness: a bucket, forms of pages, PostgreSQL servers, and random histories of
//! persons with what is known of them.

pub(crate) mod bucket;
pub(crate) mod certificates;
pub(crate) mod forms;
pub(crate) mod postgres;
pub(crate) mod spring;
pub(crate) mod workers;
pub(crate) mod world;
