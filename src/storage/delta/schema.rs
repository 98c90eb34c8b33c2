//! Schema mapping and schema evolution: Arrow types to Delta types, and the check that a table has the
//! columns of a spec. Supports the types of reader version 1 and writer version 2.

use std::sync::Arc;

use arrow::datatypes::{DataType as ArrowType, Field, Schema, SchemaRef, TimeUnit};

use crate::delta::error::TableError;
use crate::delta::types::{DataType, Primitive, StructField, StructType};
use crate::delta::version::TableSpec;

/// Characters that Delta forbids in column names without column mapping.
const FORBIDDEN_IN_NAMES: &str = " ,;{}()\n\t=";

/// The key of a description in the metadata of an Arrow field.
const DESCRIPTION: &str = "description";

/// All columns of a new table: those of the spec, then the partition column.
pub(super) fn of_spec(spec: &TableSpec) -> Result<StructType, TableError> {
    let mut fields = Vec::new();
    for field in spec.schema.fields() {
        fields.push(delta_field(field).map_err(|reason| misfit(spec, field.name(), reason))?);
    }
    if let Some(column) = spec.partition_column {
        fields.push(StructField::new(column, Primitive::String, true));
    }
    StructType::new(fields).map_err(|reason| misfit(spec, "*", reason))
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
    let all = table.fields().iter().cloned().chain(missing).collect();
    StructType::new(all).map(Some).map_err(|reason| misfit(spec, "*", reason))
}

/// The columns in the data files: the table's without the partition column, as Arrow types.
pub(super) fn file_schema(table: &StructType, spec: &TableSpec) -> SchemaRef {
    let in_files = |field: &&StructField| Some(field.name()) != spec.partition_column;
    let fields: Vec<Field> =
        table.fields().iter().filter(in_files).map(StructField::to_arrow).collect();
    Arc::new(Schema::new(fields))
}

fn misfit(spec: &TableSpec, column: &str, reason: String) -> TableError {
    TableError::Schema { table: spec.name, column: column.to_owned(), reason }
}

fn delta_field(field: &Field) -> Result<StructField, String> {
    if let Some(bad) = field.name().chars().find(|c| FORBIDDEN_IN_NAMES.contains(*c)) {
        return Err(format!("the name contains {bad:?}"));
    }
    let column =
        StructField::new(field.name(), delta_type(field.data_type())?, field.is_nullable());
    // Of the Arrow metadata of the field, only this describes the table.
    Ok(match field.metadata().get(DESCRIPTION) {
        Some(description) => column.with_comment(description),
        None => column,
    })
}

fn delta_type(arrow: &ArrowType) -> Result<DataType, String> {
    Ok(match arrow {
        ArrowType::Utf8 | ArrowType::LargeUtf8 | ArrowType::Utf8View => Primitive::String.into(),
        ArrowType::Binary | ArrowType::LargeBinary | ArrowType::BinaryView => {
            Primitive::Binary.into()
        }
        ArrowType::Dictionary(_, values) => delta_type(values)?,
        ArrowType::Boolean => Primitive::Boolean.into(),
        ArrowType::Int8 => Primitive::Byte.into(),
        ArrowType::Int16 => Primitive::Short.into(),
        ArrowType::Int32 => Primitive::Integer.into(),
        ArrowType::Int64 => Primitive::Long.into(),
        ArrowType::Float32 => Primitive::Float.into(),
        ArrowType::Float64 => Primitive::Double.into(),
        ArrowType::Date32 => Primitive::Date.into(),
        // Without a time zone it would be `timestampNtz`, a table feature that reader version 1 lacks.
        ArrowType::Timestamp(TimeUnit::Microsecond, Some(zone))
            if matches!(zone.as_ref(), "UTC" | "+00:00") =>
        {
            Primitive::Timestamp.into()
        }
        ArrowType::Decimal128(precision, scale) => {
            let scale = u8::try_from(*scale).map_err(|error| error.to_string())?;
            Primitive::decimal(*precision, scale)?.into()
        }
        ArrowType::List(item) | ArrowType::LargeList(item) => {
            DataType::array(delta_type(item.data_type())?, item.is_nullable())
        }
        ArrowType::Struct(fields) => {
            let fields: Result<Vec<_>, _> = fields.iter().map(|field| delta_field(field)).collect();
            StructType::new(fields?)?.into()
        }
        other => return Err(format!("{other} has no Delta type that every reader knows")),
    })
}
