//! Expectations: the stated instants in RFC 3339, read by chrono, which is the oracle throughout.

use super::*;
use chrono::{Datelike, TimeZone, Utc};
use proptest::prelude::*;

fn utc(text: &str) -> UnixMicros {
    UnixMicros::from(text.parse::<DateTime<Utc>>().expect("a test states its times in RFC 3339"))
}

#[test]
fn reads_every_documented_form() {
    for (text, expected) in [
        ("2026-11-21T08:00:00.123Z", "2026-11-21T08:00:00.123Z"),
        ("2026-11-21T08:00:00Z", "2026-11-21T08:00:00Z"),
        ("2026-11-21T08:00:00.123456+00:00", "2026-11-21T08:00:00.123456Z"),
        ("2026-11-21T08:00:00.1234567Z", "2026-11-21T08:00:00.123456Z"),
        ("2026-11-21T08:00:00.123456789Z", "2026-11-21T08:00:00.123456Z"),
        ("2026-11-21T08:00:00.1Z", "2026-11-21T08:00:00.1Z"),
        ("2026-11-21T08:00:00-00:00", "2026-11-21T08:00:00Z"),
        ("2026-11-21t08:00:00z", "2026-11-21T08:00:00Z"),
        ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00Z"),
        ("1969-12-31T23:59:59.5Z", "1969-12-31T23:59:59.5Z"),
        ("0000-01-01T00:00:00Z", "0000-01-01T00:00:00Z"),
        ("2024-02-29T00:00:00Z", "2024-02-29T00:00:00Z"),
        ("  2026-11-21T08:00:00Z\n", "2026-11-21T08:00:00Z"),
        // Zones. The short form is PostHog/posthog's own complaint about a mobile SDK.
        ("2025-09-17T14:05:04.805+03", "2025-09-17T11:05:04.805Z"),
        ("2025-09-17T14:05:04.805-05", "2025-09-17T19:05:04.805Z"),
        ("2025-09-17T14:05:04-0530", "2025-09-17T19:35:04Z"),
        ("2025-09-17 14:05:04 +02:00", "2025-09-17T12:05:04Z"),
        ("2025-09-17 14:05:04 UTC", "2025-09-17T14:05:04Z"),
        ("2025-09-17 14:05:04 gmt", "2025-09-17T14:05:04Z"),
        // No zone.
        ("2023-01-01T12:00:00", "2023-01-01T12:00:00Z"),
        ("2023-01-01T12:00:00.25", "2023-01-01T12:00:00.25Z"),
        ("2023-01-01 12:00:00", "2023-01-01T12:00:00Z"),
        ("2023-01-01 12:00:00.123", "2023-01-01T12:00:00.123Z"),
        ("2021-04-30 21:14", "2021-04-30T21:14:00Z"),
        ("2014-04-26 05:24:37 PM", "2014-04-26T17:24:37Z"),
        ("2014-04-26 12:24:37am", "2014-04-26T00:24:37Z"),
        // Dates.
        ("2023-01-01", "2023-01-01T00:00:00Z"),
        ("2023/01/31", "2023-01-31T00:00:00Z"),
        ("2014/4/8 22:05", "2014-04-08T22:05:00Z"),
        ("2012/03/19 10:11:59.3186369", "2012-03-19T10:11:59.318636Z"),
        ("01/31/2023", "2023-01-31T00:00:00Z"),
        ("8/8/1965 01:00:01 PM", "1965-08-08T13:00:01Z"),
        ("03/19/2012 10:11:59", "2012-03-19T10:11:59Z"),
        ("08/21/71", "1971-08-21T00:00:00Z"),
        ("8/1/26", "2026-08-01T00:00:00Z"),
        ("1/1/70", "1970-01-01T00:00:00Z"),
        ("12/31/69", "2069-12-31T00:00:00Z"),
        ("2026-11-21t08:00:00,5", "2026-11-21T08:00:00.5Z"),
        // RFC 2822, section 3.3 and appendix A.
        ("Tue, 1 Jul 2003 10:52:37 +0200", "2003-07-01T08:52:37Z"),
        ("Wed, 02 Jun 2021 06:31:39 GMT", "2021-06-02T06:31:39Z"),
        ("Fri, 21 Nov 1997 09:55:06 -0600", "1997-11-21T15:55:06Z"),
        // Digits.
        ("1672574400", "2023-01-01T12:00:00Z"),
        ("1672574400123", "2023-01-01T12:00:00.123Z"),
        ("1672574400123456", "2023-01-01T12:00:00.123456Z"),
        ("1672574400123456789", "2023-01-01T12:00:00.123456Z"),
        ("1672574400.25", "2023-01-01T12:00:00.25Z"),
        ("999999999", "2001-09-09T01:46:39Z"),
    ] {
        assert_eq!(parse_timestamp(text), Some(utc(expected)), "{text}");
    }
}

#[test]
fn refuses_what_is_no_time() {
    for text in [
        "",
        " ",
        "now",
        "not a date",
        "2026",
        "12345678",
        "2026-11",
        "2026-13-01",
        "2026-02-29",
        "2100-02-29T00:00:00Z",
        "2026-11-00",
        "2026-11-21T",
        "2026-11-21T24:00:00Z",
        "2026-11-21T08:60:00Z",
        "2026-11-21T08:00:00.Z",
        "2026-11-21T08:00:00X",
        "2026-11-21T08:00:00+",
        "2026-11-21T08:00:00+24:00",
        "2026-11-21 13:00 PM",
        "2026-11/21",
        "2026/11-21",
        "+202-01-01",
        "1/2/926",
        "2026- 1- 2",
        "31/01/2023",
        "1/2/3",
        "+1672574400",
        "-1672574400",
        "16725744001234567890",
        "1672574400.1.2",
        "2026-11-21T08:00:00Z and more",
        "\u{0662}\u{0660}\u{0662}\u{0666}-11-21",
        "2026-11-2\u{e9}T08:00:00Z",
    ] {
        assert_eq!(parse_timestamp(text), None, "{text}");
    }
    assert_eq!(parse_timestamp(&"1".repeat(1_000_000)), None);
}

#[test]
fn dates_without_a_zone_are_local() {
    let noon = Written::Instant(utc("2026-11-21T12:00:00Z"));
    for (text, expected) in [
        ("2026-11-21T12:00:00Z", Some(noon)),
        (" 2026-11-21 13:00 +0100 ", Some(noon)),
        ("11/21/2026 12:00 PM utc", Some(noon)),
        (
            "2026-11-21 12:00",
            Some(Written::Wall(utc("2026-11-21T12:00:00Z").to_datetime().naive_utc())),
        ),
        ("2026-11-21", Some(Written::Wall(utc("2026-11-21T00:00:00Z").to_datetime().naive_utc()))),
        ("Sat, 21 Nov 2026 12:00:00 GMT", Some(noon)),
        ("2026-11-21 12:00 MEZ", None),
        ("1795262400", None),
    ] {
        assert_eq!(Written::parse(text), expected, "{text}");
    }
}

#[test]
fn clocks_show_midnight_or_the_end_of_the_gap() {
    for (zone, (year, month, day), expected) in [
        (Tz::UTC, (1970, 1, 2), 86_400),
        (Tz::Asia__Shanghai, (1970, 1, 2), 86_400 - 8 * 3600),
        // Clocks went from 0:00 to 1:00 (IANA, `America/Sao_Paulo`).
        (Tz::America__Sao_Paulo, (2018, 11, 4), 1_541_300_400),
    ] {
        let midnight = NaiveDate::from_ymd_opt(year, month, day).unwrap().and_time(NaiveTime::MIN);
        let at = at_wall(midnight, zone);
        assert_eq!(at, Some(UnixMicros(expected * 1_000_000)), "{zone} {midnight}");
    }
}

#[test]
fn units_of_numbers_follow_from_their_size() {
    let noon = utc("2023-01-01T12:00:00Z");
    for number in
        [1_672_574_400, 1_672_574_400_000, 1_672_574_400_000_000, 1_672_574_400_000_000_000]
    {
        assert_eq!(from_integer(number), noon, "{number}");
        assert_eq!(from_integer(-number), UnixMicros(-noon.0), "-{number}");
        #[expect(clippy::cast_precision_loss, reason = "all four are exact in f64")]
        let float = number as f64;
        assert_eq!(from_float(float), Some(noon), "{float}");
        assert_eq!(from_float(-float), Some(UnixMicros(-noon.0)), "-{float}");
    }
    assert_eq!(from_float(1_672_574_400.123_456), Some(utc("2023-01-01T12:00:00.123456Z")));
    assert_eq!(from_float(1_672_574_400_123.5), Some(utc("2023-01-01T12:00:00.1235Z")));
    assert_eq!(from_integer(0), UnixMicros(0));
    assert_eq!(from_integer(99_999_999_999), utc("5138-11-16T09:46:39Z"));
    assert_eq!(from_integer(100_000_000_000), utc("1973-03-03T09:46:40Z"));
    assert_eq!(from_integer(i64::MAX), utc("2262-04-11T23:47:16.854775Z"));
    assert_eq!(from_integer(i64::MIN), utc("1677-09-21T00:12:43.145224Z"));
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e19, -1e300] {
        assert_eq!(from_float(number), None, "{number}");
    }
}

/// Goal: the rule of `PostHog`'s `timestamp.rs`. Expectations: that file's own tests, and the text of
/// the rule for what they leave out.
#[test]
fn event_time_follows_the_rule() {
    let now = utc("2023-01-01T12:00:00Z");
    let at = |text| Claimed::At(utc(text));
    let claim = |timestamp, sent_at: Option<&str>, offset_millis| Claim {
        timestamp,
        sent_at: sent_at.map(utc),
        offset_millis,
    };
    let check = |claim: Claim, expected: &str, warning| {
        let expected = EventTime { at: utc(expected), warning };
        assert_eq!(event_time(&claim, now), expected, "{claim:?}");
    };
    let eleven = at("2023-01-01T11:00:00Z");
    let ahead = Some("2023-01-01T12:00:10Z");
    let behind = Some("2023-01-01T11:59:50Z");
    check(claim(eleven, ahead, None), "2023-01-01T10:59:50Z", None);
    check(claim(eleven, behind, None), "2023-01-01T11:00:10Z", None);
    check(claim(eleven, Some("2023-01-01T12:00:00Z"), None), "2023-01-01T11:00:00Z", None);
    check(claim(eleven, None, None), "2023-01-01T11:00:00Z", None);
    check(claim(Claimed::Absent, None, None), "2023-01-01T12:00:00Z", None);
    check(claim(Claimed::Absent, ahead, None), "2023-01-01T12:00:00Z", None);
    let unreadable = Some(TimeWarning::Unreadable);
    check(claim(Claimed::Unreadable, ahead, None), "2023-01-01T12:00:00Z", unreadable);
    // An offset wins over everything.
    check(claim(eleven, ahead, Some(5000)), "2023-01-01T11:59:55Z", None);
    check(claim(Claimed::Unreadable, None, Some(5000)), "2023-01-01T11:59:55Z", None);
    check(claim(Claimed::Absent, None, Some(-5000)), "2023-01-01T12:00:05Z", None);
    // 23 hours ahead is fine to the millisecond; the past is kept.
    let in_future = Some(TimeWarning::InFuture);
    check(claim(at("2023-01-02T11:00:00Z"), None, None), "2023-01-02T11:00:00Z", None);
    check(
        claim(at("2023-01-02T11:00:00.000999Z"), None, None),
        "2023-01-02T11:00:00.000999Z",
        None,
    );
    check(claim(at("2023-01-02T11:00:00.001Z"), None, None), "2023-01-01T12:00:00Z", in_future);
    check(claim(eleven, Some("2022-12-01T00:00:00Z"), None), "2023-01-01T12:00:00Z", in_future);
    check(claim(at("9999-12-31T23:59:59Z"), None, None), "2023-01-01T12:00:00Z", in_future);
    check(claim(Claimed::Absent, None, Some(i64::MIN)), "2023-01-01T12:00:00Z", in_future);
    check(claim(at("0000-01-01T00:00:00Z"), None, None), "0000-01-01T00:00:00Z", None);
    // Bounds.
    let out_of_bounds = Some(TimeWarning::OutOfBounds);
    let epoch = "1970-01-01T00:00:00Z";
    check(claim(Claimed::At(UnixMicros(i64::MIN)), None, None), epoch, out_of_bounds);
    check(claim(Claimed::Absent, None, Some(i64::MAX)), epoch, out_of_bounds);
    check(claim(at("0000-01-01T00:00:00Z"), ahead, None), epoch, out_of_bounds);
}

#[test]
fn bounds_are_the_years_they_say() {
    assert_eq!(YEAR_0, utc("0000-01-01T00:00:00Z"));
    assert_eq!(YEAR_10000.0 - SECOND, utc("9999-12-31T23:59:59Z").0);
}

#[test]
fn months_are_named_like_partitions() {
    for (time, name) in [
        ("2026-11-21T08:00:00Z", "2026-11"),
        ("2026-11-30T23:59:59.999999Z", "2026-11"),
        ("2026-12-01T00:00:00Z", "2026-12"),
        ("1970-01-01T00:00:00Z", "1970-01"),
        ("1969-12-31T23:59:59.999999Z", "1969-12"),
        ("0000-01-01T00:00:00Z", "0000-01"),
        ("0099-02-28T00:00:00Z", "0099-02"),
        ("9999-12-31T00:00:00Z", "9999-12"),
    ] {
        assert_eq!(month_of(utc(time)).to_string(), name, "{time}");
    }
    assert_eq!(month_of(utc("2026-11-21T08:00:00Z")), Month(2026 * 12 + 10));
    // Whatever the instant, no panic.
    assert!(month_of(UnixMicros(i64::MIN)) < month_of(UnixMicros(i64::MAX)));
}

/// Goal: senders choose times, but not the number of partitions.
#[test]
fn partitions_are_months_within_bounds() {
    for (time, name) in [
        ("2026-11-21T08:00:00Z", "2026-11"),
        ("2010-01-01T00:00:00Z", "2010-01"),
        ("2009-12-31T23:59:59.999999Z", "2009-12"),
        ("1970-01-01T00:00:00Z", "2009-12"),
        ("0000-01-01T00:00:00Z", "2009-12"),
        ("2035-12-31T23:59:59.999999Z", "2035-12"),
        ("2036-01-01T00:00:00Z", "2036-01"),
        ("9999-12-31T00:00:00Z", "2036-01"),
    ] {
        assert_eq!(partition_of(utc(time)).to_string(), name, "{time}");
    }
    let ends = [UnixMicros(i64::MIN), UnixMicros(i64::MAX)].map(|end| partition_of(end).0);
    assert_eq!(ends[1] - ends[0] + 1, 314);
}

/// Goal: every day of four centuries, the whole period of the calendar, is in the right month and
/// comes back from its text. Method: try all of them.
#[test]
fn every_day_of_the_period_of_the_calendar() {
    let start = Utc.with_ymd_and_hms(1800, 1, 1, 12, 30, 15).unwrap();
    for day in 0..146_097 {
        let time = start + chrono::Duration::days(day);
        let micros = UnixMicros::from(time);
        let months = time.year() * 12 + i32::try_from(time.month0()).unwrap();
        assert_eq!(month_of(micros), Month(months), "{time}");
        let text = time.format("%Y-%m-%dT%H:%M:%SZ").to_string();
        assert_eq!(parse_common(text.as_bytes()), Some(micros), "{text}");
    }
}

proptest! {
    #![proptest_config(proptest::test_runner::Config::with_failure_persistence(
        proptest::test_runner::FileFailurePersistence::WithSource("regressions"),
    ))]
    /// Goal: the hand-written reader and chrono agree on every text of the common shape, valid or not.
    #[test]
    fn common_shape_reads_as_chrono_reads_it(
        year in 0..=9999, month in 0..=13, day in 0..=32,
        hour in 0..=24, minute in 0..=60, second in 0..=59,
        fraction in "(\\.[0-9]{1,9})?",
        zone in "(Z|\\+00:00)",
    ) {
        let text = format!(
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}{zone}"
        );
        let expected = DateTime::parse_from_rfc3339(&text).ok();
        let expected = expected.map(|time| UnixMicros(time.timestamp_micros()));
        prop_assert_eq!(parse_common(text.as_bytes()), expected);
        prop_assert_eq!(parse_timestamp(&text), expected);
    }

    #[test]
    fn any_instant_comes_back_from_its_text(micros in YEAR_0.0..YEAR_10000.0, offset in -1439..=1439) {
        let time = DateTime::from_timestamp_micros(micros).unwrap();
        prop_assert_eq!(parse_timestamp(&time.to_rfc3339()), Some(UnixMicros(micros)));
        let local = time.with_timezone(&chrono::FixedOffset::east_opt(offset * 60).unwrap());
        // Year -1 and year 10000 have no four digits.
        prop_assume!((0..=9999).contains(&local.year()));
        prop_assert_eq!(parse_timestamp(&local.to_rfc3339()), Some(UnixMicros(micros)));
        let spaced = local.format("%Y-%m-%d %H:%M:%S%.6f %z").to_string();
        prop_assert_eq!(parse_timestamp(&spaced), Some(UnixMicros(micros)));
        let months = time.year() * 12 + i32::try_from(time.month0()).unwrap();
        prop_assert_eq!(month_of(UnixMicros(micros)), Month(months));
    }

    #[test]
    fn takes_any_text(text in "\\PC*", dateish in "[0-9TZ:/ .+-]{0,40}") {
        parse_timestamp(&text);
        parse_timestamp(&dateish);
    }

    #[test]
    fn event_times_are_in_bounds(
        timestamp: i64, sent_at: Option<i64>, offset_millis: Option<i64>,
        now in 0..4_102_444_800_000_000_i64,
    ) {
        let sent_at = sent_at.map(UnixMicros);
        let claim = Claim { timestamp: Claimed::At(UnixMicros(timestamp)), sent_at, offset_millis };
        let at = event_time(&claim, UnixMicros(now)).at;
        prop_assert!((YEAR_0..YEAR_10000).contains(&at));
        prop_assert!(at.0 < now + 23 * 3600 * SECOND + 1000);
        prop_assert!(i64::MIN < from_integer(timestamp).0);
    }
}
