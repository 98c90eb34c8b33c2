//! Deletion of projects: writes a record into the log for each project that was deleted in the metadata, here or by another
//! server. From its place in the log on, nothing of the project has an effect, and what there was before is removed
//! (`deletions`). Only when the record has had its effect is it not written again, so that no crash in between matters.

use std::collections::BTreeSet;
use std::time::Duration;

use weir_base::tasks::{Pause, Tasks};
use weir_event::id::ProjectId;
use weir_identity::store::Identities;
use weir_ingest::Pipeline;
use weir_ingest::operation::{Action, Operation};
use weir_metadata::Metadata;

/// Time between checks. Nobody can read the project meanwhile: this is about its files.
const TICK: Duration = Duration::from_millis(500);

/// Pause after the log refused a record.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// Starts to look for deleted projects. Ends when `tasks` shuts down.
pub fn start(tasks: &Tasks, metadata: Metadata, identities: Identities, pipeline: Pipeline) {
    let shutdown = tasks.shutdown().clone();
    tasks.spawn("delete-projects", async move {
        // Those whose record is written, and may not have had its effect yet.
        let mut written: BTreeSet<ProjectId> = BTreeSet::new();
        while shutdown.pause(TICK).await == Pause::Elapsed {
            let snapshot = metadata.snapshot();
            let deleted = snapshot.deleted_projects().iter();
            let missing = deleted.filter(|(project, _)| {
                !written.contains(project) && !identities.has_deleted(**project)
            });
            let missing: Vec<_> = missing.map(|(project, at)| (*project, *at)).collect();
            for (project, at) in missing {
                let action = Action::DeleteProject {};
                let operation = Operation { project, at, by: None, action };
                if let Err(error) = pipeline.operate(operation).await {
                    tracing::warn!(%error, project = project.0, "cannot log the deletion of a project yet; it is tried again");
                    shutdown.pause(RETRY_PAUSE).await;
                    break;
                }
                written.insert(project);
                tracing::info!(project = project.0, "a project is deleted; its events and persons are being removed");
            }
        }
    });
}
