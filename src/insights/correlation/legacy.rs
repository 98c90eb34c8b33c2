//! Converts the filters of older clients to a `FunnelCorrelationQuery` and to a query for the persons behind a
//! correlation, and names a subject in such filters.

use serde_json::{Value, json};

use crate::correlation::answer::Subject;
use crate::funnels::legacy::funnels_query;
use crate::legacy::{Filter, list, parsed, text};
use crate::selection::Unit;
use weir_api::node::NodeError;

/// Parameters that select persons, not the correlation.
pub const OF_PERSONS: [&str; 8] = [
    "funnel_correlation_person_entity",
    "funnel_correlation_person_converted",
    "funnel_correlation_property_values",
    "funnel_correlation_person_limit",
    "funnel_correlation_person_offset",
    "limit",
    "offset",
    "search",
];

/// Converts filters to a `FunnelCorrelationQuery`.
///
/// # Errors
///
/// They are of another insight, or malformed.
pub fn correlation_query(filter: &Filter) -> Result<Value, NodeError> {
    Ok(json!({
        "kind": "FunnelCorrelationQuery",
        "source": {
            "kind": "FunnelsActorsQuery",
            "source": funnels_query(filter)?,
            "funnelStep": parsed(filter, "funnel_step")?,
            "funnelCustomSteps": parsed(filter, "funnel_custom_steps")?,
            "funnelStepBreakdown": filter.get("funnel_step_breakdown"),
        },
        "funnelCorrelationType": text(filter, "funnel_correlation_type"),
        "funnelCorrelationNames": list(filter, "funnel_correlation_names")?,
        "funnelCorrelationExcludeNames": list(filter, "funnel_correlation_exclude_names")?,
        "funnelCorrelationExcludeEventNames": list(filter, "funnel_correlation_exclude_event_names")?,
        "funnelCorrelationEventNames": list(filter, "funnel_correlation_event_names")?,
        "funnelCorrelationEventExcludePropertyNames":
            list(filter, "funnel_correlation_event_exclude_property_names")?,
    }))
}

/// Converts filters to the fields of a `FunnelCorrelationActorsQuery` besides its source.
pub fn correlation_actors(filter: &Filter) -> Result<Value, NodeError> {
    let values = match parsed(filter, "funnel_correlation_property_values")? {
        one @ Value::Object(_) => json!([one]),
        other => other,
    };
    Ok(json!({
        "funnelCorrelationPersonEntity": parsed(filter, "funnel_correlation_person_entity")?,
        "funnelCorrelationPersonConverted": filter.get("funnel_correlation_person_converted"),
        "funnelCorrelationPropertyValues": values,
    }))
}

/// The parameter, with its value, that selects the persons or groups behind a subject.
pub fn people_filter(subject: &Subject, unit: Unit) -> (&'static str, Value) {
    let exact = |key: &str, value: Value, kind: &str| json!([{"key": key, "value": value, "type": kind, "operator": "exact"}]);
    let entity = |event: &str, properties: Value| json!({"id": event, "type": "events", "properties": properties});
    match subject {
        Subject::Event(event) => ("funnel_correlation_person_entity", entity(event, json!([]))),
        Subject::EventValue { event, key, value } => {
            let properties = exact(key, json!([value]), "event");
            ("funnel_correlation_person_entity", entity(event, properties))
        }
        Subject::Value { key, value } => {
            let sent = match unit {
                Unit::Persons => exact(key, json!(value), "person"),
                Unit::Groups(index) => json!([{"key": key, "value": value, "type": "group",
                                               "group_type_index": index, "operator": "exact"}]),
            };
            ("funnel_correlation_property_values", sent)
        }
    }
}

/// Renames the field of an error to the parameter of older clients.
pub fn named(error: NodeError) -> NodeError {
    let field = error.field.strip_prefix("source.").unwrap_or(&error.field);
    if !field.starts_with("funnelCorrelation")
        && !field.starts_with("funnelStep")
        && field != "funnelCustomSteps"
    {
        return error;
    }
    let mut name = String::new();
    for letter in field.chars() {
        if letter.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    NodeError { field: name, ..error }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{correlation_actors, correlation_query, named, people_filter};
    use crate::correlation::Correlation;
    use crate::correlation::answer::Subject;
    use crate::legacy::Filter;
    use crate::selection::Unit;
    use weir_api::node::NodeError;

    fn filter(value: Value) -> Filter {
        let Value::Object(filter) = value else { panic!("an object") };
        filter
    }

    #[test]
    fn texts_of_query_strings_and_values_of_bodies_mean_the_same() {
        let texts = filter(json!({
            "insight": "FUNNELS", "events": "[{\"id\": \"a\"}, {\"id\": \"b\"}]",
            "funnel_correlation_type": "properties", "funnel_correlation_names": "$all",
            "funnel_correlation_exclude_names": "[\"x\"]", "funnel_correlation_event_names": "", "funnel_step": "2",
            "funnel_correlation_property_values": "[{\"key\": \"k\", \"value\": \"v\", \"type\": \"person\"}]",
            "funnel_correlation_person_converted": "true",
        }));
        let values = filter(json!({
            "events": [{"id": "a"}, {"id": "b"}], "funnel_correlation_type": "properties",
            "funnel_correlation_names": ["$all"], "funnel_correlation_exclude_names": ["x"], "funnel_step": 2,
            "funnel_correlation_property_values": {"key": "k", "value": "v", "type": "person"},
            "funnel_correlation_person_converted": "true",
        }));
        let query = correlation_query(&texts).unwrap();
        assert_eq!(query, correlation_query(&values).unwrap());
        Correlation::parse(&query).unwrap();
        assert_eq!(correlation_actors(&texts), correlation_actors(&values));
        for (filters, field) in [
            (json!({"insight": "TRENDS"}), "insight"),
            (json!({"funnel_correlation_names": "[1"}), "funnel_correlation_names"),
        ] {
            assert_eq!(correlation_query(&filter(filters)).unwrap_err().field, field);
        }
    }

    #[test]
    fn the_persons_behind_each_kind_have_a_filter() {
        let (event, key, value) = ("e".to_owned(), "k".to_owned(), "v".to_owned());
        let (name, sent) = people_filter(&Subject::Event(event.clone()), Unit::Persons);
        assert_eq!((name, &sent["id"]), ("funnel_correlation_person_entity", &json!("e")));
        let of_event = Subject::EventValue { event, key: key.clone(), value: value.clone() };
        let (_, sent) = people_filter(&of_event, Unit::Groups(1));
        assert_eq!((&sent["id"], &sent["properties"][0]["value"]), (&json!("e"), &json!(["v"])));
        let of_actor = Subject::Value { key, value };
        for (unit, kind, index) in
            [(Unit::Persons, "person", Value::Null), (Unit::Groups(1), "group", json!(1))]
        {
            let (name, sent) = people_filter(&of_actor, unit);
            assert_eq!(name, "funnel_correlation_property_values");
            assert_eq!((&sent[0]["type"], &sent[0]["group_type_index"]), (&json!(kind), &index));
        }
    }

    #[test]
    fn errors_name_the_parameter() {
        for (field, expected) in [
            ("funnelCorrelationEventNames", "funnel_correlation_event_names"),
            ("source.funnelStep", "funnel_step"),
            ("source.funnelCustomSteps", "funnel_custom_steps"),
            ("series.0.event", "series.0.event"),
        ] {
            let error = NodeError { field: field.to_owned(), detail: String::new() };
            assert_eq!(named(error).field, expected);
        }
    }
}
