//! Parses the filters of a list of persons: from the query of a request to a [`PersonsQuestion`].

use std::borrow::Cow;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::fields;
use crate::request::Request;
use crate::response::Problem;
use crate::routes::definition_parameters::boolean;
use weir_base::clock::UnixMicros;
use weir_event::json;
use weir_event::predicate::Matching;
use weir_event::predicate::filter::{Filter, Scope};
use weir_event::predicate::moment::{Moment, Now};
use weir_event::predicate::tree::{Tree, TreeError};
use weir_insights::known::check_filters;
use weir_query::persons::people::PersonsQuestion;

/// Parses the filters. An empty one counts as absent.
pub(super) fn read(request: &Request) -> Result<PersonsQuestion, Problem> {
    let text =
        |name: &str| request.query(name).filter(|text| !text.is_empty()).map(Cow::into_owned);
    let cohort = text("cohort")
        .map(|id| id.parse().map_err(|_| wrong("cohort", "A valid integer is required.")));
    let sent = request.query_all().filter(|(name, text)| name == "properties" && !text.is_empty());
    let filters = properties(sent.map(|(_, text)| text))?;
    let identified = boolean(request, "is_identified")?.map(is_identified).transpose()?;
    let trees: Vec<Tree> = filters.into_iter().chain(identified).collect();
    let number = |text: &str| text.parse().map_err(|_| wrong("id", "A valid integer is required."));
    let uuid =
        |text: &str| Uuid::try_parse(text).map_err(|_| wrong("uuid", "Must be a valid UUID."));
    Ok(PersonsQuestion {
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
    })
}

/// The time of `updated_after`, if the request has one: a date and time, or a duration before now.
/// Persons match that have changed since.
pub(super) fn updated_after(request: &Request, now: Now) -> Result<Option<UnixMicros>, Problem> {
    const NAME: &str = "updated_after";
    let Some(text) = request.query(NAME).filter(|text| !text.is_empty()) else { return Ok(None) };
    let time = Moment::parse(&text).and_then(|moment| moment.resolve(now));
    let wrong = || wrong(NAME, "Expected a date and time, or a span such as -7d.");
    time.map(Some).ok_or_else(wrong)
}

/// The items of a list with commas.
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
