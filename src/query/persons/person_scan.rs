//! The table `persons` of SQL and of lists: files of the persons table, and in the place of who has changed since, rows of
//! the identity store, all as of one view. Only columns that a query asks for are read, and of `properties`, if a query asks
//! for some of them alone ([`PersonsProvider::narrowed`]), only these.
//!
//! Conditions on persons are evaluated by the scan ([`Selection`]), on columns of files that are kept in memory; of those
//! who are selected the rest is read.

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, BooleanArray, BooleanBufferBuilder, Int64Array, RecordBatch,
    RecordBatchOptions,
};
use arrow::compute::{and, filter_record_batch};
use arrow::datatypes::{Int64Type, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use object_store::ObjectStore;
use tokio::sync::mpsc::Sender;

use crate::guard::Running;
use crate::persons::person_rows::PersonRows;
use crate::persons::person_selection::{Selection, is_supported, place};
use crate::persons::person_table::{FileBatch, Part, Parts, PersonTable, ScanColumns};
use weir_event::id::ProjectId;
use weir_identity::IdentityError;
use weir_identity::person_set::PersonSet;
use weir_identity::row::{Key, Row};
use weir_identity::view::{Flow, View};
use weir_storage::delta::DataFile;

/// Rows of a batch, and bytes of their properties: whatever is reached first ends it.
const BATCH_ROWS: usize = 2048;
const BATCH_BYTES: usize = 4 << 20;

/// If more persons of a file than one in this many are to be read, it is quicker to read all in a row.
const READ_SHARE: usize = 16;

/// Rows of the store between two looks whether the query may go on.
const LOOK_EVERY: u32 = 64;

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

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let support = |filter: &&Expr| match is_supported(filter) {
            true => TableProviderFilterPushDown::Exact,
            false => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(support).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
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
        let fields = schema.fields().iter();
        let reading = Arc::new(Reading {
            number: self.table.as_ref().map_or(0, |table| table.begin()),
            table: self.clone(),
            selection: Selection::new(state, filters)?,
            own: fields.map(|field| place(field.name())).collect(),
            schema: Arc::clone(&schema),
            store,
            changed,
        });
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
    /// The number of the scan.
    number: u64,
    table: PersonsProvider,
    /// The columns that are wanted.
    schema: SchemaRef,
    /// Their places among those of the selection, if it has all of them.
    own: Option<Vec<usize>>,
    selection: Selection,
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

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.reading.schema);
        let mut builder = RecordBatchReceiverStreamBuilder::new(Arc::clone(&schema), 2);
        let (reading, works) = (Arc::clone(&self.reading), self.works.clone());
        let rows = PersonRows::new(schema.fields().iter().map(|field| stored(field.name())));
        let selection = reading.selection.clone();
        let columns = if selection.is_of_columns() { &*selection.columns } else { &[] };
        let selecting = PersonRows::selecting(columns);
        let running = Running::of(context.session_config().options());
        let sender = builder.tx();
        let mut out = Out { rows, selecting, selection, schema, running, left: 0, sender };
        builder.spawn_blocking(move || {
            for work in works {
                out.running.check()?;
                if reading.read(&work, &mut out)?.is_break() {
                    return Ok(());
                }
            }
            let _ = out.send_rows()?;
            Ok(())
        });
        builder.build()
    }
}

impl Reading {
    /// Sends the persons of a part; [`Flow::Break`] once nobody takes any more.
    fn read(&self, work: &Part, out: &mut Out) -> Result<Flow> {
        let is_of_rows = self.selection.is_of_rows() && !self.selection.is_of_columns();
        let read = match (&work.file, &self.store, &self.table.table) {
            (Some(file), Some(store), Some(table)) if !is_of_rows => {
                let stored = Stored { table, store, file };
                match self.selection.is_all() && self.own.is_none() {
                    true => self.read_file(stored, work, out)?,
                    false => self.select_file(stored, work, out)?,
                }
            }
            _ => None,
        };
        match read {
            Some(flow) => Ok(flow),
            None => self.read_rows(work.numbers.clone(), out),
        }
    }

    /// Sends those of the persons with these numbers who are selected, from their rows.
    fn read_rows(&self, numbers: Range<i64>, out: &mut Out) -> Result<Flow> {
        let mut last = Ok(Flow::Continue(()));
        self.each_row(numbers, &mut |row| {
            last = self.test(row, out);
            matches!(last, Ok(Flow::Continue(())))
        })?;
        last
    }

    /// Shows the rows of the persons with these numbers as long as `visit` wants more.
    fn each_row(&self, numbers: Range<i64>, visit: &mut dyn FnMut(&Row<'_>) -> bool) -> Result<()> {
        let PersonsProvider { view, project, .. } = &self.table;
        let read = view.scan_rows(*project, numbers, |row| {
            Ok(if visit(row) { Flow::Continue(()) } else { Flow::Break(()) })
        });
        read.map_err(external)
    }

    /// Sends a person who is selected as far as its row is looked at.
    fn test(&self, row: &Row<'_>, out: &mut Out) -> Result<Flow> {
        out.look()?;
        match self.selection.holds(&self.table.view, row, &out.running)? {
            true => out.push(self.table.project, row),
            false => Ok(Flow::Continue(())),
        }
    }

    /// Sends the persons who are not as a file says, as they are now.
    fn read_changed(&self, work: &Part, out: &mut Out) -> Result<Flow> {
        let (project, view) = (self.table.project, &self.table.view);
        for (_, number) in self.changed.within(&work.places(project)) {
            let pushed = view.ask_row(project, number, |row| self.test(row, out));
            if pushed.map_err(external)?.transpose()?.is_some_and(|flow| flow.is_break()) {
                return Ok(Flow::Break(()));
            }
        }
        Ok(Flow::Continue(()))
    }

    /// Sends those of a file who are selected; `None` if it cannot be read.
    fn select_file(&self, of: Stored<'_>, work: &Part, out: &mut Out) -> Result<Option<Flow>> {
        let (project, wanted) = (self.table.project, &self.selection.columns);
        let columns = of.table.columns(self.number, of.store, of.file, project, wanted);
        let Some(columns) = columns else { return Ok(None) };
        let numbers = columns.first().and_then(|own| own.as_primitive_opt::<Int64Type>());
        let Some(numbers) = numbers.map(|own| own.values().clone()) else { return Ok(None) };
        let mut chosen = self.selection.chosen(columns.clone())?;
        let places = work.places(project);
        let changed = self.changed.within(&places);
        let changed: Vec<usize> =
            changed.filter_map(|(_, number)| numbers.binary_search(&number).ok()).collect();
        if !changed.is_empty() {
            let mut same = BooleanBufferBuilder::new(numbers.len());
            same.append_n(numbers.len(), true);
            changed.into_iter().for_each(|at| same.set_bit(at, false));
            chosen = and(&chosen, &BooleanArray::new(same.finish(), None))?;
        }
        if self.selection.is_of_rows() {
            chosen = self.tested(&numbers, &chosen, out)?;
        }
        let flow = match chosen.true_count() {
            0 => Flow::Continue(()),
            _ if let Some(own) = &self.own => {
                let columns = own.iter().filter_map(|at| columns.get(*at).cloned()).collect();
                let rows = self.batch(numbers.len(), columns)?;
                out.send(filter_record_batch(&rows, &chosen)?)
            }
            count if count < numbers.len() / READ_SHARE => {
                let (mut flow, view) = (Flow::Continue(()), &self.table.view);
                for number in chosen.values().set_indices().filter_map(|at| numbers.get(at)) {
                    out.look()?;
                    let pushed = view.ask_row(project, *number, |row| out.push(project, row));
                    flow = pushed.map_err(external)?.transpose()?.unwrap_or(flow);
                    if flow.is_break() {
                        break;
                    }
                }
                flow
            }
            _ => match self.send_file(of, i64::MIN..i64::MAX, out, &mut |rows, (first, _)| {
                Ok(filter_record_batch(&rows, &chosen.slice(first, rows.num_rows()))?)
            })? {
                Some(flow) => flow,
                None => return Ok(None),
            },
        };
        if flow.is_break() {
            return Ok(Some(flow));
        }
        self.read_changed(work, out).map(Some)
    }

    /// Those of the chosen persons of a file for whom the tests of whole persons hold.
    fn tested(
        &self,
        numbers: &[i64],
        chosen: &BooleanArray,
        out: &mut Out,
    ) -> Result<BooleanArray> {
        let mut kept = BooleanBufferBuilder::new(numbers.len());
        kept.append_n(numbers.len(), false);
        let places: Vec<usize> = chosen.values().set_indices().collect();
        let mut holds = |row: &Row<'_>| -> Result<bool> {
            out.look()?;
            self.selection.holds(&self.table.view, row, &out.running)
        };
        let mut failed = None;
        if places.len() < numbers.len() / READ_SHARE {
            for at in places {
                let Some(number) = numbers.get(at) else { continue };
                let held = self.table.view.ask_row(self.table.project, *number, &mut holds);
                if held.map_err(external)?.transpose()?.unwrap_or(false) {
                    kept.set_bit(at, true);
                }
            }
        } else if let (Some(first), Some(last)) = (numbers.first(), numbers.last()) {
            let mut places = places.into_iter().peekable();
            self.each_row(*first..last.saturating_add(1), &mut |row| {
                let number = |at: &usize| numbers.get(*at).copied();
                while places.next_if(|at| number(at) < Some(row.number)).is_some() {}
                let Some(at) = places.next_if(|at| number(at) == Some(row.number)) else {
                    return true;
                };
                match holds(row) {
                    Ok(true) => kept.set_bit(at, true),
                    Ok(false) => {}
                    Err(error) => failed = Some(error),
                }
                failed.is_none()
            })?;
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(BooleanArray::new(kept.finish(), None)),
        }
    }

    /// Columns that are wanted as rows.
    fn batch(&self, rows: usize, columns: Vec<ArrayRef>) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = Arc::clone(&self.schema);
        Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
    }

    /// Sends all persons of a file; `None` if it cannot be read.
    fn read_file(&self, of: Stored<'_>, work: &Part, out: &mut Out) -> Result<Option<Flow>> {
        let has_changed = self.changed.count(&work.places(self.table.project)) > 0;
        let numbers = work.numbers.clone();
        let flow = self.send_file(of, numbers, out, &mut |rows, (_, ids)| match has_changed {
            true => {
                let is_same = |id: &i64| Some(!self.changed.contains((self.table.project, *id)));
                let same: BooleanArray = ids.values().iter().map(is_same).collect();
                Ok(filter_record_batch(&rows, &same)?)
            }
            false => Ok(rows),
        })?;
        match flow {
            Some(Flow::Continue(())) => self.read_changed(work, out).map(Some),
            flow => Ok(flow),
        }
    }

    /// Sends what `choose` leaves of the rows of a file with these numbers, of which it gets the place of the first and the
    /// numbers; `None` if the file cannot be read.
    fn send_file(
        &self,
        Stored { table, store, file }: Stored<'_>,
        numbers: Range<i64>,
        out: &mut Out,
        choose: Choose<'_>,
    ) -> Result<Option<Flow>> {
        let names =
            self.schema.fields().iter().map(|field| stored(field.name()).to_owned()).collect();
        let columns = ScanColumns { names, keys: self.table.keys.as_deref() };
        let scan = table.scan(store, file, self.table.project, numbers, columns);
        let Some((mut rows, mut next)) = scan else { return Ok(None) };
        let mut first = 0;
        while let Some(FileBatch { ids, columns }) = next {
            let batch = choose(self.batch(ids.len(), columns)?, (first, &ids))?;
            if out.send(batch).is_break() {
                return Ok(Some(Flow::Break(())));
            }
            first += ids.len();
            next = table.next(&mut rows)?;
        }
        Ok(Some(Flow::Continue(())))
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

/// Leaves some of the rows of a file, of which it gets the place of the first and the numbers.
type Choose<'c> = &'c mut dyn FnMut(RecordBatch, (usize, &Int64Array)) -> Result<RecordBatch>;

/// A file of the persons table.
#[derive(Clone, Copy)]
struct Stored<'r> {
    table: &'r PersonTable,
    store: &'r Arc<dyn ObjectStore>,
    file: &'r Arc<DataFile>,
}

/// Where batches go.
struct Out {
    schema: SchemaRef,
    /// Rows of the store that are not sent yet, and the columns that they are selected by.
    rows: PersonRows,
    selecting: PersonRows,
    selection: Selection,
    running: Running,
    /// Rows until the next look whether the query may go on.
    left: u32,
    sender: Sender<Result<RecordBatch>>,
}

impl Out {
    /// Looks now and then whether the query may go on.
    fn look(&mut self) -> Result<()> {
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.left = LOOK_EVERY;
                self.running.check()
            }
        }
    }

    /// Sends a person, if columns select it.
    fn push(&mut self, project: ProjectId, row: &Row<'_>) -> Result<Flow> {
        self.rows.push(project, row, &[]);
        self.selecting.push(project, row, &[]);
        let bytes = self.rows.bytes().saturating_add(self.selecting.bytes());
        match self.rows.len() >= BATCH_ROWS || bytes >= BATCH_BYTES {
            true => self.send_rows(),
            false => Ok(Flow::Continue(())),
        }
    }

    /// Sends the rows of the store so far.
    fn send_rows(&mut self) -> Result<Flow> {
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows.len()));
        let (schema, columns) = (Arc::clone(&self.schema), self.rows.finish());
        let mut batch = RecordBatch::try_new_with_options(schema, columns, &options)?;
        let selecting = self.selecting.finish();
        if self.selection.is_of_columns() {
            batch = filter_record_batch(&batch, &self.selection.chosen(selecting)?)?;
        }
        Ok(self.send(batch))
    }

    fn send(&self, batch: RecordBatch) -> Flow {
        if batch.num_rows() == 0 {
            return Flow::Continue(());
        }
        match self.sender.blocking_send(Ok(batch)) {
            Ok(()) => Flow::Continue(()),
            Err(_) => Flow::Break(()),
        }
    }
}
