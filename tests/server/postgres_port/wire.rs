//! A client of PostgreSQL, written by hand. No expectations here.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longest wait for a message.
const PATIENCE: Duration = Duration::from_secs(90);

/// An error of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) code: String,
    pub(crate) message: String,
}

/// What a statement gave.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// Values as text; `NULL` is written so.
    pub(crate) rows: Vec<Vec<String>>,
    /// Data of COPY.
    pub(crate) copied: Vec<u8>,
    /// Tags of statements.
    pub(crate) tags: Vec<String>,
    /// Whether a portal has more rows.
    pub(crate) is_suspended: bool,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) socket: TcpStream,
    received: Vec<u8>,
    /// What a request to cancel needs.
    pub(crate) cancel_key: (i32, i32),
}

impl Session {
    /// A connection without a session.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).expect("a connection");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        Self { socket, received: Vec::new(), cancel_key: (0, 0) }
    }

    /// A session with a project.
    pub(crate) fn open(address: SocketAddr, key: &str, database: &str) -> Result<Self, Refused> {
        let mut session = Self::connect(address);
        session.start(&[("user", "anyone"), ("database", database)]);
        let (tag, body) = session.message().ok_or_else(gone)?;
        if tag == b'E' {
            return Err(refused(&body));
        }
        assert_eq!((tag, &body[..]), (b'R', &3_i32.to_be_bytes()[..]), "a request for a password");
        session.send(b'p', &text(key));
        loop {
            match session.message().ok_or_else(gone)? {
                (b'E', body) => return Err(refused(&body)),
                (b'K', body) => {
                    let number =
                        |at: usize| i32::from_be_bytes(body[at..at + 4].try_into().unwrap());
                    session.cancel_key = (number(0), number(4));
                }
                (b'Z', _) => return Ok(session),
                _ => {}
            }
        }
    }

    /// Sends a startup message.
    pub(crate) fn start(&mut self, parameters: &[(&str, &str)]) {
        let mut body = vec![0, 3, 0, 0];
        for (name, value) in parameters {
            body.extend([text(name), text(value)].concat());
        }
        body.push(0);
        let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
        self.socket.write_all(&[&length[..], &body].concat()).expect("sent");
    }

    /// Sends a message.
    pub(crate) fn send(&mut self, tag: u8, body: &[u8]) {
        let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
        self.socket.write_all(&[&[tag][..], &length, body].concat()).expect("sent");
    }

    pub(crate) fn send_query(&mut self, sql: &str) {
        self.send(b'Q', &text(sql));
    }

    /// The next message; `None` at the end of the connection.
    pub(crate) fn message(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            if let Some(head) = self.received.get(..5) {
                let length = u32::from_be_bytes(head[1..5].try_into().unwrap()) as usize;
                if self.received.len() > length {
                    let rest = self.received.split_off(length + 1);
                    let whole = std::mem::replace(&mut self.received, rest);
                    return Some((whole[0], whole[5..].to_vec()));
                }
            }
            let mut piece = [0; 1 << 14];
            match self.socket.read(&mut piece) {
                Ok(0) => return None,
                Ok(length) => self.received.extend_from_slice(&piece[..length]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no message: {error}"),
            }
        }
    }

    /// What comes until the server waits for a statement.
    pub(crate) fn answer(&mut self) -> Result<Answer, Refused> {
        let mut answer = Answer::default();
        let mut failed = None;
        loop {
            let Some((tag, body)) = self.message() else {
                return Err(failed.unwrap_or_else(gone));
            };
            match tag {
                b'D' => answer.rows.push(values(&body)),
                b'd' => answer.copied.extend(body),
                b'C' => {
                    answer.tags.push(String::from_utf8(body[..body.len() - 1].to_vec()).unwrap())
                }
                b's' => answer.is_suspended = true,
                b'E' => failed = failed.or(Some(refused(&body))),
                b'Z' => return failed.map_or(Ok(answer), Err),
                _ => {}
            }
        }
    }

    /// The rows of a statement by the simple protocol.
    pub(crate) fn rows(&mut self, sql: &str) -> Result<Vec<Vec<String>>, Refused> {
        self.send_query(sql);
        self.answer().map(|answer| answer.rows)
    }

    /// The data of a COPY.
    pub(crate) fn copied(&mut self, sql: &str) -> Result<String, Refused> {
        self.send_query(sql);
        self.answer().map(|answer| String::from_utf8(answer.copied).expect("UTF-8"))
    }

    /// Parses, binds without values and executes.
    pub(crate) fn send_prepared(&mut self, sql: &str, rows_max: u32) {
        self.send(b'P', &[text(""), text(sql), vec![0, 0]].concat());
        self.send(b'B', &[text(""), text(""), vec![0; 6]].concat());
        self.send(b'E', &[text(""), rows_max.to_be_bytes().to_vec()].concat());
    }

    /// The rows of a statement by the extended protocol.
    pub(crate) fn prepared(&mut self, sql: &str) -> Result<Vec<Vec<String>>, Refused> {
        self.send_prepared(sql, 0);
        self.send(b'S', &[]);
        self.answer().map(|answer| answer.rows)
    }

    /// The number of rows of a statement of which so many are read at once.
    pub(crate) fn suspended(&mut self, sql: &str, rows_max: u32) -> Result<usize, Refused> {
        self.rows("BEGIN")?;
        self.send_prepared(sql, rows_max);
        let mut rows = 0;
        loop {
            self.send(b'S', &[]);
            let answer = self.answer()?;
            rows += answer.rows.len();
            if !answer.is_suspended {
                self.rows("COMMIT")?;
                return Ok(rows);
            }
            self.send(b'E', &[text(""), rows_max.to_be_bytes().to_vec()].concat());
        }
    }

    /// Whether the server has ended the connection; what it sent before stays to be read.
    pub(crate) fn is_over(&mut self) -> bool {
        self.socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a time-out");
        let mut piece = [0; 1 << 10];
        let is_over = match self.socket.read(&mut piece) {
            Ok(0) => true,
            Ok(length) => {
                self.received.extend_from_slice(&piece[..length]);
                false
            }
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        };
        self.socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        is_over
    }

    /// The code of the last error that was received.
    pub(crate) fn last_error(&mut self) -> Option<String> {
        let mut last = None;
        while self.received.len() > 4 {
            let (tag, body) = self.message()?;
            if tag == b'E' {
                last = Some(refused(&body).code);
            }
        }
        last
    }
}

/// A text and its end.
pub(crate) fn text(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

/// The connection has ended without an error.
fn gone() -> Refused {
    Refused { code: "gone".to_owned(), message: String::new() }
}

fn refused(body: &[u8]) -> Refused {
    let fields: Vec<String> = body
        .split(|byte| *byte == 0)
        .map(|own| String::from_utf8_lossy(own).into_owned())
        .collect();
    let field = |name: char| {
        let found = fields.iter().find_map(|own| own.strip_prefix(name));
        found.unwrap_or_default().to_owned()
    };
    Refused { code: field('C'), message: field('M') }
}

fn values(body: &[u8]) -> Vec<String> {
    let mut rest = &body[2..];
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (length, behind) = rest.split_at(4);
        match usize::try_from(i32::from_be_bytes(length.try_into().unwrap())) {
            Ok(length) => {
                let (value, behind) = behind.split_at(length);
                found.push(String::from_utf8_lossy(value).into_owned());
                rest = behind;
            }
            Err(_) => {
                found.push("NULL".to_owned());
                rest = behind;
            }
        }
    }
    found
}
