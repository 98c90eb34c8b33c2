//! The SQL page.

use maud::{Markup, html};

use crate::operation::output::Long;
use crate::response::Problem;
use crate::routes::pages::files;
use crate::routes::pages::insights::load::{saved_of, suggestions};
use crate::routes::pages::visit::{Asking, Page, Sent, Visit};
use crate::routes::schema;
use weir_api::schema::Schema;
use weir_metadata::documents::Kind;
use weir_web::insight::saved::{Saved, sql_form};
use weir_web::pages::sql as shown;
use weir_web::pages::sql::Words;
use weir_web::state::saved_sql;
use weir_web::state::saved_sql::SavedSql;

/// Query for the functions that the editor completes.
const FUNCTIONS: &str = "SELECT DISTINCT routine_name FROM information_schema.routines ORDER BY routine_name LIMIT 1000";

/// `GET sql?q=`: runs the query; with `format` as a file, with `explain` its plan.
pub async fn sql(visit: Visit) -> Result<Sent, Problem> {
    let (project, sql) = (visit.project(), visit.parameter("q").replace('\r', ""));
    let asking = visit.asking.clone();
    if let Some(format) = files::wanted(&visit)?.filter(|_| !sql.trim().is_empty()) {
        return files::of_sql(&asking, &sql, ("query", format)).await;
    }
    let chart = saved_sql::chart(&visit.parameter("chart"));
    let is_explained = !visit.parameter("explain").is_empty();
    let (asked, typed) = (asking.clone(), sql.clone());
    let page = Page::new("SQL", html! {}).then(async move {
        let tables = asked.perform(schema::List::default()).await.ok().map(|Long(tables)| tables);
        let words = words(&asked, tables.as_ref()).await;
        let saved = saved(&asked).await;
        Ok(html! {
            div class="pair" {
                div { (shown::form(project, (&typed, chart), &words, &saved)) }
                @if let Some(tables) = &tables { (shown::tables(tables)) }
            }
        })
    });
    if sql.trim().is_empty() {
        return Ok(Sent::Page(page));
    }
    Ok(Sent::Page(page.then(async move {
        let begun = asking.app.node.clock.monotonic();
        let text = if is_explained { format!("EXPLAIN {sql}") } else { sql.clone() };
        let answer = match asking.sql(&text).await {
            Ok(answer) => answer,
            Err(problem) => return Ok(shown::failed(problem.detail())),
        };
        let millis = asking.app.node.clock.monotonic().saturating_sub(begun).as_millis();
        Ok(html! {
            @if is_explained { (shown::plan(&answer)) } @else {
                (shown::result((project, &sql, chart), &answer, millis))
                (saving(&asking, &SavedSql { sql: sql.clone(), chart, is_whole: true }).await)
            }
            (shown::source(project, &asking.server, &sql))
        })
    })))
}

/// The saved SQL queries; empty for a key that may not read insights.
async fn saved(asking: &Asking) -> Vec<Saved> {
    let mut saved = saved_of(&asking.app, &asking.asker, Kind::Insight).await;
    if let Ok(saved) = &mut saved {
        saved.retain(|own| SavedSql::of(&own.query).is_some());
    }
    saved.unwrap_or_default()
}

/// The form that saves a query; empty without the right to save.
async fn saving(asking: &Asking, sql: &SavedSql) -> Markup {
    if !asking.may("insight:write") {
        return html! {};
    }
    let boards = saved_of(&asking.app, &asking.asker, Kind::Dashboard).await.unwrap_or_default();
    sql_form(asking.project(), sql, &boards, asking.may("dashboard:write"))
}

/// The words that the editor completes; those that the key may not read are left out.
async fn words(asking: &Asking, tables: Option<&Schema>) -> Words {
    let functions = asking.sql(FUNCTIONS).await.unwrap_or_default();
    let mut all = tables.map(shown::words).unwrap_or_default();
    all.extend(shown::names(&functions));
    let known = suggestions(&asking.app, &asking.asker).await.unwrap_or_default();
    Words { all, properties: known.properties, events: known.events }
}
