//! Funnels beside a model of PostHog's engine: random histories with merged persons and equal times, random queries over
//! all options, before and after events are in files, and the persons behind every step; and cases that are published or
//! computed by hand. `WEIR_ORACLE_SEED` repeats a run, as it does for the comparison with SQL.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::harness::TestServer;
use crate::oracle::{SEED, fresh_seed};
use crate::support::world;
use crate::support::world::{DAY, Details, HOUR, QUERY, date, in_each_state, one_of};

const LEGACY: &str = "/api/projects/@current/insights/funnel/";

/// Berlin in winter, whose days the project has.
pub(crate) const OFFSET: i64 = 3600;

/// 2026-01-05, a Monday, at midnight UTC.
pub(crate) const FIRST_DAY: i64 = 20_458;

pub(crate) const IDS: usize = 24;

/// The bit of the exclusion.
const EXCLUDED: u32 = 1 << 20;

/// What events have besides their name and time.
#[derive(Clone, Debug)]
pub(crate) struct Visit {
    pub(crate) browser: Option<&'static str>,
}

impl Details for Visit {
    fn properties(&self) -> Value {
        self.browser.map_or_else(|| json!({}), |browser| json!({"$browser": browser}))
    }
}

pub(crate) type Event = world::Event<Visit>;
pub(crate) type World = world::World<Visit>;

/// A server with random events at whole hours, so that some times are equal.
fn start(rng: &mut StdRng) -> (TestServer, World) {
    start_with(rng, &["view", "view", "buy", "leave"])
}

/// The same with events of some of these names.
pub(crate) fn start_with(rng: &mut StdRng, names: &[&'static str]) -> (TestServer, World) {
    let browsers = [None, Some(""), Some("Chrome"), Some("Firefox"), Some("Safari"), Some("Edge")];
    let event = |_| {
        let at = FIRST_DAY * DAY + rng.random_range(0..12 * 24) * HOUR;
        let name = one_of(rng, names);
        let id = rng.random_range(0..IDS);
        Event::new(at, name, id, Visit { browser: one_of(rng, &browsers) })
    };
    let events = (0..320).map(event).collect();
    World::start(rng, &json!({"timezone": "Europe/Berlin"}), (events, IDS))
}

/// A random query, and what is needed to compute its answer.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The name of each step, and whether it is of Chrome and Edge alone.
    pub(crate) steps: Vec<(Option<&'static str>, bool)>,
    /// The bits of steps that may be skipped.
    pub(crate) optional: u32,
    pub(crate) order: &'static str,
    pub(crate) viz: &'static str,
    pub(crate) window_hours: i64,
    /// Between which steps people may not leave.
    pub(crate) exclusion: Option<(usize, usize)>,
    /// By which attribution it is split.
    pub(crate) split: Option<&'static str>,
    pub(crate) attribution_step: usize,
    pub(crate) between: (usize, usize),
    pub(crate) from: i64,
    pub(crate) to: i64,
}

/// The time of each step up to the furthest, unless it was skipped.
pub(crate) type Way = Vec<Option<i64>>;

/// Time, mask and value of the breakdown.
type Row = (i64, u32, Option<&'static str>);

/// Time, mask, and whether it has the value that is asked for.
type Valued = (i64, u32, bool);

/// What came of the attempts of a person.
enum Came {
    Nowhere,
    /// Spoiled by somebody's leaving, and perhaps on at the next step all the same.
    Spoiled(bool),
    To(Way),
}

impl Asked {
    pub(crate) fn random(rng: &mut StdRng, viz: &'static str) -> Self {
        let order = ["ordered", "ordered", "strict", "unordered"][rng.random_range(0..4)];
        let count = rng.random_range(2..=if order == "unordered" { 3 } else { 4 });
        let has_exclusion = rng.random_bool(0.3);
        let mut step = |_| {
            let name = match rng.random_range(0..8) {
                0 if !has_exclusion => None,
                1 | 2 if !has_exclusion => Some("leave"),
                3 | 4 => Some("buy"),
                _ => Some("view"),
            };
            (name, rng.random_bool(0.2))
        };
        let steps: Vec<_> = (0..count).map(&mut step).collect();
        let mut optional = 0;
        if viz == "steps" && order != "unordered" && rng.random_bool(0.5) {
            optional = rng.random_range(0..1_u32 << count) & !1;
        }
        // Where all events of an optional step are of the required one after it, it is refused.
        for step in (1..count - 1).rev() {
            let is_next_optional = optional >> (step + 1) & 1 == 1;
            let ((own, is_filtered), (next, is_next_filtered)) = (steps[step], steps[step + 1]);
            let is_within = next.is_none_or(|next| own == Some(next));
            if !is_next_optional && is_within && (is_filtered || !is_next_filtered) {
                optional &= !(1 << step);
            }
        }
        let is_unordered = order == "unordered";
        let mut pair = || {
            let from = rng.random_range(0..count - 1);
            (from, rng.random_range(from + 1..count))
        };
        let (exclusion, between) = (pair(), pair());
        let from = FIRST_DAY + rng.random_range(0..6);
        Self {
            steps,
            optional,
            order,
            viz,
            window_hours: [1, 12, 48, 400][rng.random_range(0..4)],
            exclusion: has_exclusion.then_some(if is_unordered {
                (0, count - 1)
            } else {
                exclusion
            }),
            split: [
                None,
                Some("first_touch"),
                Some("last_touch"),
                Some("all_events"),
                Some("step"),
            ][rng.random_range(0..5)],
            attribution_step: if is_unordered { 0 } else { rng.random_range(0..count) },
            between,
            from,
            to: (from + rng.random_range(1..10)).min(FIRST_DAY + 12),
        }
    }

    pub(crate) fn node(&self) -> Value {
        let step = |(at, (name, is_filtered)): (usize, &(Option<&str>, bool))| {
            let filter = json!({"key": "$browser", "value": ["Chrome", "Edge"], "operator": "exact", "type": "event"});
            let filters = if *is_filtered { vec![filter] } else { Vec::new() };
            let mut node = json!({"kind": "EventsNode", "event": name, "properties": filters});
            if self.is_optional(at) {
                node["optionalInFunnel"] = json!(true);
            }
            node
        };
        let exclusions: Vec<Value> = self
            .exclusion
            .map(|(from, to)| {
                json!({"kind": "EventsNode", "event": "leave", "funnelFromStep": from, "funnelToStep": to})
            })
            .into_iter()
            .collect();
        json!({
            "kind": "FunnelsQuery",
            "series": self.steps.iter().enumerate().map(step).collect::<Vec<_>>(),
            "dateRange": {"date_from": date(self.from).to_string(), "date_to": date(self.to).to_string()},
            "funnelsFilter": {
                "funnelWindowInterval": self.window_hours, "funnelWindowIntervalUnit": "hour",
                "funnelOrderType": self.order, "funnelVizType": self.viz, "exclusions": exclusions,
                "breakdownAttributionType": self.split, "breakdownAttributionValue": self.attribution_step,
                "funnelFromStep": self.between.0, "funnelToStep": self.between.1, "layout": "vertical",
            },
            "breakdownFilter": match self.split {
                Some(_) => json!({"breakdown": "$browser", "breakdown_type": "event", "breakdown_limit": 2}),
                None => json!({}),
            },
        })
    }

    fn mask(&self, event: &Event) -> u32 {
        let is_chrome = matches!(event.browser, Some("Chrome" | "Edge"));
        let is = |(name, is_filtered): &(Option<&str>, bool)| {
            name.is_none_or(|name| name == event.name) && (!is_filtered || is_chrome)
        };
        let steps = self.steps.iter().enumerate().filter(|(_, step)| is(step));
        let excluded = self.exclusion.filter(|_| event.name == "leave").map_or(0, |_| EXCLUDED);
        steps.fold(excluded, |mask, (step, _)| mask | 1 << step)
    }

    /// The rows of each person in their order.
    fn rows(&self, world: &World) -> BTreeMap<usize, Vec<Row>> {
        let range = self.from * DAY - OFFSET..(self.to + 1) * DAY - OFFSET;
        let mut rows: BTreeMap<usize, Vec<Row>> = BTreeMap::new();
        for event in world.events.iter().filter(|event| range.contains(&event.at)) {
            let mask = self.mask(event);
            if mask != 0 || self.order == "strict" {
                let has_value = |browser: &&str| self.is_split() && !browser.is_empty();
                let value = event.browser.filter(has_value);
                rows.entry(world.persons[event.id]).or_default().push((event.at, mask, value));
            }
        }
        // Those without a value are the first of one time.
        rows.values_mut().for_each(|rows| rows.sort());
        rows
    }

    /// Whether it has values of a breakdown. Times to convert are of all together.
    fn is_split(&self) -> bool {
        self.split.is_some() && self.viz != "time_to_convert"
    }

    /// The rows without those that lie between two of the same step and value; trends have all.
    fn thinned(&self, rows: &[Row]) -> Vec<Row> {
        let is_plain = |row: &Row| row.1.count_ones() == 1 && row.1 != EXCLUDED;
        let is_same = |a: &Row, b: &Row| (a.1, a.2) == (b.1, b.2) && a.0 < b.0;
        let is_between = |at: &usize| {
            let around = (1..rows.len().saturating_sub(1)).contains(at);
            around && is_same(&rows[at - 1], &rows[*at]) && is_same(&rows[*at], &rows[at + 1])
        };
        let keeps = |at: &usize| self.viz == "trends" || !is_plain(&rows[*at]) || !is_between(at);
        (0..rows.len()).filter(keeps).map(|at| rows[at]).collect()
    }

    /// The rows that count for each value.
    fn by_value(&self, all: &[Row]) -> Vec<(String, Vec<Valued>)> {
        let rows = self.thinned(all);
        let text = |value: &Option<&'static str>| value.unwrap_or_default().to_owned();
        let every = || rows.iter().map(|row| (row.0, row.1, true)).collect();
        let mut values = all.iter().filter_map(|row| row.2);
        match self.split.filter(|_| self.is_split()) {
            None => vec![(String::new(), every())],
            Some("first_touch") => vec![(text(&values.next()), every())],
            Some("last_touch") => vec![(text(&values.next_back()), every())],
            Some("all_events") => {
                let values: BTreeSet<_> = rows.iter().map(|row| row.2).collect();
                let own = |value: &_| {
                    let own = rows.iter().filter(|row| row.2 == *value);
                    own.map(|row| (row.0, row.1, true)).collect()
                };
                values.iter().map(|value| (text(value), own(value))).collect()
            }
            Some(_) => {
                let bits = match self.order {
                    "unordered" => (1 << self.steps.len()) - 1,
                    _ => 1 << self.attribution_step,
                };
                let values: BTreeSet<_> =
                    all.iter().filter(|row| row.1 & bits != 0).map(|row| row.2).collect();
                let own =
                    |value: &_| rows.iter().map(|row| (row.0, row.1, row.2 == *value)).collect();
                values.iter().map(|value| (text(value), own(value))).collect()
            }
        }
    }

    /// Whether people may skip a step.
    fn is_optional(&self, step: usize) -> bool {
        self.optional >> step & 1 == 1
    }

    /// What is attributed to one value.
    fn attributed(&self) -> Option<usize> {
        (self.is_split() && self.split == Some("step")).then_some(self.attribution_step)
    }

    /// Where the attempts lead that begin within bounds.
    fn walk(&self, rows: &[Valued], starts: &RangeInclusive<i64>) -> Came {
        if self.order == "unordered" { self.gathered(rows, starts) } else { self.led(rows, starts) }
    }

    /// Steps in any order. What is open goes from its oldest row on: when all steps are there, when the window is over.
    fn gathered(&self, rows: &[Valued], starts: &RangeInclusive<i64>) -> Came {
        let (count, window) = (self.steps.len(), self.window_hours * HOUR);
        let mut open: Vec<(i64, usize)> = Vec::new();
        let mut best: Way = Vec::new();
        for now in rows.iter().map(Some).chain([None]) {
            while let Some(oldest) = open.iter().min().copied() {
                let first = |step| open.iter().filter(|own| own.1 == step).map(|own| own.0).min();
                let mut way: Way = (0..count).map(first).filter(Option::is_some).collect();
                way.sort();
                if way.len() < count && now.is_some_and(|now| now.0 - oldest.0 <= window) {
                    break;
                }
                if starts.contains(&oldest.0) && way.len() > best.len() {
                    best = way;
                }
                let place = open.iter().position(|own| *own == oldest).expect("the oldest");
                open.remove(place);
            }
            let Some((at, mask, is_own)) = now else { break };
            let steps: Vec<usize> = (0..count).filter(|step| mask >> step & 1 == 1).collect();
            if steps.is_empty() {
                open.clear();
            } else if self.attributed().is_none() || *is_own || !open.is_empty() {
                let last = |step: &usize| {
                    (open.iter().filter(|own| own.1 == *step).map(|own| own.0).max(), *step)
                };
                open.push((*at, steps.into_iter().min_by_key(last).expect("a step")));
            }
        }
        if best.is_empty() { Came::Nowhere } else { Came::To(best) }
    }

    /// One step after another. `stands` has for each step the way that came there last, and whether it is spoiled.
    fn led(&self, rows: &[Valued], starts: &RangeInclusive<i64>) -> Came {
        let is_trend = self.viz == "trends";
        let count = if is_trend { self.between.1 + 1 } else { self.steps.len() };
        let window = self.window_hours * HOUR;
        let is_of = |row: &Valued, step: usize| row.1 >> step & 1 == 1;
        // The value matters for what goes on from the step before the attributed one, whichever step it is of.
        let brings = |row: &Valued, (step, before): (usize, Option<usize>)| {
            let next = before.map_or(0, |before| before + 1);
            is_of(row, step) && (row.2 || self.attributed() != Some(next))
        };
        let mut stands: BTreeMap<usize, (Way, bool)> = BTreeMap::new();
        let mut best: Option<(Way, Option<bool>)> = None;
        let from = |stands: &BTreeMap<usize, (Way, bool)>, step: usize, at: i64| {
            let mut before = step;
            while before > 0 {
                before -= 1;
                if let Some((way, _)) = stands.get(&before)
                    && at - way[0].expect("a start") <= window
                {
                    let is_there = stands.get(&step).is_some_and(|(own, _)| own[0] == way[0]);
                    return (!is_there).then_some(before);
                }
                if !self.is_optional(before) {
                    return None;
                }
            }
            None
        };
        for group in rows.chunk_by(|a, b| a.0 == b.0) {
            let at = group[0].0;
            let are_alike = group.iter().all(|row| row.1 == group[0].1);
            let mut moves: Vec<(usize, bool, bool, Option<&Valued>)> = Vec::new();
            if are_alike {
                for row in group {
                    let spoils = |step: &usize| {
                        let within = self.exclusion.filter(|_| row.1 & EXCLUDED != 0);
                        within.is_some_and(|(from, to)| from < *step && *step <= to)
                    };
                    let spoiled = (1..count).rev().filter(spoils);
                    moves.extend(spoiled.map(|step| (step, true, false, None)));
                    let own = (0..count).rev().filter(|step| is_of(row, *step));
                    moves.extend(own.map(|step| (step, false, false, Some(row))));
                    moves.push((0, false, true, None));
                }
            } else {
                let own = (0..count).filter(|step| group.iter().any(|row| is_of(row, *step)));
                moves.extend(own.map(|step| (step, false, false, None)));
            }
            for (step, is_leave, is_end, row) in moves {
                if is_end {
                    if self.order == "strict" {
                        stands.retain(|step, _| group[0].1 >> step & 1 == 1);
                    }
                    continue;
                }
                let before = from(&stands, step, at);
                if is_leave {
                    let Some(before) = before else { continue };
                    let (_, is_spoiled) = stands.get_mut(&before).expect("the step before");
                    if !*is_spoiled
                        && let Some((way, spoiled)) = &mut best
                        && way.len() == before + 1
                        && at - way[usize::from(is_trend) * before].expect("it is done") <= window
                    {
                        *spoiled = Some(false);
                    }
                    *is_spoiled = true;
                    continue;
                }
                let is_new = step == 0
                    && starts.contains(&at)
                    && stands.get(&0).is_none_or(|(way, _)| way[0] != Some(at));
                if before.is_none() && !is_new {
                    continue;
                }
                let (mut way, is_spoiled) =
                    before.map_or_else(Default::default, |before| stands[&before].clone());
                let earlier = |step: usize| (0..step).rev().find(|own| way[*own].is_some());
                let tied = (0..way.len()).filter(|own| way[*own] == Some(at));
                let mut tied: Vec<_> = tied.map(|own| (own, earlier(own))).collect();
                tied.push((step, before));
                let is_brought = match are_alike {
                    true => brings(row.expect("one"), (step, before)),
                    false => fits(&tied, group, &brings),
                };
                if !is_brought {
                    continue;
                }
                way.resize(step, None);
                way.push(Some(at));
                if !is_spoiled {
                    stands.insert(step, (way.clone(), false));
                }
                let is_better = best.as_ref().is_none_or(|(best, spoiled)| {
                    let is_worth = match spoiled {
                        None => false,
                        Some(true) if is_trend => !is_spoiled && step + 1 == count,
                        Some(_) => true,
                    };
                    way.len() > best.len() || way.len() == best.len() && is_worth
                });
                if is_better {
                    best = Some((way, is_spoiled.then_some(true)));
                }
            }
            if stands.contains_key(&(count - 1)) {
                break;
            }
        }
        match best {
            None => Came::Nowhere,
            Some((_, Some(is_passed))) => Came::Spoiled(is_passed),
            Some((way, None)) => Came::To(way),
        }
    }

    /// The attempts that count of each person: person, value, times of steps.
    pub(crate) fn found(
        &self,
        world: &World,
        starts: &RangeInclusive<i64>,
    ) -> Vec<(usize, String, Way)> {
        let mut found = Vec::new();
        for (person, rows) in self.rows(world) {
            for (value, rows) in self.by_value(&rows) {
                let Came::To(way) = self.walk(&rows, starts) else { continue };
                // Who went on after leaving counts on no day that does not convert.
                let is_open = self.viz == "trends" && way.len() <= self.between.1;
                let mut days = self.from..=self.to;
                let is_passed =
                    |day| matches!(self.walk(&rows, &Self::day(day)), Came::Spoiled(true));
                if !is_open || self.order == "unordered" || !days.any(is_passed) {
                    found.push((person, value, way));
                }
            }
        }
        found
    }

    fn expected(&self, world: &World) -> Value {
        match self.viz {
            "steps" => self.expected_steps(world),
            "trends" => self.expected_trends(world),
            _ => self.expected_times(world),
        }
    }

    fn expected_steps(&self, world: &World) -> Value {
        let mut values: BTreeMap<String, Vec<Way>> = BTreeMap::new();
        for (_, value, times) in self.found(world, &(i64::MIN..=i64::MAX)) {
            values.entry(value).or_default().push(times);
        }
        let time = |own: &Way, step: usize| own.get(step).copied().flatten();
        let count =
            |all: &[Way], step: usize| all.iter().filter(|own| time(own, step).is_some()).count();
        let required = |step: usize| !self.is_optional(step);
        let body = |all: &[Way]| -> Value {
            let step = |step: usize| {
                let before = (0..step).rev().find(|before| required(*before));
                let time = |own: &Way| {
                    Some(time(own, step).filter(|_| required(step))? - time(own, before?)?)
                };
                let mut times: Vec<i64> =
                    all.iter().filter_map(time).filter(|time| *time > 0).collect();
                times.sort_unstable();
                let half = times.len() / 2;
                let average = (!times.is_empty())
                    .then(|| times.iter().sum::<i64>() as f64 / times.len() as f64);
                let median = (!times.is_empty())
                    .then(|| (times[half] + times[(times.len() - 1) / 2]) as f64 / 2.0);
                json!([count(all, step), average, median])
            };
            (0..self.steps.len()).map(step).collect()
        };
        if self.split.is_none() {
            return json!([[null, body(values.get("").map_or(&[][..], Vec::as_slice))]]);
        }
        let rank = |all: &[Way]| -> Vec<usize> {
            (0..self.steps.len()).rev().map(|step| count(all, step)).collect()
        };
        let mut values: Vec<(String, Vec<Way>)> = values.into_iter().collect();
        values.sort_by_key(|(value, all)| (Reverse(rank(all)), value.clone()));
        let others = values.split_off(values.len().min(2));
        if !others.is_empty() {
            let others = others.into_iter().flat_map(|(_, all)| all).collect();
            values.push(("Other".to_owned(), others));
        }
        values.iter().map(|(value, all)| json!([[value], body(all)])).collect()
    }

    fn expected_times(&self, world: &World) -> Value {
        let (from, to) = self.between;
        let found = self.found(world, &(i64::MIN..=i64::MAX));
        let times: Vec<i64> =
            found.iter().filter_map(|(.., way)| Some((*way.get(to)?)? - way[from]?)).collect();
        let (Some(min), Some(max)) = (times.iter().min(), times.iter().max()) else {
            return json!({"bins": [], "average_conversion_time": null});
        };
        let count = (1..60).find(|bins: &usize| bins.pow(3) >= times.len()).expect("few");
        let count = i64::try_from(count).expect("few");
        let width = match (max - min + count - 1) / count {
            0 => 60,
            width => width,
        };
        let bin = |bin: i64| {
            let start = min + bin * width;
            let own = times.iter().filter(|time| (start..start + width).contains(*time)).count();
            json!([start as f64, own])
        };
        let average = times.iter().sum::<i64>() as f64 / times.len() as f64;
        json!({"bins": (0..=count).map(bin).collect::<Vec<_>>(),
               "average_conversion_time": (average * 100.0).round() / 100.0})
    }

    fn day(day: i64) -> RangeInclusive<i64> {
        day * DAY - OFFSET..=(day + 1) * DAY - OFFSET - 1
    }

    fn expected_trends(&self, world: &World) -> Value {
        let (from, to) = self.between;
        let days = usize::try_from(self.to - self.from + 1).expect("days");
        let mut values: BTreeMap<String, Vec<(usize, usize)>> = BTreeMap::new();
        for (at, day) in (self.from..=self.to).enumerate() {
            for (_, value, times) in self.found(world, &Self::day(day)) {
                if times.len() > from {
                    let rates = values.entry(value).or_insert_with(|| vec![(0, 0); days]);
                    rates[at].0 += 1;
                    rates[at].1 += usize::from(times.len() > to);
                }
            }
        }
        let percent = |(entered, converted): &(usize, usize)| match entered {
            0 => 0.0,
            _ => (*converted as f64 / *entered as f64 * 10_000.0).round() / 100.0,
        };
        let body = |rates: &[(usize, usize)]| rates.iter().map(percent).collect::<Vec<f64>>();
        if self.split.is_none() {
            return json!([[null, body(values.get("").unwrap_or(&vec![(0, 0); days]))]]);
        }
        let sum = |rates: &[(usize, usize)]| {
            rates.iter().fold((0, 0), |sum, own| (sum.0 + own.1, sum.1 + own.0))
        };
        let mut values: Vec<_> = values.into_iter().collect();
        values.sort_by_key(|(value, rates)| (Reverse(sum(rates)), value.clone()));
        let others = values.split_off(values.len().min(2));
        if !others.is_empty() {
            let total = |at: usize| {
                others.iter().fold((0, 0), |sum, (_, own)| (sum.0 + own[at].0, sum.1 + own[at].1))
            };
            values.push(("Other".to_owned(), (0..days).map(total).collect()));
        }
        values.iter().map(|(value, rates)| json!([[value], body(rates)])).collect()
    }

    /// What the model says of an answer.
    fn shape(&self, results: &Value) -> Value {
        let list = || results.as_array().expect("a list");
        let value = |of: &Value| of.get("breakdown_value").cloned().unwrap_or_default();
        let steps = |steps: &Value| {
            let steps = steps.as_array().expect("steps");
            let step = |step: &Value| {
                json!([
                    step["count"],
                    step["average_conversion_time"],
                    step["median_conversion_time"]
                ])
            };
            json!([value(&steps[0]), steps.iter().map(step).collect::<Vec<_>>()])
        };
        match (self.viz, self.split) {
            ("steps", None) => json!([steps(results)]),
            ("steps", Some(_)) => list().iter().map(steps).collect(),
            ("trends", _) => list().iter().map(|own| json!([value(own), own["data"]])).collect(),
            _ => results.clone(),
        }
    }
}

/// Whether each of these steps has a row of its own.
fn fits(
    steps: &[(usize, Option<usize>)],
    rows: &[Valued],
    brings: &impl Fn(&Valued, (usize, Option<usize>)) -> bool,
) -> bool {
    let Some((step, others)) = steps.split_first() else { return true };
    (0..rows.len()).filter(|at| brings(&rows[*at], *step)).any(|at| {
        let left = [&rows[..at], &rows[at + 1..]].concat();
        fits(others, &left, brings)
    })
}

/// Equal, but for the rounding of numbers.
fn is_equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_equal(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| is_equal(a, b)))
        }
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().expect("finite"), b.as_f64().expect("finite"));
            (a - b).abs() <= 0.011_f64.min(1e-9 * a.abs().max(1.0)) || (a - b).abs() < 1e-9
        }
        _ => a == b,
    }
}

#[test]
fn funnels_equal_a_model_of_their_rules() {
    // A fixed world, and a fresh one.
    for (seed, count) in [(51, 180), (fresh_seed(), 120)] {
        eprintln!("{SEED}={seed}");
        let mut rng = StdRng::seed_from_u64(seed);
        let (mut server, world) = start(&mut rng);
        let kinds = ["steps", "steps", "trends", "time_to_convert"];
        let asked: Vec<(Asked, Value)> = (0..count)
            .map(|at| Asked::random(&mut rng, kinds[at % kinds.len()]))
            .map(|asked| (asked.clone(), asked.expected(&world)))
            .collect();
        in_each_state(&mut server, |server, round| {
            for (asked, expected) in &asked {
                let answer = server.post(QUERY, &json!({"query": asked.node()}));
                assert_eq!(answer.status, 200, "{answer} {asked:?}");
                let found = asked.shape(&answer.json()["results"]);
                assert!(is_equal(&found, expected), "{round} {asked:?}\n{found}\n{expected}");
            }
        });
    }
}

/// The persons of an answer to an `ActorsQuery`.
pub(crate) fn persons(server: &TestServer, world: &World, source: &Value) -> BTreeSet<usize> {
    let query = json!({"kind": "ActorsQuery", "source": source, "select": ["actor"]});
    let behind = server.post(QUERY, &json!({"query": query}));
    assert_eq!(behind.status, 200, "{behind} {source}");
    let behind = behind.json();
    let rows = behind["results"].as_array().expect("rows");
    let found: BTreeSet<usize> = rows.iter().map(|row| world.person_of(&row[0])).collect();
    assert_eq!(found.len(), rows.len(), "each once");
    found
}

#[test]
fn the_persons_behind_steps_are_those_that_were_counted() {
    let mut rng = StdRng::seed_from_u64(52);
    let (server, world) = start(&mut rng);
    for _ in 0..30 {
        let asked = Asked::random(&mut rng, "steps");
        let found = asked.found(&world, &(i64::MIN..=i64::MAX));
        let results = server.post(QUERY, &json!({"query": asked.node()})).json()["results"].clone();
        let funnels = match asked.split {
            None => vec![results],
            Some(_) => results.as_array().expect("values").clone(),
        };
        let name = |steps: &Value| steps[0]["breakdown_value"][0].as_str().map(str::to_owned);
        let shown: Vec<Option<String>> = funnels.iter().map(name).collect();
        for (steps, value) in funnels.iter().zip(&shown) {
            let is_of = |own: &String| match value.as_deref() {
                None => true,
                Some("Other") => !shown.contains(&Some(own.clone())),
                Some(value) => value == own,
            };
            for (at, step) in (1..).zip(steps.as_array().expect("steps")) {
                let mut source = json!({"kind": "FunnelsActorsQuery", "source": asked.node(),
                                        "funnelStepBreakdown": step.get("breakdown_value")});
                let own = found.iter().filter(|(_, value, _)| is_of(value));
                let reached = |is: &dyn Fn(&Way) -> bool| -> BTreeSet<usize> {
                    own.clone().filter(|found| is(&found.2)).map(|found| found.0).collect()
                };
                let did = |way: &Way, place: usize| way.get(place).is_some_and(Option::is_some);
                source["funnelStep"] = json!(at);
                let behind = persons(&server, &world, &source);
                assert_eq!(behind, reached(&|way| did(way, at - 1)), "{asked:?} {value:?} {at}");
                if value.as_deref() != Some("Other") {
                    assert_eq!(Some(behind.len() as u64), step["count"].as_u64());
                }
                if at == 1 {
                    continue;
                }
                source["funnelStep"] = json!(-i64::try_from(at).expect("few"));
                let behind = persons(&server, &world, &source);
                let required = (0..at - 1).rev().find(|step| !asked.is_optional(*step));
                let required = required.expect("the first step");
                let left = reached(&|way| did(way, required) && !did(way, at - 1));
                assert_eq!(behind, left, "{asked:?} {value:?} -{at}");
                source["funnelCustomSteps"] = json!([1, at]);
                let behind = persons(&server, &world, &source);
                assert_eq!(behind, reached(&|way| way.len() == 1 || way.len() == at), "{asked:?}");
            }
        }
    }
    for _ in 0..15 {
        let asked = Asked { split: None, ..Asked::random(&mut rng, "trends") };
        let day = rng.random_range(asked.from..=asked.to);
        let found = asked.found(&world, &Asked::day(day));
        for is_drop_off in [false, true] {
            let source = json!({
                "kind": "FunnelsActorsQuery", "source": asked.node(), "funnelTrendsDropOff": is_drop_off,
                "funnelTrendsEntrancePeriodStart": format!("{} 00:00:00", date(day)),
            });
            let (from, to) = asked.between;
            let is = |steps: usize| steps > from && is_drop_off == (steps <= to);
            let expected = found.iter().filter(|found| is(found.2.len())).map(|found| found.0);
            let behind = persons(&server, &world, &source);
            assert_eq!(behind, expected.collect(), "{asked:?} {day} {is_drop_off}");
        }
    }
}

fn count(page: &Value) -> Option<u64> {
    page["results"][0]["count"].as_u64()
}

#[test]
fn older_clients_get_steps_and_follow_their_links() {
    let mut rng = StdRng::seed_from_u64(53);
    let (server, world) = start(&mut rng);
    let events =
        json!([{"id": "buy", "order": 1}, {"id": "view", "order": 0}, {"id": "view", "order": 2}]);
    let base = json!({"insight": "FUNNELS", "events": events, "date_from": "2026-01-05", "date_to": "2026-01-30",
                      "funnel_window_days": 9});
    let with = |more: Value| {
        let mut filter = base.clone();
        filter.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        filter
    };
    let asked = Asked {
        steps: vec![(Some("view"), false), (Some("buy"), false), (Some("view"), false)],
        optional: 0,
        order: "ordered",
        viz: "steps",
        window_hours: 9 * 24,
        exclusion: None,
        split: None,
        attribution_step: 0,
        between: (0, 2),
        from: FIRST_DAY,
        to: FIRST_DAY + 25,
    };
    let steps = server.post(LEGACY, &base);
    assert_eq!(steps.status, 200, "{steps}");
    let steps = steps.json()["result"].clone();
    let expected = asked.expected(&world);
    assert!(is_equal(&asked.shape(&steps), &expected), "{steps} {expected}");
    let names: Vec<_> = (0..3).map(|at| (&steps[at]["action_id"], &steps[at]["order"])).collect();
    assert_eq!(json!(names), json!([["view", 0], ["buy", 1], ["view", 2]]));
    let follow = |url: &Value| server.get(&format!("/{}", url.as_str().expect("a link"))).json();
    for at in 0..3 {
        assert_eq!(count(&follow(&steps[at]["converted_people_url"])), steps[at]["count"].as_u64());
    }
    assert_eq!(steps[0]["dropped_people_url"], Value::Null);
    let dropped = count(&follow(&steps[2]["dropped_people_url"])).expect("a count");
    let of = |at: usize| steps[at]["count"].as_u64().expect("a count");
    assert_eq!(dropped, of(1) - of(2));

    // Every value has its own links; the one of no value, too.
    let split = with(json!({"breakdown": "$browser", "breakdown_limit": 2}));
    let split = server.post(LEGACY, &split).json()["result"].clone();
    assert_eq!(split.as_array().map(Vec::len), Some(3), "{split}");
    for steps in split.as_array().unwrap() {
        for step in steps.as_array().unwrap() {
            let people = follow(&step["converted_people_url"]);
            assert_eq!(count(&people), step["count"].as_u64(), "{step}");
        }
    }
    let trend = server.post(LEGACY, &with(json!({"funnel_viz_type": "trends"}))).json();
    let trend = &trend["result"][0];
    assert_eq!((&trend["count"], &trend["days"][0]), (&json!(26), &json!("2026-01-05")));
    let behind = follow(&trend["persons_urls"][0]["url"]);
    let rate = trend["data"][0].as_f64().expect("a rate");
    assert_eq!(count(&behind) == Some(0), rate == 0.0, "{behind} {rate}");

    // Pages go on where there are more, under the older name, too.
    let url = steps[0]["converted_people_url"].as_str().unwrap();
    let query = url.split_once('?').unwrap().1;
    let (mut seen, mut next) = (BTreeSet::new(), format!("/api/person/funnel/?{query}&limit=4"));
    while !next.is_empty() {
        let page = server.get(&next).json();
        for own in page["results"][0]["people"].as_array().unwrap() {
            assert!(seen.insert(world.person_of(own)), "{own} twice");
        }
        next = page["next"].as_str().map(|url| url.replace(&server.url(), "")).unwrap_or_default();
    }
    assert_eq!(seen.len() as u64, of(0));
    let path = format!("/{url}&format=csv");
    let csv = server.get(&path);
    assert_eq!(
        (csv.status, csv.header("content-type")),
        (200, Some("text/csv; charset=utf-8")),
        "{csv}"
    );

    let persons = "/api/projects/@current/persons/funnel/";
    for (more, attr) in [
        (json!({}), "funnel_step"),
        (json!({"funnel_step": -1}), "funnel_step"),
        (json!({"funnel_step": 4}), "funnel_step"),
        (json!({"funnel_step": "x"}), "funnel_step"),
        (json!({"funnel_custom_steps": [0]}), "funnel_custom_steps"),
        (json!({"funnel_viz_type": "trends"}), "drop_off"),
        (json!({"funnel_viz_type": "trends", "drop_off": true}), "entrance_period_start"),
        (
            json!({"funnel_viz_type": "trends", "drop_off": true, "entrance_period_start": "1999-01-01"}),
            "funnelTrendsEntrancePeriodStart",
        ),
        (json!({"insight": "TRENDS"}), "insight"),
    ] {
        let answer = server.post(persons, &with(more.clone()));
        let told = answer.json();
        assert_eq!((answer.status, &told["attr"]), (400, &json!(attr)), "{more} {told}");
    }
    let none = server.post(LEGACY, &json!({})).json();
    assert_eq!(none["result"], json!([]), "no steps");
}

#[test]
fn what_is_wrong_or_not_available_is_told_by_its_field() {
    let mut rng = StdRng::seed_from_u64(54);
    let server = TestServer::start();
    let node = |options: Value| {
        json!({"kind": "FunnelsQuery", "funnelsFilter": options,
               "series": [{"kind": "EventsNode", "event": "a"}, {"kind": "EventsNode", "event": "b"}]})
    };
    let exclusion = |event: &str, from: usize, to: usize| json!({"exclusions": [{"event": event, "funnelFromStep": from, "funnelToStep": to}]});
    for (options, attr) in [
        (json!({"funnelWindowIntervalUnit": "year"}), "funnelWindowIntervalUnit"),
        (json!({"funnelAggregateByHogQL": "1, 2"}), "funnelAggregateByHogQL"),
        (exclusion("a", 0, 1), "exclusions__0__event"),
        (exclusion("x", 1, 1), "exclusions__0__funnelFromStep"),
        (
            json!({"funnelOrderType": "unordered", "breakdownAttributionType": "step", "breakdownAttributionValue": 1}),
            "breakdownAttributionValue",
        ),
    ] {
        let answer = server.post(QUERY, &json!({"query": node(options)}));
        let told = answer.json();
        let attr = json!(format!("query__funnelsFilter__{attr}"));
        let expected = (400, &json!("validation_error"), &attr);
        assert_eq!((answer.status, &told["type"], &told["attr"]), expected, "{told}");
    }
    let mut skipped = node(json!({"funnelVizType": "trends"}));
    skipped["series"][1]["optionalInFunnel"] = json!(true);
    let told = server.post(QUERY, &json!({"query": skipped})).json();
    assert_eq!(told["attr"], "query__series__1__optionalInFunnel", "{told}");
    let actors = |source: Value| {
        let query = json!({"kind": "ActorsQuery", "source": source});
        server.post(QUERY, &json!({"query": query})).json()
    };
    let step = json!({"kind": "FunnelsActorsQuery", "source": node(json!({})), "funnelStep": -1});
    assert_eq!(actors(step)["attr"], "query__source__funnelStep");
    let nobody = server.post(QUERY, &json!({"query": node(json!({}))})).json();
    let counts = [&nobody["results"][0]["count"], &nobody["results"][1]["count"]];
    assert_eq!(counts, [&json!(0), &json!(0)], "{nobody}");

    // Another project sees nothing of it.
    let (server, _) = start(&mut rng);
    let other = server.post("/api/projects/", &json!({"name": "Other"})).json();
    let path = format!("/api/projects/{}/query/", other["id"]);
    let query = json!({"kind": "FunnelsQuery", "series": [{"event": null}], "dateRange": {"date_from": "all"}});
    let found = server.post(&path, &json!({"query": query})).json();
    assert_eq!(found["results"][0]["count"], 0, "{found}");
}
