//! The filters of a list of persons, [`Filters`]: parses the query string of a request into a [`PersonsQuestion`].

use std::borrow::Cow;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::fields;
use crate::openapi::{Parameter, Shape};
use crate::operation::input::InQuery;
use crate::request::Request;
use crate::response::Problem;
use crate::routes::definition_parameters::boolean;
use weir_api::nodes::check::check_filters;
use weir_base::clock::UnixMicros;
use weir_event::json;
use weir_event::predicate::Matching;
use weir_event::predicate::filter::{Filter, Scope};
use weir_event::predicate::moment::{Moment, Now};
use weir_event::predicate::tree::{Tree, TreeError};
use weir_query::persons::people::PersonsQuestion;

/// The filters of a list of persons. An empty parameter counts as absent.
#[derive(Debug, Default)]
pub struct Filters {
    pub(super) question: PersonsQuestion,
    /// `updated_after`: a date and time, or a duration before now. Persons match that have changed since.
    updated_after: Option<String>,
}

impl Filters {
    /// The person with a distinct id.
    pub(in crate::routes) fn of_distinct_id(id: &str) -> Self {
        let distinct_id = Some(id.to_owned());
        let question = PersonsQuestion { distinct_id, ..PersonsQuestion::default() };
        Self { question, ..Self::default() }
    }

    /// Persons that match a search and filters on properties, a JSON text; empty texts match all.
    ///
    /// # Errors
    ///
    /// 400 for invalid filters.
    pub(in crate::routes) fn of_search(search: &str, filters: &str) -> Result<Self, Problem> {
        let filters = Some(filters).filter(|text| !text.is_empty()).map(Cow::Borrowed);
        let search = Some(search.to_owned()).filter(|text| !text.is_empty());
        let properties = properties(filters.into_iter())?.map(|own| Tree::All(vec![own]));
        let question = PersonsQuestion { search, properties, ..PersonsQuestion::default() };
        Ok(Self { question, ..Self::default() })
    }

    /// The lower bound of `updated_after`.
    pub(super) fn changed_after(&self, now: Now) -> Result<Option<UnixMicros>, Problem> {
        let Some(text) = &self.updated_after else { return Ok(None) };
        let time = Moment::parse(text).and_then(|moment| moment.resolve(now));
        let wrong = || wrong("updated_after", "Expected a date and time, or a span such as -7d.");
        time.map(Some).ok_or_else(wrong)
    }
}

impl InQuery for Filters {
    fn describe(_: &'static str, _: &'static str, shape: &mut Shape) {
        shape.query.extend([
            Parameter::shared("distinct_id"),
            Parameter::text("email"),
            Parameter::shared("search"),
            Parameter::texts("properties")
                .about("A JSON list of property filters; may be repeated, and all have to hold"),
            Parameter::integer("cohort"),
            Parameter::text("id").about("Numbers with commas between"),
            Parameter::text("uuid").about("Uuids with commas between"),
            Parameter::text("key_identifier").about("The email or a distinct id"),
            Parameter::boolean("is_identified"),
            Parameter::text("updated_after")
                .about("A date and time, or a span such as -7d; to the minute"),
        ]);
    }

    fn take(request: &Request, _: &'static str) -> Result<Self, Problem> {
        let text =
            |name: &str| request.query(name).filter(|text| !text.is_empty()).map(Cow::into_owned);
        let cohort = text("cohort")
            .map(|id| id.parse().map_err(|_| wrong("cohort", "A valid integer is required.")));
        let sent = request.query_all();
        let sent = sent.filter(|(name, text)| name == "properties" && !text.is_empty());
        let filters = properties(sent.map(|(_, text)| text))?;
        let identified = boolean(request, "is_identified")?.map(is_identified).transpose()?;
        let trees: Vec<Tree> = filters.into_iter().chain(identified).collect();
        let number =
            |text: &str| text.parse().map_err(|_| wrong("id", "A valid integer is required."));
        let uuid =
            |text: &str| Uuid::try_parse(text).map_err(|_| wrong("uuid", "Must be a valid UUID."));
        let question = PersonsQuestion {
            distinct_id: text("distinct_id"),
            email: text("email"),
            search: text("search"),
            properties: (!trees.is_empty()).then_some(Tree::All(trees)),
            cohort: cohort.transpose()?,
            numbers: text("id").map(|ids| items(&ids).map(number).collect()).transpose()?,
            uuids: text("uuid").map(|ids| items(&ids).map(uuid).collect()).transpose()?,
            key_identifier: text("key_identifier"),
            changed_since: None,
            in_cohort: None,
        };
        Ok(Self { question, updated_after: text("updated_after") })
    }
}

/// The items of a list separated by commas.
fn items(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|item| !item.is_empty())
}

/// A filter on whether persons are identified.
fn is_identified(wanted: bool) -> Result<Tree, Problem> {
    let filter = json!([{"key": "is_identified", "type": "person_metadata", "value": wanted}]);
    Tree::parse(&filter, "person", Matching::Legacy).map_err(|error| refused(&error))
}

/// Filters on the properties of persons. The parameter may be repeated: each value is a list of filters,
/// or one filter, and all of them have to match.
fn properties<'t>(sent: impl Iterator<Item = Cow<'t, str>>) -> Result<Option<Tree>, Problem> {
    let lists: Result<Vec<Value>, _> = sent.map(|text| json::read(text.as_bytes())).collect();
    let mut lists = lists.map_err(|_| refused(&TreeError::Malformed))?;
    // Parsed as one tree, so that the limits apply to all of them together.
    let sent = match lists.len() {
        0 => return Ok(None),
        1 => lists.swap_remove(0),
        _ => Value::Array(lists),
    };
    check_filters(&sent, "properties").map_err(|error| wrong("properties", error.detail))?;
    let tree = Tree::parse(&sent, "person", Matching::Legacy).map_err(|error| refused(&error))?;
    for filter in tree.filters() {
        match filter {
            Filter::Property { scope: Scope::Person | Scope::PersonMetadata, .. }
            | Filter::Cohort { .. } => {}
            Filter::Property { .. } | Filter::Flag { .. } => {
                let detail = "Persons can be filtered by person properties and cohorts only.";
                return Err(wrong("properties", detail));
            }
        }
    }
    Ok(Some(tree))
}

/// The response to filters that cannot be parsed.
pub(super) fn refused(error: &TreeError) -> Problem {
    wrong("properties", error.to_string())
}

fn wrong(name: &'static str, detail: impl Into<Cow<'static, str>>) -> Problem {
    fields::refused(name, "invalid_input", detail)
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use serde_json::json;

    use super::properties;

    #[test]
    fn repeated_filters_share_one_limit() {
        let list = |filters: usize| json!(vec![json!({"key": "a", "value": 1}); filters]);
        let count = |lists: &[usize]| {
            let texts: Vec<String> = lists.iter().map(|len| list(*len).to_string()).collect();
            let tree = properties(texts.iter().map(|text| Cow::Borrowed(text.as_str())));
            tree.map(|tree| tree.map(|tree| tree.filters().len()))
        };
        assert_eq!(count(&[]).unwrap(), None);
        assert_eq!(count(&[600]).unwrap(), Some(600));
        assert_eq!(count(&[600, 400]).unwrap(), Some(1000));
        assert!(count(&[600, 401]).is_err());
    }
}
