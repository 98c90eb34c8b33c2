//! Random histories: events of persons, some of whom are merged, and a server that has them. The tests of insights
//! ask about such a [`World`], and compute the answers from what was sent.

use std::ops::{Deref, Range};

use rand::Rng;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use crate::harness::TestServer;

pub(crate) const QUERY: &str = "/api/projects/@current/query/";
pub(crate) const HOUR: i64 = 3600;
pub(crate) const DAY: i64 = 24 * HOUR;

/// Without answers that are kept, each question is computed from what is in memory and files then.
const NOTHING_KEPT: [(&str, &str); 1] = [("WEIR_INSIGHT_CACHE_MAX_BYTES", "0B")];

/// When ids are merged: after all events.
const MERGED_AT: &str = "2026-06-20T00:00:00Z";

/// What the events of a test have besides their time, name and person.
pub(crate) trait Details {
    /// As they are sent.
    fn properties(&self) -> Value;
}

/// One sent event.
#[derive(Clone, Debug)]
pub(crate) struct Event<D> {
    /// Seconds since 1970.
    pub(crate) at: i64,
    /// Milliseconds after that.
    pub(crate) millis: u32,
    pub(crate) name: &'static str,
    /// The number of its distinct id.
    pub(crate) id: usize,
    pub(crate) details: D,
}

impl<D> Deref for Event<D> {
    type Target = D;

    fn deref(&self) -> &D {
        &self.details
    }
}

impl<D: Details> Event<D> {
    pub(crate) fn new(at: i64, name: &'static str, id: usize, details: D) -> Self {
        Self { at, millis: 0, name, id, details }
    }

    fn sent(&self) -> Value {
        let at = chrono::DateTime::from_timestamp(self.at, self.millis * 1_000_000);
        json!({"event": self.name, "distinct_id": format!("d{}", self.id),
               "timestamp": at.expect("a time").to_rfc3339(), "properties": self.details.properties()})
    }
}

/// What was sent, and whose ids belong together.
pub(crate) struct World<D> {
    pub(crate) events: Vec<Event<D>>,
    /// The person of each id, as the number of one of its ids.
    pub(crate) persons: Vec<usize>,
}

impl<D: Details> World<D> {
    /// A server whose project has these settings and these events of as many ids. The ids of some people who are
    /// not known yet become others' before half of the events came, and after the other half; the requests with the
    /// merges also set properties of persons.
    pub(crate) fn start(
        rng: &mut StdRng,
        settings: &Value,
        (events, ids): (Vec<Event<D>>, usize),
    ) -> (TestServer, Self) {
        let server = TestServer::start_with(&NOTHING_KEPT);
        let set = server.patch("/api/projects/@current/", settings);
        assert_eq!(set.status, 200, "{set}");
        let mut persons: Vec<usize> = (0..ids).collect();
        let mut merges = Vec::new();
        for (anonymous, person) in persons.iter_mut().enumerate().take(ids / 3) {
            *person = rng.random_range(ids / 3..ids);
            let set = json!({"tier": rng.random_range(0..3)});
            let user = format!("d{person}");
            let mut properties = json!({"$anon_distinct_id": format!("d{anonymous}")});
            if rng.random_bool(0.5) {
                properties["$set"] = set;
            } else {
                merges.push(event("$set", &user, &json!({"$set": set})));
            }
            merges.push(event("$identify", &user, &properties));
        }
        let sent: Vec<Value> = events.iter().map(Event::sent).collect();
        let (early, late) = sent.split_at(sent.len() / 2);
        for batch in [json!(late), json!(merges), json!(early)] {
            let answer = server.capture(&batch);
            assert_eq!(answer.status, 200, "{answer}");
        }
        (server, Self { events, persons })
    }

    /// The person of an event.
    pub(crate) fn person(&self, event: &Event<D>) -> usize {
        self.persons[event.id]
    }

    /// The person that an answer shows, by the first of its distinct ids.
    pub(crate) fn person_of(&self, shown: &Value) -> usize {
        let id = shown["distinct_ids"][0].as_str().expect("an id")[1..].parse::<usize>();
        self.persons[id.expect("a number")]
    }
}

/// An event at the time of merges.
fn event(name: &str, id: &str, properties: &Value) -> Value {
    json!({"event": name, "distinct_id": id, "timestamp": MERGED_AT, "properties": properties})
}

/// Does the same while events are in memory, when they are in files, and after a restart; it gets the name of the state.
pub(crate) fn in_each_state(server: &mut TestServer, mut ask: impl FnMut(&TestServer, &str)) {
    ask(server, "in memory");
    server.flush();
    ask(server, "in files");
    server.restart();
    ask(server, "after a restart");
}

/// The day with this number since 1970.
pub(crate) fn date(day: i64) -> chrono::NaiveDate {
    chrono::DateTime::from_timestamp(day * DAY, 0).expect("a day").date_naive()
}

/// A time as requests have it.
pub(crate) fn time(at: i64) -> String {
    chrono::DateTime::from_timestamp(at, 0).expect("a time").to_rfc3339()
}

/// One of some values.
pub(crate) fn one_of<T: Copy>(rng: &mut StdRng, values: &[T]) -> T {
    values[rng.random_range(0..values.len())]
}

/// The instants of some days, from a first one on.
pub(crate) fn days(first: i64, count: i64) -> Range<i64> {
    first * DAY..(first + count) * DAY
}
