//! `weir mcp`: the Model Context Protocol over standard input and output, for assistants that start a program. Each line
//! is a message, which is posted to a server; its answer is a line. Nothing else goes to standard output.

mod message;

use std::collections::HashMap;
use std::io;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::StatusCode;
use hyper::header::HeaderValue;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::{AbortHandle, JoinHandle, JoinSet};

use crate::cli::client::{Connections, RemoteArgs, bearer, connections, post};
use crate::cli::failure::explain;
use crate::cli::local;
use crate::cli::mcp::message::{Kind, Message};
use crate::cli::runtime::small_runtime;

/// Longest line, in bytes: that of a body of the endpoint.
const LINE_MAX_BYTES: usize = 1 << 20;

/// Longest answer, in bytes.
const ANSWER_MAX_BYTES: usize = 16 << 20;

/// Most requests that are being answered. Further lines wait.
const REQUESTS_MAX: usize = 16;

/// Longest time for threads to end afterwards.
const THREADS_END: Duration = Duration::from_millis(100);

/// Options of `weir mcp`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct McpArgs {
    /// Data directory of the server
    #[arg(long, env = "WEIR_DATA_DIR", default_value = "./weir-data")]
    pub data_dir: PathBuf,
    /// Another server.
    #[command(flatten)]
    pub remote: RemoteArgs,
    /// Id of the project [default: the current one of the key's user; 1 without --url]
    #[arg(long)]
    pub project: Option<i64>,
}

/// Serves until standard input ends and all requests are answered.
///
/// # Errors
///
/// The error message for the user.
pub fn run(args: McpArgs) -> anyhow::Result<()> {
    let proxy = Proxy {
        place: Mutex::new(place(&args)?),
        connections: connections(&args.remote.tls)?,
        revision: Mutex::default(),
        under_way: Mutex::default(),
        args,
    };
    let runtime = small_runtime()?;
    let served = runtime.block_on(serve(Arc::new(proxy)));
    // A thread may still wait for standard input, if standard output ended first.
    runtime.shutdown_timeout(THREADS_END);
    served
}

/// Where messages go, with the bearer token.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Endpoint {
    url: String,
    key: HeaderValue,
}

fn place(args: &McpArgs) -> anyhow::Result<Endpoint> {
    let query = |id: i64| format!("?project={id}");
    if let Some((url, key)) = args.remote.place()? {
        let query = args.project.map(query).unwrap_or_default();
        let url = format!("{}/mcp{query}", url.trim_end_matches('/'));
        return Ok(Endpoint { url, key: bearer(key)? });
    }
    let advice =
        "start it with weir serve, or choose another with --data-dir, or with --url and --key";
    let server = local::server(&args.data_dir, advice)?;
    let query = query(args.project.unwrap_or(1));
    let url = format!("{}/_internal/mcp{query}", server.url);
    Ok(Endpoint { url, key: bearer(&server.secret)? })
}

/// What all requests share.
#[derive(Debug)]
struct Proxy {
    args: McpArgs,
    connections: Connections<Full<Bytes>>,
    place: Mutex<Endpoint>,
    /// The revision of the protocol that `initialize` has negotiated.
    revision: Mutex<Option<String>>,
    /// Requests that are being answered, by their ids.
    under_way: Mutex<HashMap<String, AbortHandle>>,
}

async fn serve(proxy: Arc<Proxy>) -> anyhow::Result<()> {
    let (mut reading, mut has_input) = (next_line(), true);
    let mut requests: JoinSet<Option<String>> = JoinSet::new();
    loop {
        let line = tokio::select! {
            biased;
            Some(answer) = requests.join_next() => {
                // A request that was cancelled has no answer.
                if let Ok(Some(answer)) = answer {
                    write(&answer)?;
                }
                continue;
            }
            line = &mut reading, if has_input && requests.len() < REQUESTS_MAX => line??,
            else => return Ok(()),
        };
        match line {
            Line::End => has_input = false,
            Line::Blank => {}
            Line::TooLong => {
                let detail = "The message is longer than 1 MiB.";
                write(&message::error(&Value::Null, -32600, detail, None))?;
            }
            Line::Text(text) => match Message::read(&text) {
                Err(error) => write(&error)?,
                Ok(message) => proxy.begin(&mut requests, message, text),
            },
        }
        if has_input {
            reading = next_line();
        }
    }
}

/// A line of standard input.
enum Line {
    Text(Bytes),
    Blank,
    TooLong,
    End,
}

/// Reads the next line on a thread that may block.
fn next_line() -> JoinHandle<io::Result<Line>> {
    tokio::task::spawn_blocking(|| line(&mut io::stdin().lock()))
}

/// Reads a line. Of a long one nothing is kept.
fn line(input: &mut impl BufRead) -> io::Result<Line> {
    let (mut text, mut is_long, mut has_begun) = (Vec::new(), false, false);
    loop {
        let part = input.fill_buf()?;
        let (is_end, end) = (part.is_empty(), part.iter().position(|byte| *byte == b'\n'));
        let taken = end.map_or(part.len(), |end| end + 1);
        let own = part.get(..end.unwrap_or(part.len())).unwrap_or_default();
        has_begun |= !is_end;
        match is_long || text.len() + own.len() > LINE_MAX_BYTES {
            true => (is_long, text) = (true, Vec::new()),
            false => text.extend_from_slice(own),
        }
        input.consume(taken);
        if end.is_none() && !is_end {
            continue;
        }
        return Ok(match (is_long, text.trim_ascii().is_empty()) {
            (true, _) => Line::TooLong,
            (false, false) => Line::Text(text.into()),
            (false, true) if has_begun => Line::Blank,
            (false, true) => Line::End,
        });
    }
}

/// Writes a message as a line.
fn write(message: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(message.as_bytes())?;
    output.write_all(b"\n")?;
    output.flush()
}

impl Proxy {
    /// Begins to answer a message, or ends what it cancels.
    fn begin(
        self: &Arc<Self>,
        requests: &mut JoinSet<Option<String>>,
        message: Message,
        text: Bytes,
    ) {
        if let Kind::Cancel(id) = &message.kind {
            // Its connection closes, so the server stops, too.
            if let Some(request) = self.under_way.lock().remove(id) {
                request.abort();
            }
            return;
        }
        let id = message.key();
        let own = Arc::clone(self);
        let mut held = self.under_way.lock();
        let request = requests.spawn(async move {
            let answer = own.answer(&message, text).await;
            if let Some(id) = message.key() {
                own.under_way.lock().remove(&id);
            }
            answer
        });
        if let Some(id) = id {
            held.insert(id, request);
        }
    }

    /// The answer to a message; `None` for a notification.
    async fn answer(&self, message: &Message, text: Bytes) -> Option<String> {
        let answer = match self.posted(message, text).await {
            Ok((StatusCode::OK, body)) => {
                self.note_revision(message, &body);
                // A line break can only stand between the parts of JSON.
                Some(String::from_utf8_lossy(&body).replace(['\n', '\r'], " "))
            }
            Ok((status, _)) if status.is_success() => None,
            Ok((status, body)) => Some(message::refusal(message.id(), status, &body)),
            Err(error) => Some(message::error(message.id(), -32000, &explain(&error), None)),
        };
        match (&message.kind, answer) {
            (Kind::Silent | Kind::Cancel(_), Some(answer)) => {
                eprint(&answer);
                None
            }
            (_, answer) => answer,
        }
    }

    /// Posts a message. A server that has restarted has another secret, and maybe another address.
    async fn posted(&self, message: &Message, text: Bytes) -> anyhow::Result<(StatusCode, Bytes)> {
        let headers = message.headers(self.revision.lock().as_deref());
        let place = self.place.lock().clone();
        let send = |place: Endpoint| {
            let (headers, body) = (&headers, (text.clone(), ANSWER_MAX_BYTES));
            async move { post(&self.connections, (&place.url, &place.key), headers, body).await }
        };
        let first = send(place.clone()).await;
        let is_gone =
            first.as_ref().map_or(true, |(status, _)| *status == StatusCode::UNAUTHORIZED);
        if !is_gone || self.args.remote.url.is_some() {
            return first;
        }
        match self::place(&self.args) {
            Ok(other) if other != place => {
                *self.place.lock() = other.clone();
                send(other).await
            }
            _ => first,
        }
    }

    /// Notes by which revision the client goes on.
    fn note_revision(&self, message: &Message, body: &[u8]) {
        if message.method != "initialize" {
            return;
        }
        let answer: Value = serde_json::from_slice(body).unwrap_or_default();
        let revision = answer.pointer("/result/protocolVersion").and_then(Value::as_str);
        *self.revision.lock() = revision.map(str::to_owned);
    }
}

/// Tells what nobody else would be told.
fn eprint(text: &str) {
    // If standard error is closed, it cannot be told.
    let _ = writeln!(io::stderr(), "weir: {text}");
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::{LINE_MAX_BYTES, Line, line};

    #[test]
    fn lines_are_bounded() {
        let long = "x".repeat(LINE_MAX_BYTES + 1);
        let most = "y".repeat(LINE_MAX_BYTES);
        let input = format!("a\r\n\n  \n{long}\n{most}\n{long}{long}\nlast");
        let mut input = BufReader::with_capacity(1000, input.as_bytes());
        let mut found = Vec::new();
        loop {
            found.push(match line(&mut input).unwrap() {
                Line::Text(text) => {
                    String::from_utf8_lossy(&text[..text.len().min(9)]).into_owned()
                }
                Line::Blank => "blank".to_owned(),
                Line::TooLong => "long".to_owned(),
                Line::End => break,
            });
        }
        assert_eq!(found, ["a\r", "blank", "blank", "long", "yyyyyyyyy", "long", "last"]);
    }
}
