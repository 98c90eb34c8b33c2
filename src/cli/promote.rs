//! `weir promote`: lists the properties of events and of persons that a project has promoted to columns, promotes one or stops
//! that, over the API with a personal key.

use std::io;
use std::io::Write;

use anyhow::Context;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use hyper::Method;
use serde_json::{Value, json};
use url::form_urlencoded::byte_serialize;

use crate::cli::client::whole;
use crate::cli::project_api::{ProjectApi, ProjectArgs};
use weir_event::promotion::PromotedTable;
use weir_event::schema::PropertyType;

/// The endpoint.
const PATH: &str = "promoted_properties/";

/// Promote a property of events or of persons to a column
#[derive(Clone, Debug, clap::Args)]
pub struct PromoteArgs {
    /// Key of the property; without one, the promoted properties are listed
    #[arg(value_name = "KEY")]
    pub property: Option<String>,
    /// Type of the column, for good
    #[arg(long = "type", value_name = "TYPE", default_value = "text", value_parser = types())]
    pub kind: PropertyType,
    /// Table that has the column; by default that of events, and in the list both
    #[arg(long, value_name = "TABLE", value_parser = tables())]
    pub table: Option<PromotedTable>,
    /// Promote it no more; files keep the column
    #[arg(long, requires = "property")]
    pub remove: bool,
    /// The project; promoting needs the key of an administrator.
    #[command(flatten)]
    pub project: ProjectArgs,
}

/// The names of types.
fn types() -> impl TypedValueParser<Value = PropertyType> {
    let names = PossibleValuesParser::new(PropertyType::ALL.map(PropertyType::name));
    names.try_map(|name| PropertyType::named(&name).ok_or("there is no such type"))
}

/// The names of tables.
fn tables() -> impl TypedValueParser<Value = PromotedTable> {
    let names = PossibleValuesParser::new(PromotedTable::NAMES);
    names.try_map(|name| PromotedTable::named(&name).ok_or("there is no such table"))
}

/// Prints the promoted properties, or the one that is promoted now.
///
/// # Errors
///
/// The server cannot be reached or refuses; the message is the server's.
pub async fn run(args: PromoteArgs) -> anyhow::Result<()> {
    let api = ProjectApi::new(&args.project)?;
    let of_table = args.table.map(|table| format!("?table={}", table.name())).unwrap_or_default();
    let mut out = io::stdout();
    let Some(key) = &args.property else {
        let list: Value = serde_json::from_slice(&api.get(&format!("{PATH}{of_table}")).await?)?;
        let rows = list.get("results").and_then(Value::as_array);
        writeln!(out, "KEY\tTYPE\tCOLUMN\tSINCE\tTABLE")?;
        for row in rows.context("the server answers no list")? {
            writeln!(out, "{}", line(row))?;
        }
        return Ok(());
    };
    if args.remove {
        // In a path, a plus sign is one.
        let part = byte_serialize(key.as_bytes()).collect::<String>().replace('+', "%20");
        api.send(Method::DELETE, &format!("{PATH}{part}/{of_table}"), None).await?;
        return Ok(());
    }
    let mut body = json!({"key": key, "type": args.kind.name()});
    if let (Some(table), Some(fields)) = (args.table, body.as_object_mut()) {
        fields.insert("table".to_owned(), json!(table.name()));
    }
    let made = whole(api.send(Method::POST, PATH, Some(&body)).await?).await?;
    writeln!(out, "{}", line(&serde_json::from_slice(&made)?))?;
    Ok(())
}

/// A promoted property as a line of the list.
fn line(row: &Value) -> String {
    let text = |name: &str| row.get(name).and_then(Value::as_str).unwrap_or_default();
    ["key", "type", "column", "created_at", "table"].map(text).join("\t")
}
