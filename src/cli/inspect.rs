//! `weir inspect`: shows the contents of a data directory, read only, with or without a running server.

mod parts;
pub(super) mod tables;
mod usage;
mod verify;

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, bail};
use tokio::runtime::Runtime;

use crate::cli::inspect::parts::Parts;
use crate::cli::inspect::tables::{open_table, tables_of};
use weir_app::live_files::LiveTables;
use weir_app::tables::table_specs;
use weir_app::views;
use weir_base::clock::Clock;
use weir_base::config::metadata::MetadataConfig;
use weir_event::id::ProjectId;

/// Options of `weir inspect`.
#[derive(Clone, Debug, clap::Args)]
pub struct InspectArgs {
    /// Data directory
    #[arg(long, env = "WEIR_DATA_DIR", default_value = "./weir-data")]
    pub data_dir: PathBuf,
    /// Where the metadata are.
    #[command(flatten)]
    pub metadata: MetadataConfig,
    /// Print SQL that creates views over the live files of a project in DuckDB, with merged persons
    #[arg(long, conflicts_with_all = ["files", "verify"])]
    pub views: bool,
    /// Id of the project, for --views
    #[arg(long, default_value_t = 1)]
    pub project: i64,
    /// Print the live files of a table, one path per line, for tools that cannot read Delta: of events, or of another
    /// table that is named as in --files=persons
    #[arg(
        long, value_name = "TABLE", num_args = 0..=1, require_equals = true, default_missing_value = "events",
        value_parser = table_specs().map(|spec| spec.name)
    )]
    pub files: Option<String>,
    /// Verify all checksums and print one line per damaged place; exit with 1 if there is any
    #[arg(long, conflicts_with = "files")]
    pub verify: bool,
}

/// Reads the directory and prints its parts, its files or its damage.
///
/// # Errors
///
/// The error message for the user.
pub fn run(args: InspectArgs, clock: Clock) -> anyhow::Result<()> {
    let data_dir = std::path::absolute(&args.data_dir)?;
    if !data_dir.is_dir() {
        bail!("there is no directory {}", data_dir.display());
    }
    if args.verify {
        return verify::run(&data_dir, &args.metadata, &clock);
    }
    let mut out = std::io::stdout().lock();
    let runtime = Runtime::new()?;
    let tables = runtime.block_on(tables_of(&data_dir, &clock));
    if let Some(name) = args.files {
        let tables = tables?;
        let spec = table_specs().into_iter().find(|spec| spec.name == name);
        let spec = spec.with_context(|| format!("there is no table {name}"))?;
        let table = runtime.block_on(open_table(&tables, spec, &clock))?;
        let table = table
            .with_context(|| format!("there is no table {name} under {}", data_dir.display()))?;
        let place = tables.name(&name);
        for file in &table.current().files {
            writeln!(out, "{place}/{}", file.path)?;
        }
        return Ok(());
    }
    if args.views {
        let project = ProjectId(args.project);
        let live = runtime.block_on(LiveTables::of(&tables?, project, &clock))?;
        write!(out, "{}", views::sql(project, &live, clock.now())?)?;
        return Ok(());
    }
    let parts = Parts::look(&data_dir, tables, &args.metadata, &runtime, &clock)?;
    parts.write(&mut out)?;
    match parts.failures() {
        0 => Ok(()),
        failures => bail!("{failures} parts of {} cannot be read", data_dir.display()),
    }
}
