//! `POST persons/:id/split/`: undoes merges. Every distinct id that the person does not keep becomes a separate person
//! without properties. The person keeps its number and its properties, as in newer versions of PostHog (older ones
//! cleared them if the request named no id).
//!
//! The operation goes through the log like an event: it is ordered among the events and survives a
//! crash. The response is sent when it has taken effect.

use std::collections::{BTreeSet, HashSet};

use serde_json::{Value, json};

use crate::auth::Principal;
use crate::body::{Field, body};
use crate::fields::{Fields, refused};
use crate::operation::input::input;
use crate::operation::output::Created;
use crate::operation::{Context, Operation};
use crate::response::Problem;
use crate::routes::persons;
use crate::routes::persons::body::{retrieved, succeeded};
use crate::routes::persons::{changes, deletions};
use weir_api::persons as api;
use weir_base::error::Kind;
use weir_ingest::operation::Action;

const MAIN: &str = "main_distinct_id";
const LEAVING: &str = "distinct_ids_to_split";

/// A distinct id, with its white space. Null counts as absent.
#[derive(Debug)]
pub struct Main(String);

impl Field for Option<Main> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        match fields.nullable_value(name).flatten() {
            None => Ok(None),
            Some(Value::String(id)) => Ok(Some(Main(id))),
            Some(_) => Err(refused(name, "invalid_input", "Not a valid string.")),
        }
    }

    fn schema() -> Value {
        json!({"type": ["string", "null"]})
    }
}

/// Distinct ids, with their white space. Null counts as absent.
#[derive(Debug)]
pub struct Leaving(pub Vec<String>);

impl Field for Option<Leaving> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        let Some(list) = fields.nullable_value(name).flatten() else { return Ok(None) };
        let texts = list.as_array().and_then(|items| {
            items.iter().map(|item| item.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
        });
        let wrong = || refused(name, "invalid_input", "must be a list of strings");
        texts.map(|texts| Some(Leaving(texts))).ok_or_else(wrong)
    }

    fn schema() -> Value {
        json!({"type": ["array", "null"], "items": {"type": "string"}, "minItems": 1})
    }
}

/// A field that has no effect and is not read.
#[derive(Debug)]
pub struct Unread;

impl Field for Option<Unread> {
    fn take(_: &mut Fields, _: &'static str) -> Result<Self, Problem> {
        Ok(None)
    }

    fn schema() -> Value {
        json!({"type": "object"})
    }
}

body! {
    /// How a person is split.
    #[derive(Default)]
    pub struct Split {
        /// The id that the person keeps; the first if it is absent
        main_distinct_id: Option<Main>,
        /// Those that the person does not keep; not beside main_distinct_id
        distinct_ids_to_split: Option<Leaving>,
        /// Changes nothing.
        properties: Option<Unread>,
    }
}

input! {
    /// Splits a person.
    pub struct Perform {
        path id: String,
        body split: Split,
    }
}

impl Operation for Perform {
    type Who = Principal;
    type Out = Created<api::Person>;
    const SCOPE: &'static str = "person:write";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (app, project) = (&cx.app, &cx.who.project);
        let (person, ids) = persons::find_one(app, project.id, &self.id).await?;
        deletions::check_ids(app, project.id, &[(person.uuid, person.number)]).await?;
        let (main_distinct_id, distinct_ids_to_split) = wanted(self.split, &ids)?;
        let uuid = person.uuid.to_string();
        let action = Action::SplitPerson { person: uuid, main_distinct_id, distinct_ids_to_split };
        let is_whole = ids.len() == 1;
        let changed = changes::operate(app, &cx.who, action, 1).await?;
        let (person, ids) = match changed.contains(&person.number) {
            true => changes::find_again(app, project.id, &person).await?,
            false => persons::find_one(app, project.id, &person.number.to_string()).await?,
        };
        if !is_whole && !changed.contains(&person.number) {
            let detail = "The distinct ids of the person changed meanwhile. Look at them again.";
            return Err(Problem::new(Kind::Invalid, "invalid_input", detail));
        }
        Ok(Created(succeeded(retrieved(project, person, ids))))
    }
}

/// The id that the person keeps, or the ids that are split off.
fn wanted(split: Split, ids: &[String]) -> Result<(Option<String>, Option<Vec<String>>), Problem> {
    let Split { main_distinct_id, distinct_ids_to_split, properties: _unread } = split;
    let main = main_distinct_id.map(|Main(id)| id);
    if let Some(main) = main.as_ref().filter(|main| !ids.contains(main)) {
        let detail = format!("The person has no distinct id \"{main}\".");
        return Err(refused(MAIN, "invalid_input", detail));
    }
    let leaving = distinct_ids_to_split.map(|Leaving(texts)| leaving(texts, ids)).transpose()?;
    if main.is_some() && leaving.is_some() {
        let detail = "main_distinct_id cannot be combined with distinct_ids_to_split";
        return Err(Problem::new(Kind::Invalid, "invalid_input", detail));
    }
    Ok((main, leaving))
}

/// Validates the list by PostHog's rules. One id has to stay: a person without an id could not be reached.
fn leaving(texts: Vec<String>, ids: &[String]) -> Result<Vec<String>, Problem> {
    let refused = |detail: String| refused(LEAVING, "invalid_input", detail);
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
