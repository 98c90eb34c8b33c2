//! Statistics of the columns of a file, for the log of its table: [`stats`].

use std::collections::BTreeMap;

use arrow::datatypes::{DataType, SchemaRef};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::statistics::Statistics;

use crate::delta::stats::{ColumnStats, FileStats, Value};
use weir_base::clock::UnixMicros;

/// Statistics of the columns at `positions` over all row groups.
pub(super) fn stats(
    metadata: &ParquetMetaData,
    schema: &SchemaRef,
    positions: &[usize],
) -> FileStats {
    let mut columns = BTreeMap::new();
    for position in positions {
        let Some(field) = schema.fields().get(*position) else { continue };
        let chunks = metadata.row_groups().iter().map(|group| group.columns().get(*position));
        let chunks: Option<Vec<&Statistics>> =
            chunks.map(|chunk| chunk.and_then(|chunk| chunk.statistics())).collect();
        let Some(chunks) = chunks else { continue };
        let is_time = matches!(field.data_type(), DataType::Timestamp(..));
        let bounds = |chunk: &&Statistics| bounds(chunk, is_time);
        let all: Option<Vec<(Value, Value)>> = chunks.iter().map(bounds).collect();
        let (mins, maxs): (Vec<Value>, Vec<Value>) = all.unwrap_or_default().into_iter().unzip();
        let pick = |values: Vec<Value>, order| {
            values.into_iter().reduce(|a, b| if compare(&b, &a) == order { b } else { a })
        };
        let nulls = chunks.iter().map(|chunk| chunk.null_count_opt()).sum::<Option<u64>>();
        columns.insert(
            field.name().clone(),
            ColumnStats {
                min: pick(mins, std::cmp::Ordering::Less),
                max: pick(maxs, std::cmp::Ordering::Greater),
                null_count: nulls,
            },
        );
    }
    FileStats { columns }
}

fn bounds(statistics: &Statistics, is_time: bool) -> Option<(Value, Value)> {
    match statistics {
        Statistics::Int64(values) => {
            let value = |micros: i64| match is_time {
                true => Value::Timestamp(UnixMicros(micros)),
                false => Value::Int(micros),
            };
            Some((value(*values.min_opt()?), value(*values.max_opt()?)))
        }
        Statistics::ByteArray(values) => {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok().map(Value::Text);
            Some((text(values.min_opt()?.data())?, text(values.max_opt()?.data())?))
        }
        _ => None,
    }
}

fn compare(a: &Value, b: &Value) -> std::cmp::Ordering {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(b),
        (Value::Text(a), Value::Text(b)) => a.cmp(b),
        _ => std::cmp::Ordering::Equal,
    }
}
