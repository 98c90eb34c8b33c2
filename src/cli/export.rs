//! `weir export`: events, persons, definitions, flags, or all of a project as files, over the API with a personal key.
//!
//! Rows are asked for by SQL and written as they come; nothing is in memory as a whole. An answer that is cut off breaks the
//! connection, so that no part of one is taken for the whole. Files in PostHog's schema are rewritten
//! ([`weir_import::posthog_files`]) from a Parquet answer, which is kept in a temporary file meanwhile.

use std::fs;
use std::io::{self, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use chrono::{DateTime, SecondsFormat, Utc};
use clap::ValueEnum;
use hyper::Method;
use serde_json::{Value, json};

use crate::cli::client::next;
use crate::cli::files;
use crate::cli::project_api::{ProjectApi, ProjectArgs};
use weir_import::posthog_files::{self, Rows};

/// Export events, persons, definitions, flags, or all of a project
#[derive(Clone, Debug, clap::Args)]
pub struct ExportArgs {
    /// What to export
    #[arg(value_enum)]
    pub what: What,
    /// Format of tables: events and persons as PostHog's batch exports have them (posthog-...), or all with the columns of
    /// SQL; flags and other lists are always jsonl [default: posthog-parquet for events, persons and projects, else jsonl]
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// File, or for definitions and projects a directory, which is created; standard output if it is missing
    #[arg(long, value_name = "FILE|DIR")]
    pub out: Option<PathBuf>,
    /// The project.
    #[command(flatten)]
    pub project: ProjectArgs,
    /// Only events from this time on, RFC 3339
    #[arg(long)]
    pub from: Option<DateTime<Utc>>,
    /// Only events before this time, RFC 3339
    #[arg(long)]
    pub to: Option<DateTime<Utc>>,
}

/// What is exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// Events.
    Events,
    /// Persons, one row for each distinct id.
    Persons,
    /// Definitions of events and of properties.
    Definitions,
    /// Feature flags.
    Flags,
    /// All of these, and cohorts, actions, annotations, insights and dashboards.
    Project,
}

/// How it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Parquet in the schema of PostHog's batch exports.
    PosthogParquet,
    /// JSON lines in that schema.
    PosthogJsonl,
    /// Parquet with the columns of the table.
    Parquet,
    /// CSV with the columns of the table.
    Csv,
    /// JSON lines with the columns of the table.
    Jsonl,
}

impl Format {
    /// The end of the names of files.
    fn ending(self) -> &'static str {
        match self {
            Self::PosthogParquet | Self::Parquet => "parquet",
            Self::PosthogJsonl | Self::Jsonl => "jsonl",
            Self::Csv => "csv",
        }
    }
}

/// Lists of a project that are written as JSON lines, by the names of their endpoints.
const LISTS: [&str; 7] = [
    "feature_flags",
    "cohorts",
    "actions",
    "annotations",
    "insights",
    "dashboards",
    "early_access_feature",
];

/// Exports.
///
/// # Errors
///
/// The server cannot be reached or refuses, a file cannot be written, or the answer is incomplete. What was written of a
/// file is removed then.
pub async fn run(args: ExportArgs) -> anyhow::Result<()> {
    let api = ProjectApi::new(&args.project)?;
    let default = match args.what {
        What::Events | What::Persons | What::Project => Format::PosthogParquet,
        What::Definitions | What::Flags => Format::Jsonl,
    };
    let export =
        Export { api, format: args.format.unwrap_or(default), from: args.from, to: args.to };
    let single = args.out.as_deref();
    match args.what {
        What::Events => export.events(single).await,
        What::Persons => export.persons(single).await,
        What::Flags => {
            ensure!(export.format == Format::Jsonl, "flags are exported as jsonl only");
            export.list("feature_flags", single).await
        }
        What::Definitions => {
            let directory = directory(single)?;
            export.definitions(directory).await
        }
        What::Project => export.project(directory(single)?).await,
    }
}

fn directory(out: Option<&Path>) -> anyhow::Result<&Path> {
    let directory = out.context("--out DIR is needed, because there are several files")?;
    let created = fs::create_dir_all(directory);
    created.with_context(|| format!("cannot create {}", directory.display()))?;
    Ok(directory)
}

/// An export under way.
#[derive(Debug)]
struct Export {
    api: ProjectApi,
    format: Format,
    from: Option<DateTime<Utc>>,
    to: Option<DateTime<Utc>>,
}

impl Export {
    async fn events(&self, out: Option<&Path>) -> anyhow::Result<()> {
        let time = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::Micros, true);
        let from = self.from.map(|at| format!("e.timestamp >= '{}'", time(at)));
        let to = self.to.map(|at| format!("e.timestamp < '{}'", time(at)));
        let conditions: Vec<String> = [from, to].into_iter().flatten().collect();
        let bounds = match conditions.is_empty() {
            true => String::new(),
            false => format!(" WHERE {}", conditions.join(" AND ")),
        };
        match self.format {
            Format::PosthogParquet | Format::PosthogJsonl => {
                let sql = format!(
                    "SELECT e.uuid, e.event, e.distinct_id, e.person_id, e.properties, p.properties AS person_properties, \
                     e.elements_chain, e.timestamp, e.received_at FROM events e LEFT JOIN persons p ON p.uuid = e.person_id\
                     {bounds}"
                );
                self.posthog(Rows::Events, &sql, out).await
            }
            _ => self.table(&format!("SELECT * FROM events e{bounds}"), out).await,
        }
    }

    async fn persons(&self, out: Option<&Path>) -> anyhow::Result<()> {
        const FROM: &str = "FROM person_distinct_ids d JOIN persons p ON p.uuid = d.person_id";
        match self.format {
            Format::PosthogParquet | Format::PosthogJsonl => {
                let sql =
                    format!("SELECT d.distinct_id, d.person_id, p.properties, p.created_at {FROM}");
                self.posthog(Rows::Persons, &sql, out).await
            }
            _ => {
                let sql = format!(
                    "SELECT d.distinct_id, d.person_id, p.properties, p.created_at, p.is_identified {FROM}"
                );
                self.table(&sql, out).await
            }
        }
    }

    async fn definitions(&self, directory: &Path) -> anyhow::Result<()> {
        for table in ["event_definitions", "property_definitions"] {
            let path = directory.join(format!("{table}.{}", self.format.ending()));
            self.table(&format!("SELECT * FROM {table}"), Some(&path)).await?;
        }
        Ok(())
    }

    async fn project(&self, directory: &Path) -> anyhow::Result<()> {
        let file = |name: &str, ending: &str| directory.join(format!("{name}.{ending}"));
        let ending = self.format.ending();
        self.persons(Some(&file("persons", ending))).await?;
        self.events(Some(&file("events", ending))).await?;
        self.definitions(directory).await?;
        for list in LISTS {
            self.list(list, Some(&file(list, "jsonl"))).await?;
        }
        let project: Value = serde_json::from_slice(&self.api.get("").await?)?;
        let mut out = Out::create(Some(&file("project", "json")))?;
        serde_json::to_writer_pretty(&mut out, &project)?;
        out.finish()
    }

    /// Writes the answer to a query as it comes.
    async fn query(&self, sql: &str, format: &str, out: &mut impl Write) -> anyhow::Result<()> {
        let body = json!({"query": sql, "format": format});
        let answer = self.api.send(Method::POST, "query/", Some(&body)).await?;
        let mut body = answer.into_body();
        while let Some(data) = next(&mut body).await? {
            out.write_all(&data)?;
        }
        Ok(out.flush()?)
    }

    /// The rows of a query in a format that the server writes.
    async fn table(&self, sql: &str, out: Option<&Path>) -> anyhow::Result<()> {
        let mut file = Out::create(out)?;
        self.query(sql, self.format.ending(), &mut file).await?;
        file.finish()
    }

    /// The rows of a query in PostHog's schema.
    async fn posthog(&self, rows: Rows, sql: &str, out: Option<&Path>) -> anyhow::Result<()> {
        let file = tempfile::tempfile().context("cannot create a temporary file")?;
        let mut writer = BufWriter::new(file);
        self.query(sql, "parquet", &mut writer).await?;
        let mut answer = writer.into_inner().map_err(io::IntoInnerError::into_error)?;
        answer.rewind()?;
        let mut file = Out::create(out)?;
        let format = self.format;
        let written = tokio::task::spawn_blocking(move || {
            match format {
                Format::PosthogParquet => posthog_files::write_parquet(rows, answer, &mut file),
                _ => posthog_files::write_lines(rows, answer, &mut file),
            }?;
            anyhow::Ok(file)
        });
        written.await??.finish()
    }

    /// All pages of a list as JSON lines.
    async fn list(&self, name: &str, out: Option<&Path>) -> anyhow::Result<()> {
        const PAGE_ITEMS: usize = 100;
        let mut file = Out::create(out)?;
        let mut offset = 0;
        loop {
            let page = self.api.get(&format!("{name}/?limit={PAGE_ITEMS}&offset={offset}")).await?;
            let page: Value = serde_json::from_slice(&page)?;
            let results = page.get("results").and_then(Value::as_array);
            let results = results.with_context(|| format!("{name} is no list"))?;
            for item in results {
                match item.get("id").and_then(Value::as_i64).filter(|_| name == "dashboards") {
                    // Lists of dashboards have no tiles.
                    Some(id) => file.write_all(&self.api.get(&format!("{name}/{id}/")).await?)?,
                    None => serde_json::to_writer(&mut file, item)?,
                }
                file.write_all(b"\n")?;
            }
            offset += results.len();
            if results.is_empty() || page.get("next").is_none_or(Value::is_null) {
                return file.finish();
            }
        }
    }
}

/// A file under a temporary name until it is whole, or the standard output.
#[derive(Debug)]
enum Out {
    Standard(io::Stdout),
    File { writer: BufWriter<tempfile::NamedTempFile>, path: PathBuf },
}

impl Out {
    fn create(path: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = path.filter(|path| *path != Path::new("-")) else {
            return Ok(Self::Standard(io::stdout()));
        };
        let file = files::beside(path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self::File { writer: BufWriter::new(file), path: path.to_owned() })
    }

    /// Gives the file its name.
    fn finish(self) -> anyhow::Result<()> {
        match self {
            Self::Standard(mut out) => Ok(out.flush()?),
            Self::File { writer, path } => {
                let file = writer.into_inner().map_err(io::IntoInnerError::into_error)?;
                files::rename(file, &path)
                    .with_context(|| format!("cannot write {}", path.display()))
            }
        }
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Standard(out) => out.write(bytes),
            Self::File { writer, .. } => writer.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Standard(out) => out.flush(),
            Self::File { writer, .. } => writer.flush(),
        }
    }
}
