//! What the queries of a process have in common, however many engines it has: [`Resources`]. Each has a limit in the
//! settings, so it is one of them all.

use std::sync::Arc;

use datafusion::execution::memory_pool::{FairSpillPool, MemoryPool};

use crate::guard::Pools;
use crate::kernel::admission::Admission;
use crate::kernel::planners::Planners;
use weir_base::config::query::QueryConfig;

/// Memory, query slots and planner threads; clones share them.
#[derive(Clone, Debug)]
pub struct Resources {
    /// Memory of operators.
    pub(crate) operators: Arc<dyn MemoryPool>,
    /// Memory beside that of operators.
    pub(crate) pools: Pools,
    /// Query slots.
    pub(crate) admission: Arc<Admission>,
    /// Threads that plan.
    pub(crate) planners: Arc<Planners>,
}

impl Resources {
    /// As much as the settings allow.
    pub fn within(settings: &QueryConfig) -> Self {
        let bytes = usize::try_from(settings.query_memory_max_bytes.as_u64()).unwrap_or(usize::MAX);
        Self {
            operators: Arc::new(FairSpillPool::new(bytes)),
            pools: Pools::beside(bytes),
            admission: Arc::new(Admission::new(settings.queries_max)),
            planners: Arc::new(Planners::new(settings.queries_max)),
        }
    }
}
