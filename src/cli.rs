//! The command line: one binary, one command per role. No work here.

mod descriptors;
pub mod inspect;
pub mod keys;
pub mod load;
pub mod query;
pub mod serve;

use std::path::PathBuf;

use clap::CommandFactory;
use clap::FromArgMatches;
use clap::Parser;
use clap::Subcommand;

use crate::clock::Clock;
use crate::config;

/// Event analytics in one binary: events in over HTTP, durable at the 200, Parquet out.
#[derive(Debug, Parser)]
#[command(name = "weir", version, about, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    command: Command,
}

/// What holds for all settings.
const SERVE_HELP: &str = "Sizes are bytes or carry a unit (64MiB); times carry one (500ms, 10s, 5m). \
     A flag wins over its variable, the variable over the file of --config.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server
    #[command(after_help = SERVE_HELP)]
    Serve(Box<serve::ServeArgs>),
    /// Ask SQL of a data directory, or of the server that runs on it
    Query(query::QueryArgs),
    /// Send made-up events to a server and report what it took
    Load(load::LoadArgs),
    /// Show what a data directory holds
    Inspect(inspect::InspectArgs),
    /// Create, list and revoke personal API keys
    Keys(keys::KeysArgs),
}

/// Runs the command that `arguments` (program name first) say.
///
/// # Errors
///
/// What to tell the user. Bad arguments, `--help` and `--version` end the process here.
pub fn run(arguments: impl IntoIterator<Item = std::ffi::OsString>) -> anyhow::Result<()> {
    let arguments: Vec<std::ffi::OsString> = arguments.into_iter().collect();
    let mut command = Cli::command();
    if let Some(file) = config_file(&arguments) {
        let with_file = |serve| config::with_file_defaults(serve, &file);
        let serve = command.find_subcommand("serve").cloned().map(with_file).transpose();
        let serve = serve.map_err(anyhow::Error::msg)?;
        command = command.mut_subcommand("serve", |plain| serve.unwrap_or(plain));
    }
    let matches = command.get_matches_from(arguments);
    let cli = Cli::from_arg_matches(&matches)?;
    let clock = Clock::system();
    match cli.command {
        Command::Serve(args) => serve::run(*args, clock),
        Command::Query(args) => query::run(args, clock),
        Command::Load(args) => small_runtime()?.block_on(load::run(args, clock)),
        Command::Inspect(args) => inspect::run(args, clock),
        Command::Keys(args) => keys::run(args, clock),
    }
}

/// The settings file, which has to be known before the arguments are parsed.
fn config_file(arguments: &[std::ffi::OsString]) -> Option<PathBuf> {
    if arguments.get(1).and_then(|command| command.to_str()) != Some("serve") {
        return None;
    }
    let mut rest = arguments.iter().skip(2);
    while let Some(argument) = rest.next() {
        match argument.to_str() {
            Some("--config") => return rest.next().map(PathBuf::from),
            Some(text) => {
                if let Some(file) = text.strip_prefix("--config=") {
                    return Some(PathBuf::from(file));
                }
            }
            None => {}
        }
    }
    config::config_file()
}

/// A runtime for commands that mostly wait.
fn small_runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}
