//! Product questions: a typed request becomes a plan over the tables of [`query`](weir_query), or a walk over
//! the identity store, and the shape of its answer. May not name HTTP: routes decode, call and encode.
//!
//! Begin with [`insight::Insight`], which is one of the kinds with a directory of its own, such as [`funnels`]; [`saved`] reads
//! what was saved, [`cache`] keeps answers while they are right.

pub mod action;
pub mod actor_list;
pub mod answered;
pub mod audience;
pub mod bins;
pub mod breakdown;
pub mod cache;
mod cohort_tables;
pub mod cohorts;
pub mod columns;
pub mod compare;
pub mod correlation;
pub mod date_range;
pub mod deeds;
pub mod dependence;
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

/// What plans of one insight are made with.
#[derive(Clone, Copy)]
struct Context<'r> {
    engine: &'r Engine,
    view: &'r View,
    owner: &'r ProjectSettings,
}

/// What the answers of insights depend on besides their requests.
#[derive(Clone, Debug)]
pub struct ProjectSettings {
    /// The project.
    pub project: ProjectId,
    /// The name of its time zone.
    pub timezone: String,
    /// Whether its weeks begin on Monday.
    pub is_monday_first: bool,
    /// Filters that leave out the events of the operator's own people.
    pub test_account_filters: Value,
    /// Properties that name a person, if it has its own.
    pub person_names: Option<Vec<String>>,
}

impl ProjectSettings {
    /// Those of a project.
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

/// Who an event is of, in the order of lists.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// A person.
    Person(Uuid),
    /// A group: the index of its type, and its key.
    Group(u8, String),
}

/// A person or a group behind a point of an insight.
#[derive(Clone, Debug, PartialEq)]
pub struct Actor {
    /// Who it is.
    pub who: Who,
    /// What it adds to the point.
    pub value: f64,
    /// The cells of a row of a retention in which it was active, in their order.
    pub appearances: Vec<usize>,
}

impl Actor {
    /// One who adds this to the point.
    pub fn new(who: Who, value: f64) -> Self {
        Self { who, value, appearances: Vec::new() }
    }
}

/// Why an insight has no answer.
#[derive(Debug, thiserror::Error)]
pub enum InsightError {
    /// The request.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The query.
    #[error(transparent)]
    Query(#[from] QueryError),
}

impl From<DataFusionError> for InsightError {
    fn from(error: DataFusionError) -> Self {
        Self::Query(error.into())
    }
}
