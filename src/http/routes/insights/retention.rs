//! Retention by the filters of older clients: `insights/retention/`, a triangle of rows and cells, and
//! `persons/retention/` for the persons of a row.

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::auth::Principal;
use crate::beside::beside;
use crate::call::{Call, Rendering};
use crate::csv;
use crate::fields::refused;
use crate::openapi::{Description, INVALID, Parameter, by_hand};
use crate::page::Page;
use crate::response::{Problem, Response};
use crate::routes::insights::{URLS_MAX_BYTES, address, filter, find, invalid, problem, told};
use crate::routes::query::{actors, insight};
use weir_app::App;
use weir_insights::insight::ActorsOf;
use weir_insights::legacy::Filter;
use weir_insights::retention::Retention;
use weir_insights::retention::actors::Asked;
use weir_insights::retention::legacy::retention_query;
use weir_insights::{Actor, legacy};
use weir_query::persons::people::Part;

/// The parameter that names a row, and that of its values of the breakdown.
const ROW: &str = "selected_interval";
const VALUES: &str = "breakdown_values";

pub(crate) const RETENTION: Description = Description::ok::<by_hand::RetentionAnswer>(
    "Of those who did something in an interval, how many came back in each one after it",
)
.says("The rows, each shorter by an interval than the one before")
.query(&[
    Parameter::text("target_entity"),
    Parameter::text("returning_entity"),
    Parameter::one_of("period", &["Hour", "Day", "Week", "Month"]),
    Parameter::between("total_intervals", 1, 400),
    Parameter::text("retention_type"),
    Parameter::text("date_to").about("In the last interval"),
    Parameter::text("properties"),
])
.body::<by_hand::AnyObject>()
.or(&[INVALID]);

/// `GET insights/retention/` and `POST`.
pub async fn retention(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, rendering, .. } = call;
    let filter = filter(request).await?;
    let settings = insight::settings(&asker.project);
    let node = retention_query(&filter).map_err(|error| invalid(&error))?;
    let retention = Retention::parse(&node).map_err(|error| invalid(&error))?;
    let mut told = told(app, &asker, (&node, &filter)).await?;
    let answer = move || {
        add_urls(&mut told.result, &retention, (&filter, asker.project.id.0));
        Ok(rendered(rendering, &Value::Object(told.into_body(&settings))))
    };
    beside(&app.node.cpu, answer).await
}

/// Adds to rows the addresses of their persons, and leaves the cells that they have.
fn add_urls(result: &mut Value, retention: &Retention, (filter, project): (&Filter, i64)) {
    let length = serde_json::to_string(filter).map_or(usize::MAX, |text| text.len());
    let rows = result.as_array_mut().map(Vec::as_mut_slice).unwrap_or_default();
    let urls = rows.len().saturating_mul(retention.rows());
    let has_urls = urls.saturating_mul(length) <= URLS_MAX_BYTES;
    // Those of each value of the breakdown follow each other.
    for (row, at) in rows.iter_mut().zip((0..retention.rows()).cycle()) {
        let value = row.get("breakdown_value").cloned();
        let url = has_urls.then(|| url_of(filter, project, (at, value)));
        let shown = retention.rows().saturating_sub(at);
        cut(row, shown, url.as_deref());
    }
}

pub(crate) const RETENTION_PERSONS: Description = Description::ok::<by_hand::PersonsOfRow>(
    "Persons of a row of a retention, those who were active in most of its intervals first",
)
.notes("Beside these, the filters of the retention, as for insights/retention/")
.query(&[
    Parameter::integer("selected_interval"),
    Parameter::text("search").about("Part of email, name or distinct id"),
    Parameter::shared("limit"),
    Parameter::shared("offset"),
])
.or(&[INVALID]);

/// `GET persons/retention/`: the persons of a row, those who were active in most of its cells first.
pub async fn retention_persons(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, rendering, .. } = call;
    let page = Page::of(&request);
    let public_url = app.node.config.http.public_url.as_deref();
    let next = page.link(&request, public_url, page.offset.saturating_add(page.limit));
    let filter = filter(request).await?;
    let read = || Retention::parse(&retention_query(&filter)?);
    let retention = read().map_err(|error| invalid(&error))?;
    let row = match legacy::text(&filter, ROW) {
        Some(text) => text.parse().ok().filter(|row| *row < retention.rows()),
        None => Some(0),
    };
    let row: usize =
        row.ok_or_else(|| refused(ROW, "invalid_input", "There is no such interval."))?;
    let breakdown = legacy::list(&filter, VALUES).map_err(|error| invalid(&error))?;
    let is_empty = |values: &Value| values.as_array().is_some_and(Vec::is_empty);
    let breakdown = Some(breakdown).filter(|values| !values.is_null() && !is_empty(values));
    let asked = Asked { row, breakdown };
    let part = Part { offset: page.offset, limit: page.limit };
    let cells = retention.rows().saturating_sub(row);
    let actors = ActorsOf::Retention(retention, asked);
    let found = find(app, &asker.project, actors, (&filter, part)).await;
    let mut found = found.map_err(problem)?;
    let has_more = found.len() > part.limit;
    found.truncate(part.limit);
    let people = actors::people(app, &asker.project, &found).await?;
    let shown = move |(person, actor): (Value, &Actor)| {
        let seen = |cell: usize| u8::from(actor.appearances.contains(&cell));
        json!({"person": person, "appearances": (0..cells).map(seen).collect::<Vec<_>>()})
    };
    let answer = move || {
        let people: Vec<Value> = people.into_iter().zip(&found).map(shown).collect();
        let body = json!({
            "result": people, "next": has_more.then_some(next), "missing_persons": 0,
        });
        Ok(rendered(rendering, &body))
    };
    beside(&app.node.cpu, answer).await
}

/// JSON as it is; a CSV file has the rows.
fn rendered(rendering: Rendering, body: &Value) -> Response {
    let rows = body.get("result").filter(|_| rendering != Rendering::Json);
    csv::render(StatusCode::OK, rendering, rows.unwrap_or(body))
}

/// The address of the persons of a row, which may be one of a value of the breakdown.
fn url_of(filter: &Filter, project: i64, (row, value): (usize, Option<Value>)) -> String {
    let mut filter = filter.clone();
    filter.insert(ROW.to_owned(), json!(row));
    if let Some(value) = value {
        filter.insert(VALUES.to_owned(), json!([value]));
    }
    address(project, "persons/retention/", &filter)
}

/// Leaves the cells of a row up to the last interval of all rows, and says where their persons are.
fn cut(row: &mut Value, cells: usize, url: Option<&str>) {
    let Value::Object(row) = row else { return };
    if let Some(Value::Array(values)) = row.get_mut("values") {
        values.truncate(cells);
        for value in values {
            if let Value::Object(value) = value {
                value.insert("people".to_owned(), json!([]));
                value.insert("people_url".to_owned(), json!(url));
            }
        }
    }
    row.insert("people_url".to_owned(), json!(url));
}
