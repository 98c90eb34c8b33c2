//! Persons behind the points of trends, stickiness and lifecycles, by the filters of older clients: `persons/trends/`,
//! `persons/stickiness/` and `persons/lifecycle/`.

use hyper::StatusCode;
use serde_json::json;

use crate::auth::Principal;
use crate::fields::refused;
use crate::openapi::{Parameter, Shape};
use crate::operation::input::input;
use crate::operation::output::{Output, Reply};
use crate::operation::{Context, Operation};
use crate::page::Page;
use crate::response::{Problem, Response};
use crate::routes::insights::filters::parameters;
use crate::routes::insights::people::{OfPoint, People, PeopleOfNumber, entity, find};
use crate::routes::insights::{invalid, problem};
use weir_event::json;
use weir_insights::insight::ActorsOf;
use weir_insights::legacy::Filter;
use weir_insights::lifecycle::Lifecycle;
use weir_insights::lifecycle::actors::Stage;
use weir_insights::lifecycle::legacy::lifecycle_query;
use weir_insights::lifecycle::status::Status;
use weir_insights::stickiness::Stickiness;
use weir_insights::stickiness::actors::SeriesSelection;
use weir_insights::stickiness::legacy::stickiness_query;
use weir_insights::trends::Trends;
use weir_insights::trends::actors::Point;
use weir_insights::{InsightError, legacy};

parameters! {
    /// Parameters of a point of a trend.
    OfTrend: [
        Parameter::text("entity_id").about("Name of the event"),
        Parameter::one_of("entity_type", &["events"]),
        Parameter::text("entity_math"),
        Parameter::integer("entity_order").about("Of the series"),
        Parameter::text("day").about("Interval, as in days; absent for all"),
        Parameter::text("breakdown_value"),
        Parameter::one_of("period", &["previous"]),
    ]
}

input! {
    /// The persons or groups with an event of an entity within the range of dates.
    pub struct OfTrends {
        both sent: OfPoint<OfTrend>,
    }
}

impl Operation for OfTrends {
    type Who = Principal;
    type Out = People;
    const SCOPE: &'static str = "person:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let OfPoint { mut filter, page, .. } = self.sent;
        only(&mut filter)?;
        filter.remove("formula");
        let read = || Trends::parse(&legacy::trends_query(&filter)?);
        let trends = read().map_err(|error| invalid(&error))?;
        let breakdown = legacy::text(&filter, "breakdown_value").map(|text| match text.as_str() {
            text if text.starts_with('[') => {
                json::read(text.as_bytes()).unwrap_or_else(|_| json!(text))
            }
            text => text
                .parse::<i64>()
                .ok()
                .filter(|_| is_by_cohort(&filter))
                .map_or(json!(text), |id| json!(id)),
        });
        let day = legacy::text(&filter, "day");
        let is_previous = legacy::text(&filter, "period").as_deref() == Some("previous");
        let point = Point { day, breakdown, is_previous, ..Point::default() };
        People::behind(cx, ActorsOf::Trends(trends, point), (&filter, page)).await
    }
}

fn is_by_cohort(filter: &Filter) -> bool {
    legacy::text(filter, "breakdown_type").as_deref() == Some("cohort")
}

/// Keeps only the entity whose persons are selected.
fn only(filter: &mut Filter) -> Result<(), Problem> {
    let entity = entity(filter)?;
    filter.insert("events".to_owned(), json!([entity]));
    filter.remove("actions");
    Ok(())
}

/// The persons of a point; `day` is the name of the parameter with the interval.
async fn of_number(
    cx: &Context<Principal>,
    sent: (&Filter, Page),
    actors: ActorsOf,
    day: &'static str,
) -> Result<PeopleOfNumber, Problem> {
    let found = find(cx, actors, sent).await.map_err(|error| match error {
        InsightError::Node(error) if error.field == "day" => {
            refused(day, "invalid_input", error.detail)
        }
        other => problem(other),
    });
    People::of(cx, sent.1, found?).await.map(PeopleOfNumber)
}

parameters! {
    /// Parameters of a number of intervals.
    OfDays: [
        Parameter::text("entity_id").about("Name of the event"),
        Parameter::one_of("entity_type", &["events"]),
        Parameter::text("entity_math"),
        Parameter::integer("entity_order").about("Of the series"),
        Parameter::integer("stickiness_days").about("The number; absent for any"),
        Parameter::one_of("period", &["previous"]),
    ]
}

input! {
    /// Who was active in so many intervals.
    pub struct OfStickiness {
        both sent: OfPoint<OfDays>,
    }
}

impl Operation for OfStickiness {
    type Who = Principal;
    type Out = PeopleOfNumber;
    const SCOPE: &'static str = "person:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let OfPoint { mut filter, page, .. } = self.sent;
        only(&mut filter)?;
        let read = || Stickiness::parse(&stickiness_query(&filter)?);
        let stickiness = read().map_err(|error| invalid(&error))?;
        let intervals = legacy::text(&filter, "stickiness_days").map(|text| {
            let wrong = |_| refused("stickiness_days", "invalid_input", "Expected a whole number.");
            text.parse::<usize>().map_err(wrong)
        });
        let is_previous = legacy::text(&filter, "period").as_deref() == Some("previous");
        let asked = SeriesSelection {
            intervals: intervals.transpose()?,
            is_previous,
            ..SeriesSelection::default()
        };
        let actors = ActorsOf::Stickiness(stickiness, asked);
        of_number(cx, (&filter, page), actors, "stickiness_days").await
    }
}

parameters! {
    /// Parameters of a status in an interval.
    OfStage: [
        Parameter::text("target_date").about("Interval, as in days").required(),
        Parameter::one_of("lifecycle_type", &["new", "returning", "resurrecting", "dormant"])
            .required(),
    ]
}

input! {
    /// Who had a status in an interval.
    pub struct OfLifecycle {
        both sent: OfPoint<OfStage>,
    }
}

/// Persons, or the error for a missing parameter.
#[derive(Debug)]
pub enum Staged {
    /// Persons.
    Found(PeopleOfNumber),
    /// The error text of PostHog, whose form differs from that of its other errors.
    Missing(&'static str),
}

impl Output for Staged {
    fn describe(shape: &mut Shape) {
        PeopleOfNumber::describe(shape);
    }

    async fn respond(self, reply: &Reply<'_>) -> Result<Response, Problem> {
        match self {
            Self::Found(people) => people.respond(reply).await,
            Self::Missing(detail) => {
                let body = json!({"message": "Missing parameter", "detail": detail});
                Ok(Response::json(StatusCode::BAD_REQUEST, &body))
            }
        }
    }
}

impl Operation for OfLifecycle {
    type Who = Principal;
    type Out = Staged;
    const SCOPE: &'static str = "person:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let OfPoint { mut filter, page, .. } = self.sent;
        let Some(day) = legacy::text(&filter, "target_date") else {
            return Ok(Staged::Missing("Must include specified date"));
        };
        let Some(status) = legacy::text(&filter, "lifecycle_type") else {
            return Ok(Staged::Missing("Must include lifecycle type"));
        };
        let status = Status::of(&status)
            .ok_or_else(|| refused("lifecycle_type", "invalid_input", Status::expected()))?;
        if filter.contains_key("entity_id") || filter.contains_key("entity_order") {
            only(&mut filter)?;
        }
        let read = || Lifecycle::parse(&lifecycle_query(&filter)?);
        let lifecycle = read().map_err(|error| invalid(&error))?;
        let stage = Stage { day: Some(day), status: Some(status) };
        let actors = ActorsOf::Lifecycle(lifecycle, stage);
        of_number(cx, (&filter, page), actors, "target_date").await.map(Staged::Found)
    }
}
