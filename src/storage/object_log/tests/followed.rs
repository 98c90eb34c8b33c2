//! A log that another process writes, as its follower reads it.

use std::sync::Arc;

use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::runtime::Handle;

use super::{claim, in_memory, names, put, read, settings, texts};
use crate::object_log::follow::LogFollower;
use crate::object_log::format::path_of;
use crate::wal::reader::Item;
use crate::wal::{Elsewhere, Sequence, WalError};

async fn open(objects: &Arc<dyn ObjectStore>, had: u64) -> Result<LogFollower, WalError> {
    let (elsewhere, had) = (Elsewhere::up_to(Sequence(had)), Sequence(had));
    let pauses = settings(objects, 9, 0).pauses;
    LogFollower::open(Arc::clone(objects), elsewhere, had, pauses, Handle::current()).await
}

#[tokio::test]
async fn a_follower_reads_what_is_put() {
    let objects = in_memory();
    let follower = open(&objects, 0).await.expect("no log yet");
    assert_eq!(follower.look().await.unwrap(), Sequence(0));
    let mut log = claim(&objects, 1, 0).await;
    assert_eq!(follower.look().await.unwrap(), Sequence(1));
    put(&mut log, &["a", "b"]).await.unwrap();
    assert_eq!(follower.look().await.unwrap(), Sequence(3));
    assert_eq!(follower.look().await.unwrap(), Sequence(3));
    let mut next = claim(&objects, 2, 0).await;
    put(&mut next, &["c"]).await.unwrap();
    assert_eq!(follower.look().await.unwrap(), Sequence(5));
    let all = [(1, "claim"), (2, "a"), (3, "b"), (4, "claim"), (5, "c")];
    assert_eq!(read(follower.files(), 0, Sequence(5)).await, texts(&all));
    follower.forget_through(Sequence(3));
    assert_eq!(read(follower.files(), 3, Sequence(5)).await, texts(&all[3..]));
    assert_eq!(follower.files().before_oldest(), Sequence(3));
    let late = open(&objects, 4).await.expect("it is there");
    assert_eq!(read(late.files(), 4, Sequence(5)).await, texts(&all[4..]));
}

#[tokio::test]
async fn what_was_removed_is_no_damage() {
    let objects = in_memory();
    let mut log = claim(&objects, 1, 0).await;
    put(&mut log, &["a"]).await.unwrap();
    let (behind, listed) = (open(&objects, 0).await.unwrap(), open(&objects, 0).await.unwrap());
    for text in ["b", "c", "d"] {
        put(&mut log, &[text]).await.unwrap();
    }
    assert_eq!(listed.look().await.unwrap(), Sequence(5));
    log.files().truncate_through(Sequence(4)).await.unwrap();
    assert_eq!(names(&objects).await, [1, 5], "the claim and the newest object");
    let told = |wanted, oldest| format!("{:?}", truncated(wanted, oldest));
    assert_eq!(format!("{:?}", behind.look().await.unwrap_err()), told(3, 5));
    // It has listed the objects before they were removed.
    let mut reader = listed.files().reader(Sequence(1));
    let error = reader.next(Sequence(5)).await.expect_err("it is gone");
    assert_eq!(format!("{error:?}"), told(2, 3));
    let error = open(&objects, 2).await.expect_err("the next record is gone");
    assert_eq!(format!("{error:?}"), told(3, 5));
    assert!(open(&objects, 4).await.is_ok());
}

fn truncated(wanted: u64, oldest: u64) -> WalError {
    WalError::Truncated { wanted: Sequence(wanted), oldest: Sequence(oldest) }
}

#[tokio::test]
async fn a_damaged_object_ends_where_the_next_begins() {
    let objects = in_memory();
    let mut log = claim(&objects, 1, 0).await;
    put(&mut log, &["a", "b"]).await.unwrap();
    objects.put(&path_of(Sequence(2)), PutPayload::from_static(b"garbage")).await.unwrap();
    let follower = open(&objects, 1).await.unwrap();
    assert_eq!(follower.look().await.unwrap(), Sequence(2), "one record at least");
    put(&mut log, &["c"]).await.unwrap();
    assert_eq!(follower.look().await.unwrap(), Sequence(4));
    let lost = [(2, "lost to 3"), (4, "c")];
    assert_eq!(read(follower.files(), 1, Sequence(4)).await, texts(&lost));
}

/// Goal: whatever is put, claimed and removed meanwhile, a follower that looks gets every record that was put before the
/// look, in order, or learns that a record it lacks was removed.
#[tokio::test]
async fn a_look_finds_everything_that_was_put_before() {
    for seed in 0..200 {
        let mut random = StdRng::seed_from_u64(seed);
        let objects = in_memory();
        let mut log = claim(&objects, 1, 0).await;
        let mut all = vec!["claim".to_owned()];
        let mut follower = open(&objects, 0).await.unwrap();
        let (mut position, mut removed) = (0_usize, 0);
        for step in 0..60 {
            match random.random_range(0..10) {
                0..=3 => {
                    for _ in 0..random.random_range(1..4) {
                        log.append(&[format!("{step}").as_bytes()]).unwrap();
                        all.push(step.to_string());
                    }
                    log.put().await.unwrap();
                }
                4 => {
                    log = claim(&objects, 2 + u128::try_from(step).unwrap(), 0).await;
                    all.push("claim".to_owned());
                }
                5 => {
                    removed = random.random_range(removed..=all.len());
                    let through = Sequence(u64::try_from(removed).unwrap());
                    log.files().truncate_through(through).await.unwrap();
                }
                6 => follower.forget_through(Sequence(u64::try_from(position).unwrap())),
                _ => {
                    let followed = follow(&follower, &mut position, &all).await;
                    if followed.is_err() {
                        assert!(position < removed, "seed {seed}: nothing was removed");
                        position = removed;
                        let had = u64::try_from(position).unwrap();
                        follower = open(&objects, had).await.expect("later ones are there");
                        follow(&follower, &mut position, &all).await.expect("seed {seed}");
                    }
                    assert_eq!(position, all.len(), "seed {seed}");
                }
            }
        }
    }
}

/// Reads on to the end.
async fn follow(
    follower: &LogFollower,
    position: &mut usize,
    all: &[String],
) -> Result<(), WalError> {
    // As if somebody had told how far the log is, or not.
    let end = match all.len() % 2 {
        0 => follower.look().await?,
        _ => follower.reach(Sequence(u64::try_from(all.len()).unwrap())).await?,
    };
    let mut reader = follower.files().reader(Sequence(u64::try_from(*position).unwrap()));
    while let Some(item) = reader.next(end).await? {
        let Item::Record { sequence, payload } = item else { panic!("{item:?}") };
        *position += 1;
        assert_eq!(sequence.0, u64::try_from(*position).unwrap());
        assert_eq!(String::from_utf8(payload).unwrap(), all[*position - 1]);
    }
    Ok(())
}
