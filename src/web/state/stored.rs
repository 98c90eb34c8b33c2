//! Reads the query of a saved insight: [`question`] builds it from the JSON that a client saved, if an address can
//! represent all of it; [`sketch`] represents as much as possible.

use serde_json::{Map, Value};

use crate::state::filters::Filter;
use crate::state::insight::{DISPLAYS, Kind, Question};
use crate::state::node::node;
use crate::state::parameters::{Parameters, Printer};
use crate::state::series::{Event, LETTERS};
use weir_api::insights::series::Status;
use weir_api::node::{Content, NodeError};
use weir_api::nodes::base::{BreakdownFilter, CompareFilter, Insight};
use weir_api::nodes::filter::{Properties, PropertyFilter};
use weir_api::nodes::insights::{
    AttributionType, ComputedAs, CriteriaOperator, Display, FunnelOrderType, FunnelVizType,
    FunnelsQuery, LifecycleQuery, RetentionQuery, RetentionType, StickinessCriteria,
    StickinessQuery, TrendsFilter, TrendsQuery, WindowUnit,
};
use weir_api::nodes::paths::PathsQuery;
use weir_api::nodes::series as nodes;
use weir_api::nodes::series::{Entity, Exclusion};
use weir_wire::query_node::unwrapped;

/// Most parameters of a query that a sketch drops because an address cannot represent them.
const UNSAID_MAX: usize = 30;

/// Fields that only affect the display, or repeat others.
const IDLE: [&str; 8] =
    ["version", "tags", "response", "modifiers", "name", "full", "showHeader", "showTable"];

/// Values that are equivalent to an absent field.
const USUAL: [(&str, &str); 9] = [
    ("operator", "exact"),
    ("type", "event"),
    ("type", "events"),
    ("kind", "EventsNode"),
    ("math", "total"),
    ("display", "ActionsLineGraph"),
    ("funnelVizType", "steps"),
    ("funnelOrderType", "ordered"),
    ("date_from", "-7d"),
];

/// Most levels of nested queries that lists look into.
const NESTED_MAX: usize = 4;

/// The kind of an insight; `None` where this server has no page for it.
pub fn kind_of(query: &Value) -> Option<Kind> {
    let kind = unwrapped(query).get("kind").and_then(Value::as_str)?;
    Kind::ALL.into_iter().find(|own| own.query() == kind)
}

/// The interval of an insight, if it has one.
pub fn interval_of(query: &Value) -> Option<&str> {
    query.get("interval").and_then(Value::as_str)
}

/// The query reduced to the fields that a list shows: its kinds and those of its source.
pub fn outline(query: &Value) -> Value {
    outline_within(query, NESTED_MAX)
}

fn outline_within(query: &Value, levels: usize) -> Value {
    let text = |name: &str| Some((name.to_owned(), query.get(name)?.as_str()?.into()));
    let mut kept: Map<String, Value> = ["kind", "display"].into_iter().filter_map(text).collect();
    if query.get("query").is_some_and(Value::is_string) {
        kept.insert("query".to_owned(), "".into());
    }
    if let Some(source) = query.get("source").filter(|_| levels > 0) {
        kept.insert("source".to_owned(), outline_within(source, levels - 1));
    }
    Value::Object(kept)
}

/// The query as form fields; `None` if an address cannot represent it.
pub fn question(query: &Value) -> Option<Question> {
    let kind = kind_of(query)?;
    let query = unwrapped(query);
    let query = in_lists(query.clone());
    let mut printer = Printer::default();
    add(&mut printer, &query, kind).ok()?;
    let question = Question::parse(kind, &printer.finish()).ok()?;
    (plain(&node(&question)) == plain(&query)).then_some(question)
}

/// Filters of the API as rows of a form; `None` if rows cannot represent them.
pub fn filters_of(properties: &Value) -> Option<Vec<Filter>> {
    let is_empty = match properties {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(group) => group.is_empty(),
        _ => false,
    };
    if is_empty {
        return Some(Vec::new());
    }
    let query = serde_json::json!({"kind": Kind::Trends.query(), "properties": properties});
    question(&query).map(|question| question.filters)
}

/// A query without its filters, as far as an address can represent it: enough to label its result. `None` for another
/// kind of query.
pub fn sketch(query: &Value) -> Option<Question> {
    let query = unwrapped(query);
    let name = query.get("kind").and_then(Value::as_str)?;
    let kind = Kind::ALL.into_iter().find(|kind| kind.query() == name)?;
    let mut query = in_lists(query.clone());
    remove_filters(&mut query);
    let mut printer = Printer::default();
    if add(&mut printer, &query, kind).is_err() {
        return Some(Question::new(kind));
    }
    let Ok(mut parameters) = Parameters::parse(&printer.finish()) else {
        return Some(Question::new(kind));
    };
    for _ in 0..UNSAID_MAX {
        match Question::take(kind, &mut parameters.clone()) {
            Ok(question) => return Some(question),
            Err(wrong) => parameters.without(&[&wrong.name]),
        }
    }
    Some(Question::new(kind))
}

fn remove_filters(query: &mut Value) {
    let Value::Object(fields) = query else { return };
    fields.remove("properties");
    if let Some(Value::Array(series)) = fields.get_mut("series") {
        for own in series.iter_mut().filter_map(Value::as_object_mut) {
            own.remove("properties");
        }
    }
}

/// The query with filters and breakdowns as lists, where these are equivalent.
fn in_lists(mut query: Value) -> Value {
    if let Some(properties) = query.get_mut("properties")
        && let Some(list) = flat(properties)
    {
        *properties = Value::Array(list);
    }
    with_breakdowns(query)
}

/// The filters of nested AND groups, as one list; `None` for any other tree.
fn flat(properties: &Value) -> Option<Vec<Value>> {
    let list = match properties {
        Value::Array(list) => list,
        Value::Object(group) => match (group.get("type"), group.get("values")) {
            (Some(Value::String(all)), Some(Value::Array(list))) if all == "AND" => list,
            (Some(Value::String(any)), Some(Value::Array(list)))
                if any == "OR" && list.len() < 2 =>
            {
                list
            }
            _ => return None,
        },
        _ => return None,
    };
    let is_group = |one: &Value| one.get("values").is_some_and(Value::is_array);
    let each = |one: &Value| if is_group(one) { flat(one) } else { Some(vec![one.clone()]) };
    Some(list.iter().map(each).collect::<Option<Vec<_>>>()?.concat())
}

/// A breakdown in separate fields, as the equivalent list.
fn with_breakdowns(mut query: Value) -> Value {
    let Some(Value::Object(filter)) = query.get_mut("breakdownFilter") else { return query };
    let is_property = filter.get("breakdown_type").and_then(Value::as_str) != Some("cohort");
    let Some(Value::String(key)) = filter.get("breakdown").filter(|_| is_property) else {
        return query;
    };
    let mut one = Map::new();
    one.insert("property".to_owned(), Value::from(key.as_str()));
    for (from, to) in
        [("breakdown_type", "type"), ("breakdown_group_type_index", "group_type_index")]
    {
        if let Some(value) = filter.get(from) {
            one.insert(to.to_owned(), value.clone());
        }
    }
    filter.retain(|name, _| {
        !matches!(name.as_str(), "breakdown" | "breakdown_type" | "breakdown_group_type_index")
    });
    filter.insert("breakdowns".to_owned(), Value::Array(vec![Value::Object(one)]));
    query
}

/// The query without fields that have no effect, for a comparison.
fn plain(value: &Value) -> Value {
    match value {
        Value::Array(list) => list.iter().map(plain).collect(),
        Value::Object(fields) => {
            let said = fields.iter().filter(|(name, _)| !IDLE.contains(&name.as_str()));
            let operator = fields.get("operator").and_then(Value::as_str);
            let is_of_any = matches!(operator, None | Some("exact" | "is_not"));
            let said = said.map(|(name, value)| match value.as_array().map(Vec::as_slice) {
                // A list of one value is equivalent to that value.
                Some([one]) if name == "value" && is_of_any => (name.clone(), one.clone()),
                _ => (name.clone(), plain(value)),
            });
            let is_said = |(name, value): &(String, Value)| match value {
                Value::Null | Value::Bool(false) => false,
                Value::String(text) => {
                    !text.is_empty() && !USUAL.contains(&(name.as_str(), text.as_str()))
                }
                Value::Array(list) => !list.is_empty(),
                Value::Object(fields) => !fields.is_empty(),
                Value::Number(_) | Value::Bool(true) => true,
            };
            Value::Object(said.filter(is_said).collect())
        }
        other => other.clone(),
    }
}

/// Adds what a query says. What is lost shows when the question is compared with it.
///
/// # Errors
///
/// A field has another type.
fn add(printer: &mut Printer, query: &Value, kind: Kind) -> Result<(), NodeError> {
    match kind {
        Kind::Trends => {
            let own = TrendsQuery::read(query, "")?;
            base(printer, &own.base);
            all_series(printer, &own.series);
            printer.add("interval", own.interval);
            let TrendsFilter { display, formulas, smoothing_intervals, .. } = own.trends_filter;
            printer.add_all("formula", &formulas);
            printer.add("smoothing", smoothing_intervals);
            // Another name of the same.
            let display =
                if display == Some(Display::StackedBar) { Some(Display::Bar) } else { display };
            let shown = DISPLAYS.iter().find(|(_, own)| Some(*own) == display);
            printer.add("show", shown.map(|(shown, _)| shown));
            compared(printer, own.compare_filter);
            breakdown(printer, own.breakdown_filter);
        }
        Kind::Funnel => {
            let own = FunnelsQuery::read(query, "")?;
            base(printer, &own.base);
            all_series(printer, &own.series);
            printer.add("interval", own.interval);
            let options = own.funnels_filter;
            printer.add("show", options.viz_type.map(FunnelVizType::name));
            printer.add("order", options.order_type.map(FunnelOrderType::name));
            let attribution = options.breakdown_attribution_type;
            printer.add("attribution", attribution.map(AttributionType::name));
            printer.add("window", options.window_interval);
            printer.add("window.unit", options.window_interval_unit.map(WindowUnit::name));
            breakdown(printer, own.breakdown_filter);
            for (own, number) in options.exclusions.iter().zip(1..) {
                exclusion(printer, own, &format!("not{number}"));
            }
        }
        Kind::Retention => retention(printer, RetentionQuery::read(query, "")?),
        Kind::Paths => paths(printer, PathsQuery::read(query, "")?),
        Kind::Lifecycle => {
            let own = LifecycleQuery::read(query, "")?;
            base(printer, &own.base);
            all_series(printer, &own.series);
            printer.add("interval", own.interval);
            let only: Vec<&str> =
                own.lifecycle_filter.toggled.into_iter().map(Status::name).collect();
            printer.add_all("only", &only);
        }
        Kind::Stickiness => stickiness(printer, StickinessQuery::read(query, "")?),
    }
    Ok(())
}

fn retention(printer: &mut Printer, own: RetentionQuery) {
    base(printer, &own.base);
    let options = own.retention_filter;
    for (own, letter) in [(options.target_entity, "a"), (options.returning_entity, "b")] {
        if let Some(own) = own {
            entity(printer, &own, letter);
        }
    }
    printer.add("interval", options.period.map(|own| own.to_lowercase()));
    let type_ = options.retention_type.map(RetentionType::name);
    printer.add("type", type_.map(|own| own.trim_start_matches("retention_")));
    printer.add("intervals", options.total_intervals);
    printer.truth("cumulative", options.cumulative);
    printer.add("occurrences", options.minimum_occurrences);
}

fn stickiness(printer: &mut Printer, own: StickinessQuery) {
    base(printer, &own.base);
    all_series(printer, &own.series);
    printer.add("interval", own.interval);
    printer.add("interval.count", own.interval_count);
    let options = own.stickiness_filter;
    printer.truth("cumulative", options.computed_as == Some(ComputedAs::Cumulative));
    if let Some(StickinessCriteria { operator, value }) = options.criteria {
        printer.add("criteria", operator.map(CriteriaOperator::name));
        printer.add("criteria.value", value);
    }
    compared(printer, own.compare_filter);
}

fn paths(printer: &mut Printer, own: PathsQuery) {
    base(printer, &own.base);
    let options = own.paths_filter;
    printer.add_all("include", &options.include_event_types);
    printer.add("start", options.start_point);
    printer.add("end", options.end_point);
    printer.add("steps", options.step_limit);
    printer.add("edges", options.edge_limit);
    printer.add("least", options.min_edge_weight);
    printer.add_all("pattern", &options.path_groupings);
    printer.add_all("exclude", &options.exclude_events);
}

/// What all insights have.
fn base(printer: &mut Printer, own: &Insight) {
    printer.add("from", own.date_range.date_from.as_ref());
    printer.add("to", own.date_range.date_to.as_ref());
    printer.add("group", own.aggregation_group_type_index);
    printer.truth("without_tests", own.filter_test_accounts);
    filters(printer, own.properties.as_ref(), "");
}

fn all_series(printer: &mut Printer, series: &[nodes::Series]) {
    for (own, letter) in series.iter().zip(LETTERS) {
        entity(printer, &own.base, letter);
        let name = |field: &str| format!("{letter}.{field}");
        printer.add(&name("math"), own.math.as_ref());
        printer.add(&name("property"), own.math_property.as_ref());
        printer.add(&name("group"), own.math_group_type_index);
        printer.truth(&name("optional"), own.optional_in_funnel);
    }
}

fn entity(printer: &mut Printer, own: &Entity, letter: &str) {
    printer.add(letter, Some(event(own).text()));
    printer.add(&format!("{letter}.name"), own.custom_name.as_ref());
    filters(printer, own.properties.as_ref(), &format!("{letter}."));
}

/// An exclusion of a funnel. Addresses count steps from 1.
fn exclusion(printer: &mut Printer, own: &Exclusion, name: &str) {
    let step = |step: Option<usize>| step.and_then(|step| step.checked_add(1));
    printer.add(name, Some(event(&own.base).text()));
    printer.add(&format!("{name}.from"), step(own.from_step));
    printer.add(&format!("{name}.to"), step(own.to_step));
    filters(printer, own.base.properties.as_ref(), &format!("{name}."));
}

/// The event of a series.
fn event(own: &Entity) -> Event {
    let id = own.id.as_ref();
    let number = id.and_then(Value::as_u64).and_then(|id| u32::try_from(id).ok());
    match (number, own.event.as_deref().or_else(|| id.and_then(Value::as_str))) {
        (Some(id), _) => Event::Action(id),
        (None, Some(name)) => Event::Named(name.to_owned()),
        (None, None) => Event::All,
    }
}

fn compared(printer: &mut Printer, own: CompareFilter) {
    if own.compare {
        let before = own.compare_to.unwrap_or_else(|| "previous".to_owned());
        printer.add("compare", Some(before));
    }
}

/// A scalar as an address has it; `None` of anything else.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(true) => Some("1".to_owned()),
        _ => None,
    }
}

fn texts(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::Array(list)) => list.iter().filter_map(text).collect(),
        one => one.and_then(text).into_iter().collect(),
    }
}

fn filters(printer: &mut Printer, sent: Option<&Properties>, prefix: &str) {
    let list = sent.and_then(|Properties(own)| own.as_array());
    for (filter, number) in list.map(Vec::as_slice).unwrap_or_default().iter().zip(1..) {
        let Ok(filter) = PropertyFilter::read(filter, "") else { continue };
        let name = |field: &str| format!("{prefix}f{number}.{field}");
        let owner = owner(filter.kind.as_deref(), filter.group_type_index);
        if owner.as_deref() == Some("cohort") {
            printer.add(&name("of"), owner);
            printer.add(&name("key"), filter.value.as_ref().and_then(text));
            printer.add(&name("op"), filter.operator.filter(|operator| operator == "not_in"));
            continue;
        }
        printer.add(&name("of"), owner);
        printer.add(&name("key"), filter.key);
        printer.add(&name("op"), filter.operator);
        printer.add_all(&name("value"), &texts(filter.value.as_ref()));
    }
}

/// Whose property a filter or a breakdown is of, as an address has it.
fn owner(kind: Option<&str>, group: Option<usize>) -> Option<String> {
    match kind? {
        "group" => Some(format!("group{}", group?)),
        kind => Some(kind.to_owned()),
    }
}

fn breakdown(printer: &mut Printer, filter: BreakdownFilter) {
    printer.add("by.limit", filter.breakdown_limit);
    printer.truth("by.hide_other", filter.breakdown_hide_other_aggregation);
    let cohorts = match filter.breakdown_type.as_deref() {
        Some("cohort") => texts(filter.breakdown.as_ref()),
        _ => Vec::new(),
    };
    for (cohort, number) in cohorts.into_iter().zip(1..) {
        printer.add(&format!("by{number}.of"), Some("cohort"));
        printer.add(&format!("by{number}.key"), Some(cohort));
    }
    for (one, number) in filter.breakdowns.into_iter().zip(1..) {
        printer.add(&format!("by{number}.of"), owner(one.kind.as_deref(), one.group_type_index));
        printer.add(&format!("by{number}.key"), one.property);
    }
}
