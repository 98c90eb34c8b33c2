//! Product analytics queries. A typed request is compiled to a plan over the tables of [`query`](weir_query), or to a
//! scan of the identity store, and its result is shaped into the response. This crate must not depend on HTTP: routes
//! decode, call and encode.
//!
//! Start with [`insight::Insight`], an enum of the insight kinds, each of which has a directory of its own, such as
//! [`funnels`]; [`saved`] resolves saved insights to queries, [`cache`] caches results until they become stale.

pub mod action;
pub mod actor_list;
pub mod answered;
pub mod audience;
pub mod behavioral;
pub mod bins;
pub mod breakdown;
pub mod cache;
mod cohort_tables;
pub mod cohorts;
pub mod columns;
pub mod compare;
pub mod correlation;
pub mod date_range;
pub mod dependence;
pub mod distributed;
pub mod entity;
pub mod event_list;
pub mod events;
pub mod filters;
pub mod flag_calls;
pub mod formula;
pub mod funnels;
pub mod groups;
pub mod insight;
pub mod interval;
pub mod jobs;
pub mod legacy;
pub mod lifecycle;
pub mod paths;
pub mod person_name;
pub mod property;
pub mod property_definitions;
pub mod ranked;
pub mod retention;
pub mod saved;
pub mod select;
pub mod selection;
pub mod series;
pub mod slow_questions;
pub mod sql;
pub mod stickiness;
pub mod timeline;
pub mod trends;

use datafusion::error::DataFusionError;
use serde_json::Value;
use uuid::Uuid;

use weir_api::node::NodeError;
use weir_event::id::ProjectId;
use weir_metadata::accounts::Project;
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::view::View;

/// What is needed to compile the plans of one insight.
#[derive(Clone, Copy)]
struct Context<'r> {
    engine: &'r Engine,
    view: &'r View,
    owner: &'r ProjectSettings,
}

/// Settings of the project on which the results of insights depend besides the request.
#[derive(Clone, Debug)]
pub struct ProjectSettings {
    /// The project.
    pub project: ProjectId,
    /// The name of its time zone.
    pub timezone: String,
    /// Whether its weeks begin on Monday.
    pub is_monday_first: bool,
    /// Filters that exclude events of internal and test users.
    pub test_account_filters: Value,
    /// Person properties from which display names are taken; `None` for the default ones.
    pub person_names: Option<Vec<String>>,
}

impl ProjectSettings {
    /// The settings of `project`.
    pub fn of(project: &Project) -> Self {
        Self {
            project: project.id,
            timezone: project.timezone.clone(),
            is_monday_first: project.week_start_day == 1,
            test_account_filters: project.test_account_filters.clone(),
            person_names: project.person_display_name_properties.clone(),
        }
    }
}

/// Whom an event belongs to; the order is that of lists.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// A person.
    Person(Uuid),
    /// A group: the index of its type, and its key.
    Group(u8, String),
}

/// A person or a group that is counted in a data point of an insight.
#[derive(Clone, Debug, PartialEq)]
pub struct Actor {
    /// The person or the group.
    pub who: Who,
    /// Its contribution to the data point.
    pub value: f64,
    /// Retention only: the cells of a row in which it was active, in their order.
    pub appearances: Vec<usize>,
}

impl Actor {
    /// An actor with this contribution to the data point.
    pub fn new(who: Who, value: f64) -> Self {
        Self { who, value, appearances: Vec::new() }
    }
}

/// Error of an insight.
#[derive(Debug, thiserror::Error)]
pub enum InsightError {
    /// The request is invalid.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The query failed.
    #[error(transparent)]
    Query(#[from] QueryError),
}

impl From<DataFusionError> for InsightError {
    fn from(error: DataFusionError) -> Self {
        Self::Query(error.into())
    }
}
