//! What the dictionary knows of a table and of a column.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};

use crate::schema::PARTITION_COLUMN;

/// A table.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Name, in SQL and of the directory of its files.
    pub name: &'static str,
    /// What a row is.
    pub meaning: &'static str,
    /// Whether the table is also a Delta table of files.
    pub has_files: bool,
    pub(super) columns: fn() -> Vec<Column>,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Name.
    pub name: Cow<'static, str>,
    /// Type.
    pub kind: Kind,
    /// Whether a row may lack it.
    pub is_nullable: bool,
    /// What it says.
    pub meaning: Cow<'static, str>,
    /// Unit or format of the values.
    pub unit: Option<&'static str>,
    /// A value.
    pub example: Cow<'static, str>,
    /// Version of the table's columns that introduced it. Columns are neither changed nor removed.
    pub since: u32,
    /// Where it is.
    pub place: Availability,
}

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text in UTF-8.
    Text,
    /// Whole number of 64 bits.
    Integer,
    /// Floating-point number of 64 bits.
    Double,
    /// True or false.
    Boolean,
    /// Instant in microseconds, in UTC.
    Timestamp,
    /// Calendar day.
    Date,
}

/// Where a table has a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// In SQL and in the files.
    Both,
    /// In SQL only.
    Sql,
    /// In the files only.
    Files,
}

impl Table {
    /// Its columns, in order. Those of [`Availability::Sql`] and of [`Availability::Files`] may have the same name.
    pub fn columns(&self) -> Vec<Column> {
        (self.columns)()
    }

    /// The columns that SQL has.
    pub fn sql_columns(&self) -> impl Iterator<Item = Column> {
        self.columns().into_iter().filter(|column| column.place != Availability::Files)
    }

    /// The columns that the files have, with the partition column at the end.
    pub fn files_columns(&self) -> impl Iterator<Item = Column> {
        self.columns().into_iter().filter(|column| column.place != Availability::Sql)
    }

    /// The columns and types of SQL, with text as views.
    pub fn sql_schema(&self) -> SchemaRef {
        Arc::new(Schema::new(self.sql_columns().map(|column| column.field()).collect::<Vec<_>>()))
    }

    /// The columns and types of the data files, without the partition column.
    pub fn files_schema(&self) -> SchemaRef {
        let columns = self.files_columns().filter(|column| column.name != PARTITION_COLUMN);
        Arc::new(Schema::new(columns.map(|column| column.field()).collect::<Vec<_>>()))
    }
}

impl Column {
    /// A column of SQL and files that every row has.
    pub(super) fn new(
        name: &'static str,
        kind: Kind,
        meaning: &'static str,
        example: &'static str,
    ) -> Self {
        let (name, meaning) = (Cow::Borrowed(name), Cow::Borrowed(meaning));
        let (example, place) = (Cow::Borrowed(example), Availability::Both);
        Self { name, kind, is_nullable: false, meaning, unit: None, example, since: 1, place }
    }

    pub(super) fn nullable(self) -> Self {
        Self { is_nullable: true, ..self }
    }

    pub(super) fn unit(self, unit: &'static str) -> Self {
        Self { unit: Some(unit), ..self }
    }

    pub(super) fn only(self, place: Availability) -> Self {
        Self { place, ..self }
    }

    /// Meaning and unit in one line.
    pub fn description(&self) -> String {
        match self.unit {
            Some(unit) => format!("{} ({unit})", self.meaning),
            None => self.meaning.clone().into_owned(),
        }
    }

    /// The Arrow field, without a description.
    pub fn field(&self) -> Field {
        Field::new(self.name.as_ref(), self.kind.arrow(), self.is_nullable)
    }
}

impl Kind {
    /// The Arrow type.
    pub fn arrow(self) -> DataType {
        match self {
            Self::Text => DataType::Utf8View,
            Self::Integer => DataType::Int64,
            Self::Double => DataType::Float64,
            Self::Boolean => DataType::Boolean,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Date => DataType::Date32,
        }
    }

    /// The name of the type in SQL, as DuckDB and PostgreSQL understand it.
    pub fn sql(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Integer => "bigint",
            Self::Double => "double",
            Self::Boolean => "boolean",
            Self::Timestamp => "timestamptz",
            Self::Date => "date",
        }
    }

    /// The type with this Arrow type; `None` for one that no table has.
    pub fn of(arrow: &DataType) -> Option<Self> {
        Some(match arrow {
            DataType::Utf8View | DataType::Utf8 | DataType::LargeUtf8 => Self::Text,
            DataType::Int64 => Self::Integer,
            DataType::Float64 => Self::Double,
            DataType::Boolean => Self::Boolean,
            DataType::Timestamp(..) => Self::Timestamp,
            DataType::Date32 => Self::Date,
            _ => return None,
        })
    }
}
