//! Pieces of HTTP/2 responses that the client's flow control does not let through yet: [`Unsent`].
//!
//! An HTTP/2 client sets how many bytes of a response it accepts, and may set none. The server's
//! socket is idle then and nothing blocks; only the age of a piece shows that the client does not
//! read. A piece counts as unsent from when it is handed to hyper until it is dropped, which is
//! when it has been sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::budget::MemoryPermit;

/// Longest piece of a response that is handed to HTTP/2 at once. It is small, so that a client that
/// reads a few KiB per `body-timeout` does not count as stalled. Also the largest frame that
/// clients accept by default.
pub(super) const PIECE_MAX_BYTES: usize = 16 * 1024;

/// The unsent pieces of one connection.
#[derive(Debug, Default)]
pub(super) struct Unsent(Mutex<Pieces>);

#[derive(Debug, Default)]
struct Pieces {
    next: u64,
    /// Pieces by the time at which they were handed over.
    since: BTreeMap<u64, u64>,
}

impl Unsent {
    /// Registers `piece` as unsent from `now` until it is dropped; `permit` lives as long.
    pub(super) fn hold(
        self: &Arc<Self>,
        now: u64,
        piece: Bytes,
        permit: Option<Arc<MemoryPermit>>,
    ) -> Bytes {
        let mut pieces = self.0.lock();
        let number = pieces.next;
        pieces.next += 1;
        pieces.since.insert(number, now);
        drop(pieces);
        let unsent = Arc::clone(self);
        Bytes::from_owner(Piece { bytes: piece, _permit: permit, noted: Some((unsent, number)) })
    }

    /// Time at which the oldest unsent piece was handed over.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.0.lock().since.first_key_value().map(|(_, since)| *since)
    }
}

/// `piece`, which holds `permit` until it is dropped.
pub(super) fn with_permit(piece: Bytes, permit: Arc<MemoryPermit>) -> Bytes {
    Bytes::from_owner(Piece { bytes: piece, _permit: Some(permit), noted: None })
}

struct Piece {
    bytes: Bytes,
    _permit: Option<Arc<MemoryPermit>>,
    noted: Option<(Arc<Unsent>, u64)>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if let Some((unsent, number)) = &self.noted {
            unsent.0.lock().since.remove(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::Unsent;

    #[test]
    fn the_oldest_piece_is_the_one_that_waits_longest() {
        let unsent = Arc::new(Unsent::default());
        assert_eq!(unsent.oldest(), None);
        let hold = |now| unsent.hold(now, Bytes::from_static(b"piece"), None);
        let (mut first, second) = (hold(5), hold(7));
        let head = first.split_to(2);
        drop(first);
        assert_eq!((unsent.oldest(), &head[..]), (Some(5), &b"pi"[..]), "half of it is sent");
        drop(head);
        assert_eq!(unsent.oldest(), Some(7));
        drop(second);
        assert_eq!(unsent.oldest(), None);
    }
}
