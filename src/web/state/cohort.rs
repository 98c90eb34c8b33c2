//! A cohort as form fields: [`Draft`]. A rule is a list of groups joined by OR, each of property and behavioral filters
//! joined by AND; a rule without fields for it, such as a group within a group, is edited as JSON.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::parts::plain;
use crate::state::flag::{Filter, PARTS_MAX, usual};
use crate::state::parameters::{Parameters, Wrong};
use weir_api::cohorts::Cohort;
use weir_event::json as reader;

/// How the number of events is compared; the first is the default.
pub const TIMES: [&str; 3] = [AT_LEAST, "lte", "exact"];

/// At least so often.
const AT_LEAST: &str = "gte";

/// Most behavioral filters of a group.
pub const BEHAVIORAL_MAX: usize = 10;

/// Default time range of a behavioral filter, in days.
pub const DAYS: u32 = 30;

/// A cohort.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Draft {
    /// The name.
    pub name: String,
    /// Its description.
    pub description: String,
    /// Whether it is a static list of persons.
    pub is_static: bool,
    /// Ids of persons for a new list, one a line.
    pub ids: String,
    /// Groups of filters, joined by OR.
    pub groups: Vec<Group>,
    /// The rule as JSON; empty where the fields represent it.
    pub whole: String,
}

/// Filters joined by AND.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Filters on properties.
    pub filters: Vec<Filter>,
    /// Behavioral filters.
    pub behavioral: Vec<Behavioral>,
}

/// A behavioral filter: an event that a person did, or did not do, within some days.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behavioral {
    /// The event.
    pub event: String,
    /// Whether it is negated.
    pub is_not: bool,
    /// One of [`TIMES`].
    pub operator: &'static str,
    /// Number of events.
    pub count: u32,
    /// Days before now.
    pub days: u32,
}

impl Behavioral {
    /// Takes all filters from the fields whose names begin with `prefix`.
    fn take_all(form: &mut Parameters, prefix: &str) -> Result<Vec<Self>, Wrong> {
        let mut behavioral = Vec::new();
        for number in 1..=BEHAVIORAL_MAX {
            let name = |field: &str| format!("{prefix}d{number}.{field}");
            let event = form.take(&name("event"))?;
            let (is_not, operator) = (form.truth(&name("not"))?, form.choice(&name("op"), &TIMES)?);
            let (count, days) = (form.number(&name("count"))?, form.number(&name("days"))?);
            if let Some(event) = event {
                let (count, days) = (count.unwrap_or(1), days.unwrap_or(DAYS));
                behavioral.push(Self {
                    event,
                    is_not,
                    operator: operator.unwrap_or(AT_LEAST),
                    count,
                    days,
                });
            }
        }
        Ok(behavioral)
    }

    /// The behavioral filter of a stored filter; `None` if the form has no fields for it.
    fn of(stored: &Value) -> Option<Self> {
        let text = |name: &str| stored.get(name).map(plain).unwrap_or_default();
        let (operator, count) = match text("value").as_str() {
            "performed_event" => (AT_LEAST, 1),
            _ => {
                let operator = text("operator");
                let operator = TIMES.into_iter().find(|own| *own == operator)?;
                (operator, text("operator_value").parse().ok()?)
            }
        };
        let is_not = stored.get("negation") == Some(&Value::Bool(true));
        let days = text("time_value").parse().ok()?;
        let one = Self { event: text("key"), is_not, operator, count, days };
        (said(&one.node()) == said(stored)).then_some(one)
    }

    /// The filter in the API's format.
    fn node(&self) -> Value {
        let mut node = json!({
            "type": "behavioral", "key": self.event, "event_type": "events", "value": "performed_event",
            "time_value": self.days, "time_interval": "day", "negation": self.is_not,
        });
        if let Value::Object(fields) = &mut node
            && (self.operator, self.count) != (AT_LEAST, 1)
        {
            fields.insert("value".to_owned(), json!("performed_event_multiple"));
            fields.insert("operator".to_owned(), json!(self.operator));
            fields.insert("operator_value".to_owned(), json!(self.count));
        }
        node
    }
}

/// The fields of a filter that are neither empty nor false, as texts.
fn said(filter: &Value) -> BTreeMap<&str, String> {
    let fields = filter.as_object().into_iter().flatten();
    let said = fields.map(|(name, value)| (name.as_str(), plain(value)));
    said.filter(|(_, text)| !matches!(text.as_str(), "" | "false" | "[]")).collect()
}

impl Draft {
    /// The draft of a stored cohort.
    pub fn of(cohort: &Cohort) -> Self {
        let rule = cohort.filters.get("properties").unwrap_or(&Value::Null);
        let groups = groups_of(rule);
        let whole = match &groups {
            Some(_) => String::new(),
            None => serde_json::to_string_pretty(rule).unwrap_or_default(),
        };
        Self {
            name: cohort.name.clone(),
            description: cohort.description.clone(),
            is_static: cohort.is_static,
            ids: String::new(),
            groups: groups.unwrap_or_default(),
            whole,
        }
    }

    /// Parses the submitted form, without empty groups.
    ///
    /// # Errors
    ///
    /// A field is given twice, or there are more groups than a form has.
    pub fn take(form: &mut Parameters) -> Result<Self, Wrong> {
        let count: usize = form.number("groups")?.unwrap_or(0);
        if count > PARTS_MAX {
            return Err(Wrong::new("groups", format!("A form has at most {PARTS_MAX} of these.")));
        }
        let mut groups = Vec::new();
        for number in 1..=count {
            let prefix = format!("c{number}.");
            let filters = Filter::take_all(form, &prefix)?;
            groups.push(Group { filters, behavioral: Behavioral::take_all(form, &prefix)? });
        }
        groups.retain(|group| *group != Group::default());
        let mut text = |name: &str| Ok(form.take(name)?.unwrap_or_default());
        Ok(Self {
            name: text("name")?,
            description: text("description")?,
            is_static: text("kind")? == "list",
            ids: text("ids")?,
            groups,
            whole: text("whole")?,
        })
    }

    /// The rule in the API's format.
    ///
    /// # Errors
    ///
    /// The entered JSON is invalid.
    pub fn rule(&self) -> Result<Value, Wrong> {
        if !self.whole.is_empty() {
            let wrong = |_| Wrong::new("whole", "Expected JSON.");
            return reader::read(self.whole.as_bytes()).map_err(wrong);
        }
        let group = |group: &Group| {
            let filters = group.filters.iter().map(Filter::node);
            let all: Vec<Value> =
                filters.chain(group.behavioral.iter().map(Behavioral::node)).collect();
            json!({"type": "AND", "values": all})
        };
        Ok(json!({"type": "OR", "values": self.groups.iter().map(group).collect::<Vec<_>>()}))
    }
}

/// The groups of a rule; `None` if the form has no fields for it.
fn groups_of(rule: &Value) -> Option<Vec<Group>> {
    let list = |of: &Value| of.get("values").and_then(Value::as_array).cloned();
    let Some(values) = list(rule) else { return rule.is_null().then(Vec::new) };
    let is_or = |of: &Value| of.get("type").and_then(Value::as_str) == Some("OR");
    let is_group = |of: &Value| of.get("values").is_some_and(Value::is_array);
    let groups = match (values.iter().all(is_group), values.iter().any(is_group)) {
        (true, _) if is_or(rule) || values.len() < 2 => values,
        (_, false) if is_or(rule) => {
            values.into_iter().map(|own| json!({"type": "AND", "values": [own]})).collect()
        }
        (_, false) => vec![json!({"type": "AND", "values": values})],
        _ => return None,
    };
    let filters = |group: &Value| {
        let values = list(group)?;
        if values.iter().any(is_group) || is_or(group) && values.len() > 1 {
            return None;
        }
        let filter = |stored: &Value| {
            let filter = Filter::of(stored);
            let is_same = usual(&filter.node()) == usual(stored);
            (is_same && filter.has_fields()).then_some(filter)
        };
        let mut own = Group::default();
        for stored in &values {
            match stored.get("type").and_then(Value::as_str) {
                Some("behavioral") => own.behavioral.push(Behavioral::of(stored)?),
                _ => own.filters.push(filter(stored)?),
            }
        }
        (own.behavioral.len() <= BEHAVIORAL_MAX).then_some(own)
    };
    groups.iter().map(filters).collect()
}

/// Ids of persons, one per line: first uuids, then the others, which are distinct ids.
pub fn members(text: &str) -> (Vec<&str>, Vec<&str>) {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.partition(|line| line.len() == UUID_CHARS && uuid_like(line))
}

/// Characters of a uuid with its hyphens.
const UUID_CHARS: usize = 36;

fn uuid_like(text: &str) -> bool {
    let is_place = |at: usize| matches!(at, 8 | 13 | 18 | 23);
    text.bytes()
        .enumerate()
        .all(|(at, byte)| if is_place(at) { byte == b'-' } else { byte.is_ascii_hexdigit() })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Draft, Group, members};
    use crate::state::parameters::Parameters;
    use weir_api::cohorts::Cohort;

    fn cohort(filters: Value) -> Cohort {
        Cohort { name: "n".to_owned(), filters, ..Cohort::default() }
    }

    #[test]
    fn rules_say_the_same_after_they_were_fields() {
        let leaf =
            |key: &str| json!({"key": key, "type": "person", "operator": "exact", "value": ["x"]});
        let of = |kind: &str, values: Value| json!({"type": kind, "values": values});
        let one = json!({"type": "behavioral", "key": "buy", "value": "performed_event"});
        let did = |operator: &str, count: u32| {
            let mut own = json!({"type": "behavioral", "key": "buy", "event_type": "events", "value": "performed_event",
                "time_value": 7, "time_interval": "day", "negation": false});
            if (operator, count) != ("gte", 1) {
                own["value"] = json!("performed_event_multiple");
                own["operator"] = json!(operator);
                own["operator_value"] = json!(count.to_string());
            }
            own
        };
        for (rule, groups) in [
            (
                of(
                    "OR",
                    json!([
                        of("AND", json!([leaf("a"), leaf("b")])),
                        of("AND", json!([leaf("c")]))
                    ]),
                ),
                Some(2),
            ),
            (of("AND", json!([leaf("a"), leaf("b")])), Some(1)),
            (of("OR", json!([leaf("a"), leaf("b")])), Some(2)),
            (of("AND", json!([of("OR", json!([leaf("a"), leaf("b")]))])), None),
            (
                of("AND", json!([of("AND", json!([leaf("a")])), of("AND", json!([leaf("b")]))])),
                None,
            ),
            (of("OR", json!([of("AND", json!([one]))])), None),
            (of("OR", json!([of("AND", json!([did("gte", 1)]))])), Some(1)),
            (
                of("OR", json!([of("AND", json!([leaf("a"), did("lte", 3), did("exact", 2)]))])),
                Some(1),
            ),
            (of("OR", json!([of("AND", json!([did("gt", 2)]))])), None),
            (of("OR", json!([leaf("a"), of("AND", json!([leaf("b")]))])), None),
        ] {
            let draft = Draft::of(&cohort(json!({"properties": rule})));
            assert_eq!(
                Some(draft.groups.len()).filter(|_| draft.whole.is_empty()),
                groups,
                "{rule}"
            );
            let again = draft.rule().unwrap();
            if groups.is_none() {
                assert_eq!(again, rule);
            } else {
                let leaves = |of: &Value| of.to_string().matches("\"key\"").count();
                assert_eq!(leaves(&again), leaves(&rule), "{rule}");
            }
        }
        assert_eq!(Draft::of(&cohort(json!({}))).groups, Vec::<Group>::new());
    }

    #[test]
    fn lists_have_uuids_and_distinct_ids() {
        let uuid = "01890a5d-ac96-774b-bcce-b302099a8057";
        let form = format!("name=VIP&kind=list&ids={uuid}%0D%0A%20ada%20%0A%0Aeve");
        let draft = Draft::take(&mut Parameters::of_form(form.as_bytes())).unwrap();
        assert_eq!((draft.name.as_str(), draft.is_static), ("VIP", true));
        assert_eq!(members(&draft.ids), (vec![uuid], vec!["ada", "eve"]));
        assert_eq!(members("01890a5d-ac96-774b-bcce-b302099a805x").1.len(), 1);
    }
}
