//! The `events` table as seen by queries: files and memtables of one snapshot, rows of one project, persons resolved
//! through the merges since.

use std::iter;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::memory::MemorySourceConfig;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::DFSchema;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::prelude::ident;

use crate::events::promoted::Promoted;
use crate::events::resolve_person::{Gives, ResolvePerson, Survivors};
use crate::events::row_filter::is_row_filter;
use crate::events::scoped::{PROJECT, Scope, ScopedExec};
use crate::events::{deleted, promoted, pruning, row_filter, scoped};
use crate::kernel::footers::KeptFooters;
use crate::persons::person_numbers::PersonNumbers;
use weir_base::clock::UnixMicros;
use weir_event::dictionary;
use weir_event::id::ProjectId;
use weir_event::promotion::Promotion;
use weir_identity::deletions::Deletions;
use weir_identity::overrides::Overrides;
use weir_storage::delta::DataFile;
use weir_storage::rows::Rows;
use weir_storage::store::{Snapshot, Store};

/// The object store URL under which DataFusion finds the files of the table.
///
/// # Errors
///
/// Never; the address is a constant that parses.
pub fn store_url() -> Result<ObjectStoreUrl> {
    ObjectStoreUrl::parse("weir://events/")
}

/// The number of the person to which an event currently belongs; see [`PersonNumbers`].
pub const PERSON_NUMBER: &str = "person_number";

/// The name of a project's events below the view on them, with persons as stored.
pub(crate) const OWN_EVENTS: &str = "own_events";

/// What queries see of the events of a project.
pub(crate) struct Shown<'s> {
    /// Not the deleted ones. They are no newer than the snapshot of the rows: completed deletions are removed from the set
    /// only after the files were rewritten.
    pub(crate) deletions: Arc<Deletions>,
    /// None from before this time.
    pub(crate) kept_from: Option<UnixMicros>,
    /// The columns of these properties.
    pub(crate) promotions: &'s [Promotion],
}

/// One project's events as seen by SQL, and the same with an additional column [`PERSON_NUMBER`].
#[derive(Clone, Debug)]
pub(crate) struct EventTables {
    pub(crate) plain: Arc<dyn TableProvider>,
    pub(crate) numbered: Arc<dyn TableProvider>,
    /// The promotions of which they have columns.
    pub(crate) promotions: Arc<[Promotion]>,
}

/// One project's events, as far as they are shown. The column `project_id` is not exposed, so no query can see another
/// project's.
///
/// # Errors
///
/// A bug in the plan of the view.
pub(crate) fn event_tables(
    store: &Store,
    snapshot: Snapshot,
    project: ProjectId,
    numbers: &Arc<PersonNumbers>,
    overrides: Arc<Overrides>,
    Shown { deletions, kept_from, promotions }: Shown<'_>,
) -> Result<EventTables> {
    // Without descriptions, which no plan needs: fields that differ in them would be cast.
    let stored = dictionary::plain(&store.table().spec().schema);
    let promotions = promoted::fitting(promotions, &snapshot.version.schema);
    let (promoted, stored) = Promoted::of(promotions, stored);
    let promotions = Arc::clone(promoted.promotions());
    // Without splits the person alone suffices, and distinct ids need not be read.
    let distinct_id = overrides.has_splits(project).then(|| ident("distinct_id"));
    let stored_with: Vec<Expr> = iter::once(ident("person_id")).chain(distinct_id).collect();
    let number = numbers.of_event(stored_with.clone()).alias(PERSON_NUMBER);
    // Only overrides of this project may influence the plan, as EXPLAIN shows it.
    let person = match overrides.concerns(project) {
        true => {
            let resolve = ResolvePerson::function(
                (project, Survivors::Store(overrides)),
                stored_with.len(),
                Gives::Text,
            );
            resolve.call(stored_with).alias("person_id")
        }
        false => ident("person_id"),
    };
    let own = (0..).zip(stored.fields()).filter(|(_, field)| field.name() != PROJECT);
    let columns: Vec<usize> = own.map(|(at, _)| at).collect();
    let schema = Arc::new(stored.project(&columns)?);
    // Without deletions, log positions are not needed.
    let deletions = deletions.concerns(project).then_some(deletions);
    let stored = match deletions {
        Some(_) => deleted::with_position(stored),
        None => TableSchema::from(stored),
    };
    let scope = Scope { project, deletions, kept_from };
    let events = Events { schema: Arc::clone(&schema), columns, stored, promoted, scope, snapshot };
    let mut shown: Vec<Expr> = schema
        .fields()
        .iter()
        .map(|field| match field.name().as_str() {
            "person_id" => person.clone(),
            name => ident(name),
        })
        .collect();
    let events = provider_as_source(Arc::new(events));
    let scan = LogicalPlanBuilder::scan(OWN_EVENTS, events, None)?;
    let table = |shown: Vec<Expr>| {
        let plan = scan.clone().project(shown)?.build()?;
        Ok::<_, DataFusionError>(Arc::new(ViewTable::new(plan, None)))
    };
    let plain = table(shown.clone())?;
    shown.push(number);
    Ok(EventTables { plain, numbered: table(shown)?, promotions })
}

/// What a scan reads.
struct Sources {
    /// The files that may have rows of the query.
    files: Vec<Arc<DataFile>>,
    /// Whether rows in memory are read, too.
    with_memory: bool,
    /// Filters by which row groups and pages are pruned, and which are evaluated during the read where that saves work
    /// ([`row_filter::pays`]), so that other columns are not decoded for rows that do not match. A filter operator
    /// above [`ScopedExec`] evaluates them again.
    filters: Vec<Arc<dyn PhysicalExpr>>,
}

/// A project's events of one snapshot, with persons as stored.
#[derive(Debug)]
struct Events {
    /// The columns that a query may name.
    schema: SchemaRef,
    /// Their indexes among the file columns.
    columns: Vec<usize>,
    /// The file columns, followed by the log position if it is needed.
    stored: TableSchema,
    /// The last of the file columns.
    promoted: Promoted,
    scope: Scope,
    snapshot: Snapshot,
}

#[async_trait]
impl TableProvider for Events {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        // A filter operator above decides; here filters only prune files, row groups, pages and rows.
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let wanted: Vec<usize> = match projection {
            Some(wanted) => wanted.iter().filter_map(|at| self.columns.get(*at).copied()).collect(),
            None => self.columns.clone(),
        };
        let scan = self.sources(state, filters)?;
        if !self.promoted.is_any(&wanted) {
            return self.scoped(state, &wanted, scan, limit);
        }
        let has_all = |file: &Arc<DataFile>| self.promoted.are_in(file, &wanted);
        let (complete, others) = scan.files.into_iter().partition(has_all);
        let mut parts = Vec::new();
        let sources = self.promoted.sources(&wanted);
        let apart = scan.filters.iter().filter(|filter| self.promoted.is_apart(filter)).cloned();
        let rest = Sources { files: others, with_memory: true, filters: apart.collect() };
        let complete = Sources { files: complete, with_memory: false, filters: scan.filters };
        if !complete.files.is_empty() {
            parts.push(self.scoped(state, &wanted, complete, limit)?);
        }
        if parts.is_empty() || !rest.files.is_empty() || !self.snapshot.batches.is_empty() {
            let rows = self.scoped(state, &sources, rest, limit)?;
            parts.push(self.promoted.complete(rows, self.stored.table_schema(), &wanted)?);
        }
        one_of(parts)
    }
}

impl Events {
    /// These columns of the project's rows in some sources.
    fn scoped(
        &self,
        state: &dyn Session,
        wanted: &[usize],
        sources: Sources,
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut columns = wanted.to_vec();
        // After the requested columns, those that are needed to evaluate the scope.
        for name in self.scope.columns() {
            let at = self.stored.table_schema().index_of(name)?;
            if !columns.contains(&at) {
                columns.push(at);
            }
        }
        let rows = self.rows(state, &columns, sources)?;
        Ok(Arc::new(ScopedExec::new(rows, self.scope.clone(), wanted.len(), limit)?))
    }

    /// All sources, without files that have no such rows, and the filters for them. A filter that cannot be planned is left to the operators above.
    fn sources(&self, state: &dyn Session, filters: &[Expr]) -> Result<Sources> {
        let table = self.stored.table_schema();
        let schema = DFSchema::try_from(Arc::clone(table))?;
        let physical = |filter: &Expr| state.create_physical_expr(filter.clone(), &schema).ok();
        let mut filters: Vec<_> = filters.iter().filter_map(physical).collect();
        let files = &self.snapshot.version.files;
        let files = pruning::prune(files, &self.scope, &filters, table);
        filters.retain(is_row_filter);
        Ok(Sources { files, with_memory: true, filters })
    }

    /// These columns of the rows of all projects in some sources.
    fn rows(
        &self,
        state: &dyn Session,
        columns: &[usize],
        sources: Sources,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let projected = Arc::new(self.stored.table_schema().project(columns)?);
        let mut parts: Vec<Arc<dyn ExecutionPlan>> = Vec::new();
        let with_memory = sources.with_memory;
        if !sources.files.is_empty() {
            parts.push(self.files(state, columns, sources)?);
        }
        if with_memory && !self.snapshot.batches.is_empty() {
            parts.push(self.memtables(state, columns, &projected)?);
        }
        if parts.is_empty() {
            parts.push(Arc::new(EmptyExec::new(projected)));
        }
        one_of(parts)
    }

    fn files(
        &self,
        state: &dyn Session,
        projection: &[usize],
        Sources { files, filters, .. }: Sources,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let partitions = state.config().target_partitions().max(1);
        let mut groups = vec![Vec::new(); partitions];
        for (file, group) in files.iter().zip((0..partitions).cycle()) {
            if let Some(group) = groups.get_mut(group) {
                group.push(self.file(file));
            }
        }
        let groups = groups.into_iter().filter(|group| !group.is_empty()).map(FileGroup::new);
        let schema = self.stored.table_schema();
        let read = projection.iter().map(|at| schema.field(*at).name().as_str());
        let filters_rows = row_filter::pays(read);
        let source = scoped::source(&self.stored, &self.scope, filters, filters_rows)?;
        let footers = KeptFooters::of(state.runtime_env())?;
        let source = source.with_parquet_file_reader_factory(Arc::new(footers));
        let config = FileScanConfigBuilder::new(store_url()?, Arc::new(source))
            .with_file_groups(groups.collect())
            .with_projection_indices(Some(projection.to_vec()))?
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }

    fn file(&self, file: &DataFile) -> PartitionedFile {
        let statistics = Arc::new(pruning::statistics(file, self.stored.file_schema()));
        let partitioned = match self.stored.table_partition_cols().is_empty() {
            true => PartitionedFile::new(file.path.clone(), file.size_bytes),
            false => deleted::positioned(file),
        };
        partitioned.with_statistics(statistics)
    }

    fn memtables(
        &self,
        state: &dyn Session,
        projection: &[usize],
        projected: &SchemaRef,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let partitions = state.config().target_partitions().max(1);
        let mut groups = vec![Vec::new(); partitions];
        for (rows, group) in self.snapshot.batches.iter().zip((0..partitions).cycle()) {
            if let Some(group) = groups.get_mut(group) {
                let width = self.stored.file_schema().fields().len();
                group.push(match projection.contains(&width) {
                    true => with_positions(rows, width).to_batch(projected, projection)?,
                    false => rows.to_batch(projected, projection)?,
                });
            }
        }
        groups.retain(|group| !group.is_empty());
        Ok(MemorySourceConfig::try_new_exec(&groups, Arc::clone(projected), None)?)
    }
}

/// All rows of these operators, of which there is at least one.
fn one_of(mut parts: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
    match parts.len() {
        0 | 1 => parts.pop().ok_or_else(|| DataFusionError::Internal("no part".to_owned())),
        _ => UnionExec::try_new(parts),
    }
}

/// The rows with their log positions in the column at `width`, after all others.
fn with_positions(rows: &Rows, width: usize) -> Rows {
    let mut rows = rows.clone();
    rows.columns.resize(width, None);
    let positions: ArrayRef = Arc::new(rows.positions());
    rows.columns.push(Some(positions));
    rows
}
