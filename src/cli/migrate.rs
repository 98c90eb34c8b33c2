//! `weir migrate`: moves the metadata of a data directory from its file to PostgreSQL, whole and once.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;

use crate::cli::idle;
use weir_app::directory::move_metadata;
use weir_base::clock::Clock;
use weir_base::config::metadata::MetadataConfig;

/// Options of `weir migrate`.
#[derive(Clone, Debug, clap::Args)]
pub struct MigrateArgs {
    /// Data directory, on which no server runs
    #[arg(long, env = "WEIR_DATA_DIR", default_value = "./weir-data")]
    pub data_dir: PathBuf,
    /// Where to move them.
    #[command(flatten)]
    pub metadata: MetadataConfig,
}

/// Moves the metadata, and renames the file.
///
/// # Errors
///
/// The error message for the user. Nothing has changed then.
pub fn run(args: MigrateArgs, clock: Clock) -> anyhow::Result<()> {
    let url = args.metadata.metadata_url.as_ref().context("--metadata-url is missing")?;
    let lock = idle::lock(&args.data_dir)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let moving = move_metadata(&args.data_dir, &args.metadata, url, clock);
    let (rows, aside) = runtime.block_on(moving)?;
    writeln!(
        std::io::stdout(),
        "moved {rows} rows to {url}; the file is {} now, and is not used any more.\n\
         Start the server with --metadata-url (WEIR_METADATA_URL).",
        aside.display()
    )?;
    drop(lock);
    Ok(())
}
