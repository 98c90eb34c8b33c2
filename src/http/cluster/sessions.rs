//! Sessions of clients that do not speak HTTP, on any node of a cluster: each is where the shard of its project is. A node
//! without it connects to the one that has it ([`Cluster::find`]): a request with the secret of nodes, after whose answer the
//! connection speaks the protocol of the client ([`Gate`]). What that is, is not known here.

use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use hyper::header::{CONNECTION, HeaderValue, UPGRADE};
use hyper::{Method, StatusCode};

use crate::cluster::{Cluster, Seat, WAIT_MAX};
use crate::forward::{SESSION_PROTOCOL, Writer, misdirected};
use crate::handler::{Handler, Matched};
use crate::request::{Request, Sender, Stream};
use crate::response::{Problem, Response};
use crate::router::{Route, Router};
use crate::routes::internal::Internal;
use weir_app::App;
use weir_app::lease::Held;
use weir_event::id::ShardId;

/// A shard that this node has, for a session that may outlive that.
#[derive(Clone, Debug)]
pub struct Tenancy {
    cluster: Arc<Cluster>,
    shard: ShardId,
    router: Arc<Router>,
    held: Held,
}

/// Where the session of a client is to be.
pub enum Found {
    /// Here.
    Here(Tenancy),
    /// At another node.
    There {
        /// A connection to it.
        stream: Stream,
        /// Returns once it does not have the shard any more.
        left: BoxFuture<'static, ()>,
    },
}

impl std::fmt::Debug for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Here(tenancy) => f.debug_tuple("Here").field(&tenancy.shard).finish(),
            Self::There { stream, left: _ } => f.debug_tuple("There").field(stream).finish(),
        }
    }
}

/// The sessions of a node.
pub trait Sessions: Send + Sync + 'static {
    /// Serves the connection of a client that another node passes on. `stream` gives nothing if it breaks off before.
    fn take(&self, tenancy: Tenancy, client: IpAddr, stream: BoxFuture<'static, Option<Stream>>);

    /// Cancels what a session runs, by its number and its secret. Returns whether there is such a session.
    fn cancel(&self, session: (i32, i32)) -> bool;
}

/// Answers requests on a node of a cluster, and takes connections that other nodes pass on.
pub struct Gate {
    /// Answers requests.
    pub cluster: Arc<Cluster>,
    /// Takes connections; `None` if this program has no sessions.
    pub sessions: Option<Arc<dyn Sessions>>,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

impl Handler for Gate {
    type Route = Route;

    fn route(&self, method: &Method, path: &str) -> Matched<Route> {
        self.cluster.route(method, path)
    }

    async fn handle(&self, route: Route, request: Request) -> Response {
        let sessions = self.sessions.as_deref();
        match (route, sessions) {
            (Route::Internal(Internal::Session), Some(sessions)) => {
                self.take(sessions, request).await.unwrap_or_else(Response::from)
            }
            (Route::Internal(Internal::CancelSession), Some(sessions)) => {
                cancel(sessions, &request).unwrap_or_else(Response::from)
            }
            (route, _) => self.cluster.handle(route, request).await,
        }
    }
}

impl Gate {
    /// Takes a connection, if the shard is here; else the other node asks whoever has it now.
    async fn take(&self, sessions: &dyn Sessions, request: Request) -> Result<Response, Problem> {
        let (shard, client) = (number(&request, "shard"), request.client_ip);
        let Sender::Server(upgrade) = request.sender else {
            return Err(Problem::not_authenticated());
        };
        let (Some(shard), Some(upgrade)) = (shard, upgrade) else {
            return Err(Problem::invalid_payload("It is no connection for a shard."));
        };
        let tenancy = match self.cluster.seats.get(ShardId(shard)) {
            Some(Seat::Here(router, held)) if held.is_sure().await => {
                let cluster = Arc::clone(&self.cluster);
                Tenancy { cluster, shard: ShardId(shard), router, held }
            }
            _ => return Ok(misdirected()),
        };
        sessions.take(tenancy, client, Box::pin(upgrade.stream()));
        let mut response = Response::empty(StatusCode::SWITCHING_PROTOCOLS);
        response.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        response.headers.insert(UPGRADE, HeaderValue::from_static(SESSION_PROTOCOL));
        Ok(response)
    }
}

fn cancel(sessions: &dyn Sessions, request: &Request) -> Result<Response, Problem> {
    if !request.is_of_server() {
        return Err(Problem::not_authenticated());
    }
    let session = number(request, "session").zip(number(request, "secret"));
    match session.is_some_and(|session| sessions.cancel(session)) {
        true => Ok(Response::empty(StatusCode::NO_CONTENT)),
        // All nodes are asked, of which one has it.
        false => Ok(Response::text(StatusCode::OK, "no such session")),
    }
}

fn number<N: FromStr>(request: &Request, name: &str) -> Option<N> {
    request.query(name)?.parse().ok()
}

impl Tenancy {
    /// The read path.
    pub fn app(&self) -> &App {
        self.router.app()
    }

    /// Whether a read that begins now sees whatever any node acknowledged before the call.
    pub async fn is_sure(&self) -> bool {
        self.cluster.refresh().await;
        self.is_here() && self.held.is_sure().await
    }

    fn is_here(&self) -> bool {
        let seat = self.cluster.seats.get(self.shard);
        matches!(seat, Some(Seat::Here(router, _)) if Arc::ptr_eq(&router, &self.router))
    }

    /// Returns once this node has the shard no more.
    pub async fn ended(self) {
        tokio::select! {
            () = self.cluster.seats.wait(|| !self.is_here()) => {}
            () = self.held.lost() => {}
        }
    }
}

impl Cluster {
    /// Where the session of a client is to be that reads a shard. If no node has it, this waits for a short time as requests do,
    /// and is `None` then.
    pub async fn find(self: &Arc<Self>, shard: ShardId, client: IpAddr) -> Option<Found> {
        let ends = self.node.clock.monotonic().saturating_add(WAIT_MAX);
        let mut before = None;
        loop {
            match self.seats.get(shard) {
                Some(Seat::Here(router, held)) => {
                    let cluster = Arc::clone(self);
                    let tenancy = Tenancy { cluster, shard, router, held };
                    return tenancy.held.is_sure().await.then_some(Found::Here(tenancy));
                }
                Some(Seat::There(owner)) if before.as_ref() != Some(&owner) => {
                    if let Some(stream) = self.connected(&owner, shard, client, ends).await {
                        let cluster = Arc::clone(self);
                        let left = async move { cluster.seats.left(shard, &owner).await };
                        return Some(Found::There { stream, left: Box::pin(left) });
                    }
                    before = Some(owner);
                }
                _ if !self.awaited(shard, before.as_ref(), ends).await => return None,
                _ => {}
            }
        }
    }

    /// A connection to the node that has a shard; `None` if it cannot be reached, or has the shard no more.
    async fn connected(
        &self,
        owner: &Writer,
        shard: ShardId,
        client: IpAddr,
        ends: Duration,
    ) -> Option<Stream> {
        let left = ends.saturating_sub(self.node.clock.monotonic());
        let connecting = tokio::time::timeout(left, self.sending.connect(owner, shard, client));
        tokio::select! {
            stream = connecting => stream.ok().flatten(),
            // Its answer may never come: it has ended, or sleeps.
            () = self.seats.left(shard, owner) => None,
        }
    }

    /// Cancels what a session of another node runs. Returns whether one has that session.
    pub async fn cancel_elsewhere(&self, session: (i32, i32)) -> bool {
        let mut nodes: Vec<Writer> = Vec::new();
        for seat in self.seats.seats.load().values() {
            if let Seat::There(node) = seat
                && !nodes.iter().any(|known| known.url == node.url)
            {
                nodes.push(node.clone());
            }
        }
        let asking = join_all(nodes.iter().map(|node| self.sending.cancel_session(node, session)));
        let told = tokio::time::timeout(WAIT_MAX, asking).await;
        told.is_ok_and(|told| told.contains(&true))
    }

    /// Reads projects and keys anew, because a client has named some that are not known.
    pub async fn look(&self) {
        self.refresh_for_unknown().await;
    }
}
