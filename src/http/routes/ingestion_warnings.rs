//! Ingestion warnings in the format of PostHog's user interface: one summary per kind.

use std::collections::BTreeMap;

use crate::auth::Principal;
use crate::operation::input::input;
use crate::operation::{Context, Operation};
use crate::response::Problem;
use crate::routes::store::problem;
use weir_api::warnings as api;
use weir_base::clock::UnixMicros;
use weir_metadata::warnings::DayOfWarnings;

/// Most samples of one kind in a response.
const SAMPLES_MAX: usize = 50;

input! {
    /// What was odd about events, by kind. Counts cover all stored warnings; samples are a few of each day.
    pub struct List {}
}

impl Operation for List {
    type Who = Principal;
    type Out = api::Warnings;
    const SCOPE: &'static str = "ingestion_warning:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let days = cx.metadata().warnings(cx.who.project.id).await.map_err(problem)?;
        Ok(api::Warnings { results: summaries(days) })
    }
}

#[derive(Debug, Default)]
struct Summary {
    days: Vec<DayOfWarnings>,
    count: u64,
    last_seen_at: UnixMicros,
}

/// `days` belong to one project, the most recent first.
fn summaries(days: Vec<DayOfWarnings>) -> Vec<api::Kind> {
    let mut kinds: BTreeMap<String, Summary> = BTreeMap::new();
    for day in days {
        let summary = kinds.entry(day.kind.clone()).or_default();
        summary.count = summary.count.saturating_add(day.count);
        summary.last_seen_at = summary.last_seen_at.max(day.last_seen_at);
        summary.days.push(day);
    }
    let mut kinds: Vec<(String, Summary)> = kinds.into_iter().collect();
    kinds.sort_by_key(|(_, summary)| std::cmp::Reverse(summary.last_seen_at));
    kinds.into_iter().map(|(kind, summary)| shown(kind, &summary)).collect()
}

fn shown(kind: String, summary: &Summary) -> api::Kind {
    let date = |day: &DayOfWarnings| day.first_seen_at.to_datetime().date_naive().to_string();
    let sparkline = summary.days.iter().map(|day| (day.count, date(day))).collect();
    let samples = summary.days.iter().flat_map(|day| &day.samples).take(SAMPLES_MAX);
    let warnings = samples.map(|sample| api::Warning {
        details: sample.details.clone(),
        timestamp: sample.at.to_rfc3339(),
        r#type: kind.clone(),
    });
    api::Kind {
        count: summary.count,
        last_seen: summary.last_seen_at.to_rfc3339(),
        sparkline,
        warnings: warnings.collect(),
        r#type: kind,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::summaries;
    use weir_base::clock::UnixMicros;
    use weir_event::id::ProjectId;
    use weir_metadata::warnings::{DayOfWarnings, WarningSample};

    /// 2026-11-21T08:00:00Z.
    const NOW: i64 = 1_795_248_000_000_000;
    const DAY: i64 = 86_400_000_000;

    fn day(kind: &str, at: i64, count: u64) -> DayOfWarnings {
        let details = Map::from_iter([("event".to_owned(), json!(kind))]);
        DayOfWarnings {
            project: ProjectId(1),
            kind: kind.to_owned(),
            day: at / DAY,
            count,
            first_seen_at: UnixMicros(at),
            last_seen_at: UnixMicros(at),
            samples: vec![WarningSample { at: UnixMicros(at), details }],
        }
    }

    /// The format of PostHog's `ingestion_warnings` endpoint.
    #[test]
    fn kinds_are_summed_up() {
        let days = vec![day("b", NOW + 1, 2), day("a", NOW, 3), day("a", NOW - DAY, 4)];
        let sample = |kind: &str, timestamp: &str| json!({"type": kind, "timestamp": timestamp, "details": {"event": kind}});
        let expected = json!([
            {
                "type": "b",
                "lastSeen": "2026-11-21T08:00:00.000001Z",
                "sparkline": [[2, "2026-11-21"]],
                "warnings": [sample("b", "2026-11-21T08:00:00.000001Z")],
                "count": 2,
            },
            {
                "type": "a",
                "lastSeen": "2026-11-21T08:00:00.000000Z",
                "sparkline": [[3, "2026-11-21"], [4, "2026-11-20"]],
                "warnings": [
                    sample("a", "2026-11-21T08:00:00.000000Z"),
                    sample("a", "2026-11-20T08:00:00.000000Z"),
                ],
                "count": 7,
            },
        ]);
        assert_eq!(json!(summaries(days)), expected);
    }
}
