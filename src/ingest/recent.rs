//! Keys of the newest events in files, which seed the deduplication window at start.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use futures::StreamExt;
use uuid::Uuid;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};

use weir_event::id::{EventKey, ProjectId};
use weir_storage::delta::DataFile;
use weir_storage::delta::stats::Value;
use weir_storage::parquet::read_columns;
use weir_storage::store::Store;

/// Keys of the newest `events_max` events in files, oldest first. If a file cannot be read its keys are
/// left out: a retry of its events would be stored twice until the next merge.
///
/// A file may have any number of rows, sorted by project and name, so its newest rows may be anywhere:
/// it is read as a stream, of which only the newest keys are kept.
pub async fn recent_keys(store: &Store, events_max: usize) -> Vec<(ProjectId, EventKey)> {
    let version = store.table().current();
    let mut files: Vec<&DataFile> = version.files.iter().map(AsRef::as_ref).collect();
    files.sort_by_key(|file| Reverse(newest(file)));
    let mut keys = Newest::new(events_max);
    for file in files {
        // All later files are older still.
        if keys.is_too_old(newest(file)) {
            break;
        }
        let columns = ["project_id", "uuid", "event", "distinct_id", "received_at"];
        let read = read_columns(store.table().store(), file, &columns).await;
        let mut batches = match read {
            Ok(batches) => batches,
            Err(error) => {
                tracing::warn!(
                    file = file.path,
                    %error,
                    "event keys of a file are unreadable: resent events are duplicated"
                );
                continue;
            }
        };
        while let Some(batch) = batches.next().await {
            match batch {
                Ok(batch) => add(&mut keys, &batch),
                Err(error) => {
                    tracing::warn!(
                        file = file.path,
                        %error,
                        "event keys of a file are unreadable: resent events are duplicated"
                    );
                    break;
                }
            }
        }
    }
    keys.oldest_first()
}

fn newest(file: &DataFile) -> i64 {
    let times = file.stats.columns.get("received_at").and_then(|stats| stats.max.as_ref());
    match times {
        Some(Value::Timestamp(time)) => time.0,
        _ => i64::MAX,
    }
}

/// Adds the rows of `batch`.
fn add(newest: &mut Newest<(ProjectId, EventKey)>, batch: &RecordBatch) {
    let column = |name| batch.column_by_name(name);
    let text = |name| column(name).and_then(AsArray::as_string_opt::<i32>);
    let projects = column("project_id").and_then(AsArray::as_primitive_opt::<Int64Type>);
    let times = column("received_at");
    let times = times.and_then(AsArray::as_primitive_opt::<TimestampMicrosecondType>);
    let (Some(projects), Some(times)) = (projects, times) else { return };
    let (Some(ids), Some(events), Some(distinct_ids)) =
        (text("uuid"), text("event"), text("distinct_id"))
    else {
        return;
    };
    let rows = projects.values().iter().zip(times.values());
    for ((((project, time), id), event), distinct_id) in rows.zip(ids).zip(events).zip(distinct_ids)
    {
        if newest.is_too_old(*time) {
            continue;
        }
        let id = id.and_then(|id| Uuid::try_parse(id).ok());
        if let (Some(id), Some(event), Some(distinct_id)) = (id, event, distinct_id) {
            newest.add(*time, (ProjectId(*project), EventKey::new(id, event, distinct_id)));
        }
    }
}

/// The keys of the newest events by receive time, at most `events_max`.
#[derive(Debug)]
struct Newest<K> {
    events_max: usize,
    /// Min-heap: the oldest on top.
    events: BinaryHeap<Reverse<(i64, K)>>,
}

impl<K: Ord> Newest<K> {
    fn new(events_max: usize) -> Self {
        Self { events_max, events: BinaryHeap::new() }
    }

    /// Whether the heap is full of events that are at least as new.
    fn is_too_old(&self, received_at: i64) -> bool {
        let oldest = self.events.peek();
        self.events.len() >= self.events_max
            && oldest.is_none_or(|Reverse((oldest, _))| received_at <= *oldest)
    }

    fn add(&mut self, received_at: i64, key: K) {
        if self.is_too_old(received_at) {
            return;
        }
        if self.events.len() >= self.events_max {
            self.events.pop();
        }
        self.events.push(Reverse((received_at, key)));
    }

    fn oldest_first(self) -> Vec<K> {
        let newest_first = self.events.into_sorted_vec();
        newest_first.into_iter().rev().map(|Reverse((_, key))| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
    use uuid::Uuid;

    use super::{EventKey, Newest, ProjectId, add};

    /// Rows of project and time; the id and the sender are derived from both.
    fn batch(rows: &[(i64, i64)]) -> RecordBatch {
        let id = |(project, time): &(i64, i64)| id_of(*project, *time).to_string();
        let columns: [(&str, ArrayRef); 5] = [
            ("project_id", Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0)))),
            ("uuid", Arc::new(StringArray::from_iter_values(rows.iter().map(id)))),
            ("event", Arc::new(StringArray::from_iter_values(rows.iter().map(|_| "view")))),
            ("distinct_id", Arc::new(StringArray::from_iter_values(rows.iter().map(id)))),
            (
                "received_at",
                Arc::new(TimestampMicrosecondArray::from_iter_values(rows.iter().map(|row| row.1))),
            ),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn id_of(project: i64, time: i64) -> Uuid {
        Uuid::from_u64_pair(project.try_into().unwrap(), time.try_into().unwrap())
    }

    fn key_of(project: i64, time: i64) -> (ProjectId, EventKey) {
        let id = id_of(project, time);
        (ProjectId(project), EventKey::new(id, "view", &id.to_string()))
    }

    /// A file has the events of one project, or of one name, behind those of another.
    #[test]
    fn the_newest_are_kept_wherever_they_stand() {
        let rows = [(1, 90), (1, 10), (1, 95), (2, 20), (2, 96), (2, 5), (3, 1), (3, 94), (3, 30)];
        for (events_max, expected) in [
            (0, vec![]),
            (1, vec![(2, 96)]),
            (4, vec![(1, 90), (3, 94), (1, 95), (2, 96)]),
            (8, vec![(2, 5), (1, 10), (2, 20), (3, 30), (1, 90), (3, 94), (1, 95), (2, 96)]),
        ] {
            let expected: Vec<_> =
                expected.into_iter().map(|(project, at)| key_of(project, at)).collect();
            for size in [1, 2, 9] {
                let mut newest = Newest::new(events_max);
                for rows in rows.chunks(size) {
                    add(&mut newest, &batch(rows));
                    assert!(newest.events.len() <= events_max);
                }
                assert_eq!(newest.oldest_first(), expected, "{events_max} {size}");
            }
        }
    }

    #[test]
    fn older_files_are_not_read_once_there_are_enough() {
        let mut newest = Newest::new(2);
        for (time, is_too_old) in
            [(5, false), (3, false), (3, true), (2, true), (4, false), (4, true)]
        {
            assert_eq!(newest.is_too_old(time), is_too_old, "{time}");
            newest.add(time, time);
        }
        assert_eq!(newest.oldest_first(), [4, 5]);
        assert!(Newest::<u8>::new(0).is_too_old(i64::MAX));
    }
}
