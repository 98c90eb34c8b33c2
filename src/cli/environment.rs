//! The settings of commands that read a data directory: from environment variables and the file that
//! `WEIR_CONFIG` names, as a server would have them that is started without flags.

use anyhow::anyhow;
use clap::{CommandFactory, FromArgMatches, Parser};

use crate::cli::serve::ServeArgs;
use weir_base::config;
use weir_base::config::Config;

#[derive(Debug, Parser)]
struct Settings {
    #[command(flatten)]
    serve: ServeArgs,
}

/// The settings.
///
/// # Errors
///
/// The name of a variable or key with its error.
pub(super) fn settings() -> anyhow::Result<Config> {
    let mut command = Settings::command();
    if let Some(file) = config::config_file() {
        command = config::with_file_defaults(command, &file).map_err(anyhow::Error::msg)?;
    }
    let parsed = command
        .try_get_matches_from(["weir"])
        .and_then(|matches| Settings::from_arg_matches(&matches));
    let settings = parsed.map_err(|error| {
        let text = error.render().to_string();
        anyhow!("{}", text.trim_start_matches("error: ").trim_end())
    })?;
    Ok(settings.serve.settings)
}
