//! Tools for insights: trends, funnels, retention and paths. Their arguments become the nodes of `POST query/`, whose
//! results are shown as the tables of pages.

use serde_json::{Value, json};

use crate::response::Problem;
use crate::routes::mcp::said::{Grid, Said};
use crate::routes::mcp::talk::{Talk, of_argument};
use crate::routes::pages::insights::span;
use crate::routes::query::Query;
use crate::routes::query::answer::Answer;
use weir_api::insights::AnswerTo;
use weir_api::node::{AnyNode, Node};
use weir_api::nodes::base::{BreakdownFilter, BreakdownProperty, CompareFilter, Dates, Insight};
use weir_api::nodes::filter::{Properties, PropertyFilter};
use weir_api::nodes::insights::{
    Display, FunnelsFilter, FunnelsQuery, RetentionFilter, RetentionQuery, TrendsFilter,
    TrendsQuery,
};
use weir_api::nodes::paths::{PathsFilter, PathsQuery};
use weir_api::nodes::series::{Entity, Series};
use weir_api::nodes::tools::{
    CountedEvents, FunnelArguments, InsightArguments, PathsArguments, RetentionArguments,
    TrendsArguments, TrendsShow,
};
use weir_base::error::Kind as Fault;
use weir_event::json;
use weir_insights::cache;
use weir_web::insight::links::Links;
use weir_web::insight::{links, result};
use weir_web::state::insight::{Kind, Question};
use weir_web::state::{sql, stored};
use weir_wire::query_node::unwrapped;

/// Most rows of a table.
pub(in crate::routes::mcp) const ROWS_MAX: usize = 200;

/// The tool `trends`.
pub(in crate::routes::mcp) async fn trends(
    talk: &Talk,
    own: TrendsArguments,
) -> Result<Said, Problem> {
    let kinds = ["TrendsQuery", "LifecycleQuery", "StickinessQuery"];
    if let Some(node) = whole(&own, &own.base, &kinds)? {
        return asked(talk, node).await;
    }
    let TrendsArguments {
        base,
        series,
        interval,
        breakdown,
        breakdown_type,
        breakdown_limit,
        compare,
        show,
        formulas,
    } = own;
    // A table has all series; without one it is about all events.
    let series = if series.is_empty() { vec![CountedEvents::default()] } else { series };
    let display = match show {
        None | Some(TrendsShow::Intervals) => None,
        Some(TrendsShow::Total) => Some(Display::Table),
        Some(TrendsShow::Cumulative) => Some(Display::Cumulative),
    };
    let node = TrendsQuery {
        base: common(base),
        series: series.into_iter().map(counted).collect(),
        interval: interval.map(|own| own.name().to_owned()),
        trends_filter: TrendsFilter { display, formulas, ..TrendsFilter::default() },
        breakdown_filter: split(breakdown, breakdown_type, breakdown_limit)?,
        compare_filter: CompareFilter {
            compare: compare.is_some(),
            compare_to: compare.filter(|before| before != "previous"),
        },
    };
    asked(talk, node.query()).await
}

/// The tool `funnel`.
pub(in crate::routes::mcp) async fn funnel(
    talk: &Talk,
    own: FunnelArguments,
) -> Result<Said, Problem> {
    if let Some(node) = whole(&own, &own.base, &["FunnelsQuery"])? {
        return asked(talk, node).await;
    }
    let FunnelArguments {
        base,
        steps,
        order,
        window,
        window_unit,
        breakdown,
        breakdown_type,
        breakdown_limit,
        show,
        interval,
    } = own;
    if steps.len() < 2 {
        let detail = "A funnel has two steps or more, such as [{\"event\": \"$pageview\"}, {\"event\": \"signed up\"}].";
        return Err(of_argument("steps", detail));
    }
    let node = FunnelsQuery {
        base: common(base),
        series: steps.into_iter().map(counted).collect(),
        interval: interval.map(|own| own.name().to_owned()),
        funnels_filter: FunnelsFilter {
            order_type: order,
            viz_type: show,
            window_interval: window,
            window_interval_unit: window_unit,
            ..FunnelsFilter::default()
        },
        breakdown_filter: split(breakdown, breakdown_type, breakdown_limit)?,
    };
    asked(talk, node.query()).await
}

/// The tool `retention`.
pub(in crate::routes::mcp) async fn retention(
    talk: &Talk,
    own: RetentionArguments,
) -> Result<Said, Problem> {
    if let Some(node) = whole(&own, &own.base, &["RetentionQuery"])? {
        return asked(talk, node).await;
    }
    let RetentionArguments { base, start, returning, interval, intervals, kind, cumulative } = own;
    let period = interval.map(|own| {
        let (first, rest) = own.name().split_at_checked(1).unwrap_or_default();
        format!("{}{rest}", first.to_uppercase())
    });
    let target_entity = start.map(target).transpose()?;
    // Without another event one comes back with the same.
    let returning = returning.map(target).transpose()?;
    let node = RetentionQuery {
        base: common(base),
        retention_filter: RetentionFilter {
            retention_type: kind,
            total_intervals: intervals,
            returning_entity: returning.or_else(|| target_entity.clone()),
            target_entity,
            period,
            cumulative,
            ..RetentionFilter::default()
        },
        ..RetentionQuery::default()
    };
    asked(talk, node.query()).await
}

/// The tool `paths`.
pub(in crate::routes::mcp) async fn paths(
    talk: &Talk,
    own: PathsArguments,
) -> Result<Said, Problem> {
    if let Some(node) = whole(&own, &own.base, &["PathsQuery"])? {
        return asked(talk, node).await;
    }
    let PathsArguments { base, include, start, end, exclude, groupings, steps, edges, least } = own;
    let node = PathsQuery {
        base: common(base),
        paths_filter: PathsFilter {
            include_event_types: include,
            start_point: start,
            end_point: end,
            exclude_events: exclude,
            path_groupings: groupings,
            step_limit: steps,
            edge_limit: edges,
            min_edge_weight: least,
            ..PathsFilter::default()
        },
        ..PathsQuery::default()
    };
    asked(talk, node.query()).await
}

/// The node that was sent in the place of all other arguments, if it was.
fn whole<T: Node>(
    own: &T,
    base: &InsightArguments,
    kinds: &[&str],
) -> Result<Option<Value>, Problem> {
    let Some(AnyNode(node)) = &base.query else { return Ok(None) };
    let mut alone = own.query();
    if let Value::Object(fields) = &mut alone {
        fields.retain(|name, _| name != "query");
        if let Some(other) = fields.keys().next() {
            let detail =
                format!("A whole query has everything in it; leave out {other}, or the query.");
            return Err(of_argument("query", detail));
        }
    }
    let node = unwrapped(node);
    match node.get("kind").and_then(Value::as_str) {
        Some(kind) if kinds.contains(&kind) => Ok(Some(node.clone())),
        _ => {
            let detail = format!("The kind of the query is {} here.", kinds.join(" or "));
            Err(of_argument("query", detail))
        }
    }
}

/// What all insights have.
fn common(own: InsightArguments) -> Insight {
    let InsightArguments { from, to, filters, without_test_accounts, .. } = own;
    Insight {
        date_range: Dates { date_from: from, date_to: to, explicit_date: false },
        properties: given(&filters),
        filter_test_accounts: without_test_accounts,
        ..Insight::default()
    }
}

fn given(filters: &[PropertyFilter]) -> Option<Properties> {
    let list = || Properties(filters.iter().map(Node::query).collect());
    (!filters.is_empty()).then(list)
}

/// A series of these events.
fn counted(own: CountedEvents) -> Series {
    let CountedEvents { event, action, math, math_property, name, filters } = own;
    let kind = if action.is_some() { "ActionsNode" } else { "EventsNode" };
    let base = Entity {
        kind: Some(kind.to_owned()),
        id: action.map(|id| json!(id)),
        event,
        custom_name: name,
        properties: given(&filters),
        ..Entity::default()
    };
    Series { base, math, math_property, ..Series::default() }
}

/// Events of a retention, in the form that only retention has.
fn target(own: CountedEvents) -> Result<Entity, Problem> {
    let CountedEvents { event, action, math, math_property, name, filters } = own;
    if math.is_some() || math_property.is_some() {
        let detail = "Retention counts persons, whatever their events are worth.";
        return Err(of_argument("math", detail));
    }
    let kind = if action.is_some() { "actions" } else { "events" };
    Ok(Entity {
        kind_of_older: Some(kind.to_owned()),
        id: action.map(|id| json!(id)).or_else(|| event.map(Value::from)),
        custom_name: name,
        properties: given(&filters),
        ..Entity::default()
    })
}

fn split(
    property: Option<String>,
    kind: Option<String>,
    limit: Option<usize>,
) -> Result<BreakdownFilter, Problem> {
    let Some(property) = property else {
        return match (kind, limit) {
            (None, None) => Ok(BreakdownFilter::default()),
            _ => Err(of_argument("breakdown", "The property of the breakdown is missing.")),
        };
    };
    let kind = Some(kind.unwrap_or_else(|| "event".to_owned()));
    let one = BreakdownProperty { property: Some(property), kind, ..BreakdownProperty::default() };
    let breakdowns = vec![one];
    Ok(BreakdownFilter { breakdowns, breakdown_limit: limit, ..BreakdownFilter::default() })
}

/// The answer to a node of an insight.
async fn asked(talk: &Talk, node: Value) -> Result<Said, Problem> {
    let answer = match talk.asking.perform(Query::node(node.clone())?).await? {
        Answer::Node(told) => told.answer,
        _ => return Err(Problem::not_acceptable()),
    };
    shown(talk, &node, &answer, ROWS_MAX)
}

/// A result of an insight: the table of its page, warnings, the page, and the SQL if there is one.
pub(in crate::routes::mcp) fn shown(
    talk: &Talk,
    node: &Value,
    answer: &cache::Answer,
    rows_max: usize,
) -> Result<Said, Problem> {
    let failed = |error| Problem::of(Fault::Internal, &error);
    let read = json::read_as(AnswerTo(node), &answer.results).map_err(failed)?;
    let (asking, project) = (&talk.asking, talk.asking.project());
    let question = stored::question(node);
    let sketch = || stored::sketch(node).unwrap_or_else(|| Question::new(Kind::Trends));
    let drawn = question.clone().unwrap_or_else(sketch);
    let drawn = result::shown(&read, &Links::new(project, &drawn));
    let title = match (&question, drawn.is_empty) {
        (_, true) => {
            "Nothing matches: try a longer time, another event, or fewer filters.".to_owned()
        }
        (Some(question), false) => {
            format!("{}, {}", question.kind().title(), question.range_text())
        }
        (None, false) => node.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned(),
    };
    let zone = &asking.asker.project.timezone;
    let mut said = Said::new(format!("{title} (times in {zone})"))
        .with(Grid::of_table(drawn.table, rows_max))
        .having("query", node.clone());
    for warning in warnings(&answer.told().map_err(failed)?) {
        said = said.noting(warning);
    }
    let Some(question) = question else {
        return Ok(said
            .noting("No page shows this query as it is; save it as an insight through the API."));
    };
    if let Some(span) = span(&asking.asker.project, node, answer.at) {
        said = said.by_sql(sql::of(&question, &span));
    }
    Ok(said.at(talk.address(&links::question(project, &question))))
}

/// Warnings of an answer.
fn warnings(told: &serde_json::Map<String, Value>) -> Vec<String> {
    let list = told.get("warnings").and_then(Value::as_array).map(Vec::as_slice);
    let detail = |own: &Value| own.get("detail").and_then(Value::as_str).map(str::to_owned);
    list.unwrap_or_default()
        .iter()
        .filter_map(detail)
        .map(|own| format!("Warning: {own}"))
        .collect()
}
