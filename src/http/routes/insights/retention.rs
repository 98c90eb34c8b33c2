//! Retention by the filters of older clients: `insights/retention/`, a triangle of rows and cells, and
//! `persons/retention/` for the persons of a row.

use serde_json::{Value, json};

use crate::auth::Principal;
use crate::beside::beside;
use crate::fields::refused;
use crate::openapi::{Parameter, Shape};
use crate::operation::input::input;
use crate::operation::output::{Long, Output, Reply};
use crate::operation::{Context, Operation};
use crate::rendering::Rendering;
use crate::response::{Problem, Response};
use crate::routes::insights::filters::{Sent, parameters};
use crate::routes::insights::people::{OfPoint, People, PeopleOfRow, find};
use crate::routes::insights::{URLS_MAX_BYTES, address, invalid, plain, problem, told};
use weir_api::insights::older::RetentionAnswer;
use weir_api::insights::retention::Row;
use weir_insights::insight::ActorsOf;
use weir_insights::legacy::Filter;
use weir_insights::retention::Retention;
use weir_insights::retention::actors::RowSelection;
use weir_insights::retention::legacy::retention_query;
use weir_insights::{ProjectSettings, legacy};

/// The parameter with the index of a row, and the parameter with its values of the breakdown.
const ROW: &str = "selected_interval";
const VALUES: &str = "breakdown_values";

parameters! {
    /// Parameters of a retention.
    OfRetention: [
        Parameter::text("target_entity"),
        Parameter::text("returning_entity"),
        Parameter::one_of("period", &["Hour", "Day", "Week", "Month"]),
        Parameter::between("total_intervals", 1, 400),
        Parameter::text("retention_type"),
        Parameter::text("date_to").about("In the last interval"),
        Parameter::text("properties"),
    ]
}

input! {
    /// Of those who did something in an interval, how many came back in each one after it. A file has the rows.
    pub struct Triangle {
        both sent: Sent<OfRetention>,
    }
}

/// Response with a retention, for an older client.
#[derive(Debug)]
pub enum RetentionOut {
    /// As JSON.
    Answer(RetentionAnswer),
    /// As a file.
    File(Vec<Row>),
}

impl Output for RetentionOut {
    fn describe(shape: &mut Shape) {
        Long::<RetentionAnswer>::describe(shape);
    }

    async fn respond(self, reply: &Reply<'_>) -> Result<Response, Problem> {
        match self {
            Self::Answer(answer) => Long(answer).respond(reply).await,
            Self::File(rows) => Long(rows).respond(reply).await,
        }
    }
}

impl Operation for Triangle {
    type Who = Principal;
    type Out = RetentionOut;
    const SCOPE: &'static str = "insight:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let filter = self.sent.filter;
        let settings = ProjectSettings::of(&cx.who.project);
        let node = retention_query(&filter).map_err(|error| invalid(&error))?;
        let retention = Retention::parse(&node).map_err(|error| invalid(&error))?;
        let mut told = told(cx, (&node, &filter), plain::<Vec<Row>>).await?;
        let (project, rendering) = (cx.who.project.id.0, cx.rendering);
        let answer = move || {
            add_urls(&mut told.result, &retention, (&filter, project));
            Ok(match rendering {
                Rendering::Json => {
                    let answer = RetentionAnswer::of(told.how.computed(&settings), told.result);
                    RetentionOut::Answer(answer)
                }
                _ => RetentionOut::File(told.result),
            })
        };
        beside(&cx.app.node.cpu, answer).await
    }
}

/// Adds the URLs of their persons to rows, and removes the cells after the end of the range.
fn add_urls(rows: &mut [Row], retention: &Retention, (filter, project): (&Filter, i64)) {
    let length = serde_json::to_string(filter).map_or(usize::MAX, |text| text.len());
    let urls = rows.len().saturating_mul(retention.rows());
    let has_urls = urls.saturating_mul(length) <= URLS_MAX_BYTES;
    // The rows of one value of the breakdown follow each other.
    for (row, at) in rows.iter_mut().zip((0..retention.rows()).cycle()) {
        let url = has_urls.then(|| url_of(filter, project, (at, row.breakdown_value.as_deref())));
        row.values.truncate(retention.rows().saturating_sub(at));
        for cell in &mut row.values {
            cell.people = Some([]);
            cell.people_url = Some(url.clone());
        }
        row.people_url = Some(url);
    }
}

parameters! {
    /// Parameters of a row.
    OfRow: [
        Parameter::integer("selected_interval"),
    ]
}

input! {
    /// The persons of a row, those who were active in most of its cells first.
    pub struct Persons {
        both sent: OfPoint<OfRow>,
    }
}

impl Operation for Persons {
    type Who = Principal;
    type Out = PeopleOfRow;
    const SCOPE: &'static str = "person:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let OfPoint { filter, page, .. } = self.sent;
        let read = || Retention::parse(&retention_query(&filter)?);
        let retention = read().map_err(|error| invalid(&error))?;
        let row = match legacy::text(&filter, ROW) {
            Some(text) => text.parse().ok().filter(|row| *row < retention.rows()),
            None => Some(0),
        };
        let row: usize =
            row.ok_or_else(|| refused(ROW, "invalid_input", "There is no such interval."))?;
        let breakdown = legacy::list(&filter, VALUES).map_err(|error| invalid(&error))?;
        let is_empty = |values: &Value| values.as_array().is_some_and(Vec::is_empty);
        let breakdown = Some(breakdown).filter(|values| !values.is_null() && !is_empty(values));
        let cells = retention.rows().saturating_sub(row);
        let actors = ActorsOf::Retention(retention, RowSelection { row, breakdown });
        let found = find(cx, actors, (&filter, page)).await.map_err(problem)?;
        let appearances = found.iter().take(page.limit).map(|actor| {
            let seen = |cell: usize| u8::from(actor.appearances.contains(&cell));
            (0..cells).map(seen).collect()
        });
        let appearances = appearances.collect();
        Ok(PeopleOfRow { people: People::of(cx, page, found).await?, appearances })
    }
}

/// The URL of the persons of a row, which may belong to a value of the breakdown.
fn url_of(filter: &Filter, project: i64, (row, value): (usize, Option<&str>)) -> String {
    let mut filter = filter.clone();
    filter.insert(ROW.to_owned(), json!(row));
    if let Some(value) = value {
        filter.insert(VALUES.to_owned(), json!([value]));
    }
    address(project, "persons/retention/", &filter)
}
