//! A copy that runs: [`Transfer`], with its two projects ([`Project`]), what the caller wants ([`Options`]), and what was
//! done so far.

use std::sync::Arc;

use serde_json::Value;

use crate::batches::Batch;
use crate::fault::Fault;
use crate::report::{Outcome, Report};
use crate::server::{Repeat, Server};
use crate::state::{Keep, Kind, State};
use weir_base::clock::UnixMicros;

/// What the caller wants.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whether objects of the target that differ are changed to what the source has.
    pub is_update: bool,
    /// Whether properties of persons and groups that are in the target are overwritten.
    pub is_overwriting: bool,
    /// Which events come.
    pub events: Events,
}

/// Which events come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Events {
    /// All.
    #[default]
    All,
    /// Those from a time on.
    Since(UnixMicros),
    /// None.
    None,
}

/// Told while a copy runs.
pub trait Progress: Send + Sync {
    /// The number of objects of a kind that were looked at so far.
    fn reached(&self, kind: Kind, count: u64);
}

/// A project of a server.
#[derive(Clone, Debug)]
pub struct Project {
    /// The server.
    pub server: Server,
    /// Its id.
    pub id: String,
    /// Its settings.
    pub settings: Value,
}

impl Project {
    /// Reads a project.
    ///
    /// # Errors
    ///
    /// It does not exist, or the key may not read it.
    pub async fn open(server: Server, id: &str) -> Result<Self, Fault> {
        let path = format!("/api/projects/{}/", escaped(id));
        let settings = server.get(&path).await?;
        if !settings.is_object() {
            return Err(Fault::malformed(&server.at("GET", &path), "the project is no object"));
        }
        let id = settings.get("id").and_then(crate::references::id_of).unwrap_or(id.to_owned());
        Ok(Self { server, id, settings })
    }

    /// A path within the project.
    pub(crate) fn path(&self, rest: &str) -> String {
        format!("/api/projects/{}/{rest}", escaped(&self.id))
    }

    /// A text among its settings.
    pub fn text(&self, name: &str) -> &str {
        self.settings.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// Address and id, for the state.
    pub fn place(&self) -> String {
        format!("{} {}", self.server.base(), self.id)
    }
}

/// A text as a part of a path or of a query.
pub(crate) fn escaped(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20")
}

/// Why a copy ended before it was done. What it did stays, and the next run goes on.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Stop {
    /// A request failed.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The state could not be stored.
    #[error("the state of the copy cannot be stored: {0}")]
    Keep(String),
}

/// A copy that runs.
pub struct Transfer {
    pub(crate) source: Project,
    pub(crate) target: Project,
    pub(crate) options: Options,
    pub(crate) state: State,
    pub(crate) report: Report,
    keep: Arc<dyn Keep>,
    progress: Arc<dyn Progress>,
}

impl std::fmt::Debug for Transfer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transfer").field("source", &self.source).finish_non_exhaustive()
    }
}

impl Transfer {
    /// A copy that goes on from `state`.
    pub fn new(
        source: Project,
        target: Project,
        options: Options,
        state: State,
        keep: Arc<dyn Keep>,
        progress: Arc<dyn Progress>,
    ) -> Self {
        Self { source, target, options, state, report: Report::default(), keep, progress }
    }

    /// What was done so far.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// How far it is.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Stores the state.
    pub(crate) fn keep(&self) -> Result<(), Stop> {
        self.keep.keep(&self.state).map_err(Stop::Keep)
    }

    pub(crate) fn reached(&self, kind: Kind, count: u64) {
        self.progress.reached(kind, count);
    }

    /// Sends a batch, and counts what became of the objects of this kind in it. The target answers with success where it
    /// drops events, and says how many: as many objects could not come.
    pub(crate) async fn post(&mut self, batch: &mut Batch, kind: Kind) -> Result<(), Stop> {
        if batch.is_empty() {
            return Ok(());
        }
        let (body, outcomes) = batch.take();
        let server = &self.target.server;
        let answer = server.put_text("POST", "/batch/", body, Repeat::Always).await?;
        let mut dropped = 0_u64;
        for warning in answer.get("warnings").and_then(Value::as_array).into_iter().flatten() {
            let events = warning.get("events").and_then(Value::as_u64).unwrap_or_default().max(1);
            let detail = warning.get("detail").and_then(Value::as_str).unwrap_or_default();
            dropped = dropped.saturating_add(events);
            // The note counts one.
            self.report.note(kind, Outcome::Left, &format!("{events} events"), detail);
            self.report.count(kind, Outcome::Left, events - 1);
        }
        // Which of them were dropped is not said.
        let dropped = usize::try_from(dropped).unwrap_or(usize::MAX);
        for outcome in outcomes.into_iter().skip(dropped) {
            self.report.count(kind, outcome, 1);
        }
        Ok(())
    }

    /// The objects of a list of the source; none, and a note, if the key may not read it or it does not exist.
    pub(crate) async fn listed(&mut self, kind: Kind, path: &str) -> Result<Vec<Value>, Stop> {
        let path = self.source.path(path);
        let list = crate::pages::Pages::new(&self.source.server, &path).all().await;
        match list {
            Ok(list) => {
                self.reached(kind, u64::try_from(list.len()).unwrap_or(u64::MAX));
                Ok(list)
            }
            Err(fault) => self.all_left(kind, fault).map(|()| Vec::new()),
        }
    }

    /// Notes that no object of a kind can be read, if that is all that a fault means.
    pub(crate) fn all_left(&mut self, kind: Kind, fault: Fault) -> Result<(), Stop> {
        match fault.refusal() {
            Some(402..=405) => {
                self.report.note(kind, Outcome::Left, "all", fault.to_string());
                Ok(())
            }
            _ => Err(fault.into()),
        }
    }
}
