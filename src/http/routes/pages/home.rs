//! Home: an overview of each project that the user may see.

use std::sync::Arc;
use std::time::Duration;

use chrono::{Days, NaiveTime};
use chrono_tz::Tz;
use maud::{Markup, html};
use serde_json::Value;

use crate::page as part;
use crate::response::Problem;
use crate::routes::pages::events::load;
use crate::routes::pages::insights::load::saved_of;
use crate::routes::pages::visit::{Asking, Page, Sent, Visit};
use crate::routes::query::problems;
use crate::routes::{events, ingestion_warnings};
use weir_app::App;
use weir_base::clock::UnixMicros;
use weir_event::json;
use weir_event::time::at_wall;
use weir_metadata::accounts::Project;
use weir_metadata::documents::Kind;
use weir_query::output::format::Format;
use weir_web::insight::links;
use weir_web::pages::home::Summary;
use weir_web::pages::{events as shown_events, health, home as shown};
use weir_web::parts::{clipped, page};

/// Most projects in the overview.
const PROJECTS_MAX: usize = 20;

/// Days of the small chart, today included.
const DAYS: u64 = 14;

/// A week in microseconds. In most time zones most weeks have this length.
const WEEK_MICROS: i64 = 7 * 24 * 60 * 60 * 1_000_000;

/// Most pinned dashboards and favourite insights.
const FAVOURITES_MAX: usize = 20;

/// Number of newest events.
const EVENTS: usize = 8;

/// `GET home`.
pub async fn home(visit: Visit) -> Result<Sent, Problem> {
    let (project, asking) = (visit.project(), visit.asking.clone());
    let own: Vec<Arc<Project>> = visible(&asking);
    let (newest, pinned) = (asking.clone(), asking.clone());
    let warned = asking.clone();
    let page = Page::new("Home", html! {}).then(async move { favourites(&pinned).await });
    let page = page.then(async move {
        let mut cards = Vec::new();
        for own in &own {
            cards.push(shown::card(&summary(&asking.app, own).await?));
        }
        Ok(html! { div class="cards" { @for card in cards { (card) } } })
    });
    let page = page.then(async move {
        let page = part::Page { limit: EVENTS, offset: 0 };
        let (events, _) = load(&newest, events::List { page, ..Default::default() }).await?;
        Ok(html! {
            @if !events.is_empty() {
                h2 { "Newest events" }
                (shown_events::table(&[], None, &shown_events::rows(project, newest.zone, &events, &[])))
                p { a href=(page_of(project)) { "Watch them live" } }
            }
        })
    });
    if !warned.may("ingestion_warning:read") {
        return Ok(Sent::Page(page));
    }
    Ok(Sent::Page(page.then(async move {
        let found = warned.perform(ingestion_warnings::List {}).await?.results;
        Ok(html! { @if !found.is_empty() { (health::warnings(warned.zone, &found)) } })
    })))
}

/// Pinned dashboards and favourite insights.
async fn favourites(asking: &Asking) -> Result<Markup, Problem> {
    let (app, asker, project) = (&asking.app, &asking.asker, asking.project());
    let mut found: Vec<(String, String)> = Vec::new();
    let all = saved_of(app, asker, Kind::Dashboard).await?;
    let own = all.iter().filter(|own| own.is_favourite);
    found.extend(own.map(|own| (links::dashboard(project, own.id), own.title())));
    let all = saved_of(app, asker, Kind::Insight).await?;
    let own = all.iter().filter(|own| own.is_favourite);
    found.extend(own.map(|own| (links::saved(project, &own.short_id), own.title())));
    found.truncate(FAVOURITES_MAX);
    Ok(html! {
        @if !found.is_empty() {
            nav class="actions above" aria-label="Pinned" {
                @for (address, title) in &found { a class="button small" href=(address) { "★ " bdi { (clipped(title, 60)) } } }
            }
        }
    })
}

fn page_of(project: i64) -> String {
    page(project, "activity/live")
}

/// The projects that the caller may see; the project of the page comes first.
fn visible(asking: &Asking) -> Vec<Arc<Project>> {
    let snapshot = asking.app.node.metadata.snapshot();
    let (key, current) = (&asking.asker.key, asking.asker.project.id);
    let own = snapshot.projects().filter(|project| {
        project.id == current || key.may_use(project) && asking.may("project:read")
    });
    let mut own: Vec<Arc<Project>> = own.cloned().collect();
    own.sort_by_key(|project| (project.id != current, project.id.0));
    own.truncate(PROJECTS_MAX);
    own
}

/// Counts per day in the project's time zone: one query over two weeks.
async fn summary(app: &App, project: &Project) -> Result<Summary, Problem> {
    let zone: Tz = project.timezone.parse().unwrap_or(Tz::UTC);
    let now = app.node.clock.now();
    let today = now.to_datetime().with_timezone(&zone).date_naive();
    let begin = |back| {
        let day = today.checked_sub_days(Days::new(back))?;
        at_wall(day.and_time(NaiveTime::MIN), zone)
    };
    let begins: Vec<UnixMicros> = (0..DAYS).rev().filter_map(begin).collect();
    let (Some(first), Some(week_begin)) =
        (begins.first(), begins.get(begins.len().saturating_sub(8)))
    else {
        return Ok(Summary { id: project.id.0, name: project.name.clone(), ..Summary::default() });
    };
    let moment = |time: UnixMicros| format!("TIMESTAMP '{}'", time.to_rfc3339());
    let count = |from: UnixMicros, to: UnixMicros, name: &str| {
        let (from, to) = (moment(from), moment(to));
        format!("count(*) FILTER (WHERE timestamp >= {from} AND timestamp < {to}) AS {name}")
    };
    let end = now.saturating_add(Duration::from_secs(1));
    let ends = begins.iter().skip(1).copied().chain([end]);
    let days = begins.iter().zip(ends).enumerate();
    let mut columns: Vec<String> =
        days.map(|(at, (from, to))| count(*from, to, &format!("d{at}"))).collect();
    let week_ago = UnixMicros(now.0.saturating_sub(WEEK_MICROS));
    columns.push(count(*week_begin, week_ago, "w"));
    let sql = format!(
        "SELECT {} FROM events WHERE timestamp >= {} AND timestamp < {}",
        columns.join(", "),
        moment(*first),
        moment(end)
    );
    let told = app.sql(project.id, &sql, Format::Json).await.map_err(problems::problem)?;
    let bytes = told.whole().await.map_err(problems::problem)?;
    let row: Value = json::restore(bytes.trim_ascii()).unwrap_or_default();
    let count = |name: &str| row.get(name).and_then(Value::as_i64).unwrap_or_default();
    Ok(Summary {
        id: project.id.0,
        name: project.name.clone(),
        days: (0..begins.len()).map(|at| count(&format!("d{at}"))).collect(),
        week_ago: count("w"),
    })
}
