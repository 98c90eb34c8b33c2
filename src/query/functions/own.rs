//! Definition of our scalar functions: [`Own`] has the types of arguments and result, and the implementation.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, StringViewArray, StringViewBuilder};
use arrow::datatypes::{DataType, Field, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::guard::Running;

/// The type to which an argument is coerced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// A text, or a value that can be cast to one, but no list.
    Text,
    /// A text, or bytes.
    Bytes,
    /// A whole number.
    Whole,
    /// True or false.
    Truth,
    /// A time in any time zone.
    Time,
    /// A list of anything.
    List,
    /// A list of texts, or of values that can be cast to one.
    Texts,
    /// A list of numbers.
    Numbers,
    /// A list of truth values.
    Truths,
    /// A list, or a text.
    ListOrText,
}

/// The return type, from the types of the arguments.
pub(super) type Gives = fn(&[DataType]) -> Result<DataType>;

/// The implementation, over arrays of arguments.
#[derive(Clone, Copy)]
pub(super) enum Call {
    /// Takes time roughly linear in the bytes of the arguments.
    Plain(fn(&[ArrayRef]) -> Result<ArrayRef>),
    /// Takes time that depends on what is found, so that it must check whether the query was cancelled.
    Searching(fn(&[ArrayRef], &Running) -> Result<ArrayRef>),
}

/// A scalar function.
#[derive(Clone)]
pub(super) struct Own {
    /// The name, spelled as in ClickHouse.
    pub(super) name: &'static str,
    /// The required arguments.
    pub(super) takes: &'static [Takes],
    /// Optional arguments after them.
    pub(super) may_take: &'static [Takes],
    /// The type of any number of further arguments after all these.
    pub(super) more: Option<Takes>,
    pub(super) gives: Gives,
    pub(super) call: Call,
}

impl Own {
    /// A function with required arguments only.
    pub(super) const fn new(
        name: &'static str,
        takes: &'static [Takes],
        gives: Gives,
        call: fn(&[ArrayRef]) -> Result<ArrayRef>,
    ) -> Self {
        Self { name, takes, may_take: &[], more: None, gives, call: Call::Plain(call) }
    }

    /// A function that searches.
    pub(super) const fn searching(
        name: &'static str,
        takes: &'static [Takes],
        gives: Gives,
        call: fn(&[ArrayRef], &Running) -> Result<ArrayRef>,
    ) -> Self {
        Self { name, takes, may_take: &[], more: None, gives, call: Call::Searching(call) }
    }

    /// Adds optional arguments.
    pub(super) const fn or(self, may_take: &'static [Takes]) -> Self {
        Self { may_take, ..self }
    }

    /// Adds any number of further arguments.
    pub(super) const fn and_more(self, more: Takes) -> Self {
        Self { more: Some(more), ..self }
    }

    /// The function to register in a session. Names in SQL are case-insensitive.
    pub(super) fn function(self) -> ScalarUDF {
        let signature = Signature::user_defined(Volatility::Immutable);
        ScalarUDF::new_from_impl(Function { lower: self.name.to_lowercase(), own: self, signature })
    }
}

/// The function as implementation of DataFusion's trait.
struct Function {
    own: Own,
    lower: String,
    signature: Signature,
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Function").field("name", &self.lower).finish_non_exhaustive()
    }
}

/// Functions are identified by name.
impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        self.lower == other.lower
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.lower.hash(state);
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        &self.lower
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        (self.own.gives)(arguments)
    }

    fn coerce_types(&self, sent: &[DataType]) -> Result<Vec<DataType>> {
        let Own { name, takes, may_take, more, .. } = self.own;
        let most = takes.len() + may_take.len();
        if sent.len() < takes.len() || more.is_none() && sent.len() > most {
            let wanted = match (more, takes.len() == most) {
                (Some(_), _) => format!("{} or more", takes.len()),
                (None, true) => most.to_string(),
                (None, false) => format!("{} to {most}", takes.len()),
            };
            let count = sent.len();
            let why = format!("{name} takes {wanted} arguments, and has {count}");
            return Err(DataFusionError::Plan(why));
        }
        let known = takes.iter().chain(may_take).copied().map(Some);
        let kinds = known.chain(std::iter::repeat(more));
        let coerced = sent.iter().zip(kinds).map(|(sent, kind)| {
            let coerced = kind.and_then(|kind| coerced(kind, sent));
            coerced.ok_or_else(|| {
                let kind = kind.map_or("nothing", told);
                DataFusionError::Plan(format!("{name} takes {kind} where {sent} is sent"))
            })
        });
        coerced.collect()
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant =
            arguments.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { arguments.number_rows };
        let arrays = arguments.args.into_iter().map(|value| value.into_array(rows));
        let arrays = arrays.collect::<Result<Vec<_>>>()?;
        let given = match self.own.call {
            Call::Plain(call) => call(&arrays)?,
            Call::Searching(call) => call(&arrays, &Running::of(&arguments.config_options))?,
        };
        Ok(match is_constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&given, 0)?),
            false => ColumnarValue::Array(given),
        })
    }
}

fn told(kind: Takes) -> &'static str {
    match kind {
        Takes::Text => "a text",
        Takes::Bytes => "a text, or what a digest gives,",
        Takes::Whole => "a whole number",
        Takes::Truth => "a condition",
        Takes::Time => "a time",
        Takes::List => "an array",
        Takes::Texts => "an array of texts",
        Takes::Numbers => "an array of numbers",
        Takes::Truths => "an array of conditions",
        Takes::ListOrText => "a text or an array",
    }
}

/// The element type of a list.
pub(super) fn element(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
            Some(field.data_type())
        }
        _ => None,
    }
}

/// A list type with nullable elements.
pub(super) fn list_of(element: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(element, true)))
}

/// The type to which an argument of type `sent` is coerced; `None` if it is not accepted.
fn coerced(kind: Takes, sent: &DataType) -> Option<DataType> {
    let has_text = |data_type: &DataType| {
        !data_type.is_nested() && !matches!(data_type, DataType::Binary | DataType::BinaryView)
    };
    let list = || match sent {
        DataType::Null => Some(list_of(DataType::Null)),
        _ => element(sent).map(|element| list_of(element.clone())),
    };
    // Lists of nulls get a sized element type, so that their elements count as much memory as others.
    let sized = || match list()? {
        DataType::List(field) if field.data_type().is_null() => Some(list_of(DataType::Int64)),
        own => Some(own),
    };
    match kind {
        Takes::Text => has_text(sent).then_some(DataType::Utf8View),
        Takes::Bytes => {
            let is_one = sent.is_string() || sent.is_binary() || sent.is_null();
            is_one.then_some(DataType::BinaryView)
        }
        Takes::Whole => (sent.is_integer() || sent.is_null()).then_some(DataType::Int64),
        Takes::Truth => {
            matches!(sent, DataType::Boolean | DataType::Null).then_some(DataType::Boolean)
        }
        Takes::Time => match sent {
            DataType::Timestamp(_, zone) => {
                let zone = zone.clone().or_else(|| Some("UTC".into()));
                Some(DataType::Timestamp(TimeUnit::Microsecond, zone))
            }
            DataType::Date32 | DataType::Date64 | DataType::Null => {
                Some(DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())))
            }
            _ => None,
        },
        Takes::List => sized(),
        Takes::Texts => match list()? {
            DataType::List(field) if has_text(field.data_type()) => {
                Some(list_of(DataType::Utf8View))
            }
            _ => None,
        },
        Takes::Numbers => match list()? {
            DataType::List(field) if field.data_type().is_integer() => {
                Some(list_of(DataType::Int64))
            }
            DataType::List(field)
                if field.data_type().is_numeric() || field.data_type().is_null() =>
            {
                Some(list_of(DataType::Float64))
            }
            _ => None,
        },
        Takes::Truths => match list()? {
            DataType::List(field)
                if matches!(field.data_type(), DataType::Boolean | DataType::Null) =>
            {
                Some(list_of(DataType::Boolean))
            }
            _ => None,
        },
        Takes::ListOrText => sized()
            .filter(|_| !sent.is_null())
            .or_else(|| has_text(sent).then_some(DataType::Utf8View)),
    }
}

/// An argument.
pub(super) fn argument(arguments: &[ArrayRef], at: usize) -> Result<&ArrayRef> {
    arguments.get(at).ok_or_else(|| internal("an argument"))
}

/// An argument that was coerced to text.
pub(super) fn texts(arguments: &[ArrayRef], at: usize) -> Result<&StringViewArray> {
    argument(arguments, at)?.as_string_view_opt().ok_or_else(|| internal("a text"))
}

/// An argument that was coerced to a list.
pub(super) fn lists(arguments: &[ArrayRef], at: usize) -> Result<&ListArray> {
    argument(arguments, at)?.as_list_opt().ok_or_else(|| internal("a list"))
}

/// The error of a coerced argument that is not of the type to which it was coerced: a bug.
pub(super) fn internal(what: &str) -> DataFusionError {
    DataFusionError::Internal(format!("an argument was to be {what}"))
}

/// The results of a function of one text; null for null.
pub(super) fn of_text<'t, T: AsRef<str>>(
    texts: &'t StringViewArray,
    function: impl Fn(&'t str) -> Option<T>,
) -> ArrayRef {
    let mut given = StringViewBuilder::with_capacity(texts.len());
    for text in texts {
        given.append_option(text.and_then(&function));
    }
    Arc::new(given.finish())
}

pub(super) fn text(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::Utf8View)
}

pub(super) fn whole(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::Int64)
}

pub(super) fn truth(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::Boolean)
}

/// The type of the first argument.
pub(super) fn same(arguments: &[DataType]) -> Result<DataType> {
    arguments.first().cloned().ok_or_else(|| internal("the first"))
}
