//! What the errors of the two databases mean, by their codes.

use sqlx::postgres::PgDatabaseError;

use weir_base::error::Kind;

/// The class of a database error. Codes of SQLite: <https://www.sqlite.org/rescode.html>.
pub(super) fn class(error: &sqlx::Error) -> Kind {
    match error {
        sqlx::Error::PoolTimedOut => Kind::Overloaded,
        sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::Io(_)
        | sqlx::Error::Tls(_) => Kind::Unavailable,
        sqlx::Error::Database(error) => {
            if let Some(error) = error.try_downcast_ref() {
                return of_postgres(error);
            }
            let code = error.code().and_then(|code| code.parse::<i32>().ok()).unwrap_or(0);
            // The low byte is the primary code; the rest details it.
            match code & 0xff {
                // SQLITE_BUSY, SQLITE_LOCKED.
                5 | 6 => Kind::Overloaded,
                // SQLITE_PERM, _READONLY, _IOERR, _CORRUPT, _FULL, _CANTOPEN, _NOTADB.
                3 | 8 | 10 | 11 | 13 | 14 | 26 => Kind::Unavailable,
                _ => Kind::Internal,
            }
        }
        _ => Kind::Internal,
    }
}

/// Whether a prepared statement has columns of before a migration.
pub(super) fn is_stale_plan(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.code().as_deref() == Some("0A000"))
}

/// The class of an error. Codes: appendix A of PostgreSQL's manual.
fn of_postgres(error: &PgDatabaseError) -> Kind {
    let code = error.code();
    match code {
        // What was prepared before a migration, and time-outs of statements and of waiting for a lock.
        "0A000" | "57014" | "55P03" => Kind::Overloaded,
        // Read only: a standby, to which the address does not lead for long.
        "25006" => Kind::Unavailable,
        _ => match code.get(..2) {
            // Deadlocks and the like.
            Some("40") => Kind::Overloaded,
            // Connections, authentication, no such database, resources, intervention, the system.
            Some("08" | "25" | "28" | "3D" | "53" | "57" | "58") => Kind::Unavailable,
            _ => Kind::Internal,
        },
    }
}

/// Whether PostgreSQL's code says that the connection or the server ends.
pub(super) fn is_away(code: &str) -> bool {
    code.starts_with("08") || matches!(code, "57P01" | "57P02" | "57P03")
}

#[cfg(test)]
mod tests {
    use super::{class, is_away};
    use weir_base::error::Kind;

    #[test]
    fn errors_of_the_connection_are_told_from_others() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        for (error, expected) in [
            (sqlx::Error::Io(refused), Kind::Unavailable),
            (sqlx::Error::PoolClosed, Kind::Unavailable),
            (sqlx::Error::PoolTimedOut, Kind::Overloaded),
            (sqlx::Error::RowNotFound, Kind::Internal),
        ] {
            assert_eq!(class(&error), expected, "{error}");
        }
        for (code, expected) in
            [("08006", true), ("57P01", true), ("57014", false), ("23505", false)]
        {
            assert_eq!(is_away(code), expected, "{code}");
        }
    }
}
