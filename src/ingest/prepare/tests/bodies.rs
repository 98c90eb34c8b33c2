//! Bodies as a whole: shapes, tokens, and errors that reject a body before its events are read.

use super::*;
use weir_event::key_kind::KeyKind;

#[test]
fn every_shape_is_read() {
    let a = r#"{"event":"a","distinct_id":"u1"}"#;
    let b = r#"{"distinct_id":"u2","event":"b"}"#;
    let token = r#""api_key":"phc_a""#;
    for (body, expected) in [
        (format!(r#"[{{"event":"a","distinct_id":"u1",{token}}},{b}]"#), vec!["a", "b"]),
        (format!(r#"{{{token},"batch":[{a},{b}]}}"#), vec!["a", "b"]),
        (format!(r#"{{"batch":[{a},{b}],{token}}}"#), vec!["a", "b"]),
        (format!(r#"{{"batch":[{a},{b}],"historical_migration":false,{token}}}"#), vec!["a", "b"]),
        (format!(" \n{{ \"batch\" :\t[ {a} , {b} ] , {token} }}\r\n "), vec!["a", "b"]),
        (format!(r#"{{"event":"a","distinct_id":"u1",{token}}}"#), vec!["a"]),
        (format!(r#"{{{token},"properties":{{}},"distinct_id":"u1","event":"a"}}"#), vec!["a"]),
    ] {
        let prepared = prepare(&body);
        assert_eq!(texts(&prepared, "event"), expected, "{body}");
        assert_eq!(prepared.keys.len(), expected.len());
        assert!(prepared.observed.event_names().eq(expected.iter().copied()), "{body}");
        assert_eq!(drops(&prepared), []);
        for row in 0..prepared.rows {
            assert_eq!(cell(&prepared, row, "project_id"), 7);
            assert_eq!(cell(&prepared, row, "received_at"), NOW);
            assert_eq!(cell(&prepared, row, "timestamp"), NOW);
            assert_eq!(cell(&prepared, row, "properties"), "{}");
        }
    }
}

#[test]
fn an_event_without_a_name_is_an_identify_on_engage_only() {
    let body = r#"{"token":"phc_a","distinct_id":"u1","$set":{"a":1}}"#;
    let protocol = Protocol::V0 { sent_at_query_millis: None, engage: true };
    let engage = Received { protocol, ..received() };
    for body in [body, r#"{"token":"phc_a","event":null,"distinct_id":"u1","$set":{"a":1}}"#] {
        let prepared = prepare_with(body, &engage).unwrap();
        assert_eq!(texts(&prepared, "event"), ["$identify"]);
    }
    let prepared = prepare(body);
    assert_eq!((prepared.rows, drops(&prepared)), (0, vec![(Drop::MissingEvent, 1)]));
    let named = r#"{"token":"phc_a","event":"x","distinct_id":"u1"}"#;
    assert_eq!(texts(&prepare_with(named, &engage).unwrap(), "event"), ["x"]);
}

/// Goal: what earlier versions logged as an event stays one, or its record could not be replayed.
#[test]
fn an_event_may_have_a_member_called_batch() {
    let protocol = Protocol::V0 { sent_at_query_millis: None, engage: true };
    let engage = Received { protocol, ..received() };
    let event = r#"{"token":"phc_a","event":"x","distinct_id":"u1","batch":7}"#;
    assert_eq!(texts(&prepare(event), "event"), ["x"]);
    let nameless = r#"{"token":"phc_a","$distinct_id":"u1","batch":{}}"#;
    assert_eq!(texts(&prepare_with(nameless, &engage).unwrap(), "event"), ["$identify"]);
    let nobody = r#"{"token":"phc_a","batch":{}}"#;
    assert_eq!(prepare_with(nobody, &engage).unwrap_err(), PrepareError::BatchNotArray);
}

#[test]
fn the_token_decides_the_project() {
    let event = |token: &str| format!(r#"{{"event":"a","distinct_id":"u",{token}"x":0}}"#);
    let plain = event("");
    let a = event(r#""token":"phc_a","#);
    let b = event(r#""$token":"phc_b","#);
    let inner = event(r#""properties":{"token":"phc_b"},"#);
    let both = event(r#""api_key":"phc_a","properties":{"token":"phc_b"},"#);
    let inner_key = event(r#""properties":{"api_key":"phc_a"},"#);
    let number = event(r#""token":7,"#);
    for (body, expected) in [
        (format!(r#"{{"api_key":"phc_a","batch":[{plain}]}}"#), Ok(7)),
        (format!(r#"{{"token":"phc_b","batch":[{plain}]}}"#), Ok(8)),
        (format!(r#"{{"token":" phc_b\n","batch":[{plain}]}}"#), Ok(8)),
        // The envelope's token takes precedence.
        (format!(r#"{{"batch":[{a},{a}],"token":"phc_b"}}"#), Ok(8)),
        (format!(r#"{{"batch":[{plain},{a}]}}"#), Ok(7)),
        (a.clone(), Ok(7)),
        (b.clone(), Ok(8)),
        (inner.clone(), Ok(8)),
        (both, Ok(7)),
        (format!("[{plain},{b},{inner}]"), Ok(8)),
        (format!("[{a},{b}]"), Err(PrepareError::InconsistentTokens)),
        (format!("[{a},{inner}]"), Err(PrepareError::InconsistentTokens)),
        (format!("[{plain},{plain}]"), Err(PrepareError::NoToken)),
        (plain.clone(), Err(PrepareError::NoToken)),
        (inner_key, Err(PrepareError::NoToken)),
        (number, Err(PrepareError::NoToken)),
        (format!(r#"{{"batch":[{plain}]}}"#), Err(PrepareError::NoToken)),
        (
            format!(r#"{{"token":"phc_c","batch":[{plain}]}}"#),
            Err(PrepareError::UnknownToken(KeyKind::Project)),
        ),
        (
            format!(r#"{{"token":"phx_c","batch":[{plain}]}}"#),
            Err(PrepareError::UnknownToken(KeyKind::Personal)),
        ),
        (
            format!(r#"{{"token":"","batch":[{plain}]}}"#),
            Err(PrepareError::UnknownToken(KeyKind::Missing)),
        ),
    ] {
        let found = prepare_with(&body, &received()).map(|prepared| prepared.project.0);
        assert_eq!(found, expected, "{body}");
    }
}

#[test]
fn bodies_that_are_no_events_are_refused() {
    for (body, expected) in [
        ("7", PrepareError::NoObject),
        ("null", PrepareError::NoObject),
        ("true", PrepareError::NoObject),
        ("\"text\"", PrepareError::NoObject),
        ("[]", PrepareError::NoEvents),
        (r#"{"api_key":"phc_a","batch":[]}"#, PrepareError::NoEvents),
        (r#"{"api_key":"phc_a","batch":7}"#, PrepareError::BatchNotArray),
        (r#"{"batch":{"event":"a"},"api_key":"phc_a"}"#, PrepareError::BatchNotArray),
        (r#"{"api_key":"phc_a","batch":"[]","sent_at":null}"#, PrepareError::BatchNotArray),
        (r#"{"api_key":"phc_a","batch":null}"#, PrepareError::BatchNotArray),
        (r#"{"batch":{},"distinct_id":"u","properties":{}}"#, PrepareError::BatchNotArray),
        ("{}", PrepareError::NoToken),
        ("[1,2]", PrepareError::NoToken),
    ] {
        assert_eq!(prepare_with(body, &received()).unwrap_err(), expected, "{body}");
    }
}

/// Goal: whoever writes a body by hand is told where it is wrong. Lines and columns are counted from 1.
#[test]
fn bodies_that_are_no_json_are_told_where() {
    for (body, place) in [
        ("", "line 1 column 0"),
        (" ", "line 1 column 1"),
        ("nonsense", "line 1 column 2"),
        ("{\"event\":\"a\"", "line 1 column 12"),
        ("[{}]x", "line 1 column 5"),
        ("{\"event\":\"a\",\n \"distinct_id\" \"u\"}", "line 2 column 16"),
    ] {
        let refused = prepare_with(body, &received()).unwrap_err();
        assert!(matches!(refused, PrepareError::Malformed(_)), "{body}: {refused:?}");
        let told = refused.to_string();
        assert!(
            told.starts_with("the body is not valid JSON: ") && told.ends_with(place),
            "{told}"
        );
    }
}
