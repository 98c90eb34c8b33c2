//! Hash partitions of data that does not fit into memory at once: [`Slice`]. Each partition is processed in its own
//! pass over a plan, and one that is still too large is halved during its pass.

/// A partition: the keys of which the hash modulo a power of two is this remainder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    slices: u64,
    rest: u64,
}

impl Slice {
    /// The partition of all keys.
    pub const ALL: Self = Self { slices: 1, rest: 0 };

    /// Whether a key with this hash is in the partition.
    pub fn has(self, hash: u64) -> bool {
        // Hash tables use the lowest and the highest bits, so this uses bits between.
        (hash >> 24) & (self.slices - 1) == self.rest
    }

    /// Its two halves; `None` if there would be more than `slices_max` partitions in total.
    pub fn halves(self, slices_max: u64) -> Option<[Self; 2]> {
        let slices = self.slices.checked_mul(2).filter(|slices| *slices <= slices_max)?;
        Some([self.rest, self.rest + self.slices].map(|rest| Self { slices, rest }))
    }
}

#[cfg(test)]
mod tests {
    use super::Slice;

    #[test]
    fn each_hash_is_of_one_part() {
        let mut parts = vec![Slice::ALL];
        while let Some(halves) = parts.first().and_then(|part| part.halves(8)) {
            parts.remove(0);
            parts.extend(halves);
        }
        assert_eq!(parts.len(), 8);
        for hash in (0..1000_u64).map(|number| number.wrapping_mul(0x9E37_79B9_7F4A_7C15)) {
            assert_eq!(parts.iter().filter(|part| part.has(hash)).count(), 1, "{hash}");
            assert!(Slice::ALL.has(hash));
        }
    }
}
