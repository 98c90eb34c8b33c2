//! Statements in the one SQL text that SQLite and PostgreSQL both take: [`query`], [`query_as`],
//! [`query_scalar`], and [`Builder`] for those whose length depends on their values.
//!
//! `sqlx::Any` cannot decode BOOLEAN, and functions generic over the database would repeat the bounds
//! of sqlx in each signature. So values are collected here, and encoded for the database of the
//! [`Conn`] that runs the statement.
//!
//! Statements run as boxed futures that know nothing of the type of their rows: else both drivers would be compiled once
//! more for each type of rows, and in each member that awaits one.
//!
//! What the common text has to observe: placeholders are `$1`; a column that `ON CONFLICT DO UPDATE`
//! reads is qualified; `SELECT TRUE` asks whether there is a row, because a literal `1` has another
//! type on either side; `SUM` is cast to BIGINT.

use std::fmt::Display;
use std::marker::PhantomData;

use futures::TryStreamExt;
use futures::future::BoxFuture;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Arguments, AssertSqlSafe, FromRow, SqlSafeStr, SqlStr};

use crate::connection::{Conn, Link};

/// A row that both databases decode to; entities, `#[derive(sqlx_macros::FromRow)]` and tuples are.
pub(super) trait Row:
    Send + Unpin + for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow>
{
}

impl<T> Row for T where T: Send + Unpin + for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow>
{}

/// A row of one of both databases.
enum Fetched {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

impl Fetched {
    fn decoded<T: Row>(self) -> Result<T, sqlx::Error> {
        match self {
            Self::Sqlite(row) => T::from_row(&row),
            Self::Postgres(row) => T::from_row(&row),
        }
    }
}

/// A value of a statement. `None` is NULL, which has a type on PostgreSQL.
#[derive(Clone, Debug)]
pub(super) enum Bind {
    Int(Option<i64>),
    Bool(Option<bool>),
    Text(Option<String>),
}

macro_rules! binds {
    ($($type:ty => |$value:ident| $bind:expr;)*) => {$(
        impl From<$type> for Bind {
            fn from($value: $type) -> Self {
                $bind
            }
        }
    )*};
}

binds! {
    i64 => |value| Self::Int(Some(value));
    Option<i64> => |value| Self::Int(value);
    u32 => |value| Self::Int(Some(i64::from(value)));
    bool => |value| Self::Bool(Some(value));
    Option<bool> => |value| Self::Bool(value);
    String => |value| Self::Text(Some(value));
    Option<String> => |value| Self::Text(value);
    &String => |value| Self::Text(Some(value.clone()));
    &str => |value| Self::Text(Some(value.to_owned()));
    Option<&str> => |value| Self::Text(value.map(str::to_owned));
    &Option<String> => |value| Self::Text(value.clone());
}

/// A statement without rows.
#[derive(Debug)]
pub(super) struct Query {
    text: SqlStr,
    binds: Vec<Bind>,
    /// Whether the connection keeps it prepared.
    is_kept: bool,
}

/// A statement with rows of `T`.
pub(super) struct QueryAs<T> {
    query: Query,
    row: PhantomData<fn() -> T>,
}

/// A statement with rows of one column.
pub(super) struct QueryScalar<T> {
    query: QueryAs<(T,)>,
}

/// A statement without rows.
pub(super) fn query(text: impl SqlSafeStr) -> Query {
    Query { text: text.into_sql_str(), binds: Vec::new(), is_kept: true }
}

/// A statement with rows of `T`.
pub(super) fn query_as<T>(text: impl SqlSafeStr) -> QueryAs<T> {
    QueryAs { query: query(text), row: PhantomData }
}

/// A statement with rows of one column.
pub(super) fn query_scalar<T>(text: impl SqlSafeStr) -> QueryScalar<T> {
    QueryScalar { query: query_as(text) }
}

impl Query {
    /// Binds the next value.
    pub(super) fn bind(mut self, value: impl Into<Bind>) -> Self {
        self.binds.push(value.into());
        self
    }

    /// Its text.
    #[cfg(test)]
    pub(super) fn text(&self) -> &str {
        self.text.as_str()
    }

    /// Runs it, and returns the number of rows that it changed.
    pub(super) fn execute(self, connection: &mut Conn) -> BoxFuture<'_, Result<u64, sqlx::Error>> {
        let executing = async move {
            match connection.link() {
                Link::Sqlite(sqlite) => {
                    let (text, values, is_kept) = self.sqlite()?;
                    let query = sqlx::query_with(text, values).persistent(is_kept);
                    Ok(query.execute(sqlite).await?.rows_affected())
                }
                Link::Postgres(postgres, reach) => {
                    let (text, values, is_kept) = self.postgres()?;
                    let query = sqlx::query_with(text, values).persistent(is_kept);
                    let done = reach.within(Box::pin(query.execute(postgres))).await;
                    Ok(connection.settled(done).await?.rows_affected())
                }
            }
        };
        Box::pin(executing)
    }

    /// Calls `each` with the rows one by one, or with the first alone.
    fn rows<'c>(
        self,
        connection: &'c mut Conn,
        is_first: bool,
        each: &'c mut (dyn FnMut(Fetched) -> Result<(), sqlx::Error> + Send),
    ) -> BoxFuture<'c, Result<(), sqlx::Error>> {
        let reading = async move {
            match connection.link() {
                Link::Sqlite(sqlite) => {
                    let (text, values, is_kept) = self.sqlite()?;
                    let query = sqlx::query_with(text, values).persistent(is_kept);
                    if is_first {
                        return query
                            .fetch_optional(sqlite)
                            .await?
                            .map_or(Ok(()), |row| each(Fetched::Sqlite(row)));
                    }
                    let mut rows = query.fetch(sqlite);
                    while let Some(row) = rows.try_next().await? {
                        each(Fetched::Sqlite(row))?;
                    }
                    Ok(())
                }
                Link::Postgres(postgres, reach) => {
                    let (text, values, is_kept) = self.postgres()?;
                    let query = sqlx::query_with(text, values).persistent(is_kept);
                    let reading = async {
                        if is_first {
                            return query
                                .fetch_optional(postgres)
                                .await?
                                .map_or(Ok(()), |row| each(Fetched::Postgres(row)));
                        }
                        let mut rows = query.fetch(postgres);
                        while let Some(row) = rows.try_next().await? {
                            each(Fetched::Postgres(row))?;
                        }
                        Ok(())
                    };
                    let read = reach.within(Box::pin(reading)).await;
                    connection.settled(read).await
                }
            }
        };
        Box::pin(reading)
    }

    fn sqlite(self) -> Result<(SqlStr, SqliteArguments, bool), sqlx::Error> {
        let mut values = SqliteArguments::default();
        values.reserve(self.binds.len(), 0);
        for bind in self.binds {
            let added = match bind {
                Bind::Int(value) => values.add(value),
                Bind::Bool(value) => values.add(value),
                Bind::Text(value) => values.add(value),
            };
            added.map_err(sqlx::Error::Encode)?;
        }
        Ok((self.text, values, self.is_kept))
    }

    fn postgres(self) -> Result<(SqlStr, PgArguments, bool), sqlx::Error> {
        let mut values = PgArguments::default();
        values.reserve(self.binds.len(), 0);
        for bind in self.binds {
            let added = match bind {
                Bind::Int(value) => values.add(value),
                Bind::Bool(value) => values.add(value),
                Bind::Text(value) => values.add(value.map(storable)),
            };
            added.map_err(sqlx::Error::Encode)?;
        }
        Ok((self.text, values, self.is_kept))
    }
}

impl<T> QueryAs<T> {
    /// Binds the next value.
    pub(super) fn bind(mut self, value: impl Into<Bind>) -> Self {
        self.query = self.query.bind(value);
        self
    }
}

impl<T: Row> QueryAs<T> {
    /// All rows.
    pub(super) async fn fetch_all(self, connection: &mut Conn) -> Result<Vec<T>, sqlx::Error> {
        let mut all = Vec::new();
        let mut each = |row: Fetched| row.decoded().map(|row| all.push(row));
        self.query.rows(connection, false, &mut each).await?;
        Ok(all)
    }

    /// The first row.
    pub(super) async fn fetch_optional(
        self,
        connection: &mut Conn,
    ) -> Result<Option<T>, sqlx::Error> {
        let mut first = None;
        let mut each = |row: Fetched| row.decoded().map(|row| first = Some(row));
        self.query.rows(connection, true, &mut each).await?;
        Ok(first)
    }

    /// The first row, which must be there.
    pub(super) async fn fetch_one(self, connection: &mut Conn) -> Result<T, sqlx::Error> {
        self.fetch_optional(connection).await?.ok_or(sqlx::Error::RowNotFound)
    }
}

impl<T> QueryScalar<T>
where
    (T,): Row,
{
    /// Binds the next value.
    pub(super) fn bind(mut self, value: impl Into<Bind>) -> Self {
        self.query = self.query.bind(value);
        self
    }

    /// The values of all rows.
    pub(super) async fn fetch_all(self, connection: &mut Conn) -> Result<Vec<T>, sqlx::Error> {
        let rows = self.query.fetch_all(connection).await?;
        Ok(rows.into_iter().map(|(value,)| value).collect())
    }

    /// The value of the first row.
    pub(super) async fn fetch_optional(
        self,
        connection: &mut Conn,
    ) -> Result<Option<T>, sqlx::Error> {
        Ok(self.query.fetch_optional(connection).await?.map(|(value,)| value))
    }

    /// The value of the first row, which must be there.
    pub(super) async fn fetch_one(self, connection: &mut Conn) -> Result<T, sqlx::Error> {
        Ok(self.query.fetch_one(connection).await?.0)
    }
}

/// Text as PostgreSQL takes it: without NUL, in whose place is U+FFFD. Look-ups have the same in its
/// place, so what was stored under a name with NUL is found under it.
pub(super) fn storable(text: String) -> String {
    match text.contains('\0') {
        true => text.replace('\0', "\u{fffd}"),
        false => text,
    }
}

/// A statement put together from parts.
#[derive(Debug, Default)]
pub(super) struct Builder {
    text: String,
    binds: Vec<Bind>,
}

impl Builder {
    /// A statement that begins with `text`.
    pub(super) fn new(text: &'static str) -> Self {
        Self { text: text.to_owned(), binds: Vec::new() }
    }

    /// A statement that begins with `text`, which may not come from a request.
    pub(super) fn of(text: String) -> Self {
        Self { text, binds: Vec::new() }
    }

    /// Appends text, which may not come from a request.
    pub(super) fn push(&mut self, text: &'static str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    /// Appends a value.
    pub(super) fn push_bind(&mut self, value: impl Into<Bind>) -> &mut Self {
        self.binds.push(value.into());
        self.push_number(self.binds.len())
    }

    fn push_number(&mut self, number: impl Display) -> &mut Self {
        self.text.push('$');
        self.text.push_str(&number.to_string());
        self
    }

    /// Appends values in parentheses, for `IN`.
    pub(super) fn push_list<B: Into<Bind>>(
        &mut self,
        values: impl IntoIterator<Item = B>,
    ) -> &mut Self {
        self.push("(");
        for (index, value) in values.into_iter().enumerate() {
            self.push(if index == 0 { "" } else { ", " }).push_bind(value);
        }
        self.push(")")
    }

    /// Appends `VALUES` with these rows.
    pub(super) fn push_values<const N: usize>(
        &mut self,
        rows: impl IntoIterator<Item = [Bind; N]>,
    ) -> &mut Self {
        self.push("VALUES ");
        for (index, row) in rows.into_iter().enumerate() {
            self.push(if index == 0 { "" } else { ", " }).push_list(row);
        }
        self
    }

    /// The statement. Not kept prepared: its text depends on the number of its values.
    pub(super) fn build(self) -> Query {
        let text = AssertSqlSafe(self.text).into_sql_str();
        Query { text, binds: self.binds, is_kept: false }
    }

    /// The statement, with rows of `T`.
    pub(super) fn build_as<T>(self) -> QueryAs<T> {
        QueryAs { query: self.build(), row: PhantomData }
    }

    /// The statement, with rows of one column.
    pub(super) fn build_scalar<T>(self) -> QueryScalar<T> {
        QueryScalar { query: self.build_as() }
    }
}

#[cfg(test)]
mod tests {
    use super::{Bind, Builder, storable};

    #[test]
    fn a_builder_numbers_its_values() {
        let mut select = Builder::new("SELECT a FROM t WHERE b = ");
        select.push_bind(1_i64).push(" AND c IN ").push_list(["x", "y"]);
        select.push(" AND d = ").push_bind(true);
        assert_eq!(select.text, "SELECT a FROM t WHERE b = $1 AND c IN ($2, $3) AND d = $4");
        let mut insert = Builder::new("INSERT INTO t (a, b) ");
        insert.push_values([1_i64, 2].map(|id| [Bind::from(id), Bind::from("x")]));
        assert_eq!(insert.text, "INSERT INTO t (a, b) VALUES ($1, $2), ($3, $4)");
        assert_eq!(insert.binds.len(), 4);
    }

    #[test]
    fn text_with_nul_is_stored_without() {
        assert_eq!(storable("a\0b\0".to_owned()), "a\u{fffd}b\u{fffd}");
        assert_eq!(storable("ab".to_owned()), "ab");
    }
}
