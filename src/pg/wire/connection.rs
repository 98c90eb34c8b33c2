//! A connection: its socket, with or without TLS, and what was received and is to be sent. Both are bounded: the length
//! of a message is checked before its body is awaited, and memory grows with the bytes that arrive.

use std::io;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::places::Socket;
use crate::wire::backend::Output;
use crate::wire::frontend::{Malformed, Message, Opening};

/// Longest first message and password, in bytes: PostgreSQL's own limit.
pub(crate) const OPENING_MAX_BYTES: usize = 10_000;

/// Longest message of a client that has signed in, in bytes.
pub(crate) const MESSAGE_MAX_BYTES: usize = 1 << 20;

/// Bytes to send from which on they are sent.
const SEND_BYTES: usize = 64 << 10;

/// Bytes that are read at once.
const READ_BYTES: usize = 8 << 10;

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    /// The client is gone.
    #[error("the client is gone")]
    Gone,
    /// The client does not take what is sent.
    #[error("the client has not taken any byte for {0:?}")]
    Slow(Duration),
    /// The socket failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The client does not speak the protocol.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// A message is too long.
    #[error("a message of {0} bytes is longer than the {1} that it may have")]
    TooLong(usize, usize),
}

/// See the head of this file.
pub(crate) struct Connection {
    socket: Box<dyn Socket>,
    received: BytesMut,
    /// To be sent.
    pub(crate) out: Output,
    /// Longest time for the client to take some bytes.
    patience: Duration,
    /// Bytes that were sent and are not counted yet.
    sent: u64,
}

impl Connection {
    /// A connection over a socket.
    pub(crate) fn new(socket: Box<dyn Socket>, patience: Duration) -> Self {
        Self { socket, received: BytesMut::new(), out: Output::default(), patience, sent: 0 }
    }

    /// The socket, unless something was received that was not read: bytes before a TLS handshake would be taken for
    /// encrypted ones.
    pub(crate) fn into_socket(self) -> Result<Box<dyn Socket>, Broken> {
        if self.received.is_empty() { Ok(self.socket) } else { Err(Malformed.into()) }
    }

    /// The socket, and what was received and not read yet.
    pub(crate) fn into_parts(self) -> (Box<dyn Socket>, BytesMut) {
        (self.socket, self.received)
    }

    /// The next opening message. Cancel safe.
    pub(crate) async fn opening(&mut self) -> Result<Opening, Broken> {
        loop {
            if let Some(body) = self.body(0, OPENING_MAX_BYTES)? {
                return Ok(Opening::read(&body)?);
            }
            self.fill().await?;
        }
    }

    /// The next message, of at most `bytes_max`. Cancel safe.
    pub(crate) async fn message(&mut self, bytes_max: usize) -> Result<Message, Broken> {
        loop {
            let tag = self.received.first().copied();
            if let (Some(tag), Some(body)) = (tag, self.body(1, bytes_max)?) {
                return Ok(Message::read(tag, &body)?);
            }
            self.fill().await?;
        }
    }

    /// The body of the next message, after `before` bytes and its length, if all of it was received.
    fn body(&mut self, before: usize, bytes_max: usize) -> Result<Option<Bytes>, Broken> {
        let head = before.saturating_add(4);
        let Some(length) = self.received.get(before..head) else { return Ok(None) };
        let length = length.try_into().map(u32::from_be_bytes).map_err(|_| Malformed)?;
        let length = usize::try_from(length).map_err(|_| Malformed)?;
        if length > bytes_max {
            return Err(Broken::TooLong(length, bytes_max));
        }
        let rest = length.checked_sub(4).ok_or(Malformed)?;
        if self.received.len() < head.saturating_add(rest) {
            return Ok(None);
        }
        self.received.advance(head);
        let body = self.received.split_to(rest).freeze();
        if self.received.is_empty() {
            // What a long message took is not kept for the time of the connection.
            self.received = BytesMut::new();
        }
        Ok(Some(body))
    }

    /// Waits until more was received. Cancel safe.
    async fn fill(&mut self) -> Result<(), Broken> {
        self.received.reserve(READ_BYTES);
        match self.socket.read_buf(&mut self.received).await? {
            0 => Err(Broken::Gone),
            _ => Ok(()),
        }
    }

    /// Returns once the client is gone; reads ahead meanwhile, as far as memory is for it. Cancel safe.
    pub(crate) async fn gone(&mut self) -> Broken {
        while self.received.len() < MESSAGE_MAX_BYTES {
            if let Err(broken) = self.fill().await {
                return broken;
            }
        }
        std::future::pending().await
    }

    /// Sends what is to be sent, if it is much.
    pub(crate) async fn relieve(&mut self) -> Result<(), Broken> {
        if self.out.0.len() >= SEND_BYTES { self.flush().await } else { Ok(()) }
    }

    /// Sends all that is to be sent.
    pub(crate) async fn flush(&mut self) -> Result<(), Broken> {
        let mut rest = self.out.0.as_slice();
        let slow = |_| Broken::Slow(self.patience);
        while !rest.is_empty() {
            let sent = timeout(self.patience, self.socket.write(rest)).await.map_err(slow)??;
            if sent == 0 {
                return Err(Broken::Gone);
            }
            self.sent = self.sent.saturating_add(u64::try_from(sent).unwrap_or(u64::MAX));
            rest = rest.get(sent..).unwrap_or_default();
        }
        timeout(self.patience, self.socket.flush()).await.map_err(slow)??;
        self.out.0.clear();
        self.out.0.shrink_to(2 * SEND_BYTES);
        Ok(())
    }

    /// Bytes that were sent since the last call.
    pub(crate) fn take_sent(&mut self) -> u64 {
        std::mem::take(&mut self.sent)
    }

    /// Sends what is left and ends the connection.
    pub(crate) async fn close(mut self) {
        if self.flush().await.is_ok() {
            let _ = timeout(self.patience, self.socket.shutdown()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncWriteExt, duplex};

    use super::{Broken, Connection, MESSAGE_MAX_BYTES, OPENING_MAX_BYTES};
    use crate::wire::frontend::{Malformed, Message, Opening};

    const PATIENCE: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn messages_arrive_in_pieces() {
        let (mut client, server) = duplex(3);
        let mut connection = Connection::new(Box::new(server), PATIENCE);
        let sending = async {
            client.write_all(b"\0\0\0\x08\x04\xd2\x16\x2f").await.unwrap();
            client.write_all(b"Q\0\0\0\x06a\0S\0\0\0\x04").await.unwrap();
            client
        };
        let reading = async {
            assert_eq!(connection.opening().await.unwrap(), Opening::Tls);
            let first = connection.message(100).await.unwrap();
            assert_eq!(first, Message::Query("a".to_owned()));
            assert_eq!(connection.message(100).await.unwrap(), Message::Sync);
            assert!(connection.received.is_empty());
        };
        let (client, ()) = tokio::join!(sending, reading);
        drop(client);
        assert!(matches!(connection.message(100).await, Err(Broken::Gone)));
    }

    /// Goal: a long message takes no memory. Method: its length arrives, and nothing else.
    #[tokio::test]
    async fn lengths_are_bounded_before_anything_is_read() {
        for (bytes, is_opening, expected) in [
            (&b"\x7f\xff\xff\xff"[..], true, "longer"),
            (b"\0\0\x27\x11", true, "longer"),
            (b"\0\0\0\x03", true, "malformed"),
            (b"P\x3f\xff\xff\xff", false, "longer"),
            (b"P\0\0\0\0", false, "malformed"),
            (b"P\xff\xff\xff\xff", false, "longer"),
        ] {
            let (mut client, server) = duplex(64);
            let mut connection = Connection::new(Box::new(server), PATIENCE);
            client.write_all(bytes).await.unwrap();
            let error = match is_opening {
                true => connection.opening().await.map(drop),
                false => connection.message(MESSAGE_MAX_BYTES).await.map(drop),
            };
            let error = error.unwrap_err();
            assert!(error.to_string().contains(expected), "{bytes:?}: {error}");
            assert!(connection.received.capacity() <= 2 * OPENING_MAX_BYTES);
        }
    }

    #[tokio::test]
    async fn slow_and_sly_clients_are_noticed() {
        let (client, server) = duplex(8);
        let mut connection = Connection::new(Box::new(server), PATIENCE);
        connection.out.complete("SELECT 1");
        assert!(matches!(connection.flush().await, Err(Broken::Slow(_))));
        drop(client);
        assert!(matches!(connection.gone().await, Broken::Gone));
        // A client that sends more right behind its request for TLS.
        let (mut client, server) = duplex(64);
        let mut connection = Connection::new(Box::new(server), PATIENCE);
        client.write_all(b"\0\0\0\x08\x04\xd2\x16\x2fQ\0\0").await.unwrap();
        assert_eq!(connection.opening().await.unwrap(), Opening::Tls);
        let refused = connection.into_socket().err().unwrap();
        assert!(matches!(refused, Broken::Malformed(Malformed)));
    }
}
