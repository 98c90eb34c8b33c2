//! `POST persons/:id/split/`: undoes merges. Every distinct id that the person does not keep becomes
//! a separate person without properties. The person keeps its number and its properties, as in newer
//! versions of PostHog (older ones cleared them if the request named no id).
//!
//! The operation goes through the log like an event: it is ordered among the events and survives a
//! crash. The response is sent when it has taken effect.

use std::collections::{BTreeSet, HashSet};

use hyper::StatusCode;
use serde_json::Value;

use crate::auth::Principal;
use crate::call::Call;
use crate::csv;
use crate::fields::{Fields, refused};
use crate::openapi::{Description, by_hand};
use crate::request::Request;
use crate::response::{Problem, Response};
use crate::routes::persons;
use crate::routes::persons::body::PersonBody;
use crate::routes::persons::{changes, deletions};
use weir_app::App;
use weir_base::error::Kind;
use weir_ingest::operation::Action;

const MAIN: &str = "main_distinct_id";
const LEAVING: &str = "distinct_ids_to_split";

pub(crate) const SPLIT: Description = Description::created::<PersonBody>(
    "Give every other distinct id, or some, a person of its own",
)
.optional_body::<by_hand::Split>();

/// Splits a person. The body may contain `main_distinct_id`, the id that the person keeps, or
/// `distinct_ids_to_split`, the ids that leave it.
pub async fn split(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let project = call.asker.project.id;
    let (person, ids) = persons::find_one(app, project, call.id()).await?;
    deletions::check_ids(app, project, &[(person.uuid, person.number)]).await?;
    let Call { asker, request, rendering, .. } = call;
    let (main_distinct_id, distinct_ids_to_split) = wanted(request, &ids).await?;
    let uuid = person.uuid.to_string();
    let action = Action::SplitPerson { person: uuid, main_distinct_id, distinct_ids_to_split };
    let is_whole = ids.len() == 1;
    let changed = changes::operate(app, &asker, action, 1).await?;
    let (person, ids) = match changed.contains(&person.number) {
        true => changes::find_again(app, project, &person).await?,
        false => persons::find_one(app, project, &person.number.to_string()).await?,
    };
    if !is_whole && !changed.contains(&person.number) {
        let detail = "The distinct ids of the person changed meanwhile. Look at them again.";
        return Err(Problem::new(Kind::Invalid, "invalid_input", detail));
    }
    let body = PersonBody::retrieved(&asker.project, person, ids).succeeded();
    csv::answer(&app.node.cpu, StatusCode::CREATED, rendering, body).await
}

/// The id that the person keeps, or the ids that leave it.
async fn wanted(
    request: Request,
    ids: &[String],
) -> Result<(Option<String>, Option<Vec<String>>), Problem> {
    let mut fields = Fields::read(request).await?;
    let main = match fields.nullable_value(MAIN).flatten() {
        None => None,
        Some(Value::String(main)) if ids.contains(&main) => Some(main),
        Some(Value::String(main)) => {
            let detail = format!("The person has no distinct id \"{main}\".");
            return Err(refused(MAIN, "invalid_input", detail));
        }
        Some(_) => return Err(refused(MAIN, "invalid_input", "Not a valid string.")),
    };
    let leaving = match fields.nullable_value(LEAVING).flatten() {
        None => None,
        Some(list) => Some(leaving(&list, ids)?),
    };
    if main.is_some() && leaving.is_some() {
        let detail = "main_distinct_id cannot be combined with distinct_ids_to_split";
        return Err(Problem::new(Kind::Invalid, "invalid_input", detail));
    }
    Ok((main, leaving))
}

/// Validates the list by PostHog's rules. One id has to stay: a person without an id could not be
/// reached.
fn leaving(list: &Value, ids: &[String]) -> Result<Vec<String>, Problem> {
    let refused = |detail: String| refused(LEAVING, "invalid_input", detail);
    let texts = list.as_array().and_then(|items| {
        items.iter().map(|item| item.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
    });
    let texts = texts.ok_or_else(|| refused("must be a list of strings".to_owned()))?;
    if texts.is_empty() {
        return Err(refused("must not be empty".to_owned()));
    }
    let (own, named): (HashSet<&String>, HashSet<&String>) =
        (ids.iter().collect(), texts.iter().collect());
    let unknown: BTreeSet<&String> = texts.iter().filter(|id| !own.contains(id)).collect();
    if !unknown.is_empty() {
        let unknown: Vec<String> = unknown.iter().map(|id| format!("'{id}'")).collect();
        return Err(refused(format!("not on this person: [{}]", unknown.join(", "))));
    }
    if own.is_subset(&named) {
        return Err(refused("must leave the person at least one distinct id".to_owned()));
    }
    Ok(texts)
}
