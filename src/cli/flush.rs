//! `weir flush`: makes the running server write what it has in memory to files, for other engines to read.

use std::io::Write;
use std::path::PathBuf;

use serde_json::Value;

use crate::cli::runtime::small_runtime;
use crate::cli::{client, local};

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
    let advice = "after a clean end all events are in files; events that a crash left in the log are written to files when \
                  the server runs again";
    let address = local::server(&args.data_dir, advice)?;
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
