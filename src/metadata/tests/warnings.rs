//! Ingestion warnings: counts add up, samples are limited, old days are removed.

use serde_json::Map;

use super::*;
use crate::warnings::{DayOfWarnings, SAMPLES_MAX, WarningSample};

const DAY: i64 = 86_400_000_000;

fn sample(at: i64) -> WarningSample {
    let details = Map::from_iter([("at".to_owned(), json!(at))]);
    WarningSample { at: UnixMicros(at), details }
}

/// `count` warnings of a kind between two times on the day of the first.
fn warnings(kind: &str, count: u64, first: i64, last: i64, samples: &[i64]) -> DayOfWarnings {
    DayOfWarnings {
        project: PROJECT,
        kind: kind.to_owned(),
        day: DayOfWarnings::day_of(UnixMicros(first)),
        count,
        first_seen_at: UnixMicros(first),
        last_seen_at: UnixMicros(last),
        samples: samples.iter().map(|at| sample(*at)).collect(),
    }
}

#[tokio::test]
async fn warnings_add_up_by_kind_and_day() {
    let bench = Bench::started().await;
    let metadata = &bench.metadata;
    let first = [warnings("a", 2, 10, 20, &[20, 10]), warnings("b", 1, 15, 15, &[15])];
    metadata.add_warnings(&first).await.expect("add");
    let next =
        [warnings("a", 3, 5, 30, &[30, 29, 28, 27, 5]), warnings("a", 7, DAY, DAY + 1, &[DAY])];
    metadata.add_warnings(&next).await.expect("add");
    let expected = vec![
        warnings("a", 7, DAY, DAY + 1, &[DAY]),
        warnings("a", 5, 5, 30, &[30, 29, 28, 27, 20]),
        warnings("b", 1, 15, 15, &[15]),
    ];
    assert_eq!(SAMPLES_MAX, 5);
    assert_eq!(metadata.warnings(PROJECT).await.expect("all"), expected);

    // They survive a restart; a day is removed when all of it is too old.
    let other = bench.other().await;
    assert_eq!(other.warnings(PROJECT).await.expect("all"), expected);
    assert_eq!(metadata.remove_warnings(UnixMicros(DAY - 1)).await.expect("remove"), 0);
    assert_eq!(metadata.remove_warnings(UnixMicros(2 * DAY - 1)).await.expect("remove"), 2);
    assert_eq!(metadata.warnings(PROJECT).await.expect("all"), expected[..1]);
}

#[tokio::test]
async fn warnings_of_no_project_are_refused() {
    let bench = Bench::started().await;
    let nowhere = DayOfWarnings { project: ProjectId(9), ..warnings("a", 1, 1, 1, &[]) };
    let result = bench.metadata.add_warnings(&[warnings("a", 1, 1, 1, &[]), nowhere]).await;
    assert_eq!(kind(result), Kind::Internal);
    assert_eq!(bench.metadata.warnings(PROJECT).await.expect("all"), []);
}
