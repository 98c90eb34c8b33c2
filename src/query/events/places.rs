//! Locates the rows with an id: in memory, or in which files. For inspection by people, so it reads the files
//! themselves instead of planning a query: rows of deleted events count as long as a file contains them.

use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::Int64Type;
use datafusion::error::DataFusionError;
use futures::{StreamExt, TryStreamExt};
use object_store::ObjectStore;
use parquet::errors::ParquetError;

use crate::kernel::engine::Engine;
use crate::kernel::error::QueryError;
use crate::kernel::view::times_of;
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_event::schema::{column, events_schema};
use weir_storage::delta::DataFile;
use weir_storage::parquet::read_columns_if;
use weir_storage::rows::Rows;

/// Files that are read concurrently.
const AT_ONCE: usize = 4;

/// Maximum files that one look-up opens.
const FILES_MAX: usize = 5000;

/// What is searched for.
#[derive(Clone, Copy, Debug)]
pub enum Sought<'i> {
    /// An event by its uuid, with its time.
    Event(&'i str, UnixMicros),
    /// The events that were received for a person, by its uuid.
    Person(&'i str),
}

/// Locations of rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Number of rows in memory, which are also in the log.
    pub in_memory: usize,
    /// The files with such rows, as paths in the directory of the table, each with the number of rows.
    pub files: Vec<(String, usize)>,
    /// Number of live files that were read.
    pub looked_into: usize,
}

impl Engine {
    /// The current locations of the rows with an id.
    ///
    /// # Errors
    ///
    /// There are too many files, a file cannot be read, or it takes longer than a query may.
    pub async fn places(
        &self,
        project: ProjectId,
        sought: Sought<'_>,
    ) -> Result<Places, QueryError> {
        self.wait().await?;
        let _permit = self.permit().await?;
        self.within_time(self.looked(project, sought)).await?
    }

    async fn looked(&self, project: ProjectId, sought: Sought<'_>) -> Result<Places, QueryError> {
        let store = &self.shared.sources.store;
        let snapshot = store.snapshot();
        let (at, id) = match sought {
            Sought::Event(id, _) => (column::UUID, id),
            Sought::Person(id) => (column::PERSON_ID, id),
        };
        let may_have = |file: &&DataFile| match sought {
            Sought::Event(_, time) => {
                let (first, last) = times_of(file, "timestamp");
                (first..=last).contains(&time)
            }
            Sought::Person(_) => true,
        };
        let files: Vec<&DataFile> =
            snapshot.version.files.iter().map(|file| &**file).filter(may_have).collect();
        if files.len() > FILES_MAX {
            let detail = format!("there are {} files, of at most {FILES_MAX}", files.len());
            return Err(QueryError::Invalid(detail));
        }
        let in_memory = snapshot.batches.iter().map(|rows| count(rows, project, at, id)).sum();
        let schema = events_schema();
        let names = [schema.field(column::PROJECT_ID).name(), schema.field(at).name()];
        let names = names.map(String::as_str);
        let looked_into = files.len();
        let look = |file: &DataFile| {
            let (table, path, file) = (store.table().store(), file.path.clone(), file.clone());
            async move {
                let found = rows_of(table, &file, names, project, id).await;
                found.map(|count| (path, count))
            }
        };
        let mut found = futures::stream::iter(files.into_iter().map(look)).buffered(AT_ONCE);
        let mut files = Vec::new();
        while let Some((path, count)) = found.try_next().await.map_err(unreadable)? {
            if count > 0 {
                files.push((path, count));
            }
        }
        Ok(Places { in_memory, files, looked_into })
    }
}

fn unreadable(error: ParquetError) -> QueryError {
    DataFusionError::ParquetError(Box::new(error)).into()
}

/// The number of rows of a file that belong to the project and have the id.
async fn rows_of(
    store: Arc<dyn ObjectStore>,
    file: &DataFile,
    names: [&str; 2],
    project: ProjectId,
    id: &str,
) -> Result<usize, ParquetError> {
    let [project_name, id_name] = names;
    let mut batches = read_columns_if(store, file, &names, id_name, &[id]).await?;
    let mut count = 0_usize;
    while let Some(batch) = batches.try_next().await? {
        let projects = batch.column_by_name(project_name);
        let projects = projects.and_then(|column| column.as_primitive_opt::<Int64Type>());
        let ids = batch.column_by_name(id_name).and_then(|column| column.as_string_opt::<i32>());
        let (Some(projects), Some(ids)) = (projects, ids) else {
            let detail = format!("{} has columns of other types", file.path);
            return Err(ParquetError::General(detail));
        };
        let is_it = |(own, value): &(Option<i64>, Option<&str>)| {
            *own == Some(project.0) && *value == Some(id)
        };
        count = count.saturating_add(projects.iter().zip(ids).filter(is_it).count());
    }
    Ok(count)
}

/// The same for rows in memory.
fn count(rows: &Rows, project: ProjectId, at: usize, id: &str) -> usize {
    let own = |at: usize| rows.columns.get(at).and_then(Option::as_ref);
    let projects =
        own(column::PROJECT_ID).and_then(|column| column.as_primitive_opt::<Int64Type>());
    let ids = own(at).and_then(|column| column.as_string_view_opt());
    let (Some(projects), Some(ids)) = (projects, ids) else { return 0 };
    (0..ids.len()).filter(|row| projects.value(*row) == project.0 && ids.value(*row) == id).count()
}
