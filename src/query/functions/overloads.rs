//! Functions of one name for both texts and lists, which are two functions in DataFusion: the one to call is chosen by
//! the types of the arguments.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::{functions, functions_nested};

/// All functions of this file.
pub(super) fn overloads() -> Vec<ScalarUDF> {
    let overloads = [
        ("concat", functions::string::concat(), functions_nested::concat::array_concat_udf()),
        ("reverse", functions::unicode::reverse(), functions_nested::reverse::array_reverse_udf()),
    ];
    let overload = |(name, text, list)| {
        let signature = Signature::user_defined(Volatility::Immutable);
        ScalarUDF::new_from_impl(Overload { name, text, list, signature })
    };
    overloads.into_iter().map(overload).collect()
}

/// A function of texts and one of lists.
#[derive(Debug)]
struct Overload {
    name: &'static str,
    text: Arc<ScalarUDF>,
    list: Arc<ScalarUDF>,
    signature: Signature,
}

/// Functions are identified by name.
impl PartialEq for Overload {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Overload {}

impl Hash for Overload {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl Overload {
    /// The function for arguments of these types.
    fn of<'t>(&self, types: impl Iterator<Item = &'t DataType> + Clone) -> Result<&Arc<ScalarUDF>> {
        let is_list = |data_type: &&DataType| data_type.is_list();
        match types.clone().filter(is_list).count() {
            0 => Ok(&self.text),
            _ if types.clone().all(|own| own.is_list() || own.is_null()) => Ok(&self.list),
            _ => {
                let why = format!("{} takes texts, or arrays, and not both", self.name);
                Err(DataFusionError::Plan(why))
            }
        }
    }
}

impl ScalarUDFImpl for Overload {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, sent: &[DataType]) -> Result<Vec<DataType>> {
        let field = |data_type: &DataType| -> FieldRef {
            Arc::new(Field::new("argument", data_type.clone(), true))
        };
        let fields: Vec<FieldRef> = sent.iter().map(field).collect();
        let coerced = fields_with_udf(&fields, self.of(sent.iter())?.as_ref())?;
        Ok(coerced.iter().map(|field| field.data_type().clone()).collect())
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.of(arguments.iter())?.return_type(arguments)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types = arguments.arg_fields.iter().map(|field| field.data_type());
        self.of(types)?.return_field_from_args(arguments)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let types = arguments.arg_fields.iter().map(|field| field.data_type());
        let function = Arc::clone(self.of(types)?);
        function.invoke_with_args(arguments)
    }
}
