//! Messages of the server, appended to the bytes to send.

use crate::error::{Failure, Severity};
use crate::types::Kind;
use crate::wire::frontend::{CancelKey, Format, PROTOCOL};

/// State of the transaction, as clients are told it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transaction {
    /// There is none.
    None,
    /// One is open.
    Open,
    /// One is open in which a statement failed.
    Failed,
}

/// A column as clients are told it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// Its type.
    pub(crate) kind: Kind,
    /// How its values are written.
    pub(crate) format: Format,
}

/// Bytes to send, to which messages are appended.
#[derive(Debug, Default)]
pub(crate) struct Output(pub(crate) Vec<u8>);

impl Output {
    /// Appends a message.
    pub(crate) fn message(&mut self, tag: u8, body: impl FnOnce(&mut Vec<u8>)) {
        self.0.push(tag);
        sized(&mut self.0, 4, body);
    }

    /// Sign-in is complete.
    pub(crate) fn authentication_ok(&mut self) {
        self.message(b'R', |body| body.extend(0_i32.to_be_bytes()));
    }

    /// The password is to be sent in clear.
    pub(crate) fn password_request(&mut self) {
        self.message(b'R', |body| body.extend(3_i32.to_be_bytes()));
    }

    /// The newest minor version of the protocol, and options that are unknown.
    pub(crate) fn negotiate(&mut self, options: &[&str]) {
        self.message(b'v', |body| {
            body.extend(PROTOCOL.to_be_bytes());
            body.extend(i32::try_from(options.len()).unwrap_or(i32::MAX).to_be_bytes());
            options.iter().for_each(|own| text(body, own));
        });
    }

    /// The value of a setting.
    pub(crate) fn parameter(&mut self, name: &str, value: &str) {
        self.message(b'S', |body| {
            text(body, name);
            text(body, value);
        });
    }

    /// What a request to cancel needs.
    pub(crate) fn cancel_key(&mut self, key: CancelKey) {
        self.message(b'K', |body| {
            body.extend(key.process.to_be_bytes());
            body.extend(key.secret.to_be_bytes());
        });
    }

    /// The server waits for a statement.
    pub(crate) fn ready(&mut self, transaction: Transaction) {
        let state = match transaction {
            Transaction::None => b'I',
            Transaction::Open => b'T',
            Transaction::Failed => b'E',
        };
        self.message(b'Z', |body| body.push(state));
    }

    /// A message without a body.
    pub(crate) fn bare(&mut self, tag: u8) {
        self.message(tag, |_| ());
    }

    /// A statement was prepared.
    pub(crate) fn parse_complete(&mut self) {
        self.bare(b'1');
    }

    /// A portal was made.
    pub(crate) fn bind_complete(&mut self) {
        self.bare(b'2');
    }

    /// Something was closed, or did not exist.
    pub(crate) fn close_complete(&mut self) {
        self.bare(b'3');
    }

    /// A statement has no result.
    pub(crate) fn no_data(&mut self) {
        self.bare(b'n');
    }

    /// A portal has more rows.
    pub(crate) fn suspended(&mut self) {
        self.bare(b's');
    }

    /// There was no statement.
    pub(crate) fn empty_query(&mut self) {
        self.bare(b'I');
    }

    /// Types of parameters.
    pub(crate) fn parameters(&mut self, types: &[u32]) {
        self.message(b't', |body| {
            body.extend(count(types.len()).to_be_bytes());
            types.iter().for_each(|own| body.extend(own.to_be_bytes()));
        });
    }

    /// Columns of a result.
    pub(crate) fn columns<'c>(&mut self, columns: impl ExactSizeIterator<Item = Told<'c>>) {
        self.message(b'T', |body| {
            body.extend(count(columns.len()).to_be_bytes());
            for Told { name, kind, format } in columns {
                text(body, name);
                // Of no table, and no column of one.
                body.extend([0; 6]);
                body.extend(kind.oid().to_be_bytes());
                body.extend(kind.size().to_be_bytes());
                // The type has no modifier.
                body.extend((-1_i32).to_be_bytes());
                body.extend(code(format));
            }
        });
    }

    /// A statement is complete.
    pub(crate) fn complete(&mut self, tag: &str) {
        self.message(b'C', |body| text(body, tag));
    }

    /// Rows of COPY follow, of so many columns.
    pub(crate) fn copy_out(&mut self, format: Format, columns: usize) {
        self.message(b'H', |body| {
            body.push(u8::from(format == Format::Binary));
            body.extend(count(columns).to_be_bytes());
            (0..count(columns)).for_each(|_| body.extend(code(format)));
        });
    }

    /// All rows of COPY were sent.
    pub(crate) fn copy_done(&mut self) {
        self.bare(b'c');
    }

    /// An error, or with [`Severity::Notice`] a remark.
    pub(crate) fn failure(&mut self, failure: &Failure) {
        let (tag, severity) = match failure.severity {
            Severity::Notice => (b'N', "NOTICE"),
            Severity::Error => (b'E', "ERROR"),
            Severity::Fatal => (b'E', "FATAL"),
        };
        self.message(tag, |body| {
            for (field, value) in [
                (b'S', severity),
                (b'V', severity),
                (b'C', failure.code),
                (b'M', failure.message.as_str()),
            ] {
                body.push(field);
                text(body, value);
            }
            if let Some(hint) = &failure.hint {
                body.push(b'H');
                text(body, hint);
            }
            body.push(0);
        });
    }
}

/// Appends what `write` appends, after its length in bytes and `own` more.
pub(crate) fn sized(out: &mut Vec<u8>, own: usize, write: impl FnOnce(&mut Vec<u8>)) {
    let begin = out.len();
    out.extend([0; 4]);
    write(out);
    let length = out.len().saturating_sub(begin).saturating_sub(4).saturating_add(own);
    let length = i32::try_from(length).unwrap_or(i32::MAX).to_be_bytes();
    if let Some(place) = out.get_mut(begin..begin.saturating_add(4)) {
        place.copy_from_slice(&length);
    }
}

/// A text and its zero byte; zero bytes within it are left out.
fn text(body: &mut Vec<u8>, text: &str) {
    body.extend(text.bytes().filter(|byte| *byte != 0));
    body.push(0);
}

fn count(items: usize) -> u16 {
    u16::try_from(items).unwrap_or(u16::MAX)
}

fn code(format: Format) -> [u8; 2] {
    match format {
        Format::Text => [0, 0],
        Format::Binary => [0, 1],
    }
}

#[cfg(test)]
mod tests {
    use super::{Output, Told, Transaction};
    use crate::error::Failure;
    use crate::types::Kind;
    use crate::wire::frontend::Format;

    /// Expectations: written by hand after the chapter "Message Formats" of PostgreSQL's manual.
    #[test]
    fn messages_have_their_formats() {
        let made = |make: &dyn Fn(&mut Output)| {
            let mut out = Output::default();
            make(&mut out);
            out.0
        };
        let column = Told { name: "n", kind: Kind::Int8, format: Format::Binary };
        for (found, expected) in [
            (made(&|out| out.authentication_ok()), &b"R\0\0\0\x08\0\0\0\0"[..]),
            (made(&|out| out.password_request()), b"R\0\0\0\x08\0\0\0\x03"),
            // The version is 3.0, as the chapter "Message Flow" has it.
            (made(&|out| out.negotiate(&["_pq_.a"])), b"v\0\0\0\x13\0\x03\0\0\0\0\0\x01_pq_.a\0"),
            (made(&|out| out.parameter("a", "b\0c")), b"S\0\0\0\x09a\0bc\0"),
            (made(&|out| out.ready(Transaction::Failed)), b"Z\0\0\0\x05E"),
            (made(&|out| out.complete("SELECT 1")), b"C\0\0\0\x0dSELECT 1\0"),
            (made(&|out| out.parameters(&[20])), b"t\0\0\0\x0a\0\x01\0\0\0\x14"),
            (
                made(&|out| out.columns([column.clone()].into_iter())),
                b"T\0\0\0\x1a\0\x01n\0\0\0\0\0\0\0\0\0\0\x14\0\x08\xff\xff\xff\xff\0\x01",
            ),
            (made(&|out| out.copy_out(Format::Binary, 2)), b"H\0\0\0\x0b\x01\0\x02\0\x01\0\x01"),
            (
                made(&|out| out.failure(&Failure::new("42601", "no"))),
                b"E\0\0\0\x1eSERROR\0VERROR\0C42601\0Mno\0\0",
            ),
        ] {
            assert_eq!(found, expected, "{}", String::from_utf8_lossy(&found));
        }
    }
}
