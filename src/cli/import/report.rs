//! The result of an import.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use serde::Serialize;

use crate::cli::import::delivery::Tally;
use crate::cli::import::dry::Dry;
use crate::cli::import::reading::Read;
use weir_base::clock::UnixMicros;

/// The result of an import. The names of its fields are those of `weir import --json`.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    #[serde(flatten)]
    read: Read,
    /// Events and persons that the server has taken.
    accepted: u64,
    /// Events that it does not take.
    refused: u64,
    requests: u64,
    retries: u64,
    /// Bytes of bodies as they were sent.
    body_bytes: u64,
    seconds: f64,
    events_per_second: f64,
    from: Option<String>,
    to: Option<String>,
    /// Where the refused rows are.
    rejects: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    distinct_ids: Option<usize>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    events_by_name: BTreeMap<String, u64>,
}

impl Report {
    pub(super) fn new(read: Read, tally: &Tally, elapsed: Duration) -> Self {
        let seconds = elapsed.as_secs_f64();
        // Counts fit a double exactly up to 2^53.
        let events = read.events as f64;
        let text = |at: Option<UnixMicros>| at.map(UnixMicros::to_rfc3339);
        Self {
            accepted: tally.accepted,
            refused: tally.refused,
            requests: tally.requests,
            retries: tally.retries,
            body_bytes: tally.body_bytes,
            seconds,
            events_per_second: if seconds > 0.0 { events / seconds } else { 0.0 },
            from: text(read.first),
            to: text(read.last),
            rejects: None,
            distinct_ids: None,
            events_by_name: BTreeMap::new(),
            read,
        }
    }

    /// Of a rehearsal.
    pub(super) fn with_rehearsal(self, dry: Dry) -> Self {
        let distinct_ids = Some(dry.distinct_ids());
        Self { distinct_ids, events_by_name: dry.names().clone(), ..self }
    }

    /// With the file of what was refused, if something was.
    pub(super) fn with_rejects(self, path: PathBuf) -> Self {
        let is_any = self.read.rejected + self.refused > 0;
        Self { rejects: is_any.then_some(path), ..self }
    }

    /// Writes the report as one line of JSON.
    pub(super) fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        writeln!(out)
    }

    /// Writes the report for people.
    pub(super) fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        let read = &self.read;
        writeln!(
            out,
            "events     {} of {} rows in {} files, {:.1} s, {:.0} a second",
            read.events, read.rows, read.files, self.seconds, self.events_per_second
        )?;
        if let (Some(from), Some(to)) = (&self.from, &self.to) {
            writeln!(out, "time       {from} to {to}")?;
        }
        if read.rows_before > 0 {
            writeln!(out, "before     {} rows were imported before", read.rows_before)?;
        }
        if read.persons > 0 {
            writeln!(out, "persons    {} distinct ids", read.persons)?;
        }
        if let Some(distinct_ids) = self.distinct_ids {
            writeln!(out, "ids        {distinct_ids} distinct ids of events and persons")?;
        }
        let mut names: Vec<_> = self.events_by_name.iter().collect();
        names.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (name, count) in names.iter().take(50) {
            writeln!(out, "           {count} {name}")?;
        }
        for (why, count) in &read.skipped {
            writeln!(out, "skipped    {count}: {why}")?;
        }
        for (why, count) in &read.reasons {
            writeln!(out, "refused    {count}: {why}")?;
        }
        if self.refused > 0 {
            writeln!(out, "refused    {} events by the server", self.refused)?;
        }
        if let Some(rejects) = &self.rejects {
            writeln!(out, "rejects    {}", rejects.display())?;
        }
        if self.retries > 0 {
            writeln!(out, "retries    {} of {} requests", self.retries, self.requests)?;
        }
        for error in &read.errors {
            writeln!(out, "failed     {error}")?;
        }
        Ok(())
    }

    /// Whether every file was read to its end.
    ///
    /// # Errors
    ///
    /// The number of those that were not, and the first.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        match self.read.errors.first() {
            None => Ok(()),
            Some(error) => bail!(
                "{} of {} files could not be read to the end: {error}",
                self.read.failed,
                self.read.files
            ),
        }
    }
}
