//! Settings of the process log: level filter and format.

use tracing_subscriber::EnvFilter;

/// Other crates that a log filter may name. A crate whose name starts with one of these and an underscore
/// counts too.
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

/// The modules of this crate. A log target starts with one of them: `weir::http`.
const MODULES: [&str; 22] = [
    "app",
    "cli",
    "clock",
    "config",
    "error",
    "evaluation",
    "event",
    "flags",
    "geoip",
    "http",
    "identity",
    "ingest",
    "insights",
    "maintenance",
    "metadata",
    "query",
    "storage",
    "synth",
    "tasks",
    "telemetry",
    "web",
    "wire",
];

/// Level and format of the log on standard error.
#[derive(Clone, Debug, clap::Args)]
pub struct TelemetryConfig {
    /// Log level, or a list of `target=level`
    #[arg(long, env = "WEIR_LOG", default_value = "info,fjall=warn,lsm_tree=warn", value_parser = filter)]
    pub log: String,
    /// Format of log lines
    #[arg(long, env = "WEIR_LOG_FORMAT", default_value = "text")]
    pub log_format: LogFormat,
}

/// Format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// One line of text per entry, for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Checks a log filter. `EnvFilter` alone accepts a misspelt level as the name of a target, which never has
/// any entries.
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

/// Whether `text` is a log target of this crate or of one of [`CRATES`]. Spans and fields (`[...]`) are not
/// supported.
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
