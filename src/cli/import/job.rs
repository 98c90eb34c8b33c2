//! What is remembered of an import: how far it is, and the rows that were refused. One directory for each import, which the
//! same command finds again: its name is made of the source, the server, the project, the files, and what decides which
//! events their rows become.
//!
//! A row counts as done when the server has acknowledged everything before it. After an interruption rows may be sent again
//! that it had taken: it stores each event once.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::cli::files;
use crate::cli::import::lanes::{Lanes, Row};
use crate::cli::import::reading::{Done, Refused, Taker};
use weir_base::clock::Clock;
use weir_import::event::Event;
use weir_import::files::Input;
use weir_import::source::Kind;

/// Shortest time between two checkpoints.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(2);
/// Rows between two looks at the clock.
const ROWS_BETWEEN: u64 = 1_024;

/// What is imported to where.
#[derive(Clone, Debug)]
pub(super) struct Order<'o> {
    pub(super) from: Kind,
    pub(super) url: &'o str,
    pub(super) token: &'o str,
    /// The arguments that name files.
    pub(super) files: &'o [String],
    /// The options that decide which events rows become.
    pub(super) mapping: String,
    /// Where directories of imports are.
    pub(super) work_dir: &'o Path,
    /// Whether it begins again.
    pub(super) restart: bool,
}

/// An import.
#[derive(Debug)]
pub(super) struct Job {
    id: String,
    directory: PathBuf,
    checkpoint: Checkpoint,
    rejects: Rejects,
    /// Held for as long as the import runs.
    _lock: File,
}

/// How far an import is.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Checkpoint {
    id: String,
    /// Whether all files of persons have been imported.
    persons: bool,
    files: BTreeMap<String, FileState>,
}

/// How far a file is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct FileState {
    fingerprint: String,
    rows: u64,
    complete: bool,
}

impl Job {
    /// Opens the import that these arguments mean, or begins it.
    ///
    /// # Errors
    ///
    /// Its directory cannot be read or written, or the same import runs already.
    pub(super) fn open(order: &Order<'_>, inputs: &[Input]) -> anyhow::Result<Self> {
        let places = order.files.iter().map(|file| {
            fs::canonicalize(file).map_or_else(|_| file.clone(), |path| path.display().to_string())
        });
        let parts = [order.from.name(), order.url, order.token, order.mapping.as_str()];
        let parts = parts.into_iter().map(str::to_owned);
        let name = parts.chain(places).collect::<Vec<_>>().join("\n");
        let id = Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()).to_string();
        let short = id.split('-').next().unwrap_or_default();
        let directory = order.work_dir.join(format!("{}-{short}", order.from));
        let at = |error: &str| format!("{error} {}", directory.display());
        fs::create_dir_all(&directory).with_context(|| at("cannot create"))?;
        let lock = File::create(directory.join("lock")).with_context(|| at("cannot write to"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                bail!("this import is running: see {}", directory.display())
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| at("cannot lock"));
            }
        }
        let path = directory.join("checkpoint.json");
        let mut checkpoint = match fs::read(&path) {
            Ok(text) if !order.restart => serde_json::from_slice(&text).with_context(|| {
                format!("{} is damaged; --restart begins again", path.display())
            })?,
            _ => Checkpoint::default(),
        };
        checkpoint.id = id.clone();
        checkpoint.forget_changed(inputs)?;
        let rejects = Rejects::open(directory.join("rejects.jsonl"), inputs, &checkpoint)?;
        Ok(Self { id, directory, checkpoint, rejects, _lock: lock })
    }

    /// The id that events of the import have in common.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn rejects(&self) -> Rejects {
        self.rejects.clone()
    }

    /// Begins to send.
    pub(super) fn sending(self, lanes: Lanes, clock: Clock, inputs: &[Input]) -> Sending {
        let names = inputs.iter().map(Input::name).collect();
        let saved_at = clock.monotonic();
        Sending {
            job: self,
            lanes,
            clock,
            names,
            saved_at,
            rows: 0,
            ends: BTreeMap::new(),
            are_persons: false,
            error: None,
        }
    }
}

impl Checkpoint {
    /// Forgets files that are others by now.
    fn forget_changed(&mut self, inputs: &[Input]) -> anyhow::Result<()> {
        let mut is_changed = false;
        for input in inputs {
            let name = input.name();
            let Some(state) = self.files.get(&name) else { continue };
            let fingerprint = input.fingerprint().with_context(|| format!("cannot read {name}"))?;
            if fingerprint != state.fingerprint || *input == Input::Standard {
                self.files.remove(&name);
                is_changed = true;
            }
        }
        // A person may have other distinct ids now.
        self.persons &= !is_changed;
        Ok(())
    }

    /// Whether a row is done.
    fn has(&self, file: &str, row: u64) -> bool {
        self.files.get(file).is_some_and(|state| state.complete || row <= state.rows)
    }
}

/// The rows that are refused, as JSON lines. Clones write to the same file.
#[derive(Clone, Debug)]
pub(super) struct Rejects {
    path: Arc<Path>,
    names: Arc<[String]>,
    file: Arc<Mutex<BufWriter<File>>>,
}

/// A line of the rejects.
#[derive(Debug, Serialize)]
struct Reject<'r> {
    file: &'r str,
    #[serde(skip_serializing_if = "str::is_empty")]
    member: &'r str,
    row: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    reason: &'r str,
    /// The row as it was read, of a row that is no event.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'r serde_json::value::RawValue>,
    /// The same, if it is no JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'r str>,
    /// The event, of one that the server does not take.
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<&'r serde_json::value::RawValue>,
}

/// Where a line of the rejects is from.
#[derive(Debug, Deserialize)]
struct Rejected {
    file: String,
    row: u64,
}

impl Rejects {
    /// Opens the file, without those of rows that will be read again.
    fn open(path: PathBuf, inputs: &[Input], checkpoint: &Checkpoint) -> anyhow::Result<Self> {
        let failed = || format!("cannot write {}", path.display());
        let kept_path = path.with_extension("kept");
        let mut kept = BufWriter::new(File::create(&kept_path).with_context(failed)?);
        if let Ok(file) = File::open(&path) {
            for line in BufReader::new(file).split(b'\n') {
                let line = line.with_context(failed)?;
                let rejected = serde_json::from_slice::<Rejected>(&line);
                if rejected.is_ok_and(|from| checkpoint.has(&from.file, from.row)) {
                    kept.write_all(&line)
                        .and_then(|()| kept.write_all(b"\n"))
                        .with_context(failed)?;
                }
            }
        }
        kept.flush().with_context(failed)?;
        fs::rename(&kept_path, &path).with_context(failed)?;
        let file = OpenOptions::new().append(true).open(&path).with_context(failed)?;
        let names = inputs.iter().map(Input::name).collect();
        Ok(Self { path: path.into(), names, file: Arc::new(Mutex::new(BufWriter::new(file))) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Notes a row that is no event.
    fn row(&self, file: usize, refused: &Refused<'_>) -> anyhow::Result<()> {
        let source = serde_json::from_str(refused.text).ok();
        self.write(&Reject {
            file: self.names.get(file).map_or("", String::as_str),
            member: refused.place.member,
            row: refused.place.row,
            line: refused.place.line,
            reason: refused.reason,
            text: if source.is_none() { Some(refused.text) } else { None },
            source,
            event: None,
        })
    }

    /// Notes an event that the server does not take.
    pub(super) fn event(&self, row: Row, reason: &str, event: &str) -> anyhow::Result<()> {
        self.write(&Reject {
            file: self.names.get(row.file).map_or("", String::as_str),
            member: "",
            row: row.row,
            line: Some(row.line).filter(|line| *line > 0),
            reason,
            source: None,
            text: None,
            event: serde_json::from_str(event).ok(),
        })
    }

    fn write(&self, reject: &Reject<'_>) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(reject)?;
        line.push(b'\n');
        let written = self.file.lock().write_all(&line);
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }

    fn flush(&self) -> anyhow::Result<()> {
        let flushed = self.file.lock().flush();
        flushed.with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// Sends events, and writes down how far it is.
#[derive(Debug)]
pub(super) struct Sending {
    job: Job,
    lanes: Lanes,
    clock: Clock,
    names: Vec<String>,
    saved_at: Duration,
    rows: u64,
    /// The number of rows of files that have been read to their ends.
    ends: BTreeMap<usize, u64>,
    /// Whether files of persons are read, which are done together.
    are_persons: bool,
    /// Why no event can be sent any more.
    error: Option<anyhow::Error>,
}

impl Sending {
    /// Sends what there is, waits until it is acknowledged, and writes that down.
    ///
    /// # Errors
    ///
    /// A lane has failed, or the directory cannot be written.
    pub(super) fn finish(&mut self) -> anyhow::Result<()> {
        let flushed = self.lanes.flush();
        let outstanding = self.lanes.outstanding();
        while outstanding.first().is_some() && !self.lanes.is_broken() {
            std::thread::sleep(Duration::from_millis(5));
        }
        // Also after a lane has failed: what the others have sent need not be sent again.
        self.save(None)?;
        flushed?;
        anyhow::ensure!(!self.lanes.is_broken(), "nothing can be sent any more");
        Ok(())
    }

    /// Writes down how far the import is, while `at` is read.
    fn save(&mut self, at: Option<Row>) -> anyhow::Result<()> {
        self.saved_at = self.clock.monotonic();
        if self.are_persons {
            return Ok(());
        }
        let first = self.lanes.outstanding().first().or(at);
        for (file, rows) in &self.ends {
            if first.is_none_or(|first| *file < first.file)
                && let Some(state) =
                    self.names.get(*file).and_then(|name| self.job.checkpoint.files.get_mut(name))
            {
                (state.rows, state.complete) = (*rows, true);
            }
        }
        if let Some(first) = first
            && let Some(state) =
                self.names.get(first.file).and_then(|name| self.job.checkpoint.files.get_mut(name))
        {
            state.rows = state.rows.max(first.row.saturating_sub(1));
        }
        // Rejects first: a row that is done is in them.
        self.job.rejects.flush()?;
        let path = self.job.directory.join("checkpoint.json");
        let text = serde_json::to_vec(&self.job.checkpoint)?;
        files::replace(&path, &text).with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Taker for Sending {
    fn has_persons(&self, input: &Input) -> bool {
        let state = self.job.checkpoint.files.get(&input.name());
        self.job.checkpoint.persons && state.is_some_and(|state| state.complete)
    }

    fn persons_begin(&mut self) {
        self.job.checkpoint.persons = false;
        self.are_persons = true;
    }

    fn begin(&mut self, file: usize, input: &Input) -> anyhow::Result<Done> {
        let name = input.name();
        let fingerprint = input.fingerprint().with_context(|| format!("cannot read {name}"))?;
        let state = self.job.checkpoint.files.entry(name).or_default();
        state.fingerprint = fingerprint;
        self.ends.remove(&file);
        Ok(Done { rows: state.rows, is_complete: state.complete })
    }

    fn event(&mut self, event: &Event<'_>, row: Row) {
        if self.error.is_none() {
            self.error = self.lanes.put(event, row).err();
        }
    }

    fn refuse(&mut self, file: usize, refused: &Refused<'_>) -> anyhow::Result<()> {
        self.job.rejects.row(file, refused)
    }

    fn done(&mut self, row: Row) -> anyhow::Result<()> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        self.rows += 1;
        let is_due = self.rows.is_multiple_of(ROWS_BETWEEN)
            && self.clock.monotonic().saturating_sub(self.saved_at) > CHECKPOINT_INTERVAL;
        if is_due { self.save(Some(Row { row: row.row + 1, ..row })) } else { Ok(()) }
    }

    fn end(&mut self, file: usize, rows: u64) {
        self.ends.insert(file, rows);
    }

    fn persons_end(&mut self) -> anyhow::Result<()> {
        (self.job.checkpoint.persons, self.are_persons) = (true, false);
        self.finish()
    }
}
