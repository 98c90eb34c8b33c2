//! The filters of a list of persons, from the query of its request to a [`PersonsQuestion`].

use serde_json::Value;
use serde_json::json;
use uuid::Uuid;

use crate::clock::UnixMicros;
use crate::event::json;
use crate::event::predicate::Matching;
use crate::event::predicate::filter::Filter;
use crate::event::predicate::filter::Scope;
use crate::event::predicate::moment::Moment;
use crate::event::predicate::tree::Tree;
use crate::event::predicate::tree::TreeError;
use crate::http::fields;
use crate::http::request::Request;
use crate::http::response::Problem;
use crate::http::routes::definition_questions::boolean;
use crate::query::people::PersonsQuestion;

/// Reads the filters. An empty one counts as absent.
pub(super) fn read(request: &Request) -> Result<PersonsQuestion, Problem> {
    let text = |name: &str| {
        request.query(name).filter(|text| !text.is_empty()).map(std::borrow::Cow::into_owned)
    };
    let cohort = text("cohort")
        .map(|id| id.parse().map_err(|_| wrong("cohort", "A valid integer is required.")));
    let filters = text("properties").map(|json| properties(&json)).transpose()?;
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

/// The time after which the persons wanted have changed, if one is asked for: a date and time, or a span
/// back from now.
pub(super) fn updated_after(
    request: &Request,
    now: UnixMicros,
) -> Result<Option<UnixMicros>, Problem> {
    const NAME: &str = "updated_after";
    let Some(text) = request.query(NAME).filter(|text| !text.is_empty()) else { return Ok(None) };
    let time = Moment::parse(&text).and_then(|moment| moment.resolve(now));
    let wrong = || wrong(NAME, "Expected a date and time, or a span such as -7d.");
    time.map(Some).ok_or_else(wrong)
}

/// The items of a list with commas between.
fn items(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|item| !item.is_empty())
}

/// Who is identified, or who is not.
fn is_identified(wanted: bool) -> Result<Tree, Problem> {
    let filter = json!([{"key": "is_identified", "type": "person_metadata", "value": wanted}]);
    Tree::parse(&filter, "person", Matching::Legacy).map_err(|error| refused(&error))
}

/// Filters on the properties of persons.
fn properties(text: &str) -> Result<Tree, Problem> {
    let sent: Value = json::read(text.as_bytes()).map_err(|_| refused(&TreeError::Malformed))?;
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
    Ok(tree)
}

/// The answer to filters that cannot be read.
pub(super) fn refused(error: &TreeError) -> Problem {
    wrong("properties", error.to_string())
}

fn wrong(name: &'static str, detail: impl Into<std::borrow::Cow<'static, str>>) -> Problem {
    fields::refused(name, "invalid_input", detail)
}
