//! Rows of events by actor, each actor's in the order of time: [`Engine::histories`]. For what is asked of the
//! order of events, such as funnels and paths; SQL answers that by a sort of whole rows.
//!
//! A plan gives an actor, a time, a mask and perhaps a text for each event. Rows are kept as numbers within
//! the memory of queries (`gathered`), or as bits where there are few times and masks (`marks`). What exceeds the memory is left
//! to another pass over the plan: the actors are halved by their hash, the pass goes on with one half, and the other half has its
//! own pass later. Of bits a pass has as many actors as there is room for.

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
use crate::kernel::error::QueryError;
use crate::kernel::interner::Interner;
use crate::kernel::parts::given_up;
use crate::kernel::view::View;
use crate::persons::person_numbers::PersonNumbers;

/// Columns of a plan: whose the event is, a text or the number of a person; rows without it are left out.
pub const ACTOR: &str = "actor";
/// Its time or another number by which the rows of an actor are ordered: `Int64`.
pub const AT: &str = "at";
/// What is known of it, as bits: `UInt32`.
pub const MASK: &str = "mask";
/// A text of it, or null. A plan may do without the column.
pub const TEXT: &str = "text";

/// Actors after which a fold looks whether anybody waits for it.
const ACTORS_PER_CHECK: usize = 1024;

/// An event of an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its place in the order.
    pub at: i64,
    /// What is known of it.
    pub mask: u32,
    /// The number of its text; [`NO_TEXT`] without one.
    pub text: u32,
    actor: u32,
}

impl Row {
    /// A row without a text, of the first actor.
    pub fn new(at: i64, mask: u32) -> Self {
        Self { at, mask, text: NO_TEXT, actor: 0 }
    }
}

/// The number of no text.
pub const NO_TEXT: u32 = u32::MAX;

/// Which rows of an actor matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// Each.
    All,
    /// One of those that are equal.
    Distinct,
    /// The same of a plan without texts whose times and masks are known before.
    Marked(Marks),
}

/// What is computed of each actor's rows.
pub trait Fold: Send + 'static {
    /// A pass over some of the actors begins. Until the next one, [`Row::text`] is a number of these texts.
    ///
    /// # Errors
    ///
    /// What it keeps of texts becomes too large.
    fn begin(&mut self, _texts: &Interner) -> Result<(), QueryError> {
        Ok(())
    }

    /// Takes the rows of an actor: one at least, ordered by [`Row::at`], those of one time by their masks and then
    /// by their texts. Each actor comes once; actors come in no order.
    ///
    /// # Errors
    ///
    /// What it computes becomes too large.
    fn actor(&mut self, actor: &str, rows: &[Row], texts: &Interner) -> Result<(), QueryError>;
}

impl Engine {
    /// Folds the rows of each actor of a plan of a view. It has the columns [`ACTOR`], [`AT`], [`MASK`] and perhaps
    /// [`TEXT`]. Dropping the future ends it.
    ///
    /// # Errors
    ///
    /// See [`QueryError`]; [`QueryError::Memory`] where the rows of one actor alone exceed the memory.
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

    /// Goes over a plan until no actor is left, and folds the rows that each pass keeps.
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
            // On the threads of queries: it computes.
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

    /// A part of the memory of queries for what a fold keeps: nothing at first.
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
    /// Its name, which is kept in `buffer` if it is that of a person.
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
