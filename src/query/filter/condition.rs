//! A rule of ours as a condition of a plan: [`condition`], or of one column: [`of_column`]. One with patterns looks at each
//! row whether its query is still wanted, and keeps no thread of queries from others.

use std::cell::OnceCell;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, StringViewArray};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{DataType, Float64Type, Int64Type, TimestampMicrosecondType};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::prelude::ident;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use serde_json::Value;

use crate::guard::Running;
use crate::guard::aside::aside;
use crate::guard::watched::Watched;
use weir_base::clock::UnixMicros;
use weir_event::pattern::Pattern;

/// How long a condition takes.
#[derive(Clone, Debug)]
pub enum Pace {
    /// It may be evaluated while files are read; see [`is_quick`].
    Quick,
    /// It is evaluated on what was read.
    Steady,
    /// It has patterns, of which one may take long on one row.
    Slow(Watched),
}

impl Pace {
    /// That of a rule with these patterns, which would otherwise have `without`.
    pub(crate) fn with(patterns: Vec<Arc<Pattern>>, without: Self) -> Self {
        if patterns.is_empty() { without } else { Self::Slow(Watched::new(patterns)) }
    }

    /// Asked at each row.
    pub fn check(&self, running: &Running) -> Result<()> {
        match self {
            Self::Quick | Self::Steady => Ok(()),
            Self::Slow(watched) => watched.check(running),
        }
    }
}

/// What a condition is called with beside its columns.
#[derive(Clone, Copy, Debug)]
pub struct Call<'c> {
    pace: &'c Pace,
    running: &'c Running,
}

impl<'c> Call<'c> {
    pub(crate) fn new(pace: &'c Pace, running: &'c Running) -> Self {
        Self { pace, running }
    }

    /// Asked at each row: whether the query may go on.
    pub fn check(self) -> Result<()> {
        self.pace.check(self.running)
    }
}

type Test = dyn Fn(&[ArrayRef], Call<'_>) -> Result<BooleanArray> + Send + Sync;

/// The condition that `test` gives true for the values of `columns`, which have these types; each
/// call is for some rows, and checks at each row that it may go on. Its `name` is what a plan shows of it.
pub fn condition(
    name: &'static str,
    columns: &[(&str, DataType)],
    pace: Pace,
    test: impl Fn(&[ArrayRef], Call<'_>) -> Result<BooleanArray> + Send + Sync + 'static,
) -> Expr {
    let types = columns.iter().map(|(_, data_type)| data_type.clone()).collect();
    let signature = Signature::exact(types, Volatility::Immutable);
    let test = OfColumns { name, signature, pace, test: Arc::new(test) };
    let columns = columns.iter().map(|(name, _)| ident(*name)).collect();
    ScalarUDF::new_from_impl(test).call(columns)
}

/// The condition that `test` gives true for the values of a column of this type.
pub(crate) fn of_column(
    name: &'static str,
    column: &str,
    data_type: DataType,
    pace: Pace,
    test: impl Fn(&ArrayRef, Call<'_>) -> Result<BooleanArray> + Send + Sync + 'static,
) -> Expr {
    of_value(name, ident(column), data_type, pace, test)
}

/// The same of an expression.
pub(crate) fn of_value(
    name: &'static str,
    value: Expr,
    data_type: DataType,
    pace: Pace,
    test: impl Fn(&ArrayRef, Call<'_>) -> Result<BooleanArray> + Send + Sync + 'static,
) -> Expr {
    let signature = Signature::exact(vec![data_type], Volatility::Immutable);
    let test = move |columns: &[ArrayRef], call: Call<'_>| match columns {
        [column] => test(column, call),
        _ => Err(DataFusionError::Internal(format!("{name} takes one column"))),
    };
    let test = OfColumns { name, signature, pace, test: Arc::new(test) };
    ScalarUDF::new_from_impl(test).call(vec![value])
}

/// Whether a function is a condition of one column that fails on no value, and takes little time.
pub(crate) fn is_quick(function: &ScalarUDF) -> bool {
    let own = function.inner().downcast_ref::<OfColumns>();
    own.is_some_and(|own| matches!(own.pace, Pace::Quick))
}

struct OfColumns {
    name: &'static str,
    signature: Signature,
    pace: Pace,
    test: Arc<Test>,
}

impl std::fmt::Debug for OfColumns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OfColumns").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Two are one only if they have the same test.
impl PartialEq for OfColumns {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.test, &other.test)
    }
}

impl Eq for OfColumns {}

impl std::hash::Hash for OfColumns {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.test).hash(state);
    }
}

impl ScalarUDFImpl for OfColumns {
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
        let running = Running::of(&arguments.config_options);
        let is_scalar = |value: &ColumnarValue| matches!(value, ColumnarValue::Scalar(_));
        let is_constant = arguments.args.iter().all(is_scalar);
        let columns = ColumnarValue::values_to_arrays(&arguments.args)?;
        let call = Call::new(&self.pace, &running);
        let answers = match self.pace {
            Pace::Quick | Pace::Steady => (self.test)(&columns, call)?,
            Pace::Slow(_) => aside(|| (self.test)(&columns, call))?,
        };
        // What a file's bounds show to be the same for all its rows may come as one value.
        Ok(match is_constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&answers, 0)?),
            false => ColumnarValue::Array(Arc::new(answers)),
        })
    }
}

/// For which values of a column a rule holds, and whether it holds `without` one. The rule gets JSON: texts, numbers,
/// truth values, and times as RFC 3339 texts; it holds for no value of another type.
///
/// # Errors
///
/// The query may not go on.
pub(crate) fn hold(
    column: &ArrayRef,
    call: Call<'_>,
    without: bool,
    holds: impl Fn(Value) -> bool,
) -> Result<BooleanArray> {
    // The rest of a batch is not looked at once the query is to end.
    let ended = OnceCell::new();
    let holds = |value: Value| {
        let may_go_on =
            ended.get().is_none() && call.check().map_err(|error| ended.set(error)).is_ok();
        may_go_on && holds(value)
    };
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
    match ended.into_inner() {
        Some(error) => Err(error),
        None => Ok(BooleanArray::new(held, None)),
    }
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
