//! A rehearsal: everything is read and mapped, and nothing is sent.

use std::collections::{BTreeMap, HashSet};
use std::hash::BuildHasher;
use std::io::Write;

use crate::cli::import::lanes::Row;
use crate::cli::import::reading::{Done, Refused, Taker};
use weir_import::event::{Event, Marks};
use weir_import::files::Input;
use weir_import::source::Kind;

/// Events that are printed.
pub(super) const SHOWN_EVENTS: usize = 20;
/// Refused rows that are printed.
const SHOWN_REFUSALS: usize = 10;
/// Names of events that are counted apart.
const NAMES_MAX: usize = 10_000;
/// Distinct ids that are counted.
const DISTINCT_IDS_MAX: usize = 1_000_000;

/// Counts what would be sent, and prints the beginning.
#[derive(Debug)]
pub(super) struct Dry {
    marks: Marks,
    shown: usize,
    refusals: usize,
    hasher: foldhash::quality::FixedState,
    distinct_ids: HashSet<u64, foldhash::fast::RandomState>,
    names: BTreeMap<String, u64>,
    text: Vec<u8>,
}

impl Dry {
    /// Prints so many events.
    pub(super) fn new(kind: Kind, shown: usize) -> Self {
        Self {
            marks: Marks::new(kind.name(), "of the import"),
            shown,
            refusals: if shown == 0 { 0 } else { SHOWN_REFUSALS },
            hasher: foldhash::quality::FixedState::default(),
            distinct_ids: HashSet::default(),
            names: BTreeMap::new(),
            text: Vec::new(),
        }
    }

    /// Events by their names, and "other names" for those beyond the limit.
    pub(super) fn names(&self) -> &BTreeMap<String, u64> {
        &self.names
    }

    /// Distinct ids, of which a million are counted.
    pub(super) fn distinct_ids(&self) -> usize {
        self.distinct_ids.len()
    }

    fn print(&self) {
        let mut out = std::io::stdout().lock();
        // What cannot be printed is not missed by the rehearsal.
        let _ = out.write_all(&self.text).and_then(|()| out.write_all(b"\n"));
    }
}

impl Taker for Dry {
    fn has_persons(&self, _input: &Input) -> bool {
        false
    }

    fn persons_begin(&mut self) {}

    fn begin(&mut self, _file: usize, _input: &Input) -> anyhow::Result<Done> {
        Ok(Done::default())
    }

    fn event(&mut self, event: &Event<'_>, _row: Row) {
        self.text.clear();
        event.write(&self.marks, &mut self.text);
        if self.distinct_ids.len() < DISTINCT_IDS_MAX {
            self.distinct_ids.insert(self.hasher.hash_one(&*event.distinct_id));
        }
        let is_full = self.names.len() >= NAMES_MAX;
        match self.names.get_mut(&*event.name) {
            Some(count) => *count += 1,
            None if !is_full => {
                self.names.insert(event.name.clone().into_owned(), 1);
            }
            None => *self.names.entry("other names".to_owned()).or_default() += 1,
        }
        if self.shown > 0 {
            self.shown -= 1;
            self.print();
        }
    }

    fn refuse(&mut self, _file: usize, refused: &Refused<'_>) -> anyhow::Result<()> {
        if self.refusals > 0 {
            self.refusals -= 1;
            let (row, reason) = (refused.place.row, refused.reason);
            let start: String = refused.text.chars().take(500).collect();
            self.text = format!("refused: row {row}: {reason}: {start}").into_bytes();
            self.print();
        }
        Ok(())
    }

    fn done(&mut self, _row: Row) -> anyhow::Result<()> {
        Ok(())
    }

    fn end(&mut self, _file: usize, _rows: u64) {}

    fn persons_end(&mut self) -> anyhow::Result<()> {
        Ok(())
    }
}
