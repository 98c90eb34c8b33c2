//! `weir shards`: the shards of a cluster, and the nodes that have them. It reads and writes rows of the database of metadata,
//! which the nodes look at all the time; no node has to be reached.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::time::sleep;

use weir_app::assignment::{self, Node, Owner, Shard};
use weir_app::beats::Beats;
use weir_app::lease::{self, DEAD_AFTER, Taking};
use weir_base::clock::Clock;
use weir_base::config::bucket::BucketUrl;
use weir_base::config::metadata::{MetadataConfig, MetadataUrl};
use weir_event::id::ShardId;
use weir_metadata::Metadata;
use weir_metadata::leases::Lease;
use weir_metadata::nodes::NodeRow;
use weir_metadata::postgres::MetadataAccess;
use weir_metadata::shards::ShardRow;

/// Time between two looks whether a move has ended.
const LOOK: Duration = Duration::from_millis(250);

/// The shards of a cluster
#[derive(Clone, Debug, clap::Args)]
pub struct ShardsArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
    /// Bucket of the servers, as `s3://bucket/prefix`
    #[arg(long, env = "WEIR_STORAGE_URL", value_parser = BucketUrl::parse, global = true)]
    pub storage_url: Option<BucketUrl>,
    /// Their database.
    #[command(flatten)]
    pub metadata: MetadataConfig,
}

/// What to do with shards.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Action {
    /// List the shards, with their projects and the node that has each, and the nodes
    List,
    /// Add shards, among which new projects are divided. A bucket with one shard becomes a cluster by it: stop all its servers
    /// before
    Add {
        /// Number of shards to add
        #[arg(value_parser = clap::value_parser!(u16).range(1..256))]
        count: u16,
    },
    /// Move a shard to a node, and wait until it is there
    Move {
        /// Number of the shard
        shard: u16,
        /// URL of the node, as in the list
        node: String,
    },
    /// Wait until every shard is served, and none is to move
    Wait,
    /// Let a node give all its shards to the others, and take none
    Drain {
        /// URL of the node, as in the list
        node: String,
        /// Let it take shards again
        #[arg(long)]
        undo: bool,
    },
}

/// Adds shards. The first time nobody may serve: a server that runs takes the bucket for one shard.
async fn add(
    settings: &MetadataConfig,
    (url, bucket): (&MetadataUrl, &BucketUrl),
    count: u16,
    clock: &Clock,
) -> anyhow::Result<()> {
    let access = MetadataAccess::Write;
    let metadata = Metadata::connect(settings, url, clock.clone(), access).await?;
    let all = match metadata.shards().await?.len() {
        0 | 1 => match lease::take(settings, url, (bucket, ShardId::FIRST), clock).await? {
            Taking::Taken(held) => {
                let all = metadata.add_shards(&bucket.to_string(), count).await;
                held.give_back().await;
                held.close().await;
                all?
            }
            Taking::Served => bail!(
                "a server with {bucket} runs, or did not end in order: stop all of them; one that did not end in order, \
                 start once more before"
            ),
            Taking::Unknown => bail!("no server with {bucket} has used {url} yet: start one once"),
        },
        _ => metadata.add_shards(&bucket.to_string(), count).await?,
    };
    metadata.close().await;
    writeln!(std::io::stdout(), "there are {all} shards now, which all servers divide")?;
    Ok(())
}

/// A cluster, as a command sees it.
struct Cluster {
    metadata: Metadata,
    bucket: BucketUrl,
    clock: Clock,
}

/// What a command has seen since it looks: nobody is there whose beat stands still.
#[derive(Default)]
struct Watch {
    /// The leases as they were at first.
    first: BTreeMap<ShardId, Lease>,
    leases: Beats<ShardId>,
    nodes: Beats<String>,
}

/// Lists or changes shards.
///
/// # Errors
///
/// The error message for the user.
pub async fn run(args: ShardsArgs, clock: Clock) -> anyhow::Result<()> {
    let ShardsArgs { action, storage_url: bucket, metadata: settings } = args;
    let url = settings.metadata_url.as_ref();
    let url = url.context("--metadata-url (WEIR_METADATA_URL) is missing")?;
    let bucket = bucket.context("--storage-url (WEIR_STORAGE_URL) is missing")?;
    if let Action::Add { count } = action {
        return add(&settings, (url, &bucket), count, &clock).await;
    }
    let access = match action {
        Action::List | Action::Wait => MetadataAccess::Read,
        _ => MetadataAccess::Apart,
    };
    let metadata = Metadata::connect(&settings, url, clock.clone(), access).await?;
    let cluster = Cluster { metadata, bucket, clock };
    let done = match action {
        Action::List | Action::Add { .. } => cluster.list().await,
        Action::Wait => cluster.wait().await,
        Action::Move { shard, node } => cluster.move_to(ShardId(shard), &node).await,
        Action::Drain { node, undo } => cluster.drain(&node, !undo).await,
    };
    cluster.metadata.close().await;
    done
}

impl Cluster {
    async fn leases(&self) -> anyhow::Result<BTreeMap<ShardId, Lease>> {
        let rows = self.metadata.shards().await?;
        let names: Vec<String> =
            rows.iter().map(|row| lease::name_of(&self.bucket, row.shard)).collect();
        let mut leases: BTreeMap<_, _> = self.metadata.leases(&names).await?.into_iter().collect();
        let of_shard = rows.iter().zip(&names);
        Ok(of_shard.filter_map(|(row, name)| Some((row.shard, leases.remove(name)?))).collect())
    }

    /// Prints the shards and the nodes.
    async fn list(&self) -> anyhow::Result<()> {
        let rows = self.metadata.shards().await?;
        let leases = self.leases().await?;
        let snapshot = self.metadata.snapshot();
        let mut projects: BTreeMap<ShardId, usize> = BTreeMap::new();
        for project in snapshot.projects() {
            *projects.entry(project.shard).or_default() += 1;
        }
        let nodes = self.alive().await?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "{:<8}{:>8}  {:<40}is to be at", "shard", "projects", "node")?;
        for row in &rows {
            let count = projects.get(&row.shard).copied().unwrap_or_default();
            let lease = leases.get(&row.shard).filter(|lease| !lease.holder.is_empty());
            let node = lease.map_or("-", |lease| &*lease.url);
            let wanted = if row.wanted.is_empty() { "-" } else { &*row.wanted };
            writeln!(out, "{:<8}{count:>8}  {node:<40}{wanted}", row.shard.to_string())?;
        }
        writeln!(out, "\n{:<40}{:<12}{:>6}  state", "node", "version", "shards")?;
        for (NodeRow { url, build, is_draining, .. }, is_alive) in &nodes {
            let count = leases.values().filter(|lease| lease.url == *url).count();
            let state = match (is_alive, is_draining) {
                (false, _) => "gone",
                (true, true) => "drains",
                (true, false) => "serves",
            };
            writeln!(out, "{url:<40}{build:<12}{count:>6}  {state}")?;
        }
        Ok(())
    }

    /// The nodes, and whether each is there: whether its beat changes.
    async fn alive(&self) -> anyhow::Result<Vec<(NodeRow, bool)>> {
        let before = self.metadata.nodes().await?;
        let ends = self.clock.monotonic().saturating_add(DEAD_AFTER);
        loop {
            let now = self.metadata.nodes().await?;
            let has_beaten = |node: &NodeRow| !before.iter().any(|seen| seen == node);
            let is_over = self.clock.monotonic() >= ends;
            if is_over || now.iter().all(has_beaten) {
                let told = |node: NodeRow| {
                    let is_alive = has_beaten(&node);
                    (node, is_alive)
                };
                return Ok(now.into_iter().map(told).collect());
            }
            sleep(LOOK).await;
        }
    }

    /// Waits until every shard is served, and none is to move; tells what it waits for.
    async fn wait(&self) -> anyhow::Result<()> {
        let mut watch = Watch { first: self.leases().await?, ..Watch::default() };
        let mut told = String::new();
        loop {
            let (nodes, shards) = self.seen(&mut watch).await?;
            let served = shards.iter().filter(|shard| matches!(shard.owner, Owner::Other(_)));
            let (count, served, all) = (nodes.len(), served.count(), shards.len());
            let is_steady = assignment::is_steady(&nodes, &shards);
            if served == all && is_steady {
                writeln!(std::io::stdout(), "{count} nodes serve {all} shards")?;
                return Ok(());
            }
            let why = if is_steady { "no node has room for more" } else { "some are to move" };
            let now = format!("waits: {count} nodes serve {served} of {all} shards, {why}");
            if now != told {
                writeln!(std::io::stderr(), "{now}")?;
                told = now;
            }
            sleep(LOOK).await;
        }
    }

    /// The nodes that may be there, and the shards, which have an owner once that has renewed an open lease.
    async fn seen(&self, watch: &mut Watch) -> anyhow::Result<(Vec<Node>, Vec<Shard>)> {
        let (rows, leases) = (self.metadata.shards().await?, self.leases().await?);
        let (registered, now) = (self.metadata.nodes().await?, self.clock.monotonic());
        let mut nodes = Vec::new();
        for NodeRow { url, beat, is_draining, shards_max, .. } in registered {
            if watch.nodes.still(&url, beat, now) < DEAD_AFTER {
                nodes.push(Node { url, is_draining, shards_max });
            }
        }
        let shard = |ShardRow { shard, wanted, ready }: ShardRow| {
            let lease = leases.get(&shard).filter(|lease| {
                let is_renewed = watch.first.get(&shard) != Some(lease);
                let still = watch.leases.still(&shard, lease.beat, now);
                lease.is_open && is_renewed && still < DEAD_AFTER
            });
            let owner = match lease {
                Some(lease) => Owner::Other(lease.url.clone()),
                None => Owner::Nobody(Duration::ZERO),
            };
            Shard { id: shard, owner, wanted, ready }
        };
        let shards = rows.into_iter().map(shard).collect();
        Ok((nodes, shards))
    }

    async fn is_known(&self, node: &str) -> anyhow::Result<()> {
        let nodes = self.metadata.nodes().await?;
        if nodes.iter().any(|known| known.url == node) {
            return Ok(());
        }
        let known: Vec<&str> = nodes.iter().map(|known| &*known.url).collect();
        bail!("there is no node {node}; there are: {}", known.join(", "));
    }

    /// Moves a shard, and waits until it is there.
    async fn move_to(&self, shard: ShardId, node: &str) -> anyhow::Result<()> {
        self.is_known(node).await?;
        if !self.metadata.want_shard(shard, node).await? {
            bail!("there is no shard {shard}");
        }
        let began = self.clock.monotonic();
        loop {
            // First the wish, which ends once the node has the lease.
            let rows = self.metadata.shards().await?;
            let leases = self.leases().await?;
            if leases.get(&shard).is_some_and(|lease| lease.url == node) {
                break;
            }
            if rows.iter().any(|row| row.shard == shard && row.wanted != node) {
                bail!(
                    "shard {shard} is not moved: another node took it meanwhile, or was wished to"
                );
            }
            sleep(LOOK).await;
        }
        let took = self.clock.monotonic().saturating_sub(began).as_secs_f64();
        writeln!(std::io::stdout(), "{node} has shard {shard}, after {took:.1} s")?;
        Ok(())
    }

    /// Lets a node give its shards away, and waits until it has none, unless there is no other node.
    async fn drain(&self, node: &str, is_draining: bool) -> anyhow::Result<()> {
        self.is_known(node).await?;
        if !is_draining {
            self.metadata.drain_node(node, false).await?;
            writeln!(std::io::stdout(), "{node} takes shards again")?;
            return Ok(());
        }
        let others = self.alive().await?;
        let is_other = |(other, is_alive): &(NodeRow, bool)| {
            *is_alive && other.url != node && !other.is_draining
        };
        if !others.iter().any(is_other) {
            bail!("no other node is there to take the shards of {node}");
        }
        self.metadata.drain_node(node, true).await?;
        while self.leases().await?.values().any(|lease| lease.url == node) {
            sleep(LOOK).await;
        }
        writeln!(std::io::stdout(), "{node} has no shards, and can be stopped")?;
        Ok(())
    }
}
