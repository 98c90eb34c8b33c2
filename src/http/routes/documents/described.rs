//! What the description of the API says of documents: one set of operations for each kind.

use crate::openapi::{Description, INVALID, Parameter, by_hand};

pub(crate) const ACTION_LIST: Description = Description::page::<by_hand::Action>(
    "Actions that are not deleted, newest first",
)
.query(&[
    Parameter::shared("search"),
    Parameter::integer("created_by"),
    Parameter::text("order").about(
        "name, created_at, updated_at, last_modified_at or date_marker; with a minus downwards",
    ),
])
.or(&[INVALID]);

pub(crate) const ACTION_CREATE: Description =
    Description::created::<by_hand::Action>("Make an action")
        .optional_body::<by_hand::ActionWrite>();

pub(crate) const ACTION_ACTIVITY: Description =
    Description::activity("What was changed of actions");

pub(crate) const ACTION_RETRIEVE: Description =
    Description::ok::<by_hand::Action>("An action, also a deleted one");

pub(crate) const ACTION_UPDATE: Description =
    Description::ok::<by_hand::Action>("Change, delete or restore an action")
        .optional_body::<by_hand::ActionWrite>();

pub(crate) const ACTION_DELETE: Description =
    Description::refused("Refused", &[("405", "DocumentDeleteRefused")]);

pub(crate) const ACTION_ACTIVITY_OF_ONE: Description =
    Description::activity("What was changed of an action");

pub(crate) const ANNOTATION_LIST: Description = Description::page::<by_hand::Annotation>(
    "Annotations that are not deleted, newest first",
)
.query(&[
    Parameter::shared("search"),
    Parameter::text("scope"),
    Parameter::integer("created_by"),
    Parameter::text("order").about(
        "name, created_at, updated_at, last_modified_at or date_marker; with a minus downwards",
    ),
])
.or(&[INVALID]);

pub(crate) const ANNOTATION_CREATE: Description =
    Description::created::<by_hand::Annotation>("Make an annotation")
        .optional_body::<by_hand::AnnotationWrite>();

pub(crate) const ANNOTATION_ACTIVITY: Description =
    Description::activity("What was changed of annotations");

pub(crate) const ANNOTATION_RETRIEVE: Description =
    Description::ok::<by_hand::Annotation>("An annotation, also a deleted one");

pub(crate) const ANNOTATION_UPDATE: Description =
    Description::ok::<by_hand::Annotation>("Change, delete or restore an annotation")
        .optional_body::<by_hand::AnnotationWrite>();

pub(crate) const ANNOTATION_DELETE: Description =
    Description::refused("Refused", &[("405", "DocumentDeleteRefused")]);

pub(crate) const ANNOTATION_ACTIVITY_OF_ONE: Description =
    Description::activity("What was changed of an annotation");

pub(crate) const DASHBOARD_LIST: Description = Description::page::<by_hand::Dashboard>(
    "Dashboards that are not deleted, newest first",
)
.query(&[
    Parameter::shared("search"),
    Parameter::boolean("pinned"),
    Parameter::shared("created_by"),
    Parameter::text("order").about(
        "name, created_at, updated_at, last_modified_at or date_marker; with a minus downwards",
    ),
])
.or(&[INVALID]);

pub(crate) const DASHBOARD_CREATE: Description =
    Description::created::<by_hand::Dashboard>("Make a dashboard")
        .optional_body::<by_hand::DashboardWrite>();

pub(crate) const DASHBOARD_ACTIVITY: Description =
    Description::activity("What was changed of dashboards");

pub(crate) const DASHBOARD_RETRIEVE: Description =
    Description::ok::<by_hand::Dashboard>("A dashboard, also a deleted one")
        .query(&[
            Parameter::shared("refresh"),
            Parameter::shared("filters_override"),
            Parameter::shared("variables_override"),
        ])
        .or(&[INVALID]);

pub(crate) const DASHBOARD_UPDATE: Description =
    Description::ok::<by_hand::Dashboard>("Change, delete or restore a dashboard")
        .optional_body::<by_hand::DashboardWrite>();

pub(crate) const DASHBOARD_DELETE: Description =
    Description::refused("Refused", &[("405", "DocumentDeleteRefused")]);

pub(crate) const DASHBOARD_ACTIVITY_OF_ONE: Description =
    Description::activity("What was changed of a dashboard");

pub(crate) const INSIGHT_LIST: Description = Description::page::<by_hand::InsightInList>(
    "Saved insights that are not deleted, newest first",
)
.query(&[
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
    Parameter::text("order").about(
        "name, created_at, updated_at, last_modified_at or date_marker; with a minus downwards",
    ),
])
.or(&[INVALID]);

pub(crate) const INSIGHT_CREATE: Description =
    Description::created::<by_hand::Insight>("Make a saved insight")
        .optional_body::<by_hand::InsightWrite>();

pub(crate) const INSIGHT_ACTIVITY: Description =
    Description::activity("What was changed of saved insights");

pub(crate) const INSIGHT_MY_LAST_VIEWED: Description = Description::ok::<Vec<by_hand::Insight>>(
    "Insights that the asker looked at last, the last one first",
);

pub(crate) const INSIGHT_RETRIEVE: Description =
    Description::ok::<by_hand::Insight>("A saved insight, also a deleted one")
        .query(&[
            Parameter::shared("refresh"),
            Parameter::shared("filters_override"),
            Parameter::shared("variables_override"),
            Parameter::integer("from_dashboard")
                .about("The dashboard whose filters and variables hold"),
        ])
        .or(&[INVALID]);

pub(crate) const INSIGHT_UPDATE: Description =
    Description::ok::<by_hand::Insight>("Change, delete or restore a saved insight")
        .optional_body::<by_hand::InsightWrite>();

pub(crate) const INSIGHT_DELETE: Description =
    Description::refused("Refused", &[("405", "DocumentDeleteRefused")]);

pub(crate) const INSIGHT_ACTIVITY_OF_ONE: Description =
    Description::activity("What was changed of a saved insight");

pub(crate) const INSIGHT_VIEWED: Description =
    Description::empty("201", "Note that the asker looked at it").says("Noted");
