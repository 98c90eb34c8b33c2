//! Converts the query of a page to the API's JSON: [`node`].

use serde_json::{Value, json};

use crate::state::breakdown::Breakdown;
use crate::state::exclusion::Exclusion;
use crate::state::filters::Filter;
use crate::state::insight::{DISPLAYS, Options, Question};
use crate::state::series::{Event, Series};
use weir_api::insights::series::Status;
use weir_api::node::Node;
use weir_api::nodes::base::{BreakdownFilter, BreakdownProperty, CompareFilter, Dates, Insight};
use weir_api::nodes::filter::{Properties, PropertyFilter};
use weir_api::nodes::insights::{
    AttributionType, ComputedAs, CriteriaOperator, Display, FunnelOrderType, FunnelVizType,
    FunnelsFilter, FunnelsQuery, LifecycleFilter, LifecycleQuery, RetentionFilter, RetentionQuery,
    RetentionType, StickinessCriteria, StickinessFilter, StickinessQuery, TrendsFilter,
    TrendsQuery, WindowUnit,
};
use weir_api::nodes::paths::{PathsFilter, PathsQuery};
use weir_api::nodes::series as nodes;
use weir_api::nodes::series::Entity;

/// Default start of the date range of an address.
const FROM: &str = "-7d";

/// The query of the API.
pub fn node(question: &Question) -> Value {
    match &question.options {
        Options::Trends { breakdown, compare, shown, formulas, smoothing } => TrendsQuery {
            base: base(question),
            series: all_series(question),
            interval: interval(question),
            trends_filter: TrendsFilter {
                display: display(shown),
                formulas: formulas.clone(),
                smoothing_intervals: smoothing.map(usize::from),
                ..TrendsFilter::default()
            },
            breakdown_filter: split(breakdown),
            compare_filter: compared(compare.as_deref()),
        }
        .query(),
        Options::Funnel { .. } => funnel(question).query(),
        Options::Retention { .. } => retention(question).query(),
        Options::Paths { .. } => paths(question).query(),
        Options::Lifecycle { only } => LifecycleQuery {
            base: base(question),
            series: all_series(question),
            interval: interval(question),
            lifecycle_filter: LifecycleFilter {
                toggled: only.iter().filter_map(|name| Status::of(name)).collect(),
            },
            ..LifecycleQuery::default()
        }
        .query(),
        Options::Stickiness { compare, interval_count, is_cumulative, criteria } => {
            let criteria = criteria.map(|(operator, value)| StickinessCriteria {
                operator: CriteriaOperator::of(operator),
                value: usize::try_from(value).ok(),
            });
            StickinessQuery {
                base: base(question),
                series: all_series(question),
                interval: interval(question),
                interval_count: interval_count.map(usize::from),
                stickiness_filter: StickinessFilter {
                    computed_as: is_cumulative.then_some(ComputedAs::Cumulative),
                    criteria,
                },
                compare_filter: compared(compare.as_deref()),
            }
            .query()
        }
    }
}

/// What all insights have.
fn base(question: &Question) -> Insight {
    let range = &question.range;
    // Without a start date a retention has the last intervals, as many as it has cells.
    let from = match question.options {
        Options::Retention { .. } => range.from.as_deref(),
        _ => Some(range.from.as_deref().unwrap_or(FROM)),
    };
    Insight {
        date_range: Dates {
            date_from: from.map(str::to_owned),
            date_to: range.to.clone(),
            explicit_date: false,
        },
        properties: given(&question.filters),
        filter_test_accounts: question.is_without_tests,
        aggregation_group_type_index: question.group.map(usize::from),
        ..Insight::default()
    }
}

fn interval(question: &Question) -> Option<String> {
    question.interval.map(str::to_owned)
}

fn all_series(question: &Question) -> Vec<nodes::Series> {
    question.series.iter().map(series).collect()
}

fn given(filters: &[Filter]) -> Option<Properties> {
    (!filters.is_empty()).then(|| Properties(properties(filters)))
}

/// A word of the API unless it is the usual one.
fn unless<T>(word: &str, usual: &str, of: impl Fn(&str) -> Option<T>) -> Option<T> {
    Some(word).filter(|word| *word != usual).and_then(of)
}

/// Filters in the API's format.
pub fn properties(filters: &[Filter]) -> Value {
    filters.iter().map(property).collect()
}

fn property(filter: &Filter) -> Value {
    if filter.owner == "cohort" {
        let operator = if filter.operator == "not_in" { "not_in" } else { "in" };
        let id = filter.key.parse::<u32>().unwrap_or(0);
        return json!({"key": "id", "type": "cohort", "operator": operator, "value": id});
    }
    let value = match filter.values.as_slice() {
        _ if !filter.has_values() => Value::Null,
        [one] => json!(one),
        several => json!(several),
    };
    let (owner, group) = owner(filter.owner);
    let filter = PropertyFilter {
        key: Some(filter.key.clone()),
        kind: Some(owner.to_owned()),
        group_type_index: group.map(usize::from),
        operator: Some(filter.operator.to_owned()),
        value: Some(value),
        ..PropertyFilter::default()
    };
    filter.query()
}

/// The type of an owner in the API, and the index of a group type.
fn owner(owner: &'static str) -> (&'static str, Option<u8>) {
    match owner.strip_prefix("group").and_then(|index| index.parse().ok()) {
        Some(index) => ("group", Some(index)),
        None => (owner, None),
    }
}

fn entity(event: &Event, filters: &[Filter]) -> Entity {
    let (kind, id, event) = match event {
        Event::All => ("EventsNode", None, None),
        Event::Named(name) => ("EventsNode", None, Some(name.clone())),
        Event::Action(id) => ("ActionsNode", Some(json!(id)), None),
    };
    Entity {
        kind: Some(kind.to_owned()),
        id,
        event,
        properties: given(filters),
        ..Entity::default()
    }
}

fn series(series: &Series) -> nodes::Series {
    nodes::Series {
        base: Entity { custom_name: series.name.clone(), ..entity(&series.event, &series.filters) },
        math: Some(series.math).filter(|math| *math != "total").map(str::to_owned),
        math_property: series.math_property.clone(),
        math_group_type_index: series.math_group.map(usize::from),
        optional_in_funnel: series.is_optional,
        ..nodes::Series::default()
    }
}

/// An event of a retention, in the form that only retention has.
fn target(series: &Series) -> Entity {
    let (kind, id) = match &series.event {
        Event::All => ("events", None),
        Event::Named(name) => ("events", Some(json!(name))),
        Event::Action(id) => ("actions", Some(json!(id))),
    };
    Entity {
        kind_of_older: Some(kind.to_owned()),
        id,
        custom_name: series.name.clone(),
        properties: given(&series.filters),
        ..Entity::default()
    }
}

fn split(breakdown: &Breakdown) -> BreakdownFilter {
    if breakdown.keys.is_empty() {
        return BreakdownFilter::default();
    }
    let common = BreakdownFilter {
        breakdown_limit: breakdown.limit.map(usize::from),
        breakdown_hide_other_aggregation: breakdown.is_other_hidden,
        ..BreakdownFilter::default()
    };
    if breakdown.is_by_cohorts() {
        let id = |(_, key): &(&str, String)| match key.parse::<u32>() {
            Ok(id) => json!(id),
            Err(_) => json!(key),
        };
        return BreakdownFilter {
            breakdown_type: Some("cohort".to_owned()),
            breakdown: Some(breakdown.keys.iter().map(id).collect()),
            ..common
        };
    }
    let one = |(name, key): &(&'static str, String)| {
        let (owner, group) = owner(name);
        BreakdownProperty {
            property: Some(key.clone()),
            kind: Some(owner.to_owned()),
            group_type_index: group.map(usize::from),
            ..BreakdownProperty::default()
        }
    };
    BreakdownFilter { breakdowns: breakdown.keys.iter().map(one).collect(), ..common }
}

fn compared(compare: Option<&str>) -> CompareFilter {
    CompareFilter {
        compare: compare.is_some(),
        compare_to: compare.filter(|before| *before != "previous").map(str::to_owned),
    }
}

/// How trends are drawn, by the word of an address; lines have none.
fn display(shown: &str) -> Option<Display> {
    DISPLAYS.iter().find(|(own, _)| *own == shown).map(|(_, display)| *display)
}

/// The query of a funnel.
pub(super) fn funnel(question: &Question) -> FunnelsQuery {
    let common = FunnelsQuery {
        base: base(question),
        series: all_series(question),
        interval: interval(question),
        ..FunnelsQuery::default()
    };
    let Options::Funnel { breakdown, attribution, shown, order, window, window_unit, exclusions } =
        &question.options
    else {
        return common;
    };
    let last = question.series.len().saturating_sub(1);
    FunnelsQuery {
        funnels_filter: FunnelsFilter {
            viz_type: unless(shown, "steps", FunnelVizType::of),
            order_type: unless(order, "ordered", FunnelOrderType::of),
            breakdown_attribution_type: unless(attribution, "first_touch", AttributionType::of),
            window_interval: window.and_then(|window| usize::try_from(window).ok()),
            window_interval_unit: unless(window_unit, "day", WindowUnit::of),
            exclusions: exclusions.iter().map(|own| excluded(own, last)).collect(),
            ..FunnelsFilter::default()
        },
        breakdown_filter: split(breakdown),
        ..common
    }
}

/// An exclusion; `last` is the number of the last step, from 0, as the API counts them.
fn excluded(own: &Exclusion, last: usize) -> nodes::Exclusion {
    let step = |step: u16| usize::from(step).saturating_sub(1);
    nodes::Exclusion {
        base: entity(&own.event, &own.filters),
        from_step: Some(own.from.map_or(0, step)),
        to_step: Some(own.to.map_or(last, step)),
    }
}

fn retention(question: &Question) -> RetentionQuery {
    let common = RetentionQuery { base: base(question), ..RetentionQuery::default() };
    let Options::Retention { type_, intervals, is_cumulative, occurrences, .. } = &question.options
    else {
        return common;
    };
    let period = question.interval.map(|interval| {
        let (first, rest) = interval.split_at_checked(1).unwrap_or((interval, ""));
        format!("{}{rest}", first.to_uppercase())
    });
    let mut events = question.series.iter();
    let target_entity = events.next().map(target);
    // Without another event one comes back with the same.
    let returning_entity = events.next().map(target).or_else(|| target_entity.clone());
    let of_type = |type_: &str| RetentionType::of(&format!("retention_{type_}"));
    RetentionQuery {
        retention_filter: RetentionFilter {
            period,
            total_intervals: intervals.map(usize::from),
            retention_type: unless(type_, "recurring", of_type),
            cumulative: *is_cumulative,
            minimum_occurrences: occurrences.and_then(|own| usize::try_from(own).ok()),
            target_entity,
            returning_entity,
            ..RetentionFilter::default()
        },
        ..common
    }
}

/// The query of paths.
pub(super) fn paths(question: &Question) -> PathsQuery {
    let common = PathsQuery { base: base(question), ..PathsQuery::default() };
    let Options::Paths { include, start, end, steps, edges, least, groupings, exclude } =
        &question.options
    else {
        return common;
    };
    PathsQuery {
        paths_filter: PathsFilter {
            include_event_types: include.iter().map(|&own| own.to_owned()).collect(),
            start_point: start.clone(),
            end_point: end.clone(),
            step_limit: steps.map(usize::from),
            edge_limit: edges.map(usize::from),
            min_edge_weight: least.and_then(|least| usize::try_from(least).ok()),
            path_groupings: groupings.clone(),
            exclude_events: exclude.clone(),
            ..PathsFilter::default()
        },
        ..common
    }
}
