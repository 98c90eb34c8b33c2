//! A world around the change of the clocks of Berlin in the spring of 2026: what the tests of retention, stickiness and
//! lifecycle ask about.

use chrono::Datelike;
use rand::Rng;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use crate::harness::TestServer;
use crate::support::world;
use crate::support::world::{DAY, Details, HOUR, date, days, one_of};

/// 2026-02-20 at midnight UTC.
pub(crate) const FIRST_DAY: i64 = 20_504;

/// When the clocks go forward: 2026-03-29 at 1:00 UTC.
pub(crate) const FORWARD: i64 = 20_541 * DAY + HOUR;

const IDS: usize = 18;

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) plan: &'static str,
    /// As it was sent: a number, or the text of one, or of none.
    price: Option<Value>,
}

impl Plan {
    /// The price that counts.
    pub(crate) fn number(&self) -> f64 {
        match self.price.as_ref() {
            Some(Value::String(text)) => text.parse().unwrap_or(0.0),
            other => other.and_then(Value::as_f64).unwrap_or(0.0),
        }
    }
}

impl Details for Plan {
    fn properties(&self) -> Value {
        json!({"plan": self.plan, "price": self.price})
    }
}

pub(crate) type Event = world::Event<Plan>;

/// What was sent, and on which day weeks begin.
pub(crate) struct World {
    pub(crate) sent: world::World<Plan>,
    is_monday_first: bool,
}

impl std::ops::Deref for World {
    type Target = world::World<Plan>;

    fn deref(&self) -> &Self::Target {
        &self.sent
    }
}

/// A server with 500 random events, of which no two have the same time.
pub(crate) fn start(rng: &mut StdRng) -> (TestServer, World) {
    let event = |number: i64| {
        // Many around the change of the clocks, for queries by the hour.
        let at = match number % 3 {
            0 => FORWARD + rng.random_range(-12 * HOUR..12 * HOUR),
            _ => rng.random_range(days(FIRST_DAY, 60)),
        };
        let name = one_of(rng, &["sign up", "visit", "buy"]);
        let plan = one_of(rng, &["free", "pro"]);
        let price = match number % 5 {
            0 => None,
            1 => Some(json!("much")),
            2 => Some(json!((number % 17).to_string())),
            _ => Some(json!(number % 23 - 3)),
        };
        Event::new(at, name, rng.random_range(0..IDS), Plan { plan, price })
    };
    let mut events: Vec<Event> = (0..500).map(event).collect();
    events.sort_by_key(|event| event.at);
    events.dedup_by_key(|event| event.at);
    let is_monday_first = rng.random_bool(0.5);
    let settings =
        json!({"timezone": "Europe/Berlin", "week_start_day": u8::from(is_monday_first)});
    let (server, sent) = world::World::start(rng, &settings, (events, IDS));
    (server, World { sent, is_monday_first })
}

/// The day of a time in Berlin, as the number of days since 1970.
pub(crate) fn day_of(at: i64) -> i64 {
    (at + if at < FORWARD { HOUR } else { 2 * HOUR }).div_euclid(DAY)
}

impl World {
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
