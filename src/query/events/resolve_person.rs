//! The function that returns the person of an event after the merges and splits since the event was stored:
//! [`ResolvePerson`]. Its overrides are read from the store of persons, or are a value, where a plan is executed by a
//! process that has no store ([`crate::fragments`]).

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringViewBuilder};
use arrow::datatypes::DataType;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};
use uuid::Uuid;

use weir_event::id::ProjectId;
use weir_identity::IdentityError;
use weir_identity::overrides::{OverrideMap, Overrides};

/// The name of the function.
pub(crate) const RESOLVE_PERSON: &str = "resolve_person";

/// The overrides that the function applies.
#[derive(Clone, Debug)]
pub(crate) enum Survivors {
    /// Those of the store, as of one state.
    Store(Arc<Overrides>),
    /// Those of the project.
    Map(Arc<OverrideMap>),
}

impl Survivors {
    fn of_event(
        &self,
        project: ProjectId,
        person: Uuid,
        distinct_id: Option<&str>,
    ) -> Result<Option<Uuid>, IdentityError> {
        match (self, distinct_id) {
            (Self::Store(own), Some(id)) => own.of_event(project, person, id),
            (Self::Store(own), None) => own.get(project, person),
            (Self::Map(own), Some(id)) => Ok(own.of_event(project, person, id)),
            (Self::Map(own), None) => Ok(own.get(person)),
        }
    }
}

/// `resolve_person(person_id[, distinct_id])`.
#[derive(Debug)]
pub(crate) struct ResolvePerson {
    pub(crate) project: ProjectId,
    pub(crate) survivors: Survivors,
    signature: Signature,
}

impl ResolvePerson {
    /// The function with one argument, or with two if persons of the project were split.
    pub(crate) fn function(
        project: ProjectId,
        survivors: Survivors,
        arguments: usize,
    ) -> ScalarUDF {
        let signature =
            Signature::uniform(arguments, vec![DataType::Utf8View], Volatility::Immutable);
        ScalarUDF::new_from_impl(Self { project, survivors, signature })
    }

    /// Whether it takes distinct ids beside persons.
    pub(crate) fn takes_distinct_ids(&self) -> bool {
        matches!(self.signature.type_signature, TypeSignature::Uniform(2, _))
    }

    fn resolve(
        &self,
        persons: &ArrayRef,
        distinct_ids: Option<&ArrayRef>,
    ) -> Result<ArrayRef, IdentityError> {
        let texts = persons.as_string_view();
        let distinct_ids = distinct_ids.map(|ids| ids.as_string_view());
        let other = |row: usize, person: &str| {
            let Ok(uuid) = Uuid::try_parse(person) else { return Ok(None) };
            self.survivors.of_event(self.project, uuid, distinct_ids.map(|ids| ids.value(row)))
        };
        let mut others = Vec::new();
        for (row, person) in texts.iter().enumerate() {
            if let Some(other) = person.map(|person| other(row, person)).transpose()?.flatten() {
                others.push((row, other));
            }
        }
        if others.is_empty() {
            return Ok(Arc::clone(persons));
        }
        let mut others = others.into_iter().peekable();
        let mut resolved = StringViewBuilder::with_capacity(texts.len());
        for (row, person) in texts.iter().enumerate() {
            match (others.next_if(|(own, _)| *own == row), person) {
                (Some((_, other)), _) => {
                    resolved.append_value(other.hyphenated().encode_lower(&mut [0; 36]));
                }
                (None, Some(person)) => resolved.append_value(person),
                (None, None) => resolved.append_null(),
            }
        }
        Ok(Arc::new(resolved.finish()))
    }

    /// Names the overrides, while they are in memory, and the arguments.
    pub(crate) fn state(&self) -> (usize, usize) {
        let overrides = match &self.survivors {
            Survivors::Store(own) => Arc::as_ptr(own).addr(),
            Survivors::Map(own) => Arc::as_ptr(own).addr(),
        };
        (overrides, usize::from(self.takes_distinct_ids()))
    }
}

/// Two functions are the same if they apply the same state of the same overrides.
impl PartialEq for ResolvePerson {
    fn eq(&self, other: &Self) -> bool {
        self.project == other.project
            && self.state() == other.state()
            && self.signature == other.signature
    }
}

impl Eq for ResolvePerson {}

impl Hash for ResolvePerson {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.project, self.state()).hash(hasher);
    }
}

impl ScalarUDFImpl for ResolvePerson {
    fn name(&self) -> &'static str {
        RESOLVE_PERSON
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let missing = || DataFusionError::Internal("resolve_person takes a person".to_owned());
        let persons = arrays.first().ok_or_else(missing)?;
        let resolved = self.resolve(persons, arrays.get(1));
        let resolved = resolved.map_err(|error| DataFusionError::External(Box::new(error)))?;
        Ok(ColumnarValue::Array(resolved))
    }
}
