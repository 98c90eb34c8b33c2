//! Cells of CSV that spreadsheets do not run: [`text_cell`].

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, LargeStringArray, RecordBatch, RecordBatchOptions, StringArray,
    StringViewArray,
};
use arrow::datatypes::{Field, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;

/// A CSV cell with this text. Spreadsheets run a cell that begins with `=`, `+`, `-`, `@`, a tab or a carriage return
/// as a formula, and anybody can send events and persons with such text. An apostrophe in front makes it text
/// (CWE-1236). Not for numbers: they are no formulas.
pub fn text_cell(text: &str) -> Cow<'_, str> {
    match text.starts_with(FORMULA_BEGINNINGS) {
        true => Cow::Owned(format!("'{text}")),
        false => Cow::Borrowed(text),
    }
}

const FORMULA_BEGINNINGS: [char; 6] = ['=', '+', '-', '@', '\t', '\r'];

/// The same rows with such cells, and with such column names: names are chosen by the author of a query, who may send
/// the file to others.
pub(super) fn without_formulas(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    fn has_formula<'v>(values: impl Iterator<Item = Option<&'v str>>) -> bool {
        values.flatten().any(|text| text.starts_with(FORMULA_BEGINNINGS))
    }
    let column = |column: &ArrayRef| -> ArrayRef {
        if let Some(values) =
            column.as_string_view_opt().filter(|values| has_formula(values.iter()))
        {
            let texts = values.iter().map(|text| text.map(text_cell));
            Arc::new(texts.collect::<StringViewArray>())
        } else if let Some(values) =
            column.as_string_opt::<i32>().filter(|values| has_formula(values.iter()))
        {
            Arc::new(values.iter().map(|text| text.map(text_cell)).collect::<StringArray>())
        } else if let Some(values) =
            column.as_string_opt::<i64>().filter(|values| has_formula(values.iter()))
        {
            Arc::new(values.iter().map(|text| text.map(text_cell)).collect::<LargeStringArray>())
        } else {
            Arc::clone(column)
        }
    };
    let columns: Vec<ArrayRef> = batch.columns().iter().map(column).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(without_formulas_in_names(batch.schema()), columns, &options)
}

fn without_formulas_in_names(schema: SchemaRef) -> SchemaRef {
    if !schema.fields().iter().any(|field| field.name().starts_with(FORMULA_BEGINNINGS)) {
        return schema;
    }
    let field = |field: &FieldRef| field.as_ref().clone().with_name(text_cell(field.name()));
    Arc::new(Schema::new(schema.fields().iter().map(field).collect::<Vec<Field>>()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        ArrayRef, Int64Array, LargeStringArray, RecordBatch, StringArray, StringViewArray,
    };

    use crate::output::format::Format;
    use crate::output::rows::write;

    #[test]
    fn csv_has_texts_and_no_formulas() {
        let texts = ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "a=b", "'=x", "", "="];
        let numbers = Int64Array::from_iter_values((0..9).map(|number| number - 5));
        let view: ArrayRef = Arc::new(StringViewArray::from_iter_values(texts));
        let large: ArrayRef = Arc::new(LargeStringArray::from_iter_values(texts));
        let text: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
        let columns =
            [("n", Arc::new(numbers) as ArrayRef), ("v", view), ("l", large), ("t", text)];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let mut out = Vec::new();
        write(Format::Csv, &batch.schema(), std::slice::from_ref(&batch), &mut out).unwrap();
        let cells = ["'=1+1", "'+1", "'-1", "'@SUM(A1)", "'\tx", "a=b", "'=x", "", "'="];
        let rows =
            (-5..).zip(cells).map(|(number, cell)| format!("{number},{cell},{cell},{cell}\n"));
        assert_eq!(
            String::from_utf8(out).unwrap(),
            format!("n,v,l,t\n{}", rows.collect::<String>())
        );
        // Column names are escaped too, also in a file without rows.
        let named =
            |name: &str| (name.to_owned(), Arc::new(Int64Array::from(vec![-1])) as ArrayRef);
        let names = ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "a=b", "'=x"];
        let batch = RecordBatch::try_from_iter(names.map(named)).unwrap();
        let head = "'=1+1,'+1,'-1,'@SUM(A1),'\tx,\"'\rx\",a=b,'=x\n";
        for (rows, expected) in [
            (&[][..], head.to_owned()),
            (std::slice::from_ref(&batch), format!("{head}-1,-1,-1,-1,-1,-1,-1,-1\n")),
        ] {
            let mut out = Vec::new();
            write(Format::Csv, &batch.schema(), rows, &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
