//! Builder of all DataFusion sessions: options, limits, functions, and the runtime environment with the memory and
//! spill files that all queries share.

use std::path::Path;
use std::sync::Arc;

use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::{FunctionRegistry, SessionState, SessionStateBuilder};
use datafusion::prelude::SessionConfig;
use object_store::ObjectStore;

use crate::events::table::store_url;
use crate::functions::local_time::LocalTimes;
use crate::functions::quantile;
use crate::guard::Pools;
use crate::kernel::error::QueryError;
use crate::kernel::resources::Resources;
use crate::kernel::spill;
use crate::persons::person_keys::NarrowPersons;
use crate::{functions, guard};
use weir_base::config::query::QueryConfig;

/// Memory of the cache of Parquet footers and page indexes.
const FILE_METADATA_CACHE_BYTES: usize = 64 << 20;

/// A session without tables whose plans do not spill, and the environment with spill files: what all queries of an engine
/// share. `files` are those of events.
pub(crate) fn base(
    settings: &QueryConfig,
    resources: &Resources,
    files: Arc<dyn ObjectStore>,
    spill: Option<&Path>,
    threads: usize,
) -> Result<(SessionState, Arc<RuntimeEnv>), QueryError> {
    let spilling = environment(settings, resources, files, spill)?;
    let base = session(spill::without(&spilling)?, &resources.pools, threads)?;
    Ok((base, spilling))
}

/// A session without tables.
pub(crate) fn session(
    environment: Arc<RuntimeEnv>,
    pools: &Pools,
    threads: usize,
) -> Result<SessionState, QueryError> {
    let mut config = SessionConfig::new()
        .with_target_partitions(threads)
        .with_default_catalog_and_schema("weir", "public")
        .with_create_default_catalog_and_schema(false)
        .with_information_schema(true);
    config.options_mut().execution.time_zone = Some("UTC".to_owned());
    config.options_mut().execution.enforce_batch_size_in_joins = true;
    config.options_mut().sql_parser.enable_ident_normalization = true;
    // It reserves memory for as many groups as the LIMIT, whether there are so many or not.
    config.options_mut().optimizer.enable_topk_aggregation = false;
    // Dynamic filters, which joins and ORDER BY with LIMIT create as they run: in this version they reach a scan by
    // column name, so that one alias of a table may get the bound of another (DataFusion 25244).
    config.options_mut().optimizer.enable_topk_dynamic_filter_pushdown = false;
    config.options_mut().optimizer.enable_join_dynamic_filter_pushdown = false;
    config.options_mut().optimizer.enable_aggregate_dynamic_filter_pushdown = false;
    // It evaluates JSON accesses right above the scan, and in this version reads columns there as stored: an event's
    // person would be the one before all merges (DataFusion 25414).
    config.options_mut().optimizer.enable_leaf_expression_pushdown = false;
    let builder = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(environment)
        .with_default_features();
    let builder = builder
        .with_analyzer_rule(Arc::new(LocalTimes))
        .with_optimizer_rule(Arc::new(NarrowPersons));
    let mut base = guard::with_limits(builder, pools).build();
    datafusion_functions_json::register_all(&mut base)?;
    base.register_udf(Arc::new(quantile::function()))?;
    functions::register(&mut base)?;
    Ok(guard::without_absent(base)?)
}

/// The environment of an engine: its memory pool is shared by all queries.
fn environment(
    settings: &QueryConfig,
    resources: &Resources,
    files: Arc<dyn ObjectStore>,
    spill: Option<&Path>,
) -> Result<Arc<RuntimeEnv>, QueryError> {
    let disk_max = settings.query_spill_max_bytes.as_u64();
    let environment = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::clone(&resources.operators))
        .with_disk_manager_builder(spill::files(spill, disk_max))
        .with_metadata_cache_limit(FILE_METADATA_CACHE_BYTES)
        .build_arc()?;
    let url = store_url()?;
    environment.register_object_store(url.as_ref(), files);
    Ok(environment)
}
