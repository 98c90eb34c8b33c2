//! Histories as they are published with their answers, and random ones beside a search through all attempts.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use rand::Rng;
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::Course;
use super::Exclusion;
use super::Moment;
use super::Order;
use super::Outcome;

const ALL: RangeInclusive<i64> = i64::MIN..=i64::MAX;

/// The bit of the one exclusion.
const X: u32 = 1 << 20;

fn course(order: Order, steps: usize, window: i64) -> Course {
    Course { order, steps, optional: 0, window, exclusions: Vec::new() }
}

/// An attempt that skips nothing.
fn reached(times: &[i64]) -> Outcome {
    Outcome::Reached(times.iter().copied().map(Some).collect())
}

/// `AB` at 3 is an event of the steps A and B; `X` is one of the exclusion, and `-` is of nothing.
fn moments(text: &str) -> Vec<Moment> {
    let moment = |word: &str| {
        let (names, at) = word.split_once('@').unwrap();
        let bit = |name| match name {
            'X' => X,
            '-' => 0,
            step => 1 << (u32::from(step) - u32::from('A')),
        };
        Moment { at: at.parse().unwrap(), mask: names.chars().map(bit).sum() }
    };
    let mut moments: Vec<Moment> = text.split_whitespace().map(moment).collect();
    moments.sort_by_key(|moment| (moment.at, moment.mask));
    moments
}

#[test]
fn furthest_steps_of_published_examples() {
    use Order::Ordered;
    use Order::Strict;
    use Order::Unordered;
    for (order, history, expected) in [
        (Ordered, "A@0 B@1 C@2", &[0, 1, 2][..]),
        (Ordered, "A@0 -@1 B@2 C@3", &[0, 2, 3]),
        (Ordered, "B@0 C@1", &[]),
        (Ordered, "A@0 C@1 B@2", &[0, 2]),
        // A repeated first step: the latest before counts.
        (Ordered, "A@0 A@5 B@6", &[5, 6]),
        (Ordered, "A@0 B@1 A@2 C@3", &[0, 1, 3]),
        (Ordered, "A@0 B@1 A@2 B@3 C@4", &[2, 3, 4]),
        // The window begins with the first step and includes its end.
        (Ordered, "A@0 B@50 C@100", &[0, 50, 100]),
        (Ordered, "A@0 B@50 C@101", &[0, 50]),
        (Ordered, "A@0 B@101", &[0]),
        (Ordered, "A@0 B@101 A@150 B@160 C@170", &[150, 160, 170]),
        // Ties.
        (Ordered, "C@0 B@0 A@0", &[0, 0, 0]),
        (Ordered, "AB@0", &[0]),
        (Ordered, "AB@0 AB@0", &[0, 0]),
        (Ordered, "AB@0 B@0", &[0, 0]),
        (Ordered, "AB@0 A@0 C@0", &[0, 0, 0]),
        (Ordered, "ABC@0 ABC@1 ABC@2", &[0, 1, 2]),
        (Strict, "A@0 B@1 C@2", &[0, 1, 2]),
        (Strict, "A@0 -@1 B@2 C@3", &[0]),
        (Strict, "A@0 B@1 -@2 A@3 B@4 C@5", &[3, 4, 5]),
        (Strict, "A@0 A@1 B@2 C@3", &[1, 2, 3]),
        (Strict, "A@0 B@1 C@102", &[0, 1]),
        (Unordered, "C@0 A@1 B@2", &[0, 1, 2]),
        (Unordered, "B@0 A@1 -@2", &[0, 1]),
        (Unordered, "C@0 A@101 B@102", &[101, 102]),
        (Unordered, "A@0 A@5 B@6", &[5, 6]),
        (Unordered, "AB@0", &[0]),
        (Unordered, "AB@0 A@1 BC@2 B@3", &[0, 1, 2]),
        (Unordered, "-@1", &[]),
    ] {
        let found = course(order, 3, 100).walk(&moments(history), &ALL);
        let expected = match expected {
            [] => Outcome::Nothing,
            times => reached(times),
        };
        assert_eq!(found, expected, "{order:?} {history}");
    }
}

#[test]
fn actors_are_out_where_every_furthest_attempt_is_spoiled() {
    for (history, (from, to), expected) in [
        ("A@0 X@1 B@2 C@3", (0, 1), None),
        ("A@0 B@1 X@2 C@3", (0, 1), Some(&[0, 1, 3][..])),
        ("A@0 B@1 X@2 C@3", (0, 2), None),
        ("A@0 B@1 X@2 C@3", (1, 2), None),
        ("X@0 A@1 B@2 C@3 X@4", (0, 2), Some(&[1, 2, 3])),
        // Another attempt that comes as far has none in between.
        ("A@0 X@1 B@2 A@3 B@4", (0, 1), Some(&[3, 4])),
        ("A@0 B@1 A@2 X@3 B@4 C@5", (0, 1), Some(&[0, 1, 5])),
        // The events of one time may be fewer steps than they could be.
        ("ABC@0 ABC@4 X@5 ABC@7 ABC@7", (0, 1), Some(&[0, 4, 7])),
        // Until the end of the window where the later step is not reached.
        ("A@0 X@1", (0, 1), None),
        ("A@0 X@100", (0, 1), None),
        ("A@0 X@101", (0, 1), Some(&[0])),
        ("A@0 X@1 A@2", (0, 1), Some(&[2])),
        ("A@0 B@1 X@2", (1, 2), None),
        ("A@0 X@1", (1, 2), Some(&[0])),
        // At the time of either step it is not in between.
        ("A@0 X@0 B@1 X@1 C@2", (0, 1), Some(&[0, 1, 2])),
    ] {
        let mut course = course(Order::Ordered, 3, 100);
        course.exclusions.push(Exclusion { mask: X, from, to });
        let found = course.walk(&moments(history), &ALL);
        let expected = expected.map_or(Outcome::Excluded, reached);
        assert_eq!(found, expected, "{history} {from} {to}");
    }
    let mut course = course(Order::Unordered, 2, 100);
    course.exclusions.push(Exclusion { mask: X, from: 0, to: 1 });
    assert_eq!(course.walk(&moments("B@0 X@1 A@2"), &ALL), Outcome::Excluded);
    let clean = course.walk(&moments("B@0 X@1 A@2 B@3"), &ALL);
    assert_eq!(clean, reached(&[2, 3]));
}

/// Of the steps A to D, B and C may be skipped, or those that are named.
#[test]
fn optional_steps_are_skipped_where_they_do_not_come() {
    use Order::Ordered;
    use Order::Strict;
    for (order, optional, history, expected) in [
        (Ordered, "BC", "A@0 D@1", &[Some(0), None, None, Some(1)][..]),
        (Ordered, "BC", "A@0 B@1 D@2", &[Some(0), Some(1), None, Some(2)]),
        (Ordered, "BC", "A@0 C@1 B@2 D@3", &[Some(0), None, Some(1), Some(3)]),
        (Ordered, "BC", "A@0 C@1", &[Some(0), None, Some(1)]),
        (Ordered, "B", "A@0 B@1 D@2", &[Some(0), Some(1)]),
        (Ordered, "B", "B@0 C@1 D@2", &[]),
        (Ordered, "D", "A@0 B@1 C@2", &[Some(0), Some(1), Some(2)]),
        (Ordered, "D", "A@0 B@1 C@2 D@3", &[Some(0), Some(1), Some(2), Some(3)]),
        // The steps that were done count, not the latest beginning; unless the window is over.
        (Ordered, "BC", "A@0 B@1 A@50 D@60", &[Some(0), Some(1), None, Some(60)]),
        (Ordered, "BC", "A@0 B@1 A@50 D@101", &[Some(50), None, None, Some(101)]),
        (Ordered, "B", "A@0 B@10 A@50 C@80 D@140", &[Some(50), None, Some(80), Some(140)]),
        (Ordered, "BC", "A@0 B@1 A@2 C@3 D@4", &[Some(0), Some(1), Some(3), Some(4)]),
        // One event fills one step.
        (Ordered, "BC", "A@0 BD@1", &[Some(0), None, None, Some(1)]),
        (Ordered, "BC", "A@0 BD@1 BD@2", &[Some(0), None, None, Some(1)]),
        (Ordered, "BC", "A@0 BD@1 BD@1", &[Some(0), Some(1), None, Some(1)]),
        (Strict, "BC", "A@0 D@1", &[Some(0), None, None, Some(1)]),
        (Strict, "BC", "A@0 C@1 D@2", &[Some(0), None, Some(1), Some(2)]),
        (Strict, "BC", "A@0 C@1 B@2 D@3", &[Some(0), None, Some(1)]),
        (Strict, "BC", "A@0 -@1 D@2", &[Some(0)]),
    ] {
        let mut course = course(order, 4, 100);
        course.optional =
            optional.chars().map(|step| 1 << (u32::from(step) - u32::from('A'))).sum();
        let expected = match expected {
            [] => Outcome::Nothing,
            way => Outcome::Reached(way.to_vec()),
        };
        assert_eq!(
            course.walk(&moments(history), &ALL),
            expected,
            "{order:?} {optional} {history}"
        );
    }
    for ((from, to), history, expected) in [
        // From the step before a skipped one, up to the step after it.
        ((1, 3), "A@0 X@1 D@2", None),
        ((0, 1), "A@0 X@1 D@2", None),
        ((0, 1), "A@0 B@1 X@2 D@3", Some(&[Some(0), Some(1), None, Some(3)][..])),
        ((0, 1), "X@0 A@1 D@2 X@3", Some(&[Some(1), None, None, Some(2)])),
        // Where the attempt ends before, nothing is in between.
        ((1, 3), "A@0 X@1", Some(&[Some(0)])),
        ((0, 1), "A@0 X@1", None),
        // Another way is not spoiled.
        ((0, 1), "A@0 B@1 X@2 A@3 D@4", Some(&[Some(0), Some(1), None, Some(4)])),
        ((1, 2), "A@0 B@1 X@2 A@3 D@4", Some(&[Some(3), None, None, Some(4)])),
    ] {
        let mut course = course(Ordered, 4, 100);
        course.optional = 0b0110;
        course.exclusions.push(Exclusion { mask: X, from, to });
        let expected = expected.map_or(Outcome::Excluded, |way| Outcome::Reached(way.to_vec()));
        assert_eq!(course.walk(&moments(history), &ALL), expected, "{from} {to} {history}");
    }
}

#[test]
fn attempts_begin_within_bounds() {
    let history = moments("A@0 B@1 A@10 B@11 C@12 A@20");
    let course = course(Order::Ordered, 3, 100);
    for (starts, expected) in [
        (0..=5, reached(&[0, 11, 12])),
        (5..=15, reached(&[10, 11, 12])),
        (15..=25, reached(&[20])),
        (25..=99, Outcome::Nothing),
    ] {
        assert_eq!(course.walk(&history, &starts), expected, "{starts:?}");
    }
}

/// An attempt: the places of the events of its steps, with the steps.
type Attempt = Vec<(usize, usize)>;

/// All attempts, of any length.
fn attempts(course: &Course, events: &[Moment], starts: &RangeInclusive<i64>) -> Vec<Attempt> {
    let may_follow = |attempt: &Attempt, step: usize| match (course.order, attempt.last()) {
        (Order::Unordered, _) => attempt.iter().all(|(_, own)| *own != step),
        (_, None) => step == 0,
        (_, Some((_, last))) => {
            step > *last && (last + 1..step).all(|skipped| course.optional >> skipped & 1 == 1)
        }
    };
    let mut all: Vec<Attempt> = Vec::new();
    let mut open: Vec<Attempt> = vec![Vec::new()];
    while let Some(attempt) = open.pop() {
        for (place, event) in events.iter().enumerate() {
            let is_next = match (attempt.first(), attempt.last()) {
                (Some((first, _)), Some((last, _))) => {
                    let is_after = match course.order {
                        Order::Strict => place == last + 1,
                        _ => event.at >= events[*last].at,
                    };
                    let is_new = attempt.iter().all(|(own, _)| *own != place);
                    is_after && is_new && event.at - events[*first].at <= course.window
                }
                _ => starts.contains(&event.at),
            };
            let steps = (0..course.steps).filter(|step| is_next && event.mask >> step & 1 == 1);
            for step in steps.filter(|step| may_follow(&attempt, *step)) {
                let longer = [attempt.as_slice(), &[(place, step)]].concat();
                all.push(longer.clone());
                open.push(longer);
            }
        }
    }
    all
}

/// Whether an event of an exclusion is in between: between the last step up to its earlier one and the first from its
/// later one on, if the attempt comes to the earlier one at all.
fn spoils(course: &Course, events: &[Moment], way: &[Option<i64>], is_decided: bool) -> bool {
    course.exclusions.iter().any(|exclusion| {
        if way.len() <= exclusion.from {
            return false;
        }
        let after = way[..=exclusion.from].iter().rev().find_map(|at| *at).expect("the first step");
        let before = way.iter().skip(exclusion.to).find_map(|at| *at);
        let end = way[0].expect("the first step") + course.window;
        events.iter().filter(|event| event.mask & exclusion.mask != 0).any(|event| match before {
            Some(before) => event.at > after && event.at < before,
            None => !is_decided && event.at > after && event.at <= end,
        })
    })
}

/// The same as [`Course::walk`], by its definition.
fn naive(course: &Course, events: &[Moment], starts: &RangeInclusive<i64>) -> Outcome {
    let all = attempts(course, events, starts);
    let is_unordered = course.order == Order::Unordered;
    let length = |attempt: &Attempt| match is_unordered {
        true => attempt.len(),
        false => attempt.last().map_or(0, |(_, step)| step + 1),
    };
    let Some(furthest) = all.iter().map(length).max() else { return Outcome::Nothing };
    let way = |attempt: &Attempt| -> Vec<Option<i64>> {
        if is_unordered {
            return attempt.iter().map(|(place, _)| Some(events[*place].at)).collect();
        }
        let mut way = vec![None; furthest];
        attempt.iter().for_each(|(place, step)| way[*step] = Some(events[*place].at));
        way
    };
    let is_furthest = |attempt: &&Attempt| length(attempt) == furthest;
    let furthest_ways = || all.iter().filter(is_furthest).map(way);
    let candidates: Vec<Vec<Option<i64>>> = match course.order {
        Order::Strict => furthest_ways().collect(),
        // One for each first event, which takes others as soon as they come.
        Order::Unordered => (0..events.len())
            .filter_map(|place| {
                let own = all.iter().filter(|attempt| attempt[0].0 == place);
                own.filter(is_furthest).map(way).min()
            })
            .collect(),
        // One for each time at which it is there and each choice of steps: the latest of those that are not spoiled.
        Order::Ordered => {
            type Done = Vec<bool>;
            let mut latest: BTreeMap<(Option<i64>, Done), Vec<Option<i64>>> = BTreeMap::new();
            for way in furthest_ways().filter(|way| !spoils(course, events, way, true)) {
                let done = way.iter().map(Option::is_some).collect();
                let own = latest.entry((way[furthest - 1], done)).or_default();
                *own = way.max(std::mem::take(own));
            }
            latest.into_values().collect()
        }
    };
    let clean = candidates.into_iter().filter(|way| !spoils(course, events, way, false));
    let done =
        |way: &[Option<i64>]| -> Vec<bool> { way.iter().rev().map(Option::is_some).collect() };
    match clean.min_by_key(|way| (way.last().copied(), Reverse(done(way)), Reverse(way.clone()))) {
        Some(way) => Outcome::Reached(way),
        None => Outcome::Excluded,
    }
}

/// Goal: the answers of the definition. Method: short random histories with ties, events of several steps,
/// repeated steps and exclusions, over a search through all attempts.
#[test]
fn walks_equal_a_search_through_all_attempts() {
    let mut rng = StdRng::seed_from_u64(41);
    let mut seen = [0_usize; 5];
    for round in 0..60_000 {
        let order = [Order::Ordered, Order::Strict, Order::Unordered][round % 3];
        let steps = rng.random_range(1..=4);
        let mut course = course(order, steps, rng.random_range(0..12));
        if order != Order::Unordered && rng.random_bool(0.4) {
            course.optional = rng.random_range(0..1 << steps) & !1;
        }
        if steps > 1 && rng.random_bool(0.4) {
            let from = match order {
                Order::Unordered => 0,
                _ => rng.random_range(0..steps - 1),
            };
            let to = match order {
                Order::Unordered => steps - 1,
                _ => rng.random_range(from + 1..steps),
            };
            course.exclusions.push(Exclusion { mask: X, from, to });
        }
        // Some funnels have the same events as several steps.
        let same = rng.random_bool(0.3);
        let ties = rng.random_range(2..20);
        let mut events: Vec<Moment> = (0..rng.random_range(0..8))
            .map(|_| {
                let mask = match rng.random_range(0..10) {
                    0 => 0,
                    1 | 4 if !course.exclusions.is_empty() => X,
                    _ if same => (1 << steps) - 1,
                    2 | 3 => rng.random_range(1..1 << steps),
                    _ => 1 << rng.random_range(0..steps),
                };
                Moment { at: rng.random_range(0..ties), mask }
            })
            .collect();
        events.sort_by_key(|event| (event.at, event.mask));
        let starts = match rng.random_bool(0.3) {
            true => rng.random_range(0..6)..=rng.random_range(4..12),
            false => ALL,
        };
        let found = course.walk(&events, &starts);
        assert_eq!(found, naive(&course, &events, &starts), "{course:?} {events:?} {starts:?}");
        seen[match &found {
            Outcome::Nothing => 0,
            Outcome::Excluded => 1,
            Outcome::Reached(way) if way.contains(&None) => 4,
            Outcome::Reached(way) if way.len() == steps => 3,
            Outcome::Reached(_) => 2,
        }] += 1;
    }
    assert!(seen.iter().all(|count| *count > 500), "{seen:?}");
}

#[test]
fn long_histories_take_little_time() {
    for order in [Order::Ordered, Order::Strict, Order::Unordered] {
        let mut course = course(order, 20, 1_000_000);
        course.exclusions.push(Exclusion { mask: X, from: 0, to: 19 });
        // The last step never comes.
        let mask = |at: i64| if at % 37 == 0 { X } else { 1 << (at % 19) };
        let events: Vec<Moment> = (0..9_991).map(|at| Moment { at, mask: mask(at) }).collect();
        assert_eq!(course.walk(&events, &ALL), Outcome::Excluded, "{order:?}");
        if order != Order::Unordered {
            // As many optional steps as a request may have.
            course.optional = 0b111_1110;
            assert_eq!(course.walk(&events, &ALL), Outcome::Excluded, "{order:?}");
        }
    }
}
