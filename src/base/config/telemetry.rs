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

/// Names that a log filter may have after `weir::`, and where these modules are. Entries have the path of their module as
/// their target, such as `weir_storage::wal`, but those about requests, whose target is `weir::http`.
pub(crate) const MODULES: [(&str, &str); 29] = [
    ("api", "weir_api"),
    ("app", "weir_app"),
    ("cli", "weir::cli"),
    ("clock", "weir_base::clock"),
    ("cluster", "weir_cluster"),
    ("config", "weir_base::config"),
    ("disk", "weir_disk"),
    ("error", "weir_base::error"),
    ("evaluation", "weir_evaluation"),
    ("event", "weir_event"),
    ("flags", "weir_flags"),
    ("geoip", "weir_event::geoip"),
    ("http", "weir_http"),
    ("identity", "weir_identity"),
    ("import", "weir_import"),
    ("ingest", "weir_ingest"),
    ("insights", "weir_insights"),
    ("maintenance", "weir_app::maintenance"),
    ("metadata", "weir_metadata"),
    ("pg", "weir_pg"),
    ("progress", "weir_progress"),
    ("query", "weir_query"),
    ("storage", "weir_storage"),
    ("synth", "weir::synth"),
    ("tasks", "weir_base::tasks"),
    ("telemetry", "weir_base::telemetry"),
    ("transfer", "weir_transfer"),
    ("web", "weir_web"),
    ("wire", "weir_wire"),
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
        return module.is_none_or(|module| MODULES.iter().any(|(own, _)| *own == module));
    }
    if let Some(member) = name.strip_prefix("weir_") {
        return member == "base"
            || MODULES.iter().any(|(_, path)| path.split("::").next() == Some(name));
    }
    let begins = |known: &&str| {
        let rest = name.strip_prefix(*known);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    };
    CRATES.iter().any(begins)
}

#[cfg(test)]
mod tests {
    use super::{MODULES, filter};

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
            ("weir_storage::wal=trace,weir_base=debug", true),
            ("weir_htpp=debug", false),
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

    /// Goal: no member of the workspace is forgotten.
    #[test]
    fn members_have_names_in_filters() {
        let manifest = include_str!("../../../Cargo.toml");
        let members = manifest.lines().filter_map(|line| {
            let member = line.trim().strip_prefix("\"src/")?.strip_suffix("\",")?;
            (member != "sim").then(|| format!("weir_{member}"))
        });
        let members: Vec<String> = members.collect();
        assert!(members.len() > 10, "{members:?}");
        for member in members {
            assert!(filter(&format!("{member}=debug")).is_ok(), "{member}");
        }
        assert!(MODULES.is_sorted());
    }
}
