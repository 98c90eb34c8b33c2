//! `weir import`: sends what other systems export to a server, as fast as it takes it.
//!
//! One thread reads the files, maps rows to events ([`weir_import`]) and puts them into batches, one for each lane; a lane
//! sends one batch at a time, and all events of a distinct id go the same lane, so that they arrive in the order of the
//! file. What the server has acknowledged is written down (`job.rs`), so that an import that was interrupted continues
//! where it was. It may also begin again: ids of events are functions of rows, and the server stores each once.

mod delivery;
mod dry;
mod job;
mod lanes;
mod reading;
mod report;
#[cfg(test)]
mod tests;
mod wire;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, ensure};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use indicatif::ProgressBar;
use tokio::task::JoinSet;

use crate::cli::client::TlsArgs;
use crate::cli::import::delivery::{Delivery, Tally};
use crate::cli::import::dry::Dry;
use crate::cli::import::job::{Job, Order};
use crate::cli::import::lanes::{Envelope, Lanes};
use crate::cli::import::reading::{Plan, Reading};
use crate::cli::import::report::Report;
use crate::cli::import::wire::Target;
use crate::cli::progress;
use weir_base::clock::Clock;
use weir_import::files::{self, Input};
use weir_import::mapping::Options;
use weir_import::moment::Times;
use weir_import::source::Kind;

/// Import events and persons that another system has exported
#[derive(Clone, Debug, clap::Args)]
pub struct ImportArgs {
    /// Files, directories, patterns in quotes, or - for the standard input; compressed and in archives as they are
    #[arg(required = true, value_name = "FILE|DIR|GLOB|-")]
    pub files: Vec<String>,
    /// The system that exported them
    #[arg(long, value_name = "SOURCE", value_parser = sources())]
    pub from: Kind,
    /// URL of the server
    #[arg(long, default_value = "http://127.0.0.1:8000")]
    pub url: String,
    /// Project API key
    #[arg(
        long,
        env = "WEIR_PROJECT_API_KEY",
        hide_env_values = true,
        required_unless_present = "dry_run"
    )]
    pub token: Option<String>,
    /// Print what would be sent, and send nothing
    #[arg(long)]
    pub dry_run: bool,
    /// What happens to properties of persons: fill sets those that a person lacks, overwrite sets all in the order of the
    /// files, ignore none
    #[arg(long, value_enum, default_value_t = PersonProperties::Fill)]
    pub person_properties: PersonProperties,
    /// Import times before 2000 and more than a day ahead, too
    #[arg(long)]
    pub any_time: bool,
    /// Add this to all times, as in 7h or -5h30m: for exports in the time of a project's zone
    #[arg(long, default_value = "0s", allow_hyphen_values = true, value_parser = offset)]
    pub time_offset: i64,
    /// Import events that only say that a session begins or ends, too
    #[arg(long)]
    pub keep_sessions: bool,
    /// Give persons their id of the source as $posthog_person_id
    #[arg(long)]
    pub keep_person_ids: bool,
    /// Name of the column that is event, distinct_id, timestamp, uuid or properties, as in event=action; for jsonl, csv and
    /// parquet
    #[arg(long, value_name = "FIELD=NAME", value_parser = column)]
    pub column: Vec<(String, String)>,
    /// Directory for what is remembered of imports: how far they are, and the rows that were refused
    #[arg(long, value_name = "DIR", default_value = "./weir-import")]
    pub work_dir: PathBuf,
    /// Begin again, also if this import was interrupted or is complete
    #[arg(long)]
    pub restart: bool,
    /// Number of connections, each with one request at a time
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub connections: u16,
    /// Print the report as one JSON object
    #[arg(long)]
    pub json: bool,
    /// For https.
    #[command(flatten)]
    pub tls: TlsArgs,
}

/// What an import does to the properties of persons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PersonProperties {
    /// Those that a person lacks are set.
    Fill,
    /// All are set, in the order of the files.
    Overwrite,
    /// None is set.
    Ignore,
}

impl PersonProperties {
    fn name(self) -> &'static str {
        match self {
            Self::Fill => "fill",
            Self::Overwrite => "overwrite",
            Self::Ignore => "ignore",
        }
    }
}

/// The names of sources.
fn sources() -> impl TypedValueParser<Value = Kind> {
    let names = PossibleValuesParser::new(Kind::ALL.map(|(name, _)| name));
    names.try_map(|name| Kind::of(&name).ok_or("there is no such source"))
}

/// A signed duration in microseconds.
fn offset(text: &str) -> Result<i64, String> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let duration = humantime::parse_duration(rest).map_err(|error| error.to_string())?;
    let micros = i64::try_from(duration.as_micros()).map_err(|error| error.to_string())?;
    Ok(micros.saturating_mul(sign))
}

fn column(text: &str) -> Result<(String, String), String> {
    const FIELDS: [&str; 5] = ["event", "distinct_id", "timestamp", "uuid", "properties"];
    let (field, name) = text.split_once('=').ok_or("expected FIELD=NAME")?;
    if !FIELDS.contains(&field) {
        return Err(format!("{field} is none of {}", FIELDS.join(", ")));
    }
    Ok((field.to_owned(), name.to_owned()))
}

/// Imports the files and prints the report.
///
/// # Errors
///
/// There are no such files, the server cannot be reached or refuses the key, or (after the report) a file could not be read
/// to its end.
pub async fn run(args: ImportArgs, clock: Clock) -> anyhow::Result<()> {
    let inputs = files::inputs(&args.files)?;
    ensure!(!inputs.is_empty(), "there are no files");
    let report = match args.dry_run {
        true => rehearse(args.clone(), inputs, clock).await?,
        false => import(args.clone(), inputs, clock).await?,
    };
    let mut out = io::stdout().lock();
    if args.json {
        report.write_json(&mut out)?;
    } else {
        report.write_text(&mut out)?;
    }
    out.flush()?;
    report.check()
}

fn options(args: &ImportArgs, clock: &Clock) -> Options {
    let times = Times { now: clock.now(), any: args.any_time, offset_micros: args.time_offset };
    Options {
        times,
        keep_sessions: args.keep_sessions,
        keep_person_ids: args.keep_person_ids,
        columns: args.column.clone(),
    }
}

/// What decides which events rows become.
fn mapping(args: &ImportArgs) -> String {
    let ImportArgs { any_time, time_offset, keep_sessions, keep_person_ids, column, .. } = args;
    let properties = args.person_properties.name();
    format!("{any_time} {time_offset} {keep_sessions} {keep_person_ids} {properties} {column:?}")
}

/// Reads everything and prints the beginning.
async fn rehearse(args: ImportArgs, inputs: Vec<Input>, clock: Clock) -> anyhow::Result<Report> {
    let (progress, started) = (progress(&inputs), clock.monotonic());
    let options = options(&args, &clock);
    let reading = tokio::task::spawn_blocking(move || {
        let plan = Plan { kind: args.from, options, inputs, progress };
        let mut dry = Dry::new(args.from, if args.json { 0 } else { dry::SHOWN_EVENTS });
        let read = Reading::new(plan).run(&mut dry)?;
        anyhow::Ok((dry, read))
    });
    let (dry, read) = reading.await??;
    let elapsed = clock.monotonic().saturating_sub(started);
    Ok(Report::new(read, &Tally::default(), elapsed).with_rehearsal(dry))
}

/// Reads everything and sends it.
async fn import(args: ImportArgs, inputs: Vec<Input>, clock: Clock) -> anyhow::Result<Report> {
    let token = args.token.clone().context("--token is needed")?;
    let target = Target::new(&args.url, &args.tls)?;
    target.reach().await?;
    let order = Order {
        from: args.from,
        url: &args.url,
        token: &token,
        files: &args.files,
        mapping: mapping(&args),
        work_dir: &args.work_dir,
        restart: args.restart,
    };
    let job = Job::open(&order, &inputs)?;
    let (progress, started) = (progress(&inputs), clock.monotonic());
    let envelope = Envelope::new(&token, args.person_properties.name());
    let (lanes, receivers) = Lanes::new(args.from, job.id(), usize::from(args.connections));
    let delivery =
        Arc::new(Delivery::new(target, envelope, clock.clone(), &job, lanes.outstanding()));
    let mut senders = JoinSet::new();
    for (lane, receiver) in receivers.into_iter().enumerate() {
        senders.spawn(Arc::clone(&delivery).run(lane, receiver));
    }
    let options = options(&args, &clock);
    let clock_of_reader = clock.clone();
    let mut reading = tokio::task::spawn_blocking(move || {
        let mut sending = job.sending(lanes, clock_of_reader, &inputs);
        let plan = Plan { kind: args.from, options, inputs, progress };
        let read = Reading::new(plan).run(&mut sending);
        // Also after an error: what is acknowledged by now need not be sent again.
        let finished = sending.finish();
        drop(sending);
        read.and_then(|read| finished.map(|()| read))
    });
    // A lane that fails closes its channel, at which the reader stops: its error is the one that tells why.
    let (mut failure, mut read) = (None, None);
    while read.is_none() || !senders.is_empty() {
        tokio::select! {
            Some(sent) = senders.join_next() => match sent {
                Ok(Err(error)) => {
                    failure = failure.or(Some(error));
                    senders.abort_all();
                }
                Err(error) if !error.is_cancelled() => return Err(error.into()),
                Ok(Ok(())) | Err(_) => {}
            },
            done = &mut reading, if read.is_none() => read = Some(done?),
        }
        if failure.is_some() && read.is_some() {
            break;
        }
    }
    if let Some(error) = failure {
        return Err(error.context("the import stopped; the same command continues it"));
    }
    let read = read.context("the reader ended")??;
    let elapsed = clock.monotonic().saturating_sub(started);
    Ok(Report::new(read, &delivery.tally(), elapsed).with_rejects(delivery.rejects_path()))
}

/// A progress bar on a terminal; nothing elsewhere.
fn progress(inputs: &[Input]) -> ProgressBar {
    let size = inputs.iter().map(Input::size).fold(0, u64::saturating_add);
    let size = Some(size).filter(|size| *size > 0);
    progress::bar(
        size,
        match size {
            Some(_) => "{bar:40} {bytes}/{total_bytes}, {msg}, {bytes_per_sec}, {eta} left",
            None => "{spinner} {bytes} read, {msg}, {elapsed}",
        },
    )
}
