//! Deleted projects, as the store keeps them: [`Gone`]. From the record of a deletion on, no record of the project has an
//! effect here, and its events count as deleted ([`Deletions`]). Its rows are removed in parts, whenever there is time
//! (`purge`).
//!
//! [`Deletions`]: crate::deletions::Deletions

use std::sync::Arc;

use hashbrown::HashSet;

use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;

/// The projects that are deleted.
pub(super) type GoneProjects = HashSet<ProjectId>;

/// A deleted project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone {
    /// Sequence of the record of the deletion.
    pub(super) sequence: u64,
    pub(super) asked_at: UnixMicros,
    /// Time at which nothing of the project was left here, in live files and in memory.
    pub(super) done_at: Option<UnixMicros>,
}

/// The deleted projects, with one more.
pub(super) fn with(
    known: &GoneProjects,
    new: impl Iterator<Item = ProjectId>,
) -> Arc<GoneProjects> {
    let mut all = known.clone();
    all.extend(new);
    Arc::new(all)
}
