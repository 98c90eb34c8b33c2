//! Correlation analysis of funnels by the filters of older clients: `insights/funnel/correlation/`, and
//! `persons/funnel/correlation/` for the persons behind a row.

use serde_json::Value;

use crate::auth::Principal;
use crate::beside::beside;
use crate::openapi::{Parameter, Shape};
use crate::operation::input::{InBoth, Parts, input};
use crate::operation::output::Long;
use crate::operation::{Context, Operation};
use crate::page::Page;
use crate::request::Request;
use crate::response::Problem;
use crate::routes::insights::filters::{Sent, parameters};
use crate::routes::insights::people::{People, find};
use crate::routes::insights::{
    How, OlderAnswer, URLS_MAX_BYTES, address, invalid, plain, problem, told,
};
use weir_api::insights::correlation::Correlations;
use weir_api::insights::older::CorrelationAnswer;
use weir_api::node::NodeError;
use weir_api::nodes::actors::FunnelCorrelationActorsQuery;
use weir_api::nodes::check::parse;
use weir_insights::cache::Answer;
use weir_insights::correlation::Correlation;
use weir_insights::correlation::answer::Subject;
use weir_insights::correlation::legacy::{
    OF_PERSONS, correlation_actors, correlation_query, named, people_filter,
};
use weir_insights::insight::ActorsOf;
use weir_insights::legacy::Filter;
use weir_insights::selection::Unit;
use weir_insights::{InsightError, ProjectSettings};

parameters! {
    /// Parameters of a correlation.
    OfCorrelation: [
        Parameter::one_of(
            "funnel_correlation_type",
            &["events", "properties", "event_with_properties"],
        ),
        Parameter::text("funnel_correlation_names")
            .about("Names of properties of persons, or $all"),
        Parameter::text("funnel_correlation_exclude_names"),
        Parameter::text("funnel_correlation_exclude_event_names"),
        Parameter::text("funnel_correlation_event_names")
            .about("Names of events whose properties correlate"),
        Parameter::text("funnel_correlation_event_exclude_property_names"),
    ]
}

input! {
    /// What those who come through a funnel do or have more often than the others, or less often.
    pub struct Correlate {
        both sent: Sent<OfCorrelation>,
    }
}

impl Operation for Correlate {
    type Who = Principal;
    type Out = Long<CorrelationAnswer>;
    const SCOPE: &'static str = "insight:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let filter = self.sent.filter;
        let (app, settings) = (&cx.app, ProjectSettings::of(&cx.who.project));
        let node = correlation_query(&filter).map_err(refused)?;
        let steps = node.pointer("/source/source/series").and_then(Value::as_array);
        let told = match steps.is_some_and(|steps| !steps.is_empty()) {
            true => {
                let correlation = Correlation::parse(&node).map_err(refused)?;
                let read = |answer: &Answer| Ok((plain(answer)?, answer.subjects.clone()));
                let OlderAnswer { result: (mut result, subjects), how } =
                    told(cx, (&node, &filter), read).await?;
                let (unit, project) = (correlation.unit(), cx.who.project.id.0);
                let add = move || {
                    add_addresses(&mut result, (&subjects, unit), (&filter, project));
                    Ok(OlderAnswer { result, how })
                };
                beside(&app.node.cpu, add).await?
            }
            // A funnel without steps has an empty result.
            false => {
                let result = Correlations { events: Vec::new(), skewed: false };
                OlderAnswer { result, how: How::now(app) }
            }
        };
        Ok(Long(CorrelationAnswer::of(told.how.computed(&settings), told.result)))
    }
}

parameters! {
    /// Parameters of a row.
    OfRow: [
        Parameter::text("funnel_correlation_person_entity").about(
            "JSON of the events that they have between the first step and the end: id, type, properties",
        ),
        Parameter::text("funnel_correlation_property_values")
            .about("JSON list of filters of persons, where properties correlate"),
        Parameter::text("funnel_correlation_person_converted")
            .about("true for those who come to the last step, false for the others"),
        Parameter::integer("funnel_correlation_person_limit").about("Another name of limit"),
        Parameter::integer("funnel_correlation_person_offset").about("Another name of offset"),
        Parameter::text("search").about("Part of email, name or distinct id"),
        Parameter::shared("limit"),
        Parameter::shared("offset"),
    ]
}

/// Parameters of the persons behind a row, and a page of them; `limit` and `offset` have second names.
#[derive(Debug)]
pub struct Wanted {
    page: Page,
    filter: Filter,
}

impl InBoth for Wanted {
    fn describe(shape: &mut Shape) {
        <Sent<OfRow> as InBoth>::describe(shape);
    }

    fn take(parts: &mut Parts<'_>) -> Result<Self, Problem> {
        let page = page(parts.request);
        Ok(Self { page, filter: Sent::<OfRow>::take(parts)?.filter })
    }
}

/// The page in the query.
fn page(request: &Request) -> Page {
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
    page
}

input! {
    /// The persons who do or have something, and come through the funnel or not.
    pub struct Persons {
        both wanted: Wanted,
    }
}

impl Operation for Persons {
    type Who = Principal;
    type Out = People;
    const SCOPE: &'static str = "person:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let Wanted { page, filter } = self.wanted;
        let read = || {
            let mut correlation = Correlation::parse(&correlation_query(&filter)?)?;
            let asked = parse::<FunnelCorrelationActorsQuery>(&correlation_actors(&filter)?)?;
            let asked = correlation.asked(asked, "")?;
            Ok(ActorsOf::Correlation(correlation, asked))
        };
        let actors = read().map_err(refused)?;
        let found = find(cx, actors, (&filter, page)).await;
        Ok(People::of(cx, page, found.map_err(failed)?).await?.naming_zero())
    }
}

/// Adds the URLs of the persons behind each row.
fn add_addresses(
    answer: &mut Correlations,
    (subjects, unit): (&[Subject], Unit),
    (filter, project): (&Filter, i64),
) {
    let mut base = filter.clone();
    for name in OF_PERSONS {
        base.remove(name);
    }
    let length = serde_json::to_string(&base).map_or(usize::MAX, |text| text.len());
    let has_urls = subjects.len().saturating_mul(2).saturating_mul(length) <= URLS_MAX_BYTES;
    for (row, subject) in answer.events.iter_mut().zip(subjects).filter(|_| has_urls) {
        let (name, sent) = people_filter(subject, unit);
        let url = |is_converted: bool| {
            let mut of_row = base.clone();
            of_row.insert(name.to_owned(), sent.clone());
            let converted = Value::String(is_converted.to_string());
            of_row.insert("funnel_correlation_person_converted".to_owned(), converted);
            address(project, "persons/funnel/correlation/", &of_row)
        };
        row.success_people_url = Some(url(true));
        row.failure_people_url = Some(url(false));
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
