//! The file with the state of a copy: replaced as a whole, so that a copy that ends at any moment leaves the state of some
//! moment before.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use parking_lot::Mutex;

use crate::cli::files;
use weir_base::clock::Clock;
use weir_transfer::state::{Keep, State};

/// Shortest time between two writes, but for the last one. What was copied meanwhile is found by its content.
const PAUSE: Duration = Duration::from_millis(500);

/// Longest state that is read.
const STATE_MAX_BYTES: u64 = 256 << 20;

/// The file.
#[derive(Debug)]
pub(super) struct Memory {
    path: PathBuf,
    clock: Clock,
    /// When it was written last, on the monotonic clock.
    written: Mutex<Option<Duration>>,
}

impl Memory {
    pub(super) fn new(path: PathBuf, clock: Clock) -> Self {
        Self { path, clock, written: Mutex::new(None) }
    }

    /// The state of an earlier run; `None` without one.
    pub(super) fn read(&self) -> anyhow::Result<Option<State>> {
        let name = self.path.display();
        let size = match self.path.metadata() {
            Ok(file) => file.len(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read {name}")),
        };
        anyhow::ensure!(size <= STATE_MAX_BYTES, "{name} is not the state of a copy");
        let text = std::fs::read(&self.path).with_context(|| format!("cannot read {name}"))?;
        let state = State::read(&text).map_err(anyhow::Error::msg);
        state.map(Some).with_context(|| format!("{name} is not the state of a copy"))
    }

    /// Writes the state.
    pub(super) fn write(&self, state: &State) -> Result<(), String> {
        *self.written.lock() = Some(self.clock.monotonic());
        let written = files::replace(&self.path, state.text().as_bytes());
        written.map_err(|error| format!("{}: {error}", self.path.display()))
    }
}

impl Keep for Memory {
    fn keep(&self, state: &State) -> Result<(), String> {
        let now = self.clock.monotonic();
        let is_due = self.written.lock().is_none_or(|last| now.saturating_sub(last) >= PAUSE);
        if is_due { self.write(state) } else { Ok(()) }
    }
}
