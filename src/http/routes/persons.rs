//! Persons, listed and retrieved. The list is a plan over the `persons` table; one person is a
//! look-up. What changes them is in the files below.

pub mod split;

use std::sync::Arc;

use arrow::array::AsArray;
use arrow::array::RecordBatch;
use arrow::datatypes::Int64Type;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::Expr;
use datafusion::prelude::DataFrame;
use datafusion::prelude::col;
use datafusion::prelude::lit;
use hyper::StatusCode;
use serde_json::Map;
use serde_json::Value;
use serde_json::json;
use uuid::Uuid;

use crate::app::App;
use crate::error::Kind;
use crate::event::id::ProjectId;
use crate::http::auth;
use crate::http::auth::Principal;
use crate::http::page::Page;
use crate::http::request::Request;
use crate::http::response::Attr;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::routes::query;
use crate::identity::person::Person;
use crate::metadata::accounts::Project;
use crate::query::QueryError;

/// Properties that name a person unless the project names others, in order.
const NAME_PROPERTIES: [&str; 7] =
    ["email", "Email", "name", "Name", "username", "Username", "UserName"];

/// `GET persons/`.
pub async fn list(app: &App, project: &str, request: Request) -> Result<Response, Problem> {
    let principal = principal(app, project, &request, "read")?;
    let page = Page::of(&request);
    let (count, persons) = find(app, &principal, &request, page).await.map_err(query::problem)?;
    let persons: Vec<Value> =
        persons.into_iter().map(|(person, ids)| body(&principal.project, person, ids)).collect();
    let public_url = app.config.http.public_url.as_deref();
    let envelope = page.envelope(&request, public_url, count, persons);
    Ok(Response::json(StatusCode::OK, &envelope))
}

/// `GET persons/:id/`, by number or uuid.
pub async fn retrieve(
    app: &App,
    project: &str,
    id: &str,
    request: Request,
) -> Result<Response, Problem> {
    let principal = principal(app, project, &request, "read")?;
    let (person, ids) = find_one(app, principal.project.id, id).await?;
    Ok(Response::json(StatusCode::OK, &body(&principal.project, person, ids)))
}

/// One person by number or uuid, as of every event acknowledged so far.
async fn find_one(app: &App, project: ProjectId, id: &str) -> Result<Found, Problem> {
    app.engine.wait().await.map_err(query::problem)?;
    let view = app.identities.view();
    let person = match (id.parse::<i64>(), Uuid::try_parse(id)) {
        (Ok(number), _) => view.person_by_number(project, number),
        (_, Ok(uuid)) => view.person_by_uuid(project, uuid),
        _ => return Err(not_an_id()),
    };
    let failed = |error: crate::identity::IdentityError| Problem::of(error.kind(), &error);
    let person = person.map_err(failed)?.ok_or_else(|| Problem::not_found("Not found."))?;
    let ids = view.distinct_ids(project, person.uuid).map_err(failed)?;
    Ok((person, ids))
}

/// Who asks, if the key may `read` or `write` persons.
fn principal(
    app: &App,
    project: &str,
    request: &Request,
    action: &str,
) -> Result<Principal, Problem> {
    let principal = auth::principal(&app.metadata.snapshot(), request, project)?;
    auth::require(&principal, "person", action)?;
    if let Some(format) = request.query("format").filter(|format| format != "json") {
        let detail = format!("\"{format}\" is not a format of persons.");
        return Err(Problem::new(Kind::NotFound, "not_found", detail));
    }
    Ok(principal)
}

fn not_an_id() -> Problem {
    let detail = "The ID provided does not look like a personID. If you are using a distinctId, \
                  please use /persons?distinct_id=<id> instead.";
    Problem::new(Kind::Invalid, "invalid_input", detail).with_attr(Attr::Null)
}

type Found = (Person, Vec<String>);

/// The persons of a page, and how many there are in all.
async fn find(
    app: &App,
    principal: &Principal,
    request: &Request,
    page: Page,
) -> Result<(usize, Vec<Found>), QueryError> {
    let project = principal.project.id;
    let view = app.engine.view(project).await?;
    let identities = app.identities.view();
    let mut persons = view.table("persons").await?;
    if let Some(distinct_id) = request.query("distinct_id") {
        let person = identities.person_of(project, &distinct_id)?;
        persons = persons.filter(is_one_of(person.map(|person| person.uuid)))?;
    }
    if let Some(email) = request.query("email") {
        persons = persons.filter(email_of_person().eq(lit(email.into_owned())))?;
    }
    if let Some(search) = request.query("search").filter(|search| !search.is_empty()) {
        let by_id = identities.person_of(project, &search)?.map(|person| person.uuid);
        let ids = by_id.into_iter().chain(Uuid::try_parse(&search).ok());
        let email = datafusion::functions::expr_fn::lower(email_of_person());
        let found = datafusion::functions::expr_fn::contains(email, lit(search.to_lowercase()));
        persons = persons.filter(found.or(is_one_of(ids)))?;
    }
    let all = persons.clone().aggregate(vec![], vec![count(lit(1)).alias("count")])?;
    let (_, counted) = app.engine.collect(all).await?;
    let rows = newest_first(persons, page)?;
    let (_, rows) = app.engine.collect(rows).await?;
    let mut found = Vec::new();
    for uuid in rows.iter().flat_map(uuids) {
        if let Some(person) = identities.person_by_uuid(project, uuid)? {
            found.push((person, identities.distinct_ids(project, uuid)?));
        }
    }
    Ok((first_number(&counted), found))
}

fn newest_first(persons: DataFrame, page: Page) -> Result<DataFrame, QueryError> {
    let order = vec![col("created_at").sort(false, false), col("uuid").sort(false, false)];
    let rows = persons.sort(order)?.limit(page.offset, Some(page.limit))?;
    Ok(rows.select(vec![col("uuid")])?)
}

fn email_of_person() -> Expr {
    datafusion_functions_json::functions::json_get_str(col("properties"), lit("email"))
}

fn is_one_of(ids: impl IntoIterator<Item = Uuid>) -> Expr {
    let ids = ids.into_iter().map(|id| lit(id.to_string())).collect();
    col("uuid").in_list(ids, false)
}

fn uuids(batch: &RecordBatch) -> Vec<Uuid> {
    let texts = batch.column_by_name("uuid").and_then(|column| column.as_string_view_opt());
    let texts = texts.into_iter().flat_map(|column| column.iter().flatten());
    texts.filter_map(|text| Uuid::try_parse(text).ok()).collect()
}

/// The one number of an aggregate without groups.
pub(super) fn first_number(batches: &[RecordBatch]) -> usize {
    let column = batches.first().and_then(|batch| batch.columns().first());
    let numbers = column.and_then(|column| column.as_primitive_opt::<Int64Type>());
    let number = numbers.and_then(|numbers| numbers.values().first().copied());
    number.and_then(|number| usize::try_from(number).ok()).unwrap_or(0)
}

/// A person as clients get it.
fn body(project: &Arc<Project>, person: Person, mut ids: Vec<String>) -> Value {
    // Ids that look made by a machine come last; otherwise the order of attachment stays.
    ids.sort_by_key(|id| is_anonymous(id));
    json!({
        "id": person.number,
        "name": name(project, &person.properties, &ids, person.number),
        "distinct_ids": ids,
        "properties": person.properties,
        "created_at": person.created_at.to_rfc3339(),
        "uuid": person.uuid.to_string(),
        "is_identified": person.is_identified,
    })
}

fn name(project: &Project, properties: &Map<String, Value>, ids: &[String], id: i64) -> String {
    let text = |key: &str| match properties.get(key) {
        Some(Value::String(text)) if !text.is_empty() => Some(text.clone()),
        Some(Value::Number(number)) => Some(number.to_string()),
        _ => None,
    };
    let own = project.person_display_name_properties.as_deref();
    let named = match own {
        Some(keys) => keys.iter().find_map(|key| text(key)),
        None => NAME_PROPERTIES.into_iter().find_map(text),
    };
    named.or_else(|| ids.first().cloned()).unwrap_or_else(|| id.to_string())
}

/// Five parts of lower-case letters and digits with dashes between: what SDKs make up.
fn is_anonymous(id: &str) -> bool {
    let part = |part: &str| {
        let ok = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        !part.is_empty() && part.bytes().all(ok)
    };
    id.split('-').count() == 5 && id.split('-').all(part)
}

#[cfg(test)]
mod tests {
    use super::is_anonymous;

    #[test]
    fn made_up_ids_are_told_from_names() {
        for (id, expected) in [
            ("0192f0c1-7f3a-7b9e-8a53-1f0e6a9b3c4d", true),
            ("a-b-c-d-e", true),
            ("a-b-c-d", false),
            ("A-b-c-d-e", false),
            ("user@example.com", false),
            ("----", false),
        ] {
            assert_eq!(is_anonymous(id), expected, "{id}");
        }
    }
}
