//! Makes errors of panics: [`contained`], [`ContainedExec`]. Between nodes the rows of a task that has panicked would just
//! end, and an answer without them would look whole.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::StreamExt;

/// The same batches; a panic becomes an error.
pub(crate) fn contained(batches: SendableRecordBatchStream) -> SendableRecordBatchStream {
    let schema = batches.schema();
    let contained = AssertUnwindSafe(batches).catch_unwind().map(|batch| match batch {
        Ok(batch) => batch,
        Err(_) => Err(panicked()),
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, contained))
}

fn panicked() -> DataFusionError {
    DataFusionError::Internal("a part of a query panicked".to_owned())
}

/// Passes on what its input does, and errors instead of panics.
#[derive(Clone, Debug)]
pub(super) struct ContainedExec {
    pub(super) input: Arc<dyn ExecutionPlan>,
}

impl DisplayAs for ContainedExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ContainedExec")
    }
}

impl ExecutionPlan for ContainedExec {
    fn name(&self) -> &str {
        "ContainedExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
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

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = children.into_iter().next();
        let input = input.ok_or_else(|| DataFusionError::Internal("no input".to_owned()))?;
        Ok(Arc::new(Self { input }))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let begun = catch_unwind(AssertUnwindSafe(|| self.input.execute(partition, context)));
        begun.unwrap_or_else(|_| Err(panicked())).map(contained)
    }
}
