//! A server that waits to take over: until it holds the lease it follows the server that writes, answers reads, and passes
//! everything else on ([`Standing::wait`]).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use arc_swap::ArcSwapOption;
use bytes::Bytes;
use futures::{FutureExt, TryFutureExt};
use http_body_util::Full;
use tokio::net::TcpListener;
use tokio::sync::watch;
use uuid::Uuid;

use crate::cli::client;
use crate::cli::client::TlsArgs;
use crate::cli::process::{THREADS_END, guide, stop_signal};
use weir_app::error::OpenError;
use weir_app::lease::Held;
use weir_app::node::{Process, Runtimes};
use weir_app::{App, images, lease, tables};
use weir_base::clock::Clock;
use weir_base::config::Config;
use weir_base::tasks::{Pause, Shutdown, Tasks};
use weir_base::telemetry::metrics::Metrics;
use weir_http::follower::Follower;
use weir_http::forward::{Forwarding, Writer};
use weir_http::limits::Limits;
use weir_http::router::Router;
use weir_http::standby::{Refusing, Standby};
use weir_ingest::following;
use weir_metadata::leases::Lease;
use weir_storage::cached::blocks::BlockCache;
use weir_storage::wal::Sequence;

/// Pause before another attempt to follow the server that writes.
const FOLLOW_PAUSE: Duration = Duration::from_secs(1);

/// Longest time until nobody reads the stores of a follower any more, whose reads fail by then.
const READERS_END: Duration = Duration::from_secs(5);

/// A server that stands by.
pub(super) struct Standing<'a> {
    pub(super) config: &'a Config,
    pub(super) runtimes: &'a Runtimes,
    pub(super) metrics: &'a Arc<Metrics>,
    pub(super) clock: &'a Clock,
}

/// What a follower runs with.
struct Following<'a> {
    front: &'a Tasks,
    /// Where its endpoints go while it follows.
    reading: &'a ArcSwapOption<Router>,
    cache: Option<&'a BlockCache>,
    ending: &'a Shutdown,
}

/// What a server has that stood by.
pub(super) struct Stood {
    /// The lease.
    pub(super) held: Held,
    /// The cache of data files, which stays open.
    pub(super) cache: Option<BlockCache>,
}

/// The URL under which other servers reach this one; empty if they do not.
pub(super) fn own_url(config: &Config, listener: &TcpListener) -> std::io::Result<String> {
    let address = listener.local_addr()?;
    Ok(match &config.cluster.node_url {
        Some(url) => url.clone(),
        None if address.ip().is_unspecified() => String::new(),
        None => format!("http://{address}"),
    })
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
        let forwarding = match config.cluster.standby_reads {
            true => Some(self.forwarding(writer)?),
            false => None,
        };
        let (own, reader) = (forwarding.clone(), Arc::clone(&reading));
        let handler = Arc::new(Follower { standby, forwarding: own, reading: reader });
        let (own, counted) = (front.clone(), Arc::clone(metrics));
        let answering = weir_http::serve(listener, limits, handler, own, clock.clone(), counted);
        front.spawn("standby", answering);
        let say = |lease: &Lease| {
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
        };
        let waiting = lease::stand_by(config, clock, url, front.shutdown(), say);
        metrics.standing_by.set(1);
        let cache = match config.cluster.standby_reads {
            true => tables::cache(&config.storage, metrics).context("cannot use the cache")?,
            false => None,
        };
        let ending = Shutdown::new();
        let following =
            Following { front: &front, reading: &reading, cache: cache.as_ref(), ending: &ending };
        let follow = self.follow(following, forwarding);
        let stood = async {
            let held = tokio::select! {
                held = waiting => held,
                () = stop_signal()? => Ok(None),
                () = images::prefetch(config, clock, metrics) => Ok(None),
            };
            front.shutdown().begin();
            // Reads may end, unless this server takes over.
            if matches!(held, Ok(None))
                && let Err(error) = front.wait(config.http.drain_timeout).await
            {
                tracing::warn!(%error, "requests were still running at the end of the drain time-out");
            }
            ending.begin();
            anyhow::Ok(held?)
        };
        let (held, followed) = tokio::join!(stood, follow);
        let Metrics { standing_by, standby_lag, standby_image_age, .. } = &**metrics;
        for gauge in [standing_by, standby_lag, standby_image_age] {
            gauge.set(0);
        }
        let Some(held) = held? else { return Ok(None) };
        if let Err(error) = followed {
            // Another one need not wait for this one's end.
            held.give_back().await;
            return Err(error);
        }
        Ok(Some(Stood { held, cache }))
    }

    fn forwarding(&self, writer: watch::Receiver<Option<Writer>>) -> anyhow::Result<Forwarding> {
        let tls = TlsArgs { ca_file: self.config.cluster.issuers().map(PathBuf::from) };
        let connections = client::connections::<Full<Bytes>>(&tls)?;
        let send = move |request| connections.request(request).err_into().boxed();
        let body_max_bytes = self.config.http.body_max_bytes.as_u64();
        let metrics = Arc::clone(self.metrics);
        Ok(Forwarding { writer, send: Arc::new(send), body_max_bytes, metrics })
    }

    /// Follows the server that writes, again and again, until `ending`. Then nobody has the stores in the data directory
    /// open any more.
    async fn follow(
        &self,
        Following { front, reading, cache, ending }: Following<'_>,
        forwarding: Option<Forwarding>,
    ) -> anyhow::Result<()> {
        let Some(forwarding) = forwarding else { return Ok(()) };
        let writer = self.config.storage.bucket.storage_url.as_ref().map(|bucket| {
            let ask = move || {
                let forwarding = forwarding.clone();
                async move {
                    let (holder, newest) = forwarding.position().await?;
                    Some((holder, Sequence(newest)))
                }
                .boxed()
            };
            following::Writer { lease: lease::name_of(bucket), ask: Arc::new(ask) }
        });
        let mut has_failed = false;
        loop {
            let back = Tasks::new(self.runtimes.main.clone());
            let process = Process {
                config: self.config.clone(),
                tasks: back.clone(),
                runtimes: self.runtimes.clone(),
                clock: self.clock.clone(),
                metrics: Arc::clone(self.metrics),
                distribute: None,
                cache: cache.cloned(),
                writer: writer.clone(),
            };
            let opened = tokio::select! {
                opened = App::follow(process) => opened,
                () = ending.cancelled() => Ok(None),
            };
            match opened {
                Ok(Some(app)) => {
                    has_failed = false;
                    let secret = Uuid::new_v4().simple().to_string().into();
                    let router = Router::new(app.clone(), secret, front.shutdown().clone());
                    reading.store(Some(Arc::new(router.with_guide(guide()))));
                    tracing::info!("follows the server that writes, and answers reads");
                    lost(&app, &back, ending).await;
                    reading.store(None);
                    let mut closed = close(&app, &back).await;
                    while closed.is_err() && ending.pause(FOLLOW_PAUSE).await == Pause::Elapsed {
                        closed = close(&app, &back).await;
                    }
                    closed?;
                }
                Ok(None) => end(&back).await,
                Err(error) => {
                    end(&back).await;
                    if !std::mem::replace(&mut has_failed, true) {
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(error, "cannot follow the server that writes yet");
                    }
                }
            }
            if ending.pause(FOLLOW_PAUSE).await == Pause::Cancelled {
                return Ok(());
            }
        }
    }
}

/// Returns once an app follows no more, or is to end.
async fn lost(app: &App, back: &Tasks, ending: &Shutdown) {
    let Some(following) = app.shard.pipeline.following() else { return };
    tokio::select! {
        () = following.lost() => {
            tracing::warn!("lost track of the server that writes; reads go there until this one follows again");
        }
        thread = back.failed() => {
            tracing::error!(thread, "a thread panicked; this server opens its stores again");
        }
        () = ending.cancelled() => {}
    }
}

/// Closes what follows. Requests that still read it fail, as long as it takes.
async fn close(app: &App, back: &Tasks) -> anyhow::Result<()> {
    end(back).await;
    let app = app.clone();
    let stopping = tokio::task::spawn_blocking(move || {
        let clock = Clock::system();
        let began = clock.monotonic();
        loop {
            let stopped: Result<(), OpenError> = app.stop_following();
            if stopped.is_ok() || clock.monotonic().saturating_sub(began) >= READERS_END {
                return stopped;
            }
        }
    });
    stopping.await?.context("somebody still reads the stores in the data directory")
}

/// Ends tasks and threads.
async fn end(back: &Tasks) {
    back.shutdown().begin();
    if let Err(error) = back.wait(THREADS_END).await {
        tracing::warn!(%error, "threads of the follower did not end in time");
    }
}
