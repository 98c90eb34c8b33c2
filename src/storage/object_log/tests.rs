//! A log in an in-memory store: records, truncation, damage. Several writers are in the modules.

mod explored;
mod faults;
mod followed;
mod gated;

use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::runtime::Handle;
use uuid::Uuid;

use crate::object_log::format::path_of;
use crate::object_log::list::ObjectFiles;
use crate::object_log::writer::ObjectLog;
use crate::object_log::{ObjectLogSettings, Pauses};
use crate::wal::reader::Item;
use crate::wal::{Damage, Elsewhere, Sequence, WalError};

/// Payload of claims.
const CLAIM: &[u8] = b"claim";

fn settings(objects: &Arc<dyn ObjectStore>, writer: u128, durable: u64) -> ObjectLogSettings {
    ObjectLogSettings {
        objects: Arc::clone(objects),
        writer: Uuid::from_u128(writer),
        claim: Bytes::from_static(CLAIM),
        elsewhere: Elsewhere::up_to(Sequence(durable)),
        had_by_all: Sequence(durable),
        pauses: Pauses::new(|_| Box::pin(std::future::ready(true))),
        doubt: Arc::new(|_| ()),
    }
}

async fn claim(objects: &Arc<dyn ObjectStore>, writer: u128, durable: u64) -> ObjectLog {
    let log = ObjectLog::claim(settings(objects, writer, durable), Handle::current()).await;
    log.expect("the log opens")
}

/// The log as a reader opens it, of which all stores have the records up to `had_by_all`.
async fn read_only(
    objects: &Arc<dyn ObjectStore>,
    elsewhere: Elsewhere,
    had_by_all: u64,
) -> ObjectLog {
    let (had_by_all, runtime) = (Sequence(had_by_all), Handle::current());
    let pauses = settings(objects, 9, 0).pauses;
    let log = ObjectLog::read(Arc::clone(objects), elsewhere, had_by_all, pauses, runtime).await;
    log.expect("the log opens")
}

/// Appends records and puts them together. Returns the sequence of the last one.
async fn put(log: &mut ObjectLog, payloads: &[&str]) -> Result<Sequence, WalError> {
    for payload in payloads {
        let (head, rest) = payload.as_bytes().split_at(payload.len() / 2);
        log.append(&[head, rest])?;
    }
    log.put().await?;
    Ok(log.last_appended())
}

/// Everything that a reader finds after `after`: payloads as text, damage as its range.
async fn read(files: &ObjectFiles, after: u64, until: Sequence) -> Vec<(u64, String)> {
    let mut reader = files.reader(Sequence(after));
    let mut found = Vec::new();
    while let Some(item) = reader.next(until).await.expect("an item") {
        found.push(match item {
            Item::Record { sequence, payload } => {
                (sequence.0, String::from_utf8(payload).expect("a text"))
            }
            Item::Corrupt(corruption) => match corruption.damage {
                Damage::Lost { first, last } => (first.0, format!("lost to {last}")),
                other => panic!("{other:?}"),
            },
        });
    }
    found
}

async fn names(objects: &Arc<dyn ObjectStore>) -> Vec<u64> {
    let listed: Vec<_> = objects.list(None).try_collect().await.expect("a list");
    let number = |path: &str| path.strip_prefix("log/").expect("of the log").parse();
    let mut names: Vec<u64> =
        listed.iter().map(|object| number(object.location.as_ref()).expect("a number")).collect();
    names.sort_unstable();
    names
}

fn in_memory() -> Arc<dyn ObjectStore> {
    Arc::new(InMemory::new())
}

fn texts(expected: &[(u64, &str)]) -> Vec<(u64, String)> {
    expected.iter().map(|(sequence, text)| (*sequence, (*text).to_owned())).collect()
}

#[tokio::test]
async fn records_are_read_as_they_were_appended() {
    let objects = in_memory();
    let mut log = claim(&objects, 1, 0).await;
    assert_eq!(log.last_appended(), Sequence(1), "the claim");
    let large = "x".repeat(300_000);
    assert_eq!(put(&mut log, &["a", "b", ""]).await.unwrap(), Sequence(4));
    assert_eq!(put(&mut log, &[&large]).await.unwrap(), Sequence(5));
    log.put().await.expect("nothing to put");
    assert_eq!(put(&mut log, &["c"]).await.unwrap(), Sequence(6));
    assert_eq!(names(&objects).await, [1, 2, 5, 6]);
    let all = [(1, "claim"), (2, "a"), (3, "b"), (4, ""), (5, &large), (6, "c")];
    assert_eq!(read(log.files(), 0, Sequence(6)).await, texts(&all));
    assert_eq!(read(log.files(), 2, Sequence(4)).await, texts(&all[2..4]), "a part of an object");
    let mut next = claim(&objects, 2, 3).await;
    assert_eq!(next.last_appended(), Sequence(7));
    assert_eq!(put(&mut next, &["d"]).await.unwrap(), Sequence(8));
    let tail = [(4, ""), (5, &*large), (6, "c"), (7, "claim"), (8, "d")];
    assert_eq!(read(next.files(), 3, Sequence(8)).await, texts(&tail));
    let sizes: Vec<_> = objects.list(None).try_collect().await.expect("a list");
    let bytes: u64 = sizes.iter().map(|object| object.size).sum();
    assert_eq!(next.files().size_bytes(), bytes);
    // What the former writer appends now goes nowhere.
    assert!(matches!(put(&mut log, &["late"]).await, Err(WalError::Fenced)));
    assert!(matches!(log.append(&[b"later"]), Err(WalError::Fenced)), "for good");
    assert!(matches!(log.rivals().look().await, Err(WalError::Fenced)));
    next.rivals().look().await.expect("no rival");
    assert_eq!(names(&objects).await, [1, 2, 5, 6, 7, 8]);
}

#[tokio::test]
async fn claims_and_the_newest_object_stay() {
    let objects = in_memory();
    let mut log = claim(&objects, 1, 0).await;
    for payloads in [&["a", "b"][..], &["c"], &["d", "e"]] {
        put(&mut log, payloads).await.unwrap();
    }
    assert_eq!(names(&objects).await, [1, 2, 4, 5]);
    let files = log.files().clone();
    assert_eq!(files.truncate_through(Sequence(2)).await.unwrap(), 0, "a part of an object");
    assert_eq!(files.before_oldest(), Sequence(0));
    assert!(files.truncate_through(Sequence(3)).await.unwrap() > 0);
    assert_eq!(names(&objects).await, [1, 4, 5]);
    assert_eq!(files.before_oldest(), Sequence(3));
    let mut truncated = files.reader(Sequence(1));
    let gone = truncated.next(Sequence(6)).await;
    assert!(matches!(gone, Err(WalError::Truncated { wanted: Sequence(2), .. })), "{gone:?}");
    assert_eq!(read(&files, 3, Sequence(6)).await, texts(&[(4, "c"), (5, "d"), (6, "e")]));
    files.truncate_through(Sequence(6)).await.unwrap();
    assert_eq!(names(&objects).await, [1, 5]);
    // The next one does not know which of them are claims.
    let mut next = claim(&objects, 2, 6).await;
    assert_eq!(next.files().before_oldest(), Sequence(6), "the claim is the next one");
    put(&mut next, &["f"]).await.unwrap();
    next.files().truncate_through(Sequence(8)).await.unwrap();
    assert_eq!(names(&objects).await, [1, 7, 8]);
    assert_eq!(next.files().truncate_through(Sequence(8)).await.unwrap(), 0);
}

#[tokio::test]
async fn damage_is_reported_and_hides_nothing_else() {
    let objects = in_memory();
    let mut log = claim(&objects, 1, 0).await;
    for payloads in [&["a", "b", "c"][..], &["d"], &["e"], &["f", "g"]] {
        put(&mut log, payloads).await.unwrap();
    }
    let change = async |first: u64, at: usize| {
        let path = path_of(Sequence(first));
        let bytes = objects.get(&path).await.unwrap().bytes().await.unwrap();
        let mut bytes = bytes.to_vec();
        bytes[at] ^= 1;
        objects.put(&path, bytes.into()).await.unwrap();
    };
    // The payload of b; the header of the object with e.
    change(2, 48 + 28 + 1 + 28).await;
    change(6, 9).await;
    objects.delete(&path_of(Sequence(5))).await.unwrap();
    let expected = [
        (1, "claim"),
        (2, "a"),
        (3, "lost to 4"),
        (5, "lost to 5"),
        (6, "lost to 6"),
        (7, "f"),
        (8, "g"),
    ];
    assert_eq!(read(log.files(), 0, Sequence(8)).await, texts(&expected), "as it was known");
    let next = claim(&objects, 2, 1).await;
    let mut again = texts(&expected);
    again.push((9, "claim".to_owned()));
    assert_eq!(read(next.files(), 0, Sequence(9)).await, again, "as it was found");
    // Whether a damaged object is a claim is unknown, so it stays.
    next.files().truncate_through(Sequence(9)).await.unwrap();
    assert_eq!(names(&objects).await, [1, 6, 9]);
}

#[tokio::test]
async fn a_log_begins_behind_what_other_stores_have() {
    let objects = in_memory();
    let log = claim(&objects, 1, 40).await;
    assert_eq!((log.last_appended(), log.files().before_oldest()), (Sequence(41), Sequence(40)));
    // Its newest objects are gone.
    let lost = ObjectLog::claim(settings(&objects, 2, 45), Handle::current()).await;
    let expected = WalError::CutOff { end: Sequence(41), seen: Sequence(45) };
    assert_eq!(lost.map(|_| ()).unwrap_err().to_string(), expected.to_string());
    assert_eq!(names(&objects).await, [41], "nothing was put");
}

#[tokio::test]
async fn the_oldest_record_is_that_which_is_needed() {
    let objects = in_memory();
    let mut log = claim(&objects, 1, 10).await;
    for payloads in [&["a", "b"][..], &["c"], &["d"]] {
        put(&mut log, payloads).await.unwrap();
    }
    // 11 is the claim, 12 and 13, 14, 15.
    for (had_by_all, expected) in [(10, 10), (11, 11), (12, 11), (13, 13), (14, 14), (15, 15)] {
        let elsewhere = Elsewhere::up_to(Sequence(15));
        let mut read = read_only(&objects, elsewhere, had_by_all).await;
        assert_eq!(read.files().before_oldest(), Sequence(expected), "{had_by_all}");
        assert!(read.append(&[b"x"]).is_err(), "it is for reading");
    }
    objects.delete(&path_of(Sequence(12))).await.unwrap();
    let next = claim(&objects, 2, 15).await;
    assert_eq!(next.files().before_oldest(), Sequence(15), "the claim is the next one");
    for (had_by_all, expected) in [(11, 13), (12, 13), (13, 13)] {
        let elsewhere = Elsewhere { durable: Sequence(15), seen: Sequence(15) };
        let found = read_only(&objects, elsewhere, had_by_all).await.files().before_oldest();
        assert_eq!(found, Sequence(expected), "{had_by_all}");
    }
}
