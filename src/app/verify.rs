//! Checksum verification of a data directory. It opens some engines, which write to the directory. So if no
//! server runs, it verifies a working copy ([`crate::copy`]), and the data directory stays unchanged.
//!
//! | part | checks |
//! |---|---|
//! | `wal` | CRC-32C of every record, and that no acknowledged record is missing |
//! | `tables` | the commits of the Delta logs; size and checksums of every live file |
//! | `identity` | the checksums of all blocks |
//! | `metadata.db` | tables and indexes against each other (SQLite has no checksums); a lost or damaged `metadata.db-wal` |

use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use futures::StreamExt;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::runtime::Handle;

use crate::directory::flushed;
use crate::error::OpenError;
use crate::sqlite_wal::lost_changes;
use crate::tables::table_specs;
use weir_base::clock::Clock;
use weir_base::config::metadata::{MetadataConfig, MetadataUrl};
use weir_disk::OsDisk;
use weir_metadata::Metadata;
use weir_storage::checksums::CheckedStore;
use weir_storage::delta::error::TableError;
use weir_storage::delta::{Damage, DataFile, TableVersion};
use weir_storage::parquet::read_columns;
use weir_storage::tables::Tables;
use weir_storage::wal::verify::verify as verify_log;
use weir_storage::wal::{Sequence, WalError};

/// Most findings of SQLite that are reported.
const METADATA_FINDINGS_MAX: u32 = 100;

/// Whether another process writes to the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// No process: it is a working copy.
    Idle,
    /// A server. The identity store and the end of the log change all the time, and are not checked.
    Served,
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A part that was checked, with its size.
    Checked(String),
    /// A part, or a section of it, that was not checked, with the reason.
    Skipped(String),
    /// Damage, with the path of the file.
    Finding(String),
    /// A part that a newer version of the program made, and that this one cannot check.
    Newer(String),
}

/// Callback that receives the lines.
type Say<'a> = dyn FnMut(Line) -> io::Result<()> + 'a;

/// A directory to verify.
#[derive(Debug)]
pub struct Directory<'a> {
    /// Its path.
    pub path: &'a Path,
    /// Its tables.
    pub tables: &'a Tables,
    /// Which process uses it.
    pub directory_use: Use,
    /// Where its metadata are.
    pub metadata: &'a MetadataConfig,
}

/// Verifies the directory and passes each line of the report to `say`. With [`Use::Idle`] it opens the engines, which
/// write to the directory.
///
/// # Errors
///
/// A file cannot be read for another reason than damage, or `say` fails.
pub fn verify(
    directory: &Directory<'_>,
    runtime: &Handle,
    clock: &Clock,
    say: &mut Say<'_>,
) -> Result<(), OpenError> {
    let Directory { path: data_dir, tables, directory_use, metadata } = *directory;
    let elsewhere = metadata.metadata_url.as_ref();
    let mut findings = Findings { data_dir, elsewhere, tables, say };
    findings.all(directory_use, runtime, clock).map_err(OpenError::io(data_dir))
}

struct Findings<'a, 's> {
    data_dir: &'a Path,
    /// The database of the metadata, if that is not the file.
    elsewhere: Option<&'a MetadataUrl>,
    tables: &'a Tables,
    say: &'a mut Say<'s>,
}

impl Findings<'_, '_> {
    fn checked(&mut self, text: String) -> io::Result<()> {
        (self.say)(Line::Checked(text))
    }

    fn skipped(&mut self, text: String) -> io::Result<()> {
        (self.say)(Line::Skipped(text))
    }

    fn found(&mut self, text: String) -> io::Result<()> {
        (self.say)(Line::Finding(text))
    }

    /// A part that cannot be opened: damage, unless a newer version made it.
    fn unopened(&mut self, text: String, is_newer: bool) -> io::Result<()> {
        (self.say)(if is_newer { Line::Newer(text) } else { Line::Finding(text) })
    }

    fn all(&mut self, directory_use: Use, runtime: &Handle, clock: &Clock) -> io::Result<()> {
        let flushed = self.tables(directory_use, runtime, clock)?;
        let applied = self.identity(directory_use, flushed)?;
        self.log(directory_use, flushed, applied)?;
        self.metadata(runtime)
    }

    /// Checks all tables. Returns the last log record that is in files; `None` if that is unknown.
    fn tables(
        &mut self,
        directory_use: Use,
        runtime: &Handle,
        clock: &Clock,
    ) -> io::Result<Option<Sequence>> {
        let mut in_files = None;
        for spec in table_specs() {
            let name = spec.name;
            let place = self.tables.place(name);
            if self.tables.is_local() && !self.data_dir.join(&place).is_dir() {
                self.skipped(format!("{place}: there is none"))?;
                continue;
            }
            let files = self.tables.reading(name)?;
            let objects = CheckedStore::new(Arc::clone(files.objects()), &place);
            let open = || {
                let files = files.clone().over(Arc::new(objects.clone()));
                runtime.block_on(files.open_existing(spec.clone(), clock.clone()))
            };
            let table = match open() {
                Ok(Some(table)) => table,
                // Those of persons and distinct ids are created soon after the start, by a version that has them.
                Ok(None) if name != "events" && is_empty(&objects, runtime) => {
                    self.skipped(format!("{place}: there is none"))?;
                    continue;
                }
                Ok(None) => {
                    self.found(format!("{place}/_delta_log: there is no commit"))?;
                    continue;
                }
                Err(error) => {
                    let is_newer = matches!(error, TableError::Unsupported { .. });
                    self.unopened(format!("{place}/_delta_log: {}", chain(&error)), is_newer)?;
                    continue;
                }
            };
            for Damage { first, last, reason } in table.damage() {
                self.found(format!("{place}: versions {first} to {last}: {reason}"))?;
            }
            let version = table.current();
            if name == "events" {
                in_files = flushed(self.data_dir, &version);
            }
            let mut bytes = 0;
            let mut without = 0;
            let mut problems = Vec::new();
            for file in &version.files {
                match runtime.block_on(verify_file(&objects, &version, file)) {
                    Ok(has_checksums) => without += u64::from(!has_checksums),
                    Err(problem) => problems.push((&file.path, problem)),
                }
                bytes += file.size_bytes;
            }
            // A merge may have replaced the file in the meantime, and the server's vacuum removed it.
            let now = match directory_use {
                Use::Served if !problems.is_empty() => open().ok().flatten(),
                _ => None,
            };
            let now = now.map(|table| table.current());
            for (path, problem) in problems {
                let is_live = |now: &TableVersion| now.files.iter().any(|file| file.path == *path);
                if now.as_deref().is_none_or(is_live) {
                    self.found(format!("{place}/{path}: {problem}"))?;
                }
            }
            let files = version.files.len();
            let number = version.version;
            self.checked(format!("{place}: version {number}, {files} files, {bytes} bytes"))?;
            if without > 0 {
                self.skipped(format!(
                    "{place}: {without} files have no checksums of Weir; they were read to the end"
                ))?;
            }
        }
        Ok(in_files)
    }

    /// Checks the identity store. Returns the last log record that it has applied.
    fn identity(
        &mut self,
        directory_use: Use,
        flushed: Option<Sequence>,
    ) -> io::Result<Option<Sequence>> {
        let directory = self.data_dir.join("identity");
        if directory_use == Use::Served {
            self.skipped("identity: a server writes to it; stop the server first".to_owned())?;
            return Ok(None);
        }
        if !directory.is_dir() {
            match flushed {
                Some(Sequence(0)) => self.skipped("identity: there is none".to_owned())?,
                _ => self.found("identity: it is missing, and there are events".to_owned())?,
            }
            return Ok(None);
        }
        match weir_identity::verify::verify(&directory) {
            Ok(verified) => {
                let rows = verified.rows;
                for (keyspace, error) in verified.damaged {
                    self.found(format!("identity, keyspace {keyspace}: {}", chain(&error)))?;
                }
                self.checked(format!("identity: {rows} rows"))?;
                Ok(Some(Sequence(verified.applied)))
            }
            Err(error) => {
                let text = format!("identity: it cannot be opened: {}", chain(&error));
                self.unopened(text, error.is_of_newer())?;
                Ok(None)
            }
        }
    }

    fn log(
        &mut self,
        directory_use: Use,
        flushed: Option<Sequence>,
        applied: Option<Sequence>,
    ) -> io::Result<()> {
        let is_written = directory_use == Use::Served;
        let verified = verify_log(&OsDisk, &self.data_dir.join("wal"), is_written);
        let verified = match verified {
            Ok(verified) => verified,
            Err(error) => {
                let is_newer = matches!(error, WalError::Version { .. });
                return self.unopened(format!("wal: {}", chain(&error)), is_newer);
            }
        };
        for finding in verified.findings {
            let path = finding.path.strip_prefix(self.data_dir).unwrap_or(&finding.path);
            let path = path.display();
            self.found(format!("{path}, byte {}: {}", finding.offset, finding.damage))?;
        }
        // The server may have flushed records since the tables were read, and truncated the log.
        match flushed.filter(|_| !is_written) {
            Some(flushed) => {
                let seen = applied.unwrap_or_default().max(flushed);
                for (first, last) in missing(verified.range, flushed, seen) {
                    let text =
                        format!("wal: records {first} to {last} are missing, and in no file");
                    self.found(text)?;
                }
            }
            None => self.skipped("wal: whether records are missing at its ends".to_owned())?,
        }
        let (segments, records) = (verified.segments, verified.records);
        self.checked(format!("wal: {segments} segments, {records} records"))?;
        if is_written {
            self.skipped("wal: the newest segment, to which a server writes".to_owned())?;
        }
        Ok(())
    }

    fn metadata(&mut self, runtime: &Handle) -> io::Result<()> {
        if let Some(url) = self.elsewhere {
            return self.skipped(format!("metadata: they are in {url}"));
        }
        let path = self.data_dir.join("metadata.db");
        // Before the store is opened, which creates an empty file.
        if let Some(lost) = lost_changes(&path)? {
            self.found(format!("metadata.db-wal: {lost}"))?;
        }
        let bytes = match fs::metadata(&path) {
            Ok(file) => file.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        if bytes == 0 {
            return self.found("metadata.db: it is missing or empty".to_owned());
        }
        match runtime.block_on(Metadata::verify(&path, METADATA_FINDINGS_MAX)) {
            Ok(found) => {
                for line in found {
                    self.found(format!("metadata.db: {line}"))?;
                }
                self.checked(format!("metadata.db: {bytes} bytes"))
            }
            Err(error) => self.found(format!("metadata.db: {}", chain(&error))),
        }
    }
}

/// Whether a table has no file at all.
fn is_empty(objects: &dyn ObjectStore, runtime: &Handle) -> bool {
    runtime.block_on(objects.list(None).next()).is_none()
}

/// Ranges of records that are neither in files nor in the log: before its first record, and after its last.
fn missing(
    range: Option<(Sequence, Sequence)>,
    flushed: Sequence,
    seen: Sequence,
) -> impl Iterator<Item = (Sequence, Sequence)> {
    let (before, behind) = match range {
        None => (None, (flushed, seen)),
        Some((first, last)) => (Some((flushed, first.previous())), (last.max(flushed), seen)),
    };
    let gaps = before.into_iter().chain([behind]).map(|(after, last)| (after.next(), last));
    gaps.filter(|(first, last)| first <= last)
}

/// An error with its causes.
pub(super) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}

/// Reads a whole data file. Returns whether it has checksums.
async fn verify_file(
    objects: &CheckedStore,
    version: &TableVersion,
    file: &DataFile,
) -> Result<bool, String> {
    let path = ObjectPath::from(file.path.as_str());
    let found = objects.head(&path).await.map_err(|error| match error {
        object_store::Error::NotFound { .. } => "it is missing".to_owned(),
        error => chain(&error),
    })?;
    if found.size != file.size_bytes {
        let (found, wanted) = (found.size, file.size_bytes);
        return Err(format!("it has {found} bytes, and the table says {wanted}"));
    }
    if objects.verify(&path).await.map_err(|error| chain(&error))? {
        return Ok(true);
    }
    let store = Arc::new(objects.clone());
    let names: Vec<&str> =
        version.schema.fields().iter().map(|field| field.name().as_str()).collect();
    let batches = read_columns(store, file, &names).await;
    let mut batches = batches.map_err(|error| chain(&error))?;
    while let Some(batch) = batches.next().await {
        batch.map_err(|error| chain(&error))?;
    }
    Ok(false)
}
