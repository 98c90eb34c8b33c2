//! `matches_filters(properties, person_id)`: a tree of filters as a function of a plan. It asks the
//! same predicates as flags do, so both always agree.

use std::collections::HashMap;

use arrow::array::Array;
use arrow::array::AsArray;
use arrow::array::BooleanArray;
use arrow::array::StringViewArray;
use arrow::datatypes::DataType;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::Expr;
use serde_json::Map;
use serde_json::Value;
use uuid::Uuid;

use crate::clock::UnixMicros;
use crate::event::id::ProjectId;
use crate::event::json;
use crate::event::predicate::filter::Filter;
use crate::event::predicate::filter::Membership;
use crate::event::predicate::filter::Scope;
use crate::event::predicate::tree::Tree;
use crate::identity::IdentityError;
use crate::identity::person::Person;
use crate::identity::view::View;
use crate::query::condition;
use crate::query::people::InCohort;
use crate::query::people::search::place_value;

/// What rows are asked.
pub(super) struct Filters {
    pub(super) tree: Tree,
    pub(super) project: ProjectId,
    /// Persons, for filters on them.
    pub(super) persons: View,
    /// Answers for cohorts; without it nobody is in one.
    pub(super) in_cohort: Option<InCohort>,
    pub(super) now: UnixMicros,
}

/// The condition that the filters hold for an event and its person as of now.
pub(super) fn condition(filters: Filters) -> Expr {
    let keys = filters.tree.filters();
    let is_of_event =
        |filter: &&Filter| matches!(filter, Filter::Property { scope: Scope::Event, .. });
    // A text that stands in the JSON of every row that matches.
    let needles = if keys.iter().all(is_of_event) {
        let quoted = |key: &str| Value::from(key).to_string();
        filters
            .tree
            .required_keys()
            .into_iter()
            .map(quoted)
            .filter(|key| !key.contains('\\'))
            .collect()
    } else {
        Vec::new()
    };
    let matches = Matches { filters, needles };
    let columns = [("properties", DataType::Utf8View), ("person_id", DataType::Utf8View)];
    condition::condition("matches_filters", &columns, move |columns| {
        let [properties, persons] = columns else {
            let wrong = "matches_filters takes two arguments";
            return Err(DataFusionError::Internal(wrong.to_owned()));
        };
        let kept = matches.keep(properties.as_string_view(), persons.as_string_view());
        kept.map_err(|error| DataFusionError::External(Box::new(error)))
    })
}

struct Matches {
    filters: Filters,
    needles: Vec<String>,
}

impl Matches {
    fn keep(
        &self,
        properties: &StringViewArray,
        persons: &StringViewArray,
    ) -> Result<BooleanArray, IdentityError> {
        // The rows of a batch often have few persons.
        let mut known: HashMap<&str, Option<Person>> = HashMap::new();
        let filters = self.filters.tree.filters();
        let asks_for_person = filters
            .into_iter()
            .any(|filter| !matches!(filter, Filter::Property { scope: Scope::Event, .. }));
        let mut kept = Vec::with_capacity(properties.len());
        for (properties, person) in properties.iter().zip(persons.iter()) {
            let text = properties.unwrap_or("{}");
            if !self.needles.iter().all(|needle| text.contains(needle.as_str())) {
                kept.push(false);
                continue;
            }
            let person = person.unwrap_or_default();
            if asks_for_person && !known.contains_key(person) {
                known.insert(person, self.person(person)?);
            }
            let event: Map<String, Value> = json::read(text.as_bytes()).unwrap_or_default();
            let person = known.get(person).and_then(Option::as_ref);
            kept.push(self.filters.tree.holds(&mut |filter| self.holds(filter, &event, person)));
        }
        Ok(BooleanArray::from(kept))
    }

    /// Whether a filter holds for an event and its person, if it has one.
    fn holds(&self, filter: &Filter, event: &Map<String, Value>, person: Option<&Person>) -> bool {
        let now = self.filters.now;
        match filter {
            Filter::Property { scope: Scope::Event, predicate } => predicate.matches(event, now),
            Filter::Property { scope: Scope::Person, predicate } => {
                let value = person.and_then(|person| person.properties.get(&*predicate.key));
                predicate.matches_value(value, now)
            }
            Filter::Property { scope: Scope::PersonMetadata, predicate } => {
                let place = person.map(|own| (own.uuid, own.created_at, own.is_identified));
                let value = place.and_then(|place| place_value(&predicate.key, place));
                predicate.matches_value(value.as_ref(), now)
            }
            Filter::Cohort { id, membership } => {
                let (view, in_cohort) = (&self.filters.persons, self.filters.in_cohort.as_ref());
                let is_in = in_cohort.zip(person).is_some_and(|(is_in, own)| is_in(view, *id, own));
                is_in == (*membership == Membership::In)
            }
            Filter::Property { .. } | Filter::Flag { .. } => false,
        }
    }

    /// A person, if there is one with this id.
    fn person(&self, id: &str) -> Result<Option<Person>, IdentityError> {
        let Ok(uuid) = Uuid::try_parse(id) else { return Ok(None) };
        self.filters.persons.person_by_uuid(self.filters.project, uuid)
    }
}
