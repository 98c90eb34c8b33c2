//! Spans in both encodings, the events that they become, and malicious bodies. Expected names are those
//! of PostHog's tests of the same endpoint.

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::protobuf::read;
use super::spans::{ATTRIBUTES_MAX, Room};
use super::{BATCH_MAX_BYTES, EVENT_MIN_BYTES, Form, to_batch};
use crate::encoding::error::DecodeError;

fn varint(mut value: usize) -> Vec<u8> {
    let mut out = Vec::new();
    while value > 127 {
        out.push(u8::try_from(value & 127).unwrap() | 128);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap());
    out
}

/// A field of bytes.
fn bytes(number: usize, value: &[u8]) -> Vec<u8> {
    [&varint(number << 3 | 2)[..], &varint(value.len()), value].concat()
}

fn fixed(number: usize, value: u64) -> Vec<u8> {
    [&varint(number << 3 | 1)[..], &value.to_le_bytes()].concat()
}

/// The protobuf of a value in the JSON of OTLP.
fn any_value(value: &Json) -> Vec<u8> {
    let (kind, value) = value.as_object().unwrap().iter().next().unwrap();
    let values = || value["values"].as_array().unwrap().iter();
    match kind.as_str() {
        "stringValue" => bytes(1, value.as_str().unwrap().as_bytes()),
        "boolValue" => [varint(2 << 3), varint(usize::from(value.as_bool().unwrap()))].concat(),
        "intValue" => [varint(3 << 3), varint(value.as_str().unwrap().parse().unwrap())].concat(),
        "doubleValue" => fixed(4, value.as_f64().unwrap().to_bits()),
        "arrayValue" => {
            bytes(5, &values().flat_map(|item| bytes(1, &any_value(item))).collect::<Vec<_>>())
        }
        "kvlistValue" => bytes(6, &attributes(1, &value["values"])),
        other => panic!("{other}"),
    }
}

fn attributes(number: usize, list: &Json) -> Vec<u8> {
    let pairs = list.as_array().map_or(&[][..], Vec::as_slice).iter();
    let pair = |pair: &Json| {
        let key = bytes(1, pair["key"].as_str().unwrap().as_bytes());
        bytes(number, &[key, bytes(2, &any_value(&pair["value"]))].concat())
    };
    pairs.flat_map(pair).collect()
}

fn unhex(text: &Json) -> Vec<u8> {
    let text = text.as_str().unwrap_or_default();
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

/// The protobuf of a request in JSON.
fn protobuf(request: &Json) -> Vec<u8> {
    let list = |of: &Json, name: &str| of[name].as_array().cloned().unwrap_or_default();
    let nanos = |of: &Json, name: &str| of[name].as_str().map_or(0, |text| text.parse().unwrap());
    let span = |span: &Json| {
        let mut out = [
            bytes(1, &unhex(&span["traceId"])),
            bytes(2, &unhex(&span["spanId"])),
            bytes(4, &unhex(&span["parentSpanId"])),
            bytes(5, span["name"].as_str().unwrap_or_default().as_bytes()),
            // A kind, and an unknown field.
            vec![6 << 3, 3],
            bytes(99, b"later"),
            fixed(7, nanos(span, "startTimeUnixNano")),
            fixed(8, nanos(span, "endTimeUnixNano")),
            attributes(9, &span["attributes"]),
        ]
        .concat();
        for event in list(span, "events") {
            let name = bytes(2, event["name"].as_str().unwrap().as_bytes());
            out.extend(bytes(11, &[name, attributes(3, &event["attributes"])].concat()));
        }
        if let Some(code) = span["status"]["code"].as_u64() {
            let message = span["status"]["message"].as_str().unwrap_or_default();
            let code = [varint(3 << 3), varint(usize::try_from(code).unwrap())].concat();
            out.extend(bytes(15, &[bytes(2, message.as_bytes()), code].concat()));
        }
        out
    };
    let scope = |scope: &Json| {
        let version = scope["scope"]["version"].as_str().unwrap_or_default();
        let mut out = bytes(1, &bytes(2, version.as_bytes()));
        list(scope, "spans").iter().for_each(|one| out.extend(bytes(2, &span(one))));
        out
    };
    let resource = |resource: &Json| {
        // The resource may come after its spans.
        let mut out = Vec::new();
        list(resource, "scopeSpans").iter().for_each(|one| out.extend(bytes(2, &scope(one))));
        out.extend(bytes(1, &attributes(1, &resource["resource"]["attributes"])));
        out
    };
    list(request, "resourceSpans").iter().flat_map(|one| bytes(1, &resource(one))).collect()
}

fn events(form: Form, body: &[u8]) -> Vec<Json> {
    let batch = to_batch(form, body, u64::MAX).unwrap();
    let batch: Json = serde_json::from_slice(&batch).unwrap();
    assert_eq!(batch["token"], "");
    batch["batch"].as_array().unwrap().clone()
}

/// The events of a request, the same from both encodings.
fn both(request: &Json) -> Vec<Json> {
    let found = events(Form::Json, request.to_string().as_bytes());
    assert_eq!(events(Form::Protobuf, &protobuf(request)), found);
    found
}

fn text(value: &str) -> Json {
    json!({"stringValue": value})
}

fn pairs(list: &[(&str, Json)]) -> Json {
    list.iter().map(|(key, value)| json!({"key": key, "value": value})).collect()
}

/// A request with one span, extended by `more`.
fn request(own: &[(&str, Json)], more: Json) -> Json {
    let mut span = json!({
        "traceId": "0102030405060708090a0b0c0d0e0f10", "spanId": "0102030405060708",
        "parentSpanId": "0807060504030201", "name": "chat gpt-4", "attributes": pairs(own),
        "startTimeUnixNano": "1704067200000000000", "endTimeUnixNano": "1704067201500000000",
    });
    span.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"resourceSpans": [{
        "resource": {"attributes": pairs(&[("service.name", text("shop")), ("process.pid", json!({"intValue": "7"}))])},
        "scopeSpans": [{"scope": {"name": "openai", "version": "6.7.1"}, "spans": [span]}],
    }]})
}

fn one(own: &[(&str, Json)], more: Json) -> Json {
    let mut found = both(&request(own, more));
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

#[test]
fn a_call_to_a_model_is_a_generation() {
    let messages = r#"[{"role":"user","content":"Hi \"there\""}]"#;
    let event = one(
        &[
            ("gen_ai.operation.name", text("chat")),
            ("gen_ai.provider.name", text("openai")),
            ("gen_ai.system", text("older")),
            ("gen_ai.request.model", text("gpt-4")),
            ("gen_ai.response.model", text("gpt-4-0613")),
            ("gen_ai.usage.input_tokens", json!({"intValue": "12"})),
            ("gen_ai.usage.completion_tokens", json!({"intValue": "5"})),
            ("gen_ai.request.temperature", json!({"doubleValue": 0.5})),
            ("gen_ai.input.messages", text(messages)),
            ("gen_ai.output.messages", text("no JSON {")),
            ("gen_ai.response.finish_reasons", json!({"arrayValue": {"values": [text("stop")]}})),
            (
                "extra",
                json!({"kvlistValue": {"values": [{"key": "on", "value": {"boolValue": true}}]}}),
            ),
            ("posthog.distinct_id", text("ada")),
            ("user.id", text("other")),
            ("gen_ai.conversation.id", text("thread")),
        ],
        json!({}),
    );
    assert_eq!(
        event,
        json!({
            "event": "$ai_generation",
            "distinct_id": "ada",
            "uuid": event["uuid"],
            "timestamp": "2024-01-01T00:00:00.000000Z",
            "properties": {
                "service.name": "shop",
                "gen_ai.request.temperature": 0.5,
                "gen_ai.response.finish_reasons": ["stop"],
                "extra": {"on": true},
                "gen_ai.conversation.id": "thread",
                "$ai_session_id": "thread",
                "$geoip_disable": true,
                "$ai_trace_id": "0102030405060708090a0b0c0d0e0f10",
                "$ai_span_id": "0102030405060708",
                "$ai_parent_id": "0807060504030201",
                "$ai_ingestion_source": "otel",
                "$lib": "posthog-otel",
                "$lib_version": "6.7.1",
                "$ai_span_name": "chat gpt-4",
                "$ai_latency": 1.5,
                "$ai_input": [{"role": "user", "content": "Hi \"there\""}],
                "$ai_output_choices": "no JSON {",
                "$ai_input_tokens": 12,
                "$ai_output_tokens": 5,
                "$ai_model": "gpt-4-0613",
                "$ai_provider": "openai",
            },
        })
    );
    assert!(uuid::Uuid::try_parse(event["uuid"].as_str().unwrap()).is_ok());
}

#[test]
fn what_a_span_is_is_told_by_its_library() {
    for (key, value, expected) in [
        ("gen_ai.operation.name", "chat", Some("$ai_generation")),
        ("gen_ai.operation.name", "embeddings", Some("$ai_embedding")),
        ("gen_ai.operation.name", "execute_tool", Some("$ai_span")),
        ("gen_ai.request.model", "gpt-4", Some("$ai_span")),
        ("llm.request.type", "completion", Some("$ai_generation")),
        ("llm.request.type", "embedding", Some("$ai_embedding")),
        ("llm.request.type", "rerank", Some("$ai_span")),
        ("ai.operationId", "ai.generateText.doGenerate", Some("$ai_generation")),
        ("ai.operationId", "ai.streamObject.doStream", Some("$ai_generation")),
        ("ai.operationId", "ai.embedMany.doEmbed", Some("$ai_embedding")),
        ("ai.operationId", "ai.generateText", Some("$ai_span")),
        ("ai.operationId", "ai.toolCall", Some("$ai_span")),
        ("pydantic_ai.agent_name", "a", Some("$ai_span")),
        ("traceloop.workflow.name", "a", Some("$ai_span")),
        ("http.request.method", "POST", None),
        ("logfire.msg", "running 1 tool", None),
        ("langchain.chain.name", "a", None),
    ] {
        let found = both(&request(&[(key, text(value))], json!({})));
        let name = found.first().map(|event| event["event"].as_str().unwrap());
        assert_eq!(name, expected, "{key}={value}");
        let root = both(&request(&[(key, text(value))], json!({"parentSpanId": ""})));
        let name = root.first().map(|event| event["event"].as_str().unwrap());
        let expected = if expected == Some("$ai_span") { Some("$ai_trace") } else { expected };
        assert_eq!(name, expected, "{key}={value} at the root");
    }
    // The step around a model call has attributes of that call.
    let step = [("ai.operationId", text("ai.toolCall")), ("gen_ai.operation.name", text("chat"))];
    assert_eq!(one(&step, json!({}))["event"], "$ai_span");
}

#[test]
fn a_failed_span_says_what_was_thrown() {
    let thrown = |list: &[(&str, Json)]| json!({"name": "exception", "attributes": pairs(list)});
    let (kind, words) = (text("RateLimitError"), text("Too many requests"));
    let whole = thrown(&[("exception.type", kind.clone()), ("exception.message", words)]);
    let failed = json!({"code": 2, "message": "rate limited"});
    let limited = ("http.response.status_code", json!({"intValue": "429"}));
    for (own, more, error, status) in [
        (
            vec![limited.clone()],
            json!({"events": [whole], "status": failed}),
            json!("RateLimitError: Too many requests"),
            json!(429),
        ),
        (
            vec![],
            json!({"events": [thrown(&[("exception.type", kind)])], "status": failed}),
            json!("RateLimitError"),
            json!(null),
        ),
        (vec![], json!({"status": failed}), json!("rate limited"), json!(null)),
        (
            vec![],
            json!({"status": {"code": 2}}),
            json!("OpenTelemetry span status error"),
            json!(null),
        ),
        (
            vec![("$ai_error", text("custom")), ("$ai_http_status", json!({"intValue": "418"}))],
            json!({"status": failed}),
            json!("custom"),
            json!(418),
        ),
        // Neither an invalid status nor an exception without attributes hides a valid one.
        (
            vec![("$ai_http_status", json!({"intValue": "0"})), limited.clone()],
            json!({"events": [whole, thrown(&[])], "status": failed}),
            json!("RateLimitError: Too many requests"),
            json!(429),
        ),
        (
            vec![],
            json!({"events": [thrown(&[("http.status_code", text("503"))])], "status": failed}),
            json!("rate limited"),
            json!(503),
        ),
        (
            vec![limited],
            json!({"events": [whole], "status": {"code": 1}}),
            json!(null),
            json!(null),
        ),
    ] {
        let own: Vec<_> = own.into_iter().chain([("gen_ai.system", text("x"))]).collect();
        let properties = one(&own, more.clone())["properties"].clone();
        let is_error = if error.is_null() { json!(null) } else { json!(true) };
        let found =
            ["$ai_is_error", "$ai_error", "$ai_http_status"].map(|key| properties[key].clone());
        assert_eq!(found, [is_error, error, status], "{more}");
    }
    // The name of the status, as some exporters write it.
    let named =
        request(&[("gen_ai.system", text("x"))], json!({"status": {"code": "STATUS_CODE_ERROR"}}));
    assert_eq!(
        events(Form::Json, named.to_string().as_bytes())[0]["properties"]["$ai_is_error"],
        true
    );
}

#[test]
fn spans_of_nobody_share_an_id_by_session_or_trace_and_make_no_person() {
    let id = |own: &[(&str, Json)], trace: &str| {
        let own: Vec<_> = own.iter().cloned().chain([("gen_ai.system", text("x"))]).collect();
        let event = one(&own, json!({"traceId": trace}));
        let personless = event["properties"]["$process_person_profile"] == json!(false);
        (event["distinct_id"].clone(), personless)
    };
    let (one_trace, other) = ("11".repeat(16), "22".repeat(16));
    assert_eq!(id(&[], &one_trace), id(&[], &one_trace));
    assert_ne!(id(&[], &one_trace), id(&[], &other));
    let session = [("$ai_session_id", text("s"))];
    assert_eq!(id(&session, &one_trace), id(&session, &other));
    assert_ne!(id(&session, &one_trace), id(&[], &one_trace));
    assert!(id(&[], &one_trace).1 && id(&session, &other).1);
    let named = id(&[("user.id", text("ada"))], &one_trace);
    assert_eq!(named, (json!("ada"), false));
    assert_eq!(id(&[("posthog.distinct_id", text(""))], &one_trace), id(&[], &one_trace));
    // A repeated export is stored once; without ids it cannot be recognised.
    let uuid =
        |span: &str| one(&[("gen_ai.system", text("x"))], json!({"spanId": span}))["uuid"].clone();
    assert_eq!(uuid("0102030405060708"), uuid("0102030405060708"));
    assert_ne!(uuid("0102030405060708"), uuid("0102030405060709"));
    assert_eq!((uuid(""), uuid("0000000000000000")), (json!(null), json!(null)));
}

#[test]
fn odd_values_are_left_out_or_null() {
    let body = json!({"resourceSpans": [{}, {"scopeSpans": [{}, {"spans": [{}, {
        "traceId": "AB", "attributes": [
            {"key": "gen_ai.system", "value": {"stringValue": "x"}},
            {"key": "none", "value": {}}, {"key": "null", "value": {"stringValue": null}}, {"key": "", "value": {"boolValue": true}},
            {"value": {"intValue": 1}}, {"key": "number", "value": {"intValue": -3}},
            {"key": "nan", "value": {"doubleValue": "NaN"}}, {"key": "bytes", "value": {"bytesValue": "q80="}},
            {"key": "later", "value": {"newValue": {"a": [1]}}},
            {"key": "list", "value": {"arrayValue": {"values": [{}, {"boolValue": false}, null]}}},
        ], "startTimeUnixNano": 0, "status": null, "events": null,
    }]}]}]});
    let found = events(Form::Json, body.to_string().as_bytes());
    let properties = found[0]["properties"].as_object().unwrap();
    for (key, expected) in [
        ("number", json!(-3)),
        ("nan", json!(null)),
        ("bytes", json!("abcd")),
        ("list", json!([false])),
        ("$ai_trace_id", json!("ab")),
    ] {
        assert_eq!(properties.get(key), Some(&expected), "{key}");
    }
    for key in ["none", "null", "", "later", "$ai_latency"] {
        assert!(!properties.contains_key(key), "{key}");
    }
    assert_eq!((found.len(), found[0].get("timestamp"), found[0].get("uuid")), (1, None, None));
    for body in ["7", "[]", "{\"resourceSpans\": 7}", "{", ""] {
        let refused = to_batch(Form::Json, body.as_bytes(), u64::MAX);
        assert!(matches!(refused, Err(DecodeError::Malformed(_))), "{body}: {refused:?}");
    }
    assert!(both(&json!({})).is_empty());
    for wrong in [json!([0, 0]), json!({}), json!(true)] {
        let body = request(&[("gen_ai.system", text("x"))], json!({"startTimeUnixNano": wrong}));
        let refused = to_batch(Form::Json, body.to_string().as_bytes(), u64::MAX);
        assert!(matches!(refused, Err(DecodeError::Malformed(_))), "{wrong}: {refused:?}");
    }
}

#[test]
fn json_that_was_cut_in_the_middle_of_a_character_is_repaired() {
    let own = [("gen_ai.system", text("x")), ("a", text("VALUE"))];
    let whole = request(&own, json!({})).to_string();
    let with = |value: &[u8]| {
        let (before, after) = whole.split_once("\"VALUE\"").unwrap();
        [b"\xEF\xBB\xBF", before.as_bytes(), b"\"", value, b"\"", after.as_bytes()].concat()
    };
    for (value, expected) in
        [(&b"abc\\ud83d"[..], "abc\u{fffd}"), (b"a\xC3", "a\u{fffd}"), (b"a\nb", "a\nb")]
    {
        let found = events(Form::Json, &with(value));
        assert_eq!(found[0]["properties"]["a"], expected);
    }
    let nan = whole.replace("{\"stringValue\":\"VALUE\"}", "{\"doubleValue\": NaN}");
    assert_ne!(nan, whole);
    assert_eq!(events(Form::Json, nan.as_bytes())[0]["properties"]["$ai_provider"], "x");
}

/// The smallest span, in a scope and a resource of its own: 17 bytes.
#[test]
fn reading_ends_at_as_many_spans_as_fit_into_a_batch() {
    let span = bytes(2, &bytes(9, &[bytes(1, b"ai."), bytes(2, &bytes(1, b""))].concat()));
    let resource = bytes(1, &bytes(2, &span));
    assert_eq!(resource.len(), 17);
    let mut room = Room { spans: 3, is_over: false };
    let resources = read(&resource.repeat(3), &mut room).unwrap();
    assert!(!room.is_over);
    for resource in &resources {
        let scope = &resource.scopes[0];
        let attributes = &scope.spans[0].attributes.0;
        let reserved = [resource.scopes.capacity(), scope.spans.capacity(), attributes.capacity()];
        assert_eq!(reserved, [1; 3], "no room is reserved for what does not come");
    }
    let mut room = Room { spans: 3, is_over: false };
    assert!(read(&resource.repeat(4), &mut room).is_none() && room.is_over);
    let refused = to_batch(Form::Protobuf, &resource.repeat(9), 8 * EVENT_MIN_BYTES);
    assert_eq!(refused, Err(DecodeError::TooLarge { limit_bytes: 8 * EVENT_MIN_BYTES }));
    // No event is so small that parsing stops too early.
    let small = [("llm.request.type", text("")), ("$lib", text("")), ("user.id", text("a"))];
    let more = json!({"traceId": "", "spanId": "", "parentSpanId": "", "name": "",
        "startTimeUnixNano": "0", "endTimeUnixNano": "0"});
    let mut small =
        request(&[&small[..], &[("$geoip_disable", json!({"intValue": "1"}))]].concat(), more);
    small["resourceSpans"][0]["resource"] = json!({});
    small["resourceSpans"][0]["scopeSpans"][0]["scope"] = json!({});
    let event = both(&small)[0].to_string();
    assert!(event.len() >= usize::try_from(EVENT_MIN_BYTES).unwrap(), "{event}");
}

/// Goal: resource attributes that no event contains cost nothing per span. Method: a body of 3 MB. With a
/// copy for each span it would take minutes and gigabytes.
#[test]
fn what_is_not_written_costs_nothing_for_each_span() {
    let truths = bytes(5, &bytes(1, &[2 << 3, 1]).repeat(500_000));
    let pair =
        |key: &str, value: &[u8]| bytes(1, &[bytes(1, key.as_bytes()), bytes(2, value)].concat());
    let long = bytes(1, "s".repeat(500_000).as_bytes());
    let session = "ai.settings.context.$ai_session_id";
    let resource = [pair("user.id", &truths), pair(session, &long)].concat();
    let key_value = |key: &[u8], value: &[u8]| bytes(9, &[bytes(1, key), bytes(2, value)].concat());
    let zero = [3 << 3, 0];
    let span = [
        key_value(b"ai.", &bytes(1, b"")),
        key_value(session.as_bytes(), &zero),
        key_value(b"$ai_session_id", &zero),
    ]
    .concat();
    let spans = bytes(2, &span).repeat(10_000);
    let body = bytes(1, &[bytes(1, &resource), bytes(2, &spans)].concat());
    assert!(body.len() < 4 << 20);
    assert_eq!(events(Form::Protobuf, &body).len(), 10_000);
}

#[test]
fn no_body_becomes_more_than_a_batch_may_be() {
    let long = text(&"x".repeat(1 << 20));
    let mut many = request(&[("gen_ai.system", text("x"))], json!({}));
    many["resourceSpans"][0]["resource"]["attributes"] = pairs(&[("long", long)]);
    let span = many["resourceSpans"][0]["scopeSpans"][0]["spans"][0].clone();
    many["resourceSpans"][0]["scopeSpans"][0]["spans"] = json!(vec![span; 1000]);
    for (form, body) in
        [(Form::Json, many.to_string().into_bytes()), (Form::Protobuf, protobuf(&many))]
    {
        let refused = to_batch(form, &body, u64::MAX);
        assert_eq!(refused, Err(DecodeError::TooLarge { limit_bytes: BATCH_MAX_BYTES }));
        assert_eq!(to_batch(form, &body, 9), Err(DecodeError::TooLarge { limit_bytes: 9 }));
    }
    let names: Vec<String> =
        (0..2 * ATTRIBUTES_MAX).map(|number| format!("gen_ai.{number}")).collect();
    let wide: Vec<_> = names.iter().map(|name| (name.as_str(), text(""))).collect();
    let properties = one(&wide, json!({}))["properties"].clone();
    let kept = properties.as_object().unwrap().keys().filter(|key| key.starts_with("gen_ai."));
    assert_eq!(kept.count(), ATTRIBUTES_MAX);
    // As deep as a message can be: deeper values are left out, and the rest is kept.
    let mut deep = bytes(1, b"end");
    (0..1_000).for_each(|_| deep = bytes(5, &bytes(1, &deep)));
    let pair =
        |key: &str, value: &[u8]| bytes(9, &[bytes(1, key.as_bytes()), bytes(2, value)].concat());
    let span = [pair("deep", &deep), pair("gen_ai.system", &bytes(1, b"x"))].concat();
    let body = bytes(1, &bytes(2, &bytes(2, &span)));
    assert_eq!(events(Form::Protobuf, &body)[0]["properties"]["$ai_provider"], "x");
}

#[test]
fn answers_are_those_of_the_protocol() {
    assert_eq!(Form::Protobuf.answer(0), b"");
    assert_eq!(Form::Json.answer(0), b"{}");
    let told = Form::Protobuf.answer(300);
    // Field 1: a message whose field 1 is 300, and whose field 2 is a text.
    assert_eq!((told[0], usize::from(told[1])), (0x0a, told.len() - 2));
    assert_eq!(told[2..5], [0x08, 0xac, 0x02]);
    assert_eq!((told[5], usize::from(told[6])), (0x12, told.len() - 7));
    let told: Json = serde_json::from_slice(&Form::Json.answer(300)).unwrap();
    assert_eq!(told["partialSuccess"]["rejectedSpans"], "300");
    for (header, expected) in [
        ("application/x-protobuf", Some(Form::Protobuf)),
        ("Application/JSON; charset=utf-8", Some(Form::Json)),
        ("text/plain", None),
        ("", None),
    ] {
        assert_eq!(Form::of_content_type(header), expected, "{header}");
    }
}

proptest! {
    #![proptest_config(proptest::test_runner::Config::with_failure_persistence(
        proptest::test_runner::FileFailurePersistence::WithSource("regressions"),
    ))]
    /// Any input becomes a JSON batch or an error.
    #[test]
    fn nothing_brings_the_readers_down(
        noise in prop::collection::vec(any::<u8>(), 0..200), at in any::<prop::sample::Index>(), cut in any::<bool>(),
    ) {
        let own = [("gen_ai.system", text("x")), ("a", json!({"arrayValue": {"values": [text("b")]}}))];
        let request = request(&own, json!({"status": {"code": 2}}));
        for (form, body) in [(Form::Json, request.to_string().into_bytes()), (Form::Protobuf, protobuf(&request))] {
            let place = at.index(body.len());
            let mut body = if cut { body[..place].to_vec() } else { body };
            for (own, noise) in body.iter_mut().skip(place).zip(&noise) {
                *own ^= noise;
            }
            for body in [&body, &noise] {
                if let Ok(batch) = to_batch(form, body, u64::MAX) {
                    let batch: Result<Json, _> = serde_json::from_slice(&batch);
                    prop_assert!(batch.is_ok());
                }
            }
        }
    }
}
