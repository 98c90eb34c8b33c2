//! The keys of the newest events in files, by which the window of recent events is filled at start.

use futures::StreamExt;
use uuid::Uuid;

use arrow::array::AsArray;
use arrow::array::RecordBatch;
use arrow::datatypes::Int64Type;

use crate::event::id::EventKey;
use crate::event::id::ProjectId;
use crate::storage::delta::DataFile;
use crate::storage::delta::stats::Value;
use crate::storage::parquet::read_columns;
use crate::storage::store::Store;

/// Keys of at least the newest `events_max` events in files, oldest file first; fewer if there are
/// fewer, or if a file cannot be read: then a retry of its events would be stored twice until the
/// next merge.
pub async fn recent_keys(store: &Store, events_max: usize) -> Vec<(ProjectId, EventKey)> {
    let version = store.table().current();
    let mut files: Vec<&DataFile> = version.files.iter().map(AsRef::as_ref).collect();
    files.sort_by_key(|file| std::cmp::Reverse(newest(file)));
    let mut rows = 0;
    let enough = |file: &&&DataFile| {
        let needed = rows < u64::try_from(events_max).unwrap_or(u64::MAX);
        rows += file.rows;
        needed
    };
    let chosen: Vec<&DataFile> = files.iter().take_while(enough).copied().collect();
    let mut keys = Vec::new();
    for file in chosen.into_iter().rev() {
        let objects = store.table().store();
        let read =
            read_columns(objects, file, &["project_id", "uuid", "event", "distinct_id"]).await;
        let mut batches = match read {
            Ok(batches) => batches,
            Err(error) => {
                tracing::warn!(file = file.path, %error, "cannot read which events are recent");
                continue;
            }
        };
        while let Some(batch) = batches.next().await {
            match batch {
                Ok(batch) => keys.extend(keys_of(&batch)),
                Err(error) => {
                    tracing::warn!(file = file.path, %error, "cannot read which events are recent");
                    break;
                }
            }
        }
    }
    keys
}

fn newest(file: &DataFile) -> i64 {
    let times = file.stats.columns.get("received_at").and_then(|stats| stats.max.as_ref());
    match times {
        Some(Value::Timestamp(time)) => time.0,
        _ => i64::MAX,
    }
}

fn keys_of(batch: &RecordBatch) -> Vec<(ProjectId, EventKey)> {
    let projects = batch
        .column_by_name("project_id")
        .map(|column| column.as_primitive::<Int64Type>().values().iter().copied().map(ProjectId));
    let text = |name| batch.column_by_name(name).map(|column| column.as_string::<i32>());
    let (Some(projects), Some(ids), Some(events), Some(distinct_ids)) =
        (projects, text("uuid"), text("event"), text("distinct_id"))
    else {
        return Vec::new();
    };
    let rows = projects.zip(ids).zip(events).zip(distinct_ids);
    let key = |(((project, id), event), distinct_id): (((_, Option<&str>), _), Option<&str>)| {
        let id = Uuid::try_parse(id?).ok()?;
        Some((project, EventKey::new(id, event?, distinct_id?)))
    };
    rows.filter_map(key).collect()
}
