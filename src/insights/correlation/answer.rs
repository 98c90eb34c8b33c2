//! Compares how many of the actors that complete the funnel do something with how many of the others do: [`Answer`].

use serde_json::Map;

use crate::correlation::counts::{Counts, Pair, Thing};
use crate::correlation::values::parts;
use crate::correlation::{Correlation, Of};
use crate::entity::note_named;
use crate::funnels::passage::Passages;
use crate::{Context, InsightError, ProjectSettings};
use weir_api::insights::correlation;
use weir_api::insights::correlation::{Correlations, Outcome};
use weir_query::events::histories::{Fold, NO_TEXT, Row, Rows};
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::interner::Interner;
use weir_query::kernel::slice::Slice;

/// This many actors suffice for a subject to be shown, whatever the total (PostHog's figure).
const ACTORS_ENOUGH: u64 = 25;

/// One of this many actors suffices, too (PostHog's figure).
const ACTORS_OF_ONE: u64 = 50;

/// Property values of events with at most this many actors are never shown (PostHog's figure).
const ACTORS_OF_VALUE_MIN: u64 = 2;

/// The numbers of successes and failures are skewed if one is more than this many times the other (PostHog's figure).
const SKEWED: u64 = 10;

/// Added to each count as a prior (PostHog's figure).
const PRIOR: u64 = 1;

/// Most rows for success, and for failure (PostHog's figure).
const ROWS_MAX: usize = 10;

/// Separates the parts of a subject's name.
const SEPARATOR: &str = "::";

/// The subjects that correlate with success or failure.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Those that correlate with success, the strongest first; then those with failure, the strongest first.
    pub rows: Vec<Correlated>,
    /// Whether successes far outnumber failures, or the reverse.
    pub is_skewed: bool,
}

/// A subject with its correlation.
#[derive(Clone, Debug, PartialEq)]
pub struct Correlated {
    subject: Subject,
    counts: Pair,
    odds_ratio: f64,
    is_success: bool,
}

/// What correlates with the outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Events with a name.
    Event(String),
    /// Actors with a property value.
    Value {
        /// The name of the property.
        key: String,
        /// Its value.
        value: String,
    },
    /// Events with a name and a property value.
    EventValue {
        /// The name of the events.
        event: String,
        /// The name of the property.
        key: String,
        /// Its value.
        value: String,
    },
}

impl Subject {
    /// Approximate memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let texts = match self {
            Self::Event(event) => event.len(),
            Self::Value { key, value } => key.len().saturating_add(value.len()),
            Self::EventValue { event, key, value } => {
                event.len().saturating_add(key.len()).saturating_add(value.len())
            }
        };
        size_of::<Self>().saturating_add(texts)
    }

    /// Its name in responses, from which it cannot be told: keys and values may contain the separator.
    fn name(&self) -> String {
        match self {
            Self::Event(event) => event.clone(),
            Self::Value { key, value } => [key.as_str(), value].join(SEPARATOR),
            Self::EventValue { event, key, value } => [event.as_str(), key, value].join(SEPARATOR),
        }
    }
}

impl Correlated {
    /// Computes the odds ratio from the counts of the subject and the totals.
    fn new(subject: Subject, counts: Pair, totals: Pair) -> Self {
        let with = |count: u64| u128::from(count.saturating_add(PRIOR));
        let without = |count: u64, total: u64| with(total.saturating_sub(count));
        let top = with(counts.successes) * without(counts.failures, totals.failures);
        let bottom = without(counts.successes, totals.successes) * with(counts.failures);
        Self { subject, counts, odds_ratio: ratio(top, bottom), is_success: top > bottom }
    }

    /// The row in the form of the response.
    fn shown(&self) -> correlation::Correlated {
        let Pair { successes, failures } = self.counts;
        correlation::Correlated {
            correlation_type: if self.is_success { Outcome::Success } else { Outcome::Failure },
            event: correlation::Subject {
                elements: [],
                event: self.subject.name(),
                properties: Map::new(),
            },
            failure_count: failures,
            failure_people_url: None,
            odds_ratio: self.odds_ratio,
            success_count: successes,
            success_people_url: None,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a number that is shown")]
fn ratio(top: u128, bottom: u128) -> f64 {
    top as f64 / bottom as f64
}

impl Answer {
    /// The result in the form of the response.
    pub fn shown(&self) -> Correlations {
        let events = self.rows.iter().map(Correlated::shown).collect();
        Correlations { events, skewed: self.is_skewed }
    }

    /// The subject of each row.
    pub fn subjects(self) -> Vec<Subject> {
        self.rows.into_iter().map(|row| row.subject).collect()
    }
}

/// Counts the actors of the funnel by subject.
#[derive(Debug)]
struct Counting {
    passages: Passages,
    is_timed: bool,
    totals: Pair,
    counts: Counts,
}

impl Fold for Counting {
    fn actor(&mut self, _: &str, rows: &[Row], texts: &Interner) -> Result<(), QueryError> {
        let Some(passage) = self.passages.of(rows) else { return Ok(()) };
        self.totals.add(passage.is_converted);
        let is_in = |row: &&Row| row.text != NO_TEXT && (!self.is_timed || passage.has(row.at));
        let found = rows.iter().filter(is_in).map(|row| (row.mask, row.text));
        let mut found: Vec<(u32, u32)> = found.collect();
        found.sort_unstable();
        found.dedup();
        for (event, text) in found {
            let thing = (event, texts.get(text).unwrap_or_default());
            self.counts.add(thing, passage.is_converted)?;
        }
        Ok(())
    }
}

impl Correlation {
    /// Computes the correlations.
    pub async fn answer(
        &self,
        engine: &Engine,
        owner: &ProjectSettings,
    ) -> Result<Answer, InsightError> {
        note_named(engine, owner.project, self.entities())?;
        let view = engine.view(owner.project).await?;
        let plan = self.rows(Context { engine, view: &view, owner }).await?;
        let (mut left, mut rows, mut totals) = (vec![Slice::ALL], Vec::new(), Pair::default());
        while let Some(slice) = left.pop() {
            let fold = Counting {
                passages: self.passages.clone(),
                is_timed: self.of.is_timed(),
                totals: Pair::default(),
                counts: Counts::new(slice, engine.reservation("counts of a correlation")),
            };
            let mut fold = engine.histories(plan.clone(), Rows::All, fold).await?;
            totals = fold.totals;
            if totals.successes == 0 || totals.failures == 0 {
                return Ok(Answer { rows: Vec::new(), is_skewed: true });
            }
            left.extend(fold.counts.take_left());
            for (thing, counts) in fold.counts.into_pairs() {
                if self.is_shown(counts, totals) {
                    rows.push(Correlated::new(self.subject(thing), counts, totals));
                }
                if rows.len() >= 4 * ROWS_MAX {
                    rows = first(rows);
                }
            }
        }
        let Pair { successes, failures } = totals;
        let is_skewed = successes > failures.saturating_mul(SKEWED)
            || failures > successes.saturating_mul(SKEWED);
        Ok(Answer { rows: first(rows), is_skewed })
    }

    /// Whether enough actors have the subject for it to be shown.
    fn is_shown(&self, counts: Pair, totals: Pair) -> bool {
        let actors = counts.sum();
        let is_enough =
            actors >= ACTORS_ENOUGH || actors.saturating_mul(ACTORS_OF_ONE) >= totals.sum();
        is_enough && (actors > ACTORS_OF_VALUE_MIN || !matches!(self.of, Of::EventValues(..)))
    }

    fn subject(&self, thing: Thing) -> Subject {
        let value = |text: &str| {
            let (key, value) = parts(text);
            (key.to_owned(), value.to_owned())
        };
        match &self.of {
            Of::Events(_) => Subject::Event(thing.text.into()),
            Of::Values(_) => {
                let (key, value) = value(&thing.text);
                Subject::Value { key, value }
            }
            Of::EventValues(names, _) => {
                let (key, value) = value(&thing.text);
                let place = usize::try_from(thing.event).unwrap_or(usize::MAX);
                let event = names.get(place).cloned().unwrap_or_default();
                Subject::EventValue { event, key, value }
            }
        }
    }
}

/// The rows that are shown, in the order of the response; ties by their names.
fn first(mut rows: Vec<Correlated>) -> Vec<Correlated> {
    let strength = |row: &Correlated| if row.is_success { -row.odds_ratio } else { row.odds_ratio };
    rows.sort_by(|a, b| {
        let by_kind = b.is_success.cmp(&a.is_success);
        let by_strength = strength(a).total_cmp(&strength(b));
        by_kind.then(by_strength).then_with(|| a.subject.name().cmp(&b.subject.name()))
    });
    let (mut successes, mut failures) = (0, 0);
    rows.retain(|row| {
        let count = if row.is_success { &mut successes } else { &mut failures };
        *count += 1;
        *count <= ROWS_MAX
    });
    rows
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Correlated, Pair, Subject, first};
    use crate::correlation::Correlation;

    const fn pair(successes: u64, failures: u64) -> Pair {
        Pair { successes, failures }
    }

    fn event(name: &str) -> Subject {
        Subject::Event(name.to_owned())
    }

    /// The numbers are those of PostHog's own tests.
    #[test]
    fn odds_ratios_are_the_published_ones() {
        for (counts, totals, expected, is_success) in [
            (pair(5, 0), pair(10, 10), 11.0, true),
            (pair(0, 5), pair(10, 10), 1.0 / 11.0, false),
            (pair(10, 1), pair(11, 11), 121.0 / 4.0, true),
            (pair(1, 1), pair(2, 2), 1.0, false),
        ] {
            let found = Correlated::new(event("a"), counts, totals);
            assert!((found.odds_ratio - expected).abs() < 1e-12, "{counts:?}");
            assert_eq!(found.is_success, is_success, "{counts:?}");
        }
    }

    #[test]
    fn things_of_few_actors_are_not_shown() {
        let funnel = json!({"source": {"series": [{"event": "a"}, {"event": "b"}]}});
        let of = |kind: &str| {
            Correlation::parse(&json!({
                "source": funnel, "funnelCorrelationType": kind,
                "funnelCorrelationEventNames": ["x"], "funnelCorrelationNames": ["x"],
            }))
        };
        for (kind, counts, totals, expected) in [
            ("events", pair(1, 1), pair(50, 50), true),
            ("events", pair(1, 0), pair(50, 50), false),
            ("events", pair(20, 4), pair(9000, 1000), false),
            ("events", pair(20, 5), pair(9000, 1000), true),
            ("properties", pair(1, 0), pair(2, 2), true),
            ("event_with_properties", pair(1, 1), pair(2, 2), false),
            ("event_with_properties", pair(2, 1), pair(2, 2), true),
        ] {
            let correlation = of(kind).unwrap();
            assert_eq!(correlation.is_shown(counts, totals), expected, "{kind} {counts:?}");
        }
    }

    #[test]
    fn answers_have_the_strongest_of_both_kinds() {
        let (totals, mut rows) = (pair(40, 40), Vec::new());
        for number in 0..15 {
            rows.push(Correlated::new(
                event(&format!("s{number:02}")),
                pair(20 + number, 5),
                totals,
            ));
            rows.push(Correlated::new(
                event(&format!("f{number:02}")),
                pair(5, 20 + number),
                totals,
            ));
        }
        rows.push(Correlated::new(event("s14 again"), pair(34, 5), totals));
        let names: Vec<String> = first(rows).iter().map(|row| row.subject.name()).collect();
        assert_eq!(names.len(), 20);
        assert_eq!(names[..3], ["s14", "s14 again", "s13"]);
        assert_eq!(names[9..12], ["s06", "f14", "f13"]);
    }

    #[test]
    fn names_have_all_parts() {
        let (key, value) = ("k".to_owned(), "v".to_owned());
        let of_event =
            Subject::EventValue { event: "e".to_owned(), key: key.clone(), value: value.clone() };
        assert_eq!(
            (of_event.name(), Subject::Value { key, value }.name()),
            ("e::k::v".into(), "k::v".into())
        );
    }
}
