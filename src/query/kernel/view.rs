//! Snapshot of the tables of one project at one moment, and the planner over them.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{DataType, TimestampMicrosecondType};
use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, MemoryCatalogProvider, MemoryCatalogProviderList,
    MemorySchemaProvider, SchemaProvider, TableProvider,
};
use datafusion::dataframe::DataFrame;
use datafusion::datasource::provider_as_source;
use datafusion::error::DataFusionError;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::{FunctionRegistry, SessionState, SessionStateBuilder};
use datafusion::logical_expr::planner::ExprPlanner;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, ScalarUDF, cast};
use datafusion::prelude::{SessionContext, ident};
use datafusion::sql::parser::Statement;
use futures::future::BoxFuture;

use crate::dialect::aliases::Aliases;
use crate::dialect::composed::Composed;
use crate::dialect::property_access::{PropertyPlanner, TypedColumns};
use crate::dialect::{
    array_join, arrow_precedence, cast_names, clickhouse, created_at, explained, filtered, hogql,
    person_access, property_access, property_numbers, property_ranges, property_values,
    session_names, with_constants,
};
use crate::events::definitions::definition_tables;
use crate::events::event_sessions::SessionsTable;
use crate::events::promoted::PromotedColumns;
use crate::events::table::{EventTables, Shown, event_tables};
use crate::functions::calendar::Calendar;
use crate::functions::local_time;
use crate::guard;
use crate::guard::complexity;
use crate::kernel::error::QueryError;
use crate::kernel::planners::Planning;
use crate::kernel::sources::Sources;
use crate::persons::person_numbers::PersonNumbers;
use crate::persons::tables::person_tables;
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_event::promotion::PromotedTable;
use weir_event::schema::column;
use weir_identity::deletions::Deletions;
use weir_identity::overrides::Overrides;
use weir_identity::view::View as IdentityView;
use weir_metadata::snapshot::Snapshot as Projects;
use weir_storage::delta::DataFile;
use weir_storage::delta::stats::Value;
pub use weir_storage::exact::ExactColumns;
use weir_storage::store::Snapshot;

/// One state of the stores, with all projects.
#[derive(Clone)]
pub(crate) struct State {
    pub(crate) persons: Arc<IdentityView>,
    overrides: Arc<Overrides>,
    deletions: Arc<Deletions>,
    events: Snapshot,
    /// The projects, and the time at which they are looked at: how far back their events are kept.
    projects: Arc<Projects>,
    at: UnixMicros,
}

impl State {
    /// The current state, at the time `at`.
    pub(crate) fn of(sources: &Sources, at: UnixMicros) -> Self {
        let Sources { store, identities, .. } = sources;
        let projects = sources.metadata.snapshot();
        let persons = Arc::new(identities.view());
        // Deletions are read before events: they must not be newer.
        let (overrides, deletions) = (Arc::new(identities.overrides()), identities.deletions());
        Self { persons, overrides, deletions, events: store.snapshot(), projects, at }
    }
}

/// A snapshot of a project's tables, and the planner over it. Clones share both.
#[derive(Clone)]
pub struct View {
    context: SessionContext,
    planning: Planning,
    events: Snapshot,
    /// The time before which no event of the project is kept, if there is one.
    kept_from: Option<UnixMicros>,
    numbered_events: Arc<dyn TableProvider>,
    persons: Arc<PersonNumbers>,
    /// The tables as they are stored, with times in UTC.
    tables: BTreeMap<String, Arc<dyn TableProvider>>,
    /// The calendar of the project.
    calendar: Calendar,
    /// Whether the rows that replace `{filters}` are registered.
    is_filtered: bool,
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").finish_non_exhaustive()
    }
}

impl View {
    /// The tables of `project` as of a state. Definitions are the current ones.
    ///
    /// # Errors
    ///
    /// DataFusion refuses a table: a bug.
    pub(crate) fn of(
        base: &SessionState,
        planning: &Planning,
        sources: &Sources,
        project: ProjectId,
        state: State,
    ) -> Result<Self, QueryError> {
        let Sources { store, metadata, .. } = sources;
        let State { persons, overrides, deletions, events: snapshot, projects, at } = state;
        let kept_from = projects.project(project).and_then(|own| own.kept_from(at));
        let of_persons = projects.promotions(project, PromotedTable::Persons);
        let tables_of_persons =
            person_tables(&persons, project, sources.persons.clone(), of_persons)?;
        let pool = &base.runtime_env().memory_pool;
        let persons = Arc::new(PersonNumbers::new(project, Arc::clone(&overrides), pool));
        let own = snapshot.clone();
        let promotions = projects.promotions(project, PromotedTable::Events);
        let shown = Shown { deletions, kept_from, promotions };
        let tables = event_tables(store, own, project, &persons, overrides, shown)?;
        let EventTables { plain: events, numbered: numbered_events, promotions } = tables;
        let definitions = definition_tables(metadata, project)?;
        let schema = Arc::new(MemorySchemaProvider::new());
        let exact = exact(&snapshot);
        let sessions: Arc<dyn TableProvider> =
            Arc::new(SessionsTable { events: Arc::clone(&events), exact });
        let named = [("events", events), ("sessions", sessions)].into_iter();
        let named = named.chain(definitions).chain(tables_of_persons);
        let tables: BTreeMap<_, _> = named.map(|(name, table)| (name.to_owned(), table)).collect();
        let calendar = Calendar::of(metadata, project);
        for (name, table) in &tables {
            let table = local_time::table(name, Arc::clone(table), &calendar.zone)?;
            schema.register_table(name.clone(), table)?;
        }
        let catalog = MemoryCatalogProvider::new();
        catalog.register_schema("public", schema)?;
        let catalogs = MemoryCatalogProviderList::new();
        catalogs.register_catalog("weir".to_owned(), Arc::new(catalog));
        let mut config = base.config().clone().with_extension(Arc::clone(&persons));
        config.options_mut().execution.time_zone = Some(calendar.zone.clone());
        // The first planner that accepts an access plans it: so this one precedes those of the default features.
        let planners = base.expr_planners().iter().cloned();
        let planners = std::iter::once(Arc::new(PropertyPlanner { exact }) as Arc<dyn ExprPlanner>)
            .chain(planners);
        let mut builder = SessionStateBuilder::new_from_existing(base.clone())
            .with_expr_planners(planners.collect())
            .with_analyzer_rule(Arc::new(TypedColumns { exact }));
        if !promotions.is_empty() {
            builder = builder.with_analyzer_rule(Arc::new(PromotedColumns { promotions }));
        }
        let state = builder.with_config(config).with_catalog_list(Arc::new(catalogs)).build();
        let context = SessionContext::new_with_state(state);
        Ok(Self {
            context,
            planning: planning.clone(),
            events: snapshot,
            kept_from,
            numbered_events,
            persons,
            tables,
            calendar,
            is_filtered: false,
        })
    }

    /// The same tables, and the events that match `{filters}`: these, with the columns of `events`.
    ///
    /// # Errors
    ///
    /// The events lack columns: a bug.
    pub async fn with_filtered(self, events: DataFrame) -> Result<Self, QueryError> {
        self.name_rows("events", self.as_events(events).await?)?;
        Ok(Self { is_filtered: true, ..self })
    }

    /// Events with the columns of table `events` only.
    ///
    /// # Errors
    ///
    /// The events lack columns: a bug.
    pub async fn as_events(&self, events: DataFrame) -> Result<DataFrame, QueryError> {
        let all = self.table("events").await?;
        let columns = all.schema().fields().iter().map(|field| ident(field.name()));
        Ok(events.select(columns.collect::<Vec<_>>())?)
    }

    /// Registers rows that statements can name from now on, as the only table in the schema of rows chosen for a query.
    fn name_rows(&self, table: &str, rows: DataFrame) -> Result<(), QueryError> {
        let schema = MemorySchemaProvider::new();
        let rows = local_time::rows(rows, &self.calendar.zone)?;
        schema.register_table(table.to_owned(), rows.into_view())?;
        self.register(filtered::SCHEMA, Arc::new(schema))
    }

    /// A plan of rows that are already in memory.
    ///
    /// # Errors
    ///
    /// DataFusion refuses the rows: a bug.
    pub fn rows(&self, rows: RecordBatch) -> Result<DataFrame, QueryError> {
        Ok(self.context.read_batch(rows)?)
    }

    /// Whether a function is an aggregate, by its name in lower case.
    pub(crate) fn is_aggregate(&self, name: &str) -> bool {
        self.context.udaf(name).is_ok()
    }

    /// The tables by their names, as SQL sees them.
    pub fn tables(&self) -> impl Iterator<Item = (&str, &Arc<dyn TableProvider>)> {
        self.tables.iter().map(|(name, table)| (name.as_str(), table))
    }

    /// The same tables, with more schemas and functions, and without the information schema of this engine.
    ///
    /// # Errors
    ///
    /// DataFusion refuses one: a bug.
    pub fn with_schemas(
        self,
        schemas: Vec<(&'static str, Arc<dyn SchemaProvider>)>,
        functions: Vec<ScalarUDF>,
    ) -> Result<Self, QueryError> {
        let state = self.context.state();
        let config = state.config().clone().with_information_schema(false);
        let mut state = SessionStateBuilder::new_from_existing(state).with_config(config).build();
        for function in functions {
            state.register_udf(Arc::new(function))?;
        }
        let own = Self { context: SessionContext::new_with_state(state), ..self };
        for (name, schema) in schemas {
            own.register(name, schema)?;
        }
        Ok(own)
    }

    /// Lets statements qualify tables by the name of a database, as in `shop.public.events`.
    pub fn name_database(&self, database: &str) {
        if let Some(catalog) = self.context.catalog("weir") {
            self.context.register_catalog(database, catalog);
        }
    }

    /// Plans a statement that is already in the form that DataFusion plans.
    pub(super) fn plain(
        &self,
        statement: Statement,
    ) -> BoxFuture<'_, Result<DataFrame, QueryError>> {
        Box::pin(async move {
            let state = self.context.state();
            guard::check(&statement, &state)?;
            let plan = state.statement_to_plan(statement).await;
            let plan = plan.map_err(|error| explained::explained(error, &self.context, ""))?;
            read_only().verify_plan(&plan)?;
            Ok(self.context.execute_logical_plan(plan).await?)
        })
    }

    /// Maximum depth of expressions.
    pub(super) fn recursion_max(&self) -> usize {
        self.context.state().config_options().sql_parser.recursion_limit.get()
    }

    /// Adds a schema, which SQL can name from now on.
    ///
    /// # Errors
    ///
    /// DataFusion refuses it: a bug.
    pub fn register(&self, name: &str, schema: Arc<dyn SchemaProvider>) -> Result<(), QueryError> {
        if let Some(catalog) = self.context.catalog("weir") {
            catalog.register_schema(name, schema)?;
        }
        Ok(())
    }

    /// Which typed columns of events hold the complete value of their property.
    pub fn exact(&self) -> ExactColumns {
        exact(&self.events)
    }

    /// Bounds of the time of events; `None` if there are no events. They are computed over all projects, from the time on
    /// from which the project keeps events.
    pub fn event_times(&self) -> Option<(UnixMicros, UnixMicros)> {
        let (min, max) = self.times("timestamp", column::TIMESTAMP)?;
        let min = self.kept_from.map_or(min, |from| min.max(from));
        (min <= max).then_some((min, max))
    }

    /// The same for the times at which events were received.
    pub fn arrival_times(&self) -> Option<(UnixMicros, UnixMicros)> {
        self.times("received_at", column::RECEIVED_AT)
    }

    fn times(&self, name: &str, position: usize) -> Option<(UnixMicros, UnixMicros)> {
        let files = self.events.version.files.iter().map(|file| times_of(file, name));
        let memory = self.events.batches.iter().filter_map(|rows| {
            let times = rows.columns.get(position)?.as_ref()?;
            let times = times.as_primitive::<TimestampMicrosecondType>();
            let min = arrow::compute::min(times)?;
            Some((UnixMicros(min), UnixMicros(arrow::compute::max(times)?)))
        });
        files.chain(memory).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// Plans one SQL statement. Only queries are accepted: nothing that changes tables, files or settings. It recurses
    /// over what users wrote, so it must run on a planner thread: see
    /// [`Engine::planned`](crate::kernel::engine::Engine::planned).
    ///
    /// # Errors
    ///
    /// [`QueryError::Invalid`] with DataFusion's explanation.
    pub async fn sql(&self, sql: &str) -> Result<DataFrame, QueryError> {
        let statement = self.parsed(sql)?;
        // Planning takes many kilobytes of state.
        self.explained(statement, sql).await
    }

    /// Parses a text of one statement.
    pub(super) fn parsed(&self, sql: &str) -> Result<Statement, QueryError> {
        complexity::check(sql)?;
        let parsed = hogql::statement(sql, self.recursion_max());
        parsed.map_err(|error| explained::explained(error, &self.context, sql))
    }

    /// As [`View::sql`], plans a query that is composed of users' expressions, over rows that it names `table`.
    ///
    /// # Errors
    ///
    /// [`QueryError::Invalid`] with DataFusion's explanation.
    pub async fn composed(
        &self,
        (table, rows): (&str, DataFrame),
        composed: Composed,
    ) -> Result<DataFrame, QueryError> {
        self.name_rows(table, rows)?;
        self.explained(composed.statement(table)?, "").await
    }

    /// Runs `planning` with the view on a planner thread.
    ///
    /// # Errors
    ///
    /// It fails, or takes longer than a query may.
    pub(crate) async fn on_planner<T, F>(
        &self,
        planning: impl FnOnce(Self) -> F + Send + 'static,
    ) -> Result<T, QueryError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, QueryError>> + Send + 'static,
    {
        self.planning.plan_in_turn(planning(self.clone())).await.map_err(QueryError::of_query)
    }

    /// Plans a statement parsed from `sql`. Boxed, so that DataFusion's SQL planner, which is generic, is compiled in
    /// this crate alone and not in each one that awaits it.
    pub(super) fn explained<'a>(
        &'a self,
        statement: Statement,
        sql: &'a str,
    ) -> BoxFuture<'a, Result<DataFrame, QueryError>> {
        let planned = self.planned(statement);
        let explained = |error| explained::explained(error, &self.context, sql);
        Box::pin(async move { planned.await.map_err(explained) })
    }

    async fn planned(&self, mut statement: Statement) -> datafusion::error::Result<DataFrame> {
        let state = self.context.state();
        with_constants::rewrite(&mut statement, &self.tables)?;
        session_names::rewrite(&mut statement);
        filtered::rewrite(&mut statement, self.is_filtered)?;
        array_join::rewrite(&mut statement, &self.tables)?;
        clickhouse::rewrite(&mut statement, &self.calendar)?;
        guard::check(&statement, &state)?;
        arrow_precedence::rewrite(&mut statement);
        property_values::rewrite(&mut statement)?;
        property_ranges::rewrite(&mut statement);
        property_numbers::rewrite(&mut statement);
        property_access::rewrite(&mut statement);
        person_access::rewrite(&mut statement)?;
        created_at::rewrite(&mut statement, &self.tables)?;
        let mut aliases = Aliases::default();
        let plan = loop {
            match state.statement_to_plan(statement.clone()).await {
                Err(error) if cast_names::is_needed(&error) => {
                    cast_names::rewrite(&mut statement);
                    break state.statement_to_plan(statement).await.map_err(|_| error)?;
                }
                Err(error) if aliases.put(&mut statement, &error, &self.tables)? => {}
                planned => break planned?,
            }
        };
        read_only().verify_plan(&plan)?;
        let plan = local_time::answer(plan, &self.calendar.zone)?;
        self.context.execute_logical_plan(plan).await
    }

    /// All events, each with the number of its person ([`PERSON_NUMBER`]).
    ///
    /// [`PERSON_NUMBER`]: crate::events::table::PERSON_NUMBER
    ///
    /// # Errors
    ///
    /// A bug in the plan.
    pub fn events(&self) -> Result<DataFrame, QueryError> {
        let source = provider_as_source(Arc::clone(&self.numbered_events));
        let plan = LogicalPlanBuilder::scan("events", source, None)?.build()?;
        Ok(DataFrame::new(self.context.state(), plan))
    }

    /// The person numbers of the view that made a plan.
    ///
    /// # Errors
    ///
    /// The plan was not made by a view: a bug.
    pub(crate) fn persons_of(plan: &DataFrame) -> Result<Arc<PersonNumbers>, QueryError> {
        let persons = plan.task_ctx().session_config().get_extension();
        let error = || DataFusionError::Internal("a plan of no view has persons".to_owned());
        persons.ok_or_else(|| QueryError::Internal(error()))
    }

    /// The person number as of now, from the column with the person's uuid.
    pub fn person_number(&self, uuid: &str) -> Expr {
        self.persons.of_event(vec![cast(ident(uuid), DataType::Utf8View)])
    }

    /// The uuid of the person with a number.
    pub fn person_of(&self, number: Expr) -> Expr {
        self.persons.uuid_of(number)
    }

    /// One table as it is stored, unfiltered, to be narrowed by the caller.
    ///
    /// # Errors
    ///
    /// There is no such table.
    pub async fn table(&self, name: &str) -> Result<DataFrame, QueryError> {
        let Some(table) = self.tables.get(name) else { return Ok(self.context.table(name).await?) };
        let source = provider_as_source(Arc::clone(table));
        let plan = LogicalPlanBuilder::scan(name, source, None)?.build()?;
        Ok(DataFrame::new(self.context.state(), plan))
    }
}

/// What a plan may do.
fn read_only() -> SQLOptions {
    SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false)
}

fn exact(events: &Snapshot) -> ExactColumns {
    let files = events.version.files.iter().map(|file| file.exact);
    files.chain(events.batches.iter().map(|rows| rows.exact)).collect()
}

/// The bounds of a file's times; without statistics, the whole range.
pub(crate) fn times_of(file: &DataFile, column: &str) -> (UnixMicros, UnixMicros) {
    let stats = file.stats.columns.get(column);
    let time = |value: Option<&Value>| match value {
        Some(Value::Timestamp(time)) => Some(*time),
        _ => None,
    };
    let min = time(stats.and_then(|stats| stats.min.as_ref()));
    let max = time(stats.and_then(|stats| stats.max.as_ref()));
    (min.unwrap_or(UnixMicros(i64::MIN)), max.unwrap_or(UnixMicros(i64::MAX)))
}
