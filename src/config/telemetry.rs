//! Settings of logs.

use tracing_subscriber::EnvFilter;

/// Other crates whose entries the log may have, and those whose names begin with one of them and an underscore.
const CRATES: [&str; 12] = [
    "datafusion",
    "delta",
    "deltalake",
    "fjall",
    "h2",
    "hyper",
    "lsm",
    "object",
    "parquet",
    "rustls",
    "sqlx",
    "tokio",
];

/// The modules of this crate, each the beginning of a target: `weir::http`.
const MODULES: [&str; 19] = [
    "app",
    "cli",
    "clock",
    "config",
    "error",
    "event",
    "flags",
    "geoip",
    "http",
    "identity",
    "ingest",
    "maintenance",
    "metadata",
    "query",
    "storage",
    "synth",
    "tasks",
    "telemetry",
    "wire",
];

/// Level and format of the log on standard error.
#[derive(Clone, Debug, clap::Args)]
pub struct TelemetryConfig {
    /// Level, or a list of `target=level`
    #[arg(long, env = "WEIR_LOG", default_value = "info,fjall=warn,lsm_tree=warn", value_parser = filter)]
    pub log: String,
    /// Form of a log line
    #[arg(long, env = "WEIR_LOG_FORMAT", default_value = "text")]
    pub log_format: LogFormat,
}

/// Form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Checks a filter of log entries. The parser of filters takes a misspelt level for the name of a target, of
/// which there are never any entries.
fn filter(text: &str) -> Result<String, String> {
    EnvFilter::builder().parse(text).map_err(|error| error.to_string())?;
    for directive in text.split(',').filter(|directive| !directive.is_empty()) {
        let (target, level) = match directive.split_once('=') {
            Some((target, level)) => (Some(target), level),
            None if is_level(directive) => (None, directive),
            None => (Some(directive), "trace"),
        };
        if !is_level(level) {
            return Err(format!(
                "{level} is no level; levels are off, error, warn, info, debug, trace"
            ));
        }
        if let Some(target) = target.filter(|target| !is_target(target)) {
            return Err(format!(
                "{target} is neither a level (off, error, warn, info, debug, trace) nor a target such as \
                 weir::http"
            ));
        }
    }
    Ok(text.to_owned())
}

fn is_level(text: &str) -> bool {
    ["off", "error", "warn", "info", "debug", "trace"]
        .iter()
        .any(|level| level.eq_ignore_ascii_case(text))
}

/// Whether a part of the program has this name. Spans and fields (`[...]`) are not used here.
fn is_target(target: &str) -> bool {
    let mut parts = target.split("::");
    let name = parts.next().unwrap_or_default();
    let module = parts.next();
    if name == "weir" {
        return module.is_none_or(|module| MODULES.contains(&module));
    }
    let begins = |known: &&str| {
        let rest = name.strip_prefix(*known);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    };
    CRATES.iter().any(begins)
}

#[cfg(test)]
mod tests {
    use super::MODULES;
    use super::filter;

    #[test]
    fn filters_have_known_levels_and_targets() {
        for (text, fine) in [
            ("info", true),
            ("INFO", true),
            ("off", true),
            ("", true),
            ("info,fjall=warn,lsm_tree=warn", true),
            ("warn,weir::http=debug", true),
            ("warn, weir::http=debug", false),
            ("weir::storage::wal=trace", true),
            ("weir", true),
            ("datafusion_physical_plan=debug,sqlx::query=debug,deltalake_core=debug", true),
            ("verbose", false),
            ("weir=loud", false),
            ("weir::htpp=debug", false),
            ("weird=debug", false),
            ("posthog=debug", false),
            ("a=b=c", false),
            ("info;debug", false),
        ] {
            assert_eq!(filter(text).is_ok(), fine, "{text}: {:?}", filter(text));
        }
    }

    #[test]
    fn modules_are_those_of_the_crate() {
        let root = include_str!("../lib.rs");
        let mut declared: Vec<&str> = root
            .lines()
            .filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'))
            .collect();
        declared.sort_unstable();
        assert_eq!(declared, MODULES);
    }
}
