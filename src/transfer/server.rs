//! Requests to a server: [`Http`], which the caller implements, and [`Server`], which repeats what may be repeated, waits
//! where it is asked to, and reads JSON.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use serde_json::Value;
use url::Url;

use crate::fault::{Fault, What};
use weir_event::json;

/// Largest answer.
pub const ANSWER_MAX_BYTES: usize = 64 << 20;

/// Longest pause that a server may ask for.
const PAUSE_MAX: Duration = Duration::from_secs(600);

/// Requests of one call that a server may put off (429).
const THROTTLED_MAX: u32 = 60;

/// Attempts of one call that a server fails to answer.
const ATTEMPTS_MAX: u32 = 6;

/// As how many further failures one counts that took the longest time.
const LATE_COUNTS: u32 = 2;

/// Pause after the first attempt; doubles with each further one.
const PAUSE_FIRST: Duration = Duration::from_millis(500);

/// A request.
#[derive(Clone, Debug)]
pub struct Call {
    /// GET, POST or PATCH.
    pub method: &'static str,
    /// The path with the query, from the first slash on.
    pub path: String,
    /// The JSON of the body.
    pub body: Option<Bytes>,
}

/// An answer, whatever its status.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// `Retry-After`.
    pub retry_after: Option<Duration>,
    /// The body, of at most [`ANSWER_MAX_BYTES`].
    pub body: Bytes,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoReply {
    /// No connection, or it broke.
    Unreachable(String),
    /// It took longer than this.
    Late(Duration),
    /// The body has more than [`ANSWER_MAX_BYTES`].
    TooLarge,
}

/// An HTTP client for one server, which adds its key to each request.
pub trait Http: Send + Sync {
    /// The address of the server: scheme, host and port.
    fn base(&self) -> &Url;

    /// Sends a request once. Follows no redirect, since that could carry the key to another host.
    fn send(&self, call: Call) -> BoxFuture<'_, Result<Reply, NoReply>>;

    /// Waits.
    fn pause(&self, duration: Duration) -> BoxFuture<'_, ()>;
}

/// Whether a request that had no answer may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// It changes nothing, or the same the second time.
    Always,
    /// It makes something, and may have done so: only if the server refused it for the time being.
    IfRefused,
}

/// One of the two servers.
#[derive(Clone)]
pub struct Server {
    http: Arc<dyn Http>,
    name: &'static str,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Server {
    /// A server; `name` says in errors which one it is.
    pub fn new(name: &'static str, http: Arc<dyn Http>) -> Self {
        Self { http, name }
    }

    /// Its address.
    pub fn base(&self) -> &Url {
        self.http.base()
    }

    /// A request of this path in errors.
    pub(crate) fn at(&self, method: &str, path: &str) -> String {
        let path: String = path.chars().take(200).collect();
        format!("{}: {method} {path}", self.name)
    }

    /// The JSON at a path.
    ///
    /// # Errors
    ///
    /// There is no answer, an error, or no JSON.
    pub async fn get(&self, path: &str) -> Result<Value, Fault> {
        Ok(self.get_sized(path).await?.0)
    }

    /// As [`Server::get`], with the bytes of the answer.
    pub(crate) async fn get_sized(&self, path: &str) -> Result<(Value, usize), Fault> {
        let call = Call { method: "GET", path: path.to_owned(), body: None };
        let reply = self.send(&call, Repeat::Always).await?;
        Ok((self.json(&call, &reply)?, reply.body.len()))
    }

    /// Sends JSON.
    ///
    /// # Errors
    ///
    /// As of [`Server::get`].
    pub async fn put(
        &self,
        method: &'static str,
        path: &str,
        body: &Value,
        repeat: Repeat,
    ) -> Result<Value, Fault> {
        self.put_text(method, path, Bytes::from(body.to_string()), repeat).await
    }

    /// Sends the text of JSON.
    ///
    /// # Errors
    ///
    /// As of [`Server::get`].
    pub async fn put_text(
        &self,
        method: &'static str,
        path: &str,
        body: Bytes,
        repeat: Repeat,
    ) -> Result<Value, Fault> {
        let call = Call { method, path: path.to_owned(), body: Some(body) };
        let reply = self.send(&call, repeat).await?;
        self.json(&call, &reply)
    }

    fn json(&self, call: &Call, reply: &Reply) -> Result<Value, Fault> {
        let at = self.at(call.method, &call.path);
        json::read(&reply.body).map_err(|error| {
            let what = match reply.body.trim_ascii_start().first() {
                None => "an empty answer".to_owned(),
                Some(b'<') => "HTML instead of JSON; is this the address of the API?".to_owned(),
                Some(_) => format!("no JSON: {error}"),
            };
            Fault::malformed(&at, what)
        })
    }

    /// Sends a request until there is an answer that is no reason to wait.
    async fn send(&self, call: &Call, repeat: Repeat) -> Result<Reply, Fault> {
        let at = self.at(call.method, &call.path);
        let (mut throttled, mut failed) = (0_u32, 0_u32);
        loop {
            let pause = PAUSE_FIRST.saturating_mul(1 << failed.max(throttled).min(6));
            let fault = match self.http.send(call.clone()).await {
                Ok(reply) if (200..300).contains(&reply.status) => return Ok(reply),
                Ok(reply) => {
                    let answer = json::read(&reply.body).unwrap_or_default();
                    let fault = Fault::refused(&at, reply.status, &answer);
                    let asked = reply.retry_after.unwrap_or(pause);
                    match reply.status {
                        429 | 503 if asked > PAUSE_MAX => return Err(fault),
                        429 if throttled < THROTTLED_MAX => {
                            throttled += 1;
                            self.http.pause(asked).await;
                            continue;
                        }
                        503 if failed < ATTEMPTS_MAX => {
                            failed += 1;
                            self.http.pause(asked).await;
                            continue;
                        }
                        500.. => fault,
                        300..400 => {
                            let what = "a redirect; give the address that it leads to";
                            return Err(Fault::malformed(&at, what));
                        }
                        _ => return Err(fault),
                    }
                }
                Err(NoReply::TooLarge) => {
                    return Err(Fault { at, what: What::TooLarge { max_bytes: ANSWER_MAX_BYTES } });
                }
                Err(NoReply::Late(limit)) => {
                    failed += LATE_COUNTS;
                    Fault { at: at.clone(), what: What::Late { limit } }
                }
                Err(NoReply::Unreachable(why)) => {
                    Fault { at: at.clone(), what: What::Unreachable(why) }
                }
            };
            failed += 1;
            if repeat == Repeat::IfRefused || failed >= ATTEMPTS_MAX {
                return Err(fault);
            }
            self.http.pause(pause).await;
        }
    }
}
