//! `weir keys`: lists, creates and revokes personal API keys of a data directory, or of a PostgreSQL database. A
//! running server picks up changes within one second.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use weir_app::directory::metadata_of;
use weir_app::lock::{DirectoryLock, Holder};
use weir_base::clock::Clock;
use weir_base::config::metadata::MetadataConfig;
use weir_http::routes::personal_api_keys::is_scope;
use weir_metadata::accounts::KeyId;
use weir_metadata::postgres::MetadataAccess;
use weir_metadata::secrets::Seed;

/// Options of `weir keys`.
#[derive(Clone, Debug, clap::Args)]
pub struct KeysArgs {
    /// Data directory
    #[arg(long, env = "WEIR_DATA_DIR", default_value = "./weir-data", global = true)]
    pub data_dir: PathBuf,
    /// Where the metadata are.
    #[command(flatten)]
    pub metadata: MetadataConfig,
    /// The action
    #[command(subcommand)]
    pub action: Action,
}

/// Actions on keys.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Action {
    /// List all keys and their users, without the values of the keys
    List,
    /// Create a key and print its value; it is not shown again
    Create {
        /// Purpose of the key, shown in lists
        label: String,
        /// Permission of the key, as in person:read; repeat for several; all permissions if none is given
        #[arg(long = "scope")]
        scopes: Vec<String>,
    },
    /// Revoke a key
    Revoke {
        /// Id of the key, as `list` shows it
        id: i64,
    },
}

/// Runs the action and prints its result.
///
/// # Errors
///
/// The error message for the user.
pub fn run(args: KeysArgs, clock: Clock) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let holder = match args.metadata.metadata_url {
        Some(_) => None,
        None => Some(hold(&args.data_dir)?),
    };
    let mut out = std::io::stdout().lock();
    runtime.block_on(async {
        let metadata =
            metadata_of(&args.data_dir, &args.metadata, MetadataAccess::Write, clock).await?;
        match args.action {
            Action::List => {
                writeln!(out, "ID\tKEY\tLABEL\tSCOPES\tUSER")?;
                for key in metadata.list_keys() {
                    let scopes = key.scopes.as_ref().map_or("*".to_owned(), |all| all.join(" "));
                    let (id, mask, label, user) =
                        (key.id.0, &key.mask, &key.label, &key.user.email);
                    writeln!(out, "{id}\t{mask}\t{label}\t{scopes}\t{user}")?;
                }
            }
            Action::Create { label, scopes } => {
                if let Some(unknown) = scopes.iter().find(|scope| !is_scope(scope)) {
                    bail!(
                        "there is no scope {unknown}; a scope has a form like person:read, or is *"
                    );
                }
                let is_full = scopes.is_empty() || scopes.iter().any(|scope| scope == "*");
                let scopes = Some(scopes).filter(|_| !is_full);
                let snapshot = metadata.snapshot();
                let user = snapshot.users().next().context("start the server once first")?;
                let seed = Seed::new(&mut rand::rng());
                let created = metadata.create_key(user.id, &label, scopes, &seed).await;
                let created = created
                    .with_context(|| format!("cannot create a key with the label {label:?}"))?;
                writeln!(out, "{}", created.value)?;
            }
            Action::Revoke { id } => {
                let revoked = metadata.revoke_key(KeyId(id)).await;
                revoked.with_context(|| format!("cannot revoke key {id}"))?;
            }
        }
        metadata.close().await;
        anyhow::Ok(())
    })?;
    drop(holder);
    Ok(())
}

/// Locks the directory. To be held to the end: a process that copied the files meanwhile would get an
/// inconsistent store. A running server is no conflict: server and command see each other's changes.
fn hold(data_dir: &Path) -> anyhow::Result<Holder> {
    let (name, path) = (data_dir.display(), data_dir.join("metadata.db"));
    if !path.is_file() {
        bail!(
            "there is no file {}: start the server once first, or restore the file from a backup",
            path.display()
        );
    }
    let holder = DirectoryLock::take(data_dir).with_context(|| format!("cannot lock {name}"))?;
    if matches!(holder, Holder::Unknown) {
        bail!("{name} is in use by a command that reads it, or a server that starts; try again");
    }
    Ok(holder)
}
