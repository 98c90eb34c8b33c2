//! Kinds of documents as types, so that an operation can be generic over the kind: [`DocumentKind`], and the id of a
//! document of a kind in a path, [`Id`].

use std::fmt::Debug;
use std::marker::PhantomData;

use schemars::JsonSchema;

use crate::auth::Principal;
use crate::openapi::{Parameter, Shape};
use crate::operation::Context;
use crate::operation::input::InPath;
use crate::response::Problem;
use crate::routes::store::problem;
use weir_api::documents as api;
use weir_metadata::documents::{Document, Kind};

/// The sort orders of all lists.
const ORDER: Parameter = Parameter::text("order")
    .about("name, created_at, updated_at, last_modified_at or date_marker; with a minus downwards");

/// Parameters about results, and about filters and variables that override those of insights.
pub(super) const RESULTS: [Parameter; 3] = [
    Parameter::shared("refresh"),
    Parameter::shared("filters_override"),
    Parameter::shared("variables_override"),
];

/// A kind of documents.
pub trait DocumentKind: Debug + Send + Sync + 'static {
    /// The kind.
    const KIND: Kind;

    /// The scope for reading documents of this kind.
    const READ: &'static str;

    /// The scope for changing them.
    const WRITE: &'static str;

    /// The name of the schema of the body that creates or changes one.
    const WRITTEN: &'static str;

    /// The schema of a document.
    type Shown: JsonSchema;

    /// The schema of a document in a list.
    type Listed: JsonSchema;

    /// Adds the parameters of the list to the OpenAPI description.
    fn describe_list(shape: &mut Shape);

    /// Adds the parameters of one document to the OpenAPI description.
    fn describe_one(_: &mut Shape) {}
}

/// A kind whose documents can be shared by a link.
pub trait Linked: DocumentKind {}

/// Actions.
#[derive(Debug)]
pub struct Actions;

impl DocumentKind for Actions {
    const KIND: Kind = Kind::Action;
    const READ: &'static str = "action:read";
    const WRITE: &'static str = "action:write";
    const WRITTEN: &'static str = "ActionWrite";
    type Shown = api::Action;
    type Listed = api::Action;

    fn describe_list(shape: &mut Shape) {
        let own = [Parameter::shared("search"), Parameter::integer("created_by"), ORDER];
        shape.query.extend(own);
    }
}

/// Annotations.
#[derive(Debug)]
pub struct Annotations;

impl DocumentKind for Annotations {
    const KIND: Kind = Kind::Annotation;
    const READ: &'static str = "annotation:read";
    const WRITE: &'static str = "annotation:write";
    const WRITTEN: &'static str = "AnnotationWrite";
    type Shown = api::Annotation;
    type Listed = api::Annotation;

    fn describe_list(shape: &mut Shape) {
        shape.query.extend([
            Parameter::shared("search"),
            Parameter::text("scope"),
            Parameter::integer("created_by"),
            ORDER,
        ]);
    }
}

/// Dashboards.
#[derive(Debug)]
pub struct Dashboards;

impl DocumentKind for Dashboards {
    const KIND: Kind = Kind::Dashboard;
    const READ: &'static str = "dashboard:read";
    const WRITE: &'static str = "dashboard:write";
    const WRITTEN: &'static str = "DashboardWrite";
    type Shown = api::Dashboard;
    type Listed = api::Dashboard;

    fn describe_list(shape: &mut Shape) {
        shape.query.extend([
            Parameter::shared("search"),
            Parameter::boolean("pinned"),
            Parameter::shared("created_by"),
            ORDER,
        ]);
    }

    fn describe_one(shape: &mut Shape) {
        shape.query.extend(RESULTS);
    }
}

impl Linked for Dashboards {}

/// Saved insights.
#[derive(Debug)]
pub struct Insights;

impl DocumentKind for Insights {
    const KIND: Kind = Kind::Insight;
    const READ: &'static str = "insight:read";
    const WRITE: &'static str = "insight:write";
    const WRITTEN: &'static str = "InsightWrite";
    type Shown = api::Insight;
    type Listed = api::InsightInList;

    fn describe_list(shape: &mut Shape) {
        shape.query.extend([
            Parameter::shared("search"),
            Parameter::boolean("saved").about("True finds those on a dashboard, too"),
            Parameter::boolean("favorited"),
            Parameter::text("short_id"),
            Parameter::text("insight").about("The kind, such as TRENDS or SQL"),
            Parameter::shared("created_by"),
            Parameter::boolean("basic").about("Without results and what belongs to them"),
            Parameter::text("date_from").about("Changed after it: a date, or -7d"),
            Parameter::text("date_to").about("Changed before it"),
            Parameter::text("tags").about("A JSON list of texts, of which an insight has one"),
            Parameter::text("dashboards")
                .about("A JSON list of ids: of dashboards that all show the insight"),
            Parameter::shared("refresh"),
            Parameter::boolean("user").about("Those of the asker"),
            ORDER,
        ]);
    }

    fn describe_one(shape: &mut Shape) {
        shape.query.extend(RESULTS);
        let about = "The dashboard whose filters and variables hold";
        shape.query.push(Parameter::integer("from_dashboard").about(about));
    }
}

impl Linked for Insights {}

/// The id of a document of this kind.
#[derive(Debug)]
pub struct Id<K> {
    /// The id.
    pub number: i64,
    kind: PhantomData<K>,
}

impl<K> Id<K> {
    /// The id with this number.
    pub fn new(number: i64) -> Self {
        Self { number, kind: PhantomData }
    }
}

impl<K: DocumentKind> Id<K> {
    /// Reads the document, of the caller's project.
    ///
    /// # Errors
    ///
    /// 404.
    pub(super) async fn document(&self, cx: &Context<Principal>) -> Result<Document, Problem> {
        let found = cx.metadata().document(cx.who.project.id, K::KIND, self.number).await;
        found.map_err(problem)
    }
}

impl<K> InPath for Id<K> {
    fn of(text: &str) -> Result<Self, Problem> {
        i64::of(text).map(Self::new)
    }
}
