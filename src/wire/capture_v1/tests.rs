//! Expectations from PostHog's capture v1: its header checks and their order, and its responses.

use serde_json::json;
use uuid::Uuid;

use super::{Head, Refusal, Sdk, Verdict, bearer, results};
use weir_event::key_kind::KeyKind;

/// Headers as posthog-python sends them, with changes: a value, or `None` to leave one out.
fn read(changes: &[(&str, Option<&str>)]) -> Result<Head, Refusal> {
    let mut headers = vec![
        ("authorization", "Bearer phc_test"),
        ("posthog-sdk-info", "posthog-python/7.91.1"),
        ("posthog-attempt", "1"),
        ("posthog-request-id", "0192f0c1-7f3a-7b9e-8a53-1f0e6a9b3c4d"),
        ("posthog-request-timestamp", "2026-11-21T08:00:00.123456+00:00"),
        ("content-type", "application/json"),
        ("user-agent", "posthog-python/7.91.1"),
    ];
    for (name, value) in changes {
        headers.retain(|(known, _)| known != name);
        headers.extend(value.map(|value| (*name, value)));
    }
    Head::read(|name| {
        headers.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_bytes())
    })
}

#[test]
fn headers_of_an_sdk_are_read() {
    let expected = Head {
        token: "phc_test".to_owned(),
        sdk: Some(Sdk { name: "posthog-python".to_owned(), version: "7.91.1".to_owned() }),
        // 2026-11-21T08:00:00.123456Z.
        sent_at_micros: 1_795_248_000_123_456,
    };
    for changes in [
        &[][..],
        &[("authorization", Some("bearer   phc_test"))],
        &[("authorization", Some("BEARER phc_test"))],
        &[("content-type", Some("Application/JSON; charset=utf-8"))],
        &[("content-encoding", Some("gzip"))],
        &[("content-encoding", Some("BR"))],
        &[("content-encoding", Some("deflate"))],
        &[("content-encoding", Some("zstd"))],
        &[("posthog-attempt", Some("17"))],
        &[("posthog-request-timestamp", Some("2026-11-21T10:00:00.123456+02:00"))],
    ] {
        assert_eq!(read(changes), Ok(expected.clone()), "{changes:?}");
    }
}

#[test]
fn an_sdk_that_cannot_be_understood_is_nobody() {
    let sdk = |info: &str| read(&[("posthog-sdk-info", Some(info))]).unwrap().sdk;
    let found = |name: &str, version: &str| {
        Some(Sdk { name: name.to_owned(), version: version.to_owned() })
    };
    assert_eq!(sdk("posthog/sub-sdk/2.3.4"), found("posthog/sub-sdk", "2.3.4"));
    assert_eq!(sdk(" posthog-rs / 1.2.3 "), found("posthog-rs", "1.2.3"));
    let long = format!("posthog-rs/{}", "9".repeat(189));
    assert_eq!(sdk(&long), found("posthog-rs", &"9".repeat(189)));
    for info in ["no-slash", "/1.0.0", "posthog-rs/", "/", " / ", &format!("{long}9")] {
        assert_eq!(sdk(info), None, "{info}");
    }
}

#[test]
fn headers_are_checked_in_order() {
    let missing = |names: &str| Refusal::MissingHeaders(names.to_owned());
    let header = |what: &str| Refusal::InvalidHeader(what.to_owned());
    let all_but_authorization = [
        ("posthog-sdk-info", None),
        ("posthog-attempt", None),
        ("posthog-request-id", None),
        ("posthog-request-timestamp", None),
        ("content-type", None),
        ("user-agent", None),
    ];
    for (changes, expected) in [
        (&[("authorization", None), ("content-type", None)][..], Refusal::MissingAuthorization),
        (
            &all_but_authorization,
            missing(
                "PostHog-Sdk-Info, PostHog-Attempt, PostHog-Request-Id, \
                 PostHog-Request-Timestamp, content-type, user-agent",
            ),
        ),
        (&[("user-agent", None), ("authorization", Some("Basic eA=="))], missing("user-agent")),
        (
            &[("authorization", Some("Basic eA==")), ("content-type", Some("text/plain"))],
            header("Authorization must use Bearer scheme"),
        ),
        (&[("authorization", Some("phc_test"))], header("Authorization must use Bearer scheme")),
        (
            &[("authorization", Some("Bearer phx_secret")), ("content-type", Some("a/b"))],
            Refusal::InvalidToken(KeyKind::Personal),
        ),
        (&[("authorization", Some("Bearer  "))], Refusal::InvalidToken(KeyKind::Missing)),
        (
            &[("content-type", Some("text/plain")), ("content-encoding", Some("lz4"))],
            Refusal::UnsupportedContentType("text/plain".to_owned()),
        ),
        (
            &[("content-encoding", Some("lz4")), ("posthog-request-id", Some("x"))],
            Refusal::UnsupportedEncoding("lz4".to_owned()),
        ),
        (
            &[("posthog-request-id", Some("x")), ("posthog-attempt", Some("0"))],
            header("PostHog-Request-Id is not a valid UUID"),
        ),
        (
            &[("posthog-attempt", Some("0")), ("posthog-request-timestamp", Some("now"))],
            header("PostHog-Attempt must be a positive integer"),
        ),
        (&[("posthog-attempt", Some("x"))], header("PostHog-Attempt must be a positive integer")),
        (&[("posthog-attempt", Some("-1"))], header("PostHog-Attempt must be a positive integer")),
        (
            &[("posthog-request-timestamp", Some("2026-11-21"))],
            header("PostHog-Request-Timestamp is not valid RFC 3339"),
        ),
        (&[("user-agent", Some("é"))], header("user-agent contains non-visible ASCII characters")),
    ] {
        assert_eq!(read(changes), Err(expected), "{changes:?}");
    }
}

#[test]
fn tokens_follow_the_scheme_in_any_case() {
    assert_eq!(bearer("Bearer a"), Some("a"));
    assert_eq!(bearer("bEARER  a "), Some("a"));
    for other in ["Bearer", "Basic a", "a", ""] {
        assert_eq!(bearer(other), None, "{other}");
    }
}

#[test]
fn results_are_json_in_the_order_of_the_events() {
    let id = |number: u128| Uuid::from_u128(number);
    let written = results(
        [
            (id(3), Verdict::Ok(None)),
            (id(1), Verdict::Drop("missing_distinct_id")),
            (id(2), Verdict::Ok(Some("person_processing_disabled"))),
        ]
        .into_iter(),
    );
    let expected = concat!(
        r#"{"results":{"00000000-0000-0000-0000-000000000003":{"result":"ok"},"#,
        r#""00000000-0000-0000-0000-000000000001":{"result":"drop","details":"missing_distinct_id"},"#,
        r#""00000000-0000-0000-0000-000000000002":{"result":"ok","details":"person_processing_disabled"}}}"#,
    );
    assert_eq!(written, expected);
    let none: serde_json::Value = serde_json::from_str(&results([].into_iter())).unwrap();
    assert_eq!(none, json!({"results": {}}));
}
