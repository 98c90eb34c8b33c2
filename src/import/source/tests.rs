//! The mappings of all sources: rows as they are documented, and the events that they have to become, written by hand.

use std::io::{Cursor, Write};
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use serde_json::{Value, json};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::Kind;
use crate::event::{Event, Marks};
use crate::mapping::{Options, Output};
use crate::moment::Times;
use crate::read::{Row, RowLocation};
use weir_base::clock::UnixMicros;
use weir_event::json;

/// 2026-11-21.
const NOW: UnixMicros = UnixMicros(1_795_248_000_000_000);

fn options() -> Options {
    Options {
        times: Times { now: NOW, any: false, offset_micros: 0 },
        keep_sessions: false,
        keep_person_ids: false,
        columns: Vec::new(),
    }
}

#[derive(Default)]
struct Collected {
    events: Vec<Value>,
    skipped: Vec<&'static str>,
}

impl Output for Collected {
    fn event(&mut self, event: &Event<'_>) {
        let mut text = Vec::new();
        event.write(&Marks::new("", ""), &mut text);
        let mut event: Value = json::read(&text).unwrap();
        let properties = event["properties"].as_object_mut().unwrap();
        properties.remove("$import_source");
        properties.remove("$import_id");
        self.events.push(event);
    }

    fn skip(&mut self, why: &'static str) {
        self.skipped.push(why);
    }
}

/// What the content of a file becomes: events and refusals, in order.
fn import(
    kind: Kind,
    options: &Options,
    content: impl AsRef<[u8]>,
) -> (Vec<Value>, Vec<String>, usize) {
    let mut source = kind.source(options);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), content).unwrap();
    let (mut found, mut refused) = (Collected::default(), Vec::new());
    let wanted = source.wanted();
    source.begin_file();
    let mut sink = |_: RowLocation<'_>, row: Row<'_>| {
        if let Err(reason) = source.row(&row, &mut found) {
            refused.push(reason.to_string());
        }
        ControlFlow::Continue(())
    };
    let input = crate::files::Input::File(file.path().to_owned());
    crate::read::read(&input, wanted, &std::sync::Arc::default(), &mut sink).unwrap();
    (found.events, refused, found.skipped.len())
}

/// One row, which becomes these events; ids are not compared.
fn becomes(kind: Kind, row: &Value, expected: Value) {
    let (mut events, refused, _) = import(kind, &options(), row.to_string());
    assert_eq!(refused, Vec::<String>::new(), "{row}");
    for event in &mut events {
        event.as_object_mut().unwrap().remove("uuid").unwrap();
    }
    assert_eq!(Value::Array(events), expected, "{kind}: {row}");
}

/// Goal: each member of an archive has its own order of columns.
#[test]
fn members_of_an_archive_may_have_their_columns_in_another_order() {
    let row = [("event", "e"), ("distinct_id", "d"), ("timestamp", "2024-06-15T14:30:00Z")];
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, order) in [("a.parquet", [0, 1, 2]), ("b.parquet", [2, 0, 1])] {
        let columns = order.map(|at| {
            let (name, value) = row[at];
            (name, Arc::new(StringArray::from(vec![value])) as ArrayRef)
        });
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        archive.start_file(name, SimpleFileOptions::default()).unwrap();
        archive.write_all(&writer.into_inner().unwrap()).unwrap();
    }
    let archive = archive.finish().unwrap().into_inner();
    let (events, refused, _) = import(Kind::Posthog, &options(), archive);
    assert_eq!((events.len(), refused), (2, Vec::<String>::new()));
    for event in events {
        let found = (&event["event"], &event["distinct_id"], &event["timestamp"]);
        assert_eq!(found, (&json!("e"), &json!("d"), &json!("2024-06-15T14:30:00.000000Z")));
    }
}

#[test]
fn posthog() {
    let uuid = "0190e5a2-7a5c-7000-8000-000000000001";
    let row = json!({
        "uuid": uuid, "event": "e", "distinct_id": "d", "timestamp": "2024-06-15T14:30:00.123456+00:00",
        "created_at": "2024-06-15T14:30:01Z", "properties": {"a": 1, "$set": {"b": 2}}, "team_id": 7,
        "person_properties": {"p": 1}, "elements_chain": "a:x=\"y\"", "person_id": uuid, "_inserted_at": "x",
    });
    let event = json!({
        "uuid": uuid, "event": "e", "distinct_id": "d", "timestamp": "2024-06-15T14:30:00.123456Z",
        "properties": {"a": 1, "$set": {"b": 2}, "$elements_chain": "a:x=\"y\"",
            "$import_created_at": "2024-06-15T14:30:01.000000Z"},
        "person_properties": {"p": 1},
    });
    let (events, refused, _) = import(Kind::Posthog, &options(), row.to_string());
    assert_eq!((&events, refused.len()), (&vec![event.clone()], 0));
    // What a person has is told once, and again when it has changed.
    let lines = format!("{row}\n{row}\n{}", row.to_string().replace("{\"p\":1}", "{\"p\":2}"));
    let (events, ..) = import(Kind::Posthog, &options(), &lines);
    let told: Vec<&Value> = events.iter().map(|event| &event["person_properties"]).collect();
    assert_eq!(told, [&json!({"p": 1}), &Value::Null, &json!({"p": 2})]);
    // The answer of the API, objects as texts, and CSV of SQL.
    let api = json!({"results": [{
        "id": uuid, "event": "e", "distinct_id": "d", "timestamp": "2024-06-15T14:30:00.123456+00:00",
        "properties": "{\"a\": 1}", "person": {"properties": {"p": 1}}, "elements": [], "elements_chain": "",
    }]});
    let plain = json!({
        "uuid": uuid, "event": "e", "distinct_id": "d", "timestamp": "2024-06-15T14:30:00.123456Z",
        "properties": {"a": 1}, "person_properties": {"p": 1},
    });
    assert_eq!(import(Kind::Posthog, &options(), api.to_string()).0, [plain]);
    let csv = "event,timestamp,distinct_id,$session_id,properties\n\
        e,2024-06-15 14:30:00.123000+00:00,d,s,\"{\"\"a\"\":\"\"x\"\"}\"\n";
    let (events, refused, _) = import(Kind::Posthog, &options(), csv);
    assert_eq!(refused, Vec::<String>::new());
    assert_eq!(events[0]["properties"], json!({"a": "x", "$session_id": "s"}));
    assert_eq!(events[0]["timestamp"], "2024-06-15T14:30:00.123000Z");
}

#[test]
fn marks_of_an_earlier_import_are_replaced() {
    let row = json!({
        "event": "e", "distinct_id": "d", "timestamp": "2024-06-15T14:30:00Z", "created_at": "2025-01-01T00:00:00Z",
        "properties": {"$import_source": "x", "$import_id": "y", "$import_created_at": "2024-06-15T14:30:01Z", "a": 1},
    });
    let expected = json!([{
        "event": "e", "distinct_id": "d", "timestamp": "2024-06-15T14:30:00.000000Z",
        "properties": {"a": 1, "$import_created_at": "2024-06-15T14:30:01.000000Z"},
    }]);
    becomes(Kind::Posthog, &row, expected);
}

#[test]
fn persons_of_posthog() {
    let row = |person: u8, id: &str, is_deleted: bool| {
        json!({
            "team_id": 1, "distinct_id": id, "person_id": format!("person {person}"), "properties": {"n": person},
            "created_at": "2020-01-02T03:04:05Z", "is_deleted": is_deleted,
        })
        .to_string()
    };
    let lines = [row(1, "a", false), row(2, "b", false), row(1, "c", false), row(3, "d", true)];
    let (events, refused, skipped) = import(Kind::Posthog, &options(), lines.join("\n"));
    let person = |event: &Value| {
        let properties = event.get("person_properties").cloned();
        (event["distinct_id"].clone(), event["properties"].clone(), properties)
    };
    assert_eq!(
        events.iter().map(person).collect::<Vec<_>>(),
        [
            (json!("a"), json!({}), Some(json!({"n": 1}))),
            (json!("b"), json!({}), Some(json!({"n": 2}))),
            (json!("a"), json!({"alias": "c"}), None),
        ]
    );
    assert!(events.iter().all(|event| event["event"] == "$import_person"));
    assert_eq!(events[0]["timestamp"], "2020-01-02T03:04:05.000000Z");
    assert_eq!((refused.len(), skipped), (0, 1));
    let keeping = Options { keep_person_ids: true, ..options() };
    let (events, ..) = import(Kind::Posthog, &keeping, &lines[0]);
    assert_eq!(events[0]["person_properties"], json!({"n": 1, "$posthog_person_id": "person 1"}));
}

#[test]
fn mixpanel() {
    let identify = json!({
        "event": "$identify", "distinct_id": "u", "timestamp": "2020-10-13T17:48:31.000000Z",
        "properties": {"$anon_distinct_id": "$device:D"},
    });
    becomes(
        Kind::Mixpanel,
        &json!({"event": "$mp_web_page_view", "properties": {
            "time": 1602611311, "distinct_id": "u", "$insert_id": "i", "mp_processing_time_ms": 1, "$device_id": "D",
            "$user_id": "u", "$city": "C", "$region": "R", "mp_country_code": "DE", "mp_lib": "web", "$os": "Linux",
            "big": 12345678901234567890_u64,
        }}),
        json!([identify, {
            "event": "$pageview", "distinct_id": "u", "timestamp": "2020-10-13T17:48:31.000000Z",
            "properties": {
                "$insert_id": "i", "$device_id": "D", "$user_id": "u", "$os": "Linux", "$geoip_city_name": "C",
                "$geoip_subdivision_1_name": "R", "$geoip_country_code": "DE", "$lib": "web",
                "big": 12345678901234567890_u64,
            },
        }]),
    );
    // Milliseconds, and the id that a device was found to be.
    for (own, before, expected) in
        [("$device:D", "u", "u"), ("18F-AB", "u", "u"), ("ada", "u", "ada")]
    {
        becomes(
            Kind::Mixpanel,
            &json!({"event": "e", "properties": {
                "time": 1602611311123_i64, "distinct_id": own, "$distinct_id_before_identity": before}}),
            json!([{
                "event": "e", "distinct_id": expected, "timestamp": "2020-10-13T17:48:31.123000Z",
                "properties": {"$distinct_id_before_identity": before},
            }]),
        );
    }
    becomes(
        Kind::Mixpanel,
        &json!({"$distinct_id": "u", "$properties": {"$email": "a@b.c", "plan": "pro", "$created": "2020-01-01T00:00:00"}}),
        json!([{
            "event": "$import_person", "distinct_id": "u", "timestamp": "2020-01-01T00:00:00.000000Z", "properties": {},
            "person_properties": {"email": "a@b.c", "plan": "pro", "$created": "2020-01-01T00:00:00"},
        }]),
    );
    // The same event twice has one id, whatever its properties are by now; without an id rows count.
    let row = |id: &str| {
        format!(
            "{{\"event\":\"e\",\"properties\":{{\"time\":1602611311,\"distinct_id\":\"u\"{id}}}}}"
        )
    };
    let lines =
        [row(",\"$insert_id\":\"abc\""), row(",\"$insert_id\":\"abc\",\"x\":1"), row(""), row("")];
    let (events, ..) = import(Kind::Mixpanel, &options(), lines.join("\n"));
    assert_eq!(events[0]["uuid"], events[1]["uuid"]);
    // Python: uuid.uuid5(uuid.UUID(bytes=b"posthog_mixpanel"), "abc")
    assert_eq!(events[0]["uuid"], "18e25c17-3e40-5727-8efb-db490c955a63");
    assert_ne!(events[2]["uuid"], events[3]["uuid"]);
}

#[test]
fn amplitude() {
    let row = json!({
        "$insert_id": "i", "uuid": "0190e5a2-7a5c-7000-8000-000000000001", "event_type": "[Amplitude] Page Viewed",
        "event_time": "2025-07-17 10:36:28.583000", "user_id": "u", "device_id": "D", "platform": "Web",
        "os_name": "Chrome", "os_version": "126", "device_type": "Windows", "country": "Germany", "city": null,
        "region": "Berlin", "ip_address": "1.2.3.4", "session_id": 1752748588000_i64, "groups": {"org": ["a", "b"]},
        "event_properties": {"[Amplitude] Page URL": "https://x.y/z", "k": 1},
        "user_properties": {"plan": "pro", "initial_utm_source": "EMPTY", "initial_referrer": "https://g"},
        "server_received_time": "2025-07-17 10:36:29",
    });
    let (events, refused, _) = import(Kind::Amplitude, &options(), format!("{row}\n{row}"));
    assert_eq!(refused, Vec::<String>::new());
    assert_eq!(events[0]["event"], "$identify");
    assert_eq!(events[0]["properties"], json!({"$anon_distinct_id": "D"}));
    let mut event = events[1].clone();
    let session = event["properties"].as_object_mut().unwrap().remove("$session_id").unwrap();
    // The time of a version 7 id: Python's 1752748588000 .to_bytes(6) is 019817f4fbe0.
    assert!(session.as_str().unwrap().starts_with("019817f4-fbe0-7"), "{session}");
    assert_eq!(
        event,
        json!({
            "uuid": "0190e5a2-7a5c-7000-8000-000000000001", "event": "$pageview", "distinct_id": "u",
            "timestamp": "2025-07-17T10:36:28.583000Z",
            "properties": {
                "[Amplitude] Page URL": "https://x.y/z", "k": 1, "$current_url": "https://x.y/z",
                "$geoip_subdivision_1_name": "Berlin", "$geoip_country_name": "Germany", "$ip": "1.2.3.4",
                "$device_id": "D", "$amplitude_platform": "Web", "$browser": "Chrome", "$browser_version": 126,
                "$os": "Windows", "$device_type": "Desktop", "$groups": {"org": "a"},
                "$set_once": {"$initial_referrer": "https://g"},
                "$import_created_at": "2025-07-17T10:36:29.000000Z",
            },
            "person_properties": {"plan": "pro"},
        })
    );
    // The same again: no identification, nothing about the person.
    assert_eq!(events.len(), 3);
    assert_eq!(events[2].get("person_properties"), None);
    let phone = json!({"event_type": "e", "event_time": "2025-07-17 10:36:28.5", "device_id": "D", "platform": "iOS",
        "os_name": "ios", "os_version": "17.1", "device_type": "Apple iPhone", "session_id": -1});
    becomes(
        Kind::Amplitude,
        &phone,
        json!([{"event": "e", "distinct_id": "D", "timestamp": "2025-07-17T10:36:28.500000Z", "properties": {
            "$device_id": "D", "$amplitude_platform": "iOS", "$os": "ios", "$os_version": "17.1", "$device_type": "Mobile"}}]),
    );
    let session =
        json!({"event_type": "session_start", "event_time": "2025-07-17 10:36:28", "user_id": "u"});
    assert_eq!(import(Kind::Amplitude, &options(), session.to_string()).2, 1);
    let keeping = Options { keep_sessions: true, ..options() };
    assert_eq!(import(Kind::Amplitude, &keeping, session.to_string()).0.len(), 1);
}

#[test]
fn segment() {
    let call = |more: Value| {
        let mut call = json!({"messageId": "m", "anonymousId": "a", "timestamp": "2024-01-02T03:04:05.678Z", "sentAt": 1});
        call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        call
    };
    let event = |name: &str, id: &str, properties: Value| json!({"event": name, "distinct_id": id, "timestamp": "2024-01-02T03:04:05.678000Z", "properties": properties});
    let identify = event("$identify", "u", json!({"$anon_distinct_id": "a"}));
    for (given, expected) in [
        (
            json!({"type": "track", "event": "e", "userId": "u", "properties": {"k": 1}, "context": {
                "ip": "1.2.3.4", "page": {"url": "https://x.y/z?q", "path": "/z"}, "campaign": {"source": "s"},
                "library": {"name": "l", "version": "1"}, "userAgent": "A"}}),
            json!([
                identify,
                event(
                    "e",
                    "u",
                    json!({
                "k": 1, "$current_url": "https://x.y/z?q", "$pathname": "/z", "$host": "x.y", "utm_source": "s",
                "$lib": "l", "$lib_version": "1", "$ip": "1.2.3.4", "$raw_user_agent": "A"})
                )
            ]),
        ),
        (
            json!({"type": "page", "name": "Home"}),
            json!([event("$pageview", "a", json!({"name": "Home"}))]),
        ),
        (
            json!({"type": "screen", "name": "Home"}),
            json!([event("$screen", "a", json!({"name": "Home", "$screen_name": "Home"}))]),
        ),
        (
            json!({"type": "identify", "userId": "u", "traits": {"plan": "pro"}}),
            json!([event(
                "$identify",
                "u",
                json!({"$anon_distinct_id": "a", "$set": {"plan": "pro"}})
            )]),
        ),
        (
            json!({"type": "group", "groupId": "g", "traits": {"n": 1}}),
            json!([event(
                "$groupidentify",
                "a",
                json!({
                "$group_type": "group", "$group_key": "g", "$group_set": {"n": 1}})
            )]),
        ),
        (
            json!({"type": "alias", "userId": "u", "previousId": "p"}),
            json!([event("$create_alias", "u", json!({"alias": "p"}))]),
        ),
    ] {
        becomes(Kind::Segment, &call(given.clone()), expected.clone());
        becomes(Kind::Rudderstack, &call(given), expected);
    }
}

#[test]
fn ga4() {
    let row = json!({
        "event_date": "20240102", "event_timestamp": "1704164645678901", "event_name": "page_view",
        "event_params": [
            {"key": "page_location", "value": {"string_value": "https://x.y/", "int_value": null}},
            {"key": "ga_session_id", "value": {"int_value": "17041"}},
            {"key": "value", "value": {"double_value": 1.5}}, {"key": "none", "value": {}},
        ],
        "user_id": null, "user_pseudo_id": "p.1", "user_properties": [{"key": "plan", "value": {"string_value": "pro",
            "set_timestamp_micros": "1"}}],
        "device": {"category": "mobile", "operating_system": "Android", "web_info": {"browser": "Chrome", "hostname": "x.y"}},
        "geo": {"country": "Germany", "city": ""}, "items": [], "platform": "WEB",
        "collected_traffic_source": {"manual_source": "s", "gclid": null},
    });
    becomes(
        Kind::Ga4,
        &row,
        json!([{
            "event": "$pageview", "distinct_id": "p.1", "timestamp": "2024-01-02T03:04:05.678901Z",
            "properties": {
                "$current_url": "https://x.y/", "ga_session_id": 17041, "value": 1.5, "$session_id": "p.1.17041",
                "$device_type": "mobile", "$os": "Android", "$browser": "Chrome", "$host": "x.y",
                "$geoip_country_name": "Germany", "platform": "WEB", "utm_source": "s",
            },
            "person_properties": {"plan": "pro"},
        }]),
    );
    // Known and unknown: identified once. Integers as strings and as numbers are the same event.
    let mut known = row.clone();
    known["user_id"] = json!("u");
    let mut number = known.clone();
    number["event_timestamp"] = json!(1704164645678901_i64);
    number["event_params"][1]["value"]["int_value"] = json!(17041);
    let first = import(Kind::Ga4, &options(), known.to_string()).0;
    let second = import(Kind::Ga4, &options(), number.to_string()).0;
    assert_eq!(first, second);
    assert_eq!((first.len(), &first[0]["event"]), (2, &json!("$identify")));
}

#[test]
fn umami() {
    let csv = "website_id,session_id,visit_id,event_id,hostname,browser,os,device,screen,language,country,region,city,\
        url_path,url_query,utm_source,referrer_path,referrer_query,referrer_domain,page_title,event_type,event_name,\
        distinct_id,created_at\n\
        w,s,v,0190e5a2-7a5c-7000-8000-000000000001,x.y,crios,iOS,mobile,390x844,en,DE,DE-BE,Berlin,/z,a=1,g,/r,,r.s,T,1,,,\
        2024-01-02 03:04:05\n\
        w,s,v,0190e5a2-7a5c-7000-8000-000000000002,x.y,,,,,,,,,/z,,,,,,,2,signup,u,2024-01-02 03:04:06\n";
    let (events, refused, _) = import(Kind::Umami, &options(), csv);
    assert_eq!(refused, Vec::<String>::new());
    assert_eq!(
        events,
        [
            json!({
                "uuid": "0190e5a2-7a5c-7000-8000-000000000001", "event": "$pageview", "distinct_id": "s",
                "timestamp": "2024-01-02T03:04:05.000000Z", "properties": {
                    "$host": "x.y", "$os": "iOS", "$browser_language": "en", "$geoip_country_code": "DE",
                    "$geoip_subdivision_1_code": "DE-BE", "$geoip_city_name": "Berlin", "$pathname": "/z",
                    "utm_source": "g", "$referring_domain": "r.s", "title": "T", "$session_id": "v",
                    "$umami_session_id": "s", "$umami_website_id": "w", "$device_type": "mobile",
                    "$browser": "Chrome iOS", "$screen_width": 390, "$screen_height": 844,
                    "$current_url": "https://x.y/z?a=1", "$referrer": "https://r.s/r",
                },
            }),
            json!({
                "uuid": "0190e5a2-7a5c-7000-8000-000000000002", "event": "signup", "distinct_id": "u",
                "timestamp": "2024-01-02T03:04:06.000000Z", "properties": {
                    "$host": "x.y", "$pathname": "/z", "$session_id": "v", "$umami_session_id": "s",
                    "$umami_website_id": "w", "$current_url": "https://x.y/z",
                },
            }),
        ]
    );
}

#[test]
fn plausible() {
    let csv = "\"name\",\"site_id\",\"hostname\",\"pathname\",\"user_id\",\"session_id\",\"timestamp\",\"referrer\",\
        \"country_code\",\"browser\",\"browser_version\",\"meta.key\",\"meta.value\"\n\
        \"pageview\",1,\"x.y\",\"/z\",123456789012345678,987,\"2024-03-01 00:00:01\",\"g.com/s\",\"DE\",\"Chrome\",\"120\",\
        \"['author','n']\",\"['it\\'s','1']\"\n";
    let (events, refused, _) = import(Kind::Plausible, &options(), csv);
    assert_eq!(refused, Vec::<String>::new());
    let mut event = events[0].clone();
    event.as_object_mut().unwrap().remove("uuid");
    assert_eq!(
        event,
        json!({
            "event": "$pageview", "distinct_id": "123456789012345678", "timestamp": "2024-03-01T00:00:01.000000Z",
            "properties": {
                "author": "it's", "n": "1", "$host": "x.y", "$pathname": "/z", "$geoip_country_code": "DE",
                "$browser": "Chrome", "$browser_version": 120, "$session_id": "987", "$plausible_site_id": "1",
                "$current_url": "https://x.y/z", "$referrer": "https://g.com/s", "$referring_domain": "g.com",
            },
        })
    );
}

/// Goal: sums are refused as a whole, with what to export instead.
#[test]
fn sums_are_no_events() {
    for (kind, header, expected) in [
        (
            Kind::Plausible,
            "\"date\",\"browser\",\"browser_version\",\"visitors\",\"visits\"",
            "events_v2",
        ),
        (Kind::Umami, "name,visitors", "website_event"),
    ] {
        let names: Vec<String> =
            header.split(',').map(|name| name.trim_matches('"').to_owned()).collect();
        let record = csv::StringRecord::from(vec!["x"; names.len()]);
        let objection = kind.source(&options()).objection(&Row::Record(&names, &record));
        assert!(objection.unwrap().contains(expected), "{kind}");
    }
}

#[test]
fn goatcounter() {
    let csv = "2Path,Title,Event,UserAgent,Browser,System,Session,Bot,Referrer,Referrer scheme,Screen size,Location,\
        FirstVisit,Date\n\
        /z,T,false,,Safari 14.0.2,macOS 10.15,s1,0,www.g.com/a,h,\"1920,1080,1\",DE-BE,true,2024-01-02T03:04:05Z\n\
        click,,true,\"Mozilla/5.0 (X11; Linux x86_64) Firefox/120.0\",,,,0,,,,,false,2024-01-02T03:04:06Z\n\
        /z,T,false,,,,s1,3,,,,,true,2024-01-02T03:04:07Z\n";
    let (events, refused, skipped) = import(Kind::Goatcounter, &options(), csv);
    assert_eq!((refused, skipped), (vec![], 1));
    let mut first = events[0].clone();
    first.as_object_mut().unwrap().remove("uuid");
    assert_eq!(
        first,
        json!({"event": "$pageview", "distinct_id": "s1", "timestamp": "2024-01-02T03:04:05.000000Z", "properties": {
            "$session_id": "s1", "title": "T", "$referrer": "https://www.g.com/a", "$referring_domain": "www.g.com",
            "$browser": "Safari", "$browser_version": "14.0.2", "$os": "macOS", "$os_version": "10.15", "$geoip_country_code": "DE", "$geoip_subdivision_1_code": "BE",
            "$screen_width": 1920, "$screen_height": 1080, "$pathname": "/z"}})
    );
    assert_eq!(events[1]["event"], "click");
    assert_eq!(events[1]["distinct_id"], events[1]["uuid"]);
    assert_eq!(
        (&events[1]["properties"]["$browser"], &events[1]["properties"]["$os"]),
        (&json!("Firefox"), &json!("Linux"))
    );
}

#[test]
fn events_in_the_shape_of_capture() {
    becomes(
        Kind::Jsonl,
        &json!({"event": "e", "distinct_id": 5, "timestamp": 1704164645, "properties": {"a": [1]}, "$set": {"p": 1},
            "plan": "pro", "api_key": "x", "nothing": null}),
        json!([{"event": "e", "distinct_id": "5", "timestamp": "2024-01-02T03:04:05.000000Z",
            "properties": {"a": [1], "$set": {"p": 1}, "plan": "pro"}}]),
    );
    let csv = "action,user_id,time,amount,code,ok\nbuy,u,2024-01-02 03:04:05,1.5,007,true\n";
    let mapped = Options { columns: vec![("event".to_owned(), "action".to_owned())], ..options() };
    let (events, refused, _) = import(Kind::Csv, &mapped, csv);
    assert_eq!(refused, Vec::<String>::new());
    assert_eq!(events[0]["properties"], json!({"amount": 1.5, "code": "007", "ok": true}));
    assert_eq!((&events[0]["event"], &events[0]["distinct_id"]), (&json!("buy"), &json!("u")));
}

#[test]
fn what_cannot_be_an_event_is_refused_with_the_reason() {
    let good = json!({"event": "e", "distinct_id": "d", "timestamp": "2024-01-02T03:04:05Z", "properties": {}});
    let with = |key: &str, value: Value| {
        let mut row = good.clone();
        row[key] = value;
        row.to_string()
    };
    for (row, reason) in [
        (with("event", Value::Null), "it has no event"),
        (with("distinct_id", json!(" ")), "it has no distinct_id"),
        (with("distinct_id", json!(["x"])), "it has no distinct_id"),
        (with("timestamp", json!("soon")), "soon is no time"),
        (with("timestamp", json!("1999-01-01")), "before 2000"),
        (with("timestamp", json!("2030-01-01")), "more than a day ahead"),
        (with("properties", json!([1])), "properties are no JSON object"),
        (with("properties", json!("{\"a\":")), "properties are no JSON object"),
        ("[1]x".to_owned(), "no JSON object"),
        ("{\"event\":\"e\"".to_owned(), "no JSON object"),
        ("{\"event\":\"\u{1}\"}".to_owned(), "no JSON object"),
        ("17".to_owned(), "no JSON object"),
    ] {
        // Behind a line that tells the kind of file.
        let (events, refused, _) =
            import(Kind::Posthog, &options(), format!("{good}\n{row}\n{good}"));
        assert_eq!((events.len(), refused.len()), (2, 1), "{row}");
        assert!(refused[0].contains(reason), "{row}: {refused:?}");
    }
}
