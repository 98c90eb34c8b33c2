//! Who answers a question, found in columns: for 64 persons at a time, who certainly does, and who may
//! as far as columns can tell.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::persons::columns::column::Column;
use crate::persons::columns::table::Rows;
use crate::persons::people::Part;
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_event::predicate::moment::Now;
use weir_event::predicate::{Condition, Predicate, Relation, Test};
use weir_identity::bitmap::Bitmap;
use weir_identity::view::{Flow, View};
use weir_identity::{IdentityError, row};

/// Values that a question may be asked of, over all its filters; filters beyond are asked of persons.
const VALUES_MAX: usize = 1 << 27;

/// If more persons than one in this many are left to be read, it is quicker to read all in a row.
const READ_SHARE: usize = 16;

/// Persons that may be read whatever their share.
const READ_MIN: usize = 256;

/// A filter over all persons.
#[derive(Debug)]
pub(crate) enum Asked<'q> {
    /// All of it holds; nothing does no harm.
    All(Vec<Self>),
    /// At least one of it holds.
    Any(Vec<Self>),
    /// It does not hold.
    Not(Box<Self>),
    /// Of the property that the predicate names.
    Property(&'q Predicate),
    /// Of `is_identified`.
    Identified(&'q Predicate),
    /// Of `created_at`.
    Created(&'q Predicate),
    /// The property `email` contains this text in lower case, compared without case.
    EmailPart(&'q str),
    /// The person has one of these numbers.
    Numbers(&'q [i64]),
    /// The same for all persons.
    Constant(bool),
    /// Nothing that columns know.
    Unknown,
}

impl Asked<'_> {
    /// Whether columns can tell.
    pub(crate) fn is_known(&self) -> bool {
        match self {
            Self::All(all) | Self::Any(all) => all.iter().all(Self::is_known),
            Self::Not(asked) => asked.is_known(),
            Self::Unknown => false,
            _ => true,
        }
    }
}

/// The same, as columns answer it.
enum Node<'a> {
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
    /// One of these codes.
    Codes(&'a Column, Bitmap),
    /// The answers for those who are identified, and for the others.
    Identified(bool, bool),
    Created(&'a Predicate),
    /// The answer for those who were created before a time; the others have the other one.
    CreatedBefore(UnixMicros, bool),
    Places(Bitmap),
    Constant(bool),
    Unknown,
}

/// How a question is asked.
pub(crate) struct Selection<'a> {
    pub(crate) rows: &'a Rows,
    /// The view that the rows are as of.
    pub(crate) view: &'a View,
    pub(crate) project: ProjectId,
    /// The number of the question.
    pub(crate) asked_at: u64,
    pub(crate) now: Now,
    /// Who was created later is not there.
    pub(crate) newest: UnixMicros,
    /// The part of a list up to which its order is found in memory; beyond, along the list.
    pub(crate) ordered_max: usize,
    pub(crate) stop: &'a AtomicBool,
}

impl<'a> Selection<'a> {
    /// The places of those who answer. `decide` says it of a person whom columns leave open, by the
    /// number. `None` if so many are left open that it is better to look at everybody.
    pub(crate) fn choose(
        &self,
        asked: &Asked<'a>,
        mut decide: impl FnMut(i64) -> Result<bool, IdentityError>,
    ) -> Result<Option<Bitmap>, IdentityError> {
        let node = self.node(asked, &mut 0)?;
        let may_read = (self.rows.len() / READ_SHARE).max(READ_MIN);
        let (mut chosen, mut open) = (Bitmap::default(), Vec::new());
        for (at, present) in self.rows.present().words().iter().enumerate() {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let first = at * 64;
            let (must, may) = self.word(&node, first);
            let (must, may) = (must & present, may & present & !must);
            chosen.extend(&[self.without_future(must, first)]);
            open.extend(bits(self.without_future(may, first)).map(|bit| first + bit));
            if open.len() > may_read {
                return Ok(None);
            }
        }
        for place in open {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            if decide(self.rows.number(place))? {
                chosen.insert(place);
            }
        }
        Ok(Some(chosen))
    }

    fn without_future(&self, word: u64, first: usize) -> u64 {
        let is_future = |bit: &usize| self.rows.created_at(first + bit) > self.newest;
        bits(word).filter(is_future).fold(word, |word, bit| word & !(1 << bit))
    }

    fn node(&self, asked: &Asked<'a>, values: &mut usize) -> Result<Node<'a>, IdentityError> {
        let mut nodes = |all: &[Asked<'a>]| -> Result<Vec<Node<'a>>, IdentityError> {
            all.iter().map(|asked| self.node(asked, values)).collect()
        };
        Ok(match asked {
            Asked::All(all) => Node::All(nodes(all)?),
            Asked::Any(all) => Node::Any(nodes(all)?),
            Asked::Not(asked) => Node::Not(Box::new(self.node(asked, values)?)),
            Asked::Property(predicate) => {
                let test = |value: Option<&Value>| predicate.matches_value(value, self.now);
                self.codes(&predicate.key, values, test)?
            }
            Asked::EmailPart(part) => {
                let mut lower = String::new();
                self.codes_of("email", values, |column| {
                    let test = |json: Option<&str>| has_part(json, part, &mut lower);
                    column.codes_where_json(self.stop, test)
                })?
            }
            Asked::Identified(predicate) => {
                let test = |is| predicate.matches_value(Some(&Value::Bool(is)), self.now);
                Node::Identified(test(true), test(false))
            }
            Asked::Created(predicate) => self.created(predicate),
            Asked::Numbers(numbers) => {
                let mut places = Bitmap::default();
                numbers
                    .iter()
                    .filter_map(|number| self.rows.place(*number))
                    .for_each(|place| places.insert(place));
                Node::Places(places)
            }
            Asked::Constant(holds) => Node::Constant(*holds),
            Asked::Unknown => Node::Unknown,
        })
    }

    /// A filter on times that only asks on which side of one they are, as that time.
    fn created(&self, predicate: &'a Predicate) -> Node<'a> {
        let is_side =
            |relation: &Relation| !matches!(relation, Relation::Equal | Relation::NotEqual);
        let (Test::Is(condition) | Test::IsNot(condition)) = &predicate.test else {
            return Node::Created(predicate);
        };
        let Condition::Date(relation, _) = condition else { return Node::Created(predicate) };
        let Some((mut first, mut last)) = self.rows.created_bounds().filter(|_| is_side(relation))
        else {
            return Node::Created(predicate);
        };
        let at_first = self.is_created(predicate, UnixMicros(first));
        if self.is_created(predicate, UnixMicros(last)) == at_first {
            return Node::Constant(at_first);
        }
        // The first time with the other answer is behind `first` and not behind `last`.
        while last.saturating_sub(first) > 1 {
            let middle = first.midpoint(last);
            if self.is_created(predicate, UnixMicros(middle)) == at_first {
                first = middle;
            } else {
                last = middle;
            }
        }
        Node::CreatedBefore(UnixMicros(last), at_first)
    }

    fn is_created(&self, predicate: &Predicate, created: UnixMicros) -> bool {
        predicate.matches_value(Some(&Value::from(created.to_rfc3339())), self.now)
    }

    fn codes(
        &self,
        key: &str,
        values: &mut usize,
        test: impl FnMut(Option<&Value>) -> bool,
    ) -> Result<Node<'a>, IdentityError> {
        self.codes_of(key, values, |column| column.codes_where(self.stop, test))
    }

    fn codes_of(
        &self,
        key: &str,
        values: &mut usize,
        codes: impl FnOnce(&Column) -> Result<Bitmap, IdentityError>,
    ) -> Result<Node<'a>, IdentityError> {
        let Some(column) = self.rows.column(key, self.asked_at) else { return Ok(Node::Unknown) };
        *values = values.saturating_add(column.different());
        if *values > VALUES_MAX {
            return Ok(Node::Unknown);
        }
        Ok(Node::Codes(column, codes(column)?))
    }

    /// Who of the 64 persons from `first` certainly answers, and who may.
    fn word(&self, node: &Node<'a>, first: usize) -> (u64, u64) {
        let known = |word| (word, word);
        match node {
            Node::All(nodes) => {
                let mut answer = known(u64::MAX);
                for node in nodes.iter() {
                    if answer.1 == 0 {
                        break;
                    }
                    let (must, may) = self.word(node, first);
                    answer = (answer.0 & must, answer.1 & may);
                }
                answer
            }
            Node::Any(nodes) => {
                let mut answer = known(0);
                for node in nodes.iter() {
                    if answer.0 == u64::MAX {
                        break;
                    }
                    let (must, may) = self.word(node, first);
                    answer = (answer.0 | must, answer.1 | may);
                }
                answer
            }
            Node::Not(node) => {
                let (must, may) = self.word(node, first);
                (!may, !must)
            }
            Node::Codes(column, codes) => known(column.word(codes, first)),
            Node::Identified(is, is_not) => {
                let identified = word_of(self.rows.identified(), first);
                let of = |holds: bool, word: u64| if holds { word } else { 0 };
                known(of(*is, identified) | of(*is_not, !identified))
            }
            Node::Created(predicate) => {
                let present = word_of(self.rows.present(), first);
                let holds =
                    |bit: &usize| self.is_created(predicate, self.rows.created_at(first + bit));
                known(bits(present).filter(holds).fold(0, |word, bit| word | 1 << bit))
            }
            Node::CreatedBefore(time, before) => {
                let present = word_of(self.rows.present(), first);
                let holds = |bit: &usize| (self.rows.created_at(first + bit) < *time) == *before;
                known(bits(present).filter(holds).fold(0, |word, bit| word | 1 << bit))
            }
            Node::Places(places) => known(word_of(places, first)),
            Node::Constant(holds) => known(if *holds { u64::MAX } else { 0 }),
            Node::Unknown => (0, u64::MAX),
        }
    }

    /// The numbers of a part of the list of those at the places `chosen`.
    pub(crate) fn listed(&self, chosen: &Bitmap, part: Part) -> Result<Vec<i64>, IdentityError> {
        let end = part.offset.saturating_add(part.limit);
        if end > self.ordered_max {
            let all = self.along(self.newest, chosen, end)?;
            return Ok(all.into_iter().skip(part.offset).collect());
        }
        // The times of the first `end`, the newest at the top of what is kept.
        let mut times = BinaryHeap::new();
        for place in chosen.iter().rev() {
            let created = self.rows.created_at(place);
            if times.len() < end {
                times.push(Reverse(created));
            } else if times.peek().is_some_and(|Reverse(oldest)| created > *oldest) {
                times.pop();
                times.push(Reverse(created));
            }
        }
        let Some(Reverse(oldest)) = times.peek().copied() else { return Ok(Vec::new()) };
        let wanted = times.len();
        drop(times);
        let mut first: Vec<(UnixMicros, usize)> = Vec::with_capacity(wanted);
        let mut ties = 0_usize;
        for place in chosen.iter() {
            let created = self.rows.created_at(place);
            if created > oldest || (created == oldest && first.len() < wanted) {
                first.push((created, place));
            }
            ties += usize::from(created == oldest);
        }
        // Those who are as old as the oldest may be more than there is room for.
        first.sort_unstable_by_key(|(created, _)| Reverse(*created));
        first.truncate(wanted);
        self.ordered(&first, oldest, ties, chosen, part)
    }

    /// The part of those in `first`, who are in the order of their times. Of those with one time the
    /// list tells the order; `ties` are as old as the oldest.
    fn ordered(
        &self,
        first: &[(UnixMicros, usize)],
        oldest: UnixMicros,
        ties: usize,
        chosen: &Bitmap,
        part: Part,
    ) -> Result<Vec<i64>, IdentityError> {
        let (mut numbers, mut at) = (Vec::new(), 0_usize);
        for same in first.chunk_by(|a, b| a.0 == b.0) {
            let Some((created, place)) = same.first().copied() else { continue };
            let is_alone = same.len() == 1 && (created != oldest || ties == 1);
            let skipped = part.offset.saturating_sub(at).min(same.len());
            at += same.len();
            if skipped == same.len() {
                continue;
            }
            if is_alone {
                numbers.push(self.rows.number(place));
            } else {
                let own = self.along(created, chosen, same.len())?;
                numbers.extend(own.into_iter().skip(skipped));
            }
        }
        Ok(numbers)
    }

    /// The first `count` of the chosen who were not created after `newest`, along the list.
    fn along(
        &self,
        newest: UnixMicros,
        chosen: &Bitmap,
        count: usize,
    ) -> Result<Vec<i64>, IdentityError> {
        let place = |number| self.rows.place(number);
        let is_chosen = |number| place(number).is_some_and(|place| chosen.contains(place));
        along(self.view, self.project, newest, count, is_chosen, self.stop)
    }
}

/// The numbers of the first `count` persons of the list who were not created after `newest` and are chosen.
pub(crate) fn along(
    view: &View,
    project: ProjectId,
    newest: UnixMicros,
    count: usize,
    is_chosen: impl Fn(i64) -> bool,
    stop: &AtomicBool,
) -> Result<Vec<i64>, IdentityError> {
    let mut numbers = Vec::new();
    if count == 0 {
        return Ok(numbers);
    }
    view.scan_listed(project, newest, |number| {
        if is_chosen(number) {
            numbers.push(number);
        }
        if numbers.len() < count && !stop.load(Ordering::Relaxed) {
            Flow::Continue(())
        } else {
            Flow::Break(())
        }
    })?;
    Ok(numbers)
}

/// Whether a value, compact JSON, is a text that contains `part` in any case. `lower` is room for it, used
/// again and again: the values may be millions.
fn has_part(json: Option<&str>, part: &str, lower: &mut String) -> Result<bool, IdentityError> {
    let quoted = |json: &str| json.len() > 1 && json.starts_with('"') && json.ends_with('"');
    let Some(json) = json.filter(|json| quoted(json)) else { return Ok(false) };
    if !json.is_ascii() || json.contains('\\') {
        let text = row::value(json)?;
        return Ok(text.as_str().is_some_and(|text| text.to_lowercase().contains(part)));
    }
    lower.clear();
    lower.push_str(json.get(1..json.len() - 1).unwrap_or_default());
    lower.make_ascii_lowercase();
    Ok(lower.contains(part))
}

fn word_of(bits: &Bitmap, first: usize) -> u64 {
    bits.words().get(first / 64).copied().unwrap_or(0)
}

/// The bits of a word that are set.
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = usize::try_from(word.trailing_zeros()).ok().filter(|_| word != 0)?;
        word &= word - 1;
        Some(bit)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::has_part;

    #[test]
    fn a_part_of_an_email_is_found_in_any_case() {
        let emails = [
            r#""Ada@Example.com""#,
            r#""ADA""#,
            r#""""#,
            r#""\"ada\"@x""#,
            r#""b\\ada""#,
            r#""\u0041da""#,
            r#""ÄDA@é.fr""#,
            "7",
            "null",
            r#"{"ada":"ada"}"#,
            r#"["ada"]"#,
        ];
        let mut lower = String::new();
        for json in emails {
            for part in ["ada", "", "@example", "äda", "\"", "\\", "da", "7", "u0041"] {
                let expected = serde_json::from_str::<Value>(json).unwrap();
                let expected = expected.as_str().map(str::to_lowercase);
                let expected = expected.is_some_and(|text| text.contains(part));
                let found = has_part(Some(json), part, &mut lower).unwrap();
                assert_eq!(found, expected, "{part} in {json}");
            }
        }
        assert!(!has_part(None, "", &mut lower).unwrap());
    }
}
