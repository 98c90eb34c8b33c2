//! Documents that users save: actions, annotations, insights and dashboards. Their fields are copied to responses as they
//! are stored, so most of these types only describe them; [`Shared`] is what a link shows.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::accounts::User;

/// An action: events that one of its steps matches.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Action {
    /// The id.
    pub id: i64,
    /// The name.
    pub name: Option<String>,
    /// What it is.
    pub description: String,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// Kept for clients; nothing is posted.
    pub post_to_slack: bool,
    /// Kept for clients.
    pub slack_message_format: String,
    /// The steps, any of which has to match.
    pub steps: Vec<ActionStep>,
    /// Since when it is pinned.
    pub pinned_at: Option<String>,
    /// Always false: actions are matched when they are queried.
    pub is_calculating: bool,
    /// The time of its creation.
    pub last_calculated_at: String,
    /// Always true.
    pub is_action: bool,
    /// Always null.
    pub bytecode_error: (),
    /// Always null.
    pub creation_context: (),
    /// The project.
    pub team_id: i64,
    /// Who made it.
    pub created_by: Option<User>,
    /// When it was made.
    pub created_at: String,
    /// Whether it is deleted.
    pub deleted: bool,
}

/// How a text of a step is compared.
#[derive(Debug, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
#[expect(missing_docs, reason = "the words of the API")]
pub enum TextMatching {
    Contains,
    Regex,
    Exact,
}

/// A step of an action.
#[derive(Debug, JsonSchema, Serialize)]
pub struct ActionStep {
    /// The name of the event.
    pub event: Option<String>,
    /// Filters as those of flags.
    #[schemars(extend("type" = ["array", "object", "null"]))]
    pub properties: Option<Value>,
    /// A CSS selector of the clicked element.
    pub selector: Option<String>,
    /// The tag of the element.
    pub tag_name: Option<String>,
    /// The text of the element.
    pub text: Option<String>,
    /// How the text is compared.
    pub text_matching: Option<TextMatching>,
    /// The target of the link.
    pub href: Option<String>,
    /// How the target is compared.
    pub href_matching: Option<TextMatching>,
    /// The address of the page.
    pub url: Option<String>,
    /// How the address is compared.
    pub url_matching: Option<TextMatching>,
    /// A name for people.
    pub name: Option<String>,
}

/// A note at a point in time.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Annotation {
    /// The id.
    pub id: i64,
    /// The text.
    pub content: Option<String>,
    /// The point in time.
    #[schemars(extend("format" = "date-time"))]
    pub date_marker: Option<String>,
    /// Made by a user, or by a deployment.
    #[schemars(extend("enum" = ["USR", "GIT"]))]
    pub creation_type: String,
    /// The insight that it is on.
    pub dashboard_item: Option<i64>,
    /// The dashboard that it is on.
    pub dashboard_id: Option<i64>,
    /// Where it is shown.
    #[schemars(extend("enum" = ["dashboard_item", "dashboard", "project", "organization"]))]
    pub scope: String,
    /// The id of the insight in addresses.
    pub insight_short_id: Option<String>,
    /// When it was changed last.
    pub updated_at: String,
    /// Who made it.
    pub created_by: Option<User>,
    /// When it was made.
    pub created_at: String,
    /// Whether it is deleted.
    pub deleted: bool,
}

/// A saved insight without what belongs to its result.
#[derive(Debug, JsonSchema, Serialize)]
pub struct BasicInsight {
    /// The id.
    pub id: i64,
    /// The name that somebody gave it.
    pub name: Option<String>,
    /// The name that its query has.
    pub derived_name: Option<String>,
    /// What it shows.
    pub description: Option<String>,
    /// The query.
    pub query: Option<Map<String, Value>>,
    /// The query of older clients.
    pub filters: Map<String, Value>,
    /// The dashboards that it is on.
    pub dashboards: Vec<i64>,
    /// Whether it comes first in lists.
    pub favorited: bool,
    /// Whether somebody saved it.
    pub saved: bool,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// The id in addresses.
    pub short_id: String,
    /// Whether the result is being computed.
    pub refreshing: bool,
    /// When the result was computed.
    #[schemars(extend("format" = "date-time"))]
    pub last_refresh: Option<String>,
    /// Its tiles on dashboards.
    pub dashboard_tiles: Vec<TileOfInsight>,
    /// When it was changed last.
    pub updated_at: String,
    /// The same.
    pub last_modified_at: String,
    /// Who made it.
    pub created_by: Option<User>,
    /// When it was made.
    pub created_at: String,
    /// Whether it is deleted.
    pub deleted: bool,
}

/// A saved insight.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Insight {
    /// The insight itself.
    #[serde(flatten)]
    pub basic: BasicInsight,
    /// Its place on an old dashboard.
    pub order: Option<i64>,
    /// When clients may ask for another result.
    #[schemars(extend("format" = "date-time"))]
    pub next_allowed_client_refresh: Option<String>,
    /// Always null.
    pub cache_target_age: (),
    /// As of POST query/; null if none is kept and none was asked for.
    pub result: Value,
    /// Whether there are more rows.
    #[serde(rename = "hasMore")]
    pub has_more: bool,
    /// Of SQL: names of columns.
    pub columns: Option<Vec<String>>,
    /// Of SQL: pairs of a column and its type.
    pub types: Option<Vec<Value>>,
    /// Of a result that comes later.
    pub query_status: Option<Map<String, Value>>,
    /// Who changed it last.
    pub last_modified_by: Option<User>,
    /// Always false.
    pub is_sample: bool,
    /// Who may change it: always 21, everybody.
    pub effective_restriction_level: i64,
    /// What the caller may do: 21 read, 37 change.
    pub effective_privilege_level: i64,
    /// The zone of its dates.
    pub timezone: String,
    /// Whether the result was kept from before.
    pub is_cached: bool,
}

/// An insight in a list, which may be one of basic insights.
#[derive(Debug, JsonSchema, Serialize)]
#[serde(untagged)]
#[expect(clippy::large_enum_variant, reason = "describes, has no values")]
pub enum InsightInList {
    /// With its result.
    Whole(Insight),
    /// Without it.
    Basic(BasicInsight),
}

/// A tile of an insight.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct TileOfInsight {
    /// The id of the tile.
    pub id: i64,
    /// The dashboard.
    pub dashboard_id: i64,
    /// Always false.
    pub deleted: bool,
}

/// A dashboard.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Dashboard {
    /// The id.
    pub id: i64,
    /// The name.
    pub name: Option<String>,
    /// What it shows.
    pub description: String,
    /// Whether it comes first in lists.
    pub pinned: bool,
    /// Filters for all its insights.
    pub filters: Map<String, Value>,
    /// Values of the variables of SQL, by their ids.
    pub variables: Map<String, Value>,
    /// Kept for clients.
    pub breakdown_colors: Value,
    /// Kept for clients.
    pub data_color_theme_id: Option<i64>,
    /// 37: only its creator and admins may change it.
    #[schemars(extend("enum" = [21, 37]))]
    pub restriction_level: i64,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// Whether it is a copy.
    #[schemars(extend("enum" = ["default", "duplicate"]))]
    pub creation_mode: String,
    /// Only of one dashboard, not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<Tile>")]
    pub tiles: Option<Vec<Tile>>,
    /// Of one dashboard: the stored filters, where the request overrides them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Map<String, Value>")]
    pub persisted_filters: Option<Map<String, Value>>,
    /// Of one dashboard: the stored variables.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Map<String, Value>")]
    pub persisted_variables: Option<Map<String, Value>>,
    /// Of the oldest result among the tiles; null in lists.
    #[schemars(extend("format" = "date-time"))]
    pub last_refresh: Option<String>,
    /// When it was changed last.
    pub updated_at: String,
    /// The same.
    pub last_modified_at: String,
    /// Whether it has a link.
    pub is_shared: bool,
    /// As its restriction level.
    pub effective_restriction_level: i64,
    /// What the caller may do: 21 read, 37 change.
    pub effective_privilege_level: i64,
    /// Who made it.
    pub created_by: Option<User>,
    /// When it was made.
    pub created_at: String,
    /// Whether it is deleted.
    pub deleted: bool,
}

/// A tile of a dashboard: an insight, or a text.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct Tile {
    /// The id.
    pub id: i64,
    /// The insight.
    pub insight: Option<Insight>,
    /// The text.
    pub text: Option<TileText>,
    /// Its color.
    pub color: Option<String>,
    /// Its places, by the width of the screen.
    pub layouts: Map<String, Value>,
    /// Of a tile with an insight, as what follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub is_cached: Option<bool>,
    /// When the result was computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub last_refresh: Option<Option<String>>,
    /// Why the insight has no result.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<TileError>")]
    pub error: Option<Option<TileError>>,
}

/// The text of a tile.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct TileText {
    /// The text.
    pub body: String,
}

/// Why the insight of a tile has no result.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct TileError {
    /// The class of the error.
    #[serde(rename = "type")]
    pub kind: String,
    /// For people.
    pub message: String,
}

/// The results of the insights of a dashboard.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "DashboardsRunInsightsRetrieveAnswer")]
pub struct InsightsRun {
    /// One for each tile with an insight.
    pub results: Vec<InsightRun>,
}

/// The result of one insight of a dashboard.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct InsightRun {
    /// The id of the tile.
    pub id: i64,
    /// The insight.
    pub insight: RunInsight,
    /// Why there is no result.
    pub error: Option<TileError>,
}

/// An insight with its result.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct RunInsight {
    /// The id.
    pub id: i64,
    /// The id in addresses.
    pub short_id: String,
    /// The name.
    pub name: Option<String>,
    /// The name that its query has.
    pub derived_name: Option<String>,
    /// As of POST query/.
    pub result: Value,
}

/// A tile in the body that changes a dashboard: either an insight or a text, or the id of a tile that changes.
#[derive(Debug, JsonSchema)]
pub struct TileWrite {
    /// The id of a tile that is there.
    pub id: Option<i64>,
    /// Whether it is taken away.
    pub deleted: Option<bool>,
    /// The id of the insight, or an object with it.
    #[schemars(extend("type" = ["integer", "object", "null"]))]
    pub insight: Option<Value>,
    /// The text.
    pub text: Option<TileTextWrite>,
    /// The color.
    pub color: Option<String>,
    /// The places, by the width of the screen.
    pub layouts: Option<Map<String, Value>>,
}

/// The text of a tile that is written.
#[derive(Debug, Default, JsonSchema)]
#[schemars(inline)]
pub struct TileTextWrite {
    /// The text.
    #[schemars(length(max = 4000))]
    pub body: String,
}
