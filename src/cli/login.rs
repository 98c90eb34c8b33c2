//! `weir login`: prints a link that signs in to the page of the server on a data directory, once.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;

use crate::cli::local;
use weir_app::directory::metadata_of;
use weir_base::clock::Clock;
use weir_base::config::metadata::MetadataConfig;
use weir_metadata::postgres::MetadataAccess;
use weir_metadata::secrets::Seed;

/// Options of `weir login`.
#[derive(Clone, Debug, clap::Args)]
pub struct LoginArgs {
    /// Data directory
    #[arg(long, env = "WEIR_DATA_DIR", default_value = "./weir-data")]
    pub data_dir: PathBuf,
    /// Where the metadata are.
    #[command(flatten)]
    pub metadata: MetadataConfig,
    /// Address under which browsers reach the server [default: the address that the server listens on]
    #[arg(long, env = "WEIR_PUBLIC_URL")]
    pub public_url: Option<String>,
    /// Email address of the user [default: the first user]
    #[arg(long)]
    pub email: Option<String>,
}

/// Prints the link. The server has to run.
///
/// # Errors
///
/// The error message for the user.
pub fn run(args: LoginArgs, clock: Clock) -> anyhow::Result<()> {
    let server = local::server(&args.data_dir, "start it with weir serve, then sign in")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let link = runtime.block_on(async {
        let metadata =
            metadata_of(&args.data_dir, &args.metadata, MetadataAccess::Write, clock).await?;
        let snapshot = metadata.snapshot();
        let wanted = |email: &str| args.email.as_deref().is_none_or(|wanted| wanted == email);
        let mut users = snapshot.users().filter(|user| !user.is_removed() && wanted(&user.email));
        let user = users.next().context("there is no such user")?;
        let link = metadata.create_sign_in_link(user.id, &Seed::new(&mut rand::rng())).await?;
        metadata.close().await;
        anyhow::Ok(link)
    })?;
    let base = args.public_url.as_deref().unwrap_or(&server.url).trim_end_matches('/');
    writeln!(std::io::stdout(), "{}", address(base, &link))?;
    Ok(())
}

/// The address of a link, for the operator to open.
pub(super) fn address(base: &str, link: &str) -> String {
    format!("{base}/login?link={link}")
}
