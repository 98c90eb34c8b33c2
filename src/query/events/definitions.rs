//! Metadata store tables as seen by queries: `event_definitions`, `property_definitions`, `event_properties` and
//! `ingestion_warnings`. Rows are read page by page, and only if a query scans the table: a project may have very many
//! definitions.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Int64Array, RecordBatch, StringViewArray,
    TimestampMicrosecondArray,
};
use arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::streaming::PartitionStream;
use tokio::sync::mpsc::Sender;

use crate::kernel::error::QueryError;
use weir_event::dictionary;
use weir_event::id::ProjectId;
use weir_metadata::Metadata;
use weir_metadata::definitions::EventDefinition;
use weir_metadata::error::MetadataError;
use weir_metadata::properties::{PropertyDefinition, ValueType};
use weir_metadata::warnings::{DayOfWarnings, samples_json};

/// Rows per page.
const PAGE_ROWS: u32 = 2048;

/// A table and its name.
pub type Named = (&'static str, Arc<dyn TableProvider>);

/// The definition tables of `project`.
///
/// # Errors
///
/// DataFusion refuses one: a bug.
pub fn definition_tables(
    metadata: &Metadata,
    project: ProjectId,
) -> Result<Vec<Named>, QueryError> {
    let mut tables: Vec<Named> = Vec::new();
    for (kind, table) in [
        (Kind::Events, dictionary::EVENT_DEFINITIONS),
        (Kind::Properties, dictionary::PROPERTY_DEFINITIONS),
        (Kind::Pairs, dictionary::EVENT_PROPERTIES),
        (Kind::Warnings, dictionary::INGESTION_WARNINGS),
    ] {
        let schema = table.sql_schema();
        let metadata = metadata.clone();
        let listing = Listing { kind, schema: Arc::clone(&schema), metadata, project };
        let streamed = StreamingTable::try_new(schema, vec![Arc::new(listing)])?;
        tables.push((table.name, Arc::new(streamed)));
    }
    Ok(tables)
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Events,
    Properties,
    Pairs,
    Warnings,
}

#[derive(Clone, Debug)]
struct Listing {
    kind: Kind,
    schema: SchemaRef,
    metadata: Metadata,
    project: ProjectId,
}

impl PartitionStream for Listing {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut builder = RecordBatchReceiverStreamBuilder::new(Arc::clone(&self.schema), 2);
        let out = Out { schema: Arc::clone(&self.schema), sender: builder.tx() };
        let listing = self.clone();
        builder.spawn(async move {
            let Listing { kind, metadata, project, .. } = listing;
            let read = match kind {
                Kind::Events => events(&metadata, project, &out).await,
                Kind::Properties => properties(&metadata, project, &out).await,
                Kind::Pairs => pairs(&metadata, project, &out).await,
                Kind::Warnings => warnings(&metadata, project, &out).await,
            };
            read.map_err(|error| DataFusionError::External(Box::new(error)))
        });
        builder.build()
    }
}

/// Destination of batches.
struct Out {
    schema: SchemaRef,
    sender: Sender<datafusion::error::Result<RecordBatch>>,
}

impl Out {
    /// Sends a batch; `false` once the receiver is gone.
    async fn send(&self, columns: Vec<ArrayRef>) -> bool {
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns);
        self.sender.send(batch.map_err(DataFusionError::from)).await.is_ok()
    }
}

async fn events(metadata: &Metadata, project: ProjectId, out: &Out) -> Result<(), MetadataError> {
    let mut after = String::new();
    loop {
        let page = metadata.definitions(project, &after, PAGE_ROWS).await?;
        match page.last() {
            Some(last) => after.clone_from(&last.name),
            None => return Ok(()),
        }
        if !out.send(events_batch(&page)).await {
            return Ok(());
        }
    }
}

fn events_batch(page: &[EventDefinition]) -> Vec<ArrayRef> {
    let seen = page.iter().map(|definition| definition.last_seen_at.map(|at| at.0));
    let slack = page.iter().map(|definition| Some(definition.post_to_slack));
    let tags = |one: &EventDefinition| serde_json::json!(one.tags).to_string();
    vec![
        texts(page, |one| one.id.to_string()),
        texts(page, |one| one.name.clone()),
        times(page, |one| one.created_at.0),
        Arc::new(TimestampMicrosecondArray::from_iter(seen).with_timezone("UTC")),
        texts(page, tags),
        Arc::new(BooleanArray::from_iter(slack)),
    ]
}

async fn properties(
    metadata: &Metadata,
    project: ProjectId,
    out: &Out,
) -> Result<(), MetadataError> {
    let mut after: Option<PropertyDefinition> = None;
    loop {
        let page = metadata.property_definitions(project, after.as_ref(), PAGE_ROWS).await?;
        if page.is_empty() || !out.send(properties_batch(&page)).await {
            return Ok(());
        }
        after = page.into_iter().next_back();
    }
}

fn properties_batch(page: &[PropertyDefinition]) -> Vec<ArrayRef> {
    let index = page.iter().map(|one| one.kind.group_type_index().map(i64::from));
    let numerical = page.iter().map(|one| Some(one.is_numerical()));
    let types = page.iter().map(|one| one.value_type.map(ValueType::name));
    vec![
        texts(page, |one| one.id.to_string()),
        texts(page, |one| one.name.clone()),
        texts(page, |one| one.kind.name().to_owned()),
        Arc::new(Int64Array::from_iter(index)),
        Arc::new(BooleanArray::from_iter(numerical)),
        Arc::new(StringViewArray::from_iter(types)),
        texts(page, |one| serde_json::json!(one.tags).to_string()),
    ]
}

async fn pairs(metadata: &Metadata, project: ProjectId, out: &Out) -> Result<(), MetadataError> {
    let mut after: Option<(String, String)> = None;
    loop {
        let page = metadata.event_properties(project, after.as_ref(), PAGE_ROWS).await?;
        let columns =
            vec![texts(&page, |(event, _)| event.clone()), texts(&page, |(_, key)| key.clone())];
        if page.is_empty() || !out.send(columns).await {
            return Ok(());
        }
        after = page.into_iter().next_back();
    }
}

/// There are few rows: one per kind and day.
async fn warnings(metadata: &Metadata, project: ProjectId, out: &Out) -> Result<(), MetadataError> {
    let days = metadata.warnings(project).await?;
    let date = |one: &DayOfWarnings| i32::try_from(one.day).unwrap_or(i32::MAX);
    let count = |one: &DayOfWarnings| i64::try_from(one.count).unwrap_or(i64::MAX);
    let columns: Vec<ArrayRef> = vec![
        texts(&days, |one| one.kind.clone()),
        Arc::new(Date32Array::from_iter_values(days.iter().map(date))),
        Arc::new(Int64Array::from_iter_values(days.iter().map(count))),
        times(&days, |one| one.first_seen_at.0),
        times(&days, |one| one.last_seen_at.0),
        texts(&days, |one| samples_json(&one.samples)),
    ];
    out.send(columns).await;
    Ok(())
}

fn texts<T>(rows: &[T], value: impl Fn(&T) -> String) -> ArrayRef {
    Arc::new(StringViewArray::from_iter_values(rows.iter().map(value)))
}

fn times<T>(rows: &[T], micros: impl Fn(&T) -> i64) -> ArrayRef {
    let times = TimestampMicrosecondArray::from_iter_values(rows.iter().map(micros));
    Arc::new(times.with_timezone("UTC"))
}
