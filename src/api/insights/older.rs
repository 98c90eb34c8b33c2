//! Responses to the filters of older clients: the result of the kind, with how it was computed, and the persons behind
//! the points of one.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::insights::correlation::Correlations;
use crate::insights::funnel::Funnel;
use crate::insights::paths::Edge;
use crate::insights::retention::Row;
use crate::insights::series::Series;

/// How an answer was computed.
#[derive(Clone, Debug)]
pub struct Computed {
    /// Whether it is a kept one.
    pub is_cached: bool,
    /// When it was computed.
    pub last_refresh: String,
    /// The time zone of the project.
    pub timezone: String,
    /// How long each phase took.
    pub timings: Vec<Value>,
}

/// Declares answers: their results, and what they have as `next`.
macro_rules! answers {
    ($($(#[doc = $about:literal])* $name:ident: $result:ty $(, next: $next:ty)?;)*) => {$(
        $(#[doc = $about])*
        #[derive(Clone, Debug, JsonSchema, Serialize)]
        pub struct $name {
            /// Whether it is a kept one.
            pub is_cached: bool,
            /// When it was computed.
            #[schemars(extend("format" = "date-time"))]
            pub last_refresh: String,
            $(
                /// Link to further values of the breakdown, if there are any.
                pub next: $next,
            )?
            /// What was asked for.
            pub result: $result,
            /// The time zone of the project.
            pub timezone: String,
            /// How long each phase took.
            pub timings: Vec<Value>,
        }

        impl $name {
            /// A result that was computed so.
            pub fn of(computed: Computed, result: $result) -> Self {
                let Computed { is_cached, last_refresh, timezone, timings } = computed;
                Self {
                    is_cached,
                    last_refresh,
                    $(next: <$next>::default(),)?
                    result,
                    timezone,
                    timings,
                }
            }
        }
    )*};
}

answers! {
    /// Of trends, a lifecycle or stickiness: the series.
    TrendAnswer: Vec<Series>, next: Option<String>;
    /// Of a funnel: steps, with a breakdown lists of them; series of a trend; bins of times.
    FunnelAnswer: Funnel;
    /// Of a retention: the rows.
    RetentionAnswer: Vec<Row>;
    /// Of paths: the edges.
    PathsAnswer: Vec<Edge>, next: ();
    /// Of a correlation: what correlates.
    CorrelationAnswer: Correlations;
}

/// Persons behind a point.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct PersonsOfPoint {
    /// Link to the first page.
    pub initial: String,
    /// Always false: they are looked up anew.
    pub is_cached: bool,
    /// Always null.
    pub last_refresh: (),
    /// Always 0.
    pub missing_persons: usize,
    /// Link to the next page.
    pub next: Option<String>,
    /// A list with one item.
    pub results: Vec<People>,
}

/// Persons or groups.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct People {
    /// How many the page has.
    pub count: usize,
    /// They themselves, as lists of persons have them.
    #[schemars(with = "Vec<serde_json::Map<String, Value>>")]
    pub people: Vec<Value>,
}

/// Persons with some number of intervals.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct PersonsOfNumber {
    /// Link to the next page.
    pub next: Option<String>,
    /// A list with one item.
    pub results: Vec<People>,
}

/// Persons of a row of a retention.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct PersonsOfRow {
    /// Always 0.
    pub missing_persons: usize,
    /// Link to the next page.
    pub next: Option<String>,
    /// The persons.
    pub result: Vec<PersonOfRow>,
}

/// A person of a row of a retention.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct PersonOfRow {
    /// For each interval 1 if the person was active in it, else 0.
    pub appearances: Vec<u8>,
    /// The person, as lists of persons have it.
    #[schemars(with = "serde_json::Map<String, Value>")]
    pub person: Value,
}
