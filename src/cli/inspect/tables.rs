//! The tables of a data directory, opened for reading.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;

use crate::cli::environment;
use weir_app::tables;
use weir_app::tables::TablesAccess;
use weir_base::clock::Clock;
use weir_base::telemetry::metrics::Metrics;
use weir_event::id::ShardId;
use weir_storage::delta::{DeltaTable, TableSpec};
use weir_storage::tables::Tables;

/// Where the tables of a data directory are, for reading.
pub(in crate::cli) async fn tables_of(data_dir: &Path, clock: &Clock) -> anyhow::Result<Tables> {
    let mut config = environment::settings()?;
    config.storage.data_dir = data_dir.to_path_buf();
    Ok(tables::open(&config, ShardId::FIRST, TablesAccess::Read, clock, &Arc::new(Metrics::new()))
        .await?)
}

/// A table, if there is one.
pub(super) async fn open_table(
    tables: &Tables,
    spec: TableSpec,
    clock: &Clock,
) -> anyhow::Result<Option<DeltaTable>> {
    let files = tables.reading(spec.name);
    let files = files.with_context(|| format!("cannot use {}", tables.name(spec.name)))?;
    Ok(files.open_existing(spec, clock.clone()).await?)
}
