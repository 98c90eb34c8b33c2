//! The project of a body, without storing anything: [`Locator`].

use std::sync::Arc;

use bytes::Bytes;

use crate::budget::Budget;
use crate::decoding::Decoding;
use crate::error::IngestError;
use crate::memory_estimate::expected_bytes;
use weir_base::config::Config;
use weir_base::tasks::CpuPool;
use weir_event::geoip::Places;
use weir_event::id::ProjectId;
use weir_metadata::Metadata;
use weir_wire::encoding::hints::Hints;

/// Finds the project that a body of events belongs to by the token in it; clones share it.
#[derive(Clone, Debug)]
pub struct Locator {
    decoding: Arc<Decoding>,
    cpu: CpuPool,
    budget: Budget,
    metadata: Metadata,
}

impl Locator {
    /// Decodes bodies on `cpu`, within `budget`.
    pub fn new(config: &Config, cpu: CpuPool, budget: Budget, metadata: Metadata) -> Self {
        let decoding = Arc::new(Decoding::new(config, Places::Unknown));
        Self { decoding, cpu, budget, metadata }
    }

    /// The project that `body` belongs to.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::accept`](crate::Pipeline::accept), but the events are not examined.
    pub async fn project_of(&self, body: Bytes, hints: Hints) -> Result<ProjectId, IngestError> {
        let mut permit = self.budget.admit(expected_bytes(hints.payload(&body)))?;
        let (decoding, metadata) = (Arc::clone(&self.decoding), self.metadata.snapshot());
        let job = move || decoding.project_of(&body, &hints, &metadata, &mut permit);
        self.cpu.run(job).await?
    }
}
