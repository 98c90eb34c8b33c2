//! [`ReadBarrier`]: read-your-writes for whoever reads persons.

use std::time::Duration;

use crate::Progress;
use weir_base::error::Kind;
use weir_identity::IdentityError;
use weir_identity::store::Identities;

/// Waits until the identity store has applied every record that was acknowledged before the call. Clones share the
/// store.
#[derive(Clone, Debug)]
pub struct ReadBarrier {
    identities: Identities,
    progress: Progress,
    /// Longest wait for publication, and longest for the identity store.
    wait_max: Duration,
}

/// What was acknowledged cannot be read yet.
#[derive(Debug, thiserror::Error)]
pub enum BarrierError {
    /// The log is replayed, which takes longer than the wait.
    #[error("the log is still being replayed")]
    Replaying,
    /// The identity store failed, or is behind the log.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

impl BarrierError {
    /// The class of the error for the caller.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Replaying => Kind::Unavailable,
            Self::Identity(error) => error.kind(),
        }
    }
}

impl ReadBarrier {
    /// A barrier in front of `identities`.
    pub fn new(identities: Identities, progress: Progress, wait_max: Duration) -> Self {
        Self { identities, progress, wait_max }
    }

    /// Waits until what was acknowledged before the call can be read.
    ///
    /// # Errors
    ///
    /// It did not come in time.
    pub async fn wait(&self) -> Result<(), BarrierError> {
        if matches!(self.progress, Progress::Still) {
            return Ok(());
        }
        let published = tokio::time::timeout(self.wait_max, self.progress.published()).await;
        let Ok(Some(target)) = published else {
            return Err(BarrierError::Replaying);
        };
        self.identities.wait_applied(target.0, self.wait_max).await?;
        Ok(())
    }

    /// The identity store behind it.
    pub fn identities(&self) -> &Identities {
        &self.identities
    }
}
