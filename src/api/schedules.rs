//! Changes of flags that are made at a time.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::accounts::User;

/// A scheduled change.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct ScheduledChange {
    /// The id in paths.
    pub id: i64,
    /// The project.
    pub team_id: i64,
    /// The id of the flag.
    pub record_id: String,
    /// What is changed: a flag.
    #[schemars(extend("enum" = ["FeatureFlag"]))]
    pub model_name: String,
    /// The change.
    #[schemars(with = "Map<String, Value>")]
    pub payload: Value,
    /// When it is made, at first.
    pub scheduled_at: String,
    /// When it was made.
    pub executed_at: Option<String>,
    /// Why it could not be made.
    pub failure_reason: Option<String>,
    /// The time of its creation.
    pub created_at: String,
    /// Who made it.
    pub created_by: Option<User>,
    /// The time of the last change of it.
    pub updated_at: String,
    /// Whether it is made again and again.
    pub is_recurring: bool,
    /// How often.
    pub recurrence_interval: Option<String>,
    /// How often, as a cron expression.
    pub cron_expression: Option<String>,
    /// When a recurring change was made last.
    pub last_executed_at: Option<String>,
    /// When a recurring change ends.
    #[schemars(extend("format" = "date-time"))]
    pub end_date: Option<String>,
    /// Where days and months of a recurring change begin.
    pub timezone: String,
}
