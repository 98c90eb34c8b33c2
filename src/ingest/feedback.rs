//! Ingestion warnings for senders: [`Feedback`] counts them by project, kind and day in memory, and a
//! thread writes them to the metadata store every 2 seconds.
//!
//! They are statistics: a crash may lose those of the last seconds, and a replay does not count again
//! what was counted when its request arrived. Memory is bounded: kinds are constants of the code, and
//! each count keeps a few samples.

use std::borrow::Borrow;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::runtime::Handle;

use crate::prepared::Prepared;
use crate::warnings::{Kind, Sample};
use weir_base::clock::{Clock, UnixMicros};
use weir_base::tasks::{Pause, Shutdown, TaskError, Tasks};
use weir_base::telemetry::metrics::{KindLabels, Metrics};
use weir_event::id::ProjectId;
use weir_metadata::Metadata;
use weir_metadata::error::MetadataError;
use weir_metadata::warnings::{DayOfWarnings, SAMPLES_MAX, WarningSample};

/// Time between writes.
const WRITE_INTERVAL: Duration = Duration::from_secs(2);

/// Time between two removals of days that are too old.
const REMOVE_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// Counts that may wait for the next write; above that only the metrics count.
const WAITING_MAX: usize = 10_000;

/// Longest text of a sample, in bytes of JSON. A sample has three such texts and an id.
const TEXT_MAX_BYTES: usize = 280;

/// A sample as the API returns it, with PostHog's field names.
fn details(sample: &Sample) -> Map<String, Value> {
    let id = if sample.event_id.is_nil() { String::new() } else { sample.event_id.to_string() };
    let texts = [
        ("eventUuid", &id),
        ("event", &sample.event),
        ("distinctId", &sample.distinct_id),
        ("detail", &sample.detail),
    ];
    let known = texts.into_iter().filter(|(_, text)| !text.is_empty());
    known.map(|(name, text)| (name.to_owned(), Value::String(short(text).to_owned()))).collect()
}

/// The longest prefix of `text` that takes at most [`TEXT_MAX_BYTES`] as a JSON string.
fn short(text: &str) -> &str {
    let mut capacity = TEXT_MAX_BYTES;
    let end = text.char_indices().find_map(|(start, character)| {
        let bytes = match character {
            '"' | '\\' => 2,
            '\0'..'\u{20}' => 6,
            _ => character.len_utf8(),
        };
        let left = capacity.checked_sub(bytes);
        capacity = left.unwrap_or(0);
        left.is_none().then_some(start)
    });
    text.get(..end.unwrap_or(text.len())).unwrap_or(text)
}

/// The key and count of one call of [`Feedback::note`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noted {
    /// The project of the events.
    pub project: ProjectId,
    /// The kind of warning.
    pub kind: Kind,
    /// When the events were received.
    pub at: UnixMicros,
    /// Number of events.
    pub count: u64,
}

type Waiting = HashMap<(ProjectId, &'static str, i64), DayOfWarnings>;

/// A cheap handle; clones share the counts.
#[derive(Clone, Debug)]
pub struct Feedback {
    waiting: Arc<Mutex<Waiting>>,
    metrics: Arc<Metrics>,
}

impl Feedback {
    /// Starts without counts.
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self { waiting: Arc::default(), metrics }
    }

    /// Counts the warnings of a batch.
    pub fn note_batch(&self, prepared: &Prepared) {
        let (project, at) = (prepared.project, prepared.received_at);
        for (kind, count) in prepared.warnings.counts() {
            let samples = prepared.warnings.samples().iter();
            let samples = samples.filter(|sample| sample.kind == kind);
            self.note(Noted { project, kind, at, count }, samples);
        }
    }

    /// Counts warnings. Keeps at most [`SAMPLES_MAX`] samples per count.
    pub fn note(&self, noted: Noted, samples: impl IntoIterator<Item = impl Borrow<Sample>>) {
        let Noted { project, kind, at, count } = noted;
        let kind = kind.name();
        if count == 0 {
            return;
        }
        self.metrics.ingestion_warnings.get_or_create(&KindLabels { kind }).inc_by(count);
        let day = DayOfWarnings::day_of(at);
        let mut waiting = self.waiting.lock();
        if waiting.len() >= WAITING_MAX && !waiting.contains_key(&(project, kind, day)) {
            return;
        }
        let known = waiting.entry((project, kind, day)).or_insert_with(|| DayOfWarnings {
            project,
            kind: kind.to_owned(),
            day,
            count: 0,
            first_seen_at: at,
            last_seen_at: at,
            samples: Vec::new(),
        });
        known.count = known.count.saturating_add(count);
        known.first_seen_at = known.first_seen_at.min(at);
        known.last_seen_at = known.last_seen_at.max(at);
        let wanted = SAMPLES_MAX.saturating_sub(known.samples.len());
        for sample in samples.into_iter().take(wanted) {
            let details = details(sample.borrow());
            known.samples.insert(0, WarningSample { at, details });
        }
    }

    /// Writes the counts since the last write.
    ///
    /// # Errors
    ///
    /// The store failed; the counts are kept for the next write.
    pub async fn write(&self, metadata: &Metadata) -> Result<(), MetadataError> {
        let taken = std::mem::take(&mut *self.waiting.lock());
        let days: Vec<DayOfWarnings> = taken.values().cloned().collect();
        let written = metadata.add_warnings(&days).await;
        if written.is_err() {
            self.put_back(taken);
        }
        written
    }

    fn put_back(&self, taken: Waiting) {
        let mut waiting = self.waiting.lock();
        for (key, day) in taken {
            match waiting.entry(key) {
                hashbrown::hash_map::Entry::Occupied(mut known) => known.get_mut().add(day),
                hashbrown::hash_map::Entry::Vacant(place) => {
                    place.insert(day);
                }
            }
        }
    }
}

/// Starts the thread that writes the counts of the returned handle and deletes those older than
/// `max_age`.
pub(super) fn start(
    tasks: &Tasks,
    metadata: Metadata,
    runtime: Handle,
    clock: &Clock,
    metrics: &Arc<Metrics>,
    max_age: Duration,
) -> Result<Feedback, TaskError> {
    let feedback = Feedback::new(Arc::clone(metrics));
    let (shutdown, clock) = (tasks.shutdown().clone(), clock.clone());
    let writer = Writer { feedback: feedback.clone(), metadata, runtime, clock, max_age };
    tasks.spawn_thread("feedback", move || writer.run(&shutdown))?;
    Ok(feedback)
}

/// The state of that thread.
struct Writer {
    feedback: Feedback,
    metadata: Metadata,
    runtime: Handle,
    clock: Clock,
    max_age: Duration,
}

impl Writer {
    /// Writes until `shutdown` begins. The last write is that of
    /// [`crate::Pipeline::write_feedback`].
    fn run(self, shutdown: &Shutdown) {
        let mut removed_at = None;
        while shutdown.pause_thread(WRITE_INTERVAL) == Pause::Elapsed {
            if let Err(error) = self.runtime.block_on(self.feedback.write(&self.metadata)) {
                tracing::warn!(%error, "cannot store ingestion warnings yet; they stay in memory");
            }
            let now = self.clock.monotonic();
            let is_due = |at: Duration| now.saturating_sub(at) >= REMOVE_INTERVAL;
            if removed_at.is_none_or(is_due) {
                removed_at = Some(now);
                self.remove_old();
            }
        }
    }

    fn remove_old(&self) {
        let age = i64::try_from(self.max_age.as_micros()).unwrap_or(i64::MAX);
        let before = UnixMicros(self.clock.now().0.saturating_sub(age));
        match self.runtime.block_on(self.metadata.remove_warnings(before)) {
            Ok(0) => {}
            Ok(rows) => tracing::info!(rows, "removed old ingestion warnings"),
            Err(error) => {
                tracing::warn!(%error, "cannot remove old ingestion warnings; next try in an hour");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use uuid::Uuid;

    use super::{Feedback, Noted};
    use crate::warnings::{Kind, Sample};
    use weir_base::clock::{Clock, UnixMicros};
    use weir_base::telemetry::metrics::Metrics;
    use weir_event::id::ProjectId;
    use weir_metadata::Metadata;
    use weir_metadata::bootstrap::FirstStart;
    use weir_metadata::secrets::Seed;

    const NOW: UnixMicros = UnixMicros(1_795_248_000_000_000);

    const NONE: [Sample; 0] = [];

    fn noted(project: i64, count: u64) -> Noted {
        Noted { project: ProjectId(project), kind: Kind::InvalidSet, at: NOW, count }
    }

    #[tokio::test]
    async fn counts_are_exact_and_samples_few_and_small() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("metadata.db");
        let metadata = Metadata::open(&path, Clock::test(NOW)).await.unwrap();
        metadata.bootstrap(FirstStart::default(), &Seed::new(&mut rand::rng())).await.unwrap();
        let metrics = Arc::new(Metrics::new());
        let feedback = Feedback::new(Arc::clone(&metrics));
        let sample = Sample {
            kind: Kind::InvalidSet,
            event_id: Uuid::max(),
            event: "\u{20ac}".repeat(200),
            distinct_id: "d".repeat(1_000),
            detail: "\u{1}\"".repeat(200),
        };
        for _ in 0..100 {
            feedback.note(noted(1, 3), [&sample, &sample]);
        }
        feedback.write(&metadata).await.unwrap();
        feedback.note(noted(1, 1), NONE);
        feedback.write(&metadata).await.unwrap();
        feedback.write(&metadata).await.unwrap();
        let days = metadata.warnings(ProjectId(1)).await.unwrap();
        assert_eq!(days.len(), 1);
        assert_eq!((days[0].count, days[0].samples.len()), (301, 5));
        for sample in &days[0].samples {
            assert!(json!(sample.details).to_string().len() <= 1024);
            assert_eq!(sample.details["event"], "\u{20ac}".repeat(93));
            assert_eq!(sample.details["eventUuid"], Uuid::max().to_string());
        }
        let page = metrics.render();
        let line = "weir_ingestion_warnings_total{kind=\"invalid_set\"} 301";
        assert!(page.lines().any(|found| found == line), "{page}");
    }

    #[tokio::test]
    async fn what_cannot_be_written_waits() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("metadata.db");
        let metadata = Metadata::open(&path, Clock::test(NOW)).await.unwrap();
        let feedback = Feedback::new(Arc::new(Metrics::new()));
        feedback.note(noted(1, 3), NONE);
        // There is no project yet.
        feedback.write(&metadata).await.unwrap_err();
        let sample = Sample {
            kind: Kind::InvalidSet,
            event: "e".to_owned(),
            distinct_id: String::new(),
            event_id: Uuid::nil(),
            detail: String::new(),
        };
        feedback.note(noted(1, 4), [sample]);
        metadata.bootstrap(FirstStart::default(), &Seed::new(&mut rand::rng())).await.unwrap();
        feedback.write(&metadata).await.unwrap();
        let days = metadata.warnings(ProjectId(1)).await.unwrap();
        assert_eq!((days.len(), days[0].count, days[0].samples.len()), (1, 7, 1));
        assert_eq!(json!(days[0].samples[0].details), json!({"event": "e"}), "what is known");
    }
}
