//! Scalar functions of insights with parameters, which another process can make from these: [`SerializableFunction`]. Each
//! is a function of one column. A [`FunctionReader`] makes the function of a name from its parameters.

use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};

use weir_event::json;

/// The parameters of a function of one column.
pub trait SerializableFunction:
    Serialize + DeserializeOwned + Debug + Send + Sync + 'static
{
    /// The name of the function.
    const NAME: &'static str;

    /// The type of the column.
    fn takes() -> DataType;

    /// The type of the results.
    fn gives() -> DataType;

    /// The results, one for each value.
    ///
    /// # Errors
    ///
    /// The values cannot be converted.
    fn invoke(&self, values: &ArrayRef) -> Result<ArrayRef>;
}

/// The result of the function with these parameters for a column.
pub fn call(parameters: impl SerializableFunction, column: Expr) -> Expr {
    function(parameters).call(vec![column])
}

fn function<F: SerializableFunction>(parameters: F) -> ScalarUDF {
    ScalarUDF::new_from_impl(Function {
        signature: Signature::exact(vec![F::takes()], Volatility::Immutable),
        name: F::NAME,
        gives: F::gives(),
        parameters: Arc::new(parameters),
    })
}

/// The name and the parameters of a function; `None` for other functions.
pub(crate) fn parameters(function: &ScalarUDF) -> Option<(&'static str, Box<RawValue>)> {
    let own = function.inner().downcast_ref::<Function>()?;
    Some((own.name, own.parameters.write().ok()?))
}

/// Makes the functions of a name from their parameters.
#[derive(Clone, Copy)]
pub struct FunctionReader {
    name: &'static str,
    read: fn(&RawValue) -> serde_json::Result<ScalarUDF>,
}

/// Those of the functions that a process knows.
pub type FunctionReaders = &'static [FunctionReader];

impl Debug for FunctionReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("FunctionReader").field(&self.name).finish()
    }
}

impl FunctionReader {
    /// That of a kind of parameters.
    pub const fn of<F: SerializableFunction>() -> Self {
        let read = |parameters: &RawValue| {
            json::read_as(PhantomData::<F>, parameters.get().as_bytes()).map(function)
        };
        Self { name: F::NAME, read }
    }

    /// The function of a name with these parameters.
    ///
    /// # Errors
    ///
    /// There is none of this name, or these are not its parameters.
    pub(crate) fn function(all: &[Self], name: &str, parameters: &RawValue) -> Result<ScalarUDF> {
        let unknown = || DataFusionError::Plan(format!("there is no function {name}"));
        let own = all.iter().find(|own| own.name == name).ok_or_else(unknown)?;
        let unreadable = |error| DataFusionError::Plan(format!("parameters of {name}: {error}"));
        (own.read)(parameters).map_err(unreadable)
    }
}

/// The parameters of any kind of function.
trait Parameters: Debug + Send + Sync {
    fn invoke(&self, values: &ArrayRef) -> Result<ArrayRef>;

    fn write(&self) -> serde_json::Result<Box<RawValue>>;
}

impl<F: SerializableFunction> Parameters for F {
    fn invoke(&self, values: &ArrayRef) -> Result<ArrayRef> {
        SerializableFunction::invoke(self, values)
    }

    fn write(&self) -> serde_json::Result<Box<RawValue>> {
        to_raw_value(self)
    }
}

/// A function with its parameters.
#[derive(Debug)]
struct Function {
    name: &'static str,
    signature: Signature,
    gives: DataType,
    parameters: Arc<dyn Parameters>,
}

/// Two are one only if they share their parameters.
impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.parameters, &other.parameters)
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.parameters).cast::<()>().hash(state);
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(self.gives.clone())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match arguments.args.as_slice() {
            [ColumnarValue::Array(values)] => {
                Ok(ColumnarValue::Array(self.parameters.invoke(values)?))
            }
            [ColumnarValue::Scalar(value)] => {
                let result = self.parameters.invoke(&value.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?))
            }
            _ => Err(DataFusionError::Internal(format!("{} takes one column", self.name))),
        }
    }
}
