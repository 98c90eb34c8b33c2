//! Lists of property definitions: compiles a request to a plan over the tables of definitions.

use std::collections::HashMap;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::{Expr, JoinType};
use datafusion::prelude::{DataFrame, col, lit};
use serde_json::{Map, Value};
use uuid::Uuid;

use weir_event::auto_set::AUTO_SET;
use weir_event::id::ProjectId;
use weir_metadata::annotations::Notes;
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::view::View;
use weir_query::output::rows::json_rows;
use weir_query::persons::people::Part;

/// Event properties that lists omit, because they are of no use in filters.
const HIDDEN: [&str; 14] = [
    "distinct_id",
    "$set",
    "$set_once",
    "$initial_referrer",
    "$initial_referring_domain",
    "$groups",
    "$group_type",
    "$group_key",
    "$group_set",
    "$group_0",
    "$group_1",
    "$group_2",
    "$group_3",
    "$group_4",
];

/// Prefix of further omitted properties.
const HIDDEN_PREFIX: &str = "$session_entry_";
/// Prefix of the properties that contain flag values.
const FLAG_PREFIX: &str = "$feature/";

/// Response field: whether a property was seen on the named events.
pub const IS_SEEN: &str = "is_seen_on_filtered_events";

/// The annotations of all definitions of a project, by id.
pub type AllNotes = HashMap<Uuid, Notes>;

/// The kind of entity that has a property.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owner {
    /// Events.
    #[default]
    Event,
    /// Persons.
    Person,
    /// Groups of the type with this index.
    Group(i64),
    /// Sessions.
    Session,
}

impl Owner {
    fn name(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Person => "person",
            Self::Group(_) => "group",
            Self::Session => "session",
        }
    }
}

/// A request for property definitions. All conditions that are set must hold.
#[derive(Debug)]
pub struct DefinitionsRequest {
    /// The kind of entity that has the properties.
    pub of: Owner,
    /// Omits properties that SDKs set.
    pub without_core: bool,
    /// Substrings of the name, case-insensitive.
    pub terms: Vec<String>,
    /// Restricts the list to these names.
    pub properties: Option<Vec<String>>,
    /// Only those whose values are numbers.
    pub is_numerical: bool,
    /// Only properties that contain flag values, or only others.
    pub is_feature_flag: Option<bool>,
    /// Excluded names.
    pub excluded: Vec<String>,
    /// Names of events; the response states which properties were seen on them.
    pub events: Option<Vec<String>>,
    /// Whether properties not seen on these events are omitted.
    pub only_seen: bool,
    /// Omits properties that users have hidden.
    pub without_hidden: bool,
}

impl DefinitionsRequest {
    /// A page of the definitions, and the number of all that match. Order: properties seen on the named events first,
    /// then verified ones, then by name.
    pub async fn find(
        &self,
        engine: &Engine,
        project: ProjectId,
        notes: &AllNotes,
        part: Part,
    ) -> Result<(usize, Vec<Map<String, Value>>), QueryError> {
        let view = engine.view(project).await?;
        let mut definitions = view.table("property_definitions").await?;
        for filter in self.filters(notes) {
            definitions = definitions.filter(filter)?;
        }
        let definitions = self.with_seen(&view, definitions).await?;
        let all = definitions.clone().aggregate(vec![], vec![count(lit(1)).alias("count")])?;
        let (_, counted) = engine.collect(all).await?;
        let mut order = Vec::new();
        if self.events.is_some() {
            order.push(col(IS_SEEN).sort(false, false));
        }
        let verified = ids(notes, |notes| notes.verified);
        if !verified.is_empty() {
            order.push(col("id").in_list(verified, false).sort(false, false));
        }
        order.push(col("name").sort(true, false));
        let count = first_number(&counted);
        // The offset of a plan must not be beyond the last row.
        let rows = definitions.sort(order)?.limit(part.offset.min(count), Some(part.limit))?;
        let (_, batches) = engine.collect(rows).await?;
        let rows = json_rows(&batches).map_err(|error| QueryError::Internal(error.into()))?;
        Ok((count, rows))
    }

    fn filters(&self, notes: &AllNotes) -> Vec<Expr> {
        let mut filters = vec![col("type").eq(lit(self.of.name()))];
        match self.of {
            Owner::Group(index) => filters.push(col("group_type_index").eq(lit(index))),
            Owner::Event => {
                filters.push(!is_one_of(HIDDEN));
                filters.push(!starts_with(HIDDEN_PREFIX));
            }
            Owner::Person | Owner::Session => {}
        }
        if self.without_core {
            filters.push(!starts_with("$"));
            filters.push(!is_one_of(AUTO_SET.map(|(name, _)| name)));
        }
        let is_of_persons = self.of == Owner::Person;
        filters.extend(self.terms.iter().map(|term| matches_term(term, is_of_persons)));
        if let Some(names) = &self.properties {
            filters.push(is_one_of(names.iter().map(String::as_str)));
        }
        if self.is_numerical {
            filters.push(col("is_numerical"));
            filters.push(!is_one_of(["distinct_id", "timestamp"]));
        }
        if let Some(wanted) = self.is_feature_flag {
            let is_flag = starts_with(FLAG_PREFIX);
            filters.push(if wanted { is_flag } else { !is_flag });
        }
        if !self.excluded.is_empty() {
            filters.push(!is_one_of(self.excluded.iter().map(String::as_str)));
        }
        if self.without_hidden {
            filters.push(col("id").in_list(ids(notes, |notes| notes.hidden), true));
        }
        filters
    }

    /// Adds the column [`IS_SEEN`] if events are named, and omits unseen properties if `only_seen`.
    async fn with_seen(
        &self,
        view: &View,
        definitions: DataFrame,
    ) -> Result<DataFrame, QueryError> {
        if self.events.is_none() && !self.only_seen {
            return Ok(definitions);
        }
        let mut pairs = view.table("event_properties").await?;
        if let Some(events) = &self.events {
            let events = events.iter().map(|event| lit(event.as_str())).collect();
            pairs = pairs.filter(col("event").in_list(events, false))?;
        }
        let seen = pairs.select(vec![col("property").alias("seen")])?.distinct()?;
        let join = if self.only_seen { JoinType::Inner } else { JoinType::Left };
        let joined = definitions.join(seen, join, &["name"], &["seen"], None)?;
        if self.events.is_none() {
            return Ok(joined);
        }
        Ok(joined.with_column(IS_SEEN, col("seen").is_not_null())?)
    }
}

/// The ids of the definitions whose annotations meet a condition.
fn ids(notes: &AllNotes, is: impl Fn(&Notes) -> bool) -> Vec<Expr> {
    notes.iter().filter(|(_, notes)| is(notes)).map(|(id, _)| lit(id.to_string())).collect()
}

/// Whether a name contains a search term. For person properties, a prefix of `latest` also matches
/// names that are not about the first visit (`initial`), as in PostHog.
fn matches_term(term: &str, is_of_persons: bool) -> Expr {
    let has = |part: &str| {
        let name = datafusion::functions::expr_fn::lower(col("name"));
        datafusion::functions::expr_fn::contains(name, lit(part))
    };
    let term = term.to_lowercase();
    match is_of_persons && "latest".contains(&term) {
        true => has(&term).or(!has("initial")),
        false => has(&term),
    }
}

fn starts_with(prefix: &str) -> Expr {
    datafusion::functions::expr_fn::starts_with(col("name"), lit(prefix))
}

fn is_one_of<'n>(names: impl IntoIterator<Item = &'n str>) -> Expr {
    col("name").in_list(names.into_iter().map(lit).collect(), false)
}

/// The single number of an aggregate without groups.
fn first_number(batches: &[RecordBatch]) -> usize {
    let column = batches.first().and_then(|batch| batch.columns().first());
    let numbers = column.and_then(|column| column.as_primitive_opt::<Int64Type>());
    let number = numbers.and_then(|numbers| numbers.values().first().copied());
    number.and_then(|number| usize::try_from(number).ok()).unwrap_or(0)
}
