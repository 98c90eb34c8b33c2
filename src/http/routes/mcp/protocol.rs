//! JSON-RPC 2.0 as the Model Context Protocol has it: its revisions ([`Revision`]), messages ([`Message`]) and errors
//! ([`Failure`]).
//!
//! In the older revisions a client begins with `initialize`, whose answer says by which revision it goes on, and sends
//! that in a header from then on. The newest one has no beginning: each request says in `_meta` which revision it has,
//! and headers repeat what it is about, for proxies.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::StatusCode;
use serde_json::{Map, Value, json};

use weir_api::node::nearest::hint;

/// The fields of `_meta` that a request of the newest revision has.
const OWN_REVISION: &str = "io.modelcontextprotocol/protocolVersion";
const OWN_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// The methods whose header `Mcp-Name` has a parameter, and its name.
const NAMED: [(&str, &str); 3] =
    [("tools/call", "name"), ("prompts/get", "name"), ("resources/read", "uri")];

/// A revision of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Revision {
    /// The first with one address for all; the only one with batches.
    March2025,
    /// With structured results.
    June2025,
    /// The newest that begins with `initialize`.
    November2025,
    /// Without a beginning.
    July2026,
}

impl Revision {
    /// All of them, the oldest first.
    const ALL: [Self; 4] = [Self::March2025, Self::June2025, Self::November2025, Self::July2026];

    /// Its name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::March2025 => "2025-03-26",
            Self::June2025 => "2025-06-18",
            Self::November2025 => "2025-11-25",
            Self::July2026 => "2026-07-28",
        }
    }

    /// That of a name.
    fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|own| own.name() == name)
    }

    /// The names of all.
    pub(super) fn names() -> [&'static str; 4] {
        Self::ALL.map(Self::name)
    }

    /// The revision by which a client goes on that asks for this one in `initialize`: the same if it begins in this way,
    /// else the newest that does.
    pub(super) fn negotiated(asked: &str) -> Self {
        Self::of(asked).filter(|own| !own.has_no_beginning()).unwrap_or(Self::November2025)
    }

    /// Whether each request stands for itself.
    pub(super) fn has_no_beginning(self) -> bool {
        self == Self::July2026
    }

    /// Whether several messages may be sent as a list.
    pub(super) fn has_batches(self) -> bool {
        self == Self::March2025
    }
}

/// Headers that say what a message is about.
#[derive(Clone, Debug, Default)]
pub(super) struct Head {
    /// `MCP-Protocol-Version`.
    pub(super) revision: Option<String>,
    /// `Mcp-Method`.
    pub(super) method: Option<String>,
    /// `Mcp-Name`.
    pub(super) name: Option<String>,
}

impl Head {
    /// The revision of the message or the messages in `body`. Clients of the first one send no header.
    ///
    /// # Errors
    ///
    /// The header names no revision, or a message of the newest one came without it.
    pub(super) fn revision(&self, body: &Value) -> Result<Revision, Failure> {
        match &self.revision {
            Some(name) => Revision::of(name).ok_or_else(|| Failure::unsupported(name)),
            None if body
                .pointer("/params/_meta")
                .is_some_and(|own| own.get(OWN_REVISION).is_some()) =>
            {
                Err(Failure::mismatch("MCP-Protocol-Version is missing."))
            }
            None => Ok(Revision::March2025),
        }
    }

    /// Checks a request of the newest revision: what it says of itself, and that the headers say the same.
    ///
    /// # Errors
    ///
    /// What is missing, or differs.
    pub(super) fn check(&self, method: &str, params: &Map<String, Value>) -> Result<(), Failure> {
        let own = params.get("_meta").and_then(Value::as_object);
        let own = |name: &str| own.and_then(|own| own.get(name));
        if own(OWN_CAPABILITIES).is_none() {
            return Err(Failure::params(format!("params._meta needs {OWN_CAPABILITIES}.")));
        }
        let Some(Value::String(revision)) = own(OWN_REVISION) else {
            return Err(Failure::params(format!("params._meta needs {OWN_REVISION}.")));
        };
        if self.revision.as_ref() != Some(revision) {
            let detail = "MCP-Protocol-Version differs from the revision in params._meta.";
            return Err(Failure::mismatch(detail));
        }
        if self.method.as_deref() != Some(method) {
            return Err(Failure::mismatch("Mcp-Method differs from the method."));
        }
        let named = NAMED.iter().find(|(own, _)| *own == method);
        let sent = named.and_then(|(_, name)| params.get(*name)).and_then(Value::as_str);
        if sent.is_some() && sent != self.name.as_deref().and_then(plain).as_deref() {
            return Err(Failure::mismatch("Mcp-Name differs from the name or the URI in params."));
        }
        Ok(())
    }
}

/// The text of a header, which may be in base64: `=?base64?...?=`. `None` if it is not well-formed.
fn plain(header: &str) -> Option<Cow<'_, str>> {
    match header.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) {
        Some(coded) => String::from_utf8(STANDARD.decode(coded).ok()?).ok().map(Cow::Owned),
        None => Some(Cow::Borrowed(header)),
    }
}

/// A message of a client.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Message {
    /// It is answered.
    Request {
        /// A text or an integer, which the answer repeats.
        id: Value,
        /// What is asked.
        method: String,
        /// Its parameters.
        params: Map<String, Value>,
    },
    /// A notification, or an answer to what was never asked: it is not answered.
    Silent,
}

impl Message {
    /// Reads a message.
    ///
    /// # Errors
    ///
    /// It is none; with its id, if that can be read.
    pub(super) fn read(value: Value) -> Result<Self, (Value, Failure)> {
        let refused = |id: Value, detail: &'static str| (id, Failure::request(detail));
        let Value::Object(mut fields) = value else {
            return Err(refused(Value::Null, "A message is an object."));
        };
        let id = fields.remove("id");
        let is_id = |id: &Value| id.is_string() || id.is_i64() || id.is_u64();
        let echoed = id.clone().filter(is_id).unwrap_or_default();
        if fields.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            return Err(refused(echoed, "jsonrpc is not \"2.0\"."));
        }
        let method = match fields.remove("method") {
            Some(Value::String(method)) => method,
            None if fields.contains_key("result") || fields.contains_key("error") => {
                return Ok(Self::Silent);
            }
            _ => return Err(refused(echoed, "method is not a text.")),
        };
        let params = match fields.remove("params") {
            None => Map::new(),
            Some(Value::Object(params)) => params,
            Some(_) => return Err((echoed, Failure::params("params is not an object."))),
        };
        match id {
            None => Ok(Self::Silent),
            Some(id) if is_id(&id) => Ok(Self::Request { id, method, params }),
            Some(_) => Err(refused(Value::Null, "id is neither a text nor an integer.")),
        }
    }
}

/// An error of the protocol; errors of a tool are results, which a model sees.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Failure {
    code: i32,
    message: Cow<'static, str>,
    data: Option<Value>,
}

impl Failure {
    /// The text is not JSON.
    pub(super) fn parse(detail: String) -> Self {
        Self::new(-32700, detail)
    }

    /// It is no message, or not one that can be answered here.
    pub(super) fn request(detail: &'static str) -> Self {
        Self::new(-32600, detail)
    }

    /// There is no such method.
    pub(super) fn method(name: &str, known: &[&str]) -> Self {
        let shown: String = name.chars().take(100).collect();
        let known: Vec<String> = known.iter().map(|own| (*own).to_owned()).collect();
        Self::new(-32601, format!("There is no method \"{shown}\".{}", hint(&shown, &known)))
    }

    /// The parameters are not those of the method.
    pub(super) fn params(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(-32602, detail)
    }

    /// There is no such resource.
    pub(super) fn resource(uri: &str, revision: Revision) -> Self {
        let uri: String = uri.chars().take(300).collect();
        let detail = "There is no such resource: resources/list has those of the project.";
        // The newest revision has no code of its own for it.
        let code = if revision.has_no_beginning() { -32602 } else { -32002 };
        Self { data: Some(json!({"uri": uri})), ..Self::new(code, detail) }
    }

    /// The server cannot do it; the status is that of the endpoints.
    pub(super) fn server(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        let code = if status == StatusCode::INTERNAL_SERVER_ERROR { -32603 } else { -32000 };
        Self { data: Some(json!({"status": status.as_u16()})), ..Self::new(code, detail) }
    }

    fn mismatch(detail: &'static str) -> Self {
        Self::new(-32020, detail)
    }

    fn unsupported(asked: &str) -> Self {
        let asked: String = asked.chars().take(100).collect();
        let data = json!({"supported": Revision::names(), "requested": asked});
        Self { data: Some(data), ..Self::new(-32022, "Unsupported protocol version") }
    }

    fn new(code: i32, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// The status of an answer over HTTP that consists of this error.
    pub(super) fn status(&self, revision: Option<Revision>) -> StatusCode {
        let is_newest = revision.is_some_and(Revision::has_no_beginning);
        match self.code {
            -32700 | -32600 | -32020 | -32022 => StatusCode::BAD_REQUEST,
            -32602 if is_newest => StatusCode::BAD_REQUEST,
            -32601 if is_newest => StatusCode::NOT_FOUND,
            _ => StatusCode::OK,
        }
    }

    /// The answer to the request with this id.
    pub(super) fn answer(&self, id: &Value) -> Value {
        let mut error = json!({"code": self.code, "message": self.message});
        if let (Some(data), Value::Object(error)) = (&self.data, &mut error) {
            error.insert("data".to_owned(), data.clone());
        }
        json!({"jsonrpc": "2.0", "id": id, "error": error})
    }
}

#[cfg(test)]
mod tests;
