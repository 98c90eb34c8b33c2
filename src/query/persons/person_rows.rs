//! Arrow rows of persons: [`PersonRows`], the one builder, for SQL and for the files of the persons table.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanBuilder, Int64Builder, StringDictionaryBuilder, StringViewBuilder,
    TimestampMicrosecondBuilder,
};
use arrow::datatypes::UInt32Type;
use serde_json::Value;

use weir_event::id::ProjectId;
use weir_identity::person::DistinctId;
use weir_identity::row::{Key, Row};

/// What the names of columns of one property begin with; the name of the property as JSON follows.
pub(crate) const PROPERTY: &str = "properties.";

/// A column that persons are selected by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Selecting {
    /// A column of the persons table.
    Own(&'static str),
    /// A property, as a dictionary of compact JSON.
    Property(Key),
}

impl Selecting {
    /// The name in the files of the persons table.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Own(name) => (*name).to_owned(),
            Self::Property(key) => format!("{PROPERTY}{}", key.json()),
        }
    }
}

/// Rows of persons with columns by their names, which are those of the files of the persons table or some of them.
pub(crate) struct PersonRows {
    rows: usize,
    bytes: usize,
    columns: Vec<Column>,
}

/// A column of persons.
enum Column {
    ProjectId(Int64Builder),
    Id(Int64Builder),
    Uuid(StringViewBuilder),
    DistinctIds(StringViewBuilder),
    Properties(StringViewBuilder),
    CreatedAt(TimestampMicrosecondBuilder),
    IsIdentified(BooleanBuilder),
    Version(Int64Builder),
    Property(Key, StringDictionaryBuilder<UInt32Type>),
}

impl Column {
    fn named(name: &str) -> Self {
        match name {
            "project_id" => Self::ProjectId(Int64Builder::new()),
            "id" => Self::Id(Int64Builder::new()),
            "uuid" => Self::Uuid(StringViewBuilder::new()),
            "distinct_ids" => Self::DistinctIds(StringViewBuilder::new()),
            "created_at" => Self::CreatedAt(TimestampMicrosecondBuilder::new()),
            "is_identified" => Self::IsIdentified(BooleanBuilder::new()),
            "version" => Self::Version(Int64Builder::new()),
            _ => Self::Properties(StringViewBuilder::new()),
        }
    }
}

impl PersonRows {
    /// No rows yet.
    pub(crate) fn new<'n>(columns: impl Iterator<Item = &'n str>) -> Self {
        Self { rows: 0, bytes: 0, columns: columns.map(Column::named).collect() }
    }

    /// The same of columns to select by.
    pub(crate) fn selecting(columns: &[Selecting]) -> Self {
        let column = |column: &Selecting| match column {
            Selecting::Own(name) => Column::named(name),
            Selecting::Property(key) => {
                Column::Property(key.clone(), StringDictionaryBuilder::new())
            }
        };
        Self { rows: 0, bytes: 0, columns: columns.iter().map(column).collect() }
    }

    /// Adds a person with its distinct ids, which are not looked at without a column for them.
    pub(crate) fn push(
        &mut self,
        project: ProjectId,
        person: &Row<'_>,
        distinct_ids: &[DistinctId],
    ) {
        self.rows += 1;
        for column in &mut self.columns {
            match column {
                Column::ProjectId(ids) => ids.append_value(project.0),
                Column::Id(ids) => ids.append_value(person.number),
                Column::Uuid(uuids) => {
                    uuids.append_value(person.uuid.hyphenated().encode_lower(&mut [0; 36]));
                }
                Column::DistinctIds(texts) => {
                    let text =
                        Value::from_iter(distinct_ids.iter().map(|id| &*id.text)).to_string();
                    self.bytes += text.len();
                    texts.append_value(text);
                }
                Column::Properties(texts) => {
                    self.bytes += person.properties_len();
                    texts.append_value(person.properties_json());
                }
                Column::CreatedAt(times) => times.append_value(person.created_at.0),
                Column::IsIdentified(truths) => truths.append_value(person.is_identified),
                Column::Version(versions) => {
                    versions.append_value(i64::try_from(person.version).unwrap_or(i64::MAX));
                }
                Column::Property(key, values) => {
                    let value = person.property(key);
                    self.bytes += value.map_or(0, str::len);
                    values.append_option(value);
                }
            }
        }
    }

    /// Rows so far.
    pub(crate) fn len(&self) -> usize {
        self.rows
    }

    /// Bytes of their JSON texts.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The columns of the rows so far; there are none afterwards.
    pub(crate) fn finish(&mut self) -> Vec<ArrayRef> {
        (self.rows, self.bytes) = (0, 0);
        let finish = |column: &mut Column| match column {
            Column::ProjectId(numbers) | Column::Id(numbers) | Column::Version(numbers) => {
                Arc::new(numbers.finish()) as ArrayRef
            }
            Column::Uuid(texts) | Column::DistinctIds(texts) | Column::Properties(texts) => {
                Arc::new(texts.finish())
            }
            Column::CreatedAt(times) => Arc::new(times.finish().with_timezone("UTC")),
            Column::IsIdentified(truths) => Arc::new(truths.finish()),
            Column::Property(_, values) => Arc::new(values.finish()),
        };
        self.columns.iter_mut().map(finish).collect()
    }
}
