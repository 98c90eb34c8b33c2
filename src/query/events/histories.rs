//! Event histories, the rows of each actor in the order of time: [`Engine::histories`]. For analyses of the order of
//! events, such as funnels and paths; in SQL they would need a sort of whole rows.
//!
//! A plan provides an actor, a time, a mask and optionally a text for each event. Rows are buffered as numbers within
//! the memory of queries (`gathered`), or as bits where there are few times and masks (`marks`). Actors that exceed the
//! memory are left to another pass over the plan: they are partitioned in halves by their hash, the pass goes on with
//! one half, and the other half has its own pass later. With bits, a pass includes as many actors as fit into memory.
//!
//! Other nodes may read the rows, which come with keys of persons then, and fold them in parts (`parts`), which are merged.

pub(crate) mod fold;
mod gathered;
mod kept;
mod marks;
pub(crate) mod parts;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Decimal128Type};
use datafusion::dataframe::DataFrame;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::logical_expr::LogicalPlan;
use uuid::Uuid;

use crate::events::histories::fold::ACTORS_PER_CHECK;
pub use crate::events::histories::fold::{ACTOR, AT, Fold, MASK, NO_TEXT, Row, Rows, TEXT};
use crate::events::histories::gathered::Gathered;
use crate::events::histories::kept::{Actor, Kept};
use crate::events::histories::marks::Marked;
pub use crate::events::histories::marks::Marks;
use crate::events::histories::parts::PartsOf;
pub use crate::events::histories::parts::{FoldReader, FoldReaders, PartialFold};
use crate::kernel::admission::Work;
use crate::kernel::apart::spawned;
use crate::kernel::engine::Engine;
use crate::kernel::error::{QueryError, given_up};
use crate::kernel::physical::Sharing;
use crate::kernel::run::note_failure;
use crate::kernel::stop::StopOnDrop;
use crate::kernel::view::View;
use crate::persons::person_numbers::PersonNumbers;

impl Engine {
    /// Folds the rows of each actor of a view's plan, which has the columns [`ACTOR`], [`AT`], [`MASK`] and optionally
    /// [`TEXT`]. Dropping the future cancels it.
    ///
    /// # Errors
    ///
    /// See [`QueryError`]; [`QueryError::Memory`] if the rows of a single actor exceed the memory.
    pub async fn histories<F: Fold>(
        &self,
        plan: DataFrame,
        rows: Rows,
        fold: F,
    ) -> Result<F, QueryError> {
        self.folded(plan, rows, fold, None).await
    }

    /// The same of a fold of which other nodes may compute parts.
    ///
    /// # Errors
    ///
    /// As [`Engine::histories`].
    pub async fn histories_in_parts<F: PartialFold>(
        &self,
        plan: DataFrame,
        rows: Rows,
        fold: F,
    ) -> Result<F, QueryError> {
        // The rows of an actor come from all plans that are united.
        let is_one = !matches!(plan.logical_plan(), LogicalPlan::Union(_));
        let parts = match self.has_nodes() && is_one {
            true => Some((PartsOf::fold(rows, &fold)?, parts::merge::<F> as Merge<F>)),
            false => None,
        };
        self.folded(plan, rows, fold, parts).await
    }

    async fn folded<F: Fold>(
        &self,
        plan: DataFrame,
        rows: Rows,
        fold: F,
        parts: Option<(PartsOf, Merge<F>)>,
    ) -> Result<F, QueryError> {
        let permit = self.permit_for(Work::Sql).await?;
        let actor = plan.schema().field_with_unqualified_name(ACTOR)?;
        let persons = match actor.data_type() {
            DataType::UInt32 => Some(View::persons_of(&plan)?),
            _ => None,
        };
        let pool = &self.shared.pools.rows;
        let folded = match (rows, &persons) {
            (Rows::Marked(marks), Some(_)) if marks.are_few() => {
                self.passes(plan, persons, Marked::new(pool, marks), (fold, parts)).await
            }
            _ => {
                let gathered = Gathered::new(pool, rows, persons.is_none());
                self.passes(plan, persons, gathered, (fold, parts)).await
            }
        };
        drop(permit);
        folded
    }

    /// Runs the plan in passes until no actor is left, and folds the rows that each pass buffers.
    async fn passes<K: Kept, F: Fold>(
        &self,
        plan: DataFrame,
        persons: Option<Arc<PersonNumbers>>,
        mut kept: K,
        (mut fold, mut parts): (F, Option<(PartsOf, Merge<F>)>),
    ) -> Result<F, QueryError> {
        let stop = StopOnDrop::default();
        while kept.begin() {
            let (content, merge) = parts.take().unzip();
            let sharing = content.map_or(Sharing::NodesWithKeys, Sharing::Folded);
            let mut read = self.keep(plan.clone(), persons.clone(), kept, sharing).await?;
            if let Some(error) = read.failed.take() {
                read.kept.again();
                let alone = Sharing::Alone;
                read = self.keep(plan.clone(), persons.clone(), read.kept, alone).await?;
                note_failure(&self.shared, &error.to_string());
            }
            kept = read.kept;
            if let (Some(merge), false) = (merge, read.parts.is_empty()) {
                let (flag, parts, memory) = (Arc::clone(&stop.0), read.parts, read.memory);
                let merging = self.shared.runtime.spawn_blocking(move || {
                    let merged =
                        parts.iter().try_for_each(|part| match flag.load(Ordering::Relaxed) {
                            true => Err(unwanted()),
                            false => merge(&mut fold, part),
                        });
                    drop(memory);
                    merged.map(|()| fold)
                });
                return merging.await.map_err(given_up)?;
            }
            let (flag, persons) = (Arc::clone(&stop.0), persons.clone());
            let folding = self.shared.runtime.spawn_blocking(move || {
                let folded = each_actor(&mut kept, persons.as_deref(), &mut fold, &flag);
                folded.map(|()| (kept, fold))
            });
            (kept, fold) = folding.await.map_err(given_up)??;
        }
        Ok(fold)
    }

    /// Runs the plan and buffers its rows.
    async fn keep<K: Kept>(
        &self,
        plan: DataFrame,
        persons: Option<Arc<PersonNumbers>>,
        kept: K,
        sharing: Sharing,
    ) -> Result<Read<K>, QueryError> {
        let plans = match sharing {
            Sharing::NodesWithKeys if self.has_nodes() => united(plan),
            _ => vec![plan],
        };
        let (engine, memory) = (self.clone(), self.reservation("parts of a fold"));
        let mut read = Read { kept, parts: Vec::new(), memory, failed: None };
        // On a query thread: it is CPU-bound.
        let keeping = async move {
            for plan in plans {
                let mut answer = engine.begin_shared(plan, sharing.clone());
                while let (Some(batch), None) = (answer.next().await, &read.failed) {
                    match batch {
                        Ok(batch) => read.add(batch, persons.as_deref())?,
                        Err(error) if answer.may_run_alone(&error) => read.failed = Some(error),
                        Err(error) => return Err(error),
                    }
                }
                if read.failed.is_some() {
                    break;
                }
            }
            Ok(read)
        };
        spawned(&self.shared.runtime, keeping).join().await.map_err(given_up)?
    }

    /// Whether other nodes may execute parts of queries now.
    fn has_nodes(&self) -> bool {
        self.shared.distribution.as_ref().is_some_and(|nodes| nodes.is_ready())
    }

    /// An empty memory reservation in the pool of queries, for the state of a fold.
    pub fn reservation(&self, name: &'static str) -> MemoryReservation {
        MemoryConsumer::new(name).register(&self.shared.pools.rows)
    }
}

/// The plans of which a plan is the union, each of which may have parts that other nodes can execute.
fn united(plan: DataFrame) -> Vec<DataFrame> {
    let (state, plan) = plan.into_parts();
    let plans = match plan {
        LogicalPlan::Union(union) => union.inputs.into_iter().map(Arc::unwrap_or_clone).collect(),
        other => vec![other],
    };
    plans.into_iter().map(|plan| DataFrame::new(state.clone(), plan)).collect()
}

/// Merges the result of a part into a fold.
type Merge<F> = fn(&mut F, &[u8]) -> Result<(), QueryError>;

/// What was read of a plan in a pass.
struct Read<K> {
    /// Its rows.
    kept: K,
    /// Or the results of all parts, if other nodes have folded the rows.
    parts: Vec<Vec<u8>>,
    /// Memory of the results.
    memory: MemoryReservation,
    /// The error of other nodes, or that their results are too large, so that the rest was not read.
    failed: Option<QueryError>,
}

impl<K: Kept> Read<K> {
    fn add(
        &mut self,
        batch: RecordBatch,
        persons: Option<&PersonNumbers>,
    ) -> Result<(), QueryError> {
        match parts::parts(&batch) {
            Some(parts) => {
                for part in parts.iter().flatten() {
                    if let Err(error) = self.memory.try_grow(part.len()) {
                        self.failed = Some(error.into());
                        return Ok(());
                    }
                    self.parts.push(part.to_vec());
                }
            }
            None => self.kept.add(&numbered(batch, persons)?)?,
        }
        Ok(())
    }
}

/// A batch with the numbers of persons, if it has their keys.
fn numbered(
    batch: RecordBatch,
    persons: Option<&PersonNumbers>,
) -> Result<RecordBatch, QueryError> {
    let Ok(at) = batch.schema_ref().index_of(ACTOR) else { return Ok(batch) };
    let keys = batch.column(at).as_primitive_opt::<Decimal128Type>();
    let Some((keys, persons)) = keys.zip(persons) else { return Ok(batch) };
    let numbers: ArrayRef = Arc::new(persons.of_keys(keys)?);
    Ok(parts::with_actors(batch, at, numbers)?)
}

fn unwanted() -> QueryError {
    QueryError::Unavailable("nobody waits for the answer")
}

fn each_actor<F: Fold>(
    kept: &mut impl Kept,
    persons: Option<&PersonNumbers>,
    fold: &mut F,
    stop: &AtomicBool,
) -> Result<(), QueryError> {
    fold.begin(kept.texts())?;
    let (mut name, mut count) = (Uuid::encode_buffer(), 0_usize);
    kept.each(&mut |actor, rows, texts| {
        if count % ACTORS_PER_CHECK == 0 && stop.load(Ordering::Relaxed) {
            return Err(unwanted());
        }
        count += 1;
        fold.actor(actor.name(persons, &mut name)?, rows, texts)
    })
}

impl Actor<'_> {
    /// The actor's name; that of a person is written to `buffer`.
    fn name<'n>(
        self,
        persons: Option<&PersonNumbers>,
        buffer: &'n mut [u8],
    ) -> Result<&'n str, QueryError>
    where
        Self: 'n,
    {
        let number = match self {
            Actor::Name(name) => return Ok(name),
            Actor::Number(number) => number,
        };
        let person = persons.and_then(|persons| persons.person(number));
        let unknown = || {
            QueryError::Internal(DataFusionError::Internal(
                "a row of histories is of a person without a number".to_owned(),
            ))
        };
        Ok(person.ok_or_else(unknown)?.hyphenated().encode_lower(buffer))
    }
}
