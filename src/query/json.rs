//! JSON access functions of SQL (`json_get_str(properties, 'plan')`, `properties ->> 'plan'`): texts without the
//! key are NULL without being parsed. Of an event's hundreds of bytes a query reads one value, and most
//! events do not have the property that a query asks for.

use arrow::array::AsArray;
use arrow::array::BooleanArray;
use arrow::array::UInt32Array;
use arrow::array::new_null_array;
use arrow::compute::filter;
use arrow::compute::take;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::ColumnarValue;
use datafusion::logical_expr::ScalarFunctionArgs;
use datafusion::logical_expr::ScalarUDF;

use crate::event::json_key::KeyFinder;

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

/// Whether texts without the key can be skipped in calls of the function.
pub(super) fn is_access(function: &ScalarUDF) -> bool {
    ACCESS.contains(&function.name())
}

/// Calls an access function on the texts that may have the key, and has NULL for the others.
///
/// # Errors
///
/// Those of the function.
pub(super) fn call(
    function: &ScalarUDF,
    mut arguments: ScalarFunctionArgs,
) -> Result<ColumnarValue> {
    let rows = arguments.number_rows;
    let Some(mask) = mask(&arguments) else { return function.invoke_with_args(arguments) };
    let kept = mask.true_count();
    if kept == 0 {
        let nulls = new_null_array(arguments.return_field.data_type(), rows);
        return Ok(ColumnarValue::Array(nulls));
    }
    // Copying most of the texts costs more than to look into the rest.
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

/// The rows that may have the key, for a call with a column of texts and a constant path.
fn mask(arguments: &ScalarFunctionArgs) -> Option<BooleanArray> {
    let [ColumnarValue::Array(texts), path @ ..] = arguments.args.as_slice() else { return None };
    let is_constant = |part: &ColumnarValue| matches!(part, ColumnarValue::Scalar(_));
    let ColumnarValue::Scalar(key) = path.first().filter(|_| path.iter().all(is_constant))? else {
        return None;
    };
    let (ScalarValue::Utf8(key) | ScalarValue::Utf8View(key) | ScalarValue::LargeUtf8(key)) = key
    else {
        return None;
    };
    // Of a list, a number in a text is the place of an item.
    let key = key.as_deref().filter(|key| key.parse::<i64>().is_err())?;
    let finder = KeyFinder::new(key)?;
    let texts = texts.as_string_view_opt()?;
    let may_have = |text: Option<&str>| text.is_some_and(|text| finder.may_be_in(text.as_bytes()));
    Some(texts.iter().map(|text| Some(may_have(text))).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::ArrayRef;
    use arrow::array::RecordBatch;
    use arrow::array::StringViewArray;
    use arrow::util::pretty::pretty_format_batches;
    use datafusion::config::ConfigOptions;
    use datafusion::datasource::MemTable;
    use datafusion::logical_expr::ScalarFunctionArgs;
    use datafusion::prelude::SessionContext;

    use super::ACCESS;
    use super::call;
    use super::is_access;

    /// Goal: a skipped text has the value that the function itself gives. Method: each function over texts of
    /// which some, most or none have the key, called both ways.
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
