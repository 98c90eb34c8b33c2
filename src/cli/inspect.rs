//! `weir inspect`: what a data directory holds, without opening it for writing.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use url::Url;

use crate::app::events_spec;
use crate::clock::Clock;
use crate::storage::delta::DeltaTable;
use crate::storage::disk::OsDisk;
use crate::storage::durable::DurableStore;

/// Options of `weir inspect`.
#[derive(Clone, Debug, clap::Args)]
pub struct InspectArgs {
    /// Data directory
    #[arg(long, env = "WEIR_DATA_DIR", default_value = "./weir-data")]
    pub data_dir: PathBuf,
    /// Print the live files of the events table, one path a line, for tools that read no Delta
    #[arg(long)]
    pub files: bool,
}

/// Looks and prints.
///
/// # Errors
///
/// What to tell the user.
pub fn run(args: InspectArgs, clock: Clock) -> anyhow::Result<()> {
    let data_dir = std::path::absolute(&args.data_dir)?;
    let directory = data_dir.join("tables").join("events");
    let mut out = std::io::stdout().lock();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let objects = Arc::new(DurableStore::new(Arc::new(OsDisk), &directory));
    let location = Url::from_directory_path(&directory)
        .map_err(|()| anyhow::anyhow!("{} has no URL", directory.display()))?;
    let table = runtime
        .block_on(DeltaTable::open_existing(objects, location, events_spec(), clock))?
        .with_context(|| format!("there is no events table under {}", data_dir.display()))?;
    let version = table.current();
    if args.files {
        for file in &version.files {
            writeln!(out, "{}", directory.join(&file.path).display())?;
        }
        return Ok(());
    }
    let rows: u64 = version.files.iter().map(|file| file.rows).sum();
    let bytes: u64 = version.files.iter().map(|file| file.size_bytes).sum();
    writeln!(out, "events table  version {}", version.version)?;
    writeln!(out, "  files       {}", version.files.len())?;
    writeln!(out, "  rows        {rows}")?;
    writeln!(out, "  bytes       {bytes}")?;
    let mut log_bytes = 0;
    let mut segments = 0;
    for entry in std::fs::read_dir(data_dir.join("wal")).into_iter().flatten() {
        let entry = entry?.metadata()?;
        if entry.is_file() {
            segments += 1;
            log_bytes += entry.len();
        }
    }
    writeln!(out, "log\n  segments    {segments}\n  bytes       {log_bytes}")?;
    Ok(())
}
