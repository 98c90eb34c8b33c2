//! The filters of a list of persons, from the query of its request to a [`PersonsQuestion`].

use serde_json::Value;

use crate::event::json;
use crate::event::predicate::Matching;
use crate::event::predicate::filter::Filter;
use crate::event::predicate::filter::Scope;
use crate::event::predicate::tree::Tree;
use crate::event::predicate::tree::TreeError;
use crate::http::fields;
use crate::http::request::Request;
use crate::http::response::Problem;
use crate::query::people::PersonsQuestion;

/// Reads the filters. An empty one counts as absent.
pub(super) fn read(request: &Request) -> Result<PersonsQuestion, Problem> {
    let text = |name: &str| {
        request.query(name).filter(|text| !text.is_empty()).map(std::borrow::Cow::into_owned)
    };
    let cohort = text("cohort")
        .map(|id| id.parse().map_err(|_| wrong("cohort", "A valid integer is required.")));
    Ok(PersonsQuestion {
        distinct_id: text("distinct_id"),
        email: text("email"),
        search: text("search"),
        properties: text("properties").map(|json| properties(&json)).transpose()?,
        cohort: cohort.transpose()?,
        in_cohort: None,
    })
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
