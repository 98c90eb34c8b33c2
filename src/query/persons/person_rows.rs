//! Arrow rows of persons: [`PersonRows`], the one builder, for SQL and for the files of the persons table.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanBuilder, Int64Builder, StringViewBuilder, TimestampMicrosecondBuilder,
};
use serde_json::Value;

use weir_event::id::ProjectId;
use weir_identity::row::Row;

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

    /// Adds a person with its distinct ids, which are not looked at without a column for them.
    pub(crate) fn push(&mut self, project: ProjectId, person: &Row<'_>, distinct_ids: &[String]) {
        self.rows += 1;
        for column in &mut self.columns {
            match column {
                Column::ProjectId(ids) => ids.append_value(project.0),
                Column::Id(ids) => ids.append_value(person.number),
                Column::Uuid(uuids) => {
                    uuids.append_value(person.uuid.hyphenated().encode_lower(&mut [0; 36]));
                }
                Column::DistinctIds(texts) => {
                    let text = Value::from(distinct_ids).to_string();
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
        };
        self.columns.iter_mut().map(finish).collect()
    }
}
