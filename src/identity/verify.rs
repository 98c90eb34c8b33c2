//! Verifies an identity store: reads every row, which checks the checksums of its blocks.

use std::path::Path;
use std::sync::Arc;

use crate::IdentityError;
use crate::cache::Decoded;
use crate::reading::Reading;
use crate::tables::Tables;
use crate::view::View;

/// Memory for blocks and rows; small, because each is read once.
const CACHE_BYTES: u64 = 8 << 20;

/// The result of [`verify`].
#[derive(Debug, Default)]
pub struct Verified {
    /// The last log record that is in the store.
    pub applied: u64,
    /// Rows that were read.
    pub rows: u64,
    /// Keyspaces that cannot be read to their end.
    pub damaged: Vec<(&'static str, IdentityError)>,
}

/// Opens the store in `directory`, which writes to it, and reads every row.
///
/// # Errors
///
/// The store cannot be opened.
pub fn verify(directory: &Path) -> Result<Verified, IdentityError> {
    let tables = Tables::open(directory, CACHE_BYTES)
        .map_err(|error| IdentityError::of_open(error, directory))?;
    let tables = Arc::new(tables);
    let decoded = Arc::new(Decoded::new(CACHE_BYTES));
    let counters = View::new(Reading::new(&tables, decoded)).counters()?;
    let mut verified = Verified { applied: counters.applied, ..Verified::default() };
    for (name, keyspace) in [
        ("ids", &tables.ids),
        ("persons", &tables.persons),
        ("person_ids", &tables.person_ids),
        ("uuids", &tables.uuids),
        ("overrides", &tables.overrides),
        ("groups", &tables.groups),
        ("listed", &tables.listed),
        ("emails", &tables.emails),
        ("deletions", &tables.deletions),
        ("meta", &tables.meta),
    ] {
        for entry in keyspace.iter() {
            match entry.into_inner() {
                Ok(_) => verified.rows += 1,
                Err(error) => {
                    verified.damaged.push((name, error.into()));
                    break;
                }
            }
        }
    }
    Ok(verified)
}
