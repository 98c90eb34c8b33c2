//! Bodies of `/batch/` with events or persons: [`Batch`]. Pure.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::report::Outcome;

/// Bytes of events of one body. The server takes 20 MB.
const BATCH_MAX_BYTES: usize = 4 << 20;

/// Events of one body.
const BATCH_MAX_EVENTS: usize = 2_000;

/// What the events of a body are for; `import` of capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Only {
    /// Rows that change no person.
    Events,
    /// Changes of persons and groups that are not stored as events.
    Persons {
        /// Whether properties that a person has are overwritten.
        is_overwriting: bool,
    },
}

/// A body that is being filled.
#[derive(Debug)]
pub struct Batch {
    head: String,
    text: String,
    count: usize,
    /// What becomes of the objects in it, once it is sent.
    outcomes: Vec<Outcome>,
}

impl Batch {
    /// An empty body for the project with this token.
    pub fn new(token: &str, only: Only) -> Self {
        let (only, properties) = match only {
            Only::Events => ("events", "ignore"),
            Only::Persons { is_overwriting: false } => ("persons", "fill"),
            Only::Persons { is_overwriting: true } => ("persons", "overwrite"),
        };
        let import = json!({"only": only, "person_properties": properties});
        let token = Value::from(token);
        let head = format!(
            "{{\"api_key\":{token},\"historical_migration\":true,\"import\":{import},\"batch\":["
        );
        Self { head, text: String::new(), count: 0, outcomes: Vec::new() }
    }

    /// Adds the JSON of an event.
    pub fn add(&mut self, event: &str) {
        if self.count > 0 {
            self.text.push(',');
        }
        self.text.push_str(event);
        self.count += 1;
    }

    /// Says what becomes of an object whose last event was added, unless the server drops it.
    pub fn becomes(&mut self, outcome: Outcome) {
        self.outcomes.push(outcome);
    }

    /// Whether it should be sent before an event of this length is added.
    pub fn is_full(&self, next_bytes: usize) -> bool {
        self.count > 0
            && (self.count >= BATCH_MAX_EVENTS || self.text.len() + next_bytes > BATCH_MAX_BYTES)
    }

    /// Whether it has no events.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The body, and what becomes of the objects in it; afterwards the batch is empty.
    pub fn take(&mut self) -> (Bytes, Vec<Outcome>) {
        self.count = 0;
        let text = std::mem::take(&mut self.text);
        let body = Bytes::from(format!("{}{text}]}}", self.head));
        (body, std::mem::take(&mut self.outcomes))
    }
}
