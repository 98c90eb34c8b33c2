//! Settings of the HTTP front end: addresses, limits, time-outs, rate limits per key.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;

use crate::config::bounds::{address, bytes, number, socket, time};
use crate::config::networks::Networks;

/// Addresses, limits of connections and bodies, time-outs.
#[derive(Clone, Debug, clap::Args)]
pub struct HttpConfig {
    /// Address and port to listen on; port 0 picks a free one
    #[arg(long, env = "WEIR_LISTEN", default_value = "127.0.0.1:8000", value_parser = socket)]
    pub listen: SocketAddr,
    /// URL at which clients reach the server, for links in responses; set it if a proxy changes the host or
    /// the path [default: from the request]
    #[arg(long, env = "WEIR_PUBLIC_URL", value_parser = address)]
    pub public_url: Option<String>,
    /// Proxies whose `X-Forwarded-For`, `Forwarded` and `X-Real-IP` headers are trusted for the address of the
    /// client, and whose `X-Forwarded-Proto` and `X-Forwarded-Host` for the requested URL: addresses and networks
    /// (`10.0.0.0/8`), separated by commas; `none` trusts no proxy
    #[arg(long, env = "WEIR_TRUSTED_PROXIES", default_value = "127.0.0.0/8,::1")]
    pub trusted_proxies: Networks,
    /// Directory with the scripts of posthog-js, served under `/static/` [default: none]
    #[arg(long, env = "WEIR_STATIC_DIR")]
    pub static_dir: Option<PathBuf>,
    /// Open connections; further clients wait in the kernel's accept queue. Lowered at start to what the
    /// limit of open files (`ulimit -Hn`) allows beside 512 files. At most a quarter of this number may be
    /// streams of `/flags/events`, and an eighth of that quarter streams of one client address [range: 1 to
    /// 1000000]
    #[arg(long, env = "WEIR_CONNECTIONS_MAX", default_value_t = 4096, value_parser = number(1_u32, 1_000_000))]
    pub connections_max: u32,
    /// Longest time for the head of a request to arrive; the connection is closed after it. Too small cuts
    /// off slow clients, too large lets idle clients hold connections [range: 100ms to 1h]
    #[arg(long, env = "WEIR_HEADER_TIMEOUT", default_value = "10s", value_parser = time("100ms", "1h"))]
    pub header_timeout: Duration,
    /// Longest time for the body of a request to arrive, and for a client to stop reading its response. Too
    /// small cuts off slow clients, too large lets stalled clients hold memory [range: 100ms to 1h]
    #[arg(long, env = "WEIR_BODY_TIMEOUT", default_value = "30s", value_parser = time("100ms", "1h"))]
    pub body_timeout: Duration,
    /// Longest time that running requests may take after SIGTERM; those that take longer are cut off
    /// [range: 100ms to 1h]
    #[arg(long, env = "WEIR_DRAIN_TIMEOUT", default_value = "20s", value_parser = time("100ms", "1h"))]
    pub drain_timeout: Duration,
    /// Largest request body as sent, before decompression; larger bodies are answered 413 [range: 1KiB to
    /// 960MiB]
    #[arg(long, env = "WEIR_BODY_MAX_BYTES", default_value = "20MiB", value_parser = bytes("1KiB", "960MiB"))]
    pub body_max_bytes: ByteSize,
    /// Largest request body after decompression and decoding; larger bodies are answered 413 [range: 1KiB
    /// to 16GiB]
    #[arg(long, env = "WEIR_BODY_PLAIN_MAX_BYTES", default_value = "100MiB", value_parser = bytes("1KiB", "16GiB"))]
    pub body_plain_max_bytes: ByteSize,
    /// Management requests of one personal API key per minute; further requests are answered 429 [range: 1
    /// to 4294967295] [default: no limit]
    #[arg(long, env = "WEIR_KEY_REQUESTS_PER_MINUTE_MAX", value_parser = number(NonZeroU32::MIN, NonZeroU32::MAX))]
    pub key_requests_per_minute_max: Option<NonZeroU32>,
    /// Management requests of one personal API key per hour; further requests are answered 429 [range: 1 to
    /// 4294967295] [default: no limit]
    #[arg(long, env = "WEIR_KEY_REQUESTS_PER_HOUR_MAX", value_parser = number(NonZeroU32::MIN, NonZeroU32::MAX))]
    pub key_requests_per_hour_max: Option<NonZeroU32>,
    /// Requests of one personal API key about persons and events, SQL included, per minute; they also count
    /// as management requests; further requests are answered 429 [range: 1 to 4294967295] [default: no
    /// limit]
    #[arg(long, env = "WEIR_KEY_ANALYTICS_REQUESTS_PER_MINUTE_MAX", value_parser = number(NonZeroU32::MIN, NonZeroU32::MAX))]
    pub key_analytics_requests_per_minute_max: Option<NonZeroU32>,
    /// Requests of one personal API key about persons and events, SQL included, per hour; they also count
    /// as management requests; further requests are answered 429 [range: 1 to 4294967295] [default: no
    /// limit]
    #[arg(long, env = "WEIR_KEY_ANALYTICS_REQUESTS_PER_HOUR_MAX", value_parser = number(NonZeroU32::MIN, NonZeroU32::MAX))]
    pub key_analytics_requests_per_hour_max: Option<NonZeroU32>,
}
