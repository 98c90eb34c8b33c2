//! Filter tree: property filters joined by AND and OR, as lists of persons and of events use them.
//!
//! Parses three forms: an array of filters, all of which must hold; a group
//! `{"type": "AND" | "OR", "values": [...]}`, whose values are filters or groups; and the oldest form,
//! an object of `key` or `key__operator` to value. The caller evaluates the single filters.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::pattern::{Pattern, PatternError};
use crate::predicate::filter::{Filter, Membership, Scope};
use crate::predicate::operator::Operator;
use crate::predicate::{
    Condition, Equality, Invalid, Matching, Predicate, PredicateError, Test, patterns,
};

/// Limit of nested groups.
const DEPTH_MAX: usize = 20;

/// Limit of filters in one tree.
pub const FILTERS_MAX: usize = 1000;

/// A filter, or several joined by AND or OR. Clones share their patterns.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Tree {
    /// All hold; an empty list holds.
    All(Vec<Self>),
    /// At least one holds; an empty list holds too.
    Any(Vec<Self>),
    /// One filter.
    Leaf {
        /// The filter.
        filter: Filter,
        /// Whether its result is negated (`negation` of cohorts).
        negated: bool,
    },
}

/// Why filters are malformed.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum TreeError {
    /// Neither an array nor an object of one of the forms.
    #[error("Properties are unparsable!")]
    Malformed,
    /// Too many filters, or groups too deep.
    #[error("Properties are too many or nested too deeply.")]
    TooLarge,
    /// A pattern is not valid, or beyond a limit.
    #[error("Invalid regular expression for the property '{0}'. {1}")]
    Regex(String, PatternError),
    /// All patterns together are beyond a limit.
    #[error(transparent)]
    Patterns(PatternError),
    /// The operator needs a value, and the filter has none.
    #[error("Value must be set for the property '{0}' and its operator.")]
    MissingValue(String),
    /// One filter is malformed.
    #[error(transparent)]
    Filter(#[from] PredicateError),
}

impl Tree {
    /// Parses filters. A filter without `type` applies to `scope`: `person` or `event`.
    pub fn parse(json: &Value, scope: &str, matching: Matching) -> Result<Self, TreeError> {
        patterns::check(json).map_err(TreeError::Patterns)?;
        Reader { scope, matching, left: FILTERS_MAX }.tree(json, DEPTH_MAX)
    }

    /// The patterns of its filters.
    pub fn patterns(&self) -> Vec<Arc<Pattern>> {
        let pattern = |filter: &Filter| match filter {
            Filter::Property { predicate, .. } => predicate.pattern().cloned(),
            Filter::Cohort { .. } | Filter::Flag { .. } => None,
        };
        self.filters().into_iter().filter_map(pattern).collect()
    }

    /// Whether the tree holds, where `holds` evaluates a filter. Evaluates no more filters than needed.
    pub fn holds(&self, holds: &mut impl FnMut(&Filter) -> bool) -> bool {
        match self {
            Self::All(trees) => trees.iter().all(|tree| tree.holds(holds)),
            // A group without values restricts nothing, whatever its type.
            Self::Any(trees) => trees.is_empty() || trees.iter().any(|tree| tree.holds(holds)),
            Self::Leaf { filter, negated } => holds(filter) != *negated,
        }
    }

    /// The tree that holds where this one does not.
    #[must_use]
    pub fn negated(self) -> Self {
        let nobody = Filter::Cohort { id: 0, membership: Membership::Nobody };
        let each = |trees: Vec<Self>| trees.into_iter().map(Self::negated).collect();
        match self {
            Self::All(trees) | Self::Any(trees) if trees.is_empty() => {
                Self::Leaf { filter: nobody, negated: false }
            }
            Self::All(trees) => Self::Any(each(trees)),
            Self::Any(trees) => Self::All(each(trees)),
            Self::Leaf { filter, negated } => Self::Leaf { filter, negated: !negated },
        }
    }

    /// All filters.
    pub fn filters(&self) -> Vec<&Filter> {
        match self {
            Self::All(trees) | Self::Any(trees) => trees.iter().flat_map(Self::filters).collect(),
            Self::Leaf { filter, .. } => vec![filter],
        }
    }

    /// The text that the property `email` must equal, case-insensitive, for the tree to hold, if there is
    /// one.
    pub fn required_email(&self) -> Option<String> {
        match self {
            Self::All(trees) => trees.iter().find_map(Self::required_email),
            Self::Any(trees) => match trees.as_slice() {
                [one] => one.required_email(),
                _ => None,
            },
            Self::Leaf {
                filter: Filter::Property { scope: Scope::Person, predicate },
                negated: false,
            } => match &predicate.test {
                Test::Is(Condition::Equal(Equality::Text(text))) if &*predicate.key == "email" => {
                    Some(text.to_string())
                }
                _ => None,
            },
            Self::Leaf { .. } => None,
        }
    }

    /// Properties without which the tree cannot hold.
    pub fn required_keys(&self) -> Vec<&str> {
        match self {
            Self::All(trees) => trees.iter().flat_map(Self::required_keys).collect(),
            Self::Any(trees) => match trees.as_slice() {
                [one] => one.required_keys(),
                _ => Vec::new(),
            },
            Self::Leaf { filter: Filter::Property { predicate, .. }, negated: false } => {
                match predicate.test {
                    Test::Set | Test::Is(_) => vec![&predicate.key],
                    Test::NotSet | Test::Never | Test::IsNot(_) => Vec::new(),
                }
            }
            Self::Leaf { .. } => Vec::new(),
        }
    }
}

struct Reader<'a> {
    scope: &'a str,
    matching: Matching,
    /// Filters that may still follow.
    left: usize,
}

impl Reader<'_> {
    fn tree(&mut self, json: &Value, depth: usize) -> Result<Tree, TreeError> {
        let depth = depth.checked_sub(1).ok_or(TreeError::TooLarge)?;
        match json {
            Value::Array(items) => self.trees(items, depth).map(Tree::All),
            Value::Object(group) => match group.get("values") {
                Some(Value::Array(items)) => {
                    let trees = self.trees(items, depth)?;
                    match group.get("type").and_then(Value::as_str) {
                        Some("OR") => Ok(Tree::Any(trees)),
                        Some("AND") | None => Ok(Tree::All(trees)),
                        Some(_) => Err(TreeError::Malformed),
                    }
                }
                Some(_) => Err(TreeError::Malformed),
                None if group.contains_key("key") || group.contains_key("type") => self.leaf(group),
                None => self.oldest(group),
            },
            _ => Err(TreeError::Malformed),
        }
    }

    fn trees(&mut self, items: &[Value], depth: usize) -> Result<Vec<Tree>, TreeError> {
        items.iter().map(|item| self.tree(item, depth)).collect()
    }

    fn leaf(&mut self, json: &Map<String, Value>) -> Result<Tree, TreeError> {
        self.left = self.left.checked_sub(1).ok_or(TreeError::TooLarge)?;
        let negated = json.get("negation") == Some(&Value::Bool(true));
        let mut json = json.clone();
        if json.get("type").is_none_or(Value::is_null) {
            json.insert("type".to_owned(), Value::from(self.scope));
        }
        let has_value = json.get("value").is_some_and(|value| !value.is_null());
        let filter = match json.get("type").and_then(Value::as_str) {
            Some("cohort" | "flag") => Filter::parse(&Value::Object(json), self.matching),
            // A cohort filter has a type for each way in which its members are computed.
            Some("static-cohort" | "precalculated-cohort") => {
                json.insert("type".to_owned(), Value::from("cohort"));
                Filter::parse(&Value::Object(json), self.matching)
            }
            // Only lists of events have it.
            Some("event_metadata") => {
                among_properties(&mut json);
                Filter::property(&json, Scope::EventMetadata, self.matching)
            }
            // Only insights have it.
            Some("session") => {
                among_properties(&mut json);
                Filter::property(&json, Scope::Session, self.matching)
            }
            // Only insights have expressions, too; the key is the whole expression.
            Some("hogql") => {
                let key = json.get("key").and_then(Value::as_str);
                let key = key.ok_or(PredicateError::MissingKey)?;
                let predicate = Predicate { key: key.into(), test: Test::Set };
                return Ok(Tree::Leaf {
                    filter: Filter::Property { scope: Scope::Expression, predicate },
                    negated,
                });
            }
            _ => {
                among_properties(&mut json);
                Filter::parse(&Value::Object(json), self.matching)
            }
        }?;
        if let Filter::Property { predicate, .. } = &filter {
            if let Some(Invalid::Regex(error)) = predicate.invalid() {
                return Err(TreeError::Regex(predicate.key.to_string(), error));
            }
            match &predicate.test {
                Test::Set | Test::NotSet => {}
                _ if has_value => {}
                _ => return Err(TreeError::MissingValue(predicate.key.to_string())),
            }
        }
        Ok(Tree::Leaf { filter, negated })
    }

    /// The oldest form: `{"email": "a@b.c", "age__gt": 3}`.
    fn oldest(&mut self, group: &Map<String, Value>) -> Result<Tree, TreeError> {
        let leaf = |(name, value): (&String, &Value)| {
            let (key, operator) = match name.rsplit_once("__") {
                Some((key, operator)) if Operator::parse(operator).is_ok() => (key, operator),
                _ => (name.as_str(), "exact"),
            };
            match json!({"key": key, "operator": operator, "value": value}) {
                Value::Object(filter) => self.leaf(&filter),
                _ => Err(TreeError::Malformed),
            }
        };
        group.iter().map(leaf).collect::<Result<_, _>>().map(Tree::All)
    }
}

/// Maps cohort operators, which lists accept on properties too, to the property operators.
fn among_properties(json: &mut Map<String, Value>) {
    let same = match json.get("operator").and_then(Value::as_str) {
        Some("in") => Some("exact"),
        Some("not_in") => Some("is_not"),
        _ => None,
    };
    if let Some(same) = same {
        json.insert("operator".to_owned(), Value::from(same));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::{Tree, TreeError};
    use crate::pattern::PatternError;
    use crate::predicate::Matching;
    use crate::predicate::filter::{Filter, Membership, Scope};
    use crate::predicate::moment::Now;
    use weir_base::clock::UnixMicros;

    fn parse(json: &Value) -> Result<Tree, TreeError> {
        Tree::parse(json, "person", Matching::Legacy)
    }

    fn holds(tree: &Tree, properties: &Map<String, Value>) -> bool {
        tree.holds(&mut |filter| match filter {
            Filter::Property { predicate, .. } => {
                predicate.matches(properties, Now::utc(UnixMicros(0)))
            }
            Filter::Cohort { .. } | Filter::Flag { .. } => false,
        })
    }

    /// Goal: the negated tree holds exactly where the tree does not, whatever its filters say. Method: all trees of two levels
    /// over two filters, and all answers of these.
    #[test]
    fn a_negated_tree_holds_where_the_tree_does_not() {
        let leaf = |id, negated| Tree::Leaf {
            filter: Filter::Cohort { id, membership: Membership::In },
            negated,
        };
        let leaves = || vec![leaf(1, false), leaf(2, true)];
        let inner = [
            leaf(1, true),
            Tree::All(Vec::new()),
            Tree::Any(Vec::new()),
            Tree::All(leaves()),
            Tree::Any(leaves()),
        ];
        let mut trees = inner.to_vec();
        for a in &inner {
            for b in &inner {
                trees.push(Tree::All(vec![a.clone(), b.clone()]));
                trees.push(Tree::Any(vec![a.clone(), b.clone()]));
            }
        }
        for tree in trees {
            for answers in 0..4_i64 {
                let holds = |tree: &Tree| {
                    tree.holds(&mut |filter| match filter {
                        Filter::Cohort { membership: Membership::Nobody, .. } => false,
                        Filter::Cohort { id, .. } => answers & id != 0,
                        other => panic!("{other:?}"),
                    })
                };
                assert_eq!(holds(&tree.clone().negated()), !holds(&tree), "{tree:?} {answers}");
            }
        }
    }

    #[test]
    fn all_forms_hold_for_whom_they_should() {
        let who = json!({"email": "ann@corp.com", "age": 41, "plan": "pro"});
        let who = who.as_object().unwrap();
        let corp =
            json!({"key": "email", "value": "@corp", "operator": "icontains", "type": "person"});
        let young = json!({"key": "age", "value": 30, "operator": "lt"});
        let free = json!({"key": "plan", "value": ["free"]});
        for (filters, expected) in [
            (json!([]), true),
            (json!({}), true),
            (json!([corp]), true),
            (json!([corp, young]), false),
            (json!({"type": "OR", "values": [corp, young]}), true),
            (json!({"type": "AND", "values": [corp, young]}), false),
            (
                json!({"type": "OR", "values": [young, {"type": "AND", "values": [corp, {"type": "OR", "values": [free, corp]}]}]}),
                true,
            ),
            (
                json!({"type": "OR", "values": [young, {"type": "AND", "values": [corp, free]}]}),
                false,
            ),
            (json!({"type": "OR", "values": []}), true),
            (json!({"email": "ANN@corp.com", "age__gt": 40}), true),
            (json!({"email__icontains": "nobody"}), false),
            (json!([{"key": "nothing", "operator": "is_not_set"}]), true),
            (json!([{"key": "plan", "operator": "in", "value": ["free", "pro"]}]), true),
            (json!([{"key": "plan", "operator": "not_in", "value": ["free", "pro"]}]), false),
            (json!([{"key": "plan", "operator": "not_in", "value": ["free"]}]), true),
            (json!([{"key": "nothing", "operator": "not_in", "value": ["free"]}]), true),
        ] {
            let tree = parse(&filters).unwrap();
            assert_eq!(holds(&tree, who), expected, "{filters}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        let mut deep = json!([]);
        for _ in 0..30 {
            deep = json!([deep]);
        }
        let many = Value::Array(vec![json!({"key": "a", "value": 1}); 1001]);
        for (filters, expected) in [
            (json!("x"), TreeError::Malformed),
            (json!(null), TreeError::Malformed),
            (json!([1]), TreeError::Malformed),
            (json!({"type": "XOR", "values": []}), TreeError::Malformed),
            (json!({"type": "OR", "values": 1}), TreeError::Malformed),
            (
                json!([{"key": "a", "operator": "regex", "value": "("}]),
                TreeError::Regex("a".into(), PatternError::Invalid),
            ),
            (json!([{"key": "a"}]), TreeError::MissingValue("a".into())),
            (json!({"a__gt": null}), TreeError::MissingValue("a".into())),
            (
                json!([{"key": "a", "operator": "not_in", "value": null, "type": "event"}]),
                TreeError::MissingValue("a".into()),
            ),
            (deep, TreeError::TooLarge),
            (many, TreeError::TooLarge),
        ] {
            assert_eq!(parse(&filters).unwrap_err(), expected, "{filters}");
        }
        for filters in [json!([{"type": "person"}]), json!([{"key": "a", "operator": "like"}])] {
            assert!(matches!(parse(&filters), Err(TreeError::Filter(_))), "{filters}");
        }
    }

    #[test]
    fn a_pattern_that_is_too_large_is_refused() {
        let large = json!([{"key": "a", "operator": "not_regex", "value": r"\w{1000}"}]);
        let refused = parse(&large).unwrap_err();
        let TreeError::Regex(key, PatternError::TooLarge(_)) = &refused else {
            panic!("{refused:?}")
        };
        assert_eq!(key, "a");
    }

    #[test]
    fn the_row_of_an_event_is_asked_for_by_a_type_of_its_own() {
        let tree = parse(&json!([{"key": "event", "value": "a", "type": "event_metadata"}]));
        let tree = tree.unwrap();
        let [Filter::Property { scope, .. }] = tree.filters()[..] else { panic!("{tree:?}") };
        assert_eq!(*scope, Scope::EventMetadata);
    }

    #[test]
    fn an_email_that_must_be_is_known() {
        let ann = json!({"key": "email", "value": "Ann@corp.com"});
        let part = json!({"key": "email", "value": "corp", "operator": "icontains"});
        let either = json!({"type": "OR", "values": [ann, part]});
        for (filters, expected) in [
            (json!([part, ann]), Some("ann@corp.com")),
            (json!({"type": "OR", "values": [ann]}), Some("ann@corp.com")),
            (json!([part, either]), None),
            (json!([{"key": "email", "value": ["a", "b"]}]), None),
            (json!([{"key": "email", "value": "a", "negation": true}]), None),
            (json!([{"key": "name", "value": "a"}]), None),
        ] {
            assert_eq!(parse(&filters).unwrap().required_email().as_deref(), expected, "{filters}");
        }
    }

    #[test]
    fn keys_that_must_be_there_are_known() {
        let set = json!({"key": "a", "operator": "is_set"});
        let not = json!({"key": "b", "operator": "is_not", "value": 1});
        for (filters, expected) in [
            (json!([set, not]), vec!["a"]),
            (json!({"type": "OR", "values": [set, not]}), vec![]),
            (json!({"type": "OR", "values": [set]}), vec!["a"]),
            (json!([{"key": "c", "value": "x"}, {"type": "AND", "values": [set]}]), vec!["c", "a"]),
        ] {
            assert_eq!(parse(&filters).unwrap().required_keys(), expected, "{filters}");
        }
    }
}
