//! Pieces of answers that HTTP/2 keeps until the client lets it send them: [`Unsent`].
//!
//! An HTTP/2 client says how many bytes of an answer it will take, and may say none. The server's
//! socket is idle then, and nothing blocks: only the age of a piece tells that the client does not
//! take it. A piece therefore counts from when it is handed over until it is dropped, which is when
//! it has been sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::http::budget::Share;

/// Longest piece of an answer that is handed to HTTP/2 at once, so that a client that takes a few
/// KiB in `body-timeout` is not taken for one that stalls. Also the largest frame that clients
/// accept unless they say otherwise.
pub(super) const PIECE_MAX_BYTES: usize = 16 * 1024;

/// The pieces of one connection.
#[derive(Debug, Default)]
pub(super) struct Unsent(Mutex<Pieces>);

#[derive(Debug, Default)]
struct Pieces {
    next: u64,
    /// When each was handed over, in that order.
    since: BTreeMap<u64, u64>,
}

impl Unsent {
    /// `piece`, noted as unsent from `now` on until it is dropped; `share` lives as long.
    pub(super) fn hold(
        self: &Arc<Self>,
        now: u64,
        piece: Bytes,
        share: Option<Arc<Share>>,
    ) -> Bytes {
        let mut pieces = self.0.lock();
        let number = pieces.next;
        pieces.next += 1;
        pieces.since.insert(number, now);
        drop(pieces);
        let unsent = Arc::clone(self);
        Bytes::from_owner(Piece { bytes: piece, _share: share, noted: Some((unsent, number)) })
    }

    /// When the oldest of them was handed over.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.0.lock().since.first_key_value().map(|(_, since)| *since)
    }
}

/// `piece`, which keeps `share` as long as it lives.
pub(super) fn with_share(piece: Bytes, share: Arc<Share>) -> Bytes {
    Bytes::from_owner(Piece { bytes: piece, _share: Some(share), noted: None })
}

struct Piece {
    bytes: Bytes,
    _share: Option<Arc<Share>>,
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
