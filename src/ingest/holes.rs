//! Records of the log that cannot be read any more: [`Holes`] tells of them, counts them, and notes that
//! persons lack what they said.

use std::sync::Arc;

use crate::identity::IdentityError;
use crate::identity::store::Identities;
use crate::storage::wal::Corruption;
use crate::storage::wal::Damage;
use crate::storage::wal::Sequence;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::PlaceLabels;

/// Who has to know.
#[derive(Clone, Debug)]
pub(super) struct Holes {
    pub(super) identities: Identities,
    pub(super) metrics: Arc<Metrics>,
}

impl Holes {
    /// Tells the operator of a damaged place that a reader of the log came upon.
    pub(super) fn tell(&self, corruption: Corruption) {
        self.metrics.corruptions.get_or_create(&PlaceLabels { place: "wal" }).inc();
        let Corruption { path, offset, damage, copy } = corruption;
        tracing::error!(
            path = %path.display(),
            offset,
            copy = copy.map(|copy| copy.display().to_string()),
            %damage,
            "the log is damaged: of records that cannot be read, events are lost unless they are in \
             files, and so is what they said of persons, unless the identity store has it; everything \
             behind them is replayed"
        );
    }

    /// Notes that persons are incomplete, if the damage is a loss of records behind `derived`, which the
    /// identity store is at. What was perhaps never acknowledged is none.
    ///
    /// # Errors
    ///
    /// If the database fails.
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
