//! Pages of insights: a query as a form, its result as a chart, the persons behind a mark ([`people`]), and saved
//! insights. Results come from the functions of `POST query/`, with their cache.

pub(super) mod arrange;
pub(in crate::routes) mod boards;
pub(in crate::routes) mod load;
mod next;
pub(super) mod people;
pub(in crate::routes) mod saved;
#[cfg(test)]
mod tests;
pub(super) mod transfer;

use std::sync::Arc;

use chrono_tz::Tz;
use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue, VARY};
use maud::{Markup, html};
use serde_json::Value;

use crate::auth::Principal;
use crate::beside::beside;
use crate::request::Request;
use crate::response::{Problem, Response};
use crate::routes::pages::files;
use crate::routes::pages::insights::load::{saved_of, suggestions};
use crate::routes::pages::visit::{Later, Page, Sent, Visit, apart, file, see_other};
use crate::routes::query::insight;
use weir_api::insights::{Answer, AnswerTo};
use weir_api::node::Content;
use weir_api::nodes::base as nodes;
use weir_app::App;
use weir_base::clock::UnixMicros;
use weir_base::error::Kind as Fault;
use weir_event::json;
use weir_insights::ProjectSettings;
use weir_insights::cache::Answer as KeptAnswer;
use weir_insights::interval::Interval;
use weir_insights::selection::{Selection, buckets};
use weir_metadata::accounts::Project;
use weir_metadata::documents;
use weir_web::insight::form::form;
use weir_web::insight::links::Links;
use weir_web::insight::result::Made;
use weir_web::insight::saved::Kept;
use weir_web::insight::{links, result, saved as shown};
use weir_web::parts::{FILES, failed};
use weir_web::state::insight::{Kind, Question};
use weir_web::state::node::node;
use weir_web::state::parameters::{Parameters, Wrong};
use weir_web::state::series::{Event, Series};
use weir_web::state::sql::Span;
use weir_web::state::stored;
use weir_wire::query_node::unwrapped;

/// The id of the element with the result.
const RESULT: &str = "result";

/// The header with which a script requests only a part of a page.
const PART: HeaderName = HeaderName::from_static("weir-part");

/// The parsed URL: a query, and the file format if the result is requested as a file.
struct InsightAddress {
    question: Question,
    file: Option<&'static str>,
}

impl InsightAddress {
    fn read(kind: Kind, query: &str) -> Result<Self, Wrong> {
        let mut parameters = Parameters::parse(query)?;
        let file = parameters.choice("format", &FILES.map(|(format, _)| format))?;
        let question = Question::take(kind, &mut parameters)?;
        parameters.finish()?;
        Ok(Self { question: with_usual(question), file })
    }
}

/// Completes a query: without an event it covers all of them. Steps of a funnel have no default.
fn with_usual(mut question: Question) -> Question {
    let is_about_all = !matches!(question.kind(), Kind::Funnel | Kind::Paths);
    if question.series.is_empty() && is_about_all {
        question.series.push(Series::of(Event::All));
    }
    question
}

/// `GET insights/:kind`, where the kind is one of [`Kind::ALL`] or the short id of a saved insight.
pub(super) async fn show(visit: Visit) -> Result<Sent, Problem> {
    match Kind::ALL.into_iter().find(|kind| kind.name() == visit.id()) {
        Some(kind) => ask(&visit, kind).await,
        None => saved::one(&visit).await,
    }
}

async fn ask(visit: &Visit, kind: Kind) -> Result<Sent, Problem> {
    let Visit { asking, request, .. } = visit;
    let (app, asker, server) = (&asking.app, &asking.asker, asking.server.clone());
    let query = request.query_string();
    let InsightAddress { question, file } = match InsightAddress::read(kind, query) {
        Ok(asked) => asked,
        Err(error) if is_part(request) => {
            return Ok(part(StatusCode::BAD_REQUEST, &refusal(&error)));
        }
        Err(error) => return Ok(Sent::Page(refused(app, asker, kind, &error).await?)),
    };
    if let Some(kind) = file {
        return download(app, &asker.project, question, kind).await;
    }
    // Forms also send empty and default values. The redirect gives the shortest URL, because people share it.
    let short = question.print();
    if !query.is_empty() && short != query {
        let address = format!("{}?{short}", links::kind(asker.project.id.0, kind));
        return Ok(Sent::Other(see_other(&address)?));
    }
    if is_part(request) {
        // The links to other kinds keep the current query.
        let kinds = shown::kinds(asker.project.id.0, Some(kind), Some(&question));
        let answer = apart(&app.engine, answered(app, asker, question, server, None)).await;
        return Ok(part(StatusCode::OK, &html! { (answer) (kinds) }));
    }
    let known = suggestions(app, asker).await?;
    let project = asker.project.id.0;
    let now = html! {
        (shown::kinds(project, Some(kind), Some(&question)))
        (form(project, &question, &known))
    };
    let mut page = Page::new(kind.title(), now);
    page.later.push(answered(app, asker, question, server, None));
    Ok(Sent::Page(page))
}

fn is_part(request: &Request) -> bool {
    request.header(PART.as_str()) == Some(RESULT)
}

/// A response with the result only, without the page around it.
fn part(status: StatusCode, section: &Markup) -> Sent {
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    let response = Response::bytes(status, html, section.0.clone());
    Sent::Other(response.with_header(VARY, HeaderValue::from_static("weir-part")))
}

/// The section that replaces the result if the URL is refused.
fn refusal(error: &Wrong) -> Markup {
    section(&failed(&error.to_string()))
}

/// The page with the error of a refused URL.
async fn refused(app: &App, asker: &Principal, kind: Kind, error: &Wrong) -> Result<Page, Problem> {
    let known = suggestions(app, asker).await?;
    let project = asker.project.id.0;
    let now = html! {
        (shown::kinds(project, Some(kind), None))
        (form(project, &Question::new(kind), &known))
        (refusal(error))
    };
    Ok(Page { status: StatusCode::BAD_REQUEST, ..Page::new(kind.title(), now) })
}

/// The result of a query, computed when its part of the page is due, with the form that saves it. On the page of a
/// saved insight, the actions on this insight instead.
fn answered(
    app: &App,
    asker: &Principal,
    question: Question,
    server: String,
    kept: Option<Kept>,
) -> Later {
    let (app, asker) = (app.clone(), asker.clone());
    Box::pin(async move {
        let project = &asker.project;
        if question.kind() == Kind::Funnel && question.series.len() < 2 {
            return section(&html! {
                div class="empty" {
                    h2 { "Which steps?" }
                    p { "Choose the events of two steps at least, such as a page view and a signup. The answer says how \
                         many persons did one after the other, and where the others left." }
                }
            });
        }
        let inner = match computed(&app, project, &node(&question), server).await {
            Ok(Computed { answer, made, .. }) => {
                result::whole(&answer, &Links::new(project.id.0, &question), &made)
            }
            Err(problem) => return section(&failed(problem.detail())),
        };
        let dashboards = saved_of(&app, &asker, documents::Kind::Dashboard).await;
        let dashboards = dashboards.unwrap_or_default();
        let can_make = asker.key.grants("dashboard:write");
        section(&html! {
            (inner)
            @match &kept {
                None => (shown::form(project.id.0, &question, &dashboards, can_make)),
                Some(kept) if kept.is_changed => {
                    (shown::changing(project.id.0, kept, &[("question", &question.print())]))
                    details { summary { "Save as a new insight" }
                        (shown::form(project.id.0, &question, &dashboards, can_make)) }
                },
                Some(kept) => (shown::placing(project.id.0, kept, &dashboards)),
            }
        })
    })
}

fn section(inner: &Markup) -> Markup {
    html! { section id=(RESULT) aria-live="polite" { (inner) } }
}

/// A result of the API with metadata of its computation.
struct Computed {
    /// The cached text.
    kept: Arc<KeptAnswer>,
    answer: Answer,
    made: Made,
}

/// The result of a query, from the cache if it is still valid.
async fn computed(
    app: &App,
    project: &Project,
    query: &Value,
    server: String,
) -> Result<Computed, Problem> {
    let began = app.node.clock.monotonic();
    let (kept, is_cached) = insight::kept_or_computed(app, project, query).await?;
    let (own, asked) = (Arc::clone(&kept), unwrapped(query).clone());
    let read = move || {
        let answer = json::read_as(AnswerTo(&asked), &own.results);
        answer.map_err(|error| Problem::of(Fault::Internal, &error))
    };
    let answer = beside(&app.node.cpu, read).await?;
    let took = app.node.clock.monotonic().saturating_sub(began);
    let zone: Tz = project.timezone.parse().unwrap_or(Tz::UTC);
    let made = Made {
        millis: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        is_cached,
        at: kept.at.to_datetime().with_timezone(&zone).format("%Y-%m-%d %H:%M:%S").to_string(),
        timezone: project.timezone.clone(),
        server,
        span: span(project, query, kept.at),
        files: app.shard.tables.name("events"),
    };
    Ok(Computed { kept, answer, made })
}

/// The time range of a query with a range of dates, as of a moment; `None` if it cannot be determined.
pub(in crate::routes) fn span(project: &Project, query: &Value, at: UnixMicros) -> Option<Span> {
    let selection = Selection::of(nodes::Insight::read(query, "").ok()?).ok()?;
    let interval = Interval::parse(stored::interval_of(query)).ok()?;
    let owner = ProjectSettings::of(project);
    let range = selection.dates.range_at(at, &owner, interval).ok()?;
    // A range of all time has too many intervals, and no events before its start; its own bounds apply.
    let bounds = buckets(&range, interval, &owner).map(|buckets| buckets.bounds());
    let (from, to) = bounds.unwrap_or((range.from, range.to));
    Some(Span {
        from: from.to_rfc3339(),
        to: to.to_rfc3339(),
        zone: owner.timezone,
        is_monday_first: owner.is_monday_first,
    })
}

/// The result of a query as a file.
async fn download(
    app: &App,
    project: &Project,
    question: Question,
    format: &'static str,
) -> Result<Sent, Problem> {
    let (query, project_id) = (node(&question), project.id.0);
    let computed = computed(app, project, &query, String::new()).await?;
    let file = move || {
        let links = Links::new(project_id, &question);
        downloaded((&query, &computed), &links, format)
    };
    beside(&app.node.cpu, file).await
}

/// A result as a file: the numbers of its table; for JSON the result of the API.
fn downloaded(
    (query, computed): (&Value, &Computed),
    links: &Links<'_>,
    format: &str,
) -> Result<Sent, Problem> {
    let name = links.question.kind().name();
    if format == "json" {
        let start = format!("{{\"query\":{query},\"results\":");
        let body = [start.as_bytes(), &computed.kept.results, b"}"].concat();
        let response = Response::json_bytes(StatusCode::OK, body);
        return Ok(Sent::Other(file(response, &format!("{name}.json"))));
    }
    files::of_table(&result::shown(&computed.answer, links).table, (name, format))
}
