//! Rows of a result as they come: [`Rows`].

use std::sync::Arc;

use arrow::array::RecordBatch;

use crate::error::Failure;
use crate::types::Kind;
use crate::values::Cells;
use crate::wire::backend::{Output, Told};
use crate::wire::frontend::Formats;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::prepared::ResultColumn;
use weir_query::kernel::run::Answer;
use weir_query::output::format::SEVERAL_TYPES;

/// Rows that are converted at once.
const PIECE_ROWS: usize = 1024;

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    /// Its name.
    pub(crate) name: String,
    /// Its type.
    pub(crate) kind: Kind,
}

/// The columns of a result.
pub(crate) type Columns = Arc<[Column]>;

/// The columns of a plan as PostgreSQL has them.
///
/// # Errors
///
/// A value may have several types.
pub(crate) fn columns(own: &[ResultColumn]) -> Result<Columns, QueryError> {
    if let Some(column) = own.iter().find(|own| own.has_several_types()) {
        let why = format!("the column {} is {SEVERAL_TYPES}", column.name);
        return Err(QueryError::Invalid(why));
    }
    Ok(own.iter().map(|own| Column { name: own.name.clone(), kind: Kind::of(own) }).collect())
}

/// Sends the columns of a result.
pub(crate) fn tell(columns: &Columns, formats: &Formats, out: &mut Output) {
    let told = |(at, own): (usize, &Column)| (at, own.name.clone(), own.kind);
    let told: Vec<_> = columns.iter().enumerate().map(told).collect();
    out.columns(told.iter().map(|(at, name, kind)| Told {
        name,
        kind: *kind,
        format: formats.of(*at),
    }));
}

/// Where rows come from.
#[derive(Debug)]
enum Source {
    /// A query, which runs.
    Query(Box<Answer>),
    /// Rows that are there already.
    Fixed(Option<RecordBatch>),
}

/// Rows of a result, of which some may have been read.
#[derive(Debug)]
pub(crate) struct Rows {
    source: Source,
    /// Its columns.
    pub(crate) columns: Columns,
    /// The batch that is being read, and its next row.
    batch: Option<(RecordBatch, usize)>,
    /// The next rows of it as values.
    cells: Vec<Cells>,
    /// The next of these rows, and their number.
    piece: (usize, usize),
}

impl Rows {
    /// The rows of a query that runs.
    pub(crate) fn of_query(answer: Answer, columns: Columns) -> Self {
        Self::new(Source::Query(Box::new(answer)), columns)
    }

    /// Rows that are there already.
    pub(crate) fn fixed(batch: RecordBatch, columns: Columns) -> Self {
        Self::new(Source::Fixed(Some(batch)), columns)
    }

    fn new(source: Source, columns: Columns) -> Self {
        Self { source, columns, batch: None, cells: Vec::new(), piece: (0, 0) }
    }

    /// Waits for the next row; returns whether there is one. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<bool, Failure> {
        while self.piece.0 >= self.piece.1 {
            let batch = match self.batch.take() {
                Some((batch, next)) if next < batch.num_rows() => (batch, next),
                _ => match &mut self.source {
                    Source::Fixed(batch) => match batch.take() {
                        Some(batch) => (batch, 0),
                        None => return Ok(false),
                    },
                    Source::Query(answer) => match answer.next().await {
                        Some(batch) => (batch?, 0),
                        None => return Ok(false),
                    },
                },
            };
            self.convert(batch)?;
        }
        Ok(true)
    }

    fn convert(&mut self, (batch, next): (RecordBatch, usize)) -> Result<(), Failure> {
        let rows = batch.num_rows().saturating_sub(next).min(PIECE_ROWS);
        let piece = batch.slice(next, rows);
        let cells = self.columns.iter().zip(piece.columns());
        let cells = cells.map(|(own, column)| Cells::new(own.kind, column));
        self.cells = cells.collect::<Result<_, _>>()?;
        if self.cells.len() != self.columns.len() {
            return Err(Failure::new(
                "0A000",
                "the columns of the result have changed; prepare it again",
            ));
        }
        self.piece = (0, rows);
        self.batch = Some((batch, next.saturating_add(rows)));
        Ok(())
    }

    /// Passes the row for which [`Rows::next`] returned true to `take`, with its index.
    pub(crate) fn take(&mut self, take: impl FnOnce(&[Cells], usize)) {
        take(&self.cells, self.piece.0);
        self.piece.0 = self.piece.0.saturating_add(1);
    }

    /// Sends that row.
    pub(crate) fn send(&mut self, formats: &Formats, out: &mut Output) {
        self.take(|cells, row| {
            out.message(b'D', |body| {
                body.extend(u16::try_from(cells.len()).unwrap_or(u16::MAX).to_be_bytes());
                for (at, own) in cells.iter().enumerate() {
                    own.put(row, formats.of(at), body);
                }
            });
        });
    }

    /// Lets the query take as long as its reader, if there are not too many of these already; else it has the time of a
    /// query.
    pub(crate) fn extend(&mut self) {
        if let Source::Query(answer) = &mut self.source
            && let Err(error) = answer.extend()
        {
            tracing::debug!(%error, "a long answer has the time of a query");
        }
    }
}
