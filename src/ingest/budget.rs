//! Memory of requests between arrival and acknowledgement: [`Budget`] bounds it for all of them,
//! [`Share`] is the part of one. What a request takes is for `weight` to say.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::Semaphore;

use crate::ingest::prepare::PrepareError;

/// Unit in which bytes are counted; a semaphore has at most 2^29 permits for sure.
const UNIT_BYTES: u64 = 1024;

/// Memory that is taken for a byte of a usual body, decoded, while it is read and until it is
/// published: the body, its tape, its columns. One that takes more counts for more bytes.
const MEMORY_PER_BYTE: u64 = 4;

/// What all requests together may take; clones share it.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    permits: Arc<Semaphore>,
    units: u32,
}

impl Budget {
    /// For `max_bytes` of decoded bodies.
    pub(super) fn new(max_bytes: u64) -> Self {
        let units = u32::try_from(max_bytes / UNIT_BYTES).unwrap_or(u32::MAX >> 3);
        let permits = Arc::new(Semaphore::new(usize::try_from(units).unwrap_or(1)));
        Self { permits, units }
    }

    /// The share of a body of so many bytes. One that needs more than all gets it if it is alone.
    ///
    /// # Errors
    ///
    /// Others have too much.
    pub(super) fn share(&self, bytes: u64) -> Result<Share, PrepareError> {
        let permit = self.acquire(self.units_of(bytes))?;
        Ok(Share { permit, budget: self.clone() })
    }

    /// Waits until nobody has a share.
    pub(super) async fn idle(&self) {
        let _ = self.permits.acquire_many(self.units).await;
    }

    fn units_of(&self, bytes: u64) -> u32 {
        let units = bytes / UNIT_BYTES + 1;
        u32::try_from(units).unwrap_or(u32::MAX).min(self.units)
    }

    fn acquire(&self, units: u32) -> Result<OwnedSemaphorePermit, PrepareError> {
        let permits = Arc::clone(&self.permits).try_acquire_many_owned(units);
        permits.map_err(|_| PrepareError::Crowded)
    }

    /// Units that nobody has.
    #[cfg(test)]
    pub(super) fn free_units(&self) -> usize {
        self.permits.available_permits()
    }
}

/// What one request may take; given back when dropped.
#[derive(Debug)]
pub(super) struct Share {
    permit: OwnedSemaphorePermit,
    budget: Budget,
}

impl Share {
    /// Bytes of a decoded body that it is for.
    pub(super) fn bytes(&self) -> u64 {
        u64::try_from(self.permit.num_permits()).unwrap_or(0).saturating_mul(UNIT_BYTES)
    }

    /// Memory that all requests together may take.
    pub(super) fn all_memory_bytes(&self) -> u64 {
        u64::from(self.budget.units) * UNIT_BYTES * MEMORY_PER_BYTE
    }

    /// Makes it large enough for a decoded body of so many bytes.
    ///
    /// # Errors
    ///
    /// Others have too much; it is as it was.
    pub(super) fn cover(&mut self, bytes: u64) -> Result<(), PrepareError> {
        let missing = usize::try_from(self.budget.units_of(bytes))
            .unwrap_or(0)
            .saturating_sub(self.permit.num_permits());
        if missing > 0 {
            let more = self.budget.acquire(u32::try_from(missing).unwrap_or(u32::MAX))?;
            self.permit.merge(more);
        }
        Ok(())
    }

    /// Makes it large enough for so many bytes of memory.
    ///
    /// # Errors
    ///
    /// Others have too much; it is as it was.
    pub(super) fn cover_memory(&mut self, bytes: u64) -> Result<(), PrepareError> {
        self.cover(bytes / MEMORY_PER_BYTE)
    }

    /// Makes it what a decoded body of `bytes` that takes `memory_bytes` needs, larger or smaller.
    ///
    /// # Errors
    ///
    /// Others have too much; it is as it was.
    pub(super) fn settle(&mut self, bytes: u64, memory_bytes: u64) -> Result<(), PrepareError> {
        let bytes = bytes.max(memory_bytes / MEMORY_PER_BYTE);
        self.cover(bytes)?;
        let needed = usize::try_from(self.budget.units_of(bytes)).unwrap_or(0);
        // What is split off is given back.
        drop(self.permit.split(self.permit.num_permits().saturating_sub(needed)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Budget;
    use crate::ingest::prepare::PrepareError;

    #[test]
    fn shares_grow_and_shrink_within_the_budget() {
        let budget = Budget::new(100 << 10);
        let mut one = budget.share(9 << 10).unwrap();
        assert_eq!((budget.free_units(), one.bytes()), (90, 10 << 10));
        one.cover(1).unwrap();
        assert_eq!(budget.free_units(), 90, "it is large enough");
        one.cover(19 << 10).unwrap();
        assert_eq!(budget.free_units(), 80);
        one.cover_memory(4 * (29 << 10)).unwrap();
        assert_eq!(budget.free_units(), 70);
        let two = budget.share(59 << 10).unwrap();
        assert_eq!(one.cover(49 << 10), Err(PrepareError::Crowded));
        assert_eq!(budget.share(10 << 10).unwrap_err(), PrepareError::Crowded);
        assert_eq!(one.settle(1 << 10, 4 * (49 << 10)), Err(PrepareError::Crowded));
        assert_eq!(budget.free_units(), 10, "nothing has changed");
        drop(two);
        // More than all of it is all of it.
        one.cover(1 << 40).unwrap();
        assert_eq!(budget.free_units(), 0);
        one.settle(9 << 10, 4 * (4 << 10)).unwrap();
        assert_eq!(budget.free_units(), 90);
        one.settle(9 << 10, 4 * (19 << 10)).unwrap();
        assert_eq!(budget.free_units(), 80);
        drop(one);
        assert_eq!(budget.free_units(), 100);
    }
}
