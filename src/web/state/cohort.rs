//! A cohort as the fields of a form: [`Draft`]. A rule is a list of groups of filters, one of which must hold whole; what
//! has no field, such as a group within a group, is a text of JSON.

use serde_json::Value;
use serde_json::json;

use crate::event::json as reader;
use crate::web::parts::plain;
use crate::web::state::flag::Filter;
use crate::web::state::flag::PARTS_MAX;
use crate::web::state::flag::usual;
use crate::web::state::parameters::Parameters;
use crate::web::state::parameters::Wrong;

/// A cohort.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Draft {
    /// The name.
    pub name: String,
    /// What it is about.
    pub description: String,
    /// Whether it is a list of persons.
    pub is_static: bool,
    /// Ids of persons for a new list, one a line.
    pub ids: String,
    /// Groups of filters: all of a group must hold, and one group.
    pub groups: Vec<Vec<Filter>>,
    /// The rule as JSON; empty where fields say it.
    pub whole: String,
}

impl Draft {
    /// That of a stored cohort.
    pub fn of(cohort: &Value) -> Self {
        let text = |name: &str| cohort.get(name).map(plain).unwrap_or_default();
        let rule = cohort.get("filters").and_then(|of| of.get("properties"));
        let rule = rule.unwrap_or(&Value::Null);
        let groups = groups_of(rule);
        let whole = match &groups {
            Some(_) => String::new(),
            None => serde_json::to_string_pretty(rule).unwrap_or_default(),
        };
        Self {
            name: text("name"),
            description: text("description"),
            is_static: cohort.get("is_static") == Some(&Value::Bool(true)),
            ids: String::new(),
            groups: groups.unwrap_or_default(),
            whole,
        }
    }

    /// What was typed, without groups that are empty.
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
            groups.push(Filter::take_all(form, &format!("c{number}."))?);
        }
        groups.retain(|group: &Vec<Filter>| !group.is_empty());
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

    /// What the API takes.
    ///
    /// # Errors
    ///
    /// A text of JSON is none.
    pub fn body(&self) -> Result<Value, Wrong> {
        let mut body = json!({"name": self.name, "description": self.description});
        let Value::Object(fields) = &mut body else { return Ok(body) };
        if self.is_static {
            fields.insert("is_static".to_owned(), json!(true));
            let (uuids, ids) = members(&self.ids);
            fields.insert("person_ids".to_owned(), json!(uuids));
            fields.insert("distinct_ids".to_owned(), json!(ids));
        } else {
            fields.insert("filters".to_owned(), json!({"properties": self.rule()?}));
        }
        Ok(body)
    }

    /// The rule, as the API has it.
    ///
    /// # Errors
    ///
    /// A text of JSON is none.
    pub fn rule(&self) -> Result<Value, Wrong> {
        if !self.whole.is_empty() {
            let wrong = |_| Wrong::new("whole", "Expected JSON.");
            return reader::read(self.whole.as_bytes()).map_err(wrong);
        }
        let group = |group: &Vec<Filter>| {
            let filters: Vec<Value> = group.iter().map(Filter::node).collect();
            json!({"type": "AND", "values": filters})
        };
        Ok(json!({"type": "OR", "values": self.groups.iter().map(group).collect::<Vec<_>>()}))
    }
}

/// The groups of a rule; `None` if fields cannot say it.
fn groups_of(rule: &Value) -> Option<Vec<Vec<Filter>>> {
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
        values.iter().map(filter).collect::<Option<Vec<_>>>()
    };
    groups.iter().map(filters).collect()
}

/// Ids of persons, one a line: uuids, and others, which are distinct ids.
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
    use serde_json::Value;
    use serde_json::json;

    use super::Draft;
    use super::members;
    use crate::web::state::parameters::Parameters;

    #[test]
    fn rules_say_the_same_after_they_were_fields() {
        let leaf =
            |key: &str| json!({"key": key, "type": "person", "operator": "exact", "value": ["x"]});
        let of = |kind: &str, values: Value| json!({"type": kind, "values": values});
        let deed = json!({"type": "behavioral", "key": "buy", "value": "performed_event"});
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
            (of("OR", json!([of("AND", json!([deed]))])), None),
            (of("OR", json!([leaf("a"), of("AND", json!([leaf("b")]))])), None),
        ] {
            let draft = Draft::of(&json!({"name": "n", "filters": {"properties": rule}}));
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
        assert_eq!(Draft::of(&json!({"filters": {}})).groups, Vec::<Vec<_>>::new());
    }

    #[test]
    fn lists_have_uuids_and_distinct_ids() {
        let uuid = "01890a5d-ac96-774b-bcce-b302099a8057";
        let form = format!("name=VIP&kind=list&ids={uuid}%0D%0A%20ada%20%0A%0Aeve");
        let draft = Draft::take(&mut Parameters::of_form(form.as_bytes())).unwrap();
        let expected = json!({"name": "VIP", "description": "", "is_static": true,
            "person_ids": [uuid], "distinct_ids": ["ada", "eve"]});
        assert_eq!(draft.body().unwrap(), expected);
        assert_eq!(members("01890a5d-ac96-774b-bcce-b302099a805x").1.len(), 1);
    }
}
