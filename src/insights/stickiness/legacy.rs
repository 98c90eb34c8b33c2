//! The filters of older clients as a `StickinessQuery`.

use serde_json::Value;
use serde_json::json;

use crate::insights::legacy::Filter;
use crate::insights::legacy::dates;
use crate::insights::legacy::parsed;
use crate::insights::legacy::series;
use crate::insights::legacy::text;
use crate::insights::legacy::truth;
use crate::insights::node::NodeError;

/// The `StickinessQuery` of such filters.
///
/// # Errors
///
/// They are malformed.
pub fn stickiness_query(filter: &Filter) -> Result<Value, NodeError> {
    Ok(json!({
        "kind": "StickinessQuery",
        "series": series(filter)?,
        "interval": text(filter, "interval"),
        "intervalCount": parsed(filter, "interval_count")?,
        "dateRange": dates(filter),
        "properties": parsed(filter, "properties")?,
        "filterTestAccounts": truth(filter, "filter_test_accounts"),
        "samplingFactor": parsed(filter, "sampling_factor")?,
        "aggregation_group_type_index": parsed(filter, "aggregation_group_type_index")?,
        "stickinessFilter": {
            "computedAs": text(filter, "computed_as"),
            "stickinessCriteria": parsed(filter, "stickiness_criteria")?,
        },
        "compareFilter": {
            "compare": truth(filter, "compare"), "compare_to": text(filter, "compare_to"),
        },
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::Map;
    use serde_json::Value;
    use serde_json::json;

    use super::stickiness_query;
    use crate::insights::stickiness::Stickiness;

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
}
