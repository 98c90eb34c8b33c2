//! Memory permits of requests between arrival and acknowledgement: [`Budget`] bounds the memory of all
//! requests of a process, whatever log they go to, [`MemoryPermit`] is the part of one. `memory_estimate` estimates how much one needs.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::prepare::error::PrepareError;

/// Unit in which bytes are counted: a semaphore has at least 2^29 permits.
const UNIT_BYTES: u64 = 1024;

/// Bytes of memory per byte of a typical decoded body, from reading to publication: the body, its
/// tape, its columns. A body that needs more memory counts as more bytes.
const MEMORY_PER_BYTE: u64 = 4;

/// More requests than there can be at a time.
const REQUESTS_MAX: u32 = u32::MAX >> 3;

/// The memory budget of all requests together; clones share it.
#[derive(Clone, Debug)]
pub struct Budget {
    permits: Arc<Semaphore>,
    units: u32,
    /// One for each request of one log.
    requests: Arc<Semaphore>,
}

impl Budget {
    /// For `max_bytes` of decoded bodies.
    pub fn new(max_bytes: u64) -> Self {
        let units = u32::try_from(max_bytes / UNIT_BYTES).unwrap_or(u32::MAX >> 3);
        let permits = Arc::new(Semaphore::new(usize::try_from(units).unwrap_or(1)));
        Self { permits, units, requests: requests() }
    }

    /// The same memory for the requests of another log, which are waited for by themselves.
    #[must_use]
    pub fn of_log(&self) -> Self {
        Self { requests: requests(), ..self.clone() }
    }

    /// Acquires a permit for a body of `bytes`. A body larger than the whole budget gets all of it.
    ///
    /// # Errors
    ///
    /// [`PrepareError::Crowded`]: other requests hold too much of the budget.
    pub(super) fn admit(&self, bytes: u64) -> Result<MemoryPermit, PrepareError> {
        let request = Arc::clone(&self.requests).try_acquire_owned();
        let request = request.map_err(|_| PrepareError::Crowded)?;
        let permit = self.acquire(self.units_of(bytes))?;
        Ok(MemoryPermit { permit, budget: self.clone(), _request: request })
    }

    /// Waits until no request of this log holds a permit.
    pub(super) async fn idle(&self) {
        let _ = self.requests.acquire_many(REQUESTS_MAX).await;
    }

    fn units_of(&self, bytes: u64) -> u32 {
        let units = bytes / UNIT_BYTES + 1;
        u32::try_from(units).unwrap_or(u32::MAX).min(self.units)
    }

    fn acquire(&self, units: u32) -> Result<OwnedSemaphorePermit, PrepareError> {
        let permits = Arc::clone(&self.permits).try_acquire_many_owned(units);
        permits.map_err(|_| PrepareError::Crowded)
    }

    /// Units that no request holds.
    #[cfg(test)]
    pub(super) fn free_units(&self) -> usize {
        self.permits.available_permits()
    }
}

/// The memory permit of one request; released on drop.
#[derive(Debug)]
pub(super) struct MemoryPermit {
    permit: OwnedSemaphorePermit,
    budget: Budget,
    _request: OwnedSemaphorePermit,
}

fn requests() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(usize::try_from(REQUESTS_MAX).unwrap_or(Semaphore::MAX_PERMITS)))
}

impl MemoryPermit {
    /// Decoded bytes that the permit covers.
    pub(super) fn bytes(&self) -> u64 {
        u64::try_from(self.permit.num_permits()).unwrap_or(0).saturating_mul(UNIT_BYTES)
    }

    /// The whole memory budget of all requests, in bytes of memory.
    pub(super) fn all_memory_bytes(&self) -> u64 {
        u64::from(self.budget.units) * UNIT_BYTES * MEMORY_PER_BYTE
    }

    /// Grows the permit to cover a decoded body of `bytes`.
    ///
    /// # Errors
    ///
    /// [`PrepareError::Crowded`]: other requests hold too much; the permit is unchanged.
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

    /// Grows the permit to cover `bytes` of memory.
    ///
    /// # Errors
    ///
    /// [`PrepareError::Crowded`]: other requests hold too much; the permit is unchanged.
    pub(super) fn cover_memory(&mut self, bytes: u64) -> Result<(), PrepareError> {
        self.cover(bytes / MEMORY_PER_BYTE)
    }

    /// Resizes the permit, up or down, for a decoded body of `bytes` that uses `memory_bytes`.
    ///
    /// # Errors
    ///
    /// [`PrepareError::Crowded`]: other requests hold too much; the permit is unchanged.
    pub(super) fn settle(&mut self, bytes: u64, memory_bytes: u64) -> Result<(), PrepareError> {
        let bytes = bytes.max(memory_bytes / MEMORY_PER_BYTE);
        self.cover(bytes)?;
        let needed = usize::try_from(self.budget.units_of(bytes)).unwrap_or(0);
        // Dropping the part that was split off releases it.
        drop(self.permit.split(self.permit.num_permits().saturating_sub(needed)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Budget;
    use crate::prepare::error::PrepareError;

    #[test]
    fn permits_grow_and_shrink_within_the_budget() {
        let budget = Budget::new(100 << 10);
        let mut one = budget.admit(9 << 10).unwrap();
        assert_eq!((budget.free_units(), one.bytes()), (90, 10 << 10));
        one.cover(1).unwrap();
        assert_eq!(budget.free_units(), 90, "it is large enough");
        one.cover(19 << 10).unwrap();
        assert_eq!(budget.free_units(), 80);
        one.cover_memory(4 * (29 << 10)).unwrap();
        assert_eq!(budget.free_units(), 70);
        let two = budget.admit(59 << 10).unwrap();
        assert_eq!(one.cover(49 << 10), Err(PrepareError::Crowded));
        assert_eq!(budget.admit(10 << 10).unwrap_err(), PrepareError::Crowded);
        assert_eq!(one.settle(1 << 10, 4 * (49 << 10)), Err(PrepareError::Crowded));
        assert_eq!(budget.free_units(), 10, "nothing has changed");
        drop(two);
        // A request for more than the whole budget gets the whole budget.
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
