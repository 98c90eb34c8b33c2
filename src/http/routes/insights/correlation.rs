//! Correlation analysis of funnels by the filters of older clients: `insights/funnel/correlation/`, and
//! `persons/funnel/correlation/` for the persons behind a row. Filters stand in the query string, and with POST in
//! the body, too.

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::auth::Principal;
use crate::beside::beside;
use crate::call::Call;
use crate::csv;
use crate::openapi::{Description, INVALID, Parameter, by_hand};
use crate::page::Page;
use crate::request::Request;
use crate::response::{Problem, Response};
use crate::routes::insights::{
    Paging, Told, URLS_MAX_BYTES, address, filter, find, invalid, problem, told,
};
use crate::routes::query;
use crate::routes::query::insight;
use weir_app::App;
use weir_insights::InsightError;
use weir_insights::correlation::Correlation;
use weir_insights::correlation::answer::Subject;
use weir_insights::correlation::legacy::{
    OF_PERSONS, correlation_actors, correlation_query, named, people_filter,
};
use weir_insights::insight::ActorsOf;
use weir_insights::legacy::Filter;
use weir_insights::node::{Node, NodeError};
use weir_insights::selection::Unit;

pub(crate) const CORRELATION: Description = Description::ok::<by_hand::CorrelationAnswer>(
    "What those who come through a funnel do or have more often than the others, or less often",
)
.says("What correlates")
.notes("Beside these, the filters of insights/funnel/")
.query(&[
    Parameter::one_of(
        "funnel_correlation_type",
        &["events", "properties", "event_with_properties"],
    ),
    Parameter::text("funnel_correlation_names").about("Names of properties of persons, or $all"),
    Parameter::text("funnel_correlation_exclude_names"),
    Parameter::text("funnel_correlation_exclude_event_names"),
    Parameter::text("funnel_correlation_event_names")
        .about("Names of events whose properties correlate"),
    Parameter::text("funnel_correlation_event_exclude_property_names"),
])
.body::<by_hand::AnyObject>()
.or(&[INVALID]);

/// `GET insights/funnel/correlation/` and `POST`.
pub async fn correlation(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, rendering, .. } = call;
    let filter = filter(request).await?;
    let settings = insight::settings(&asker.project);
    let node = correlation_query(&filter).map_err(refused)?;
    let steps = node.pointer("/source/source/series").and_then(Value::as_array);
    let told = match steps.is_some_and(|steps| !steps.is_empty()) {
        true => {
            let correlation = Correlation::parse(&node).map_err(refused)?;
            let mut told = told(app, &asker, (&node, &filter)).await?;
            let subjects = match subjects(&correlation, &told.result) {
                Some(subjects) => subjects,
                // Some names may be several things: the answer itself says which.
                None => {
                    let (own, engine, owner) =
                        (correlation.clone(), app.engine.clone(), settings.clone());
                    let found = Box::pin(async move { own.answer(&engine, &owner).await });
                    let found = app.engine.within_time(app.engine.apart(found)).await;
                    let found = found.and_then(|found| found).map_err(query::problem)?;
                    let found = found.map_err(failed)?;
                    told = Told::now(app, found.body());
                    found.rows.into_iter().map(|row| row.subject).collect()
                }
            };
            let unit = correlation.unit();
            let add = move || {
                add_addresses(&mut told.result, (&subjects, unit), (&filter, asker.project.id.0));
                Ok(told)
            };
            beside(&app.node.cpu, add).await?
        }
        // A funnel without steps has an answer, too.
        false => Told::now(app, json!({"events": [], "skewed": false})),
    };
    let body = Value::Object(told.into_body(&settings));
    csv::answer(&app.node.cpu, StatusCode::OK, rendering, body).await
}

/// What the rows of an answer are about.
fn subjects(correlation: &Correlation, answer: &Value) -> Option<Vec<Subject>> {
    let rows = answer.get("events")?.as_array()?;
    let subject = |row: &Value| correlation.subject_of(row.pointer("/event/event")?.as_str()?);
    rows.iter().map(subject).collect()
}

pub(crate) const PERSONS: Description = Description::ok::<by_hand::PersonsOfPoint>("Persons of a funnel who do or have something, with success or not").notes("Beside these, the filters of insights/funnel/correlation/").query(&[Parameter::text("funnel_correlation_person_entity").about("JSON of the events that they have between the first step and the end: id, type, properties"), Parameter::text("funnel_correlation_property_values").about("JSON list of filters of persons, where properties correlate"), Parameter::text("funnel_correlation_person_converted").about("true for those who come to the last step, false for the others"), Parameter::integer("funnel_correlation_person_limit").about("Another name of limit"), Parameter::integer("funnel_correlation_person_offset").about("Another name of offset"), Parameter::text("search").about("Part of email, name or distinct id"), Parameter::shared("limit"), Parameter::shared("offset")]).body::<by_hand::AnyObject>().or(&[INVALID]);

/// `GET persons/funnel/correlation/` and `POST`: the persons who do or have something, and come through the funnel
/// or not.
pub async fn persons(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, rendering, .. } = call;
    let paging = paging(app, &request);
    let filter = filter(request).await?;
    let read = || {
        let mut correlation = Correlation::parse(&correlation_query(&filter)?)?;
        let asked = correlation_actors(&filter)?;
        let asked = correlation.asked(&Node::new(Some(&asked), "")?)?;
        Ok(ActorsOf::Correlation(correlation, asked))
    };
    let actors = read().map_err(refused)?;
    let found = find(app, &asker.project, actors, (&filter, paging.page.part())).await;
    paging.answer(app, (&asker, rendering), found.map_err(failed)?).await
}

/// The page that a request asks for. Its numbers have names of their own, too.
fn paging(app: &App, request: &Request) -> Paging {
    let number = |name: &str| request.query(name).and_then(|text| text.parse::<usize>().ok());
    let mut page = Page::of(request);
    if number("limit").is_none()
        && let Some(limit) = number("funnel_correlation_person_limit").filter(|limit| *limit > 0)
    {
        page = page.limited(limit);
    }
    if number("offset").is_none() {
        page.offset = number("funnel_correlation_person_offset").unwrap_or(0);
    }
    let public_url = app.node.config.http.public_url.as_deref();
    let link = |offset: usize| {
        // An offset of 0 is said, since the other one may stand beside it.
        Page::link_to(request, public_url, &[("limit", page.limit), ("offset", offset)])
    };
    let next = link(page.offset.saturating_add(page.limit));
    Paging { page, next, initial: link(0) }
}

/// Adds the addresses of the persons of each row.
fn add_addresses(
    answer: &mut Value,
    (subjects, unit): (&[Subject], Unit),
    (filter, project): (&Filter, i64),
) {
    let mut base = filter.clone();
    for name in OF_PERSONS {
        base.remove(name);
    }
    let length = serde_json::to_string(&base).map_or(usize::MAX, |text| text.len());
    let has_urls = subjects.len().saturating_mul(2).saturating_mul(length) <= URLS_MAX_BYTES;
    let Some(Value::Array(events)) = answer.get_mut("events") else { return };
    for (event, subject) in events.iter_mut().zip(subjects).filter(|_| has_urls) {
        let Value::Object(fields) = event else { continue };
        let (name, sent) = people_filter(subject, unit);
        for (field, is_converted) in
            [("success_people_url", "true"), ("failure_people_url", "false")]
        {
            let mut of_row = base.clone();
            of_row.insert(name.to_owned(), sent.clone());
            let converted = Value::String(is_converted.to_owned());
            of_row.insert("funnel_correlation_person_converted".to_owned(), converted);
            let url = address(project, "persons/funnel/correlation/", &of_row);
            fields.insert(field.to_owned(), Value::String(url));
        }
    }
}

fn refused(error: NodeError) -> Problem {
    invalid(&named(error))
}

fn failed(error: InsightError) -> Problem {
    match error {
        InsightError::Node(error) => refused(error),
        other => problem(other),
    }
}
