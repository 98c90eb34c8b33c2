//! Reads the files of an import in their order, those of persons first, and passes what rows become to a [`Taker`].

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::ProgressBar;
use serde::Serialize;

use crate::cli::import::lanes::Row;
use weir_base::clock::UnixMicros;
use weir_import::event::Event;
use weir_import::files::Input;
use weir_import::mapping::{Options, Output, Source};
use weir_import::read::{self, RowLocation};
use weir_import::refusal::Refusal;
use weir_import::source::Kind;

/// Rows between two updates of the progress.
const ROWS_BETWEEN: u64 = 2_048;
/// Reasons that are told apart in the report.
const REASONS_MAX: usize = 20;
/// Errors of files that are told.
const ERRORS_MAX: usize = 100;
/// Rows at the beginning of a file that may be refused, if none is taken.
const REFUSED_MAX_ROWS: u64 = 1_000;

/// What is read.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) kind: Kind,
    pub(super) options: Options,
    pub(super) inputs: Vec<Input>,
    pub(super) progress: ProgressBar,
}

/// What of a file need not be taken again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    pub(super) rows: u64,
    pub(super) is_complete: bool,
}

/// A row that is no event.
#[derive(Debug)]
pub(super) struct Refused<'r> {
    pub(super) place: RowLocation<'r>,
    pub(super) reason: &'r str,
    pub(super) text: &'r str,
}

/// Takes what is read.
pub(super) trait Taker {
    /// Whether the persons of a file were imported before.
    fn has_persons(&self, input: &Input) -> bool;

    /// Files of persons come, perhaps more than once.
    fn persons_begin(&mut self);

    /// A file begins.
    fn begin(&mut self, file: usize, input: &Input) -> anyhow::Result<Done>;

    /// An event or a person of a row.
    fn event(&mut self, event: &Event<'_>, row: Row);

    /// A row that is none.
    fn refuse(&mut self, file: usize, refused: &Refused<'_>) -> anyhow::Result<()>;

    /// All of a row was passed on.
    fn done(&mut self, row: Row) -> anyhow::Result<()>;

    /// A file was read to its end.
    fn end(&mut self, file: usize, rows: u64);

    /// All persons were passed on: they are to be there before events come.
    fn persons_end(&mut self) -> anyhow::Result<()>;
}

/// What was read.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Read {
    /// Files that were read, or were complete before.
    pub(super) files: u64,
    /// Rows that had been imported before.
    pub(super) rows_before: u64,
    pub(super) rows: u64,
    pub(super) events: u64,
    /// Persons, and further distinct ids of persons.
    pub(super) persons: u64,
    pub(super) rejected: u64,
    /// Rows that are nothing to import, by reason.
    pub(super) skipped: BTreeMap<&'static str, u64>,
    /// Refused rows by reason.
    pub(super) reasons: BTreeMap<String, u64>,
    /// Number of files that could not be read to their ends.
    pub(super) failed: u64,
    /// What the first of them have.
    pub(super) errors: Vec<String>,
    #[serde(skip)]
    pub(super) first: Option<UnixMicros>,
    #[serde(skip)]
    pub(super) last: Option<UnixMicros>,
}

/// Reads files.
pub(super) struct Reading {
    plan: Plan,
    source: Box<dyn Source>,
    read: Read,
    read_bytes: Arc<AtomicU64>,
}

impl Reading {
    pub(super) fn new(plan: Plan) -> Self {
        let source = plan.kind.source(&plan.options);
        Self { plan, source, read: Read::default(), read_bytes: Arc::default() }
    }

    /// Reads all files. A file that cannot be read to its end is told in the result, and the next one is read.
    ///
    /// # Errors
    ///
    /// The taker takes nothing any more.
    pub(super) fn run(mut self, taker: &mut dyn Taker) -> anyhow::Result<Read> {
        let persons: Vec<bool> = match self.plan.kind {
            Kind::Posthog | Kind::Mixpanel => {
                self.plan.inputs.iter().map(|input| self.has_persons(input)).collect()
            }
            _ => vec![false; self.plan.inputs.len()],
        };
        let mut files =
            self.plan.inputs.iter().zip(&persons).filter(|(_, is_persons)| **is_persons);
        if files.any(|(input, _)| !taker.has_persons(input)) {
            taker.persons_begin();
            let mut is_first = true;
            loop {
                for (file, _) in persons.iter().enumerate().filter(|(_, is_persons)| **is_persons) {
                    self.file(file, taker, Round::Persons { is_first })?;
                }
                is_first = false;
                if !self.source.is_unfinished() {
                    break;
                }
            }
            taker.persons_end()?;
        }
        for (file, _) in persons.iter().enumerate().filter(|(_, is_persons)| !**is_persons) {
            self.file(file, taker, Round::Events)?;
        }
        self.plan.progress.finish_and_clear();
        Ok(self.read)
    }

    /// Whether the first row of a file is one of a person.
    fn has_persons(&self, input: &Input) -> bool {
        if *input == Input::Standard {
            return false;
        }
        let mut found = false;
        let mut look = |_: RowLocation<'_>, row: read::Row<'_>| {
            found = self.source.is_person(&row);
            ControlFlow::Break(())
        };
        // What is wrong with the file is told when it is read.
        let _ = read::read(input, self.source.wanted(), &Arc::default(), &mut look);
        found
    }

    /// Reads a file.
    fn file(&mut self, file: usize, taker: &mut dyn Taker, round: Round) -> anyhow::Result<()> {
        let Some(input) = self.plan.inputs.get(file).cloned() else { return Ok(()) };
        let begun_bytes = self.read_bytes.load(Ordering::Relaxed);
        let done = match taker.begin(file, &input) {
            Ok(done) => done,
            Err(error) => {
                self.fail(&crate::cli::failure::explain(&error));
                return Ok(());
            }
        };
        // Persons are read as a whole, because the first row of each has to be known.
        let done = if round == Round::Events { done } else { Done::default() };
        let counts = round != Round::Persons { is_first: false };
        self.read.files += u64::from(counts);
        if done.is_complete {
            self.read.rows_before += done.rows;
            self.read_bytes.fetch_add(input.size(), Ordering::Relaxed);
            return Ok(());
        }
        self.source.begin_file();
        let wanted = self.source.wanted();
        let mut rows = OfFile { file, done, counts, taken: 0, refused: 0, number: 0, end: None };
        let read_bytes = Arc::clone(&self.read_bytes);
        let ended = {
            let (source, read) = (&mut self.source, &mut self.read);
            let progress = &self.plan.progress;
            let bytes = Arc::clone(&read_bytes);
            let mut sink = |place: RowLocation<'_>, row: read::Row<'_>| {
                if place.row.is_multiple_of(ROWS_BETWEEN) {
                    progress.set_position(bytes.load(Ordering::Relaxed));
                    progress.set_message(format!("{} events", read.events));
                }
                rows.row(place, &row, &mut **source, read, taker)
            };
            read::read(&input, wanted, &read_bytes, &mut sink)
        };
        let name = input.name();
        match (rows.end.take(), ended) {
            (Some(End::Taker(error)), _) => return Err(error),
            (Some(End::File(reason)), _) => self.fail(&format!("{name}: {reason}")),
            (None, Err(error)) => self.fail(&format!("{name}: {error}")),
            (None, Ok(())) => taker.end(file, rows.number),
        }
        // Whatever was read of it: the whole of it is behind.
        let size =
            input.size().max(self.read_bytes.load(Ordering::Relaxed).saturating_sub(begun_bytes));
        self.read_bytes.store(begun_bytes.saturating_add(size), Ordering::Relaxed);
        Ok(())
    }

    fn fail(&mut self, error: &str) {
        self.read.failed += 1;
        if self.read.errors.len() < ERRORS_MAX {
            self.read.errors.push(error.to_owned());
        }
    }
}

/// What a file is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    /// Persons, for the first time or once more.
    Persons {
        is_first: bool,
    },
    Events,
}

/// Why the rows of a file end before the file.
enum End {
    Taker(anyhow::Error),
    File(String),
}

/// The rows of one file.
struct OfFile {
    file: usize,
    done: Done,
    counts: bool,
    taken: u64,
    refused: u64,
    number: u64,
    end: Option<End>,
}

impl OfFile {
    fn row(
        &mut self,
        place: RowLocation<'_>,
        row: &read::Row<'_>,
        source: &mut dyn Source,
        read: &mut Read,
        taker: &mut dyn Taker,
    ) -> ControlFlow<()> {
        self.number = place.row;
        if place.row == 1
            && let Some(objection) = source.objection(row)
        {
            self.end = Some(End::File(objection));
            return ControlFlow::Break(());
        }
        let at = Row { file: self.file, row: place.row, line: place.line.unwrap_or(0) };
        let is_new = place.row > self.done.rows;
        let mut to = To { taker, read, at, is_new };
        let mapped = source.row(row, &mut to);
        if !is_new {
            read.rows_before += 1;
            return ControlFlow::Continue(());
        }
        read.rows += u64::from(self.counts);
        let told = match mapped {
            Ok(()) => {
                self.taken += 1;
                Ok(())
            }
            Err(reason) if self.counts => self.refuse(place, row, &reason, read, taker),
            Err(_) => Ok(()),
        };
        match told.and_then(|()| taker.done(at)) {
            Ok(()) if self.end.is_none() => ControlFlow::Continue(()),
            Ok(()) => ControlFlow::Break(()),
            Err(error) => {
                self.end = Some(End::Taker(error));
                ControlFlow::Break(())
            }
        }
    }

    fn refuse(
        &mut self,
        place: RowLocation<'_>,
        row: &read::Row<'_>,
        reason: &Refusal,
        read: &mut Read,
        taker: &mut dyn Taker,
    ) -> anyhow::Result<()> {
        let reason = reason.to_string();
        read.rejected += 1;
        let is_known = read.reasons.len() < REASONS_MAX || read.reasons.contains_key(&reason);
        let told = if is_known { reason.clone() } else { "other reasons".to_owned() };
        *read.reasons.entry(told).or_default() += 1;
        self.refused += 1;
        if self.taken == 0 && self.refused >= REFUSED_MAX_ROWS {
            let why = format!(
                "its first {REFUSED_MAX_ROWS} rows were all refused, the last one because {reason}"
            );
            self.end = Some(End::File(why));
        }
        let text = text_of(row);
        taker.refuse(self.file, &Refused { place, reason: &reason, text: &text })
    }
}

/// A row as text.
fn text_of(row: &read::Row<'_>) -> String {
    match row {
        read::Row::Json(text) => (*text).to_owned(),
        read::Row::Record(names, record) => {
            let members = names.iter().zip(record.iter());
            let members = members.map(|(name, field)| (name.clone(), field.into()));
            serde_json::Value::Object(members.collect()).to_string()
        }
        read::Row::Columns(columns, row) => columns.json(*row),
        read::Row::Unreadable(text, _) => String::from_utf8_lossy(text).into_owned(),
    }
}

/// Passes what a row becomes on.
struct To<'t> {
    taker: &'t mut dyn Taker,
    read: &'t mut Read,
    at: Row,
    /// Whether it was not taken before.
    is_new: bool,
}

impl Output for To<'_> {
    fn event(&mut self, event: &Event<'_>) {
        if !self.is_new {
            return;
        }
        if event.is_person() {
            self.read.persons += 1;
        } else {
            self.read.events += 1;
            self.read.first = Some(self.read.first.map_or(event.at, |first| first.min(event.at)));
            self.read.last = self.read.last.max(Some(event.at));
        }
        self.taker.event(event, self.at);
    }

    fn skip(&mut self, why: &'static str) {
        if self.is_new {
            *self.read.skipped.entry(why).or_default() += 1;
        }
    }
}
