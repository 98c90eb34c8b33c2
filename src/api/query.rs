//! Queries and the answers to them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::Value;

use crate::insights;
use crate::nodes::actors::{FunnelCorrelationActorsQuery, FunnelsActorsQuery, InsightActorsQuery};
use crate::nodes::correlation::FunnelCorrelationQuery;
use crate::nodes::frame::Frame;
use crate::nodes::insights::{
    FunnelsQuery, LifecycleQuery, RetentionQuery, StickinessQuery, TrendsQuery,
};
use crate::nodes::lists::{ActorsQuery, EventsQuery, GroupsQuery, HogQLQuery, Variable};
use crate::nodes::paths::PathsQuery;
use crate::nodes::wrapper::Wrapper;

/// The rows of SQL, or of a list of selected columns.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The names of their types.
    pub types: Vec<String>,
    /// The rows, in the order of the columns.
    pub results: Vec<Vec<Value>>,
}

impl Rows {
    /// Those of an answer as clients get it. The types of SQL have the names of the columns before them.
    pub fn of(columns: Value, types: Value, results: Value) -> Self {
        let text = |value: Value| match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        let type_of = |of: Value| match of {
            Value::Array(mut pair) => pair.pop().map(text).unwrap_or_default(),
            name => text(name),
        };
        Self {
            columns: list(columns).into_iter().map(text).collect(),
            types: list(types).into_iter().map(type_of).collect(),
            results: list(results).into_iter().map(list).collect(),
        }
    }
}

fn list(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}

/// What a query asks: a text of SQL, or a node.
#[derive(Debug)]
pub struct Query;

impl JsonSchema for Query {
    fn schema_name() -> Cow<'static, str> {
        "Query".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let nodes = [
            generator.subschema_for::<HogQLQuery>(),
            generator.subschema_for::<EventsQuery>(),
            generator.subschema_for::<ActorsQuery>(),
            generator.subschema_for::<GroupsQuery>(),
            generator.subschema_for::<TrendsQuery>(),
            generator.subschema_for::<FunnelsQuery>(),
            generator.subschema_for::<RetentionQuery>(),
            generator.subschema_for::<PathsQuery>(),
            generator.subschema_for::<StickinessQuery>(),
            generator.subschema_for::<LifecycleQuery>(),
            generator.subschema_for::<FunnelCorrelationQuery>(),
            generator.subschema_for::<InsightActorsQuery>(),
            generator.subschema_for::<FunnelsActorsQuery>(),
            generator.subschema_for::<FunnelCorrelationActorsQuery>(),
            generator.subschema_for::<Wrapper>(),
        ];
        let text = json_schema!({"type": "string", "description": "SQL, read only"});
        let all: Vec<Schema> = std::iter::once(text).chain(nodes).collect();
        json_schema!({"anyOf": all})
    }
}

/// The body of a query.
#[derive(Debug, JsonSchema)]
pub struct Question {
    /// What it asks
    pub query: Query,
    /// Of the answer to SQL. json and table have query-rows-max rows at most, the others any number
    #[schemars(extend("enum" = ["json", "jsonl", "csv", "table", "parquet", "arrow", null]))]
    pub format: Option<String>,
    /// How an answer to a node is obtained: blocking (the kept one if it is still right), force_blocking or true (a new
    /// one), force_cache (the kept one or none), async or lazy_async (the kept one, or a new one later), force_async (a new
    /// one later)
    #[schemars(extend("type" = ["string", "boolean", "null"]))]
    pub refresh: Option<String>,
    /// The same as refresh async, of older clients
    #[schemars(rename = "async", default)]
    pub is_async: bool,
    /// Of the query, for the client alone
    pub name: Option<String>,
    /// To ask for it later, or to cancel it
    #[schemars(extend("maxLength" = 200))]
    pub client_query_id: Option<String>,
    /// Filters over those of a node, as a dashboard has them
    pub filters_override: Option<Frame>,
    /// Values of the variables of SQL, by their ids
    pub variables_override: Option<BTreeMap<String, Variable>>,
}

/// A warning beside an answer: what may explain it.
#[derive(Clone, Debug, JsonSchema, PartialEq, Eq, Serialize)]
#[schemars(inline)]
pub struct Warning {
    /// Its machine-readable code.
    #[schemars(extend("enum" = ["unknown_event"]))]
    pub code: &'static str,
    /// The name that it is about.
    pub name: String,
    /// Its text.
    pub detail: String,
}

/// Execution time of a phase of a query, in PostHog's short names.
#[derive(Clone, Copy, Debug, JsonSchema, PartialEq, Serialize)]
#[schemars(inline)]
pub struct Timing {
    /// The phase.
    pub k: &'static str,
    /// Its duration in seconds.
    pub t: f64,
}

/// The fields of every answer to a node that depend on the request, not on the data.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Envelope<'a> {
    /// The zone of its dates.
    pub timezone: &'a str,
    /// Whether the answer was kept from before.
    pub is_cached: bool,
    /// When it was computed.
    pub last_refresh: String,
    /// When clients may ask for another one.
    pub next_allowed_client_refresh: String,
    /// The key under which it is kept.
    pub cache_key: String,
    /// Always null.
    pub error: (),
    /// Always null.
    pub query_status: (),
}

/// The fields of every answer to a node besides its results.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Computed {
    /// Execution times.
    pub timings: Vec<Timing>,
    /// What may explain the answer; absent if there is nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<Warning>")]
    pub warnings: Option<Vec<Warning>>,
    /// The rest.
    #[serde(flatten)]
    pub envelope: Envelope<'static>,
}

/// The answer to the node of an insight.
#[derive(Debug, JsonSchema, Serialize)]
pub struct InsightAnswer {
    /// Series, edges of paths, rows of a retention, steps of a funnel, what correlates.
    pub results: insights::Answer,
    /// Always false.
    #[serde(rename = "hasMore")]
    pub has_more: bool,
    /// The rest.
    #[serde(flatten)]
    pub computed: Computed,
}

/// The answer to a node of SQL.
#[derive(Debug, JsonSchema, Serialize)]
pub struct SqlNodeAnswer {
    /// The names of the columns.
    pub columns: Vec<String>,
    /// Name and type of each column.
    pub types: Vec<(String, String)>,
    /// Rows, in the order of the columns.
    pub results: Vec<Vec<Value>>,
    /// Whether there are rows behind the LIMIT that ends the query.
    #[serde(rename = "hasMore")]
    pub has_more: bool,
    /// The SQL as it was sent.
    pub query: String,
    /// The LIMIT that ends the query.
    pub limit: Option<u64>,
    /// Rows that the query skips.
    pub offset: u64,
    /// The rest.
    #[serde(flatten)]
    pub computed: Computed,
}

/// The answer to a node that lists selected columns.
#[derive(Debug, JsonSchema, Serialize)]
pub struct ListAnswer {
    /// The names of the columns.
    pub columns: Vec<String>,
    /// Their types.
    pub types: Vec<String>,
    /// Rows, in the order of the columns.
    pub results: Vec<Vec<Value>>,
    /// Whether there are more rows.
    #[serde(rename = "hasMore")]
    pub has_more: bool,
    /// Most rows.
    pub limit: u64,
    /// Rows before the first one.
    pub offset: u64,
    /// Of actors: how many no longer exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub missing_actors_count: Option<u64>,
    /// The rest.
    #[serde(flatten)]
    pub computed: Computed,
}

/// The answer to a node.
#[derive(Debug, JsonSchema, Serialize)]
#[serde(untagged)]
#[schemars(inline)]
pub enum Answer {
    /// Rows of SQL.
    Sql(SqlNodeAnswer),
    /// A list of selected columns.
    List(ListAnswer),
    /// An insight.
    Insight(InsightAnswer),
}

/// What became of a query whose answer comes later.
#[derive(Debug, JsonSchema, Serialize)]
pub struct QueryLater {
    /// The status, with the answer.
    pub query_status: Ended,
}

/// The status of a query, with its answer once there is one.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct Ended {
    /// The status.
    #[serde(flatten)]
    pub status: QueryStatus<'static>,
    /// The answer.
    pub results: Option<Answer>,
}

/// The status of a query, as PostHog's clients read it.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct QueryStatus<'s> {
    /// Under which the client asks for it.
    pub id: &'s str,
    /// The project.
    pub team_id: i64,
    /// Whether the client does not wait.
    pub query_async: bool,
    /// Whether it has ended.
    pub complete: bool,
    /// Whether it has failed.
    pub error: bool,
    /// Why; null also where that says something about the server.
    pub error_message: Option<&'s str>,
    /// When it began.
    pub start_time: String,
    /// The same.
    pub pickup_time: String,
    /// When it ended.
    pub end_time: Option<String>,
    /// Until when the answer is kept.
    pub expiration_time: Option<String>,
    /// Always null.
    pub query_progress: (),
    /// Always null.
    pub labels: (),
    /// Always null.
    pub task_id: (),
    /// Always null.
    pub insight_id: (),
    /// Always null.
    pub dashboard_id: (),
}
