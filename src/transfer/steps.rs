//! The steps of a copy, one kind of objects each. What a step does is in its file; their order is in `run`.

pub(crate) mod annotations;
pub(crate) mod audiences;
pub(crate) mod boards;
pub(crate) mod definitions;
pub(crate) mod elsewhere;
pub(crate) mod events;
pub(crate) mod features;
pub(crate) mod flags;
pub(crate) mod groups;
pub(crate) mod insights;
pub(crate) mod members;
pub(crate) mod persons;
pub(crate) mod schedules;
pub(crate) mod settings;
