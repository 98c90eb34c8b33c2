//! The table `persons` of SQL: files of the persons table, and in the place of who has changed since, rows of the
//! identity store, all as of one view. Only columns that a query asks for are read, and of `properties`, if a query asks
//! for some of them alone ([`PersonsProvider::narrowed`]), only these.

use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use object_store::ObjectStore;
use tokio::sync::mpsc::Sender;

use crate::persons::person_rows::PersonRows;
use crate::persons::person_table::{FileBatch, Part, Parts, PersonTable, ScanColumns};
use weir_event::id::ProjectId;
use weir_identity::IdentityError;
use weir_identity::person_set::PersonSet;
use weir_identity::row::Key;
use weir_identity::view::{Flow, View};
use weir_storage::delta::DataFile;

/// Rows of a batch, and bytes of their properties: whatever is reached first ends it.
const BATCH_ROWS: usize = 2048;
const BATCH_BYTES: usize = 4 << 20;

/// See the head of this file.
#[derive(Clone, Debug)]
pub(crate) struct PersonsProvider {
    pub(crate) schema: SchemaRef,
    pub(crate) view: Arc<View>,
    pub(crate) project: ProjectId,
    /// Without it all persons are read from the store.
    pub(crate) table: Option<Arc<PersonTable>>,
    /// The properties that are asked for; without them, any.
    pub(crate) keys: Option<Arc<[Key]>>,
}

impl PersonsProvider {
    /// The same for a query that asks for these properties alone, by functions on `properties`. Where that is cheaper
    /// `properties` has no others.
    pub(crate) fn narrowed(&self, keys: Arc<[Key]>) -> Self {
        Self { keys: Some(keys), ..self.clone() }
    }
}

#[async_trait]
impl TableProvider for PersonsProvider {
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
        let threads = state.config().target_partitions().max(1);
        let parts = PersonTable::parts(self.table.as_deref(), self.project, &self.view, threads);
        let Parts { store, parts: works, changed } = parts.map_err(external)?;
        let mut shares = vec![Vec::new(); threads.min(works.len()).max(1)];
        let count = shares.len();
        for (at, work) in works.into_iter().enumerate() {
            if let Some(share) = shares.get_mut(at % count) {
                share.push(work);
            }
        }
        let reading =
            Arc::new(Reading { table: self.clone(), schema: Arc::clone(&schema), store, changed });
        let scan = |works: Vec<Part>| {
            Arc::new(Scan { reading: Arc::clone(&reading), works }) as Arc<dyn PartitionStream>
        };
        let scans = shares.into_iter().map(scan).collect();
        Ok(Arc::new(StreamingTableExec::try_new(schema, scans, None, [], false, limit)?))
    }
}

/// What all parts of a scan have in common.
#[derive(Debug)]
struct Reading {
    table: PersonsProvider,
    /// The columns that are wanted.
    schema: SchemaRef,
    store: Option<Arc<dyn ObjectStore>>,
    /// Persons who are not as the files say.
    changed: PersonSet,
}

/// A part of a scan, for one thread.
#[derive(Debug)]
struct Scan {
    reading: Arc<Reading>,
    works: Vec<Part>,
}

impl PartitionStream for Scan {
    fn schema(&self) -> &SchemaRef {
        &self.reading.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.reading.schema);
        let mut builder = RecordBatchReceiverStreamBuilder::new(Arc::clone(&schema), 2);
        let (reading, works) = (Arc::clone(&self.reading), self.works.clone());
        let rows = PersonRows::new(schema.fields().iter().map(|field| stored(field.name())));
        let mut out = Out { rows, schema, sender: builder.tx() };
        builder.spawn_blocking(move || {
            for work in works {
                if reading.read(&work, &mut out)?.is_break() {
                    return Ok(());
                }
            }
            let _ = out.send_rows();
            Ok(())
        });
        builder.build()
    }
}

impl Reading {
    /// Sends the persons of a part; [`Flow::Break`] once nobody takes any more.
    fn read(&self, work: &Part, out: &mut Out) -> Result<Flow> {
        let read = match (&work.file, &self.store, &self.table.table) {
            (Some(file), Some(store), Some(table)) => {
                self.read_file(table, store, file, work, out)?
            }
            _ => None,
        };
        match read {
            Some(flow) => Ok(flow),
            None => {
                let (view, project) = (&self.table.view, self.table.project);
                let mut flow = Flow::Continue(());
                let read = view.scan_rows(project, work.numbers.clone(), |row| {
                    flow = out.push(project, row);
                    Ok(flow)
                });
                read.map_err(external)?;
                Ok(flow)
            }
        }
    }

    /// The same of a file; `None` if it cannot be read.
    fn read_file(
        &self,
        table: &PersonTable,
        store: &Arc<dyn ObjectStore>,
        file: &DataFile,
        work: &Part,
        out: &mut Out,
    ) -> Result<Option<Flow>> {
        let (project, numbers) = (self.table.project, &work.numbers);
        let names =
            self.schema.fields().iter().map(|field| stored(field.name()).to_owned()).collect();
        let columns = ScanColumns { names, keys: self.table.keys.as_deref() };
        let scan = table.scan(store, file, project, numbers.clone(), columns);
        let Some((mut rows, mut next)) = scan else {
            return Ok(None);
        };
        let places = (project, numbers.start)..(project, numbers.end);
        let has_changed = self.changed.count(&places) > 0;
        while let Some(batch) = next {
            if out.send(self.unchanged(batch, has_changed)?).is_break() {
                return Ok(Some(Flow::Break(())));
            }
            next = table.next(&mut rows)?;
        }
        for (_, number) in self.changed.within(&places) {
            let pushed = self.table.view.ask_row(project, number, |row| out.push(project, row));
            if pushed.map_err(external)?.is_some_and(|flow| flow.is_break()) {
                return Ok(Some(Flow::Break(())));
            }
        }
        Ok(Some(Flow::Continue(())))
    }

    /// The rows of persons who are as the file says.
    fn unchanged(&self, batch: FileBatch, has_changed: bool) -> Result<RecordBatch> {
        let FileBatch { ids, columns } = batch;
        let options = RecordBatchOptions::new().with_row_count(Some(ids.len()));
        let schema = Arc::clone(&self.schema);
        let rows = RecordBatch::try_new_with_options(schema, columns, &options)?;
        if !has_changed {
            return Ok(rows);
        }
        let project = self.table.project;
        let is_same = |id: &i64| Some(!self.changed.contains((project, *id)));
        let same: BooleanArray = ids.values().iter().map(is_same).collect();
        Ok(filter_record_batch(&rows, &same)?)
    }
}

/// What the files and the rows of the store call a column of `persons`.
fn stored(name: &str) -> &str {
    match name {
        "id" => "uuid",
        "number" => "id",
        name => name,
    }
}

fn external(error: IdentityError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// Where batches go.
struct Out {
    schema: SchemaRef,
    /// Rows of the store that are not sent yet.
    rows: PersonRows,
    sender: Sender<Result<RecordBatch>>,
}

impl Out {
    fn push(&mut self, project: ProjectId, row: &weir_identity::row::Row<'_>) -> Flow {
        self.rows.push(project, row, &[]);
        match self.rows.len() >= BATCH_ROWS || self.rows.bytes() >= BATCH_BYTES {
            true => self.send_rows(),
            false => Flow::Continue(()),
        }
    }

    /// Sends the rows of the store so far.
    fn send_rows(&mut self) -> Flow {
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows.len()));
        let (schema, columns) = (Arc::clone(&self.schema), self.rows.finish());
        let batch = RecordBatch::try_new_with_options(schema, columns, &options);
        self.send_any(batch.map_err(DataFusionError::from))
    }

    fn send(&self, batch: RecordBatch) -> Flow {
        self.send_any(Ok(batch))
    }

    fn send_any(&self, batch: Result<RecordBatch>) -> Flow {
        if batch.as_ref().is_ok_and(|batch| batch.num_rows() == 0) {
            return Flow::Continue(());
        }
        match self.sender.blocking_send(batch) {
            Ok(()) => Flow::Continue(()),
            Err(_) => Flow::Break(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use arrow::util::pretty::pretty_format_batches;
    use datafusion::prelude::SessionContext;
    use serde_json::json;
    use tokio::runtime::Runtime;
    use uuid::Uuid;

    use super::PersonsProvider;
    use crate::persons::person_table::{PersonTable, PersonTableSettings};
    use crate::persons::tables::persons_schema;
    use weir_base::clock::{Clock, UnixMicros};
    use weir_disk::OsDisk;
    use weir_event::id::ProjectId;
    use weir_identity::change::{Force, Op, OpKind, Record, Update};
    use weir_identity::limits::Limits;
    use weir_identity::row::Key;
    use weir_identity::store::Identities;
    use weir_storage::tables::Tables;

    const NOW: UnixMicros = UnixMicros(1_700_000_000_000_000);
    const PROJECTS: [ProjectId; 2] = [ProjectId(1), ProjectId(2)];

    fn set(number: u32, properties: serde_json::Value) -> Op {
        let set = properties.as_object().cloned().unwrap();
        op(number, OpKind::Update(Update { set, ..Update::default() }))
    }

    fn op(number: u32, kind: OpKind) -> Op {
        let distinct_id = format!("id{number}");
        Op { distinct_id, event_id: Uuid::from_u128(7), timestamp: NOW, kind }
    }

    fn apply(identities: &Identities, sequence: u64, project: ProjectId, ops: Vec<Op>) {
        identities.apply(&[Record { sequence, project, ops }]).unwrap();
    }

    fn table(
        directory: &std::path::Path,
        identities: &Identities,
        runtime: &Runtime,
    ) -> PersonTable {
        let table = PersonTable::new(PersonTableSettings {
            tables: Tables::in_directory(Arc::new(OsDisk), directory.to_path_buf()),
            identities: identities.clone(),
            projects: Arc::new(|| PROJECTS.to_vec()),
            app_id: "node".to_owned(),
            runtime: runtime.handle().clone(),
            clock: Clock::test(NOW),
            interval: Duration::from_mins(5),
            stale_max: Duration::from_hours(1),
        });
        table.unwrap().with_persons_max(20)
    }

    fn answer(runtime: &Runtime, persons: PersonsProvider, sql: &str) -> String {
        runtime.block_on(async {
            let mut context = SessionContext::new();
            datafusion_functions_json::register_all(&mut context).unwrap();
            context.register_table("persons", Arc::new(persons)).unwrap();
            let batches = context.sql(sql).await.unwrap().collect().await.unwrap();
            pretty_format_batches(&batches).unwrap().to_string()
        })
    }

    /// Goal: files with who has changed since say what rows of the store say, whichever columns are asked for, also if
    /// only some properties are, and nothing of another project. Method: the same queries of both.
    #[test]
    fn files_and_rows_give_the_same_answers() {
        let (runtime, directory) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
        let place = directory.path().join("identity");
        let identities = Identities::open(&place, Limits::SMALL).unwrap();
        let files = Arc::new(table(directory.path(), &identities, &runtime));
        let plans = ["pro", "free", "a \"quoted\" \\ é"];
        let told = |number: u32| match number % 4 {
            0 => json!({"n": number}),
            of => {
                json!({"n": number, "plan": plans[usize::try_from(of - 1).unwrap()], "o": {"a": [1]}})
            }
        };
        apply(
            &identities,
            1,
            PROJECTS[0],
            (0..70).map(|number| set(number, told(number))).collect(),
        );
        apply(
            &identities,
            2,
            PROJECTS[1],
            (0..30).map(|number| set(number, json!({"plan": "other"}))).collect(),
        );
        for round in 0..4 {
            let (sequence, first) = (3 + round * 2, u32::try_from(round).unwrap() * 5);
            if round > 0 {
                let merge = OpKind::Merge {
                    other: format!("id{}", first + 40),
                    force: Force::Yes,
                    update: Update::default(),
                };
                let changes = vec![
                    set(first, json!({"plan": "new", "late": true})),
                    set(70 + first, told(first)),
                    op(first + 1, merge),
                ];
                apply(&identities, sequence, PROJECTS[0], changes);
            }
            let view = Arc::new(identities.view());
            // After the view, so that files are newer than it.
            if round % 2 == 0 {
                files.write(&|| false).unwrap();
            }
            apply(
                &identities,
                sequence + 1,
                PROJECTS[0],
                vec![set(3, json!({"plan": format!("later {round}")}))],
            );
            for project in PROJECTS {
                let own = PersonsProvider {
                    schema: persons_schema(),
                    view: Arc::clone(&view),
                    project,
                    table: None,
                    keys: None,
                };
                let of_files = PersonsProvider { table: Some(Arc::clone(&files)), ..own.clone() };
                for sql in [
                    "SELECT * FROM persons ORDER BY id",
                    "SELECT count(*) FROM persons",
                    "SELECT created_at, is_identified, count(*) FROM persons GROUP BY 1, 2 ORDER BY 1, 2",
                    "SELECT uuid FROM persons WHERE json_as_text(properties, 'plan') = 'new' ORDER BY uuid",
                    "SELECT count(*) FROM (SELECT id FROM persons LIMIT 5)",
                ] {
                    let expected = answer(&runtime, own.clone(), sql);
                    assert_eq!(answer(&runtime, of_files.clone(), sql), expected, "{round} {sql}");
                }
                let keys: Arc<[Key]> =
                    ["plan", "late", "none"].iter().map(|key| Key::new(key)).collect();
                for sql in [
                    "SELECT id, json_as_text(properties, 'plan'), json_as_text(properties, 'none') FROM persons ORDER BY id",
                    "SELECT json_get_bool(properties, 'late') AS l, count(*) FROM persons GROUP BY 1 ORDER BY 1",
                ] {
                    let expected = answer(&runtime, own.clone(), sql);
                    let narrowed = of_files.narrowed(Arc::clone(&keys));
                    assert_eq!(answer(&runtime, narrowed, sql), expected, "{round} {sql}");
                }
            }
        }
        assert!(files.known_files() > 3);
    }
}
