//! Persons behind the points of stickiness and lifecycle, by the filters of older clients: `persons/stickiness/` and
//! `persons/lifecycle/`.

use hyper::StatusCode;
use serde_json::json;

use crate::auth::Principal;
use crate::beside::beside;
use crate::call::{Call, Rendering};
use crate::csv;
use crate::fields::refused;
use crate::openapi::{Description, INVALID, Parameter, by_hand};
use crate::response::{Problem, Response};
use crate::routes::insights::{Paging, entity, filter, find, invalid, problem};
use crate::routes::query::actors;
use weir_app::App;
use weir_insights::insight::ActorsOf;
use weir_insights::legacy::Filter;
use weir_insights::lifecycle::Lifecycle;
use weir_insights::lifecycle::actors::Stage;
use weir_insights::lifecycle::legacy::lifecycle_query;
use weir_insights::lifecycle::status::Status;
use weir_insights::stickiness::Stickiness;
use weir_insights::stickiness::actors::Asked;
use weir_insights::stickiness::legacy::stickiness_query;
use weir_insights::{InsightError, legacy};

/// Which persons are asked for.
struct Question {
    asker: Principal,
    rendering: Rendering,
    filter: Filter,
    paging: Paging,
}

impl Question {
    async fn of(app: &App, call: Call<Principal>) -> Result<Self, Problem> {
        let Call { asker, mut request, rendering, .. } = call;
        let paging = Paging::of(app, &mut request).await?;
        Ok(Self { asker, rendering, filter: filter(request).await?, paging })
    }

    /// The persons; `day` is what their interval is called here.
    async fn answered(
        self,
        app: &App,
        actors: ActorsOf,
        day: &'static str,
    ) -> Result<Response, Problem> {
        let found =
            find(app, &self.asker.project, actors, (&self.filter, self.paging.page.part())).await;
        let mut found = found.map_err(|error| match error {
            InsightError::Node(error) if error.field == "day" => {
                refused(day, "invalid_input", error.detail)
            }
            other => problem(other),
        })?;
        let has_more = found.len() > self.paging.page.limit;
        found.truncate(self.paging.page.limit);
        let people = actors::people(app, &self.asker.project, &found).await?;
        let answer = move || {
            if self.rendering == Rendering::Csv {
                return Ok(csv::render(StatusCode::OK, self.rendering, &people));
            }
            let count = people.len();
            let body = json!({
                "results": [{"people": people, "count": count}], "next": has_more.then_some(self.paging.next),
            });
            Ok(csv::render(StatusCode::OK, self.rendering, &body))
        };
        beside(&app.node.cpu, answer).await
    }
}

pub(crate) const STICKINESS: Description = Description::ok::<by_hand::PersonsOfNumber>(
    "Persons who were active in some number of intervals, those with the largest numbers first",
)
.notes("Beside these, the filters of the stickiness, as for insights/trend/")
.query(&[
    Parameter::text("entity_id").about("Name of the event"),
    Parameter::one_of("entity_type", &["events"]),
    Parameter::text("entity_math"),
    Parameter::integer("entity_order").about("Of the series"),
    Parameter::integer("stickiness_days").about("The number; absent for any"),
    Parameter::one_of("period", &["previous"]),
    Parameter::text("search").about("Part of email, name or distinct id"),
    Parameter::shared("limit"),
    Parameter::shared("offset"),
])
.or(&[INVALID]);

/// `GET persons/stickiness/`: who was active in so many intervals.
pub async fn stickiness(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let mut question = Question::of(app, call).await?;
    let filter = &mut question.filter;
    let entity = entity(filter)?;
    filter.insert("events".to_owned(), json!([entity]));
    filter.remove("actions");
    let read = || Stickiness::parse(&stickiness_query(filter)?);
    let stickiness = read().map_err(|error| invalid(&error))?;
    let intervals = legacy::text(filter, "stickiness_days").map(|text| {
        let wrong = |_| refused("stickiness_days", "invalid_input", "Expected a whole number.");
        text.parse::<usize>().map_err(wrong)
    });
    let is_previous = legacy::text(filter, "period").as_deref() == Some("previous");
    let asked = Asked { intervals: intervals.transpose()?, is_previous, ..Asked::default() };
    question.answered(app, ActorsOf::Stickiness(stickiness, asked), "stickiness_days").await
}

pub(crate) const LIFECYCLE: Description = Description::ok::<by_hand::PersonsOfNumber>(
    "Persons with a status in an interval of a lifecycle",
)
.notes("Beside these, the filters of the lifecycle, as for insights/trend/")
.query(&[
    Parameter::text("target_date").about("Interval, as in days").required(),
    Parameter::one_of("lifecycle_type", &["new", "returning", "resurrecting", "dormant"])
        .required(),
    Parameter::text("search").about("Part of email, name or distinct id"),
    Parameter::shared("limit"),
    Parameter::shared("offset"),
])
.or(&[("400", "BadLifecycle")]);

/// `GET persons/lifecycle/`: who had a status in an interval.
pub async fn lifecycle(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let mut question = Question::of(app, call).await?;
    let filter = &mut question.filter;
    // In PostHog's words, which are not those of its other errors.
    let missing = |detail: &str| {
        let body = json!({"message": "Missing parameter", "detail": detail});
        Ok(Response::json(StatusCode::BAD_REQUEST, &body))
    };
    let Some(day) = legacy::text(filter, "target_date") else {
        return missing("Must include specified date");
    };
    let Some(status) = legacy::text(filter, "lifecycle_type") else {
        return missing("Must include lifecycle type");
    };
    let status = Status::of(&status).ok_or_else(|| {
        let detail = format!("Expected one of {}.", Status::names());
        refused("lifecycle_type", "invalid_input", detail)
    })?;
    if filter.contains_key("entity_id") || filter.contains_key("entity_order") {
        let entity = entity(filter)?;
        filter.insert("events".to_owned(), json!([entity]));
        filter.remove("actions");
    }
    let read = || Lifecycle::parse(&lifecycle_query(filter)?);
    let lifecycle = read().map_err(|error| invalid(&error))?;
    let stage = Stage { day: Some(day), status: Some(status) };
    question.answered(app, ActorsOf::Lifecycle(lifecycle, stage), "target_date").await
}
