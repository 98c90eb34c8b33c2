//! Converts the filters of older clients to a `LifecycleQuery`.

use serde_json::{Value, json};

use crate::legacy::{Filter, check_unsplit, parsed, query, series};
use weir_api::node::NodeError;

/// Converts filters to a `LifecycleQuery`.
///
/// # Errors
///
/// They are malformed, or have a breakdown.
pub fn lifecycle_query(filter: &Filter) -> Result<Value, NodeError> {
    check_unsplit(filter)?;
    let mut query = query(filter, "LifecycleQuery")?;
    query.insert("series".to_owned(), Value::Array(series(filter)?));
    let options = json!({"toggledLifecycles": parsed(filter, "toggledLifecycles")?});
    query.insert("lifecycleFilter".to_owned(), options);
    Ok(Value::Object(query))
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::lifecycle_query;
    use crate::lifecycle::Lifecycle;

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
        let split = json!({"events": [{"id": "a"}], "breakdown": "$browser"});
        let refused = lifecycle_query(split.as_object().unwrap()).unwrap_err();
        assert_eq!(refused.field, "breakdown");
    }
}
