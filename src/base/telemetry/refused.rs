//! Refused requests by endpoint, status and reason: [`Refused`]. The reason is the error code of the response, which is
//! more specific than the status. Codes are constants of the program, which bounds their number.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// Why requests were refused: endpoint, status, and error code of the response.
pub type Reason = (&'static str, u16, &'static str);

/// Requests that were refused for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// How many, since the start.
    pub requests: u64,
    /// When the last one was, in microseconds since 1970.
    pub last_at: i64,
}

/// Counts of refused requests.
#[derive(Debug, Default)]
pub struct Refused(Mutex<BTreeMap<Reason, Count>>);

impl Refused {
    /// Counts one request, at a time in microseconds since 1970.
    pub fn note(&self, now: i64, reason: Reason) {
        let mut counts = self.0.lock();
        let count = counts.entry(reason).or_insert(Count { requests: 0, last_at: now });
        count.requests += 1;
        count.last_at = now;
    }

    /// The requests of each reason, most frequent first.
    pub fn counts(&self) -> Vec<(Reason, Count)> {
        let mut counts: Vec<_> =
            self.0.lock().iter().map(|(reason, own)| (*reason, *own)).collect();
        counts.sort_by(|a, b| b.1.requests.cmp(&a.1.requests).then_with(|| a.0.cmp(&b.0)));
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::{Count, Refused};

    #[test]
    fn requests_are_counted_by_reason() {
        let refused = Refused::default();
        let (invalid, broken) =
            (("capture", 401, "invalid_api_key"), ("capture", 400, "invalid_payload"));
        for (at, reason) in [(1, invalid), (2, broken), (3, invalid)] {
            refused.note(at, reason);
        }
        let count = |requests, last_at| Count { requests, last_at };
        assert_eq!(refused.counts(), [(invalid, count(2, 3)), (broken, count(1, 2))]);
    }
}
