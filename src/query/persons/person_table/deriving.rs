//! The columns that files have beside those of every table: those of promoted properties.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;

use crate::persons::person_table::{PersonTable, PersonsError};
use weir_identity::IdentityError;
use weir_storage::derived::Derived;

impl PersonTable {
    /// The columns of the table, also those that it got later.
    ///
    /// # Errors
    ///
    /// It cannot be opened.
    pub fn columns_of_table(&self) -> Result<SchemaRef, PersonsError> {
        self.with_table(|table| Ok(Arc::clone(&table.current().schema)))
    }

    /// The columns of files that are computed.
    pub fn derived(&self) -> Derived {
        self.pieces.derived()
    }

    /// Adds columns to the table as far as it lacks them; without any, it is not opened. Files have them from now on, and those
    /// from before are written anew one by one, see [`PersonTable::step`]: from the interval on, and with the columns of the
    /// first call at once, as they may have lacked these for long.
    ///
    /// # Errors
    ///
    /// The table has one of them with another type, or cannot be changed; files are as before then.
    pub fn derive(&self, derived: Derived) -> Result<(), PersonsError> {
        if !derived.columns.is_empty() {
            let fields = derived.fields();
            // No failure of `with_table`, after which the table is opened anew: it is as before then.
            self.with_table(|table| Ok(self.runtime.block_on(table.add_columns(&fields))))??;
        }
        self.pieces.derive(derived, self.clock.now());
        Ok(())
    }

    /// Whether files are written because they lack columns: not if persons would be lost, see [`PersonsError::Incomplete`]. They
    /// are right without.
    pub(super) fn can_fill(&self) -> Result<bool, IdentityError> {
        Ok(!self.identities.is_incomplete()?)
    }
}
