//! The serialized rows of a page of a list: [`Rows`]. A page is limited in bytes besides its limit of rows; a page with
//! a single row may exceed it. The text is counted in the memory budget as it grows.

use serde::Serialize;

use crate::budget::{Busy, Counted, Memory, Reservation};
use crate::response::Problem;
use weir_base::error::Kind;

/// Limit of a page in bytes: a row that would exceed it is the first of the next page.
pub(super) const PAGE_MAX_BYTES: usize = 4 << 20;

/// The same limit for lists of persons, groups and events, of which programs request thousands.
pub(super) const LONG_PAGE_MAX_BYTES: usize = 16 << 20;

/// The rows of one page.
#[derive(Debug)]
pub(super) struct Rows {
    text: Vec<u8>,
    count: usize,
    bytes_max: usize,
    held: Reservation,
}

/// Result of adding a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// The row is in the page.
    Yes,
    /// The page is full, and does not contain the row.
    PageIsFull,
}

impl Rows {
    /// An empty page of at most this many bytes.
    pub(super) fn within(memory: &Memory, bytes_max: usize) -> Self {
        Self { text: Vec::new(), count: 0, bytes_max, held: memory.reservation() }
    }

    /// Adds a row, unless the page is full.
    pub(super) fn add(&mut self, row: &impl Serialize) -> Result<Added, Problem> {
        self.add_by(|text| serde_json::to_writer(text, row))
    }

    /// The same with a row that `write` serializes.
    pub(super) fn add_by(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), serde_json::Error>,
    ) -> Result<Added, Problem> {
        let before = self.text.len();
        if self.count > 0 {
            self.text.push(b',');
        }
        write(&mut self.text).map_err(|error| Problem::of(Kind::Internal, &error))?;
        if self.count > 0 && self.text.len() > self.bytes_max {
            self.text.truncate(before);
            return Ok(Added::PageIsFull);
        }
        self.count += 1;
        self.held.hold(self.text.capacity())?;
        Ok(Added::Yes)
    }

    /// The number of rows.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The text of an object: `head` without its closing brace, and the rows as its last member `results`.
    pub(super) fn within_object(mut self, head: &str) -> Result<Counted, Busy> {
        let head = head.strip_suffix('}').unwrap_or(head);
        let mut text = Vec::with_capacity(head.len() + RESULTS.len() + self.text.len() + 2);
        self.held.hold_more(text.capacity())?;
        text.extend_from_slice(head.as_bytes());
        text.extend_from_slice(RESULTS);
        text.append(&mut self.text);
        text.extend_from_slice(b"]}");
        drop(self.text);
        self.held.counted(text)
    }
}

const RESULTS: &[u8] = b",\"results\":[";

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Added, PAGE_MAX_BYTES, Rows};
    use crate::budget::{Budget, Memory};
    use weir_base::telemetry::metrics::Metrics;
    use weir_event::json;

    fn memory(bytes: u64, changes: bool) -> Memory {
        Memory::new(&Budget::new(bytes, &Metrics::new()), changes)
    }

    /// A client that reads page after page gets every row once, and a row that exceeds the limit on a page of its own.
    #[test]
    fn pages_end_at_their_bytes_and_lose_no_row() {
        let lengths = [10, 10, 10, 500, 10, 80, 80, 3];
        let (mut seen, mut pages) = (0, Vec::new());
        while seen < lengths.len() {
            let mut rows = Rows::within(&memory(100_000, false), 100);
            let rest = lengths.iter().enumerate().skip(seen);
            for (number, length) in rest {
                let row = json!({"id": number, "text": "x".repeat(*length)});
                if rows.add(&row).unwrap() == Added::PageIsFull {
                    break;
                }
            }
            let count = rows.count();
            let text = rows.within_object(r#"{"next":null}"#).unwrap();
            let page: Value = json::read(text.bytes()).unwrap();
            assert_eq!(page["next"], Value::Null);
            let ids: Vec<usize> = page["results"]
                .as_array()
                .unwrap()
                .iter()
                .map(|row| usize::try_from(row["id"].as_u64().unwrap()).unwrap())
                .collect();
            assert_eq!(ids, (seen..seen + count).collect::<Vec<_>>());
            pages.push(count);
            seen += count;
        }
        // Each row has 18 bytes besides its text, and a comma before it.
        assert_eq!(pages, [3, 1, 1, 1, 1, 1]);
    }

    #[test]
    fn rows_beyond_half_of_the_budget_are_refused_and_given_back() {
        let metrics = Metrics::new();
        let budget = Budget::new(3000, &metrics);
        let long = "x".repeat(2000);
        let mut rows = Rows::within(&Memory::new(&budget, false), PAGE_MAX_BYTES);
        let problem = rows.add(&long).unwrap_err();
        assert_eq!(problem.status().as_u16(), 503);
        drop(rows);
        // For a request that changes something, the response is not refused.
        let mut rows = Rows::within(&Memory::new(&budget, true), PAGE_MAX_BYTES);
        rows.add(&long).unwrap();
        let text = rows.within_object(r#"{"count":1}"#).unwrap();
        assert!(metrics.http_head_bytes.get() >= 2000);
        drop(text);
        assert_eq!(metrics.http_head_bytes.get(), 0);
    }
}
