//! The data dictionary, and the live files of tables.

use crate::auth;
use crate::auth::Principal;
use crate::fields::refused;
use crate::operation::input::input;
use crate::operation::output::Long;
use crate::operation::{Context, Operation};
use crate::response::Problem;
use crate::routes::query::problems;
use weir_api::schema as api;
use weir_app::live_files::{LiveFile, LiveFiles, LiveTables};
use weir_app::views;
use weir_base::error::Kind;
use weir_event::dictionary;
use weir_event::dictionary::{Availability, Column, TABLES, Table};
use weir_event::promotion::{PromotedTable, Promotion};
use weir_metadata::members::Level;
use weir_query::kernel::view::View;

input! {
    /// Every table and column, with type, meaning, unit and an example; promoted properties are among the columns of
    /// events and of persons.
    #[derive(Default)]
    pub struct List {
        /// Only the table with this name
        query table: Option<String>,
    }
}

input! {
    /// Files that may have rows of the project, and views of these rows for DuckDB. Files have rows of other projects
    /// of the organization as well.
    pub struct Files {}
}

impl Operation for List {
    type Who = Principal;
    type Out = Long<api::Schema>;
    const SCOPE: &'static str = "query:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let tables: Vec<&Table> = match &self.table {
            None => TABLES.iter().collect(),
            Some(name) => vec![dictionary::table(name).ok_or_else(no_table)?],
        };
        let view = cx.app.engine.view(cx.who.project.id).await.map_err(problems::problem)?;
        let mut described = Vec::new();
        for table in tables {
            described.push(shown(table, more_columns(&view, table).await?));
        }
        Ok(Long(api::Schema { tables: described }))
    }
}

fn no_table() -> Problem {
    let names = TABLES.map(|table| table.name).join(", ");
    refused("table", "invalid_input", format!("There is no such table; there are {names}."))
}

/// Columns of a table of SQL that the dictionary does not list.
async fn more_columns(view: &View, table: &Table) -> Result<Vec<Column>, Problem> {
    if PromotedTable::named(table.name).is_none() {
        return Ok(Vec::new());
    }
    let rows = view.table(table.name).await.map_err(problems::problem)?;
    let fields = rows.schema().fields();
    Ok(table.more_columns(fields.iter().map(AsRef::as_ref)))
}

fn shown(table: &Table, more: Vec<Column>) -> api::Table {
    let column = |column: Column| api::Column {
        r#type: column.kind.sql().to_owned(),
        nullable: column.is_nullable,
        description: column.meaning.into_owned(),
        unit: column.unit.map(str::to_owned),
        example: column.example.into_owned(),
        since: column.since,
        in_sql: column.place != Availability::Files,
        in_files: column.place != Availability::Sql,
        name: column.name.into_owned(),
    };
    api::Table {
        name: table.name.to_owned(),
        description: table.meaning.to_owned(),
        in_files: table.has_files,
        columns: table.columns().into_iter().chain(more).map(column).collect(),
    }
}

impl Operation for Files {
    type Who = Principal;
    type Out = Long<api::Files>;
    const SCOPE: &'static str = "query:read";

    /// Who knows the files, and may read them, reads all projects: so the key must be one for all of them.
    fn permit(who: &Principal) -> Result<(), Problem> {
        auth::require_level(&who.key, Level::Admin)
    }

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (app, project) = (&cx.app, &cx.who.project);
        let snapshot = cx.snapshot();
        if snapshot.has_others(project.organization) {
            let detail = "The files have rows of other organizations.";
            return Err(Problem::permission_denied(detail));
        }
        let clock = &app.node.clock;
        let tables = LiveTables::of(&app.shard.tables, project.id, clock).await;
        let mut tables = tables.map_err(|error| Problem::of(error.kind(), &error))?;
        // Views have those promoted columns that SQL has, whether or not files have them yet.
        for (table, live) in &mut tables.tables {
            let Some(of) = PromotedTable::named(table.name) else { continue };
            let promoted = snapshot.promoted_columns(of);
            let own = snapshot.promotions(project.id, of).iter();
            let own: Vec<_> = own.map(Promotion::field).collect();
            let is_promoted = |name: &str| promoted.iter().any(|own| own.column() == name);
            live.more_columns.retain(|column| !is_promoted(&column.name));
            live.more_columns.extend(table.more_columns(own.iter()));
        }
        let views = views::sql(project.id, &tables, clock.now());
        let views = views
            .map_err(|error| Problem::new(Kind::TooLarge, "too_many_files", error.to_string()))?;
        let tables = tables.tables.into_iter().map(|(table, live)| files(table.name, live));
        Ok(Long(api::Files { tables: tables.collect(), views }))
    }
}

fn files(name: &str, live: LiveFiles) -> api::TableFiles {
    let file = |LiveFile { path, bytes, rows }| api::File { path, bytes, rows };
    api::TableFiles {
        name: name.to_owned(),
        location: live.place,
        version: live.version,
        bytes: live.files.iter().map(|file| file.bytes).sum(),
        files: live.files.into_iter().map(file).collect(),
    }
}
