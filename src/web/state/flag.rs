//! A feature flag as form fields: [`Draft`], built from the stored flag or from the submitted form. What has no form
//! field is preserved: a condition with such parts is edited as JSON.

use serde_json::{Map, Number, Value, json};

use crate::parts::plain;
use crate::state::filters;
use crate::state::parameters::{Parameters, Wrong};
use weir_api::flags::Flag;
use weir_event::json as reader;

/// Most conditions, and most variants, of a form.
pub const PARTS_MAX: usize = 50;

/// Most filters of a condition of a form.
pub const FILTERS_MAX: usize = 20;

/// Owner of the property that a filter reads; the last five are groups.
pub const OWNERS: [&str; 8] =
    ["person", "cohort", "flag", "group0", "group1", "group2", "group3", "group4"];

/// Operators that only event filters have.
const OF_EVENTS: [&str; 4] = ["starts_with", "not_starts_with", "ends_with", "not_ends_with"];

/// Operators of filters, and their display names.
pub fn operators() -> impl Iterator<Item = (&'static str, &'static str)> {
    filters::OPERATORS.into_iter().filter(|(operator, _)| !OF_EVENTS.contains(operator))
}

/// Operators whose value is a single text.
const OF_ONE: [&str; 11] = [
    "icontains",
    "not_icontains",
    "regex",
    "not_regex",
    "gt",
    "gte",
    "lt",
    "lte",
    "is_date_exact",
    "is_date_before",
    "is_date_after",
];

/// Whether an operator matches any of several values.
pub fn takes_several(operator: &str) -> bool {
    matches!(operator, "" | "exact" | "is_not")
}

/// Parts of a condition without a meaning of their own: they repeat others.
const IDLE: [&str; 3] = ["cohort_name", "label", "users_affected"];

/// A filter of a condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// One of [`OWNERS`].
    pub owner: String,
    /// The property; for a cohort or a flag its id.
    pub key: String,
    /// One of [`operators`].
    pub operator: String,
    /// The values to compare with; for a flag its value.
    pub values: Vec<String>,
}

/// A condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// Filters joined by AND.
    pub filters: Vec<Filter>,
    /// The rollout percentage; 100 percent if empty.
    pub rollout: String,
    /// The variant that matching persons get; chosen by the variants' percentages if empty.
    pub variant: String,
    /// Further parts of the condition, as JSON; empty without any.
    pub rest: String,
    /// The whole condition as JSON, where the form has no fields for it.
    pub whole: Option<String>,
}

/// A variant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variant {
    /// The key.
    pub key: String,
    /// Its name.
    pub name: String,
    /// Its rollout, in percent.
    pub rollout: String,
    /// The payload that clients get with it, as JSON.
    pub payload: String,
}

/// A flag.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Draft {
    /// The key.
    pub key: String,
    /// Its description.
    pub name: String,
    /// Whether it is on.
    pub is_active: bool,
    /// Whether a person keeps the value across signing in.
    pub is_continuous: bool,
    /// The index of the group type that the flag applies to; persons if empty.
    pub group: String,
    /// Release conditions: whoever matches any of them gets the flag.
    pub conditions: Vec<Condition>,
    /// The variants; without any the flag's value is `true`.
    pub variants: Vec<Variant>,
    /// The payload that clients get with a flag without variants, as JSON.
    pub payload: String,
}

impl Draft {
    /// A new flag, rolled out to all persons.
    pub fn new() -> Self {
        let all = Condition { rollout: "100".to_owned(), ..Condition::default() };
        Self { is_active: true, conditions: vec![all], ..Self::default() }
    }

    /// The draft of a stored flag.
    pub fn of(flag: &Flag) -> Self {
        let text = |of: &Value, name: &str| of.get(name).map(plain).unwrap_or_default();
        let (empty, filters) = (Value::Null, &flag.filters);
        let list = |of: &Value, name: &str| {
            of.get(name).and_then(Value::as_array).cloned().unwrap_or_default()
        };
        let payloads = filters.get("payloads").unwrap_or(&empty);
        let variants = list(filters.get("multivariate").unwrap_or(&empty), "variants");
        let variant = |own: &Value| Variant {
            key: text(own, "key"),
            name: text(own, "name"),
            rollout: text(own, "rollout_percentage"),
            payload: text(payloads, &text(own, "key")),
        };
        Self {
            key: flag.key.clone(),
            name: flag.name.clone(),
            is_active: flag.active,
            is_continuous: flag.ensure_experience_continuity,
            group: text(filters, "aggregation_group_type_index"),
            conditions: list(filters, "groups").iter().map(Condition::of).collect(),
            variants: variants.iter().map(variant).collect(),
            payload: text(payloads, "true"),
        }
    }

    /// Parses the submitted form. Conditions and variants that are marked as removed are left out.
    ///
    /// # Errors
    ///
    /// A field is given twice, or there are more conditions or variants than a form has.
    pub fn take(form: &mut Parameters) -> Result<Self, Wrong> {
        let mut text = |name: &str| Ok(form.take(name)?.unwrap_or_default());
        let mut draft = Self {
            key: text("key")?,
            name: text("name")?,
            is_active: !text("active")?.is_empty(),
            is_continuous: !text("continuity")?.is_empty(),
            group: text("group")?,
            payload: text("payload")?,
            ..Self::default()
        };
        let [conditions, variants] = ["conditions", "variants"].map(|name| form.number(name));
        for number in 1..=count("conditions", conditions?)? {
            let mut own = form.split_off(&format!("c{number}."));
            let condition = Condition::take(&mut own, number)?;
            if own.get(&format!("c{number}.remove")).is_empty() {
                draft.conditions.push(condition);
            }
        }
        for number in 1..=count("variants", variants?)? {
            let mut own = form.split_off(&format!("v{number}."));
            let mut text =
                |name: &str| Ok(own.take(&format!("v{number}.{name}"))?.unwrap_or_default());
            let variant = Variant {
                key: text("key")?,
                name: text("name")?,
                rollout: text("rollout")?,
                payload: text("payload")?,
            };
            // Forms have an empty row.
            if variant != Variant::default() && text("remove")?.is_empty() {
                draft.variants.push(variant);
            }
        }
        Ok(draft)
    }

    /// The filters in the API's format. Stored parts without a form field are preserved.
    ///
    /// # Errors
    ///
    /// An entered JSON text is invalid.
    pub fn filters(&self, stored: &Value) -> Result<Value, Wrong> {
        let mut filters = stored.as_object().cloned().unwrap_or_default();
        let groups = self.conditions.iter().zip(1_usize..).map(|(own, at)| own.node(at));
        filters.insert("groups".to_owned(), groups.collect::<Result<Value, Wrong>>()?);
        let group = self.group.parse::<i64>().map_or_else(
            |_| if self.group.is_empty() { Value::Null } else { json!(self.group) },
            Value::from,
        );
        filters.insert("aggregation_group_type_index".to_owned(), group);
        let mut payloads = Map::new();
        let mut pay = |key: &str, payload: &str| {
            if !payload.is_empty() {
                payloads.insert(key.to_owned(), json!(payload));
            }
        };
        match self.variants.as_slice() {
            [] => {
                pay("true", &self.payload);
                filters.insert("multivariate".to_owned(), Value::Null);
            }
            variants => {
                variants.iter().for_each(|own| pay(&own.key, &own.payload));
                let shown = variants.iter().map(|own| {
                    json!({"key": own.key, "name": own.name, "rollout_percentage": number(&own.rollout)})
                });
                let shown: Vec<Value> = shown.collect();
                filters.insert("multivariate".to_owned(), json!({"variants": shown}));
            }
        }
        filters.insert("payloads".to_owned(), Value::Object(payloads));
        Ok(Value::Object(filters))
    }
}

fn count(name: &str, sent: Option<usize>) -> Result<usize, Wrong> {
    let sent = sent.unwrap_or(0);
    let detail = || format!("A form has at most {PARTS_MAX} of these. The API takes more.");
    if sent > PARTS_MAX { Err(Wrong::new(name, detail())) } else { Ok(sent) }
}

/// An entered number; a text that is none is passed on, for the API to refuse it.
fn number(text: &str) -> Value {
    match text.trim() {
        "" => Value::Null,
        text => exact_number(text).map_or_else(|| json!(text), Value::Number),
    }
}

/// The number whose text form is exactly this text.
fn exact_number(text: &str) -> Option<Number> {
    let number = match text.parse::<i64>() {
        Ok(whole) => Number::from(whole),
        Err(_) => Number::from_f64(text.parse().ok()?)?,
    };
    (number.to_string() == text).then_some(number)
}

impl Condition {
    /// The draft of a stored condition.
    pub fn of(stored: &Value) -> Self {
        let said = Self::said(stored);
        let has_fields =
            said.filters.len() <= FILTERS_MAX && said.filters.iter().all(Filter::has_fields);
        let is_same = said.node(1).is_ok_and(|node| usual(&node) == usual(stored));
        match has_fields && is_same {
            true => said,
            false => Self {
                whole: Some(serde_json::to_string_pretty(stored).unwrap_or_default()),
                ..Self::default()
            },
        }
    }

    fn said(stored: &Value) -> Self {
        let mut rest = stored.as_object().cloned().unwrap_or_default();
        let filters = rest.remove("properties");
        let filters = filters.as_ref().and_then(Value::as_array).map(Vec::as_slice);
        let mut text = |name: &str| rest.remove(name).as_ref().map(plain).unwrap_or_default();
        let (rollout, variant) = (text("rollout_percentage"), text("variant"));
        let rest = match rest.is_empty() {
            true => String::new(),
            false => Value::Object(rest).to_string(),
        };
        let filters = filters.unwrap_or_default().iter().map(Filter::of).collect();
        Self { filters, rollout, variant, rest, whole: None }
    }

    fn take(own: &mut Parameters, number: usize) -> Result<Self, Wrong> {
        let name = |field: &str| format!("c{number}.{field}");
        let filters = Filter::take_all(own, &format!("c{number}."))?;
        Ok(Self {
            filters,
            rollout: own.take(&name("rollout"))?.unwrap_or_default(),
            variant: own.take(&name("variant"))?.unwrap_or_default(),
            rest: own.take(&name("rest"))?.unwrap_or_default(),
            whole: own.take(&name("whole"))?,
        })
    }

    /// The condition in the API's format. `place` is its number, from 1 on.
    ///
    /// # Errors
    ///
    /// An entered JSON text is invalid.
    pub fn node(&self, place: usize) -> Result<Value, Wrong> {
        let read = |text: &str| {
            let wrong = |_| Wrong::new(format!("Condition {place}"), "Expected JSON.");
            reader::read::<Value>(text.as_bytes()).map_err(wrong)
        };
        if let Some(whole) = &self.whole {
            return read(whole);
        }
        let mut node = match self.rest.as_str() {
            "" => Map::new(),
            rest => read(rest)?.as_object().cloned().unwrap_or_default(),
        };
        let filters: Vec<Value> = self.filters.iter().map(Filter::node).collect();
        node.insert("properties".to_owned(), Value::Array(filters));
        node.insert("rollout_percentage".to_owned(), number(&self.rollout));
        let variant = Some(&self.variant).filter(|variant| !variant.is_empty());
        node.insert("variant".to_owned(), json!(variant));
        Ok(Value::Object(node))
    }
}

impl Filter {
    /// The filters whose names begin with `prefix`; the empty row of a form is skipped.
    ///
    /// # Errors
    ///
    /// A field is given twice.
    pub fn take_all(form: &mut Parameters, prefix: &str) -> Result<Vec<Self>, Wrong> {
        let mut filters = Vec::new();
        for row in 1..=FILTERS_MAX {
            let name = |field: &str| format!("{prefix}p{row}.{field}");
            let mut text = |field: &str| Ok(form.take(&name(field))?.unwrap_or_default());
            let (owner, key, operator) = (text("of")?, text("key")?, text("op")?);
            let values = form.take_all(&name("value"));
            if !key.is_empty() || !values.is_empty() {
                filters.push(Self { owner, key, operator, values });
            }
        }
        Ok(filters)
    }

    /// Whether the form can represent its owner and its operator.
    pub fn has_fields(&self) -> bool {
        let is_known = operators().any(|(operator, _)| operator == self.operator);
        let is_usual = self.operator.is_empty() || self.owner == "flag";
        let is_owned = self.owner.is_empty() || OWNERS.contains(&self.owner.as_str());
        is_owned && (is_known || is_usual)
    }

    /// The filter of a stored one.
    pub fn of(stored: &Value) -> Self {
        let text = |name: &str| stored.get(name).map(plain).unwrap_or_default();
        let owner = match text("type").as_str() {
            "group" => format!("group{}", text("group_type_index")),
            other => other.to_owned(),
        };
        let values = match stored.get("value") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(list)) => list.iter().map(plain).collect(),
            Some(one) => vec![plain(one)],
        };
        match owner.as_str() {
            "cohort" => {
                let operator = if text("operator") == "not_in" { "not_in" } else { "exact" };
                let key = values.into_iter().next().unwrap_or_default();
                Self { owner, key, operator: operator.to_owned(), values: Vec::new() }
            }
            _ => Self { owner, key: text("key"), operator: text("operator"), values },
        }
    }

    /// The filter in the API's format.
    pub fn node(&self) -> Value {
        match self.owner.as_str() {
            "cohort" => {
                let operator = if self.operator == "not_in" { "not_in" } else { "in" };
                json!({"key": "id", "type": "cohort", "value": number(&self.key), "operator": operator})
            }
            "flag" => {
                let value = match self.values.first().map_or("true", String::as_str) {
                    "true" => json!(true),
                    "false" => json!(false),
                    variant => json!(variant),
                };
                json!({"key": self.key, "type": "flag", "value": value, "operator": "flag_evaluates_to"})
            }
            owner => {
                let operator = if self.operator.is_empty() { "exact" } else { &self.operator };
                let mut node = Map::new();
                let mut add = |name: &str, value: Value| node.insert(name.to_owned(), value);
                add("key", json!(self.key));
                match owner.strip_prefix("group") {
                    Some(index) => {
                        add("type", json!("group"));
                        add("group_type_index", number(index));
                    }
                    None => _ = add("type", json!(if owner.is_empty() { "person" } else { owner })),
                }
                add("operator", json!(operator));
                add("value", self.value(operator));
                Value::Object(node)
            }
        }
    }

    fn value(&self, operator: &str) -> Value {
        let first = self.values.first().map(String::as_str);
        match (operator, first) {
            // PostHog stores the operator as the value.
            ("is_set" | "is_not_set", _) => json!(operator),
            ("gt" | "gte" | "lt" | "lte", Some(value)) => number(value),
            (operator, Some(value)) if OF_ONE.contains(&operator) => json!(value),
            _ => json!(self.values),
        }
    }
}

/// A condition or a filter without fields that have no effect, for a comparison.
pub fn usual(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let is_set = |operator: Option<&Value>| {
                operator.and_then(Value::as_str).is_some_and(|it| it.ends_with("_set"))
            };
            let is_operator = is_set(fields.get("operator"));
            let is_idle = |name: &str, value: &Value| match name {
                "value" => is_operator,
                "operator" => matches!(value.as_str(), Some("exact" | "in")),
                "properties" => value.as_array().is_some_and(Vec::is_empty),
                "negation" => *value == Value::Bool(false),
                name => IDLE.contains(&name),
            };
            let is_said = |name: &str, value: &Value| !value.is_null() && !is_idle(name, value);
            let said = fields.iter().filter(|(name, value)| is_said(name, value));
            said.map(|(name, value)| match (name.as_str(), value) {
                ("value", one @ Value::String(_)) => (name.clone(), json!([one])),
                (_, value) => (name.clone(), usual(value)),
            })
            .collect()
        }
        Value::Array(list) => list.iter().map(usual).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Condition, Draft, PARTS_MAX, usual};
    use crate::state::parameters::Parameters;
    use weir_api::flags::Flag;

    #[test]
    fn conditions_say_the_same_after_they_were_fields() {
        let person = |operator: &str, value: Value| json!({"key": "plan", "type": "person", "operator": operator, "value": value});
        for (filter, has_fields) in [
            (person("exact", json!(["pro", "free"])), true),
            (person("exact", json!("pro")), true),
            (json!({"key": "plan", "type": "person", "value": ["a"]}), true),
            (person("exact", json!([1])), false),
            (person("gt", json!(5)), true),
            (person("gt", json!("5")), false),
            (person("gte", json!("2.50")), true),
            (person("icontains", json!("a")), true),
            (person("is_set", json!("is_set")), true),
            (person("is_set", json!(null)), true),
            (person("is_date_after", json!("-7d")), true),
            (person("semver_gt", json!("1.2.3")), false),
            (json!({"key": "id", "type": "cohort", "value": 7}), true),
            (
                json!({"key": "id", "type": "cohort", "value": 7, "operator": "not_in", "cohort_name": "x"}),
                true,
            ),
            (
                json!({"key": "4", "type": "flag", "operator": "flag_evaluates_to", "value": true}),
                true,
            ),
            (
                json!({"key": "4", "type": "flag", "operator": "flag_evaluates_to", "value": "blue"}),
                true,
            ),
            (
                json!({"key": "a", "type": "group", "group_type_index": 2, "operator": "exact", "value": ["x"]}),
                true,
            ),
            (
                json!({"key": "a", "type": "person", "operator": "exact", "value": ["x"], "negation": true}),
                false,
            ),
            (
                json!({"key": "a", "type": "person", "operator": "exact", "value": ["x"], "negation": false}),
                true,
            ),
        ] {
            let stored = json!({"properties": [filter], "rollout_percentage": 12.5, "variant": "blue", "sort_key": "k"});
            let condition = Condition::of(&stored);
            assert_eq!(condition.whole.is_none(), has_fields, "{stored}");
            assert_eq!(usual(&condition.node(1).unwrap()), usual(&stored), "{stored}");
        }
        let wrong = Condition { whole: Some("{".to_owned()), ..Condition::default() };
        assert!(wrong.node(3).unwrap_err().to_string().starts_with("Condition 3"));
    }

    #[test]
    fn what_is_typed_is_kept_and_what_has_no_field_stays() {
        let form = "key=beta&name=New&active=1&conditions=2&c1.p1.of=person&c1.p1.key=plan&c1.p1.value=pro&c1.p1.value=\
                    &c1.p2.of=person&c1.rollout=40&c1.variant=blue&c2.remove=1&variants=3&v1.key=blue&v1.rollout=60\
                    &v1.payload=%7B%7D&v2.key=red&v2.rollout=x&v3.key=";
        let draft = Draft::take(&mut Parameters::of_form(form.as_bytes())).unwrap();
        assert_eq!((draft.key.as_str(), draft.name.as_str()), ("beta", "New"));
        assert_eq!((draft.is_active, draft.is_continuous), (true, false));
        let stored = json!({"holdout": {"id": 1}, "groups": [1, 2], "payloads": {"old": "1"}});
        assert_eq!(
            draft.filters(&stored).unwrap(),
            json!({
                "holdout": {"id": 1}, "aggregation_group_type_index": null, "payloads": {"blue": "{}"},
                "groups": [{"properties": [{"key": "plan", "type": "person", "operator": "exact", "value": ["pro"]}],
                    "rollout_percentage": 40, "variant": "blue"}],
                "multivariate": {"variants": [{"key": "blue", "name": "", "rollout_percentage": 60},
                    {"key": "red", "name": "", "rollout_percentage": "x"}]},
            })
        );
        let stored = json!({
            "aggregation_group_type_index": 1, "payloads": {"true": "[1]"},
            "groups": [{"properties": [], "rollout_percentage": 5, "variant": null}]});
        let flag = Flag { key: "a".to_owned(), filters: stored.clone(), ..Flag::default() };
        let filters = Draft::of(&flag).filters(&stored).unwrap();
        assert_eq!(filters["groups"], stored["groups"]);
        assert_eq!(filters["payloads"], stored["payloads"]);
        assert_eq!(filters["aggregation_group_type_index"], 1);
        let many = format!("conditions={}", PARTS_MAX + 1);
        assert_eq!(
            Draft::take(&mut Parameters::of_form(many.as_bytes())).unwrap_err().name,
            "conditions"
        );
    }
}
