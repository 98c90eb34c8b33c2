//! Lists of selected columns of events: [`EventsQuery`]. Its filters restrict the events of a view, from which SQL
//! selects ([`Select`]). For single events, newest first, the time of the last one of the page is determined
//! beforehand ([`newest`]), as in lists of events.

mod elements;

use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::TimestampMicrosecondType;
use chrono_tz::Tz;
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::Expr;
use datafusion::prelude::{col, lit};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::action::Action;
use crate::answered::Answered;
use crate::columns::text;
use crate::date_range::Parameters;
use crate::dependence::Dependence;
use crate::events::{newest, of_person, within};
use crate::filters::Filters;
use crate::select::{Select, Special, Written};
use crate::selection::zone;
use crate::{InsightError, ProjectSettings, person_name};
use weir_api::node::{Content as _, NodeError};
use weir_api::nodes::check::parse;
use weir_api::nodes::filter::Properties;
use weir_api::nodes::lists as nodes;
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_identity::IdentityError;
use weir_identity::person::Person;
use weir_identity::view::View as IdentityView;
use weir_query::dialect::sql_text::literal;
use weir_query::events::expression_columns::with_columns;
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::view::View;
use weir_query::output::lists::{Cell, Content};

/// The kind of its query nodes.
pub const KIND: &str = "EventsQuery";

/// Most event names.
const EVENTS_MAX: usize = 1000;

/// Most events up to the end of the page for which the time of the last one is determined beforehand.
const NEWEST_MAX: usize = 100_000;

/// Default of `after` (PostHog's figure).
const AFTER: &str = "-24h";

/// How far `before` is ahead of now by default, in microseconds, since the clocks of senders differ (PostHog's
/// figure).
const AHEAD: i64 = 5_000_000;

const MINUTE: i64 = 60 * 1_000_000;

/// A parsed list of selected columns of events.
#[derive(Clone, Debug)]
pub struct EventsQuery {
    select: Select<EventCell>,
    filters: Filters,
    is_without_tests: bool,
    events: Vec<String>,
    action: Option<i64>,
    steps: Option<Action>,
    person: Option<String>,
    dates: Dates,
}

/// The time range of the events, as it was sent.
#[derive(Clone, Debug)]
pub struct Dates {
    after: Option<String>,
    before: Option<String>,
}

/// A result cell of a list of events that is computed from several columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventCell {
    /// The whole event: `*`.
    Event,
    /// The person of the event.
    Person,
    /// The display name of the person.
    PersonName,
    /// The DOM elements that the event is about.
    Elements,
}

impl Special for EventCell {
    const MISSING: Option<usize> = None;

    fn named(name: &str) -> Option<Self> {
        match name {
            "*" => Some(Self::Event),
            "person" => Some(Self::Person),
            "person_display_name" => Some(Self::PersonName),
            "elements" => Some(Self::Elements),
            _ => None,
        }
    }

    fn parts(self) -> &'static [&'static str] {
        match self {
            Self::Event => &[
                "uuid",
                "event",
                "timestamp",
                "distinct_id",
                "elements_chain",
                "received_at",
                "\"p_$process_person_profile\"",
                "properties",
            ],
            Self::Person | Self::PersonName => &["distinct_id", "person_id"],
            Self::Elements => &["elements_chain"],
        }
    }

    fn order(self, owner: &ProjectSettings) -> String {
        match self {
            Self::Event => "uuid".to_owned(),
            Self::Person => "distinct_id".to_owned(),
            Self::Elements => "elements_chain".to_owned(),
            Self::PersonName => {
                let keys = person_name::keys(owner.person_names.as_deref());
                let name = |key: &str| format!("nullif(person.properties[{}], '')", literal(key));
                let names: Vec<String> = keys.into_iter().map(name).collect();
                let names = names.into_iter().chain(["distinct_id".to_owned()]);
                format!("coalesce({})", names.collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// Whole events are ordered by time, newest first.
    fn first_order(self, owner: &ProjectSettings) -> (String, bool) {
        match self {
            Self::Event => ("timestamp".to_owned(), true),
            _ => (self.order(owner), false),
        }
    }
}

impl EventsQuery {
    /// Parses a query node.
    ///
    /// # Errors
    ///
    /// A field is malformed, too long, or requests something that is not available.
    pub fn parse(query: &Value) -> Result<Self, NodeError> {
        let sent = parse::<nodes::EventsQuery>(query)?;
        let mut filters = Filters::default();
        let (own, fixed) = (&sent.base.properties, &sent.base.fixed_properties);
        for (name, properties) in [("properties", own), ("fixedProperties", fixed)] {
            if let Some(Properties(properties)) = properties {
                filters.add(properties, name)?;
            }
        }
        if sent.events.len() > EVENTS_MAX {
            return Err(NodeError::new("events", format!("Expected at most {EVENTS_MAX} names.")));
        }
        let events = sent.event.into_iter().chain(sent.events).filter(|name| !name.is_empty());
        let action = sent.action_id.map(|id| i64::try_from(id).unwrap_or(i64::MAX));
        let steps = sent.action_steps;
        let steps = match action.is_none() && !steps.is_empty() {
            true => Some(Action::of(steps, "actionSteps")?),
            false => None,
        };
        let person = match sent.person_id {
            Some(Value::Number(number)) => Some(number.to_string()),
            Some(other) => Option::read(&other, "personId")?,
            None => None,
        };
        Ok(Self {
            select: Select::of(&sent.base, &["*"])?,
            filters,
            is_without_tests: sent.filter_test_accounts,
            events: events.collect(),
            action,
            steps,
            person,
            dates: Dates { after: sent.after, before: sent.before },
        })
    }

    /// The event names in the query.
    pub fn names(&self) -> &[String] {
        &self.events
    }

    /// The rows.
    pub fn answer<'a>(
        &'a self,
        engine: &'a Engine,
        owner: &'a ProjectSettings,
    ) -> BoxFuture<'a, Result<Answered, InsightError>> {
        Box::pin(async move {
            let (after, before) =
                self.dates.bounds((zone(owner)?, owner.is_monday_first), engine.now())?;
            // Filters on persons and groups must reflect every acknowledged event.
            engine.wait().await?;
            let view = Arc::new(engine.view(owner.project).await?);
            let mut events = self.events(engine, (&view, owner), (after, before)).await?;
            let written = self.select.written(engine, (&view, owner), &[("uuid", true)]);
            let Written { query, times, columns, is_newest_first } = written.await?;
            let (limit, offset) = self.select.page(engine);
            let wanted = offset.saturating_add(limit).saturating_add(1);
            if is_newest_first && wanted <= NEWEST_MAX {
                let (own, chosen) = (Arc::clone(&view), events.clone());
                let planning = async move { own.composed(("events", chosen), times).await };
                let times = engine.planned(planning).await?;
                let bounds = (after, Some(before));
                let newest = newest::condition(engine, (&view, &times), bounds, wanted).await?;
                events = events.filter(newest)?;
            }
            let persons = engine.persons(owner.project);
            let made = |cell: EventCell, places: &[usize]| {
                Content::Made("Tuple", cell.made(owner, &persons, places))
            };
            let planning = Box::pin(async move { view.composed(("events", events), query).await });
            self.select.answered(engine, owner.project, (columns, made), planning).await
        })
    }

    /// The events that match, with the columns of `events`.
    async fn events(
        &self,
        engine: &Engine,
        (view, owner): (&View, &ProjectSettings),
        (after, before): (Option<UnixMicros>, UnixMicros),
    ) -> Result<DataFrame, InsightError> {
        let mut events = within(view.events()?, (after, Some(before)))?;
        if !self.events.is_empty() {
            let names = self.events.iter().map(|name| lit(name.as_str())).collect();
            events = events.filter(col("event").in_list(names, false))?;
        }
        if let Some(person) = &self.person {
            let is_of_person = match person_called(engine, owner.project, person).await? {
                Some(person) => of_person(engine, owner.project, person).await?,
                None => lit(false),
            };
            events = events.filter(is_of_person)?;
        }
        let mut conditions: Vec<Expr> = Vec::new();
        let mut filters = self.filters.clone();
        if self.is_without_tests {
            filters.add(&owner.test_account_filters, "filterTestAccounts")?;
        }
        conditions.extend(filters.condition(engine, owner.project, view.exact()));
        let action = match self.action {
            Some(id) => Some(Action::find(engine, owner.project, (id, "actionId"))?),
            None => self.steps.clone(),
        };
        conditions.extend(action.map(|action| action.condition(engine, (view, owner.project))));
        let all = view.event_times().unwrap_or((UnixMicros(0), UnixMicros(0)));
        let bounds = (after.map_or(all.0, |after| after.max(all.0)), before.min(all.1));
        events = with_columns(view, events, bounds, &conditions).await?;
        let events = conditions.into_iter().try_fold(events, DataFrame::filter)?;
        Ok(view.as_events(events).await?)
    }
}

impl Dates {
    /// The bounds of the time range, both exclusive; no lower bound means from the oldest event on. Relative times
    /// are relative to the beginning of the minute, so that a cached result can be returned within it. Weeks begin on
    /// Monday, or on Sunday.
    pub fn bounds(
        &self,
        (zone, is_monday_first): (Tz, bool),
        now: UnixMicros,
    ) -> Result<(Option<UnixMicros>, UnixMicros), NodeError> {
        let now = UnixMicros(now.0.saturating_sub(now.0.rem_euclid(MINUTE)));
        let date = |name: &str, text: &str| {
            let from = Some(text);
            let parameters =
                Parameters { from, is_explicit: true, is_monday_first, ..Parameters::default() };
            let range = parameters.range(zone, now).map_err(|_| NodeError {
                field: name.to_owned(),
                detail: "Expected a date, or a span such as -7d.".to_owned(),
            });
            range.map(|range| range.from)
        };
        let after = match self.after.as_deref().unwrap_or(AFTER) {
            "all" => None,
            text => Some(date("after", text)?),
        };
        let before = match self.before.as_deref() {
            Some(text) => date("before", text)?,
            None => UnixMicros(now.0.saturating_add(MINUTE).saturating_add(AHEAD)),
        };
        // With the default `after`, a list before an older time is empty, like a page after the last one.
        if self.after.is_some() && after.is_some_and(|after| after > before) {
            let detail = "It is after `before`, so that no event can be between them.".to_owned();
            return Err(NodeError { field: "after".to_owned(), detail });
        }
        Ok((after, before))
    }
}

/// The current person with a numeric id or a uuid, which may be that of a person that was merged into another one.
async fn person_called(
    engine: &Engine,
    project: ProjectId,
    text: &str,
) -> Result<Option<Uuid>, InsightError> {
    if let Ok(number) = text.parse::<i64>() {
        let read = engine.read(move |view, _| view.person_by_number(project, number)).await?;
        return Ok(read.map(|person| person.uuid));
    }
    let Ok(uuid) = Uuid::try_parse(text) else {
        let detail = "Expected the id or the uuid of a person.".to_owned();
        return Err(NodeError { field: "personId".to_owned(), detail }.into());
    };
    let person = engine.identities().overrides().resolve(project, uuid);
    Ok(Some(person.map_err(QueryError::from)?))
}

impl EventCell {
    /// The function that computes a cell from the columns at these indexes.
    fn made(self, owner: &ProjectSettings, view: &Arc<IdentityView>, places: &[usize]) -> Cell {
        let (project, places) = (owner.project, places.to_vec());
        let (view, names) = (Arc::clone(view), owner.person_names.clone());
        Arc::new(move |batch: &RecordBatch, row: usize, out: &mut Vec<u8>| {
            let at = |number: usize| text((batch, row), places.get(number).copied());
            let (first, person) = (at(0).unwrap_or_default(), at(1).unwrap_or_default());
            let body = match self {
                Self::Event => {
                    write_event((batch, row), &places, project, out);
                    return Ok(());
                }
                Self::Person => match found(&view, project, person)? {
                    Some(person) => json!({
                        "uuid": person.uuid.to_string(), "created_at": person.created_at.to_rfc3339(),
                        "properties": person.properties, "distinct_id": first,
                    }),
                    None => json!({"distinct_id": first}),
                },
                Self::Elements => elements::body(first),
                Self::PersonName => {
                    let properties = found(&view, project, person)?.map(|person| person.properties);
                    let name = properties
                        .and_then(|properties| person_name::of(names.as_deref(), &properties));
                    let name = name.as_deref().unwrap_or(first);
                    json!({"display_name": name, "id": person, "distinct_id": first})
                }
            };
            out.extend_from_slice(body.to_string().as_bytes());
            Ok(())
        })
    }
}

fn found(
    view: &IdentityView,
    project: ProjectId,
    person: &str,
) -> Result<Option<Person>, IdentityError> {
    match Uuid::try_parse(person) {
        Ok(uuid) => view.person_by_uuid(project, uuid),
        Err(_) => Ok(None),
    }
}

/// Writes an event as JSON. Its properties are copied as the JSON that was sent.
fn write_event(
    (batch, row): (&RecordBatch, usize),
    places: &[usize],
    project: ProjectId,
    out: &mut Vec<u8>,
) {
    let at = |number: usize| places.get(number).copied();
    let text = |number: usize| text((batch, row), at(number)).unwrap_or_default();
    let time = |number: usize| {
        let times = batch.columns().get(at(number)?)?;
        let times = times.as_primitive_opt::<TimestampMicrosecondType>()?;
        Some(UnixMicros(times.value(row)).to_rfc3339())
    };
    let has_profile = at(6).and_then(|place| batch.columns().get(place)?.as_boolean_opt());
    let has_profile = has_profile.is_none_or(|column| column.is_null(row) || column.value(row));
    let body = json!({
        "uuid": text(0), "event": text(1), "timestamp": time(2), "team_id": project.0,
        "distinct_id": text(3), "elements_chain": text(4),
        "elements": elements::body(text(4)), "created_at": time(5),
        "person_mode": if has_profile { "full" } else { "propertyless" },
    });
    let properties = Some(text(7)).filter(|text| !text.is_empty()).unwrap_or("{}");
    let body = body.to_string();
    out.extend_from_slice(body.strip_suffix('}').unwrap_or_default().as_bytes());
    out.extend_from_slice(b",\"properties\":");
    out.extend_from_slice(properties.as_bytes());
    out.push(b'}');
}

impl EventsQuery {
    /// Adds the dependencies of its result.
    pub fn depend(&self, on: &mut Dependence<'_>) {
        // Expressions in the selected columns are covered by the plan, which determines whether the result is
        // cacheable.
        let Self {
            select: _,
            filters,
            is_without_tests,
            events: _,
            action,
            steps,
            person: _,
            dates,
        } = self;
        on.filters(filters);
        on.tests(*is_without_tests);
        on.is_on_actions |= action.is_some();
        steps.iter().for_each(|steps| on.steps(steps));
        on.relative_times(|owner, now| {
            let bounds = dates.bounds((zone(owner).ok()?, owner.is_monday_first), now);
            let (after, before) = bounds.ok()?;
            Some([after.unwrap_or(UnixMicros(i64::MIN)), before])
        });
    }
}

#[cfg(test)]
mod tests {
    use chrono_tz::Tz;
    use serde_json::json;

    use super::EventsQuery;
    use weir_base::clock::UnixMicros;
    use weir_event::time::parse_rfc3339;

    #[test]
    fn dates_are_those_of_the_minute() {
        let now = "2026-03-31T11:45:30.5Z";
        for (after, before, expected) in [
            (json!(null), json!(null), (Some("2026-03-30T11:45:00Z"), "2026-03-31T11:46:05Z")),
            (json!("all"), json!("-1h"), (None, "2026-03-31T10:45:00Z")),
            (json!("-7d"), json!("-1d"), (Some("2026-03-24T12:45:00Z"), "2026-03-30T11:45:00Z")),
            (
                json!("2026-01-05"),
                json!("2026-01-05T10:00:00.5"),
                (Some("2026-01-04T23:00:00Z"), "2026-01-05T09:00:00.5Z"),
            ),
            (
                json!("2026-01-05T10:00:00Z"),
                json!("2026-01-05T13:00:00+02:00"),
                (Some("2026-01-05T10:00:00Z"), "2026-01-05T11:00:00Z"),
            ),
        ] {
            let node = json!({"kind": "EventsQuery", "after": after, "before": before});
            let query = EventsQuery::parse(&node).unwrap();
            let zone: Tz = "Europe/Berlin".parse().unwrap();
            let bounds = |now: UnixMicros| query.dates.bounds((zone, false), now).unwrap();
            let at = |text: &str| parse_rfc3339(text).unwrap();
            let now = at(now);
            assert_eq!(bounds(now), (expected.0.map(at), at(expected.1)), "{node}");
            assert_eq!(bounds(now), bounds(UnixMicros(now.0 + 29_000_000)), "{node}");
        }
        let wrong = json!({"after": "yesterday"});
        let error =
            EventsQuery::parse(&wrong).unwrap().dates.bounds((Tz::UTC, false), UnixMicros(0));
        assert_eq!(error.unwrap_err().field, "after");
    }

    #[test]
    fn wrong_fields_are_named() {
        let many = |text: &str, count: usize| json!(vec![text; count]);
        for (node, field) in [
            (json!({"select": "event, uuid"}), "select"),
            (json!({"select": ["event FROM persons --"]}), "select"),
            (json!({"select": ["event) FROM persons --"]}), "select"),
            (json!({"select": [1]}), "select"),
            (json!({"select": {"a": 1}}), "select"),
            (json!({"select": many("event", 101)}), "select"),
            (json!({"select": [vec!["event"; 101].join("||")]}), "select"),
            (json!({"where": ["1 = 1) OR (1 = 1; SELECT 1"]}), "where"),
            (json!({"where": ["event IN (SELECT name FROM event_definitions)"]}), "where"),
            (json!({"where": many("true", 101)}), "where"),
            (json!({"orderBy": ["timestamp DESC, (SELECT 1 FROM persons)"]}), "orderBy"),
            (json!({"orderBy": ["timestamp LIMIT 5"]}), "orderBy"),
            (json!({"orderBy": many("event", 21)}), "orderBy"),
            (json!({"limit": -1}), "limit"),
            (json!({"limit": "many"}), "limit"),
            (json!({"offset": 1_000_000_001_i64}), "offset"),
            (json!({"properties": [{"key": "a", "value": 1, "type": "flag"}]}), "properties"),
            (json!({"fixedProperties": 1}), "fixedProperties"),
            (json!({"event": 1}), "event"),
            (json!({"events": "a"}), "events"),
            (json!({"events": [1]}), "events"),
            (json!({"events": many("a", 1001)}), "events"),
            (json!({"actionId": "x"}), "actionId"),
            (json!({"actionSteps": [{"event": 1}]}), "actionSteps.0.event"),
            (json!({"personId": []}), "personId"),
            (json!({"filterTestAccounts": "yes"}), "filterTestAccounts"),
            (json!({"after": 1}), "after"),
            (json!({"before": []}), "before"),
            (json!({"source": {"kind": "InsightActorsQuery"}}), "source"),
        ] {
            let error = EventsQuery::parse(&node).unwrap_err();
            assert_eq!(error.field, field, "{node}: {error}");
        }
        for node in [
            json!({}),
            json!({"select": [], "where": null, "orderBy": [], "limit": 0, "offset": null}),
            json!({"select": "event", "actionId": 7, "personId": 9, "limit": 1_000_000}),
            json!({"select": ["*", "person -- Person", "person_display_name -- Person",
                              "coalesce(properties.$current_url, properties.$screen_name) -- Url / Screen",
                              "count() AS n", "properties.$lib"],
                   "orderBy": ["person_display_name -- Person DESC", "count() DESC"]}),
        ] {
            EventsQuery::parse(&node).unwrap();
        }
    }
}
