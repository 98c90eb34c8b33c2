//! Actions: the lines of a commit and the rows of a checkpoint (Delta protocol, "Actions").
//!
//! Unknown actions and fields are ignored, as the protocol demands: what a reader must know comes
//! with a protocol version that is refused (`state`). Only what would make the rows wrong although
//! the protocol version is known is refused here.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::Serialize;
use serde::de::IgnoredAny;

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
    /// Of a commit only, never of a checkpoint.
    #[serde(rename = "commitInfo")]
    CommitInfo(CommitInfo),
}

/// What a reader and a writer must be able to do.
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

/// The format of data files. There is only Parquet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Format {
    pub(super) provider: String,
    #[serde(default)]
    pub(super) options: BTreeMap<String, Option<String>>,
}

/// A data file joins the table.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Add {
    /// Path in the table, plain. The log has it percent-encoded.
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
    /// Some rows of the file are deleted. A table with such a file is refused.
    #[serde(default, skip_serializing)]
    pub(super) deletion_vector: Option<IgnoredAny>,
}

/// A data file leaves the table.
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
    /// Whether partition values and size are there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) extended_file_metadata: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) partition_values: Option<BTreeMap<String, Option<String>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) size: Option<i64>,
}

impl Remove {
    /// No change of the data, and nothing said of the file but when it left.
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

/// How far an application has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Transaction {
    pub(super) app_id: String,
    pub(super) version: i64,
    /// Milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_updated: Option<i64>,
}

/// What a commit says of itself. Engines write into it what they like, so that only our own fields
/// are read, see [`Provenance`].
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
    /// Actions of the commit besides `commitInfo`: a file that was cut at the end of a line is told
    /// from a whole one.
    #[serde(rename = "weirActions")]
    pub(super) actions: Option<usize>,
    /// The [`sum`] of the lines behind `commitInfo`, which is the first: those of all other actions.
    /// Commits of older programs have none.
    #[serde(rename = "weirSum")]
    pub(super) sum: Option<String>,
}

impl Provenance {
    /// Of a commit with these other actions, encoded.
    pub(super) fn of(id: String, actions: usize, encoded: &str) -> Self {
        Self { id: Some(id), actions: Some(actions), sum: Some(sum(encoded.as_bytes())) }
    }
}

/// CRC-32C in hexadecimal digits. JSON would take many a flipped bit for another value.
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
    /// It is not what its writer wrote.
    Damaged(String),
    /// It is of a form that this program does not read.
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
    /// Part of a checkpoint whose files stand elsewhere.
    sidecar: Option<IgnoredAny>,
}

/// The text of a commit or a checkpoint: one JSON object a line.
pub(super) fn encode(actions: &[Action]) -> Result<String, String> {
    let mut text = String::new();
    for action in actions {
        text.push_str(&serde_json::to_string(action).map_err(|error| error.to_string())?);
        text.push('\n');
    }
    Ok(text)
}

/// Reads such a text. An error means that nothing of it may be used: a commit is atomic.
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
    use percent_encoding::AsciiSet;
    use percent_encoding::CONTROLS;
    use percent_encoding::percent_decode_str;
    use percent_encoding::utf8_percent_encode;
    use serde::Deserialize;
    use serde::Deserializer;
    use serde::Serializer;
    use serde::de::Error;

    /// What must not stand in a URI or ends its path. The rest, such as `/`, `=` and `:`, is read as
    /// it is by every engine, and `%` would begin an escape.
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
    fn damage_is_told_from_unknown_things() {
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

    /// Goal: no flipped bit of a commit makes another commit of it. What it says of itself may change,
    /// which nobody relies on.
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
        let said = |text: &[u8]| {
            let actions = decode(text).ok()?;
            let Actions { protocol, metadata, add, remove, transactions, .. } = actions;
            Some(format!("{protocol:?} {metadata:?} {add:?} {remove:?} {transactions:?}"))
        };
        let expected = said(whole.as_bytes()).expect("a commit");
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut text = whole.clone().into_bytes();
                text[at] ^= 1 << bit;
                let found = said(&text);
                assert!(found.is_none_or(|found| found == expected), "bit {bit} of byte {at}");
            }
        }
        // One of an older program.
        let info = r#"{"commitInfo":{"weirCommit":"x-1","weirActions":3}}"#;
        assert_eq!(said(format!("{info}\n{encoded}").as_bytes()), Some(expected));
    }
}
