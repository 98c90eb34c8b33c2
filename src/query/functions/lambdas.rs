//! Functions that call a lambda for each element of lists: `arrayMap(x -> x + 1, list)`,
//! `arrayFilter((x, y) -> x > y, a, b)`. Elements are processed in pieces, as the row's columns to which a lambda
//! refers are copied for each element.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, UInt32Array, new_empty_array};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{concat, take, take_arrays};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, HigherOrderFunctionArgs, HigherOrderReturnFieldArgs, HigherOrderSignature,
    HigherOrderUDF, HigherOrderUDFImpl, LambdaArgument, LambdaParametersProgress, ValueOrLambda,
    Volatility,
};

use crate::functions::arrays::{order, picked, ranges};
use crate::functions::own::{element, internal, list_of};
use crate::guard::Running;

/// Names of functions that may have a lambda as their first argument, spelled as in ClickHouse.
pub(crate) const NAMES: [&str; 18] = [
    "arrayAll",
    "arrayAvg",
    "arrayCount",
    "arrayCumSum",
    "arrayDifference",
    "arrayExists",
    "arrayFilter",
    "arrayFirst",
    "arrayFirstIndex",
    "arrayLast",
    "arrayLastIndex",
    "arrayMap",
    "arrayMax",
    "arrayMin",
    "arrayProduct",
    "arrayReverseSort",
    "arraySort",
    "arraySum",
];

/// Elements per call of a lambda.
const PIECE_ELEMENTS: usize = 4096;

/// Maximum elements of all lists of a batch of rows.
const ELEMENTS_MAX: usize = 10_000_000;

/// Maximum bytes of a lambda's results for a batch of rows.
const GIVEN_BYTES_MAX: usize = 256 << 20;

/// How the lambda's results are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Map,
    Filter,
    Sort { is_descending: bool },
}

/// All functions of this file.
pub(super) fn all() -> impl Iterator<Item = HigherOrderUDF> {
    [
        ("arraymap", Kind::Map),
        ("arrayfilter", Kind::Filter),
        ("array_sort_by", Kind::Sort { is_descending: false }),
        ("array_reverse_sort_by", Kind::Sort { is_descending: true }),
    ]
    .into_iter()
    .map(|(name, kind)| {
        let signature = HigherOrderSignature::user_defined(Volatility::Immutable);
        HigherOrderUDF::new_from_impl(OfLambda { name, kind, signature })
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfLambda {
    name: &'static str,
    kind: Kind,
    signature: HigherOrderSignature,
}

impl OfLambda {
    fn refused(&self) -> DataFusionError {
        let name = self.name;
        DataFusionError::Plan(format!(
            "{name} takes a lambda with a name for each array, and arrays"
        ))
    }

    /// Splits arguments into the lambda and the values after it.
    fn split<'a, V, L>(&self, arguments: &'a [ValueOrLambda<V, L>]) -> Result<(&'a L, Vec<&'a V>)> {
        let [ValueOrLambda::Lambda(lambda), values @ ..] = arguments else {
            return Err(self.refused());
        };
        let values = values.iter().map(|value| match value {
            ValueOrLambda::Value(value) => Ok(value),
            ValueOrLambda::Lambda(_) => Err(self.refused()),
        });
        let values = values.collect::<Result<Vec<_>>>()?;
        if values.is_empty() { Err(self.refused()) } else { Ok((lambda, values)) }
    }

    /// The lambda's results for the elements of lists of the same lengths.
    fn called(
        &self,
        lambda: &LambdaArgument,
        lists: &[Flat],
        given: &DataType,
        running: &Running,
    ) -> Result<ArrayRef> {
        let Some(first) = lists.first() else { return Err(self.refused()) };
        let count = first.values.len();
        if count > ELEMENTS_MAX {
            return Err(self.exhausted());
        }
        let mut rows = Vec::with_capacity(count);
        for (row, length) in first.offsets.lengths().enumerate() {
            let row = u32::try_from(row).map_err(|_| self.exhausted())?;
            rows.extend(std::iter::repeat_n(row, length));
        }
        let rows = UInt32Array::from(rows);
        let (mut pieces, mut bytes) = (Vec::new(), 0_usize);
        for start in (0..count).step_by(PIECE_ELEMENTS) {
            running.check()?;
            let piece = start..count.min(start + PIECE_ELEMENTS);
            let own = piece_of(lambda, lists, &rows, piece)?;
            bytes = bytes.saturating_add(own.get_array_memory_size());
            if bytes > GIVEN_BYTES_MAX {
                return Err(self.exhausted());
            }
            pieces.push(own);
        }
        if pieces.is_empty() {
            return Ok(new_empty_array(given));
        }
        let pieces: Vec<&dyn Array> = pieces.iter().map(AsRef::as_ref).collect();
        Ok(concat(&pieces)?)
    }

    fn exhausted(&self) -> DataFusionError {
        let why = format!("{}() has arrays that are too long", self.name);
        DataFusionError::ResourcesExhausted(why)
    }
}

/// The lambda's results for some of the elements.
fn piece_of(
    lambda: &LambdaArgument,
    lists: &[Flat],
    rows: &UInt32Array,
    piece: Range<usize>,
) -> Result<ArrayRef> {
    let values: Vec<ArrayRef> =
        lists.iter().map(|list| list.values.slice(piece.start, piece.len())).collect();
    let values: Vec<_> = values
        .iter()
        .map(|values| move || -> Result<ArrayRef> { Ok(Arc::clone(values)) })
        .collect();
    let values: Vec<&dyn Fn() -> Result<ArrayRef>> =
        values.iter().map(|values| values as &dyn Fn() -> Result<ArrayRef>).collect();
    let own = rows.slice(piece.start, piece.len());
    let given = lambda.evaluate(&values, |captured| Ok(take_arrays(captured, &own, None)?))?;
    given.into_array(piece.len())
}

/// The concatenated elements of lists, and their offsets.
struct Flat {
    values: ArrayRef,
    offsets: OffsetBuffer<i32>,
}

/// The elements of rows in which no list is null.
fn flat(lists: &[ListArray]) -> Result<Vec<Flat>> {
    let is_there = |row: usize| lists.iter().all(|list| list.is_valid(row));
    let flat = lists.iter().map(|list| -> Result<Flat> {
        let all: Vec<Range<usize>> = ranges(list)
            .enumerate()
            .map(|(row, range)| if is_there(row) { range } else { 0..0 })
            .collect();
        let lengths = all.iter().map(ExactSizeIterator::len);
        let offsets = OffsetBuffer::from_lengths(lengths);
        let mut end = None;
        let is_dense = all.iter().filter(|range| !range.is_empty()).all(|range| {
            let follows = end.is_none_or(|end| end == range.start);
            end = Some(range.end);
            follows
        });
        let start = all.iter().find(|range| !range.is_empty()).map_or(0, |range| range.start);
        let count = usize::try_from(offsets.last().copied().unwrap_or(0)).unwrap_or(0);
        let values = match is_dense {
            true => list.values().slice(start, count),
            false => {
                let places = all.into_iter().flatten().map(u32::try_from);
                let places = places.collect::<std::result::Result<Vec<u32>, _>>();
                let places = places.map_err(|error| DataFusionError::External(Box::new(error)))?;
                take(list.values(), &UInt32Array::from(places), None)?
            }
        };
        Ok(Flat { values, offsets })
    });
    flat.collect()
}

impl HigherOrderUDFImpl for OfLambda {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &HigherOrderSignature {
        &self.signature
    }

    fn coerce_value_types(&self, sent: &[DataType]) -> Result<Vec<DataType>> {
        let list = |sent: &DataType| match sent {
            DataType::Null => Ok(list_of(DataType::Null)),
            _ => element(sent).map(|own| list_of(own.clone())).ok_or_else(|| self.refused()),
        };
        sent.iter().map(list).collect()
    }

    fn lambda_parameters(
        &self,
        _step: usize,
        fields: &[ValueOrLambda<FieldRef, Option<FieldRef>>],
    ) -> Result<LambdaParametersProgress> {
        let (_, lists) = self.split(fields)?;
        let item = |list: &&FieldRef| match list.data_type() {
            DataType::List(item) => Ok(Arc::clone(item)),
            _ => Err(self.refused()),
        };
        let items = lists.iter().map(item).collect::<Result<_>>()?;
        Ok(LambdaParametersProgress::Complete(vec![items]))
    }

    fn return_field_from_args(
        &self,
        arguments: HigherOrderReturnFieldArgs<'_>,
    ) -> Result<FieldRef> {
        let (given, lists) = self.split(arguments.arg_fields)?;
        let first = lists.first().ok_or_else(|| self.refused())?;
        let data_type = match self.kind {
            Kind::Map => list_of(given.data_type().clone()),
            Kind::Filter if *given.data_type() != DataType::Boolean => {
                let why = "the lambda of arrayFilter is a condition";
                return Err(DataFusionError::Plan(why.to_owned()));
            }
            Kind::Filter | Kind::Sort { .. } => first.data_type().clone(),
        };
        Ok(Arc::new(Field::new(self.name, data_type, true)))
    }

    fn invoke_with_args(&self, arguments: HigherOrderFunctionArgs) -> Result<ColumnarValue> {
        let running = Running::of(&arguments.config_options);
        let (lambda, values) = self.split(&arguments.args)?;
        let mut lists = Vec::with_capacity(values.len());
        for value in values {
            let list = value.to_array(arguments.number_rows)?;
            lists.push(list.as_list_opt::<i32>().ok_or_else(|| internal("a list"))?.clone());
        }
        let flat = flat(&lists)?;
        let [first, others @ ..] = flat.as_slice() else { return Err(self.refused()) };
        if others.iter().any(|other| other.offsets != first.offsets) {
            let why = "the arrays behind a lambda are as long as each other";
            return Err(DataFusionError::Execution(why.to_owned()));
        }
        let item = arguments.arg_fields.first().map(|field| match field {
            ValueOrLambda::Value(field) | ValueOrLambda::Lambda(field) => field.data_type().clone(),
        });
        let item = item.ok_or_else(|| self.refused())?;
        let given = self.called(lambda, &flat, &item, &running)?;
        let nulls = lists.iter().fold(None::<NullBuffer>, |nulls: Option<NullBuffer>, list| {
            NullBuffer::union(nulls.as_ref(), list.nulls())
        });
        let list = |values: ArrayRef| -> Result<ListArray> {
            let field = Arc::new(Field::new_list_field(values.data_type().clone(), true));
            Ok(ListArray::try_new(field, first.offsets.clone(), values, nulls.clone())?)
        };
        let answer: ArrayRef = match self.kind {
            Kind::Map => Arc::new(list(given)?),
            Kind::Filter => {
                let holds = given.as_boolean_opt().ok_or_else(|| internal("a condition"))?;
                let of = list(Arc::clone(&first.values))?;
                let keeps = |at: &usize| holds.is_valid(*at) && holds.value(*at);
                let places = ranges(&of).map(|range| range.filter(keeps).collect());
                picked(&of, places.collect())?
            }
            Kind::Sort { is_descending } => {
                let (of, keys) = (list(Arc::clone(&first.values))?, list(given)?);
                picked(&of, order(&of, &keys, is_descending)?)?
            }
        };
        Ok(ColumnarValue::Array(answer))
    }
}
