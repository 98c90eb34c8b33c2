//! Records that took effect after a time: to the minute, and never one too few.

use super::*;
use crate::definitions::Sightings;
use crate::record_times::RecordTime;

const MINUTE: i64 = 60_000_000;

async fn note(bench: &Bench, minute: i64, sequence: u64) {
    let times = vec![RecordTime::new(UnixMicros(minute * MINUTE + 7), sequence)];
    let seen = Sightings { times, ..Sightings::default() };
    bench.metadata.upsert_definitions(&seen).await.expect("upsert");
}

#[tokio::test]
async fn the_first_record_after_a_time_is_known() {
    let bench = Bench::started().await;
    let since = async |minute: i64, micros: i64| {
        let at = UnixMicros(minute * MINUTE + micros);
        bench.metadata.records_since(at).await.expect("a record")
    };
    assert_eq!(since(10, 0).await, 0, "nothing is known, so all may have been later");
    for (minute, sequence) in [(10, 5), (10, 8), (12, 9)] {
        note(&bench, minute, sequence).await;
    }
    for (minute, micros, expected) in [
        (9, 59_999_999, 0),
        (10, 0, 5),
        (10, 59_999_999, 5),
        (11, 30, 9),
        (12, 0, 9),
        (12, 59_999_999, 9),
        (13, 0, u64::MAX),
    ] {
        assert_eq!(since(minute, micros).await, expected, "{minute} {micros}");
    }
    // A clock that was ahead and is set back misses nothing.
    note(&bench, 11, 20).await;
    assert_eq!(since(11, 0).await, 9);
    // Times that are too old are removed, and then all records may be later.
    let later = 11 + 400 * 24 * 60;
    note(&bench, later, 30).await;
    assert_eq!((since(10, 0).await, since(11, 0).await), (0, 9));
    assert_eq!((since(13, 0).await, since(later, 0).await), (30, 30));
}
