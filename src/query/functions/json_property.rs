//! The text of a property in a JSON text, outside of plans: [`json_property`] is what `json_as_text` is in a plan, with its
//! rules for keys that occur more than once and for the form of values, and without limits.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, lit,
};

use crate::functions::json;

/// The text of the property with this key in the JSON texts of an expression.
pub(crate) fn json_property(texts: Expr, key: &str) -> Expr {
    function().call(vec![texts, lit(key)])
}

/// The function.
pub(crate) fn function() -> ScalarUDF {
    let inner = datafusion_functions_json::udfs::json_as_text_udf();
    ScalarUDF::new_from_impl(Property { inner })
}

/// Whether it is this function.
pub(crate) fn is_it(function: &ScalarUDF) -> bool {
    function.inner().is::<Property>()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Property {
    inner: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for Property {
    fn name(&self) -> &str {
        "json_property"
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arguments)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        json::call(&self.inner, arguments)
    }
}
