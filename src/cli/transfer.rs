//! `weir transfer`: copies a project of a running PostHog or Weir into a project of Weir, over the APIs of both. The copy
//! itself is [`weir_transfer`]; here are its arguments, its HTTP client, the file of its state, and what is printed.

mod client;
mod memory;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use chrono::{DateTime, Utc};
use indicatif::ProgressBar;
use serde_json::{Map, Value};
use url::Url;

use crate::cli::client::TlsArgs;
use crate::cli::progress;
use crate::cli::transfer::client::Client;
use crate::cli::transfer::memory::Memory;
use weir_base::clock::{Clock, UnixMicros};
use weir_transfer::report::Report;
use weir_transfer::server::{Repeat, Server};
use weir_transfer::state::{Kind, State};
use weir_transfer::transfer::{Events, Options, Progress, Project, Stop, Transfer};

/// Longest wait for one answer. The servers end queries themselves after 60 s.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// Copy a project of a running PostHog or Weir into a project of Weir
#[derive(Clone, Debug, clap::Args)]
pub struct TransferArgs {
    /// URL of the server that has the project, such as https://eu.posthog.com
    #[arg(long)]
    pub from_url: Url,
    /// Personal API key of that server; it has to read everything that should come
    #[arg(long, env = "WEIR_SOURCE_KEY", hide_env_values = true)]
    pub from_key: String,
    /// Id of the project there
    #[arg(long, default_value = "1")]
    pub from_project: String,
    /// URL of the Weir that gets the copy
    #[arg(long, default_value = "http://127.0.0.1:8000")]
    pub url: Url,
    /// Personal API key of that Weir
    #[arg(long, env = "WEIR_PERSONAL_API_KEY", hide_env_values = true)]
    pub key: String,
    /// Id of the project that gets the copy
    #[arg(long, default_value = "1", conflicts_with = "new_project")]
    pub project: String,
    /// Make a project for the copy, called as the other one
    #[arg(long)]
    pub new_project: bool,
    /// Give the new project the project API key of the other one, so that no client has to change
    #[arg(long, requires = "new_project")]
    pub keep_token: bool,
    /// Copy the events from this time on, RFC 3339 [default: all]
    #[arg(long)]
    pub since: Option<DateTime<Utc>>,
    /// Copy no events
    #[arg(long, conflicts_with = "since")]
    pub no_events: bool,
    /// Change objects that are there and differ to what the source has, instead of leaving them as they are
    #[arg(long)]
    pub update: bool,
    /// What happens to properties that a person or a group has already
    #[arg(long, value_enum, default_value_t = Properties::Fill)]
    pub person_properties: Properties,
    /// File with the ids of what was copied, by which an interrupted or repeated copy goes on
    #[arg(long, value_name = "FILE", default_value = "weir-transfer.json")]
    pub state: PathBuf,
    /// Fail if something could not come
    #[arg(long)]
    pub strict: bool,
    /// For https.
    #[command(flatten)]
    pub tls: TlsArgs,
}

/// What happens to properties of persons and groups that the target has already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Properties {
    /// They stay, and those that are absent are set.
    Fill,
    /// They get the values of the source.
    Overwrite,
}

/// Copies the project and prints what was done.
///
/// # Errors
///
/// The error message for the user.
pub async fn run(args: TransferArgs, clock: Clock) -> anyhow::Result<()> {
    // The keys are in no message, whatever a server answers.
    let keys = [args.from_key.clone(), args.key.clone()];
    let shown = |text: String| {
        keys.iter().filter(|key| !key.is_empty()).fold(text, |text, key| text.replace(key, "***"))
    };
    let (report, stopped) = copy(&args, clock)
        .await
        .map_err(|error| anyhow::Error::msg(shown(format!("{error:#}"))))?;
    std::io::stdout().lock().write_all(shown(report.to_string()).as_bytes())?;
    if let Some(stop) = stopped {
        let stop = shown(stop.to_string());
        bail!("{stop}; the same command goes on from here");
    }
    ensure!(!(args.strict && report.is_partial()), "not everything could come");
    Ok(())
}

/// Copies the project. Returns what was done, and why it ended if it did so early.
async fn copy(args: &TransferArgs, clock: Clock) -> anyhow::Result<(Report, Option<Stop>)> {
    let client = |url: &Url, key: &str| -> anyhow::Result<Arc<Client>> {
        Ok(Arc::new(Client::new(url, key, (ANSWER_TIMEOUT, &args.tls))?))
    };
    let source = Server::new("the source", client(&args.from_url, &args.from_key)?);
    let target = Server::new("the target", client(&args.url, &args.key)?);
    let memory = Memory::new(args.state.clone(), clock);
    let known = memory.read()?;
    let source = Project::open(source, &args.from_project).await?;
    if let Some(known) = &known {
        let base = known.target.rsplit_once(' ').map(|(base, _)| base);
        // Before a new project is made, which nobody would use.
        ensure!(
            known.source == source.place() && base == Some(target.base().as_str()),
            "{} belongs to the copy of {} to {}; name another file by --state",
            args.state.display(),
            known.source,
            known.target
        );
    }
    let target = open_target(args, &source, target, known.as_ref()).await?;
    ensure!(
        source.place() != target.place() && !source.text("api_token").is_empty(),
        "the project would be copied into itself, or the key may not read its settings"
    );
    let state = match known {
        Some(known) if known.target == target.place() => known,
        Some(known) => bail!(
            "{} belongs to the copy of {} to {}; name another file by --state",
            args.state.display(),
            known.source,
            known.target
        ),
        None => State::new(source.place(), target.place()),
    };
    // At once, so that a new project is found again whatever happens next.
    memory.write(&state).map_err(anyhow::Error::msg)?;
    let options = Options {
        is_update: args.update,
        is_overwriting: args.person_properties == Properties::Overwrite,
        events: match (args.no_events, args.since) {
            (true, _) => Events::None,
            (false, Some(since)) => Events::Since(UnixMicros(since.timestamp_micros())),
            (false, None) => Events::All,
        },
    };
    let memory = Arc::new(memory);
    let progress = Arc::new(Bar::new());
    let keep = Arc::clone(&memory);
    let mut transfer = Transfer::new(source, target, options, state, keep, progress.clone());
    let stopped = weir_transfer::run::run(&mut transfer).await.err();
    progress.0.finish_and_clear();
    memory.write(transfer.state()).map_err(anyhow::Error::msg)?;
    Ok((transfer.report().clone(), stopped))
}

/// The project that gets the copy: the one of an earlier run, a new one, or the one that is named.
async fn open_target(
    args: &TransferArgs,
    source: &Project,
    server: Server,
    known: Option<&State>,
) -> anyhow::Result<Project> {
    if !args.new_project {
        return Ok(Project::open(server, &args.project).await?);
    }
    if let Some((_, id)) = known.and_then(|known| known.target.rsplit_once(' ')) {
        return Ok(Project::open(server, id).await?);
    }
    let mut body = Map::from_iter([("name".to_owned(), Value::from(source.text("name")))]);
    if args.keep_token {
        body.insert("api_token".to_owned(), Value::from(source.text("api_token")));
    }
    let body = Value::Object(body);
    let made = server.put("POST", "/api/projects/", &body, Repeat::IfRefused);
    let made = made.await.context("cannot make the project")?;
    let id = made.get("id").and_then(weir_transfer::references::id_of);
    let id = id.context("the target made a project without an id")?;
    let token = made.get("api_token").and_then(Value::as_str);
    ensure!(
        !args.keep_token || token == Some(source.text("api_token")),
        "the target made the project {id} with another project API key; copy into it by --project {id}"
    );
    Ok(Project::open(server, &id).await?)
}

/// Shows how far the copy is, on a terminal.
#[derive(Debug)]
struct Bar(ProgressBar);

impl Bar {
    fn new() -> Self {
        Self(progress::bar(None, "{spinner} {msg}, {elapsed}"))
    }
}

impl Progress for Bar {
    fn reached(&self, kind: Kind, count: u64) {
        self.0.set_message(format!("{count} of the kind {}", kind.name()));
        self.0.tick();
    }
}
