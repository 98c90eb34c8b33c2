//! Holes in the log: records that cannot be read any more. [`Holes`] reports and counts them, and marks
//! the identity store as incomplete.

use std::sync::Arc;

use weir_base::telemetry::metrics::{Metrics, PlaceLabels};
use weir_identity::IdentityError;
use weir_identity::store::Identities;
use weir_storage::wal::{Corruption, Damage, Sequence};

/// Where holes are recorded.
#[derive(Clone, Debug)]
pub(super) struct Holes {
    pub(super) identities: Identities,
    pub(super) metrics: Arc<Metrics>,
}

impl Holes {
    /// Logs and counts a damaged range that a reader of the log found.
    pub(super) fn tell(&self, corruption: Corruption) {
        self.metrics.corruptions.get_or_create(&PlaceLabels { place: "wal" }).inc();
        let Corruption { path, offset, damage, copy } = corruption;
        tracing::error!(
            path = %path.display(),
            offset,
            copy = copy.map(|copy| copy.display().to_string()),
            %damage,
            "the log is damaged: events of unreadable records are lost unless they are in files, \
             and their effects on persons unless the identity store has them; the rest is replayed"
        );
    }

    /// Marks persons as incomplete if the damage lost records behind `derived`, the sequence that the
    /// identity store has applied. A record that may never have been acknowledged is no loss.
    pub(super) fn mark(&self, damage: Damage, derived: Sequence) -> Result<(), IdentityError> {
        if let Damage::Lost { last, .. } = damage
            && last > derived
        {
            self.identities.mark_incomplete()?;
            self.metrics.identity_incomplete.set(1);
        }
        Ok(())
    }
}
