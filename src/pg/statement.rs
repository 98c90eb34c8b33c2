//! What a statement asks for: [`Statement`]. Queries are passed on as they are written; everything else that clients of
//! PostgreSQL send is told apart here by its first words.

use crate::copy::{Copy, copy};
use crate::error::Failure;
use crate::lexer::{Token, tokens};
use crate::session::type_rows::is_asked;

/// A statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Statement {
    /// None.
    Empty,
    /// A query: its text.
    Query(String),
    /// `COPY (...) TO STDOUT`
    Copy(Copy),
    /// `BEGIN`
    Begin,
    /// `COMMIT`
    Commit,
    /// `ROLLBACK`
    Rollback,
    /// `ROLLBACK TO`
    RollbackTo,
    /// A statement that has no effect here: its tag.
    Nothing(&'static str),
    /// `SET name = value`
    Set(String, String),
    /// `RESET`, of one setting or all.
    Reset(Option<String>),
    /// `SHOW`, of one setting or all.
    Show(String),
    /// `DISCARD`: its tag.
    Discard(&'static str),
    /// `DEALLOCATE`, of one prepared statement or all.
    Deallocate(Option<String>),
    /// `CLOSE`, of one cursor or all.
    Close(Option<String>),
    /// `DECLARE CURSOR`
    Declare(Declare),
    /// `FETCH` or `MOVE`
    Fetch(Fetch),
    /// What asyncpg asks about types.
    TypeTree,
}

/// A cursor that is declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Declare {
    /// Its name.
    pub(crate) name: String,
    /// The query.
    pub(crate) sql: String,
    /// Whether values are written in binary form.
    pub(crate) is_binary: bool,
    /// Whether it lasts longer than its transaction.
    pub(crate) is_held: bool,
}

/// Rows of a cursor that are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fetch {
    /// The cursor.
    pub(crate) name: String,
    /// How many; `None` for all.
    pub(crate) rows: Option<u64>,
    /// Whether they are only passed over.
    pub(crate) is_move: bool,
}

/// First words of statements that change something.
const WRITES: [&str; 32] = [
    "ALTER",
    "ANALYZE",
    "CALL",
    "CHECKPOINT",
    "CLUSTER",
    "COMMENT",
    "CREATE",
    "DELETE",
    "DO",
    "DROP",
    "GRANT",
    "IMPORT",
    "INSERT",
    "LOAD",
    "LOCK",
    "MERGE",
    "NOTIFY",
    "OPTIMIZE",
    "REASSIGN",
    "REFRESH",
    "REINDEX",
    "RENAME",
    "REPLACE",
    "REVOKE",
    "SECURITY",
    "SYSTEM",
    "TRUNCATE",
    "UPDATE",
    "UPSERT",
    "USE",
    "VACUUM",
    "WATCH",
];

/// What `SHOW` has of the parser of queries.
const SHOWN_BY_QUERIES: [&str; 4] = ["TABLES", "COLUMNS", "FUNCTIONS", "CREATE"];

impl Statement {
    /// Reads one statement.
    ///
    /// # Errors
    ///
    /// It would change something, is malformed, or needs what this port does not have.
    pub(crate) fn read(sql: &str) -> Result<Self, Failure> {
        let tokens = tokens(sql);
        let Some(first) = tokens.first() else { return Ok(Self::Empty) };
        let rest = tokens.get(1..).unwrap_or_default();
        let query = || match is_asked(sql) {
            true => Ok(Self::TypeTree),
            false => Ok(Self::Query(sql.to_owned())),
        };
        let verb = match first.name() {
            Some(name) => name.to_uppercase(),
            None => return query(),
        };
        match verb.as_str() {
            "BEGIN" | "START" => Ok(Self::Begin),
            "COMMIT" | "END" => Ok(Self::Commit),
            "ROLLBACK" | "ABORT" => match rest.iter().any(|token| token.is("TO")) {
                true => Ok(Self::RollbackTo),
                false => Ok(Self::Rollback),
            },
            "SAVEPOINT" => Ok(Self::Nothing("SAVEPOINT")),
            "RELEASE" => Ok(Self::Nothing("RELEASE")),
            "UNLISTEN" => Ok(Self::Nothing("UNLISTEN")),
            "SET" => set(sql, rest),
            "RESET" => Ok(Self::Reset(name_or_all(rest)?)),
            "SHOW"
                if rest
                    .first()
                    .is_some_and(|own| SHOWN_BY_QUERIES.iter().any(|name| own.is(name))) =>
            {
                query()
            }
            "SHOW" => Ok(Self::Show(setting(rest)?.0)),
            "DISCARD" => Ok(Self::Discard(match rest.first() {
                Some(token) if token.is("ALL") => "DISCARD ALL",
                Some(token) if token.is("PLANS") => "DISCARD PLANS",
                Some(token) if token.is("SEQUENCES") => "DISCARD SEQUENCES",
                _ => "DISCARD TEMP",
            })),
            "DEALLOCATE" => {
                let rest = rest.strip_prefix_if(|own| own.is("PREPARE"));
                Ok(Self::Deallocate(name_or_all(rest)?))
            }
            "CLOSE" => Ok(Self::Close(name_or_all(rest)?)),
            "DECLARE" => declare(sql, rest),
            "FETCH" => fetch(rest, false),
            "MOVE" => fetch(rest, true),
            "COPY" => copy(sql, rest).map(Self::Copy),
            "PREPARE" | "EXECUTE" | "LISTEN" => {
                let why = format!("{verb} is not possible here");
                Err(Failure::unsupported(why)
                    .with_hint("clients prepare statements by the protocol"))
            }
            verb if WRITES.contains(&verb) => Err(Failure::read_only(verb)),
            _ => query(),
        }
    }
}

trait StripPrefix {
    /// The rest without its first token, if that is so.
    fn strip_prefix_if(&self, is: impl Fn(&Token<'_>) -> bool) -> &Self;
}

impl StripPrefix for [Token<'_>] {
    fn strip_prefix_if(&self, is: impl Fn(&Token<'_>) -> bool) -> &Self {
        match self.split_first() {
            Some((first, rest)) if is(first) => rest,
            _ => self,
        }
    }
}

/// The error for a statement that is not as PostgreSQL has it.
pub(crate) fn malformed(token: Option<&Token<'_>>) -> Failure {
    match token {
        Some(token) => {
            let near: String = token.text.chars().take(60).collect();
            Failure::new("42601", format!("syntax error at or near \"{near}\""))
        }
        None => Failure::new("42601", "syntax error at end of input"),
    }
}

fn name_or_all(rest: &[Token<'_>]) -> Result<Option<String>, Failure> {
    match rest.first() {
        Some(token) if token.is("ALL") => Ok(None),
        // A setting may have dots in its name.
        Some(_) => setting(rest).map(|(name, _)| Some(name)),
        None => Err(malformed(None)),
    }
}

/// The setting that words name, and what follows.
fn setting<'t, 's>(rest: &'t [Token<'s>]) -> Result<(String, &'t [Token<'s>]), Failure> {
    let words: Vec<String> = rest.iter().take(3).map(|own| own.text.to_uppercase()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    for (own, name) in [
        (&["TIME", "ZONE"][..], "timezone"),
        (&["TRANSACTION", "ISOLATION", "LEVEL"], "transaction_isolation"),
        (&["SESSION", "AUTHORIZATION"], "session_authorization"),
        (&["NAMES"], "client_encoding"),
    ] {
        if words.starts_with(own) {
            return Ok((name.to_owned(), rest.get(own.len()..).unwrap_or_default()));
        }
    }
    let Some((first, mut rest)) = rest.split_first() else { return Err(malformed(None)) };
    let mut name = first.name().ok_or_else(|| malformed(Some(first)))?;
    while let [dot, part, more @ ..] = rest
        && dot.is_sign(".")
    {
        name = format!("{name}.{}", part.value());
        rest = more;
    }
    Ok((name, rest))
}

fn set(sql: &str, rest: &[Token<'_>]) -> Result<Statement, Failure> {
    let is_of_transaction = rest.first().is_some_and(|own| own.is("TRANSACTION"))
        || rest.get(1).is_some_and(|own| own.is("CHARACTERISTICS"))
        || rest.first().is_some_and(|own| own.is("CONSTRAINTS"));
    if is_of_transaction {
        return Ok(Statement::Nothing("SET"));
    }
    let is_session = |own: &Token<'_>| own.is("SESSION") || own.is("LOCAL");
    let is_user = rest.get(1).is_some_and(|own| own.is("AUTHORIZATION"));
    let rest = if is_user { rest } else { rest.strip_prefix_if(is_session) };
    let (name, rest) = setting(rest)?;
    let rest = rest.strip_prefix_if(|own| own.is_sign("=") || own.is("TO"));
    let value = match rest {
        [] => return Err(malformed(None)),
        [only] => only.value(),
        [first, ..] => sql.get(first.start..).unwrap_or_default().trim().to_owned(),
    };
    Ok(Statement::Set(name, value))
}

fn declare(sql: &str, rest: &[Token<'_>]) -> Result<Statement, Failure> {
    let (name, rest) = rest.split_first().ok_or_else(|| malformed(None))?;
    let cursor =
        rest.iter().position(|own| own.is("CURSOR")).ok_or_else(|| malformed(rest.first()))?;
    let options = rest.get(..cursor).unwrap_or_default();
    let rest = rest.get(cursor.saturating_add(1)..).unwrap_or_default();
    let (is_held, rest) = match rest {
        [with, hold, rest @ ..] if hold.is("HOLD") => (with.is("WITH"), rest),
        rest => (false, rest),
    };
    let query = match rest {
        [begin, first, ..] if begin.is("FOR") => sql.get(first.start..).unwrap_or_default(),
        other => return Err(malformed(other.first())),
    };
    let is_binary = options.iter().any(|own| own.is("BINARY"));
    let name = name.name().ok_or_else(|| malformed(Some(name)))?;
    Ok(Statement::Declare(Declare { name, sql: query.to_owned(), is_binary, is_held }))
}

fn fetch(rest: &[Token<'_>], is_move: bool) -> Result<Statement, Failure> {
    let (name, direction) = rest.split_last().ok_or_else(|| malformed(None))?;
    let is_from = |own: &&Token<'_>| !own.is("FROM") && !own.is("IN");
    let direction: Vec<&Token<'_>> = direction.iter().filter(is_from).collect();
    let count = |own: &Token<'_>| own.text.parse::<u64>().map_err(|_| malformed(Some(own)));
    let rows = match direction.as_slice() {
        [] => Some(1),
        [own] if own.is("NEXT") || own.is("FORWARD") => Some(1),
        [own] if own.is("ALL") => None,
        [forward, own] if forward.is("FORWARD") && own.is("ALL") => None,
        [forward, own] if forward.is("FORWARD") => Some(count(own)?),
        [own, ..]
            if own.is("BACKWARD")
                || own.is("PRIOR")
                || own.is("FIRST")
                || own.is("LAST")
                || own.is("ABSOLUTE")
                || own.is("RELATIVE")
                || own.is_sign("-") =>
        {
            return Err(Failure::new("55000", "cursor can only scan forward"));
        }
        [own] => Some(count(own)?),
        [_, odd, ..] => return Err(malformed(Some(odd))),
    };
    let name = name.name().ok_or_else(|| malformed(Some(name)))?;
    Ok(Statement::Fetch(Fetch { name, rows, is_move }))
}

#[cfg(test)]
mod tests {
    use super::{Declare, Fetch, Statement};

    #[test]
    fn statements_are_told_apart() {
        let text = str::to_owned;
        let fetch = |name: &str, rows, is_move| {
            Statement::Fetch(Fetch { name: name.to_owned(), rows, is_move })
        };
        let declare = |name: &str, sql: &str, is_binary, is_held| {
            Statement::Declare(Declare {
                name: name.to_owned(),
                sql: sql.to_owned(),
                is_binary,
                is_held,
            })
        };
        let set = |name: &str, value: &str| Statement::Set(name.to_owned(), value.to_owned());
        for (sql, expected) in [
            ("-- nothing", Statement::Empty),
            ("(SELECT 1)", Statement::Query(text("(SELECT 1)"))),
            ("/* x */ select 1", Statement::Query(text("/* x */ select 1"))),
            ("SHOW TABLES", Statement::Query(text("SHOW TABLES"))),
            ("begin transaction read only", Statement::Begin),
            ("START TRANSACTION", Statement::Begin),
            ("END", Statement::Commit),
            ("ROLLBACK", Statement::Rollback),
            ("ROLLBACK TO SAVEPOINT a", Statement::RollbackTo),
            ("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", Statement::Nothing("SET")),
            ("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", Statement::Nothing("SET")),
            ("SET extra_float_digits = 3", set("extra_float_digits", "3")),
            ("SET LOCAL search_path TO public, x", set("search_path", "public, x")),
            ("SET TIME ZONE 'UTC'", set("timezone", "UTC")),
            ("SET application_name = 'a''b'", set("application_name", "a'b")),
            ("SET a.b = on", set("a.b", "on")),
            ("SET NAMES 'utf8'", set("client_encoding", "utf8")),
            ("RESET ALL", Statement::Reset(None)),
            ("RESET DateStyle", Statement::Reset(Some(text("datestyle")))),
            ("SHOW TRANSACTION ISOLATION LEVEL", Statement::Show(text("transaction_isolation"))),
            ("show Server_Version", Statement::Show(text("server_version"))),
            ("DISCARD ALL", Statement::Discard("DISCARD ALL")),
            ("DEALLOCATE PREPARE \"S_1\"", Statement::Deallocate(Some(text("S_1")))),
            ("DEALLOCATE ALL", Statement::Deallocate(None)),
            ("CLOSE ALL", Statement::Close(None)),
            ("close \"SQL_CUR1\"", Statement::Close(Some(text("SQL_CUR1")))),
            ("DECLARE c CURSOR FOR SELECT 1", declare("c", "SELECT 1", false, false)),
            (
                "declare \"X\" binary no scroll cursor with hold for select ';'",
                declare("X", "select ';'", true, true),
            ),
            ("FETCH c", fetch("c", Some(1), false)),
            ("FETCH NEXT FROM c", fetch("c", Some(1), false)),
            ("fetch 100 in \"C\"", fetch("C", Some(100), false)),
            ("FETCH FORWARD 7 FROM c", fetch("c", Some(7), false)),
            ("FETCH FORWARD ALL FROM c", fetch("c", None, false)),
            ("FETCH ALL c", fetch("c", None, false)),
            ("MOVE 5 IN c", fetch("c", Some(5), true)),
        ] {
            assert_eq!(Statement::read(sql), Ok(expected), "{sql}");
        }
    }

    #[test]
    fn refusals_have_codes() {
        for (sql, code) in [
            ("INSERT INTO events VALUES (1)", "25006"),
            ("-- a\ncreate table x ()", "25006"),
            ("COPY events FROM STDIN", "25006"),
            ("SET", "42601"),
            ("SET x", "42601"),
            ("DECLARE c CURSOR SELECT 1", "42601"),
            ("FETCH x FROM c", "42601"),
            ("FETCH BACKWARD 1 FROM c", "55000"),
            ("FETCH -1 FROM c", "55000"),
            ("PREPARE x AS SELECT 1", "0A000"),
        ] {
            assert_eq!(Statement::read(sql).map_err(|error| error.code), Err(code), "{sql}");
        }
    }
}
