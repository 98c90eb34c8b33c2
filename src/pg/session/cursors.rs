//! Cursors, of which clients fetch rows in pieces: portals that SQL declares.

use std::sync::Arc;

use crate::error::Failure;
use crate::rows::{Columns, Rows};
use crate::session::answers::Until;
use crate::session::prepared::Portal;
use crate::session::{Stop, Talk};
use crate::statement::{Declare, Fetch, Statement};
use crate::wire::backend::Transaction;
use crate::wire::frontend::{Format, Formats};

impl Talk {
    /// Declares a cursor. Its query is planned, and runs from the first fetch on, over the tables as of then.
    pub(super) async fn declare(&mut self, cursor: &Declare) -> Result<(), Stop> {
        self.check().await?;
        if !matches!(Statement::read(&cursor.sql)?, Statement::Query(_)) {
            return Err(Failure::new("42601", "a cursor is for a query").into());
        }
        let (_, columns) = self.plan(&cursor.sql, &[]).await?;
        let formats = if cursor.is_binary { vec![Format::Binary] } else { Vec::new() };
        let portal = Portal {
            statement: Some(Statement::Query(cursor.sql.clone())),
            bytes: cursor.sql.len(),
            formats: Formats(formats),
            columns: Some(columns),
            // Outside of a transaction, it would end before anything could be fetched.
            is_held: cursor.is_held || self.transaction == Transaction::None,
            ..Portal::default()
        };
        self.keep_portal(&cursor.name, portal)?;
        self.connection.out.complete("DECLARE CURSOR");
        Ok(())
    }

    /// The columns of a cursor, and their formats.
    pub(super) fn cursor_columns(&mut self, name: &str) -> Result<(Columns, Formats), Failure> {
        let portal = self.portal(name)?;
        let columns = portal.known_columns().unwrap_or_else(|| Arc::new([]));
        Ok((columns, portal.formats.clone()))
    }

    /// Sends rows of a cursor.
    pub(super) async fn fetch(&mut self, fetch: &Fetch) -> Result<(), Stop> {
        self.check().await?;
        let until = fetch.rows.map_or(Until::All, Until::Count);
        let (count, _) = match fetch.is_move {
            true => self.pass(&fetch.name, fetch.rows).await?,
            false => self.send_portal(&fetch.name, until).await?,
        };
        let verb = if fetch.is_move { "MOVE" } else { "FETCH" };
        self.connection.out.complete(&format!("{verb} {count}"));
        Ok(())
    }

    /// Sends rows of a portal of a query. Returns how many, and whether there may be more.
    pub(super) async fn send_portal(
        &mut self,
        name: &str,
        until: Until,
    ) -> Result<(u64, bool), Stop> {
        let Some(mut rows) = self.opened(name).await? else { return Ok((0, false)) };
        let formats = self.portal(name)?.formats.clone();
        let (sent, has_more) = self.send(&mut rows, &formats, until).await?;
        self.put_back(name, rows, has_more)?;
        Ok((sent, has_more))
    }

    /// Passes over rows of a cursor.
    async fn pass(&mut self, name: &str, count: Option<u64>) -> Result<(u64, bool), Stop> {
        let Some(mut rows) = self.opened(name).await? else { return Ok((0, false)) };
        let mut passed = 0_u64;
        let mut has_more = true;
        while has_more && count.is_none_or(|count| passed < count) {
            has_more = self.attend(rows.next()).await??;
            if has_more {
                rows.take(|_, _| ());
                passed = passed.saturating_add(1);
            }
        }
        self.put_back(name, rows, has_more)?;
        Ok((passed, has_more))
    }

    /// The rows of a portal, which are taken out of it; `None` if all were read. It runs from the first call on.
    async fn opened(&mut self, name: &str) -> Result<Option<Rows>, Stop> {
        let portal = self.portal(name)?;
        if portal.is_complete {
            return Ok(None);
        }
        // Unless its rows are put back, it has no more: a cursor that failed does not begin again.
        portal.is_complete = true;
        if let Some(rows) = portal.rows.take() {
            return Ok(Some(rows));
        }
        let (statement, values) = (portal.statement.clone(), portal.values.clone());
        let (told, plan) = (portal.columns.clone(), portal.plan.take());
        let Some(Statement::Query(sql)) = statement else { return Ok(None) };
        let (plan, columns) = match plan {
            Some(planned) => planned,
            None => self.plan(&sql, &values).await?,
        };
        // The types that the client was told stay.
        let is_same = |told: &Columns| {
            told.iter().map(|own| &own.name).eq(columns.iter().map(|own| &own.name))
        };
        if told.as_ref().is_some_and(|told| !is_same(told)) {
            let why = "the columns of the result have changed: prepare the statement again";
            return Err(Failure::unsupported(why).into());
        }
        let columns = told.unwrap_or(columns);
        Ok(Some(self.start(plan, columns).await?))
    }

    fn put_back(&mut self, name: &str, rows: Rows, has_more: bool) -> Result<(), Failure> {
        let portal = self.portal(name)?;
        portal.columns.get_or_insert_with(|| Columns::clone(&rows.columns));
        portal.is_complete = !has_more;
        portal.rows = has_more.then_some(rows);
        Ok(())
    }
}
