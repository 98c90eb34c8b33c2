//! Compares buckets with known dates, and with searches over all starts.

use chrono_tz::Tz;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{BUCKETS_MAX, Buckets, Interval, TooManyBuckets};
use crate::date_range::{DateRange, Parameters};
use weir_base::clock::UnixMicros;
use weir_event::time::parse_rfc3339;

fn range(from: &str, to: &str, zone: &str) -> DateRange {
    let zone: Tz = zone.parse().unwrap();
    let parameters = Parameters { from: Some(from), to: Some(to), ..Parameters::default() };
    parameters.range(zone, UnixMicros(0)).unwrap()
}

fn time(text: &str) -> UnixMicros {
    parse_rfc3339(text).unwrap()
}

#[test]
fn days_are_those_of_the_time_zone() {
    // The clocks of Berlin went forward on the 31st and back on 27 October 2024.
    let buckets =
        Buckets::of(&range("2024-03-30", "2024-04-01", "Europe/Berlin"), Interval::Day, false);
    let buckets = buckets.unwrap();
    let days: Vec<_> = (0..buckets.len()).map(|bucket| buckets.day(bucket)).collect();
    assert_eq!(days, ["2024-03-30", "2024-03-31", "2024-04-01"]);
    for (at, bucket) in [
        ("2024-03-29T22:59:59Z", None),
        ("2024-03-29T23:00:00Z", Some(0)),
        ("2024-03-30T23:00:00Z", Some(1)),
        ("2024-03-31T21:59:59Z", Some(1)),
        ("2024-03-31T22:00:00Z", Some(2)),
        ("2024-04-01T21:59:59.999999Z", Some(2)),
        ("2024-04-01T22:00:00Z", None),
    ] {
        assert_eq!(buckets.bucket_of(time(at)), bucket, "{at}");
    }
    assert_eq!(buckets.label(0), "30-Mar-2024");
    assert_eq!(buckets.bucket_of_day("2024-03-31"), Some(1));
    assert_eq!(buckets.bucket_of_day("2024-03-31T00:00:00Z"), Some(1));
    assert_eq!(buckets.bucket_of_day("2024-03-29"), None);
    assert_eq!(buckets.bucket_of_day(""), None);
}

/// Goal: a time is in the bucket that a search over all starts finds. Method: random times, and times around each
/// start, across daylight saving changes and months of all lengths.
#[test]
fn buckets_of_times_are_those_of_a_search() {
    use Interval::{Day, Hour, Minute, Month, Week};
    let mut rng = StdRng::seed_from_u64(8);
    for (from, to, interval) in [
        ("2024-02-01", "2024-11-30", Day),
        ("2024-03-30", "2024-04-02", Hour),
        ("2024-10-26", "2024-10-28", Hour),
        ("2024-10-27", "2024-10-27", Minute),
        ("2023-01-10", "2024-12-31", Week),
        ("2019-01-31", "2024-12-31", Month),
        ("2024-01-31", "2024-01-31", Month),
    ] {
        let days = range(from, to, "Europe/Berlin");
        let buckets = Buckets::of(&days, interval, true).unwrap();
        for buckets in [buckets.clone().whole(), buckets.with_earlier(9, true).unwrap()] {
            let (first, last) = (buckets.bounds.0 - 1000, buckets.bounds.1 + 1000);
            let random = (0..2000).map(|_| rng.random_range(first..last));
            let edges = buckets.starts.iter().flat_map(|start| [start - 1, *start, start + 1]);
            for time in random.chain(edges) {
                let is_in = (buckets.bounds.0..=buckets.bounds.1).contains(&time);
                let found = buckets.starts.partition_point(|start| *start <= time).checked_sub(1);
                let expected = found.filter(|_| is_in);
                assert_eq!(buckets.bucket_of(UnixMicros(time)), expected, "{from} {time}");
            }
        }
    }
}

#[test]
fn weeks_begin_where_the_project_says_and_months_count_whole() {
    // 2024-03-13 is a Wednesday.
    let range = range("2024-03-13", "2024-03-25", "UTC");
    let weeks = |is_monday_first| {
        let buckets = Buckets::of(&range, Interval::Week, is_monday_first).unwrap();
        let days: Vec<_> = (0..buckets.len()).map(|bucket| buckets.day(bucket)).collect();
        (days, buckets.bucket_of(time("2024-03-12T12:00:00Z")))
    };
    assert_eq!(
        weeks(false),
        (["2024-03-10", "2024-03-17", "2024-03-24"].map(str::to_owned).to_vec(), None)
    );
    assert_eq!(
        weeks(true),
        (["2024-03-11", "2024-03-18", "2024-03-25"].map(str::to_owned).to_vec(), None)
    );
    let months = Buckets::of(&range, Interval::Month, false).unwrap();
    assert_eq!((months.len(), months.day(0)), (1, "2024-03-01".to_owned()));
    assert_eq!(months.bucket_of(time("2024-03-01T00:00:00Z")), Some(0));
    assert_eq!(months.bounds_of(1), None);
}

/// A window of 7 days up to the day d has the days d - 6 to d, whatever the clock changes between.
#[test]
fn windows_have_so_many_days() {
    let day = |buckets: &Buckets, text: &str| buckets.bucket_of(time(text)).unwrap();
    let range = range("2024-03-28", "2024-04-10", "Europe/Berlin");
    let days = Buckets::of(&range, Interval::Day, false).unwrap();
    let window = days.window(7).unwrap().unwrap();
    let of = |at: &str| window.buckets_with(day(&window.steps, at));
    assert_eq!(of("2024-03-22T12:00:00Z"), 0..1);
    assert_eq!(of("2024-03-28T12:00:00Z"), 0..7);
    assert_eq!(of("2024-03-31T12:00:00Z"), 3..10);
    assert_eq!(of("2024-04-10T12:00:00Z"), 13..14);
    assert!(of("2024-03-21T12:00:00Z").is_empty());
    let weeks = Buckets::of(&range, Interval::Week, false).unwrap();
    assert!(weeks.window(7).unwrap().is_none());
    let window = weeks.window(30).unwrap().unwrap();
    // The weeks begin on 24 and 31 March and 7 April; later days of these weeks are in no window.
    let of = |at: &str| window.buckets_with(day(&window.steps, at));
    assert_eq!(of("2024-02-24T12:00:00Z"), 0..1);
    assert_eq!(of("2024-03-24T12:00:00Z"), 0..3);
    assert_eq!(of("2024-03-25T12:00:00Z"), 1..3);
    assert_eq!(window.steps.bucket_of(time("2024-04-08T12:00:00Z")), None);
}

#[test]
fn earlier_buckets_go_on_backwards_and_whole_ones_count_whole() {
    // The clocks of Berlin went forward on 31 March 2024, a Sunday.
    let days = |buckets: &Buckets| {
        (0..buckets.len()).map(|bucket| buckets.day(bucket)).collect::<Vec<_>>()
    };
    let one = range("2024-04-01 12:00", "2024-04-01", "Europe/Berlin");
    for (interval, expected, first, end) in [
        (
            Interval::Day,
            ["2024-03-30", "2024-03-31", "2024-04-01"],
            "2024-03-29T23:00:00Z",
            "2024-04-01T22:00:00Z",
        ),
        (
            Interval::Week,
            ["2024-03-18", "2024-03-25", "2024-04-01"],
            "2024-03-17T23:00:00Z",
            "2024-04-07T22:00:00Z",
        ),
        (
            Interval::Month,
            ["2024-02-01", "2024-03-01", "2024-04-01"],
            "2024-01-31T23:00:00Z",
            "2024-04-30T22:00:00Z",
        ),
    ] {
        let buckets = Buckets::of(&one, interval, true).unwrap();
        let buckets = buckets.with_earlier(2, true).unwrap().whole();
        assert_eq!(days(&buckets), expected);
        assert_eq!(buckets.bounds(), (time(first), UnixMicros(time(end).0 - 1)));
        assert_eq!(buckets.bucket_of(time(first)), Some(0));
        let all = Buckets::of(&range(expected[0], "2024-04-01", "Europe/Berlin"), interval, true);
        assert_eq!(all.unwrap().whole().starts, buckets.starts, "as from the first on");
    }
    let [from, to] = ["2024-03-31T01:30:00Z", "2024-03-31T01:40:00Z"].map(time);
    let hours = DateRange::new(from, to, "Europe/Berlin".parse().unwrap());
    let hours = Buckets::of(&hours, Interval::Hour, false).unwrap();
    let hours = hours.with_earlier(1, false).unwrap().whole();
    assert_eq!(days(&hours), ["2024-03-31 01:00:00", "2024-03-31 03:00:00"]);
    assert_eq!(hours.bounds().1, UnixMicros(time("2024-03-31T02:00:00Z").0 - 1));
    assert_eq!(hours.with_earlier(BUCKETS_MAX, false).err(), Some(TooManyBuckets));
    // A day that begins at one o'clock ends at midnight.
    let one = range("2025-03-30", "2025-03-30", "Asia/Beirut");
    let whole = Buckets::of(&one, Interval::Day, false).unwrap().whole();
    assert_eq!(
        whole.bounds(),
        (time("2025-03-29T22:00:00Z"), UnixMicros(time("2025-03-30T21:00:00Z").0 - 1))
    );
}

#[test]
fn the_last_days_are_those_of_the_clocks() {
    for (zone, to, first) in [
        ("Europe/Berlin", "2024-04-02", "2024-03-26T23:00:00Z"),
        ("Europe/Berlin", "2024-10-30", "2024-10-23T22:00:00Z"),
        ("UTC", "2024-03-07", "2024-03-01T00:00:00Z"),
    ] {
        let buckets = Buckets::of(&range("2024-01-01", to, zone), Interval::Day, false).unwrap();
        assert_eq!(buckets.last_days(7), time(first), "{zone} {to}");
    }
}

#[test]
fn hours_are_labelled_by_the_local_clock_and_bounded() {
    let hours =
        Buckets::of(&range("2024-10-27", "2024-10-27", "Europe/Berlin"), Interval::Hour, false);
    let hours = hours.unwrap();
    assert_eq!(hours.len(), 25, "the clock went back");
    assert_eq!(hours.day(2), "2024-10-27 02:00:00");
    assert_eq!(hours.day(3), "2024-10-27 02:00:00");
    assert_eq!(hours.label(4), "27-Oct-2024 03:00");
    // From the second occurrence of both times on.
    let [from, to] = ["2024-10-27T01:30:00Z", "2024-10-27T02:30:00Z"].map(time);
    let hours = DateRange::new(from, to, "Europe/Berlin".parse().unwrap());
    let hours = Buckets::of(&hours, Interval::Hour, false).unwrap();
    assert_eq!((hours.len(), hours.bounds().0), (2, time("2024-10-27T01:00:00Z")));
    let long = range("2020-01-01", "2024-01-01", "UTC");
    let refused = Buckets::of(&long, Interval::Minute, false).err();
    assert_eq!(refused, Some(TooManyBuckets));
    assert!(Buckets::of(&long, Interval::Day, false).unwrap().len() < BUCKETS_MAX);
}
