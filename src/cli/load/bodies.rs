//! Request bodies of the load generator: built before the run, or by producer threads during it. No HTTP.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{io, thread};

use bytes::Bytes;
use flate2::write::GzEncoder;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::synth::Stream;

/// How request bodies are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Compression {
    /// Uncompressed.
    None,
    /// gzip at level 6, the default of zlib, which the SDKs use.
    Gzip,
    /// LZ4 frames.
    Lz4,
    /// Zstandard at level 3, its default.
    Zstd,
}

impl Compression {
    /// The value of `Content-Encoding`, if it has one.
    pub(super) fn content_encoding(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Gzip => Some("gzip"),
            Self::Lz4 => Some("lz4"),
            Self::Zstd => Some("zstd"),
        }
    }

    fn pack(self, plain: Vec<u8>) -> io::Result<Vec<u8>> {
        match self {
            Self::None => Ok(plain),
            Self::Gzip => {
                let packed = Vec::with_capacity(plain.len() / 4);
                let mut encoder = GzEncoder::new(packed, flate2::Compression::new(6));
                encoder.write_all(&plain)?;
                encoder.finish()
            }
            Self::Lz4 => {
                let packed = Vec::with_capacity(plain.len() / 2);
                let mut encoder = lz4_flex::frame::FrameEncoder::new(packed);
                encoder.write_all(&plain)?;
                encoder.finish().map_err(io::Error::other)
            }
            Self::Zstd => zstd::bulk::compress(&plain, 3),
        }
    }
}

/// One request body.
#[derive(Clone, Debug)]
pub(super) struct Body {
    pub(super) bytes: Bytes,
    pub(super) events: u64,
    /// Size before compression.
    pub(super) plain_bytes: u64,
}

/// Iterator over batches of events, up to the wanted number of events.
#[derive(Debug)]
pub(super) struct Supply {
    stream: Stream,
    batch: u64,
    /// Events that remain; `None` for no limit.
    left: Option<u64>,
}

/// A body before compression.
#[derive(Debug)]
pub(super) struct Plain {
    bytes: Vec<u8>,
    events: u64,
}

impl Supply {
    pub(super) fn new(stream: Stream, batch: u32, events: Option<u64>) -> Self {
        Self { stream, batch: u64::from(batch), left: events }
    }
}

impl Iterator for Supply {
    type Item = Plain;

    fn next(&mut self) -> Option<Plain> {
        let events = self.left.unwrap_or(u64::MAX).min(self.batch);
        if events == 0 {
            return None;
        }
        self.left = self.left.map(|left| left - events);
        let count = usize::try_from(events).unwrap_or(usize::MAX);
        Some(Plain { bytes: self.stream.batch(count).body, events })
    }
}

fn pack(plain: Plain, compression: Compression) -> io::Result<Body> {
    let plain_bytes = u64::try_from(plain.bytes.len()).unwrap_or(u64::MAX);
    let bytes = Bytes::from(compression.pack(plain.bytes)?);
    Ok(Body { bytes, events: plain.events, plain_bytes })
}

/// Source of the bodies that connections send.
#[derive(Debug)]
pub(super) enum Bodies {
    /// All built before the first is sent.
    Built { list: Vec<Body>, next: AtomicUsize },
    /// Built by producer threads, some in advance.
    Streamed(tokio::sync::Mutex<mpsc::Receiver<io::Result<Body>>>),
}

/// Bodies compressed at once, by a thread each. Bounds the memory that bodies take before compression.
const BUILD_CHUNK: usize = 8;

impl Bodies {
    /// Builds all bodies of `supply` now, which must be finite.
    pub(super) async fn build(supply: Supply, compression: Compression) -> anyhow::Result<Self> {
        let list = tokio::task::spawn_blocking(move || build(supply, compression)).await??;
        Ok(Self::Built { list, next: AtomicUsize::new(0) })
    }

    /// Builds bodies on threads of `producers`, which end when the result is dropped.
    pub(super) fn stream(
        supply: Supply,
        compression: Compression,
        connections: u16,
        producers: &mut JoinSet<()>,
    ) -> Self {
        let connections = usize::from(connections);
        let (sender, receiver) = mpsc::channel(connections);
        let supply = Arc::new(Mutex::new(supply));
        let threads = thread::available_parallelism().map_or(1, usize::from).min(connections);
        for _ in 0..threads {
            let (supply, sender) = (Arc::clone(&supply), sender.clone());
            producers.spawn_blocking(move || produce(&supply, &sender, compression));
        }
        Self::Streamed(tokio::sync::Mutex::new(receiver))
    }

    /// The next body; `None` after the last.
    pub(super) async fn next(&self) -> io::Result<Option<Body>> {
        match self {
            Self::Built { list, next } => {
                Ok(list.get(next.fetch_add(1, Ordering::Relaxed)).cloned())
            }
            Self::Streamed(receiver) => receiver.lock().await.recv().await.transpose(),
        }
    }
}

fn build(mut supply: Supply, compression: Compression) -> io::Result<Vec<Body>> {
    let mut list = Vec::new();
    loop {
        let plain: Vec<Plain> = supply.by_ref().take(BUILD_CHUNK).collect();
        if plain.is_empty() {
            return Ok(list);
        }
        // Threads without a pool: compressing a body takes a hundred times as long as spawning a thread.
        list.extend(thread::scope(|scope| {
            let spawn = |plain| {
                thread::Builder::new().spawn_scoped(scope, move || pack(plain, compression))
            };
            let threads: Vec<_> = plain.into_iter().map(spawn).collect::<io::Result<_>>()?;
            let panicked = |_| Err(io::Error::other("a thread that compresses a body panicked"));
            let packed = threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked));
            packed.collect::<io::Result<Vec<Body>>>()
        })?);
    }
}

fn produce(
    supply: &Mutex<Supply>,
    sender: &mpsc::Sender<io::Result<Body>>,
    compression: Compression,
) {
    loop {
        // Only the generation of events holds the lock: compression takes ten times as long.
        let plain = supply.lock().next();
        let Some(plain) = plain else { return };
        if sender.blocking_send(pack(plain, compression)).is_err() {
            return;
        }
    }
}
