//! Random histories of persons around a change of the clocks, some of whom are merged: what the tests of
//! retention, stickiness and lifecycle ask about.

use chrono::Datelike;
use rand::Rng;
use rand::rngs::StdRng;
use serde_json::Value;
use serde_json::json;

use crate::harness::TestServer;

pub(crate) const QUERY: &str = "/api/projects/@current/query/";
pub(crate) const HOUR: i64 = 3600;
pub(crate) const DAY: i64 = 24 * HOUR;

/// 2026-02-20 at midnight UTC.
pub(crate) const FIRST_DAY: i64 = 20_504;

/// When the clocks of Berlin go forward: 2026-03-29 at 1:00 UTC.
pub(crate) const FORWARD: i64 = 20_541 * DAY + HOUR;

pub(crate) const IDS: usize = 18;
pub(crate) const NAMES: [&str; 3] = ["sign up", "visit", "buy"];

/// One sent event.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// Seconds since 1970; no two events have the same.
    pub(crate) at: i64,
    pub(crate) name: &'static str,
    pub(crate) id: usize,
    pub(crate) plan: &'static str,
}

/// The day of a time in Berlin, as the number of days since 1970.
pub(crate) fn day_of(at: i64) -> i64 {
    (at + if at < FORWARD { HOUR } else { 2 * HOUR }).div_euclid(DAY)
}

pub(crate) fn date(day: i64) -> chrono::NaiveDate {
    chrono::DateTime::from_timestamp(day * DAY, 0).expect("a day").date_naive()
}

impl Event {
    pub(crate) fn sent(&self) -> Value {
        let at = chrono::DateTime::from_timestamp(self.at, 0).expect("a time").to_rfc3339();
        json!({"event": self.name, "distinct_id": format!("d{}", self.id), "timestamp": at,
               "properties": {"plan": self.plan}})
    }
}

/// What was sent, and whose ids belong together.
pub(crate) struct World {
    pub(crate) events: Vec<Event>,
    /// The person of each id, as the least of its ids.
    pub(crate) persons: Vec<usize>,
    pub(crate) is_monday_first: bool,
}

impl World {
    pub(crate) fn random(rng: &mut StdRng) -> Self {
        let mut events: Vec<Event> = (0..500)
            .map(|at| Event {
                // Many around the change of the clocks, for queries by the hour.
                at: match at % 3 {
                    0 => FORWARD + rng.random_range(-12 * HOUR..12 * HOUR),
                    _ => FIRST_DAY * DAY + rng.random_range(0..60 * DAY),
                },
                name: NAMES[rng.random_range(0..3)],
                id: rng.random_range(0..IDS),
                plan: ["free", "pro"][rng.random_range(0..2)],
            })
            .collect();
        events.sort_by_key(|event| event.at);
        events.dedup_by_key(|event| event.at);
        Self { events, persons: (0..IDS).collect(), is_monday_first: rng.random_bool(0.5) }
    }

    /// Some ids of people who are not known yet become others'.
    pub(crate) fn merges(&mut self, rng: &mut StdRng) -> Vec<Value> {
        let merge = |anonymous: usize| {
            let user = rng.random_range(IDS / 3..IDS);
            self.persons[anonymous] = user;
            json!({
                "event": "$identify", "distinct_id": format!("d{user}"), "timestamp": "2026-05-20T00:00:00Z",
                "properties": {"$anon_distinct_id": format!("d{anonymous}")},
            })
        };
        (0..IDS / 3).map(merge).collect()
    }

    /// The number of the interval of a time.
    pub(crate) fn interval(&self, period: &str, at: i64) -> i64 {
        let day = day_of(at);
        match period {
            "Hour" => at.div_euclid(HOUR),
            "Day" => day,
            // 1970-01-01 was a Thursday.
            "Week" => (day + if self.is_monday_first { 3 } else { 4 }).div_euclid(7),
            _ => i64::from(date(day).year()) * 12 + i64::from(date(day).month0()),
        }
    }
}

/// A server with the events of a random world, of which some persons were merged before and some after the
/// events came.
pub(crate) fn start(rng: &mut StdRng) -> (TestServer, World) {
    let server = TestServer::start();
    let mut world = World::random(rng);
    let week = if world.is_monday_first { 1 } else { 0 };
    let settings = json!({"timezone": "Europe/Berlin", "week_start_day": week});
    let set = server.patch("/api/projects/@current/", &settings);
    assert_eq!(set.status, 200, "{set}");
    let sent: Vec<Value> = world.events.iter().map(Event::sent).collect();
    let (early, late) = sent.split_at(sent.len() / 2);
    assert_eq!(server.capture(&json!(late)).status, 200);
    let merges = world.merges(rng);
    assert_eq!(server.capture(&json!(merges)).status, 200);
    assert_eq!(server.capture(&json!(early)).status, 200);
    (server, world)
}

/// Flushes what is in memory to files.
pub(crate) fn flush(server: &TestServer) {
    let flushed = server.weir(&["flush"]).output().expect("runs");
    assert!(flushed.status.success(), "{flushed:?}");
}

/// All persons of a list of rows by their first distinct ids.
pub(crate) fn person_of(world: &World, person: &Value) -> usize {
    let id = person["distinct_ids"][0].as_str().expect("an id")[1..].parse::<usize>();
    world.persons[id.expect("a number")]
}
