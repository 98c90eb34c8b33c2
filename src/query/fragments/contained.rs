//! Makes errors of panics: [`contained`], [`ContainedExec`]. Between nodes the rows of a task that has panicked would just
//! end, and an answer without them would look whole.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;

use crate::guard::passing::{Pass, Through};

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

/// Passes batches on, and errors instead of panics.
pub(super) type ContainedExec = Through<Contained>;

/// Makes errors of panics.
#[derive(Clone, Debug)]
pub(super) struct Contained;

impl Pass for Contained {
    const NAME: &'static str = "ContainedExec";

    fn execute(
        &self,
        input: &dyn ExecutionPlan,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let begun = catch_unwind(AssertUnwindSafe(|| input.execute(partition, context)));
        begun.unwrap_or_else(|_| Err(panicked())).map(contained)
    }
}
