//! Event histories, the rows of each actor in the order of time: [`Engine::histories`]. For analyses of the order of
//! events, such as funnels and paths; in SQL they would need a sort of whole rows.
//!
//! A plan provides an actor, a time, a mask and optionally a text for each event. Rows are buffered as numbers within
//! the memory of queries (`gathered`), or as bits where there are few times and masks (`marks`). Actors that exceed the
//! memory are left to another pass over the plan: they are partitioned in halves by their hash, the pass goes on with
//! one half, and the other half has its own pass later. With bits, a pass includes as many actors as fit into memory.

mod gathered;
mod kept;
mod marks;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::datatypes::DataType;
use datafusion::dataframe::DataFrame;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use uuid::Uuid;

use crate::events::histories::gathered::Gathered;
use crate::events::histories::kept::{Actor, Kept};
use crate::events::histories::marks::Marked;
pub use crate::events::histories::marks::Marks;
use crate::kernel::admission::Work;
use crate::kernel::apart::spawned;
use crate::kernel::engine::{Engine, StopOnDrop};
use crate::kernel::error::{QueryError, given_up};
use crate::kernel::interner::Interner;
use crate::kernel::view::View;
use crate::persons::person_numbers::PersonNumbers;

/// Plan column: the actor of the event, a text or a person number; rows where it is null are left out.
pub const ACTOR: &str = "actor";
/// Plan column: its time or another number by which the rows of an actor are ordered: `Int64`.
pub const AT: &str = "at";
/// Plan column: facts about it, as bits: `UInt32`.
pub const MASK: &str = "mask";
/// Plan column: a text of it, or null. Optional.
pub const TEXT: &str = "text";

/// Actors after which a fold checks whether it has been cancelled.
const ACTORS_PER_CHECK: usize = 1024;

/// An event of an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its time, or the other number by which rows are ordered.
    pub at: i64,
    /// Facts about it, as bits.
    pub mask: u32,
    /// The interned number of its text; [`NO_TEXT`] if there is none.
    pub text: u32,
    actor: u32,
}

impl Row {
    /// A row without a text, of the first actor.
    pub fn new(at: i64, mask: u32) -> Self {
        Self { at, mask, text: NO_TEXT, actor: 0 }
    }
}

/// Value of [`Row::text`] without a text.
pub const NO_TEXT: u32 = u32::MAX;

/// Which rows of an actor a fold needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// All of them.
    All,
    /// One of each set of equal rows.
    Distinct,
    /// The same for a plan without texts of which all times and masks are known in advance.
    Marked(Marks),
}

/// A computation over the rows of each actor.
pub trait Fold: Send + 'static {
    /// Called before each pass, which covers some of the actors. Until the next pass, [`Row::text`] refers to these
    /// texts.
    ///
    /// # Errors
    ///
    /// The state that it derives from texts becomes too large.
    fn begin(&mut self, _texts: &Interner) -> Result<(), QueryError> {
        Ok(())
    }

    /// Processes the rows of an actor: at least one, ordered by [`Row::at`], then mask, then text. Each actor comes
    /// once, in no particular order.
    ///
    /// # Errors
    ///
    /// Its result becomes too large.
    fn actor(&mut self, actor: &str, rows: &[Row], texts: &Interner) -> Result<(), QueryError>;
}

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
        let permit = self.permit_for(Work::Sql).await?;
        let actor = plan.schema().field_with_unqualified_name(ACTOR)?;
        let persons = match actor.data_type() {
            DataType::UInt32 => Some(View::persons_of(&plan)?),
            _ => None,
        };
        let pool = &self.shared.pools.rows;
        let folded = match (rows, &persons) {
            (Rows::Marked(marks), Some(_)) if marks.are_few() => {
                self.passes(plan, persons, Marked::new(pool, marks), fold).await
            }
            _ => {
                let gathered = Gathered::new(pool, rows, persons.is_none());
                self.passes(plan, persons, gathered, fold).await
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
        mut fold: F,
    ) -> Result<F, QueryError> {
        let stop = StopOnDrop::default();
        while kept.begin() {
            let mut answer = self.begin(plan.clone(), None);
            // On a query thread: it is CPU-bound.
            let keeping = async move {
                while let Some(batch) = answer.next().await {
                    kept.add(&batch?)?;
                }
                Ok::<_, QueryError>(kept)
            };
            let keeping = spawned(&self.shared.runtime, keeping);
            kept = keeping.join().await.map_err(given_up)??;
            let (flag, persons) = (Arc::clone(&stop.0), persons.clone());
            let folding = self.shared.runtime.spawn_blocking(move || {
                let folded = each_actor(&mut kept, persons.as_deref(), &mut fold, &flag);
                folded.map(|()| (kept, fold))
            });
            (kept, fold) = folding.await.map_err(given_up)??;
        }
        Ok(fold)
    }

    /// An empty memory reservation in the pool of queries, for the state of a fold.
    pub fn reservation(&self, name: &'static str) -> MemoryReservation {
        MemoryConsumer::new(name).register(&self.shared.pools.rows)
    }
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
            return Err(QueryError::Unavailable("nobody waits for the answer"));
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
