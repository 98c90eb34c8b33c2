//! SQL as a question beside others: [`SqlQuery`], a text and the filters that `{filters}` in it stands for.

use serde_json::Map;
use serde_json::Value;

use crate::clock::UnixMicros;
use crate::insights::InsightError;
use crate::insights::ProjectSettings;
use crate::insights::interval::Interval;
use crate::insights::node::Node;
use crate::insights::node::NodeError;
use crate::insights::saved::values_of_variables;
use crate::insights::selection::Selection;
use crate::query::engine::Engine;
use crate::query::placeholders::filled;
use crate::query::view::View;

/// SQL, and what it reads of the events where it says `{filters}`.
#[derive(Clone, Debug)]
pub struct SqlQuery {
    /// The statement.
    pub text: String,
    filters: Option<Selection>,
}

impl SqlQuery {
    /// SQL without filters.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), filters: None }
    }

    /// Reads a `HogQLQuery`: its `query`, with `values` and `variables` in the place of placeholders, and its `filters`.
    ///
    /// # Errors
    ///
    /// A field is malformed, or a placeholder has no value.
    pub fn parse(node: &Value) -> Result<Self, InsightError> {
        let text = node.get("query").and_then(Value::as_str).filter(|text| !text.trim().is_empty());
        let fields = Node::new(Some(node), "")?;
        let text = text.ok_or_else(|| fields.refuse("query", "This field is required."))?;
        let mut values = match fields.value("values") {
            None => Map::new(),
            Some(Value::Object(values)) => values.clone(),
            Some(_) => return Err(fields.refuse("values", "Expected an object.").into()),
        };
        let variables = values_of_variables(node);
        if !variables.is_empty() {
            values.insert("variables".to_owned(), Value::Object(variables));
        }
        let filters = match fields.value("filters") {
            None => None,
            filters => Some(Selection::parse(&Node::new(filters, "filters")?).map_err(within)?),
        };
        Ok(Self { text: filled(text, &values)?, filters })
    }

    /// The tables of the project as of now, with the events that match for `{filters}`. Without dates it is events of
    /// any time.
    ///
    /// # Errors
    ///
    /// A date is malformed, there are too many filters; see [`InsightError`].
    pub async fn view(
        &self,
        engine: &Engine,
        owner: &ProjectSettings,
    ) -> Result<View, InsightError> {
        let view = engine.view(owner.project).await?;
        let Some(selection) = &self.filters else { return Ok(view) };
        let dates = &selection.dates;
        let range = dates.range_at(engine.now(), owner, Interval::Day);
        let range = range.map_err(|error| match error {
            InsightError::Node(error) => InsightError::Node(within(error)),
            error => error,
        })?;
        let all = view.event_times().unwrap_or((UnixMicros(0), UnixMicros(0)));
        let is_open = dates.from.as_deref().is_none_or(|from| from == "all");
        let from = if is_open { all.0 } else { range.from };
        let to = if dates.to.is_none() { all.1 } else { range.to };
        let events = selection.events(engine, (&view, owner), (from, to)).await?;
        Ok(view.with_filtered(events).await?)
    }
}

/// A field of `filters` as one of the query.
fn within(error: NodeError) -> NodeError {
    match error.field.starts_with("filters") {
        true => error,
        false => NodeError { field: format!("filters.{}", error.field), ..error },
    }
}
