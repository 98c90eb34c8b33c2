//! Writers one after another, on a store that loses requests and answers at random.

use std::collections::BTreeMap;
use std::sync::Arc;

use object_store::ObjectStore;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::runtime::Handle;

use crate::faulty_store::FaultyStore;
use crate::object_log::tests::{claim, read, settings};
use crate::object_log::writer::ObjectLog;
use crate::wal::{Sequence, WalError};

/// Goal: whatever requests and answers are lost or late, each acknowledged record is in the log once, at its sequence, and
/// the log has no gap. Method: up to three writers take the log from each other; each acknowledged record is noted, and
/// looked for at the end.
#[tokio::test]
async fn acknowledged_records_survive_lost_answers() {
    for seed in 0..60 {
        let mut random = StdRng::seed_from_u64(seed);
        let store = Arc::new(FaultyStore::default());
        let objects: Arc<dyn ObjectStore> = Arc::clone(&store) as _;
        store.fail_at_random(seed, 4);
        let mut acknowledged = BTreeMap::new();
        let mut writers: Vec<ObjectLog> = Vec::new();
        let mut written = 0_u32;
        for opening in 0..3 {
            // Lists and reads at the start are not repeated here; whoever opens tries again.
            for attempt in 0.. {
                let writer = u128::from(seed) * 1000 + opening * 100 + attempt;
                let opened = ObjectLog::claim(settings(&objects, writer, 0), Handle::current());
                match opened.await {
                    Ok(log) => {
                        writers.push(log);
                        break;
                    }
                    Err(WalError::Store { .. }) => {}
                    Err(error) => panic!("{seed}: {error}"),
                }
            }
            for _ in 0..random.random_range(1..12) {
                let number = random.random_range(0..writers.len());
                let records = random.random_range(1..4);
                let writer = &mut writers[number];
                let mut appended = Vec::new();
                for _ in 0..records {
                    written += 1;
                    let payload = format!("{number}/{written}");
                    match writer.append(&[payload.as_bytes()]) {
                        Ok(sequence) => appended.push((sequence.0, payload)),
                        Err(WalError::Fenced) => break,
                        Err(error) => panic!("{seed}: {error}"),
                    }
                }
                match writer.put().await {
                    Ok(()) => acknowledged.extend(appended),
                    Err(WalError::Fenced) => {}
                    Err(error) => panic!("{seed}: {error}"),
                }
            }
        }
        assert!(store.recover().await > 0, "{seed}: no fault");
        let last = claim(&objects, 1, 0).await;
        let found = read(last.files(), 0, last.last_appended()).await;
        let sequences: Vec<u64> = found.iter().map(|(sequence, _)| *sequence).collect();
        let expected: Vec<u64> = (1..=last.last_appended().0).collect();
        assert_eq!(sequences, expected, "{seed}");
        let found: BTreeMap<u64, String> = found.into_iter().collect();
        assert!(!acknowledged.is_empty(), "{seed}");
        for (sequence, payload) in acknowledged {
            assert_eq!(found.get(&sequence), Some(&payload), "{seed}: {}", Sequence(sequence));
        }
    }
}
