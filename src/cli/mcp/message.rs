//! Messages on standard input, as far as their transport needs to know them: [`Message`]; and the errors that `weir mcp`
//! answers with by itself.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::StatusCode;
use serde_json::{Value, json};

use weir_event::json;

/// What becomes of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It is answered, by this id.
    Request(Value),
    /// It is posted, and not answered.
    Silent,
    /// It ends the request with this id, as [`Message::key`] has it.
    Cancel(String),
}

/// A message, or a batch of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: Kind,
    /// Empty for a batch.
    pub(super) method: String,
    /// The revision that the message says by itself.
    revision: Option<String>,
    /// The name or URI that it is about.
    name: Option<String>,
}

impl Message {
    /// Reads a line.
    ///
    /// # Errors
    ///
    /// It is not JSON; the answer to it.
    pub(super) fn read(text: &[u8]) -> Result<Self, String> {
        let value: Value = json::read(text).map_err(|fault| {
            error(&Value::Null, -32700, &format!("The line is not JSON: {fault}"), None)
        })?;
        if value.is_array() {
            // Its answer is a list, unless there is nothing to answer.
            let (kind, method) = (Kind::Request(Value::Null), String::new());
            return Ok(Self { kind, method, revision: None, name: None });
        }
        let text =
            |pointer: &str| value.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let method = text("/method").unwrap_or_default();
        let kind = match value.get("id") {
            Some(id) if value.get("method").is_some() => Kind::Request(id.clone()),
            None if method == "notifications/cancelled" => {
                let id = value.pointer("/params/requestId").cloned().unwrap_or_default();
                Kind::Cancel(id.to_string())
            }
            None if value.is_object() => Kind::Silent,
            // The server says what is wrong with it.
            _ => Kind::Request(Value::Null),
        };
        let revision = value.pointer("/params/_meta").and_then(|meta| {
            meta.get("io.modelcontextprotocol/protocolVersion")?.as_str().map(str::to_owned)
        });
        let name = match method.as_str() {
            "tools/call" | "prompts/get" => text("/params/name"),
            "resources/read" => text("/params/uri"),
            _ => None,
        };
        Ok(Self { kind, method, revision, name })
    }

    /// The id for the answer.
    pub(super) fn id(&self) -> &Value {
        match &self.kind {
            Kind::Request(id) => id,
            _ => &Value::Null,
        }
    }

    /// The id as a text, in which the number 1 and the text "1" differ; `None` of what cannot be cancelled.
    pub(super) fn key(&self) -> Option<String> {
        Some(self.id()).filter(|id| !id.is_null()).map(Value::to_string)
    }

    /// The headers of its request: what it says by itself, else the negotiated revision.
    pub(super) fn headers(&self, negotiated: Option<&str>) -> Vec<(&'static str, String)> {
        let Some(revision) = &self.revision else {
            let of = |revision: &str| ("mcp-protocol-version", revision.to_owned());
            return negotiated
                .filter(|_| self.method != "initialize")
                .map(of)
                .into_iter()
                .collect();
        };
        let mut headers =
            vec![("mcp-protocol-version", coded(revision)), ("mcp-method", coded(&self.method))];
        headers.extend(self.name.as_deref().map(|name| ("mcp-name", coded(name))));
        headers
    }
}

/// A text as a header can have it.
fn coded(text: &str) -> String {
    let is_plain = text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
        && text.trim() == text
        && !text.starts_with("=?base64?");
    match is_plain {
        true => text.to_owned(),
        false => format!("=?base64?{}?=", STANDARD.encode(text)),
    }
}

/// An error as the answer to a message.
pub(super) fn error(id: &Value, code: i32, message: &str, status: Option<StatusCode>) -> String {
    let mut error = json!({"code": code, "message": message});
    if let (Some(status), Value::Object(error)) = (status, &mut error) {
        error.insert("data".to_owned(), json!({"status": status.as_u16()}));
    }
    json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string()
}

/// The answer to a message that the server refuses: its own error of the protocol, or one that says what it says.
pub(super) fn refusal(id: &Value, status: StatusCode, body: &[u8]) -> String {
    let mut body: Value = json::read(body).unwrap_or_default();
    if let (Some(_), Value::Object(own)) = (body.get("error").cloned(), &mut body) {
        own.insert("id".to_owned(), id.clone());
        return body.to_string();
    }
    match body.get("detail").and_then(Value::as_str) {
        Some(detail) => error(id, -32000, detail, Some(status)),
        None => error(id, -32000, &format!("The server answers {status}."), Some(status)),
    }
}

#[cfg(test)]
mod tests {
    use hyper::StatusCode;
    use serde_json::{Value, json};

    use super::{Kind, Message, refusal};

    fn read(value: &Value) -> Message {
        Message::read(value.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn messages_are_told_apart() {
        for (message, kind) in [
            (json!({"id": 1, "method": "ping"}), Kind::Request(json!(1))),
            (json!({"id": "1", "method": "ping"}), Kind::Request(json!("1"))),
            (json!({"method": "notifications/initialized"}), Kind::Silent),
            (
                json!({"method": "notifications/cancelled", "params": {"requestId": "a"}}),
                Kind::Cancel("\"a\"".to_owned()),
            ),
            (json!([{"id": 1, "method": "ping"}]), Kind::Request(Value::Null)),
            (json!({"id": 1}), Kind::Request(Value::Null)),
            (json!(7), Kind::Request(Value::Null)),
        ] {
            assert_eq!(read(&message).kind, kind, "{message}");
        }
        let keys = [
            json!({"id": 1, "method": "a"}),
            json!({"id": "1", "method": "a"}),
            json!({"method": "a"}),
        ];
        let keys = keys.map(|message| read(&message).key());
        assert_eq!(keys, [Some("1".to_owned()), Some("\"1\"".to_owned()), None]);
        let refused = Message::read(b"{").unwrap_err();
        assert!(refused.contains("-32700") && refused.contains("\"id\":null"), "{refused}");
    }

    #[test]
    fn headers_say_what_a_message_says() {
        let own = |name: &str| {
            let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"});
            json!({"id": 1, "method": "resources/read", "params": {"_meta": meta, "uri": name}})
        };
        let plain = json!({"id": 1, "method": "tools/list"});
        let begun = json!({"id": 1, "method": "initialize"});
        let headers = |message: &Value, negotiated: Option<&str>| {
            let headers = read(message).headers(negotiated).into_iter();
            headers.map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join("\n")
        };
        let of = |name: &str| {
            format!(
                "mcp-protocol-version: 2026-07-28\nmcp-method: resources/read\nmcp-name: {name}"
            )
        };
        for (message, negotiated, expected) in [
            (&plain, None, String::new()),
            (&plain, Some("2025-06-18"), "mcp-protocol-version: 2025-06-18".to_owned()),
            (&begun, Some("2025-06-18"), String::new()),
            (&own("weir://a"), Some("2025-06-18"), of("weir://a")),
            (&own("weir://ä"), None, of("=?base64?d2VpcjovL8Ok?=")),
            (&own("a\r\nx: y"), None, of("=?base64?YQ0KeDogeQ==?=")),
            (&own("=?base64?x?="), None, of("=?base64?PT9iYXNlNjQ/eD89?=")),
        ] {
            assert_eq!(headers(message, negotiated), expected, "{message}");
        }
    }

    #[test]
    fn refusals_become_errors_of_the_protocol() {
        let status = StatusCode::UNAUTHORIZED;
        for (body, expected) in [
            (
                r#"{"jsonrpc": "2.0", "id": null, "error": {"code": -32020, "message": "x"}}"#,
                json!({"code": -32020, "message": "x"}),
            ),
            (
                r#"{"detail": "Bad key."}"#,
                json!({"code": -32000, "message": "Bad key.", "data": {"status": 401}}),
            ),
            (
                "<html>",
                json!({"code": -32000, "message": "The server answers 401 Unauthorized.", "data": {"status": 401}}),
            ),
        ] {
            let answer: Value =
                serde_json::from_str(&refusal(&json!(5), status, body.as_bytes())).unwrap();
            assert_eq!(answer, json!({"jsonrpc": "2.0", "id": 5, "error": expected}), "{body}");
        }
    }
}
