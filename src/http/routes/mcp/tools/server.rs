//! The tool `health`: how the server is, as its page says.

use serde_json::json;

use crate::response::Problem;
use crate::routes::ingestion_warnings;
use crate::routes::mcp::said::{Grid, Said};
use crate::routes::mcp::talk::{Talk, limit};
use crate::routes::pages::health::{figures, refused, slow};
use weir_api::nodes::tools::HealthArguments;

/// Rows of each table, usual and most.
const ROWS: (usize, usize) = (10, 50);

/// The tool `health`.
pub(in crate::routes::mcp) async fn health(
    talk: &Talk,
    own: HealthArguments,
) -> Result<Said, Problem> {
    let (asking, most) = (&talk.asking, limit(own.limit, ROWS.0, ROWS.1));
    let found = figures(&asking.app);
    let title = match &found.unready {
        None => "The server accepts events.".to_owned(),
        Some(reason) => format!("The server accepts no events: {reason}."),
    };
    let (age, records) = found.unflushed;
    let rates = found.rates.into_iter().map(|(name, rate)| vec![json!(name), json!(rate)]);
    let counts = found.counts.into_iter().map(|(name, count)| vec![json!(name), json!(count)]);
    let unflushed = [
        vec![json!("seconds since the oldest event that is in no file"), json!(age.as_secs())],
        vec![json!("log records that are in no file"), json!(records)],
    ];
    let rows = rates.chain(counts).chain(unflushed);
    let mut said = Said::new(title).with(Grid::new("Figures", &["figure", "value"], rows, 50));
    let uses = found.uses.into_iter().chain(found.disk_free);
    let uses = uses.map(|own| vec![json!(own.name), json!(own.bytes), json!(own.limit_bytes)]);
    said = said.with(Grid::new("Use of resources", &["what", "bytes", "limit"], uses, 50));
    if asking.may("query:read") {
        let rows = slow(&asking.app, asking.asker.project.id).into_iter().map(|own| {
            vec![json!(own.text), json!(own.took.as_secs_f64()), json!(own.is_answered)]
        });
        let head = ["query", "seconds", "succeeded"];
        said = said.with(Grid::new("Slowest queries of the last hour", &head, rows, most));
    }
    let rows = refused(&asking.app, |_| true).into_iter();
    let rows = rows.map(|own| {
        let last = own.last_at.to_rfc3339();
        vec![json!(own.route), json!(own.status), json!(own.code), json!(own.requests), json!(last)]
    });
    let head = ["endpoint", "status", "code", "requests", "last"];
    said = said.with(Grid::new("Refused requests since the start", &head, rows, most));
    if asking.may("ingestion_warning:read") {
        let found = asking.perform(ingestion_warnings::List {}).await?;
        let rows = found.results.into_iter();
        let rows = rows.map(|own| vec![json!(own.r#type), json!(own.count), json!(own.last_seen)]);
        let head = ["warning", "events", "last seen"];
        said = said.with(Grid::new("What was odd about events", &head, rows, most));
    }
    Ok(said.at(talk.page("health")))
}
