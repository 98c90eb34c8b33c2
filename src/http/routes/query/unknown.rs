//! Warnings about event names that were never sent: a result of zeros may be due to a misspelt name.

use weir_api::node::nearest::nearest;
use weir_api::query::Warning;
use weir_app::App;
use weir_event::id::ProjectId;
use weir_metadata::error::MetadataError;

/// Most names that are looked up.
const NAMES_MAX: usize = 26;

/// Most names of events that are compared with an unknown one.
const COMPARED_MAX: u32 = 1000;

/// A warning for each event name without a definition. No warnings if the definitions cannot be read.
pub(super) async fn events(app: &App, project: ProjectId, names: Vec<String>) -> Vec<Warning> {
    let unknown = missing(app, project, names).await;
    // Definitions of events that were just acknowledged may not be written yet.
    if unknown.is_empty() || app.engine.wait().await.is_err() {
        return Vec::new();
    }
    let unknown = missing(app, project, unknown).await;
    if unknown.is_empty() {
        return Vec::new();
    }
    let known = app.node.metadata.definitions(project, "", COMPARED_MAX).await.unwrap_or_default();
    let known: Vec<String> = known.into_iter().map(|definition| definition.name).collect();
    let warning = |name: String| {
        let hint = nearest(&name, &known).map(|near| format!(" Did you mean \"{near}\"?"));
        let shown: String = name.chars().take(200).collect();
        let detail = format!("No event is called \"{shown}\" so far.{}", hint.unwrap_or_default());
        Warning { code: "unknown_event", name: shown, detail }
    };
    unknown.into_iter().map(warning).collect()
}

/// The distinct names without a definition.
async fn missing(app: &App, project: ProjectId, mut names: Vec<String>) -> Vec<String> {
    names.sort_unstable();
    names.dedup();
    let mut missing = Vec::new();
    for name in names.into_iter().take(NAMES_MAX) {
        let found = app.node.metadata.definition_by_name(project, &name).await;
        if matches!(found, Err(MetadataError::NotFound(_))) {
            missing.push(name);
        }
    }
    missing
}
