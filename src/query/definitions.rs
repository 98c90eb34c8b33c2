//! The table `event_definitions` as a question sees it.

use std::sync::Arc;

use arrow::array::Array;
use arrow::array::ArrayRef;
use arrow::array::BooleanArray;
use arrow::array::RecordBatch;
use arrow::array::StringViewArray;
use arrow::array::TimestampMicrosecondArray;
use arrow::datatypes::Field;
use arrow::datatypes::Schema;
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;

use crate::event::id::ProjectId;
use crate::metadata::Metadata;
use crate::metadata::definitions::EventDefinition;
use crate::query::QueryError;

/// The definitions of `project`.
///
/// # Errors
///
/// The metadata store failed.
pub async fn table(
    metadata: &Metadata,
    project: ProjectId,
) -> Result<Arc<dyn TableProvider>, QueryError> {
    let definitions = metadata.definitions(project).await?;
    let batch = batch(&definitions)?;
    Ok(Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?))
}

fn batch(definitions: &[EventDefinition]) -> Result<RecordBatch, QueryError> {
    let text = |value: fn(&EventDefinition) -> String| -> ArrayRef {
        Arc::new(StringViewArray::from_iter_values(definitions.iter().map(value)))
    };
    let created = definitions.iter().map(|definition| definition.created_at.0);
    let created = TimestampMicrosecondArray::from_iter_values(created).with_timezone("UTC");
    let seen = definitions.iter().map(|definition| definition.last_seen_at.map(|at| at.0));
    let seen = TimestampMicrosecondArray::from_iter(seen).with_timezone("UTC");
    let slack = definitions.iter().map(|definition| Some(definition.post_to_slack));
    let tags = |definition: &EventDefinition| serde_json::json!(definition.tags).to_string();
    let columns: [(&str, ArrayRef); 6] = [
        ("id", text(|definition| definition.id.to_string())),
        ("name", text(|definition| definition.name.clone())),
        ("created_at", Arc::new(created)),
        ("last_seen_at", Arc::new(seen)),
        ("tags", text(tags)),
        ("post_to_slack", Arc::new(BooleanArray::from_iter(slack))),
    ];
    let field = |(name, column): &(&str, ArrayRef)| {
        Field::new(*name, column.data_type().clone(), *name == "last_seen_at")
    };
    let schema = Schema::new(columns.iter().map(field).collect::<Vec<_>>());
    let columns = columns.into_iter().map(|(_, column)| column).collect();
    RecordBatch::try_new(Arc::new(schema), columns)
        .map_err(|error| QueryError::Internal(error.into()))
}
