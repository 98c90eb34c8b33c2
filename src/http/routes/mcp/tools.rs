//! Table of the tools: [`TOOLS`]. One row each: name, title, what it is for, the scopes that a key needs, the arguments
//! that must be there, and the function. Arguments are nodes of [`weir_api::nodes::tools`], from which their schemas are
//! made, too.

pub(super) mod data;
pub(super) mod flags;
pub(super) mod insights;
pub(super) mod people;
pub(super) mod server;

use futures::future::BoxFuture;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::auth;
use crate::response::Problem;
use crate::routes::mcp::said::Said;
use crate::routes::mcp::talk::{Talk, of_argument, wrong};
use weir_api::node::Node;
use weir_api::nodes::{check, tools as own};
use weir_metadata::accounts::PersonalKey;

/// The future of a tool.
type Running<'a> = BoxFuture<'a, Result<Said, Problem>>;

/// A tool.
pub(super) struct Tool {
    /// By which it is called.
    pub(super) name: &'static str,
    title: &'static str,
    about: &'static str,
    /// The scopes that a key needs.
    scopes: &'static [&'static str],
    /// The arguments that must be there.
    needs: &'static [&'static str],
    /// Whether it changes something.
    is_change: bool,
    schema: fn() -> Value,
    run: for<'a> fn(&'a Talk, Value) -> Running<'a>,
}

/// A row of the table.
macro_rules! tool {
    ($name:literal $title:literal $of:ty, $run:path, $scopes:expr, $needs:expr, $about:literal) => {
        Tool {
            name: $name,
            title: $title,
            about: $about,
            scopes: &$scopes,
            needs: &$needs,
            is_change: false,
            schema: schema_of::<$of>,
            run: |talk, arguments| {
                Box::pin(async move { $run(talk, read::<$of>(&arguments)?).await })
            },
        }
    };
}

/// Every tool, in the order in which one would use them.
pub(super) const TOOLS: &[Tool] = &[
    tool!(
        "schema" "Events, properties, tables" own::SchemaArguments, data::schema,
        ["event_definition:read", "property_definition:read"], [],
        "What data there are: events by how often they come, properties with types, the tables and columns of SQL. With \
         event: the properties of that event with examples. Call it first, so that names are right."
    ),
    tool!(
        "sql" "SQL" own::SqlArguments, data::sql, ["query:read"], ["query"],
        "Runs one SELECT, read only. Tables: events, persons, sessions, groups and others (tool schema). ClickHouse \
         functions such as uniq, countIf and toStartOfDay work, and so does PostgreSQL's SQL. Times are UTC. For what the \
         other tools cannot answer."
    ),
    tool!(
        "trends" "Trends" own::TrendsArguments, insights::trends, ["query:read"], [],
        "How many events or persons there are over time, by series, property or period."
    ),
    tool!(
        "funnel" "Funnel" own::FunnelArguments, insights::funnel, ["query:read"], [],
        "How many persons do one step after another, and where the others stop. Needs steps, or query."
    ),
    tool!(
        "retention" "Retention" own::RetentionArguments, insights::retention, ["query:read"], [],
        "How many of those who did something come back in later days, weeks or months."
    ),
    tool!(
        "paths" "Paths" own::PathsArguments, insights::paths, ["query:read"], [],
        "Which pages or events persons go through one after another."
    ),
    tool!(
        "persons_find" "Find persons" own::PersonsFindArguments, people::find, ["person:read"], [],
        "Persons by a part of an email, name or id, or by properties."
    ),
    tool!(
        "person" "One person" own::PersonArguments, people::one, ["person:read"], ["id"],
        "Properties, distinct ids and newest events of one person."
    ),
    tool!(
        "flags_list" "Feature flags" own::FlagsListArguments, flags::list, ["feature_flag:read"], [],
        "Feature flags with their conditions, variants and state."
    ),
    tool!(
        "flag_explain" "Why a flag has its value" own::FlagExplainArguments, flags::explain,
        ["feature_flag:read", "person:read"], ["flag", "distinct_id"],
        "Which value a flag has for a distinct id, and how each of its conditions decided."
    ),
    Tool {
        is_change: true,
        ..tool!(
            "flag_change" "Change a flag" own::FlagChangeArguments, flags::change,
            ["feature_flag:read", "feature_flag:write"], ["flag"],
            "Changes a feature flag in two calls. The first returns what would change, and a token; show that to the user. \
             The second, with their consent, has the same arguments and the token, and makes the change."
        )
    },
    tool!(
        "health" "Health of the server" own::HealthArguments, server::health, ["project:read"], [],
        "Whether events are accepted, how the server's limits are used, slow queries, refused requests, odd events."
    ),
];

impl Tool {
    /// That of a name, if there is one.
    pub(super) fn of(name: &str) -> Option<&'static Self> {
        TOOLS.iter().find(|tool| tool.name == name)
    }

    /// Whether a key may use it.
    pub(super) fn is_open_to(&self, key: &PersonalKey) -> bool {
        self.scopes.iter().all(|scope| key.grants(scope))
    }

    /// As `tools/list` has it.
    pub(super) fn described(&self) -> Value {
        let mut schema = (self.schema)();
        if let (false, Value::Object(fields)) = (self.needs.is_empty(), &mut schema) {
            fields.insert("required".to_owned(), json!(self.needs));
        }
        json!({
            "name": self.name, "title": self.title, "description": self.about, "inputSchema": schema,
            "annotations": {
                "title": self.title, "readOnlyHint": !self.is_change, "destructiveHint": self.is_change,
                "idempotentHint": true, "openWorldHint": false,
            },
        })
    }

    /// Runs it.
    ///
    /// # Errors
    ///
    /// 403 without its scopes, 400 for an argument that is missing or not known; else those of its operations.
    pub(super) async fn run(&self, talk: &Talk, arguments: Value) -> Result<Said, Problem> {
        for scope in self.scopes {
            auth::require(&talk.asking.asker.key, scope)?;
        }
        let is_absent = |name: &&&str| match arguments.get(**name) {
            None | Some(Value::Null) => true,
            Some(Value::String(text)) => text.is_empty(),
            Some(_) => false,
        };
        if let Some(name) = self.needs.iter().find(is_absent) {
            return Err(of_argument(name, format!("{} needs the argument {name}.", self.name)));
        }
        (self.run)(talk, arguments).await
    }
}

/// Reads the arguments of a tool. The fields of nodes are refused by their names, at any depth.
fn read<T: Node>(arguments: &Value) -> Result<T, Problem> {
    check::parse(arguments).map_err(|error| wrong(&error))
}

/// The schema of arguments: an object without others.
fn schema_of<T: JsonSchema>() -> Value {
    let mut schema = SchemaGenerator::default().into_root_schema_for::<T>().to_value();
    if let Value::Object(fields) = &mut schema {
        // Names of types, which say nothing to a model.
        fields.retain(|name, _| !matches!(name.as_str(), "$schema" | "title" | "description"));
        fields.insert("additionalProperties".to_owned(), Value::Bool(false));
        fields.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    }
    schema
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::{TOOLS, Tool, read};
    use weir_api::nodes::tools::{FunnelArguments, TrendsArguments};

    /// Longest list of tools, in bytes: clients put all of it before each conversation.
    const LISTED_MAX_BYTES: usize = 32 << 10;

    #[test]
    fn tools_are_described_from_their_types() {
        let names: BTreeSet<&str> = TOOLS.iter().map(|tool| tool.name).collect();
        assert_eq!(names.len(), TOOLS.len());
        let described: Vec<Value> = TOOLS.iter().map(Tool::described).collect();
        let bytes = json!(described).to_string().len();
        assert!(bytes < LISTED_MAX_BYTES, "{bytes} bytes");
        for (tool, described) in TOOLS.iter().zip(&described) {
            let schema = &described["inputSchema"];
            assert_eq!(schema["type"], "object", "{}", tool.name);
            for name in tool.needs {
                assert!(schema["properties"][name].is_object(), "{} {name}", tool.name);
            }
            // A reference that leads nowhere would fail in clients.
            let text = schema.to_string();
            for name in text.split("\"#/$defs/").skip(1).filter_map(|rest| rest.split('"').next()) {
                assert!(schema["$defs"][name].is_object(), "{} {name}", tool.name);
            }
            let is_read_only = described["annotations"]["readOnlyHint"].as_bool();
            assert_eq!(is_read_only, Some(tool.name != "flag_change"), "{}", tool.name);
        }
        let shown = described[2]["inputSchema"]["properties"]["show"].to_string();
        assert!(shown.contains("\"cumulative\"") && shown.contains("sums up to"), "{shown}");
    }

    #[test]
    fn unknown_arguments_are_refused_with_the_nearest_known_one() {
        let refused = |arguments: &Value| {
            let problem = read::<TrendsArguments>(arguments).unwrap_err();
            (problem.field().unwrap_or_default().to_owned(), problem.detail().to_owned())
        };
        for (arguments, field, detail) in [
            (json!({"serie": []}), "serie", "Did you mean \"series\"?"),
            (json!({"series": [{"evnt": "a"}]}), "series.0.evnt", "Did you mean \"event\"?"),
            (json!({"series": [{"filters": [{"kee": "a"}]}]}), "series.0.filters.0.kee", "\"key\""),
            (json!({"series": "a"}), "series", "Expected a list."),
            (json!({"series": ["a"]}), "series.0", "Expected an object."),
            (json!({"show": "pie"}), "show", "Expected intervals, total or cumulative."),
            (
                json!({"query": {"kind": "TrendsQuery", "intervl": "day"}}),
                "query.intervl",
                "\"interval\"",
            ),
            (json!([]), "", "Expected an object."),
        ] {
            let (found, told) = refused(&arguments);
            assert!(found == field && told.contains(detail), "{arguments}: {found}: {told}");
        }
        assert!(
            read::<FunnelArguments>(&json!({"steps": [{"event": "a"}], "order": "strict"})).is_ok()
        );
    }
}
