//! The command line: parses arguments and settings, and dispatches to one command per role. No work here.

mod client;
mod cluster;
mod descriptors;
mod environment;
pub mod export;
pub mod failure;
mod files;
pub mod flush;
pub mod health;
mod help;
mod idle;
pub mod import;
pub mod inspect;
pub mod keys;
pub mod load;
mod local;
pub mod login;
pub mod mcp;
pub mod migrate;
pub mod moving;
mod postgres;
mod process;
mod progress;
mod project_api;
pub mod promote;
pub mod query;
mod runtime;
pub mod schema;
pub mod serve;
pub mod shards;
mod standby;
pub mod transfer;
pub mod worker;

use std::io::Write;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use rustix::fs::Mode;

use crate::cli::runtime::small_runtime;
use weir_base::clock::Clock;
use weir_base::config;
use weir_base::config::Origins;

/// Event analytics in one binary: events in over HTTP, durable at the 200, Parquet out.
#[derive(Debug, Parser)]
#[command(name = "weir", about, max_term_width = 100)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    command: Command,
}

/// Help text below the options of `weir serve`: rules for all settings.
const SERVE_HELP: &str = "Sizes are bytes or carry a unit (64MiB); times carry one (500ms, 10s, 5m). \
     A flag overrides its variable, the variable overrides the file of --config.";

/// Help text below the options of `weir import`.
const IMPORT_HELP: &str = "weir help imports has what to export from each source.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server
    #[command(after_help = SERVE_HELP)]
    Serve(Box<serve::ServeArgs>),
    /// Execute parts of the queries of servers, on the files of their bucket
    #[command(after_help = SERVE_HELP)]
    Worker(Box<worker::WorkerArgs>),
    /// Run a SQL query on a data directory, through the running server if there is one
    Query(query::QueryArgs),
    /// Make the running server write all acknowledged events to files
    Flush(flush::FlushArgs),
    /// Send synthetic events to a server and report throughput, latency and CPU time
    Load(load::LoadArgs),
    /// Export events, persons, definitions, flags, or all of a project
    Export(Box<export::ExportArgs>),
    /// Import what another system has exported
    #[command(after_help = IMPORT_HELP)]
    Import(Box<import::ImportArgs>),
    /// Copy a project of a running PostHog or Weir into a project of Weir
    Transfer(Box<transfer::TransferArgs>),
    /// Show the contents of a data directory, or check it for damage
    Inspect(inspect::InspectArgs),
    /// Print every table and column, with type, meaning, unit and an example
    Schema(schema::SchemaArgs),
    /// Promote properties of events to columns, list these, or stop that
    Promote(promote::PromoteArgs),
    /// Create, list and revoke personal API keys
    Keys(keys::KeysArgs),
    /// Print a link that signs in to the page, once
    Login(login::LoginArgs),
    /// Move the tables of a data directory to a bucket, or back
    Move(moving::MoveArgs),
    /// List the shards of a cluster and its nodes, add shards, move one, drain a node
    Shards(Box<shards::ShardsArgs>),
    /// Move the metadata of a data directory to PostgreSQL
    Migrate(migrate::MigrateArgs),
    /// Let an assistant use a server: the Model Context Protocol over standard input and output
    Mcp(mcp::McpArgs),
    /// Ask a server on this machine whether it lives; fails if it does not
    Health(health::HealthArgs),
    /// Print the version
    Version,
}

/// Runs the command in `arguments` (program name first) of the program with this version. Sets the umask of the
/// process, so that all files it creates from then on are readable by its user alone.
///
/// # Errors
///
/// The error message for the user. Bad arguments, `--help` and `--version` end the process here.
pub fn run(
    arguments: impl IntoIterator<Item = std::ffi::OsString>,
    version: &'static str,
) -> anyhow::Result<()> {
    // Only the operator may read events, persons and key hashes, whichever crate creates the file.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let arguments: Vec<std::ffi::OsString> = arguments.into_iter().collect();
    let mut command = Cli::command().version(version).after_help(help::topics());
    if let Some(topic) = help::topic(&arguments, &command) {
        return help::print(topic, &command);
    }
    let file = config_file(&arguments);
    let origins = Origins { arguments: &arguments, file: file.as_deref() };
    if let Some(file) = &file {
        let name = if is_worker(&arguments) { "worker" } else { "serve" };
        let with_file = |own| config::with_file_defaults(own, file);
        let own = command.find_subcommand(name).cloned().map(with_file).transpose();
        let own = own.map_err(anyhow::Error::msg)?;
        command = command.mut_subcommand(name, |plain| own.unwrap_or(plain));
    }
    let matches = match command.try_get_matches_from(&arguments) {
        Ok(matches) => matches,
        Err(error) => return Err(refused(&error, &origins).unwrap_or_else(|| error.exit())),
    };
    let cli = Cli::from_arg_matches(&matches)?;
    let clock = Clock::system();
    match cli.command {
        Command::Serve(args) => {
            let checked = args.settings.check();
            checked.map_err(|unusable| anyhow::Error::msg(origins.explain(&unusable)))?;
            serve::run(*args, version, clock)
        }
        Command::Worker(args) => {
            let checked = args.settings.check();
            checked.map_err(|unusable| anyhow::Error::msg(origins.explain(&unusable)))?;
            worker::run(*args, version, clock)
        }
        Command::Query(args) => query::run(args, clock),
        Command::Flush(args) => flush::run(&args),
        Command::Load(args) => small_runtime()?.block_on(load::run(args, clock)),
        Command::Export(args) => small_runtime()?.block_on(export::run(*args)),
        Command::Import(args) => small_runtime()?.block_on(import::run(*args, clock)),
        Command::Transfer(args) => small_runtime()?.block_on(transfer::run(*args, clock)),
        Command::Inspect(args) => inspect::run(args, clock),
        Command::Schema(args) => schema::run(&args, &clock),
        Command::Promote(args) => small_runtime()?.block_on(promote::run(args)),
        Command::Keys(args) => keys::run(args, clock),
        Command::Login(args) => login::run(args, clock),
        Command::Move(args) => moving::run(&args, &clock),
        Command::Shards(args) => small_runtime()?.block_on(shards::run(*args, clock)),
        Command::Migrate(args) => migrate::run(args, clock),
        Command::Mcp(args) => mcp::run(args),
        Command::Health(args) => health::run(&args),
        Command::Version => Ok(writeln!(std::io::stdout(), "weir {version}")?),
    }
}

/// The error for a value that its parser has rejected: the source of the value and the parser's message.
/// `None` for all other errors.
fn refused(error: &clap::Error, origins: &Origins<'_>) -> Option<anyhow::Error> {
    if !matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation) {
        return None;
    }
    let ContextValue::String(argument) = error.get(ContextKind::InvalidArg)? else { return None };
    let setting = argument.strip_prefix("--")?.split_whitespace().next()?;
    let text = error.render().to_string();
    let text = text.split("\n\n").next()?.trim_start_matches("error: ");
    Some(anyhow::anyhow!("{}: {text}", origins.of(setting)))
}

fn is_worker(arguments: &[std::ffi::OsString]) -> bool {
    arguments.get(1).is_some_and(|command| command == "worker")
}

/// The path of the settings file: it is needed before clap parses the arguments, because the file sets the
/// defaults.
fn config_file(arguments: &[std::ffi::OsString]) -> Option<PathBuf> {
    let is_server = arguments.get(1).is_some_and(|command| command == "serve");
    if !is_server && !is_worker(arguments) {
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
