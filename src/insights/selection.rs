//! What all insights ask alike: which events, of what time, and whose: [`Selection`].

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{DataType, TimestampMicrosecondType};
use chrono_tz::Tz;
use datafusion::dataframe::DataFrame;
use datafusion::functions_aggregate::expr_fn::min;
use datafusion::logical_expr::{Expr, cast};
use datafusion::prelude::{col, ident, lit};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::columns::time;
use crate::date_range::{DateRange, Parameters};
use crate::filters::Filters;
use crate::interval::{Buckets, Interval, TooManyBuckets};
use crate::{InsightError, ProjectSettings, Who};
use weir_api::node::NodeError;
use weir_api::nodes::base as nodes;
use weir_api::nodes::filter::Properties;
use weir_base::clock::UnixMicros;
use weir_event::schema::GROUP_TYPES_MAX;
use weir_query::events::expression_columns::with_columns;
use weir_query::events::table::PERSON_NUMBER;
use weir_query::filter::matches::GROUPS;
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::view::View;

/// What an insight looks at.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Of what time the events are.
    pub dates: Dates,
    /// Who is counted.
    pub unit: Unit,
    /// Its own filters.
    pub(crate) filters: Filters,
    /// Whether the filters of the project's test accounts hold, too.
    pub(crate) is_without_tests: bool,
}

/// Who is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Persons.
    #[default]
    Persons,
    /// Groups of the type with this index.
    Groups(u8),
}

/// The range of dates as it was sent.
#[derive(Clone, Debug, Default)]
pub struct Dates {
    /// `date_from`.
    pub from: Option<String>,
    /// `date_to`.
    pub to: Option<String>,
    /// Whether bounds are taken as they are, not extended to whole intervals.
    pub is_explicit: bool,
}

impl Selection {
    /// What the fields of a query say that all kinds of insights have.
    ///
    /// # Errors
    ///
    /// A field asks for something that is not available.
    pub fn of(sent: nodes::Insight) -> Result<Self, NodeError> {
        if sent.sampling_factor.is_some_and(|factor| factor != 1.0) {
            return Err(NodeError::new("samplingFactor", "Sampling is not available."));
        }
        Ok(Self {
            unit: Unit::of(sent.aggregation_group_type_index, "aggregation_group_type_index")?,
            ..Self::of_persons(sent.date_range, sent.properties, sent.filter_test_accounts)?
        })
    }

    /// Events of these dates that match filters, of persons.
    ///
    /// # Errors
    ///
    /// The filters are malformed.
    pub(crate) fn of_persons(
        dates: nodes::Dates,
        properties: Option<Properties>,
        is_without_tests: bool,
    ) -> Result<Self, NodeError> {
        let mut filters = Filters::default();
        if let Some(Properties(properties)) = properties {
            filters.add(&properties, "properties")?;
        }
        Ok(Self { dates: Dates::of(dates), unit: Unit::Persons, filters, is_without_tests })
    }

    /// Selects only what matches these filters, too.
    ///
    /// # Errors
    ///
    /// They are malformed, or too many with those before.
    pub fn narrow(&mut self, properties: &Value, path: &str) -> Result<(), NodeError> {
        self.filters.add(properties, path)
    }

    /// Selects only what is of persons whose email, name, or one of whose distinct ids contains a text in any case:
    /// all their events, whichever of the ids they have. Or of groups whose name or key does.
    ///
    /// # Errors
    ///
    /// There are too many filters with it.
    pub fn search(&mut self, text: &str, unit: Unit) -> Result<(), NodeError> {
        self.filters.add(&searched(text, unit), "search")
    }

    /// The filters of the whole insight, those of a project's test accounts included.
    ///
    /// # Errors
    ///
    /// There are too many.
    pub fn filters(&self, owner: &ProjectSettings) -> Result<Filters, NodeError> {
        let mut filters = self.filters.clone();
        if self.is_without_tests {
            filters.add(&owner.test_account_filters, "filterTestAccounts")?;
        }
        Ok(filters)
    }

    /// The events that match the filters and lie within bounds, both included, with their columns as they are
    /// stored, and beside them those of their sessions if filters ask of these.
    ///
    /// # Errors
    ///
    /// There are too many filters, or a bug in the plan.
    pub async fn events(
        &self,
        engine: &Engine,
        (view, owner): (&View, &ProjectSettings),
        (from, to): (UnixMicros, UnixMicros),
    ) -> Result<DataFrame, InsightError> {
        let events = view.events()?;
        let events = events.filter(col("timestamp").between(time(from), time(to)))?;
        match self.filters(owner)?.condition(engine, owner.project, view.exact()) {
            Some(condition) => {
                let events = with_columns(view, events, (from, to), [&condition]).await?;
                Ok(events.filter(condition)?)
            }
            None => Ok(events),
        }
    }
}

impl Unit {
    /// Groups of the type with this index, which stands in the field `name`; persons without it.
    ///
    /// # Errors
    ///
    /// It is no index of a group type.
    pub fn of(index: Option<usize>, name: &str) -> Result<Self, NodeError> {
        let Some(index) = index else { return Ok(Self::Persons) };
        let index = u8::try_from(index).ok().filter(|at| usize::from(*at) < GROUP_TYPES_MAX);
        let wrong = || NodeError::new(name, "A valid group type index is required.");
        Ok(Self::Groups(index.ok_or_else(wrong)?))
    }

    /// Who an event of [`View::events`] is of, a person's number or a text; null where it is of nobody.
    pub fn actor(self) -> Expr {
        match self {
            Self::Persons => ident(PERSON_NUMBER),
            Self::Groups(index) => {
                let key = ident(GROUPS.get(usize::from(index)).copied().unwrap_or_default());
                datafusion::functions::expr_fn::nullif(cast(key, DataType::Utf8View), lit(""))
            }
        }
    }
}

impl Unit {
    /// The actor with an id as histories and plans have it as a text; `None` if it is none of a person.
    pub fn who(self, id: &str) -> Option<Who> {
        match self {
            Self::Persons => Some(Who::Person(Uuid::try_parse(id).ok()?)),
            Self::Groups(index) => Some(Who::Group(index, id.to_owned())),
        }
    }

    /// The actor as [`Unit::actor`] has it, of a table of persons or groups with the column `id`.
    pub fn actor_of(self, view: &View, id: &str) -> Expr {
        match self {
            Self::Persons => view.person_number(id),
            Self::Groups(_) => cast(ident(id), DataType::Utf8View),
        }
    }
}

impl Dates {
    /// What a `dateRange` says.
    pub fn of(sent: nodes::Dates) -> Self {
        let nodes::Dates { date_from, date_to, explicit_date } = sent;
        Self { from: date_from, to: date_to, is_explicit: explicit_date }
    }

    /// The range as of now, in the time zone of the project.
    ///
    /// # Errors
    ///
    /// A date is malformed; see [`InsightError`].
    pub async fn range(
        &self,
        engine: &Engine,
        (view, owner): (&View, &ProjectSettings),
        interval: Interval,
    ) -> Result<DateRange, InsightError> {
        let now = engine.now();
        let range = self.range_at(now, owner, interval)?;
        if self.from.as_deref() != Some("all") {
            return Ok(range);
        }
        let first = first_event(engine, view).await?.unwrap_or(now);
        Ok(range.since(first.min(range.to)))
    }

    /// The range as of a time, where `all` begins in 1970.
    ///
    /// # Errors
    ///
    /// A date is malformed; see [`InsightError`].
    pub fn range_at(
        &self,
        now: UnixMicros,
        owner: &ProjectSettings,
        interval: Interval,
    ) -> Result<DateRange, InsightError> {
        let parameters = Parameters {
            from: self.from.as_deref(),
            to: self.to.as_deref(),
            interval: Some(interval.name()),
            is_explicit: self.is_explicit,
            is_one_interval: false,
            is_monday_first: owner.is_monday_first,
        };
        let wrong = |name: &'static str| NodeError {
            field: format!("dateRange.{name}"),
            detail: "Expected a date, or a span such as -7d.".to_owned(),
        };
        let range = parameters.range(zone(owner)?, now).map_err(wrong)?;
        // The usual start is nobody's mistake; SQL begins with the first event then.
        match self.from.as_ref().and_then(|_| range.reversed()) {
            None => Ok(range),
            Some(detail) => {
                Err(NodeError { field: "dateRange.date_from".to_owned(), detail }.into())
            }
        }
    }

    /// The intervals of the range.
    ///
    /// # Errors
    ///
    /// A date is malformed, or there are too many intervals; see [`InsightError`].
    pub async fn buckets(
        &self,
        engine: &Engine,
        (view, owner): (&View, &ProjectSettings),
        interval: Interval,
    ) -> Result<Buckets, InsightError> {
        let range = self.range(engine, (view, owner), interval).await?;
        Ok(buckets(&range, interval, owner)?)
    }
}

/// The filters that [`Selection::search`] looks for.
pub fn searched(text: &str, unit: Unit) -> Value {
    let contains = |key: &str, kind: &str| json!({"key": key, "type": kind, "operator": "icontains", "value": text});
    let values = match unit {
        Unit::Persons => vec![
            contains("email", "person"),
            contains("name", "person"),
            contains("distinct_id", "person_metadata"),
        ],
        Unit::Groups(index) => {
            let name = json!({"key": "name", "type": "group", "group_type_index": index,
                              "operator": "icontains", "value": text});
            vec![name, contains(&format!("$group_{index}"), "event_metadata")]
        }
    };
    json!([{"type": "OR", "values": values}])
}

/// The intervals of a range.
///
/// # Errors
///
/// There are too many.
pub fn buckets(
    range: &DateRange,
    interval: Interval,
    owner: &ProjectSettings,
) -> Result<Buckets, NodeError> {
    Buckets::of(range, interval, owner.is_monday_first).map_err(|error: TooManyBuckets| NodeError {
        field: "dateRange".to_owned(),
        detail: error.to_string(),
    })
}

/// The time zone of a project.
///
/// # Errors
///
/// There is no such zone: a bug.
pub fn zone(owner: &ProjectSettings) -> Result<Tz, QueryError> {
    let unknown = |_| QueryError::Unavailable("the time zone of the project is unknown");
    owner.timezone.parse::<Tz>().map_err(unknown)
}

/// The time of the first event of a project.
async fn first_event(engine: &Engine, view: &View) -> Result<Option<UnixMicros>, QueryError> {
    let events = view.table("events").await?;
    let first = events.aggregate(Vec::new(), vec![min(ident("timestamp")).alias("first")])?;
    let batches = engine.compute(first).await?;
    let time = |batch: &RecordBatch| {
        let times = batch.columns().first()?.as_primitive_opt::<TimestampMicrosecondType>()?;
        times.iter().next().flatten().map(UnixMicros)
    };
    Ok(batches.iter().find_map(time))
}
