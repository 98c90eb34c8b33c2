//! Recovery of the identity store after a failure, for instance a full disk: the projector opens the
//! store again and applies the log from the store's sequence on, without a restart. Capture waits
//! meanwhile; acknowledged events are in the log.
//!
//! Rows and definitions were published before and are not touched. Only changes of persons are applied
//! again, from records that are read as the replay at start reads them.

use std::time::Duration;

use crate::prepared::Prepared;
use crate::projector::Projector;
use weir_base::tasks::Pause;
use weir_event::id::ProjectId;
use weir_identity::IdentityError;
use weir_identity::change::{Effect, Record};
use weir_storage::wal::reader::Item;
use weir_storage::wal::{Sequence, WalError};

/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(200);

/// Time between two log lines about failing attempts.
const REPORT_PAUSE: Duration = Duration::from_secs(60);

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Wal(#[from] WalError),
    #[error("record {sequence} of the log cannot be read: {reason}")]
    Unreadable { sequence: u64, reason: String },
}

impl Failed {
    fn may_pass(&self) -> bool {
        match self {
            Self::Identity(error) => error.may_pass(),
            Self::Wal(_) => true,
            Self::Unreadable { .. } => false,
        }
    }
}

impl Projector {
    /// Brings the identity store up to the record `last`, which it could not apply because of `error`.
    /// Returns when that is done, or when only a restart helps.
    pub(crate) fn recover(&self, error: &IdentityError, last: &Record) {
        let (through, project) = (last.sequence, last.project);
        self.health.fail_identity();
        let chain = error as &dyn std::error::Error;
        if let Some(following) = &self.following {
            // Its stores are opened anew, and from an image if the log has lost what they lack by then.
            tracing::warn!(
                error = chain,
                through,
                "persons cannot follow the log of another server"
            );
            return following.lose();
        }
        if !error.may_pass() {
            tracing::error!(
                error = chain,
                "cannot apply the log to the identity store: capture stops until a restart"
            );
            return;
        }
        tracing::error!(
            error = chain,
            through,
            "persons cannot follow the log: capture answers 503 until the identity store is open \
             again, which is tried until it succeeds; nothing is lost. Is the disk full?"
        );
        let warned_through = self.identities.applied_sequence();
        let mut reported_at = self.clock.monotonic();
        while self.log.shutdown.pause_thread(PAUSE) == Pause::Elapsed {
            // Opening it takes disk space, and a second of CPU time.
            if !self.log.room.is_enough() {
                continue;
            }
            let Err(error) = self.derive_again(warned_through, through, project) else {
                self.health.heal_identity();
                tracing::info!(
                    through,
                    "the identity store is open again and has followed the log"
                );
                return;
            };
            let chain = &error as &dyn std::error::Error;
            if !error.may_pass() {
                let what =
                    "cannot apply the log to the identity store: capture stops until a restart";
                return tracing::error!(error = chain, what);
            }
            let now = self.clock.monotonic();
            if now.saturating_sub(reported_at) >= REPORT_PAUSE {
                reported_at = now;
                tracing::warn!(
                    error = chain,
                    "cannot recover the identity store yet; trying again"
                );
            }
        }
    }

    /// Opens the identity store again and applies the log up to `through`. Warnings about records up to
    /// `warned_through` have been issued before.
    fn derive_again(
        &self,
        warned_through: u64,
        through: u64,
        project: ProjectId,
    ) -> Result<(), Failed> {
        self.identities.reopen()?;
        let applied = self.identities.applied_sequence();
        tracing::info!(applied, through, "the identity store is open again; applying the log");
        let mut reader = self.log.files.reader(Sequence(applied));
        while let Some(item) = reader.next(Sequence(through))? {
            match item {
                Item::Record { sequence: Sequence(sequence), payload } => {
                    let prepared = self.log.rereader.prepared(payload);
                    let prepared =
                        prepared.map_err(|reason| Failed::Unreadable { sequence, reason })?;
                    self.apply_again(sequence, prepared, sequence > warned_through)?;
                }
                Item::Corrupt(corruption) => {
                    let damage = corruption.damage;
                    self.log.holes.tell(corruption);
                    self.log.holes.mark(damage, Sequence(applied))?;
                }
            }
        }
        if self.identities.applied_sequence() < through {
            // The last record is lost. An empty one takes its sequence, so that queries stop waiting.
            self.identities.apply(&[Record { sequence: through, project, ops: Vec::new() }])?;
        }
        Ok(())
    }

    fn apply_again(
        &self,
        sequence: u64,
        prepared: Prepared,
        warns: bool,
    ) -> Result<(), IdentityError> {
        let Prepared { project, ops, by, .. } = prepared;
        let operators: Vec<_> = by.iter().map(|user| (sequence, *user)).collect();
        let note = |effects: &[Effect]| self.log(effects, &operators);
        let warn = |warning| {
            if warns {
                self.warn(&warning);
            }
        };
        self.identities.apply_noting(&[Record { sequence, project, ops }], note, warn)
    }
}
