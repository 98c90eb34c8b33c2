//! Fragments of plans, which other processes execute: how the operators and functions of this crate are written and read
//! ([`Fragments`]), and the sessions in which fragments run ([`FragmentRuntime`]).
//!
//! DataFusion writes its own operators, expressions and functions. Of ours, an operator or a function has a content: a value
//! from which the other process makes the same. What has none, such as a function over a database of this process, cannot
//! be part of a fragment, and the plan is executed here.

mod contained;
mod contents;
pub(crate) mod override_bases;
mod runtime;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;

use datafusion::config::ConfigOptions;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{AggregateUDF, HigherOrderUDF, LogicalPlan, ScalarUDF};
use datafusion::physical_plan::ExecutionPlan;
use parking_lot::Mutex;

use crate::events::histories::parts::{FoldExec, FoldReaders};
use crate::events::resolve_person::ResolvePerson;
use crate::events::scoped::ScopedExec;
use crate::filter::subject_sets;
use crate::fragments::contents::{FunctionContent, Known, OperatorContent};
use crate::fragments::override_bases::{BaseName, Changed};
use crate::functions::serializable::FunctionReaders;
use crate::guard;
use crate::guard::{Pools, Running};
use weir_event::json;
use weir_identity::overrides::SurvivorMap;

pub(crate) use crate::fragments::contained::contained;
pub use crate::fragments::runtime::{FragmentRuntime, FragmentSettings, Stop};

/// Contents of functions by the state of their overrides; `None` for one that has none.
type PersonContents = HashMap<(usize, usize), Option<Arc<[u8]>>>;

/// The functions with parameters, and the folds, of the crates above this one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Above {
    /// The functions.
    pub functions: FunctionReaders,
    /// The folds.
    pub folds: FoldReaders,
}

/// Writes and reads operators and functions, with the functions of one session. Clones share them.
#[derive(Clone, Debug)]
pub struct Fragments {
    functions: Arc<HashMap<String, Arc<ScalarUDF>>>,
    aggregates: Arc<HashMap<String, Arc<AggregateUDF>>>,
    of_lambdas: Arc<HashMap<String, Arc<HigherOrderUDF>>>,
    /// What is known above this crate.
    above: Above,
    pools: Pools,
    /// The contents of functions of persons by their states, which are long.
    persons: Arc<Mutex<PersonContents>>,
    /// The overrides of persons that are not in plans.
    base: Option<Arc<Base>>,
}

/// Overrides of a project that are not in the plans of a query.
#[derive(Debug)]
pub(crate) enum Base {
    /// Where plans are written: what has changed since the base.
    Changed(Changed),
    /// Where they are read: the base.
    Read(BaseName, Arc<SurvivorMap>),
}

impl Base {
    fn name(&self) -> &BaseName {
        match self {
            Self::Changed(own) => &own.base,
            Self::Read(name, _) => name,
        }
    }
}

impl Fragments {
    pub(crate) fn new(context: &TaskContext, above: Above, pools: Pools) -> Self {
        Self {
            above,
            persons: Arc::default(),
            base: None,
            functions: Arc::new(context.scalar_functions().clone()),
            aggregates: Arc::new(context.aggregate_functions().clone()),
            of_lambdas: Arc::new(context.higher_order_functions().clone()),
            pools,
        }
    }

    /// The content of an operator of this crate.
    ///
    /// # Errors
    ///
    /// It has none.
    pub fn write_operator(&self, operator: &Arc<dyn ExecutionPlan>) -> Result<Vec<u8>> {
        let content = OperatorContent::of(operator);
        let content = content.ok_or_else(|| unwritable(operator.name()))?;
        serde_json::to_vec(&content).map_err(|error| unreadable(&error))
    }

    /// The operator with a content and these inputs.
    ///
    /// # Errors
    ///
    /// It is no content of an operator with these inputs.
    pub fn read_operator(
        &self,
        content: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let content: OperatorContent =
            json::read_as(PhantomData, content).map_err(|error| unreadable(&error))?;
        match inputs {
            [input] => content.operator(Arc::clone(input), self.above.folds),
            _ => Err(DataFusionError::Plan("an operator of a fragment has one input".to_owned())),
        }
    }

    /// The content of a function; `None` if every session has it by its name.
    ///
    /// # Errors
    ///
    /// It has none.
    pub fn write_function(&self, function: &ScalarUDF) -> Result<Option<Vec<u8>>> {
        if let Some(own) = function.inner().downcast_ref::<ResolvePerson>() {
            let mut persons = self.persons.lock();
            let known = persons.entry(own.state()).or_insert_with(|| {
                let content = FunctionContent::of(function, &self.functions, self.base.as_deref())?;
                serde_json::to_vec(&content).ok().map(Arc::from)
            });
            let content = known.as_ref().ok_or_else(|| unwritable(function.name()))?;
            return Ok(Some(content.to_vec()));
        }
        let content = FunctionContent::of(function, &self.functions, self.base.as_deref());
        match content.ok_or_else(|| unwritable(function.name()))? {
            FunctionContent::Named(_) => Ok(None),
            content => serde_json::to_vec(&content).map(Some).map_err(|error| unreadable(&error)),
        }
    }

    /// The function with a content.
    ///
    /// # Errors
    ///
    /// It is no content of a function.
    pub fn read_function(&self, content: &[u8]) -> Result<ScalarUDF> {
        let content: FunctionContent =
            json::read_as(PhantomData, content).map_err(|error| unreadable(&error))?;
        let known = Known {
            functions: &self.functions,
            readers: self.above.functions,
            values: &self.pools.values,
            base: self.base.as_deref(),
        };
        content.function(&known)
    }

    /// Checks that every session has this aggregate function by its name.
    ///
    /// # Errors
    ///
    /// It does not.
    pub fn check_aggregate(&self, function: &AggregateUDF) -> Result<()> {
        let own = self.aggregates.get(function.name()).filter(|own| ***own == *function);
        own.map(|_| ()).ok_or_else(|| unwritable(function.name()))
    }

    /// Checks that every session has this function of lambdas by its name.
    ///
    /// # Errors
    ///
    /// It does not.
    pub fn check_function_of_lambdas(&self, function: &HigherOrderUDF) -> Result<()> {
        let own = self.of_lambdas.get(function.name()).filter(|own| ***own == *function);
        own.map(|_| ()).ok_or_else(|| unwritable(function.name()))
    }

    /// A plan of which the operators bound what they pass on, above those at which `is_end`.
    ///
    /// # Errors
    ///
    /// An operator refuses its inputs: a bug.
    pub fn bounded(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        is_end: impl Fn(&Arc<dyn ExecutionPlan>) -> bool,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        guard::bounded_batches(plan, &self.pools.rows, is_end)
    }
}

/// Reads the sets of persons and groups for whom the conditions of a query hold, before its parts are written. Blocks while it
/// reads the store of persons.
///
/// # Errors
///
/// A set cannot be read in time, there is no memory for all, they are too large together, or nobody waits for the query any
/// more.
pub async fn read_sets(query: &LogicalPlan, options: &ConfigOptions) -> Result<()> {
    subject_sets::read_sets(query, &Running::of(options)).await
}

/// Whether an operator folds the rows of actors, of which each partition has all.
pub fn is_fold(operator: &Arc<dyn ExecutionPlan>) -> bool {
    operator.is::<FoldExec>()
}

/// Whether an operator restricts a scan of events to the rows of a project.
pub fn is_scope(operator: &Arc<dyn ExecutionPlan>) -> bool {
    operator.is::<ScopedExec>()
}

/// That a part of a plan has no content.
pub fn unwritable(name: &str) -> DataFusionError {
    DataFusionError::NotImplemented(format!("{name} cannot be executed by another process"))
}

fn unreadable(error: &serde_json::Error) -> DataFusionError {
    DataFusionError::Plan(format!("a part of a fragment cannot be read: {error}"))
}
