//! A table that another process writes, in a store that applies the same log.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;

/// Goal: in whatever order the writer flushes and the follower applies records and takes over files, the follower has each
/// row once, up to the last record that it has applied or that is in files.
#[tokio::test]
async fn each_row_is_in_files_or_in_memory() {
    for seed in 0..100 {
        let mut random = StdRng::seed_from_u64(seed);
        let objects = Arc::new(FaultyStore::default());
        let writer = open(&objects).await;
        let follower = open(&objects).await;
        let (mut logged, mut applied, mut flushed, mut followed) = (0, 0, 0, 0);
        for _ in 0..80 {
            match random.random_range(0..8) {
                0..=2 => {
                    logged += 1;
                    insert(&writer, logged);
                }
                3..=5 if applied < logged => {
                    applied += 1;
                    insert(&follower, applied);
                }
                6 => {
                    if writer.freeze().is_some() {
                        let written = flush(&writer).await.expect("a flush").expect("rows");
                        flushed = written.through.0;
                    }
                }
                7 => {
                    follower.follow().await.expect("the table");
                    followed = flushed;
                }
                _ => drop(follower.freeze()),
            }
            let last = i64::try_from(applied.max(followed)).unwrap();
            let expected: Vec<i64> = (1..=last).collect();
            assert_eq!(ids(&follower).await, expected, "seed {seed}");
        }
    }
}
