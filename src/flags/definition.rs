//! The parsed flag: only what evaluation needs, checked at parse time and cheap to share.
//!
//! The stored JSON with unknown keys is kept elsewhere. Both generations of the format are read:
//! holdouts as `holdout` or `holdout_groups`, early access as `feature_enrollment` or
//! `super_groups`. No evaluation here.

use std::collections::HashMap;

use serde_json::{Map, Value};
use thiserror::Error;

use weir_event::pattern::PatternError;
use weir_event::predicate::filter::{Filter, group_type};
use weir_event::predicate::{Matching, PredicateError, Reading, patterns};

/// A flag as stored.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a> {
    /// Unique in the project; dependencies refer to it.
    pub id: i64,
    /// Unique in the project; SDKs use it as the name.
    pub key: &'a str,
    /// 1 at first, plus 1 with each change.
    pub version: i64,
    /// False for inactive or deleted flags.
    pub active: bool,
    /// `ensure_experience_continuity`: a person keeps its value across a login.
    pub continuity: bool,
    /// `bucketing_identifier`, as stored.
    pub bucketing: Option<&'a str>,
    /// `evaluation_runtime`, as stored.
    pub runtime: Option<&'a str>,
    /// `evaluation_contexts`, as stored.
    pub contexts: &'a [String],
    /// The release conditions, variants and payloads.
    pub filters: &'a Value,
    /// The project's comparison of truth values.
    pub matching: Matching,
}

impl<'a> Stored<'a> {
    /// An active flag with defaults for all other fields.
    pub fn new(id: i64, key: &'a str, filters: &'a Value) -> Self {
        Self {
            id,
            key,
            version: 1,
            active: true,
            continuity: false,
            bucketing: None,
            runtime: None,
            contexts: &[],
            filters,
            matching: Matching::Legacy,
        }
    }
}

/// A parsed flag.
#[derive(Debug)]
pub struct Definition {
    /// Unique in the project.
    pub id: i64,
    /// Unique in the project.
    pub key: Box<str>,
    /// The version of the stored flag.
    pub version: i64,
    /// An inactive flag is false for flags that depend on it, and absent from answers.
    pub active: bool,
    /// Whether hash key overrides apply.
    pub continuity: bool,
    /// What conditions for persons hash.
    pub bucketing: Bucketing,
    /// The runtimes in which the flag may be evaluated.
    pub runtime: Runtime,
    /// If not empty, a request that names contexts must name one of these.
    pub contexts: Box<[Box<str>]>,
    /// In their declared order; the first that matches wins.
    pub conditions: Box<[Condition]>,
    /// In their declared order, in which their shares follow each other.
    pub variants: Box<[Variant]>,
    /// The aggregation of the holdout; conditions have their own.
    pub aggregation: Aggregation,
    /// The person property that decides alone if it is present: early access.
    pub enrollment: Option<Box<str>>,
    /// The holdout of experiments.
    pub holdout: Option<Holdout>,
    /// Whether a condition whose filters match, but not its rollout, ends the evaluation.
    pub early_exit: bool,
    payloads: HashMap<Box<str>, Value>,
}

/// A release condition: filters and a rollout percentage.
#[derive(Debug)]
pub struct Condition {
    /// All must match. Empty: matches everyone.
    pub filters: Box<[Filter]>,
    /// In percent; 100 and above is everyone.
    pub rollout: f64,
    /// Index in [`Definition::variants`] of the variant that every match gets.
    pub variant: Option<usize>,
    /// What the rollout aggregates by.
    pub aggregation: Aggregation,
}

/// A variant of a flag.
#[derive(Debug, PartialEq)]
pub struct Variant {
    /// Unique in the flag.
    pub key: Box<str>,
    /// In percent; those of a flag add up to 100.
    pub rollout: f64,
}

/// A share of all persons who are excluded from experiments.
#[derive(Debug, PartialEq)]
pub struct Holdout {
    /// In percent.
    pub rollout: f64,
    /// Their variant, `holdout-<id>`.
    pub variant: Box<str>,
}

/// What is hashed: a person, or a group of this type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregation {
    /// The person.
    Person,
    /// The group of the type with this index.
    Group(u8),
}

/// The identifier of a person that is hashed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bucketing {
    /// The distinct id.
    #[default]
    DistinctId,
    /// The device id.
    DeviceId,
}

/// The runtimes in which a flag may be evaluated, or the runtime of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Runtime {
    /// All runtimes; of a request: unknown.
    #[default]
    All,
    /// Servers only.
    Server,
    /// Browsers and apps only.
    Client,
}

/// Invalid filters. Evaluation reports such a flag as failed.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum DefinitionError {
    /// `filters`, or a part of it, is of the wrong JSON type.
    #[error("{0} has the wrong type")]
    WrongType(&'static str),
    /// A percentage is not a number.
    #[error("a rollout percentage is not a number")]
    Rollout,
    /// A property filter cannot be read.
    #[error("condition {index} cannot be read")]
    Filter {
        /// The condition, from 0.
        index: usize,
        /// What is wrong.
        #[source]
        source: PredicateError,
    },
    /// The index of a group type cannot be read.
    #[error("the aggregation cannot be read")]
    Aggregation(#[source] PredicateError),
    /// The patterns in its conditions are too large together.
    #[error(transparent)]
    Patterns(PatternError),
    /// Those of all flags of the project are, with its own.
    #[error("the patterns of all flags of the project are too large together")]
    PatternsOfProject,
}

impl Definition {
    /// Reads a stored flag.
    ///
    /// # Errors
    ///
    /// [`DefinitionError`]: the filters are invalid. A [`crate::set::Entry`] keeps the
    /// error, so that requests report it.
    pub fn parse(stored: &Stored<'_>) -> Result<Self, DefinitionError> {
        let filters = match stored.filters {
            Value::Object(filters) => filters,
            _ => return Err(DefinitionError::WrongType("filters")),
        };
        patterns::check(stored.filters).map_err(DefinitionError::Patterns)?;
        let variants = variants(filters)?;
        let aggregation = aggregation(filters.get("aggregation_group_type_index"))?;
        let conditions =
            ConditionReader { matching: stored.matching, variants: &variants, aggregation }
                .read_all(filters)?;
        Ok(Self {
            id: stored.id,
            key: stored.key.into(),
            version: stored.version,
            active: stored.active,
            continuity: stored.continuity,
            bucketing: match stored.bucketing {
                Some("device_id") => Bucketing::DeviceId,
                _ => Bucketing::DistinctId,
            },
            runtime: Runtime::parse(stored.runtime),
            contexts: stored.contexts.iter().map(|context| context.as_str().into()).collect(),
            conditions,
            aggregation,
            enrollment: has_enrollment(filters)
                .then(|| format!("$feature_enrollment/{}", stored.key).into_boxed_str()),
            holdout: holdout(filters)?,
            early_exit: filters.get("early_exit") == Some(&Value::Bool(true)),
            payloads: payloads(filters)?,
            variants,
        })
    }

    /// The payload of a variant, or of the flag itself, as stored: usually a string of JSON. Null
    /// means none.
    pub fn payload(&self, variant: Option<&str>) -> Option<&Value> {
        self.payloads.get(variant.unwrap_or("true")).filter(|payload| !payload.is_null())
    }

    /// The ids of the flags that the conditions depend on; with repetitions.
    pub fn dependencies(&self) -> impl Iterator<Item = i64> {
        let filters = self.conditions.iter().flat_map(|condition| &condition.filters);
        filters.filter_map(|filter| match filter {
            Filter::Flag { id, .. } => Some(*id),
            _ => None,
        })
    }

    /// Patterns in its conditions that are beyond a limit: their filters match nobody. Those that are no regular
    /// expressions are not among them.
    pub fn large_patterns(&self) -> impl Iterator<Item = (&str, PatternError)> {
        let filters = self.conditions.iter().flat_map(|condition| &condition.filters);
        filters.filter_map(|filter| match filter {
            Filter::Property { predicate, .. } => predicate.large_pattern(),
            Filter::Cohort { .. } | Filter::Flag { .. } => None,
        })
    }

    /// Whether the verdict of the condition can depend on a hash.
    pub fn needs_hash(&self, condition: &Condition) -> bool {
        condition.rollout < 100.0 || (!self.variants.is_empty() && condition.variant.is_none())
    }
}

impl Runtime {
    /// The runtime with this wire name; `All` if the name is missing or unknown.
    pub fn parse(name: Option<&str>) -> Self {
        match name {
            Some("server") => Self::Server,
            Some("client") => Self::Client,
            _ => Self::All,
        }
    }
}

/// The context for parsing the conditions of a flag.
struct ConditionReader<'a> {
    matching: Matching,
    variants: &'a [Variant],
    aggregation: Aggregation,
}

impl ConditionReader<'_> {
    fn read_all(&self, filters: &Map<String, Value>) -> Result<Box<[Condition]>, DefinitionError> {
        match present(filters, "groups") {
            Some(Value::Array(groups)) => {
                groups.iter().enumerate().map(|(i, group)| self.read(i, group)).collect()
            }
            Some(_) => Err(DefinitionError::WrongType("groups")),
            // The oldest format has one condition, whose properties are in `filters` itself.
            None => Ok(Box::new([self.read_object(0, filters)?])),
        }
    }

    fn read(&self, index: usize, group: &Value) -> Result<Condition, DefinitionError> {
        let group = group.as_object().ok_or(DefinitionError::WrongType("groups"))?;
        self.read_object(index, group)
    }

    fn read_object(
        &self,
        index: usize,
        group: &Map<String, Value>,
    ) -> Result<Condition, DefinitionError> {
        let properties = match present(group, "properties") {
            Some(Value::Array(properties)) => properties.as_slice(),
            Some(_) => return Err(DefinitionError::WrongType("properties")),
            None => &[],
        };
        let parse = |filter| {
            Filter::parse(filter, Reading::of_flags(self.matching))
                .map_err(|source| DefinitionError::Filter { index, source })
        };
        let pinned = group.get("variant").and_then(Value::as_str);
        Ok(Condition {
            filters: properties.iter().map(parse).collect::<Result<_, _>>()?,
            rollout: rollout(group.get("rollout_percentage"))?,
            // A variant that the flag does not have counts as none.
            variant: self.variants.iter().position(|variant| Some(&*variant.key) == pinned),
            aggregation: match group.get("aggregation_group_type_index") {
                None => self.aggregation,
                explicit => aggregation(explicit)?,
            },
        })
    }
}

/// The value of a key, unless it is null.
fn present<'a>(object: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    object.get(key).filter(|value| !value.is_null())
}

fn aggregation(json: Option<&Value>) -> Result<Aggregation, DefinitionError> {
    let index = group_type(json).map_err(DefinitionError::Aggregation)?;
    Ok(index.map_or(Aggregation::Person, Aggregation::Group))
}

fn rollout(json: Option<&Value>) -> Result<f64, DefinitionError> {
    match json {
        None | Some(Value::Null) => Ok(100.0),
        Some(json) => json.as_f64().ok_or(DefinitionError::Rollout),
    }
}

fn variants(filters: &Map<String, Value>) -> Result<Box<[Variant]>, DefinitionError> {
    let Some(multivariate) = present(filters, "multivariate") else { return Ok(Box::default()) };
    let wrong = || DefinitionError::WrongType("multivariate");
    let variants = match multivariate.as_object().ok_or_else(wrong)?.get("variants") {
        None | Some(Value::Null) => return Ok(Box::default()),
        Some(variants) => variants.as_array().ok_or_else(wrong)?,
    };
    let read = |variant: &Value| {
        let key = variant.get("key").and_then(Value::as_str).ok_or_else(wrong)?;
        let rollout = variant.get("rollout_percentage").and_then(Value::as_f64);
        Ok(Variant { key: key.into(), rollout: rollout.ok_or(DefinitionError::Rollout)? })
    };
    variants.iter().map(read).collect()
}

fn payloads(filters: &Map<String, Value>) -> Result<HashMap<Box<str>, Value>, DefinitionError> {
    match present(filters, "payloads") {
        Some(Value::Object(payloads)) => {
            Ok(payloads.iter().map(|(key, value)| (key.as_str().into(), value.clone())).collect())
        }
        Some(_) => Err(DefinitionError::WrongType("payloads")),
        None => Ok(HashMap::new()),
    }
}

/// Whether users may enrol in a flag with these filters: early access.
pub fn has_enrollment(filters: &Map<String, Value>) -> bool {
    let groups = filters.get("super_groups").and_then(Value::as_array);
    filters.get("feature_enrollment") == Some(&Value::Bool(true))
        || groups.is_some_and(|groups| !groups.is_empty())
}

fn holdout(filters: &Map<String, Value>) -> Result<Option<Holdout>, DefinitionError> {
    if let Some(holdout) = present(filters, "holdout") {
        let wrong = DefinitionError::WrongType("holdout");
        let Some(id) = holdout.get("id").and_then(Value::as_i64) else { return Err(wrong) };
        let excluded = holdout.get("exclusion_percentage").and_then(Value::as_f64);
        let rollout = excluded.ok_or(DefinitionError::Rollout)?.clamp(0.0, 100.0);
        return Ok(Some(Holdout { rollout, variant: format!("holdout-{id}").into() }));
    }
    let groups = filters.get("holdout_groups").and_then(Value::as_array);
    let Some(group) = groups.and_then(|groups| groups.first()) else { return Ok(None) };
    let Some(variant) = group.get("variant").and_then(Value::as_str) else { return Ok(None) };
    let rollout = rollout(group.get("rollout_percentage"))?.clamp(0.0, 100.0);
    Ok(Some(Holdout { rollout, variant: variant.into() }))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Aggregation, Bucketing, Definition, DefinitionError, Holdout, Runtime, Stored};
    use weir_event::predicate::PredicateError;

    fn parse(filters: &Value) -> Result<Definition, DefinitionError> {
        Definition::parse(&Stored {
            bucketing: Some("device_id"),
            runtime: Some("client"),
            ..Stored::new(1, "beta", filters)
        })
    }

    #[test]
    fn filters_without_conditions_are_one_open_condition() {
        for filters in [json!({}), json!({"groups": null}), json!({"properties": []})] {
            let flag = parse(&filters).expect("readable");
            let [condition] = &*flag.conditions else { panic!("{filters}") };
            assert!(condition.filters.is_empty());
            assert_eq!(condition.rollout.to_bits(), 100f64.to_bits());
        }
        let filters = json!({"properties": [{"key": "a", "value": 1}]});
        assert_eq!(parse(&filters).expect("readable").conditions[0].filters.len(), 1);
        assert_eq!(parse(&json!({"groups": []})).expect("readable").conditions.len(), 0);
    }

    #[test]
    fn conditions_inherit_or_replace_the_aggregation() {
        let flag = parse(&json!({
            "aggregation_group_type_index": 1,
            "groups": [
                {},
                {"aggregation_group_type_index": null},
                {"aggregation_group_type_index": 3},
            ],
        }))
        .expect("readable");
        let actual: Vec<_> = flag.conditions.iter().map(|c| c.aggregation).collect();
        assert_eq!(actual, [Aggregation::Group(1), Aggregation::Person, Aggregation::Group(3)]);
        assert_eq!(flag.aggregation, Aggregation::Group(1));
    }

    #[test]
    fn both_generations_of_holdouts_and_enrollment_are_read() {
        let holdout = Some(Holdout { rollout: 12.5, variant: "holdout-7".into() });
        for filters in [
            json!({"holdout": {"id": 7, "exclusion_percentage": 12.5}}),
            json!({"holdout_groups": [
                {"properties": [], "rollout_percentage": 12.5, "variant": "holdout-7"}
            ]}),
        ] {
            assert_eq!(parse(&filters).expect("readable").holdout, holdout, "{filters}");
        }
        for (filters, expected) in [
            (json!({"feature_enrollment": true}), Some("$feature_enrollment/beta")),
            (json!({"super_groups": [{"properties": []}]}), Some("$feature_enrollment/beta")),
            (json!({"feature_enrollment": false, "super_groups": []}), None),
            (json!({"super_groups": null, "holdout": null, "holdout_groups": null}), None),
        ] {
            let flag = parse(&filters).expect("readable");
            assert_eq!(flag.enrollment.as_deref(), expected, "{filters}");
            assert_eq!(flag.holdout, None);
        }
    }

    #[test]
    fn variants_payloads_and_settings_are_read() {
        let flag = parse(&json!({
            "groups": [{"variant": "b"}, {"variant": "unknown"}, {"variant": null}],
            "multivariate": {"variants": [
                {"key": "a", "name": null, "rollout_percentage": 33.3},
                {"key": "b", "rollout_percentage": 66.7},
            ]},
            "payloads": {"a": "{\"x\": 1}", "true": "1", "b": null},
            "early_exit": true,
            "unknown": [1],
        }))
        .expect("readable");
        let pinned: Vec<_> = flag.conditions.iter().map(|c| c.variant).collect();
        assert_eq!(pinned, [Some(1), None, None]);
        let variants: Vec<_> = flag.variants.iter().map(|v| (&*v.key, v.rollout)).collect();
        assert_eq!(variants, [("a", 33.3), ("b", 66.7)]);
        assert_eq!(flag.payload(Some("a")), Some(&json!("{\"x\": 1}")));
        assert_eq!(flag.payload(None), Some(&json!("1")));
        assert_eq!(flag.payload(Some("b")), None);
        assert!(flag.early_exit);
        assert_eq!((flag.bucketing, flag.runtime), (Bucketing::DeviceId, Runtime::Client));
    }

    #[test]
    fn unreadable_filters_are_errors() {
        for (filters, expected) in [
            (json!([]), DefinitionError::WrongType("filters")),
            (json!({"groups": {}}), DefinitionError::WrongType("groups")),
            (json!({"groups": [1]}), DefinitionError::WrongType("groups")),
            (json!({"groups": [{"properties": {}}]}), DefinitionError::WrongType("properties")),
            (json!({"groups": [{"rollout_percentage": "5"}]}), DefinitionError::Rollout),
            (json!({"multivariate": []}), DefinitionError::WrongType("multivariate")),
            (json!({"multivariate": {"variants": [{"key": "a"}]}}), DefinitionError::Rollout),
            (json!({"payloads": "x"}), DefinitionError::WrongType("payloads")),
            (json!({"holdout": {}}), DefinitionError::WrongType("holdout")),
            (
                json!({"groups": [{}, {"properties": [{"value": 1}]}]}),
                DefinitionError::Filter { index: 1, source: PredicateError::MissingKey },
            ),
            (
                json!({"aggregation_group_type_index": "a"}),
                DefinitionError::Aggregation(PredicateError::InvalidGroupType("\"a\"".to_owned())),
            ),
        ] {
            assert_eq!(parse(&filters).err(), Some(expected), "{filters}");
        }
    }
}
