//! Wrapper that calls a scalar function within limits: [`Guarded`]. Before a call it computes upper bounds of the
//! memory and steps of the call. It reserves the memory in the pool of all queries, and keeps the reservation of the
//! output until the output is dropped. An expensive call is split into pieces of some rows each, and the query can be
//! cancelled between them.

use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, new_empty_array};
use arrow::compute::concat;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{ExprSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ExpressionPlacement, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature,
};

use crate::functions::{date_trunc, json};
use crate::guard;
use crate::guard::aside::aside;
use crate::guard::bounds::Bounds;
use crate::guard::functions::{Cost, Output, Rule};
use crate::guard::held::hold;
use crate::guard::running::Running;

/// Outputs smaller than this are not accounted for: there are at most some hundreds of them at a time.
const FREE_BYTES: usize = 64 << 10;

/// Maximum bytes of the output of one piece of a call, unless a single row has more.
const PIECE_BYTES: usize = 8 << 20;

/// Maximum steps of one piece of a call: about half a second.
const PIECE_STEPS: usize = 500_000_000;

/// Steps from which on a call would block a query thread for too long: some milliseconds.
const ASIDE_STEPS: usize = 5_000_000;

/// Maximum steps of one row: a second or two.
const ROW_STEPS_MAX: usize = 1_000_000_000;

/// Maximum bytes of the output of a call: Arrow's text offsets have 31 bits.
const CALL_BYTES_MAX: usize = 1 << 30;

/// Maximum bytes of a value that planning computes and stores in the plan, which is copied often. A larger one is
/// computed when the query runs.
const CONSTANT_BYTES_MAX: usize = 64 << 10;

const TOO_LONG: &str = "takes too long for texts or lists of this length";

/// How a function is called on rows: directly, or by a faster implementation with the same result.
type Call = fn(&ScalarUDF, ScalarFunctionArgs) -> Result<ColumnarValue>;

/// A function and its limits.
#[derive(Debug)]
pub(super) struct Guarded {
    inner: Arc<ScalarUDF>,
    rule: Rule,
    pool: Arc<dyn MemoryPool>,
    call: Call,
}

impl Guarded {
    pub(super) fn new(inner: Arc<ScalarUDF>, rule: Rule, pool: &Arc<dyn MemoryPool>) -> Self {
        let call: Call = match () {
            () if json::is_access(&inner) => json::call,
            () if json::is_looking(&inner) => json::call_looking,
            () if date_trunc::is_it(&inner) => date_trunc::call,
            () => ScalarUDF::invoke_with_args,
        };
        Self { inner, rule, pool: Arc::clone(pool), call }
    }

    /// The wrapped function.
    pub(super) fn inner(&self) -> &ScalarUDF {
        &self.inner
    }

    fn call(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        (self.call)(&self.inner, arguments)
    }

    fn exhausted(&self, needs: &str) -> DataFusionError {
        DataFusionError::ResourcesExhausted(format!("{}() {needs}", self.inner.name()))
    }

    /// An empty reservation in the pool of all queries.
    fn reservation(&self) -> MemoryReservation {
        MemoryConsumer::new(self.inner.name()).register(&self.pool)
    }

    /// # Errors
    ///
    /// The pool does not have so much memory left.
    fn reserve(&self, reservation: &MemoryReservation, bytes: usize) -> Result<()> {
        let free = bytes < FREE_BYTES;
        if !free && (bytes > CALL_BYTES_MAX || reservation.try_grow(bytes).is_err()) {
            return Err(self.exhausted(&format!("may need {bytes} bytes for a few rows")));
        }
        Ok(())
    }

    /// Whether a call needs no bounds: it returns only narrow values, and copies of its constants for each row are
    /// small.
    fn is_small(&self, arguments: &ScalarFunctionArgs) -> bool {
        let constants = arguments.args.iter().map(|argument| match argument {
            ColumnarValue::Scalar(value) => value.size(),
            ColumnarValue::Array(_) => 0,
        });
        let constants = constants.fold(0, usize::saturating_add);
        self.rule == Rule { output: Output::Narrow, cost: Cost::Linear }
            && constants.saturating_mul(arguments.number_rows) <= PIECE_BYTES
    }

    /// The row ranges that are computed at a time, and the maximum bytes of each.
    fn pieces(&self, bounds: &Bounds, rows: usize) -> Result<Vec<(Range<usize>, usize)>> {
        let mut pieces = Vec::new();
        let (mut start, mut bytes, mut steps) = (0, 0_usize, 0_usize);
        for row in 0..rows {
            let (row_bytes, row_steps) = (bounds.bytes(row), bounds.steps(row));
            if row_steps > ROW_STEPS_MAX {
                return Err(self.exhausted(TOO_LONG));
            }
            let more = (bytes.saturating_add(row_bytes), steps.saturating_add(row_steps));
            if row > start && (more.0 > PIECE_BYTES || more.1 > PIECE_STEPS) {
                pieces.push((start..row, bytes));
                (start, bytes, steps) = (row, row_bytes, row_steps);
            } else {
                (bytes, steps) = more;
            }
        }
        pieces.push((start..rows, bytes));
        Ok(pieces)
    }

    /// A call with constant arguments: computes one row, whose output may be stored in the plan or is used for all
    /// rows.
    fn invoke_constant(
        &self,
        mut arguments: ScalarFunctionArgs,
        running: &Running,
    ) -> Result<ColumnarValue> {
        let rows = std::mem::replace(&mut arguments.number_rows, 1);
        let bounds = Bounds::new(self.rule, &arguments.args)?;
        if bounds.steps(0) > ROW_STEPS_MAX {
            return Err(self.exhausted(TOO_LONG));
        }
        let reservation = self.reservation();
        self.reserve(&reservation, bounds.bytes(0))?;
        let value = match self.call(arguments)? {
            ColumnarValue::Scalar(value) => value,
            ColumnarValue::Array(array) => ScalarValue::try_from_array(&array, 0)?,
        };
        let bytes = value.size();
        if running.is_planning() && bytes > CONSTANT_BYTES_MAX {
            return Err(self.exhausted("makes a value that is too large for a plan"));
        }
        let bytes = bytes.saturating_mul(rows);
        if running.is_planning() || bytes < FREE_BYTES {
            return Ok(ColumnarValue::Scalar(value));
        }
        // Consumers of a constant copy it for each row without accounting; so the copies are made here.
        reservation.free();
        self.reserve(&reservation, bytes)?;
        Ok(ColumnarValue::Array(hold(&value.to_array_of_size(rows)?, reservation)?))
    }

    /// Computes one piece of a call; its output keeps its memory reserved.
    fn invoke_piece(&self, arguments: ScalarFunctionArgs, bytes: usize) -> Result<ArrayRef> {
        let rows = arguments.number_rows;
        let reservation = self.reservation();
        self.reserve(&reservation, bytes)?;
        let output = self.call(arguments)?.into_array(rows)?;
        if reservation.size() == 0 {
            return Ok(output);
        }
        // The output may share memory with arguments, which are accounted for elsewhere.
        let used = output.get_array_memory_size().min(reservation.size());
        if used < FREE_BYTES {
            return Ok(output);
        }
        reservation.shrink(reservation.size().saturating_sub(used));
        Ok(hold(&output, reservation)?)
    }

    fn invoke(&self, arguments: ScalarFunctionArgs, running: &Running) -> Result<ColumnarValue> {
        let bounds = Bounds::new(self.rule, &arguments.args)?;
        let pieces = self.pieces(&bounds, arguments.number_rows)?;
        let steps = (0..arguments.number_rows).map(|row| bounds.steps(row));
        match steps.fold(0, usize::saturating_add) >= ASIDE_STEPS {
            true => aside(|| self.invoke_pieces(arguments, pieces, running)),
            false => self.invoke_pieces(arguments, pieces, running),
        }
    }

    fn invoke_pieces(
        &self,
        arguments: ScalarFunctionArgs,
        pieces: Vec<(Range<usize>, usize)>,
        running: &Running,
    ) -> Result<ColumnarValue> {
        if let [(_, bytes)] = pieces.as_slice() {
            return Ok(ColumnarValue::Array(self.invoke_piece(arguments, *bytes)?));
        }
        let mut outputs = Vec::with_capacity(pieces.len());
        for (rows, bytes) in pieces {
            running.check()?;
            outputs.push(self.invoke_piece(sliced(&arguments, rows), bytes)?);
        }
        let sum = outputs.iter().map(|output| output.get_array_memory_size());
        let sum = sum.fold(0, usize::saturating_add);
        let reservation = self.reservation();
        self.reserve(&reservation, sum)?;
        let outputs: Vec<&dyn Array> = outputs.iter().map(AsRef::as_ref).collect();
        Ok(ColumnarValue::Array(hold(&concat(&outputs)?, reservation)?))
    }
}

/// The arguments of a range of rows of a call.
fn sliced(arguments: &ScalarFunctionArgs, rows: Range<usize>) -> ScalarFunctionArgs {
    let mut arguments = arguments.clone();
    arguments.number_rows = rows.len();
    for argument in &mut arguments.args {
        if let ColumnarValue::Array(array) = argument {
            *array = array.slice(rows.start, rows.len());
        }
    }
    arguments
}

impl PartialEq for Guarded {
    fn eq(&self, other: &Self) -> bool {
        self.inner == other.inner
    }
}

impl Eq for Guarded {}

impl Hash for Guarded {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

/// Everything but the call and its simplification is delegated to the function.
impl ScalarUDFImpl for Guarded {
    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let running = Running::of(&arguments.config_options);
        running.check()?;
        // A call with constant arguments is made even if no row needs it.
        if arguments.number_rows == 0 {
            let nothing = new_empty_array(arguments.return_field.data_type());
            return Ok(ColumnarValue::Array(nothing));
        }
        if self.is_small(&arguments) {
            return self.call(arguments);
        }
        let is_scalar = |argument: &ColumnarValue| matches!(argument, ColumnarValue::Scalar(_));
        if arguments.args.iter().all(is_scalar) {
            return self.invoke_constant(arguments, &running);
        }
        self.invoke(arguments, &running)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        // The function would simplify a match to an operator, which has no limits.
        if matches!(self.rule.cost, Cost::Pattern | Cost::Wildcards) {
            return Ok(ExprSimplifyResult::Original(args));
        }
        Ok(match self.inner.simplify(args, info)? {
            ExprSimplifyResult::Simplified(simple) => {
                ExprSimplifyResult::Simplified(guard::guarded(simple, &self.pool)?.data)
            }
            original @ ExprSimplifyResult::Original(_) => original,
        })
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        self.inner.schema_name(args)
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arg_types)
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        let inner = Arc::new(self.inner.inner().with_updated_config(config)?);
        Some(ScalarUDF::new_from_impl(Self::new(inner, self.rule, &self.pool)))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn is_nullable(&self, args: &[Expr], schema: &dyn ExprSchema) -> bool {
        #[expect(deprecated, reason = "the function may have it")]
        self.inner.is_nullable(args, schema)
    }

    fn is_strict(&self) -> bool {
        self.inner.is_strict()
    }

    fn preimage(
        &self,
        args: &[Expr],
        lit_expr: &Expr,
        info: &SimplifyContext,
    ) -> Result<PreimageResult> {
        self.inner.preimage(args, lit_expr, info)
    }

    fn short_circuits(&self) -> bool {
        self.inner.short_circuits()
    }

    fn conditional_arguments<'a>(
        &self,
        args: &'a [Expr],
    ) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.inner.conditional_arguments(args)
    }

    fn evaluate_bounds(&self, input: &[&Interval]) -> Result<Interval> {
        self.inner.evaluate_bounds(input)
    }

    fn propagate_constraints(
        &self,
        interval: &Interval,
        inputs: &[&Interval],
    ) -> Result<Option<Vec<Interval>>> {
        self.inner.propagate_constraints(interval, inputs)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.inner.output_ordering(inputs)
    }

    fn preserves_lex_ordering(&self, inputs: &[ExprProperties]) -> Result<bool> {
        self.inner.preserves_lex_ordering(inputs)
    }

    fn strictly_order_preserving(&self, inputs: &[ExprProperties]) -> Result<bool> {
        self.inner.inner().strictly_order_preserving(inputs)
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arg_types)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn placement(&self, args: &[ExpressionPlacement]) -> ExpressionPlacement {
        self.inner.placement(args)
    }
}
