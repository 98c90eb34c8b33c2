//! Memory that the identity store may use: [`Limits`].

/// Memory of the caches, in bytes. They grow only as they are used. The write buffers of the
/// database come on top: 34 MiB, briefly twice that.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Known distinct ids, and the digests of the auto-set properties of their persons; about 256
    /// bytes for each id.
    pub ids_bytes: u64,
    /// Decoded persons, half for updates, half for flags.
    pub rows_bytes: u64,
    /// Blocks of the database's files.
    pub blocks_bytes: u64,
    /// Overrides of merged persons; an eighth is a filter of persons with an override.
    pub overrides_bytes: u64,
    /// The write set of one batch and the batch itself. Records that need more are applied in
    /// parts. Not part of the caches: used only while records are applied.
    pub part_bytes: u64,
}

/// [`Limits::part_bytes`] of a server: some ten thousand new persons, applied in about 0.1 s.
const PART_BYTES: u64 = 32 << 20;

impl Limits {
    /// Caches so small that most reads are those of the database; for tests.
    pub const SMALL: Self = Self {
        ids_bytes: 1 << 16,
        rows_bytes: 1 << 16,
        blocks_bytes: 1 << 20,
        overrides_bytes: 1 << 16,
        part_bytes: 1 << 20,
    };

    /// Divides `bytes` among the caches, and adds as much again for overrides, because a query over
    /// all events looks up the person of each. Known ids get most: every event looks up one.
    pub fn within(bytes: u64) -> Self {
        Self {
            ids_bytes: bytes / 2,
            rows_bytes: bytes / 4,
            blocks_bytes: bytes / 4,
            overrides_bytes: bytes,
            part_bytes: PART_BYTES,
        }
    }
}
