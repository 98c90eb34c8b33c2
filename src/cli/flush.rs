//! `weir flush`: makes the running server write what it has in memory to files, for other engines to read.

use std::io::Write;
use std::path::PathBuf;

use anyhow::bail;
use serde_json::Value;

use crate::cli::client;
use crate::cli::runtime::small_runtime;
use weir_app::lock::{DirectoryLock, Holder};

/// Options of `weir flush`.
#[derive(Clone, Debug, clap::Args)]
pub struct FlushArgs {
    /// Data directory
    #[arg(long, env = "WEIR_DATA_DIR", default_value = "./weir-data")]
    pub data_dir: PathBuf,
    /// Also write the persons and their distinct ids to their tables, as of now; otherwise that takes some minutes
    #[arg(long)]
    pub persons: bool,
}

/// Returns when every event that was acknowledged before the call is in the files of the events table, and if it is
/// asked for, when the tables of persons are of a time after the call.
///
/// # Errors
///
/// The error message for the user.
pub fn run(args: &FlushArgs) -> anyhow::Result<()> {
    let data_dir = &args.data_dir;
    if !data_dir.is_dir() {
        bail!("there is no directory {}", data_dir.display());
    }
    let Holder::Server(address) = DirectoryLock::share(data_dir)? else {
        bail!(
            "no server runs on {}: after a clean end all events are in files; events that a crash left in the log \
             are written to files when the server runs again",
            data_dir.display()
        );
    };
    let runtime = small_runtime()?;
    let ask = |what: &str| {
        let path = format!("/_internal/{what}");
        runtime.block_on(client::ask(&address.url, &path, &address.secret, &Value::Null))
    };
    let answer: Value = serde_json::from_slice(&ask("flush")?)?;
    if args.persons {
        ask("flush-persons")?;
    }
    let of = |name: &str| answer.get(name).and_then(Value::as_u64).unwrap_or_default();
    writeln!(std::io::stdout(), "{} events in {} files", of("rows"), of("files"))?;
    Ok(())
}
