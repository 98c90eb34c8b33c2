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

use crate::auth::{Asker, CURRENT, Principal};
use crate::call::{Answer, Call, Rendering, Renderings, decode};
use crate::openapi::Operation;
use crate::routes::feature_flags::{
    across, actions, bulk, copy, evaluations, role_access, rollout, status, test_evaluation,
};
use crate::routes::{
    activity, cohorts, documents, early_access_features, event_definitions, events, feature_flags,
    flag_settings, groups, ingestion_warnings, insights, organizations, personal_api_keys, persons,
    projects, property_definitions, query, resource_access, roles, scheduled_changes, users,
};
use weir_app::App;
use weir_metadata::documents::Kind;

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
    at("GET",       "/api/organizations/",      "organization:read",     of_account!(organizations::list)).described(&organizations::LIST),
    at("GET",       "O/",                       "organization:read",     of_account!(organizations::retrieve)).described(&organizations::RETRIEVE),
    at("PATCH",     "O/",                       "organization:write",    of_account!(organizations::update)).described(&organizations::UPDATE),
    at("GET",       "O/members/",               "organization_member:read",  of_account!(organizations::members)).described(&organizations::MEMBERS),
    at("POST",      "O/members/",               "organization_member:write", of_account!(organizations::add_member)).described(&organizations::ADD_MEMBER),
    at("PATCH",     "O/members/:uuid/",         "organization_member:write", of_account!(organizations::update_member)).described(&organizations::UPDATE_MEMBER),
    at("DELETE",    "O/members/:uuid/",         "organization_member:write", of_account!(organizations::remove_member)).described(&organizations::REMOVE_MEMBER),

    at("POST",      "O/feature_flags/copy_flags/", "feature_flag:write", of_account!(copy::copy)).described(&copy::COPY),
    at("GET",       "O/feature_flags/keys/",    "feature_flag:read",     of_account!(across::keys)).described(&across::KEYS),
    at("GET",       "O/feature_flags/:key/",    "feature_flag:read",     of_account!(across::by_key)).analytics().described(&across::BY_KEY),
    at("GET",       "O/resource_access/",       "organization:read",     of_account!(resource_access::list)).described(&resource_access::LIST),
    at("POST",      "O/resource_access/",       "organization:write",    of_account!(resource_access::create)).described(&resource_access::CREATE),
    at("PATCH",     "O/resource_access/:id/",   "organization:write",    of_account!(resource_access::update)).described(&resource_access::UPDATE),
    at("DELETE",    "O/resource_access/:id/",   "organization:write",    of_account!(resource_access::delete)).described(&resource_access::DELETE),
    at("GET",       "O/projects/",              "project:read",          of_account!(projects::list)).described(&projects::LIST),
    at("POST",      "O/projects/",              "project:write",         of_account!(projects::create)).described(&projects::CREATE),
    at("GET",       "O/projects/:id/",          "project:read",          of_account!(projects::retrieve_one)).described(&projects::RETRIEVE_ONE),
    at("PUT PATCH", "O/projects/:id/",          "project:write",         of_account!(projects::update_one)).described(&projects::UPDATE_ONE),
    at("GET",       "O/roles/",                 "organization:read",     of_account!(roles::list)).described(&roles::LIST),
    at("POST",      "O/roles/",                 "organization:write",    of_account!(roles::create)).described(&roles::CREATE),
    at("GET",       "O/roles/:id/",             "organization:read",     of_account!(roles::retrieve)).described(&roles::RETRIEVE),
    at("PATCH",     "O/roles/:id/",             "organization:write",    of_account!(roles::update)).described(&roles::UPDATE),
    at("DELETE",    "O/roles/:id/",             "organization:write",    of_account!(roles::delete)).described(&roles::DELETE),
    at("GET",       "O/roles/:id/role_memberships/", "organization:read", of_account!(roles::members)).described(&roles::MEMBERS),
    at("POST",      "O/roles/:id/role_memberships/", "organization:write", of_account!(roles::add_member)).described(&roles::ADD_MEMBER),
    at("DELETE",    "O/roles/:id/role_memberships/:membership/", "organization:write", of_account!(roles::remove_member)).described(&roles::REMOVE_MEMBER),

    at("GET",       "/api/personal_api_keys/",  "personal_api_key:read", of_account!(personal_api_keys::list)).described(&personal_api_keys::LIST),
    at("POST",      "/api/personal_api_keys/",  "personal_api_key:write", of_account!(personal_api_keys::create)).described(&personal_api_keys::CREATE),
    at("GET",       "/api/personal_api_keys/:id/", "personal_api_key:read", of_account!(personal_api_keys::retrieve)).described(&personal_api_keys::RETRIEVE),
    at("PATCH",     "/api/personal_api_keys/:id/", "personal_api_key:write", of_account!(personal_api_keys::update)).described(&personal_api_keys::UPDATE),
    at("DELETE",    "/api/personal_api_keys/:id/", "personal_api_key:write", of_account!(personal_api_keys::revoke)).described(&personal_api_keys::REVOKE),

    at("GET",       "/api/projects/",           "project:read",          of_account!(projects::list)).described(&projects::LIST),
    at("POST",      "/api/projects/",           "project:write",         of_account!(projects::create)).described(&projects::CREATE),
    at("GET",       "P/",                       "project:read",          of_project!(projects::retrieve)).described(&projects::RETRIEVE),
    at("PUT PATCH", "P/",                       "project:write",         of_project!(projects::update)).described(&projects::UPDATE),
    at("PATCH",     "P/reset_token/",           "project:write",         of_project!(projects::reset_token)).described(&projects::RESET_TOKEN),
    at("POST",      "P/rotate_secret_token/",   "project:write",         of_project!(flag_settings::rotate_secret)).described(&flag_settings::ROTATE_SECRET),
    at("PATCH",     "P/rotate_secret_token/",   "project:write",         of_project!(flag_settings::rotate_secret)).unlisted().described(&flag_settings::ROTATE_SECRET_BY_PATCH),

    at("GET",       "/api/users/:uuid/",        "user:read",             of_account!(users::retrieve)).described(&users::RETRIEVE),
    at("PATCH",     "/api/users/:uuid/",        "user:write",            of_account!(users::update)).described(&users::UPDATE),

    at("GET",       "P/actions/",               "action:read",           of_documents!(listed::list, Action)).described(&documents::described::ACTION_LIST),
    at("POST",      "P/actions/",               "action:write",          of_documents!(create, Action)).described(&documents::described::ACTION_CREATE),
    at("GET",       "P/actions/activity/",      "activity_log:read",     of_documents!(activity, Action)).described(&documents::described::ACTION_ACTIVITY),
    at("GET",       "P/actions/:id/",           "action:read",           of_documents!(retrieve, Action)).described(&documents::described::ACTION_RETRIEVE),
    at("PUT PATCH", "P/actions/:id/",           "action:write",          of_documents!(update, Action)).described(&documents::described::ACTION_UPDATE),
    at("DELETE",    "P/actions/:id/",           "action:write",          of_documents!(delete, Action)).unlisted().described(&documents::described::ACTION_DELETE),
    at("GET",       "P/actions/:id/activity/",  "activity_log:read",     of_documents!(activity, Action)).described(&documents::described::ACTION_ACTIVITY_OF_ONE),

    at("GET",       "P/activity_log/",          "activity_log:read",     of_project!(activity::of_project)).described(&activity::OF_PROJECT),

    at("GET",       "P/annotations/",           "annotation:read",       of_documents!(listed::list, Annotation)).described(&documents::described::ANNOTATION_LIST),
    at("POST",      "P/annotations/",           "annotation:write",      of_documents!(create, Annotation)).described(&documents::described::ANNOTATION_CREATE),
    at("GET",       "P/annotations/activity/",  "activity_log:read",     of_documents!(activity, Annotation)).described(&documents::described::ANNOTATION_ACTIVITY),
    at("GET",       "P/annotations/:id/",       "annotation:read",       of_documents!(retrieve, Annotation)).described(&documents::described::ANNOTATION_RETRIEVE),
    at("PUT PATCH", "P/annotations/:id/",       "annotation:write",      of_documents!(update, Annotation)).described(&documents::described::ANNOTATION_UPDATE),
    at("DELETE",    "P/annotations/:id/",       "annotation:write",      of_documents!(delete, Annotation)).unlisted().described(&documents::described::ANNOTATION_DELETE),
    at("GET",       "P/annotations/:id/activity/", "activity_log:read",     of_documents!(activity, Annotation)).described(&documents::described::ANNOTATION_ACTIVITY_OF_ONE),

    at("GET",       "P/cohorts/",               "cohort:read",           of_project!(cohorts::list)).described(&cohorts::LIST),
    at("POST",      "P/cohorts/",               "cohort:write",          of_project!(cohorts::create)).described(&cohorts::CREATE),
    at("GET",       "P/cohorts/activity/",      "cohort:read",           of_project!(cohorts::activity)).described(&cohorts::ACTIVITY),
    at("GET",       "P/cohorts/:id/",           "cohort:read",           of_project!(cohorts::retrieve)).described(&cohorts::RETRIEVE),
    at("PUT PATCH", "P/cohorts/:id/",           "cohort:write",          of_project!(cohorts::update)).described(&cohorts::UPDATE),
    at("DELETE",    "P/cohorts/:id/",           "cohort:write",          of_project!(cohorts::delete)).unlisted().described(&cohorts::DELETE),
    at("GET",       "P/cohorts/:id/activity/",  "cohort:read",           of_project!(cohorts::activity)).described(&cohorts::ACTIVITY_OF_ONE),
    at("POST PATCH", "P/cohorts/:id/add_persons_to_static_cohort/", "cohort:write", of_project!(cohorts::change_members)).described(&cohorts::CHANGE_MEMBERS),
    at("GET",       "P/cohorts/:id/persons/",   "cohort:read",           of_project!(cohorts::members)).analytics().described(&cohorts::MEMBERS),
    at("POST PATCH", "P/cohorts/:id/remove_person_from_static_cohort/", "cohort:write", of_project!(cohorts::change_members)).described(&cohorts::REMOVE_PERSON_FROM_STATIC_COHORT),

    at("GET",       "P/dashboards/",            "dashboard:read",        of_documents!(listed::list, Dashboard)).described(&documents::described::DASHBOARD_LIST),
    at("POST",      "P/dashboards/",            "dashboard:write",       of_documents!(create, Dashboard)).described(&documents::described::DASHBOARD_CREATE),
    at("GET",       "P/dashboards/activity/",   "activity_log:read",     of_documents!(activity, Dashboard)).described(&documents::described::DASHBOARD_ACTIVITY),
    at("GET",       "P/dashboards/:id/",        "dashboard:read",        of_documents!(retrieve, Dashboard)).analytics().described(&documents::described::DASHBOARD_RETRIEVE),
    at("PUT PATCH", "P/dashboards/:id/",        "dashboard:write",       of_documents!(update, Dashboard)).described(&documents::described::DASHBOARD_UPDATE),
    at("DELETE",    "P/dashboards/:id/",        "dashboard:write",       of_documents!(delete, Dashboard)).unlisted().described(&documents::described::DASHBOARD_DELETE),
    at("GET",       "P/dashboards/:id/activity/", "activity_log:read",     of_documents!(activity, Dashboard)).described(&documents::described::DASHBOARD_ACTIVITY_OF_ONE),
    at("POST",      "P/dashboards/:id/copy_tile/", "dashboard:write",     of_project!(documents::dashboards::copy_tile)).described(&documents::dashboards::COPY_TILE),
    at("PATCH",     "P/dashboards/:id/move_tile/", "dashboard:write",    of_project!(documents::dashboards::move_tile)).described(&documents::dashboards::MOVE_TILE),
    at("POST",      "P/dashboards/:id/reorder_tiles/", "dashboard:write", of_project!(documents::dashboards::reorder_tiles)).described(&documents::dashboards::REORDER_TILES),
    at("GET",       "P/dashboards/:id/run_insights/", "query:read",      of_project!(documents::dashboards::run_insights)).analytics().described(&documents::dashboards::RUN_INSIGHTS),
    at("GET",       "P/dashboards/:id/sharing/", "sharing_configuration:read", of_documents!(sharing::retrieve, Dashboard)).described(&documents::described::DASHBOARD_SHARING_RETRIEVE),
    at("PATCH",     "P/dashboards/:id/sharing/", "sharing_configuration:write", of_documents!(sharing::update, Dashboard)).described(&documents::described::DASHBOARD_SHARING_UPDATE),
    at("POST",      "P/dashboards/:id/sharing/passwords/", "sharing_configuration:write", of_documents!(sharing::add_password, Dashboard)).described(&documents::described::DASHBOARD_SHARING_ADD_PASSWORD),
    at("DELETE",    "P/dashboards/:id/sharing/passwords/:password/", "sharing_configuration:write", of_documents!(sharing::remove_password, Dashboard)).described(&documents::described::DASHBOARD_SHARING_REMOVE_PASSWORD),
    at("POST",      "P/dashboards/:id/sharing/refresh/", "sharing_configuration:write", of_documents!(sharing::refresh, Dashboard)).described(&documents::described::DASHBOARD_SHARING_REFRESH),

    at("GET",       "P/early_access_feature/",  "early_access_feature:read", of_project!(early_access_features::list)).described(&early_access_features::LIST),
    at("POST",      "P/early_access_feature/",  "early_access_feature:write", of_project!(early_access_features::create)).described(&early_access_features::CREATE),
    at("GET",       "P/early_access_feature/:id/", "early_access_feature:read", of_project!(early_access_features::retrieve)).described(&early_access_features::RETRIEVE),
    at("PUT PATCH", "P/early_access_feature/:id/", "early_access_feature:write", of_project!(early_access_features::update)).described(&early_access_features::UPDATE),
    at("DELETE",    "P/early_access_feature/:id/", "early_access_feature:write", of_project!(early_access_features::delete)).described(&early_access_features::DELETE),

    at("GET",       "P/event_definitions/",     "event_definition:read", of_project!(event_definitions::list)).described(&event_definitions::LIST),
    at("POST",      "P/event_definitions/",     "event_definition:write", of_project!(event_definitions::create)).described(&event_definitions::CREATE),
    at("GET",       "P/event_definitions/activity/", "event_definition:read", of_project!(event_definitions::activity)).described(&event_definitions::ACTIVITY),
    at("POST",      "P/event_definitions/bulk_update_tags/", "event_definition:write", of_project!(event_definitions::bulk::update_tags)).described(&event_definitions::bulk::UPDATE_TAGS),
    at("POST",      "P/event_definitions/bulk_update_verified/", "event_definition:write", of_project!(event_definitions::bulk::update_verified)).described(&event_definitions::bulk::UPDATE_VERIFIED),
    at("GET",       "P/event_definitions/by_name/", "event_definition:read", of_project!(event_definitions::by_name)).described(&event_definitions::BY_NAME),
    at("GET",       "P/event_definitions/primary_properties/", "event_definition:read", of_project!(event_definitions::primary_properties)).described(&event_definitions::PRIMARY_PROPERTIES),
    at("GET",       "P/event_definitions/:id/", "event_definition:read", of_project!(event_definitions::retrieve)).described(&event_definitions::RETRIEVE),
    at("PUT PATCH", "P/event_definitions/:id/", "event_definition:write", of_project!(event_definitions::update)).described(&event_definitions::UPDATE),
    at("DELETE",    "P/event_definitions/:id/", "event_definition:write", of_project!(event_definitions::delete)).described(&event_definitions::DELETE),
    at("GET",       "P/event_definitions/:id/activity/", "event_definition:read", of_project!(event_definitions::activity)).described(&event_definitions::ACTIVITY_OF_ONE),
    at("GET",       "P/event_definitions/:id/metrics/", "event_definition:read", of_project!(event_definitions::metrics)).described(&event_definitions::METRICS),

    at("GET",       "P/events/",                "query:read",            of_project!(events::list)).or_csv().analytics().described(&events::LIST),
    at("GET",       "P/events/values/",         "query:read",            of_project!(events::values)).analytics().described(&events::VALUES),
    at("GET",       "P/events/:uuid/",          "query:read",            of_project!(events::retrieve)).analytics().described(&events::RETRIEVE),

    at("GET",       "P/feature_flags/",         "feature_flag:read",     of_project!(feature_flags::list)).analytics_with(STALE).described(&feature_flags::LIST),
    at("POST",      "P/feature_flags/",         "feature_flag:write",    of_project!(feature_flags::create)).described(&feature_flags::CREATE),
    at("GET",       "P/feature_flags/activity/", "activity_log:read",    of_project!(feature_flags::activity)).described(&feature_flags::ACTIVITY),
    at("POST",      "P/feature_flags/bulk_delete/", "feature_flag:write", of_project!(bulk::bulk_delete)).described(&bulk::BULK_DELETE),
    at("POST",      "P/feature_flags/bulk_keys/", "feature_flag:read", of_project!(bulk::bulk_keys)).described(&bulk::BULK_KEYS),
    at("POST",      "P/feature_flags/bulk_update_tags/", "feature_flag:write", of_project!(bulk::bulk_update_tags)).described(&bulk::BULK_UPDATE_TAGS),
    at("GET",       "P/feature_flags/evaluation_reasons/", "feature_flag:read", of_project!(evaluations::evaluation_reasons)).described(&evaluations::EVALUATION_REASONS),
    at("GET",       "P/feature_flags/matching_ids/", "feature_flag:read", of_project!(bulk::matching_ids)).analytics_with(STALE).described(&bulk::MATCHING_IDS),
    at("GET",       "P/feature_flags/my_flags/", "feature_flag:read",     of_project!(evaluations::my_flags)).described(&evaluations::MY_FLAGS),
    at("GET",       "P/feature_flags/settings/", "feature_flag:read",     of_project!(flag_settings::retrieve)).described(&flag_settings::RETRIEVE),
    at("PATCH",     "P/feature_flags/settings/", "feature_flag:write",    of_project!(flag_settings::update)).described(&flag_settings::UPDATE),
    at("POST",      "P/feature_flags/user_blast_radius/", "feature_flag:read", of_project!(evaluations::blast_radius)).analytics().described(&evaluations::BLAST_RADIUS),
    at("GET",       "P/feature_flags/:id/",     "feature_flag:read",     of_project!(feature_flags::retrieve)).described(&feature_flags::RETRIEVE),
    at("PUT PATCH", "P/feature_flags/:id/",     "feature_flag:write",    of_project!(feature_flags::update)).described(&feature_flags::UPDATE),
    at("DELETE",    "P/feature_flags/:id/",     "feature_flag:write",    of_project!(feature_flags::delete)).unlisted().described(&feature_flags::DELETE),
    at("GET",       "P/feature_flags/:id/activity/", "activity_log:read", of_project!(feature_flags::activity)).described(&feature_flags::ACTIVITY_OF_ONE),
    at("POST",      "P/feature_flags/:id/create_static_cohort_for_flag/", "feature_flag:write", of_project!(actions::static_cohort)).analytics().described(&actions::STATIC_COHORT),
    at("POST",      "P/feature_flags/:id/dashboard/", "feature_flag:write", of_project!(actions::dashboard)).described(&actions::DASHBOARD),
    at("GET",       "P/feature_flags/:id/dependent_flags/", "feature_flag:read", of_project!(actions::dependents)).described(&actions::DEPENDENTS),
    at("POST",      "P/feature_flags/:id/enable/", "feature_flag:write", of_project!(actions::switch)).described(&actions::SWITCH),
    at("POST",      "P/feature_flags/:id/disable/", "feature_flag:write", of_project!(actions::switch)).described(&actions::DISABLE),
    at("POST",      "P/feature_flags/:id/archive/", "feature_flag:write", of_project!(actions::switch)).described(&actions::ARCHIVE),
    at("POST",      "P/feature_flags/:id/unarchive/", "feature_flag:write", of_project!(actions::switch)).described(&actions::UNARCHIVE),
    at("POST",      "P/feature_flags/:id/enrich_usage_dashboard/", "feature_flag:write", of_project!(actions::enrich)).described(&actions::ENRICH),
    at("GET",       "P/feature_flags/:id/role_access/", "feature_flag:read", of_project!(role_access::list)).described(&role_access::LIST),
    at("POST",      "P/feature_flags/:id/role_access/", "feature_flag:write", of_project!(role_access::create)).described(&role_access::CREATE),
    at("GET",       "P/feature_flags/:id/role_access/:access/", "feature_flag:read", of_project!(role_access::retrieve)).described(&role_access::RETRIEVE),
    at("DELETE",    "P/feature_flags/:id/role_access/:access/", "feature_flag:write", of_project!(role_access::delete)).described(&role_access::DELETE),
    at("POST",      "P/feature_flags/:id/roll_out_to_everyone/", "feature_flag:write", of_project!(rollout::open)).described(&rollout::OPEN),
    at("POST",      "P/feature_flags/:id/set_release_condition_rollout/", "feature_flag:write", of_project!(rollout::set_condition)).described(&rollout::SET_CONDITION),
    at("GET",       "P/feature_flags/:id/status/", "feature_flag:read", of_project!(status::status)).analytics().described(&status::STATUS),
    at("POST",      "P/feature_flags/:id/test_evaluation/", "feature_flag:read", of_project!(test_evaluation::test_evaluation)).analytics().described(&test_evaluation::TEST_EVALUATION),
    at("GET",       "P/feature_flags/:id/versions/:version/", "feature_flag:read", of_project!(actions::version)).described(&actions::VERSION),
    at("POST",      "P/feature_flags/:id/versions/:version/revert/", "feature_flag:write", of_project!(actions::revert)).described(&actions::REVERT),

    at("GET",       "P/groups/",                "group:read",            of_project!(groups::list)).described(&groups::LIST),
    at("POST",      "P/groups/",                "group:write",           of_project!(groups::changes::create)).described(&groups::changes::CREATE),
    at("GET",       "P/groups/activity/",       "group:read",            of_project!(groups::activity)).described(&groups::ACTIVITY),
    at("POST",      "P/groups/delete_property/", "group:write",          of_project!(groups::changes::delete_property)).described(&groups::changes::DELETE_PROPERTY),
    at("GET",       "P/groups/find/",           "group:read",            of_project!(groups::find)).described(&groups::FIND),
    at("GET",       "P/groups/property_definitions/", "group:read", of_project!(groups::property_definitions)).described(&groups::PROPERTY_DEFINITIONS),
    at("GET",       "P/groups/property_values/", "group:read",           of_project!(groups::property_values)).described(&groups::PROPERTY_VALUES),
    at("POST",      "P/groups/update_property/", "group:write",          of_project!(groups::changes::update_property)).described(&groups::changes::UPDATE_PROPERTY),
    at("GET",       "P/groups_types/",          "group:read",            of_project!(groups::types)).described(&groups::TYPES),
    at("PATCH",     "P/groups_types/update_metadata/", "group:write",    of_project!(groups::changes::update_types)).described(&groups::changes::UPDATE_TYPES),

    at("GET POST",  "P/insights/funnel/",       "insight:read",          of_project!(insights::funnels::funnel)).or_csv().analytics().described(&insights::funnels::FUNNEL),
    at("GET POST",  "P/insights/funnel/correlation/", "insight:read",    of_project!(insights::correlation::correlation)).or_csv().analytics().described(&insights::correlation::CORRELATION),
    at("POST",      "P/insights/cancel/",       "insight:read",          of_project!(query::status::cancel_insight)).described(&query::status::CANCEL),
    at("GET POST",  "P/insights/lifecycle/",    "insight:read",          of_project!(insights::lifecycle)).or_csv().analytics().described(&insights::TREND),
    at("GET POST",  "P/insights/path/",         "insight:read",          of_project!(insights::paths::path)).or_csv().analytics().described(&insights::paths::PATH),
    at("GET POST",  "P/insights/retention/",    "insight:read",          of_project!(insights::retention::retention)).or_csv().analytics().described(&insights::retention::RETENTION),
    at("GET POST",  "P/insights/stickiness/",   "insight:read",          of_project!(insights::stickiness)).or_csv().analytics().described(&insights::TREND),
    at("GET POST",  "P/insights/trend/",        "insight:read",          of_project!(insights::trend)).or_csv().analytics().described(&insights::TREND),
    at("GET",       "P/insights/",              "insight:read",          of_documents!(listed::list, Insight)).analytics().described(&documents::described::INSIGHT_LIST),
    at("POST",      "P/insights/",              "insight:write",         of_documents!(create, Insight)).described(&documents::described::INSIGHT_CREATE),
    at("GET",       "P/insights/activity/",     "activity_log:read",     of_documents!(activity, Insight)).described(&documents::described::INSIGHT_ACTIVITY),
    at("GET",       "P/insights/my_last_viewed/", "insight:read",          of_documents!(my_last_viewed, Insight)).described(&documents::described::INSIGHT_MY_LAST_VIEWED),
    at("GET",       "P/insights/:id/",          "insight:read",          of_documents!(retrieve, Insight)).analytics().described(&documents::described::INSIGHT_RETRIEVE),
    at("PUT PATCH", "P/insights/:id/",          "insight:write",         of_documents!(update, Insight)).described(&documents::described::INSIGHT_UPDATE),
    at("DELETE",    "P/insights/:id/",          "insight:write",         of_documents!(delete, Insight)).unlisted().described(&documents::described::INSIGHT_DELETE),
    at("GET",       "P/insights/:id/activity/", "activity_log:read",     of_documents!(activity, Insight)).described(&documents::described::INSIGHT_ACTIVITY_OF_ONE),
    at("GET",       "P/insights/:id/sharing/",  "sharing_configuration:read", of_documents!(sharing::retrieve, Insight)).described(&documents::described::INSIGHT_SHARING_RETRIEVE),
    at("PATCH",     "P/insights/:id/sharing/",  "sharing_configuration:write", of_documents!(sharing::update, Insight)).described(&documents::described::INSIGHT_SHARING_UPDATE),
    at("POST",      "P/insights/:id/sharing/passwords/", "sharing_configuration:write", of_documents!(sharing::add_password, Insight)).described(&documents::described::INSIGHT_SHARING_ADD_PASSWORD),
    at("DELETE",    "P/insights/:id/sharing/passwords/:password/", "sharing_configuration:write", of_documents!(sharing::remove_password, Insight)).described(&documents::described::INSIGHT_SHARING_REMOVE_PASSWORD),
    at("POST",      "P/insights/:id/sharing/refresh/", "sharing_configuration:write", of_documents!(sharing::refresh, Insight)).described(&documents::described::INSIGHT_SHARING_REFRESH),
    at("POST",      "P/insights/:id/viewed/",   "insight:read",          of_documents!(viewed, Insight)).described(&documents::described::INSIGHT_VIEWED),

    at("GET",       "P/persons/",               "person:read",           of_project!(persons::list)).or_csv().analytics().described(&persons::LIST),
    at("POST",      "P/persons/",               "person:write",          of_project!(persons::create)).unlisted().analytics().described(&persons::CREATE),
    at("GET",       "P/persons/activity/",      "person:read",           of_project!(persons::activity)).or_csv().analytics().described(&persons::ACTIVITY),
    at("POST",      "P/persons/bulk_delete/",   "person:write",          of_project!(persons::deletions::bulk_delete)).analytics().described(&persons::deletions::BULK_DELETE),
    at("GET",       "P/persons/cohorts/",       "person:read",           of_project!(persons::cohorts)).or_csv().analytics().described(&persons::COHORTS),
    at("GET POST",  "P/persons/funnel/",        "person:read",           of_project!(insights::funnels::funnel_persons)).or_csv().analytics().described(&insights::funnels::FUNNEL_PERSONS),
    at("GET POST",  "P/persons/funnel/correlation/", "person:read",      of_project!(insights::correlation::persons)).or_csv().analytics().described(&insights::correlation::PERSONS),
    at("GET",       "P/persons/lifecycle/",     "person:read",           of_project!(insights::points::lifecycle)).or_csv().analytics().described(&insights::points::LIFECYCLE),
    at("GET POST",  "P/persons/path/",          "person:read",           of_project!(insights::paths::persons)).or_csv().analytics().described(&insights::paths::PERSONS),
    at("GET",       "P/persons/retention/",     "person:read",           of_project!(insights::retention::retention_persons)).or_csv().analytics().described(&insights::retention::RETENTION_PERSONS),
    at("GET",       "P/persons/stickiness/",    "person:read",           of_project!(insights::points::stickiness)).or_csv().analytics().described(&insights::points::STICKINESS),
    at("GET",       "P/persons/trends/",        "person:read",           of_project!(insights::trend_persons)).or_csv().analytics().described(&insights::TREND_PERSONS),
    at("GET",       "P/persons/deletion_status/", "person:read",         of_project!(persons::deletions::status)).analytics().described(&persons::deletions::STATUS),
    at("POST",      "P/persons/reset_person_distinct_id/", "person:write", of_project!(persons::changes::reset_distinct_id)).analytics().described(&persons::changes::RESET_DISTINCT_ID),
    at("GET",       "P/persons/values/",        "person:read",           of_project!(persons::values::values)).or_csv().analytics().described(&persons::values::VALUES),
    at("GET",       "P/persons/:id/",           "person:read",           of_project!(persons::retrieve)).or_csv().analytics().described(&persons::RETRIEVE),
    at("PUT PATCH", "P/persons/:id/",           "person:write",          of_project!(persons::changes::update)).or_csv().analytics().described(&persons::changes::UPDATE),
    at("DELETE",    "P/persons/:id/",           "person:write",          of_project!(persons::deletions::delete)).or_csv().analytics().described(&persons::deletions::DELETE),
    at("GET",       "P/persons/:id/activity/",  "person:read",           of_project!(persons::activity)).or_csv().analytics().described(&persons::ACTIVITY_OF_ONE),
    at("POST",      "P/persons/:id/delete_events/", "person:write",      of_project!(persons::deletions::delete_events)).analytics().described(&persons::deletions::DELETE_EVENTS),
    at("POST",      "P/persons/:id/delete_recordings/", "person:write",  of_project!(persons::deletions::delete_recordings)).analytics().described(&persons::deletions::DELETE_RECORDINGS),
    at("GET",       "P/persons/:id/properties_timeline/", "person:read", of_project!(persons::timeline::timeline)).or_csv().analytics().described(&persons::timeline::TIMELINE),
    at("POST",      "P/persons/:id/update_property/", "person:write", of_project!(persons::changes::update_property)).or_csv().analytics().described(&persons::changes::UPDATE_PROPERTY),
    at("POST",      "P/persons/:id/delete_property/", "person:write", of_project!(persons::changes::delete_property)).or_csv().analytics().described(&persons::changes::DELETE_PROPERTY),
    at("POST",      "P/persons/:id/split/",     "person:write",          of_project!(persons::split::split)).or_csv().analytics().described(&persons::split::SPLIT),

    at("GET",       "P/property_definitions/",  "property_definition:read", of_project!(property_definitions::list)).described(&property_definitions::LIST),
    at("GET",       "P/property_definitions/seen_together/", "property_definition:read", of_project!(property_definitions::seen_together)).described(&property_definitions::SEEN_TOGETHER),
    at("GET",       "P/property_definitions/:id/", "property_definition:read", of_project!(property_definitions::retrieve)).described(&property_definitions::RETRIEVE),
    at("PUT PATCH", "P/property_definitions/:id/", "property_definition:write", of_project!(property_definitions::update)).described(&property_definitions::UPDATE),
    at("DELETE",    "P/property_definitions/:id/", "property_definition:write", of_project!(property_definitions::delete)).described(&property_definitions::DELETE),

    at("GET",       "P/scheduled_changes/",     "feature_flag:read",     of_project!(scheduled_changes::list)).described(&scheduled_changes::LIST),
    at("POST",      "P/scheduled_changes/",     "feature_flag:write",    of_project!(scheduled_changes::create)).described(&scheduled_changes::CREATE),
    at("GET",       "P/scheduled_changes/:id/", "feature_flag:read",     of_project!(scheduled_changes::retrieve)).described(&scheduled_changes::RETRIEVE),
    at("PUT PATCH", "P/scheduled_changes/:id/", "feature_flag:write",    of_project!(scheduled_changes::update)).described(&scheduled_changes::UPDATE),
    at("DELETE",    "P/scheduled_changes/:id/", "feature_flag:write",    of_project!(scheduled_changes::delete)).described(&scheduled_changes::DELETE),

    at("GET",       "P/ingestion_warnings/",    "ingestion_warning:read", of_project!(ingestion_warnings::list)).described(&ingestion_warnings::LIST),

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
    /// Its description, unless that is written by hand.
    pub(super) operation: Option<&'static Operation>,
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
    let (is_allowed, is_analytics, analytics_with, operation) = (true, false, None, None);
    Endpoint {
        methods,
        path,
        scope,
        renderings,
        is_allowed,
        is_analytics,
        analytics_with,
        operation,
        run,
    }
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

    /// The same with its description.
    const fn described(mut self, operation: &'static Operation) -> Self {
        self.operation = Some(operation);
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
