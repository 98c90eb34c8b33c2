//! Settings of logs.

/// Level and format of the log on standard error.
#[derive(Clone, Debug, clap::Args)]
pub struct TelemetryConfig {
    /// Level, or a list of `target=level`
    #[arg(long, env = "WEIR_LOG", default_value = "info,fjall=warn,lsm_tree=warn")]
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
