//! Requests that were refused, by endpoint, status and reason: [`Refused`]. The reason is the code that the client was
//! told, which says more than the status.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::VecDeque;

use parking_lot::Mutex;

/// Most reasons that are counted apart; others are counted as [`OTHER`].
const REASONS_MAX: usize = 300;

/// Most requests that are remembered each by itself.
const LAST_MAX: usize = 20;

/// Longest reason, in bytes.
const REASON_MAX_BYTES: usize = 64;

/// The reason of those for which there is no room.
const OTHER: &str = "other";

/// Why requests were refused: endpoint, status, and the code of the answer.
pub type Reason = (&'static str, u16, Cow<'static, str>);

/// Counts of refused requests, and the last of them.
#[derive(Debug, Default)]
pub struct Refused(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    total: u64,
    counts: BTreeMap<Reason, u64>,
    last: VecDeque<(i64, Reason)>,
}

impl Refused {
    /// Notes one request, at a time in microseconds since 1970.
    pub fn note(&self, now: i64, (route, status): (&'static str, u16), code: Cow<'static, str>) {
        let code = match code {
            Cow::Owned(text) if text.len() > REASON_MAX_BYTES => Cow::Borrowed(OTHER),
            code => code,
        };
        let mut reason = (route, status, code);
        let mut state = self.0.lock();
        state.total += 1;
        if let Some(count) = state.counts.get_mut(&reason) {
            *count += 1;
        } else {
            if state.counts.len() >= REASONS_MAX {
                reason.2 = Cow::Borrowed(OTHER);
            }
            *state.counts.entry(reason.clone()).or_default() += 1;
        }
        if state.last.len() >= LAST_MAX {
            state.last.pop_front();
        }
        state.last.push_back((now, reason));
    }

    /// The number of all requests.
    pub fn total(&self) -> u64 {
        self.0.lock().total
    }

    /// The number of requests of each reason since the start, most frequent first.
    pub fn counts(&self) -> Vec<(Reason, u64)> {
        let counts = self.0.lock().counts.clone();
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        counts
    }

    /// The last requests, newest first, with their times.
    pub fn last(&self) -> Vec<(i64, Reason)> {
        self.0.lock().last.iter().rev().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::LAST_MAX;
    use super::OTHER;
    use super::REASONS_MAX;
    use super::Refused;

    #[test]
    fn requests_are_counted_by_reason_and_the_last_are_known() {
        let refused = Refused::default();
        for (at, route, status, code) in [
            (1, "capture", 401, "invalid_api_key"),
            (2, "capture", 400, "invalid_payload"),
            (3, "capture", 401, "invalid_api_key"),
        ] {
            refused.note(at, (route, status), Cow::Borrowed(code));
        }
        let invalid = ("capture", 401, Cow::Borrowed("invalid_api_key"));
        let broken = ("capture", 400, Cow::Borrowed("invalid_payload"));
        assert_eq!(refused.total(), 3);
        assert_eq!(refused.counts(), [(invalid.clone(), 2), (broken.clone(), 1)]);
        let expected = [(3, invalid.clone()), (2, broken), (1, invalid)];
        assert_eq!(refused.last(), expected);
    }

    #[test]
    fn memory_is_bounded_whatever_is_told() {
        let refused = Refused::default();
        for number in 0..REASONS_MAX * 2 {
            refused.note(0, ("query", 400), format!("code-{number}").into());
            refused.note(0, ("query", 400), "x".repeat(1000).into());
        }
        let counts = refused.counts();
        assert!(counts.len() <= REASONS_MAX + 1 && refused.last().len() == LAST_MAX);
        assert_eq!(counts.iter().map(|(_, count)| count).sum::<u64>(), 4 * REASONS_MAX as u64);
        assert_eq!(counts[0].0.2, OTHER);
    }
}
