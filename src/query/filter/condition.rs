//! A rule of ours as a condition of a plan: [`condition`], or of one column: [`of_column`]. One with patterns looks at each
//! row whether its query is still wanted, and keeps no thread of queries from others. A condition on persons says what it
//! needs of them ([`Needs`]), so that the scan of the persons table evaluates it on its own columns. Another process
//! evaluates a condition by its [`Content`].

use std::cell::OnceCell;
use std::sync::Arc;

use arrow::array::{
    AnyDictionaryArray, Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, StringViewArray,
};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{
    ArrowNativeType, DataType, Float64Type, Int64Type, TimestampMicrosecondType, UInt8Type,
    UInt16Type, UInt32Type,
};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::prelude::ident;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use serde_json::Value;

use crate::filter::content::ConditionContent;
use crate::filter::subject_sets::SubjectSet;
use crate::guard::Running;
use crate::guard::aside::aside;
use crate::guard::watched::Watched;
use weir_base::clock::UnixMicros;
use weir_event::pattern::Pattern;
use weir_identity::row::{Key, Row};
use weir_identity::view::View;

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

/// A test of the row of a person as the identity store has it.
pub(crate) type RowTest = dyn Fn(&View, &Row<'_>, Call<'_>) -> Result<bool> + Send + Sync;

/// What a condition needs of persons.
#[derive(Clone, Default)]
pub(crate) enum Needs {
    /// Its columns.
    #[default]
    Columns,
    /// One property, as a column of compact JSON instead of its own column.
    Property(Key),
    /// The whole row; the test gives what the condition does.
    Row(Arc<RowTest>),
}

/// The condition that `test` gives true for the values of `columns`, which have these types; each
/// call is for some rows, and checks at each row that it may go on. Its `name` is what a plan shows of it.
pub fn condition(
    name: &'static str,
    columns: &[(&str, DataType)],
    pace: Pace,
    test: impl Fn(&[ArrayRef], Call<'_>) -> Result<BooleanArray> + Send + Sync + 'static,
) -> Expr {
    let types = columns.iter().map(|(_, data_type)| data_type.clone()).collect();
    let function = function(About::default(), name, types, pace, test);
    function.call(columns.iter().map(|(name, _)| ident(*name)).collect())
}

/// What is known of a condition beside its test.
#[derive(Clone, Default)]
pub(crate) struct About {
    /// What it needs of persons.
    pub(crate) needs: Needs,
    /// What another process evaluates it by.
    pub(crate) content: Content,
}

/// What another process evaluates a condition by.
#[derive(Clone, Default)]
pub(crate) enum Content {
    /// It cannot.
    #[default]
    Nothing,
    /// A condition that needs nothing else than its rows.
    Known(Box<ConditionContent>),
    /// One on persons or groups, by the set of those for whom it holds.
    Set(Arc<SubjectSet>),
}

/// The function of a condition of columns of these types.
pub(crate) fn function(
    about: About,
    name: &'static str,
    types: Vec<DataType>,
    pace: Pace,
    test: impl Fn(&[ArrayRef], Call<'_>) -> Result<BooleanArray> + Send + Sync + 'static,
) -> ScalarUDF {
    let signature = Signature::exact(types, Volatility::Immutable);
    ScalarUDF::new_from_impl(OfColumns { name, signature, pace, about, test: Arc::new(test) })
}

/// The condition that `test` gives true for the values of a column of this type.
pub fn of_column(
    name: &'static str,
    column: &str,
    data_type: DataType,
    pace: Pace,
    test: impl Fn(&ArrayRef, Call<'_>) -> Result<BooleanArray> + Send + Sync + 'static,
) -> Expr {
    let test = of_one(name, test);
    function(About::default(), name, vec![data_type], pace, test).call(vec![ident(column)])
}

/// The condition that `test` gives true for a property of persons: `value`, or another column of compact JSON.
pub(crate) fn of_property(
    name: &'static str,
    key: Key,
    value: Expr,
    pace: Pace,
    test: impl Fn(&ArrayRef, Call<'_>) -> Result<BooleanArray> + Send + Sync + 'static,
) -> Expr {
    let signature = Signature::any(1, Volatility::Immutable);
    let about = About { needs: Needs::Property(key), ..About::default() };
    let test = Arc::new(of_one(name, test));
    ScalarUDF::new_from_impl(OfColumns { name, signature, pace, about, test }).call(vec![value])
}

/// A test of columns, of which there is one.
pub(crate) fn of_one(
    name: &'static str,
    test: impl Fn(&ArrayRef, Call<'_>) -> Result<BooleanArray> + Send + Sync + 'static,
) -> impl Fn(&[ArrayRef], Call<'_>) -> Result<BooleanArray> + Send + Sync + 'static {
    move |columns: &[ArrayRef], call: Call<'_>| match columns {
        [column] => test(column, call),
        _ => Err(DataFusionError::Internal(format!("{name} takes one column"))),
    }
}

/// What a function needs of persons and how long it takes, if it is a condition.
pub(crate) fn needs(function: &ScalarUDF) -> Option<(&Needs, &Pace)> {
    let own = function.inner().downcast_ref::<OfColumns>()?;
    Some((&own.about.needs, &own.pace))
}

/// The content of a function, if it is a condition that has one. A set must have been read.
pub(crate) fn content(function: &ScalarUDF) -> Option<&ConditionContent> {
    match &function.inner().downcast_ref::<OfColumns>()?.about.content {
        Content::Nothing => None,
        Content::Known(content) => Some(content),
        Content::Set(set) => set.content(),
    }
}

/// The set of a function, if it is a condition on persons or groups.
pub(crate) fn subject_set(function: &ScalarUDF) -> Option<&Arc<SubjectSet>> {
    match &function.inner().downcast_ref::<OfColumns>()?.about.content {
        Content::Set(set) => Some(set),
        Content::Nothing | Content::Known(_) => None,
    }
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
    about: About,
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
    let checked = Checked::new(call);
    let holds = |value: Value| checked.may_go_on() && holds(value);
    let each = |value: &dyn Fn(usize) -> Value| {
        BooleanBuffer::collect_bool(column.len(), |row| match column.is_null(row) {
            true => without,
            false => holds(value(row)),
        })
    };
    let held = if let Some(texts) = column.as_string_view_opt() {
        of_texts(texts, without, &|text| holds(Value::from(text)))
    } else if let Some(numbers) = column.as_primitive_opt::<Float64Type>() {
        each(&|row| Value::from(numbers.value(row)))
    } else if let Some(numbers) = column.as_primitive_opt::<Int64Type>() {
        each(&|row| Value::from(numbers.value(row)))
    } else if let Some(truths) = column.as_boolean_opt() {
        let (no, yes) = (OnceCell::new(), OnceCell::new());
        BooleanBuffer::collect_bool(truths.len(), |row| match truths.is_null(row) {
            true => without,
            false => {
                let known = if truths.value(row) { &yes } else { &no };
                *known.get_or_init(|| holds(Value::from(truths.value(row))))
            }
        })
    } else if let Some(times) = column.as_primitive_opt::<TimestampMicrosecondType>() {
        each(&|row| Value::from(UnixMicros(times.value(row)).to_rfc3339()))
    } else {
        BooleanBuffer::new_unset(column.len())
    };
    checked.held(held)
}

/// The same of a column of texts, which may be a dictionary.
///
/// # Errors
///
/// The query may not go on.
pub(crate) fn hold_texts(
    column: &ArrayRef,
    call: Call<'_>,
    without: bool,
    holds: impl Fn(&str) -> bool,
) -> Result<BooleanArray> {
    let checked = Checked::new(call);
    let holds = |text: &str| checked.may_go_on() && holds(text);
    let held = if let Some(texts) = column.as_string_view_opt() {
        of_texts(texts, without, &holds)
    } else if let Some(texts) = column.as_any_dictionary_opt() {
        of_dictionary(texts, without, &holds)
    } else {
        BooleanBuffer::new_unset(column.len())
    };
    checked.held(held)
}

/// A call, of whose batch the rest is not looked at once the query is to end.
struct Checked<'c> {
    call: Call<'c>,
    ended: OnceCell<DataFusionError>,
}

impl<'c> Checked<'c> {
    fn new(call: Call<'c>) -> Self {
        Self { call, ended: OnceCell::new() }
    }

    fn may_go_on(&self) -> bool {
        self.ended.get().is_none()
            && self.call.check().map_err(|error| self.ended.set(error)).is_ok()
    }

    fn held(self, held: BooleanBuffer) -> Result<BooleanArray> {
        match self.ended.into_inner() {
            Some(error) => Err(error),
            None => Ok(BooleanArray::new(held, None)),
        }
    }
}

/// The same of texts. The rows of a batch have few different ones, and equal ones of a file are at one place of its
/// dictionary: what is known is known by the place, or by the text itself where that is short.
fn of_texts(texts: &StringViewArray, without: bool, holds: &dyn Fn(&str) -> bool) -> BooleanBuffer {
    let mut known: HashMap<u128, bool, RandomState> = HashMap::default();
    let mut last = None;
    BooleanBuffer::collect_bool(texts.len(), |row| {
        let Some(view) = texts.views().get(row).filter(|_| texts.is_valid(row)) else {
            return without;
        };
        match last {
            Some((own, held)) if own == *view => held,
            _ => {
                let held = *known.entry(*view).or_insert_with(|| holds(texts.value(row)));
                last = Some((*view, held));
                held
            }
        }
    })
}

/// The same of a dictionary: each text once, then spread over the rows.
fn of_dictionary(
    texts: &dyn AnyDictionaryArray,
    without: bool,
    holds: &dyn Fn(&str) -> bool,
) -> BooleanBuffer {
    let Some(values) = texts.values().as_string_opt::<i32>() else {
        return BooleanBuffer::new_unset(texts.len());
    };
    let held: Vec<bool> = values.iter().map(|text| text.is_some_and(holds)).collect();
    let keys = texts.keys();
    let spread = spread::<UInt8Type>(keys, &held)
        .or_else(|| spread::<UInt16Type>(keys, &held))
        .or_else(|| spread::<UInt32Type>(keys, &held));
    let spread = spread.unwrap_or_else(|| BooleanBuffer::new_unset(keys.len()));
    match keys.nulls() {
        None => spread,
        Some(nulls) if without => &spread | &!nulls.inner(),
        Some(nulls) => &spread & nulls.inner(),
    }
}

/// What is known of each place of a dictionary, for each row.
fn spread<T: ArrowPrimitiveType>(keys: &dyn Array, held: &[bool]) -> Option<BooleanBuffer> {
    let keys = keys.as_primitive_opt::<T>()?.values();
    let at = |row: usize| keys.get(row).and_then(|key| held.get(key.as_usize()));
    Some(BooleanBuffer::collect_bool(keys.len(), |row| at(row).copied().unwrap_or(false)))
}
