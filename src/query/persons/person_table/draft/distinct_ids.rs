//! A file of the table `person_distinct_ids` that is to be.

use std::sync::Arc;

use arrow::array::{
    ArrayBuilder, ArrayRef, Int64Builder, StringViewBuilder, TimestampMicrosecondBuilder,
};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

use weir_event::id::{PersonId, ProjectId};
use weir_identity::person::DistinctId;
use weir_identity::row::Row;

/// See the head of this file.
#[derive(Default)]
pub(in crate::persons::person_table) struct DistinctIds {
    projects: Int64Builder,
    ids: StringViewBuilder,
    persons: StringViewBuilder,
    since: TimestampMicrosecondBuilder,
    old: StringViewBuilder,
    numbers: Int64Builder,
    bytes: usize,
}

impl DistinctIds {
    /// Adds the distinct ids of a person behind all others.
    pub(super) fn push(&mut self, project: ProjectId, row: &Row<'_>, ids: &[DistinctId]) {
        let (mut own, mut old) = ([0; Hyphenated::LENGTH], [0; Hyphenated::LENGTH]);
        let person = &*row.uuid.hyphenated().encode_lower(&mut own);
        for DistinctId { text, since } in ids {
            let first: Uuid = PersonId::of(project, text).0;
            let first = (first != row.uuid).then(|| &*first.hyphenated().encode_lower(&mut old));
            self.bytes += text.len() + person.len() + first.map_or(0, str::len);
            self.projects.append_value(project.0);
            self.ids.append_value(text);
            self.persons.append_value(person);
            self.since.append_option(since.map(|since| since.0));
            self.old.append_option(first);
            self.numbers.append_value(row.number);
        }
    }

    /// Distinct ids.
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Bytes of their texts.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The values of all columns.
    pub(super) fn finish(mut self) -> Vec<ArrayRef> {
        vec![
            Arc::new(self.projects.finish()),
            Arc::new(self.ids.finish()),
            Arc::new(self.persons.finish()),
            Arc::new(self.since.finish().with_timezone("UTC")),
            Arc::new(self.old.finish()),
            Arc::new(self.numbers.finish()),
        ]
    }
}
