//! Parts of a fold, one for each partition of the actors, which other nodes may compute: [`FoldExec`], above an exchange
//! that brings the rows of an actor together. What is computed is a [`FoldContent`]; the result of a part is bytes, which
//! the server merges.

use std::io::Write;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::{fmt, io};

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, Decimal128Array, RecordBatch, UInt32Array,
};
use arrow::datatypes::{DataType, Decimal128Type, Field, Schema, SchemaRef};
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, Distribution, ExecutionPlan,
    InputDistributionRequirements, Partitioning, PlanProperties, ReplaceChildrenOptions,
};
use foldhash::fast::RandomState;
use futures::{StreamExt, TryStreamExt, stream};
use hashbrown::HashMap;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use uuid::Uuid;

use crate::events::histories::fold::{ACTOR, ACTORS_PER_CHECK, Fold, Rows};
use crate::events::histories::gathered::Gathered;
use crate::events::histories::kept::{Actor, Kept};
use crate::events::resolve_person::{KEY, person_of_key};
use crate::kernel::error::QueryError;
use crate::kernel::stop::StopOnDrop;
use crate::persons::person_numbers::table_bytes;
use weir_event::json;

/// The column of the result of a part.
const PART: &str = "part";

/// Longest result of a part: one message between two nodes.
const PART_BYTES_MAX: usize = 16 << 20;

/// A fold of which parts can be computed apart. What is written of it before the first actor is what another process begins
/// with; what is written after the last one is the result of a part.
pub trait PartialFold: Fold + Serialize + DeserializeOwned {
    /// Its name.
    const NAME: &'static str;

    /// Adds the result over other actors.
    ///
    /// # Errors
    ///
    /// The result becomes too large.
    fn merge(&mut self, other: Self) -> Result<(), QueryError>;

    /// Accounts for its memory, in the process that computes a part.
    fn account(&mut self, _memory: MemoryReservation) {}
}

/// What a part begins with, as another process reads it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FoldContent {
    /// [`PartialFold::NAME`].
    name: String,
    /// Whether one of each set of equal rows suffices.
    is_distinct: bool,
    fold: Box<RawValue>,
}

/// What a part begins with, and how it is computed.
#[derive(Clone, Debug)]
pub(crate) struct PartsOf {
    content: FoldContent,
    reader: FoldReader,
}

impl PartsOf {
    pub(super) fn fold<F: PartialFold>(rows: Rows, fold: &F) -> Result<Self, QueryError> {
        let (fold, name) = (to_raw_value(fold).map_err(unwritable)?, F::NAME.to_owned());
        let content = FoldContent { name, is_distinct: rows != Rows::All, fold };
        Ok(Self { content, reader: FoldReader::of::<F>() })
    }

    /// With one of these readers.
    ///
    /// # Errors
    ///
    /// There is none for the fold.
    pub(crate) fn read(content: FoldContent, readers: FoldReaders) -> Result<Self> {
        let reader = readers.iter().find(|own| own.name == content.name);
        let unknown = || DataFusionError::Plan(format!("there is no fold {}", content.name));
        let reader = *reader.ok_or_else(unknown)?;
        Ok(Self { content, reader })
    }
}

/// Computes the parts of the folds of a name.
#[derive(Clone, Copy)]
pub struct FoldReader {
    name: &'static str,
    begin: fn(&RawValue, MemoryReservation) -> serde_json::Result<Box<dyn Part>>,
}

/// Those of the folds that a process knows.
pub type FoldReaders = &'static [FoldReader];

impl fmt::Debug for FoldReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FoldReader").field(&self.name).finish()
    }
}

impl FoldReader {
    /// That of a kind of folds.
    pub const fn of<F: PartialFold>() -> Self {
        Self { name: F::NAME, begin: begin::<F> }
    }
}

fn begin<F: PartialFold>(
    written: &RawValue,
    memory: MemoryReservation,
) -> serde_json::Result<Box<dyn Part>> {
    let mut fold: F = json::read_as(PhantomData, written.get().as_bytes())?;
    fold.account(memory);
    Ok(Box::new(fold))
}

/// Reads and merges the results of parts.
pub(super) fn merge<F: PartialFold>(fold: &mut F, part: &[u8]) -> Result<(), QueryError> {
    let part: F = json::read_as(PhantomData, part).map_err(unwritable)?;
    fold.merge(part)
}

/// The results of parts in a batch; `None` if it has rows of actors.
pub(super) fn parts(batch: &RecordBatch) -> Option<&BinaryArray> {
    batch.column_by_name(PART)?.as_binary_opt()
}

/// A fold of any kind.
trait Part: Fold {
    /// Writes its result.
    fn write(&self, into: &mut Written) -> serde_json::Result<()>;
}

impl<F: PartialFold> Part for F {
    fn write(&self, into: &mut Written) -> serde_json::Result<()> {
        serde_json::to_writer(into, self)
    }
}

/// A result that is written, within limits.
struct Written {
    bytes: Vec<u8>,
    memory: MemoryReservation,
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = self.bytes.len().saturating_add(bytes.len());
        if length > PART_BYTES_MAX {
            return Err(io::Error::other("the result of a part of a fold is too long"));
        }
        if length > self.bytes.capacity() {
            let larger = length.next_power_of_two();
            // While it grows there are two.
            self.memory.try_resize(larger + self.bytes.len()).map_err(io::Error::other)?;
            self.bytes.reserve_exact(larger - self.bytes.len());
            self.memory.try_resize(larger).map_err(io::Error::other)?;
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn unwritable(error: serde_json::Error) -> QueryError {
    QueryError::Internal(DataFusionError::External(Box::new(error)))
}

/// Folds the rows of the actors of each partition.
#[derive(Debug)]
pub(crate) struct FoldExec {
    input: Arc<dyn ExecutionPlan>,
    parts: PartsOf,
    properties: Arc<PlanProperties>,
}

impl FoldExec {
    /// Above an exchange of the rows of `plan`, of which each task sends equal ones once if that suffices.
    ///
    /// # Errors
    ///
    /// The plan has no actors, or numbers of persons.
    pub(crate) fn over(
        plan: Arc<dyn ExecutionPlan>,
        parts: PartsOf,
        partitions: usize,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = if parts.content.is_distinct { distinct(plan)? } else { plan };
        let hash = Partitioning::Hash(vec![actor_of(&plan)?], partitions);
        let input = RepartitionExec::try_new(plan, hash)?;
        Ok(Arc::new(Self::new(Arc::new(input), parts)?))
    }

    /// With rows of which each partition has all of its actors.
    ///
    /// # Errors
    ///
    /// The input has no actors, or numbers of persons.
    pub(crate) fn new(input: Arc<dyn ExecutionPlan>, parts: PartsOf) -> Result<Self> {
        actor_of(&input)?;
        let field = Field::new(PART, DataType::Binary, false);
        let schema: SchemaRef = Arc::new(Schema::new(vec![field]));
        let partitions = input.properties().output_partitioning().partition_count();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Ok(Self { input, parts, properties: Arc::new(properties) })
    }

    /// What its parts begin with.
    pub(crate) fn content(&self) -> &FoldContent {
        &self.parts.content
    }
}

/// The rows without most of those that are equal to others of their partition. The aggregation passes on what it finds to have
/// few equal rows.
fn distinct(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = plan.schema();
    let column = |(at, field): (usize, &Arc<Field>)| -> (Arc<dyn PhysicalExpr>, String) {
        (Arc::new(Column::new(field.name(), at)), field.name().clone())
    };
    let columns = schema.fields().iter().enumerate().map(column).collect();
    let group = PhysicalGroupBy::new_single(columns);
    let (mode, none) = (AggregateMode::Partial, Vec::new());
    Ok(Arc::new(AggregateExec::try_new(mode, group, none, Vec::new(), plan, schema)?))
}

/// The column of actors.
fn actor_of(plan: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn PhysicalExpr>> {
    let schema = plan.schema();
    let (at, field) = schema.fields().find(ACTOR).ok_or_else(no_actors)?;
    match field.data_type() {
        // Numbers are those of one process.
        DataType::UInt32 => Err(no_actors()),
        _ => Ok(Arc::new(Column::new(ACTOR, at))),
    }
}

fn no_actors() -> DataFusionError {
    DataFusionError::NotImplemented("a plan has no actors that other nodes know".to_owned())
}

impl DisplayAs for FoldExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FoldExec: {}", self.parts.content.name)
    }
}

impl ExecutionPlan for FoldExec {
    fn name(&self) -> &'static str {
        "FoldExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        let of_actor = |actor| Distribution::KeyPartitioned(vec![actor]);
        let wanted = actor_of(&self.input).map_or(Distribution::SinglePartition, of_actor);
        InputDistributionRequirements::new(vec![wanted])
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = children.into_iter().next();
        let input = input.ok_or_else(|| DataFusionError::Internal("no input".to_owned()))?;
        Ok(Arc::new(Self::new(input, self.parts.clone())?))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let recompute = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, recompute)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let rows = self.input.execute(partition, Arc::clone(&context))?;
        let (schema, parts) = (self.schema(), self.parts.clone());
        let of_part = part(rows, parts, Arc::clone(context.memory_pool()));
        let batch = Arc::clone(&schema);
        let batches = stream::once(of_part).map_ok(move |part| {
            let part: ArrayRef = Arc::new(BinaryArray::from_iter_values([part]));
            RecordBatch::try_new(Arc::clone(&batch), vec![part])
        });
        let batches = batches.map(|batch| batch?.map_err(DataFusionError::from));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}

/// The result of a part.
async fn part(
    mut rows: SendableRecordBatchStream,
    PartsOf { content, reader }: PartsOf,
    pool: Arc<dyn MemoryPool>,
) -> Result<Vec<u8>> {
    let memory = MemoryConsumer::new("part of a fold").register(&pool);
    let unreadable = |error| DataFusionError::Plan(format!("a fold cannot be read: {error}"));
    let mut fold = (reader.begin)(&content.fold, memory.new_empty()).map_err(unreadable)?;
    let written = memory.new_empty();
    let actor = rows.schema();
    let has_keys = actor.field_with_name(ACTOR).is_ok_and(|own| *own.data_type() == KEY);
    let kind = if content.is_distinct { Rows::Distinct } else { Rows::All };
    let mut kept = Gathered::new(&pool, kind, !has_keys);
    let mut numbers = KeyNumbers { memory, numbers: HashMap::default(), keys: Vec::new() };
    kept.begin();
    while let Some(batch) = rows.next().await {
        let batch = numbers.numbered(batch?)?;
        kept.add(&batch).map_err(failed)?;
        if !kept.is_whole() {
            let why = "the rows of a part of a fold do not fit into memory";
            return Err(DataFusionError::ResourcesExhausted(why.to_owned()));
        }
    }
    drop(rows);
    let stop = StopOnDrop::default();
    let is_stopped = Arc::clone(&stop.0);
    // It is CPU-bound, and the threads of queries serve other nodes, too.
    let folding = SpawnedTask::spawn_blocking(move || {
        fold.begin(kept.texts()).map_err(failed)?;
        let (mut name, mut count) = (Uuid::encode_buffer(), 0_usize);
        kept.each(&mut |actor, rows, texts| {
            if count % ACTORS_PER_CHECK == 0 && is_stopped.load(Ordering::Relaxed) {
                return Err(QueryError::Unavailable("nobody waits for the answer"));
            }
            count += 1;
            fold.actor(numbers.name(actor, &mut name), rows, texts)
        })
        .map_err(failed)?;
        let mut part = Written { bytes: Vec::new(), memory: written };
        fold.write(&mut part)
            .map_err(|error| DataFusionError::ResourcesExhausted(error.to_string()))?;
        Ok(part.bytes)
    });
    let ended = folding.join().await.map_err(|error| DataFusionError::External(Box::new(error)));
    drop(stop);
    ended?
}

fn failed(error: QueryError) -> DataFusionError {
    match error {
        QueryError::Memory(why) => DataFusionError::ResourcesExhausted(why),
        other => DataFusionError::External(Box::new(other)),
    }
}

/// The persons of a part by numbers, in the order in which they are met.
struct KeyNumbers {
    numbers: HashMap<i128, u32, RandomState>,
    keys: Vec<i128>,
    memory: MemoryReservation,
}

impl KeyNumbers {
    /// A batch with numbers in place of keys; the same if its actors are texts.
    fn numbered(&mut self, batch: RecordBatch) -> Result<RecordBatch> {
        let at = batch.schema_ref().index_of(ACTOR)?;
        let Some(keys) = batch.column(at).as_primitive_opt::<Decimal128Type>() else {
            return Ok(batch);
        };
        let numbers: ArrayRef = Arc::new(self.of(keys)?);
        with_actors(batch, at, numbers)
    }

    fn of(&mut self, keys: &Decimal128Array) -> Result<UInt32Array> {
        let room = self.numbers.capacity();
        if self.numbers.len() + keys.len() > room {
            // While it grows there are two.
            let wanted = (self.numbers.len() + keys.len()).max(room * 2);
            let bytes = |places: usize| {
                table_bytes(places, size_of::<(i128, u32)>()) + places * size_of::<i128>()
            };
            self.memory.try_resize(bytes(room).saturating_add(bytes(wanted)))?;
            self.numbers.reserve(wanted - self.numbers.len());
            self.memory.try_resize(bytes(self.numbers.capacity()))?;
        }
        let numbers = keys.iter().map(|key| {
            let Some(key) = key else { return Ok(None) };
            let next = u32::try_from(self.keys.len());
            let next = next
                .map_err(|_| DataFusionError::ResourcesExhausted("too many persons".to_owned()))?;
            let number = *self.numbers.entry(key).or_insert(next);
            if number == next {
                self.keys.push(key);
            }
            Ok(Some(number))
        });
        numbers.collect()
    }

    /// The name of an actor; that of a person is written to `buffer`.
    fn name<'n>(&self, actor: Actor<'n>, buffer: &'n mut [u8]) -> &'n str {
        match actor {
            Actor::Name(name) => name,
            Actor::Number(number) => {
                let at = usize::try_from(number).unwrap_or(usize::MAX);
                let key = self.keys.get(at).copied().unwrap_or_default();
                person_of_key(key).hyphenated().encode_lower(buffer)
            }
        }
    }
}

/// A batch with other actors in the column at this index.
pub(super) fn with_actors(batch: RecordBatch, at: usize, actors: ArrayRef) -> Result<RecordBatch> {
    let (schema, mut columns, _) = batch.into_parts();
    let mut fields: Vec<_> = schema.fields().iter().cloned().collect();
    if let (Some(column), Some(field)) = (columns.get_mut(at), fields.get_mut(at)) {
        *field = Arc::new(Field::new(ACTOR, actors.data_type().clone(), true));
        *column = actors;
    }
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}

#[cfg(test)]
mod tests;
