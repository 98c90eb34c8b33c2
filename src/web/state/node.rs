//! The query of the API that asks the same: [`node`].

use serde_json::{Map, Value, json};

use crate::state::breakdown::Breakdown;
use crate::state::exclusion::Exclusion;
use crate::state::filters::Filter;
use crate::state::insight::{DISPLAYS, Options, Question};
use crate::state::series::{Event, Series};

/// What an address has where it says nothing of the dates.
const FROM: &str = "-7d";

/// The query that `POST query/` answers.
pub fn node(question: &Question) -> Value {
    let mut node = Map::new();
    let mut set = |name: &str, value: Value| {
        if !value.is_null() {
            node.insert(name.to_owned(), value);
        }
    };
    set("kind", json!(question.kind().query()));
    set("dateRange", range(question));
    if !question.filters.is_empty() {
        set("properties", properties(&question.filters));
    }
    if question.is_without_tests {
        set("filterTestAccounts", json!(true));
    }
    set("aggregation_group_type_index", json!(question.group));
    if !matches!(question.options, Options::Retention { .. } | Options::Paths { .. }) {
        set("interval", json!(question.interval));
        set("series", question.series.iter().map(series).collect());
    }
    match &question.options {
        Options::Trends { breakdown, compare, .. } => {
            set("breakdownFilter", split(breakdown));
            set("compareFilter", compared(compare.as_deref()));
            set("trendsFilter", trends(&question.options));
        }
        Options::Funnel { breakdown, .. } => {
            set("breakdownFilter", split(breakdown));
            set("funnelsFilter", funnel(question));
        }
        Options::Retention { .. } => set("retentionFilter", retention(question)),
        Options::Paths { .. } => set("pathsFilter", paths(&question.options)),
        Options::Lifecycle { only } => {
            if !only.is_empty() {
                set("lifecycleFilter", json!({"toggledLifecycles": only}));
            }
        }
        Options::Stickiness { compare, interval_count, .. } => {
            set("compareFilter", compared(compare.as_deref()));
            set("intervalCount", json!(interval_count));
            set("stickinessFilter", stickiness(&question.options));
        }
    }
    Value::Object(node)
}

/// What is given of some fields; null if nothing is.
fn given(fields: Value) -> Value {
    let Value::Object(mut fields) = fields else { return fields };
    fields.retain(|_, value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(list) => !list.is_empty(),
        _ => true,
    });
    if fields.is_empty() { Value::Null } else { Value::Object(fields) }
}

fn range(question: &Question) -> Value {
    let range = &question.range;
    // The last intervals of a retention are as many as it has cells, unless it says from when on.
    let from = match question.options {
        Options::Retention { .. } => range.from.as_deref(),
        _ => Some(range.from.as_deref().unwrap_or(FROM)),
    };
    given(json!({"date_from": from, "date_to": range.to}))
}

/// Filters as the API has them.
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
    let operator = filter.operator;
    given(json!({
        "key": filter.key, "type": owner, "group_type_index": group, "operator": operator, "value": value,
    }))
}

/// The type of an owner in the API, and the index of a group type.
fn owner(owner: &'static str) -> (&'static str, Option<u8>) {
    match owner.strip_prefix("group").and_then(|index| index.parse().ok()) {
        Some(index) => ("group", Some(index)),
        None => (owner, None),
    }
}

fn entity(series: &Series) -> Map<String, Value> {
    let mut node = Map::new();
    let mut set = |name: &str, value: Value| {
        node.insert(name.to_owned(), value);
    };
    match &series.event {
        Event::All => {
            set("kind", json!("EventsNode"));
            set("event", Value::Null);
        }
        Event::Named(name) => {
            set("kind", json!("EventsNode"));
            set("event", json!(name));
        }
        Event::Action(id) => {
            set("kind", json!("ActionsNode"));
            set("id", json!(id));
        }
    }
    if let Some(name) = &series.name {
        set("custom_name", json!(name));
    }
    if !series.filters.is_empty() {
        set("properties", properties(&series.filters));
    }
    node
}

fn series(series: &Series) -> Value {
    let mut node = entity(series);
    if series.math != "total" {
        node.insert("math".to_owned(), json!(series.math));
    }
    if let Some(property) = &series.math_property {
        node.insert("math_property".to_owned(), json!(property));
    }
    if let Some(group) = series.math_group {
        node.insert("math_group_type_index".to_owned(), json!(group));
    }
    if series.is_optional {
        node.insert("optionalInFunnel".to_owned(), json!(true));
    }
    Value::Object(node)
}

/// An event of a retention, in the form that only retention has.
fn target(series: &Series) -> Value {
    let mut node = entity(series);
    node.remove("kind");
    let event = node.remove("event");
    let (kind, id) = match &series.event {
        Event::Action(id) => ("actions", json!(id)),
        Event::All | Event::Named(_) => ("events", event.unwrap_or_default()),
    };
    node.insert("type".to_owned(), json!(kind));
    node.insert("id".to_owned(), id);
    Value::Object(node)
}

fn split(breakdown: &Breakdown) -> Value {
    if breakdown.keys.is_empty() {
        return Value::Null;
    }
    let (limit, is_other_hidden) = (breakdown.limit, breakdown.is_other_hidden);
    let mut node = given(
        json!({"breakdown_limit": limit, "breakdown_hide_other_aggregation": is_other_hidden}),
    );
    let mut set = |name: &str, value: Value| match &mut node {
        Value::Object(fields) => _ = fields.insert(name.to_owned(), value),
        other => *other = json!({name: value}),
    };
    if breakdown.is_by_cohorts() {
        let id = |(_, key): &(&str, String)| match key.parse::<u32>() {
            Ok(id) => json!(id),
            Err(_) => json!(key),
        };
        set("breakdown_type", json!("cohort"));
        set("breakdown", breakdown.keys.iter().map(id).collect());
        return node;
    }
    let one = |(name, key): &(&'static str, String)| {
        let (owner, group) = owner(name);
        given(json!({"property": key, "type": owner, "group_type_index": group}))
    };
    set("breakdowns", breakdown.keys.iter().map(one).collect());
    node
}

fn compared(compare: Option<&str>) -> Value {
    match compare {
        None => Value::Null,
        Some("previous") => json!({"compare": true}),
        Some(duration) => json!({"compare": true, "compare_to": duration}),
    }
}

fn trends(options: &Options) -> Value {
    let Options::Trends { shown, formulas, smoothing, .. } = options else { return Value::Null };
    let display = DISPLAYS.iter().find(|(own, _)| own == shown).map(|(_, name)| name);
    given(json!({"display": display, "formulas": formulas, "smoothingIntervals": smoothing}))
}

fn funnel(question: &Question) -> Value {
    let Options::Funnel { attribution, shown, order, window, window_unit, exclusions, .. } =
        &question.options
    else {
        return Value::Null;
    };
    let last = question.series.len().saturating_sub(1);
    let exclusions: Vec<Value> = exclusions.iter().map(|own| excluded(own, last)).collect();
    let unless = |word: &str, usual: &str| (word != usual).then(|| word.to_owned());
    given(json!({
        "funnelVizType": unless(shown, "steps"), "funnelOrderType": unless(order, "ordered"),
        "breakdownAttributionType": unless(attribution, "first_touch"),
        "funnelWindowInterval": window, "funnelWindowIntervalUnit": unless(window_unit, "day"),
        "exclusions": exclusions,
    }))
}

/// An exclusion; `last` is the number of the last step, from 0, as the API counts them.
fn excluded(own: &Exclusion, last: usize) -> Value {
    let series = Series { filters: own.filters.clone(), ..Series::of(own.event.clone()) };
    let mut node = entity(&series);
    let step = |step: u16| usize::from(step).saturating_sub(1);
    node.insert("funnelFromStep".to_owned(), json!(own.from.map_or(0, step)));
    node.insert("funnelToStep".to_owned(), json!(own.to.map_or(last, step)));
    Value::Object(node)
}

fn retention(question: &Question) -> Value {
    let Options::Retention { type_, intervals, is_cumulative, occurrences, .. } = &question.options
    else {
        return Value::Null;
    };
    let period = question.interval.map(|interval| {
        let (first, rest) = interval.split_at_checked(1).unwrap_or((interval, ""));
        format!("{}{rest}", first.to_uppercase())
    });
    let mut events = question.series.iter();
    let target_entity = events.next().map(target);
    // Without another event one comes back with the same.
    let returning = events.next().map(target).or_else(|| target_entity.clone());
    let kind = (*type_ != "recurring").then(|| format!("retention_{type_}"));
    given(json!({
        "period": period, "totalIntervals": intervals, "retentionType": kind, "cumulative": is_cumulative,
        "minimumOccurrences": occurrences, "targetEntity": target_entity, "returningEntity": returning,
    }))
}

fn paths(options: &Options) -> Value {
    let Options::Paths { include, start, end, steps, edges, least, groupings, exclude } = options
    else {
        return Value::Null;
    };
    given(json!({
        "includeEventTypes": include, "startPoint": start, "endPoint": end, "stepLimit": steps,
        "edgeLimit": edges, "minEdgeWeight": least, "pathGroupings": groupings, "excludeEvents": exclude,
    }))
}

fn stickiness(options: &Options) -> Value {
    let Options::Stickiness { is_cumulative, criteria, .. } = options else { return Value::Null };
    let criteria = criteria.map(|(operator, value)| json!({"operator": operator, "value": value}));
    given(
        json!({"computedAs": is_cumulative.then_some("cumulative"), "stickinessCriteria": criteria}),
    )
}
