//! Report of a data directory by part: projects, log, tables, disk. Each part is read independently, so
//! that a damaged part hides no other.

use std::io;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use bytesize::ByteSize;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::cli::client;
use crate::cli::failure::explain;
use crate::cli::inspect::tables::open_table;
use crate::cli::inspect::usage::Usage;
use weir_app::copy::{CopyError, Source};
use weir_app::directory::flushed;
use weir_app::overview::Overview;
use weir_app::tables::{events_spec, table_specs};
use weir_base::clock::Clock;
use weir_base::config::metadata::MetadataConfig;
use weir_disk::{Disk, OsDisk};
use weir_storage::delta::{Damage, DeltaTable};
use weir_storage::tables::Tables;
use weir_storage::wal::Sequence;

/// The parts; a part that cannot be read has its error.
#[derive(Debug)]
pub(super) struct Parts {
    data_dir: PathBuf,
    /// The process that serves the directory, and its address.
    server: Option<(u32, String)>,
    /// Whether a process that announces no address holds the lock.
    is_busy: bool,
    overview: anyhow::Result<Overview>,
    log: io::Result<LogFiles>,
    events: anyhow::Result<Option<DeltaTable>>,
    /// The other tables, by name.
    tables: Vec<(&'static str, anyhow::Result<Option<DeltaTable>>)>,
    disk: io::Result<(u64, Usage)>,
}

/// The segments of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LogFiles {
    segments: usize,
    bytes: u64,
    /// Sequence of the first record that may still be in the log.
    first: Option<u64>,
}

impl Parts {
    /// Reads all parts of an existing directory.
    ///
    /// # Errors
    ///
    /// The directory is no data directory.
    pub(super) fn look(
        data_dir: &Path,
        tables: anyhow::Result<Tables>,
        metadata: &MetadataConfig,
        runtime: &Runtime,
        clock: &Clock,
    ) -> anyhow::Result<Self> {
        let tables = tables.map_err(|error| explain(&error));
        let table = |spec| match &tables {
            Ok(tables) => runtime.block_on(open_table(tables, spec, clock)),
            Err(problem) => Err(anyhow!(problem.clone())),
        };
        let source = match Source::find(data_dir) {
            Err(error @ CopyError::Foreign(_)) => return Err(error.into()),
            source => source,
        };
        let is_busy = matches!(source, Err(CopyError::Busy(_)));
        let events = table(events_spec());
        let mut server = None;
        let overview = match source {
            Ok(Source::Server(address)) => {
                let path = "/_internal/overview";
                let response = client::ask(&address.url, path, &address.secret, &Value::Null);
                let answer = runtime.block_on(response);
                server = Some((address.pid, address.url.clone()));
                answer.and_then(|body| Ok(serde_json::from_slice(&body)?))
            }
            Ok(Source::Copy(_)) if !data_dir.join("identity").is_dir() => {
                Err(anyhow!("the directory identity, which stores the persons, is missing"))
            }
            Ok(Source::Copy(copy)) => {
                let flushed = match &events {
                    Ok(Some(table)) => flushed(data_dir, &table.current()),
                    Ok(None) => Some(Sequence(0)),
                    Err(_) => None,
                };
                let overview = Overview::of_copy(&copy, flushed, metadata, clock.clone());
                let overview = runtime.block_on(overview);
                overview.map_err(|error| anyhow!(copy.named(&explain(&error.into()))))
            }
            Err(error) => Err(error.into()),
        };
        let usage = Usage::of(data_dir);
        let [_, derived @ ..] = table_specs();
        let derived = derived.into_iter().map(|spec| (spec.name, table(spec))).collect();
        Ok(Self {
            data_dir: data_dir.to_path_buf(),
            server,
            is_busy,
            overview,
            log: LogFiles::of(&data_dir.join("wal")),
            events,
            tables: derived,
            disk: usage.and_then(|usage| Ok((OsDisk.free_bytes(data_dir)?, usage))),
        })
    }

    /// Number of parts that cannot be read.
    pub(super) fn failures(&self) -> usize {
        let failures =
            [self.overview.is_err(), self.log.is_err(), self.events.is_err(), self.disk.is_err()];
        let tables = self.tables.iter().map(|(_, table)| table.is_err());
        failures.into_iter().chain(tables).filter(|failed| *failed).count()
    }

    /// Prints the report.
    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let name = self.data_dir.display();
        match &self.server {
            Some((process, url)) => writeln!(out, "{name}, served by process {process} at {url}")?,
            None if self.is_busy => writeln!(out, "{name}, which another process has open")?,
            None => writeln!(out, "{name}, which no server has open")?,
        }
        writeln!(out, "\nprojects")?;
        match &self.overview {
            Ok(overview) => write_overview(out, overview)?,
            Err(error) => writeln!(out, "  cannot be read: {error:#}")?,
        }
        writeln!(out, "\nlog")?;
        let overview = self.overview.as_ref().ok();
        match &self.log {
            Ok(log) => write_log(out, log, overview)?,
            Err(error) => writeln!(out, "  cannot be read: {error}")?,
        }
        let derived = self.tables.iter().map(|(name, table)| (*name, table));
        for (name, table) in std::iter::once(("events", &self.events)).chain(derived) {
            writeln!(out, "\ntable {name}")?;
            match table {
                Ok(Some(table)) => write_table(out, table)?,
                Ok(None) => writeln!(out, "  there is none")?,
                Err(error) => writeln!(out, "  cannot be read: {error:#}")?,
            }
        }
        writeln!(out, "\ndisk")?;
        match &self.disk {
            Ok((free, usage)) => {
                for (part, bytes) in &usage.parts {
                    line(out, part, &size(*bytes))?;
                }
                line(out, "all of it", &size(usage.total))?;
                line(out, "free", &size(*free))
            }
            Err(error) => writeln!(out, "  cannot be read: {error}"),
        }
    }
}

impl LogFiles {
    fn of(wal: &Path) -> io::Result<Self> {
        let mut log = Self::default();
        let entries = match OsDisk.list(wal) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(log),
            entries => entries?,
        };
        for entry in entries {
            let is_segment = entry.path.extension().is_some_and(|extension| extension == "wal");
            let first = entry.path.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
            let Some(first) = first.filter(|_| is_segment) else { continue };
            log.segments += 1;
            log.bytes += entry.len_bytes;
            log.first = Some(log.first.map_or(first, |known: u64| known.min(first)));
        }
        Ok(log)
    }
}

fn write_overview(out: &mut impl Write, overview: &Overview) -> io::Result<()> {
    let head = ["id", "project API key", "persons", "flags", "cohorts", "name"].map(str::to_owned);
    let mut rows = vec![head];
    rows.extend(overview.projects.iter().map(|project| {
        [
            project.id.to_string(),
            project.token.clone(),
            project.persons.to_string(),
            project.flags.to_string(),
            project.cohorts.to_string(),
            // Users choose the names: line breaks and terminal control sequences are removed.
            project.name.replace(char::is_control, " "),
        ]
    }));
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|text| text.chars().count()).max()
    };
    let widths: Vec<usize> = (0..6).map(|column| width(column).unwrap_or(0)).collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(text, width)| format!("{text:width$}"));
        writeln!(out, "  {}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    line(out, "personal API keys", &overview.keys.to_string())?;
    if overview.has_lost_changes {
        writeln!(
            out,
            "  the last changes in metadata.db-wal are lost: restore metadata.db and metadata.db-wal from a backup"
        )?;
    }
    if overview.is_incomplete {
        writeln!(
            out,
            "  persons of lost log records are missing: restore identity/ from a backup"
        )?;
    }
    Ok(())
}

fn write_log(out: &mut impl Write, log: &LogFiles, overview: Option<&Overview>) -> io::Result<()> {
    line(out, "segments", &log.segments.to_string())?;
    line(out, "bytes", &size(log.bytes))?;
    if let Some(first) = log.first {
        line(out, "first record", &first.to_string())?;
    }
    let Some(overview) = overview else { return Ok(()) };
    line(out, "last record", &overview.logged.to_string())?;
    line(out, "in the persons", &overview.applied.to_string())?;
    match overview.log_damages {
        Some(damages) if damages > 0 => line(out, "damaged places", &damages.to_string()),
        _ => Ok(()),
    }
}

fn write_table(out: &mut impl Write, table: &DeltaTable) -> io::Result<()> {
    let version = table.current();
    let rows: u64 = version.files.iter().map(|file| file.rows).sum();
    let bytes: u64 = version.files.iter().map(|file| file.size_bytes).sum();
    line(out, "version", &version.version.to_string())?;
    line(out, "files", &version.files.len().to_string())?;
    line(out, "rows", &rows.to_string())?;
    line(out, "bytes", &size(bytes))?;
    for Damage { first, last, reason } in table.damage() {
        line(out, "damaged", &format!("versions {first} to {last}: {reason}"))?;
    }
    Ok(())
}

fn line(out: &mut impl Write, name: &str, value: &str) -> io::Result<()> {
    writeln!(out, "  {name:<20}{value}")
}

fn size(bytes: u64) -> String {
    format!("{bytes} ({})", ByteSize(bytes))
}
