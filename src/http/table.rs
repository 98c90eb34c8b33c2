//! Table of the management endpoints: [`TABLE`]. One row each: the operation, methods, path, a summary.
//! [`find`] looks up a request.
//!
//! # Paths
//!
//! `P` is `/api/projects/:project` and its alias `/api/environments/:project`, PostHog's newer name. `O`
//! is `/api/organizations/:organization`. A `:name` matches any one segment. The trailing slash is
//! optional. The first row whose path matches wins, so a fixed segment is listed before a `:name` in its
//! position; a test checks that. Old paths without a project (`/api/person/`) use the current project of
//! the caller.

mod endpoint;

use crate::auth::CURRENT;
use crate::lookup::Lookup;
use crate::openapi::{INVALID, REFUSED};
use crate::operation::other_path::{As, InOrganization};
use crate::operation::{Member, Root};
use crate::rendering::{Rendering, Renderings};
use crate::request::decode;
use crate::routes::documents::kinds::{Actions, Annotations, Dashboards, Insights};
use crate::routes::documents::sharing;
use crate::routes::feature_flags::{
    across, actions, bulk, copy, evaluations, role_access, rollout, status, test_evaluation,
};
use crate::routes::{
    activity, cohorts, documents, early_access_features, event_definitions, events, feature_flags,
    flag_settings, groups, ingestion_warnings, insights, organizations, personal_api_keys, persons,
    projects, promoted_properties, property_definitions, query, resource_access, roles,
    scheduled_changes, schema, users,
};
pub use crate::table::endpoint::Endpoint;
use crate::table::endpoint::op;
use weir_identity::person::Person;
use weir_metadata::cohorts::StoredCohort;
use weir_metadata::definitions::EventDefinition;
use weir_metadata::flags::StoredFlag;

/// Every management endpoint.
#[rustfmt::skip]
pub const TABLE: &[Endpoint] = &[
    op::<organizations::List>("GET", "/api/organizations/", "The organization of the asker"),
    op::<organizations::Retrieve>("GET", "O/", "One organization"),
    op::<organizations::Update>("PATCH", "O/", "Rename an organization"),
    op::<organizations::Members>("GET", "O/members/", "Members by the time of joining"),
    op::<organizations::AddMember>("POST", "O/members/", "Add a member; the answer has the key by which the member begins"),
    op::<organizations::UpdateMember>("PATCH", "O/members/:uuid/", "Change the level of a member"),
    op::<organizations::RemoveMember>("DELETE", "O/members/:uuid/", "Remove a member; the member's keys end").or(&[INVALID]),

    op::<copy::Copy>("POST", "O/feature_flags/copy_flags/", "Copy a flag to other projects; needs cohort:write besides, if a cohort has to be made").named("feature_flags_copy_flags").says("What was copied, and what was not").or(&[REFUSED]),
    op::<across::Keys>("GET", "O/feature_flags/keys/", "The keys of flags in all projects, each once").or(&[REFUSED]),
    op::<across::ByKey>("GET", "O/feature_flags/:key/", "The flags of a key in all projects").analytics(),
    op::<resource_access::List>("GET", "O/resource_access/", "What members may do with flags by default").tagged("roles"),
    op::<resource_access::Create>("POST", "O/resource_access/", "Set the default").tagged("roles"),
    op::<resource_access::Update>("PATCH", "O/resource_access/:id/", "Change the default").tagged("roles"),
    op::<resource_access::Delete>("DELETE", "O/resource_access/:id/", "Let members change every flag again").tagged("roles"),
    op::<As<Member, projects::List>>("GET", "O/projects/", "Projects"),
    op::<As<Member, projects::Create>>("POST", "O/projects/", "Make a project"),
    op::<As<InOrganization, projects::Retrieve>>("GET", "O/projects/:id/", "One project"),
    op::<As<InOrganization, projects::Update>>("PUT PATCH", "O/projects/:id/", "Change a project"),
    op::<As<InOrganization, projects::Delete>>("DELETE", "O/projects/:id/", "Delete a project with everything in it").or(&[INVALID]),
    op::<roles::List>("GET", "O/roles/", "Roles"),
    op::<roles::Create>("POST", "O/roles/", "Make a role"),
    op::<roles::Retrieve>("GET", "O/roles/:id/", "One role"),
    op::<roles::Update>("PATCH", "O/roles/:id/", "Change a role"),
    op::<roles::Delete>("DELETE", "O/roles/:id/", "Delete a role"),
    op::<roles::Members>("GET", "O/roles/:id/role_memberships/", "Who has a role"),
    op::<roles::AddMember>("POST", "O/roles/:id/role_memberships/", "Give a role to a user"),
    op::<roles::RemoveMember>("DELETE", "O/roles/:id/role_memberships/:membership/", "Take a role from a user"),

    op::<personal_api_keys::List>("GET", "/api/personal_api_keys/", "The keys of the asker"),
    op::<personal_api_keys::Create>("POST", "/api/personal_api_keys/", "Make a key; its value is told this once"),
    op::<personal_api_keys::Retrieve>("GET", "/api/personal_api_keys/:id/", "One key"),
    op::<personal_api_keys::Update>("PATCH", "/api/personal_api_keys/:id/", "Relabel a key"),
    op::<personal_api_keys::Revoke>("DELETE", "/api/personal_api_keys/:id/", "Revoke a key"),

    op::<projects::List>("GET", "/api/projects/", "Projects"),
    op::<projects::Create>("POST", "/api/projects/", "Make a project"),
    op::<projects::Retrieve>("GET", "P/", "One project"),
    op::<projects::Update>("PUT PATCH", "P/", "Change a project"),
    op::<projects::Delete>("DELETE", "P/", "Delete a project with everything in it").or(&[INVALID]),
    op::<projects::ResetToken>("PATCH", "P/reset_token/", "Make another project API key; the old one ends").tagged("projects"),
    op::<flag_settings::RotateSecret>("POST", "P/rotate_secret_token/", "Make another secret key of the project; the old one ends").says("The key, told this once").tagged("projects"),
    op::<flag_settings::RotateSecret>("PATCH", "P/rotate_secret_token/", "Another name of POST").unlisted().says("The key, told this once").deprecated().tagged("projects"),

    op::<users::Retrieve>("GET", "/api/users/:uuid/", "The asker"),
    op::<users::Update>("PATCH", "/api/users/:uuid/", "Change the asker"),

    op::<documents::listed::List<Actions>>("GET", "P/actions/", "Actions that are not deleted, newest first").or(&[INVALID]),
    op::<documents::Create<Actions>>("POST", "P/actions/", "Make an action"),
    op::<activity::OfAll<Actions>>("GET", "P/actions/activity/", "What was changed of actions"),
    op::<documents::Retrieve<Actions>>("GET", "P/actions/:id/", "An action, also a deleted one"),
    op::<documents::Update<Actions>>("PUT PATCH", "P/actions/:id/", "Change, delete or restore an action"),
    op::<documents::Delete<Actions>>("DELETE", "P/actions/:id/", "Refused").unlisted().or(&[("405", "DocumentDeleteRefused")]),
    op::<activity::OfOne<Actions>>("GET", "P/actions/:id/activity/", "What was changed of an action"),

    op::<activity::OfProject>("GET", "P/activity_log/", "What was changed in the project"),

    op::<documents::listed::List<Annotations>>("GET", "P/annotations/", "Annotations that are not deleted, newest first").or(&[INVALID]),
    op::<documents::Create<Annotations>>("POST", "P/annotations/", "Make an annotation"),
    op::<activity::OfAll<Annotations>>("GET", "P/annotations/activity/", "What was changed of annotations"),
    op::<documents::Retrieve<Annotations>>("GET", "P/annotations/:id/", "An annotation, also a deleted one"),
    op::<documents::Update<Annotations>>("PUT PATCH", "P/annotations/:id/", "Change, delete or restore an annotation"),
    op::<documents::Delete<Annotations>>("DELETE", "P/annotations/:id/", "Refused").unlisted().or(&[("405", "DocumentDeleteRefused")]),
    op::<activity::OfOne<Annotations>>("GET", "P/annotations/:id/activity/", "What was changed of an annotation"),

    op::<cohorts::List>("GET", "P/cohorts/", "Cohorts that are not deleted, newest first"),
    op::<cohorts::Create>("POST", "P/cohorts/", "Make a cohort; the persons of a static one may also be a file `csv` of a multipart form"),
    op::<activity::OfAll<StoredCohort>>("GET", "P/cohorts/activity/", "What was changed of cohorts"),
    op::<cohorts::Retrieve>("GET", "P/cohorts/:id/", "One cohort"),
    op::<cohorts::Replace>("PUT", "P/cohorts/:id/", "Change a cohort; a file `csv` of a multipart form adds its persons to a static one"),
    op::<cohorts::Update>("PATCH", "P/cohorts/:id/", "Change a cohort; a file `csv` of a multipart form adds its persons to a static one"),
    op::<cohorts::Delete>("DELETE", "P/cohorts/:id/", "Refused").unlisted().or(&[("405", "DeleteRefused")]),
    op::<activity::OfOne<StoredCohort>>("GET", "P/cohorts/:id/activity/", "What was changed of a cohort"),
    op::<cohorts::AddMembers>("POST PATCH", "P/cohorts/:id/add_persons_to_static_cohort/", "Add members to a list"),
    op::<cohorts::Members>("GET", "P/cohorts/:id/persons/", "Members; needs person:read besides").analytics(),
    op::<cohorts::RemoveMembers>("POST PATCH", "P/cohorts/:id/remove_person_from_static_cohort/", "Remove members from a list"),

    op::<documents::listed::List<Dashboards>>("GET", "P/dashboards/", "Dashboards that are not deleted, newest first").or(&[INVALID]),
    op::<documents::Create<Dashboards>>("POST", "P/dashboards/", "Make a dashboard"),
    op::<activity::OfAll<Dashboards>>("GET", "P/dashboards/activity/", "What was changed of dashboards"),
    op::<documents::Retrieve<Dashboards>>("GET", "P/dashboards/:id/", "A dashboard, also a deleted one").analytics().or(&[INVALID]),
    op::<documents::Update<Dashboards>>("PUT PATCH", "P/dashboards/:id/", "Change, delete or restore a dashboard"),
    op::<documents::Delete<Dashboards>>("DELETE", "P/dashboards/:id/", "Refused").unlisted().or(&[("405", "DocumentDeleteRefused")]),
    op::<activity::OfOne<Dashboards>>("GET", "P/dashboards/:id/activity/", "What was changed of a dashboard"),
    op::<documents::dashboards::CopyTile>("POST", "P/dashboards/:id/copy_tile/", "Put a tile of another dashboard on this one, too"),
    op::<documents::dashboards::MoveTile>("PATCH", "P/dashboards/:id/move_tile/", "Move a tile to another dashboard"),
    op::<documents::dashboards::ReorderTiles>("POST", "P/dashboards/:id/reorder_tiles/", "Put tiles in an order"),
    op::<documents::dashboards::RunInsights>("GET", "P/dashboards/:id/run_insights/", "The results of the insights of a dashboard").analytics().or(&[INVALID]),
    op::<sharing::Retrieve<Dashboards>>("GET", "P/dashboards/:id/sharing/", "The link to a dashboard"),
    op::<sharing::Update<Dashboards>>("PATCH", "P/dashboards/:id/sharing/", "Turn the link to a dashboard on or off, or say how it shows it"),
    op::<sharing::AddPassword<Dashboards>>("POST", "P/dashboards/:id/sharing/passwords/", "Give the link to a dashboard one more password, which is told once"),
    op::<sharing::RemovePassword<Dashboards>>("DELETE", "P/dashboards/:id/sharing/passwords/:password/", "Remove a password of the link to a dashboard; whoever was let in by it is let in no more"),
    op::<sharing::Refresh<Dashboards>>("POST", "P/dashboards/:id/sharing/refresh/", "Give the link to a dashboard another token; the one before leads nowhere from then on"),

    op::<early_access_features::List>("GET", "P/early_access_feature/", "Early access features, newest first"),
    op::<early_access_features::Create>("POST", "P/early_access_feature/", "Create an early access feature, and its flag"),
    op::<early_access_features::Retrieve>("GET", "P/early_access_feature/:id/", "One early access feature"),
    op::<early_access_features::Replace>("PUT", "P/early_access_feature/:id/", "Change an early access feature; its stage says whether people enrol in the flag"),
    op::<early_access_features::Update>("PATCH", "P/early_access_feature/:id/", "Change an early access feature; its stage says whether people enrol in the flag"),
    op::<early_access_features::Delete>("DELETE", "P/early_access_feature/:id/", "Delete an early access feature; its flag stays"),

    op::<event_definitions::List>("GET", "P/event_definitions/", "Events that were seen").or(&[INVALID]),
    op::<event_definitions::Create>("POST", "P/event_definitions/", "Define events that are still to come"),
    op::<activity::OfAll<EventDefinition>>("GET", "P/event_definitions/activity/", "What was changed of definitions of events"),
    op::<event_definitions::bulk::UpdateTags>("POST", "P/event_definitions/bulk_update_tags/", "Change the tags of many definitions").says("What was changed"),
    op::<event_definitions::bulk::UpdateVerified>("POST", "P/event_definitions/bulk_update_verified/", "Vouch for many definitions, or no more").says("What was changed"),
    op::<event_definitions::ByName>("GET", "P/event_definitions/by_name/", "The definition of a name").or(&[INVALID]),
    op::<event_definitions::PrimaryProperties>("GET", "P/event_definitions/primary_properties/", "The property that is shown beside events, by the name of the events").says("Those that have one"),
    op::<event_definitions::Retrieve>("GET", "P/event_definitions/:id/", "One definition"),
    op::<event_definitions::Update>("PUT PATCH", "P/event_definitions/:id/", "Change a definition"),
    op::<event_definitions::Delete>("DELETE", "P/event_definitions/:id/", "Forget a definition, until such an event arrives"),
    op::<activity::OfOne<EventDefinition>>("GET", "P/event_definitions/:id/activity/", "What was changed of a definition, also of one that is gone"),
    op::<event_definitions::Metrics>("GET", "P/event_definitions/:id/metrics/", "How many questions named the event in the last 30 days"),

    op::<events::List>("GET", "P/events/", "The newest events").or_file().analytics().or(&[INVALID]),
    op::<events::Values>("GET", "P/events/values/", "Values of a property of events").analytics(),
    op::<events::Retrieve>("GET", "P/events/:uuid/", "One event").named("events_of_id").analytics().or(&[INVALID]),

    op::<feature_flags::List>("GET", "P/feature_flags/", "Flags that are not deleted").analytics_with(STALE).or(&[INVALID]),
    op::<feature_flags::Create>("POST", "P/feature_flags/", "Make a flag"),
    op::<activity::OfAll<StoredFlag>>("GET", "P/feature_flags/activity/", "What was changed of flags"),
    op::<bulk::Delete>("POST", "P/feature_flags/bulk_delete/", "Delete many flags").says("What was deleted").or(&[REFUSED]),
    op::<bulk::Keys>("POST", "P/feature_flags/bulk_keys/", "The keys of some flags").says("By their ids").or(&[REFUSED]),
    op::<bulk::UpdateTags>("POST", "P/feature_flags/bulk_update_tags/", "Change the tags of many flags").says("What was changed"),
    op::<evaluations::Reasons>("GET", "P/feature_flags/evaluation_reasons/", "Why flags are what they are for a distinct id").or(&[INVALID]),
    op::<bulk::MatchingIds>("GET", "P/feature_flags/matching_ids/", "The ids of the whole list").analytics_with(STALE).or(&[INVALID]),
    op::<evaluations::Mine>("GET", "P/feature_flags/my_flags/", "The flags as they are for the asker"),
    op::<flag_settings::Retrieve>("GET", "P/feature_flags/settings/", "What all flags of the project share"),
    op::<flag_settings::Update>("PATCH", "P/feature_flags/settings/", "Change what all flags share"),
    op::<evaluations::BlastRadius>("POST", "P/feature_flags/user_blast_radius/", "How many persons or groups a condition matches").analytics(),
    op::<feature_flags::Retrieve>("GET", "P/feature_flags/:id/", "One flag, deleted or not"),
    op::<feature_flags::Replace>("PUT", "P/feature_flags/:id/", "Change a flag; `deleted` deletes and restores").or(&[("409", "Conflict")]),
    op::<feature_flags::Update>("PATCH", "P/feature_flags/:id/", "Change a flag; `deleted` deletes and restores").or(&[("409", "Conflict")]),
    op::<feature_flags::Delete>("DELETE", "P/feature_flags/:id/", "Refused").unlisted().or(&[("405", "DeleteRefused")]),
    op::<activity::OfOne<StoredFlag>>("GET", "P/feature_flags/:id/activity/", "What was changed of a flag").or(&[("404", "NoFlag")]),
    op::<actions::StaticCohort>("POST", "P/feature_flags/:id/create_static_cohort_for_flag/", "Make a list of those for whom the flag is on; needs cohort:write besides").analytics().or(&[INVALID]),
    op::<actions::Dashboard>("POST", "P/feature_flags/:id/dashboard/", "Make the dashboard of a flag's use; needs dashboard:write besides").says("Whether it was done").or(&[("400", "Success")]),
    op::<actions::Dependents>("GET", "P/feature_flags/:id/dependent_flags/", "Flags whose conditions ask for this one"),
    op::<actions::Enable>("POST", "P/feature_flags/:id/enable/", "Switch a flag on").or(&[("400", "NotSwitched")]),
    op::<actions::Disable>("POST", "P/feature_flags/:id/disable/", "Switch a flag off").or(&[("400", "NotSwitched")]),
    op::<actions::Archive>("POST", "P/feature_flags/:id/archive/", "Archive a flag").or(&[("400", "NotSwitched")]),
    op::<actions::Unarchive>("POST", "P/feature_flags/:id/unarchive/", "Take a flag out of the archive").or(&[("400", "NotSwitched")]),
    op::<actions::Enrich>("POST", "P/feature_flags/:id/enrich_usage_dashboard/", "Add enriched analytics to the dashboard of a flag; needs dashboard:write besides").says("Whether it was done").or(&[("400", "Success")]),
    op::<role_access::List>("GET", "P/feature_flags/:id/role_access/", "The roles that may change a flag"),
    op::<role_access::Create>("POST", "P/feature_flags/:id/role_access/", "Let a role change a flag"),
    op::<role_access::Retrieve>("GET", "P/feature_flags/:id/role_access/:access/", "One access"),
    op::<role_access::Delete>("DELETE", "P/feature_flags/:id/role_access/:access/", "Take an access back"),
    op::<rollout::Open>("POST", "P/feature_flags/:id/roll_out_to_everyone/", "Put a condition for everybody before the others").or(&[("400", "NotSwitched"), ("409", "Outdated")]),
    op::<rollout::SetCondition>("POST", "P/feature_flags/:id/set_release_condition_rollout/", "Change the percentage of one condition").or(&[("400", "NotSwitched"), ("409", "Outdated")]),
    op::<status::Status>("GET", "P/feature_flags/:id/status/", "Whether a flag is still of use").analytics().or(&[("404", "NoStatus")]),
    op::<test_evaluation::Test>("POST", "P/feature_flags/:id/test_evaluation/", "The answer for one person and every step that leads to it; needs person:read besides").analytics(),
    op::<actions::Version>("GET", "P/feature_flags/:id/versions/:version/", "A flag as it was"),
    op::<actions::Revert>("POST", "P/feature_flags/:id/versions/:version/revert/", "Make a flag again what it was").or(&[INVALID]),

    op::<groups::List>("GET", "P/groups/", "Groups of a type, newest first").or(&[INVALID]),
    op::<groups::changes::Create>("POST", "P/groups/", "Make a group"),
    op::<groups::Activity>("GET", "P/groups/activity/", "What operators did to a group").or(&[INVALID]),
    op::<groups::changes::DeleteProperty>("POST", "P/groups/delete_property/", "Remove one property"),
    op::<groups::Find>("GET", "P/groups/find/", "One group").or(&[INVALID]),
    op::<groups::PropertyDefinitions>("GET", "P/groups/property_definitions/", "Properties of groups by the index of their type").says("Names and numbers"),
    op::<groups::PropertyValues>("GET", "P/groups/property_values/", "Values of a property of groups").or(&[INVALID]),
    op::<groups::changes::UpdateProperty>("POST", "P/groups/update_property/", "Set one property"),
    op::<groups::Types>("GET", "P/groups_types/", "Types of groups"),
    op::<groups::changes::UpdateTypes>("PATCH", "P/groups_types/update_metadata/", "Say what the groups of types are called").named("groups_types_update_metadata_partial"),

    op::<insights::funnels::Convert>("GET POST", "P/insights/funnel/", "How many actors go from step to step").or_file().analytics().or(&[INVALID]),
    op::<insights::correlation::Correlate>("GET POST", "P/insights/funnel/correlation/", "What those who come through a funnel do or have more often than the others, or less often").or_file().analytics().says("What correlates").notes("Beside these, the filters of insights/funnel/").or(&[INVALID]),
    op::<query::status::CancelInsight>("POST", "P/insights/cancel/", "Cancel the query with a client_query_id").or(&[INVALID]),
    op::<insights::Lifecycle>("GET POST", "P/insights/lifecycle/", "What series of events count in each interval").or_file().analytics().notes("With insight STICKINESS or LIFECYCLE, the series of these").or(&[INVALID]),
    op::<insights::paths::Path>("GET POST", "P/insights/path/", "Which steps persons take one after another").or_file().analytics().says("The edges between steps").or(&[INVALID]),
    op::<insights::retention::Triangle>("GET POST", "P/insights/retention/", "Of those who did something in an interval, how many came back in each one after it").or_file().analytics().says("The rows, each shorter by an interval than the one before").or(&[INVALID]),
    op::<insights::Stickiness>("GET POST", "P/insights/stickiness/", "What series of events count in each interval").or_file().analytics().notes("With insight STICKINESS or LIFECYCLE, the series of these").or(&[INVALID]),
    op::<insights::Trend>("GET POST", "P/insights/trend/", "What series of events count in each interval").or_file().analytics().notes("With insight STICKINESS or LIFECYCLE, the series of these").or(&[INVALID]),
    op::<documents::listed::List<Insights>>("GET", "P/insights/", "Saved insights that are not deleted, newest first").analytics().or(&[INVALID]),
    op::<documents::Create<Insights>>("POST", "P/insights/", "Make a saved insight"),
    op::<activity::OfAll<Insights>>("GET", "P/insights/activity/", "What was changed of saved insights"),
    op::<documents::MyLastViewed>("GET", "P/insights/my_last_viewed/", "Insights that the asker looked at last, the last one first"),
    op::<documents::Retrieve<Insights>>("GET", "P/insights/:id/", "A saved insight, also a deleted one").analytics().or(&[INVALID]),
    op::<documents::Update<Insights>>("PUT PATCH", "P/insights/:id/", "Change, delete or restore a saved insight"),
    op::<documents::Delete<Insights>>("DELETE", "P/insights/:id/", "Refused").unlisted().or(&[("405", "DocumentDeleteRefused")]),
    op::<activity::OfOne<Insights>>("GET", "P/insights/:id/activity/", "What was changed of a saved insight"),
    op::<sharing::Retrieve<Insights>>("GET", "P/insights/:id/sharing/", "The link to a saved insight"),
    op::<sharing::Update<Insights>>("PATCH", "P/insights/:id/sharing/", "Turn the link to a saved insight on or off, or say how it shows it"),
    op::<sharing::AddPassword<Insights>>("POST", "P/insights/:id/sharing/passwords/", "Give the link to a saved insight one more password, which is told once"),
    op::<sharing::RemovePassword<Insights>>("DELETE", "P/insights/:id/sharing/passwords/:password/", "Remove a password of the link to a saved insight; whoever was let in by it is let in no more"),
    op::<sharing::Refresh<Insights>>("POST", "P/insights/:id/sharing/refresh/", "Give the link to a saved insight another token; the one before leads nowhere from then on"),
    op::<documents::View>("POST", "P/insights/:id/viewed/", "Note that the asker looked at it"),

    op::<persons::List>("GET", "P/persons/", "Persons, newest first").or_file().analytics().or(&[INVALID]),
    op::<persons::Create>("POST", "P/persons/", "Refused: persons are made by events such as $identify").unlisted().analytics().or(&[("405", "CreationRefused")]),
    op::<activity::OfAll<Person>>("GET", "P/persons/activity/", "What operators did to persons").or_file().analytics(),
    op::<persons::deletions::BulkDelete>("POST", "P/persons/bulk_delete/", "Delete persons").analytics().says("What was deleted"),
    op::<persons::Cohorts>("GET", "P/persons/cohorts/", "The cohorts that a person is in").or_file().analytics().or(&[INVALID]),
    op::<insights::funnels::Persons>("GET POST", "P/persons/funnel/", "Persons who came to a step of a funnel, or not further than to the step before").or_file().analytics().notes("Beside these, the filters of the funnel, as for insights/funnel/").or(&[INVALID]),
    op::<insights::correlation::Persons>("GET POST", "P/persons/funnel/correlation/", "Persons of a funnel who do or have something, with success or not").or_file().analytics().notes("Beside these, the filters of insights/funnel/correlation/").or(&[INVALID]),
    op::<insights::points::OfLifecycle>("GET", "P/persons/lifecycle/", "Persons with a status in an interval of a lifecycle").or_file().analytics().notes("Beside these, the filters of the lifecycle, as for insights/trend/").or(&[("400", "BadLifecycle")]),
    op::<insights::paths::Persons>("GET POST", "P/persons/path/", "Persons who went from a step to another one, or ended at one; those who did most often first").or_file().analytics().notes("Beside these, the filters of the paths, as for insights/path/").or(&[INVALID]),
    op::<insights::retention::Persons>("GET", "P/persons/retention/", "Persons of a row of a retention, those who were active in most of its intervals first").or_file().analytics().notes("Beside these, the filters of the retention, as for insights/retention/").or(&[INVALID]),
    op::<insights::points::OfStickiness>("GET", "P/persons/stickiness/", "Persons who were active in some number of intervals, those with the largest numbers first").or_file().analytics().notes("Beside these, the filters of the stickiness, as for insights/trend/").or(&[INVALID]),
    op::<insights::points::OfTrends>("GET", "P/persons/trends/", "Persons behind a point of a trend, those with the largest numbers first").or_file().analytics().notes("Beside these, the filters of the trend, as for insights/trend/").or(&[INVALID]),
    op::<persons::deletions::Status>("GET", "P/persons/deletion_status/", "What has become of deletions of events, newest first").analytics().or(&[INVALID]),
    op::<persons::changes::ResetDistinctId>("POST", "P/persons/reset_person_distinct_id/", "Let a distinct id of a deleted person be used again").analytics(),
    op::<persons::values::Values>("GET", "P/persons/values/", "Values of a property of persons").or_file().analytics(),
    op::<persons::Retrieve>("GET", "P/persons/:id/", "One person").or_file().analytics().or(&[INVALID]),
    op::<persons::changes::Update>("PUT PATCH", "P/persons/:id/", "Set properties").or_file().analytics(),
    op::<persons::deletions::Delete>("DELETE", "P/persons/:id/", "Delete a person, its events, or both").or_file().analytics(),
    op::<activity::OfOne<Person>>("GET", "P/persons/:id/activity/", "What operators did to a person").or_file().analytics().or(&[INVALID]),
    op::<persons::deletions::DeleteEvents>("POST", "P/persons/:id/delete_events/", "Delete the events of a person").analytics().or(&[INVALID]),
    op::<persons::deletions::DeleteRecordings>("POST", "P/persons/:id/delete_recordings/", "Does nothing: there are no recordings").analytics().or(&[INVALID]),
    op::<persons::timeline::Retrieve>("GET", "P/persons/:id/properties_timeline/", "When properties of a person changed").or_file().analytics().or(&[INVALID]),
    op::<persons::changes::UpdateProperty>("POST", "P/persons/:id/update_property/", "Set one property").or_file().analytics(),
    op::<persons::changes::DeleteProperty>("POST", "P/persons/:id/delete_property/", "Remove one property").or_file().analytics(),
    op::<persons::split::Perform>("POST", "P/persons/:id/split/", "Give every other distinct id, or some, a person of its own").or_file().analytics(),

    op::<promoted_properties::List>("GET", "P/promoted_properties/", "Properties that the project has promoted to columns of events or of persons").or(&[INVALID]),
    op::<promoted_properties::Create>("POST", "P/promoted_properties/", "Promote a property of events or of persons to a column; only for administrators"),
    op::<promoted_properties::Delete>("DELETE", "P/promoted_properties/:key/", "Promote a property no more; only for administrators").or(&[INVALID]),

    op::<property_definitions::List>("GET", "P/property_definitions/", "Properties that were seen").or(&[INVALID]),
    op::<property_definitions::SeenTogether>("GET", "P/property_definitions/seen_together/", "Which events ever had a property").says("By the names of the events").or(&[INVALID]),
    op::<property_definitions::Retrieve>("GET", "P/property_definitions/:id/", "One definition"),
    op::<property_definitions::Update>("PUT PATCH", "P/property_definitions/:id/", "Change a definition"),
    op::<property_definitions::Delete>("DELETE", "P/property_definitions/:id/", "Forget a definition, until such a property arrives"),

    op::<scheduled_changes::List>("GET", "P/scheduled_changes/", "Changes of flags that are made at a time"),
    op::<scheduled_changes::Create>("POST", "P/scheduled_changes/", "Schedule a change"),
    op::<scheduled_changes::Retrieve>("GET", "P/scheduled_changes/:id/", "One scheduled change"),
    op::<scheduled_changes::Replace>("PUT", "P/scheduled_changes/:id/", "Change what is scheduled"),
    op::<scheduled_changes::Update>("PATCH", "P/scheduled_changes/:id/", "Change what is scheduled"),
    op::<scheduled_changes::Delete>("DELETE", "P/scheduled_changes/:id/", "Delete a scheduled change; what is not made yet will not be"),

    op::<ingestion_warnings::List>("GET", "P/ingestion_warnings/", "What was odd about events, by kind"),

    op::<schema::List>("GET", "P/schema/", "Every table of SQL and of files, and every column").named("schema_tables").analytics().or(&[INVALID]),
    op::<schema::Files>("GET", "P/files/", "The live files of tables, and views over them for DuckDB; only for administrators").or(&[("413", "TooLarge")]),

    op::<query::fetch::Fetch>("GET", "P/query/", "SQL in the address in, rows out").named("query_sql").own_rendering().analytics().says("The rows, as a file").or(&[INVALID]),
    op::<query::Query>("POST", "P/query/", "SQL, an insight or a list in, rows or series out").own_rendering().analytics(),
    op::<query::status::Retrieve>("GET", "P/query/:id/", "What became of a query that is answered later"),
    op::<query::status::Cancel>("DELETE", "P/query/:id/", "Cancel a query that is answered later").says("It does not run any more"),
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
pub fn find(method: &str, path: &str) -> Lookup<Managed> {
    let path = path.strip_suffix('/').unwrap_or(path);
    // A suffix is recognized only if the endpoint has several formats; otherwise it is part of an id.
    let (stem, suffix) = Rendering::of_suffix(path);
    let with_suffix = suffix.and_then(|_| Located::of(stem)).map(|located| {
        located.endpoints().filter(|(line, _)| line.renderings == Renderings::JsonOrFile).collect()
    });
    let with_suffix: Vec<_> = with_suffix.unwrap_or_default();
    let (located, lines, suffix) = if with_suffix.is_empty() {
        let Some(located) = Located::of(path) else { return Lookup::Nothing };
        let lines = located.endpoints().collect();
        (located, lines, None)
    } else {
        let Some(located) = Located::of(stem) else { return Lookup::Nothing };
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
) -> Lookup<Managed> {
    // All rows with the same path as the first match, wherever they are in the table.
    let Some(path) = lines.first().map(|(line, _)| line.path) else { return Lookup::Nothing };
    let mut allowed: Vec<&str> = Vec::new();
    for (endpoint, parameters) in lines {
        if endpoint.path != path {
            continue;
        }
        if endpoint.takes(method) {
            return Lookup::Found(Managed { endpoint, owner, parameters, suffix });
        }
        if endpoint.is_allowed {
            allowed.extend(endpoint.methods());
        }
    }
    Lookup::wrong_method(allowed)
}

/// A path split into root, owner and segments.
#[derive(Debug)]
struct Located<'p> {
    root: Root,
    /// The project or organization; empty without one.
    owner: String,
    parts: Vec<&'p str>,
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
