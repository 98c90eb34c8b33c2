//! The extended protocol: statements that are prepared, bound to values, described and executed by a message each.

use arrow::datatypes::DataType;

use crate::error::Failure;
use crate::lexer::statements;
use crate::parameters::Known;
use crate::rows::{Columns, columns, tell};
use crate::session::answers::Until;
use crate::session::prepared::{Described, Portal, Prepared};
use crate::session::{Stop, Talk, type_rows};
use crate::statement::Statement;
use crate::types::{Kind, declared};
use crate::wire::frontend::{Bind, Formats, Message, Target};
use crate::{catalog, parameters};
use weir_insights::sql;
use weir_query::dialect::parameters::PARAMETERS_MAX;

/// The type of a parameter that could be any.
const TEXT: u32 = 25;

impl Talk {
    /// Answers a message of the extended protocol.
    pub(super) async fn extended(&mut self, message: Message) -> Result<(), Stop> {
        match message {
            Message::Parse { name, sql, types } => self.parse(&name, &sql, types),
            Message::Bind(bind) => self.bind(bind).await,
            Message::Describe(Target::Statement(name)) => self.describe_statement(&name).await,
            Message::Describe(Target::Portal(name)) => self.describe_portal(&name).await,
            Message::Execute { portal, rows_max } => self.execute(&portal, rows_max).await,
            Message::Close(target) => {
                match target {
                    Target::Statement(name) => drop(self.statements.remove(&name)),
                    Target::Portal(name) => drop(self.portals.remove(&name)),
                }
                self.connection.out.close_complete();
                Ok(())
            }
            _ => Err(Failure::fatal("08P01", "unexpected message").into()),
        }
    }

    fn parse(&mut self, name: &str, sql: &str, oids: Vec<u32>) -> Result<(), Stop> {
        let statement = match statements(sql).as_slice() {
            [] => Statement::Empty,
            [only] => Statement::read(only)?,
            _ => {
                let why = "cannot insert multiple commands into a prepared statement";
                return Err(Failure::new("42601", why).into());
            }
        };
        if oids.len() > PARAMETERS_MAX {
            return Err(Failure::too_much(format!(
                "a statement has at most {PARAMETERS_MAX} parameters"
            ))
            .into());
        }
        let prepared = Prepared { statement, bytes: sql.len(), oids, described: None };
        self.keep_statement(name, prepared)?;
        self.connection.out.parse_complete();
        Ok(())
    }

    /// The types of a prepared statement.
    async fn described(&mut self, name: &str) -> Result<Described, Stop> {
        let prepared = self.statement(name)?;
        if let Some(known) = &prepared.described {
            return Ok(known.clone());
        }
        let oids = prepared.oids.clone();
        let text = match &prepared.statement {
            Statement::Query(sql) => Some(sql.clone()),
            Statement::Copy(copy) => Some(copy.sql.clone()),
            _ => None,
        };
        let Some(text) = text else {
            let known = |oid: &u32| Known { oid: *oid, inferred: None };
            let oids = match prepared.statement {
                Statement::TypeTree => vec![type_rows::PARAMETER],
                _ => oids,
            };
            let columns: Columns = std::sync::Arc::new([]);
            return Ok(Described { parameters: oids.iter().map(known).collect(), columns });
        };
        self.check().await?;
        let types: Vec<Option<DataType>> = oids.iter().map(|oid| declared(*oid)).collect();
        let (engine, project) = (self.app.engine.clone(), self.project);
        let (facts, database) = (self.facts(&text), self.database.clone());
        let describing = Box::pin(async move {
            let view = sql::view_of(&engine, project).await?;
            view.name_database(&database);
            let describing = async move {
                let Some(facts) = facts else { return view.described(&text, &types).await };
                let view = catalog::with_catalog(view, facts)?;
                view.catalog_described(&text, &types, &catalog::has_no_rows).await
            };
            engine.planned(describing).await
        });
        let found = self.attend(describing).await??;
        let oids = oids.into_iter().chain(std::iter::repeat(0));
        let parameters = found.parameters.into_iter().zip(oids);
        let parameters = parameters.map(|(inferred, oid)| Known { oid, inferred }).collect();
        let described = Described { parameters, columns: columns(&found.columns)? };
        self.statement(name)?.described = Some(described.clone());
        Ok(described)
    }

    async fn describe_statement(&mut self, name: &str) -> Result<(), Stop> {
        let Described { parameters, columns } = self.described(name).await?;
        let oid = |own: &Known| match (own.oid, &own.inferred) {
            (0, Some(inferred)) => Kind::of_type(inferred).oid(),
            (0, None) => TEXT,
            (oid, _) => oid,
        };
        let oids: Vec<u32> = parameters.iter().map(oid).collect();
        self.connection.out.parameters(&oids);
        let statement = self.statement(name)?.statement.clone();
        let columns = match &statement {
            Statement::Query(_) => Some(columns),
            other => self.columns_of(other)?,
        };
        self.tell_columns(columns, &Formats::default());
        Ok(())
    }

    async fn describe_portal(&mut self, name: &str) -> Result<(), Stop> {
        let portal = self.portal(name)?;
        let (known, formats) = (portal.known_columns(), portal.formats.clone());
        let (statement, values) = (portal.statement.clone(), portal.values.clone());
        let columns = match (known, statement) {
            (Some(known), _) => Some(known),
            (None, Some(Statement::Query(sql))) => {
                self.check().await?;
                let planned = self.plan(&sql, &values).await?;
                let columns = Columns::clone(&planned.1);
                // A plan holds the tables as of now, and has no bounded size: one is kept, of the portal that is described last.
                self.portals.values_mut().for_each(|own| own.plan = None);
                let portal = self.portal(name)?;
                portal.columns = Some(Columns::clone(&columns));
                portal.plan = Some(planned);
                Some(columns)
            }
            (None, Some(other)) => self.columns_of(&other)?,
            (None, None) => None,
        };
        self.tell_columns(columns, &formats);
        Ok(())
    }

    /// The columns of statements that are no queries.
    fn columns_of(&mut self, statement: &Statement) -> Result<Option<Columns>, Failure> {
        match statement {
            Statement::Show(name) => Ok(Some(self.shown(name)?.columns)),
            Statement::TypeTree => Ok(Some(type_rows::columns())),
            Statement::Fetch(fetch) if !fetch.is_move => {
                Ok(Some(self.cursor_columns(&fetch.name)?.0))
            }
            _ => Ok(None),
        }
    }

    fn tell_columns(&mut self, columns: Option<Columns>, formats: &Formats) {
        match columns {
            Some(columns) => tell(&columns, formats, &mut self.connection.out),
            None => self.connection.out.no_data(),
        }
    }

    async fn bind(&mut self, bind: Bind) -> Result<(), Stop> {
        let Bind { portal, statement: name, formats, values, results } = bind;
        let prepared = self.statement(&name)?;
        let statement = prepared.statement.clone();
        let (oids, prepared_bytes) = (prepared.oids.clone(), prepared.bytes);
        let is_open = values.len() > oids.len() || oids.contains(&0);
        let was_described = prepared.described.is_some();
        let known = match !values.is_empty() && is_open || was_described {
            true => {
                let described = self.described(&name).await?;
                if described.parameters.len() != values.len() {
                    let why = format!(
                        "bind message supplies {} parameters, but prepared statement \"{}\" requires {}",
                        values.len(),
                        super::told(&name),
                        described.parameters.len()
                    );
                    return Err(Failure::new("08P01", why).into());
                }
                described.parameters
            }
            false => oids.into_iter().map(|oid| Known { oid, inferred: None }).collect(),
        };
        let bytes = values.iter().flatten().map(|value| value.len());
        let bytes = bytes.fold(prepared_bytes, usize::saturating_add);
        let values = values.iter().zip(&known).enumerate();
        let values = values
            .map(|(at, (value, known))| parameters::read(value.as_deref(), formats.of(at), known));
        let values = values.collect::<Result<Vec<_>, _>>()?;
        // The types that were told for the statement stay those of its rows.
        let columns = match (&statement, was_described) {
            (Statement::Query(_), true) => Some(self.described(&name).await?.columns),
            _ => None,
        };
        let own = Portal {
            statement: Some(statement),
            values,
            bytes,
            formats: results,
            columns,
            ..Portal::default()
        };
        self.keep_portal(&portal, own)?;
        self.connection.out.bind_complete();
        Ok(())
    }

    async fn execute(&mut self, name: &str, rows_max: u32) -> Result<(), Stop> {
        let portal = self.portal(name)?;
        let (statement, formats) = (portal.statement.clone(), portal.formats.clone());
        let statement = statement.unwrap_or(Statement::Empty);
        self.check_transaction(&statement)?;
        let until = |all| if rows_max == 0 { all } else { Until::Count(rows_max.into()) };
        match statement {
            Statement::Empty => self.connection.out.empty_query(),
            Statement::Query(sql) => {
                self.check().await?;
                let began = self.app.node.clock.monotonic();
                let done = self.execute_query(name, until(Until::AllOfAnswer)).await;
                self.note(&sql, began, &done);
                done?;
            }
            Statement::Copy(copy) => {
                let values = self.portal(name)?.values.clone();
                self.copy(&copy, &values).await?;
            }
            Statement::Show(setting) => {
                let mut rows = self.shown(&setting)?;
                self.send(&mut rows, &formats, Until::All).await?;
                self.connection.out.complete("SHOW");
            }
            Statement::TypeTree => {
                self.check().await?;
                let mut rows = type_rows::rows(&self.portal(name)?.values)?;
                let (sent, _) = self.send(&mut rows, &formats, Until::All).await?;
                self.connection.out.complete(&format!("SELECT {sent}"));
            }
            Statement::Declare(cursor) => self.declare(&cursor).await?,
            Statement::Fetch(fetch) => {
                // The formats of the fetch are those of its rows.
                if !formats.0.is_empty() {
                    self.portal(&fetch.name)?.formats = formats;
                }
                self.fetch(&fetch).await?;
            }
            other => {
                let tag = self.effect(&other)?.unwrap_or_default();
                self.connection.out.complete(tag);
            }
        }
        Ok(())
    }

    async fn execute_query(&mut self, name: &str, until: Until) -> Result<(), Stop> {
        let (sent, has_more) = self.send_portal(name, until).await?;
        match has_more {
            true => self.connection.out.suspended(),
            false => self.connection.out.complete(&format!("SELECT {sent}")),
        }
        Ok(())
    }
}
