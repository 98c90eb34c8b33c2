//! The subject of an evaluation: the person and the groups of one request.
//!
//! Properties of the request override stored ones, key by key. No merged map is built: a look-up
//! reads the one and then the other.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::definition::{Aggregation, Bucketing, Definition};
use weir_base::clock::UnixMicros;
use weir_event::auto_set::AUTO_SET;
use weir_event::predicate::Properties;
use weir_event::predicate::moment::Now;

/// Most group types of a project. PostHog's limit, and the width of the events table.
const GROUP_TYPES: usize = 5;

/// The person and the groups of a request.
#[derive(Debug)]
pub struct Subject<'a> {
    /// The device, for flags that hash it. Empty means none.
    pub device_id: Option<&'a str>,
    /// `$anon_distinct_id`: the distinct id before the login.
    pub anon_distinct_id: Option<&'a str>,
    /// Stored properties of the person.
    pub stored: Option<&'a Map<String, Value>>,
    /// Properties of the person in the request.
    pub supplied: Option<&'a Map<String, Value>>,
    /// Time of creation of the person: the only column of its row that filters can use.
    pub created_at: Option<UnixMicros>,
    /// Stored hash keys of the person, by flag key.
    pub hash_keys: HashKeys<'a>,
    /// The time of the evaluation, for dates.
    pub now: Now,
    /// A string; as a property it is returned by reference.
    distinct_id: Value,
    groups: Vec<Group<'a>>,
}

/// Hash keys with which flags with continuity keep their values across a login.
#[derive(Clone, Copy, Debug, Default)]
pub enum HashKeys<'a> {
    /// None are stored.
    #[default]
    None,
    /// The stored ones, by flag key.
    Kept(&'a HashMap<String, String>),
    /// They could not be read; flags that need them fail.
    Failed,
}

/// A group of the request.
#[derive(Debug)]
pub struct Group<'a> {
    /// The index of its type.
    pub index: u8,
    /// Its key, if the request has a usable one: a text that is not empty, or a number.
    pub key: Option<Cow<'a, str>>,
    /// Stored properties of the group; set by [`Subject::store_group`].
    pub stored: Option<&'a Map<String, Value>>,
    /// Properties of the group in the request.
    pub supplied: Option<&'a Map<String, Value>>,
    /// The key as in the request, for filters on `$group_key`.
    raw_key: Option<&'a Value>,
}

/// The names of a project's group types, by index.
#[derive(Clone, Debug, Default)]
pub struct GroupTypes {
    names: [Option<Box<str>>; GROUP_TYPES],
}

impl GroupTypes {
    /// The types of a project, as pairs of index and name. Indexes beyond the limit are ignored.
    pub fn new<'n>(types: impl IntoIterator<Item = (u8, &'n str)>) -> Self {
        let mut names = <[Option<Box<str>>; GROUP_TYPES]>::default();
        for (index, name) in types {
            if let Some(slot) = names.get_mut(usize::from(index)) {
                *slot = Some(name.into());
            }
        }
        Self { names }
    }

    /// The types in the order of their indexes.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &str)> {
        (0..).zip(&self.names).filter_map(|(index, name)| Some((index, name.as_deref()?)))
    }
}

impl<'a> Subject<'a> {
    /// A person with a distinct id and no other data.
    pub fn new(distinct_id: impl Into<String>, now: Now) -> Self {
        Self {
            device_id: None,
            anon_distinct_id: None,
            stored: None,
            supplied: None,
            created_at: None,
            hash_keys: HashKeys::None,
            now,
            distinct_id: Value::String(distinct_id.into()),
            groups: Vec::new(),
        }
    }

    /// Adds the groups of a request: `keys` from type name to group key, `supplied` from type name
    /// to an object of properties. Types that the project does not have are ignored.
    pub fn add_groups(
        &mut self,
        types: &GroupTypes,
        keys: Option<&'a Map<String, Value>>,
        supplied: Option<&'a Map<String, Value>>,
    ) {
        for (index, name) in types.iter() {
            let raw_key = keys.and_then(|keys| keys.get(name));
            let supplied = supplied.and_then(|all| all.get(name)).and_then(Value::as_object);
            if raw_key.is_some() || supplied.is_some() {
                let key = raw_key.and_then(usable_key);
                self.groups.push(Group { index, key, stored: None, supplied, raw_key });
            }
        }
    }

    /// The groups that were added, to look up their stored properties.
    pub fn groups(&self) -> &[Group<'a>] {
        &self.groups
    }

    /// Sets the stored properties of the group of the type `index`.
    pub fn store_group(&mut self, index: u8, stored: &'a Map<String, Value>) {
        if let Some(group) = self.groups.iter_mut().find(|group| group.index == index) {
            group.stored = Some(stored);
        }
    }

    /// The distinct id.
    pub fn distinct_id(&self) -> &str {
        self.distinct_id.as_str().unwrap_or_default()
    }

    /// The group of the type `index`, if the request has it.
    pub fn group(&self, index: u8) -> Option<&Group<'a>> {
        self.groups.iter().find(|group| group.index == index)
    }

    /// The identifier that a condition of the flag hashes. Empty if there is none.
    pub fn identifier(&self, flag: &Definition, aggregation: Aggregation) -> &str {
        if let Aggregation::Person = aggregation {
            return self.person_identifier(flag, self.hash_keys);
        }
        self.group_identifier(aggregation)
    }

    /// The identifier that the holdout of the flag hashes. Stored hash keys are ignored: the same
    /// persons are held out of all flags.
    pub fn holdout_identifier(&self, flag: &Definition) -> &str {
        match flag.aggregation {
            Aggregation::Person => self.person_identifier(flag, HashKeys::None),
            group => self.group_identifier(group),
        }
    }

    /// Whether the hash keys of the person could not be read.
    pub fn hash_keys_failed(&self) -> bool {
        matches!(self.hash_keys, HashKeys::Failed)
    }

    /// A column of the person's row, for filters on it. Formatted as text only on use.
    pub fn column(&self, name: &str) -> Option<Value> {
        let created_at = self.created_at.filter(|_| name == "created_at")?;
        Some(Value::String(created_at.to_rfc3339()))
    }

    /// The device id, unless it is empty.
    pub fn device_id(&self) -> Option<&str> {
        self.device_id.filter(|id| !id.is_empty())
    }

    fn person_identifier<'s>(&'s self, flag: &Definition, kept: HashKeys<'s>) -> &'s str {
        if flag.bucketing == Bucketing::DeviceId
            && let Some(device_id) = self.device_id()
        {
            return device_id;
        }
        if !flag.continuity {
            return self.distinct_id();
        }
        let kept = match kept {
            HashKeys::Kept(keys) => keys.get(&*flag.key).map(String::as_str),
            HashKeys::None | HashKeys::Failed => None,
        };
        kept.or(self.anon_distinct_id).unwrap_or(self.distinct_id())
    }

    fn group_identifier(&self, aggregation: Aggregation) -> &str {
        let Aggregation::Group(index) = aggregation else { return "" };
        self.group(index).and_then(|group| group.key.as_deref()).unwrap_or_default()
    }

    fn plain(&self, key: &str) -> Option<&Value> {
        if let Some(value) = self.supplied.and_then(|supplied| supplied.get(key)) {
            return Some(value);
        }
        match key {
            "distinct_id" => Some(&self.distinct_id),
            key => self.stored.and_then(|stored| stored.get(key)),
        }
    }

    /// Browsers send `$os`, apps `$os_name`; a filter on either uses both.
    fn with_os_alias(&self, key: &str) -> Option<&Value> {
        self.plain(key).or_else(|| match key {
            "$os" => self.plain("$os_name"),
            "$os_name" => self.plain("$os"),
            _ => None,
        })
    }
}

/// The properties of the person.
impl Properties for Subject<'_> {
    fn property(&self, key: &str) -> Option<&Value> {
        self.with_os_alias(key).or_else(|| {
            // For a person without a stored first value, the current value is used.
            let mut auto_sets = AUTO_SET.iter().filter(|_| key.starts_with("$initial_"));
            let (current, _) = auto_sets.find(|(_, initial)| *initial == key)?;
            self.with_os_alias(current)
        })
    }
}

/// The properties of the group.
impl Properties for Group<'_> {
    fn property(&self, key: &str) -> Option<&Value> {
        if let Some(value) = self.supplied.and_then(|supplied| supplied.get(key)) {
            return Some(value);
        }
        match (key, self.raw_key) {
            ("$group_key", Some(raw_key)) => Some(raw_key),
            _ => self.stored.and_then(|stored| stored.get(key)),
        }
    }
}

fn usable_key(key: &Value) -> Option<Cow<'_, str>> {
    match key {
        Value::String(text) if !text.is_empty() => Some(Cow::Borrowed(text)),
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::{GroupTypes, Subject};
    use weir_base::clock::UnixMicros;
    use weir_event::predicate::Properties;
    use weir_event::predicate::moment::Now;

    fn object(json: Value) -> Map<String, Value> {
        let Value::Object(object) = json else { panic!("not an object") };
        object
    }

    #[test]
    fn supplied_properties_win_key_by_key() {
        let stored = object(json!({"plan": "free", "country": "de", "distinct_id": "stored"}));
        let supplied = object(json!({"plan": "pro", "nothing": null}));
        let mut subject = Subject::new("d1", Now::utc(UnixMicros(0)));
        subject.stored = Some(&stored);
        subject.supplied = Some(&supplied);
        for (key, expected) in [
            ("plan", Some(json!("pro"))),
            ("country", Some(json!("de"))),
            ("nothing", Some(json!(null))),
            ("distinct_id", Some(json!("d1"))),
            ("other", None),
        ] {
            assert_eq!(subject.property(key), expected.as_ref(), "{key}");
        }
        let supplied = object(json!({"distinct_id": "override"}));
        subject.supplied = Some(&supplied);
        assert_eq!(subject.property("distinct_id"), Some(&json!("override")));
    }

    #[test]
    fn first_values_and_names_of_systems_are_filled_in() {
        let stored = object(json!({"$os_name": "iOS", "utm_source": "x", "$initial_browser": "A"}));
        let supplied = object(json!({"$browser": "B", "$referrer": "r"}));
        let mut subject = Subject::new("d1", Now::utc(UnixMicros(0)));
        subject.stored = Some(&stored);
        subject.supplied = Some(&supplied);
        for (key, expected) in [
            ("$os", Some("iOS")),
            ("$os_name", Some("iOS")),
            ("$initial_os", Some("iOS")),
            ("$initial_browser", Some("A")),
            ("$initial_referrer", Some("r")),
            ("$initial_utm_source", Some("x")),
            ("$initial_plan", None),
            ("$initial_$browser", None),
        ] {
            assert_eq!(subject.property(key).and_then(Value::as_str), expected, "{key}");
        }
    }

    #[test]
    fn groups_need_a_type_and_a_usable_key() {
        let types = GroupTypes::new([(0, "organization"), (1, "project"), (2, "team"), (9, "x")]);
        let keys = object(json!({"organization": "acme", "project": 7, "team": "", "other": "z"}));
        let supplied = object(json!({"organization": {"plan": "pro"}, "project": 1}));
        let stored = object(json!({"plan": "free", "size": 3, "$group_key": "stored"}));
        let mut subject = Subject::new("d1", Now::utc(UnixMicros(0)));
        subject.add_groups(&types, Some(&keys), Some(&supplied));
        subject.store_group(0, &stored);
        subject.store_group(4, &stored);
        let groups = subject.groups();
        let actual: Vec<_> = groups.iter().map(|g| (g.index, g.key.as_deref())).collect();
        assert_eq!(actual, [(0, Some("acme")), (1, Some("7")), (2, None)]);
        let group = subject.group(0).expect("named");
        for (key, expected) in
            [("plan", json!("pro")), ("size", json!(3)), ("$group_key", json!("acme"))]
        {
            assert_eq!(group.property(key), Some(&expected), "{key}");
        }
        assert!(subject.group(4).is_none());
    }
}
