//! Tests of readers: the same rows in every format, and files that are damaged or hostile.

use std::io::Write;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray, TimestampMicrosecondArray};
use flate2::Compression;
use flate2::write::GzEncoder;
use parquet::arrow::ArrowWriter;

use super::{Formats, ROW_MAX_BYTES, Row, Wanted, read};
use crate::files::Input;

const JSON: Wanted = Wanted { formats: Formats::Json, columns: false };
const ANY: Wanted = Wanted { formats: Formats::Any, columns: false };

/// What a file has: each row, or why it is unreadable in brackets; and the error at the end.
fn rows_of(wanted: Wanted, content: &[u8]) -> (Vec<String>, Option<String>) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(content).unwrap();
    let mut found = Vec::new();
    let mut sink = |place: super::RowLocation<'_>, row: Row<'_>| {
        assert_eq!(usize::try_from(place.row).unwrap(), found.len() + 1);
        found.push(match row {
            Row::Json(text) => text.to_owned(),
            Row::Record(names, record) => {
                let fields = names.iter().zip(record.iter());
                fields.map(|(name, field)| format!("{name}={field};")).collect()
            }
            Row::Columns(columns, row) => {
                let a = columns.text(columns.position("a"), row);
                let at = columns.time(columns.position("t"), row);
                format!("{a:?} {at:?} {}", columns.json(row))
            }
            Row::Unreadable(text, reason) => format!("({} bytes: {reason})", text.len()),
        });
        ControlFlow::Continue(())
    };
    let input = Input::File(file.path().to_owned());
    let error = read(&input, wanted, &Arc::default(), &mut sink).err();
    (found, error.map(|error| error.to_string()))
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn zstd(content: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(content, 1).unwrap()
}

fn parquet() -> Vec<u8> {
    let a: ArrayRef = Arc::new(StringArray::from(vec![Some("x"), None]));
    let times = TimestampMicrosecondArray::from(vec![Some(1), Some(2)]).with_timezone("+00:00");
    let batch = RecordBatch::try_from_iter([("a", a), ("t", Arc::new(times) as ArrayRef)]).unwrap();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

#[test]
fn rows_are_the_same_in_every_format() {
    let lines = b"{\"a\":1}\n\r\n{\"a\":[2,\"\\n\"]}\r\n{\"a\":3}".to_vec();
    let trimmed = |rows: Vec<String>| -> Vec<String> {
        rows.into_iter().map(|row| row.trim().to_owned()).collect()
    };
    let expected = ["{\"a\":1}", "{\"a\":[2,\"\\n\"]}", "{\"a\":3}"];
    let halves = lines.split_at(9);
    for (name, content) in [
        ("lines", lines.clone()),
        ("mark", [b"\xef\xbb\xbf".to_vec(), lines.clone()].concat()),
        ("gzip", gzip(&lines)),
        ("members of gzip", [gzip(halves.0), gzip(halves.1)].concat()),
        ("zstd", zstd(&lines)),
        ("frames of zstd", [zstd(halves.0), zstd(halves.1)].concat()),
        ("gzip in zstd", zstd(&gzip(&lines))),
        ("array", b"[{\"a\":1},{\"a\":[2,\"\\n\"]},{\"a\":3}]".to_vec()),
        ("pretty", b" [\n {\"a\":1} ,\n\n{\"a\":[2,\"\\n\"]}\n,{\"a\":3}\n]\n".to_vec()),
        (
            "answer",
            b"{\"next\":null,\"results\":[{\"a\":1},{\"a\":[2,\"\\n\"]},{\"a\":3}]}".to_vec(),
        ),
    ] {
        let (rows, error) = rows_of(ANY, &content);
        assert_eq!(trimmed(rows), expected, "{name}");
        assert_eq!(error, None, "{name}");
    }
    assert_eq!(rows_of(ANY, b""), (vec![], None));
    assert_eq!(rows_of(ANY, b"[]"), (vec![], None));
}

#[test]
fn records_have_the_names_of_their_header() {
    let expected = vec!["a=1;b=x, \"y\"\nz;".to_owned(), "a=;b=2;".to_owned()];
    for content in [
        "a,b\n1,\"x, \"\"y\"\"\nz\"\n,2\n",
        "a\tb\r\n1\t\"x, \"\"y\"\"\nz\"\r\n\t2",
        "\u{feff}a;b\n1;\"x, \"\"y\"\"\nz\"\n;2\n",
    ] {
        assert_eq!(rows_of(ANY, content.as_bytes()), (expected.clone(), None), "{content}");
    }
    let (rows, error) = rows_of(ANY, b"a,b\n1\n1,2\n\xff,2\n1,2,3\n");
    assert_eq!(
        rows,
        [
            "(1 bytes: it has 1 fields, and the header 2)",
            "a=1;b=2;",
            "(3 bytes: it is not UTF-8)",
            "(5 bytes: it has 3 fields, and the header 2)"
        ]
    );
    assert_eq!(error, None);
}

#[test]
fn parquet_is_read_as_columns_and_as_json() {
    let expected = [
        "{\"a\":\"x\",\"t\":\"1970-01-01T00:00:00.000001Z\"}",
        "{\"t\":\"1970-01-01T00:00:00.000002Z\"}",
    ];
    for content in [parquet(), zstd(&parquet()), gzip(&parquet())] {
        assert_eq!(rows_of(JSON, &content), (expected.map(str::to_owned).to_vec(), None));
    }
    let columns = Wanted { columns: true, ..ANY };
    let (rows, error) = rows_of(columns, &parquet());
    assert_eq!(
        rows,
        [
            format!("Some(\"x\") Some(UnixMicros(1)) {}", expected[0]),
            format!("None Some(UnixMicros(2)) {}", expected[1])
        ]
    );
    assert_eq!(error, None);
}

/// What is before the damage is read, and the error says where it is.
#[test]
fn damaged_files_end_in_an_error_after_what_is_whole() {
    let lines: String =
        (0..20_000).map(|number| format!("{{\"a\":\"{}\"}}\n", number * 7919)).collect();
    let lines = lines.as_bytes();
    for (name, content) in [("gzip", gzip(lines)), ("zstd", zstd(lines))] {
        let (rows, error) = rows_of(ANY, &content[..content.len() * 2 / 3]);
        assert!(rows.len() > 1_000 && rows.len() < 20_000, "{name}: {}", rows.len());
        let expected = format!("after row {}", rows.len());
        assert!(error.unwrap().starts_with(&expected), "{name}");
        let mut flipped = content.clone();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 0xff;
        let (rows, error) = rows_of(ANY, &flipped);
        // Of zstd a checksum is optional.
        assert!(name == "zstd" || (error.is_some() && rows.len() < 20_000), "{}", rows.len());
    }
    let whole = parquet();
    for length in [4, 8, 20, whole.len() / 2, whole.len() - 1] {
        assert!(rows_of(ANY, &whole[..length]).1.is_some(), "{length}");
    }
    for place in (4..whole.len()).step_by(3) {
        let mut damaged = whole.clone();
        damaged[place] ^= 0x5a;
        // Whatever happens, it is no panic.
        let _ = rows_of(JSON, &damaged);
    }
    let (rows, error) = rows_of(ANY, b"[{\"a\":1},{\"a\":2},{\"a\"");
    assert_eq!(rows.len(), 2);
    assert_eq!(error.unwrap(), "after row 2: the file ends within its array");
}

#[test]
fn rows_that_are_too_long_or_no_text_are_refused_alone() {
    let long = "x".repeat(ROW_MAX_BYTES + 1);
    let (rows, error) = rows_of(ANY, format!("{{\"a\":1}}\n{{{long}\n{{\"a\":2}}").as_bytes());
    let bytes = ROW_MAX_BYTES + 2;
    let told = format!("(65536 bytes: it has {bytes} bytes, more than {ROW_MAX_BYTES})");
    assert_eq!((rows, error), (vec!["{\"a\":1}".to_owned(), told, "{\"a\":2}".to_owned()], None));
    let (rows, _) = rows_of(ANY, format!("[1,\"{long}\",2]").as_bytes());
    assert_eq!((rows.len(), &*rows[0], &*rows[2]), (3, "1", "2"));
    let (rows, _) = rows_of(ANY, b"{\"a\":1}\n{\"a\":\"\xff\"}\n{\"a\":2}\n");
    assert_eq!(rows[1], "(9 bytes: it is not UTF-8 from byte 6 on)");
    assert_eq!(rows.len(), 3);
    // A record without an end.
    let (rows, error) = rows_of(ANY, format!("a,b\n1,2\n1,\"{long}{long}").as_bytes());
    assert_eq!(rows.len(), 1);
    assert!(error.unwrap().contains("no end within 16 MiB"));
}

#[test]
fn bombs_are_stopped() {
    let mut nested = b"{\"a\":1}\n".to_vec();
    for _ in 0..6 {
        nested = gzip(&nested);
    }
    let (rows, error) = rows_of(ANY, &nested);
    assert_eq!(rows, Vec::<String>::new());
    assert!(error.unwrap().contains("more than 4 layers"));
    // A line of a gibibyte without an end, in 100 kB: it takes no memory, and is refused.
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.write_all(b"{").unwrap();
    let piece = vec![b' '; 1 << 20];
    for _ in 0..1_100 {
        encoder.write_all(&piece).unwrap();
    }
    let (rows, error) = rows_of(ANY, &encoder.finish().unwrap());
    assert!(rows.is_empty() && error.unwrap().contains("more than 2000 times its size"));
}

#[test]
fn reading_stops_when_told_to() {
    for content in [b"{}\n{}\n{}\n".to_vec(), b"[1,2,3]".to_vec(), b"a\n1\n2\n".to_vec(), parquet()]
    {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&content).unwrap();
        let mut count = 0;
        let mut sink = |_: super::RowLocation<'_>, _: Row<'_>| {
            count += 1;
            ControlFlow::Break(())
        };
        let input = Input::File(file.path().to_owned());
        read(&input, ANY, &Arc::default(), &mut sink).unwrap();
        assert_eq!(count, 1);
    }
}
