//! Messages of clients: the first one of a connection ([`Opening`]), and all others ([`Message`]). Their bodies are read
//! from untrusted bytes, of which the caller has bounded the length.

use bytes::Bytes;

/// Code of a request for TLS, in place of a protocol version.
const TLS: i32 = 80_877_103;
/// Code of a request for encryption by GSSAPI.
const GSS: i32 = 80_877_104;
/// Code of a request to cancel.
const CANCEL: i32 = 80_877_102;
/// The major version of the protocol.
const VERSION: i32 = 3;

/// The newest version of the protocol that is spoken: 3.0.
pub(crate) const PROTOCOL: i32 = VERSION << 16;

/// What the names of options of the protocol begin with, among the parameters.
pub(crate) const OPTION: &str = "_pq_.";

/// A message that is not as the protocol says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of the client is malformed")]
pub(crate) struct Malformed;

/// The first message of a connection, which has no type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// TLS is to begin.
    Tls,
    /// Encryption by GSSAPI is to begin.
    Gss,
    /// The statement that another connection runs is to be cancelled.
    Cancel(CancelKey),
    /// A session is to begin.
    Startup {
        /// Minor version of the protocol.
        minor: u16,
        /// Names and values of parameters.
        parameters: Vec<(String, String)>,
    },
}

/// What identifies a session towards a request to cancel its statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CancelKey {
    /// Number of the session.
    pub process: i32,
    /// Secret of the session.
    pub secret: i32,
}

impl Opening {
    /// Reads the body, without its length.
    pub(crate) fn read(body: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(body);
        match fields.i32()? {
            TLS => Ok(Self::Tls),
            GSS => Ok(Self::Gss),
            CANCEL => {
                let (process, secret) = (fields.i32()?, fields.i32()?);
                Ok(Self::Cancel(CancelKey { process, secret }))
            }
            version if version >> 16 == VERSION => {
                let minor = u16::try_from(version & 0xffff).map_err(|_| Malformed)?;
                let mut parameters = Vec::new();
                loop {
                    let name = fields.text()?;
                    if name.is_empty() {
                        return Ok(Self::Startup { minor, parameters });
                    }
                    parameters.push((name, fields.text()?));
                }
            }
            _ => Err(Malformed),
        }
    }
}

/// The first message and the password of a client, for another server to which its connection is passed on: in the newest
/// version of the protocol, and without the options that the client was told not to use.
pub(crate) fn first_messages(parameters: &[(String, String)], password: &str) -> Vec<u8> {
    let mut body = PROTOCOL.to_be_bytes().to_vec();
    for (name, value) in parameters.iter().filter(|(name, _)| !name.starts_with(OPTION)) {
        for text in [name, value] {
            body.extend_from_slice(text.as_bytes());
            body.push(0);
        }
    }
    body.push(0);
    let length = |bytes: usize| u32::try_from(bytes.saturating_add(4)).unwrap_or(u32::MAX);
    let mut sent = length(body.len()).to_be_bytes().to_vec();
    sent.extend(body);
    sent.push(b'p');
    sent.extend(length(password.len().saturating_add(1)).to_be_bytes());
    sent.extend_from_slice(password.as_bytes());
    sent.push(0);
    sent
}

/// How a value is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    /// As text.
    #[default]
    Text,
    /// In the binary form of its type.
    Binary,
}

/// Formats of several values: none, one for all, or one of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Formats(pub(crate) Vec<Format>);

impl Formats {
    /// The format of the value at an index.
    pub(crate) fn of(&self, at: usize) -> Format {
        match self.0.as_slice() {
            [] => Format::Text,
            [only] => *only,
            each => each.get(at).copied().unwrap_or_default(),
        }
    }
}

/// What is described or closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A prepared statement, by its name.
    Statement(String),
    /// A portal, by its name.
    Portal(String),
}

/// Values for a prepared statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bind {
    /// Name of the portal to make.
    pub(crate) portal: String,
    /// Name of the statement.
    pub(crate) statement: String,
    /// Formats of the values.
    pub(crate) formats: Formats,
    /// The values; `None` is NULL.
    pub(crate) values: Vec<Option<Bytes>>,
    /// Formats of the columns of the result.
    pub(crate) results: Formats,
}

/// A message with a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// The answer to a request for a password.
    Password(String),
    /// Statements of the simple protocol.
    Query(String),
    /// A statement to prepare.
    Parse {
        /// Its name.
        name: String,
        /// Its text.
        sql: String,
        /// Types of its parameters, by their numbers; 0 is any.
        types: Vec<u32>,
    },
    /// Values for a prepared statement.
    Bind(Bind),
    /// A request for types.
    Describe(Target),
    /// A request for rows of a portal.
    Execute {
        /// Its name.
        portal: String,
        /// Most rows; 0 is all.
        rows_max: u32,
    },
    /// A statement or portal that is needed no more.
    Close(Target),
    /// A request to send what is buffered.
    Flush,
    /// The end of a series of messages.
    Sync,
    /// The end of the session.
    Terminate,
    /// A part of data for `COPY FROM`, or its end, which may follow a refused one.
    CopyIn,
}

impl Message {
    /// Reads the body of a message of type `tag`, without its length.
    pub(crate) fn read(tag: u8, body: &Bytes) -> Result<Self, Malformed> {
        let mut fields = Fields(body);
        let message = match tag {
            b'p' => Self::Password(fields.text()?),
            b'Q' => Self::Query(fields.text()?),
            b'P' => {
                let (name, sql) = (fields.text()?, fields.text()?);
                let types = fields.list(Fields::u32)?;
                Self::Parse { name, sql, types }
            }
            b'B' => Self::Bind(Bind {
                portal: fields.text()?,
                statement: fields.text()?,
                formats: Formats(fields.list(Fields::format)?),
                values: fields.list(|fields| fields.value(body))?,
                results: Formats(fields.list(Fields::format)?),
            }),
            b'D' => Self::Describe(fields.target()?),
            b'C' => Self::Close(fields.target()?),
            b'E' => {
                let (portal, rows_max) = (fields.text()?, fields.i32()?);
                // A negative number means all rows, too.
                Self::Execute { portal, rows_max: u32::try_from(rows_max).unwrap_or(0) }
            }
            b'H' => Self::Flush,
            b'S' => Self::Sync,
            b'X' => Self::Terminate,
            b'd' | b'c' | b'f' => return Ok(Self::CopyIn),
            _ => return Err(Malformed),
        };
        if fields.0.is_empty() { Ok(message) } else { Err(Malformed) }
    }
}

/// The rest of a body.
struct Fields<'b>(&'b [u8]);

impl<'b> Fields<'b> {
    fn take(&mut self, length: usize) -> Result<&'b [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed)
    }

    fn i32(&mut self) -> Result<i32, Malformed> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// A text up to its zero byte.
    fn text(&mut self) -> Result<String, Malformed> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or(Malformed)?;
        let text = self.take(end)?;
        self.take(1)?;
        String::from_utf8(text.to_vec()).map_err(|_| Malformed)
    }

    /// Items after their number.
    fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = u16::from_be_bytes(self.array()?);
        // The number is not believed: an item that is not there ends it.
        (0..count).map(|_| item(self)).collect()
    }

    fn format(&mut self) -> Result<Format, Malformed> {
        match self.array()? {
            [0, 0] => Ok(Format::Text),
            [0, 1] => Ok(Format::Binary),
            _ => Err(Malformed),
        }
    }

    /// A value after its length, as a part of `body`; -1 is NULL.
    fn value(&mut self, body: &Bytes) -> Result<Option<Bytes>, Malformed> {
        match self.i32()? {
            -1 => Ok(None),
            length => {
                let length = usize::try_from(length).map_err(|_| Malformed)?;
                let value = self.take(length)?;
                Ok(Some(body.slice_ref(value)))
            }
        }
    }

    fn target(&mut self) -> Result<Target, Malformed> {
        match self.array()? {
            [b'S'] => Ok(Target::Statement(self.text()?)),
            [b'P'] => Ok(Target::Portal(self.text()?)),
            _ => Err(Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{Bind, CancelKey, Format, Formats, Malformed, Message, Opening, Target};

    #[test]
    fn openings_are_read() {
        let startup = |minor: u8, rest: &[u8]| [&[0, 3, 0, minor][..], rest].concat();
        let parameters = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
        };
        for (body, expected) in [
            (80_877_103_i32.to_be_bytes().to_vec(), Ok(Opening::Tls)),
            (80_877_104_i32.to_be_bytes().to_vec(), Ok(Opening::Gss)),
            (
                [80_877_102_i32, 7, -8].iter().flat_map(|own| own.to_be_bytes()).collect(),
                Ok(Opening::Cancel(CancelKey { process: 7, secret: -8 })),
            ),
            (80_877_102_i32.to_be_bytes().to_vec(), Err(Malformed)),
            (
                startup(2, b"user\0a\0database\x001\0\0"),
                Ok(Opening::Startup {
                    minor: 2,
                    parameters: parameters(&[("user", "a"), ("database", "1")]),
                }),
            ),
            (startup(0, b"\0"), Ok(Opening::Startup { minor: 0, parameters: Vec::new() })),
            (startup(0, b""), Err(Malformed)),
            (startup(0, b"user\0"), Err(Malformed)),
            (startup(0, b"user\0\xff\0\0"), Err(Malformed)),
            (vec![0, 2, 0, 0, 0], Err(Malformed)),
            (vec![0, 3], Err(Malformed)),
        ] {
            assert_eq!(Opening::read(&body), expected, "{body:?}");
        }
    }

    #[test]
    fn messages_are_read() {
        let text = str::to_owned;
        for (tag, body, expected) in [
            (b'p', &b"key\0"[..], Ok(Message::Password(text("key")))),
            (b'Q', b"SELECT 1\0", Ok(Message::Query(text("SELECT 1")))),
            (b'Q', b"SELECT 1", Err(Malformed)),
            (b'Q', b"SELECT 1\0x", Err(Malformed)),
            (
                b'P',
                b"s\0SELECT $1\0\x00\x02\x00\x00\x00\x14\x00\x00\x00\x00",
                Ok(Message::Parse { name: text("s"), sql: text("SELECT $1"), types: vec![20, 0] }),
            ),
            (b'P', b"s\0SELECT $1\0\xff\xff", Err(Malformed)),
            (b'P', b"s\0SELECT $1\0", Err(Malformed)),
            (b'D', b"Sx\0", Ok(Message::Describe(Target::Statement(text("x"))))),
            (b'C', b"P\0", Ok(Message::Close(Target::Portal(String::new())))),
            (b'C', b"Q\0", Err(Malformed)),
            (b'E', b"p\0\x00\x00\x00\x05", Ok(Message::Execute { portal: text("p"), rows_max: 5 })),
            (b'E', b"p\0\xff\xff\xff\xff", Ok(Message::Execute { portal: text("p"), rows_max: 0 })),
            (b'H', b"", Ok(Message::Flush)),
            (b'S', b"", Ok(Message::Sync)),
            (b'X', b"", Ok(Message::Terminate)),
            (b'd', b"anything", Ok(Message::CopyIn)),
            (b'?', b"", Err(Malformed)),
        ] {
            let found = Message::read(tag, &Bytes::from_static(body));
            assert_eq!(found, expected, "{} {body:?}", char::from(tag));
        }
    }

    /// Goal: no part of a message is believed. Method: every prefix of one with every kind of field.
    #[test]
    fn values_are_within_their_message() {
        let whole: &[u8] = b"p\0s\0\x00\x02\x00\x00\x00\x01\x00\x03\x00\x00\x00\x02ab\xff\xff\xff\xff\x00\x00\x00\x00\x00\x01\x00\x01";
        let expected = Bind {
            portal: "p".to_owned(),
            statement: "s".to_owned(),
            formats: Formats(vec![Format::Text, Format::Binary]),
            values: vec![Some(Bytes::from_static(b"ab")), None, Some(Bytes::new())],
            results: Formats(vec![Format::Binary]),
        };
        let found = Message::read(b'B', &Bytes::from_static(whole));
        assert_eq!(found, Ok(Message::Bind(expected)));
        for end in 0..whole.len() {
            let cut = Bytes::copy_from_slice(&whole[..end]);
            assert_eq!(Message::read(b'B', &cut), Err(Malformed), "{end}");
        }
        let long = [&b"p\0s\0\x00\x00\x00\x01\x7f\xff\xff\xff"[..], &[0; 8]].concat();
        assert_eq!(Message::read(b'B', &Bytes::from(long)), Err(Malformed));
    }

    #[test]
    fn formats_are_for_all_or_for_each() {
        let formats = |own: &[Format]| {
            let own = Formats(own.to_vec());
            [own.of(0), own.of(1), own.of(2)]
        };
        use Format::{Binary, Text};
        assert_eq!(formats(&[]), [Text, Text, Text]);
        assert_eq!(formats(&[Binary]), [Binary, Binary, Binary]);
        assert_eq!(formats(&[Text, Binary]), [Text, Binary, Text]);
    }
}
