//! The question of a saved insight: [`question`] makes it of the JSON that a client saved, if an address can say all
//! of it; [`sketch`] says what it can.

use serde_json::{Map, Value};

use crate::state::filters::Filter;
use crate::state::insight::{DISPLAYS, Kind, Question};
use crate::state::node::node;
use crate::state::parameters::{Parameters, Printer};
use crate::state::series::{Event, LETTERS};
use weir_wire::query_node::unwrapped;

/// Most parameters of a query that an address cannot say and a sketch leaves out.
const UNSAID_MAX: usize = 30;

/// Fields that say how something is shown, or repeat what others say.
const IDLE: [&str; 8] =
    ["version", "tags", "response", "modifiers", "name", "full", "showHeader", "showTable"];

/// Values that mean the same as an absent field.
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

/// The question of a query; `None` if an address cannot say it.
pub fn question(query: &Value) -> Option<Question> {
    let query = unwrapped(query);
    let name = query.get("kind").and_then(Value::as_str)?;
    let kind = Kind::ALL.into_iter().find(|kind| kind.query() == name)?;
    let query = in_lists(query.clone());
    let mut printer = Printer::default();
    add(&mut printer, &query, kind);
    let question = Question::parse(kind, &printer.finish()).ok()?;
    (plain(&node(&question)) == plain(&query)).then_some(question)
}

/// Filters as the API has them, as the rows of a form; `None` if rows cannot say them.
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

/// What a query asks without its filters, as far as an address can say it: enough to name what its answer has. `None`
/// for another kind of query.
pub fn sketch(query: &Value) -> Option<Question> {
    let query = unwrapped(query);
    let name = query.get("kind").and_then(Value::as_str)?;
    let kind = Kind::ALL.into_iter().find(|kind| kind.query() == name)?;
    let mut query = in_lists(query.clone());
    remove_filters(&mut query);
    let mut printer = Printer::default();
    add(&mut printer, &query, kind);
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

/// The query with filters and breakdowns as lists, where these mean the same.
fn in_lists(mut query: Value) -> Value {
    if let Some(properties) = query.get_mut("properties")
        && let Some(list) = flat(properties)
    {
        *properties = Value::Array(list);
    }
    with_breakdowns(query)
}

/// The filters of groups all of which must hold, as one list; `None` if they are others.
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

/// Several fields that mean one breakdown, as the list that means the same.
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

/// What is left of a query without fields that say nothing.
fn plain(value: &Value) -> Value {
    match value {
        Value::Array(list) => list.iter().map(plain).collect(),
        Value::Object(fields) => {
            let said = fields.iter().filter(|(name, _)| !IDLE.contains(&name.as_str()));
            let operator = fields.get("operator").and_then(Value::as_str);
            let is_of_any = matches!(operator, None | Some("exact" | "is_not"));
            let said = said.map(|(name, value)| match value.as_array().map(Vec::as_slice) {
                // Any of one is that one.
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

/// A scalar as it stands in an address; anything else is not said.
fn text(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(true) => Some("1".to_owned()),
        _ => None,
    }
}

fn texts(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::Array(list)) => list.iter().filter_map(|own| text(Some(own))).collect(),
        one => text(one).into_iter().collect(),
    }
}

/// Adds what a query says. What is lost shows when the question is compared with it.
fn add(printer: &mut Printer, query: &Value, kind: Kind) {
    let of = |path: &[&str]| path.iter().try_fold(query, |value, name| value.get(name));
    for (name, path) in [
        ("from", &["dateRange", "date_from"][..]),
        ("to", &["dateRange", "date_to"]),
        ("group", &["aggregation_group_type_index"]),
        ("without_tests", &["filterTestAccounts"]),
    ] {
        printer.add(name, text(of(path)));
    }
    filters(printer, query.get("properties"), "");
    let series = query.get("series").and_then(Value::as_array).map(Vec::as_slice);
    for (own, letter) in series.unwrap_or_default().iter().zip(LETTERS) {
        entity(printer, own, letter);
    }
    match kind {
        Kind::Retention => {
            let filter = query.get("retentionFilter");
            for (name, letter) in [("targetEntity", "a"), ("returningEntity", "b")] {
                if let Some(own) = filter.and_then(|filter| filter.get(name)) {
                    entity(printer, own, letter);
                }
            }
            printer.add(
                "interval",
                text(of(&["retentionFilter", "period"])).map(|own| own.to_lowercase()),
            );
            let type_ = text(of(&["retentionFilter", "retentionType"]));
            printer.add("type", type_.map(|own| own.trim_start_matches("retention_").to_owned()));
        }
        Kind::Paths => {}
        _ => printer.add("interval", text(query.get("interval"))),
    }
    options(printer, query, kind);
}

/// The fields of the options of each kind, and the parameters that mean the same.
fn options(printer: &mut Printer, query: &Value, kind: Kind) {
    let (filter, names): (&str, &[(&str, &str)]) = match kind {
        Kind::Trends => {
            ("trendsFilter", &[("formulas", "formula"), ("smoothingIntervals", "smoothing")])
        }
        Kind::Funnel => (
            "funnelsFilter",
            &[
                ("funnelVizType", "show"),
                ("funnelOrderType", "order"),
                ("breakdownAttributionType", "attribution"),
                ("funnelWindowInterval", "window"),
                ("funnelWindowIntervalUnit", "window.unit"),
            ],
        ),
        Kind::Retention => (
            "retentionFilter",
            &[
                ("totalIntervals", "intervals"),
                ("cumulative", "cumulative"),
                ("minimumOccurrences", "occurrences"),
            ],
        ),
        Kind::Paths => (
            "pathsFilter",
            &[
                ("includeEventTypes", "include"),
                ("startPoint", "start"),
                ("endPoint", "end"),
                ("stepLimit", "steps"),
                ("edgeLimit", "edges"),
                ("minEdgeWeight", "least"),
                ("pathGroupings", "pattern"),
                ("excludeEvents", "exclude"),
            ],
        ),
        Kind::Lifecycle => ("lifecycleFilter", &[("toggledLifecycles", "only")]),
        Kind::Stickiness => ("stickinessFilter", &[]),
    };
    let filter = query.get(filter);
    for (field, name) in names {
        printer.add_all(name, &texts(filter.and_then(|filter| filter.get(field))));
    }
    let of = |path: &[&str]| path.iter().try_fold(query, |value, name| value.get(name));
    if kind == Kind::Trends {
        let display = text(of(&["trendsFilter", "display"]));
        let own = DISPLAYS.iter().find(|(_, name)| Some(*name) == display.as_deref());
        let shown = match display.as_deref() {
            // Another name of the same.
            Some("ActionsStackedBar") => Some("stacked"),
            _ => own.map(|(shown, _)| *shown),
        };
        printer.add("show", shown);
    }
    if matches!(kind, Kind::Trends | Kind::Stickiness)
        && of(&["compareFilter", "compare"]) == Some(&Value::Bool(true))
    {
        let before = text(of(&["compareFilter", "compare_to"]));
        printer.add("compare", Some(before.unwrap_or_else(|| "previous".to_owned())));
    }
    if matches!(kind, Kind::Trends | Kind::Funnel) {
        breakdown(printer, query.get("breakdownFilter"));
    }
    if kind == Kind::Funnel {
        let list = of(&["funnelsFilter", "exclusions"]).and_then(Value::as_array);
        for (own, number) in list.map(Vec::as_slice).unwrap_or_default().iter().zip(1..) {
            exclusion(printer, own, &format!("not{number}"));
        }
    }
    if kind == Kind::Stickiness {
        printer.add("interval.count", text(query.get("intervalCount")));
        let computed = text(of(&["stickinessFilter", "computedAs"]));
        printer.truth("cumulative", computed.as_deref() == Some("cumulative"));
        let criteria = of(&["stickinessFilter", "stickinessCriteria"]);
        printer.add("criteria", text(criteria.and_then(|own| own.get("operator"))));
        printer.add("criteria.value", text(criteria.and_then(|own| own.get("value"))));
    }
}

fn entity(printer: &mut Printer, own: &Value, letter: &str) {
    let of = |name: &str| text(own.get(name));
    printer.add(letter, Some(event(own).text()));
    for (field, name) in [
        ("custom_name", "name"),
        ("math", "math"),
        ("math_property", "property"),
        ("math_group_type_index", "group"),
    ] {
        printer.add(&format!("{letter}.{name}"), of(field));
    }
    let is_optional = own.get("optionalInFunnel") == Some(&Value::Bool(true));
    printer.truth(&format!("{letter}.optional"), is_optional);
    filters(printer, own.get("properties"), &format!("{letter}."));
}

/// An exclusion of a funnel. Addresses count steps from 1.
fn exclusion(printer: &mut Printer, own: &Value, name: &str) {
    let step = |name: &str| own.get(name).and_then(Value::as_u64)?.checked_add(1);
    printer.add(name, Some(event(own).text()));
    printer.add(&format!("{name}.from"), step("funnelFromStep"));
    printer.add(&format!("{name}.to"), step("funnelToStep"));
    filters(printer, own.get("properties"), &format!("{name}."));
}

/// The event of a series.
fn event(own: &Value) -> Event {
    let of = |name: &str| text(own.get(name));
    let id = own.get("id").and_then(Value::as_u64).and_then(|id| u32::try_from(id).ok());
    match (id, of("event").or_else(|| of("id"))) {
        (Some(id), _) => Event::Action(id),
        (None, Some(name)) => Event::Named(name),
        (None, None) => Event::All,
    }
}

fn filters(printer: &mut Printer, sent: Option<&Value>, prefix: &str) {
    let list = sent.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for (filter, number) in list.iter().zip(1..) {
        let name = |field: &str| format!("{prefix}f{number}.{field}");
        let owner = owner(filter);
        if owner.as_deref() == Some("cohort") {
            printer.add(&name("of"), owner);
            printer.add(&name("key"), text(filter.get("value")));
            let operator = text(filter.get("operator"));
            printer.add(&name("op"), operator.filter(|operator| operator == "not_in"));
            continue;
        }
        printer.add(&name("of"), owner);
        printer.add(&name("key"), text(filter.get("key")));
        printer.add(&name("op"), text(filter.get("operator")));
        printer.add_all(&name("value"), &texts(filter.get("value")));
    }
}

/// Whose property a filter or a breakdown is of, as an address says it.
fn owner(own: &Value) -> Option<String> {
    let kind = text(own.get("type"))?;
    match kind.as_str() {
        "group" => Some(format!("group{}", text(own.get("group_type_index"))?)),
        _ => Some(kind),
    }
}

fn breakdown(printer: &mut Printer, filter: Option<&Value>) {
    let Some(filter) = filter else { return };
    printer.add("by.limit", text(filter.get("breakdown_limit")));
    printer.add("by.hide_other", text(filter.get("breakdown_hide_other_aggregation")));
    let cohorts = match filter.get("breakdown_type").and_then(Value::as_str) {
        Some("cohort") => texts(filter.get("breakdown")),
        _ => Vec::new(),
    };
    for (cohort, number) in cohorts.into_iter().zip(1..) {
        printer.add(&format!("by{number}.of"), Some("cohort"));
        printer.add(&format!("by{number}.key"), Some(cohort));
    }
    let several = filter.get("breakdowns").and_then(Value::as_array).map(Vec::as_slice);
    for (one, number) in several.unwrap_or_default().iter().zip(1..) {
        printer.add(&format!("by{number}.of"), owner(one));
        printer.add(&format!("by{number}.key"), text(one.get("property")));
    }
}
