//! Sessions in which fragments of plans run: [`FragmentRuntime`].

use std::sync::Arc;
use std::time::Duration;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::datasource::physical_plan::{FileScanConfig, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::sink::DataSinkExec;
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::{LogicalPlan, ScalarUDF};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};
use datafusion::prelude::SessionConfig;
use object_store::ObjectStore;
use serde::{Deserialize, Serialize};

use crate::events::resolve_person::{ResolvePerson, Survivors};
use crate::events::table::store_url;
use crate::fragments::contained::{Contained, ContainedExec};
use crate::fragments::contents::OVERRIDES_MAX;
use crate::fragments::override_bases::{BaseName, Bases};
use crate::fragments::{Above, Base, Fragments};
use crate::guard;
use crate::guard::{Pools, Running, StopFunctions};
use crate::kernel::distribution::Candidate;
use crate::kernel::error::QueryError;
use crate::kernel::footers::KeptFooters;
use crate::kernel::resources::Resources;
use crate::kernel::session;
use weir_base::clock::Clock;
use weir_base::config::query::QueryConfig;
use weir_event::id::ProjectId;
use weir_identity::IdentityError;
use weir_identity::overrides::Overrides;

/// Settings of a query that its fragments share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FragmentSettings {
    /// The time zone of the project.
    time_zone: Option<String>,
    /// Rows of a batch.
    batch_rows: usize,
    /// Milliseconds that it may run.
    limit_millis: u64,
    /// The overrides of persons that are not in its plans.
    base: Option<BaseName>,
}

impl FragmentSettings {
    /// Those of a plan, of which these write the parts.
    pub fn of(candidate: &Candidate, writer: &Fragments) -> Self {
        let options = candidate.state.config_options();
        Self {
            time_zone: options.execution.time_zone.clone(),
            batch_rows: candidate.state.config().batch_size(),
            limit_millis: u64::try_from(candidate.limit.as_millis()).unwrap_or(u64::MAX),
            base: writer.base.as_ref().map(|base| base.name().clone()),
        }
    }
}

/// Stops the functions of a fragment when it is dropped.
#[derive(Debug)]
pub struct Stop(#[expect(dead_code, reason = "acts when it is dropped")] StopFunctions);

/// Memory, files and functions for fragments. Clones share them.
#[derive(Clone)]
pub struct FragmentRuntime {
    base: SessionState,
    pools: Pools,
    fragments: Fragments,
    bases: Bases,
    clock: Clock,
}

impl std::fmt::Debug for FragmentRuntime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FragmentRuntime").finish_non_exhaustive()
    }
}

impl FragmentRuntime {
    /// One of its own, within the limits of `settings`, over the files of events in `files`. Fragments
    /// do not spill: the query is run by the server that it is of.
    ///
    /// # Errors
    ///
    /// DataFusion refuses the settings.
    pub fn new(
        settings: &QueryConfig,
        files: Arc<dyn ObjectStore>,
        threads: usize,
        clock: Clock,
    ) -> std::result::Result<Self, QueryError> {
        let resources = Resources::within(settings);
        let (base, _) = session::base(settings, &resources, Arc::clone(&files), None, threads)?;
        Ok(Self::over(base, files, resources.pools, clock))
    }

    /// That of the queries of an engine, whose memory it shares.
    pub(crate) fn over(
        base: SessionState,
        files: Arc<dyn ObjectStore>,
        pools: Pools,
        clock: Clock,
    ) -> Self {
        let fragments = Fragments::new(&base.task_ctx(), Above::default(), pools.clone());
        let bases = Bases::new(files, &pools.values, clock.clone());
        Self { base, pools, fragments, bases, clock }
    }

    /// The same, which knows what is above, too.
    pub fn knowing(mut self, above: Above) -> Self {
        self.fragments.above = above;
        self
    }

    /// The memory and the files.
    pub fn environment(&self) -> &Arc<RuntimeEnv> {
        self.base.runtime_env()
    }

    /// What writes the parts of a candidate, by the functions that its session shares with all others. Blocks while it reads
    /// the store of persons.
    ///
    /// # Errors
    ///
    /// The overrides of its project cannot be read, or are too many for a plan and not in the bucket.
    pub async fn writer(&self, candidate: &Candidate) -> Result<Fragments> {
        let above = self.fragments.above;
        let mut own = Fragments::new(&candidate.state.task_ctx(), above, self.pools.clone());
        let known = &self.fragments.functions;
        Arc::make_mut(&mut own.functions).retain(|name, _| known.contains_key(name));
        if let Some((project, overrides)) = overrides_of(&candidate.query)?
            && overrides.map_of(project, OVERRIDES_MAX).map_err(external)?.is_none()
        {
            let changed = self.bases.changed(project, &overrides).await?.ok_or_else(|| {
                let why =
                    "the merged persons of its project are too many, or are not in the bucket yet";
                DataFusionError::NotImplemented(why.to_owned())
            })?;
            own.base = Some(Arc::new(Base::Changed(changed)));
        }
        Ok(own)
    }

    /// What reads the parts of a fragment in a session. It needs the overrides of its project only if its plan was sent: one
    /// of this process itself is not written and read.
    ///
    /// # Errors
    ///
    /// The overrides of its project are not in the bucket.
    pub async fn reader(
        &self,
        session: &SessionState,
        settings: &FragmentSettings,
        is_sent: bool,
    ) -> Result<Fragments> {
        let mut own = Fragments::new(&session.task_ctx(), self.fragments.above, self.pools.clone());
        if let Some(name) = settings.base.clone().filter(|_| is_sent) {
            let overrides = self.bases.base(&name).await?;
            own.base = Some(Arc::new(Base::Read(name, overrides)));
        }
        Ok(own)
    }

    /// The settings of the session of a fragment, with the extensions of `config`; and what stops its functions.
    pub fn config(
        &self,
        mut config: SessionConfig,
        settings: &FragmentSettings,
    ) -> (SessionConfig, Stop) {
        let own = self.base.config_options();
        let options = config.options_mut();
        options.catalog = own.catalog.clone();
        options.execution = own.execution.clone();
        options.optimizer = own.optimizer.clone();
        options.sql_parser = own.sql_parser.clone();
        options.execution.time_zone = settings.time_zone.clone();
        let running = Running::within(&self.clock, Duration::from_millis(settings.limit_millis));
        options.extensions.insert(running.clone());
        let rows = settings.batch_rows.clamp(1, own.execution.batch_size.get());
        (config.with_batch_size(rows), Stop(running.stopped_on_drop()))
    }

    /// The session of a fragment.
    pub fn session(&self, config: SessionConfig) -> SessionState {
        SessionStateBuilder::new_from_existing(self.base.clone()).with_config(config).build()
    }

    /// A fragment as it is executed here: reads footers by the cache, and bounds what operators pass on.
    ///
    /// # Errors
    ///
    /// It reads or writes anything but files of events and its own rows.
    pub fn admitted(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = plan.transform_up(|node| {
            if node.is::<DataSinkExec>() {
                return Err(refused());
            }
            let Some(source) = node.downcast_ref::<DataSourceExec>() else {
                return Ok(Transformed::no(node));
            };
            match source.data_source().downcast_ref::<FileScanConfig>() {
                Some(files) => Ok(Transformed::yes(self.reading(files)?)),
                None => Ok(Transformed::no(node)),
            }
        })?;
        let plan = self.fragments.bounded(plan.data, |_| false)?;
        let contained = |input| -> Arc<dyn ExecutionPlan> {
            Arc::new(ContainedExec { input, pass: Contained })
        };
        // The engine replaces a repartition at the head.
        match plan.downcast_ref::<RepartitionExec>() {
            Some(head) => {
                let input = contained(Arc::clone(head.input()));
                let keep = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
                plan.replace_children(vec![input], keep)
            }
            None => Ok(contained(plan)),
        }
    }

    /// A scan of files of events, with the reader of this process.
    fn reading(&self, files: &FileScanConfig) -> Result<Arc<dyn ExecutionPlan>> {
        let source = files.file_source().downcast_ref::<ParquetSource>().ok_or_else(refused)?;
        if files.object_store_url != store_url()? {
            return Err(refused());
        }
        let footers = KeptFooters::of(self.environment())?;
        let source = source.clone().with_parquet_file_reader_factory(Arc::new(footers));
        let files = FileScanConfigBuilder::from(files.clone()).with_source(Arc::new(source));
        Ok(DataSourceExec::from_data_source(files.build()))
    }
}

/// The overrides that the functions of a plan read from the store of persons.
fn overrides_of(plan: &LogicalPlan) -> Result<Option<(ProjectId, Arc<Overrides>)>> {
    let of = |function: &Arc<ScalarUDF>| {
        let own = function.inner().downcast_ref::<ResolvePerson>()?;
        match &own.survivors {
            Survivors::Store(overrides) => Some((own.project, Arc::clone(overrides))),
            Survivors::Map(_) => None,
        }
    };
    Ok(guard::called_functions(plan)?.iter().find_map(of))
}

fn external(error: IdentityError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

fn refused() -> DataFusionError {
    DataFusionError::Plan("a fragment reads files of events, and writes nothing".to_owned())
}
