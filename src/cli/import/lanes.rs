//! Batches on their way: [`Lanes`] puts events into them, and [`Outstanding`] knows which rows are not acknowledged yet.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::mem;
use std::ops::Range;
use std::sync::Arc;

use anyhow::bail;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use weir_import::event::{Event, Marks};
use weir_import::source::Kind;

/// Bytes of a batch from which on it is sent: below a mebibyte, so that the server needs no estimate of its memory.
const BATCH_BYTES: usize = 900 << 10;
/// Events of a batch.
const BATCH_MAX_EVENTS: usize = 4_000;
/// Batches that wait in a lane, beside the one that is sent.
const WAITING_MAX_BATCHES: usize = 1;

/// A row: the number of its file, and its number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Row {
    pub(super) file: usize,
    pub(super) row: u64,
    /// Its line; 0 in formats without lines.
    pub(super) line: u64,
}

/// What is around the events of a request.
#[derive(Clone, Debug)]
pub(super) struct Envelope {
    head: Arc<[u8]>,
}

impl Envelope {
    pub(super) fn new(token: &str, person_properties: &str) -> Self {
        let token = serde_json::Value::from(token);
        let import = serde_json::json!({"person_properties": person_properties});
        let head = format!(
            r#"{{"api_key":{token},"historical_migration":true,"import":{import},"batch":["#
        );
        Self { head: head.into_bytes().into() }
    }

    /// A request of these events, which have commas between them.
    pub(super) fn around(&self, events: &[u8]) -> Vec<u8> {
        let mut body = Vec::with_capacity(self.head.len() + events.len() + 2);
        body.extend_from_slice(&self.head);
        body.extend_from_slice(events);
        body.extend_from_slice(b"]}");
        body
    }
}

/// Events with the rows that they come from.
#[derive(Debug, Default)]
pub(super) struct Batch {
    text: Vec<u8>,
    events: Vec<(Range<usize>, Row)>,
}

impl Batch {
    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    fn bytes(&self) -> usize {
        self.text.len()
    }

    /// The events `range` as JSON with commas between them.
    pub(super) fn text(&self, range: Range<usize>) -> &[u8] {
        let events = self.events.get(range).unwrap_or_default();
        match (events.first(), events.last()) {
            (Some((first, _)), Some((last, _))) => {
                self.text.get(first.start..last.end).unwrap_or_default()
            }
            _ => &[],
        }
    }

    pub(super) fn row(&self, event: usize) -> Option<Row> {
        self.events.get(event).map(|(_, row)| *row)
    }
}

/// The first row of each batch that is not acknowledged, by lane, oldest first.
#[derive(Clone, Debug)]
pub(super) struct Outstanding(Arc<Mutex<Vec<VecDeque<Row>>>>);

impl Outstanding {
    fn begin(&self, lane: usize, row: Row) {
        if let Some(rows) = self.0.lock().get_mut(lane) {
            rows.push_back(row);
        }
    }

    /// The oldest batch of a lane is acknowledged.
    pub(super) fn end(&self, lane: usize) {
        if let Some(rows) = self.0.lock().get_mut(lane) {
            rows.pop_front();
        }
    }

    /// The first row that may not be acknowledged; `None` if all are that were read.
    pub(super) fn first(&self) -> Option<Row> {
        self.0.lock().iter().filter_map(VecDeque::front).min().copied()
    }
}

/// Puts events into batches, and batches into lanes.
#[derive(Debug)]
pub(super) struct Lanes {
    marks: Marks,
    hasher: foldhash::quality::FixedState,
    batches: Vec<Batch>,
    senders: Vec<mpsc::Sender<Batch>>,
    outstanding: Outstanding,
}

impl Lanes {
    /// So many lanes, and the ends from which their batches are sent.
    pub(super) fn new(kind: Kind, id: &str, count: usize) -> (Self, Vec<mpsc::Receiver<Batch>>) {
        let (senders, receivers) = (0..count).map(|_| mpsc::channel(WAITING_MAX_BATCHES)).unzip();
        let lanes = Self {
            marks: Marks::new(kind.name(), id),
            hasher: foldhash::quality::FixedState::default(),
            batches: (0..count).map(|_| Batch::default()).collect(),
            senders,
            outstanding: Outstanding(Arc::new(Mutex::new(vec![VecDeque::new(); count]))),
        };
        (lanes, receivers)
    }

    pub(super) fn outstanding(&self) -> Outstanding {
        self.outstanding.clone()
    }

    /// Puts an event into the batch of its distinct id. Waits while the lane is full.
    ///
    /// # Errors
    ///
    /// The lane has failed.
    pub(super) fn put(&mut self, event: &Event<'_>, row: Row) -> anyhow::Result<()> {
        let count = u64::try_from(self.batches.len().max(1)).unwrap_or(1);
        let lane = self.hasher.hash_one(&*event.distinct_id) % count;
        let lane = usize::try_from(lane).unwrap_or(0);
        let Some(batch) = self.batches.get_mut(lane) else { return Ok(()) };
        if batch.events.is_empty() {
            self.outstanding.begin(lane, row);
        } else {
            batch.text.push(b',');
        }
        let start = batch.text.len();
        event.write(&self.marks, &mut batch.text);
        batch.events.push((start..batch.text.len(), row));
        if batch.bytes() >= BATCH_BYTES || batch.len() >= BATCH_MAX_EVENTS {
            self.send(lane)?;
        }
        Ok(())
    }

    fn send(&mut self, lane: usize) -> anyhow::Result<()> {
        let Some(batch) = self.batches.get_mut(lane).filter(|batch| batch.len() > 0) else {
            return Ok(());
        };
        let batch = mem::take(batch);
        let sent = self.senders.get(lane).map(|sender| sender.blocking_send(batch));
        if !matches!(sent, Some(Ok(()))) {
            bail!("nothing can be sent any more");
        }
        Ok(())
    }

    /// Sends what there is.
    ///
    /// # Errors
    ///
    /// A lane has failed.
    pub(super) fn flush(&mut self) -> anyhow::Result<()> {
        (0..self.batches.len()).try_for_each(|lane| self.send(lane))
    }

    /// Whether a lane has failed.
    pub(super) fn is_broken(&self) -> bool {
        self.senders.iter().any(mpsc::Sender::is_closed)
    }
}
