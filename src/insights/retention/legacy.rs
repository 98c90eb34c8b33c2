//! Converts the filters of older clients to a `RetentionQuery`.

use serde_json::{Value, json};

use crate::legacy::{Filter, breakdown_filter, check_insight, parsed, query, text, truth};
use weir_api::node::NodeError;

/// Default number of rows (PostHog's figure for older clients).
const INTERVALS: usize = 11;

/// Converts filters to a `RetentionQuery`. Its rows end with the interval of `date_to`; `date_from` is ignored.
///
/// # Errors
///
/// They are of another insight, or malformed.
pub fn retention_query(filter: &Filter) -> Result<Value, NodeError> {
    check_insight(filter, "RETENTION")?;
    let target = parsed(filter, "target_entity")?;
    let returning = parsed(filter, "returning_entity")?;
    // Without a returning entity, repeating the target event is a return.
    let returning = if returning.is_null() { target.clone() } else { returning };
    let intervals = match parsed(filter, "total_intervals")? {
        Value::Null => json!(INTERVALS),
        given => given,
    };
    let mut query = query(filter, "RetentionQuery")?;
    let options = json!({
        "period": text(filter, "period"), "totalIntervals": intervals,
        "retentionType": text(filter, "retention_type"), "targetEntity": target,
        "returningEntity": returning, "cumulative": truth(filter, "cumulative"),
        "minimumOccurrences": parsed(filter, "minimum_occurrences")?,
        "aggregationType": text(filter, "aggregation_type"),
        "aggregationProperty": text(filter, "aggregation_property"),
        "aggregationPropertyType": text(filter, "aggregation_property_type"),
    });
    query.insert("retentionFilter".to_owned(), options);
    query.insert("breakdownFilter".to_owned(), breakdown_filter(filter)?);
    query.insert("dateRange".to_owned(), json!({"date_to": text(filter, "date_to")}));
    Ok(Value::Object(query))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::retention_query;
    use crate::legacy::Filter;
    use crate::retention::Retention;

    fn filter(value: Value) -> Filter {
        let Value::Object(filter) = value else { panic!("an object") };
        filter
    }

    #[test]
    fn texts_of_query_strings_and_values_of_bodies_mean_the_same() {
        let texts = filter(json!({
            "target_entity": "{\"id\": \"a\", \"type\": \"events\"}", "total_intervals": "5",
            "period": "Week", "date_to": "2026-01-05", "date_from": "-90d", "breakdown": "[\"plan\"]",
        }));
        let values = filter(json!({
            "target_entity": {"id": "a", "type": "events"}, "total_intervals": 5,
            "period": "Week", "date_to": "2026-01-05", "breakdown": ["plan"],
        }));
        let query = retention_query(&texts).unwrap();
        assert_eq!(query, retention_query(&values).unwrap());
        assert_eq!(query["retentionFilter"]["returningEntity"]["id"], "a", "the target");
        Retention::parse(&query).unwrap();
        let usual = retention_query(&Filter::new()).unwrap();
        assert_eq!(usual["retentionFilter"]["totalIntervals"], 11);
        Retention::parse(&usual).unwrap();
    }

    #[test]
    fn what_is_not_available_is_refused_by_its_name() {
        for (filters, field) in [
            (json!({"insight": "FUNNELS"}), "insight"),
            (json!({"breakdowns": "[{\"property\""}), "breakdowns"),
            (json!({"target_entity": "{"}), "target_entity"),
            (json!({"total_intervals": "many"}), "total_intervals"),
        ] {
            let error = retention_query(&filter(filters.clone())).unwrap_err();
            assert_eq!(error.field, field, "{filters}");
        }
    }
}
