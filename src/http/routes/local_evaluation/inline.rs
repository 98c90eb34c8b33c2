//! Inlines cohorts into the conditions of a flag, for SDKs that do not support cohorts. The rules are
//! PostHog's. A cohort is inlined only if the flag has no variant overrides, exactly one condition
//! filters by exactly one cohort and by nothing else, and the rule of the cohort is an OR of ANDs over
//! properties of persons, without negation. For other flags such an SDK sends a request to the server.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use weir_metadata::cohorts::{CohortId, StoredCohort};
use weir_metadata::flag_rules::cohort_id;

/// Most bytes of inlined rules in one response. A rule may have half a megabyte, and many flags may use it; flags
/// beyond the limit keep their cohort.
const WRITTEN_MAX_BYTES: usize = 8 << 20;

/// The remaining bytes for inlined rules of a response.
#[derive(Debug)]
pub(super) struct Room {
    left_bytes: usize,
    /// The lengths of the rules that were used.
    lengths: HashMap<CohortId, usize>,
}

impl Default for Room {
    fn default() -> Self {
        Self { left_bytes: WRITTEN_MAX_BYTES, lengths: HashMap::new() }
    }
}

impl Room {
    /// Takes the length of a cohort's rule from the quota; `None` if too little is left.
    fn take(&mut self, cohort: &StoredCohort) -> Option<()> {
        let length = self.lengths.entry(cohort.id);
        let length = *length.or_insert_with(|| cohort.rule().to_string().len());
        self.left_bytes = self.left_bytes.checked_sub(length)?;
        Some(())
    }
}

/// The filters with the rule in place of the cohort; `None` if they have to stay unchanged.
pub(super) fn inlined(
    filters: &Value,
    cohorts: &[Arc<StoredCohort>],
    quota: &mut Room,
) -> Option<Value> {
    let groups = filters.get("groups")?.as_array()?;
    let has_override = |group: &Value| {
        let variant = group.get("variant").and_then(Value::as_str);
        variant.is_some_and(|variant| !variant.is_empty())
    };
    if groups.iter().any(has_override) {
        return None;
    }
    let asks = |group: &&Value| properties(group).iter().any(is_cohort);
    let mut asking = groups.iter().filter(asks);
    let (Some(condition), None) = (asking.next(), asking.next()) else { return None };
    let [property] = properties(condition) else { return None };
    let id = cohort_of(property)?;
    let cohort = cohorts.iter().find(|cohort| cohort.id.0 == id && !cohort.is_static)?;
    let alternatives = alternatives(cohort.rule())?;
    quota.take(cohort)?;
    let mut written = Vec::with_capacity(groups.len() + alternatives.len());
    for group in groups {
        if !asks(&group) {
            written.push(group.clone());
            continue;
        }
        for properties in &alternatives {
            let mut group = group.clone();
            if let Value::Object(group) = &mut group {
                group.insert("properties".to_owned(), Value::Array(properties.clone()));
            }
            written.push(group);
        }
    }
    let mut filters = filters.clone();
    if let Value::Object(filters) = &mut filters {
        filters.insert("groups".to_owned(), Value::Array(written));
    }
    Some(filters)
}

fn properties(group: &Value) -> &[Value] {
    group.get("properties").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn is_cohort(property: &Value) -> bool {
    property.get("type").and_then(Value::as_str) == Some("cohort")
}

/// The cohort of a filter on membership; older user interfaces wrote `exact`, or no operator.
fn cohort_of(property: &Value) -> Option<i64> {
    let operator = property.get("operator").and_then(Value::as_str);
    cohort_id(property.get("value").filter(|_| matches!(operator, None | Some("in" | "exact")))?)
}

/// A rule as a list of alternatives, each a list of properties that all have to match.
fn alternatives(rule: &Value) -> Option<Vec<Vec<Value>>> {
    let rule = without_excess(rule);
    match kind(rule) {
        Kind::Leaf => Some(vec![vec![leaf(rule)?]]),
        Kind::All => Some(vec![leaves(rule)?]),
        Kind::Any => {
            let mut alternatives = Vec::new();
            for value in values(rule).iter().map(without_excess) {
                match kind(value) {
                    Kind::Leaf => alternatives.push(vec![leaf(value)?]),
                    Kind::All => alternatives.push(leaves(value)?),
                    Kind::Any => {
                        alternatives.extend(leaves(value)?.into_iter().map(|leaf| vec![leaf]));
                    }
                    Kind::None => return None,
                }
            }
            Some(alternatives)
        }
        Kind::None => None,
    }
}

/// Kinds of nodes of a rule.
enum Kind {
    /// A filter.
    Leaf,
    /// An AND that is not empty.
    All,
    /// An OR that is not empty.
    Any,
    /// A node that cannot be inlined.
    None,
}

fn kind(rule: &Value) -> Kind {
    match rule.get("type").and_then(Value::as_str) {
        _ if rule.get("values").is_none() => Kind::Leaf,
        _ if values(rule).is_empty() => Kind::None,
        Some("AND") => Kind::All,
        Some("OR") => Kind::Any,
        _ => Kind::None,
    }
}

fn values(rule: &Value) -> &[Value] {
    rule.get("values").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Unwraps groups of one element.
fn without_excess(mut rule: &Value) -> &Value {
    while let [only] = values(rule) {
        rule = only;
    }
    rule
}

fn leaves(rule: &Value) -> Option<Vec<Value>> {
    values(rule).iter().map(|value| leaf(without_excess(value))).collect()
}

/// A filter on a property of the person without negation.
fn leaf(filter: &Value) -> Option<Value> {
    let mut filter: Map<String, Value> = filter.as_object()?.clone();
    let kind = filter.get("type").and_then(Value::as_str).unwrap_or("person");
    let is_negated = filter.get("negation") == Some(&Value::Bool(true));
    if kind != "person" || is_negated || !filter.contains_key("key") {
        return None;
    }
    filter.remove("negation");
    Some(Value::Object(filter))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::{Room, inlined};
    use weir_base::clock::UnixMicros;
    use weir_event::id::ProjectId;
    use weir_metadata::cohorts::{CohortId, StoredCohort};

    fn cohort(rule: Value) -> Arc<StoredCohort> {
        Arc::new(StoredCohort {
            id: CohortId(7),
            project: ProjectId(1),
            name: "c7".to_owned(),
            description: String::new(),
            filters: json!({"properties": rule}),
            is_static: false,
            deleted: false,
            created_by: None,
            created_at: UnixMicros(0),
            version: 1,
            count: None,
            last_calculation: None,
            errors_calculating: 0,
            members: Arc::from([]),
        })
    }

    fn property(key: &str) -> Value {
        json!({"key": key, "type": "person", "operator": "exact", "value": "x"})
    }

    fn group(kind: &str, values: Value) -> Value {
        json!({"type": kind, "values": values})
    }

    fn asking(operator: Value) -> Value {
        json!({"key": "id", "type": "cohort", "value": 7, "operator": operator})
    }

    /// The cases of PostHog's `transform_cohort_filters_for_easy_evaluation`.
    #[test]
    fn rules_are_written_out_where_conditions_can_say_them() {
        let (a, b, c) = (property("a"), property("b"), property("c"));
        let mut negated = property("a");
        negated["negation"] = json!(true);
        let mut affirmed = property("a");
        affirmed["negation"] = json!(false);
        let nested = json!({"key": "id", "type": "cohort", "value": 8});
        for (rule, expected) in [
            (group("OR", json!([group("AND", json!([a]))])), Some(json!([[a]]))),
            (group("AND", json!([affirmed])), Some(json!([[a]]))),
            (group("OR", json!([group("AND", json!([a, b]))])), Some(json!([[a, b]]))),
            (group("AND", json!([group("OR", json!([a, b]))])), Some(json!([[a], [b]]))),
            (
                group("OR", json!([group("AND", json!([a, b])), group("AND", json!([c]))])),
                Some(json!([[a, b], [c]])),
            ),
            (
                group("OR", json!([group("OR", json!([a, b])), group("AND", json!([c]))])),
                Some(json!([[a], [b], [c]])),
            ),
            (group("AND", json!([group("OR", json!([a, b])), group("AND", json!([c]))])), None),
            (group("OR", json!([group("AND", json!([negated]))])), None),
            (group("OR", json!([group("AND", json!([nested]))])), None),
            (group("OR", json!([])), None),
            (group("OR", json!([group("AND", json!([])), group("AND", json!([a]))])), None),
            (json!({}), None),
        ] {
            let filters = json!({"groups": [
                {"properties": [property("z")], "rollout_percentage": 10},
                {"properties": [asking(json!("in"))], "rollout_percentage": 40},
            ], "payloads": {}});
            let expected = expected.map(|alternatives| {
                let written = alternatives.as_array().unwrap().iter();
                let written = written
                    .map(|properties| json!({"properties": properties, "rollout_percentage": 40}));
                let first = json!({"properties": [property("z")], "rollout_percentage": 10});
                let groups: Vec<Value> = std::iter::once(first).chain(written).collect();
                json!({"groups": groups, "payloads": {}})
            });
            assert_eq!(
                inlined(&filters, &[cohort(rule.clone())], &mut Room::default()),
                expected,
                "{rule}"
            );
        }
    }

    #[test]
    fn flags_that_ask_for_more_stay_as_they_are() {
        let rule = group("OR", json!([group("AND", json!([property("a")]))]));
        let cohorts = [cohort(rule)];
        let one = |property: Value| json!({"groups": [{"properties": [property]}]});
        for operator in [json!(null), json!("in"), json!("exact")] {
            assert!(
                inlined(&one(asking(operator.clone())), &cohorts, &mut Room::default()).is_some(),
                "{operator}"
            );
        }
        for filters in [
            one(asking(json!("not_in"))),
            one(property("a")),
            one(json!({"key": "id", "type": "cohort", "value": 8})),
            json!({"groups": [{"properties": [asking(json!("in")), property("a")]}]}),
            json!({"groups": [{"properties": [asking(json!("in"))]}, {"properties": [asking(json!("in"))]}]}),
            json!({"groups": [{"properties": [asking(json!("in"))]}, {"properties": [], "variant": "v"}]}),
            json!({}),
        ] {
            assert_eq!(inlined(&filters, &cohorts, &mut Room::default()), None, "{filters}");
        }
        let list = StoredCohort { is_static: true, ..StoredCohort::clone(&cohorts[0]) };
        assert_eq!(
            inlined(&one(asking(json!("in"))), &[Arc::new(list)], &mut Room::default()),
            None
        );
    }

    /// Each flag with the cohort contains a copy of the rule, so their sum is bounded.
    #[test]
    fn no_more_is_written_out_than_there_is_room_for() {
        let mut long = property("a");
        long["value"] = json!("x".repeat(1000));
        let cohorts = [cohort(group("OR", json!([group("AND", json!([long]))])))];
        let length = cohorts[0].rule().to_string().len();
        let mut quota = Room { left_bytes: 2 * length, ..Room::default() };
        let filters = json!({"groups": [{"properties": [asking(json!("in"))]}]});
        let written = [(); 4].map(|()| inlined(&filters, &cohorts, &mut quota).is_some());
        assert_eq!(written, [true, true, false, false]);
    }
}
