//! Compares histories with the results of PostHog's engine, and random ones with a search over all attempts.

use std::ops::RangeInclusive;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{Counted, Course, Exclusion, FunnelOrderType, Moment, Outcome};
use weir_query::events::histories::Row;

const ALL: RangeInclusive<i64> = i64::MIN..=i64::MAX;

/// The bit of the one exclusion.
const X: u32 = 1 << 20;

fn course(order: FunnelOrderType, steps: usize, window: i64) -> Course {
    Course {
        order,
        steps,
        optional: 0,
        window,
        exclusions: Vec::new(),
        attributed: None,
        counted: Counted::Once,
    }
}

/// An attempt that skips no step.
fn reached(times: &[i64]) -> Outcome {
    Outcome::Reached(times.iter().copied().map(Some).collect())
}

/// `AB` at 3 is an event of the steps A and B; `X` is one of the exclusion, and `-` is of no step.
fn moments(text: &str) -> Vec<Moment> {
    let moment = |word: &str| {
        let (names, at) = word.split_once('@').unwrap();
        let bit = |name| match name {
            'X' => X,
            '-' => 0,
            step => 1 << (u32::from(step) - u32::from('A')),
        };
        Moment { at: at.parse().unwrap(), mask: names.chars().map(bit).sum(), is_own: true }
    };
    let mut moments: Vec<Moment> = text.split_whitespace().map(moment).collect();
    moments.sort_by_key(|moment| (moment.at, moment.mask));
    moments
}

#[test]
fn furthest_steps_of_published_examples() {
    use FunnelOrderType::{Ordered, Strict, Unordered};
    for (order, history, expected) in [
        (Ordered, "A@0 B@1 C@2", &[0, 1, 2][..]),
        (Ordered, "A@0 -@1 B@2 C@3", &[0, 2, 3]),
        (Ordered, "B@0 C@1", &[]),
        (Ordered, "A@0 C@1 B@2", &[0, 2]),
        // A repeated first step: the latest one before the next step counts.
        (Ordered, "A@0 A@5 B@6", &[5, 6]),
        // A repeated middle step: the first one after the step before is kept.
        (Ordered, "A@0 B@10 B@30 C@60", &[0, 10, 60]),
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
        // Neither a repeated step nor simultaneous events break a strict attempt.
        (Strict, "A@0 B@1 B@2 C@3", &[0, 1, 3]),
        (Strict, "A@0 -@1 B@1 C@2", &[0, 1, 2]),
        (Unordered, "C@0 A@1 B@2", &[0, 1, 2]),
        (Unordered, "B@0 A@1 -@2", &[0, 1]),
        (Unordered, "C@0 A@101 B@102", &[101, 102]),
        // The oldest event of each step within the window.
        (Unordered, "A@0 A@5 B@6", &[0, 6]),
        (Unordered, "A@0 A@50 B@120", &[50, 120]),
        (Unordered, "A@0 B@1 B@2 C@200 A@201", &[0, 1]),
        (Unordered, "AB@0", &[0]),
        // An event of several steps counts for the one that was done the longest ago.
        (Unordered, "AB@0 A@1 BC@2 B@3", &[0, 2]),
        (Unordered, "AB@0 AB@1 C@2", &[0, 1, 2]),
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
fn attempts_that_are_spoiled_go_on_no_more() {
    for (order, history, (from, to), expected) in [
        (FunnelOrderType::Ordered, "A@0 X@1 B@2 C@3", (0, 1), None),
        (FunnelOrderType::Ordered, "A@0 B@1 X@2 C@3", (0, 1), Some(&[0, 1, 3][..])),
        (FunnelOrderType::Ordered, "A@0 B@1 X@2 C@3", (0, 2), None),
        (FunnelOrderType::Ordered, "A@0 B@1 X@2 C@3", (1, 2), None),
        (FunnelOrderType::Ordered, "X@0 A@1 B@2 C@3 X@4", (0, 2), Some(&[1, 2, 3])),
        // Another attempt that gets as far has no exclusion in between.
        (FunnelOrderType::Ordered, "A@0 X@1 B@2 A@3 B@4", (0, 1), Some(&[3, 4])),
        (FunnelOrderType::Ordered, "A@0 B@1 A@2 X@3 B@4 C@5", (0, 1), Some(&[0, 1, 5])),
        (FunnelOrderType::Ordered, "ABC@0 ABC@4 X@5 ABC@7 ABC@7", (0, 1), Some(&[0, 4, 7])),
        // Up to the end of the window if the later step is not reached.
        (FunnelOrderType::Ordered, "A@0 X@1", (0, 1), None),
        (FunnelOrderType::Ordered, "A@0 X@100", (0, 1), None),
        (FunnelOrderType::Ordered, "A@0 X@101", (0, 1), Some(&[0])),
        (FunnelOrderType::Ordered, "A@0 X@1 A@2", (0, 1), Some(&[2])),
        (FunnelOrderType::Ordered, "A@0 B@1 X@2", (1, 2), None),
        (FunnelOrderType::Ordered, "A@0 X@1", (1, 2), Some(&[0])),
        // An exclusion at the time of either step is not between them.
        (FunnelOrderType::Ordered, "A@0 X@0 B@1 X@1 C@2", (0, 1), Some(&[0, 1, 2])),
        // There is one attempt for each first event: repeating a later step begins no other attempt.
        (FunnelOrderType::Ordered, "A@0 B@10 X@20 B@30", (1, 2), None),
        (FunnelOrderType::Ordered, "A@0 B@10 X@20 A@25 B@30", (1, 2), Some(&[25, 30])),
        // A strict attempt that is broken has ended, so that a later exclusion does not apply to it.
        (FunnelOrderType::Strict, "A@0 -@5 X@10", (0, 1), Some(&[0])),
        (FunnelOrderType::Strict, "A@0 X@10", (0, 1), None),
        (FunnelOrderType::Strict, "A@0 X@10 B@11", (0, 1), None),
        (FunnelOrderType::Strict, "A@0 X@10 A@11 B@12", (0, 1), Some(&[11, 12])),
    ] {
        let mut course = course(order, 3, 100);
        course.exclusions.push(Exclusion { mask: X, from, to });
        let found = course.walk(&moments(history), &ALL);
        match expected {
            Some(times) => assert_eq!(found, reached(times), "{history} {from} {to}"),
            None => assert!(matches!(found, Outcome::Excluded { .. }), "{history} {from} {to}"),
        }
    }
}

/// An exclusion resets what was done before; what was not counted until then is not counted.
#[test]
fn exclusions_make_unordered_funnels_begin_anew() {
    for (history, expected) in [
        ("B@0 X@1 A@2", &[2][..]),
        ("B@0 X@1 A@2 B@3", &[2, 3]),
        ("A@0 B@1", &[0, 1]),
        ("A@0 X@1", &[]),
        // Outside of the window, or complete: it was counted before.
        ("A@0 X@101", &[0]),
        ("A@0 B@1 X@2", &[0, 1]),
    ] {
        let mut course = course(FunnelOrderType::Unordered, 2, 100);
        course.exclusions.push(Exclusion { mask: X, from: 0, to: 1 });
        let expected = match expected {
            [] => Outcome::Nothing,
            times => reached(times),
        };
        assert_eq!(course.walk(&moments(history), &ALL), expected, "{history}");
    }
}

/// Of the steps A to D those that are named are optional.
#[test]
fn optional_steps_are_skipped_where_they_do_not_come() {
    use FunnelOrderType::{Ordered, Strict};
    for (order, optional, history, expected) in [
        (Ordered, "BC", "A@0 D@1", &[Some(0), None, None, Some(1)][..]),
        (Ordered, "BC", "A@0 B@1 D@2", &[Some(0), Some(1), None, Some(2)]),
        (Ordered, "BC", "A@0 C@1 B@2 D@3", &[Some(0), None, Some(1), Some(3)]),
        (Ordered, "BC", "A@0 C@1", &[Some(0), None, Some(1)]),
        (Ordered, "B", "A@0 B@1 D@2", &[Some(0), Some(1)]),
        (Ordered, "B", "B@0 C@1 D@2", &[]),
        (Ordered, "D", "A@0 B@1 C@2", &[Some(0), Some(1), Some(2)]),
        (Ordered, "D", "A@0 B@1 C@2 D@3", &[Some(0), Some(1), Some(2), Some(3)]),
        // The attempt with more completed steps is kept, not the one that begins last, unless its window has ended.
        (Ordered, "BC", "A@0 B@1 A@50 D@60", &[Some(0), Some(1), None, Some(60)]),
        (Ordered, "BC", "A@0 B@1 A@50 D@101", &[Some(50), None, None, Some(101)]),
        (Ordered, "B", "A@0 B@10 A@50 C@80 D@140", &[Some(0), Some(10), Some(80)]),
        (Ordered, "BC", "A@0 B@1 A@2 C@3 D@4", &[Some(0), Some(1), Some(3), Some(4)]),
        // One event completes one step.
        (Ordered, "BC", "A@0 BD@1", &[Some(0), None, None, Some(1)]),
        (Ordered, "BC", "A@0 BD@1 BD@2", &[Some(0), None, None, Some(1)]),
        (Ordered, "BC", "A@0 BD@1 BD@1", &[Some(0), None, None, Some(1)]),
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
        // An exclusion applies from the step before a skipped one up to the step after it.
        ((1, 3), "A@0 X@1 D@2", None),
        ((0, 1), "A@0 X@1 D@2", None),
        ((0, 1), "A@0 B@1 X@2 D@3", Some(&[Some(0), Some(1), None, Some(3)][..])),
        ((0, 1), "X@0 A@1 D@2 X@3", Some(&[Some(1), None, None, Some(2)])),
        ((1, 3), "A@0 X@1", None),
        ((0, 1), "A@0 X@1", None),
        ((0, 1), "A@0 B@1 X@2 A@3 D@4", Some(&[Some(0), Some(1), None, Some(4)])),
        ((1, 2), "A@0 B@1 X@2 A@3 D@4", None),
    ] {
        let mut course = course(Ordered, 4, 100);
        course.optional = 0b0110;
        course.exclusions.push(Exclusion { mask: X, from, to });
        let found = match course.walk(&moments(history), &ALL) {
            Outcome::Reached(way) => Some(way),
            _ => None,
        };
        assert_eq!(found.as_deref(), expected, "{from} {to} {history}");
    }
}

#[test]
fn attempts_begin_within_bounds() {
    let history = moments("A@0 B@1 A@10 B@11 C@12 A@20");
    let course = course(FunnelOrderType::Ordered, 3, 100);
    for (starts, expected) in [
        (0..=5, reached(&[0, 1, 12])),
        (5..=15, reached(&[10, 11, 12])),
        (15..=25, reached(&[20])),
        (25..=99, Outcome::Nothing),
    ] {
        assert_eq!(course.walk(&history, &starts), expected, "{starts:?}");
    }
}

#[test]
fn attempts_count_by_the_interval_of_their_first_events() {
    // Converted at the second of three steps.
    let mut own = course(FunnelOrderType::Ordered, 3, 100);
    own.exclusions.push(Exclusion { mask: X, from: 0, to: 2 });
    let own = own.by_interval(1);
    for (history, starts, expected) in [
        ("A@0 B@1 X@2 C@3", ALL, reached(&[0, 1])),
        ("A@0 X@1 B@2", ALL, Outcome::Excluded { is_passed: true }),
        ("A@0 X@1 A@2", ALL, reached(&[2])),
        ("A@0 X@1", ALL, Outcome::Excluded { is_passed: false }),
        ("A@0 X@1 B@2 A@3", ALL, Outcome::Excluded { is_passed: true }),
        ("A@0 X@1 B@2 A@3 B@4", ALL, reached(&[3, 4])),
        ("A@0 A@10 B@11", 0..=5, reached(&[0, 11])),
    ] {
        assert_eq!(own.walk(&moments(history), &starts), expected, "{history}");
    }
    let own = course(FunnelOrderType::Unordered, 3, 100).by_interval(1);
    let history = moments("C@0 A@1 C@20 C@31 B@32 C@40 A@100");
    let by_tens = own.walk_by(&history, |first| Some(first / 10));
    let lengths: Vec<_> = by_tens.iter().map(|(key, way)| (*key, way.len())).collect();
    assert_eq!(lengths, [(0, 3), (2, 3), (3, 3), (4, 2), (10, 1)]);
}

/// The breakdown value is required for one step; in unordered funnels for the event that begins the attempt.
#[test]
fn steps_are_attributed_to_a_value() {
    for (order, step, history, expected) in [
        (FunnelOrderType::Ordered, 1, "A@0 B@1 C@3", &[0][..]),
        (FunnelOrderType::Ordered, 1, "A@0 B@1 B!@2 C@3", &[0, 2, 3]),
        (FunnelOrderType::Ordered, 0, "A@0 A!@1 A@2 B@3 C@4", &[1, 3, 4]),
        // An event with another value is still one of the step, so it does not break a strict attempt.
        (FunnelOrderType::Strict, 1, "A@0 B!@1 B@2 C@3", &[0, 1, 3]),
        (FunnelOrderType::Unordered, 0, "A@0 B!@1 C@2", &[1, 2]),
        (FunnelOrderType::Unordered, 0, "B@0 A!@1 B@2 C@3", &[1, 2, 3]),
        (FunnelOrderType::Unordered, 0, "A@0 B@1", &[]),
    ] {
        let mut course = course(order, 3, 100);
        course.attributed = Some(step);
        let mut events = moments(&history.replace('!', ""));
        let owned = history.split_whitespace().map(|word| word.contains('!'));
        events.iter_mut().zip(owned).for_each(|(event, is_own)| event.is_own = is_own);
        let expected = match expected {
            [] => Outcome::Nothing,
            times => reached(times),
        };
        assert_eq!(course.walk(&events, &ALL), expected, "{order:?} {history}");
    }
}

/// As in PostHog's `funnel-udf`, whose `process_event` compares the previous step with the attributed one: if the
/// attributed step is skipped, the event that continues in its place must have the value; if the step before it is
/// skipped, any event continues.
#[test]
fn the_value_of_a_skipped_step_is_that_of_the_event_in_its_stead() {
    for (step, history, expected) in [
        (1, "A@0 C@1", &[Some(0)][..]),
        (1, "A@0 C@1 C!@2", &[Some(0), None, Some(2)]),
        (1, "A@0 B!@1 C@2", &[Some(0), Some(1), Some(2)]),
        (1, "A@0 B@1 C!@2", &[Some(0), None, Some(2)]),
        (2, "A@0 C@1", &[Some(0), None, Some(1)]),
        (2, "A@0 B@1 C@2 C!@3", &[Some(0), Some(1), Some(3)]),
        (0, "A@0 A!@1 C@2", &[Some(1), None, Some(2)]),
        // Simultaneous events.
        (1, "A@0 C@0", &[Some(0)]),
        (1, "A@0 C!@0", &[Some(0), None, Some(0)]),
    ] {
        let mut course = course(FunnelOrderType::Ordered, 3, 100);
        (course.attributed, course.optional) = (Some(step), 0b010);
        let mut events = moments(&history.replace('!', ""));
        let owned = history.split_whitespace().map(|word| word.contains('!'));
        events.iter_mut().zip(owned).for_each(|(event, is_own)| event.is_own = is_own);
        let expected = Outcome::Reached(expected.to_vec());
        assert_eq!(course.walk(&events, &ALL), expected, "{step} {history}");
    }
}

#[test]
fn events_between_equal_ones_are_left_out() {
    let rows = |text: &str| -> Vec<Row> {
        moments(text).iter().map(|event| Row::new(event.at, event.mask)).collect()
    };
    let mut own = course(FunnelOrderType::Unordered, 3, 100);
    for (history, expected) in [
        ("A@0 A@1 A@2 A@3 B@4", "A@0 A@3 B@4"),
        ("A@0 B@1 A@2 A@3", "A@0 B@1 A@2 A@3"),
        // Simultaneous events, events of several steps, and events of an exclusion are kept.
        ("A@0 A@0 A@1 A@2", "A@0 A@0 A@2"),
        ("AB@0 AB@1 AB@2 X@3 X@4 X@5", "AB@0 AB@1 AB@2 X@3 X@4 X@5"),
    ] {
        let all = rows(history);
        let kept: Vec<Row> = own.thinned(&all).copied().collect();
        assert_eq!(kept, rows(expected), "{history}");
    }
    let rows = rows("A@0 A@1 A@2");
    own.counted = Counted::ByInterval;
    assert_eq!(own.thinned(&rows).count(), 3);
}

/// The largest number of steps that any attempt completes, by trying each event that may be next.
fn furthest(course: &Course, events: &[Moment], done: &[usize], first: Option<i64>) -> usize {
    let next = events.iter().enumerate().flat_map(|(place, event)| {
        let steps = (0..course.steps).filter(|step| event.mask >> step & 1 == 1);
        steps.map(move |step| (place, event.at, step))
    });
    let next = next.filter(|(_, at, step)| {
        let is_next = match course.order {
            FunnelOrderType::Unordered => !done.contains(step),
            _ => *step == done.len(),
        };
        is_next && first.is_none_or(|first| at - first <= course.window)
    });
    let longest = next.map(|(place, at, step)| {
        let done = [done, &[step]].concat();
        furthest(course, &events[place + 1..], &done, Some(first.unwrap_or(at)))
    });
    longest.max().unwrap_or(done.len())
}

/// Goal: no actor gets less far than its events allow. Method: compares short random histories without exclusions
/// with a search over all attempts; in unordered funnels each event is of one step.
#[test]
fn nobody_comes_less_far_than_any_attempt() {
    let mut rng = StdRng::seed_from_u64(41);
    let mut seen = [0_usize; 5];
    for round in 0..20_000 {
        let order = [FunnelOrderType::Ordered, FunnelOrderType::Unordered][round % 2];
        let steps = rng.random_range(1..=4);
        let course = course(order, steps, rng.random_range(0..12));
        let is_mixed = order == FunnelOrderType::Ordered && rng.random_bool(0.5);
        let mut at = 0;
        let events: Vec<Moment> = (0..rng.random_range(0..9))
            .map(|_| {
                at += rng.random_range(1..4_i64);
                let mask = match is_mixed {
                    true => rng.random_range(0..1 << steps),
                    false => 1 << rng.random_range(0..steps),
                };
                Moment { at, mask, is_own: true }
            })
            .collect();
        let found = match course.walk(&events, &ALL) {
            Outcome::Reached(way) => way,
            _ => Vec::new(),
        };
        assert_eq!(found.len(), furthest(&course, &events, &[], None), "{course:?} {events:?}");
        let window = found.last().zip(found.first()).map(|(last, first)| last.zip(*first));
        assert!(window.flatten().is_none_or(|(last, first)| last - first <= course.window));
        seen[found.len()] += 1;
    }
    assert!(seen.iter().all(|count| *count > 300), "{seen:?}");
}

#[test]
fn long_histories_take_little_time() {
    for order in [FunnelOrderType::Ordered, FunnelOrderType::Strict, FunnelOrderType::Unordered] {
        let mut course = course(order, 20, 1_000_000);
        course.exclusions.push(Exclusion { mask: X, from: 0, to: 19 });
        // No event is of the last step.
        let mask = |at: i64| if at % 37 == 0 { X } else { 1 << (at % 19) };
        let events: Vec<Moment> =
            (0..9_991).map(|at| Moment { at, mask: mask(at), is_own: true }).collect();
        let found = course.walk(&events, &ALL);
        assert!(!matches!(found, Outcome::Reached(way) if way.len() == 20), "{order:?}");
        course.optional = 0b111_1111_1111_1111_1110;
        if order == FunnelOrderType::Unordered {
            course.optional = 0;
        }
        let found = course.walk(&events, &ALL);
        assert!(!matches!(found, Outcome::Reached(way) if way.len() == 20), "{order:?}");
    }
}
