//! Expected bodies are written by hand from the documented shapes.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::request::{Request, RequestError};
use super::response::{FlagRecord, Response};
use super::{Endpoint, Query, Shape};
use weir_base::error::Kind;

#[test]
fn path_and_query_choose_the_shape() {
    for (endpoint, query, shape, with_config) in [
        (Endpoint::Decide, "", Shape::EnabledKeys, true),
        (Endpoint::Decide, "v=1", Shape::EnabledKeys, true),
        (Endpoint::Decide, "v=x", Shape::EnabledKeys, true),
        (Endpoint::Decide, "v=0", Shape::EnabledKeys, true),
        (Endpoint::Decide, "v=2&ip=1", Shape::EnabledValues, true),
        (Endpoint::Decide, "v=3", Shape::Values, true),
        (Endpoint::Decide, "v=3&config=false", Shape::Values, true),
        (Endpoint::Decide, "v=4", Shape::Records, true),
        (Endpoint::Decide, "v=99", Shape::Records, true),
        (Endpoint::Flags, "", Shape::Records, true),
        (Endpoint::Flags, "_=1", Shape::Records, true),
        (Endpoint::Flags, "v=1", Shape::Values, false),
        (Endpoint::Flags, "v=x", Shape::Values, false),
        (Endpoint::Flags, "v=2", Shape::Records, false),
        (Endpoint::Flags, "v=4", Shape::Records, false),
        (Endpoint::Flags, "v=2&config=true", Shape::Records, true),
        (Endpoint::Flags, "v=2&config=false", Shape::Records, false),
        (Endpoint::Flags, "config=true", Shape::Values, true),
        (Endpoint::Flags, "config=false", Shape::Values, false),
    ] {
        let parsed = Query::parse(endpoint, query);
        assert_eq!(
            (parsed.shape, parsed.with_config),
            (shape, with_config),
            "{endpoint:?} {query}"
        );
    }
    let query = Query::parse(
        Endpoint::Flags,
        "token=a%20b&only_evaluate_survey_feature_flags=true&only_use_override_person_properties",
    );
    assert_eq!(query.token.as_deref(), Some("a b"));
    assert!(query.surveys_only && query.supplied_only);
    assert_eq!(Query::parse(Endpoint::Flags, "token=").token, None);
}

fn parse(body: &Value) -> Result<Request, RequestError> {
    let query = Query::parse(Endpoint::Flags, "v=2");
    Request::parse(body.to_string().as_bytes(), &query)
}

/// The JSON library interprets this key; senders do not.
#[test]
fn no_key_of_a_value_has_a_meaning() {
    for text in ["not JSON", "[[1]]"] {
        let value = json!({"a": {"$serde_json::private::RawValue": text}});
        let body = json!({
            "token": "t", "distinct_id": "d", "groups": value, "person_properties": value,
            "group_properties": {"company": value},
        });
        let request = parse(&body).expect("a request");
        assert_eq!(Value::from(request.person_properties), value);
        assert_eq!(Value::from(request.groups), value);
        assert_eq!(request.group_properties["company"], value);
    }
}

#[test]
fn fields_are_read_under_all_their_names() {
    let person = json!({"plan": "pro"});
    let groups = json!({"organization": "acme"});
    let of_groups = json!({"organization": {"size": 3}});
    let expected = Request {
        token: "t".to_owned(),
        distinct_id: "d".to_owned(),
        anon_distinct_id: Some("anon".to_owned()),
        device_id: Some("dev".to_owned()),
        groups: groups.as_object().expect("object").clone(),
        person_properties: person.as_object().expect("object").clone(),
        group_properties: of_groups.as_object().expect("object").clone(),
        flag_keys: Some(vec!["a".to_owned(), "b".to_owned()]),
        evaluation_contexts: vec!["web".to_owned()],
        evaluation_runtime: Some("server".to_owned()),
        geoip_disable: true,
        disable_flags: false,
    };
    let plain = json!({
        "token": "t", "distinct_id": "d", "anon_distinct_id": "anon", "device_id": "dev",
        "groups": groups, "person_properties": person, "group_properties": of_groups,
        "flag_keys": ["a", "b"], "evaluation_contexts": ["web"], "evaluation_runtime": "server",
        "geoip_disable": true, "timezone": "Europe/Berlin",
    });
    let prefixed = json!({
        "$token": "t", "$distinct_id": "d", "$anon_distinct_id": "anon", "$device_id": "dev",
        "$groups": groups, "$properties": person, "$group_properties": of_groups,
        "flag_keys_to_evaluate": ["a", "b"], "evaluation_environments": ["web"],
        "evaluation_runtime": "server", "disable_geoip": true,
    });
    let python = json!({
        "api_key": "t", "distinct_id": "d", "$anon_distinct_id": "anon", "device_id": "dev",
        "groups": groups, "$person_properties": person, "group_properties": of_groups,
        "flag_keys": ["a", 1, "b"], "evaluation_contexts": ["web"], "evaluation_runtime": "server",
        "geoip_disable": true, "sent_at": "2026-01-01T00:00:00Z",
    });
    for body in [plain, prefixed, python] {
        assert_eq!(parse(&body).expect("complete"), expected, "{body}");
    }
}

#[test]
fn optional_fields_of_the_wrong_type_are_ignored() {
    let minimal = parse(&json!({"api_key": "t", "distinct_id": "d"})).expect("complete");
    for body in [
        json!({"api_key": "t", "distinct_id": "d", "device_id": null, "groups": {}}),
        json!({"api_key": "t", "distinct_id": "d", "groups": [], "person_properties": null}),
        json!({"api_key": "t", "distinct_id": "d", "group_properties": "x", "flag_keys": "a"}),
        json!({"api_key": "t", "distinct_id": "d", "$anon_distinct_id": null, "device_id": 1}),
        json!({"api_key": "t", "distinct_id": "d", "geoip_disable": "yes", "disable_flags": 1}),
        json!({"token": 5, "api_key": "t", "distinct_id": null, "$distinct_id": "d"}),
        json!({"token": "", "$token": 1, "api_key": "t", "distinct_id": "d"}),
    ] {
        assert_eq!(parse(&body).expect("complete"), minimal, "{body}");
    }
}

#[test]
fn distinct_ids_are_texts_numbers_or_empty() {
    let long = "ü".repeat(300);
    for (distinct_id, expected) in [
        (json!("d"), "d".to_owned()),
        (json!(""), String::new()),
        (json!(12), "12".to_owned()),
        (json!(1.5), "1.5".to_owned()),
        (json!(long), "ü".repeat(200)),
    ] {
        let request = parse(&json!({"token": "t", "distinct_id": distinct_id}));
        assert_eq!(request.expect("complete").distinct_id, expected);
    }
    let request = parse(&json!({"token": "t", "disable_flags": true})).expect("no one needed");
    assert!(request.disable_flags && request.distinct_id.is_empty());
    let device = json!({"token": "t", "distinct_id": 1, "person_properties": {"$device_id": "p"}});
    assert_eq!(parse(&device).expect("complete").device_id.as_deref(), Some("p"));
}

/// "Precedence: top-level anon_distinct_id > person_properties.$anon_distinct_id"; strings only.
#[test]
fn the_id_of_before_a_login_may_stand_among_the_properties() {
    let with = |among: Value| json!({"$anon_distinct_id": among});
    for (body, expected) in [
        (json!({"person_properties": with(json!("p"))}), Some("p")),
        (json!({"$anon_distinct_id": "b", "person_properties": with(json!("p"))}), Some("b")),
        (json!({"anon_distinct_id": "b", "$properties": with(json!("p"))}), Some("b")),
        (json!({"$anon_distinct_id": null, "person_properties": with(json!("p"))}), Some("p")),
        (json!({"person_properties": with(json!(7))}), None),
        (json!({"group_properties": {"org": with(json!("p"))}}), None),
    ] {
        let mut whole = json!({"token": "t", "distinct_id": "d"});
        whole.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        let request = parse(&whole).expect("complete");
        assert_eq!(request.anon_distinct_id.as_deref(), expected, "{body}");
    }
}

#[test]
fn the_token_may_stand_in_the_query() {
    let query = Query::parse(Endpoint::Decide, "v=3&token=q");
    let request = Request::parse(br#"{"distinct_id": "d"}"#, &query).expect("complete");
    assert_eq!(request.token, "q");
    let request = Request::parse(br#"{"distinct_id": "d", "api_key": "b"}"#, &query);
    assert_eq!(request.expect("complete").token, "b");
}

#[test]
fn errors_say_what_is_missing() {
    let query = Query::parse(Endpoint::Decide, "v=3");
    for (body, kind, code) in [
        ("", Kind::Invalid, "invalid_payload"),
        ("{", Kind::Invalid, "invalid_payload"),
        ("[]", Kind::Invalid, "invalid_payload"),
        ("null", Kind::Invalid, "invalid_payload"),
        ("{}", Kind::Unauthorized, "invalid_api_key"),
        (r#"{"distinct_id": "d"}"#, Kind::Unauthorized, "invalid_api_key"),
        (r#"{"api_key": "", "distinct_id": "d"}"#, Kind::Unauthorized, "invalid_api_key"),
        (r#"{"api_key": "t"}"#, Kind::Invalid, "invalid_payload"),
        (r#"{"api_key": "t", "distinct_id": null}"#, Kind::Invalid, "invalid_payload"),
        (r#"{"api_key": "t", "distinct_id": {}}"#, Kind::Invalid, "invalid_payload"),
    ] {
        let error = Request::parse(body.as_bytes(), &query).expect_err(body);
        assert_eq!((error.kind(), error.code()), (kind, code), "{body}");
    }
}

fn encode(endpoint: Endpoint, query: &str) -> Value {
    let payload = json!("{\"a\": 1}");
    let record = |key, enabled, variant| FlagRecord {
        key,
        id: 7,
        version: 2,
        enabled,
        variant,
        reason_code: if enabled { "condition_match" } else { "no_condition_match" },
        reason_description: Cow::Borrowed(if enabled { "Matched condition set 1" } else { "No" }),
        condition_index: Some(0),
        payload: None,
        failed: false,
        conditions: None,
    };
    let records = [
        FlagRecord { payload: Some(&payload), ..record("on", true, None) },
        record("off", false, None),
        FlagRecord { payload: Some(&payload), ..record("left", false, None) },
        record("many", true, Some("blue")),
        FlagRecord {
            failed: true,
            reason_code: "dependency_not_found_cohort",
            condition_index: None,
            ..record("broken", false, None)
        },
    ];
    let query = Query::parse(endpoint, query);
    let response = Response {
        query: &query,
        request_id: "0198f0a0-0000-7000-8000-000000000000",
        evaluated_at: 1_767_312_000_123,
        has_errors: true,
        has_flags: true,
        minimal_called_events: false,
    };
    let bytes = response.encode(records.iter().cloned()).expect("encodable");
    let text = String::from_utf8(bytes).expect("UTF-8");
    let value: Value = serde_json::from_str(&text).expect("JSON");
    for key in value.as_object().expect("object").keys() {
        // Objects inside may have it too; a second one outside would be lost in `value`.
        let count = |text: &str| text.matches(&format!("\"{key}\":")).count();
        assert_eq!(count(&text), count(&value.to_string()), "{key} is there once: {text}");
    }
    value
}

/// `base` with the entries of `more`.
fn with(mut base: Value, more: Value) -> Value {
    let Value::Object(more) = more else { panic!("not an object") };
    base.as_object_mut().expect("object").extend(more);
    base
}

fn common() -> Value {
    json!({
        "errorsWhileComputingFlags": true,
        "requestId": "0198f0a0-0000-7000-8000-000000000000",
        "evaluatedAt": 1_767_312_000_123_i64,
    })
}

fn config() -> Value {
    json!({
        "config": {"enable_collect_everything": true},
        "toolbarParams": {},
        "isAuthenticated": false,
        "supportedCompression": ["gzip", "gzip-js"],
        "hasFeatureFlags": true,
        "sessionRecording": false,
        "heatmaps": false,
        "capturePerformance": false,
        "captureDeadClicks": false,
        "autocaptureExceptions": false,
        "autocapture_opt_out": false,
        "productTours": false,
        "conversations": false,
        "errorTracking": {"autocaptureExceptions": false, "suppressionRules": []},
        "logs": {"captureConsoleLogs": false},
        "analytics": {"endpoint": "/i/v0/e/"},
        "elementsChainAsString": true,
        "defaultIdentifiedOnly": true,
        "siteApps": [],
    })
}

fn decide() -> Value {
    with(
        with(common(), config()),
        json!({
            "errorComputingFlags": true,
            "editorParams": {},
            "supportedCompression": ["gzip", "gzip-js", "lz64"],
        }),
    )
}

fn records() -> Value {
    let record = |key, enabled, variant: Value, reason: Value, payload: Value| {
        json!({
            "key": key,
            "enabled": enabled,
            "variant": variant,
            "reason": reason,
            "metadata": {
                "id": 7,
                "version": 2,
                "description": null,
                "payload": payload,
                "has_experiment": false,
            },
        })
    };
    let matched = json!({
        "code": "condition_match", "condition_index": 0, "description": "Matched condition set 1",
    });
    let not = json!({"code": "no_condition_match", "condition_index": 0, "description": "No"});
    let failed = json!({
        "code": "dependency_not_found_cohort", "condition_index": null, "description": "No",
    });
    let payload = json!("{\"a\": 1}");
    json!({"flags": {
        "on": record("on", true, json!(null), matched.clone(), payload.clone()),
        "off": record("off", false, json!(null), not.clone(), json!(null)),
        "left": record("left", false, json!(null), not, payload),
        "many": record("many", true, json!("blue"), matched, json!(null)),
        "broken": with(
            record("broken", false, json!(null), failed, json!(null)),
            json!({"failed": true}),
        ),
    }})
}

#[test]
fn every_version_has_its_shape() {
    let values = json!({
        "featureFlags": {"on": true, "off": false, "left": false, "many": "blue"},
        "featureFlagPayloads": {"on": "{\"a\": 1}"},
    });
    let flags = Endpoint::Flags;
    for (endpoint, query, expected) in [
        (Endpoint::Decide, "", with(decide(), json!({"featureFlags": ["on", "many"]}))),
        (
            Endpoint::Decide,
            "v=2",
            with(decide(), json!({"featureFlags": {"on": true, "many": "blue"}})),
        ),
        (Endpoint::Decide, "v=3", with(decide(), values.clone())),
        (Endpoint::Decide, "v=4", with(decide(), records())),
        (flags, "v=1", with(common(), values.clone())),
        (flags, "config=1", with(with(common(), config()), values)),
        (flags, "v=2", with(common(), records())),
        (flags, "v=4", with(common(), records())),
        (flags, "", with(with(common(), config()), records())),
    ] {
        assert_eq!(encode(endpoint, query), expected, "{endpoint:?} {query}");
    }
}

/// A response with default values.
fn plain(query: &Query) -> Response<'_> {
    Response {
        query,
        request_id: "r",
        evaluated_at: 5,
        has_errors: false,
        has_flags: true,
        minimal_called_events: false,
    }
}

/// Goal: no text of a project produces invalid JSON. Method: parse it, in every shape.
#[test]
fn texts_with_quotes_and_control_characters_are_escaped() {
    let key = "a\"b\\c\n\u{1}é";
    let payload = json!({key: key});
    for (query, pointer) in [("v=2", "/flags"), ("v=1", "/featureFlags")] {
        let query = Query::parse(Endpoint::Flags, query);
        let response = plain(&query);
        let steps = json!([{key: key}]);
        let record = FlagRecord {
            key,
            id: -7,
            version: i64::MAX,
            enabled: true,
            variant: Some(key),
            reason_code: "condition_match",
            reason_description: Cow::Borrowed(key),
            condition_index: None,
            payload: Some(&payload),
            failed: false,
            conditions: Some(&steps),
        };
        let body = response.encode([record].into_iter()).expect("encodable");
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        let expected = match pointer {
            "/flags" => json!({
                "key": key, "enabled": true, "variant": key,
                "reason": {"code": "condition_match", "condition_index": null, "description": key},
                "metadata": {
                    "id": -7, "version": i64::MAX, "description": null, "payload": payload,
                    "has_experiment": false,
                },
                "conditions": steps,
            }),
            _ => json!(key),
        };
        assert_eq!(body.pointer(pointer), Some(&json!({key: expected})));
    }
}

/// SDKs that can send minimal events read this field in records only; without it they send all properties.
#[test]
fn minimal_called_events_are_in_records_only() {
    for (endpoint, query, is_sent) in [
        (Endpoint::Flags, "v=2", true),
        (Endpoint::Flags, "v=4&config=true", true),
        (Endpoint::Decide, "v=4", true),
        (Endpoint::Flags, "v=1", false),
        (Endpoint::Decide, "v=3", false),
    ] {
        let query = Query::parse(endpoint, query);
        for minimal_called_events in [true, false] {
            let response = Response { minimal_called_events, ..plain(&query) };
            let body = response.encode(std::iter::empty()).expect("encodable");
            let body: Value = serde_json::from_slice(&body).expect("JSON");
            let expected = (minimal_called_events && is_sent).then_some(json!(true));
            assert_eq!(body.get("minimalFlagCalledEvents"), expected.as_ref(), "{query:?}");
        }
    }
}

#[test]
fn a_project_without_flags_gets_empty_maps() {
    let query = Query::parse(Endpoint::Flags, "v=2");
    let response = Response { has_flags: false, ..plain(&query) };
    let bytes = response.encode(std::iter::empty()).expect("encodable");
    assert_eq!(
        String::from_utf8(bytes).expect("UTF-8"),
        r#"{"errorsWhileComputingFlags":false,"flags":{},"requestId":"r","evaluatedAt":5}"#
    );
}
