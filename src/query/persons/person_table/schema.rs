//! The two tables ([`TableOf`]): their columns, and how their files are laid out.

use arrow::datatypes::SchemaRef;

use weir_event::dictionary;
use weir_event::dictionary::Table;
use weir_identity::change_feed::Watched;
use weir_storage::delta::TableSpec;
use weir_storage::parquet::Layout;

/// Which table it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableOf {
    /// `persons`: one row per person.
    Persons,
    /// `person_distinct_ids`: one row per distinct id of a person, for other engines: by a join with it events get the
    /// persons that they have after all merges and splits.
    DistinctIds,
}

impl TableOf {
    /// The specification of the table.
    pub fn spec(self) -> TableSpec {
        let schema = dictionary::described(self.described(), &self.schema());
        TableSpec { name: self.name(), schema, partition_column: None }
    }

    /// The columns, as published in `schemas/arrow/persons.v1.json` and `schemas/arrow/person_distinct_ids.v1.json`:
    /// existing columns stay, and a new column is added at the end and nullable. Of persons, `distinct_ids` is a JSON array
    /// and `properties` a JSON object, both as text, which every Parquet reader supports.
    pub(super) fn schema(self) -> SchemaRef {
        self.described().files_schema()
    }

    /// The table in the data dictionary.
    fn described(self) -> &'static Table {
        match self {
            Self::Persons => &dictionary::PERSONS,
            Self::DistinctIds => &dictionary::PERSON_DISTINCT_IDS,
        }
    }

    /// The name of the table, with which the names of its files begin.
    pub(super) fn name(self) -> &'static str {
        self.described().name
    }

    /// The changes by which its files become out of date.
    pub(super) fn watched(self) -> Watched {
        match self {
            Self::Persons => Watched::Persons,
            Self::DistinctIds => Watched::DistinctIds,
        }
    }

    /// The columns with the project and the number of the person.
    pub(super) fn place(self) -> [&'static str; 2] {
        match self {
            Self::Persons => ["project_id", "id"],
            Self::DistinctIds => ["project_id", "person_number"],
        }
    }

    /// The layout of the files, by positions in the schema. Rows are sorted by [`TableOf::place`].
    pub(super) fn layout(self) -> Layout {
        let (sort, statistics, unique, wide) = match self {
            Self::Persons => (vec![0, 1], vec![0, 1, 5], vec![2, 3], vec![4]),
            Self::DistinctIds => (vec![0, 5], vec![0, 3, 5], vec![1, 2, 4], Vec::new()),
        };
        Layout { sort, bloom: Vec::new(), statistics, unique, wide }
    }
}
