//! `matches_filters(properties, person_id)`: a tree of filters as a function of a plan. It asks the
//! same predicates as flags do, so both always agree.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::Array;
use arrow::array::ArrayRef;
use arrow::array::AsArray;
use arrow::array::BooleanArray;
use arrow::array::StringViewArray;
use arrow::datatypes::DataType;
use datafusion::error::DataFusionError;
use datafusion::error::Result;
use datafusion::logical_expr::ColumnarValue;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::ScalarFunctionArgs;
use datafusion::logical_expr::ScalarUDF;
use datafusion::logical_expr::ScalarUDFImpl;
use datafusion::logical_expr::Signature;
use datafusion::logical_expr::Volatility;
use datafusion::prelude::col;
use serde_json::Map;
use serde_json::Value;
use uuid::Uuid;

use crate::clock::UnixMicros;
use crate::event::id::ProjectId;
use crate::event::predicate::filter::Filter;
use crate::event::predicate::filter::Scope;
use crate::event::predicate::tree::Tree;
use crate::identity::IdentityError;
use crate::identity::view::View;

/// What rows are asked.
pub(super) struct Filters {
    pub(super) tree: Tree,
    pub(super) project: ProjectId,
    /// Persons, for filters on their properties.
    pub(super) persons: View,
    pub(super) now: UnixMicros,
}

/// The condition that the filters hold for an event and its person as of now.
pub(super) fn condition(filters: Filters) -> Expr {
    let keys = filters.tree.filters();
    let is_of_event =
        |filter: &&Filter| matches!(filter, Filter::Property { scope: Scope::Event, .. });
    // A text that stands in the JSON of every row that matches.
    let needles = if keys.iter().all(is_of_event) {
        let quoted = |key: &str| Value::from(key).to_string();
        filters
            .tree
            .required_keys()
            .into_iter()
            .map(quoted)
            .filter(|key| !key.contains('\\'))
            .collect()
    } else {
        Vec::new()
    };
    let types = vec![DataType::Utf8View, DataType::Utf8View];
    let signature = Signature::exact(types, Volatility::Immutable);
    let function = Matches { filters: Arc::new(filters), needles, signature };
    ScalarUDF::new_from_impl(function).call(vec![col("properties"), col("person_id")])
}

struct Matches {
    filters: Arc<Filters>,
    needles: Vec<String>,
    signature: Signature,
}

impl std::fmt::Debug for Matches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Matches").field("tree", &self.filters.tree).finish_non_exhaustive()
    }
}

impl PartialEq for Matches {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.filters, &other.filters)
    }
}

impl Eq for Matches {}

impl std::hash::Hash for Matches {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.filters).hash(state);
    }
}

impl ScalarUDFImpl for Matches {
    fn name(&self) -> &str {
        "matches_filters"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = arguments.number_rows;
        let mut arrays = arguments.args.into_iter().map(|argument| argument.into_array(rows));
        let (Some(properties), Some(persons)) = (arrays.next(), arrays.next()) else {
            return Err(DataFusionError::Internal(
                "matches_filters takes two arguments".to_owned(),
            ));
        };
        let kept = self.keep(properties?.as_string_view(), persons?.as_string_view());
        let kept = kept.map_err(|error| DataFusionError::External(Box::new(error)))?;
        Ok(ColumnarValue::Array(Arc::new(kept) as ArrayRef))
    }
}

impl Matches {
    fn keep(
        &self,
        properties: &StringViewArray,
        persons: &StringViewArray,
    ) -> std::result::Result<BooleanArray, IdentityError> {
        // The rows of a batch often have few persons.
        let mut known: HashMap<&str, Map<String, Value>> = HashMap::new();
        let asks_for_person = self
            .filters
            .tree
            .filters()
            .into_iter()
            .any(|filter| matches!(filter, Filter::Property { scope: Scope::Person, .. }));
        let mut kept = Vec::with_capacity(properties.len());
        for (properties, person) in properties.iter().zip(persons.iter()) {
            let text = properties.unwrap_or("{}");
            if !self.needles.iter().all(|needle| text.contains(needle.as_str())) {
                kept.push(false);
                continue;
            }
            let person = person.unwrap_or_default();
            if asks_for_person && !known.contains_key(person) {
                known.insert(person, self.person(person)?);
            }
            let event: Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
            let person = known.get(person).map_or(Cow::Owned(Map::new()), Cow::Borrowed);
            kept.push(self.filters.tree.holds(&mut |filter| match filter {
                Filter::Property { scope: Scope::Event, predicate } => {
                    predicate.matches(&event, self.filters.now)
                }
                Filter::Property { scope: Scope::Person, predicate } => {
                    predicate.matches(&*person, self.filters.now)
                }
                Filter::Property { .. } | Filter::Cohort { .. } | Filter::Flag { .. } => false,
            }));
        }
        Ok(BooleanArray::from(kept))
    }

    /// The properties of a person; none if there is no such person.
    fn person(&self, id: &str) -> std::result::Result<Map<String, Value>, IdentityError> {
        let Ok(uuid) = Uuid::try_parse(id) else { return Ok(Map::new()) };
        let person = self.filters.persons.person_by_uuid(self.filters.project, uuid)?;
        Ok(person.map_or_else(Map::new, |person| person.properties))
    }
}
