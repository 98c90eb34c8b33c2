//! The simple protocol: a text with any number of statements, of which each is answered at once, with values as text.

use crate::error::Failure;
use crate::lexer::statements;
use crate::rows::tell;
use crate::session::answers::Until;
use crate::session::{Stop, Talk};
use crate::statement::Statement;
use crate::wire::frontend::Formats;

/// Most statements of a text.
const STATEMENTS_MAX: usize = 1000;

impl Talk {
    /// Answers the statements of a text, up to the first that fails.
    pub(super) async fn query(&mut self, text: &str) -> Result<(), Stop> {
        let statements = statements(text);
        if statements.is_empty() {
            self.connection.out.empty_query();
        }
        let done = match statements.len() > STATEMENTS_MAX {
            true => {
                Err(Failure::too_much(format!("a text has at most {STATEMENTS_MAX} statements"))
                    .into())
            }
            false => self.all(&statements).await,
        };
        self.settled(done).await
    }

    async fn all(&mut self, statements: &[&str]) -> Result<(), Stop> {
        for sql in statements {
            let statement = Statement::read(sql)?;
            self.check_transaction(&statement)?;
            self.one(&statement).await?;
        }
        Ok(())
    }

    async fn one(&mut self, statement: &Statement) -> Result<(), Stop> {
        match statement {
            Statement::Query(sql) => {
                self.check().await?;
                let began = self.app.node.clock.monotonic();
                let done = self.rows_of(sql).await;
                self.note(sql, began, &done);
                done
            }
            Statement::Copy(copy) => self.copy(copy, &[]).await,
            Statement::Show(name) => {
                let mut rows = self.shown(name)?;
                tell(&rows.columns, &Formats::default(), &mut self.connection.out);
                self.send(&mut rows, &Formats::default(), Until::All).await?;
                self.connection.out.complete("SHOW");
                Ok(())
            }
            Statement::Declare(cursor) => self.declare(cursor).await,
            Statement::Fetch(fetch) => {
                if !fetch.is_move {
                    let (columns, formats) = self.cursor_columns(&fetch.name)?;
                    tell(&columns, &formats, &mut self.connection.out);
                }
                self.fetch(fetch).await
            }
            other => {
                let tag = self.effect(other)?.unwrap_or_default();
                self.connection.out.complete(tag);
                Ok(())
            }
        }
    }

    async fn rows_of(&mut self, sql: &str) -> Result<(), Stop> {
        let (plan, columns) = self.plan(sql, &[]).await?;
        let mut rows = self.start(plan, columns).await?;
        let formats = Formats::default();
        // An error before the first row comes instead of the columns.
        self.attend(rows.next()).await??;
        tell(&rows.columns, &formats, &mut self.connection.out);
        let (sent, _) = self.send(&mut rows, &formats, Until::AllOfAnswer).await?;
        self.connection.out.complete(&format!("SELECT {sent}"));
        Ok(())
    }
}
