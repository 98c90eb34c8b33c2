//! Results of insights: [`Answer`], whose kinds have a file each, and [`AnswerTo`], which reads one for its query node.
//! The fields of all these types are in the order of their names in JSON, which is that of responses; fields that are
//! absent in some responses are left out of them, not null.

pub mod correlation;
pub mod funnel;
pub mod older;
pub mod paths;
pub mod retention;
pub mod series;
pub mod value;

use schemars::JsonSchema;
use serde::de::DeserializeSeed;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::insights::correlation::Correlations;
use crate::insights::funnel::{Funnel, FunnelTo};
use crate::insights::paths::Edge;
use crate::insights::retention::Row;
use crate::insights::series::Series;

/// The answer of an insight of any kind: `results` of `POST query/`.
#[derive(Clone, Debug, JsonSchema, PartialEq, Serialize)]
#[serde(untagged)]
#[schemars(inline)]
pub enum Answer {
    /// Of a correlation.
    Correlations(Correlations),
    /// Of a funnel.
    Funnel(Funnel),
    /// Of paths: their edges, the most frequent ones first.
    Paths(Vec<Edge>),
    /// Of a retention: a row for each interval; with a breakdown those of each value.
    Retention(Vec<Row>),
    /// Of trends, a lifecycle or stickiness.
    Series(Vec<Series>),
}

/// Reads the answer to this node of an insight, which nothing is around any more.
#[derive(Clone, Copy, Debug)]
pub struct AnswerTo<'q>(pub &'q Value);

impl<'de> DeserializeSeed<'de> for AnswerTo<'_> {
    type Value = Answer;

    fn deserialize<D: Deserializer<'de>>(self, results: D) -> Result<Answer, D::Error> {
        match self.0.get("kind").and_then(Value::as_str).unwrap_or_default() {
            "TrendsQuery" | "LifecycleQuery" | "StickinessQuery" => {
                Vec::deserialize(results).map(Answer::Series)
            }
            "FunnelsQuery" => FunnelTo(self.0).deserialize(results).map(Answer::Funnel),
            "RetentionQuery" => Vec::deserialize(results).map(Answer::Retention),
            "PathsQuery" => Vec::deserialize(results).map(Answer::Paths),
            _ => Correlations::deserialize(results).map(Answer::Correlations),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Serialize;
    use serde::de::DeserializeOwned;
    use serde_json::Value;

    use super::{Correlations, Edge, Row, Series};
    use crate::insights::funnel::{Conversion, Steps, Times};

    /// Checks that a type reads all of a result, and writes it with its fields in the order of their names.
    #[track_caller]
    fn check<T: DeserializeOwned + Serialize>(text: &str) {
        let value: Value = serde_json::from_str(text).unwrap();
        let typed: T = serde_json::from_str(&value.to_string()).unwrap();
        assert_eq!(serde_json::to_string(&typed).unwrap(), value.to_string());
        let typed: T = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(serde_json::to_string(&typed).unwrap(), value.to_string());
    }

    #[test]
    fn answers_keep_their_form() {
        const ENTITY: &str = r#"{"id": 4, "type": "actions", "order": 0, "name": "a", "custom_name": "b",
            "properties": [{"key": "k", "value": [1.5, null]}], "math": "sum", "math_property": "p",
            "math_group_type_index": 0, "math_hogql": null}"#;
        check::<Vec<Series>>("[]");
        for more in [
            r#""order": 0, "breakdown_value": ["a", ""], "compare": true, "compare_label": "previous""#,
            r#""order": 3, "breakdown_value": 7, "aggregated_value": 2.5"#,
            r#""status": "dormant""#,
            r#""persons_urls": [{"url": "u", "filter": {}}], "breakdown_value": "all""#,
        ] {
            let common = r#""label": "x", "count": -3, "data": [1, 2.5, null], "labels": ["1"]"#;
            check::<Series>(&format!(
                "{{\"action\": {ENTITY}, {common}, \"days\": [\"1\"], {more}}}"
            ));
            check::<Series>(&format!("{{\"action\": null, {common}, \"days\": [1, 2], {more}}}"));
        }
        let step = r#"{"action_id": null, "name": "a", "custom_name": null, "order": 0, "people": [], "count": 3,
            "type": "events", "average_conversion_time": 2.0, "median_conversion_time": null,
            "breakdown": ["a"], "breakdown_value": ["a"], "converted_people_url": "u", "dropped_people_url": "v"}"#;
        for steps in ["[]".to_owned(), format!("[{step}]"), format!("[[{step}, {step}], []]")] {
            check::<Steps>(&steps);
        }
        check::<Conversion>(
            r#"{"count": 1, "data": [33.0], "days": ["1"], "labels": ["1"], "breakdown_value": "all"}"#,
        );
        check::<Times>(r#"{"bins": [[10.0, 1], [70.0, 0]], "average_conversion_time": 10.25}"#);
        check::<Edge>(
            r#"{"source": "1_a", "target": "2_b", "value": 3, "average_conversion_time": 0.5}"#,
        );
        check::<Row>(
            r#"{"values": [{"count": 2, "label": "Day 0", "aggregation_value": 4.0, "people": [], "people_url": "u"},
                {"count": 0, "label": "Day 1"}], "label": "Day 0", "date": "d", "breakdown_value": "x::y"}"#,
        );
        check::<Correlations>(
            r#"{"events": [{"event": {"event": "a", "properties": {}, "elements": []}, "success_count": 1,
                "failure_count": 0, "odds_ratio": 11.0, "correlation_type": "failure"}], "skewed": false}"#,
        );
    }
}
