//! Scheduled changes: applied once, completely, when due, and in the name of the user who scheduled them.

use serde_json::Value;

use super::*;
use crate::activity::{ActivityFilter, Scope};
use crate::schedules::{
    Interval, NewSchedule, Outcome, SchedulePatch, ScheduledChange, Timing, TimingPatch,
};

const HOUR: Duration = Duration::from_hours(1);

fn once(flag: FlagId, payload: Value) -> NewSchedule {
    let timing = Timing {
        scheduled_at: START.saturating_add(HOUR),
        is_recurring: false,
        interval: None,
        cron: None,
        end_date: None,
    };
    NewSchedule { flag, payload, timing }
}

fn daily(flag: FlagId, payload: Value) -> NewSchedule {
    let once = once(flag, payload);
    let timing = Timing { is_recurring: true, interval: Some(Interval::Daily), ..once.timing };
    NewSchedule { timing, ..once }
}

fn switch(active: bool) -> Value {
    json!({"operation": "update_status", "value": active})
}

impl Bench {
    async fn schedule(&self, new: NewSchedule) -> ScheduledChange {
        self.metadata.schedule(PROJECT, USER, new).await.expect("schedule")
    }

    /// Applies the due changes, as the background job does.
    async fn make_due(&self) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for id in self.metadata.due_changes(100).await.expect("due") {
            outcomes.push(self.metadata.make_due_change(id).await.expect("made or noted"));
        }
        outcomes
    }

    async fn scheduled(&self, change: &ScheduledChange) -> ScheduledChange {
        self.metadata.scheduled_change(PROJECT, change.id).await.expect("there")
    }

    fn live(&self, id: FlagId) -> Arc<StoredFlag> {
        let snapshot = self.metadata.snapshot();
        let found = snapshot.flags(PROJECT).iter().find(|flag| flag.id == id);
        Arc::clone(found.expect("a live flag"))
    }
}

#[tokio::test]
async fn a_change_is_made_once_when_it_is_due() {
    let bench = Bench::started().await;
    let flag = bench.create("a").await;
    let change = bench.schedule(once(flag.id, switch(false))).await;
    assert_eq!(bench.make_due().await, []);
    bench.clock.advance(HOUR);
    // Another task may have applied it meanwhile: a second process, or this one after a crash.
    let other = bench.other().await;
    let twice = other.due_changes(100).await.expect("due");
    assert_eq!(bench.make_due().await, [Outcome::Made]);
    assert_eq!(other.make_due_change(twice[0]).await.expect("made"), Outcome::Over);
    let made = bench.live(flag.id);
    assert_eq!((made.active, made.version, made.last_modified_by), (false, 2, Some(USER)));
    let done = bench.scheduled(&change).await;
    assert_eq!((done.executed_at, done.failure_reason.as_deref()), (Some(bench.clock.now()), None));
    assert_eq!(bench.make_due().await, []);
    bench.check_snapshot().await;
    let asked = ActivityFilter { scopes: vec![Scope::FeatureFlag], ..ActivityFilter::default() };
    let log = bench.metadata.activity(PROJECT, &asked, 10, 0).await.expect("log");
    let entry = &log.entries[0];
    assert_eq!((entry.user, entry.activity.as_str()), (Some(USER), "updated"));
    let trigger = json!({"job_type": "scheduled_change", "job_id": "1",
        "payload": {"scheduled_change_id": 1}});
    assert_eq!(entry.detail["trigger"], trigger);
    let late = bench.metadata.reschedule(PROJECT, USER, change.id, SchedulePatch::default()).await;
    assert_eq!(code(late), "invalid_input");
}

#[tokio::test]
async fn changes_meet_the_flag_as_it_is_then() {
    let bench = Bench::started().await;
    let flag = bench.create("a").await;
    let condition = json!({"groups": [{"properties": [], "rollout_percentage": 5}]});
    let add = json!({"operation": "add_release_condition", "value": condition});
    bench.schedule(once(flag.id, add)).await;
    let variants = json!([{"key": "x", "rollout_percentage": 100}]);
    let value = json!({"variants": variants, "payloads": {"x": {"a": 1}}});
    bench.schedule(once(flag.id, json!({"operation": "update_variants", "value": value}))).await;
    // The flag is edited meanwhile.
    let filters = json!({"groups": [{"properties": [], "rollout_percentage": 1}], "kept": 1});
    let patch = FlagPatch { filters: Some(filters), ..FlagPatch::default() };
    bench.update(flag.id, patch).await;
    bench.clock.advance(HOUR);
    assert_eq!(bench.make_due().await, [Outcome::Made, Outcome::Made]);
    let expected = json!({
        "groups": [{"properties": [], "rollout_percentage": 1},
                   {"properties": [], "rollout_percentage": 5}],
        "multivariate": {"variants": variants}, "payloads": {"x": "{\"a\":1}"}, "kept": 1});
    assert_eq!(bench.live(flag.id).filters, expected);
    bench.check_snapshot().await;
}

#[tokio::test]
async fn changes_that_break_a_rule_fail_permanently() {
    let bench = Bench::started().await;
    let needed = bench.create("needed").await;
    let gone = bench.create("gone").await;
    let dependency = json!({"key": needed.id.to_string(), "type": "flag", "value": true,
        "operator": "flag_evaluates_to"});
    let filters = json!({"groups": [{"properties": [dependency]}]});
    let new = FlagPatch { filters: Some(filters), ..new("needs") };
    bench.metadata.create_flag(PROJECT, USER, new).await.expect("create");
    let half = json!({"variants": [{"key": "x", "rollout_percentage": 50}]});
    let half = json!({"operation": "update_variants", "value": half});
    let off = bench.schedule(once(needed.id, switch(false))).await;
    let half = bench.schedule(daily(needed.id, half)).await;
    let late = bench.schedule(once(gone.id, switch(false))).await;
    bench.update(gone.id, FlagPatch { deleted: Some(true), ..FlagPatch::default() }).await;
    bench.clock.advance(HOUR);
    assert_eq!(bench.make_due().await, [Outcome::Failed; 3]);
    for (change, reason) in [
        (
            &off,
            "Cannot disable this feature flag because other flags depend on it: needs (ID: 3). \
                Please update or disable the dependent flags first. (permanent error)",
        ),
        (
            &half,
            "Invalid variant definitions: Variant rollout percentages must sum to 100. \
                 (permanent error)",
        ),
        (&late, "Feature flag does not exist. (permanent error)"),
    ] {
        let change = bench.scheduled(change).await;
        assert_eq!(change.failure_reason.as_deref(), Some(reason));
        assert_eq!((change.executed_at, change.failure_count), (Some(bench.clock.now()), 1));
    }
    let flag = bench.live(needed.id);
    assert_eq!((flag.active, flag.version), (true, 1));
    assert_eq!(bench.make_due().await, []);
    // A change of a permanently removed flag never applies to another flag.
    let last = bench.create("last").await;
    bench.schedule(once(last.id, switch(false))).await;
    bench.update(last.id, FlagPatch { deleted: Some(true), ..FlagPatch::default() }).await;
    let rename = FlagPatch { key: Some("last".to_owned()), ..FlagPatch::default() };
    bench.update(needed.id, rename).await;
    assert_eq!(bench.create("next").await.id, FlagId(last.id.0 + 1));
}

#[tokio::test]
async fn recurring_changes_come_again_until_their_end() {
    let bench = Bench::started().await;
    let flag = bench.create("a").await;
    let day = Duration::from_hours(24);
    let mut new = daily(flag.id, switch(false));
    new.timing.end_date = Some(START.saturating_add(HOUR + 4 * day));
    let change = bench.schedule(new).await;
    bench.clock.advance(HOUR);
    assert_eq!(bench.make_due().await, [Outcome::Made]);
    let made = bench.scheduled(&change).await;
    assert_eq!((made.executed_at, made.last_executed_at), (None, Some(bench.clock.now())));
    assert_eq!(made.timing.scheduled_at, START.saturating_add(HOUR + day));
    // Down for two days: missed times are skipped.
    bench.clock.advance(2 * day);
    assert_eq!(bench.make_due().await, [Outcome::Made]);
    let made = bench.scheduled(&change).await.timing.scheduled_at;
    assert_eq!(made, START.saturating_add(HOUR + 3 * day));
    // Paused and resumed.
    let pause = |is_recurring| SchedulePatch {
        timing: TimingPatch { is_recurring: Some(is_recurring), ..TimingPatch::default() },
        ..SchedulePatch::default()
    };
    bench.metadata.reschedule(PROJECT, USER, change.id, pause(false)).await.expect("pause");
    bench.clock.advance(day);
    assert_eq!(bench.make_due().await, []);
    bench.metadata.reschedule(PROJECT, USER, change.id, pause(true)).await.expect("go on");
    assert_eq!(bench.make_due().await, [Outcome::Made]);
    // Not looked at until after its end.
    bench.clock.advance(2 * day);
    assert_eq!(bench.make_due().await, [Outcome::Over]);
    assert_eq!(bench.scheduled(&change).await.executed_at, Some(bench.clock.now()));
    assert_eq!(bench.live(flag.id).version, 4);
}

/// A trigger in the database fails the write, as a broken disk would.
#[tokio::test]
async fn failures_of_the_database_are_retried() {
    let bench = Bench::started().await;
    let flag = bench.create("a").await;
    let change = bench.schedule(once(flag.id, switch(false))).await;
    let (create, drop) = match bench.place {
        Backend::File(_) => (
            "CREATE TRIGGER broken BEFORE UPDATE ON feature_flags
             BEGIN SELECT RAISE(ABORT, 'broken'); END",
            "DROP TRIGGER broken",
        ),
        Backend::Database(_) => (
            "CREATE TRIGGER broken BEFORE UPDATE ON feature_flags
             FOR EACH ROW EXECUTE FUNCTION broken()",
            "DROP TRIGGER broken ON feature_flags",
        ),
    };
    if let Backend::Database(_) = bench.place {
        let function = "CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql
             AS $$ BEGIN RAISE EXCEPTION 'broken'; END $$";
        bench.run(function).await;
    }
    bench.run(create).await;
    bench.clock.advance(HOUR);
    assert_eq!(bench.make_due().await, [Outcome::Retried]);
    let failed = bench.scheduled(&change).await;
    let reason = "the metadata store failed (will retry automatically, 4 attempts remaining)";
    assert_eq!(failed.failure_reason.as_deref(), Some(reason));
    assert_eq!(bench.make_due().await, [], "not at once");
    bench.clock.advance(Duration::from_mins(1));
    assert_eq!(bench.make_due().await, [Outcome::Retried]);
    bench.run(drop).await;
    bench.clock.advance(Duration::from_mins(1));
    assert_eq!(bench.make_due().await, [Outcome::Made]);
    let made = bench.scheduled(&change).await;
    assert_eq!((made.failure_reason, made.failure_count), (None, 0));
    bench.run(create).await;
    let change = bench.schedule(once(flag.id, switch(true))).await;
    for outcome in [Outcome::Retried; 4].into_iter().chain([Outcome::Failed]) {
        assert_eq!(bench.make_due().await, [outcome]);
        bench.clock.advance(Duration::from_mins(1));
    }
    let failed = bench.scheduled(&change).await;
    let reason = "the metadata store failed (failed after 5 out of 5 attempts)";
    assert_eq!(failed.failure_reason.as_deref(), Some(reason));
    assert!(!bench.live(flag.id).active);
}

#[tokio::test]
async fn changes_are_listed_and_cancelled() {
    let bench = Bench::started().await;
    let (a, b) = (bench.create("a").await, bench.create("b").await);
    let first = bench.schedule(once(a.id, switch(false))).await;
    let second = bench.schedule(once(b.id, switch(false))).await;
    let list = async |flag, limit, offset| {
        let page = bench.metadata.scheduled_changes(PROJECT, flag, limit, offset).await;
        let (count, changes) = page.expect("a page");
        (count, changes.into_iter().map(|change| change.id).collect::<Vec<_>>())
    };
    assert_eq!(list(None, 10, 0).await, (2, vec![first.id, second.id]));
    assert_eq!(list(None, 1, 1).await, (2, vec![second.id]));
    assert_eq!(list(Some(a.id), 10, 0).await, (1, vec![first.id]));
    let other = ProjectId(2);
    assert_eq!(kind(bench.metadata.scheduled_change(other, first.id).await), Kind::NotFound);
    assert_eq!(kind(bench.metadata.unschedule(other, USER, first.id).await), Kind::NotFound);
    bench.metadata.unschedule(PROJECT, USER, first.id).await.expect("take back");
    bench.clock.advance(HOUR);
    assert_eq!(bench.make_due().await, [Outcome::Made]);
    assert!(bench.live(a.id).active);
    let missing = bench.metadata.schedule(PROJECT, USER, once(FlagId(9), switch(true))).await;
    assert_eq!(code(missing), "invalid_input");
}
