//! Expectations: the instants stated in the tests and documentation of the crates from which the formats come, and the
//! calendar.

use proptest::prelude::*;

use super::{FORMS, parse};
use crate::time::{parse_rfc3339, parse_timestamp};

/// Goal: dates that other systems export keep their times. Each case as it is sent, and its instant.
#[test]
fn reads_the_spellings_of_exports() {
    for (text, expected) in [
        // The name of a month first.
        ("Nov 20, 2025 5:57:51 PM", "2025-11-20T17:57:51Z"),
        ("November 20, 2025, 10:10:09", "2025-11-20T10:10:09Z"),
        ("Nov 20, 2025 15:51:31 UTC", "2025-11-20T15:51:31Z"),
        ("Nov 20, 2025", "2025-11-20T00:00:00Z"),
        ("May 8, 2009 5:57:51 PM", "2009-05-08T17:57:51Z"),
        ("September 17, 2012 10:09am", "2012-09-17T10:09:00Z"),
        ("May 02, 2021 15:51 UTC", "2021-05-02T15:51:00Z"),
        ("May 26, 2021, 12:49 AM PDT", "2021-05-26T07:49:00Z"),
        ("September 17, 2012 at 10:09am PST", "2012-09-17T18:09:00Z"),
        ("may 02 2021 15:51:31 +0200", "2021-05-02T13:51:31Z"),
        ("oct 7, 70", "1970-10-07T00:00:00Z"),
        ("oct. 7, 1970", "1970-10-07T00:00:00Z"),
        ("AUGUST 1, 2025 12:00 am", "2025-08-01T00:00:00Z"),
        ("Aug 1, 2025 12:00 PM", "2025-08-01T12:00:00Z"),
        // The day first.
        ("20 Nov 2025 19:17:40.164", "2025-11-20T19:17:40.164Z"),
        ("20 November 2025", "2025-11-20T00:00:00Z"),
        ("12 Feb 2006, 19:17", "2006-02-12T19:17:00Z"),
        ("7 oct 70", "1970-10-07T00:00:00Z"),
        ("1 July 2013", "2013-07-01T00:00:00Z"),
        // The year first.
        ("2025-Nov-20", "2025-11-20T00:00:00Z"),
        ("2025-11-20 13:31:15 PST", "2025-11-20T21:31:15Z"),
        ("2025-11-20 13:31 PST", "2025-11-20T21:31:00Z"),
        ("2025-07-20 13:31:15 pdt", "2025-07-20T20:31:15Z"),
        ("2025-11-20 13:31:15.25 EST", "2025-11-20T18:31:15.25Z"),
        ("2025-11-20 13:31:15 CET", "2025-11-20T13:31:15Z"),
        ("2025-11-20 UTC", "2025-11-20T00:00:00Z"),
        ("2025-11-20 PST", "2025-11-20T08:00:00Z"),
        ("2020-07-20+08:00", "2020-07-19T16:00:00Z"),
        ("2025.11.20", "2025-11-20T00:00:00Z"),
        ("2025年11月20日11时25分18秒", "2025-11-20T11:25:18Z"),
        ("2025年11月20日", "2025-11-20T00:00:00Z"),
        ("251120 14:14:20", "2025-11-20T14:14:20Z"),
        ("711120 14:14:20", "1971-11-20T14:14:20Z"),
        // The month first.
        ("11.20.2025", "2025-11-20T00:00:00Z"),
        ("3.31.2014", "2014-03-31T00:00:00Z"),
        ("08.21.71", "1971-08-21T00:00:00Z"),
        ("3-31-2014", "2014-03-31T00:00:00Z"),
        ("8-1-71", "1971-08-01T00:00:00Z"),
        ("4-8-14 22:05", "2014-04-08T22:05:00Z"),
        ("8-8-1965 01:00:01 PM", "1965-08-08T13:00:01Z"),
        ("03-19-2012 10:11:59.3186369", "2012-03-19T10:11:59.318636Z"),
        // ISO 8601 in its basic form, and shortened.
        ("20251120T100000", "2025-11-20T10:00:00Z"),
        ("20251120T100000Z", "2025-11-20T10:00:00Z"),
        ("20251120T100000.25+0100", "2025-11-20T09:00:00.25Z"),
        ("20251120t1000", "2025-11-20T10:00:00Z"),
        ("20251120T10:00:00", "2025-11-20T10:00:00Z"),
        ("20251120 100000", "2025-11-20T10:00:00Z"),
        ("20251120", "2025-11-20T00:00:00Z"),
        ("2025-11-20T10", "2025-11-20T10:00:00Z"),
        ("2025-11-20T100000", "2025-11-20T10:00:00Z"),
        ("2025-11-20T10:00:00+01:00:00", "2025-11-20T09:00:00Z"),
        // RFC 9557, as Java's `ZonedDateTime` prints it. The offset counts; without one, the zone.
        ("2025-11-20T10:00:00.000+01:00[Europe/Berlin]", "2025-11-20T09:00:00Z"),
        ("2025-07-20T10:00+02:00[Europe/Berlin]", "2025-07-20T08:00:00Z"),
        ("2025-11-20T09:00:00Z[UTC]", "2025-11-20T09:00:00Z"),
        ("2025-11-20T10:00:00\u{2212}05:00[America/New_York]", "2025-11-20T15:00:00Z"),
        ("2025-07-20T10:00:00[Europe/Berlin]", "2025-07-20T08:00:00Z"),
        ("2025-11-20T10:00:00 [Asia/Kathmandu]", "2025-11-20T04:15:00Z"),
    ] {
        assert_eq!(parse_timestamp(text), parse_rfc3339(expected), "{text}");
        assert!(parse_rfc3339(expected).is_some(), "{expected}");
        assert_eq!(parse_timestamp(&format!(" {text}\n")), parse_rfc3339(expected), "{text}");
    }
}

/// Goal: an id or a sentence is not a time, and neither is a text that would need the present day.
#[test]
fn refuses_what_is_no_time() {
    for text in [
        "4:00pm",
        "01:06:06 PST",
        "May 27 02:45:27",
        "May 6 at 9:24 PM",
        "2014.03",
        "Nov 2025",
        "Nov 31, 2025",
        "Now 20, 2025",
        "Novem 20, 2025",
        "Nov 20, 2025 at",
        "Nov 20, 2025 13:00 PM",
        "Nov 20, 2025 0:30 AM",
        "Nov 20, 2025 10:60",
        "Nov 20, 20255",
        "Nov 20, 202",
        "Nov20,2025",
        "20 Nov 2025 10",
        "20.11.2025",
        "2025.13.01",
        "2025- 11- 20",
        "20251320",
        "20250229",
        "12345678",
        "2025112",
        "20251120T",
        "20251120T1",
        "20251120T10000",
        "20251120T250000",
        "20251120T100000 and more",
        "251320 14:14:20",
        "251120",
        "2025-11-20T10:00:00[Mars/Olympus]",
        "2025-11-20T10:00:00+01:00[Europe/Berlin",
        "2025-11-20T10:00:00[]",
        "2025-11-20 10:00:00 +25:00",
        "2025-11-20 10:00:00 +01:60",
        "2025-11-20 10:00:00 ABCDEFG",
        "2025-11-20 10:00:00 P",
        "2025年13月20日",
        "2025年11月20日11时25分",
        "٢٠٢٥.11.20",
        "",
        ",",
        "[",
        "+",
    ] {
        assert_eq!(parse_timestamp(text), None, "{text}");
    }
}

/// Goal: at most one format reads a text, so their order does not matter.
#[test]
fn no_text_has_two_readings() {
    for text in
        ["Nov 20, 2025", "20 Nov 2025", "2025.11.20", "08.21.71", "8-1-71", "20251120T100000"]
    {
        let one = |form: &&[super::Part]| {
            let mut reader = super::Reader { rest: text, ..super::Reader::default() };
            form.iter().try_for_each(|part| reader.read(*part)).is_some() && reader.rest.is_empty()
        };
        assert_eq!(FORMS.iter().filter(|form| one(form)).count(), 1, "{text}");
    }
}

proptest! {
    #![proptest_config(proptest::test_runner::Config::with_failure_persistence(
        proptest::test_runner::FileFailurePersistence::WithSource("regressions"),
    ))]
    #[test]
    fn takes_any_text(text in "\\PC{0,64}", dateish in "[0-9A-Za-z:/ .,+\\[\\]年月日-]{0,64}") {
        parse(&text);
        parse(&dateish);
    }

    /// Goal: for any day, all formats give the same instant.
    #[test]
    fn spellings_of_one_day_agree(days in 0..25_000_i64, second in 0..86_400_u32) {
        let date = chrono::DateTime::from_timestamp(days * 86_400 + i64::from(second), 0).unwrap();
        let expected = Some(weir_base::clock::UnixMicros(date.timestamp_micros()));
        for form in [
            "%b %d, %Y %H:%M:%S",
            "%B %-d, %Y, %I:%M:%S %p",
            "%d %b %Y %H:%M:%S UTC",
            "%Y%m%dT%H%M%S",
            "%Y%m%dT%H%M%SZ",
            "%m-%d-%Y %-I:%M:%S%P",
            "%Y年%m月%d日%H时%M分%S秒",
            "%Y-%m-%dT%H:%M:%S[UTC]",
        ] {
            let text = date.format(form).to_string();
            prop_assert_eq!(parse_timestamp(&text), expected, "{}", text);
        }
    }
}
