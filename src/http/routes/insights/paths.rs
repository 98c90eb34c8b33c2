//! Paths by the filters of older clients: `insights/path/`, and `persons/path/` for the persons behind a step.

use crate::auth::Principal;
use crate::openapi::Parameter;
use crate::operation::input::input;
use crate::operation::output::Long;
use crate::operation::{Context, Operation};
use crate::response::Problem;
use crate::routes::insights::filters::{Sent, parameters};
use crate::routes::insights::people::{OfPoint, People};
use crate::routes::insights::{invalid, plain, told};
use weir_api::insights::older::PathsAnswer;
use weir_insights::ProjectSettings;
use weir_insights::insight::ActorsOf;
use weir_insights::paths::Paths;
use weir_insights::paths::legacy::paths_query;

parameters! {
    /// Parameters of paths.
    OfPaths: [
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
    ]
}

input! {
    /// Which steps persons take one after another.
    pub struct Path {
        both sent: Sent<OfPaths>,
    }
}

impl Operation for Path {
    type Who = Principal;
    type Out = Long<PathsAnswer>;
    const SCOPE: &'static str = "insight:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let filter = self.sent.filter;
        let node = paths_query(&filter).map_err(|error| invalid(&error))?;
        let settings = ProjectSettings::of(&cx.who.project);
        let told = told(cx, (&node, &filter), plain).await?;
        Ok(Long(PathsAnswer::of(told.how.computed(&settings), told.result)))
    }
}

parameters! {
    /// Parameters of a step.
    OfStep: [
        Parameter::text("path_start_key").about("Such as 1_/pricing"),
        Parameter::text("path_end_key").about("Of the next step"),
        Parameter::text("path_dropoff_key").about("Of the last step"),
    ]
}

input! {
    /// The persons who took the step that the keys name.
    pub struct Persons {
        both sent: OfPoint<OfStep>,
    }
}

impl Operation for Persons {
    type Who = Principal;
    type Out = People;
    const SCOPE: &'static str = "person:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let OfPoint { filter, page, .. } = self.sent;
        let read = || Paths::parse(&paths_query(&filter)?);
        let actors = ActorsOf::Paths(read().map_err(|error| invalid(&error))?);
        People::behind(cx, actors, (&filter, page)).await
    }
}
