//! Where sessions of the PostgreSQL port read, if not on a single server: on a node of a cluster ([`OfNodes`]), and on a server
//! that follows the one that writes ([`OfFollower`]).

use std::net::IpAddr;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};

use weir_app::App;
use weir_base::tasks::Shutdown;
use weir_event::id::ShardId;
use weir_http::cluster::Cluster;
use weir_http::cluster::sessions::{Found, Sessions, Tenancy};
use weir_http::request::Stream;
use weir_pg::Port;
use weir_pg::places::{CancelKey, Elsewhere, Here, Place, Places, Socket, Tenure};

/// On any node: here if the shard is, else at the node that has it.
pub(super) struct OfNodes(pub(super) Arc<Cluster>);

impl Places for OfNodes {
    fn look(&self) -> BoxFuture<'_, ()> {
        self.0.look().boxed()
    }

    fn find(&self, shard: ShardId, client: IpAddr) -> BoxFuture<'_, Option<Place>> {
        let finding = async move {
            Some(match self.0.find(shard, client).await? {
                Found::Here(tenancy) => Place::Here(here(tenancy)),
                Found::There { stream, left } => {
                    Place::Elsewhere(Elsewhere { stream: Box::new(stream), ended: left })
                }
            })
        };
        finding.boxed()
    }

    fn cancel(&self, CancelKey { process, secret }: CancelKey) -> BoxFuture<'_, bool> {
        self.0.cancel_elsewhere((process, secret)).boxed()
    }
}

fn here(tenancy: Tenancy) -> Here {
    Here { app: tenancy.app().clone(), tenure: Some(Arc::new(OfNode(tenancy))) }
}

struct OfNode(Tenancy);

impl Tenure for OfNode {
    fn is_sure(&self) -> BoxFuture<'_, bool> {
        self.0.is_sure().boxed()
    }

    fn ended(&self) -> BoxFuture<'static, ()> {
        self.0.clone().ended().boxed()
    }
}

/// Takes the connections that other nodes pass on.
pub(super) struct Taking(pub(super) Port);

impl Sessions for Taking {
    fn take(&self, tenancy: Tenancy, client: IpAddr, stream: BoxFuture<'static, Option<Stream>>) {
        let stream = stream.map(|stream| stream.map(|own| Box::new(own) as Box<dyn Socket>));
        self.0.take(here(tenancy), client, stream);
    }

    fn cancel(&self, (process, secret): (i32, i32)) -> bool {
        self.0.cancel(CancelKey { process, secret })
    }
}

/// On a server that follows: as of everything that any server has acknowledged, or not at all.
pub(super) struct OfFollower {
    pub(super) app: App,
    /// Begins once it follows no more.
    pub(super) ending: Shutdown,
}

impl Places for OfFollower {
    fn look(&self) -> BoxFuture<'_, ()> {
        // It also reads the metadata anew.
        self.app.is_newest().map(drop).boxed()
    }

    fn find(&self, _: ShardId, _: IpAddr) -> BoxFuture<'_, Option<Place>> {
        let finding = async {
            let (app, ending) = (self.app.clone(), self.ending.clone());
            let tenure = AsFollower { app: app.clone(), ending };
            let is_newest = app.is_newest().await;
            is_newest.then(|| Place::Here(Here { app, tenure: Some(Arc::new(tenure)) }))
        };
        finding.boxed()
    }

    fn cancel(&self, _: CancelKey) -> BoxFuture<'_, bool> {
        ready(false).boxed()
    }
}

struct AsFollower {
    app: App,
    ending: Shutdown,
}

impl Tenure for AsFollower {
    fn is_sure(&self) -> BoxFuture<'_, bool> {
        self.app.is_newest().boxed()
    }

    fn ended(&self) -> BoxFuture<'static, ()> {
        let ending = self.ending.clone();
        async move { ending.cancelled().await }.boxed()
    }
}
