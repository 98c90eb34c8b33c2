//! Operators that make large values or take long, as functions, which can be limited: `||`, casts of what
//! stands behind views, and matches with costly patterns. Types of a fixed and large width are refused.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::array::RecordBatchOptions;
use arrow::datatypes::DataType;
use arrow::datatypes::Field;
use arrow::datatypes::FieldRef;
use arrow::datatypes::Schema;
use datafusion::common::DFSchema;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::Transformed;
use datafusion::error::DataFusionError;
use datafusion::error::Result;
use datafusion::functions::regex::regexp_like;
use datafusion::logical_expr::BinaryExpr;
use datafusion::logical_expr::ColumnarValue;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::ExprSchemable;
use datafusion::logical_expr::Operator;
use datafusion::logical_expr::ReturnFieldArgs;
use datafusion::logical_expr::ScalarFunctionArgs;
use datafusion::logical_expr::ScalarUDF;
use datafusion::logical_expr::ScalarUDFImpl;
use datafusion::logical_expr::Signature;
use datafusion::logical_expr::Volatility;
use datafusion::logical_expr::expr::Cast;
use datafusion::logical_expr::expr::Like;
use datafusion::logical_expr::expr::TryCast;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions;
use datafusion::physical_expr::expressions::Column;
use datafusion::prelude::lit;

use crate::query::guard::functions::Class;
use crate::query::guard::functions::Cost;
use crate::query::guard::functions::Output;
use crate::query::guard::functions::Rule;
use crate::query::guard::sizes::width;

/// Bytes of a value of a type of a fixed width, at most: a batch of nulls of it takes as much as one of
/// values.
const WIDTH_BYTES_MAX: usize = 1024;

/// Bytes of a pattern without counted repetitions that is matched without limits.
const PLAIN_PATTERN_BYTES: usize = 256;

/// The expression with an operator of it replaced by a function, if it needs limits. Its types are those of
/// the expressions in `schema`.
///
/// # Errors
///
/// It cannot be limited.
pub(super) fn bounded(expression: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let wanted = match &expression {
        Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
            check_type(field.data_type())?;
            let from = expr.get_type(schema)?;
            (is_expanded(&from, field.data_type()))
                .then(|| Operation::Cast(Arc::clone(field), matches!(expression, Expr::TryCast(_))))
        }
        Expr::BinaryExpr(BinaryExpr { op: Operator::StringConcat, .. }) => Some(Operation::Concat),
        Expr::BinaryExpr(BinaryExpr { op, right, .. }) if is_match(*op) && !is_plain(right) => {
            return Ok(Transformed::yes(matched(expression)));
        }
        Expr::SimilarTo(Like { pattern, .. }) if !is_plain(pattern) => {
            let error = "SIMILAR TO takes a pattern of up to 256 bytes without counted repetitions; \
                         use regexp_like()";
            return Err(DataFusionError::Plan(error.to_owned()));
        }
        _ => None,
    };
    let Some(operation) = wanted else { return Ok(Transformed::no(expression)) };
    let arguments = match expression {
        Expr::Cast(Cast { expr, .. }) | Expr::TryCast(TryCast { expr, .. }) => vec![*expr],
        Expr::BinaryExpr(BinaryExpr { left, right, .. }) => vec![*left, *right],
        other => return Ok(Transformed::no(other)),
    };
    Ok(Transformed::yes(ScalarUDF::new_from_impl(Operated::new(operation)).call(arguments)))
}

/// The limits of a function that stands for an operator.
pub(super) fn rule(function: &ScalarUDF) -> Option<Class> {
    let rule = Rule { output: Output::Times(2), cost: Cost::Linear };
    function.inner().is::<Operated>().then_some(Class::Guarded(rule))
}

/// # Errors
///
/// A value of the type, or a list of it, takes too many bytes even if it is null.
fn check_type(data_type: &DataType) -> Result<()> {
    let inner = match data_type {
        DataType::List(field) | DataType::LargeList(field) => Some(field),
        DataType::FixedSizeList(field, length) => {
            let length = usize::try_from(*length).unwrap_or(usize::MAX);
            if length > WIDTH_BYTES_MAX {
                return Err(DataFusionError::Plan(format!(
                    "a list of fixed length {length} is too long"
                )));
            }
            Some(field)
        }
        DataType::Struct(fields) => {
            fields.iter().try_for_each(|field| check_type(field.data_type()))?;
            None
        }
        _ => None,
    };
    if let Some(field) = inner {
        check_type(field.data_type())?;
    }
    match width(data_type) {
        Some(bytes) if bytes > WIDTH_BYTES_MAX => Err(DataFusionError::Plan(format!(
            "values of the type {data_type} have {bytes} bytes each"
        ))),
        _ => Ok(()),
    }
}

/// Whether a cast copies in full what views show.
fn is_expanded(from: &DataType, to: &DataType) -> bool {
    let is_view =
        |data_type: &DataType| matches!(data_type, DataType::Utf8View | DataType::BinaryView);
    is_view(from) && !is_view(to) && width(to).is_none()
}

fn is_match(operator: Operator) -> bool {
    matches!(
        operator,
        Operator::RegexMatch
            | Operator::RegexIMatch
            | Operator::RegexNotMatch
            | Operator::RegexNotIMatch
    )
}

/// Whether a pattern is known to be cheap.
fn is_plain(pattern: &Expr) -> bool {
    let value = match pattern {
        Expr::Literal(value, _) => value,
        // A literal has the type of texts, and columns that of views.
        Expr::Cast(Cast { expr, .. }) => return is_plain(expr),
        _ => return false,
    };
    match value.try_as_str() {
        Some(Some(text)) => text.len() <= PLAIN_PATTERN_BYTES && !text.contains('{'),
        _ => true,
    }
}

/// `a ~ b` as `regexp_like(a, b)`.
fn matched(expression: Expr) -> Expr {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expression else { return expression };
    let mut arguments = vec![*left, *right];
    if matches!(op, Operator::RegexIMatch | Operator::RegexNotIMatch) {
        arguments.push(lit("i"));
    }
    let matched = regexp_like().call(arguments);
    match op {
        Operator::RegexNotMatch | Operator::RegexNotIMatch => Expr::Not(Box::new(matched)),
        _ => matched,
    }
}

/// What a function does in place of an operator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Operation {
    Concat,
    /// A cast to this type; null for what cannot be cast, if so wanted.
    Cast(FieldRef, bool),
}

/// A function that evaluates an operator.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Operated {
    operation: Operation,
    signature: Signature,
}

impl Operated {
    fn new(operation: Operation) -> Self {
        let arguments = if operation == Operation::Concat { 2 } else { 1 };
        Self { operation, signature: Signature::any(arguments, Volatility::Immutable) }
    }

    /// The operator over columns of these types.
    fn expression(&self, schema: &Schema) -> Result<Arc<dyn PhysicalExpr>> {
        let column = |at: usize| -> Arc<dyn PhysicalExpr> { Arc::new(Column::new("", at)) };
        Ok(match &self.operation {
            Operation::Concat => {
                Arc::new(expressions::BinaryExpr::new(column(0), Operator::StringConcat, column(1)))
            }
            Operation::Cast(field, false) => {
                expressions::cast(column(0), schema, field.data_type().clone())?
            }
            Operation::Cast(field, true) => {
                expressions::try_cast(column(0), schema, field.data_type().clone())?
            }
        })
    }
}

fn schema_of(fields: &[FieldRef]) -> Schema {
    let fields =
        fields.iter().map(|field| Field::new("", field.data_type().clone(), field.is_nullable()));
    Schema::new(fields.collect::<Vec<_>>())
}

impl ScalarUDFImpl for Operated {
    fn name(&self) -> &str {
        match self.operation {
            Operation::Concat => "||",
            Operation::Cast(_, false) => "cast",
            Operation::Cast(_, true) => "try_cast",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let fields = types.iter().map(|of| Arc::new(Field::new("", of.clone(), true)));
        let schema = schema_of(&fields.collect::<Vec<_>>());
        self.expression(&schema)?.data_type(&schema)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let schema = schema_of(arguments.arg_fields);
        let expression = self.expression(&schema)?;
        let data_type = expression.data_type(&schema)?;
        Ok(Arc::new(Field::new(self.name(), data_type, expression.nullable(&schema)?)))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant =
            arguments.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { arguments.number_rows };
        let schema = schema_of(&arguments.arg_fields);
        let columns = arguments.args.into_iter().map(|value| value.into_array(rows));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let expression = self.expression(&schema)?;
        // What a column says of nulls may be more than its values do.
        let fields = columns.iter().map(|column| Field::new("", column.data_type().clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(schema, columns, &options)?;
        let output = expression.evaluate(&batch)?;
        match (is_constant, output) {
            (true, ColumnarValue::Array(array)) => {
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?))
            }
            (_, output) => Ok(output),
        }
    }
}
