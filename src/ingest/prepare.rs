//! Builds columns from decoded bytes: the pure middle of the write path.
//!
//! [`Preparer::prepare`] reads a request body once and returns the rows of the `events` table, the
//! keys of the events, their ops on persons, and their definitions. No clock, no randomness, no I/O:
//! their values are in [`Received`], which the log record contains too, so that a replay gives the
//! same rows. The rules for one event are in `normalize`.

pub mod error;

use arrow::buffer::Buffer;
use parking_lot::Mutex;

use crate::budget::MemoryPermit;
use crate::capture::Envelope;
use crate::drops::Drop;
use crate::history::History;
use crate::normalize::batch::Batch;
use crate::normalize::keys::KeyTable;
use crate::prepare::error::PrepareError;
use crate::prepared::Prepared;
use crate::project_facts::ProjectFacts;
use crate::request::{Protocol, Received};
use crate::salvage::{Salvaged, salvage};
use crate::tape::{Cursor, Scratch};
use crate::{capture_v1, memory_estimate, warnings};
use weir_event::id::ProjectId;
use weir_event::json::Fault;
use weir_event::key_kind::KeyKind;
use weir_wire::capture_v1::Sdk;
use weir_wire::repair::repair;

/// Parse buffers that are kept in the pool. As many bodies are parsed at once as the CPU pool has
/// threads.
const SCRATCHES_MAX: usize = 64;

/// Larger parse buffers are freed and not pooled. A typical body of 4 MiB takes this much.
const SCRATCH_MAX_BYTES: usize = 32 << 20;

/// Builds columns from bodies. One instance per process, shared by many threads.
#[derive(Debug)]
pub struct Preparer {
    keys: KeyTable,
    scratches: Mutex<Vec<Scratch>>,
}

impl Default for Preparer {
    fn default() -> Self {
        Self { keys: KeyTable::new(), scratches: Mutex::new(Vec::new()) }
    }
}

impl Preparer {
    /// Reads `body`. `project` finds the project by the token in the body; the token is empty in a
    /// protocol that sends it in a header. Ops on persons refer to the text of `body`, which stays in
    /// memory as long as they do.
    ///
    /// # Errors
    ///
    /// See [`PrepareError`]; nothing of the body may be stored then.
    pub fn prepare(
        &self,
        body: Vec<u8>,
        received: &Received,
        project: &dyn Fn(&str) -> Option<ProjectFacts>,
    ) -> Result<Prepared, PrepareError> {
        self.with_scratch(|scratch| self.read(body, received, None, project, scratch))
    }

    /// Prepares within `permit`, which grows with the contents of the body.
    ///
    /// # Errors
    ///
    /// As [`Preparer::prepare`]; also [`PrepareError::Crowded`], and [`PrepareError::TooLarge`] for a body
    /// that needs more memory than one body may use.
    pub(super) fn prepare_within(
        &self,
        body: Vec<u8>,
        received: &Received,
        project: &dyn Fn(&str) -> Option<ProjectFacts>,
        permit: &mut MemoryPermit,
    ) -> Result<Prepared, PrepareError> {
        memory_estimate::allow_parsing(&body, permit)?;
        self.with_scratch(|scratch| self.read(body, received, Some(permit), project, scratch))
    }

    /// The project whose token `body` contains; `project` finds it.
    ///
    /// # Errors
    ///
    /// As [`Preparer::prepare`], but only the tokens of the events are examined.
    pub(super) fn project_of(
        &self,
        body: &[u8],
        project: &dyn Fn(&str) -> Option<ProjectId>,
        permit: &mut MemoryPermit,
    ) -> Result<ProjectId, PrepareError> {
        memory_estimate::allow_parsing(body, permit)?;
        let read = |root: Cursor<'_>| {
            let envelope = Envelope::read(root)?;
            if envelope.is_malformed(false) {
                return Err(PrepareError::BatchNotArray);
            }
            let token = envelope.token.ok_or(PrepareError::NoToken)?;
            project(token.trim()).ok_or_else(|| PrepareError::UnknownToken(KeyKind::of(token)))
        };
        self.with_scratch(|scratch| match scratch.parse(body, read) {
            Ok(found) => found,
            Err(_) => {
                let repaired = repair(body).ok_or_else(|| malformed(body))?;
                scratch.parse(&repaired, read).map_err(|_| malformed(&repaired))?
            }
        })
    }

    fn with_scratch<T>(&self, work: impl FnOnce(&mut Scratch) -> T) -> T {
        let mut scratch = self.scratches.lock().pop().unwrap_or_default();
        let outcome = work(&mut scratch);
        let mut scratches = self.scratches.lock();
        if scratches.len() < SCRATCHES_MAX && scratch.memory_bytes() <= SCRATCH_MAX_BYTES {
            scratches.push(scratch);
        }
        outcome
    }

    fn read(
        &self,
        body: Vec<u8>,
        received: &Received,
        mut permit: Option<&mut MemoryPermit>,
        project: &dyn Fn(&str) -> Option<ProjectFacts>,
        scratch: &mut Scratch,
    ) -> Result<Prepared, PrepareError> {
        let body = Buffer::from_vec(body);
        match self.build(&body, received, permit.as_deref_mut(), project, scratch) {
            Ok(prepared) => prepared,
            Err(_) => self.read_damaged(body, received, permit, project, scratch),
        }
    }

    /// Reads a body that the parser rejects. This is rare, but must not lose a batch: lone surrogates, NaN
    /// and the like are repaired, and events that cannot be repaired are dropped.
    fn read_damaged(
        &self,
        mut body: Buffer,
        received: &Received,
        mut permit: Option<&mut MemoryPermit>,
        project: &dyn Fn(&str) -> Option<ProjectFacts>,
        scratch: &mut Scratch,
    ) -> Result<Prepared, PrepareError> {
        if let Some(repaired) = repair(&body) {
            body = Buffer::from_vec(repaired);
            let within = permit.as_deref_mut();
            if let Ok(prepared) = self.build(&body, received, within, project, scratch) {
                return prepared;
            }
        }
        if let Protocol::V1 { .. } = received.protocol {
            // The response identifies events by id, and an unreadable event has none.
            return Err(malformed(&body));
        }
        let salvaged = salvage(&body, |item| scratch.parse(item, |_| ()).is_ok());
        let Salvaged { body, unreadable } = salvaged.ok_or_else(|| malformed(&body))?;
        let body = Buffer::from_vec(body);
        let prepared = self.build(&body, received, permit, project, scratch);
        let mut prepared = prepared.map_err(|_| malformed(&body))??;
        prepared.drops.add_all(Drop::Unreadable, unreadable);
        prepared.warnings.add_unknown(warnings::Kind::Dropped(Drop::Unreadable), unreadable);
        Ok(prepared)
    }

    /// The outer error is the JSON parser's.
    fn build(
        &self,
        body: &Buffer,
        received: &Received,
        permit: Option<&mut MemoryPermit>,
        project: &dyn Fn(&str) -> Option<ProjectFacts>,
        scratch: &mut Scratch,
    ) -> Result<Result<Prepared, PrepareError>, simd_json::Error> {
        scratch.parse(body, |root| {
            // A replayed body has passed the limits before.
            let is_new = permit.is_some();
            if let Some(permit) = permit.filter(|_| body.len() > memory_estimate::SMALL_BYTES) {
                memory_estimate::allow_building(
                    body.len(),
                    root.census(memory_estimate::is_said),
                    permit,
                )?;
            }
            let prepared = match &received.protocol {
                Protocol::V0 { .. } => self.build_v0(root, body, received, project),
                Protocol::V1 { sdk, .. } => {
                    self.build_v1(root, body, received, project, sdk.as_ref())
                }
            }?;
            if is_new {
                memory_estimate::allow_ids(&prepared.ops)?;
            }
            Ok(prepared)
        })
    }

    fn build_v0(
        &self,
        root: Cursor<'_>,
        body: &Buffer,
        received: &Received,
        project: &dyn Fn(&str) -> Option<ProjectFacts>,
    ) -> Result<Prepared, PrepareError> {
        let envelope = Envelope::read(root)?;
        if envelope.is_malformed(received.is_engage()) {
            return Err(PrepareError::BatchNotArray);
        }
        let events_max = envelope.events_max();
        if events_max == 0 {
            return Err(PrepareError::NoEvents);
        }
        let token = envelope.token.ok_or(PrepareError::NoToken)?.trim();
        let unknown = || PrepareError::UnknownToken(KeyKind::of(token));
        let project = project(token).ok_or_else(unknown)?;
        let (sent_at, history) = (envelope.sent_at, envelope.history()?);
        let mut batch = Batch::new(&self.keys, body, received, &project, sent_at, history);
        batch.reserve(events_max, root.body().len());
        envelope.for_each(root, |event| batch.event(event))?;
        Ok(batch.finish())
    }

    fn build_v1(
        &self,
        root: Cursor<'_>,
        body: &Buffer,
        received: &Received,
        project: &dyn Fn(&str) -> Option<ProjectFacts>,
        sdk: Option<&Sdk>,
    ) -> Result<Prepared, PrepareError> {
        let envelope = capture_v1::Envelope::read(root)?;
        let project = project("").ok_or(PrepareError::UnknownToken(KeyKind::Other))?;
        let history = if envelope.is_historical { History::Marked } else { History::Live };
        let mut batch = Batch::new(&self.keys, body, received, &project, None, history);
        let events = envelope.uuids.len();
        batch.reserve(events, root.body().len());
        let additions = batch.additions(sdk, envelope.is_internal)?;
        let mut outcomes = Vec::with_capacity(events);
        envelope.for_each(|event, uuid| {
            outcomes.push((uuid, batch.event_v1(event, &additions)?));
            Ok(())
        })?;
        Ok(Prepared { outcomes, ..batch.finish() })
    }
}

/// The error for a body that is no JSON.
fn malformed(body: &[u8]) -> PrepareError {
    PrepareError::Malformed(Fault::of(body))
}

#[cfg(test)]
mod tests;
