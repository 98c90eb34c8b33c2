//! `matches_filters(properties, person_id, ...)`: a tree of filters as a function of a plan. It asks the
//! same predicates as flags do, so both always agree.

use std::collections::BTreeSet;
use std::collections::HashMap;

use arrow::array::Array;
use arrow::array::ArrayRef;
use arrow::array::AsArray;
use arrow::array::BooleanArray;
use arrow::datatypes::DataType;
use arrow::datatypes::TimeUnit;
use arrow::datatypes::TimestampMicrosecondType;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::Expr;
use serde_json::Map;
use serde_json::Value;
use uuid::Uuid;

use crate::clock::UnixMicros;
use crate::event::id::ProjectId;
use crate::event::json;
use crate::event::json_key::KeyFinder;
use crate::event::predicate::filter::Filter;
use crate::event::predicate::filter::Membership;
use crate::event::predicate::filter::Scope;
use crate::event::predicate::tree::Tree;
use crate::event::schema::GROUP_TYPES_MAX;
use crate::identity::IdentityError;
use crate::identity::person::Group;
use crate::identity::person::Person;
use crate::identity::view::View;
use crate::query::condition;
use crate::query::people::InCohort;
use crate::query::people::search::place_value;

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

/// The column of a part of an event's row, by the name that filters have for it.
pub fn metadata_column(key: &str) -> Option<&'static str> {
    METADATA.iter().find(|(name, _)| *name == key).map(|(_, column)| *column)
}

/// What rows are asked.
pub struct Filters {
    /// The filters.
    pub tree: Tree,
    /// The project of the rows.
    pub project: ProjectId,
    /// Persons and groups, for filters on them.
    pub view: View,
    /// Answers for cohorts; without it nobody is in one.
    pub in_cohort: Option<InCohort>,
    /// What relative dates are relative to.
    pub now: UnixMicros,
}

/// The condition that the filters hold for an event, and its person and groups as of now.
pub fn condition(filters: Filters) -> Expr {
    let matches =
        Matches { needles: needles(&filters.tree), columns: columns(&filters.tree), filters };
    let data_type = |name: &str| match name {
        "timestamp" => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        _ => DataType::Utf8View,
    };
    let columns: Vec<_> = matches.columns.iter().map(|name| (*name, data_type(name))).collect();
    condition::condition("matches_filters", &columns, move |columns| {
        matches.keep(columns).map_err(|error| DataFusionError::External(Box::new(error)))
    })
}

/// Keys that the properties of every row that matches have.
fn needles(tree: &Tree) -> Vec<KeyFinder> {
    let is_of_event =
        |filter: &&Filter| matches!(filter, Filter::Property { scope: Scope::Event, .. });
    if !tree.filters().iter().all(is_of_event) {
        return Vec::new();
    }
    tree.required_keys().into_iter().filter_map(KeyFinder::new).collect()
}

/// The columns that filters look at, each once.
fn columns(tree: &Tree) -> Vec<&'static str> {
    let mut columns = vec!["properties", "person_id"];
    for filter in tree.filters() {
        let column = match filter {
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
    columns
}

struct Matches {
    filters: Filters,
    needles: Vec<KeyFinder>,
    /// Names of the columns of a row.
    columns: Vec<&'static str>,
}

/// Persons and groups that were looked up. The rows of a batch often have few.
#[derive(Default)]
struct Known {
    persons: HashMap<String, Option<Person>>,
    /// By the index of their type.
    groups: [HashMap<String, Option<Group>>; GROUP_TYPES_MAX],
}

impl Known {
    fn group(&self, index: u8, key: &str) -> Option<&Group> {
        self.groups.get(usize::from(index))?.get(key)?.as_ref()
    }
}

/// A row that is asked.
struct Row<'r> {
    columns: &'r [ArrayRef],
    at: usize,
    /// Its properties, read.
    event: Map<String, Value>,
    person: Option<&'r Person>,
    known: &'r Known,
}

impl Matches {
    fn keep(&self, columns: &[ArrayRef]) -> Result<BooleanArray, IdentityError> {
        let mut known = Known::default();
        let filters = self.filters.tree.filters();
        let asks_for_person = filters.iter().any(|filter| {
            matches!(
                filter,
                Filter::Cohort { .. }
                    | Filter::Property { scope: Scope::Person | Scope::PersonMetadata, .. }
            )
        });
        let groups = filters.iter().filter_map(|filter| match filter {
            Filter::Property { scope: Scope::Group(index), .. } => *index,
            _ => None,
        });
        let groups: BTreeSet<u8> = groups.collect();
        let texts = |name: &str| {
            let texts = self.column(columns, name).and_then(|column| column.as_string_view_opt());
            texts.into_iter().flatten()
        };
        let rows = columns.first().map_or(0, |column| column.len());
        let mut kept = Vec::with_capacity(rows);
        for (at, (text, person)) in texts("properties").zip(texts("person_id")).enumerate() {
            let (text, person) = (text.unwrap_or("{}"), person.unwrap_or_default());
            if !self.needles.iter().all(|needle| needle.may_be_in(text.as_bytes())) {
                kept.push(false);
                continue;
            }
            if asks_for_person && !known.persons.contains_key(person) {
                known.persons.insert(person.to_owned(), self.person(person)?);
            }
            for index in &groups {
                self.look_up_group(&mut known, *index, self.group_key(columns, at, *index))?;
            }
            let event = json::read(text.as_bytes()).unwrap_or_default();
            let person = known.persons.get(person).and_then(Option::as_ref);
            let row = Row { columns, at, event, person, known: &known };
            kept.push(self.filters.tree.holds(&mut |filter| self.holds(filter, &row)));
        }
        Ok(BooleanArray::from(kept))
    }

    /// Whether a filter holds for an event, its person and its groups, if it has such.
    fn holds(&self, filter: &Filter, row: &Row<'_>) -> bool {
        let now = self.filters.now;
        match filter {
            Filter::Property { scope: Scope::Event, predicate } => {
                predicate.matches(&row.event, now)
            }
            Filter::Property { scope: Scope::EventMetadata, predicate } => {
                predicate.matches_value(self.metadata(row, &predicate.key).as_ref(), now)
            }
            Filter::Property { scope: Scope::Person, predicate } => {
                let value = row.person.and_then(|person| person.properties.get(&*predicate.key));
                predicate.matches_value(value, now)
            }
            Filter::Property { scope: Scope::PersonMetadata, predicate } => {
                let place = row.person.map(|own| (own.uuid, own.created_at, own.is_identified));
                let value = place.and_then(|place| place_value(&predicate.key, place));
                predicate.matches_value(value.as_ref(), now)
            }
            Filter::Property { scope: Scope::Group(Some(index)), predicate } => {
                let key = self.group_key(row.columns, row.at, *index);
                let group = key.and_then(|key| row.known.group(*index, key));
                let value = group.and_then(|group| group.properties.get(&*predicate.key));
                predicate.matches_value(value, now)
            }
            Filter::Cohort { id, membership } => {
                let (view, in_cohort) = (&self.filters.view, self.filters.in_cohort.as_ref());
                let person = in_cohort.zip(row.person);
                let is_in = person.is_some_and(|(is_in, own)| is_in(view, *id, own));
                is_in == (*membership == Membership::In)
            }
            Filter::Property { scope: Scope::Group(None), .. } | Filter::Flag { .. } => false,
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

    /// A person, if there is one with this id.
    fn person(&self, id: &str) -> Result<Option<Person>, IdentityError> {
        let Ok(uuid) = Uuid::try_parse(id) else { return Ok(None) };
        self.filters.view.person_by_uuid(self.filters.project, uuid)
    }

    fn look_up_group(
        &self,
        known: &mut Known,
        index: u8,
        key: Option<&str>,
    ) -> Result<(), IdentityError> {
        if let (Some(key), Some(groups)) = (key, known.groups.get_mut(usize::from(index)))
            && !groups.contains_key(key)
        {
            let group = self.filters.view.group(self.filters.project, index, key)?;
            groups.insert(key.to_owned(), group);
        }
        Ok(())
    }
}
