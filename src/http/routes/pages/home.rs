//! Home: each project that the reader may see, at a glance.

use std::sync::Arc;

use chrono::Days;
use chrono::TimeZone;
use chrono::Utc;
use chrono_tz::Tz;
use maud::html;
use serde_json::Value;

use crate::app::App;
use crate::event::json;
use crate::http::response::Problem;
use crate::http::routes::pages::visit::Asking;
use crate::http::routes::pages::visit::Page;
use crate::http::routes::pages::visit::Sent;
use crate::http::routes::pages::visit::Visit;
use crate::http::routes::query;
use crate::metadata::accounts::Project;
use crate::query::rows::Format;
use crate::web::pages::events as shown_events;
use crate::web::pages::health;
use crate::web::pages::home as shown;
use crate::web::pages::home::Summary;
use crate::web::parts::items;
use crate::web::parts::page;

/// Most projects at a glance.
const PROJECTS_MAX: usize = 20;

/// Days of the small chart, today included.
const DAYS: u64 = 14;

/// Newest events.
const EVENTS: &str = "8";

/// `GET home`.
pub async fn home(visit: Visit) -> Result<Sent, Problem> {
    let (project, asking) = (visit.project(), visit.asking.clone());
    let own: Vec<Arc<Project>> = visible(&asking);
    let newest = asking.clone();
    let warned = asking.clone();
    let page = Page::new("Home", html! {}).then(async move {
        let mut cards = Vec::new();
        for own in &own {
            cards.push(shown::card(&summary(&asking.app, own).await?));
        }
        Ok(html! { div class="cards" { @for card in cards { (card) } } })
    });
    let page = page.then(async move {
        let found = newest.get("events/", &[("limit", EVENTS)]).await?;
        let events = items(&found, "results");
        Ok(html! {
            @if !events.is_empty() {
                h2 { "Newest events" }
                (shown_events::table(&[], None, &shown_events::rows(project, newest.zone, events, &[])))
                p { a href=(page_of(project)) { "Watch them live" } }
            }
        })
    });
    if !warned.may("ingestion_warning:read") {
        return Ok(Sent::Page(page));
    }
    Ok(Sent::Page(page.then(async move {
        let found = warned.get("ingestion_warnings/", &[]).await?;
        Ok(html! { @if !items(&found, "results").is_empty() { (health::warnings(warned.zone, &found)) } })
    })))
}

fn page_of(project: i64) -> String {
    page(project, "activity/live")
}

/// The projects that the caller may see, that of the page first.
fn visible(asking: &Asking) -> Vec<Arc<Project>> {
    let snapshot = asking.app.metadata.snapshot();
    let (key, user, current) = (&asking.asker.key, &asking.asker.user, asking.asker.project.id);
    let is_granted =
        |project: &Project| key.projects.as_ref().is_none_or(|own| own.contains(&project.id));
    let mut own: Vec<Arc<Project>> = snapshot
        .projects()
        .filter(|project| project.organization == user.organization && is_granted(project))
        .cloned()
        .collect();
    own.sort_by_key(|project| (project.id != current, project.id.0));
    own.truncate(PROJECTS_MAX);
    own
}

/// Counts by the day of the project's zone: one query over two weeks.
async fn summary(app: &App, project: &Project) -> Result<Summary, Problem> {
    let zone: Tz = project.timezone.parse().unwrap_or(Tz::UTC);
    let now = app.clock.now().to_datetime();
    let today = now.with_timezone(&zone).date_naive();
    let begins: Vec<i64> = (0..DAYS)
        .rev()
        .filter_map(|back| begin(zone, today.checked_sub_days(Days::new(back))?))
        .collect();
    let (Some(first), Some(week_begin)) =
        (begins.first().copied(), begins.get(begins.len().saturating_sub(8)).copied())
    else {
        return Ok(Summary { id: project.id.0, name: project.name.clone(), ..Summary::default() });
    };
    let now = now.timestamp();
    let moment = |seconds: i64| {
        let time = Utc.timestamp_opt(seconds, 0).single().unwrap_or_default();
        format!("TIMESTAMP '{}'", time.format("%Y-%m-%dT%H:%M:%SZ"))
    };
    let mut columns: Vec<String> = Vec::new();
    for (at, from) in begins.iter().enumerate() {
        let to = begins.get(at + 1).copied().unwrap_or(now + 1);
        columns.push(format!(
            "count(*) FILTER (WHERE timestamp >= {} AND timestamp < {}) AS d{at}",
            moment(*from),
            moment(to)
        ));
    }
    let same = now - 7 * 24 * 60 * 60;
    columns.push(format!(
        "count(*) FILTER (WHERE timestamp >= {} AND timestamp < {}) AS w",
        moment(week_begin),
        moment(same)
    ));
    let sql = format!(
        "SELECT {} FROM events WHERE timestamp >= {} AND timestamp < {}",
        columns.join(", "),
        moment(first),
        moment(now + 1)
    );
    let bytes = app.engine.sql(project.id, &sql, Format::Json).await.map_err(query::problem)?;
    let row: Value = json::restore(bytes.trim_ascii()).unwrap_or_default();
    let count = |name: &str| row.get(name).and_then(Value::as_i64).unwrap_or_default();
    Ok(Summary {
        id: project.id.0,
        name: project.name.clone(),
        days: (0..begins.len()).map(|at| count(&format!("d{at}"))).collect(),
        week_ago: count("w"),
    })
}

/// The first second of a day in a zone; that after a gap, where clocks go forward at midnight.
fn begin(zone: Tz, day: chrono::NaiveDate) -> Option<i64> {
    let hours = (0..4).filter_map(|hour| day.and_hms_opt(hour, 0, 0));
    let mut found = hours.filter_map(|time| zone.from_local_datetime(&time).earliest());
    found.next().map(|time| time.timestamp())
}

#[cfg(test)]
mod tests {
    use chrono::NaiveDate;
    use chrono_tz::Tz;

    use super::begin;

    #[test]
    fn days_begin_at_midnight_or_after_the_gap() {
        for (zone, (year, month, day), expected) in [
            (Tz::UTC, (1970, 1, 2), 86_400),
            (Tz::Asia__Shanghai, (1970, 1, 2), 86_400 - 8 * 3600),
            // Clocks went from 0:00 to 1:00 (IANA, `America/Sao_Paulo`).
            (Tz::America__Sao_Paulo, (2018, 11, 4), 1_541_300_400),
        ] {
            let day = NaiveDate::from_ymd_opt(year, month, day).unwrap();
            assert_eq!(begin(zone, day), Some(expected), "{zone} {day}");
        }
    }
}
