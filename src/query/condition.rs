//! A rule of ours as a condition of a plan: [`condition`], or of one column, quick and without errors: [`of_column`].

use std::sync::Arc;

use arrow::array::Array;
use arrow::array::ArrayRef;
use arrow::array::AsArray;
use arrow::array::BooleanArray;
use arrow::array::StringViewArray;
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::DataType;
use arrow::datatypes::Float64Type;
use arrow::datatypes::Int64Type;
use arrow::datatypes::TimestampMicrosecondType;
use datafusion::common::ScalarValue;
use datafusion::error::DataFusionError;
use datafusion::error::Result;
use datafusion::logical_expr::ColumnarValue;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::ScalarFunctionArgs;
use datafusion::logical_expr::ScalarUDF;
use datafusion::logical_expr::ScalarUDFImpl;
use datafusion::logical_expr::Signature;
use datafusion::logical_expr::Volatility;
use datafusion::logical_expr::create_udf;
use datafusion::prelude::ident;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use serde_json::Value;

use crate::clock::UnixMicros;

/// The condition that `test` gives true for the values of `columns`, which have these types; each
/// call is for some rows. Its `name` is what a plan shows of it.
pub fn condition(
    name: &str,
    columns: &[(&str, DataType)],
    test: impl Fn(&[ArrayRef]) -> Result<BooleanArray> + Send + Sync + 'static,
) -> Expr {
    let invoke = move |arguments: &[ColumnarValue]| {
        let is_constant = arguments.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let answers = test(&ColumnarValue::values_to_arrays(arguments)?)?;
        // What a file's bounds show to be the same for all its rows may come as one value.
        Ok(match is_constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&answers, 0)?),
            false => ColumnarValue::Array(Arc::new(answers)),
        })
    };
    let types = columns.iter().map(|(_, data_type)| data_type.clone()).collect();
    let function =
        create_udf(name, types, DataType::Boolean, Volatility::Immutable, Arc::new(invoke));
    function.call(columns.iter().map(|(name, _)| ident(*name)).collect())
}

/// The condition that `test` gives true for the values of a column of this type. One that is quick may be evaluated
/// while files are read; see [`is_quick`].
pub(super) fn of_column(
    name: &'static str,
    (column, data_type): (&str, DataType),
    is_quick: bool,
    test: impl Fn(&ArrayRef) -> BooleanArray + Send + Sync + 'static,
) -> Expr {
    of_value(name, (ident(column), data_type), is_quick, test)
}

/// The same of an expression.
pub(super) fn of_value(
    name: &'static str,
    (value, data_type): (Expr, DataType),
    is_quick: bool,
    test: impl Fn(&ArrayRef) -> BooleanArray + Send + Sync + 'static,
) -> Expr {
    let signature = Signature::exact(vec![data_type], Volatility::Immutable);
    let test = OfColumn { name, signature, is_quick, test: Arc::new(test) };
    ScalarUDF::new_from_impl(test).call(vec![value])
}

/// Whether a function is a condition of one column that fails on no value, and takes little time.
pub(super) fn is_quick(function: &ScalarUDF) -> bool {
    function.inner().downcast_ref::<OfColumn>().is_some_and(|of_column| of_column.is_quick)
}

struct OfColumn {
    name: &'static str,
    signature: Signature,
    is_quick: bool,
    test: Arc<dyn Fn(&ArrayRef) -> BooleanArray + Send + Sync>,
}

impl std::fmt::Debug for OfColumn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OfColumn").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Two are one only if they have the same test.
impl PartialEq for OfColumn {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.test, &other.test)
    }
}

impl Eq for OfColumn {}

impl std::hash::Hash for OfColumn {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.test).hash(state);
    }
}

impl ScalarUDFImpl for OfColumn {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match arguments.args.as_slice() {
            [ColumnarValue::Array(column)] => {
                Ok(ColumnarValue::Array(Arc::new((self.test)(column))))
            }
            [ColumnarValue::Scalar(value)] => {
                let answer = (self.test)(&value.to_array()?);
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&answer, 0)?))
            }
            _ => Err(DataFusionError::Internal(format!("{} takes one column", self.name))),
        }
    }
}

/// For which values of a column a rule holds, and whether it holds `without` one. The rule gets JSON: texts, numbers,
/// truth values, and times as RFC 3339 texts; it holds for no value of another type.
pub(super) fn hold(
    column: &ArrayRef,
    without: bool,
    holds: impl Fn(Value) -> bool,
) -> BooleanArray {
    let each = |value: &dyn Fn(usize) -> Value| {
        BooleanBuffer::collect_bool(column.len(), |row| match column.is_null(row) {
            true => without,
            false => holds(value(row)),
        })
    };
    let held = if let Some(texts) = column.as_string_view_opt() {
        of_texts(texts, without, &holds)
    } else if let Some(numbers) = column.as_primitive_opt::<Float64Type>() {
        each(&|row| Value::from(numbers.value(row)))
    } else if let Some(numbers) = column.as_primitive_opt::<Int64Type>() {
        each(&|row| Value::from(numbers.value(row)))
    } else if let Some(truths) = column.as_boolean_opt() {
        each(&|row| Value::from(truths.value(row)))
    } else if let Some(times) = column.as_primitive_opt::<TimestampMicrosecondType>() {
        each(&|row| Value::from(UnixMicros(times.value(row)).to_rfc3339()))
    } else {
        BooleanBuffer::new_unset(column.len())
    };
    BooleanArray::new(held, None)
}

/// The same of texts. The rows of a batch have few different ones, and equal ones of a file are at one place of its
/// dictionary: what is known is known by the place, or by the text itself where that is short.
fn of_texts(
    texts: &StringViewArray,
    without: bool,
    holds: &impl Fn(Value) -> bool,
) -> BooleanBuffer {
    let mut known: HashMap<u128, bool, RandomState> = HashMap::default();
    let mut last = None;
    BooleanBuffer::collect_bool(texts.len(), |row| {
        let Some(view) = texts.views().get(row).filter(|_| texts.is_valid(row)) else {
            return without;
        };
        match last {
            Some((own, held)) if own == *view => held,
            _ => {
                let of = || holds(Value::from(texts.value(row)));
                let held = *known.entry(*view).or_insert_with(of);
                last = Some((*view, held));
                held
            }
        }
    })
}
