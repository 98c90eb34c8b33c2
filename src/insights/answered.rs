//! Result of a query: rows as JSON bytes, and response fields. See [`Answered`].

use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

use crate::correlation::answer::Subject;
use weir_api::insights;
use weir_api::node::NodeError;
use weir_api::query::{Timing, Warning};
use weir_query::output::lists::{Lists, Took};

/// A result, as two parts of a JSON object.
#[derive(Debug)]
pub struct Answered {
    /// The value of `results`.
    pub results: Bytes,
    /// The other fields that depend on the query and the data, comma-separated, without braces.
    pub fields: String,
    /// Whether the result is cacheable: it stays valid while the tables of the project do not change, as far as the
    /// plan shows.
    pub is_cacheable: bool,
    /// Events that the query names, as far as the plan shows.
    pub events: Vec<String>,
    /// The subjects of the rows of a correlation, whose names are ambiguous; empty for other results.
    pub subjects: Vec<Subject>,
}

/// Response fields beside the rows.
#[derive(Clone, Debug, Serialize)]
pub struct ResponseFields {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Their types.
    pub types: Value,
    /// Whether there are more rows.
    #[serde(rename = "hasMore")]
    pub has_more: bool,
    /// Most rows; `None` if the query sets no limit.
    pub limit: Option<usize>,
    /// Rows skipped before the first one.
    pub offset: usize,
    /// The SQL as it was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// How many of the actors no longer exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing_actors_count: Option<usize>,
    /// Execution times.
    pub timings: Vec<Timing>,
}

/// The phases of a query: planning and execution.
pub fn timings(took: Took) -> Vec<Timing> {
    let phases = [("./plan", took.planning), ("./execute", took.execution)];
    phases.map(|(k, time)| Timing { k, t: time.as_secs_f64() }).to_vec()
}

impl Answered {
    /// The result of an insight, with how long it took.
    ///
    /// # Errors
    ///
    /// The result cannot be encoded as JSON.
    pub fn of(results: &insights::Answer, took: Duration) -> Result<Self, NodeError> {
        let timings = [Timing { k: "./answer", t: took.as_secs_f64() }];
        let timings = serde_json::to_string(&timings).map_err(|error| failed(&error))?;
        Ok(Self {
            results: Bytes::from(serde_json::to_vec(results).map_err(|error| failed(&error))?),
            fields: format!("\"hasMore\":false,\"timings\":{timings}"),
            is_cacheable: true,
            events: Vec::new(),
            subjects: Vec::new(),
        })
    }

    /// Adds the field `warnings`, if there are any.
    ///
    /// # Errors
    ///
    /// They cannot be encoded as JSON.
    pub fn warned(mut self, warnings: &[Warning]) -> Result<Self, NodeError> {
        if !warnings.is_empty() {
            let warnings = serde_json::to_string(warnings).map_err(|error| failed(&error))?;
            self.fields.push_str(&format!(",\"warnings\":{warnings}"));
        }
        Ok(self)
    }

    /// Rows that are encoded already, and the fields beside them.
    ///
    /// # Errors
    ///
    /// The fields cannot be encoded as JSON.
    pub fn of_rows(
        results: Bytes,
        told: &ResponseFields,
        (is_cacheable, events): (bool, Vec<String>),
    ) -> Result<Self, NodeError> {
        let told = serde_json::to_string(told).map_err(|error| failed(&error))?;
        let fields = told.strip_prefix('{').and_then(|told| told.strip_suffix('}'));
        let fields = fields.unwrap_or_default().to_owned();
        Ok(Self { results, fields, is_cacheable, events, subjects: Vec::new() })
    }

    /// A page of a list of selected columns. Its `types` are without the names of the columns.
    ///
    /// # Errors
    ///
    /// The fields cannot be encoded as JSON.
    pub fn of_page(
        lists: Lists,
        (limit, offset): (usize, usize),
        missing_actors_count: Option<usize>,
    ) -> Result<Self, NodeError> {
        let Lists { columns, types, rows, has_more, is_cacheable, events, took } = lists;
        let told = ResponseFields {
            columns,
            types: Value::from(types),
            has_more,
            limit: Some(limit),
            offset,
            query: None,
            missing_actors_count,
            timings: timings(took),
        };
        Self::of_rows(rows, &told, (is_cacheable, events))
    }
}

fn failed(error: &serde_json::Error) -> NodeError {
    let detail = format!("The answer has no form in JSON: {error}");
    NodeError { field: "query".to_owned(), detail }
}
