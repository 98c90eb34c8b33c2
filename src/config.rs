//! Settings: one struct per section, each field with its unit, its default and its meaning.
//!
//! Every setting is a flag (`--wal-segment-max-bytes`), an environment variable
//! (`WEIR_WAL_SEGMENT_MAX_BYTES`) and a key of an optional TOML file (`wal-segment-max-bytes`);
//! the flag wins over the variable, the variable over the file. The file's values become the
//! defaults of the flags before the command line is parsed, so that all three go through one
//! parser with one set of checks. No other file reads the environment.

pub mod http;
pub mod ingest;
pub mod networks;
pub mod query;
pub mod storage;
pub mod telemetry;

use std::path::Path;

/// All settings of the server.
#[derive(Clone, Debug, clap::Args)]
pub struct Config {
    /// The HTTP front end.
    #[command(flatten, next_help_heading = "HTTP")]
    pub http: http::HttpConfig,
    /// From request body to log.
    #[command(flatten, next_help_heading = "Ingest")]
    pub ingest: ingest::IngestConfig,
    /// Log, memtable, tables.
    #[command(flatten, next_help_heading = "Storage")]
    pub storage: storage::StorageConfig,
    /// Limits of questions.
    #[command(flatten, next_help_heading = "Query")]
    pub query: query::QueryConfig,
    /// Logs.
    #[command(flatten, next_help_heading = "Telemetry")]
    pub telemetry: telemetry::TelemetryConfig,
}

/// What a request body may have at most as it is sent: with what is noted beside it, it must fit into
/// one record of the log, which has at most 1 GiB.
const BODY_BOUND_BYTES: u64 = 960 << 20;

impl Config {
    /// Checks what no single field can check.
    ///
    /// # Errors
    ///
    /// The sentence to show to the operator.
    pub fn check(&self) -> Result<(), String> {
        if self.http.body_max_bytes.as_u64() > self.http.body_plain_max_bytes.as_u64() {
            return Err("body-max-bytes must not exceed body-plain-max-bytes".to_owned());
        }
        if self.http.body_max_bytes.as_u64() > BODY_BOUND_BYTES {
            return Err("body-max-bytes must not exceed 960MiB".to_owned());
        }
        if self.storage.wal_max_bytes.as_u64() < 2 * self.storage.wal_segment_max_bytes.as_u64() {
            return Err("wal-max-bytes must be at least twice wal-segment-max-bytes".to_owned());
        }
        Ok(())
    }
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
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let table: toml::Table =
        text.parse().map_err(|error| format!("{} is not TOML: {error}", path.display()))?;
    for (key, value) in table {
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
    use clap::Args;
    use clap::FromArgMatches;

    use super::Config;

    /// One row of the table in README.md for each setting, in the order of `--help`.
    fn rows() -> String {
        let mut rows = String::new();
        let command = Config::augment_args(clap::Command::new("weir"));
        for argument in command.get_arguments() {
            let name = argument.get_long().expect("every setting is a flag");
            let variable = format!("WEIR_{}", name.replace('-', "_").to_uppercase());
            assert_eq!(argument.get_env(), Some(variable.as_ref()), "{name}");
            let help = argument.get_help().expect("every setting is explained").to_string();
            let defaults = argument.get_default_values().first();
            let default = defaults.map(|value| format!("`{}`", value.display()));
            let (help, told) = match help.split_once(" [default: ") {
                Some((help, told)) => (help, Some(told.trim_end_matches(']').to_owned())),
                None => (help.as_str(), None),
            };
            let default = default.or(told).expect("every setting has a default");
            rows += &format!("| `{name}` | {default} | {help} |\n");
        }
        rows
    }

    #[test]
    fn no_body_is_allowed_that_the_log_cannot_take() {
        let check = |bytes: &str| {
            let command = Config::augment_args(clap::Command::new("weir"));
            let flags = ["weir", "--body-max-bytes", bytes, "--body-plain-max-bytes", "8GiB"];
            let matches = command.get_matches_from(flags);
            Config::from_arg_matches(&matches).expect("settings").check()
        };
        assert_eq!(check("960MiB"), Ok(()));
        assert!(check("961MiB").is_err());
        assert!(check("2GiB").is_err());
    }

    #[test]
    fn readme_lists_every_setting_as_it_is() {
        let rows = rows();
        assert!(
            include_str!("../README.md").contains(&rows),
            "put these rows into README.md:\n{rows}"
        );
    }
}
