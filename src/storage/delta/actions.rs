//! Serialization of Delta actions: the lines of a commit and the rows of a checkpoint (Delta protocol,
//! "Actions").
//!
//! Unknown actions and fields are ignored, as the protocol requires: features that a reader must support
//! come with a protocol version that `state` rejects. This file rejects only features that would return
//! wrong rows although the protocol version is supported.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

/// One change of a table.
#[derive(Clone, Debug, Serialize)]
pub(super) enum Action {
    #[serde(rename = "protocol")]
    Protocol(Protocol),
    #[serde(rename = "metaData")]
    Metadata(Metadata),
    #[serde(rename = "add")]
    Add(Add),
    #[serde(rename = "remove")]
    Remove(Remove),
    #[serde(rename = "txn")]
    Transaction(Transaction),
    /// Only in commits, never in checkpoints.
    #[serde(rename = "commitInfo")]
    CommitInfo(CommitInfo),
}

/// Protocol versions that a reader and a writer must support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Protocol {
    pub(super) min_reader_version: i32,
    pub(super) min_writer_version: i32,
}

/// The columns and properties of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    pub(super) id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) description: Option<String>,
    pub(super) format: Format,
    /// See `types`.
    pub(super) schema_string: String,
    pub(super) partition_columns: Vec<String>,
    /// Milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) created_time: Option<i64>,
    #[serde(default)]
    pub(super) configuration: BTreeMap<String, Option<String>>,
}

/// The format of data files, always Parquet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Format {
    pub(super) provider: String,
    #[serde(default)]
    pub(super) options: BTreeMap<String, Option<String>>,
}

/// Adds a data file to the table.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Add {
    /// Path in the table, decoded. The log has it percent-encoded.
    #[serde(with = "percent_encoded")]
    pub(super) path: String,
    pub(super) partition_values: BTreeMap<String, Option<String>>,
    pub(super) size: i64,
    /// Milliseconds since 1970.
    pub(super) modification_time: i64,
    /// Whether the rows are new to the table.
    pub(super) data_change: bool,
    /// JSON text, see `stats`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stats: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tags: Option<BTreeMap<String, Option<String>>>,
    /// Present if some rows of the file are deleted. A table with such a file is rejected.
    #[serde(default, skip_serializing)]
    pub(super) deletion_vector: Option<IgnoredAny>,
}

/// Removes a data file from the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Remove {
    /// As in [`Add`].
    #[serde(with = "percent_encoded")]
    pub(super) path: String,
    /// Milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) deletion_timestamp: Option<i64>,
    pub(super) data_change: bool,
    /// Whether partition values and size are present.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) extended_file_metadata: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) partition_values: Option<BTreeMap<String, Option<String>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) size: Option<i64>,
}

impl Remove {
    /// A tombstone: no data change, only the path and the time of the removal.
    pub(super) fn bare(path: String, removed_at_millis: i64) -> Self {
        Self {
            path,
            deletion_timestamp: Some(removed_at_millis),
            data_change: false,
            extended_file_metadata: Some(false),
            partition_values: None,
            size: None,
        }
    }
}

/// The last transaction of an application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Transaction {
    pub(super) app_id: String,
    pub(super) version: i64,
    /// Milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_updated: Option<i64>,
}

/// Description of a commit. Its content differs by engine, so that only the fields of this program are
/// read, see [`Provenance`].
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CommitInfo {
    /// Milliseconds since 1970.
    pub(super) timestamp: i64,
    pub(super) operation: &'static str,
    pub(super) operation_parameters: BTreeMap<&'static str, &'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) read_version: Option<u64>,
    pub(super) is_blind_append: bool,
    pub(super) engine_info: &'static str,
    #[serde(flatten)]
    pub(super) provenance: Provenance,
}

/// The fields of `commitInfo` that only this program writes and reads.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Provenance {
    /// Unique id of the commit.
    #[serde(rename = "weirCommit")]
    pub(super) id: Option<String>,
    /// Number of actions of the commit without `commitInfo`, to detect a file that was cut at the end of a
    /// line.
    #[serde(rename = "weirActions")]
    pub(super) actions: Option<usize>,
    /// The [`sum`] of the lines after `commitInfo`, which is the first: those of all other actions. Commits
    /// of older versions of the program have none.
    #[serde(rename = "weirSum")]
    pub(super) sum: Option<String>,
}

impl Provenance {
    /// For a commit whose other actions have this encoding.
    pub(super) fn of(id: String, actions: usize, encoded: &str) -> Self {
        Self { id: Some(id), actions: Some(actions), sum: Some(sum(encoded.as_bytes())) }
    }
}

/// CRC-32C in hexadecimal digits. Without it, many flipped bits would read as another valid JSON value.
fn sum(text: &[u8]) -> String {
    format!("{:08x}", crc32c::crc32c(text))
}

/// The actions of one commit or checkpoint.
#[derive(Debug, Default)]
pub(super) struct Actions {
    pub(super) protocol: Option<Protocol>,
    pub(super) metadata: Option<Metadata>,
    pub(super) add: Vec<Add>,
    pub(super) remove: Vec<Remove>,
    pub(super) transactions: Vec<Transaction>,
    pub(super) provenance: Provenance,
}

/// Why a commit or a checkpoint cannot be read.
#[derive(Debug)]
pub(super) enum ReadError {
    /// The content is corrupt.
    Damaged(String),
    /// The content has a format that this program does not support.
    Unsupported(String),
}

/// One line: an object with one action under its name.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    protocol: Option<Protocol>,
    #[serde(rename = "metaData")]
    metadata: Option<Metadata>,
    add: Option<Add>,
    remove: Option<Remove>,
    txn: Option<Transaction>,
    commit_info: Option<Provenance>,
    /// Part of a checkpoint of version 2, whose files are listed in other files.
    sidecar: Option<IgnoredAny>,
}

/// Encodes a commit or a checkpoint: one JSON object per line.
pub(super) fn encode(actions: &[Action]) -> Result<String, String> {
    let mut text = String::new();
    for action in actions {
        text.push_str(&serde_json::to_string(action).map_err(|error| error.to_string())?);
        text.push('\n');
    }
    Ok(text)
}

/// Decodes a commit or a checkpoint. After an error no part of it may be used: a commit is atomic.
pub(super) fn decode(text: &[u8]) -> Result<Actions, ReadError> {
    let mut actions = Actions::default();
    let (mut lines, mut known) = (0_usize, 0_usize);
    let mut read = serde_json::Deserializer::from_slice(text).into_iter::<Line>();
    while let Some(line) = read.next() {
        let line = line.map_err(|error| ReadError::Damaged(error.to_string()))?;
        lines += 1;
        if line.sidecar.is_some() {
            return Err(ReadError::Unsupported("a checkpoint of version 2".to_owned()));
        }
        if let Some(info) = line.commit_info {
            if let Some(written) = &info.sum {
                let rest = text.get(read.byte_offset()..).unwrap_or_default();
                let rest = rest.strip_prefix(b"\n").unwrap_or(rest);
                if known > 0 || *written != sum(rest) {
                    return Err(ReadError::Damaged("it does not have its checksum".to_owned()));
                }
            }
            actions.provenance = info;
        } else {
            known += 1;
        }
        actions.protocol = line.protocol.or(actions.protocol);
        actions.metadata = line.metadata.or(actions.metadata);
        actions.add.extend(line.add);
        actions.remove.extend(line.remove);
        actions.transactions.extend(line.txn);
    }
    if lines == 0 {
        return Err(ReadError::Damaged("it is empty".to_owned()));
    }
    match actions.provenance.actions {
        Some(written) if written != known => {
            Err(ReadError::Damaged(format!("it has {known} of {written} actions")))
        }
        _ => Ok(actions),
    }
}

/// Paths are relative references of RFC 2396 in the log.
mod percent_encoded {
    use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Characters that are not allowed in the path of a URI, and `%`, which starts an escape. Every engine
    /// reads the others, such as `/`, `=` and `:`, unchanged.
    const ESCAPED: &AsciiSet = &CONTROLS
        .add(b' ')
        .add(b'"')
        .add(b'#')
        .add(b'%')
        .add(b'*')
        .add(b'<')
        .add(b'>')
        .add(b'?')
        .add(b'[')
        .add(b'\\')
        .add(b']')
        .add(b'^')
        .add(b'`')
        .add(b'{')
        .add(b'|')
        .add(b'}');

    pub(super) fn serialize<S: Serializer>(path: &str, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&utf8_percent_encode(path, ESCAPED))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<String, D::Error> {
        let encoded = String::deserialize(deserializer)?;
        let decoded = percent_decode_str(&encoded).decode_utf8().map_err(D::Error::custom)?;
        Ok(decoded.into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the protocol document, with actions and fields that this program does not know.
    const OTHERS: &str = r#"
        {"commitInfo":{"timestamp":1515491537026,"operation":"WRITE","readVersion":-1,"userName":"x"}}
        {"add":{"path":"date=2017-12-10/part-000%20a.gz.parquet","partitionValues":{"date":"2017-12-10"},
            "size":841454,"modificationTime":1512909768000,"dataChange":true,"baseRowId":4071,
            "stats":"{\"numRecords\":1}","tags":null,"clusteringProvider":"x","deletionVector":null}}
        {"remove":{"path":"part-00001-9.parquet","deletionTimestamp":1515488792485,"dataChange":true,
            "stats":"{}","defaultRowCommitVersion":11}}
        {"txn":{"appId":"3ba13872-2d47-4e17-86a0-21afd2a22395","version":364475}}
        {"cdc":{"path":"_change_data/cdc-1.parquet","partitionValues":{},"size":1213,"dataChange":false}}
        {"domainMetadata":{"domain":"delta.constraints","configuration":"{}","removed":false}}
        {"of the future":[1,{"a":2}]}
        "#;

    #[test]
    fn what_others_write_is_read() {
        let actions = decode(OTHERS.as_bytes()).expect("a commit");
        let [add] = actions.add.as_slice() else { panic!("one file") };
        assert_eq!(add.path, "date=2017-12-10/part-000 a.gz.parquet");
        assert_eq!(add.partition_values["date"].as_deref(), Some("2017-12-10"));
        assert!(add.deletion_vector.is_none() && add.tags.is_none());
        let [remove] = actions.remove.as_slice() else { panic!("one tombstone") };
        assert_eq!(remove.deletion_timestamp, Some(1_515_488_792_485));
        assert_eq!(actions.transactions[0].version, 364_475);
        assert!(actions.protocol.is_none() && actions.metadata.is_none());
        assert!(actions.provenance.id.is_none());
    }

    #[test]
    fn paths_survive() {
        for path in [
            "month=2026-11/part-1.parquet",
            "a b/c%20d#e?f.parquet",
            "\u{fc}\u{1F600}[]{}^`\\\"<>|*\n",
            "a:b@c&d+e~f!g'(h)$,;=",
        ] {
            let remove = Remove {
                path: path.to_owned(),
                deletion_timestamp: Some(1),
                data_change: true,
                extended_file_metadata: None,
                partition_values: None,
                size: None,
            };
            let text = encode(&[Action::Remove(remove.clone())]).expect("a text");
            let uri = text.split('"').nth(5).expect("the path");
            let is_uri = |c: char| c.is_ascii_graphic() && !"\"#<>?[\\]^`{|}".contains(c);
            assert!(uri.chars().all(is_uri), "{uri}");
            assert_eq!(decode(text.as_bytes()).expect("a commit").remove, [remove]);
        }
    }

    #[test]
    fn damage_is_distinguished_from_unknown_fields() {
        let info =
            |actions| format!(r#"{{"commitInfo":{{"weirCommit":"x-1","weirActions":{actions}}}}}"#);
        let txn = r#"{"txn":{"appId":"a","version":1}}"#;
        for whole in [format!("{}\n{txn}\n{txn}\n", info(2)), format!("{txn}\n{}", info(1))] {
            let actions = decode(whole.as_bytes()).expect("a commit");
            assert_eq!(actions.provenance.id.as_deref(), Some("x-1"));
        }
        for (text, why) in [
            (String::new(), "empty"),
            ("\n \n".to_owned(), "nothing but white space"),
            ("\0\0\0\0".to_owned(), "zeroes"),
            (format!("{}\n{txn}\n", info(2)), "cut at the end of a line"),
            (format!("{}\n", info(1)), "the same"),
            (format!("{}\n{txn}\n{}", info(2), &txn[..20]), "cut inside of a line"),
            (r#"{"txn":{"appId":"a"}}"#.to_owned(), "a field is missing"),
            (r#"{"add":{"path":"a%FF","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true}}"#.to_owned(), "no text"),
            ("[1]".to_owned(), "no object"),
        ] {
            let error = decode(text.as_bytes()).expect_err(why);
            assert!(matches!(error, ReadError::Damaged(_)), "{why}: {error:?}");
        }
        let sidecar = r#"{"sidecar":{"path":"a.parquet","sizeInBytes":1,"modificationTime":1}}"#;
        let error = decode(sidecar.as_bytes()).expect_err("files elsewhere");
        assert!(matches!(error, ReadError::Unsupported(_)), "{error:?}");
    }

    /// Goal: no flipped bit turns a commit into another valid commit. Its description may change, which
    /// nothing depends on.
    #[test]
    fn no_flipped_bit_is_read() {
        let transaction =
            Transaction { app_id: "node/1".to_owned(), version: 1_234_567, last_updated: Some(9) };
        let add = Add {
            path: "month=2026-11/a b.parquet".to_owned(),
            partition_values: BTreeMap::from([("month".to_owned(), Some("2026-11".to_owned()))]),
            size: 12,
            modification_time: 5,
            data_change: true,
            stats: Some(r#"{"numRecords":3,"minValues":{"id":1},"maxValues":{"id":5}}"#.to_owned()),
            tags: None,
            deletion_vector: None,
        };
        let others = [
            Action::Add(add),
            Action::Remove(Remove::bare("b.parquet".to_owned(), 7)),
            Action::Transaction(transaction),
        ];
        let encoded = encode(&others).expect("a text");
        let info = CommitInfo {
            timestamp: 1,
            operation: "WRITE",
            operation_parameters: BTreeMap::new(),
            read_version: Some(3),
            is_blind_append: true,
            engine_info: "weir/0",
            provenance: Provenance::of("x-1".to_owned(), others.len(), &encoded),
        };
        let whole = encode(&[Action::CommitInfo(info)]).expect("a text") + &encoded;
        let decoded = |text: &[u8]| {
            let actions = decode(text).ok()?;
            let Actions { protocol, metadata, add, remove, transactions, .. } = actions;
            Some(format!("{protocol:?} {metadata:?} {add:?} {remove:?} {transactions:?}"))
        };
        let expected = decoded(whole.as_bytes()).expect("a commit");
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut text = whole.clone().into_bytes();
                text[at] ^= 1 << bit;
                let found = decoded(&text);
                assert!(found.is_none_or(|found| found == expected), "bit {bit} of byte {at}");
            }
        }
        // A commit of an older version of the program.
        let info = r#"{"commitInfo":{"weirCommit":"x-1","weirActions":3}}"#;
        assert_eq!(decoded(format!("{info}\n{encoded}").as_bytes()), Some(expected));
    }
}
