//! A connection whose session another process has: bytes are copied in both directions ([`Relay::run`]). Messages of that
//! process are followed by their lengths alone ([`Frames`]), so that a client is told why its connection ends wherever a message
//! may be put in between, and no statement is cut by the end of this server.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{sleep, timeout};

use crate::error::Failure;
use crate::places::Elsewhere;
use crate::wire::backend::Output;
use crate::wire::connection::Connection;
use weir_base::tasks::Shutdown;

/// Bytes that are copied at once.
const COPY_BYTES: usize = 16 << 10;

/// Time for the other process to tell by itself that it does not have the project any more.
const GRACE: Duration = Duration::from_secs(1);

/// The types of messages of a server after which it waits for a statement, and in which it says why it ends.
const READY: u8 = b'Z';
const ERROR: u8 = b'E';

/// Bytes of the type and the length of a message.
const HEAD_BYTES: usize = 5;

/// A connection whose session another process has.
pub(crate) struct PassedOn {
    pub(crate) connection: Connection,
    pub(crate) elsewhere: Elsewhere,
    /// The place among the connections that have signed in.
    pub(crate) place: OwnedSemaphorePermit,
}

/// What ends connections that are passed on.
pub(crate) struct Relay {
    /// That of this server.
    pub(crate) shutdown: Shutdown,
    /// Longest time of statements after it has begun.
    pub(crate) drain_timeout: Duration,
    /// Longest time for the client to take any byte.
    pub(crate) patience: Duration,
}

/// Why a connection ends.
enum Ended {
    /// The client is gone, or takes nothing.
    Client,
    /// The other process has ended the session, or is gone.
    Other,
    /// The project has moved.
    Moved,
    /// This server ends.
    Stopped,
}

impl Relay {
    /// Copies until one of both sides ends.
    pub(crate) async fn run(self, passed_on: PassedOn) {
        let PassedOn { connection, elsewhere, place } = passed_on;
        let Elsewhere { stream, ended } = elsewhere;
        let (client, received) = connection.into_parts();
        let (mut from_client, mut to_client) = tokio::io::split(client);
        let (from_other, to_other) = tokio::io::split(stream);
        let mut frames = Frames::default();
        let asked = AtomicBool::new(true);
        let ended = tokio::select! {
            () = upwards(received, &mut from_client, to_other, &asked) => Ended::Client,
            ended = self.downwards(from_other, &mut to_client, (&mut frames, &asked)) => ended,
            ended = self.over(ended) => ended,
        };
        let why = match ended {
            Ended::Client => None,
            // It has said so itself.
            Ended::Other if frames.last == Some(ERROR) => None,
            Ended::Other | Ended::Moved => Some("because the server that has the project is gone"),
            Ended::Stopped => Some("due to administrator command"),
        };
        let mut last = Output::default();
        if let Some(why) = why.filter(|_| frames.is_between()) {
            last.failure(&Failure::shutdown(why));
        }
        let closing = async {
            to_client.write_all(&last.0).await?;
            to_client.shutdown().await
        };
        let _ = timeout(self.patience, closing).await;
        drop(place);
    }

    /// Copies what the other process sends. At the end of this server, until it waits for a statement.
    async fn downwards(
        &self,
        mut from: impl AsyncRead + Unpin,
        to: &mut (impl AsyncWrite + Unpin),
        (frames, asked): (&mut Frames, &AtomicBool),
    ) -> Ended {
        let mut buffer = vec![0; COPY_BYTES];
        loop {
            let is_idle = || frames.is_idle() && !asked.load(Ordering::Relaxed);
            let read = tokio::select! {
                read = from.read(&mut buffer) => read,
                () = self.shutdown.cancelled(), if is_idle() => match is_idle() {
                    true => return Ended::Stopped,
                    // The client has asked for something meanwhile.
                    false => continue,
                },
            };
            let part = match read {
                Ok(0) | Err(_) => return Ended::Other,
                Ok(length) => buffer.get(..length).unwrap_or_default(),
            };
            // A part that is being sent may be cut anywhere.
            frames.is_cut = true;
            // Before it is sent, after which the client asks again.
            if frames.pass(part) {
                asked.store(false, Ordering::Relaxed);
            }
            if send(to, part, self.patience).await.is_err() {
                return Ended::Client;
            }
            frames.is_cut = false;
        }
    }

    /// Returns once neither side is waited for any longer.
    async fn over(&self, moved: BoxFuture<'static, ()>) -> Ended {
        let stopped = async {
            self.shutdown.cancelled().await;
            sleep(self.drain_timeout).await;
        };
        let moved = async {
            moved.await;
            sleep(GRACE).await;
        };
        tokio::select! {
            () = stopped => Ended::Stopped,
            () = moved => Ended::Moved,
        }
    }
}

/// Copies what the client sends. The other process reads ahead as far as it has memory for it, and no longer waits for it.
async fn upwards(
    received: BytesMut,
    from: &mut (impl AsyncRead + Unpin),
    mut to: impl AsyncWrite + Unpin,
    asked: &AtomicBool,
) {
    let mut part = received;
    loop {
        if !part.is_empty() {
            asked.store(true, Ordering::Relaxed);
            let sent = async {
                to.write_all(&part).await?;
                to.flush().await
            };
            if sent.await.is_err() {
                // Its last words are still to be read.
                return std::future::pending().await;
            }
        }
        part.clear();
        part.reserve(COPY_BYTES);
        if !matches!(from.read_buf(&mut part).await, Ok(1..)) {
            return;
        }
    }
}

/// Sends all of `part` to a client that takes at least some bytes within `patience`.
async fn send(
    to: &mut (impl AsyncWrite + Unpin),
    mut part: &[u8],
    patience: Duration,
) -> io::Result<()> {
    while !part.is_empty() {
        match timeout(patience, to.write(part)).await?? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            sent => part = part.get(sent..).unwrap_or_default(),
        }
    }
    timeout(patience, to.flush()).await?
}

/// Where in its messages a server is: each has a type and a length, of which nothing more is read.
#[derive(Debug, Default)]
struct Frames {
    /// The type and the length, as far as they have come.
    head: Vec<u8>,
    /// Bytes that are missing of the message.
    rest: usize,
    /// The type of the last message that has come.
    last: Option<u8>,
    /// Whether it is unknown how much of that the client has.
    is_cut: bool,
}

impl Frames {
    /// Notes what has come. Returns whether the server waits for a statement.
    fn pass(&mut self, mut part: &[u8]) -> bool {
        while !part.is_empty() {
            if self.rest == 0 {
                let missing = HEAD_BYTES.saturating_sub(self.head.len());
                let (head, behind) = part.split_at(missing.min(part.len()));
                self.head.extend_from_slice(head);
                part = behind;
                let [tag, length @ ..] = self.head.as_slice() else { continue };
                let Ok(length) = <[u8; 4]>::try_from(length) else { continue };
                // The length counts itself.
                let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
                (self.rest, self.last) = (length.saturating_sub(4), Some(*tag));
            } else {
                let passed = self.rest.min(part.len());
                self.rest = self.rest.saturating_sub(passed);
                part = part.get(passed..).unwrap_or_default();
            }
            if self.rest == 0 {
                self.head.clear();
            }
        }
        self.is_idle()
    }

    fn is_whole(&self) -> bool {
        self.head.is_empty() && self.rest == 0
    }

    /// Whether a message may be put here.
    fn is_between(&self) -> bool {
        self.is_whole() && !self.is_cut
    }

    /// Whether the server waits for a statement.
    fn is_idle(&self) -> bool {
        self.is_whole() && self.last == Some(READY)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::runtime::Handle;
    use tokio::sync::Semaphore;
    use tokio::task::JoinHandle;

    use super::{Frames, PassedOn, READY, Relay};
    use crate::places::Elsewhere;
    use crate::wire::connection::Connection;
    use weir_base::tasks::Tasks;

    const PATIENCE: Duration = Duration::from_secs(5);

    const ASKS: &[u8] = b"Q\0\0\0\x06a\0";
    const WAITS: &[u8] = b"Z\0\0\0\x05I";

    /// A connection that is passed on: the client, the other process, and what ends once both have ended.
    fn relayed(tasks: &Tasks) -> (DuplexStream, DuplexStream, JoinHandle<()>) {
        let ((client, near), (stream, other)) = (duplex(100), duplex(100));
        let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let connection = Connection::new(Box::new(near), PATIENCE);
        let ended = Box::pin(std::future::pending());
        let elsewhere = Elsewhere { stream: Box::new(stream), ended };
        let shutdown = tasks.shutdown().clone();
        let relay = Relay { shutdown, drain_timeout: PATIENCE, patience: PATIENCE };
        let passed_on = PassedOn { connection, elsewhere, place };
        (client, other, Handle::current().spawn(relay.run(passed_on)))
    }

    async fn passes(from: &mut DuplexStream, to: &mut DuplexStream, bytes: &[u8]) {
        from.write_all(bytes).await.unwrap();
        let mut read = vec![0; bytes.len()];
        to.read_exact(&mut read).await.unwrap();
        assert_eq!(read, bytes);
    }

    async fn rest(mut client: DuplexStream) -> String {
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.unwrap();
        String::from_utf8_lossy(&rest).into_owned()
    }

    #[tokio::test]
    async fn the_end_of_this_server_waits_for_statements() {
        let tasks = Tasks::new(Handle::current());
        let (mut idle, mut idle_other, idle_relay) = relayed(&tasks);
        let (mut busy, mut busy_other, busy_relay) = relayed(&tasks);
        for (client, other) in [(&mut idle, &mut idle_other), (&mut busy, &mut busy_other)] {
            passes(other, client, WAITS).await;
        }
        passes(&mut busy, &mut busy_other, ASKS).await;
        tasks.shutdown().begin();
        idle_relay.await.unwrap();
        assert!(rest(idle).await.contains("57P01"));
        passes(&mut busy_other, &mut busy, b"C\0\0\0\x05\0").await;
        passes(&mut busy_other, &mut busy, WAITS).await;
        busy_relay.await.unwrap();
        assert!(rest(busy).await.contains("57P01"));
    }

    #[tokio::test]
    async fn clients_are_told_of_the_end_where_a_message_may_be() {
        for (sent, told) in [
            (WAITS, true),
            (b"D\0\0\0\x08ab", false),
            // It has said why itself.
            (b"E\0\0\0\x05\0", false),
        ] {
            let tasks = Tasks::new(Handle::current());
            let (mut client, mut other, relay) = relayed(&tasks);
            passes(&mut client, &mut other, ASKS).await;
            passes(&mut other, &mut client, sent).await;
            drop(other);
            relay.await.unwrap();
            assert_eq!(rest(client).await.contains("57P01"), told, "{sent:?}");
        }
        let tasks = Tasks::new(Handle::current());
        let (client, mut other, relay) = relayed(&tasks);
        drop(client);
        relay.await.unwrap();
        assert_eq!(other.read(&mut [0; 10]).await.unwrap(), 0, "a client that is gone");
    }

    #[test]
    fn messages_are_followed_in_any_pieces() {
        let sent = b"R\0\0\0\x08\0\0\0\0I\0\0\0\x04C\0\0\0\x09abcd\0Z\0\0\0\x05I";
        for size in 1..=sent.len() {
            let mut frames = Frames::default();
            let mut idle = 0;
            for piece in sent.chunks(size) {
                idle += u8::from(frames.pass(piece));
            }
            assert_eq!((idle, frames.last, frames.is_between()), (1, Some(READY), true), "{size}");
            assert!(!frames.pass(b"E\0"));
            assert!(!frames.is_between());
        }
        let mut frames = Frames::default();
        for byte in [b"D", &[0xff; 4][..], &[0; 100]].concat() {
            assert!(!frames.pass(&[byte]));
        }
        assert!(!frames.is_between());
    }
}
