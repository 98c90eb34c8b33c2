//! The persons behind the points of insights, by the filters of older clients: the parameters ([`OfPoint`]), the
//! look-up ([`find`]), and the responses ([`People`]).

use std::marker::PhantomData;

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::auth::Principal;
use crate::fields::refused;
use crate::objects;
use crate::openapi::{Parameter, Shape, Success};
use crate::operation::Context;
use crate::operation::input::{InBoth, Parts};
use crate::operation::output::{Output, Reply};
use crate::page::Page;
use crate::rendering::Rendering;
use crate::response::{Attr, Problem, Response};
use crate::routes::insights::filters::{Parameters, Sent};
use crate::routes::insights::problem;
use crate::routes::query::actors;
use weir_api::insights::older as api;
use weir_base::error::Kind;
use weir_event::json;
use weir_insights::insight::ActorsOf;
use weir_insights::legacy::Filter;
use weir_insights::{Actor, InsightError, ProjectSettings, legacy};

/// Input that selects persons of an insight: its filters and those of the point, and a page.
#[derive(Debug)]
pub struct OfPoint<P> {
    /// The filters.
    pub(super) filter: Filter,
    /// The page.
    pub(super) page: Page,
    parameters: PhantomData<fn() -> P>,
}

impl<P: Parameters> InBoth for OfPoint<P> {
    fn describe(shape: &mut Shape) {
        <Sent<P> as InBoth>::describe(shape);
        shape.query.push(Parameter::text("search").about("Part of email, name or distinct id"));
        shape.query.extend([Parameter::shared("limit"), Parameter::shared("offset")]);
    }

    fn take(parts: &mut Parts<'_>) -> Result<Self, Problem> {
        let page = page(parts)?;
        let Sent { filter, .. } = Sent::<P>::take(parts)?;
        Ok(Self { filter, page, parameters: PhantomData })
    }
}

/// The page of a request that may have `limit` and `offset` in its body, too. Those of the query take precedence, so
/// that the links of a page work with the same body.
fn page(parts: &Parts<'_>) -> Result<Page, Problem> {
    let Parts { request, body, .. } = parts;
    let number = |name: &'static str| {
        let sent = request.query(name).map(|text| Value::from(text.into_owned()));
        let text = match sent.or_else(|| body.peek(name).cloned()) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(text)) if text.is_empty() => return Ok(None),
            Some(Value::String(text)) => text,
            Some(other) => other.to_string(),
        };
        let wrong = |_| refused(name, "invalid_input", "Expected a whole number.");
        text.parse::<usize>().map(Some).map_err(wrong)
    };
    let page = Page { offset: number("offset")?.unwrap_or(0), ..Page::default() };
    Ok(match number("limit")?.filter(|limit| *limit > 0) {
        Some(limit) => page.limited(limit),
        None => page,
    })
}

/// The selected persons or groups that `search` matches: one more than the page has if there are more.
pub(super) async fn find(
    cx: &Context<Principal>,
    mut actors: ActorsOf,
    (filter, page): (&Filter, Page),
) -> Result<Vec<Actor>, InsightError> {
    if let Some(text) = legacy::text(filter, "search") {
        actors.search(&text)?;
    }
    let (engine, settings) = (cx.app.engine.clone(), ProjectSettings::of(&cx.who.project));
    let finding = Box::pin(async move { actors.find(&engine, &settings, page.part()).await });
    cx.app.engine.within_time(cx.app.engine.apart(finding)).await??
}

/// A page of persons or groups behind a point.
#[derive(Debug)]
pub struct People {
    page: Page,
    /// Whether there are more after this page.
    pub(super) has_more: bool,
    /// In the form of lists of persons.
    pub(super) people: Vec<Value>,
    /// Whether links contain the offset 0, because the request may have it under a second name.
    names_zero: bool,
}

impl People {
    /// The page of persons behind a point, by the filters of the request.
    pub(super) async fn behind(
        cx: &Context<Principal>,
        actors: ActorsOf,
        (filter, page): (&Filter, Page),
    ) -> Result<Self, Problem> {
        let found = find(cx, actors, (filter, page)).await.map_err(problem)?;
        Self::of(cx, page, found).await
    }

    /// The page with these persons; `found` has one more than the page if there are more.
    pub(super) async fn of(
        cx: &Context<Principal>,
        page: Page,
        mut found: Vec<Actor>,
    ) -> Result<Self, Problem> {
        let has_more = found.len() > page.limit;
        found.truncate(page.limit);
        let people = actors::people(&cx.app, &cx.who.project, &found).await?;
        Ok(Self { page, has_more, people, names_zero: false })
    }

    /// The same with the offset 0 in its links.
    pub(super) fn naming_zero(self) -> Self {
        Self { names_zero: true, ..self }
    }

    /// The link to the page at this offset.
    fn link(&self, reply: &Reply<'_>, offset: usize) -> String {
        let public_url = reply.app.node.config.http.public_url.as_deref();
        match self.names_zero {
            true => {
                let parameters = [("limit", self.page.limit), ("offset", offset)];
                Page::link_to(reply.request, public_url, &parameters)
            }
            false => self.page.link(reply.request, public_url, offset),
        }
    }

    /// The link to the next page, if there is one.
    fn next(&self, reply: &Reply<'_>) -> Option<String> {
        let further = self.page.offset.saturating_add(self.page.limit);
        self.has_more.then(|| self.link(reply, further))
    }
}

impl Output for People {
    fn describe(shape: &mut Shape) {
        shape.success = Some(Success::of::<api::PersonsOfPoint>(StatusCode::OK, "The answer"));
    }

    async fn respond(self, reply: &Reply<'_>) -> Result<Response, Problem> {
        let cpu = &reply.app.node.cpu;
        if reply.rendering == Rendering::Csv {
            return objects::answer(cpu, StatusCode::OK, reply.rendering, self.people).await;
        }
        let body = api::PersonsOfPoint {
            initial: self.link(reply, 0),
            is_cached: false,
            last_refresh: (),
            missing_persons: 0,
            next: self.next(reply),
            results: vec![api::People { count: self.people.len(), people: self.people }],
        };
        objects::answer(cpu, StatusCode::OK, reply.rendering, body).await
    }
}

/// As [`People`], with fewer fields, for points that are numbers of intervals, or intervals of a status.
#[derive(Debug)]
pub struct PeopleOfNumber(pub(super) People);

impl Output for PeopleOfNumber {
    fn describe(shape: &mut Shape) {
        shape.success = Some(Success::of::<api::PersonsOfNumber>(StatusCode::OK, "The answer"));
    }

    async fn respond(self, reply: &Reply<'_>) -> Result<Response, Problem> {
        let Self(people) = self;
        if reply.rendering == Rendering::Csv {
            return people.respond(reply).await;
        }
        let next = people.next(reply);
        let results = vec![api::People { count: people.people.len(), people: people.people }];
        let body = api::PersonsOfNumber { next, results };
        objects::answer(&reply.app.node.cpu, StatusCode::OK, reply.rendering, body).await
    }
}

/// As [`People`], with the intervals in which each person was active.
#[derive(Debug)]
pub struct PeopleOfRow {
    /// The page of persons.
    pub(super) people: People,
    /// For each of them, 1 or 0 for each interval.
    pub(super) appearances: Vec<Vec<u8>>,
}

impl Output for PeopleOfRow {
    fn describe(shape: &mut Shape) {
        shape.success = Some(Success::of::<api::PersonsOfRow>(StatusCode::OK, "The answer"));
    }

    async fn respond(self, reply: &Reply<'_>) -> Result<Response, Problem> {
        let next = self.people.next(reply);
        let rows = self.people.people.into_iter().zip(self.appearances);
        let rows = rows.map(|(person, appearances)| api::PersonOfRow { appearances, person });
        let result: Vec<api::PersonOfRow> = rows.collect();
        let cpu = &reply.app.node.cpu;
        if reply.rendering == Rendering::Csv {
            return objects::answer(cpu, StatusCode::OK, reply.rendering, result).await;
        }
        let body = api::PersonsOfRow { missing_persons: 0, next, result };
        objects::answer(cpu, StatusCode::OK, reply.rendering, body).await
    }
}

/// The entity whose persons are selected: found by its order, or by its id and math; otherwise a new one that no series
/// has.
pub(super) fn entity(filter: &Filter) -> Result<Value, Problem> {
    let text = |name: &str| match filter.get(name) {
        Some(Value::Number(number)) => Some(number.to_string()),
        _ => legacy::text(filter, name),
    };
    let mut entities = Vec::new();
    for kind in ["events", "actions"] {
        let list = match filter.get(kind) {
            Some(Value::String(text)) => json::read(text.as_bytes()).ok(),
            other => other.cloned(),
        };
        for mut entity in list.as_ref().and_then(Value::as_array).cloned().unwrap_or_default() {
            if let Value::Object(fields) = &mut entity {
                fields.entry("type").or_insert_with(|| json!(kind));
            }
            entities.push(entity);
        }
    }
    let order = text("entity_order").and_then(|order| order.parse::<u64>().ok());
    let of_order = |entity: &&Value| entity.get("order").and_then(Value::as_u64) == order;
    if let Some(entity) = order.and_then(|_| entities.iter().find(of_order)) {
        return Ok(entity.clone());
    }
    let id = match filter.get("entity_id") {
        Some(Value::Null) => Some(Value::Null),
        _ => text("entity_id").map(Value::String),
    };
    let (Some(id), Some(kind)) = (id, text("entity_type")) else {
        let detail = "An entity id and the entity type must be provided to determine an entity";
        return Err(Problem::new(Kind::Invalid, "invalid_input", detail).with_attr(Attr::Null));
    };
    let math = text("entity_math").unwrap_or_else(|| "total".to_owned());
    let is = |entity: &&Value| {
        let own = entity.get("math").and_then(Value::as_str).unwrap_or("total");
        // Ids of actions are numbers, which are texts in query strings.
        let is_it = match (entity.get("id"), &id) {
            (Some(Value::Number(number)), Value::String(id)) => number.to_string() == *id,
            (own, id) => own == Some(id),
        };
        is_it && entity.get("type").and_then(Value::as_str) == Some(&kind) && own == math
    };
    let made = || json!({"id": id, "type": kind, "math": math});
    Ok(entities.iter().find(is).cloned().unwrap_or_else(made))
}
