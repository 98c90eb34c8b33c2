//! The file with the state of a copy: replaced as a whole, so that a copy that ends at any moment leaves the state of some
//! moment before.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use parking_lot::Mutex;

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
        let temporary = self.path.with_extension("json.new");
        let write = || -> std::io::Result<()> {
            let mut file = File::create(&temporary)?;
            file.write_all(state.text().as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&temporary, &self.path)
        };
        *self.written.lock() = Some(self.clock.monotonic());
        write().map_err(|error| format!("{}: {error}", self.path.display()))
    }
}

impl Keep for Memory {
    fn keep(&self, state: &State) -> Result<(), String> {
        let now = self.clock.monotonic();
        let is_due = self.written.lock().is_none_or(|last| now.saturating_sub(last) >= PAUSE);
        if is_due { self.write(state) } else { Ok(()) }
    }
}
