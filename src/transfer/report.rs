//! What a copy did: [`Report`], with every object that could not come and the reason.

use std::collections::BTreeMap;
use std::fmt;

use crate::fault::shown;
use crate::state::Kind;

/// Most reasons of one kind that are listed one by one.
const LISTED_MAX: usize = 1_000;

/// What became of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// It was made.
    Made,
    /// It was sent, and is there as in the source; whether it was before is not known.
    Sent,
    /// It was there, and was changed.
    Changed,
    /// It was there, and is the same.
    Same,
    /// It was there, differs, and was left.
    Kept,
    /// It could not come.
    Left,
}

impl Outcome {
    const ALL: [(Self, &'static str); 6] = [
        (Self::Made, "made"),
        (Self::Sent, "sent"),
        (Self::Changed, "changed"),
        (Self::Same, "same"),
        (Self::Kept, "kept"),
        (Self::Left, "left"),
    ];
}

/// An object that could not come, or that differs from the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// What became of it.
    pub outcome: Outcome,
    /// Its kind.
    pub kind: Kind,
    /// Its name, as the source has it.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// What a copy did.
#[derive(Clone, Debug, Default)]
pub struct Report {
    counts: BTreeMap<Kind, BTreeMap<Outcome, u64>>,
    notes: Vec<Note>,
    unlisted: BTreeMap<Kind, u64>,
}

impl Report {
    /// Counts objects.
    pub fn count(&mut self, kind: Kind, outcome: Outcome, count: u64) {
        if count > 0 {
            *self.counts.entry(kind).or_default().entry(outcome).or_default() += count;
        }
    }

    /// Counts an object that could not come, or differs, and lists it.
    pub fn note(&mut self, kind: Kind, outcome: Outcome, name: &str, reason: impl Into<String>) {
        self.count(kind, outcome, 1);
        if self.notes.iter().filter(|note| note.kind == kind).count() >= LISTED_MAX {
            *self.unlisted.entry(kind).or_default() += 1;
            return;
        }
        let (name, reason) = (shown(name), shown(&reason.into()));
        self.notes.push(Note { outcome, kind, name, reason });
    }

    /// How many objects of a kind had this outcome.
    pub fn counted(&self, kind: Kind, outcome: Outcome) -> u64 {
        self.counts.get(&kind).and_then(|own| own.get(&outcome)).copied().unwrap_or_default()
    }

    /// Whether something could not come.
    pub fn is_partial(&self) -> bool {
        self.counts.values().any(|own| own.contains_key(&Outcome::Left))
    }

    /// What could not come, and what differs.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, own) in &self.counts {
            let counts = Outcome::ALL.iter().filter_map(|(outcome, name)| {
                own.get(outcome).map(|count| format!("{count} {name}"))
            });
            writeln!(f, "{:<20} {}", kind.name(), counts.collect::<Vec<_>>().join(", "))?;
        }
        for (outcome, title) in
            [(Outcome::Left, "Could not come:"), (Outcome::Kept, "Differs in the target:")]
        {
            let mut notes = self.notes.iter().filter(|note| note.outcome == outcome).peekable();
            if notes.peek().is_some() {
                writeln!(f, "{title}")?;
            }
            for Note { kind, name, reason, .. } in notes {
                writeln!(f, "  {} {name:?}: {reason}", kind.name())?;
            }
        }
        for (kind, count) in &self.unlisted {
            writeln!(f, "  and {count} more of the kind {}", kind.name())?;
        }
        Ok(())
    }
}
