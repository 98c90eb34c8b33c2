//! Queries and the answers to them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

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
