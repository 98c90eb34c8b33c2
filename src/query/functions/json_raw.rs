//! Values in a JSON text as JSON: [`function`], whose values are texts as any others are.
//!
//! The function of the library says with its values that they are JSON. Where they meet other texts, as in a `UNION`, the
//! engine converts them, forgets that in one form of the plan and keeps it in the other, and refuses the query.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ExpressionPlacement, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};

/// The function, which takes the place of that of the library.
pub(super) fn function() -> ScalarUDF {
    ScalarUDF::new_from_impl(Raw { inner: datafusion_functions_json::udfs::json_get_json_udf() })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Raw {
    inner: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for Raw {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arguments)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.inner.invoke_with_args(arguments)
    }

    fn placement(&self, arguments: &[ExpressionPlacement]) -> ExpressionPlacement {
        self.inner.placement(arguments)
    }
}
