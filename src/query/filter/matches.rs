//! `matches_filters(properties, person_id, ...)`: a tree of filters as a function of a plan, asked row by row. Where
//! it is about persons alone, it is asked once for each person.

pub(crate) mod contents;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType};
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::logical_expr::{Expr, ScalarUDF};
use datafusion::prelude::ident;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::filter::condition;
use crate::filter::condition::{About, Call, Needs, Pace, RowTest};
use crate::filter::content::OfEvents;
use crate::filter::event_properties::{Wanted, needles};
use crate::filter::person_answers::{InARow, PersonAnswers};
use crate::filter::subject::{InCohort, place_value};
use crate::filter::subject_sets::FindPersons;
use crate::guard::watched::Watched;
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_event::json_key::KeyFinder;
use weir_event::predicate::Test;
use weir_event::predicate::filter::{Filter, Scope};
use weir_event::predicate::moment::Now;
use weir_event::predicate::tree::Tree;
use weir_event::schema::GROUP_TYPES_MAX;
use weir_identity::IdentityError;
use weir_identity::person::{Group, Person};
use weir_identity::row::Key;
use weir_identity::view::{Flow, View};
use weir_storage::exact::ExactColumns;

/// What filters of the type `event_metadata` ask of an event's row, and the column that has it.
const METADATA: [(&str, &str); 13] = [
    ("uuid", "uuid"),
    ("event", "event"),
    ("distinct_id", "distinct_id"),
    ("person_id", "person_id"),
    ("timestamp", "timestamp"),
    ("elements_chain", "elements_chain"),
    ("$session_id", "session_id"),
    ("$window_id", "window_id"),
    ("$group_0", "group_0"),
    ("$group_1", "group_1"),
    ("$group_2", "group_2"),
    ("$group_3", "group_3"),
    ("$group_4", "group_4"),
];

/// Columns with the keys of an event's groups, by the index of their type.
pub const GROUPS: [&str; GROUP_TYPES_MAX] = ["group_0", "group_1", "group_2", "group_3", "group_4"];

/// What filters and breakdowns call the key of a group, which its properties do not have (PostHog's name).
pub const GROUP_KEY: &str = "$group_key";

/// Columns that most filters look at.
const PROPERTIES: &str = "properties";
const PERSON: &str = "person_id";

/// What filters of the type `person_metadata` call the distinct ids of a person, of which one is enough.
const DISTINCT_ID: &str = "distinct_id";

/// Most distinct ids of one person that filters look at, and of all persons that are kept in memory.
const IDS_MAX: usize = 100_000;

/// The column of a part of an event's row, by the name that filters have for it.
pub fn metadata_column(key: &str) -> Option<&'static str> {
    METADATA.iter().find(|(name, _)| *name == key).map(|(_, column)| *column)
}

/// The name of the function.
const NAME: &str = "matches_filters";

/// What filters ask of besides rows.
pub struct Subjects {
    /// The project of the rows.
    pub project: ProjectId,
    /// Persons and groups.
    pub view: Arc<View>,
    /// Answers for cohorts; without it nobody is in one.
    pub in_cohort: Option<InCohort>,
    /// What dates are read by.
    pub now: Now,
    /// Which columns of the events say all about their properties.
    pub exact: ExactColumns,
    /// Where the memory of what is known of persons is taken from.
    pub memory: Arc<dyn MemoryPool>,
    /// How the persons are found for whom filters hold; without it other processes evaluate no filters on persons.
    pub find: Option<FindPersons>,
}

/// The condition that the filters hold for an event, and its person and groups as of now.
pub(crate) fn condition(tree: Tree, subjects: Arc<Subjects>) -> Expr {
    let matches = Matches::new(tree, subjects);
    let columns = matches.columns.iter().map(|name| ident(*name)).collect();
    matches.function().call(columns)
}

/// The same of filters on what the rows of events have, as a function of the columns that they look at.
///
/// # Errors
///
/// Some of them look at something else.
pub(crate) fn of_events(OfEvents { tree, now }: OfEvents) -> Result<ScalarUDF, DataFusionError> {
    if !is_of_events(&tree) {
        let why = "filters of events look at something else than events";
        return Err(DataFusionError::Plan(why.to_owned()));
    }
    Ok(Matches::of_rows(tree, now).function())
}

/// The same of persons, in their own rows: the filters ask of the person and nothing else.
pub(crate) fn of_persons(tree: Tree, subjects: Arc<Subjects>) -> Expr {
    let matches = Arc::new(Matches::new(tree, subjects));
    let (pace, own) = (matches.pace(), Arc::clone(&matches));
    let test: Arc<RowTest> = Arc::new(move |view, row, call| own.keep_person(view, row, call));
    let about = About { needs: Needs::Row(test), ..About::default() };
    let test = move |columns: &[ArrayRef], call: Call<'_>| matches.keep(columns, call);
    let function = condition::function(about, NAME, vec![DataType::Utf8View], pace, test);
    function.call(vec![ident(PERSON)])
}

/// Whether filters look at nothing else than the rows of events.
fn is_of_events(tree: &Tree) -> bool {
    tree.filters().into_iter().all(|filter| {
        matches!(filter, Filter::Property { scope: Scope::Event | Scope::EventMetadata, .. })
    })
}

/// Whether all filters of a tree ask of the person and nothing else; there is one at least.
pub(crate) fn is_of_persons(tree: &Tree) -> bool {
    let filters = tree.filters();
    !filters.is_empty() && filters.into_iter().all(asks_for_person)
}

pub(crate) fn asks_for_person(filter: &Filter) -> bool {
    let is_property =
        matches!(filter, Filter::Property { scope: Scope::Person | Scope::PersonMetadata, .. });
    is_property || matches!(filter, Filter::Cohort { .. })
}

/// The properties of persons that filters look at; `None` if they may look at any.
fn keys_of_persons(tree: &Tree) -> Option<Vec<(Box<str>, Key)>> {
    let mut keys = BTreeSet::new();
    for filter in tree.filters() {
        match filter {
            Filter::Property { scope: Scope::Person, predicate } => {
                keys.insert(&*predicate.key);
            }
            Filter::Cohort { .. } => return None,
            Filter::Property { .. } | Filter::Flag { .. } => {}
        }
    }
    Some(keys.into_iter().map(|key| (key.into(), Key::new(key))).collect())
}

fn asks_for_ids(filter: &Filter) -> bool {
    matches!(
        filter,
        Filter::Property { scope: Scope::PersonMetadata, predicate } if &*predicate.key == DISTINCT_ID
    )
}

/// The columns that filters look at, each once.
fn columns(tree: &Tree) -> Vec<&'static str> {
    let mut columns = Vec::new();
    for filter in tree.filters() {
        let column = match filter {
            Filter::Property { scope: Scope::Event, .. } => Some(PROPERTIES),
            filter if asks_for_person(filter) => Some(PERSON),
            Filter::Property { scope: Scope::Group(Some(index)), .. } => {
                GROUPS.get(usize::from(*index)).copied()
            }
            Filter::Property { scope: Scope::EventMetadata, predicate } => {
                metadata_column(&predicate.key)
            }
            _ => None,
        };
        columns.extend(column.filter(|column| !columns.contains(column)));
    }
    // A condition on no column has no rows.
    if columns.is_empty() { vec![PERSON] } else { columns }
}

struct Matches {
    tree: Tree,
    now: Now,
    /// Where persons and groups are looked up; `None` for filters on the rows of events alone.
    subjects: Option<Arc<Subjects>>,
    needles: Vec<KeyFinder>,
    properties: Wanted,
    /// Names of the columns of a row.
    columns: Vec<&'static str>,
    asks_for_ids: bool,
    /// The properties of persons that filters look at, unless they may look at any.
    keys: Option<Vec<(Box<str>, Key)>>,
    /// Whether the filters hold for a person, where they ask of nothing else.
    answers: Option<PersonAnswers>,
}

/// Persons and groups that were looked up. The rows of a batch often have few.
#[derive(Default)]
struct Known {
    persons: HashMap<String, Option<Subject>>,
    /// How many distinct ids these persons have.
    ids: usize,
    /// By the index of their type.
    groups: [HashMap<String, Option<Group>>; GROUP_TYPES_MAX],
}

impl Known {
    fn group(&self, index: u8, key: &str) -> Option<&Group> {
        self.groups.get(usize::from(index))?.get(key)?.as_ref()
    }
}

impl Known {
    /// Keeps a person, and forgets the others if they have too many distinct ids together.
    fn add_person(&mut self, id: &str, person: Option<Subject>) {
        let ids = person.as_ref().map_or(0, |person| person.ids.len());
        self.ids = self.ids.saturating_add(ids);
        if self.ids > IDS_MAX {
            self.persons.clear();
            self.ids = ids;
        }
        self.persons.insert(id.to_owned(), person);
    }
}

/// A person, and its distinct ids where filters ask for them.
struct Subject {
    person: Person,
    ids: Vec<String>,
}

/// A row that is asked.
struct Row<'r> {
    columns: &'r [ArrayRef],
    at: usize,
    /// Those of its properties that filters look at.
    event: Map<String, Value>,
    person: Option<&'r Subject>,
    known: &'r Known,
}

fn failed(error: IdentityError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

impl Matches {
    fn new(tree: Tree, subjects: Arc<Subjects>) -> Self {
        let now = subjects.now;
        if is_of_events(&tree) {
            return Self::of_rows(tree, now);
        }
        Self {
            answers: is_of_persons(&tree).then(|| PersonAnswers::new(&subjects.memory)),
            asks_for_ids: tree.filters().into_iter().any(asks_for_ids),
            keys: keys_of_persons(&tree),
            subjects: Some(subjects),
            ..Self::of_rows(tree, now)
        }
    }

    /// Filters on the rows of events.
    fn of_rows(tree: Tree, now: Now) -> Self {
        Self {
            needles: needles(&tree),
            properties: Wanted::of(&tree),
            columns: columns(&tree),
            answers: None,
            asks_for_ids: false,
            keys: None,
            tree,
            now,
            subjects: None,
        }
    }

    /// The function of the columns that the filters look at.
    fn function(self) -> ScalarUDF {
        let data_type = |name: &&str| match *name {
            "timestamp" => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            _ => DataType::Utf8View,
        };
        let types = self.columns.iter().map(data_type).collect();
        let (pace, own) = (self.pace(), Arc::new(self));
        let about = About { content: own.content(), ..About::default() };
        let test = move |columns: &[ArrayRef], call: Call<'_>| own.keep(columns, call);
        condition::function(about, NAME, types, pace, test)
    }

    fn pace(&self) -> Pace {
        let asks_for_cohorts = |filter: &Filter| matches!(filter, Filter::Cohort { .. });
        // Their rules are not at hand, and may have patterns.
        match self.tree.filters().into_iter().any(asks_for_cohorts) {
            true => Pace::Slow(Watched::new(self.tree.patterns())),
            false => Pace::with(self.tree.patterns(), Pace::Steady),
        }
    }

    /// Whether filters that ask of persons alone hold for one.
    fn keep_person(
        &self,
        view: &View,
        row: &weir_identity::row::Row<'_>,
        call: Call<'_>,
    ) -> Result<bool, DataFusionError> {
        call.check()?;
        let ids = match self.subjects.as_ref().filter(|_| self.asks_for_ids) {
            Some(own) => view.first_ids(own.project, row.number, IDS_MAX).map_err(failed)?,
            None => Vec::new(),
        };
        let person = self.person_of(row).map_err(failed)?;
        Ok(self.holds_for(Some(&Subject { person, ids })))
    }

    fn keep(&self, columns: &[ArrayRef], call: Call<'_>) -> Result<BooleanArray, DataFusionError> {
        match &self.answers {
            Some(answers) => self.keep_persons(columns, call, answers),
            None => self.keep_rows(columns, call),
        }
    }

    /// The rows of persons for whom the filters hold.
    fn keep_persons(
        &self,
        columns: &[ArrayRef],
        call: Call<'_>,
        answers: &PersonAnswers,
    ) -> Result<BooleanArray, DataFusionError> {
        let ids = self.texts(columns, PERSON);
        let ids: Vec<Uuid> =
            ids.map(|id| id.and_then(|id| Uuid::try_parse(id).ok()).unwrap_or_default()).collect();
        let known = answers.get(&ids);
        let mut found: HashMap<Uuid, bool> = HashMap::new();
        for (id, _) in ids.iter().zip(&known).filter(|(_, answer)| answer.is_none()) {
            if found.contains_key(id) {
                continue;
            }
            call.check()?;
            found.insert(*id, self.holds_for(self.person(*id).map_err(failed)?.as_ref()));
        }
        let kept =
            ids.iter().zip(known).map(|(id, answer)| answer.or_else(|| found.get(id).copied()));
        let kept: Vec<bool> = kept.map(|answer| answer.unwrap_or(false)).collect();
        answers.add_looked_up(found.into_iter(), |first, max| self.read(first, max, call))?;
        Ok(BooleanArray::from(kept))
    }

    /// Whether filters that ask of nothing else hold for a person.
    fn holds_for(&self, person: Option<&Subject>) -> bool {
        let (event, nobody) = (Map::new(), Known::default());
        let row = Row { columns: &[], at: 0, event, person, known: &nobody };
        self.tree.holds(&mut |filter| self.holds(filter, &row))
    }

    /// The same for the persons with numbers from `first` on, at most so many, and the number behind them, if there are
    /// more.
    fn read(
        &self,
        first: i64,
        persons_max: usize,
        call: Call<'_>,
    ) -> Result<InARow, DataFusionError> {
        let mut read = InARow::default();
        // Distinct ids are looked up for each person anyway.
        let Some(subjects) = self.subjects.as_ref().filter(|_| !self.asks_for_ids) else {
            return Ok(read);
        };
        let Subjects { view, project, .. } = &**subjects;
        let mut ended = Ok(());
        let scanned = view.scan_rows(*project, first..i64::MAX, |row| {
            ended = call.check();
            if ended.is_err() {
                return Ok(Flow::Break(()));
            }
            if read.answers.len() >= persons_max {
                read.next = Some(row.number);
                return Ok(Flow::Break(()));
            }
            let subject = Subject { person: self.person_of(row)?, ids: Vec::new() };
            read.answers.push((row.uuid, self.holds_for(Some(&subject))));
            Ok(Flow::Continue(()))
        });
        scanned.map_err(failed)?;
        ended.map(|()| read)
    }

    /// The person of a row, with the properties that filters look at.
    fn person_of(&self, row: &weir_identity::row::Row<'_>) -> Result<Person, IdentityError> {
        let Some(keys) = &self.keys else { return row.person() };
        let mut properties = Map::new();
        for (name, key) in keys {
            if let Some(value) = row.property(key) {
                properties.insert(name.to_string(), weir_identity::row::value(value)?);
            }
        }
        Ok(Person {
            number: row.number,
            uuid: row.uuid,
            created_at: row.created_at,
            properties,
            is_identified: row.is_identified,
            version: row.version,
            changed_sequence: row.changed_sequence,
        })
    }

    fn keep_rows(
        &self,
        columns: &[ArrayRef],
        call: Call<'_>,
    ) -> Result<BooleanArray, DataFusionError> {
        let mut known = Known::default();
        let filters = self.tree.filters();
        let is_of_persons = filters.iter().copied().any(asks_for_person);
        let groups = filters.iter().filter_map(|filter| match filter {
            Filter::Property { scope: Scope::Group(index), .. } => *index,
            _ => None,
        });
        let groups: BTreeSet<u8> = groups.collect();
        let rows = columns.first().map_or(0, |column| column.len());
        let mut kept = Vec::with_capacity(rows);
        for at in 0..rows {
            call.check()?;
            let text = self.text(columns, at, PROPERTIES).unwrap_or("{}");
            if !self.needles.iter().all(|needle| needle.may_be_in(text.as_bytes())) {
                kept.push(false);
                continue;
            }
            let person = self.text(columns, at, PERSON).unwrap_or_default();
            if is_of_persons && !known.persons.contains_key(person) {
                let found = Uuid::try_parse(person).ok().map(|id| self.person(id)).transpose();
                let found = found.map_err(failed)?;
                known.add_person(person, found.flatten());
            }
            for index in &groups {
                let key = self.group_key(columns, at, *index);
                self.look_up_group(&mut known, *index, key).map_err(failed)?;
            }
            let event = self.properties.read(text);
            let person = known.persons.get(person).and_then(Option::as_ref);
            let row = Row { columns, at, event, person, known: &known };
            kept.push(self.tree.holds(&mut |filter| self.holds(filter, &row)));
        }
        Ok(BooleanArray::from(kept))
    }

    /// Whether a filter holds for an event, its person and its groups, if it has such.
    fn holds(&self, filter: &Filter, row: &Row<'_>) -> bool {
        let now = self.now;
        match filter {
            Filter::Property { scope: Scope::Event, predicate } => {
                predicate.matches(&row.event, now)
            }
            Filter::Property { scope: Scope::EventMetadata, predicate } => {
                predicate.matches_value(self.metadata(row, &predicate.key).as_ref(), now)
            }
            Filter::Property { scope: Scope::Person, predicate } => {
                let person = row.person.map(|own| &own.person);
                let value = person.and_then(|person| person.properties.get(&*predicate.key));
                predicate.matches_value(value, now)
            }
            filter @ Filter::Property { predicate, .. } if asks_for_ids(filter) => {
                let ids = row.person.map(|own| own.ids.as_slice()).unwrap_or_default();
                let holds =
                    |id: &String| predicate.matches_value(Some(&Value::from(id.as_str())), now);
                match predicate.test {
                    Test::IsNot(_) | Test::NotSet => ids.iter().all(holds),
                    _ => ids.iter().any(holds),
                }
            }
            Filter::Property { scope: Scope::PersonMetadata, predicate } => {
                let person = row.person.map(|own| &own.person);
                let value = person.and_then(|own| {
                    place_value(&predicate.key, own.uuid, own.created_at, own.is_identified)
                });
                predicate.matches_value(value.as_ref(), now)
            }
            Filter::Property { scope: Scope::Group(Some(index)), predicate } => {
                let key = self.group_key(row.columns, row.at, *index);
                if &*predicate.key == GROUP_KEY {
                    return predicate.matches_value(key.map(Value::from).as_ref(), now);
                }
                let group = key.and_then(|key| row.known.group(*index, key));
                let value = group.and_then(|group| group.properties.get(&*predicate.key));
                predicate.matches_value(value, now)
            }
            Filter::Cohort { id, membership } => {
                let is_in = self.subjects.as_ref().zip(row.person).is_some_and(|(own, subject)| {
                    let in_cohort = own.in_cohort.as_ref();
                    in_cohort.is_some_and(|is_in| is_in(&own.view, *id, &subject.person))
                });
                membership.accepts(is_in)
            }
            // Those of sessions are asked of columns.
            Filter::Property {
                scope: Scope::Group(None) | Scope::Session | Scope::Expression,
                ..
            }
            | Filter::Flag { .. } => false,
        }
    }

    /// A part of the row itself.
    fn metadata(&self, row: &Row<'_>, key: &str) -> Option<Value> {
        let name = metadata_column(key)?;
        let column = self.column(row.columns, name)?;
        match column.as_primitive_opt::<TimestampMicrosecondType>() {
            Some(times) => Some(Value::from(UnixMicros(times.value(row.at)).to_rfc3339())),
            None => self.text(row.columns, row.at, name).map(Value::from),
        }
    }

    fn column<'c>(&self, columns: &'c [ArrayRef], name: &str) -> Option<&'c ArrayRef> {
        columns.get(self.columns.iter().position(|own| *own == name)?)
    }

    fn text<'c>(&self, columns: &'c [ArrayRef], at: usize, name: &str) -> Option<&'c str> {
        let texts = self.column(columns, name)?.as_string_view_opt()?;
        texts.is_valid(at).then(|| texts.value(at))
    }

    fn group_key<'c>(&self, columns: &'c [ArrayRef], at: usize, index: u8) -> Option<&'c str> {
        self.text(columns, at, GROUPS.get(usize::from(index))?)
    }

    fn texts<'c>(
        &self,
        columns: &'c [ArrayRef],
        name: &str,
    ) -> impl Iterator<Item = Option<&'c str>> + use<'c> {
        let texts = self.column(columns, name).and_then(|column| column.as_string_view_opt());
        texts.into_iter().flatten()
    }

    /// A person, if there is one with this id.
    fn person(&self, id: Uuid) -> Result<Option<Subject>, IdentityError> {
        let Some(subjects) = &self.subjects else { return Ok(None) };
        let Subjects { view, project, .. } = &**subjects;
        let Some(person) = view.person_by_uuid(*project, id)? else { return Ok(None) };
        let ids = match self.asks_for_ids {
            true => view.first_ids(*project, person.number, IDS_MAX)?,
            false => Vec::new(),
        };
        Ok(Some(Subject { person, ids }))
    }

    fn look_up_group(
        &self,
        known: &mut Known,
        index: u8,
        key: Option<&str>,
    ) -> Result<(), IdentityError> {
        if let (Some(key), Some(groups)) = (key, known.groups.get_mut(usize::from(index)))
            && let Some(subjects) = &self.subjects
            && !groups.contains_key(key)
        {
            let group = subjects.view.group(subjects.project, index, key)?;
            groups.insert(key.to_owned(), group);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
