//! Moves a whole store from SQLite to PostgreSQL: [`Metadata::take_over`]. Tables and columns are read from
//! the schema of SQLite, so that this file names none but its own.
//!
//! The rows and a digest of them are committed together. Whoever was interrupted afterwards, before the file was put away,
//! moves it again: a file with that digest is in the database already.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, ColumnIndex, Decode, FromRow, Row, Type};
use uuid::Uuid;

use crate::connection::Conn;
use crate::error::MetadataError;
use crate::sql::{Bind, Builder};
use crate::{Metadata, sql};

/// Rows that are read, and inserted by one statement. With 65,535 values of a statement there is room for
/// 130 columns.
const BATCH_ROWS: i64 = 500;

/// Tables that each database fills itself.
const OWN: [&str; 7] =
    ["_sqlx_migrations", "changed_parts", "leases", "nodes", "revision", "takeovers", "workers"];

impl Metadata {
    /// Copies everything from `source`, a store in SQLite, into this one, which is in PostgreSQL and has to
    /// be empty, or to have been filled from `source` as it is. All or nothing; nothing can be written to either meanwhile.
    /// Returns the number of rows.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotEmpty`], [`MetadataError::Database`], [`MetadataError::Corrupt`] for a value that
    /// is not of the type of its column.
    pub async fn take_over(&self, source: &Self) -> Result<u64, MetadataError> {
        let mut write = self.begin().await?;
        let mut read = source.begin().await?;
        let tables = tables(read.connection()).await?;
        let known: Option<String> = sql::query_scalar("SELECT digest FROM takeovers")
            .fetch_optional(write.connection())
            .await?;
        if let Some(known) = known {
            let mut sum = Sum::default();
            for table in &tables {
                table.copy(read.connection(), None, &mut sum).await?;
            }
            let rows = sum.rows;
            if sum.digest() == known {
                return Ok(rows);
            }
        }
        for table in &tables {
            let select = format!("SELECT TRUE FROM {} LIMIT 1", quoted(&table.name));
            let select = sql::query_scalar::<bool>(AssertSqlSafe(select));
            if select.fetch_optional(write.connection()).await?.is_some() {
                return Err(MetadataError::NotEmpty(table.name.clone()));
            }
        }
        let mut sum = Sum::default();
        for table in &tables {
            table.copy(read.connection(), Some(write.connection()), &mut sum).await?;
        }
        let rows = sum.rows;
        sql::query("INSERT INTO takeovers (digest, moved_at) VALUES ($1, $2)")
            .bind(sum.digest())
            .bind(self.now().0)
            .execute(write.connection())
            .await?;
        write.commit_unknown().await?;
        self.refresh().await?;
        Ok(rows)
    }
}

/// What was read of a store.
#[derive(Default)]
struct Sum {
    rows: u64,
    hash: Sha256,
}

impl Sum {
    /// Adds a row of a table.
    fn add(&mut self, table: &str, cells: &Cells) {
        self.rows = self.rows.saturating_add(1);
        // Each text with its length, so that no other row has the same bytes.
        self.add_text(Some(table));
        for value in &cells.values {
            self.add_text(value.as_deref());
        }
    }

    fn add_text(&mut self, text: Option<&str>) {
        let length = text.map_or(u64::MAX, |text| u64::try_from(text.len()).unwrap_or(u64::MAX));
        self.hash.update(length.to_le_bytes());
        self.hash.update(text.unwrap_or_default());
    }

    /// The first half of the SHA-256, as a UUID is written.
    fn digest(self) -> String {
        let whole: [u8; 32] = self.hash.finalize().into();
        let mut half = [0; 16];
        for (to, from) in half.iter_mut().zip(whole) {
            *to = from;
        }
        Uuid::from_bytes(half).to_string()
    }
}

/// A table of SQLite.
struct Table {
    name: String,
    columns: Vec<Column>,
}

#[derive(sqlx_macros::FromRow)]
struct Column {
    name: String,
    r#type: String,
}

/// The values of a row as texts, and its number.
struct Cells {
    row: i64,
    values: Vec<Option<String>>,
}

impl<'r, R: Row> FromRow<'r, R> for Cells
where
    usize: ColumnIndex<R>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
    String: Decode<'r, R::Database> + Type<R::Database>,
{
    fn from_row(row: &'r R) -> Result<Self, sqlx::Error> {
        let values = (1..row.len()).map(|index| row.try_get(index)).collect::<Result<_, _>>()?;
        Ok(Self { row: row.try_get(0)?, values })
    }
}

/// The tables, each after those that it refers to.
async fn tables(connection: &mut Conn) -> Result<Vec<Table>, MetadataError> {
    let names = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name";
    let names: Vec<String> = sql::query_scalar(names).fetch_all(connection).await?;
    let mut left = Vec::new();
    for name in names {
        if name.starts_with("sqlite_") || OWN.contains(&name.as_str()) {
            continue;
        }
        let referred = "SELECT \"table\" FROM pragma_foreign_key_list($1)";
        let referred = sql::query_scalar(referred).bind(&name).fetch_all(connection).await?;
        let referred: BTreeSet<String> = referred.into_iter().collect();
        let columns = "SELECT name, type FROM pragma_table_info($1) ORDER BY cid";
        let columns = sql::query_as(columns).bind(&name).fetch_all(connection).await?;
        left.push((Table { name, columns }, referred));
    }
    let mut done: Vec<Table> = Vec::new();
    while !left.is_empty() {
        let known: BTreeSet<String> = done.iter().map(|table| table.name.clone()).collect();
        let (ready, later): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|(_, referred)| referred.is_subset(&known));
        if ready.is_empty() {
            let problem = "tables refer to each other in a circle".to_owned();
            return Err(MetadataError::Corrupt { table: "sqlite_master", problem });
        }
        done.extend(ready.into_iter().map(|(table, _)| table));
        left = later;
    }
    Ok(done)
}

impl Table {
    /// Reads the rows, and copies them if there is somewhere to.
    async fn copy(
        &self,
        from: &mut Conn,
        mut to: Option<&mut Conn>,
        sum: &mut Sum,
    ) -> Result<(), MetadataError> {
        let names: Vec<String> = self.columns.iter().map(|column| quoted(&column.name)).collect();
        let texts: Vec<String> = names.iter().map(|name| format!("CAST({name} AS TEXT)")).collect();
        let select = format!(
            "SELECT rowid, {} FROM {} WHERE rowid > $1 ORDER BY rowid LIMIT $2",
            texts.join(", "),
            quoted(&self.name)
        );
        let insert = format!("INSERT INTO {} ({}) VALUES ", quoted(&self.name), names.join(", "));
        let mut last = i64::MIN;
        loop {
            let select = sql::query_as::<Cells>(AssertSqlSafe(select.clone()));
            let batch = select.bind(last).bind(BATCH_ROWS).fetch_all(from).await?;
            let Some(end) = batch.last() else { return Ok(()) };
            last = end.row;
            batch.iter().for_each(|cells| sum.add(&self.name, cells));
            let Some(to) = to.as_deref_mut() else { continue };
            let mut statement = Builder::of(insert.clone());
            for (index, cells) in batch.into_iter().enumerate() {
                let values = self.columns.iter().zip(cells.values);
                let values: Vec<Bind> =
                    values.map(|(column, value)| column.bind(value)).collect::<Result<_, _>>()?;
                statement.push(if index == 0 { "" } else { ", " }).push_list(values);
            }
            statement.build().execute(to).await?;
        }
    }
}

impl Column {
    /// The value of a text, by the type of the column.
    fn bind(&self, value: Option<String>) -> Result<Bind, MetadataError> {
        let corrupt = |value: &str| MetadataError::Corrupt {
            table: "a table of the store",
            problem: format!("{value:?} in the column {} of type {}", self.name, self.r#type),
        };
        Ok(match (self.r#type.as_str(), value) {
            ("TEXT", value) => Bind::Text(value),
            ("BIGINT", value) => {
                let number = |text: String| text.parse().map_err(|_| corrupt(&text));
                Bind::Int(value.map(number).transpose()?)
            }
            ("BOOLEAN", value) => {
                let truth = |text: String| match text.as_str() {
                    "0" => Ok(false),
                    "1" => Ok(true),
                    other => Err(corrupt(other)),
                };
                Bind::Bool(value.map(truth).transpose()?)
            }
            (_, value) => return Err(corrupt(value.as_deref().unwrap_or("NULL"))),
        })
    }
}

/// A name of the schema, as SQL has it.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
