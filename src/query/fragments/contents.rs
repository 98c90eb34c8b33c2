//! Contents of operators and functions: [`OperatorContent`], [`FunctionContent`].

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::logical_expr::ScalarUDF;
use datafusion::physical_plan::ExecutionPlan;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::events::histories::parts::{FoldContent, FoldExec, FoldReaders, PartsOf};
use crate::events::resolve_person::{Gives, ResolvePerson, Survivors};
use crate::events::scoped::{Scope, ScopedExec};
use crate::filter::content::ConditionContent;
use crate::filter::{condition, matches, tree};
use crate::functions::local_time::LocalTimeContent;
use crate::functions::serializable::{FunctionReader, FunctionReaders};
use crate::functions::{json_property, serializable, text_number};
use crate::guard;
use crate::guard::operators::content::OperatedContent;
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_identity::overrides::OverrideMap;

/// Most overrides of a project that are sent with a fragment: 32 bytes each.
const OVERRIDES_MAX: usize = 100_000;

/// Bytes of a uuid.
const UUID_BYTES: usize = 16;

/// Functions by their names.
pub(super) type Functions = HashMap<String, Arc<ScalarUDF>>;

/// The content of an operator.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum OperatorContent {
    /// Restricts a scan to the rows of a project, without deletions.
    Scoped {
        project: i64,
        /// Microseconds since 1970.
        kept_from: Option<i64>,
        width: usize,
        fetch: Option<usize>,
    },
    /// Folds the rows of actors.
    Fold(FoldContent),
}

impl OperatorContent {
    /// That of an operator; `None` if it has none.
    pub(super) fn of(operator: &Arc<dyn ExecutionPlan>) -> Option<Self> {
        if let Some(own) = operator.downcast_ref::<FoldExec>() {
            return Some(Self::Fold(own.content().clone()));
        }
        let scoped = operator.downcast_ref::<ScopedExec>()?;
        let Scope { project, deletions, kept_from } = scoped.scope();
        deletions.is_none().then(|| Self::Scoped {
            project: project.0,
            kept_from: kept_from.map(|from| from.0),
            width: scoped.width(),
            fetch: scoped.fetch(),
        })
    }

    /// The operator.
    ///
    /// # Errors
    ///
    /// The input has fewer columns.
    pub(super) fn operator(
        self,
        input: Arc<dyn ExecutionPlan>,
        folds: FoldReaders,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match self {
            Self::Scoped { project, kept_from, width, fetch } => {
                let (project, kept_from) = (ProjectId(project), kept_from.map(UnixMicros));
                let scope = Scope { project, deletions: None, kept_from };
                Ok(Arc::new(ScopedExec::new(input, scope, width, fetch)?))
            }
            Self::Fold(content) => {
                Ok(Arc::new(FoldExec::new(input, PartsOf::read(content, folds)?)?))
            }
        }
    }
}

/// The content of a function.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum FunctionContent {
    /// That of the session with this name.
    Named(String),
    /// A function within limits.
    Guarded(Box<Self>),
    /// A function in place of an operator.
    Operated(OperatedContent),
    LocalTime(LocalTimeContent<Box<Self>>),
    JsonProperty,
    NumberOfText(text_number::Kind),
    ResolvePerson(PersonsContent),
    Condition(ConditionContent),
    /// A function with parameters that is known above this crate.
    Serializable(String, Box<RawValue>),
}

/// What functions are made from besides their contents.
pub(super) struct Known<'k> {
    /// Those of the session.
    pub(super) functions: &'k Functions,
    /// Those with parameters.
    pub(super) readers: FunctionReaders,
    /// The memory for values of functions with limits.
    pub(super) values: &'k Arc<dyn MemoryPool>,
}

/// The content of the function that resolves persons.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PersonsContent {
    project: i64,
    gives: Gives,
    /// Whether it takes distinct ids.
    by_distinct_id: bool,
    /// Pairs of uuids, a person and the one that replaces it: bytes in Base64.
    survivors: String,
    /// Uuids of persons whose events may belong to several persons.
    splits: String,
}

impl FunctionContent {
    /// That of a function; `None` if it has none. `known` are the functions of the session.
    pub(super) fn of(function: &ScalarUDF, known: &Functions) -> Option<Self> {
        if known.get(function.name()).is_some_and(|own| **own == *function) {
            return Some(Self::Named(function.name().to_owned()));
        }
        if let Some(inner) = guard::unguarded(function) {
            return Self::of(inner, known).map(Box::new).map(Self::Guarded);
        }
        if json_property::is_it(function) {
            return Some(Self::JsonProperty);
        }
        if let Some(kind) = text_number::kind_of(function) {
            return Some(Self::NumberOfText(kind));
        }
        if let Some(own) = OperatedContent::of(function) {
            return Some(Self::Operated(own));
        }
        if let Some(own) = condition::content(function) {
            return Some(Self::Condition(own.clone()));
        }
        if let Some((name, parameters)) = serializable::parameters(function) {
            return Some(Self::Serializable(name.to_owned(), parameters));
        }
        let write = |inner: &ScalarUDF| Self::of(inner, known).map(Box::new);
        if let Some(own) = LocalTimeContent::of(function, write) {
            return Some(Self::LocalTime(own));
        }
        PersonsContent::of(function).map(Self::ResolvePerson)
    }

    /// The function.
    ///
    /// # Errors
    ///
    /// It is not the content of a function.
    pub(super) fn function(self, known: &Known<'_>) -> Result<ScalarUDF> {
        match self {
            Self::Named(name) => match known.functions.get(&name) {
                Some(own) => Ok(ScalarUDF::clone(own)),
                None => Err(DataFusionError::Plan(format!("there is no function {name}"))),
            },
            Self::Guarded(inner) => guard::guarded_function(inner.function(known)?, known.values),
            Self::Operated(own) => own.function(),
            Self::LocalTime(own) => own.function(|inner| inner.function(known)),
            Self::Condition(ConditionContent::OfColumn(own)) => Ok(tree::of_column(own)),
            Self::Condition(ConditionContent::OfEvents(own)) => matches::of_events(own),
            Self::Serializable(name, parameters) => {
                FunctionReader::function(known.readers, &name, &parameters)
            }
            Self::JsonProperty => Ok(json_property::function()),
            Self::NumberOfText(kind) => Ok(text_number::function(kind)),
            Self::ResolvePerson(own) => own.function(),
        }
    }
}

impl PersonsContent {
    fn of(function: &ScalarUDF) -> Option<Self> {
        let own = function.inner().downcast_ref::<ResolvePerson>()?;
        let map = match &own.survivors {
            Survivors::Map(map) => Arc::clone(map),
            // An entry that cannot be read fails the query where it is needed.
            Survivors::Store(store) => {
                Arc::new(store.map_of(own.project, OVERRIDES_MAX).ok().flatten()?)
            }
        };
        let pairs = map.survivors.iter().flat_map(|(person, survivor)| [*person, *survivor]);
        Some(Self {
            project: own.project.0,
            gives: own.gives,
            by_distinct_id: own.takes_distinct_ids(),
            survivors: written(pairs),
            splits: written(map.splits.iter().copied()),
        })
    }

    fn function(self) -> Result<ScalarUDF> {
        let pairs = read(&self.survivors)?;
        let pairs = pairs.chunks_exact(2).filter_map(|pair| match pair {
            [person, survivor] => Some((*person, *survivor)),
            _ => None,
        });
        let (survivors, splits) = (pairs.collect(), read(&self.splits)?.into_iter().collect());
        let survivors = Survivors::Map(Arc::new(OverrideMap { survivors, splits }));
        let arguments = if self.by_distinct_id { 2 } else { 1 };
        Ok(ResolvePerson::function((ProjectId(self.project), survivors), arguments, self.gives))
    }
}

fn written(uuids: impl Iterator<Item = Uuid>) -> String {
    let bytes: Vec<u8> = uuids.flat_map(Uuid::into_bytes).collect();
    STANDARD.encode(bytes)
}

fn read(text: &str) -> Result<Vec<Uuid>> {
    let wrong = || DataFusionError::Plan("the overrides of a fragment cannot be read".to_owned());
    let bytes = STANDARD.decode(text).map_err(|_| wrong())?;
    let uuids = bytes.chunks_exact(UUID_BYTES);
    if !uuids.remainder().is_empty() {
        return Err(wrong());
    }
    Ok(uuids.filter_map(|bytes| Uuid::from_slice(bytes).ok()).collect())
}
