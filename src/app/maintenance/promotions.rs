//! Properties that projects promote to columns: they are added to the events table, and files have them from then on.

use crate::maintenance::Maintenance;
use weir_event::promotion::Promotion;
use weir_query::events::promoted;

impl Maintenance {
    /// Adds the columns that projects promote to the table, if they are others than those that files have. If that fails,
    /// files are written without, and read as before.
    pub(super) fn promote(&self) {
        let wanted = self.metadata.snapshot().promoted_columns();
        let fitting = promoted::fitting(&wanted, &self.store.table().current().schema);
        let there = self.store.derived();
        let names = there.columns.iter().map(|own| own.field.name().clone());
        if names.eq(fitting.iter().map(Promotion::column)) {
            return;
        }
        for own in wanted.iter().filter(|own| !fitting.contains(own)) {
            let (column, kind) = (own.column(), own.kind.name());
            tracing::warn!(
                column,
                kind,
                "another program has added such a column of another kind to the events table; it is not written"
            );
        }
        let derived = match promoted::derived(&fitting) {
            Ok(derived) => derived,
            Err(error) => return tracing::error!(%error, "promoted columns cannot be computed"),
        };
        match self.runtime.block_on(self.store.derive(derived)) {
            Ok(()) => {
                tracing::info!(columns = fitting.len(), "files have these promoted columns now")
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(
                    error,
                    "cannot add promoted columns to the events table; tried again"
                );
            }
        }
    }
}
