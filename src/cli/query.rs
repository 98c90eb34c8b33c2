//! `weir query`: SQL over a data directory. If a server runs on it, the query goes to the server, which sees
//! acknowledged events at once. Otherwise it reads a working copy and leaves the directory unchanged. The result is
//! written as it comes.

mod printed;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::ValueEnum;
use clap::builder::PossibleValue;
use hyper::Method;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::client::{RemoteArgs, Server, TlsArgs};
use crate::cli::failure::explain;
use crate::cli::query::printed::{More, Printed};
use crate::cli::{client, environment};
use weir_app::App;
use weir_app::copy::{Source, WorkingCopy};
use weir_app::node::{Process, Runtimes};
use weir_base::clock::Clock;
use weir_base::config::Config;
use weir_base::config::telemetry::{LogFormat, TelemetryConfig};
use weir_base::tasks::Tasks;
use weir_base::telemetry::logs;
use weir_base::telemetry::metrics::Metrics;
use weir_event::id::ShardId;
use weir_query::guard::complexity;
use weir_query::kernel::files::File;
use weir_query::output::format::Format;

/// Longest time for threads to end after the result.
const THREADS_END: Duration = Duration::from_secs(5);

/// Options of `weir query`.
#[derive(Clone, Debug, clap::Args)]
pub struct QueryArgs {
    /// One SQL query over `events`, `sessions`, `persons`, `person_distinct_ids`, `groups`,
    /// `event_definitions`, `property_definitions`, `event_properties`, `ingestion_warnings`
    pub sql: String,
    /// Data directory
    #[arg(long, env = "WEIR_DATA_DIR", default_value = "./weir-data")]
    pub data_dir: PathBuf,
    /// Another server.
    #[command(flatten)]
    pub remote: RemoteArgs,
    /// Id of the project
    #[arg(long, default_value_t = 1)]
    pub project: i64,
    /// Format of the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

/// Runs the query and prints the result.
///
/// # Errors
///
/// The error message for the user.
pub fn run(args: QueryArgs, clock: Clock) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_stack_size(complexity::STACK_BYTES)
        .enable_all()
        .build()?;
    match args.remote.place()? {
        Some((url, key)) => {
            let path = format!("/api/projects/{}/query/", args.project);
            let at = (url, key, &args.remote.tls);
            let asking = from_server(at, &path, request(&args), args.format);
            runtime
                .block_on(asking)
                .with_context(|| format!("project {} of {url}", args.project))?;
        }
        None => {
            // The copy has to be removed at any end: signals are caught before it is made, and bad
            // environment variables return an error instead of ending the process.
            let ends = {
                let _entered = runtime.enter();
                Ends::catch()?
            };
            let settings = environment::settings();
            match Source::find(&args.data_dir)? {
                Source::Server(server) => {
                    // The path of the API has the project; this one has none.
                    let mut request = request(&args);
                    if let Some(fields) = request.as_object_mut() {
                        fields.insert("project".to_owned(), args.project.into());
                    }
                    let (tls, path) = (TlsArgs::default(), "/_internal/query");
                    let at = (server.url.as_str(), server.secret.as_str(), &tls);
                    runtime.block_on(ends.unless(from_server(at, path, request, args.format)))?;
                }
                Source::Copy(copy) => {
                    let answer = settings
                        .and_then(|settings| read(&args, &copy, settings, &runtime, ends, clock));
                    // The message names paths of the directory, because the copy is removed.
                    answer.map_err(|error| anyhow!(copy.named(&explain(&error))))?;
                }
            }
        }
    }
    runtime.shutdown_timeout(THREADS_END);
    Ok(())
}

/// The request for the query.
fn request(args: &QueryArgs) -> Value {
    let format = printed::asked(args.format).to_possible_value();
    let format = format.as_ref().map(PossibleValue::get_name);
    json!({"query": args.sql, "format": format})
}

/// Asks a server for the result and prints it as it comes.
async fn from_server(
    (url, key, tls): (&str, &str, &TlsArgs),
    path: &str,
    request: Value,
    format: Format,
) -> anyhow::Result<()> {
    let response = Server::new(url, key, tls)?.send(Method::POST, path, Some(&request)).await?;
    let (mut body, mut printed) = (response.into_body(), Printed::new(format));
    while let Some(part) = client::next(&mut body).await? {
        if printed.add(part)? == More::Enough {
            break;
        }
    }
    printed.end()
}

/// Prints a result of this process as it comes.
async fn from_file(file: File, format: Format) -> anyhow::Result<()> {
    let mut printed = Printed::new(format);
    match file {
        File::Whole(bytes) => {
            printed.add(bytes)?;
        }
        File::Long(mut pieces) => {
            while let Some(part) = pieces.next().await {
                if printed.add(part?)? == More::Enough {
                    break;
                }
            }
        }
    }
    printed.end()
}

/// Replays the log in the working copy and runs the query. A signal returns an error, so that the copy is
/// removed.
fn read(
    args: &QueryArgs,
    copy: &WorkingCopy,
    settings: Config,
    runtime: &Runtime,
    ends: Ends,
    clock: Clock,
) -> anyhow::Result<()> {
    // Damage in the directory is logged to standard error.
    let telemetry = TelemetryConfig { log: "error".to_owned(), log_format: LogFormat::Text };
    logs::start(&telemetry)?;
    let tasks = Tasks::new(runtime.handle().clone());
    let runtimes = Runtimes { main: runtime.handle().clone(), query: runtime.handle().clone() };
    let answering = async {
        let (tasks, metrics) = (tasks.clone(), Arc::new(Metrics::new()));
        let (config, distribute) = (settings, None);
        let process = Process {
            shard: ShardId::FIRST,
            config,
            tasks,
            runtimes,
            clock,
            metrics,
            distribute,
            cache: None,
            writer: None,
        };
        let app = App::open_copy(copy, process).await;
        let app = app.with_context(|| format!("cannot read {}", args.data_dir.display()))?;
        let project = app.node.project(args.project)?;
        let file = app.sql(project, &args.sql, printed::asked(args.format)).await?;
        from_file(file, args.format).await
    };
    let answer = runtime.block_on(async {
        tokio::select! {
            answer = ends.unless(answering) => answer,
            thread = tasks.failed() => bail!("the thread {thread:?} panicked, which is a bug; no file has changed"),
        }
    });
    tasks.shutdown().begin();
    // Tasks that still run write to the copy, which is removed next.
    let _ = runtime.block_on(tasks.wait(THREADS_END));
    answer
}

/// Handlers of the signals that end a command.
struct Ends {
    interrupt: Signal,
    terminate: Signal,
    /// `None` if the process was started with SIGHUP ignored, as by `nohup`.
    hangup: Option<Signal>,
}

impl Ends {
    /// Installs the handlers; the signals no longer end the process. Call it within a runtime.
    fn catch() -> std::io::Result<Self> {
        let hangup = Some(SignalKind::hangup()).filter(|_| !is_hangup_ignored());
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: hangup.map(signal).transpose()?,
        })
    }

    /// The result of `future`, or an error if a signal arrives or has arrived.
    async fn unless<T>(
        mut self,
        future: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        let hung_up = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            result = future => result,
            _ = self.interrupt.recv() => bail!("interrupted"),
            _ = self.terminate.recv() => bail!("terminated"),
            _ = hung_up => bail!("the terminal was closed"),
        }
    }
}

/// Whether the process was started with SIGHUP ignored.
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // SIGHUP is signal 1, the lowest bit.
    ignored.is_some_and(|mask| mask & 1 == 1)
}
