//! Funnels by the filters of older clients: `insights/funnel/`, and `persons/funnel/` for the persons behind a step of
//! one.

use serde_json::{Value, json};

use crate::auth::Principal;
use crate::beside::beside;
use crate::fields::refused;
use crate::openapi::Parameter;
use crate::operation::input::input;
use crate::operation::output::Long;
use crate::operation::{Context, Operation};
use crate::response::Problem;
use crate::routes::insights::filters::{Sent, parameters};
use crate::routes::insights::people::{OfPoint, People};
use crate::routes::insights::{How, OlderAnswer, URLS_MAX_BYTES, address, as_json, invalid, told};
use weir_api::insights::funnel::{Conversion, Funnel, FunnelTo, Step, Steps};
use weir_api::insights::older::FunnelAnswer;
use weir_api::insights::value::{AsSent, BreakdownValue, PersonsUrl};
use weir_api::node::NodeError;
use weir_api::nodes::actors::FunnelsActorsQuery;
use weir_api::nodes::check::parse;
use weir_event::json;
use weir_insights::cache::Answer;
use weir_insights::funnels::Funnels;
use weir_insights::funnels::legacy::{funnel_actors, funnels_query};
use weir_insights::insight::ActorsOf;
use weir_insights::legacy::Filter;
use weir_insights::{ProjectSettings, legacy};

/// Parameters that select persons of a funnel; they do not identify the funnel.
const OF_STEPS: [&str; 8] = [
    "funnel_step",
    "funnel_custom_steps",
    "funnel_step_breakdown",
    "entrance_period_start",
    "drop_off",
    "limit",
    "offset",
    "search",
];

/// Names of fields of nodes, and of the parameters that they are read from.
const NAMES: [(&str, &str); 5] = [
    ("funnelStep", "funnel_step"),
    ("funnelCustomSteps", "funnel_custom_steps"),
    ("funnelStepBreakdown", "funnel_step_breakdown"),
    ("funnelTrendsDropOff", "drop_off"),
    ("funnelTrendsEntrancePeriodStart", "entrance_period_start"),
];

parameters! {
    /// Parameters of a funnel.
    OfFunnel: [
        Parameter::text("events"),
        Parameter::text("properties"),
        Parameter::text("date_from"),
        Parameter::text("date_to"),
        Parameter::text("interval"),
        Parameter::text("exclusions"),
        Parameter::text("breakdown"),
        Parameter::text("breakdown_type"),
        Parameter::text("breakdown_attribution_type"),
        Parameter::text("funnel_order_type"),
        Parameter::text("funnel_viz_type"),
        Parameter::text("funnel_window_interval"),
        Parameter::text("funnel_window_interval_unit"),
        Parameter::text("funnel_from_step"),
        Parameter::text("funnel_to_step"),
    ]
}

input! {
    /// How many actors go from step to step.
    pub struct Convert {
        both sent: Sent<OfFunnel>,
    }
}

impl Operation for Convert {
    type Who = Principal;
    type Out = Long<FunnelAnswer>;
    const SCOPE: &'static str = "insight:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let filter = self.sent.filter;
        let (app, settings) = (&cx.app, ProjectSettings::of(&cx.who.project));
        let node = funnels_query(&filter).map_err(|error| invalid(&error))?;
        let steps = node.get("series").and_then(Value::as_array);
        let mut told = match steps.is_some_and(|steps| !steps.is_empty()) {
            true => {
                let own = node.clone();
                let read = move |answer: &Answer| json::read_as(FunnelTo(&own), &answer.results);
                told(cx, (&node, &filter), read).await?
            }
            // A funnel without steps has an empty result.
            false => {
                OlderAnswer { result: Funnel::Steps(Steps::All(Vec::new())), how: How::now(app) }
            }
        };
        let project = cx.who.project.id.0;
        let answer = move || {
            add_urls(&mut told.result, &filter, project);
            Ok(Long(FunnelAnswer::of(told.how.computed(&settings), told.result)))
        };
        beside(&app.node.cpu, answer).await
    }
}

parameters! {
    /// Parameters of a step, or of a point of a trend.
    OfStep: [
        Parameter::integer("funnel_step")
            .about("From 1: who came to it; from -2: who dropped off before it"),
        Parameter::text("funnel_custom_steps")
            .about("JSON list of numbers of steps: who came just so far"),
        Parameter::text("funnel_step_breakdown"),
        Parameter::text("entrance_period_start").about("Interval of a trend, as in days"),
        Parameter::text("drop_off").about("Of a trend: true, or false for who converted"),
    ]
}

input! {
    /// The persons who came to a step, or not further than to the one before.
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
        check_point(&filter)?;
        let read = || {
            let funnels = Funnels::parse(&funnels_query(&filter)?)?;
            let asked = parse::<FunnelsActorsQuery>(&funnel_actors(&filter)?);
            let asked = asked.and_then(|asked| funnels.asked(asked, "")).map_err(named)?;
            Ok(ActorsOf::Funnels(funnels, asked))
        };
        let actors = read().map_err(|error| invalid(&error))?;
        People::behind(cx, actors, (&filter, page)).await
    }
}

/// Refuses to list the persons of a trend without a point.
fn check_point(filter: &Filter) -> Result<(), Problem> {
    if legacy::text(filter, "funnel_viz_type").as_deref() != Some("trends") {
        return Ok(());
    }
    for (name, kind) in [("drop_off", "bool"), ("entrance_period_start", "datetime")] {
        if filter.get(name).is_none_or(|value| value.is_null() || value.as_str() == Some("")) {
            let detail = format!(
                "Filter parameter {name} must be provided and a {kind} for funnel trends persons!"
            );
            return Err(refused(name, "invalid_input", detail));
        }
    }
    Ok(())
}

/// Replaces the field in the error by the name of the parameter.
fn named(error: NodeError) -> NodeError {
    let name = NAMES.iter().find(|(field, _)| *field == error.field);
    let field = name.map_or(error.field, |(_, name)| (*name).to_owned());
    NodeError { field, ..error }
}

/// Adds to each step the URLs of the persons who reached it, and of those who dropped off after the step before; and to
/// each point of a trend the URL of the persons who converted.
fn add_urls(funnel: &mut Funnel, filter: &Filter, project: i64) {
    let mut base = filter.clone();
    for name in OF_STEPS {
        base.remove(name);
    }
    let length = serde_json::to_string(&base).map_or(usize::MAX, |text| text.len());
    let places = match funnel {
        Funnel::Steps(Steps::All(steps)) => steps.len(),
        Funnel::Steps(Steps::ByValue(all)) => all.iter().map(Vec::len).sum(),
        Funnel::Trends(series) => series.iter().map(|series| series.days.len()).sum(),
        Funnel::Times(_) => 0,
    };
    // Two URLs for each step.
    if places.saturating_mul(2).saturating_mul(length) > URLS_MAX_BYTES {
        return;
    }
    match funnel {
        Funnel::Steps(Steps::All(steps)) => {
            steps.iter_mut().for_each(|step| add_to_step(step, &base, project));
        }
        Funnel::Steps(Steps::ByValue(all)) => {
            all.iter_mut().flatten().for_each(|step| add_to_step(step, &base, project));
        }
        Funnel::Trends(all) => {
            all.iter_mut().for_each(|series| add_to_series(series, &base, project));
        }
        Funnel::Times(_) => {}
    }
}

fn add_to_step(step: &mut Step, base: &Filter, project: i64) {
    let url = |number: i64| {
        let mut point = base.clone();
        point.insert("funnel_step".to_owned(), json!(number));
        add_value(&mut point, step.breakdown_value.as_ref());
        address(project, "persons/funnel/", &point)
    };
    let order = i64::try_from(step.order).unwrap_or(i64::MAX);
    let dropped = (order > 0).then(|| url(-order - 1));
    step.converted_people_url = Some(url(order.saturating_add(1)));
    step.dropped_people_url = Some(dropped);
}

fn add_to_series(series: &mut Conversion, base: &Filter, project: i64) {
    let url = |day: &String| {
        let mut point = base.clone();
        point.insert("entrance_period_start".to_owned(), json!(day));
        point.insert("drop_off".to_owned(), json!(false));
        add_value(&mut point, series.breakdown_value.as_ref());
        let url = address(project, "persons/funnel/", &point);
        PersonsUrl { filter: AsSent::of(&point), url }
    };
    series.persons_urls = Some(series.days.iter().map(url).collect());
}

/// Limits the persons of a point to one value of the breakdown.
fn add_value(point: &mut Filter, value: Option<&BreakdownValue>) {
    if let Some(value) = value {
        point.insert("funnel_step_breakdown".to_owned(), as_json(value));
    }
}
