//! Requests to a node of a cluster ([`Cluster`]): each is answered where the shard of its project is, here or at the node that
//! has the shard, to which it is passed on, at most once. Requests about no project belong to the first shard, so that all
//! that can be read after each other is read at one place.
//!
//! While a shard changes its node, requests wait for a short time, and are refused then, as clients of a server that stands by
//! are: they send them again.

mod locate;
pub mod sessions;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use hyper::{Method, StatusCode};
use tokio::sync::{Mutex, watch};

use crate::cluster::locate::Located;
use crate::forward::{Passed, Sending, Sent, Writer, misdirected, standing_by};
use crate::handler::{Handler, Matched};
use crate::public::Public;
use crate::request::Request;
use crate::response::{Problem, Response};
use crate::router::{Route, Router, matched};
use crate::routes::health;
use crate::routes::internal::Internal;
use weir_app::lease::Held;
use weir_app::node::Node;
use weir_base::error::Kind;
use weir_base::telemetry::metrics::Metrics;
use weir_event::id::ShardId;

/// Longest time that a request waits for a shard that nobody has at the moment.
const WAIT_MAX: Duration = Duration::from_secs(3);

/// Longest time to read the metadata anew for a request. Without PostgreSQL nobody changes them.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// Shortest time between two looks for metadata because a request names something that is not known.
const UNKNOWN_PAUSE: Duration = Duration::from_millis(100);

/// A shard, as this node sees it.
#[derive(Clone, Debug)]
pub enum Seat {
    /// This node has it.
    Here(Arc<Router>, Held),
    /// This node gives it away, or has lost it: who passes a request on asks the next node.
    Leaving,
    /// Another node has it.
    There(Writer),
}

/// The shards that some node has.
#[derive(Debug)]
pub struct Seats {
    seats: ArcSwap<BTreeMap<ShardId, Seat>>,
    changes: watch::Sender<u64>,
}

impl Default for Seats {
    fn default() -> Self {
        Self { seats: ArcSwap::default(), changes: watch::Sender::new(0) }
    }
}

impl Seats {
    /// Notes who has a shard; `None` if nobody has it.
    pub fn set(&self, shard: ShardId, seat: Option<Seat>) {
        let is_same = match (self.get(shard), &seat) {
            (None, None) | (Some(Seat::Leaving), Some(Seat::Leaving)) => true,
            (Some(Seat::There(known)), Some(Seat::There(now))) => known == *now,
            _ => false,
        };
        if is_same {
            return;
        }
        self.seats.rcu(|seats| {
            let mut seats = BTreeMap::clone(seats);
            match seat.clone() {
                Some(seat) => seats.insert(shard, seat),
                None => seats.remove(&shard),
            };
            seats
        });
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Who has a shard.
    pub fn get(&self, shard: ShardId) -> Option<Seat> {
        self.seats.load().get(&shard).cloned()
    }

    /// The shards that this node has.
    pub fn here(&self) -> Vec<(ShardId, Arc<Router>)> {
        let seats = self.seats.load();
        let here = seats.iter().filter_map(|(shard, seat)| match seat {
            Seat::Here(router, _) => Some((*shard, Arc::clone(router))),
            Seat::Leaving | Seat::There(_) => None,
        });
        here.collect()
    }

    /// Waits until the node `owner` does not have a shard any more.
    async fn left(&self, shard: ShardId, owner: &Writer) {
        self.wait(|| !self.is_at(shard, owner)).await;
    }

    /// Waits until a node has a shard, another one than `before`.
    async fn taken(&self, shard: ShardId, before: Option<&Writer>) {
        let is_taken = || match self.get(shard) {
            Some(Seat::Here(..)) => true,
            Some(Seat::There(owner)) => before != Some(&owner),
            Some(Seat::Leaving) | None => false,
        };
        self.wait(is_taken).await;
    }

    fn is_at(&self, shard: ShardId, owner: &Writer) -> bool {
        matches!(self.get(shard), Some(Seat::There(now)) if now == *owner)
    }

    async fn wait(&self, is_so: impl Fn() -> bool) {
        let mut changes = self.changes.subscribe();
        // The sender lives as long as this.
        let _ = changes.wait_for(|_| is_so()).await;
    }
}

/// Answers requests on a node of a cluster.
#[derive(Debug)]
pub struct Cluster {
    /// Who has which shard.
    pub seats: Arc<Seats>,
    /// Passes requests on.
    pub sending: Sending,
    /// What the shards of this node have in common.
    pub node: Arc<Node>,
    /// When the last look for metadata began. Held by who looks.
    pub looked_at: Mutex<Option<Duration>>,
}

impl Handler for Cluster {
    type Route = Route;

    fn route(&self, method: &Method, path: &str) -> Matched<Route> {
        matched(method, path)
    }

    async fn handle(&self, route: Route, mut request: Request) -> Response {
        match &route {
            Route::Public(Public::Liveness) => health::liveness(),
            Route::Public(Public::Readiness) => self.readiness(),
            Route::Public(Public::Metrics) => self.metrics(),
            Route::Internal(what) => self.internal(*what, request).await,
            Route::WrongMethod(_) | Route::Unknown => {
                self.at(Located::nowhere(), route, request).await
            }
            _ => {
                let located = self.located(&route, &mut request).await;
                self.at(located, route, request).await
            }
        }
    }
}

impl Cluster {
    /// Answers a request where the shard is.
    async fn at(&self, located: Located, route: Route, request: Request) -> Response {
        let shard = self.shard(located.project);
        let ends = self.node.clock.monotonic().saturating_add(WAIT_MAX);
        loop {
            match self.seats.get(shard) {
                Some(Seat::Here(router, held)) => {
                    return match held.is_sure().await {
                        true => router.handle(route, request).await,
                        false => standing_by().into(),
                    };
                }
                // The node that has passed it on asks whoever has the shard now.
                Some(Seat::There(_) | Seat::Leaving) if request.is_of_server() => {
                    return misdirected();
                }
                Some(Seat::There(owner)) => {
                    return self.there((shard, located), owner, request, ends).await;
                }
                // Also while this node opens it, whose lease others see already.
                Some(Seat::Leaving) | None => {
                    if !self.awaited(shard, None, ends).await {
                        return standing_by().into();
                    }
                }
            }
        }
    }

    /// Passes a request on to the node that has the shard, and to the next one if it has it no more.
    async fn there(
        &self,
        (shard, located): (ShardId, Located),
        mut owner: Writer,
        request: Request,
        ends: Duration,
    ) -> Response {
        let passed = match Passed::read(request, self.sending.body_max_bytes).await {
            Ok(passed) => passed.located(located.to_header()),
            Err(problem) => return problem.into(),
        };
        loop {
            let sent = tokio::select! {
                sent = self.sending.send(&owner, passed.clone()) => sent,
                // Its answer may never come: it has ended, or sleeps.
                () = self.seats.left(shard, &owner) => Err(standing_by()),
            };
            match sent {
                Ok(Sent::Answered(response)) => return response,
                Ok(Sent::Untouched) => {}
                Err(problem) => return problem.into(),
            }
            if !self.awaited(shard, Some(&owner), ends).await {
                return standing_by().into();
            }
            owner = match self.seats.get(shard) {
                Some(Seat::There(owner)) => owner,
                // It has come here; the client sends it again.
                Some(Seat::Here(..) | Seat::Leaving) | None => return standing_by().into(),
            };
        }
    }

    /// Waits until a node has a shard, another one than `before`; `false` at the end of the time.
    async fn awaited(&self, shard: ShardId, before: Option<&Writer>, ends: Duration) -> bool {
        let left = ends.saturating_sub(self.node.clock.monotonic());
        tokio::time::timeout(left, self.seats.taken(shard, before)).await.is_ok()
    }

    /// Reads the metadata anew: whatever was acknowledged before the call is in the snapshot then, if PostgreSQL answers.
    async fn refresh(&self) {
        self.refresh_since(self.node.clock.monotonic()).await;
    }

    /// The same, unless somebody has begun to after this moment.
    async fn refresh_since(&self, came: Duration) {
        let mut looked_at = self.looked_at.lock().await;
        if looked_at.is_some_and(|began| began >= came) {
            return;
        }
        let began = self.node.clock.monotonic();
        match tokio::time::timeout(LOOK_MAX, self.node.metadata.refresh()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::debug!(%error, "cannot read the metadata anew for a request");
            }
            Err(_) => tracing::debug!("cannot read the metadata anew for a request in time"),
        }
        *looked_at = Some(began);
    }

    /// The same because something is not known, which anybody can send: not more often than [`UNKNOWN_PAUSE`], for which
    /// such requests wait. What has just been made elsewhere is found by that.
    async fn refresh_for_unknown(&self) {
        let came = self.node.clock.monotonic();
        let last = *self.looked_at.lock().await;
        let next = last.map_or(Duration::ZERO, |began| began.saturating_add(UNKNOWN_PAUSE));
        tokio::time::sleep(next.saturating_sub(came)).await;
        self.refresh_since(came).await;
    }

    /// Ready is who knows where any shard is: requests about others wait.
    fn readiness(&self) -> Response {
        match self.seats.seats.load().is_empty() {
            false => Response::text(StatusCode::OK, "ready"),
            true => standing_by().into(),
        }
    }

    fn metrics(&self) -> Response {
        let here = self.seats.here();
        let shards =
            here.iter().map(|(shard, router)| (shard.to_string(), &*router.app().shard.metrics));
        let page = Metrics::render_all(&self.node.metrics, shards);
        health::metrics_page(page)
    }

    /// A command on this machine: flushes are of all shards that this node has, questions about a project are answered if this
    /// node has it, and everything else is about the first shard.
    async fn internal(&self, what: Internal, mut request: Request) -> Response {
        let here = self.seats.here();
        let Some(((_, first), others)) = here.split_first() else {
            let detail = "This node has no shard at the moment.";
            return Problem::new(Kind::Unavailable, "standing_by", detail).into();
        };
        if matches!(what, Internal::Query | Internal::Mcp) {
            let shard = self.shard_of_command(what, &mut request).await;
            return match self.seats.get(shard) {
                Some(Seat::Here(router, _)) => router.handle(Route::Internal(what), request).await,
                Some(Seat::There(Writer { url, .. })) => {
                    let detail = format!(
                        "The project is in shard {shard}, which {url} has: run the command there."
                    );
                    Problem::new(Kind::Unavailable, "elsewhere", detail).into()
                }
                Some(Seat::Leaving) | None => standing_by().into(),
            };
        }
        if what == Internal::Flush {
            let apps: Vec<_> = here.iter().map(|(_, router)| router.app().clone()).collect();
            return first.flush_all(&apps, &request).await;
        }
        if what == Internal::FlushPersons {
            for (_, router) in others {
                let Some(own) = request.derived_with_credentials() else { continue };
                let answer = router.handle(Route::Internal(what), own).await;
                if answer.status != StatusCode::OK {
                    return answer;
                }
            }
        }
        first.handle(Route::Internal(what), request).await
    }
}
