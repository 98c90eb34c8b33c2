//! Serialization of checkpoints: the whole table at one version as a Parquet file with one action per row,
//! in the form that every engine reads ("classic", Delta protocol, "Checkpoints"), with the `checksums` of
//! data files. Bytes only; `log` has names and puts.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::json::{LineDelimitedWriter, ReaderBuilder};
use bytes::Bytes;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use serde::{Deserialize, Serialize};

use crate::checksums;
use crate::delta::actions::Action;
use crate::delta::types::map_type;

/// The actions that make up the table, and `sidecar`, which refers to actions in other files.
const COLUMNS: [&str; 6] = ["protocol", "metaData", "add", "remove", "txn", "sidecar"];

/// Actions per batch that is converted to columns. Bounds the memory in addition to the file.
const BATCH_ROWS: usize = 4_096;

/// Contents of `_last_checkpoint`: the version at which a reader may start without listing the log.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Hint {
    pub(super) version: u64,
    /// Number of actions of the checkpoint.
    #[serde(default)]
    size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    size_in_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    num_of_add_files: Option<u64>,
}

impl Hint {
    /// For the checkpoint of `version` with these actions and this length.
    pub(super) fn of(version: u64, actions: &[Action], bytes: usize) -> Self {
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let adds = actions.iter().filter(|action| matches!(action, Action::Add(_)));
        Self {
            version,
            size: count(actions.len()),
            size_in_bytes: Some(count(bytes)),
            num_of_add_files: Some(count(adds.count())),
        }
    }

    /// Parses the file; `None` if it is invalid: it is only a hint.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }

    pub(super) fn to_json(&self) -> Result<String, String> {
        serde_json::to_string(self).map_err(|error| error.to_string())
    }
}

/// Encodes these actions as a Parquet file. CPU-bound; do not call it on a thread of a runtime.
pub(super) fn encode(actions: &[Action]) -> Result<Vec<u8>, ParquetError> {
    let schema = schema();
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), Arc::clone(&schema), Some(properties))?;
    for actions in actions.chunks(BATCH_ROWS) {
        if let Some(batch) = columns(actions, &schema)? {
            writer.write(&batch)?;
        }
    }
    let parquet = writer.into_inner()?;
    let no_footer = || ParquetError::General("a checkpoint without a footer".to_owned());
    checksums::with_section(&parquet).ok_or_else(no_footer)
}

fn columns(actions: &[Action], schema: &SchemaRef) -> Result<Option<RecordBatch>, ArrowError> {
    let mut decoder =
        ReaderBuilder::new(Arc::clone(schema)).with_batch_size(BATCH_ROWS).build_decoder()?;
    decoder.serialize(actions)?;
    decoder.flush()
}

/// Decodes a Parquet file to the form of a commit, one JSON object per line. An error describes the damage;
/// without checksums the Parquet library may panic on a damaged file. CPU-bound; do not call it on a thread
/// of a runtime.
pub(super) fn decode(parquet: Bytes) -> Result<Vec<u8>, String> {
    checksums::check_whole(&parquet)?;
    lines(parquet).map_err(|error| error.to_string())
}

fn lines(parquet: Bytes) -> Result<Vec<u8>, ParquetError> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(parquet)?;
    let columns = builder.schema().fields().iter().enumerate();
    let wanted: Vec<usize> = columns
        .filter(|(_, field)| COLUMNS.contains(&field.name().as_str()))
        .map(|(index, _)| index)
        .collect();
    let mask = ProjectionMask::roots(builder.parquet_schema(), wanted);
    let mut writer = LineDelimitedWriter::new(Vec::new());
    for batch in builder.with_projection(mask).build()? {
        writer.write(&batch?)?;
    }
    writer.finish()?;
    let lines = writer.into_inner();
    // Rows of other actions have become empty objects.
    let lines: Vec<&[u8]> =
        lines.split(|byte| *byte == b'\n').filter(|line| *line != b"{}").collect();
    Ok(lines.join(&b'\n'))
}

/// One column per kind of action, null in the rows of other kinds. Contains only the fields of reader
/// version 1 and writer version 2.
fn schema() -> SchemaRef {
    let required = |name: &str, kind: DataType| Field::new(name, kind, false);
    let optional = |name: &str, kind: DataType| Field::new(name, kind, true);
    let text_map = || map_type(DataType::Utf8, DataType::Utf8, true);
    let texts = DataType::List(Arc::new(required("element", DataType::Utf8)));
    let action =
        |name: &str, fields: Vec<Field>| optional(name, DataType::Struct(Fields::from(fields)));
    let format = vec![required("provider", DataType::Utf8), required("options", text_map())];
    Arc::new(Schema::new(vec![
        action(
            "txn",
            vec![
                required("appId", DataType::Utf8),
                required("version", DataType::Int64),
                optional("lastUpdated", DataType::Int64),
            ],
        ),
        action(
            "add",
            vec![
                required("path", DataType::Utf8),
                required("partitionValues", text_map()),
                required("size", DataType::Int64),
                required("modificationTime", DataType::Int64),
                required("dataChange", DataType::Boolean),
                optional("stats", DataType::Utf8),
                optional("tags", text_map()),
            ],
        ),
        action(
            "remove",
            vec![
                required("path", DataType::Utf8),
                optional("deletionTimestamp", DataType::Int64),
                required("dataChange", DataType::Boolean),
                optional("extendedFileMetadata", DataType::Boolean),
                optional("partitionValues", text_map()),
                optional("size", DataType::Int64),
            ],
        ),
        action(
            "metaData",
            vec![
                required("id", DataType::Utf8),
                optional("name", DataType::Utf8),
                optional("description", DataType::Utf8),
                required("format", DataType::Struct(Fields::from(format))),
                required("schemaString", DataType::Utf8),
                required("partitionColumns", texts),
                optional("createdTime", DataType::Int64),
                required("configuration", text_map()),
            ],
        ),
        action(
            "protocol",
            vec![
                required("minReaderVersion", DataType::Int32),
                required("minWriterVersion", DataType::Int32),
            ],
        ),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delta::actions;
    use crate::delta::actions::{Add, Format, Metadata, Protocol, Remove, Transaction};

    fn texts(pairs: &[(&str, Option<&str>)]) -> std::collections::BTreeMap<String, Option<String>> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), v.map(str::to_owned))).collect()
    }

    #[test]
    fn every_action_survives() {
        let protocol = Protocol { min_reader_version: 1, min_writer_version: 2 };
        let metadata = Metadata {
            id: "an id".to_owned(),
            name: None,
            description: Some("of \"others\"".to_owned()),
            format: Format { provider: "parquet".to_owned(), options: texts(&[("a", Some("b"))]) },
            schema_string: "{}".to_owned(),
            partition_columns: vec!["month".to_owned()],
            created_time: Some(1),
            configuration: texts(&[("delta.appendOnly", Some("false")), ("x", Some(""))]),
        };
        let add = |n: usize| Add {
            path: format!("month=2026-11/{n} %.parquet"),
            partition_values: texts(&[("month", Some("2026-11"))]),
            size: i64::MAX,
            modification_time: -1,
            data_change: false,
            stats: n.is_multiple_of(2).then(|| format!(r#"{{"numRecords":{n}}}"#)),
            tags: n.is_multiple_of(3).then(|| texts(&[("k", Some("v"))])),
            deletion_vector: None,
        };
        let remove = Remove {
            path: "gone.parquet".to_owned(),
            deletion_timestamp: Some(7),
            data_change: false,
            extended_file_metadata: Some(true),
            partition_values: Some(texts(&[("month", Some("2026-10"))])),
            size: Some(3),
        };
        let bare = Remove {
            deletion_timestamp: None,
            partition_values: None,
            size: None,
            extended_file_metadata: None,
            ..remove.clone()
        };
        let transaction = |last_updated| Transaction {
            app_id: "node/1".to_owned(),
            version: i64::MIN,
            last_updated,
        };
        let mut all = vec![
            Action::Protocol(protocol),
            Action::Metadata(metadata.clone()),
            Action::Remove(remove.clone()),
            Action::Remove(bare.clone()),
            Action::Transaction(transaction(Some(5))),
            Action::Transaction(transaction(None)),
        ];
        // More than one batch.
        let files = BATCH_ROWS + 10;
        all.extend((0..files).map(|n| Action::Add(add(n))));

        let parquet = encode(&all).expect("a checkpoint");
        let hint = Hint::of(9, &all, parquet.len());
        let lines = decode(parquet.into()).expect("lines");
        let read = actions::decode(&lines).expect("actions");
        assert_eq!(read.protocol, Some(protocol));
        assert_eq!(read.metadata, Some(metadata));
        assert_eq!(read.remove, [remove, bare]);
        assert_eq!(read.transactions, [transaction(Some(5)), transaction(None)]);
        assert_eq!(read.add.len(), files);
        for (n, found) in read.add.iter().enumerate() {
            assert_eq!(format!("{found:?}"), format!("{:?}", add(n)));
        }

        let text = hint.to_json().expect("a text");
        assert_eq!(Hint::parse(text.as_bytes()), Some(hint));
        let json: serde_json::Value = serde_json::from_str(&text).expect("json");
        assert_eq!((&json["version"], &json["size"]), (&9.into(), &(files + 6).into()));
        assert_eq!(json["numOfAddFiles"], files);
        assert_eq!(Hint::parse(b"{"), None);
        assert!(Hint::parse(br#"{"version":3,"size":-1}"#).is_none());
    }

    #[test]
    fn what_is_no_checkpoint_is_an_error() {
        let whole =
            encode(&[Action::Protocol(Protocol { min_reader_version: 1, min_writer_version: 2 })]);
        let whole = Bytes::from(whole.expect("a checkpoint"));
        decode(whole.clone()).expect("lines");
        for (bytes, why) in [
            (Bytes::new(), "empty"),
            (whole.slice(..whole.len() - 1), "cut"),
            (Bytes::from(vec![0; whole.len()]), "zeroes"),
        ] {
            decode(bytes).expect_err(why);
        }
    }

    /// Goal: no flipped bit turns a checkpoint into that of another table.
    #[test]
    fn no_flipped_bit_is_read() {
        let protocol = Protocol { min_reader_version: 1, min_writer_version: 2 };
        let version = 1_234_567;
        let transaction = Transaction { app_id: "node/1".to_owned(), version, last_updated: None };
        let all = [Action::Protocol(protocol), Action::Transaction(transaction)];
        let whole = encode(&all).expect("a checkpoint");
        let expected = decode(whole.clone().into()).expect("lines");
        let mut read = 0;
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            let Ok(found) = decode(bytes.into()) else { continue };
            assert!(found == expected, "byte {at}");
            read += 1;
        }
        // Without the marker of the checksum section there are no checksums.
        assert!(read <= 8, "{read}");
    }
}
