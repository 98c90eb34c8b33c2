//! Contents of operators and functions: [`OperatorContent`], [`FunctionContent`].

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::logical_expr::ScalarUDF;
use datafusion::physical_plan::ExecutionPlan;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::events::histories::parts::{FoldContent, FoldExec, FoldReaders, PartsOf};
use crate::events::resolve_person::{Gives, ResolvePerson, Survivors};
use crate::events::scoped::{Scope, ScopedExec};
use crate::events::session_columns;
use crate::events::session_functions::SessionFunction;
use crate::filter::content::{ConditionContent, Uuids};
use crate::filter::{condition, elements, matches, subject_sets, tree};
use crate::fragments::Base;
use crate::fragments::override_bases::BaseName;
use crate::functions::local_time::LocalTimeContent;
use crate::functions::serializable::{FunctionReader, FunctionReaders};
use crate::functions::{json_property, serializable, text_number};
use crate::guard;
use crate::guard::operators::content::OperatedContent;
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_identity::deletions::{DeletedId, Deletions};
use weir_identity::overrides::OverrideMap;

/// Most overrides of a project that are part of a plan without a base, 32 bytes each; and most persons that were split.
pub(super) const OVERRIDES_MAX: usize = 1000;
const SPLITS_MAX: usize = 100_000;

/// Functions by their names.
pub(super) type Functions = HashMap<String, Arc<ScalarUDF>>;

/// Most distinct ids with deleted events that are part of a plan.
const DELETED_MAX: usize = 10_000;

/// The content of an operator.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum OperatorContent {
    /// Restricts a scan to the rows of a project.
    Scoped {
        project: i64,
        /// Distinct ids with deleted events, if there are any.
        deletions: Option<Vec<DeletedId>>,
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
        let deletions = match deletions {
            None => None,
            Some(all) => Some(all.listed(*project, DELETED_MAX)?),
        };
        Some(Self::Scoped {
            project: project.0,
            deletions,
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
            Self::Scoped { project, deletions, kept_from, width, fetch } => {
                let (project, kept_from) = (ProjectId(project), kept_from.map(UnixMicros));
                let deletions = deletions.map(|ids| Arc::new(Deletions::of_list(project, ids)));
                let scope = Scope { project, deletions, kept_from };
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
    Session(SessionFunction),
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
    /// Overrides that are not in the plan.
    pub(super) base: Option<&'k Base>,
}

/// The content of the function that resolves persons.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PersonsContent {
    project: i64,
    gives: Gives,
    /// Whether it takes distinct ids.
    by_distinct_id: bool,
    /// Overrides that are not in the plan.
    base: Option<BaseName>,
    /// Pairs: a person and the one that replaces it, or itself if none does any more.
    survivors: Uuids,
    /// Persons whose events may belong to several persons.
    splits: Uuids,
}

impl FunctionContent {
    /// That of a function; `None` if it has none. `known` are the functions of the session.
    pub(super) fn of(function: &ScalarUDF, known: &Functions, base: Option<&Base>) -> Option<Self> {
        if known.get(function.name()).is_some_and(|own| **own == *function) {
            return Some(Self::Named(function.name().to_owned()));
        }
        if let Some(inner) = guard::unguarded(function) {
            return Self::of(inner, known, base).map(Box::new).map(Self::Guarded);
        }
        if json_property::is_it(function) {
            return Some(Self::JsonProperty);
        }
        if let Some(kind) = text_number::kind_of(function) {
            return Some(Self::NumberOfText(kind));
        }
        if let Some(own) = SessionFunction::of(function) {
            return Some(Self::Session(own));
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
        let write = |inner: &ScalarUDF| Self::of(inner, known, base).map(Box::new);
        if let Some(own) = LocalTimeContent::of(function, write) {
            return Some(Self::LocalTime(own));
        }
        PersonsContent::of(function, base).map(Self::ResolvePerson)
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
            Self::Condition(own) => condition_of(own, known),
            Self::Serializable(name, parameters) => {
                FunctionReader::function(known.readers, &name, &parameters)
            }
            Self::JsonProperty => Ok(json_property::function()),
            Self::NumberOfText(kind) => Ok(text_number::function(kind)),
            Self::Session(own) => Ok(own.function()),
            Self::ResolvePerson(own) => own.function(known.base),
        }
    }
}

impl PersonsContent {
    fn of(function: &ScalarUDF, base: Option<&Base>) -> Option<Self> {
        let own = function.inner().downcast_ref::<ResolvePerson>()?;
        let base = match base {
            Some(Base::Changed(base)) if base.base.project() == own.project => Some(base),
            _ => None,
        };
        let map = match (&own.survivors, base) {
            // What was read is not written again.
            (Survivors::Map(map), _) if !map.base.is_empty() => return None,
            (Survivors::Map(map), _) => Arc::clone(map),
            (Survivors::Store(store), Some(base)) => {
                let (survivors, splits) = (base.survivors.clone(), store.splits_of(own.project));
                let is_small = splits.len() <= SPLITS_MAX;
                let map = OverrideMap { survivors, splits, ..OverrideMap::default() };
                Arc::new(is_small.then_some(map)?)
            }
            // An entry that cannot be read fails the query where it is needed.
            (Survivors::Store(store), None) => {
                Arc::new(store.map_of(own.project, OVERRIDES_MAX).ok().flatten()?)
            }
        };
        let pairs = map.survivors.iter().flat_map(|(person, survivor)| [*person, *survivor]);
        Some(Self {
            project: own.project.0,
            gives: own.gives,
            by_distinct_id: own.takes_distinct_ids(),
            base: base.map(|base| base.base.clone()),
            survivors: Uuids(pairs.collect()),
            splits: Uuids(map.splits.iter().copied().collect()),
        })
    }

    fn function(self, known: Option<&Base>) -> Result<ScalarUDF> {
        let base = match self.base {
            None => Arc::default(),
            Some(name) => match known.filter(|known| *known.name() == name) {
                // What was written is read again as a check.
                Some(Base::Changed(_)) => Arc::default(),
                Some(Base::Read(_, base)) => Arc::clone(base),
                None => {
                    let why = "a fragment needs other overrides than its query";
                    return Err(DataFusionError::Plan(why.to_owned()));
                }
            },
        };
        let (pairs, _) = self.survivors.0.as_chunks();
        let survivors = pairs.iter().map(|[person, survivor]| (*person, *survivor)).collect();
        let splits = self.splits.0.into_iter().collect();
        let survivors = Survivors::Map(Arc::new(OverrideMap { base, survivors, splits }));
        let arguments = if self.by_distinct_id { 2 } else { 1 };
        Ok(ResolvePerson::function((ProjectId(self.project), survivors), arguments, self.gives))
    }
}

/// The function of a condition.
fn condition_of(content: ConditionContent, known: &Known<'_>) -> Result<ScalarUDF> {
    match content {
        ConditionContent::Column(own) => Ok(tree::of_column(own)),
        ConditionContent::Events(own) => matches::of_events(own),
        ConditionContent::Elements(own) => Ok(elements::function(own)),
        ConditionContent::Session(own) => session_columns::function(own).map_err(|own| {
            let key = own.predicate.key;
            DataFusionError::Plan(format!("sessions have no property {key}"))
        }),
        ConditionContent::Persons(own) => subject_sets::of_persons(&own, known.values),
        ConditionContent::Groups(own) => matches::contents::of_groups(own, known.values),
    }
}
