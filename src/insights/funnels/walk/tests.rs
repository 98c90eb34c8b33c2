//! Histories as they are published with their answers, and random ones beside a search through all attempts.

use std::cmp::Reverse;
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
    Course { order, steps, window, exclusions: Vec::new() }
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
            times => Outcome::Reached(times.to_vec()),
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
        let expected = expected.map_or(Outcome::Excluded, |times| Outcome::Reached(times.to_vec()));
        assert_eq!(found, expected, "{history} {from} {to}");
    }
    let mut course = course(Order::Unordered, 2, 100);
    course.exclusions.push(Exclusion { mask: X, from: 0, to: 1 });
    assert_eq!(course.walk(&moments("B@0 X@1 A@2"), &ALL), Outcome::Excluded);
    let clean = course.walk(&moments("B@0 X@1 A@2 B@3"), &ALL);
    assert_eq!(clean, Outcome::Reached(vec![2, 3]));
}

#[test]
fn attempts_begin_within_bounds() {
    let history = moments("A@0 B@1 A@10 B@11 C@12 A@20");
    let course = course(Order::Ordered, 3, 100);
    for (starts, expected) in [
        (0..=5, Outcome::Reached(vec![0, 11, 12])),
        (5..=15, Outcome::Reached(vec![10, 11, 12])),
        (15..=25, Outcome::Reached(vec![20])),
        (25..=99, Outcome::Nothing),
    ] {
        assert_eq!(course.walk(&history, &starts), expected, "{starts:?}");
    }
}

/// All attempts: the places of the events of their steps, of any length.
fn attempts(course: &Course, events: &[Moment], starts: &RangeInclusive<i64>) -> Vec<Vec<usize>> {
    let mut all: Vec<Vec<usize>> = Vec::new();
    let mut open: Vec<(Vec<usize>, u32)> = vec![(Vec::new(), 0)];
    while let Some((attempt, used)) = open.pop() {
        for (place, event) in events.iter().enumerate() {
            let Some(&last) = attempt.last() else {
                if !starts.contains(&event.at) {
                    continue;
                }
                let begins = match course.order {
                    Order::Unordered => event.mask & ((1 << course.steps) - 1),
                    _ => event.mask & 1,
                };
                for step in (0..course.steps).filter(|step| begins >> step & 1 == 1) {
                    open.push((vec![place], 1 << step));
                    all.push(vec![place]);
                }
                continue;
            };
            let is_next = match course.order {
                Order::Strict => place == last + 1,
                _ => !attempt.contains(&place) && event.at >= events[last].at,
            };
            if !is_next || event.at - events[attempt[0]].at > course.window {
                continue;
            }
            let steps = match course.order {
                Order::Unordered => 0..course.steps,
                _ => attempt.len()..(attempt.len() + 1).min(course.steps),
            };
            for step in steps.filter(|step| event.mask >> step & 1 == 1 && used >> step & 1 == 0) {
                let longer = [attempt.as_slice(), &[place]].concat();
                all.push(longer.clone());
                open.push((longer, used | 1 << step));
            }
        }
    }
    all
}

fn spoils(course: &Course, events: &[Moment], times: &[i64], is_decided: bool) -> bool {
    course.exclusions.iter().any(|exclusion| {
        events.iter().filter(|event| event.mask & exclusion.mask != 0).any(|event| {
            match (times.get(exclusion.from), times.get(exclusion.to)) {
                (Some(after), Some(before)) => event.at > *after && event.at < *before,
                (Some(after), None) if !is_decided => {
                    event.at > *after && event.at <= times[0] + course.window
                }
                _ => false,
            }
        })
    })
}

/// The same as [`Course::walk`], by its definition.
fn naive(course: &Course, events: &[Moment], starts: &RangeInclusive<i64>) -> Outcome {
    let all = attempts(course, events, starts);
    let Some(furthest) = all.iter().map(Vec::len).max() else { return Outcome::Nothing };
    let times = |attempt: &Vec<usize>| -> Vec<i64> {
        attempt.iter().map(|place| events[*place].at).collect()
    };
    let of_start = |place: usize| all.iter().filter(move |attempt| attempt[0] == place);
    let is_furthest = |attempt: &&Vec<usize>| attempt.len() == furthest;
    let candidates: Vec<Vec<i64>> = match course.order {
        Order::Strict => all.iter().filter(is_furthest).map(times).collect(),
        // One for each first event, which takes others as soon as they come.
        Order::Unordered => (0..events.len())
            .filter_map(|place| of_start(place).filter(is_furthest).map(times).min())
            .collect(),
        // One for each time at which it is there: the latest of those that are not spoiled.
        Order::Ordered => {
            let mut ends: Vec<i64> = events.iter().map(|event| event.at).collect();
            ends.dedup();
            let of_end = |end: i64| {
                let own = all.iter().filter(is_furthest).map(times);
                own.filter(|times| {
                    times.last() == Some(&end) && !spoils(course, events, times, true)
                })
                .max()
            };
            ends.into_iter().filter_map(of_end).collect()
        }
    };
    let clean = candidates.into_iter().filter(|times| !spoils(course, events, times, false));
    match clean.min_by_key(|times| (times.last().copied(), Reverse(times.clone()))) {
        Some(times) => Outcome::Reached(times),
        None => Outcome::Excluded,
    }
}

/// Goal: the answers of the definition. Method: short random histories with ties, events of several steps,
/// repeated steps and exclusions, over a search through all attempts.
#[test]
fn walks_equal_a_search_through_all_attempts() {
    let mut rng = StdRng::seed_from_u64(41);
    let mut seen = [0_usize; 4];
    for round in 0..60_000 {
        let order = [Order::Ordered, Order::Strict, Order::Unordered][round % 3];
        let steps = rng.random_range(1..=4);
        let mut course = course(order, steps, rng.random_range(0..12));
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
            Outcome::Reached(times) if times.len() == steps => 3,
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
    }
}
