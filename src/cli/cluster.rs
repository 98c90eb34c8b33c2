//! A server that is a node of a cluster, once an operator has added shards to a bucket ([`run`]): it opens the shards that fall
//! to it (`app::assignment`), answers requests about them, and passes all others on to the nodes that have theirs.
//!
//! Everything about shards happens on one task, which looks at the database four times a second, so that a shard is in one
//! state at a time. What takes long (opening, closing, preparing) is waited for beside that.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{FutureExt, LocalBoxFuture};
use futures::stream::FuturesUnordered;
use tokio::net::TcpListener;

use crate::cli::postgres;
use crate::cli::postgres::Door;
use crate::cli::process::{PIPELINE_DRAIN, THREADS_END, create_private, end_persons, guide};
use crate::cli::standby::sending;
use weir_app::assignment::{self, Owner, Seen, Step, next_step};
use weir_app::beats::{Beats, FORGET_AFTER};
use weir_app::error::OpenError;
use weir_app::lease::{self, DEAD_AFTER, Held, Identity};
use weir_app::node::{Node, Process, Runtimes};
use weir_app::{App, images};
use weir_base::clock::Clock;
use weir_base::config::Config;
use weir_base::config::bucket::BucketUrl;
use weir_base::tasks::Tasks;
use weir_base::telemetry::metrics::Metrics;
use weir_event::id::ShardId;
use weir_http::cluster::sessions::Gate;
use weir_http::cluster::{Cluster, Seat, Seats};
use weir_http::forward::Writer;
use weir_http::limits::Limits;
use weir_http::router::Router;
use weir_metadata::Metadata;
use weir_metadata::error::MetadataError;
use weir_metadata::leases::Lease;
use weir_metadata::nodes::NodeRow;
use weir_metadata::shards::ShardRow;
use weir_storage::cached::blocks::BlockCache;

/// Time between two looks at the database.
const LOOK: Duration = Duration::from_millis(250);

/// Time between two beats of a node.
const BEAT: Duration = Duration::from_secs(1);

/// Pause before a shard that could not be opened is tried again here. Others may take it meanwhile.
const OPEN_PAUSE: Duration = Duration::from_secs(5);

/// A node of a cluster, with what its shards have in common.
pub(super) struct Foundations {
    pub(super) config: Config,
    pub(super) runtimes: Runtimes,
    pub(super) clock: Clock,
    pub(super) metrics: Arc<Metrics>,
    pub(super) node: Arc<Node>,
    pub(super) bucket: BucketUrl,
    /// How other nodes reach this one.
    pub(super) identity: Identity,
    /// Secret of the commands on this machine.
    pub(super) secret: Arc<str>,
    /// Connections that requests do not use.
    pub(super) metadata: Metadata,
    pub(super) cache: Option<BlockCache>,
    /// The program, as it names itself to operators.
    pub(super) build: String,
}

/// What this node does with a shard; nothing, if it is not in the map.
enum State {
    /// It brings what it needs to take the shard.
    Preparing,
    /// It takes the lease, and opens the shard.
    Opening,
    /// It has it.
    Open(Box<Open>),
    /// It closes it.
    Leaving,
}

/// A shard that is open.
struct Open {
    since: Duration,
    app: App,
    held: Held,
    /// What runs for it.
    tasks: Tasks,
    /// What renews its lease, until it is given back.
    renewal: Tasks,
}

/// What has happened to a shard.
enum Event {
    Prepared(ShardId),
    Opened(ShardId, Box<Open>),
    /// It could not be opened.
    Failed(ShardId),
    /// Another node has it, or it cannot go on.
    Lost(ShardId),
    /// It is closed, and may be opened again.
    Closed(ShardId),
    /// Nothing that anybody waits for.
    Nothing,
}

/// The shards of a node.
struct Coordinator {
    base: Arc<Foundations>,
    seats: Arc<Seats>,
    front: Tasks,
    states: BTreeMap<ShardId, State>,
    work: FuturesUnordered<LocalBoxFuture<'static, Event>>,
    /// Those of nodes by their URLs, and of leases by their names.
    beats: Beats<String>,
    /// When a shard that could not be opened may be tried again.
    pauses: BTreeMap<ShardId, Duration>,
    beat_at: Option<Duration>,
    /// Whether this node gives all its shards away, to end.
    is_ending: bool,
}

/// Serves as a node until a signal to stop, and gives all shards away then.
pub(super) async fn run(
    base: Foundations,
    (listener, postgres): (TcpListener, Option<Door>),
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let base = Arc::new(base);
    let front = Tasks::new(base.runtimes.main.clone());
    let seats = Arc::new(Seats::default());
    let cluster = Arc::new(Cluster {
        seats: Arc::clone(&seats),
        sending: sending(&base.config, &base.metrics)?,
        node: Arc::clone(&base.node),
        looked_at: tokio::sync::Mutex::default(),
    });
    let sessions = postgres::serve_node(&base.node, &cluster, postgres, &front);
    let gate = Arc::new(Gate { cluster, sessions });
    let limits = Limits::new(&base.config.http, base.config.ingest.inflight_max_bytes.as_u64());
    let limits = limits.with_node_secret(Some(&base.identity.secret));
    let (own, clock, metrics) = (front.clone(), base.clock.clone(), Arc::clone(&base.metrics));
    let serving = weir_http::serve(listener, limits, gate, own, clock, metrics);
    front.spawn("cluster", serving);
    let mut coordinator = Coordinator {
        base: Arc::clone(&base),
        seats,
        front: front.clone(),
        states: BTreeMap::new(),
        work: FuturesUnordered::new(),
        beats: Beats::default(),
        pauses: BTreeMap::new(),
        beat_at: None,
        is_ending: false,
    };
    coordinator.run(stop).await;
    front.shutdown().begin();
    postgres::end(&front, base.config.http.drain_timeout).await;
    base.metadata.close().await;
    Ok(())
}

impl Coordinator {
    async fn run(&mut self, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop.fuse());
        let mut has_failed = false;
        loop {
            match self.look().await {
                Ok(()) if std::mem::take(&mut has_failed) => {
                    tracing::info!("reads the database of the cluster again");
                }
                Ok(()) => {}
                Err(error) if !std::mem::replace(&mut has_failed, true) => {
                    self.beats.clear();
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(
                        error,
                        "cannot read who has which shard; this node goes on with those that it has"
                    );
                }
                Err(_) => self.beats.clear(),
            }
            if self.is_ending && self.states.is_empty() {
                return;
            }
            tokio::select! {
                () = &mut stop, if !self.is_ending => self.end().await,
                Some(event) = self.work.next() => self.note(event),
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    /// Begins to give all shards away.
    async fn end(&mut self) {
        tracing::info!("stopping: gives its shards to the other nodes");
        self.is_ending = true;
        if let Err(error) = self.base.metadata.remove_node(&self.base.identity.url).await {
            tracing::warn!(%error, "cannot tell that this node ends; the others wait some seconds");
        }
        // Nothing is prepared any more.
        self.states.retain(|_, state| !matches!(state, State::Preparing));
        let open: Vec<_> = self.states.keys().copied().collect();
        for shard in open {
            self.close(shard, true);
        }
    }

    fn note(&mut self, event: Event) {
        match event {
            Event::Prepared(shard) => {
                if matches!(self.states.get(&shard), Some(State::Preparing)) {
                    self.states.remove(&shard);
                }
            }
            Event::Opened(shard, open) => {
                let Open { app, held, tasks, .. } = &*open;
                tracing::info!(%shard, "has the shard");
                let (secret, ending) =
                    (Arc::clone(&self.base.secret), self.front.shutdown().clone());
                let router = Router::new(app.clone(), secret, ending).with_guide(guide());
                self.seats.set(shard, Some(Seat::Here(Arc::new(router), held.clone())));
                self.work.push(watched(shard, app, held, tasks));
                self.states.insert(shard, State::Open(open));
                if self.is_ending {
                    self.close(shard, true);
                }
            }
            Event::Failed(shard) => {
                let again = self.base.clock.monotonic().saturating_add(OPEN_PAUSE);
                self.pauses.insert(shard, again);
                self.states.remove(&shard);
            }
            Event::Lost(shard) => self.close(shard, false),
            Event::Closed(shard) => {
                self.states.remove(&shard);
            }
            Event::Nothing => {}
        }
    }

    /// Looks who is there and who has which shard, and takes the next step.
    async fn look(&mut self) -> Result<(), MetadataError> {
        let base = Arc::clone(&self.base);
        let (metadata, own) = (&base.metadata, &*base.identity.url);
        metadata.probe().await?;
        let now = base.clock.monotonic();
        let is_due = self.beat_at.is_none_or(|last| now.saturating_sub(last) >= BEAT);
        if is_due && !self.is_ending {
            let shards_max = base.config.cluster.node_shards_max;
            metadata.register_node(own, &base.build, shards_max).await?;
            self.beat_at = Some(now);
        }
        let (rows, nodes) = (metadata.shards().await?, metadata.nodes().await?);
        let names: Vec<String> =
            rows.iter().map(|row| lease::name_of(&base.bucket, row.shard)).collect();
        let mut leases: BTreeMap<String, Lease> =
            metadata.leases(&names).await?.into_iter().collect();
        let nodes = self.alive(nodes, now).await;
        let mut found = BTreeMap::new();
        let mut shards = Vec::new();
        for (row, name) in rows.iter().zip(names) {
            let lease = leases.remove(&name);
            shards.push(self.seen(row, &name, lease.as_ref(), now));
            found.insert(row.shard, lease);
        }
        match next_step(&Seen { own, nodes: &nodes, shards: &shards }) {
            None => {}
            Some(Step::Take(shard)) => {
                let wanted = rows.iter().find(|row| row.shard == shard).map(|row| &*row.wanted);
                let others = wanted.filter(|wanted| *wanted != own).unwrap_or_default();
                self.take(shard, found.remove(&shard).flatten(), others);
            }
            Some(Step::Prepare(shard)) => self.prepare(shard),
            Some(Step::Release(shard)) => self.close(shard, true),
            Some(Step::Wish(shard, node)) => {
                tracing::info!(%shard, node, "is to go to a node with fewer shards");
                metadata.want_shard(shard, &node).await?;
            }
        }
        // What was wished for has come true, or cannot, since that node is not there.
        for ShardRow { shard, wanted, .. } in &rows {
            let is_open = matches!(self.states.get(shard), Some(State::Open(_)));
            let is_there = nodes.iter().any(|node| node.url == *wanted);
            if is_open && !wanted.is_empty() && (wanted == own || !is_there) {
                metadata.forget_wish(*shard, wanted).await?;
            }
        }
        Ok(())
    }

    /// The nodes that are there. Rows of nodes that ended without notice are removed after some time.
    async fn alive(&mut self, rows: Vec<NodeRow>, now: Duration) -> Vec<assignment::Node> {
        let (mut alive, own) = (Vec::new(), &*self.base.identity.url);
        for row in rows {
            let still = self.beats.still(&row.url, row.beat, now);
            let is_ending = row.url == own && self.is_ending;
            if still < DEAD_AFTER && !is_ending {
                let NodeRow { url, is_draining, shards_max, .. } = row;
                alive.push(assignment::Node { url, is_draining, shards_max });
            } else if still >= FORGET_AFTER && self.base.metadata.forget_node(&row).await.is_ok() {
                self.beats.retain(|name| *name != row.url);
            }
        }
        alive
    }

    /// A shard as this node sees it, which requests are told, too.
    fn seen(
        &mut self,
        row: &ShardRow,
        name: &String,
        lease: Option<&Lease>,
        now: Duration,
    ) -> assignment::Shard {
        let shard = row.shard;
        let still = match lease {
            Some(lease) => self.beats.still(name, lease.beat, now),
            None => Duration::ZERO,
        };
        let state = self.states.get(&shard);
        let taken = lease.filter(|lease| !lease.holder.is_empty() && still < DEAD_AFTER);
        // An earlier process of this node cannot be asked.
        let there = taken.filter(|lease| lease.url != self.base.identity.url);
        let there = there
            .cloned()
            .map(|Lease { holder, url, secret, .. }| Seat::There(Writer { holder, url, secret }));
        match state {
            Some(State::Open(_) | State::Opening) => {}
            // It may still serve. Another node may have it before all threads here have ended.
            Some(State::Leaving) if there.is_none() => {}
            Some(State::Leaving | State::Preparing) | None => self.seats.set(shard, there),
        }
        let owner = match (state, taken) {
            (Some(State::Open(open)), _) => Owner::This(open.since),
            (Some(State::Opening), _) => Owner::This(now),
            (Some(State::Leaving), _) => Owner::Leaving,
            (_, Some(lease)) => Owner::Other(lease.url.clone()),
            _ => {
                let is_paused = self.pauses.get(&shard).is_some_and(|again| now < *again);
                match is_paused || self.states.contains_key(&shard) {
                    true => Owner::Other(String::new()),
                    false => Owner::Nobody(still),
                }
            }
        };
        let (wanted, ready) = (row.wanted.clone(), row.ready.clone());
        assignment::Shard { id: shard, owner, wanted, ready }
    }

    fn prepare(&mut self, shard: ShardId) {
        if self.states.contains_key(&shard) {
            return;
        }
        self.states.insert(shard, State::Preparing);
        let base = Arc::clone(&self.base);
        let preparing = async move {
            let config = base.config_of(shard);
            let prepared = async {
                create(&config)?;
                images::prepare(&config, shard, &base.clock, &base.metrics).await?;
                base.metadata.note_ready(shard, &base.identity.url).await?;
                anyhow::Ok(())
            };
            if let Err(error) = prepared.await {
                tracing::warn!(%shard, error = &*error as &dyn std::error::Error, "cannot prepare to take a shard yet");
                tokio::time::sleep(OPEN_PAUSE).await;
            }
            Event::Prepared(shard)
        };
        self.work.push(preparing.boxed_local());
    }

    /// Takes and opens a shard, which another node might have been wished to have.
    fn take(&mut self, shard: ShardId, seen: Option<Lease>, wanted: &str) {
        // Whoever prepares to take it is overtaken by the need to.
        self.states.insert(shard, State::Opening);
        let (base, wanted) = (Arc::clone(&self.base), wanted.to_owned());
        let opening = async move {
            let (bucket, clock) = ((&base.bucket, shard), base.clock.clone());
            let held = Held::new(bucket, &base.identity, base.metadata.clone(), clock);
            match held.take(seen.as_ref()).await {
                // A wish of before comes too late. It would move shards in circles where nodes have little room.
                Ok(true) if !wanted.is_empty() => {
                    if let Err(error) = base.metadata.forget_wish(shard, &wanted).await {
                        tracing::warn!(%shard, %error, "cannot forget who was to have a shard");
                    }
                }
                Ok(true) => {}
                Ok(false) => return Event::Closed(shard),
                Err(error) => {
                    tracing::warn!(%shard, %error, "cannot take the lease of a shard");
                    return Event::Closed(shard);
                }
            }
            let runtime = &base.runtimes.main;
            let (tasks, renewal) = (Tasks::new(runtime.clone()), Tasks::new(runtime.clone()));
            held.keep(&renewal);
            match base.open(shard, &tasks).await {
                Ok(app) => {
                    if let Some(rivals) = app.shard.rivals() {
                        held.watch_log(rivals);
                    }
                    held.tell_open();
                    let since = base.clock.monotonic();
                    Event::Opened(shard, Box::new(Open { since, app, held, tasks, renewal }))
                }
                Err(error) => {
                    tracing::error!(%shard, error = &*error as &dyn std::error::Error, "cannot open a shard");
                    tasks.shutdown().begin();
                    let _ = tasks.wait(THREADS_END).await;
                    give_back(&held, &renewal).await;
                    Event::Failed(shard)
                }
            }
        };
        self.work.push(opening.boxed_local());
    }

    /// Closes a shard that is open: in order, so that nothing has to be replayed, or because another node has it.
    fn close(&mut self, shard: ShardId, in_order: bool) {
        if !matches!(self.states.get(&shard), Some(State::Open(_))) {
            return;
        }
        let Some(State::Open(open)) = self.states.insert(shard, State::Leaving) else { return };
        let seats = Arc::clone(&self.seats);
        if !in_order {
            tracing::error!(%shard, "the shard is closed here; another node has it, or opens it");
            seats.set(shard, Some(Seat::Leaving));
        }
        let closing = async move {
            let Open { app, held, tasks, renewal, .. } = *open;
            let identities = app.shard.identities.clone();
            if in_order {
                // Most of what the end has to write is written while the shard still serves.
                if let Err(error) = app.shard.flush().await {
                    tracing::warn!(%shard, %error, "cannot flush before a shard is closed");
                }
                seats.set(shard, Some(Seat::Leaving));
                app.shard.drain(PIPELINE_DRAIN).await;
            }
            tasks.shutdown().begin();
            // The log thread and the projector end once nobody can send them anything.
            if !in_order {
                drop(app);
            } else {
                match tokio::task::spawn_blocking(move || app.close()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => {
                        tracing::warn!(%shard, %error, "cannot flush at the end of a shard; the next node replays its log");
                    }
                    Err(error) => tracing::error!(%shard, %error, "cannot close a shard in order"),
                }
            }
            // Queries that still run hold the threads; what these write yet is in the log, too.
            give_back(&held, &renewal).await;
            tracing::info!(%shard, "has the shard no more");
            if let Err(error) = tasks.wait(THREADS_END).await {
                tracing::warn!(%shard, %error, "threads of a shard did not end in time");
            }
            end_persons(identities).await;
            Event::Closed(shard)
        };
        self.work.push(closing.boxed_local());
    }
}

impl Foundations {
    fn config_of(&self, shard: ShardId) -> Config {
        let directory = self.config.storage.data_dir.join(shard.prefix());
        self.config.of_shard(directory, self.config.cluster.node_shards_max)
    }

    async fn open(&self, shard: ShardId, tasks: &Tasks) -> anyhow::Result<App> {
        let config = self.config_of(shard);
        create(&config)?;
        let process = Process {
            shard,
            config,
            tasks: tasks.clone(),
            runtimes: self.runtimes.clone(),
            clock: self.clock.clone(),
            metrics: Arc::new(Metrics::new()),
            distribute: None,
            cache: self.cache.clone(),
            writer: None,
        };
        Ok(App::open_shard(Arc::clone(&self.node), process).await?)
    }
}

/// Creates the directory of a shard.
fn create(config: &Config) -> Result<(), OpenError> {
    let directory: &PathBuf = &config.storage.data_dir;
    create_private(directory).map_err(|source| OpenError::Io { path: directory.clone(), source })
}

/// Releases a lease, and renews it no more.
async fn give_back(held: &Held, renewal: &Tasks) {
    renewal.shutdown().begin();
    // A renewal afterwards would find it gone.
    let _ = renewal.wait(THREADS_END).await;
    held.give_back().await;
}

/// Waits until a shard that is open cannot go on here.
fn watched(
    shard: ShardId,
    app: &App,
    held: &Held,
    tasks: &Tasks,
) -> LocalBoxFuture<'static, Event> {
    let mut fenced = app.shard.pipeline.health().fenced();
    let (held, tasks) = (held.clone(), tasks.clone());
    let watching = async move {
        tokio::select! {
            () = tasks.shutdown().cancelled() => Event::Nothing,
            () = held.lost() => Event::Lost(shard),
            _ = fenced.wait_for(|fenced| *fenced) => Event::Lost(shard),
            thread = tasks.failed() => {
                tracing::error!(%shard, thread, "a thread panicked, and the shard cannot go on without it");
                Event::Lost(shard)
            }
        }
    };
    watching.boxed_local()
}
