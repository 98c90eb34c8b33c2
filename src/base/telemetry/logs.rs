//! Setup of the process log on standard error: level filter, format, panic hook. No messages of other
//! modules.

use std::io::IsTerminal;

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt};

use crate::config::telemetry::{LogFormat, MODULES, TelemetryConfig};
use crate::error::Kind;

/// Why the log did not start.
#[derive(Debug, thiserror::Error)]
pub enum LogsError {
    /// The filter is neither a level nor a list of `target=level`.
    #[error("cannot read the log level {level:?}")]
    Level {
        /// As configured.
        level: String,
        /// The error of the parser.
        source: tracing_subscriber::filter::ParseError,
    },
    /// The log of the process was started before.
    #[error("the log is already started")]
    Started,
}

impl LogsError {
    /// What the receiver can do about it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Level { .. } => Kind::Invalid,
            Self::Started => Kind::Internal,
        }
    }
}

/// Sends the process's log and its panics to standard error. One line per entry; colors only if
/// standard error is a terminal; times are UTC.
///
/// Text: `2026-11-21T08:00:00.000000Z  INFO weir::http: request method=POST status=200`.
/// JSON: `{"timestamp":"..","level":"INFO","method":"POST","status":200,"target":".."}`.
///
/// # Errors
///
/// The level cannot be read, or a log was started before.
pub fn start(config: &TelemetryConfig) -> Result<(), LogsError> {
    let filter = filter(&config.log)?;
    let started = match config.log_format {
        LogFormat::Text => {
            let ansi = std::io::stderr().is_terminal();
            let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(ansi);
            tracing_subscriber::registry().with(filter).with(lines).try_init()
        }
        LogFormat::Json => {
            let lines = fmt::layer().json().flatten_event(true).with_current_span(false);
            let lines = lines.with_span_list(false).with_writer(std::io::stderr);
            tracing_subscriber::registry().with(filter).with(lines).try_init()
        }
    };
    started.map_err(|_| LogsError::Started)?;
    std::panic::set_hook(Box::new(log_panic));
    Ok(())
}

fn filter(level: &str) -> Result<EnvFilter, LogsError> {
    let filter = EnvFilter::builder().parse(with_paths(level));
    filter.map_err(|source| LogsError::Level { level: level.to_owned(), source })
}

/// A copy of the filter in which `weir::storage` also applies to the path of that module. Of several directives for a
/// target the last one counts, so the order is preserved.
fn with_paths(filter: &str) -> String {
    let mut directives = Vec::new();
    for directive in filter.split(',') {
        directives.push(directive.to_owned());
        let Some(rest) = directive.strip_prefix("weir::") else { continue };
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let (module, rest) = rest.split_at(end);
        let path = MODULES.iter().find(|(name, _)| *name == module).map(|(_, path)| *path);
        directives.extend(path.map(|path| format!("{path}{rest}")));
    }
    directives.join(",")
}

/// Panic hook that writes one log entry; the default hook prints several lines in another format.
fn log_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let message = panic.payload_as_str().unwrap_or("no message");
    let location = panic.location().map(ToString::to_string).unwrap_or_default();
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    tracing::error!(message, location, thread, "panic");
}

#[cfg(test)]
mod tests {
    use super::{filter, with_paths};

    #[test]
    fn modules_are_also_their_paths() {
        for (text, expected) in [
            ("info", "info"),
            ("warn,weir::http=debug", "warn,weir::http=debug,weir_http=debug"),
            ("weir::geoip::x", "weir::geoip::x,weir_event::geoip::x"),
            ("weir=debug,weir_query", "weir=debug,weir_query"),
        ] {
            assert_eq!(with_paths(text), expected);
        }
    }

    #[test]
    fn levels_and_lists_of_targets_are_read() {
        for (level, fine) in [
            ("info", true),
            ("warn,weir::http=debug", true),
            ("weir::storage=trace", true),
            ("weir=loud", false),
            ("a=b=c", false),
        ] {
            assert_eq!(filter(level).is_ok(), fine, "{level}");
        }
    }
}
