//! `weir load`, a load generator: sends synthetic events to a server and reports throughput, latency and CPU
//! time.
//!
//! Closed loop: each connection sends its next batch when the previous one is answered. Open loop
//! (`--rate`): batches are due at fixed times whatever the server does, and latency counts from
//! the due time, so that a server that stalls cannot hide the requests it delayed (the
//! "coordinated omission" of Gil Tene's talks).
//!
//! The same `--seed` and `--now` give the same events, over HTTP as in the file of
//! `--write-ndjson`, so that other engines can be measured on them.

mod bodies;
mod client;
mod process;
mod project;
mod report;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use chrono::{DateTime, Utc};
use indicatif::ProgressBar;
use tokio::task::JoinSet;

use crate::cli::client::{TlsArgs, connections};
use crate::cli::load::bodies::{Bodies, Compression, Supply};
use crate::cli::load::client::{Drive, Pace, Target};
use crate::cli::load::process::Usage;
use crate::cli::load::report::{Report, Tally};
use crate::cli::progress;
use crate::synth::{Choice, Settings, Stream};
use weir_base::clock::{Clock, UnixMicros};

/// Send synthetic events to a server; report throughput, latency, errors and the server's CPU time
#[derive(Clone, Debug, clap::Args)]
pub struct LoadArgs {
    /// URL of the server
    #[arg(long, default_value = "http://127.0.0.1:8000")]
    pub url: String,
    /// For https.
    #[command(flatten)]
    pub tls: TlsArgs,
    /// Path of the capture endpoint
    #[arg(long, default_value = "/batch/")]
    pub path: String,
    /// Project API key
    #[arg(
        long,
        env = "WEIR_PROJECT_API_KEY",
        hide_env_values = true,
        required_unless_present = "new_project"
    )]
    pub token: Option<String>,
    /// Make a project with this name and send to it, so that no other project has the events
    #[arg(long, value_name = "NAME", conflicts_with = "write_ndjson")]
    pub new_project: Option<String>,
    /// Personal API key that makes the project; without one, the server that runs on --data-dir makes it, and the events
    /// are sent there
    #[arg(long, env = "WEIR_PERSONAL_API_KEY", hide_env_values = true)]
    pub key: Option<String>,
    /// Data directory of a server on this machine
    #[arg(long, env = "WEIR_DATA_DIR", default_value = "./weir-data")]
    pub data_dir: PathBuf,
    /// Total number of events to send [default: 100000 unless --duration is given]
    #[arg(long)]
    pub events: Option<u64>,
    /// Time after which no further batch is sent, as in 30s
    #[arg(long, value_parser = humantime::parse_duration)]
    pub duration: Option<Duration>,
    /// Events per request
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    pub batch: u32,
    /// Number of connections, each with one request at a time
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    pub connections: u16,
    /// Compression of request bodies
    #[arg(long, value_enum, default_value_t = Compression::Gzip)]
    pub compression: Compression,
    /// Events per second to send, however fast the server answers (open loop) [default: the next batch when
    /// the previous one is answered]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub rate: Option<u64>,
    /// Whether to build and compress all bodies before the measurement starts; auto does below 1 GiB
    #[arg(long, value_enum, default_value_t = Prebuild::Auto, num_args = 0..=1, default_missing_value = "always")]
    pub prebuild: Prebuild,
    /// Number of persons in the events; each has a device id and a user id
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub distinct_ids: u64,
    /// Distribution of events over persons: zipf gives most events to few persons, even gives each person
    /// two events first, to create many persons
    #[arg(long, value_enum, default_value_t = Persons::Zipf)]
    pub persons_choice: Persons,
    /// Seed of the random generator of the events
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// End of the time span of the events, RFC 3339 [default: now]
    #[arg(long)]
    pub now: Option<DateTime<Utc>>,
    /// Length of the time span of the events
    #[arg(long, default_value = "24h", value_parser = humantime::parse_duration)]
    pub span: Duration,
    /// Process id of the server on this machine, to report its CPU time and memory (Linux)
    #[arg(long)]
    pub server_pid: Option<u32>,
    /// Print the report as one JSON object
    #[arg(long)]
    pub json: bool,
    /// Write the events to this file instead of a server, one JSON object per line
    #[arg(long, value_name = "FILE", conflicts_with_all = ["duration", "rate", "server_pid"])]
    pub write_ndjson: Option<PathBuf>,
}

/// Distribution of events over persons, see [`Choice`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Persons {
    /// By Zipf's law.
    Zipf,
    /// First each person once, which takes about twice as many events as persons, then uniform.
    Even,
}

/// When request bodies are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Prebuild {
    /// Before the measurement starts if the number of events is known and they take less than 1 GiB.
    Auto,
    /// Before the measurement starts.
    Always,
    /// While sending.
    Never,
}

/// Events to send if neither `--events` nor `--duration` is given.
const EVENTS_DEFAULT: u64 = 100_000;
/// Events that take 1 GiB before compression, at about 1,000 bytes each.
const PREBUILD_EVENTS_MAX: u64 = 1_000_000;

/// Sends the load and writes the report to the standard output, or writes the file of
/// `--write-ndjson`.
///
/// # Errors
///
/// The options contradict each other, the file or the server's process cannot be read or written, or any
/// request failed (after the report).
pub async fn run(mut args: LoadArgs, clock: Clock) -> anyhow::Result<()> {
    let token = match &args.new_project {
        Some(name) => {
            let made = project::make(&args, name).await?;
            let said = format!("project {} ({name}) with the token {}", made.id, made.token);
            writeln!(io::stderr(), "{said}")?;
            args.url = made.url;
            made.token
        }
        None => args.token.clone().unwrap_or_default(),
    };
    let now = args.now.map_or_else(|| clock.now(), UnixMicros::from);
    let choice = match args.persons_choice {
        Persons::Zipf => Choice::Zipf,
        Persons::Even => Choice::Even,
    };
    let settings = Settings {
        persons: args.distinct_ids,
        choice,
        span: args.span,
        ..Settings::new(&token, now)
    };
    let stream = Stream::new(args.seed, settings);
    if let Some(path) = args.write_ndjson {
        let events = args.events.unwrap_or(EVENTS_DEFAULT);
        return tokio::task::spawn_blocking(move || write_ndjson(stream, events, &path)).await?;
    }
    let report = measure(&args, stream, &clock).await?;
    let mut out = io::stdout().lock();
    if args.json {
        report.write_json(&mut out)?
    } else {
        report.write_text(&mut out)?
    }
    out.flush()?;
    anyhow::ensure!(report.is_clean(), "some requests failed");
    Ok(())
}

async fn measure(args: &LoadArgs, stream: Stream, clock: &Clock) -> anyhow::Result<Report> {
    let target = Target::new(&args.url, &args.path, args.compression)?;
    let events = match (args.events, args.duration) {
        (None, None) => Some(EVENTS_DEFAULT),
        (events, _) => events,
    };
    let supply = Supply::new(stream, args.batch, events);
    let mut producers = JoinSet::new();
    let bodies = match (args.prebuild, events) {
        (Prebuild::Always, None) => anyhow::bail!("--prebuild needs --events"),
        (Prebuild::Auto, Some(events)) if events < PREBUILD_EVENTS_MAX => {
            Bodies::build(supply, args.compression).await?
        }
        (Prebuild::Always, Some(_)) => Bodies::build(supply, args.compression).await?,
        _ => Bodies::stream(supply, args.compression, args.connections, &mut producers),
    };
    let before = args.server_pid.map(Usage::read).transpose()?;
    let progress = progress(events);
    let started = clock.monotonic();
    let drive = Arc::new(Drive {
        clock: clock.clone(),
        http: connections(&args.tls)?,
        target,
        bodies,
        pace: args.rate.map_or(Pace::Closed, |rate| Pace::open(rate, args.batch)),
        started,
        ends: args.duration.map(|duration| started + duration),
        requests: std::sync::atomic::AtomicU64::new(0),
        progress: progress.clone(),
    });
    let mut tally = Tally::new()?;
    let mut workers = JoinSet::new();
    for _ in 0..args.connections {
        workers.spawn(client::work(Arc::clone(&drive)));
    }
    while let Some(worker) = workers.join_next().await {
        tally.merge(worker??)?;
    }
    let elapsed = clock.monotonic().saturating_sub(started);
    // If the server has ended, there is no usage to report.
    let after = args.server_pid.and_then(|pid| Usage::read(pid).ok());
    progress.finish_and_clear();
    // Closes the channel, which ends the producers.
    drop(drive);
    while let Some(producer) = producers.join_next().await {
        producer?;
    }
    let server = before.zip(after).map(|(before, after)| after.since(&before));
    Ok(Report::new(&tally, elapsed, server))
}

/// A progress bar on a terminal; nothing elsewhere.
fn progress(events: Option<u64>) -> ProgressBar {
    progress::bar(
        events,
        match events {
            Some(_) => "{bar:40} {human_pos}/{human_len} events, {per_sec}, {eta} left",
            None => "{spinner} {human_pos} events, {per_sec}, {elapsed}",
        },
    )
}

/// Writes `events` events of `stream` to `path`, one JSON object per line. Replaces the file.
fn write_ndjson(mut stream: Stream, events: u64, path: &Path) -> anyhow::Result<()> {
    const LINES: u64 = 1_000;
    let context = || format!("write {}", path.display());
    let mut file = File::create(path).with_context(context)?;
    let mut left = events;
    while left > 0 {
        let count = left.min(LINES);
        file.write_all(&stream.lines(usize::try_from(count)?).body).with_context(context)?;
        left -= count;
    }
    Ok(())
}
