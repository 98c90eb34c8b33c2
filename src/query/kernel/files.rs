//! Results of SQL as files: [`Engine::file`]. A short one is in memory as a whole; a long one is encoded on the query
//! threads as fast as its reader takes it, and neither its rows nor its text are ever in memory as a whole.

use std::sync::Arc;

use bytes::Bytes;
use datafusion::common::runtime::SpawnedTask;
use datafusion::dataframe::DataFrame;
use datafusion::execution::memory_pool::MemoryPool;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::kernel::admission::Permit;
use crate::kernel::apart::spawned;
use crate::kernel::engine::{Engine, GatheredRows, too_long};
use crate::kernel::error::QueryError;
use crate::kernel::planners::broken_down;
use crate::kernel::run::Answer;
use crate::kernel::view::View;
use crate::output::encoder::Encoder;
use crate::output::format::Format;
use crate::output::rows::Text;
use crate::output::{encoder, rows};
use weir_event::id::ProjectId;

/// Longest file that is in memory as a whole.
const WHOLE_BYTES_MAX: usize = 1 << 20;

/// Bytes from which on a part of a file is passed on.
const PIECE_BYTES: usize = 64 << 10;

/// Parts of a file that may be buffered for a slow reader.
const PIECES_QUEUE: usize = 4;

/// The result of SQL as a file.
#[derive(Debug)]
pub enum File {
    /// A short one.
    Whole(Bytes),
    /// A long one, which is still being written.
    Long(Pieces),
}

impl File {
    /// The whole file. For formats that limit the number of rows, and for tests.
    ///
    /// # Errors
    ///
    /// The query fails.
    pub async fn whole(self) -> Result<Bytes, QueryError> {
        let mut pieces = match self {
            Self::Whole(bytes) => return Ok(bytes),
            Self::Long(pieces) => pieces,
        };
        let mut all = Vec::new();
        while let Some(piece) = pieces.next().await {
            all.extend_from_slice(&piece?);
        }
        Ok(all.into())
    }
}

/// The parts of a long file. Dropping it cancels the query and frees its slot.
#[derive(Debug)]
pub struct Pieces {
    /// Parts that were written before it was known that the file is long.
    first: Option<Bytes>,
    rest: mpsc::Receiver<Result<Bytes, QueryError>>,
    task: Option<SpawnedTask<()>>,
    /// The right to take as long as its reader, of a file that is not the answer of a query, which has its own.
    _long: Option<Permit>,
}

impl Pieces {
    /// The next part; `None` at the end of the file. After an error the file is incomplete.
    pub async fn next(&mut self) -> Option<Result<Bytes, QueryError>> {
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        if let Some(piece) = self.rest.recv().await {
            return Some(piece);
        }
        // A task that panicked sends no error.
        self.task.take()?.await.err().map(|error| Err(broken_down(error)))
    }

    /// Bytes of the parts that are in memory already.
    pub fn ready_bytes(&self) -> usize {
        self.first.as_ref().map_or(0, Bytes::len)
    }

    /// Reads until the file is complete, or is known to be long.
    async fn begun(mut self) -> Result<File, QueryError> {
        let mut first = Vec::new();
        while first.len() <= WHOLE_BYTES_MAX {
            match self.next().await {
                Some(piece) => first.extend_from_slice(&piece?),
                None => return Ok(File::Whole(first.into())),
            }
        }
        Ok(File::Long(Self { first: Some(first.into()), ..self }))
    }
}

impl Engine {
    /// Runs SQL over the tables of a view of `project`, and writes the result as `format`. Returns when it is written,
    /// or more than [`WHOLE_BYTES_MAX`] of it are.
    ///
    /// # Errors
    ///
    /// See [`QueryError`]; further errors may come with the parts of a long file.
    pub async fn file(
        &self,
        project: ProjectId,
        view: View,
        sql: &str,
        format: Format,
    ) -> Result<File, QueryError> {
        let sql = sql.to_owned();
        let planning = async move { view.sql(&sql).await };
        if !format.is_streamed() {
            let planned = self.prepared(project, planning).await?;
            let rows = self.gathered(planned).await.map_err(QueryError::of_query)?;
            let pool = Arc::clone(&self.shared.pools.rows);
            // Writing a long one would block the caller's thread for others.
            let written = self.on_a_thread(move |_| Ok(rows.written(format, &pool))).await?;
            return written.map(File::Whole);
        }
        self.encoded(self.rows(project, planning).await?, format).begun().await
    }

    /// The rows of a plan of `project` as `format`, in a slot of SQL; see [`Engine::file`].
    ///
    /// # Errors
    ///
    /// See [`QueryError`]; further errors may come with the parts of a long file.
    pub async fn file_of(
        &self,
        project: ProjectId,
        rows: DataFrame,
        format: Format,
    ) -> Result<File, QueryError> {
        let answer = self.rows(project, std::future::ready(Ok(rows))).await?;
        self.encoded(answer, format).begun().await
    }

    /// Runs `work` on a thread that may wait for the disk, and returns the file whose parts it sends. It notices by a
    /// failed send that the reader is gone, or that `query-stream-timeout` is over.
    ///
    /// # Errors
    ///
    /// Too many queries are running, the file is a long one of which too many are being read, or those that `work`
    /// sends.
    pub async fn produced(
        &self,
        work: impl FnOnce(&mpsc::Sender<Result<Bytes, QueryError>>) + Send + 'static,
    ) -> Result<File, QueryError> {
        let permit = self.permit().await?;
        let (parts, mut made) = mpsc::channel(PIECES_QUEUE);
        let thread = self.shared.runtime.spawn_blocking(move || {
            let _permit = permit;
            work(&parts);
        });
        let (sender, rest) = mpsc::channel(1);
        let limit = self.shared.settings.query_stream_timeout;
        let passing = async move {
            let all = async {
                while let Some(part) = made.recv().await {
                    // A reader that hung up drops this task.
                    let _ = sender.send(part).await;
                }
            };
            let outcome = match timeout(limit, all).await {
                Ok(()) => thread.await.map_err(broken_down),
                Err(_) => Err(QueryError::Timeout(limit)),
            };
            // The thread ends, whether the error is read or not.
            drop(made);
            if let Err(error) = outcome {
                let _ = sender.send(Err(error)).await;
            }
        };
        let task = spawned(&self.shared.runtime, passing);
        match (Pieces { first: None, rest, task: Some(task), _long: None }).begun().await? {
            // If it is refused, the parts are dropped, and with them the thread ends.
            File::Long(pieces) => {
                Ok(File::Long(Pieces { _long: Some(self.long_permit()?), ..pieces }))
            }
            whole => Ok(whole),
        }
    }

    /// The rows of `answer` in `format`, which are encoded as fast as the reader takes them.
    fn encoded(&self, answer: Answer, format: Format) -> Pieces {
        let (sender, rest) = mpsc::channel(PIECES_QUEUE);
        let task = spawned(&self.shared.runtime, encode(answer, format, self.rows_max(), sender));
        Pieces { first: None, rest, task: Some(task), _long: None }
    }
}

/// Passes the file on until its end, or an error.
async fn encode(
    mut answer: Answer,
    format: Format,
    short_rows: usize,
    sender: mpsc::Sender<Result<Bytes, QueryError>>,
) {
    let encoded = encode_all(&mut answer, format, short_rows, &sender).await;
    // The reader may never take what is left for it.
    drop(answer);
    if let Err(error) = encoded {
        // One that is gone needs no error.
        let _ = sender.send(Err(error)).await;
    }
}

async fn encode_all(
    answer: &mut Answer,
    format: Format,
    short_rows: usize,
    sender: &mpsc::Sender<Result<Bytes, QueryError>>,
) -> Result<(), QueryError> {
    let mut encoder = Encoder::new(format, &answer.schema).map_err(formless)?;
    let (mut rows, mut bytes) = (0_usize, 0_usize);
    while let Some(batch) = answer.next().await {
        let batch = batch?;
        rows = rows.saturating_add(batch.num_rows());
        for piece in encoder::pieces(&batch) {
            encoder.write(&piece).map_err(formless)?;
            if rows > short_rows || bytes.saturating_add(encoder.len()) > WHOLE_BYTES_MAX {
                answer.extend()?;
            }
            if encoder.len() >= PIECE_BYTES {
                let piece = encoder.take();
                bytes = bytes.saturating_add(piece.len());
                pass(piece, answer, sender).await?;
            }
        }
    }
    let last = encoder.finish().map_err(formless)?;
    if bytes.saturating_add(last.len()) > WHOLE_BYTES_MAX {
        answer.extend()?;
    }
    pass(last, answer, sender).await
}

/// Sends a part, within the time of the query.
async fn pass(
    piece: Vec<u8>,
    answer: &Answer,
    sender: &mpsc::Sender<Result<Bytes, QueryError>>,
) -> Result<(), QueryError> {
    let gone = |_| QueryError::Unavailable("the reader is gone");
    if let Err(full) = sender.try_send(Ok(piece.into())) {
        tokio::select! {
            sent = sender.send(full.into_inner()) => sent.map_err(gone)?,
            limit = answer.over() => return Err(QueryError::Timeout(limit)),
        }
    }
    // Encoding takes a while, and other queries run on the same threads.
    tokio::task::yield_now().await;
    Ok(())
}

/// Writing to memory fails only for values without a form in the format, such as a list in CSV.
fn formless(error: impl std::fmt::Display) -> QueryError {
    QueryError::Invalid(format!("the answer has no form in this format: {error}"))
}

impl GatheredRows {
    fn written(self, format: Format, pool: &Arc<dyn MemoryPool>) -> Result<Bytes, QueryError> {
        let mut text = Text::new(pool, self.size.bytes(format))?;
        match rows::write(format, &self.schema, &self.batches, &mut text) {
            Ok(()) => Ok(text.into_bytes()),
            Err(_) if text.is_exhausted() => Err(too_long()),
            Err(error) => Err(formless(error)),
        }
    }
}
