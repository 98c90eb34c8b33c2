//! Table of the management endpoints: [`TABLE`]. One row each: methods, path, the scope that a key needs,
//! the route function. [`find`] looks up a request.
//!
//! # Paths
//!
//! `P` is `/api/projects/:project` and its alias `/api/environments/:project`, PostHog's newer name. `O`
//! is `/api/organizations/:organization`. A `:name` matches any one segment. The trailing slash is
//! optional. The first row whose path matches wins, so a fixed segment is listed before a `:name` in its
//! position; a test checks that. Old paths without a project (`/api/person/`) use the current project of
//! the caller.

use std::borrow::Cow;

use crate::app::App;
use crate::http::auth::Asker;
use crate::http::auth::CURRENT;
use crate::http::auth::Principal;
use crate::http::call::Answer;
use crate::http::call::Call;
use crate::http::call::Rendering;
use crate::http::call::Renderings;
use crate::http::call::decode;
use crate::http::routes::activity;
use crate::http::routes::cohorts;
use crate::http::routes::documents;
use crate::http::routes::early_access_features;
use crate::http::routes::event_definitions;
use crate::http::routes::events;
use crate::http::routes::feature_flags;
use crate::http::routes::feature_flags::across;
use crate::http::routes::feature_flags::actions;
use crate::http::routes::feature_flags::bulk;
use crate::http::routes::feature_flags::copy;
use crate::http::routes::feature_flags::questions;
use crate::http::routes::feature_flags::role_access;
use crate::http::routes::feature_flags::rollout;
use crate::http::routes::feature_flags::status;
use crate::http::routes::feature_flags::test_evaluation;
use crate::http::routes::flag_settings;
use crate::http::routes::groups;
use crate::http::routes::ingestion_warnings;
use crate::http::routes::insights;
use crate::http::routes::organizations;
use crate::http::routes::personal_api_keys;
use crate::http::routes::persons;
use crate::http::routes::projects;
use crate::http::routes::property_definitions;
use crate::http::routes::query;
use crate::http::routes::resource_access;
use crate::http::routes::roles;
use crate::http::routes::scheduled_changes;
use crate::http::routes::users;
use crate::metadata::documents::Kind;

/// A route function of a project.
macro_rules! of_project {
    ($function:path) => {
        Run::Project(|app, call| Box::pin($function(app, call)))
    };
}

/// A route function of documents of a kind.
macro_rules! of_documents {
    ($($function:ident)::+, $kind:ident) => {
        Run::Project(|app, call| Box::pin(documents::$($function)::+(app, call, Kind::$kind)))
    };
}

/// A route function outside of projects.
macro_rules! of_account {
    ($function:path) => {
        Run::Account(|app, call| Box::pin($function(app, call)))
    };
}

/// Every management endpoint.
#[rustfmt::skip]
pub const TABLE: &[Endpoint] = &[
    at("GET",       "/api/organizations/",      "organization:read",     of_account!(organizations::list)),
    at("GET",       "O/",                       "organization:read",     of_account!(organizations::retrieve)),
    at("PATCH",     "O/",                       "organization:write",    of_account!(organizations::update)),
    at("GET",       "O/members/",               "organization_member:read",  of_account!(organizations::members)),
    at("POST",      "O/members/",               "organization_member:write", of_account!(organizations::add_member)),
    at("PATCH",     "O/members/:uuid/",         "organization_member:write", of_account!(organizations::update_member)),
    at("DELETE",    "O/members/:uuid/",         "organization_member:write", of_account!(organizations::remove_member)),

    at("POST",      "O/feature_flags/copy_flags/", "feature_flag:write", of_account!(copy::copy)),
    at("GET",       "O/feature_flags/keys/",    "feature_flag:read",     of_account!(across::keys)),
    at("GET",       "O/feature_flags/:key/",    "feature_flag:read",     of_account!(across::by_key)).analytics(),
    at("GET",       "O/resource_access/",       "organization:read",     of_account!(resource_access::list)),
    at("POST",      "O/resource_access/",       "organization:write",    of_account!(resource_access::create)),
    at("PATCH",     "O/resource_access/:id/",   "organization:write",    of_account!(resource_access::update)),
    at("DELETE",    "O/resource_access/:id/",   "organization:write",    of_account!(resource_access::delete)),
    at("GET",       "O/projects/",              "project:read",          of_account!(projects::list)),
    at("POST",      "O/projects/",              "project:write",         of_account!(projects::create)),
    at("GET",       "O/projects/:id/",          "project:read",          of_account!(projects::retrieve_one)),
    at("PUT PATCH", "O/projects/:id/",          "project:write",         of_account!(projects::update_one)),
    at("GET",       "O/roles/",                 "organization:read",     of_account!(roles::list)),
    at("POST",      "O/roles/",                 "organization:write",    of_account!(roles::create)),
    at("GET",       "O/roles/:id/",             "organization:read",     of_account!(roles::retrieve)),
    at("PATCH",     "O/roles/:id/",             "organization:write",    of_account!(roles::update)),
    at("DELETE",    "O/roles/:id/",             "organization:write",    of_account!(roles::delete)),
    at("GET",       "O/roles/:id/role_memberships/", "organization:read", of_account!(roles::members)),
    at("POST",      "O/roles/:id/role_memberships/", "organization:write", of_account!(roles::add_member)),
    at("DELETE",    "O/roles/:id/role_memberships/:membership/", "organization:write", of_account!(roles::remove_member)),

    at("GET",       "/api/personal_api_keys/",  "personal_api_key:read", of_account!(personal_api_keys::list)),
    at("POST",      "/api/personal_api_keys/",  "personal_api_key:write", of_account!(personal_api_keys::create)),
    at("GET",       "/api/personal_api_keys/:id/", "personal_api_key:read", of_account!(personal_api_keys::retrieve)),
    at("PATCH",     "/api/personal_api_keys/:id/", "personal_api_key:write", of_account!(personal_api_keys::update)),
    at("DELETE",    "/api/personal_api_keys/:id/", "personal_api_key:write", of_account!(personal_api_keys::revoke)),

    at("GET",       "/api/projects/",           "project:read",          of_account!(projects::list)),
    at("POST",      "/api/projects/",           "project:write",         of_account!(projects::create)),
    at("GET",       "P/",                       "project:read",          of_project!(projects::retrieve)),
    at("PUT PATCH", "P/",                       "project:write",         of_project!(projects::update)),
    at("PATCH",     "P/reset_token/",           "project:write",         of_project!(projects::reset_token)),
    at("POST",      "P/rotate_secret_token/",   "project:write",         of_project!(flag_settings::rotate_secret)),
    at("PATCH",     "P/rotate_secret_token/",   "project:write",         of_project!(flag_settings::rotate_secret)).unlisted(),

    at("GET",       "/api/users/:uuid/",        "user:read",             of_account!(users::retrieve)),
    at("PATCH",     "/api/users/:uuid/",        "user:write",            of_account!(users::update)),

    at("GET",       "P/actions/",               "action:read",           of_documents!(list, Action)),
    at("POST",      "P/actions/",               "action:write",          of_documents!(create, Action)),
    at("GET",       "P/actions/activity/",      "activity_log:read",     of_documents!(activity, Action)),
    at("GET",       "P/actions/:id/",           "action:read",           of_documents!(retrieve, Action)),
    at("PUT PATCH", "P/actions/:id/",           "action:write",          of_documents!(update, Action)),
    at("DELETE",    "P/actions/:id/",           "action:write",          of_documents!(delete, Action)).unlisted(),
    at("GET",       "P/actions/:id/activity/",  "activity_log:read",     of_documents!(activity, Action)),

    at("GET",       "P/activity_log/",          "activity_log:read",     of_project!(activity::of_project)),

    at("GET",       "P/annotations/",           "annotation:read",       of_documents!(list, Annotation)),
    at("POST",      "P/annotations/",           "annotation:write",      of_documents!(create, Annotation)),
    at("GET",       "P/annotations/activity/",  "activity_log:read",     of_documents!(activity, Annotation)),
    at("GET",       "P/annotations/:id/",       "annotation:read",       of_documents!(retrieve, Annotation)),
    at("PUT PATCH", "P/annotations/:id/",       "annotation:write",      of_documents!(update, Annotation)),
    at("DELETE",    "P/annotations/:id/",       "annotation:write",      of_documents!(delete, Annotation)).unlisted(),
    at("GET",       "P/annotations/:id/activity/", "activity_log:read",     of_documents!(activity, Annotation)),

    at("GET",       "P/cohorts/",               "cohort:read",           of_project!(cohorts::list)),
    at("POST",      "P/cohorts/",               "cohort:write",          of_project!(cohorts::create)),
    at("GET",       "P/cohorts/activity/",      "cohort:read",           of_project!(cohorts::activity)),
    at("GET",       "P/cohorts/:id/",           "cohort:read",           of_project!(cohorts::retrieve)),
    at("PUT PATCH", "P/cohorts/:id/",           "cohort:write",          of_project!(cohorts::update)),
    at("DELETE",    "P/cohorts/:id/",           "cohort:write",          of_project!(cohorts::delete)).unlisted(),
    at("GET",       "P/cohorts/:id/activity/",  "cohort:read",           of_project!(cohorts::activity)),
    at("POST PATCH", "P/cohorts/:id/add_persons_to_static_cohort/", "cohort:write", of_project!(cohorts::change_members)),
    at("GET",       "P/cohorts/:id/persons/",   "cohort:read",           of_project!(cohorts::members)).analytics(),
    at("POST PATCH", "P/cohorts/:id/remove_person_from_static_cohort/", "cohort:write", of_project!(cohorts::change_members)),

    at("GET",       "P/dashboards/",            "dashboard:read",        of_documents!(list, Dashboard)),
    at("POST",      "P/dashboards/",            "dashboard:write",       of_documents!(create, Dashboard)),
    at("GET",       "P/dashboards/activity/",   "activity_log:read",     of_documents!(activity, Dashboard)),
    at("GET",       "P/dashboards/:id/",        "dashboard:read",        of_documents!(retrieve, Dashboard)).analytics(),
    at("PUT PATCH", "P/dashboards/:id/",        "dashboard:write",       of_documents!(update, Dashboard)),
    at("DELETE",    "P/dashboards/:id/",        "dashboard:write",       of_documents!(delete, Dashboard)).unlisted(),
    at("GET",       "P/dashboards/:id/activity/", "activity_log:read",     of_documents!(activity, Dashboard)),
    at("POST",      "P/dashboards/:id/copy_tile/", "dashboard:write",     of_project!(documents::dashboards::copy_tile)),
    at("PATCH",     "P/dashboards/:id/move_tile/", "dashboard:write",    of_project!(documents::dashboards::move_tile)),
    at("POST",      "P/dashboards/:id/reorder_tiles/", "dashboard:write", of_project!(documents::dashboards::reorder_tiles)),
    at("GET",       "P/dashboards/:id/run_insights/", "query:read",      of_project!(documents::dashboards::run_insights)).analytics(),
    at("GET",       "P/dashboards/:id/sharing/", "sharing_configuration:read", of_documents!(sharing::retrieve, Dashboard)),
    at("PATCH",     "P/dashboards/:id/sharing/", "sharing_configuration:write", of_documents!(sharing::update, Dashboard)),
    at("POST",      "P/dashboards/:id/sharing/refresh/", "sharing_configuration:write", of_documents!(sharing::refresh, Dashboard)),

    at("GET",       "P/early_access_feature/",  "early_access_feature:read", of_project!(early_access_features::list)),
    at("POST",      "P/early_access_feature/",  "early_access_feature:write", of_project!(early_access_features::create)),
    at("GET",       "P/early_access_feature/:id/", "early_access_feature:read", of_project!(early_access_features::retrieve)),
    at("PUT PATCH", "P/early_access_feature/:id/", "early_access_feature:write", of_project!(early_access_features::update)),
    at("DELETE",    "P/early_access_feature/:id/", "early_access_feature:write", of_project!(early_access_features::delete)),

    at("GET",       "P/event_definitions/",     "event_definition:read", of_project!(event_definitions::list)),
    at("POST",      "P/event_definitions/",     "event_definition:write", of_project!(event_definitions::create)),
    at("GET",       "P/event_definitions/activity/", "event_definition:read", of_project!(event_definitions::activity)),
    at("POST",      "P/event_definitions/bulk_update_tags/", "event_definition:write", of_project!(event_definitions::bulk::update_tags)),
    at("POST",      "P/event_definitions/bulk_update_verified/", "event_definition:write", of_project!(event_definitions::bulk::update_verified)),
    at("GET",       "P/event_definitions/by_name/", "event_definition:read", of_project!(event_definitions::by_name)),
    at("GET",       "P/event_definitions/primary_properties/", "event_definition:read", of_project!(event_definitions::primary_properties)),
    at("GET",       "P/event_definitions/:id/", "event_definition:read", of_project!(event_definitions::retrieve)),
    at("PUT PATCH", "P/event_definitions/:id/", "event_definition:write", of_project!(event_definitions::update)),
    at("DELETE",    "P/event_definitions/:id/", "event_definition:write", of_project!(event_definitions::delete)),
    at("GET",       "P/event_definitions/:id/activity/", "event_definition:read", of_project!(event_definitions::activity)),
    at("GET",       "P/event_definitions/:id/metrics/", "event_definition:read", of_project!(event_definitions::metrics)),

    at("GET",       "P/events/",                "query:read",            of_project!(events::list)).or_csv().analytics(),
    at("GET",       "P/events/values/",         "query:read",            of_project!(events::values)).analytics(),
    at("GET",       "P/events/:uuid/",          "query:read",            of_project!(events::retrieve)).analytics(),

    at("GET",       "P/feature_flags/",         "feature_flag:read",     of_project!(feature_flags::list)).analytics_with(STALE),
    at("POST",      "P/feature_flags/",         "feature_flag:write",    of_project!(feature_flags::create)),
    at("GET",       "P/feature_flags/activity/", "activity_log:read",    of_project!(feature_flags::activity)),
    at("POST",      "P/feature_flags/bulk_delete/", "feature_flag:write", of_project!(bulk::bulk_delete)),
    at("POST",      "P/feature_flags/bulk_keys/", "feature_flag:read", of_project!(bulk::bulk_keys)),
    at("POST",      "P/feature_flags/bulk_update_tags/", "feature_flag:write", of_project!(bulk::bulk_update_tags)),
    at("GET",       "P/feature_flags/evaluation_reasons/", "feature_flag:read", of_project!(questions::evaluation_reasons)),
    at("GET",       "P/feature_flags/matching_ids/", "feature_flag:read", of_project!(bulk::matching_ids)).analytics_with(STALE),
    at("GET",       "P/feature_flags/my_flags/", "feature_flag:read",     of_project!(questions::my_flags)),
    at("GET",       "P/feature_flags/settings/", "feature_flag:read",     of_project!(flag_settings::retrieve)),
    at("PATCH",     "P/feature_flags/settings/", "feature_flag:write",    of_project!(flag_settings::update)),
    at("POST",      "P/feature_flags/user_blast_radius/", "feature_flag:read", of_project!(questions::blast_radius)).analytics(),
    at("GET",       "P/feature_flags/:id/",     "feature_flag:read",     of_project!(feature_flags::retrieve)),
    at("PUT PATCH", "P/feature_flags/:id/",     "feature_flag:write",    of_project!(feature_flags::update)),
    at("DELETE",    "P/feature_flags/:id/",     "feature_flag:write",    of_project!(feature_flags::delete)).unlisted(),
    at("GET",       "P/feature_flags/:id/activity/", "activity_log:read", of_project!(feature_flags::activity)),
    at("POST",      "P/feature_flags/:id/create_static_cohort_for_flag/", "feature_flag:write", of_project!(actions::static_cohort)).analytics(),
    at("POST",      "P/feature_flags/:id/dashboard/", "feature_flag:write", of_project!(actions::dashboard)),
    at("GET",       "P/feature_flags/:id/dependent_flags/", "feature_flag:read", of_project!(actions::dependents)),
    at("POST",      "P/feature_flags/:id/enable/", "feature_flag:write", of_project!(actions::switch)),
    at("POST",      "P/feature_flags/:id/disable/", "feature_flag:write", of_project!(actions::switch)),
    at("POST",      "P/feature_flags/:id/archive/", "feature_flag:write", of_project!(actions::switch)),
    at("POST",      "P/feature_flags/:id/unarchive/", "feature_flag:write", of_project!(actions::switch)),
    at("POST",      "P/feature_flags/:id/enrich_usage_dashboard/", "feature_flag:write", of_project!(actions::enrich)),
    at("GET",       "P/feature_flags/:id/role_access/", "feature_flag:read", of_project!(role_access::list)),
    at("POST",      "P/feature_flags/:id/role_access/", "feature_flag:write", of_project!(role_access::create)),
    at("GET",       "P/feature_flags/:id/role_access/:access/", "feature_flag:read", of_project!(role_access::retrieve)),
    at("DELETE",    "P/feature_flags/:id/role_access/:access/", "feature_flag:write", of_project!(role_access::delete)),
    at("POST",      "P/feature_flags/:id/roll_out_to_everyone/", "feature_flag:write", of_project!(rollout::open)),
    at("POST",      "P/feature_flags/:id/set_release_condition_rollout/", "feature_flag:write", of_project!(rollout::set_condition)),
    at("GET",       "P/feature_flags/:id/status/", "feature_flag:read", of_project!(status::status)).analytics(),
    at("POST",      "P/feature_flags/:id/test_evaluation/", "feature_flag:read", of_project!(test_evaluation::test_evaluation)).analytics(),
    at("GET",       "P/feature_flags/:id/versions/:version/", "feature_flag:read", of_project!(actions::version)),
    at("POST",      "P/feature_flags/:id/versions/:version/revert/", "feature_flag:write", of_project!(actions::revert)),

    at("GET",       "P/groups/",                "group:read",            of_project!(groups::list)),
    at("POST",      "P/groups/",                "group:write",           of_project!(groups::changes::create)),
    at("GET",       "P/groups/activity/",       "group:read",            of_project!(groups::activity)),
    at("POST",      "P/groups/delete_property/", "group:write",          of_project!(groups::changes::delete_property)),
    at("GET",       "P/groups/find/",           "group:read",            of_project!(groups::find)),
    at("GET",       "P/groups/property_definitions/", "group:read", of_project!(groups::property_definitions)),
    at("GET",       "P/groups/property_values/", "group:read",           of_project!(groups::property_values)),
    at("POST",      "P/groups/update_property/", "group:write",          of_project!(groups::changes::update_property)),
    at("GET",       "P/groups_types/",          "group:read",            of_project!(groups::types)),
    at("PATCH",     "P/groups_types/update_metadata/", "group:write",    of_project!(groups::changes::update_types)),

    at("GET POST",  "P/insights/funnel/",       "insight:read",          of_project!(insights::funnels::funnel)).or_csv().analytics(),
    at("GET POST",  "P/insights/funnel/correlation/", "insight:read",    of_project!(insights::correlation::correlation)).or_csv().analytics(),
    at("GET POST",  "P/insights/path/",         "insight:read",          of_project!(insights::paths::path)).or_csv().analytics(),
    at("GET POST",  "P/insights/retention/",    "insight:read",          of_project!(insights::retention::retention)).or_csv().analytics(),
    at("GET POST",  "P/insights/trend/",        "insight:read",          of_project!(insights::trend)).or_csv().analytics(),
    at("GET",       "P/insights/",              "insight:read",          of_documents!(list, Insight)).analytics(),
    at("POST",      "P/insights/",              "insight:write",         of_documents!(create, Insight)),
    at("GET",       "P/insights/activity/",     "activity_log:read",     of_documents!(activity, Insight)),
    at("GET",       "P/insights/my_last_viewed/", "insight:read",          of_documents!(my_last_viewed, Insight)),
    at("GET",       "P/insights/:id/",          "insight:read",          of_documents!(retrieve, Insight)).analytics(),
    at("PUT PATCH", "P/insights/:id/",          "insight:write",         of_documents!(update, Insight)),
    at("DELETE",    "P/insights/:id/",          "insight:write",         of_documents!(delete, Insight)).unlisted(),
    at("GET",       "P/insights/:id/activity/", "activity_log:read",     of_documents!(activity, Insight)),
    at("GET",       "P/insights/:id/sharing/",  "sharing_configuration:read", of_documents!(sharing::retrieve, Insight)),
    at("PATCH",     "P/insights/:id/sharing/",  "sharing_configuration:write", of_documents!(sharing::update, Insight)),
    at("POST",      "P/insights/:id/sharing/refresh/", "sharing_configuration:write", of_documents!(sharing::refresh, Insight)),
    at("POST",      "P/insights/:id/viewed/",   "insight:read",          of_documents!(viewed, Insight)),

    at("GET",       "P/persons/",               "person:read",           of_project!(persons::list)).or_csv().analytics(),
    at("POST",      "P/persons/",               "person:write",          of_project!(persons::create)).unlisted().analytics(),
    at("GET",       "P/persons/activity/",      "person:read",           of_project!(persons::activity)).or_csv().analytics(),
    at("POST",      "P/persons/bulk_delete/",   "person:write",          of_project!(persons::deletions::bulk_delete)).analytics(),
    at("GET",       "P/persons/cohorts/",       "person:read",           of_project!(persons::cohorts)).or_csv().analytics(),
    at("GET POST",  "P/persons/funnel/",        "person:read",           of_project!(insights::funnels::funnel_persons)).or_csv().analytics(),
    at("GET POST",  "P/persons/funnel/correlation/", "person:read",      of_project!(insights::correlation::persons)).or_csv().analytics(),
    at("GET",       "P/persons/lifecycle/",     "person:read",           of_project!(insights::points::lifecycle)).or_csv().analytics(),
    at("GET POST",  "P/persons/path/",          "person:read",           of_project!(insights::paths::persons)).or_csv().analytics(),
    at("GET",       "P/persons/retention/",     "person:read",           of_project!(insights::retention::retention_persons)).or_csv().analytics(),
    at("GET",       "P/persons/stickiness/",    "person:read",           of_project!(insights::points::stickiness)).or_csv().analytics(),
    at("GET",       "P/persons/trends/",        "person:read",           of_project!(insights::trend_persons)).or_csv().analytics(),
    at("GET",       "P/persons/deletion_status/", "person:read",         of_project!(persons::deletions::status)).analytics(),
    at("POST",      "P/persons/reset_person_distinct_id/", "person:write", of_project!(persons::changes::reset_distinct_id)).analytics(),
    at("GET",       "P/persons/values/",        "person:read",           of_project!(persons::values::values)).or_csv().analytics(),
    at("GET",       "P/persons/:id/",           "person:read",           of_project!(persons::retrieve)).or_csv().analytics(),
    at("PUT PATCH", "P/persons/:id/",           "person:write",          of_project!(persons::changes::update)).or_csv().analytics(),
    at("DELETE",    "P/persons/:id/",           "person:write",          of_project!(persons::deletions::delete)).or_csv().analytics(),
    at("GET",       "P/persons/:id/activity/",  "person:read",           of_project!(persons::activity)).or_csv().analytics(),
    at("POST",      "P/persons/:id/delete_events/", "person:write",      of_project!(persons::deletions::delete_events)).analytics(),
    at("POST",      "P/persons/:id/delete_recordings/", "person:write",  of_project!(persons::deletions::delete_recordings)).analytics(),
    at("GET",       "P/persons/:id/properties_timeline/", "person:read", of_project!(persons::timeline::timeline)).or_csv().analytics(),
    at("POST",      "P/persons/:id/update_property/", "person:write", of_project!(persons::changes::update_property)).or_csv().analytics(),
    at("POST",      "P/persons/:id/delete_property/", "person:write", of_project!(persons::changes::delete_property)).or_csv().analytics(),
    at("POST",      "P/persons/:id/split/",     "person:write",          of_project!(persons::split::split)).or_csv().analytics(),

    at("GET",       "P/property_definitions/",  "property_definition:read", of_project!(property_definitions::list)),
    at("GET",       "P/property_definitions/seen_together/", "property_definition:read", of_project!(property_definitions::seen_together)),
    at("GET",       "P/property_definitions/:id/", "property_definition:read", of_project!(property_definitions::retrieve)),
    at("PUT PATCH", "P/property_definitions/:id/", "property_definition:write", of_project!(property_definitions::update)),
    at("DELETE",    "P/property_definitions/:id/", "property_definition:write", of_project!(property_definitions::delete)),

    at("GET",       "P/scheduled_changes/",     "feature_flag:read",     of_project!(scheduled_changes::list)),
    at("POST",      "P/scheduled_changes/",     "feature_flag:write",    of_project!(scheduled_changes::create)),
    at("GET",       "P/scheduled_changes/:id/", "feature_flag:read",     of_project!(scheduled_changes::retrieve)),
    at("PUT PATCH", "P/scheduled_changes/:id/", "feature_flag:write",    of_project!(scheduled_changes::update)),
    at("DELETE",    "P/scheduled_changes/:id/", "feature_flag:write",    of_project!(scheduled_changes::delete)),

    at("GET",       "P/ingestion_warnings/",    "ingestion_warning:read", of_project!(ingestion_warnings::list)),

    at("POST",      "P/query/",                 "query:read",            of_project!(query::query)).own_rendering().analytics(),
    at("GET",       "P/query/:id/",             "query:read",            of_project!(query::status::retrieve)),
    at("DELETE",    "P/query/:id/",             "query:read",            of_project!(query::status::cancel)),
];

/// The parameter with which a list of flags depends on the time of the last call, which comes from events.
const STALE: (&str, &str) = ("active", "stale");

/// Old paths without a project, and the path within the current project that each maps to.
const FLAT: &[(&str, &str)] = &[
    ("cohort", "cohorts"),
    ("event", "events"),
    ("event_definition", "event_definitions"),
    ("feature_flag", "feature_flags"),
    ("person", "persons"),
    ("property_definition", "property_definitions"),
];

/// Prefixes of the paths whose responses are compressed.
const COMPRESSED: [&str; 7] = [
    "P/dashboards/",
    "P/event_definitions/",
    "P/events/",
    "P/insights/",
    "P/persons/",
    "P/property_definitions/",
    "P/query/",
];

/// One row of the table.
#[derive(Debug)]
pub struct Endpoint {
    /// Methods, separated by spaces, such as `PUT PATCH`.
    methods: &'static str,
    /// The path in the table; also the name in metrics and logs.
    pub path: &'static str,
    /// The scope that a key needs, such as `person:read`.
    pub scope: &'static str,
    /// The formats of the response.
    pub renderings: Renderings,
    /// Whether `Allow` lists the methods.
    is_allowed: bool,
    /// Whether it reads events or persons, which may be very many.
    is_analytics: bool,
    /// The parameter, with its value in lower case, that makes a request an analytics request.
    analytics_with: Option<(&'static str, &'static str)>,
    /// The route function.
    pub run: Run,
}

/// The route function, by the kind of caller that it needs.
#[derive(Clone, Copy, Debug)]
pub enum Run {
    /// An endpoint of a project.
    Project(for<'a> fn(&'a App, Call<Principal>) -> Answer<'a>),
    /// An endpoint outside of projects.
    Account(for<'a> fn(&'a App, Call<Asker>) -> Answer<'a>),
}

const fn at(methods: &'static str, path: &'static str, scope: &'static str, run: Run) -> Endpoint {
    let renderings = Renderings::Json;
    let (is_allowed, is_analytics, analytics_with) = (true, false, None);
    Endpoint { methods, path, scope, renderings, is_allowed, is_analytics, analytics_with, run }
}

impl Endpoint {
    /// The response may also be CSV.
    const fn or_csv(mut self) -> Self {
        self.renderings = Renderings::JsonOrCsv;
        self
    }

    /// The body selects the format of the response.
    const fn own_rendering(mut self) -> Self {
        self.renderings = Renderings::Own;
        self
    }

    /// It reads events or persons, which may be very many; the analytics rate limits of keys apply to it.
    const fn analytics(mut self) -> Self {
        self.is_analytics = true;
        self
    }

    /// The same, only for requests where a parameter has this value.
    const fn analytics_with(mut self, parameter: (&'static str, &'static str)) -> Self {
        self.analytics_with = Some(parameter);
        self
    }

    /// `Allow` does not list its methods: it has an error text of its own, or is an alias.
    const fn unlisted(mut self) -> Self {
        self.is_allowed = false;
        self
    }

    /// The methods of the endpoint.
    pub fn methods(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.methods.split(' ')
    }

    /// Whether a request reads events or persons; `query` returns the value of a query parameter.
    pub fn is_analytics<'q>(&self, query: impl Fn(&str) -> Option<Cow<'q, str>>) -> bool {
        let has = |(name, wanted): (&str, &str)| {
            query(name).is_some_and(|value| value.to_lowercase() == wanted)
        };
        self.is_analytics || self.analytics_with.is_some_and(has)
    }

    /// Whether responses are compressed for clients that accept it.
    pub fn is_compressed(&self) -> bool {
        COMPRESSED.iter().any(|begin| self.path.starts_with(begin))
    }

    fn takes(&self, method: &str) -> bool {
        self.methods().any(|own| own == method)
    }
}

/// The result of a look-up.
#[derive(Debug)]
pub enum Found {
    /// An endpoint.
    Endpoint(Managed),
    /// The path exists, with the methods of this `Allow` header.
    WrongMethod(String),
    /// No endpoint has this path.
    Nothing,
}

/// An endpoint, with the values from its path.
#[derive(Debug)]
pub struct Managed {
    /// The row of the table.
    pub endpoint: &'static Endpoint,
    /// The project or organization in the path; empty for an endpoint without one.
    pub owner: String,
    /// The values of the `:names`, with the organization as the first.
    pub parameters: Vec<String>,
    /// The format that the suffix of the path selects.
    pub suffix: Option<Rendering>,
}

/// Finds the endpoint of a path, which contains neither a query nor a host.
pub fn find(method: &str, path: &str) -> Found {
    let path = path.strip_suffix('/').unwrap_or(path);
    // A suffix is recognized only if the endpoint has several formats; otherwise it is part of an id.
    let (stem, suffix) = Rendering::of_suffix(path);
    let with_suffix = suffix.and_then(|_| Located::of(stem)).map(|located| {
        located.endpoints().filter(|(line, _)| line.renderings == Renderings::JsonOrCsv).collect()
    });
    let with_suffix: Vec<_> = with_suffix.unwrap_or_default();
    let (located, lines, suffix) = if with_suffix.is_empty() {
        let Some(located) = Located::of(path) else { return Found::Nothing };
        let lines = located.endpoints().collect();
        (located, lines, None)
    } else {
        let Some(located) = Located::of(stem) else { return Found::Nothing };
        (located, with_suffix, suffix)
    };
    choose(method, located.owner, lines, suffix)
}

/// The row for `method` among the rows that match a path.
fn choose(
    method: &str,
    owner: String,
    lines: Vec<(&'static Endpoint, Vec<String>)>,
    suffix: Option<Rendering>,
) -> Found {
    // All rows with the same path as the first match, wherever they are in the table.
    let Some(path) = lines.first().map(|(line, _)| line.path) else { return Found::Nothing };
    let mut allowed: Vec<&str> = Vec::new();
    for (endpoint, parameters) in lines {
        if endpoint.path != path {
            continue;
        }
        if endpoint.takes(method) {
            return Found::Endpoint(Managed { endpoint, owner, parameters, suffix });
        }
        if endpoint.is_allowed {
            allowed.extend(endpoint.methods());
        }
    }
    Found::WrongMethod(allow(allowed))
}

/// The `Allow` header of a path with these methods: adds HEAD if there is GET, and OPTIONS.
pub fn allow(mut methods: Vec<&str>) -> String {
    if methods.contains(&"GET") {
        methods.push("HEAD");
    }
    methods.push("OPTIONS");
    methods.join(", ")
}

/// A path split into root, owner and segments.
#[derive(Debug)]
struct Located<'p> {
    root: Root,
    /// The project or organization; empty without one.
    owner: String,
    parts: Vec<&'p str>,
}

/// The prefix of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Root {
    Project,
    Organization,
    Neither,
}

impl<'p> Located<'p> {
    /// Splits a path without its trailing slash; `None` if it is not in the management API.
    fn of(path: &'p str) -> Option<Self> {
        let parts: Vec<&str> = path.strip_prefix("/api/")?.split('/').collect();
        let located = |root, owner: &str, parts: &[&'p str]| {
            let (owner, parts) = (decode(owner).into_owned(), parts.to_vec());
            Some(Self { root, owner, parts })
        };
        match parts.as_slice() {
            ["projects" | "environments" | "organizations", "", ..] => None,
            ["projects" | "environments"] => located(Root::Neither, "", &["projects"]),
            ["projects" | "environments", project, rest @ ..] => {
                located(Root::Project, project, rest)
            }
            ["organizations"] => located(Root::Neither, "", &parts),
            ["organizations", organization, rest @ ..] => {
                located(Root::Organization, organization, rest)
            }
            [first, rest @ ..] => match FLAT.iter().find(|(old, _)| old == first) {
                Some((_, name)) => {
                    let parts = [&[*name], rest].concat();
                    located(Root::Project, CURRENT, &parts)
                }
                None => located(Root::Neither, "", &parts),
            },
            [] => None,
        }
    }

    /// The rows of the table that match, with the values of their `:names`.
    fn endpoints(&self) -> impl Iterator<Item = (&'static Endpoint, Vec<String>)> {
        TABLE.iter().filter_map(|line| Some((line, self.parameters(line.path)?)))
    }

    /// The values of the `:names` of a path of the table, if it matches.
    fn parameters(&self, path: &str) -> Option<Vec<String>> {
        let (root, rest) = match (path.strip_prefix("P/"), path.strip_prefix("O/")) {
            (Some(rest), _) => (Root::Project, rest),
            (_, Some(rest)) => (Root::Organization, rest),
            _ => (Root::Neither, path.strip_prefix("/api/")?),
        };
        if root != self.root {
            return None;
        }
        let mut own = rest.split('/').filter(|part| !part.is_empty());
        let mut values = Vec::new();
        // Outside of projects no project determines the organization, so it is the first value.
        if root == Root::Organization {
            values.push(self.owner.clone());
        }
        for part in &self.parts {
            match own.next()? {
                name if name.starts_with(':') => {
                    values.push(Some(decode(part)).filter(|value| !value.is_empty())?.into_owned());
                }
                word if word == *part => {}
                _ => return None,
            }
        }
        own.next().is_none().then_some(values)
    }
}

#[cfg(test)]
mod tests;
