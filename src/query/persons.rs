//! The tables of persons as a question sees them: `persons`, `person_distinct_ids`, `groups`.
//! Rows are read from one snapshot of the identity store as the query asks for them.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::array::BooleanBuilder;
use arrow::array::Int64Builder;
use arrow::array::RecordBatch;
use arrow::array::StringViewBuilder;
use arrow::array::TimestampMicrosecondBuilder;
use arrow::datatypes::DataType;
use arrow::datatypes::Field;
use arrow::datatypes::Schema;
use arrow::datatypes::SchemaRef;
use arrow::datatypes::TimeUnit;
use datafusion::catalog::TableProvider;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::error::DataFusionError;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::streaming::PartitionStream;
use tokio::sync::mpsc::Sender;

use crate::event::id::ProjectId;
use crate::identity::IdentityError;
use crate::identity::person::Group;
use crate::identity::person::Person;
use crate::identity::view::Flow;
use crate::identity::view::View;

/// Rows of a batch, and bytes of their properties: whatever is reached first ends it.
const BATCH_ROWS: usize = 2048;
const BATCH_BYTES: usize = 4 << 20;

/// The tables of `project`, by name.
pub fn tables(view: Arc<View>, project: ProjectId) -> Vec<(&'static str, Arc<dyn TableProvider>)> {
    let kinds = [
        ("persons", Kind::Persons),
        ("person_distinct_ids", Kind::DistinctIds),
        ("groups", Kind::Groups),
    ];
    let tables = kinds.into_iter().filter_map(|(name, kind)| {
        let table = table(kind, Arc::clone(&view), project).ok()?;
        Some((name, table))
    });
    tables.collect()
}

fn table(kind: Kind, view: Arc<View>, project: ProjectId) -> Result<Arc<dyn TableProvider>> {
    let schema = kind.schema();
    let scan = Scan { kind, schema: Arc::clone(&schema), view, project };
    Ok(Arc::new(StreamingTable::try_new(schema, vec![Arc::new(scan)])?))
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Persons,
    DistinctIds,
    Groups,
}

impl Kind {
    fn schema(self) -> SchemaRef {
        let text = |name| Field::new(name, DataType::Utf8View, false);
        let number = |name| Field::new(name, DataType::Int64, false);
        let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let created_at = || Field::new("created_at", time.clone(), false);
        Arc::new(Schema::new(match self {
            Self::Persons => vec![
                number("id"),
                text("uuid"),
                created_at(),
                Field::new("is_identified", DataType::Boolean, false),
                text("properties"),
            ],
            Self::DistinctIds => vec![text("distinct_id"), text("person_id")],
            Self::Groups => {
                vec![number("group_type_index"), text("key"), created_at(), text("properties")]
            }
        }))
    }
}

#[derive(Debug)]
struct Scan {
    kind: Kind,
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
        let (view, project, kind) = (Arc::clone(&self.view), self.project, self.kind);
        builder.spawn_blocking(move || {
            let read = match kind {
                Kind::Persons => send_persons(&view, project, &out),
                Kind::DistinctIds => send_distinct_ids(&view, project, &out),
                Kind::Groups => send_groups(&view, project, &out),
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
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns);
        match self.sender.blocking_send(batch.map_err(DataFusionError::from)) {
            Ok(()) => Flow::Continue(()),
            Err(_) => Flow::Break(()),
        }
    }
}

#[derive(Default)]
struct Persons {
    rows: usize,
    bytes: usize,
    id: Int64Builder,
    uuid: StringViewBuilder,
    created_at: TimestampMicrosecondBuilder,
    is_identified: BooleanBuilder,
    properties: StringViewBuilder,
}

impl Persons {
    fn push(&mut self, person: Person) {
        self.rows += 1;
        self.id.append_value(person.number);
        self.uuid.append_value(person.uuid.hyphenated().encode_lower(&mut [0; 36]));
        self.created_at.append_value(person.created_at.0);
        self.is_identified.append_value(person.is_identified);
        let properties = serde_json::Value::Object(person.properties).to_string();
        self.bytes += properties.len();
        self.properties.append_value(properties);
    }

    fn is_full(&self) -> bool {
        self.rows >= BATCH_ROWS || self.bytes >= BATCH_BYTES
    }

    fn finish(&mut self) -> Vec<ArrayRef> {
        (self.rows, self.bytes) = (0, 0);
        vec![
            Arc::new(self.id.finish()),
            Arc::new(self.uuid.finish()),
            Arc::new(self.created_at.finish().with_timezone("UTC")),
            Arc::new(self.is_identified.finish()),
            Arc::new(self.properties.finish()),
        ]
    }
}

fn send_persons(view: &View, project: ProjectId, out: &Out) -> Result<(), IdentityError> {
    let mut batch = Persons::default();
    view.scan_persons(project, |person| {
        batch.push(person);
        if batch.is_full() { out.send(batch.finish()) } else { Flow::Continue(()) }
    })?;
    if batch.rows > 0 {
        let _ = out.send(batch.finish());
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
