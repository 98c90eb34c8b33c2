//! Conditions on persons and groups as the sets of those for whom they hold ([`SubjectSet`]), so that a process without a
//! store of persons evaluates them ([`of_persons`], [`of_groups`]). A set is read when a query is to be executed over
//! several nodes, and only if it is small.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray, BooleanArray};
use arrow::datatypes::DataType;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::logical_expr::{LogicalPlan, ScalarUDF};
use foldhash::fast::RandomState;
use futures::future::BoxFuture;
use tokio::sync::OnceCell;
use tokio::time::timeout;
use uuid::Uuid;

use crate::filter::condition;
use crate::filter::condition::{About, Call, Pace};
use crate::filter::content::{ConditionContent, OfPersons};
use crate::guard;
use crate::guard::Running;
use crate::persons::person_numbers::table_bytes;
use weir_event::predicate::tree::Tree;

/// Most persons or groups of a set: it is part of a plan, which each of its tasks gets.
pub const SUBJECTS_MAX: usize = 250_000;

/// Most bytes of the keys of groups of a set, for the same reason.
pub(super) const KEY_BYTES_MAX: usize = 4 << 20;

/// Most bytes of all sets of a query.
const BYTES_MAX: usize = 8 << 20;

/// How long the sets of a query may take, which is executed without workers otherwise.
const LIMIT: Duration = Duration::from_secs(2);

/// How often it is looked whether a query that reads a set is still wanted.
const WANTED_EVERY: Duration = Duration::from_millis(100);

/// Finds the persons for whom filters hold; `None` if they are more than [`SUBJECTS_MAX`].
pub type FindPersons =
    Arc<dyn Fn(Tree, Running) -> BoxFuture<'static, Result<Option<Vec<Uuid>>>> + Send + Sync>;

/// Reads the content of a condition; `None` if it is too large to be sent.
type Reading =
    Box<dyn Fn(Running) -> BoxFuture<'static, Result<Option<ConditionContent>>> + Send + Sync>;

/// The content of a condition, which is read when it is wanted for the first time.
pub(crate) struct SubjectSet {
    read: Reading,
    memory: Arc<dyn MemoryPool>,
    found: OnceCell<Option<(ConditionContent, MemoryReservation)>>,
}

impl SubjectSet {
    /// One that `read` reads. Its memory is of `memory`.
    pub(super) fn new(
        memory: &Arc<dyn MemoryPool>,
        read: impl Fn(Running) -> BoxFuture<'static, Result<Option<ConditionContent>>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self { read: Box::new(read), memory: Arc::clone(memory), found: OnceCell::new() }
    }

    /// The content, once it was read, if it is small enough.
    pub(crate) fn content(&self) -> Option<&ConditionContent> {
        let (content, _) = self.found.get()?.as_ref()?;
        Some(content)
    }

    pub(super) async fn read(&self, running: &Running) -> Result<()> {
        let read = async {
            let Some(content) = (self.read)(running.clone()).await? else { return Ok(None) };
            let memory = MemoryConsumer::new("persons of a condition").register(&self.memory);
            memory.try_grow(bytes(&content))?;
            Ok::<_, DataFusionError>(Some((content, memory)))
        };
        let mut reading = pin!(self.found.get_or_try_init(|| read));
        loop {
            match timeout(WANTED_EVERY, &mut reading).await {
                Ok(read) => return read.map(|_| ()),
                Err(_) => running.check()?,
            }
        }
    }
}

/// Memory of the sets of a content.
fn bytes(content: &ConditionContent) -> usize {
    match content {
        ConditionContent::Persons(own) => own.others.0.len().saturating_mul(size_of::<Uuid>()),
        ConditionContent::Groups(own) => {
            let bytes = own.others.iter().map(|key| key.len().saturating_add(size_of::<String>()));
            bytes.fold(0, usize::saturating_add)
        }
        _ => 0,
    }
}

/// See [`read_sets`](crate::fragments::read_sets).
pub(crate) async fn read_sets(plan: &LogicalPlan, running: &Running) -> Result<()> {
    let running = running.part_within(LIMIT);
    let mut sets: Vec<Arc<SubjectSet>> = Vec::new();
    for function in guard::called_functions(plan)? {
        if let Some(set) = condition::subject_set(&function)
            && !sets.iter().any(|own| Arc::ptr_eq(own, set))
        {
            sets.push(Arc::clone(set));
        }
    }
    let mut left = BYTES_MAX;
    for set in sets {
        set.read(&running).await?;
        let bytes = set.content().map_or(0, bytes);
        left = left.checked_sub(bytes).ok_or_else(|| {
            let why = "the sets of persons and groups are too large together";
            DataFusionError::NotImplemented(why.to_owned())
        })?;
    }
    Ok(())
}

/// Filters on the persons of events, as a function of the column with their uuids. The memory of the set is of `memory`.
///
/// # Errors
///
/// There is no memory for it.
pub(crate) fn of_persons(own: &OfPersons, memory: &Arc<dyn MemoryPool>) -> Result<ScalarUDF> {
    let reserved = MemoryConsumer::new("persons of a condition").register(memory);
    reserved.try_grow(table_bytes(own.others.0.len(), size_of::<Uuid>()))?;
    let others: HashSet<Uuid, RandomState> = own.others.0.iter().copied().collect();
    let holds_for_nobody = own.holds_for_nobody;
    let test = condition::of_one("matches_filters", move |persons: &ArrayRef, _: Call<'_>| {
        let _held = &reserved;
        let holds = |person: Option<&str>| {
            let uuid = person.and_then(|person| Uuid::try_parse(person).ok());
            holds_for_nobody != uuid.is_some_and(|uuid| others.contains(&uuid))
        };
        let persons = persons.as_string_view_opt().ok_or_else(|| {
            DataFusionError::Internal("persons of a condition are no texts".to_owned())
        })?;
        Ok(BooleanArray::from_iter(persons.iter().map(|person| Some(holds(person)))))
    });
    let types = vec![DataType::Utf8View];
    Ok(condition::function(About::default(), "matches_filters", types, Pace::Steady, test))
}

/// A condition on the keys of groups, turned round for those of a set.
pub(super) fn turned(
    held: &BooleanArray,
    keys: &ArrayRef,
    others: &HashSet<String>,
) -> Result<BooleanArray> {
    let keys = keys.as_string_view_opt().ok_or_else(|| {
        DataFusionError::Internal("groups of a condition are no texts".to_owned())
    })?;
    let turned = held.iter().zip(keys.iter()).map(|(held, key)| {
        let is_other = key.is_some_and(|key| others.contains(key));
        Some(held.unwrap_or(false) != is_other)
    });
    Ok(turned.collect())
}
