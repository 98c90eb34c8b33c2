//! Copies a batch to release what its buffers hold of other rows: [`compact`]. A slice of a batch, and views of the
//! values of a data page, keep the whole buffer in memory; operators that buffer batches account for such a buffer with
//! each of them, and run out of memory that they do not need.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use datafusion::common::utils::memory::get_record_batch_memory_size;

use crate::guard::sizes;
use crate::guard::sizes::Views;

/// Bytes of other rows that are not worth a copy.
const SPARE_BYTES: usize = 16 << 10;

/// `batch`, copied if more than half of the memory that it keeps belongs to other rows. Views inside lists still share
/// their buffers.
///
/// # Errors
///
/// It has more rows than fit into 32 bits: a programmer error.
pub(super) fn compact(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let shown = batch.columns().iter().map(|column| sizes::total(column, Views::Expanded));
    let shown = shown.fold(0, usize::saturating_add);
    let worth = shown.saturating_mul(2).saturating_add(SPARE_BYTES);
    if get_record_batch_memory_size(batch) <= worth {
        return Ok(batch.clone());
    }
    let rows = u32::try_from(batch.num_rows());
    let rows = rows.map_err(|error| ArrowError::ComputeError(error.to_string()))?;
    let rows = UInt32Array::from_iter_values(0..rows);
    let columns = batch.columns().iter().map(|column| copied(column, &rows));
    RecordBatch::try_new(batch.schema(), columns.collect::<Result<_, _>>()?)
}

/// The rows are taken first, as values that are inlined in their views have no buffers to collect.
fn copied(column: &ArrayRef, rows: &UInt32Array) -> Result<ArrayRef, ArrowError> {
    let column = take(column, rows, None)?;
    Ok(match column.data_type() {
        DataType::Utf8View => Arc::new(column.as_string_view().gc()),
        DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
        _ => column,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        ArrayRef, BinaryViewArray, Int64Array, RecordBatch, StringArray, StringViewArray,
    };
    use datafusion::common::utils::memory::get_record_batch_memory_size;

    use super::compact;

    #[test]
    fn slices_give_up_what_they_do_not_show() {
        let texts =
            || (0..10_000).map(|n| (n % 3 > 0).then(|| format!("{n:>20} is a longer text")));
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..10_000));
        let plain: ArrayRef = Arc::new(StringArray::from_iter(texts()));
        let views: ArrayRef = Arc::new(StringViewArray::from_iter(texts()));
        let binary = texts().map(|text| text.map(String::into_bytes));
        let binary: ArrayRef = Arc::new(BinaryViewArray::from_iter(binary));
        for column in [numbers, plain, views, binary] {
            let whole = RecordBatch::try_from_iter([("c", column)]).unwrap();
            let held = get_record_batch_memory_size(&whole);
            for slice in [whole.slice(3, 100), whole.slice(9_999, 1), whole.slice(5, 0)] {
                let compact = compact(&slice).unwrap();
                assert_eq!(compact, slice);
                let kept = get_record_batch_memory_size(&compact);
                assert!(kept <= 16 << 10, "{kept} of {held} bytes: {:?}", slice.schema());
            }
            let same = compact(&whole).unwrap();
            assert_eq!(get_record_batch_memory_size(&same), held, "nothing to gain");
        }
    }
}
