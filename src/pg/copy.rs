//! `COPY (...) TO STDOUT`: its options, and the rows in its three formats.

use crate::error::Failure;
use crate::lexer::{Lexeme, Token};
use crate::statement::malformed;
use crate::values::Cells;
use crate::wire::backend::Output;
use crate::wire::frontend::Format;

/// A query whose rows are copied, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    /// The query.
    pub(crate) sql: String,
    /// How rows are written.
    pub(crate) layout: Layout,
}

/// How rows are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Tabs between values, and backslashes.
    Text(Signs),
    /// Comma-separated values.
    Csv(Signs, Quotes),
    /// PostgreSQL's own.
    Binary,
}

/// Signs of the formats of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signs {
    delimiter: u8,
    null: String,
    has_header: bool,
}

/// Signs of CSV.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Quotes {
    quote: u8,
    escape: u8,
    /// The columns of which values are always quoted.
    forced: Forced,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Forced {
    #[default]
    None,
    All,
    Named(Vec<String>),
}

/// How a file in the binary format begins: its signature, flags, and no extension.
const BEGIN: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// Reads what follows `COPY`.
pub(crate) fn copy(sql: &str, rest: &[Token<'_>]) -> Result<Copy, Failure> {
    let (query, rest) = source(sql, rest)?;
    let rest = match rest {
        [to, out, rest @ ..] if to.is("TO") && out.is("STDOUT") => rest,
        [to, ..] if to.is("TO") => {
            let why = "COPY writes to STDOUT alone, not to files and programs of the server";
            return Err(Failure::new("42501", why));
        }
        [from, ..] if from.is("FROM") => return Err(Failure::read_only("COPY FROM")),
        other => return Err(malformed(other.first())),
    };
    let layout = Options::read(rest)?.layout()?;
    Ok(Copy { sql: query, layout })
}

/// The query: what is in parentheses, or all rows of a table.
fn source<'t, 's>(sql: &str, rest: &'t [Token<'s>]) -> Result<(String, &'t [Token<'s>]), Failure> {
    let between = |from: usize, to: usize| sql.get(from..to).unwrap_or_default().trim();
    let closing = |rest: &[Token<'_>]| {
        let mut depth = 0_usize;
        rest.iter().position(|own| {
            if own.is_sign("(") {
                depth = depth.saturating_add(1);
            } else if own.is_sign(")") {
                depth = depth.saturating_sub(1);
            }
            depth == 0
        })
    };
    let first = rest.first().ok_or_else(|| malformed(None))?;
    let behind = |at: usize| rest.get(at.saturating_add(1)..).unwrap_or_default();
    if first.is_sign("(") {
        let end = closing(rest).ok_or_else(|| malformed(None))?;
        let last = rest.get(end).map_or(sql.len(), |own| own.start);
        return Ok((between(first.end(), last).to_owned(), behind(end)));
    }
    let is_name = |own: &Token<'_>| {
        own.name().is_some() && !own.is("TO") && !own.is("FROM") || own.is_sign(".")
    };
    let names = rest.iter().take_while(|own| is_name(own)).count();
    let last =
        names.checked_sub(1).and_then(|at| rest.get(at)).ok_or_else(|| malformed(Some(first)))?;
    let table = between(first.start, last.end());
    let after = rest.get(names..).unwrap_or_default();
    match after.first() {
        Some(open) if open.is_sign("(") => {
            let end = closing(after).ok_or_else(|| malformed(None))?;
            let close = after.get(end).map_or(sql.len(), |own| own.start);
            let columns = between(open.end(), close);
            let rest = after.get(end.saturating_add(1)..).unwrap_or_default();
            Ok((format!("SELECT {columns} FROM {table}"), rest))
        }
        _ => Ok((format!("SELECT * FROM {table}"), after)),
    }
}

/// Options as they were given.
#[derive(Debug, Default)]
struct Options {
    format: Option<String>,
    delimiter: Option<String>,
    null: Option<String>,
    has_header: bool,
    quote: Option<String>,
    escape: Option<String>,
    forced: Forced,
}

impl Options {
    /// Reads options in parentheses, or the older ones without.
    fn read(rest: &[Token<'_>]) -> Result<Self, Failure> {
        let rest = match rest {
            [with, rest @ ..] if with.is("WITH") => rest,
            rest => rest,
        };
        let mut options = Self::default();
        match rest {
            [open, inner @ .., close] if open.is_sign("(") && close.is_sign(")") => {
                let mut begin = 0;
                let mut depth = 0_usize;
                for (at, own) in inner.iter().enumerate() {
                    match own.text {
                        "(" if own.lexeme == Lexeme::Sign => depth = depth.saturating_add(1),
                        ")" if own.lexeme == Lexeme::Sign => depth = depth.saturating_sub(1),
                        "," if own.lexeme == Lexeme::Sign && depth == 0 => {
                            options.take(inner.get(begin..at).unwrap_or_default())?;
                            begin = at.saturating_add(1);
                        }
                        _ => {}
                    }
                }
                options.take(inner.get(begin..).unwrap_or_default())?;
            }
            rest => options.take_older(rest)?,
        }
        Ok(options)
    }

    fn take(&mut self, option: &[Token<'_>]) -> Result<(), Failure> {
        let (name, rest) = option.split_first().ok_or_else(|| malformed(None))?;
        let value = || rest.first().map(Token::value).ok_or_else(|| malformed(None));
        match name.text.to_uppercase().as_str() {
            "FORMAT" => self.format = Some(value()?.to_lowercase()),
            "DELIMITER" => self.delimiter = Some(value()?),
            "NULL" => self.null = Some(value()?),
            "QUOTE" => self.quote = Some(value()?),
            "ESCAPE" => self.escape = Some(value()?),
            "HEADER" => {
                let value = rest.first().map(|own| own.value().to_lowercase());
                let is_off =
                    value.is_some_and(|own| matches!(&*own, "false" | "off" | "0" | "f" | "no"));
                self.has_header = !is_off;
            }
            "FORCE_QUOTE" => self.forced = Forced::of(rest),
            "ENCODING" => check_encoding(&value()?)?,
            _ => {
                let why = format!("COPY has no option {} here", name.text);
                return Err(Failure::unsupported(why));
            }
        }
        Ok(())
    }

    fn take_older(&mut self, mut rest: &[Token<'_>]) -> Result<(), Failure> {
        while let Some((name, mut more)) = rest.split_first() {
            if let [as_, behind @ ..] = more
                && as_.is("AS")
            {
                more = behind;
            }
            let mut value = || {
                let (value, behind) = more.split_first().ok_or_else(|| malformed(None))?;
                more = behind;
                Ok::<_, Failure>(value.value())
            };
            match name.text.to_uppercase().as_str() {
                own @ ("CSV" | "BINARY" | "TEXT") => self.format = Some(own.to_lowercase()),
                "HEADER" => self.has_header = true,
                "DELIMITER" | "DELIMITERS" => self.delimiter = Some(value()?),
                "NULL" => self.null = Some(value()?),
                "QUOTE" => self.quote = Some(value()?),
                "ESCAPE" => self.escape = Some(value()?),
                "ENCODING" => check_encoding(&value()?)?,
                "FORCE" if more.first().is_some_and(|own| own.is("QUOTE")) => {
                    let names = more.get(1..).unwrap_or_default();
                    let is_listed = |own: &&Token<'_>| {
                        own.is_sign(",") || own.is_sign("*") || own.name().is_some()
                    };
                    let count = names.iter().take_while(is_listed).count();
                    self.forced = Forced::of(names.get(..count).unwrap_or_default());
                    more = names.get(count..).unwrap_or_default();
                }
                _ => return Err(malformed(Some(name))),
            }
            rest = more;
        }
        Ok(())
    }

    fn layout(self) -> Result<Layout, Failure> {
        let one = |name: &str, value: Option<String>, usual: u8| match value
            .as_deref()
            .map(str::as_bytes)
        {
            None => Ok(usual),
            Some([byte]) if !matches!(byte, b'\n' | b'\r') => Ok(*byte),
            Some(_) => Err(Failure::new(
                "22023",
                format!("COPY {name} must be a single one-byte character"),
            )),
        };
        let is_csv = self.format.as_deref() == Some("csv");
        let quote = one("QUOTE", self.quote, b'"')?;
        let quotes =
            Quotes { quote, escape: one("ESCAPE", self.escape, quote)?, forced: self.forced };
        let delimiter = one("DELIMITER", self.delimiter, if is_csv { b',' } else { b'\t' })?;
        let null = self.null.unwrap_or_else(|| if is_csv { "" } else { "\\N" }.to_owned());
        let signs = Signs { delimiter, null, has_header: self.has_header };
        match self.format.as_deref() {
            None | Some("text") => Ok(Layout::Text(signs)),
            Some("csv") => Ok(Layout::Csv(signs, quotes)),
            Some("binary") => Ok(Layout::Binary),
            Some(other) => {
                Err(Failure::new("22023", format!("COPY format \"{other}\" not recognized")))
            }
        }
    }
}

impl Forced {
    fn of(names: &[Token<'_>]) -> Self {
        match names.iter().any(|own| own.is_sign("*")) {
            true => Self::All,
            false => Self::Named(names.iter().filter_map(Token::name).collect()),
        }
    }
}

fn check_encoding(name: &str) -> Result<(), Failure> {
    let plain = name.to_lowercase().replace(['-', '_'], "");
    match plain.as_str() {
        "utf8" | "unicode" => Ok(()),
        _ => Err(Failure::unsupported("texts are in UTF-8 only")),
    }
}

impl Layout {
    /// The format of all values.
    pub(crate) fn format(&self) -> Format {
        if *self == Self::Binary { Format::Binary } else { Format::Text }
    }

    /// Sends what comes before the rows.
    pub(crate) fn begin(&self, names: &[&str], out: &mut Output) {
        out.copy_out(self.format(), names.len());
        let header = |signs: &Signs, write: &dyn Fn(&str, &mut Vec<u8>)| {
            let mut line = Vec::new();
            for (at, name) in names.iter().enumerate() {
                if at > 0 {
                    line.push(signs.delimiter);
                }
                write(name, &mut line);
            }
            line.push(b'\n');
            line
        };
        let begin = match self {
            Self::Text(signs) if signs.has_header => {
                header(signs, &|name, line| escaped(name.as_bytes(), signs, line))
            }
            Self::Csv(signs, quotes) if signs.has_header => header(signs, &|name, line| {
                let must = quotes.must_quote(name.as_bytes(), signs);
                quotes.put(name.as_bytes(), must, line);
            }),
            _ => return,
        };
        out.message(b'd', |body| body.extend(begin));
    }

    /// Sends a row. In the binary format the first one comes with the beginning of the file, in one message: some clients
    /// take it so.
    pub(crate) fn row(
        &self,
        (names, is_first): (&[&str], bool),
        cells: &[Cells],
        row: usize,
        out: &mut Output,
    ) {
        out.message(b'd', |body| match self {
            Self::Binary => {
                if is_first {
                    body.extend(BEGIN);
                }
                body.extend(u16::try_from(cells.len()).unwrap_or(u16::MAX).to_be_bytes());
                cells.iter().for_each(|own| own.put(row, Format::Binary, body));
            }
            Self::Text(signs) => {
                signs.line(cells, row, body, |_, value, body| escaped(value, signs, body))
            }
            Self::Csv(signs, quotes) => signs.line(cells, row, body, |at, value, body| {
                let is_forced = match &quotes.forced {
                    Forced::None => false,
                    Forced::All => true,
                    Forced::Named(own) => {
                        names.get(at).is_some_and(|name| own.iter().any(|own| own == name))
                    }
                };
                let must = is_forced || quotes.must_quote(value, signs);
                quotes.put(value, must, body);
            }),
        });
    }

    /// Sends what comes behind the rows, of which there may be none.
    pub(crate) fn end(&self, is_empty: bool, out: &mut Output) {
        if *self == Self::Binary {
            out.message(b'd', |body| {
                if is_empty {
                    body.extend(BEGIN);
                }
                body.extend((-1_i16).to_be_bytes());
            });
        }
        out.copy_done();
    }
}

impl Signs {
    fn line(
        &self,
        cells: &[Cells],
        row: usize,
        body: &mut Vec<u8>,
        mut write: impl FnMut(usize, &[u8], &mut Vec<u8>),
    ) {
        let mut value = Vec::new();
        for (at, own) in cells.iter().enumerate() {
            if at > 0 {
                body.push(self.delimiter);
            }
            if own.is_null(row) {
                body.extend(self.null.as_bytes());
                continue;
            }
            value.clear();
            own.text(row, &mut value);
            write(at, &value, body);
        }
        body.push(b'\n');
    }
}

/// Appends a value in the format of text.
fn escaped(value: &[u8], signs: &Signs, out: &mut Vec<u8>) {
    for byte in value {
        let letter = match byte {
            b'\\' => b'\\',
            8 => b'b',
            b'\t' => b't',
            b'\n' => b'n',
            11 => b'v',
            12 => b'f',
            b'\r' => b'r',
            byte if *byte == signs.delimiter => *byte,
            byte => {
                out.push(*byte);
                continue;
            }
        };
        out.extend([b'\\', letter]);
    }
}

impl Quotes {
    fn must_quote(&self, value: &[u8], signs: &Signs) -> bool {
        let is_special = |byte: &u8| {
            *byte == signs.delimiter || *byte == self.quote || matches!(byte, b'\n' | b'\r')
        };
        // A line that is only `\.` would be the end of the data.
        value == signs.null.as_bytes() || value == b"\\." || value.iter().any(is_special)
    }

    fn put(&self, value: &[u8], must: bool, out: &mut Vec<u8>) {
        if !must {
            return out.extend(value);
        }
        out.push(self.quote);
        for byte in value {
            if *byte == self.quote || *byte == self.escape {
                out.push(self.escape);
            }
            out.push(*byte);
        }
        out.push(self.quote);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, StringViewArray};

    use super::{Copy, Layout};
    use crate::error::Failure;
    use crate::statement::Statement;
    use crate::types::Kind;
    use crate::values::Cells;
    use crate::wire::backend::Output;

    fn read(sql: &str) -> Result<Copy, Failure> {
        match Statement::read(sql)? {
            Statement::Copy(copy) => Ok(copy),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn queries_and_tables_are_copied() {
        for (sql, expected) in [
            ("COPY (SELECT ')', (1)) TO STDOUT", "SELECT ')', (1)"),
            ("copy (select 1) to stdout (format binary)", "select 1"),
            ("COPY events TO STDOUT", "SELECT * FROM events"),
            (
                "COPY public.\"events\" (uuid, \"$x\") TO STDOUT",
                "SELECT uuid, \"$x\" FROM public.\"events\"",
            ),
            ("COPY (SELECT 1) TO STDOUT WITH CSV HEADER", "SELECT 1"),
        ] {
            assert_eq!(read(sql).map(|copy| copy.sql), Ok(expected.to_owned()), "{sql}");
        }
        for (sql, code) in [
            ("COPY events FROM STDIN", "25006"),
            ("COPY (SELECT 1) TO '/tmp/x'", "42501"),
            ("COPY (SELECT 1) TO PROGRAM 'x'", "42501"),
            ("COPY (SELECT 1", "42601"),
            ("COPY", "42601"),
            ("COPY (SELECT 1) TO STDOUT (FORMAT parquet)", "22023"),
            ("COPY (SELECT 1) TO STDOUT (DELIMITER 'ab')", "22023"),
            ("COPY (SELECT 1) TO STDOUT (FREEZE)", "0A000"),
            ("COPY (SELECT 1) TO STDOUT WITH nonsense", "42601"),
            ("COPY (SELECT 1) TO STDOUT (ENCODING 'latin1')", "0A000"),
        ] {
            assert_eq!(read(sql).map_err(|error| error.code), Err(code), "{sql}");
        }
    }

    /// Expectations: `COPY` of PostgreSQL 15.
    #[test]
    fn rows_are_written_as_postgresql_does() {
        let number: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
        let texts = [Some("a\tb\\c\n\"d\",e"), Some("")];
        let text: ArrayRef = Arc::new(StringViewArray::from_iter(texts));
        let written = |options: &str| {
            let sql = format!("COPY (SELECT 1) TO STDOUT {options}");
            let layout = read(&sql).unwrap().layout;
            let cells = [(Kind::Int8, &number), (Kind::Text, &text)]
                .map(|(kind, column)| Cells::new(kind, column).unwrap());
            let mut out = Output::default();
            layout.begin(&["n", "t"], &mut out);
            (0..2).for_each(|row| layout.row((&["n", "t"], row == 0), &cells, row, &mut out));
            layout.end(false, &mut out);
            data(&out.0)
        };
        for (options, expected) in [
            ("", "1\ta\\tb\\\\c\\n\"d\",e\n\\N\t\n"),
            ("(DELIMITER ',', NULL 'x', HEADER)", "n,t\n1,a\\tb\\\\c\\n\"d\"\\,e\nx,\n"),
            ("(FORMAT csv)", "1,\"a\tb\\c\n\"\"d\"\",e\"\n,\"\"\n"),
            (
                "(FORMAT csv, HEADER true, FORCE_QUOTE (n), QUOTE '''', NULL '-')",
                "n,t\n'1','a\tb\\c\n\"d\",e'\n-,\n",
            ),
            (
                "CSV HEADER DELIMITER AS ';' FORCE QUOTE *",
                "n;t\n\"1\";\"a\tb\\c\n\"\"d\"\",e\"\n;\"\"\n",
            ),
        ] {
            assert_eq!(String::from_utf8(written(options)).unwrap(), expected, "{options}");
        }
        let binary = [
            b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x02\0\0\0\x08\0\0\0\0\0\0\0\x01\0\0\0\x0ba\tb\\c\n\"d\",e".as_slice(),
            b"\0\x02\xff\xff\xff\xff\0\0\0\0\xff\xff",
        ]
        .concat();
        assert_eq!(
            String::from_utf8_lossy(&written("(FORMAT binary)")),
            String::from_utf8_lossy(&binary)
        );
        assert_eq!(Layout::Binary.format(), crate::wire::frontend::Format::Binary);
    }

    /// The data of all messages with it.
    fn data(mut bytes: &[u8]) -> Vec<u8> {
        let mut found = Vec::new();
        while let [tag, a, b, c, d, rest @ ..] = bytes {
            let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize - 4;
            if *tag == b'd' {
                found.extend(&rest[..length]);
            }
            bytes = &rest[length..];
        }
        found
    }
}
