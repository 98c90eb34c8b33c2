//! `weir move`: moves the tables of a data directory to a bucket, or back.

use std::io::Write;
use std::path::PathBuf;

use anyhow::bail;
use bytesize::ByteSize;

use crate::cli::runtime::small_runtime;
use crate::cli::{environment, idle};
use weir_app::moving;
use weir_app::moving::Moved;
use weir_base::clock::Clock;
use weir_base::config::bucket::BucketUrl;

/// Scheme of a bucket URL, by which it is distinguished from a directory.
const SCHEME: &str = "s3://";

/// Options of `weir move`. The credentials and the endpoint of the bucket come from the environment, and so does the
/// metadata database, in which the lease shows whether a server is running if the log is in the bucket, too.
#[derive(Clone, Debug, clap::Args)]
pub struct MoveArgs {
    /// Where the tables are: a data directory, on which no server runs, or `s3://bucket/prefix`
    pub from: String,
    /// Where to move them: `s3://bucket/prefix`, or the data directory to which they belong
    pub to: String,
}

/// Moves the tables.
///
/// # Errors
///
/// The error message for the user. See [`moving::MoveError`] for what has changed then; a second attempt continues the
/// copy.
pub fn run(args: &MoveArgs, clock: &Clock) -> anyhow::Result<()> {
    let (url, data_dir, is_to_bucket) =
        match (args.from.starts_with(SCHEME), args.to.starts_with(SCHEME)) {
            (false, true) => (&args.to, PathBuf::from(&args.from), true),
            (true, false) => (&args.from, PathBuf::from(&args.to), false),
            _ => bail!("one of the two must be a data directory, and the other s3://bucket/prefix"),
        };
    let url = BucketUrl::parse(url).map_err(anyhow::Error::msg)?;
    let mut config = environment::settings()?;
    config.storage.data_dir.clone_from(&data_dir);
    let lock = idle::lock(&data_dir)?;
    let runtime = small_runtime()?;
    let Moved { copied, former } = match is_to_bucket {
        true => runtime.block_on(moving::to_bucket(&config, &url, clock))?,
        false => runtime.block_on(moving::to_directory(&config, &url, clock))?,
    };
    let mut out = std::io::stdout().lock();
    let (from, to, size) = (&args.from, &args.to, ByteSize(copied.bytes).display().iec());
    writeln!(out, "moved {} files, {size}, from {from} to {to}", copied.files)?;
    if copied.found > 0 {
        writeln!(out, "{} of them were there already", copied.found)?;
    }
    if let Some(former) = former {
        writeln!(out, "the former files are in {former}, and are not used any more")?;
    }
    match is_to_bucket {
        true => writeln!(out, "Start the server with --storage-url {url} (WEIR_STORAGE_URL).")?,
        false => writeln!(
            out,
            "Start the server without --storage-url (WEIR_STORAGE_URL) and --storage-log (WEIR_STORAGE_LOG)."
        )?,
    }
    drop(lock);
    Ok(())
}
