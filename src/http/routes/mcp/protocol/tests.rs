//! Negotiation of revisions, forms of messages, and what the newest revision wants of headers.

use serde_json::{Map, Value, json};

use super::{Failure, Head, Message, Revision};

#[test]
fn a_client_goes_on_by_its_revision_or_the_newest_that_begins_in_this_way() {
    for (asked, expected) in [
        ("2025-03-26", Revision::March2025),
        ("2025-06-18", Revision::June2025),
        ("2025-11-25", Revision::November2025),
        ("2026-07-28", Revision::November2025),
        ("2024-11-05", Revision::November2025),
        ("2099-01-01", Revision::November2025),
        ("", Revision::November2025),
    ] {
        assert_eq!(Revision::negotiated(asked), expected, "{asked}");
    }
    assert_eq!(Revision::ALL.map(Revision::has_batches), [true, false, false, false]);
    assert_eq!(Revision::ALL.map(Revision::has_no_beginning), [false, false, false, true]);
}

fn head(revision: Option<&str>, method: Option<&str>, name: Option<&str>) -> Head {
    let text = |text: Option<&str>| text.map(str::to_owned);
    Head { revision: text(revision), method: text(method), name: text(name) }
}

#[test]
fn the_header_says_the_revision() {
    let plain = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let own =
        json!({"params": {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}});
    for (sent, body, expected) in [
        (None, &plain, Ok(Revision::March2025)),
        (Some("2025-06-18"), &plain, Ok(Revision::June2025)),
        (Some("2026-07-28"), &own, Ok(Revision::July2026)),
        (None, &own, Err(-32020)),
        (Some("2024-11-05"), &plain, Err(-32022)),
        (Some(""), &plain, Err(-32022)),
    ] {
        let found = head(sent, None, None).revision(body).map_err(|failure| failure.code);
        assert_eq!(found, expected, "{sent:?} {body}");
    }
    let refused = Failure::unsupported("1").answer(&Value::Null);
    let supported = json!(["2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]);
    assert_eq!(refused["error"]["data"], json!({"supported": supported, "requested": "1"}));
}

#[test]
fn headers_of_the_newest_revision_repeat_the_message() {
    let newest = Some("2026-07-28");
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let call = json!({"_meta": meta, "name": "sql"});
    let umlaut = json!({"_meta": meta, "uri": "weir://ä"});
    let coded = "=?base64?d2VpcjovL8Okw?=";
    for (head, method, params, expected) in [
        (head(newest, Some("tools/list"), None), "tools/list", json!({"_meta": meta}), Ok(())),
        (head(newest, Some("tools/call"), Some("sql")), "tools/call", call.clone(), Ok(())),
        (
            head(newest, Some("resources/read"), Some("=?base64?d2VpcjovL8Ok?=")),
            "resources/read",
            umlaut.clone(),
            Ok(()),
        ),
        (head(newest, Some("resources/read"), Some(coded)), "resources/read", umlaut, Err(-32020)),
        (head(newest, Some("tools/call"), Some("trends")), "tools/call", call.clone(), Err(-32020)),
        (head(newest, Some("tools/call"), None), "tools/call", call.clone(), Err(-32020)),
        (head(newest, Some("tools/list"), Some("sql")), "tools/call", call.clone(), Err(-32020)),
        (head(newest, None, Some("sql")), "tools/call", call.clone(), Err(-32020)),
        (
            head(Some("2026-07-29"), Some("tools/call"), Some("sql")),
            "tools/call",
            call,
            Err(-32020),
        ),
        (head(newest, Some("tools/list"), None), "tools/list", json!({}), Err(-32602)),
        (
            head(newest, Some("tools/list"), None),
            "tools/list",
            json!({"_meta": {"io.modelcontextprotocol/clientCapabilities": {}}}),
            Err(-32602),
        ),
        (head(newest, Some("tools/list"), None), "tools/list", json!({"_meta": 1}), Err(-32602)),
    ] {
        let Value::Object(params) = params else { panic!("an object") };
        let found = head.check(method, &params).map_err(|failure| failure.code);
        assert_eq!(found, expected, "{head:?} {params:?}");
    }
}

#[test]
fn messages_are_read_in_all_their_forms() {
    let request = |id: Value| {
        let (method, params) = ("ping".to_owned(), Map::new());
        Ok(Message::Request { id, method, params })
    };
    for (message, expected) in [
        (json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}), request(json!(1))),
        (json!({"jsonrpc": "2.0", "id": "a", "method": "ping", "params": {}}), request(json!("a"))),
        (json!({"jsonrpc": "2.0", "id": -7, "method": "ping"}), request(json!(-7))),
        (json!({"jsonrpc": "2.0", "method": "notifications/initialized"}), Ok(Message::Silent)),
        (json!({"jsonrpc": "2.0", "id": 1, "result": {}}), Ok(Message::Silent)),
        (json!({"jsonrpc": "2.0", "id": 1, "error": {"code": 1}}), Ok(Message::Silent)),
        (json!({"jsonrpc": "2.0", "id": null, "method": "ping"}), Err((json!(null), -32600))),
        (json!({"jsonrpc": "2.0", "id": 1.5, "method": "ping"}), Err((json!(null), -32600))),
        (json!({"jsonrpc": "2.0", "id": {}, "method": "ping"}), Err((json!(null), -32600))),
        (json!({"jsonrpc": "1.0", "id": 4, "method": "ping"}), Err((json!(4), -32600))),
        (json!({"id": 4, "method": "ping"}), Err((json!(4), -32600))),
        (json!({"jsonrpc": "2.0", "id": 4, "method": 4}), Err((json!(4), -32600))),
        (json!({"jsonrpc": "2.0", "id": 4}), Err((json!(4), -32600))),
        (
            json!({"jsonrpc": "2.0", "id": 4, "method": "ping", "params": []}),
            Err((json!(4), -32602)),
        ),
        (json!([]), Err((json!(null), -32600))),
        (json!("ping"), Err((json!(null), -32600))),
    ] {
        let found = Message::read(message.clone()).map_err(|(id, failure)| (id, failure.code));
        assert_eq!(found, expected, "{message}");
    }
}

#[test]
fn statuses_follow_the_revision() {
    let newest = Some(Revision::July2026);
    for (failure, revision, expected) in [
        (Failure::parse("x".to_owned()), None, 400),
        (Failure::request("x"), Some(Revision::March2025), 400),
        (Failure::method("x", &[]), Some(Revision::November2025), 200),
        (Failure::method("x", &[]), newest, 404),
        (Failure::params("x"), Some(Revision::June2025), 200),
        (Failure::params("x"), newest, 400),
        (Failure::resource("x", Revision::June2025), Some(Revision::June2025), 200),
        (Failure::resource("x", Revision::July2026), newest, 400),
    ] {
        assert_eq!(failure.status(revision).as_u16(), expected, "{failure:?} {revision:?}");
    }
    let answer = Failure::method("tool/list", &["tools/list", "ping"]).answer(&json!(1));
    let message = "There is no method \"tool/list\". Did you mean \"tools/list\"?";
    assert_eq!(
        answer,
        json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": message}})
    );
}
