//! Replaces operators that produce large values or take long by functions, which can be limited: `||`, casts of the
//! values behind views, and matches with costly patterns, or of texts returned by functions. Types of a large fixed
//! width are refused. `+`, `-` and `*` of integers become functions that report an overflow.

pub(crate) mod content;

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::functions::regex::regexp_like;
use datafusion::logical_expr::expr::{Cast, Like, TryCast};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, Operator, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{PhysicalExpr, expressions};
use datafusion::prelude::lit;

use crate::guard::function::Guarded;
use crate::guard::functions::{Class, Cost, Output, Rule};
use crate::guard::running::Running;
use crate::guard::sizes::{null_bytes, width};
use crate::guard::stored::Stored;
use weir_event::pattern::{PatternError, Size};

/// Maximum bytes of a value of a fixed-width type: a batch of its nulls takes as much as one of values.
const WIDTH_BYTES_MAX: usize = 1024;

/// Maximum bytes of a pattern without counted repetitions that is matched without limits.
const PLAIN_PATTERN_BYTES: usize = 256;

/// Maximum states of such a pattern that can be active at once, and wildcards of a LIKE pattern: a batch of texts of a
/// kilobyte takes less than a second.
const PLAIN_COPIES_MAX: usize = 16;

/// Maximum states of such a pattern. It is compiled for each batch.
const PLAIN_STATES_MAX: usize = 5_000;

/// Replaces the operator at the root of the expression by a function, if it needs limits. `schema` has the types of
/// columns.
///
/// # Errors
///
/// It cannot be limited.
pub(super) fn bounded(
    expression: Expr,
    schema: &DFSchema,
    stored: &Stored,
) -> Result<Transformed<Expr>> {
    let wanted = match &expression {
        Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
            check_type(field.data_type())?;
            let from = expr.get_type(schema)?;
            (is_expanded(&from, field.data_type()))
                .then(|| Operation::Cast(Arc::clone(field), matches!(expression, Expr::TryCast(_))))
        }
        Expr::BinaryExpr(BinaryExpr { op: Operator::StringConcat, .. }) => Some(Operation::Concat),
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if is_match(*op) && !(is_plain(right) && stored.has(left)) =>
        {
            return Ok(Transformed::yes(matched(expression)));
        }
        Expr::Like(like) if !is_cheap(like, stored) => {
            Some(Operation::Like { negated: like.negated, case_insensitive: like.case_insensitive })
        }
        Expr::SimilarTo(Like { pattern, .. }) if !is_plain(pattern) => {
            let error = "SIMILAR TO takes a pattern of up to 256 bytes with few classes and no counted \
                         repetitions; use regexp_like()";
            return Err(DataFusionError::Plan(error.to_owned()));
        }
        Expr::SimilarTo(like) if !stored.has(&like.expr) => {
            return Ok(Transformed::yes(matched(as_match(expression))));
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if is_of_integers(left, *op, right, schema)? =>
        {
            Some(Operation::Checked(vec![*op]))
        }
        Expr::Negative(inner)
            if !matches!(**inner, Expr::Literal(..)) && inner.get_type(schema)?.is_integer() =>
        {
            Some(Operation::Checked(vec![Operator::Minus]))
        }
        _ => None,
    };
    let Some(operation) = wanted else { return Ok(Transformed::no(expression)) };
    let arguments = match expression {
        Expr::Cast(Cast { expr, .. }) | Expr::TryCast(TryCast { expr, .. }) => vec![*expr],
        Expr::BinaryExpr(BinaryExpr { left, right, .. }) => {
            return Ok(Transformed::yes(chained(*left, operation, *right)));
        }
        Expr::Like(Like { expr, pattern, .. }) => vec![*expr, *pattern],
        Expr::Negative(inner) => {
            let zero = ScalarValue::new_zero(&inner.get_type(schema)?)?;
            vec![lit(zero), *inner]
        }
        other => return Ok(Transformed::no(other)),
    };
    let function = Operated::new(operation, arguments.len());
    Ok(Transformed::yes(ScalarUDF::new_from_impl(function).call(arguments)))
}

/// The limits of a function that replaces an operator.
pub(super) fn rule(function: &ScalarUDF) -> Option<Class> {
    let operated = function.inner().downcast_ref::<Operated>()?;
    Some(Class::Guarded(match operated.operation {
        Operation::Checked(_) => return Some(Class::Plain),
        Operation::Like { .. } => Rule { output: Output::Narrow, cost: Cost::Wildcards },
        Operation::Concat | Operation::Cast(..) => {
            Rule { output: Output::Times(2), cost: Cost::Linear }
        }
    }))
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
    match null_bytes(data_type) {
        bytes if bytes > WIDTH_BYTES_MAX => Err(DataFusionError::Plan(format!(
            "values of the type {data_type} have {bytes} bytes each"
        ))),
        _ => Ok(()),
    }
}

/// Whether a cast copies the full values behind views.
fn is_expanded(from: &DataType, to: &DataType) -> bool {
    let is_view =
        |data_type: &DataType| matches!(data_type, DataType::Utf8View | DataType::BinaryView);
    is_view(from) && !is_view(to) && width(to).is_none()
}

/// Whether an operator may overflow the range of integers. DataFusion's own wraps around.
fn is_checked(operator: Operator) -> bool {
    matches!(operator, Operator::Plus | Operator::Minus | Operator::Multiply)
}

/// Whether an integer operator is replaced by a function: if it may overflow, or if it continues a chain of such
/// operators.
fn is_of_integers(
    left: &Expr,
    operator: Operator,
    right: &Expr,
    schema: &DFSchema,
) -> Result<bool> {
    let goes_on = matches!(operator, Operator::Divide | Operator::Modulo);
    let is_chain = operated(left).is_some_and(|own| matches!(own.operation, Operation::Checked(_)));
    if !(is_checked(operator) || goes_on && is_chain) {
        return Ok(false);
    }
    // The type of a chain depends on all of its operands, so it is not determined at each operator.
    Ok(right.get_type(schema)?.is_integer() && (is_chain || left.get_type(schema)?.is_integer()))
}

/// The function of an expression, if it replaces an operator.
fn operated(expression: &Expr) -> Option<&Operated> {
    match expression {
        Expr::ScalarFunction(call) => {
            let function = call.func.inner();
            let inner =
                function.downcast_ref::<Guarded>().map_or(function, |own| own.inner().inner());
            inner.downcast_ref::<Operated>()
        }
        _ => None,
    }
}

/// A function in place of an operator. A chain of operators becomes one function: determining properties of a function,
/// such as its name and type, visits all of its arguments, so a chain of nested functions would take quadratic time.
fn chained(left: Expr, operation: Operation, right: Expr) -> Expr {
    let chain = match (operated(&left).map(|own| &own.operation), &operation) {
        (Some(Operation::Concat), Operation::Concat) => Some(Operation::Concat),
        (Some(Operation::Checked(own)), Operation::Checked(more)) => {
            Some(Operation::Checked(own.iter().chain(more).copied().collect()))
        }
        _ => None,
    };
    let (operation, arguments) = match (chain, left) {
        (Some(chain), Expr::ScalarFunction(mut call)) => {
            call.args.push(right);
            (chain, call.args)
        }
        (_, left) => (operation, vec![left, right]),
    };
    ScalarUDF::new_from_impl(Operated::new(operation, arguments.len())).call(arguments)
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

/// Whether an expression matches a text with a pattern.
pub(super) fn is_any_match(expression: &Expr) -> bool {
    match expression {
        Expr::Like(_) | Expr::SimilarTo(_) => true,
        Expr::BinaryExpr(BinaryExpr { op, .. }) => is_match(*op),
        _ => false,
    }
}

/// Whether a LIKE is cheap without limits: it searches a text at a fixed position or anywhere, or the pattern is short
/// and the text is a stored one.
fn is_cheap(like: &Like, stored: &Stored) -> bool {
    // The planner refuses other escape characters.
    like.escape_char.unwrap_or('\\') != '\\'
        || is_search(&like.pattern)
        || (has_few_wildcards(&like.pattern) && stored.has(&like.expr))
}

/// Whether a LIKE pattern is a literal text with at most one `%` at each end.
fn is_search(pattern: &Expr) -> bool {
    match pattern {
        Expr::Cast(Cast { expr, .. }) => is_search(expr),
        Expr::Literal(value, _) => value.try_as_str().flatten().is_some_and(|text| {
            let text = text.strip_prefix('%').unwrap_or(text);
            let text = text.strip_suffix('%').unwrap_or(text);
            !text.contains(['%', '_', '\\'])
        }),
        _ => false,
    }
}

/// `a SIMILAR TO b` as `a ~ b`, which DataFusion treats as the same.
fn as_match(expression: Expr) -> Expr {
    let Expr::SimilarTo(Like { negated, expr, pattern, case_insensitive, .. }) = expression else {
        return expression;
    };
    let op = match (negated, case_insensitive) {
        (false, false) => Operator::RegexMatch,
        (false, true) => Operator::RegexIMatch,
        (true, false) => Operator::RegexNotMatch,
        (true, true) => Operator::RegexNotIMatch,
    };
    Expr::BinaryExpr(BinaryExpr { left: expr, op, right: pattern })
}

/// Whether a pattern is a constant that is cheap to match.
fn is_plain(pattern: &Expr) -> bool {
    is_constant(pattern, |text| {
        let is_small =
            |size: Size| size.copies <= PLAIN_COPIES_MAX && size.states <= PLAIN_STATES_MAX;
        // A pattern that only DataFusion can parse is limited by its length.
        let is_cheap = match Size::of(text) {
            Ok(size) => is_small(size),
            Err(error) => error == PatternError::Invalid,
        };
        text.len() <= PLAIN_PATTERN_BYTES && !text.contains('{') && is_cheap
    })
}

/// The same for a LIKE pattern.
fn has_few_wildcards(pattern: &Expr) -> bool {
    is_constant(pattern, |text| {
        let wildcards = text.bytes().filter(|byte| matches!(byte, b'%' | b'_')).count();
        text.len() <= PLAIN_PATTERN_BYTES && wildcards <= PLAIN_COPIES_MAX
    })
}

/// Whether a pattern is the same for all rows and passes a test, or is not a text.
fn is_constant(pattern: &Expr, is_good: impl FnOnce(&str) -> bool) -> bool {
    match pattern {
        Expr::Literal(value, _) => match value.try_as_str() {
            Some(Some(text)) => is_good(text),
            _ => true,
        },
        // A literal has a text type and is cast to the view type of columns.
        Expr::Cast(Cast { expr, .. }) => is_constant(expr, is_good),
        _ => false,
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

/// The operation of a function in place of an operator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Operation {
    /// `||`, between each two arguments.
    Concat,
    /// `+`, `-` or `*` of integers, and operators that continue the chain: one between each two arguments, from left to
    /// right.
    Checked(Vec<Operator>),
    /// A cast to this type; if the flag is set, with null for values that cannot be cast.
    Cast(FieldRef, bool),
    Like {
        negated: bool,
        case_insensitive: bool,
    },
}

/// A function that evaluates an operator.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Operated {
    operation: Operation,
    signature: Signature,
}

impl Operated {
    fn new(operation: Operation, arguments: usize) -> Self {
        Self { operation, signature: Signature::any(arguments, Volatility::Immutable) }
    }

    /// The operation that combines the argument at an index with the result so far; the only one if it is not a chain.
    fn at(&self, place: usize) -> Operation {
        match &self.operation {
            Operation::Checked(operators) => {
                let own = place.checked_sub(1).and_then(|at| operators.get(at));
                Operation::Checked(own.copied().into_iter().collect())
            }
            other => other.clone(),
        }
    }

    /// The operator over columns of these types, and with this pattern if it is the same for all rows.
    fn expression(
        operation: &Operation,
        schema: &Schema,
        pattern: Option<ScalarValue>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let column = |at: usize| -> Arc<dyn PhysicalExpr> { Arc::new(Column::new("", at)) };
        Ok(match operation {
            Operation::Concat => {
                Arc::new(expressions::BinaryExpr::new(column(0), Operator::StringConcat, column(1)))
            }
            Operation::Checked(operators) => {
                let operator = operators.first().copied().unwrap_or(Operator::Plus);
                let plain = expressions::BinaryExpr::new(column(0), operator, column(1));
                Arc::new(plain.with_fail_on_overflow(true))
            }
            Operation::Cast(field, false) => {
                expressions::cast(column(0), schema, field.data_type().clone())?
            }
            Operation::Cast(field, true) => {
                expressions::try_cast(column(0), schema, field.data_type().clone())?
            }
            Operation::Like { negated, case_insensitive } => {
                let pattern = pattern.map_or_else(|| column(1), expressions::lit);
                expressions::like(*negated, *case_insensitive, column(0), pattern, schema)?
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
        match &self.operation {
            Operation::Concat => "||",
            Operation::Checked(operators) => match operators.first() {
                Some(Operator::Plus) => "+",
                Some(Operator::Multiply) => "*",
                _ => "-",
            },
            Operation::Cast(_, false) => "cast",
            Operation::Cast(_, true) => "try_cast",
            Operation::Like { .. } => "like",
        }
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        let names = arguments.iter().map(|own| own.schema_name().to_string());
        let Operation::Checked(operators) = &self.operation else {
            return Ok(format!("{}({})", self.name(), names.collect::<Vec<_>>().join(",")));
        };
        // The name contains each operator.
        let signs = std::iter::once(None).chain(operators.iter().map(Some));
        let parts = names.zip(signs).map(|(name, sign)| match sign {
            Some(sign) => format!(" {sign} ({name})"),
            None => format!("({name})"),
        });
        Ok(parts.collect())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let fields: Vec<FieldRef> =
            types.iter().map(|of| Arc::new(Field::new("", of.clone(), true))).collect();
        Ok(self.field(&fields)?.data_type().clone())
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.field(arguments.arg_fields)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let running = Running::of(&arguments.config_options);
        let is_constant =
            arguments.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { arguments.number_rows };
        let mut operands = arguments.args.into_iter().zip(arguments.arg_fields);
        let missing = || DataFusionError::Internal(format!("{} of nothing", self.name()));
        let (mut value, mut field) = operands.next().ok_or_else(missing)?;
        if operands.len() == 0 {
            (value, field) = self.step(0, vec![(value, field)], rows)?;
        }
        for (place, next) in (1..).zip(operands) {
            running.check()?;
            (value, field) = self.step(place, vec![(value, field), next], rows)?;
        }
        match (is_constant, value) {
            (true, ColumnarValue::Array(array)) => {
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?))
            }
            (_, output) => Ok(output),
        }
    }
}

impl Operated {
    /// The field of the result, from the fields of all arguments.
    fn field(&self, arguments: &[FieldRef]) -> Result<FieldRef> {
        let is_nullable = arguments.iter().any(|own| own.is_nullable());
        // Operators of integers of one type return that type.
        if let (Operation::Checked(_), Some(first)) = (&self.operation, arguments.first()) {
            let data_type = first.data_type();
            if data_type.is_integer() && arguments.iter().all(|own| own.data_type() == data_type) {
                return Ok(Arc::new(Field::new(self.name(), data_type.clone(), is_nullable)));
            }
        }
        let gives = |place: usize, fields: &[FieldRef]| -> Result<FieldRef> {
            let schema = schema_of(fields);
            let expression = Self::expression(&self.at(place), &schema, None)?;
            let data_type = expression.data_type(&schema)?;
            Ok(Arc::new(Field::new(self.name(), data_type, expression.nullable(&schema)?)))
        };
        let [first, rest @ ..] = arguments else {
            return Err(DataFusionError::Internal(format!("{} of nothing", self.name())));
        };
        if rest.is_empty() {
            return gives(0, arguments);
        }
        let mut field = Arc::clone(first);
        for (own, place) in rest.iter().zip(1..) {
            field = gives(place, &[field, Arc::clone(own)])?;
        }
        Ok(field)
    }

    /// The result for these operands, of which the last one is the argument at this index.
    fn step(
        &self,
        place: usize,
        operands: Vec<(ColumnarValue, FieldRef)>,
        rows: usize,
    ) -> Result<(ColumnarValue, FieldRef)> {
        let pattern = match operands.get(1) {
            Some((ColumnarValue::Scalar(pattern), _)) => Some(pattern.clone()),
            _ => None,
        };
        let (values, fields): (Vec<_>, Vec<_>) = operands.into_iter().unzip();
        let schema = schema_of(&fields);
        let expression = Self::expression(&self.at(place), &schema, pattern)?;
        let field = Field::new("", expression.data_type(&schema)?, true);
        let columns = values.into_iter().map(|value| value.into_array(rows));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        // A field may be declared without nulls although its values have some.
        let fields = columns.iter().map(|column| Field::new("", column.data_type().clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(schema, columns, &options)?;
        Ok((expression.evaluate(&batch)?, Arc::new(field)))
    }
}
