//! JSON access functions of SQL (`json_get_str(properties, 'plan')`, `properties ->> 'plan'`) with a fast path: texts
//! without the key are NULL without being parsed. A query reads one value of an event's hundreds of bytes, and most
//! events lack the property that it reads. If an object has a key more than once, the last one counts
//! (`query/functions/json_last.rs`), and a value has the same text however it was written
//! (`query/functions/json_written.rs`).

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, BooleanArray, LargeStringArray, StringArray, StringViewArray, UInt32Array,
    new_null_array,
};
use arrow::compute::{filter, take};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF};

use crate::functions::json_last::Step;
use crate::functions::{json_last, json_written};
use weir_event::json_key::KeyFinder;

/// The function that returns values as texts.
pub(crate) const AS_TEXT: &str = "json_as_text";

/// Functions that return NULL for an object without the key, and whose values have a plain type.
const ACCESS: [&str; 8] = [
    "json_as_text",
    "json_get_array",
    "json_get_bool",
    "json_get_float",
    "json_get_int",
    "json_get_json",
    "json_get_str",
    "json_length",
];

/// Other functions that search for a key in a text.
const LOOKING: [&str; 3] = ["json_contains", "json_get", "json_object_keys"];

/// Functions of which the value depends on all keys of the object that they find.
const OF_ALL_KEYS: [&str; 2] = ["json_length", "json_object_keys"];

/// Whether the function searches for keys in texts, besides those of [`is_access`].
pub(crate) fn is_looking(function: &ScalarUDF) -> bool {
    LOOKING.contains(&function.name())
}

/// Calls a function that searches for keys, on texts in which only the last of duplicate keys is left.
pub(crate) fn call_looking(
    function: &ScalarUDF,
    mut arguments: ScalarFunctionArgs,
) -> Result<ColumnarValue> {
    if let Some(texts) = last_counting(function, &arguments.args, |_| true)
        && let Some(first) = arguments.args.first_mut()
    {
        *first = texts;
    }
    function.invoke_with_args(arguments)
}

/// The texts of a call without members that are replaced by later ones of the same key, as far as the path of the call
/// reaches them. `None` if there are none in the rows that `may_have` them.
fn last_counting(
    function: &ScalarUDF,
    arguments: &[ColumnarValue],
    may_have: impl Fn(usize) -> bool,
) -> Option<ColumnarValue> {
    let (texts, path) = arguments.split_first()?;
    let path: Option<Vec<Step<'_>>> = path.iter().map(step).collect();
    let with_end = OF_ALL_KEYS.contains(&function.name());
    // A path of list indexes only reaches no key.
    let meets_keys = |path: &[Step<'_>]| path.iter().any(|step| matches!(step, Step::Key(_)));
    if !with_end && !path.as_deref().is_none_or(meets_keys) {
        return None;
    }
    replaced(texts, |row, text| match &path {
        _ if !may_have(row) => None,
        Some(path) => json_last::along(text, path, with_end),
        None => json_last::everywhere(text),
    })
}

/// A step of a path, if it is the same for all rows.
fn step(part: &ColumnarValue) -> Option<Step<'_>> {
    match part {
        ColumnarValue::Scalar(ScalarValue::Int64(place)) => place.map(Step::Place),
        ColumnarValue::Scalar(ScalarValue::UInt64(place)) => {
            i64::try_from((*place)?).ok().map(Step::Place)
        }
        part => key_of(part).map(Step::Key),
    }
}

fn key_of(part: &ColumnarValue) -> Option<&str> {
    match part {
        ColumnarValue::Scalar(
            ScalarValue::Utf8(key) | ScalarValue::Utf8View(key) | ScalarValue::LargeUtf8(key),
        ) => key.as_deref(),
        _ => None,
    }
}

/// The texts with some replaced by `other`; `None` if none is replaced, or if they are not texts.
fn replaced(
    texts: &ColumnarValue,
    other: impl Fn(usize, &str) -> Option<String>,
) -> Option<ColumnarValue> {
    let array = match texts {
        ColumnarValue::Array(array) => array,
        ColumnarValue::Scalar(scalar) => {
            let text = other(0, scalar.try_as_str().flatten()?)?;
            let text = ScalarValue::Utf8(Some(text)).cast_to(&scalar.data_type()).ok()?;
            return Some(ColumnarValue::Scalar(text));
        }
    };
    let array: ArrayRef = if let Some(texts) = array.as_string_view_opt() {
        Arc::new(StringViewArray::from_iter(others(texts.iter(), other)?))
    } else if let Some(texts) = array.as_string_opt::<i32>() {
        Arc::new(StringArray::from_iter(others(texts.iter(), other)?))
    } else {
        let texts = array.as_string_opt::<i64>()?;
        Arc::new(LargeStringArray::from_iter(others(texts.iter(), other)?))
    };
    Some(ColumnarValue::Array(array))
}

/// The rows with some texts replaced by `other`; `None` if none is replaced.
fn others<'t>(
    rows: impl Iterator<Item = Option<&'t str>>,
    other: impl Fn(usize, &str) -> Option<String>,
) -> Option<Vec<Option<Cow<'t, str>>>> {
    let rows: Vec<Option<&str>> = rows.collect();
    let numbered = rows.iter().enumerate();
    let found: Vec<(usize, String)> =
        numbered.filter_map(|(row, text)| Some((row, other(row, (*text)?)?))).collect();
    if found.is_empty() {
        return None;
    }
    let mut found = found.into_iter().peekable();
    let row = |(row, text): (usize, Option<&'t str>)| match found.next_if(|(at, _)| *at == row) {
        Some((_, other)) => Some(Cow::Owned(other)),
        None => text.map(Cow::Borrowed),
    };
    Some(rows.into_iter().enumerate().map(row).collect())
}

/// Whether texts without the key can be skipped in calls of the function.
pub(crate) fn is_access(function: &ScalarUDF) -> bool {
    ACCESS.contains(&function.name())
}

/// Calls an access function only on texts that may have the key, with NULL for the others. Values other than texts are
/// normalized (`query/functions/json_written.rs`).
pub(crate) fn call(function: &ScalarUDF, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
    if function.name() != AS_TEXT {
        return called(function, arguments);
    }
    let asked = arguments.args.clone();
    let values = called(function, arguments)?;
    let Some((texts, path)) = asked.split_first() else { return Ok(values) };
    let path: Option<Vec<Step<'_>>> = path.iter().map(step).collect();
    let otherwise = |row, found: &str| json_written::otherwise(texts, path.as_deref()?, row, found);
    Ok(replaced(&values, otherwise).unwrap_or(values))
}

fn called(function: &ScalarUDF, mut arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
    let rows = arguments.number_rows;
    let Some(Looked { mask, doubtful }) = looked(function, &arguments) else {
        return call_looking(function, arguments);
    };
    let may_have = |row: usize| doubtful.binary_search(&row).is_ok();
    if !doubtful.is_empty()
        && let Some(texts) = last_counting(function, &arguments.args, may_have)
        && let Some(first) = arguments.args.first_mut()
    {
        *first = texts;
    }
    let kept = mask.true_count();
    if kept == 0 {
        let nulls = new_null_array(arguments.return_field.data_type(), rows);
        return Ok(ColumnarValue::Array(nulls));
    }
    // Copying most of the texts costs more than searching the rest.
    if kept > rows / 4 * 3 {
        return function.invoke_with_args(arguments);
    }
    if let Some(ColumnarValue::Array(texts)) = arguments.args.first_mut() {
        *texts = filter(texts, &mask)?;
    }
    arguments.number_rows = kept;
    let values = function.invoke_with_args(arguments)?.into_array(kept)?;
    let mut next = 0..;
    let places = mask.values().iter().map(|is_kept| if is_kept { next.next() } else { None });
    let places: UInt32Array = places.collect();
    Ok(ColumnarValue::Array(take(&values, &places, None)?))
}

/// Result of a search for keys in the texts of a call, without parsing them.
struct Looked {
    /// The rows that may have the key.
    mask: BooleanArray,
    /// The rows that may have a key of the path twice.
    doubtful: Vec<usize>,
}

/// Searches for keys in the texts of a call with a column of texts and a constant path.
fn looked(function: &ScalarUDF, arguments: &ScalarFunctionArgs) -> Option<Looked> {
    let [ColumnarValue::Array(texts), path @ ..] = arguments.args.as_slice() else { return None };
    let is_constant = |part: &ColumnarValue| matches!(part, ColumnarValue::Scalar(_));
    // In a list, a key that is a number is the index of an item.
    let is_plain = |key: &&str| key.parse::<i64>().is_err();
    let first = path.first().filter(|_| path.iter().all(is_constant))?;
    let finder = KeyFinder::new(key_of(first).filter(is_plain)?)?;
    let inner: Option<Vec<KeyFinder>> =
        path.iter().skip(1).filter_map(key_of).map(KeyFinder::new).collect();
    let is_always = inner.is_none() || OF_ALL_KEYS.contains(&function.name());
    let inner = inner.unwrap_or_default();
    let texts = texts.as_string_view_opt()?;
    let (mut kept, mut doubtful) = (Vec::with_capacity(arguments.number_rows), Vec::new());
    for (row, text) in texts.iter().enumerate() {
        let text = text.map(str::as_bytes).filter(|text| finder.may_be_in(text));
        let is_twice = |text| {
            let mut all = std::iter::once(&finder).chain(&inner);
            is_always || all.any(|finder: &KeyFinder| finder.may_be_twice_in(text))
        };
        if text.is_some_and(is_twice) {
            doubtful.push(row);
        }
        kept.push(text.is_some());
    }
    Some(Looked { mask: BooleanArray::from(kept), doubtful })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, RecordBatch, StringViewArray};
    use arrow::util::pretty::pretty_format_batches;
    use datafusion::config::ConfigOptions;
    use datafusion::datasource::MemTable;
    use datafusion::logical_expr::ScalarFunctionArgs;
    use datafusion::prelude::SessionContext;

    use super::{ACCESS, call, is_access};

    /// Goal: a skipped text has the value that the function itself returns. Method: each function over texts of which
    /// some, most or none have the key, called both ways.
    #[tokio::test]
    async fn values_are_those_of_the_function() {
        let texts = [
            Some(r#"{"a":"x","b":1}"#),
            Some(r#"{"b":2}"#),
            None,
            Some(r#"{"\u0061":"y"}"#),
            Some(r#"{"c":{"a":5}}"#),
            Some(r#"[1,2]"#),
            Some("no JSON"),
            Some(r#"{"a":null}"#),
            Some(r#"{"b":[1,2,3],"a":[1]}"#),
            Some(r#"{"d":true}"#),
            Some(r#"{}"#),
            Some(r#"{"b":1.5}"#),
            Some(r#"["x",{"a":1}]"#),
        ];
        let column: ArrayRef = Arc::new(StringViewArray::from_iter(texts));
        let batch = RecordBatch::try_from_iter([("j", column)]).unwrap();
        let mut context = SessionContext::new();
        datafusion_functions_json::register_all(&mut context).unwrap();
        let table = MemTable::try_new(batch.schema(), vec![vec![batch.clone()]]).unwrap();
        context.register_table("t", Arc::new(table)).unwrap();
        for name in ACCESS {
            let function = context.state().scalar_functions()[name].clone();
            assert!(is_access(&function));
            for path in ["'a'", "'b'", "'c', 'a'", "'d'", "'none'", "'b', 1", "'0'", "'-1'"] {
                let sql = format!("SELECT {name}(j, {path}) AS v FROM t");
                let plan = context.sql(&sql).await.unwrap().create_physical_plan().await.unwrap();
                let expected = context.sql(&sql).await.unwrap().collect().await.unwrap();
                let projection = plan
                    .downcast_ref::<datafusion::physical_plan::projection::ProjectionExec>()
                    .expect("a projection");
                let expression = &projection.expr()[0].expr;
                let call_of = expression
                    .downcast_ref::<datafusion::physical_expr::ScalarFunctionExpr>()
                    .expect("a call");
                let args = call_of.args().iter().map(|it| it.evaluate(&batch).unwrap()).collect();
                let arg_fields = call_of
                    .args()
                    .iter()
                    .map(|it| it.return_field(&batch.schema()).unwrap())
                    .collect();
                let arguments = ScalarFunctionArgs {
                    args,
                    arg_fields,
                    number_rows: batch.num_rows(),
                    return_field: expression.return_field(&batch.schema()).unwrap(),
                    config_options: Arc::new(ConfigOptions::new()),
                };
                let found = call(&function, arguments).unwrap().into_array(batch.num_rows());
                let found = RecordBatch::try_from_iter_with_nullable([("v", found.unwrap(), true)]);
                let shown =
                    |batches: &[RecordBatch]| pretty_format_batches(batches).unwrap().to_string();
                assert_eq!(shown(&[found.unwrap()]), shown(&expected), "{sql}");
            }
        }
    }
}
