//! `POST persons/:id/split/`: takes merges back. Every distinct id of the person but one gets a
//! person of its own, without properties; the person keeps its number and its properties, as newer
//! versions of PostHog have it (older ones cleared them if no id was named).
//!
//! The operation goes through the log like an event: it has its place among them, and survives a
//! crash as they do. The answer comes when it has taken effect.

use hyper::StatusCode;
use serde_json::Value;

use crate::app::App;
use crate::error::Kind;
use crate::http::auth::Principal;
use crate::http::call::Call;
use crate::http::fields::Fields;
use crate::http::request::Request;
use crate::http::response::Attr;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::routes::persons;
use crate::http::routes::persons::body::PersonBody;
use crate::http::routes::persons::changes;
use crate::ingest::operation::Action;

/// Splits a person. The body may name `main_distinct_id`, the id that the person keeps.
pub async fn split(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let project = call.asker.project.id;
    let (person, ids) = persons::find_one(app, project, call.id()).await?;
    let Call { asker, request, .. } = call;
    let main_distinct_id = main_distinct_id(request).await?;
    if let Some(main) = main_distinct_id.as_ref().filter(|main| !ids.contains(*main)) {
        let detail = format!("The person has no distinct id \"{main}\".");
        return Err(invalid(detail));
    }
    let person_uuid = person.uuid.to_string();
    let action = Action::SplitPerson { person: person_uuid, main_distinct_id };
    changes::operate(app, project, action).await?;
    let (person, ids) = persons::find_one(app, project, &person.number.to_string()).await?;
    let body = PersonBody::retrieved(&asker.project, person, ids).succeeded();
    Ok(Response::json(StatusCode::CREATED, &body))
}

async fn main_distinct_id(request: Request) -> Result<Option<String>, Problem> {
    let mut fields = Fields::read(request).await?;
    match fields.nullable_value("main_distinct_id").flatten() {
        None => Ok(None),
        Some(Value::String(id)) => Ok(Some(id)),
        Some(_) => Err(invalid("Not a valid string.".to_owned())),
    }
}

fn invalid(detail: String) -> Problem {
    Problem::new(Kind::Invalid, "invalid_input", detail)
        .with_attr(Attr::Name("main_distinct_id".into()))
}
