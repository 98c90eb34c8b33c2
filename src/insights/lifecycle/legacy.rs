//! The filters of older clients as a `LifecycleQuery`.

use serde_json::Value;
use serde_json::json;

use crate::insights::legacy::Filter;
use crate::insights::legacy::dates;
use crate::insights::legacy::parsed;
use crate::insights::legacy::series;
use crate::insights::legacy::text;
use crate::insights::legacy::truth;
use crate::insights::node::NodeError;

/// The `LifecycleQuery` of such filters.
///
/// # Errors
///
/// They are malformed.
pub fn lifecycle_query(filter: &Filter) -> Result<Value, NodeError> {
    Ok(json!({
        "kind": "LifecycleQuery",
        "series": series(filter)?,
        "interval": text(filter, "interval"),
        "dateRange": dates(filter),
        "properties": parsed(filter, "properties")?,
        "filterTestAccounts": truth(filter, "filter_test_accounts"),
        "samplingFactor": parsed(filter, "sampling_factor")?,
        "aggregation_group_type_index": parsed(filter, "aggregation_group_type_index")?,
        "lifecycleFilter": {"toggledLifecycles": parsed(filter, "toggledLifecycles")?},
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::Map;
    use serde_json::Value;
    use serde_json::json;

    use super::lifecycle_query;
    use crate::insights::lifecycle::Lifecycle;

    #[test]
    fn texts_of_query_strings_and_values_of_bodies_mean_the_same() {
        let texts = json!({"events": "[{\"id\": \"a\"}]", "toggledLifecycles": "[\"new\"]"});
        let values = json!({"events": [{"id": "a"}], "toggledLifecycles": ["new"]});
        let [texts, values] = [texts, values].map(|filter| {
            let Value::Object(filter) = filter else { panic!("an object") };
            lifecycle_query(&filter).unwrap()
        });
        assert_eq!(texts, values);
        Lifecycle::parse(&texts).unwrap();
        Lifecycle::parse(&lifecycle_query(&Map::new()).unwrap()).unwrap();
    }
}
