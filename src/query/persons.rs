//! The tables of persons as a question sees them: `persons`, `person_distinct_ids`, `groups`.
//! Rows are read from one snapshot of the identity store as the query asks for them, and of persons only the columns
//! that it asks for: their properties are most of what is read.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::array::BooleanBuilder;
use arrow::array::Int64Builder;
use arrow::array::RecordBatch;
use arrow::array::RecordBatchOptions;
use arrow::array::StringViewBuilder;
use arrow::array::TimestampMicrosecondBuilder;
use arrow::datatypes::DataType;
use arrow::datatypes::Field;
use arrow::datatypes::Schema;
use arrow::datatypes::SchemaRef;
use arrow::datatypes::TimeUnit;
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::catalog::TableProvider;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::error::DataFusionError;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::TableType;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion::physical_plan::streaming::StreamingTableExec;
use tokio::sync::mpsc::Sender;

use crate::event::id::ProjectId;
use crate::identity::IdentityError;
use crate::identity::person::Group;
use crate::identity::row::Row;
use crate::identity::view::Flow;
use crate::identity::view::View;

/// Rows of a batch, and bytes of their properties: whatever is reached first ends it.
const BATCH_ROWS: usize = 2048;
const BATCH_BYTES: usize = 4 << 20;

/// Numbers of persons that are worth a thread of their own.
const PERSONS_OF_THREAD_MIN: i64 = 16 << 10;

/// The tables of `project`, by name.
pub fn tables(view: &Arc<View>, project: ProjectId) -> Vec<(&'static str, Arc<dyn TableProvider>)> {
    let persons = PersonsTable { schema: persons_schema(), view: Arc::clone(view), project };
    let mut tables: Vec<(_, Arc<dyn TableProvider>)> = vec![("persons", Arc::new(persons))];
    let others = [
        ("person_distinct_ids", Part::DistinctIds, distinct_ids_schema()),
        ("groups", Part::Groups, groups_schema()),
    ];
    for (name, part, schema) in others {
        let scan = Scan { part, schema: Arc::clone(&schema), view: Arc::clone(view), project };
        if let Ok(table) = StreamingTable::try_new(schema, vec![Arc::new(scan)]) {
            tables.push((name, Arc::new(table)));
        }
    }
    tables
}

fn persons_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        number("id"),
        text("uuid"),
        created_at(),
        Field::new("is_identified", DataType::Boolean, false),
        text("properties"),
    ]))
}

fn distinct_ids_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![text("distinct_id"), text("person_id")]))
}

fn groups_schema() -> SchemaRef {
    let columns = vec![number("group_type_index"), text("key"), created_at(), text("properties")];
    Arc::new(Schema::new(columns))
}

fn text(name: &str) -> Field {
    Field::new(name, DataType::Utf8View, false)
}

fn number(name: &str) -> Field {
    Field::new(name, DataType::Int64, false)
}

fn created_at() -> Field {
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    Field::new("created_at", time, false)
}

/// `persons`, of which the wanted columns are read, by several threads.
#[derive(Debug)]
struct PersonsTable {
    schema: SchemaRef,
    view: Arc<View>,
    project: ProjectId,
}

#[async_trait]
impl TableProvider for PersonsTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        let schema = Arc::new(self.schema.project(projection.unwrap_or(&all))?);
        let end = self.view.next_number();
        let end = end.map_err(|error| DataFusionError::External(Box::new(error)))?;
        let threads = i64::try_from(state.config().target_partitions()).unwrap_or(1).max(1);
        let part = (end / threads + 1).max(PERSONS_OF_THREAD_MIN);
        let parts = (0..threads).map(|at| at * part..((at + 1) * part).min(end));
        let parts = parts.filter(|numbers| numbers.start == 0 || !numbers.is_empty());
        let scan = |numbers| {
            let (schema, view) = (Arc::clone(&schema), Arc::clone(&self.view));
            let part = Part::Persons(numbers);
            Arc::new(Scan { part, schema, view, project: self.project }) as Arc<dyn PartitionStream>
        };
        let parts = parts.map(scan).collect();
        let plan = StreamingTableExec::try_new(Arc::clone(&schema), parts, None, [], false, limit);
        Ok(Arc::new(plan?))
    }
}

/// What a scan reads.
#[derive(Clone, Debug)]
enum Part {
    /// The persons with these numbers.
    Persons(Range<i64>),
    DistinctIds,
    Groups,
}

#[derive(Debug)]
struct Scan {
    part: Part,
    /// The columns; of persons those that are wanted.
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
                Part::Persons(numbers) => send_persons(&view, project, numbers, &out),
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
    sender: Sender<datafusion::error::Result<RecordBatch>>,
}

impl Out {
    /// Hands a batch on; [`Flow::Break`] once nobody takes any more.
    fn send(&self, columns: Vec<ArrayRef>) -> Flow {
        let rows = columns.first().map_or(0, |column| column.len());
        self.send_rows(columns, rows)
    }

    /// The same, whether there are columns or only rows to be counted.
    fn send_rows(&self, columns: Vec<ArrayRef>, rows: usize) -> Flow {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = Arc::clone(&self.schema);
        let batch = RecordBatch::try_new_with_options(schema, columns, &options);
        match self.sender.blocking_send(batch.map_err(DataFusionError::from)) {
            Ok(()) => Flow::Continue(()),
            Err(_) => Flow::Break(()),
        }
    }
}

/// A batch of persons: the columns of its schema.
struct Persons {
    rows: usize,
    bytes: usize,
    columns: Vec<Column>,
}

/// A column of persons.
enum Column {
    Id(Int64Builder),
    Uuid(StringViewBuilder),
    CreatedAt(TimestampMicrosecondBuilder),
    IsIdentified(BooleanBuilder),
    Properties(StringViewBuilder),
}

impl Persons {
    fn new(schema: &Schema) -> Self {
        let column = |field: &Arc<Field>| match field.name().as_str() {
            "id" => Column::Id(Int64Builder::new()),
            "uuid" => Column::Uuid(StringViewBuilder::new()),
            "created_at" => Column::CreatedAt(TimestampMicrosecondBuilder::new()),
            "is_identified" => Column::IsIdentified(BooleanBuilder::new()),
            _ => Column::Properties(StringViewBuilder::new()),
        };
        Self { rows: 0, bytes: 0, columns: schema.fields().iter().map(column).collect() }
    }

    fn push(&mut self, person: &Row<'_>) {
        self.rows += 1;
        for column in &mut self.columns {
            match column {
                Column::Id(ids) => ids.append_value(person.number),
                Column::Uuid(uuids) => {
                    uuids.append_value(person.uuid.hyphenated().encode_lower(&mut [0; 36]));
                }
                Column::CreatedAt(times) => times.append_value(person.created_at.0),
                Column::IsIdentified(truths) => truths.append_value(person.is_identified),
                Column::Properties(texts) => {
                    self.bytes += person.properties_len();
                    texts.append_value(person.properties_json());
                }
            }
        }
    }

    fn is_full(&self) -> bool {
        self.rows >= BATCH_ROWS || self.bytes >= BATCH_BYTES
    }

    /// The rows since the last time.
    fn send(&mut self, out: &Out) -> Flow {
        let rows = std::mem::take(&mut self.rows);
        self.bytes = 0;
        let columns = self.columns.iter_mut().map(|column| match column {
            Column::Id(ids) => Arc::new(ids.finish()) as ArrayRef,
            Column::Uuid(texts) | Column::Properties(texts) => Arc::new(texts.finish()),
            Column::CreatedAt(times) => Arc::new(times.finish().with_timezone("UTC")),
            Column::IsIdentified(truths) => Arc::new(truths.finish()),
        });
        let columns = columns.collect();
        out.send_rows(columns, rows)
    }
}

fn send_persons(
    view: &View,
    project: ProjectId,
    numbers: Range<i64>,
    out: &Out,
) -> Result<(), IdentityError> {
    let mut batch = Persons::new(&out.schema);
    view.scan_rows(project, numbers, |person| {
        batch.push(person);
        Ok(if batch.is_full() { batch.send(out) } else { Flow::Continue(()) })
    })?;
    if batch.rows > 0 {
        let _ = batch.send(out);
    }
    Ok(())
}

fn send_distinct_ids(view: &View, project: ProjectId, out: &Out) -> Result<(), IdentityError> {
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

fn send_groups(view: &View, project: ProjectId, out: &Out) -> Result<(), IdentityError> {
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
