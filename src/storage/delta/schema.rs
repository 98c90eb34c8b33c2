//! Columns: Arrow types as Delta types, and the check that a table has the columns we want.
//! Only types that reader version 1 and writer version 2 of the protocol know.

use std::sync::Arc;

use arrow::datatypes::DataType as ArrowType;
use arrow::datatypes::Field;
use arrow::datatypes::Schema;
use arrow::datatypes::SchemaRef;
use arrow::datatypes::TimeUnit;
use deltalake_core::kernel::ArrayType;
use deltalake_core::kernel::DataType;
use deltalake_core::kernel::DecimalType;
use deltalake_core::kernel::StructField;
use deltalake_core::kernel::StructType;
use deltalake_core::kernel::engine::arrow_conversion::TryIntoArrow;

use crate::storage::delta::TableSpec;
use crate::storage::delta::error::TableError;

/// Characters that Parquet column names in Delta must not have without column mapping.
const FORBIDDEN_IN_NAMES: &str = " ,;{}()\n\t=";

/// All columns of a new table: those of the spec, then the partition column.
pub(super) fn of_spec(spec: &TableSpec) -> Result<StructType, TableError> {
    let mut fields = Vec::new();
    for field in spec.schema.fields() {
        fields.push(delta_field(field).map_err(|reason| misfit(spec, field.name(), reason))?);
    }
    if let Some(column) = spec.partition_column {
        fields.push(StructField::nullable(column, DataType::STRING));
    }
    StructType::try_new(fields).map_err(|error| misfit(spec, "*", error.to_string()))
}

/// The table's schema widened by the columns of the spec that it lacks; `None` if it has all.
pub(super) fn widened(
    table: &StructType,
    spec: &TableSpec,
) -> Result<Option<StructType>, TableError> {
    let mut missing = Vec::new();
    for wanted in of_spec(spec)?.fields() {
        let name = wanted.name();
        match table.field(name) {
            Some(found) if found.data_type() != wanted.data_type() => {
                let reason = format!("{} there, {} here", found.data_type(), wanted.data_type());
                return Err(misfit(spec, name, reason));
            }
            Some(found) if wanted.is_nullable() && !found.is_nullable() => {
                return Err(misfit(spec, name, "never null there, nullable here".to_owned()));
            }
            Some(_) => {}
            None if wanted.is_nullable() => missing.push(wanted.clone()),
            None => {
                let reason = "a column that is added later must be nullable".to_owned();
                return Err(misfit(spec, name, reason));
            }
        }
    }
    if missing.is_empty() {
        return Ok(None);
    }
    let all = table.fields().cloned().chain(missing);
    StructType::try_new(all).map(Some).map_err(|error| misfit(spec, "*", error.to_string()))
}

/// The columns in the data files: the table's without the partition column, as Arrow types.
pub(super) fn file_schema(table: &StructType, spec: &TableSpec) -> Result<SchemaRef, TableError> {
    let mut fields = Vec::new();
    for field in table.fields().filter(|field| Some(field.name().as_str()) != spec.partition_column)
    {
        let field: Field = field
            .try_into_arrow()
            .map_err(|error| misfit(spec, field.name(), error.to_string()))?;
        fields.push(field);
    }
    Ok(Arc::new(Schema::new(fields)))
}

fn misfit(spec: &TableSpec, column: &str, reason: String) -> TableError {
    TableError::Schema { table: spec.name, column: column.to_owned(), reason }
}

fn delta_field(field: &Field) -> Result<StructField, String> {
    if let Some(bad) = field.name().chars().find(|c| FORBIDDEN_IN_NAMES.contains(*c)) {
        return Err(format!("the name contains {bad:?}"));
    }
    // Without the Arrow metadata of the field: it says nothing about the table.
    Ok(StructField::new(field.name().as_str(), delta_type(field.data_type())?, field.is_nullable()))
}

fn delta_type(arrow: &ArrowType) -> Result<DataType, String> {
    Ok(match arrow {
        ArrowType::Utf8 | ArrowType::LargeUtf8 | ArrowType::Utf8View => DataType::STRING,
        ArrowType::Binary | ArrowType::LargeBinary | ArrowType::BinaryView => DataType::BINARY,
        ArrowType::Dictionary(_, values) => delta_type(values)?,
        ArrowType::Boolean => DataType::BOOLEAN,
        ArrowType::Int8 => DataType::BYTE,
        ArrowType::Int16 => DataType::SHORT,
        ArrowType::Int32 => DataType::INTEGER,
        ArrowType::Int64 => DataType::LONG,
        ArrowType::Float32 => DataType::FLOAT,
        ArrowType::Float64 => DataType::DOUBLE,
        ArrowType::Date32 => DataType::DATE,
        // Without a time zone it would be `timestampNtz`, a table feature that shuts readers out.
        ArrowType::Timestamp(TimeUnit::Microsecond, Some(zone))
            if matches!(zone.as_ref(), "UTC" | "+00:00") =>
        {
            DataType::TIMESTAMP
        }
        ArrowType::Decimal128(precision, scale) => {
            let scale = u8::try_from(*scale).map_err(|error| error.to_string())?;
            DecimalType::try_new(*precision, scale).map_err(|error| error.to_string())?.into()
        }
        ArrowType::List(item) | ArrowType::LargeList(item) => {
            ArrayType::new(delta_type(item.data_type())?, item.is_nullable()).into()
        }
        ArrowType::Struct(fields) => {
            let fields: Result<Vec<_>, _> = fields.iter().map(|field| delta_field(field)).collect();
            StructType::try_new(fields?).map_err(|error| error.to_string())?.into()
        }
        other => return Err(format!("{other} has no Delta type that every reader knows")),
    })
}
