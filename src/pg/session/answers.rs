//! Answers that both protocols have: rows, copies, settings and transactions.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringViewArray};

use crate::copy::Copy;
use crate::error::Failure;
use crate::rows::{Column, Rows};
use crate::session::{Stop, Talk};
use crate::statement::Statement;
use crate::types::Kind;
use crate::wire::backend::Transaction;
use crate::wire::frontend::Formats;
use weir_query::dialect::parameters::Parameter;
use weir_query::kernel::error::QueryError;

/// Rows and bytes of a result from which on it is a long one.
const LONG_ROWS: u64 = 50_000;

/// What ends the sending of rows before the last one.
#[derive(Clone, Copy, Debug)]
pub(super) enum Until {
    /// Nothing: all rows are sent, which are refused if there are more than `query-rows-max`.
    AllOfAnswer,
    /// Nothing, and any number of rows is sent.
    All,
    /// So many rows were sent.
    Count(u64),
}

impl Talk {
    /// Sends rows. Returns how many, and whether there may be more.
    pub(super) async fn send(
        &mut self,
        rows: &mut Rows,
        formats: &Formats,
        until: Until,
    ) -> Result<(u64, bool), Stop> {
        let rows_max = self.app.engine.rows_max();
        let mut sent = 0_u64;
        loop {
            if matches!(until, Until::Count(count) if sent >= count) {
                rows.extend();
                return Ok((sent, true));
            }
            if !self.attend(rows.next()).await?? {
                return Ok((sent, false));
            }
            if matches!(until, Until::AllOfAnswer)
                && usize::try_from(sent).is_ok_and(|sent| sent >= rows_max)
            {
                return Err(QueryError::TooManyRows(rows_max).into());
            }
            rows.send(formats, &mut self.connection.out);
            sent = sent.saturating_add(1);
            if sent == LONG_ROWS {
                rows.extend();
            }
            self.connection.relieve().await?;
        }
    }

    /// Copies the rows of a query.
    pub(super) async fn copy(&mut self, copy: &Copy, values: &[Parameter]) -> Result<(), Stop> {
        self.check().await?;
        let began = self.app.node.clock.monotonic();
        let done = self.copied(copy, values).await;
        self.note(&copy.sql, began, &done);
        done
    }

    async fn copied(&mut self, copy: &Copy, values: &[Parameter]) -> Result<(), Stop> {
        let (plan, columns) = self.plan(&copy.sql, values).await?;
        let mut rows = self.start(plan, Arc::clone(&columns)).await?;
        let names: Vec<&str> = columns.iter().map(|own| own.name.as_str()).collect();
        // An error before the first row is one of the statement, not of the data.
        let mut is_there = self.attend(rows.next()).await??;
        copy.layout.begin(&names, &mut self.connection.out);
        let mut sent = 0_u64;
        while is_there {
            let out = &mut self.connection.out;
            let head = (names.as_slice(), sent == 0);
            rows.take(|cells, row| copy.layout.row(head, cells, row, out));
            sent = sent.saturating_add(1);
            if sent == LONG_ROWS {
                rows.extend();
            }
            self.connection.relieve().await?;
            is_there = self.attend(rows.next()).await??;
        }
        copy.layout.end(sent == 0, &mut self.connection.out);
        self.connection.out.complete(&format!("COPY {sent}"));
        Ok(())
    }

    /// In a failed transaction, only its end is possible.
    pub(super) fn check_transaction(&self, statement: &Statement) -> Result<(), Failure> {
        let ends = matches!(
            statement,
            Statement::Commit | Statement::Rollback | Statement::RollbackTo | Statement::Empty
        );
        match self.transaction {
            Transaction::Failed if !ends => {
                let why = "current transaction is aborted, commands ignored until end of transaction block";
                Err(Failure::new("25P02", why))
            }
            _ => Ok(()),
        }
    }

    /// Does what a statement without rows asks for. Returns its tag; `None` if it has rows.
    pub(super) fn effect(
        &mut self,
        statement: &Statement,
    ) -> Result<Option<&'static str>, Failure> {
        Ok(Some(match statement {
            Statement::Begin => {
                match self.transaction {
                    Transaction::None => self.transaction = Transaction::Open,
                    _ => self.remark("there is already a transaction in progress"),
                }
                "BEGIN"
            }
            Statement::Commit | Statement::Rollback => {
                let is_failed = self.transaction == Transaction::Failed;
                if self.transaction == Transaction::None {
                    self.remark("there is no transaction in progress");
                }
                self.transaction = Transaction::None;
                self.end_portals();
                let is_rollback = is_failed || *statement == Statement::Rollback;
                if is_rollback { "ROLLBACK" } else { "COMMIT" }
            }
            Statement::RollbackTo => {
                if self.transaction == Transaction::Failed {
                    self.transaction = Transaction::Open;
                }
                "ROLLBACK"
            }
            Statement::Nothing(tag) => tag,
            Statement::Set(name, value) => {
                if let Some((name, value)) = self.variables.set(name, value)? {
                    self.connection.out.parameter(name, &value);
                }
                "SET"
            }
            Statement::Reset(name) => {
                self.variables.reset(name.as_deref());
                "RESET"
            }
            Statement::Discard(tag) => {
                if *tag == "DISCARD ALL" {
                    self.variables.reset(None);
                    self.statements.clear();
                    self.portals.clear();
                }
                tag
            }
            Statement::Deallocate(None) => {
                self.statements.clear();
                "DEALLOCATE ALL"
            }
            Statement::Deallocate(Some(name)) => {
                self.statement(name)?;
                self.statements.remove(name);
                "DEALLOCATE"
            }
            Statement::Close(None) => {
                self.portals.clear();
                "CLOSE CURSOR ALL"
            }
            Statement::Close(Some(name)) => {
                self.portal(name)?;
                self.portals.remove(name);
                "CLOSE CURSOR"
            }
            _ => return Ok(None),
        }))
    }

    fn remark(&mut self, text: &str) {
        self.connection.out.failure(&Failure::notice(text));
    }

    /// The value of a setting, or all of them.
    pub(super) fn shown(&self, name: &str) -> Result<Rows, Failure> {
        let text =
            |values: Vec<String>| Arc::new(StringViewArray::from_iter_values(values)) as ArrayRef;
        let all: Vec<(&str, ArrayRef)> = match name {
            "all" => {
                let (names, values): (Vec<_>, Vec<_>) = self.variables.all().into_iter().unzip();
                let about = vec![String::new(); names.len()];
                vec![("name", text(names)), ("setting", text(values)), ("description", text(about))]
            }
            name => {
                let missing = || {
                    let why =
                        format!("unrecognized configuration parameter \"{}\"", super::told(name));
                    Failure::new("42704", why)
                };
                vec![(name, text(vec![self.variables.get(name).ok_or_else(missing)?]))]
            }
        };
        let columns =
            all.iter().map(|(name, _)| Column { name: (*name).to_owned(), kind: Kind::Text });
        let columns = columns.collect();
        let batch = RecordBatch::try_from_iter(all);
        let batch = batch.map_err(|error| Failure::new("XX000", error.to_string()))?;
        Ok(Rows::fixed(batch, columns))
    }
}
