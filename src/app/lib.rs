//! Composition root: opens a [`Node`] and the [`Shard`] of a data directory, hands out their handles, and closes in
//! reverse order. No request logic.
//!
//! Begin with [`App::open`]. [`shard`] contains what is derived from one log, [`node`] the process-wide state,
//! [`maintenance`] the jobs that flush, merge and delete.

pub mod assignment;
pub mod beats;
pub mod copy;
pub mod directory;
pub mod error;
pub mod flush;
mod follow;
pub mod images;
pub mod lease;
pub mod live_files;
pub mod lock;
mod log;
pub mod maintenance;
pub mod moving;
pub mod node;
pub mod overview;
pub mod shard;
mod sqlite_wal;
pub mod tables;
pub mod throttle;
pub mod verify;
pub mod views;
pub mod vitals;
pub mod workers;

use std::sync::Arc;
use std::time::Duration;

use futures::future::LocalBoxFuture;

use crate::copy::WorkingCopy;
use crate::directory::{MetadataPolicy, MetadataStart};
use crate::error::OpenError;
use crate::node::{Node, Process};
use crate::shard::{Role, Shard, Stores};
use crate::tables::TablesAccess;
use weir_event::id::ProjectId;
use weir_insights::sql;
use weir_metadata::accounts::KeyId;
use weir_metadata::postgres::MetadataAccess;
use weir_metadata::standing::Standing;
use weir_query::kernel::admission::Caller;
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::files::File;
use weir_query::output::format::Format;

/// Maximum age of ingestion warnings for which none is ever removed.
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Handle for requests: the read path within the limits of a caller, the shard, and the node. Cheap to clone.
#[derive(Clone, Debug)]
pub struct App {
    /// The read path.
    pub engine: Engine,
    /// The key, session or token of the request; `None` for the server itself, and for share links.
    standing: Option<Standing>,
    /// What is derived from the log.
    pub shard: Arc<Shard>,
    /// Process-wide state.
    pub node: Arc<Node>,
}

impl App {
    /// Opens all engines of the data directory, which the caller has locked, and starts the threads.
    /// Requests may arrive as soon as this returns; the replay of the log runs in the background.
    ///
    /// # Errors
    ///
    /// An engine cannot be opened; the message is for the operator.
    pub fn open(
        process: Process,
        policy: MetadataPolicy,
    ) -> LocalBoxFuture<'static, Result<Self, OpenError>> {
        Box::pin(async move {
            let stores = Stores::open(&process, TablesAccess::Write).await?;
            let (access, has_events) = (MetadataAccess::Write, stores.has_events());
            let node = Node::open(&process, MetadataStart { access, policy, has_events }).await?;
            let app = Self::compose(Arc::new(node), process, stores, Role::Serve).await?;
            app.node.start_jobs();
            Ok(app)
        })
    }

    /// Opens what the shards of a process have in common, for [`App::open_shard`]. The database of metadata has to have projects
    /// already, or gets its first one afterwards.
    ///
    /// # Errors
    ///
    /// The metadata cannot be opened; the message is for the operator.
    pub async fn open_node(process: &Process) -> Result<Arc<Node>, OpenError> {
        let (access, policy) = (MetadataAccess::Write, MetadataPolicy::Require);
        let start = MetadataStart { access, policy, has_events: false };
        let node = Arc::new(Node::open(process, start).await?);
        node.start_jobs();
        Ok(node)
    }

    /// Opens one of several shards of a process, whose lease it has, in a directory of its own, and starts its threads.
    ///
    /// # Errors
    ///
    /// An engine cannot be opened; the message is for the operator.
    pub fn open_shard(
        node: Arc<Node>,
        process: Process,
    ) -> LocalBoxFuture<'static, Result<Self, OpenError>> {
        Box::pin(async move {
            let stores = Stores::open(&process, TablesAccess::Write).await?;
            Self::compose(node, process, stores, Role::Serve).await
        })
    }

    /// Opens the shard of a bucket while another server writes it: what that acknowledges can be read here, and nothing is
    /// accepted ([`Pipeline::following`]). `None` if there is nothing to follow yet.
    ///
    /// # Errors
    ///
    /// An engine cannot be opened. As the bucket changes meanwhile, another attempt may succeed.
    ///
    /// [`Pipeline::following`]: weir_ingest::Pipeline::following
    pub fn follow(
        mut process: Process,
    ) -> LocalBoxFuture<'static, Result<Option<Self>, OpenError>> {
        Box::pin(async move {
            process.config.ingest.ingestion_warnings_max_age = NEVER;
            let Some(stores) = Stores::follow(&process).await? else { return Ok(None) };
            let (access, policy) = (MetadataAccess::Write, MetadataPolicy::Require);
            let start = MetadataStart { access, policy, has_events: stores.has_events() };
            let node = Arc::new(Node::open(&process, start).await?);
            Self::compose(node, process, stores, Role::Follow).await.map(Some)
        })
    }

    /// Opens a working copy of a data directory for queries. Replays the log, and flushes to the copy if the
    /// memtables are full. No other background job runs: no merges, no scheduled changes, no removal of old
    /// warnings.
    ///
    /// # Errors
    ///
    /// An engine cannot be opened; the message is for the operator.
    pub fn open_copy(
        copy: &WorkingCopy,
        mut process: Process,
    ) -> LocalBoxFuture<'_, Result<Self, OpenError>> {
        Box::pin(async move {
            process.config.storage.data_dir = copy.path().to_path_buf();
            process.config.ingest.ingestion_warnings_max_age = NEVER;
            let stores = Stores::open(&process, TablesAccess::Copy).await?;
            let (access, policy) = (MetadataAccess::Read, MetadataPolicy::Require);
            let start = MetadataStart { access, policy, has_events: stores.has_events() };
            let node = Arc::new(Node::open(&process, start).await?);
            Self::compose(node, process, stores, Role::Copy).await
        })
    }

    async fn compose(
        node: Arc<Node>,
        process: Process,
        stores: Stores,
        role: Role,
    ) -> Result<Self, OpenError> {
        let shard = Arc::new(Shard::open(Arc::clone(&node), process, stores, role).await?);
        if role != Role::Follow {
            shard.make_first_image().await?;
        }
        shard.start_jobs(role)?;
        Ok(Self { engine: shard.engine.clone(), standing: None, shard, node })
    }

    /// The same engines, with the query limits of this key, for as long as `standing` is valid.
    pub fn on_behalf_of(&self, key: KeyId, standing: Standing) -> Self {
        let engine = self.engine.on_behalf_of(Caller::Key(key));
        Self { engine, standing: Some(standing), ..self.clone() }
    }

    /// Returns once the key, session or token of the request is no longer valid.
    pub async fn ended(&self) {
        match &self.standing {
            Some(standing) => standing.ended().await,
            None => std::future::pending().await,
        }
    }

    /// The same engines, with the query limits that all share links of a project have in common.
    pub fn for_links(&self, project: ProjectId) -> Self {
        Self { engine: self.engine.on_behalf_of(Caller::Links(project)), ..self.clone() }
    }

    /// The same engines, pinned to one state of a project's data; see [`Engine::holding`].
    pub async fn holding(&self, project: ProjectId) -> Result<Self, QueryError> {
        Ok(Self { engine: self.engine.holding(project).await?, ..self.clone() })
    }

    /// Runs one SQL query on `project`, with the result in `format`. A long one is sent while it is computed.
    pub async fn sql(
        &self,
        project: ProjectId,
        sql: &str,
        format: Format,
    ) -> Result<File, QueryError> {
        sql::file(&self.engine, project, sql, format).await
    }

    /// Closes the shard: see [`Shard`]. The last step of a clean end, after [`Shard::drain`], and after the tasks were
    /// signalled to end. Blocks.
    ///
    /// # Errors
    ///
    /// The flush failed. No data is lost: the next start replays the log.
    pub fn close(self) -> Result<(), OpenError> {
        self.shard.close()
    }
}
