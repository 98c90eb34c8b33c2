//! A parsed query node ([`Question`]): an insight, the persons behind a point of one, SQL, or a list of events or
//! actors. All run in the same way, and their results are cached and may be computed later.

use std::sync::Arc;

use serde_json::Value;

use crate::fields::refused;
use crate::response::Problem;
use crate::routes::query::actors::{ActorsQuestion, SOURCES};
use crate::routes::query::problems::{insight_problem, invalid};
use crate::routes::query::unknown;
use weir_app::App;
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_insights::answered::Answered;
use weir_insights::cache::{Answer, Key};
use weir_insights::dependence::Dependence;
use weir_insights::event_list::EventsQuery;
use weir_insights::insight::Insight;
use weir_insights::sql::SqlQuery;
use weir_insights::{InsightError, ProjectSettings, actor_list, event_list, insight};
use weir_wire::query_node::SQL;

/// Most characters of an unknown kind of query that an error repeats.
const KIND_MAX_CHARS: usize = 100;

/// Most event names in the log entry of a slow query.
const EVENTS_TOLD_MAX: usize = 10;

/// A query, parsed from a node.
#[derive(Clone, Debug)]
pub(in crate::routes) enum Question {
    /// An insight.
    Insight(Box<Insight>),
    /// Persons or groups.
    Actors(ActorsQuestion),
    /// Selected columns of events.
    Events(Box<EventsQuery>),
    /// SQL.
    Sql(Box<SqlQuery>),
}

impl Question {
    /// Parses a node without any node around it.
    ///
    /// # Errors
    ///
    /// 400: its kind or a field is unknown, or a field is malformed or requests something that is not available.
    pub(in crate::routes) fn parse(kind: Option<&str>, node: &Value) -> Result<Self, Problem> {
        match kind {
            Some(kind) if insight::KINDS.contains(&kind) => {
                let insight = Insight::parse(node).map_err(|error| invalid(&error))?;
                Ok(Self::Insight(Box::new(insight)))
            }
            Some(kind)
                if actor_list::KINDS.contains(&kind)
                    || kind == actor_list::GROUPS
                    || SOURCES.contains(&kind) =>
            {
                ActorsQuestion::parse(kind, node).map(Self::Actors)
            }
            Some(event_list::KIND) => {
                let events = EventsQuery::parse(node).map_err(|error| invalid(&error))?;
                Ok(Self::Events(Box::new(events)))
            }
            Some(SQL) => sql_of(node).map(|sql| Self::Sql(Box::new(sql))),
            Some(kind) => Err(unknown(kind)),
            None => {
                let detail = "A query is a text of SQL, or an object with a kind.";
                Err(refused("query", "invalid_input", detail))
            }
        }
    }

    /// The dependencies of its result besides the node and the stored data.
    fn dependence<'q>(&self, owner: &'q ProjectSettings, now: UnixMicros) -> Dependence<'q> {
        let mut on = Dependence::new(owner, now);
        match self {
            Self::Insight(insight) => insight.depend(&mut on),
            Self::Actors(actors) => actors.depend(&mut on),
            Self::Events(events) => events.depend(&mut on),
            Self::Sql(sql) => sql.depend(&mut on),
        }
        on
    }

    /// The cache key of its result as of now; `node` is the node that it was parsed from.
    pub(in crate::routes) fn key(
        &self,
        node: &Value,
        owner: &ProjectSettings,
        now: UnixMicros,
    ) -> Key {
        Key::of(node, owner, &self.dependence(owner, now))
    }

    /// The cached result, if it is still valid.
    ///
    /// # Errors
    ///
    /// 400: it names an action that does not exist any more.
    pub(in crate::routes) fn kept(
        &self,
        app: &App,
        key: &Key,
        owner: &ProjectSettings,
    ) -> Result<Option<Arc<Answer>>, Problem> {
        let answer = app.node.answers.get(key, &app.engine, owner.project);
        if let Some(answer) = &answer {
            let insight = match self {
                Self::Insight(insight) => Some(&**insight),
                Self::Actors(actors) => actors.insight(),
                Self::Events(_) | Self::Sql(_) => None,
            };
            if let Some(insight) = insight {
                insight.note(&app.engine, owner).map_err(|error| invalid(&error))?;
            }
            let names = answer.events.iter().map(String::as_str);
            app.engine.note_events_named(owner.project, names);
        }
        Ok(answer)
    }

    /// Computes the result, and caches it if it is cacheable.
    pub(in crate::routes) async fn computed(
        &self,
        app: &App,
        (key, node): (&Key, &Value),
        owner: &ProjectSettings,
    ) -> Result<Arc<Answer>, InsightError> {
        // On the threads for queries: converting the numbers of a long result takes some hundreds of milliseconds.
        let (question, own, settings) = (self.clone(), app.clone(), owner.clone());
        let answer = Box::pin(async move { question.answer(&own, &settings).await });
        let answer = async { app.engine.apart(answer).await? };
        let on = self.dependence(owner, app.engine.now());
        let about = (&app.engine, owner.project);
        let computing = Box::pin(app.node.answers.compute(key, &on, about, answer));
        let computing = async { app.engine.within_time(computing).await? };
        noted(app, owner.project, || told(node), computing).await
    }

    async fn answer(&self, app: &App, owner: &ProjectSettings) -> Result<Answered, InsightError> {
        let answered = match self {
            Self::Insight(insight) => insight.answered(&app.engine, owner).await?,
            Self::Actors(actors) => actors.answer(app, owner).await?,
            Self::Events(events) => events.answer(&app.engine, owner).await?,
            Self::Sql(sql) => sql.answer(&app.engine, owner).await?,
        };
        let mut names = answered.events.clone();
        match self {
            Self::Insight(insight) => names.extend(insight.names(&app.engine, owner)?),
            Self::Events(events) => names.extend_from_slice(events.names()),
            Self::Actors(_) | Self::Sql(_) => {}
        }
        Ok(answered.warned(&unknown::events(app, owner.project, names).await)?)
    }
}

/// Runs `answering`, and records its duration for the list of slow queries.
pub(super) async fn noted<T, E>(
    app: &App,
    project: ProjectId,
    text: impl FnOnce() -> String,
    answering: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let began = app.node.clock.monotonic();
    let answer = answering.await;
    let took = app.node.clock.monotonic().saturating_sub(began);
    app.node.slow.note(project, app.node.clock.now(), (took, answer.is_ok()), text);
    answer
}

/// A short description of a node: its SQL, or its kind and the events that it names.
pub(super) fn told(node: &Value) -> String {
    let text = |node: &Value, name: &str| {
        node.get(name).and_then(Value::as_str).map(str::to_owned).unwrap_or_default()
    };
    let kind = text(node, "kind");
    if kind == SQL {
        return text(node, "query");
    }
    let series =
        node.get("series").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let names = series.iter().map(|series| text(series, "event")).filter(|name| !name.is_empty());
    let names: Vec<String> = names.take(EVENTS_TOLD_MAX).collect();
    if names.is_empty() { kind } else { format!("{kind}: {}", names.join(", ")) }
}

/// Parses a SQL node.
pub(super) fn sql_of(node: &Value) -> Result<SqlQuery, Problem> {
    let is_absent = node.get("query").is_none_or(|sent| sent.is_null() || sent.is_string());
    SqlQuery::parse(node).map_err(|error| match error {
        InsightError::Node(error) if error.field == "query" && is_absent => {
            refused("query__query", "required", error.detail)
        }
        error => insight_problem(error),
    })
}

fn unknown(kind: &str) -> Problem {
    let kind: String = kind.chars().take(KIND_MAX_CHARS).collect();
    let detail = format!(
        "Queries of the kind {kind} are not available. Send a TrendsQuery, a FunnelsQuery, an EventsQuery, or a HogQLQuery with SQL."
    );
    refused("query", "invalid_input", detail)
}
