//! Paths by the filters of older clients: `insights/path/`, and `persons/path/` for the persons behind a step.

use hyper::StatusCode;
use serde_json::Value;

use crate::auth::Principal;
use crate::call::Call;
use crate::csv;
use crate::openapi::{Description, INVALID, Parameter, by_hand};
use crate::response::{Problem, Response};
use crate::routes::insights::{Paging, filter, find, invalid, problem, told};
use crate::routes::query::insight;
use weir_app::App;
use weir_insights::insight::ActorsOf;
use weir_insights::paths::Paths;
use weir_insights::paths::legacy::paths_query;

pub(crate) const PATH: Description =
    Description::ok::<by_hand::PathsAnswer>("Which steps persons take one after another")
        .says("The edges between steps")
        .query(&[
            Parameter::text("path_type"),
            Parameter::text("include_event_types"),
            Parameter::text("start_point"),
            Parameter::text("end_point"),
            Parameter::text("exclude_events"),
            Parameter::text("step_limit"),
            Parameter::text("edge_limit"),
            Parameter::text("min_edge_weight"),
            Parameter::text("max_edge_weight"),
            Parameter::text("path_groupings"),
            Parameter::text("local_path_cleaning_filters"),
            Parameter::text("properties"),
            Parameter::text("date_from"),
            Parameter::text("date_to"),
        ])
        .body::<by_hand::AnyObject>()
        .or(&[INVALID]);

/// `GET insights/path/` and `POST`.
pub async fn path(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, rendering, .. } = call;
    let filter = filter(request).await?;
    let node = paths_query(&filter).map_err(|error| invalid(&error))?;
    let settings = insight::settings(&asker.project);
    let told = told(app, &asker, (&node, &filter)).await?;
    let mut body = told.into_body(&settings);
    body.insert("next".to_owned(), Value::Null);
    csv::answer(&app.node.cpu, StatusCode::OK, rendering, Value::Object(body)).await
}

pub(crate) const PERSONS: Description = Description::ok::<by_hand::PersonsOfPoint>(
    "Persons who went from a step to another one, or ended at one; those who did most often first",
)
.notes("Beside these, the filters of the paths, as for insights/path/")
.query(&[
    Parameter::text("path_start_key").about("Such as 1_/pricing"),
    Parameter::text("path_end_key").about("Of the next step"),
    Parameter::text("path_dropoff_key").about("Of the last step"),
    Parameter::text("search").about("Part of email, name or distinct id"),
    Parameter::shared("limit"),
    Parameter::shared("offset"),
])
.body::<by_hand::AnyObject>()
.or(&[INVALID]);

/// `GET persons/path/` and `POST`: the persons who took the step that the keys name.
pub async fn persons(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, mut request, rendering, .. } = call;
    let paging = Paging::of(app, &mut request).await?;
    let filter = filter(request).await?;
    let read = || Paths::parse(&paths_query(&filter)?);
    let actors = ActorsOf::Paths(read().map_err(|error| invalid(&error))?);
    let found = find(app, &asker.project, actors, (&filter, paging.page.part())).await;
    paging.answer(app, (&asker, rendering), found.map_err(problem)?).await
}
