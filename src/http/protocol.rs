//! How hyper speaks HTTP/1.1 and HTTP/2 on all connections: its settings and their limits.

use hyper_util::rt::TokioTimer;
use hyper_util::server::conn::auto;

use crate::limits::Limits;
use weir_base::tasks::Tasks;

/// Read and write buffer of an HTTP/1 connection; also the longest head. Holds the longest URI that
/// hyper accepts (65,534 bytes, events sent by GET) and 16 KiB of other headers.
const BUFFER_MAX_BYTES: usize = 80 * 1024;

/// Concurrent requests on one HTTP/2 connection. RFC 9113 recommends at least 100 for parallelism.
/// But a connection keeps 1.2 KiB, in no budget, for each request of the highest number it ever had
/// at once.
const STREAMS_MAX: u32 = 64;

/// Streams of an HTTP/2 connection that the client may reset before the server has accepted them;
/// more end the connection. This bounds the cost of a rapid-reset attack. hyper also ends a
/// connection after 1,024 streams that the server reset because of an error of the client.
const EARLY_RESETS_MAX: usize = 20;

/// Flow-control window of an HTTP/2 stream and of the whole connection: bytes that a client may send
/// ahead. At 50 ms to the client this allows 20 MB/s.
const STREAM_WINDOW_BYTES: u32 = 512 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;

/// Largest head of an HTTP/2 request, counting 32 bytes per field besides its text (RFC 9113, 6.5.2).
/// Longer ones are answered 431; one of more than four times that ends the connection. Each
/// connection may have an incomplete head of this size, in no budget.
const HEADER_LIST_MAX_BYTES: u32 = 16 * 1024;

/// Bytes of responses that an HTTP/2 stream buffers for a client that does not read.
const SEND_BUFFER_MAX_BYTES: usize = 64 * 1024;

/// Settings of hyper for all connections.
pub(super) type Protocol = auto::Builder<StreamTasks>;

/// Configures hyper: HTTP/1.1 with keep-alive, or HTTP/2 if the client starts with its preface.
pub(super) fn protocol(limits: &Limits, tasks: &Tasks) -> Protocol {
    let mut protocol = auto::Builder::new(StreamTasks { tasks: tasks.clone() });
    protocol
        .http1()
        .timer(TokioTimer::new())
        // See the head of `http/connection.rs`.
        .header_read_timeout(None)
        .max_buf_size(BUFFER_MAX_BYTES);
    protocol
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(limits.keep_alive_idle / 2)
        .keep_alive_timeout(limits.body_timeout)
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_header_list_size(HEADER_LIST_MAX_BYTES)
        .max_pending_accept_reset_streams(EARLY_RESETS_MAX)
        .max_send_buf_size(SEND_BUFFER_MAX_BYTES);
    protocol
}

/// Spawns the requests of HTTP/2 connections as separate tasks.
#[derive(Clone, Debug)]
pub(super) struct StreamTasks {
    tasks: Tasks,
}

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for StreamTasks {
    fn execute(&self, stream: F) {
        self.tasks.spawn("http-stream", stream);
    }
}
