//! A server that waits to take over: until it holds the lease it follows the server that writes, answers reads, and passes
//! everything else on ([`Standing::wait`]).
//!
//! What it follows with is in a directory of its own, `follower` in the data directory, and goes when the server takes over:
//! that then begins as on an empty disk, with an image of persons and the log behind it. So it also writes what the former
//! server had not yet derived from the newest records, such as definitions and the activity log, and waits for no reader.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use arc_swap::ArcSwapOption;
use bytes::Bytes;
use futures::{FutureExt, TryFutureExt};
use http_body_util::Full;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::watch;
use uuid::Uuid;

use crate::cli::client::TlsArgs;
use crate::cli::process::{THREADS_END, create_private, end_persons, guide, stop_signal};
use crate::cli::{client, postgres};
use weir_app::error::OpenError;
use weir_app::lease::Held;
use weir_app::node::{Process, Runtimes};
use weir_app::{App, images, lease, tables};
use weir_base::clock::Clock;
use weir_base::config::Config;
use weir_base::tasks::Tasks;
use weir_base::telemetry::metrics::Metrics;
use weir_event::id::ShardId;
use weir_http::follower::Follower;
use weir_http::forward::{Forwarding, Sending, Writer};
use weir_http::limits::Limits;
use weir_http::router::Router;
use weir_http::standby::{Refusing, Standby};
use weir_ingest::following;
use weir_metadata::leases::Lease;
use weir_storage::cached::blocks::BlockCache;
use weir_storage::wal::Sequence;

/// Directory in the data directory with the stores of a follower.
const DIRECTORY: &str = "follower";

/// The first and the longest pause before another attempt to follow the server that writes. An attempt may read an image.
const FOLLOW_PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Time for which a server has to have followed for the next attempt to be a first one.
const FOLLOWED_WELL: Duration = Duration::from_secs(60);

/// A server that stands by.
pub(super) struct Standing<'a> {
    pub(super) config: &'a Config,
    pub(super) runtimes: &'a Runtimes,
    pub(super) metrics: &'a Arc<Metrics>,
    pub(super) clock: &'a Clock,
}

/// What a server has that stood by.
pub(super) struct Stood {
    /// The lease.
    pub(super) held: Held,
    /// The cache of data files, which stays open.
    pub(super) cache: Option<BlockCache>,
}

/// What follows now: its tasks, and once they are open, the stores.
type Current = Mutex<Option<(Tasks, Option<App>)>>;

/// The URL under which other servers reach this one; empty if they do not.
pub(super) fn own_url(config: &Config, listener: &TcpListener) -> std::io::Result<String> {
    let address = listener.local_addr()?;
    Ok(match &config.cluster.node_url {
        Some(url) => url.clone(),
        None if address.ip().is_unspecified() => String::new(),
        None => format!("http://{address}"),
    })
}

/// Sends requests to other servers.
pub(super) fn sending(config: &Config, metrics: &Arc<Metrics>) -> anyhow::Result<Sending> {
    let tls = TlsArgs { ca_file: config.cluster.issuers().map(PathBuf::from) };
    let connections = client::connections::<Full<Bytes>>(&tls)?;
    let send = move |request| connections.request(request).err_into().boxed();
    let body_max_bytes = config.http.body_max_bytes.as_u64();
    Ok(Sending { send: Arc::new(send), body_max_bytes, metrics: Arc::clone(metrics) })
}

impl Standing<'_> {
    /// Answers requests until this server has the lease. `None` if it is stopped.
    pub(super) async fn wait(
        self,
        listener: TcpListener,
        limits: Limits,
        url: &str,
    ) -> anyhow::Result<Option<Stood>> {
        let Self { config, runtimes, metrics, clock } = self;
        let front = Tasks::new(runtimes.main.clone());
        let (writers, writer) = watch::channel(None);
        let standby = Standby { metrics: Arc::clone(metrics), refusing: Refusing::Standby };
        let reading = Arc::new(ArcSwapOption::empty());
        let (mut forwarding, mut cache) = (None, None);
        if config.cluster.standby_reads {
            forwarding = Some(self.forwarding(writer)?);
            cache = tables::cache(&config.storage, metrics).context("cannot use the cache")?;
        }
        let (own, reader) = (forwarding.clone(), Arc::clone(&reading));
        let handler = Arc::new(Follower { standby, forwarding: own, reading: reader });
        let (own, counted) = (front.clone(), Arc::clone(metrics));
        let answering = weir_http::serve(listener, limits, handler, own, clock.clone(), counted);
        front.spawn("standby", answering);
        let waiting =
            lease::stand_by((config, ShardId::FIRST), clock, url, front.shutdown(), |lease| {
                note(&writers, lease)
            });
        metrics.standing_by.set(1);
        let current = Current::default();
        let held = tokio::select! {
            held = waiting => held,
            () = stop_signal()? => Ok(None),
            () = images::prefetch(config, ShardId::FIRST, clock, metrics) => Ok(None),
            () = self.follow(&front, &reading, cache.as_ref(), (forwarding, &current)) => Ok(None),
        };
        front.shutdown().begin();
        // Reads may end, unless this server takes over.
        if matches!(held, Ok(None))
            && let Err(error) = front.wait(config.http.drain_timeout).await
        {
            tracing::warn!(%error, "requests were still running at the end of the drain time-out");
        }
        reading.store(None);
        let ended = current.lock().take();
        if let (Ok(Some(_)), Some((back, _))) = (&held, &ended) {
            // Before this server opens its ports.
            back.shutdown().begin();
        }
        let directory = config.storage.data_dir.join(DIRECTORY);
        match &held {
            Ok(Some(_)) => {
                Tasks::new(runtimes.main.clone()).spawn("end-follower", async move {
                    if let Some((back, app)) = ended {
                        close(&back, app).await;
                    }
                    let _ = tokio::task::spawn_blocking(move || remove(&directory)).await;
                });
            }
            // Before the runtimes end, on which its threads wait.
            _ => {
                if let Some((back, app)) = ended {
                    let _ = tokio::time::timeout(THREADS_END, close(&back, app)).await;
                }
            }
        }
        let Metrics { standing_by, standby_lag, standby_image_age, .. } = &**metrics;
        for gauge in [standing_by, standby_lag, standby_image_age] {
            gauge.set(0);
        }
        Ok(held?.map(|held| Stood { held, cache }))
    }

    fn forwarding(&self, writer: watch::Receiver<Option<Writer>>) -> anyhow::Result<Forwarding> {
        let sending = sending(self.config, self.metrics)?;
        Ok(Forwarding::new(writer, sending))
    }

    /// Follows the server that writes, again and again. Whoever drops this ends what follows now.
    async fn follow(
        &self,
        front: &Tasks,
        reading: &ArcSwapOption<Router>,
        cache: Option<&BlockCache>,
        (forwarding, current): (Option<Forwarding>, &Current),
    ) {
        let Some(forwarding) = forwarding else { return std::future::pending().await };
        let writer = self.config.storage.bucket.storage_url.as_ref().map(|bucket| {
            let ask = move || {
                let forwarding = forwarding.clone();
                async move {
                    let (holder, newest) = forwarding.position().await?;
                    Some((holder, Sequence(newest)))
                }
                .boxed()
            };
            following::Writer { lease: lease::name_of(bucket, ShardId::FIRST), ask: Arc::new(ask) }
        });
        let mut config = self.config.clone();
        config.storage.data_dir = config.storage.data_dir.join(DIRECTORY);
        let mut pause = FOLLOW_PAUSE.0;
        loop {
            let back = Tasks::new(self.runtimes.main.clone());
            *current.lock() = Some((back.clone(), None));
            let process = Process {
                shard: ShardId::FIRST,
                config: config.clone(),
                tasks: back.clone(),
                runtimes: self.runtimes.clone(),
                clock: self.clock.clone(),
                metrics: Arc::clone(self.metrics),
                distribute: None,
                cache: cache.cloned(),
                writer: writer.clone(),
            };
            let began = self.clock.monotonic();
            let app = opened(process).await;
            if let Some(app) = &app {
                *current.lock() = Some((back.clone(), Some(app.clone())));
                let secret = Uuid::new_v4().simple().to_string().into();
                let router = Router::new(app.clone(), secret, front.shutdown().clone());
                reading.store(Some(Arc::new(router.with_guide(guide()))));
                tracing::info!("follows the server that writes, and answers reads");
                postgres::serve_follower(app, front, &back).await;
                lost(app, &back).await;
                reading.store(None);
            }
            close(&back, app).await;
            if self.clock.monotonic().saturating_sub(began) >= FOLLOWED_WELL {
                pause = FOLLOW_PAUSE.0;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(FOLLOW_PAUSE.1);
        }
    }
}

/// Takes note of who writes.
fn note(writers: &watch::Sender<Option<Writer>>, lease: &Lease) {
    let Lease { holder, url, secret, .. } = lease;
    let is_reached = !holder.is_empty() && !url.is_empty();
    let now = is_reached.then(|| Writer {
        holder: holder.clone(),
        url: url.clone(),
        secret: secret.clone(),
    });
    writers.send_if_modified(|known| {
        let has_changed = *known != now;
        if has_changed {
            tracing::info!(holder, url, "another server serves; this one stands by");
            *known = now;
        }
        has_changed
    });
}

/// The stores of a follower; `None` if they cannot be opened now.
async fn opened(process: Process) -> Option<App> {
    let opened = async {
        let directory = &process.config.storage.data_dir;
        create_private(directory)
            .map_err(|source| OpenError::Io { path: directory.clone(), source })?;
        App::follow(process).await
    };
    opened.await.unwrap_or_else(|error| {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(error, "cannot follow the server that writes yet; it answers all requests");
        None
    })
}

/// Returns once an app follows no more.
async fn lost(app: &App, back: &Tasks) {
    let Some(following) = app.shard.pipeline.following() else { return };
    tokio::select! {
        () = following.lost() => {
            tracing::warn!("lost track of the server that writes; it answers reads until this one follows again");
        }
        thread = back.failed() => {
            tracing::error!(thread, "a thread panicked; this server opens its stores again");
        }
    }
}

/// Closes what follows, and returns once nobody reads it any more; reads fail meanwhile.
async fn close(back: &Tasks, app: Option<App>) {
    back.shutdown().begin();
    if let Err(error) = back.wait(THREADS_END).await {
        tracing::warn!(%error, "threads of the follower did not end in time");
    }
    let Some(app) = app else { return };
    end_persons(app.shard.identities.clone()).await;
    app.node.metadata.close().await;
}

/// Removes the stores of a follower that has ended; if this fails, the next takeover does.
fn remove(directory: &Path) {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            let directory = directory.display().to_string();
            tracing::warn!(%error, directory, "cannot remove the stores of the time before this server took over");
        }
        _ => {}
    }
}
