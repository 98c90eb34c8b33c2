//! Where the tables of a project are read: by this process ([`Here`]), or by another one, to which the connection of the client
//! is passed on ([`Elsewhere`]). The port asks [`Places`] once for each session, which whoever opens it provides; [`Alone`] is
//! that of a server with all projects.

use std::net::IpAddr;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use tokio::io::{AsyncRead, AsyncWrite};

pub use crate::wire::frontend::CancelKey;
use weir_app::App;
use weir_event::id::ShardId;

/// A stream of bytes in both directions.
pub trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Socket for S {}

/// Where the tables of projects are read.
pub trait Places: Send + Sync {
    /// Reads projects and keys anew: a client has named some that are not known, and may just have been made at another server.
    /// Anybody can cause it, so it has to be rare.
    fn look(&self) -> BoxFuture<'_, ()>;

    /// Who has a shard; waits for a short time if nobody has it at the moment, and is `None` then. The client has signed in.
    fn find(&self, shard: ShardId, client: IpAddr) -> BoxFuture<'_, Option<Place>>;

    /// Cancels the statement of a session at another server. Returns whether one has that session.
    fn cancel(&self, key: CancelKey) -> BoxFuture<'_, bool>;
}

/// Who reads the tables of a project.
pub enum Place {
    /// This process.
    Here(Here),
    /// Another one.
    Elsewhere(Elsewhere),
}

/// This process reads them.
#[derive(Clone)]
pub struct Here {
    /// The read path.
    pub app: App,
    /// Whether it still may; `None` if nobody else ever does.
    pub tenure: Option<Arc<dyn Tenure>>,
}

/// The right of a process to read a shard, which may go to another one.
pub trait Tenure: Send + Sync {
    /// Whether a read that begins now sees whatever any server acknowledged before the call.
    fn is_sure(&self) -> BoxFuture<'_, bool>;

    /// Returns once the process has the shard no more.
    fn ended(&self) -> BoxFuture<'static, ()>;
}

/// Another process reads them.
pub struct Elsewhere {
    /// A connection to it, which [`Port::take`](crate::Port::take) serves there.
    pub stream: Box<dyn Socket>,
    /// Returns once that process has the shard no more, which it may be unable to tell.
    pub ended: BoxFuture<'static, ()>,
}

/// A server that has all projects, as long as it runs.
pub struct Alone(pub App);

impl Places for Alone {
    fn look(&self) -> BoxFuture<'_, ()> {
        ready(()).boxed()
    }

    fn find(&self, _: ShardId, _: IpAddr) -> BoxFuture<'_, Option<Place>> {
        ready(Some(Place::Here(Here { app: self.0.clone(), tenure: None }))).boxed()
    }

    fn cancel(&self, _: CancelKey) -> BoxFuture<'_, bool> {
        ready(false).boxed()
    }
}
