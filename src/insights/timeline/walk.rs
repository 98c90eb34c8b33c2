//! Detects changes of the crucial properties along a sequence of events, oldest first: [`Walk`].

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use weir_base::clock::UnixMicros;

/// Most changes in a response.
const POINTS_MAX: usize = 10_000;

/// Most bytes of the properties in a response.
const POINTS_BYTES_MAX: usize = 32 << 20;

/// A change: from here on the crucial properties have these values. The field names are PostHog's.
#[derive(Debug, Serialize)]
pub struct Point {
    /// ISO 8601, in UTC.
    pub timestamp: String,
    /// All properties, crucial or not, as of the first event of the point.
    pub properties: Box<RawValue>,
    /// The number of events until the next point.
    pub relevant_event_count: usize,
}

/// The state after the events so far.
#[derive(Debug)]
pub(super) struct Walk<'q> {
    keys: &'q BTreeSet<String>,
    /// The crucial properties at the last event.
    last: Option<Vec<Option<Value>>>,
    points: Vec<Point>,
    bytes: usize,
    /// Whether a limit is reached, so that no further points are added.
    is_full: bool,
}

impl<'q> Walk<'q> {
    /// The initial state, for these crucial properties.
    pub(super) fn new(keys: &'q BTreeSet<String>) -> Self {
        Self { keys, last: None, points: Vec::new(), bytes: 0, is_full: false }
    }

    /// Adds the next counted event, with the properties of the person or the group at that time.
    pub(super) fn count(
        &mut self,
        at: UnixMicros,
        properties: &Map<String, Value>,
    ) -> Result<(), serde_json::Error> {
        if self.is_full {
            return Ok(());
        }
        let now = || self.keys.iter().map(|key| properties.get(key));
        if let (Some(last), Some(point)) = (&self.last, self.points.last_mut())
            && now().eq(last.iter().map(Option::as_ref))
        {
            point.relevant_event_count += 1;
            return Ok(());
        }
        let told = to_raw_value(properties)?;
        self.last = Some(now().map(Option::<&Value>::cloned).collect());
        self.bytes = self.bytes.saturating_add(told.get().len());
        self.is_full = self.points.len() >= POINTS_MAX || self.bytes > POINTS_BYTES_MAX;
        if !self.is_full {
            let timestamp = at.to_rfc3339();
            self.points.push(Point { timestamp, properties: told, relevant_event_count: 1 });
        }
        Ok(())
    }

    /// The changes.
    pub(super) fn points(self) -> Vec<Point> {
        self.points
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::{POINTS_BYTES_MAX, POINTS_MAX, Walk};
    use weir_base::clock::UnixMicros;

    fn points(keys: &[&str], states: &[Value]) -> Vec<(i64, Value, usize)> {
        let keys: BTreeSet<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        let mut walk = Walk::new(&keys);
        for (second, state) in (0..).zip(states) {
            walk.count(UnixMicros(second * 1_000_000), state.as_object().unwrap()).unwrap();
        }
        let second = |text: &str| text[17..19].parse().unwrap();
        let told = walk.points().into_iter();
        told.map(|point| {
            let properties = serde_json::from_str(point.properties.get()).unwrap();
            (second(&point.timestamp), properties, point.relevant_event_count)
        })
        .collect()
    }

    /// PostHog's rule: a point wherever the crucial values differ from those of the event before.
    #[test]
    fn points_begin_where_crucial_properties_change() {
        let states = [
            json!({"plan": "free"}),
            json!({"plan": "pro", "age": 3}),
            json!({"plan": "pro", "age": 4}),
            json!({"age": 4}),
            json!({"age": 4, "plan": null}),
            json!({"plan": "pro"}),
        ];
        assert_eq!(
            points(&["plan"], &states),
            [
                (0, json!({"plan": "free"}), 1),
                (1, json!({"plan": "pro", "age": 3}), 2),
                (3, json!({"age": 4}), 1),
                (4, json!({"age": 4, "plan": null}), 1),
                (5, json!({"plan": "pro"}), 1),
            ]
        );
        assert_eq!(points(&[], &states), [(0, json!({"plan": "free"}), 6)], "one without keys");
        assert_eq!(points(&["plan", "age"], &states).len(), 6);
        assert_eq!(points(&["plan"], &[]), []);
    }

    #[test]
    fn what_is_told_is_bounded() {
        let many: Vec<Value> = (0..=POINTS_MAX).map(|n| json!({"n": n})).collect();
        assert_eq!(points(&["n"], &many).len(), POINTS_MAX);
        let large = "x".repeat(POINTS_BYTES_MAX / 2);
        let large: Vec<Value> = (0..4).map(|n| json!({"n": n, "large": large})).collect();
        assert_eq!(points(&["n"], &large).len(), 1);
    }
}
