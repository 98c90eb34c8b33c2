//! The tables of persons as a question sees them, as of one snapshot of the identity store: `persons` (see
//! `person_scan`), `person_distinct_ids` and `groups`, whose rows are read from the store.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Int64Builder, RecordBatch, StringViewBuilder, TimestampMicrosecondBuilder,
};
use arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, TableSource};
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion::prelude::ident;
use tokio::sync::mpsc::Sender;

use crate::events::promoted;
use crate::persons::person_scan::PersonsProvider;
use crate::persons::person_table::PersonTable;
use weir_event::dictionary;
use weir_event::id::ProjectId;
use weir_event::promotion::Promotion;
use weir_identity::IdentityError;
use weir_identity::person::Group;
use weir_identity::view::{Flow, View};

/// Rows of a batch, and bytes of their properties: whatever is reached first ends it.
const BATCH_ROWS: usize = 2048;
const BATCH_BYTES: usize = 4 << 20;

impl PersonsProvider {
    /// The persons of a project as of a view.
    pub(crate) fn new(
        view: Arc<View>,
        project: ProjectId,
        table: Option<Arc<PersonTable>>,
    ) -> Self {
        Self { schema: persons_schema(), view, project, table, keys: None }
    }
}

/// The tables of `project`, by name. Persons are read from a table, if there is one, and have the columns of promotions.
///
/// # Errors
///
/// A bug in the plan of the view.
pub(crate) fn person_tables(
    view: &Arc<View>,
    project: ProjectId,
    table: Option<Arc<PersonTable>>,
    promotions: &[Promotion],
) -> Result<Vec<(&'static str, Arc<dyn TableProvider>)>> {
    let persons = PersonsProvider::new(Arc::clone(view), project, table);
    let persons = with_columns(Arc::new(persons), promotions)?;
    let mut tables = vec![(dictionary::PERSONS.name, persons)];
    let others =
        [(Part::DistinctIds, dictionary::PERSON_DISTINCT_IDS), (Part::Groups, dictionary::GROUPS)];
    for (part, table) in others {
        let (name, schema) = (table.name, table.sql_schema());
        let scan = Scan { part, schema: Arc::clone(&schema), view: Arc::clone(view), project };
        if let Ok(table) = StreamingTable::try_new(schema, vec![Arc::new(scan)]) {
            tables.push((name, Arc::new(table)));
        }
    }
    Ok(tables)
}

/// The persons with the columns of promotions, computed from `properties`: so a scan reads only those properties of which a
/// query has the columns, as it does for any other access.
pub(crate) fn with_columns(
    persons: Arc<dyn TableProvider>,
    promotions: &[Promotion],
) -> Result<Arc<dyn TableProvider>> {
    if promotions.is_empty() {
        return Ok(persons);
    }
    let source = provider_as_source(persons);
    let persons = LogicalPlanBuilder::scan(dictionary::PERSONS.name, source, None)?;
    let own = persons.schema().columns().into_iter().map(Expr::Column);
    let all: Vec<Expr> = own.chain(promotions.iter().map(promoted::in_plan)).collect();
    Ok(Arc::new(ViewTable::new(persons.project(all)?.build()?, None)))
}

/// The rows of `persons` with the columns that conditions on persons read
/// ([`condition`](crate::filter::person_filter::condition)), and the number.
///
/// # Errors
///
/// The table is another one: a bug.
pub fn rows_of_persons(persons: Arc<dyn TableSource>) -> Result<LogicalPlanBuilder> {
    LogicalPlanBuilder::scan(dictionary::PERSONS.name, persons, None)?.project([
        ident("uuid").alias("id"),
        ident("created_at"),
        ident("is_identified"),
        ident("properties"),
        ident("uuid").alias("person_id"),
        ident("number"),
    ])
}

/// The columns of `persons`. As in HogQL `id` is the uuid, which events and distinct ids have as `person_id`; `uuid` is the
/// same, and `number` the integer that lists of persons call `id`.
pub(crate) fn persons_schema() -> SchemaRef {
    dictionary::PERSONS.sql_schema()
}

/// What a scan reads.
#[derive(Clone, Debug)]
enum Part {
    DistinctIds,
    Groups,
}

#[derive(Debug)]
struct Scan {
    part: Part,
    schema: SchemaRef,
    view: Arc<View>,
    project: ProjectId,
}

impl PartitionStream for Scan {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut builder = RecordBatchReceiverStreamBuilder::new(Arc::clone(&self.schema), 2);
        let out = Out { schema: Arc::clone(&self.schema), sender: builder.tx() };
        let (view, project, part) = (Arc::clone(&self.view), self.project, self.part.clone());
        builder.spawn_blocking(move || {
            let read = match part {
                Part::DistinctIds => send_distinct_ids(&view, project, &out),
                Part::Groups => send_groups(&view, project, &out),
            };
            read.map_err(|error| DataFusionError::External(Box::new(error)))
        });
        builder.build()
    }
}

/// Where batches go.
struct Out {
    schema: SchemaRef,
    sender: Sender<Result<RecordBatch>>,
}

impl Out {
    /// Hands a batch on; [`Flow::Break`] once nobody takes any more.
    fn send(&self, columns: Vec<ArrayRef>) -> Flow {
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns);
        match self.sender.blocking_send(batch.map_err(DataFusionError::from)) {
            Ok(()) => Flow::Continue(()),
            Err(_) => Flow::Break(()),
        }
    }
}

fn send_distinct_ids(
    view: &View,
    project: ProjectId,
    out: &Out,
) -> std::result::Result<(), IdentityError> {
    let mut rows = 0;
    let mut ids = StringViewBuilder::new();
    let mut persons = StringViewBuilder::new();
    let mut failed = None;
    view.scan_distinct_ids(project, |number, distinct_id| {
        let person = match view.person_by_number(project, number) {
            Ok(person) => person,
            Err(error) => {
                failed = Some(error);
                return Flow::Break(());
            }
        };
        let Some(person) = person else { return Flow::Continue(()) };
        ids.append_value(distinct_id);
        persons.append_value(person.uuid.hyphenated().encode_lower(&mut [0; 36]));
        rows += 1;
        if rows < BATCH_ROWS {
            return Flow::Continue(());
        }
        rows = 0;
        out.send(vec![Arc::new(ids.finish()), Arc::new(persons.finish())])
    })?;
    if let Some(error) = failed {
        return Err(error);
    }
    if rows > 0 {
        let _ = out.send(vec![Arc::new(ids.finish()), Arc::new(persons.finish())]);
    }
    Ok(())
}

fn send_groups(
    view: &View,
    project: ProjectId,
    out: &Out,
) -> std::result::Result<(), IdentityError> {
    let (mut rows, mut bytes) = (0, 0);
    let mut types = Int64Builder::new();
    let mut keys = StringViewBuilder::new();
    let mut created = TimestampMicrosecondBuilder::new();
    let mut properties = StringViewBuilder::new();
    let mut finish = |rows: &mut usize, group: Option<(u8, String, Group)>| {
        if let Some((type_index, key, group)) = group {
            types.append_value(i64::from(type_index));
            keys.append_value(key);
            created.append_value(group.created_at.0);
            let text = serde_json::Value::Object(group.properties).to_string();
            bytes += text.len();
            properties.append_value(text);
            *rows += 1;
            if *rows < BATCH_ROWS && bytes < BATCH_BYTES {
                return Flow::Continue(());
            }
        }
        bytes = 0;
        if std::mem::take(rows) == 0 {
            return Flow::Continue(());
        }
        out.send(vec![
            Arc::new(types.finish()),
            Arc::new(keys.finish()),
            Arc::new(created.finish().with_timezone("UTC")),
            Arc::new(properties.finish()),
        ])
    };
    view.scan_groups(project, |type_index, key, group| {
        finish(&mut rows, Some((type_index, key, group)))
    })?;
    let _ = finish(&mut rows, None);
    Ok(())
}
