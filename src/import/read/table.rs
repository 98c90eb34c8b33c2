//! CSV: a header, and records with as many fields.

use std::io::BufRead;

use csv::{ByteRecord, ReaderBuilder, StringRecord};

use crate::read::budget::Allowance;
use crate::read::rows::{ROW_MAX_BYTES, Row, Rows};
use crate::refusal::{Cause, ReadError, Refusal};

/// Columns of a file.
const COLUMNS_MAX: usize = 10_000;
/// Buffer of the reader of records, which is filled as a whole.
const BUFFER_BYTES: usize = 64 << 10;

/// Reads records. One that has another number of fields than the header is refused; one without an end ends the file.
pub(super) fn read(
    mut reader: Box<dyn BufRead + '_>,
    rows: &mut Rows<'_, '_>,
) -> Result<(), ReadError> {
    let start = reader.fill_buf().map_err(|error| rows.error(error))?;
    let delimiter = delimiter(start);
    let (limited, left) = Allowance::new(reader);
    let mut records = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .delimiter(delimiter)
        .buffer_capacity(BUFFER_BYTES)
        .from_reader(limited);
    let mut record = ByteRecord::new();
    let mut names: Option<Vec<String>> = None;
    loop {
        left.set(ROW_MAX_BYTES);
        let is_read = records.read_byte_record(&mut record);
        if !is_read.map_err(|error| broken(rows, error))? {
            return Ok(());
        }
        let Some(names) = &names else {
            names = Some(header(&record, rows)?);
            continue;
        };
        if !pass(names, &record, rows) {
            return Ok(());
        }
    }
}

/// Passes a record on. Whether there is to be another one.
fn pass(names: &[String], record: &ByteRecord, rows: &mut Rows<'_, '_>) -> bool {
    let line = record.position().map(csv::Position::line);
    if record.len() == names.len() {
        match StringRecord::from_byte_record(record.clone()) {
            Ok(record) => rows.row(line, Row::Record(names, &record)),
            Err(_) => refuse(rows, line, record, "it is not UTF-8".to_owned()),
        }
    } else {
        let reason = format!("it has {} fields, and the header {}", record.len(), names.len());
        refuse(rows, line, record, reason)
    }
}

fn refuse(rows: &mut Rows<'_, '_>, line: Option<u64>, record: &ByteRecord, reason: String) -> bool {
    let fields: Vec<&[u8]> = record.iter().collect();
    let text = fields.join(&b',');
    rows.row(line, Row::Unreadable(&text, Refusal::new(reason)))
}

fn header(record: &ByteRecord, rows: &Rows<'_, '_>) -> Result<Vec<String>, ReadError> {
    if record.len() > COLUMNS_MAX {
        let message = format!("the header has more than {COLUMNS_MAX} columns");
        return Err(rows.error(Cause::Content(message)));
    }
    let names = record.iter().map(|name| String::from_utf8_lossy(name).trim().to_owned());
    Ok(names.collect())
}

fn broken(rows: &Rows<'_, '_>, error: csv::Error) -> ReadError {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => rows.error(error),
        other => rows.error(Cause::Content(format!("the CSV cannot be read: {other:?}"))),
    }
}

/// What separates the fields of the header.
fn delimiter(start: &[u8]) -> u8 {
    let header = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let count = |delimiter: u8| header.iter().filter(|byte| **byte == delimiter).count();
    let found = [b',', b'\t', b';'].into_iter().max_by_key(|delimiter| {
        // Of equally many the first.
        (count(*delimiter), *delimiter == b',')
    });
    found.unwrap_or(b',')
}
