//! The function that returns the person of an event after the merges and splits since the event was stored:
//! [`ResolvePerson`], as a text or as a key ([`person_key`]). Its overrides are read from the store of persons, or are a
//! value, where a plan is executed by a process that has no store ([`crate::fragments`]).

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Builder, StringViewBuilder};
use arrow::datatypes::DataType;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use weir_event::id::ProjectId;
use weir_identity::IdentityError;
use weir_identity::overrides::{OverrideMap, Overrides};

/// The name of the function.
pub(crate) const RESOLVE_PERSON: &str = "resolve_person";

/// The same as a key: the bytes of the uuid, as a number.
const PERSON_KEY: &str = "person_key";

/// The type of keys. Their numbers may have more digits than it says; they are only compared.
pub(crate) const KEY: DataType = DataType::Decimal128(38, 0);

/// What the function returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Gives {
    /// The uuid as a text.
    Text,
    /// Its bytes as a number.
    Key,
}

/// The function that returns keys of persons: of those that `resolve` returns as texts, or of its argument.
pub(crate) fn person_key(resolve: Option<&ScalarUDF>) -> ScalarUDF {
    let resolve = resolve.and_then(|own| own.inner().downcast_ref::<ResolvePerson>());
    let none = || (ProjectId(0), Survivors::Map(Arc::default()), 1);
    let (project, survivors, arguments) = resolve.map_or_else(none, |own| {
        let arguments = if own.takes_distinct_ids() { 2 } else { 1 };
        (own.project, own.survivors.clone(), arguments)
    });
    ResolvePerson::function((project, survivors), arguments, Gives::Key)
}

fn key_of_person(person: Uuid) -> i128 {
    i128::from_ne_bytes(person.into_bytes())
}

/// The person with a key.
pub(crate) fn person_of_key(key: i128) -> Uuid {
    Uuid::from_bytes(key.to_ne_bytes())
}

/// Whether a function gives keys of persons.
pub(crate) fn gives_keys(function: &ScalarUDF) -> bool {
    let own = function.inner().downcast_ref::<ResolvePerson>();
    own.is_some_and(|own| own.gives == Gives::Key)
}

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
    pub(crate) gives: Gives,
    signature: Signature,
}

impl ResolvePerson {
    /// The function with one argument, or with two if persons of the project were split.
    pub(crate) fn function(
        (project, survivors): (ProjectId, Survivors),
        arguments: usize,
        gives: Gives,
    ) -> ScalarUDF {
        let signature =
            Signature::uniform(arguments, vec![DataType::Utf8View], Volatility::Immutable);
        ScalarUDF::new_from_impl(Self { project, survivors, gives, signature })
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

    /// The keys of persons.
    fn keys(
        &self,
        persons: &ArrayRef,
        distinct_ids: Option<&ArrayRef>,
    ) -> Result<ArrayRef, IdentityError> {
        let distinct_ids = distinct_ids.map(|ids| ids.as_string_view());
        let mut keys = Decimal128Builder::with_capacity(persons.len()).with_data_type(KEY);
        for (row, person) in persons.as_string_view().iter().enumerate() {
            let Some(own) = person.and_then(|person| Uuid::try_parse(person).ok()) else {
                keys.append_null();
                continue;
            };
            let id = distinct_ids.map(|ids| ids.value(row));
            let owner = self.survivors.of_event(self.project, own, id)?.unwrap_or(own);
            keys.append_value(key_of_person(owner));
        }
        Ok(Arc::new(keys.finish()))
    }

    /// Names the overrides, while they are in memory, and the form of the function.
    pub(crate) fn state(&self) -> (usize, usize) {
        let overrides = match &self.survivors {
            Survivors::Store(own) => Arc::as_ptr(own).addr(),
            Survivors::Map(own) => Arc::as_ptr(own).addr(),
        };
        let form =
            usize::from(self.takes_distinct_ids()) + 2 * usize::from(self.gives == Gives::Key);
        (overrides, form)
    }
}

/// Two functions are the same if they apply the same state of the same overrides.
impl PartialEq for ResolvePerson {
    fn eq(&self, other: &Self) -> bool {
        self.project == other.project
            && self.state() == other.state()
            && self.gives == other.gives
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
        match self.gives {
            Gives::Text => RESOLVE_PERSON,
            Gives::Key => PERSON_KEY,
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.gives {
            Gives::Text => DataType::Utf8View,
            Gives::Key => KEY,
        })
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let missing = || DataFusionError::Internal("resolve_person takes a person".to_owned());
        let persons = arrays.first().ok_or_else(missing)?;
        let resolved = match self.gives {
            Gives::Text => self.resolve(persons, arrays.get(1)),
            Gives::Key => self.keys(persons, arrays.get(1)),
        };
        let resolved = resolved.map_err(|error| DataFusionError::External(Box::new(error)))?;
        Ok(ColumnarValue::Array(resolved))
    }
}
