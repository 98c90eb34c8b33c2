//! Converts the filters of older clients to a `StickinessQuery`.

use serde_json::{Value, json};

use crate::legacy::{Filter, check_unsplit, parsed, query, series, text, truth};
use weir_api::node::NodeError;

/// Converts filters to a `StickinessQuery`.
///
/// # Errors
///
/// They are malformed, or have a breakdown.
pub fn stickiness_query(filter: &Filter) -> Result<Value, NodeError> {
    check_unsplit(filter)?;
    let mut query = query(filter, "StickinessQuery")?;
    query.insert("series".to_owned(), Value::Array(series(filter)?));
    query.insert("intervalCount".to_owned(), parsed(filter, "interval_count")?);
    let options = json!({
        "computedAs": text(filter, "computed_as"),
        "stickinessCriteria": parsed(filter, "stickiness_criteria")?,
    });
    query.insert("stickinessFilter".to_owned(), options);
    let compare =
        json!({"compare": truth(filter, "compare"), "compare_to": text(filter, "compare_to")});
    query.insert("compareFilter".to_owned(), compare);
    Ok(Value::Object(query))
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::stickiness_query;
    use crate::stickiness::Stickiness;

    #[test]
    fn texts_of_query_strings_and_values_of_bodies_mean_the_same() {
        let texts = json!({"events": "[{\"id\": \"a\"}]", "interval_count": "2", "compare": "true",
                           "stickiness_criteria": "{\"operator\": \"gte\", \"value\": 2}"});
        let values = json!({"events": [{"id": "a"}], "interval_count": 2, "compare": true,
                            "stickiness_criteria": {"operator": "gte", "value": 2}});
        let [texts, values] = [texts, values].map(|filter| {
            let Value::Object(filter) = filter else { panic!("an object") };
            stickiness_query(&filter).unwrap()
        });
        assert_eq!(texts, values);
        Stickiness::parse(&texts).unwrap();
        Stickiness::parse(&stickiness_query(&Map::new()).unwrap()).unwrap();
    }

    #[test]
    fn a_breakdown_is_refused_by_its_name() {
        for (filter, field) in [
            (json!({"breakdown": "$browser"}), Some("breakdown")),
            (json!({"breakdown": "[\"a\", \"b\"]"}), Some("breakdown")),
            (json!({"breakdown": 3}), Some("breakdown")),
            (json!({"breakdowns": "[{\"property\": \"plan\"}]"}), Some("breakdowns")),
            (json!({"breakdown": null, "breakdowns": [], "breakdown_type": "event"}), None),
            (json!({"breakdown": "", "breakdowns": ""}), None),
        ] {
            let refused = stickiness_query(filter.as_object().unwrap()).err();
            assert_eq!(refused.map(|error| error.field).as_deref(), field, "{filter}");
        }
    }
}
