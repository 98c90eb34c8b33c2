//! `weir query`: SQL over a data directory. A server that runs on it is asked, so that acknowledged
//! events are seen at once; otherwise the directory is opened here, as a server would.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use anyhow::bail;
use bytes::Bytes;
use clap::Parser;
use http_body_util::BodyExt;
use http_body_util::Full;
use hyper::Method;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use crate::app::App;
use crate::app::Runtimes;
use crate::app::lock::DirectoryLock;
use crate::app::lock::Holder;
use crate::cli::serve::ServeArgs;
use crate::clock::Clock;
use crate::event::id::ProjectId;
use crate::query::complexity;
use crate::query::rows::Format;
use crate::tasks::Tasks;
use crate::telemetry::metrics::Metrics;

/// Options of `weir query`.
#[derive(Clone, Debug, clap::Args)]
pub struct QueryArgs {
    /// One SQL query over `events`, `persons`, `person_distinct_ids`, `groups`, `event_definitions`
    pub sql: String,
    /// Data directory
    #[arg(long, env = "WEIR_DATA_DIR", default_value = "./weir-data")]
    pub data_dir: PathBuf,
    /// Ask the server at this address instead, with --key
    #[arg(long)]
    pub url: Option<String>,
    /// Personal API key, for --url
    #[arg(long, env = "WEIR_PERSONAL_API_KEY", hide_env_values = true)]
    pub key: Option<String>,
    /// Project
    #[arg(long, default_value_t = 1)]
    pub project: i64,
    /// Form of the answer
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

/// Asks and prints.
///
/// # Errors
///
/// What to tell the user.
pub fn run(args: QueryArgs, clock: Clock) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_stack_size(complexity::STACK_BYTES)
        .enable_all()
        .build()?;
    let answer = match &args.url {
        Some(url) => {
            let key = args.key.as_deref().context("--url needs --key")?;
            let path = format!("{url}/api/projects/{}/query/", args.project);
            runtime.block_on(ask(&path, key, &args))?
        }
        None => {
            let data_dir = &args.data_dir;
            if !data_dir.is_dir() {
                bail!("there is no data directory {}", data_dir.display());
            }
            match DirectoryLock::take(data_dir)? {
                Holder::Server(server) => {
                    let path = format!("{}/_internal/query", server.url);
                    runtime.block_on(ask(&path, &server.secret, &args))?
                }
                Holder::Unknown => bail!("{} is in use by another process", data_dir.display()),
                Holder::Nobody(_lock) => read(&args, &runtime, clock)?,
            }
        }
    };
    std::io::stdout().lock().write_all(&answer)?;
    runtime.shutdown_timeout(Duration::from_secs(5));
    Ok(())
}

fn name(format: Format) -> &'static str {
    match format {
        Format::Table => "table",
        Format::Json => "json",
        Format::Csv => "csv",
        Format::Parquet => "parquet",
    }
}

async fn ask(url: &str, key: &str, args: &QueryArgs) -> anyhow::Result<Bytes> {
    let question = serde_json::json!({
        "query": args.sql,
        "project": args.project,
        "format": name(args.format),
    });
    let request = hyper::Request::builder()
        .method(Method::POST)
        .uri(url)
        .header("authorization", format!("Bearer {key}"))
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(question.to_string())))?;
    let client = Client::builder(TokioExecutor::new()).build_http();
    let response = client.request(request).await.with_context(|| format!("cannot ask {url}"))?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    if !status.is_success() {
        let problem: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        bail!("{}", problem.get("detail").and_then(|detail| detail.as_str()).unwrap_or("failed"));
    }
    Ok(body)
}

/// Opens the directory as a server would, under its lock, replays the log and answers. What is
/// replayed may be flushed, if it is more than memtables may hold; otherwise the log stays as it is.
fn read(
    args: &QueryArgs,
    runtime: &tokio::runtime::Runtime,
    clock: Clock,
) -> anyhow::Result<Bytes> {
    let mut settings = Settings::parse_from(["weir"]).serve.settings;
    settings.storage.data_dir.clone_from(&args.data_dir);
    let tasks = Tasks::new(runtime.handle().clone());
    let runtimes = Runtimes { main: runtime.handle().clone(), query: runtime.handle().clone() };
    let metrics = Arc::new(Metrics::new());
    let answer = runtime.block_on(async {
        let app = App::open(settings, tasks.clone(), runtimes, clock, metrics).await?;
        let answer = app.engine.sql(ProjectId(args.project), &args.sql, args.format).await;
        anyhow::Ok(answer?)
    });
    tasks.shutdown().begin();
    Ok(answer?.into())
}

/// The settings of a server that was told nothing.
#[derive(Debug, Parser)]
struct Settings {
    #[command(flatten)]
    serve: ServeArgs,
}
