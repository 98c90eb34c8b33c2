//! Settings: one struct per section, each field with its unit, its default and its meaning.
//!
//! Every setting is a flag (`--wal-segment-max-bytes`), an environment variable
//! (`WEIR_WAL_SEGMENT_MAX_BYTES`) and a key of an optional TOML file (`wal-segment-max-bytes`);
//! the flag wins over the variable, the variable over the file. The file's values become the
//! defaults of the flags before the command line is parsed, so that all three go through one
//! parser with one set of checks. No other file reads the environment.

mod bounds;
pub mod bucket;
pub mod cluster;
pub mod http;
pub mod ingest;
pub mod metadata;
pub mod networks;
pub mod postgres_port;
pub mod query;
pub mod storage;
pub mod telemetry;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use bytesize::ByteSize;

use crate::config::bucket::{Encryption, LogPlace};

/// All settings of the server.
#[derive(Clone, Debug, clap::Args)]
pub struct Config {
    /// The HTTP front end.
    #[command(flatten, next_help_heading = "HTTP")]
    pub http: http::HttpConfig,
    /// The write path, from request body to log.
    #[command(flatten, next_help_heading = "Ingest")]
    pub ingest: ingest::IngestConfig,
    /// Log, memtable, tables.
    #[command(flatten, next_help_heading = "Storage")]
    pub storage: storage::StorageConfig,
    /// Where the metadata are.
    #[command(flatten, next_help_heading = "Metadata")]
    pub metadata: metadata::MetadataConfig,
    /// Limits of queries.
    #[command(flatten, next_help_heading = "Query")]
    pub query: query::QueryConfig,
    /// The port for clients of PostgreSQL.
    #[command(flatten, next_help_heading = "PostgreSQL port")]
    pub postgres_port: postgres_port::PostgresPortConfig,
    /// Queries over several nodes.
    #[command(flatten, next_help_heading = "Cluster")]
    pub cluster: cluster::ClusterConfig,
    /// The process log.
    #[command(flatten, next_help_heading = "Telemetry")]
    pub telemetry: telemetry::TelemetryConfig,
}

/// Settings whose values each parse, but are invalid together or in this environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// Their names.
    pub settings: &'static [&'static str],
    /// What is wrong, in words for the operator.
    pub problem: String,
}

impl Config {
    /// The settings of one of at most `shards_max` shards of a process, with its files in `data_dir`: of the memory and the
    /// disk that a shard has for itself it gets its part, so that all together keep within the settings.
    #[must_use]
    pub fn of_shard(&self, data_dir: PathBuf, shards_max: usize) -> Self {
        let parts = shards_max.max(1);
        let part = |bytes: ByteSize| ByteSize(bytes.as_u64() / u64::try_from(parts).unwrap_or(1));
        let mut own = self.clone();
        own.storage.data_dir = data_dir;
        own.storage.memtable_max_bytes = part(self.storage.memtable_max_bytes);
        own.storage.compaction_memory_max_bytes = part(self.storage.compaction_memory_max_bytes);
        own.ingest.identity_cache_max_bytes = part(self.ingest.identity_cache_max_bytes);
        own.ingest.dedup_window_events = (self.ingest.dedup_window_events / parts).max(1);
        own.query.person_columns_memory_max_bytes =
            part(self.query.person_columns_memory_max_bytes);
        own.query.query_spill_max_bytes = part(self.query.query_spill_max_bytes);
        own
    }

    /// Checks what the parser of a single value cannot: combinations of settings, and that paths exist.
    ///
    /// # Errors
    ///
    /// Which settings cannot be used, and why.
    pub fn check(&self) -> Result<(), Unusable> {
        let unusable = |settings, problem: String| Err(Unusable { settings, problem });
        if self.http.body_max_bytes.as_u64() > self.http.body_plain_max_bytes.as_u64() {
            let settings = &["body-max-bytes", "body-plain-max-bytes"];
            return unusable(settings, "body-max-bytes exceeds body-plain-max-bytes".to_owned());
        }
        if self.storage.wal_max_bytes.as_u64() < 2 * self.storage.wal_segment_max_bytes.as_u64() {
            let settings = &["wal-max-bytes", "wal-segment-max-bytes"];
            let problem = "wal-max-bytes is less than twice wal-segment-max-bytes";
            return unusable(settings, problem.to_owned());
        }
        let bucket = &self.storage.bucket;
        if bucket.storage_kms_key.is_some() && bucket.storage_encryption != Encryption::Kms {
            let settings = &["storage-kms-key", "storage-encryption"];
            return unusable(settings, "storage-kms-key needs storage-encryption kms".to_owned());
        }
        let is_alone = bucket.storage_url.is_none() || self.metadata.metadata_url.is_none();
        if bucket.storage_log == LogPlace::Bucket && is_alone {
            let settings = &["storage-log", "storage-url", "metadata-url"];
            let problem = "storage-log bucket needs storage-url and metadata-url: what they leave in \
                           data-dir would not be on another machine";
            return unusable(settings, problem.to_owned());
        }
        if let Some(path) = self.http.static_dir.as_deref().filter(|path| !path.is_dir()) {
            return unusable(&["static-dir"], format!("there is no directory {}", path.display()));
        }
        if let Some(path) = self.ingest.geoip_file.as_deref().filter(|path| !path.is_file()) {
            return unusable(&["geoip-file"], format!("there is no file {}", path.display()));
        }
        if let Some((settings, problem)) = self.postgres_port.problem() {
            return unusable(settings, problem);
        }
        if let Some((settings, problem)) = self.cluster.problem() {
            return unusable(settings, problem);
        }
        if !self.cluster.cluster_workers.is_empty() && bucket.storage_url.is_none() {
            let problem = "workers read files of a bucket: set storage-url".to_owned();
            return unusable(&["cluster-workers", "storage-url"], problem);
        }
        Ok(())
    }
}

/// Where the value of a setting comes from.
#[derive(Clone, Copy, Debug)]
pub struct Origins<'a> {
    /// The command line.
    pub arguments: &'a [OsString],
    /// The settings file, if there is one.
    pub file: Option<&'a Path>,
}

impl Origins<'_> {
    /// The source of the value of `setting`, in words: the first of flag, variable, file and default that
    /// has one.
    pub fn of(&self, setting: &str) -> String {
        let flag = format!("--{setting}");
        let is_flag = |argument: &OsString| {
            let rest = argument.to_str().and_then(|text| text.strip_prefix(&flag));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        };
        if self.arguments.iter().any(is_flag) {
            return format!("the flag {flag}");
        }
        let variable = variable(setting);
        if std::env::var_os(&variable).is_some() {
            return format!("the environment variable {variable}");
        }
        let has_key = |path: &&Path| read_file(path).is_ok_and(|file| file.contains_key(setting));
        match self.file.filter(has_key) {
            Some(path) => format!("{setting} in the file {}", path.display()),
            None => format!("the default of {setting}"),
        }
    }

    /// `unusable` with the origin of each of its settings.
    pub fn explain(&self, unusable: &Unusable) -> String {
        let origins: Vec<String> =
            unusable.settings.iter().map(|setting| self.of(setting)).collect();
        format!("{}: {}", origins.join(", "), unusable.problem)
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.settings.join(", "), self.problem)
    }
}

/// The environment variable of a setting.
fn variable(setting: &str) -> String {
    format!("WEIR_{}", setting.replace('-', "_").to_uppercase())
}

fn read_file(path: &Path) -> Result<toml::Table, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read the settings file {}: {error}", path.display()))?;
    text.parse().map_err(|error| format!("{} is not TOML: {error}", path.display()))
}

/// Replaces the defaults of `command` by the values of the TOML file at `path`.
///
/// # Errors
///
/// The file cannot be read, is not TOML, has a key that names no setting, or a value that is
/// neither a string, a number nor a boolean.
pub fn with_file_defaults(
    mut command: clap::Command,
    path: &Path,
) -> Result<clap::Command, String> {
    for (key, value) in read_file(path)? {
        let value = match value {
            toml::Value::String(text) => text,
            toml::Value::Integer(_) | toml::Value::Float(_) | toml::Value::Boolean(_) => {
                value.to_string()
            }
            _ => return Err(format!("{}: {key} must be a single value", path.display())),
        };
        let id = key.replace('-', "_");
        if command.get_arguments().all(|argument| argument.get_id() != id.as_str()) {
            return Err(format!("{}: there is no setting {key}", path.display()));
        }
        command = command.mut_arg(id, |argument| argument.default_value(value));
    }
    Ok(command)
}

/// The settings file that the environment names.
pub fn config_file() -> Option<std::path::PathBuf> {
    std::env::var_os("WEIR_CONFIG").map(std::path::PathBuf::from)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::Path;

    use clap::{Arg, Args, FromArgMatches};

    use super::{Config, Origins, Unusable, variable};

    /// Settings without a range.
    const UNBOUNDED: [&str; 23] = [
        "listen",
        "public-url",
        "trusted-proxies",
        "static-dir",
        "geoip-file",
        "data-dir",
        "metadata-url",
        "storage-url",
        "storage-endpoint",
        "storage-region",
        "storage-kms-key",
        "postgres-listen",
        "postgres-tls-cert",
        "postgres-tls-key",
        "node-url",
        "cluster-listen",
        "cluster-url",
        "cluster-workers",
        "cluster-secret",
        "cluster-tls-cert",
        "cluster-tls-key",
        "cluster-tls-ca",
        "log",
    ];

    const SECRET: &str = "0123456789abcdef0123456789abcdef";

    fn command() -> clap::Command {
        Config::augment_args(clap::Command::new("weir"))
    }

    fn parse(flags: &[&str]) -> Result<Config, clap::Error> {
        let flags = std::iter::once("weir").chain(flags.iter().copied());
        Config::from_arg_matches(&command().try_get_matches_from(flags)?)
    }

    /// The range in a help text.
    fn range(argument: &Arg) -> Option<String> {
        let help = argument.get_help().expect("every setting is explained").to_string();
        let (_, rest) = help.split_once(" [range: ")?;
        rest.split(']').next().map(str::to_owned)
    }

    /// Goal: files for operators name settings that exist.
    #[test]
    fn deployments_have_settings() {
        let known: Vec<String> =
            command().get_arguments().filter_map(|own| own.get_long()).map(variable).collect();
        for file in [
            include_str!("../../scripts/deploy/pair.env"),
            include_str!("../../scripts/deploy/compose.yml"),
            include_str!("../../scripts/deploy/shards.env"),
            include_str!("../../scripts/deploy/shards.yml"),
            include_str!("../../scripts/deploy/workers.env"),
            include_str!("../../scripts/deploy/workers.yml"),
        ] {
            let words = file.split(|letter: char| letter != '_' && !letter.is_ascii_uppercase());
            let named: Vec<&str> = words.filter(|word| word.starts_with("WEIR_")).collect();
            assert!(!named.is_empty());
            for name in named {
                assert!(known.iter().any(|own| own == name), "{name}");
            }
        }
    }

    /// Goal: the range in the help text is the range of the parser. Method: the parser accepts both ends, and
    /// rejects the values that are beyond by the smallest step.
    #[test]
    fn ranges_are_those_of_the_help_texts() {
        for argument in command().get_arguments() {
            let name = argument.get_long().expect("every setting is a flag");
            let flag = format!("--{name}");
            let range = range(argument);
            let choices = argument.get_possible_values();
            if UNBOUNDED.contains(&name) || !choices.is_empty() {
                assert_eq!(range, None, "{name}");
                continue;
            }
            let range = range.unwrap_or_else(|| panic!("{name} has no range"));
            let (least, greatest) = range.split_once(" to ").expect("two ends");
            let takes = |value: &str| match parse(&[&format!("{flag}={value}")]) {
                Ok(_) => true,
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.contains(&flag), "{text}");
                    false
                }
            };
            for end in [least, greatest] {
                assert!(takes(end), "{name}: {end}");
            }
            for beyond in [below(least), above(greatest)].into_iter().flatten() {
                assert!(!takes(&beyond), "{name}: {beyond}");
            }
            for odd in ["", "-1", "many", "NaN"] {
                assert!(!takes(odd), "{name}: {odd:?}");
            }
        }
    }

    /// A value just below `least`, in the smallest unit of its kind; `None` for zero.
    fn below(least: &str) -> Option<String> {
        neighbour(least, |number| number.checked_sub(1))
    }

    fn above(greatest: &str) -> Option<String> {
        neighbour(greatest, |number| number.checked_add(1))
    }

    fn neighbour(value: &str, step: impl Fn(u128) -> Option<u128>) -> Option<String> {
        if let Ok(number) = value.parse::<u128>() {
            return step(number).map(|number| number.to_string());
        }
        if let Ok(size) = value.parse::<bytesize::ByteSize>() {
            return step(u128::from(size.as_u64())).map(|bytes| bytes.to_string());
        }
        let time = humantime::parse_duration(value).expect("a number, a size or a time");
        step(time.as_nanos()).map(|nanos| format!("{nanos}ns"))
    }

    /// Goal: the name of a setting is that of its variable, too.
    #[test]
    fn variables_are_named_after_settings() {
        for argument in command().get_arguments() {
            let name = argument.get_long().expect("every setting is a flag");
            assert_eq!(argument.get_env(), Some(variable(name).as_ref()), "{name}");
        }
    }

    #[test]
    fn settings_are_checked_together() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
        for (flags, expected) in [
            (&["--body-max-bytes", "960MiB", "--body-plain-max-bytes", "8GiB"][..], None),
            (&["--body-max-bytes", "101MiB"], Some("body-max-bytes")),
            (&["--body-plain-max-bytes", "19MiB"], Some("body-max-bytes")),
            (&["--wal-max-bytes", "128MiB"], None),
            (&["--wal-max-bytes", "127MiB"], Some("wal-max-bytes")),
            (&["--storage-encryption", "kms", "--storage-kms-key", "a"], None),
            (&["--storage-kms-key", "a"], Some("storage-kms-key")),
            (&["--storage-log", "bucket"], Some("storage-log")),
            (&["--storage-log", "bucket", "--storage-url", "s3://a"], Some("storage-log")),
            (
                &["--storage-log=bucket", "--storage-url=s3://a", "--metadata-url=postgres://b/c"],
                None,
            ),
            (&["--static-dir", env!("CARGO_MANIFEST_DIR")], None),
            (&["--static-dir", "/nonexistent/dist"], Some("static-dir")),
            (&["--static-dir", file], Some("static-dir")),
            (&["--geoip-file", file], None),
            (&["--geoip-file", "/nonexistent.mmdb"], Some("geoip-file")),
            (&["--postgres-listen", "127.0.0.1:5432"], None),
            (&["--postgres-listen", "[::1]:5432"], None),
            (&["--postgres-listen", "0.0.0.0:5432"], Some("postgres-listen")),
            (
                &[
                    "--postgres-listen=0.0.0.0:5",
                    "--postgres-tls-cert",
                    file,
                    "--postgres-tls-key",
                    file,
                ],
                None,
            ),
            (&["--postgres-tls-cert", file], Some("postgres-tls-cert")),
            (
                &["--postgres-tls-cert", file, "--postgres-tls-key", "/nonexistent.pem"],
                Some("postgres-tls-key"),
            ),
        ] {
            assert_eq!(unusable(flags), expected, "{flags:?}");
        }
    }

    /// The first of the settings that cannot be used.
    fn unusable(flags: &[&str]) -> Option<&'static str> {
        let found = parse(flags).expect("settings").check();
        found.err().and_then(|unusable| unusable.settings.first().copied())
    }

    #[test]
    fn settings_of_a_cluster_are_checked_together() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
        for (flags, expected) in [
            (&["--cluster-workers", "http://127.0.0.1:8100"][..], Some("cluster-workers")),
            (&["--cluster-listen", "127.0.0.1:8100"], Some("cluster-secret")),
            (
                &["--cluster-listen", "127.0.0.1:8100", "--cluster-secret", "short"],
                Some("cluster-secret"),
            ),
            (&["--cluster-listen", "127.0.0.1:8100", "--cluster-secret", SECRET], None),
            (
                &["--cluster-listen", "0.0.0.0:8100", "--cluster-secret", SECRET],
                Some("cluster-listen"),
            ),
            (
                &[
                    "--cluster-listen=127.0.0.1:1",
                    "--cluster-workers=http://10.0.0.6:1",
                    "--cluster-secret",
                    SECRET,
                ],
                Some("cluster-workers"),
            ),
            (
                &[
                    "--cluster-listen=127.0.0.1:1",
                    "--cluster-workers=https://10.0.0.6:1",
                    "--cluster-secret",
                    SECRET,
                    "--cluster-tls-ca",
                    file,
                ],
                Some("cluster-url"),
            ),
            (&["--cluster-tls-cert", file], Some("cluster-tls-cert")),
            (&["--cluster-tls-ca", "/nothing"], Some("cluster-tls-ca")),
            (
                &[
                    "--cluster-listen=127.0.0.1:1",
                    "--cluster-workers=https://a:1",
                    "--cluster-url=https://b:1",
                    "--cluster-secret",
                    SECRET,
                ],
                Some("cluster-workers"),
            ),
        ] {
            assert_eq!(unusable(flags), expected, "{flags:?}");
        }
    }

    #[test]
    fn origins_are_named_by_precedence() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("weir.toml");
        std::fs::write(&file, "queries-max = 0\nlog = \"info\"\n").unwrap();
        let arguments = ["serve", "--queries-max=0", "--listen", "x"].map(OsString::from);
        let origins = Origins { arguments: &arguments, file: Some(&file) };
        assert_eq!(origins.of("queries-max"), "the flag --queries-max");
        assert_eq!(origins.of("listen"), "the flag --listen");
        assert_eq!(origins.of("queries"), "the default of queries");
        assert_eq!(origins.of("log"), format!("log in the file {}", file.display()));
        let unusable = Unusable { settings: &["log", "listen"], problem: "no".to_owned() };
        let expected = format!("log in the file {}, the flag --listen: no", file.display());
        assert_eq!(origins.explain(&unusable), expected);
        let lost = Origins { arguments: &[], file: Some(Path::new("/nonexistent")) };
        assert_eq!(lost.of("log"), "the default of log");
    }
}
