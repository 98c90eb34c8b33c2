//! Successful responses of every operation on persons, events, groups, definitions, projects, users, keys,
//! organizations and members: their format, paths and pages. Expectations are those of the API specification
//! and of PostHog's API. An endpoint without a row here is a failure. Refusals of single endpoints are in
//! `refusals`, those common to all in `errors`.

use serde_json::{Value, json};
use uuid::Uuid;
use weir_http::table::{Endpoint, TABLE};

use crate::errors::{error, furnished, send};
use crate::harness::TestServer;
use crate::owner::{fill_in, settle, strip, text, with};

/// Path parts of the tested objects; flags and what belongs to them are tested elsewhere.
const ABOUT: [&str; 13] = [
    "P/actions/",
    "P/annotations/",
    "P/dashboards/",
    "P/insights/",
    "P/events/",
    "P/event_definitions/",
    "P/groups",
    "P/persons/",
    "P/property_definitions/",
    "/api/organizations/",
    "/api/personal_api_keys/",
    "/api/projects/",
    "/api/users/",
];

/// A funnel of one step, and who came to it.
const FUNNEL_STEP: &str = "events=[{\"id\":\"buy\"}]&funnel_step=1";

/// A funnel whose conversion correlates with views, and who viewed.
const CORRELATION: &str =
    "events=[{\"id\":\"buy\"}]&funnel_correlation_person_entity={\"id\":\"view\"}";
const OF_PROJECT: [&str; 2] = ["P/", "P/reset_token/"];
const ENDS_PROJECT: [&str; 2] = ["P/", "O/projects/:id/"];
const OF_ORGANIZATION: [&str; 3] = ["O/", "O/members/", "O/projects/"];

/// The formats of objects: names of fields, and their types. `?` marks nullable values, brackets mark lists;
/// `text`, `int`, `bool`, `object`, `time`, `uuid` and `any` are types, `moment` is a time in the zone of
/// the project, all others are the name of another format.
const SHAPES: &[(&str, &str)] = &[
    ("user", "id:int uuid:uuid distinct_id:text first_name:text email:text is_email_verified:bool"),
    (
        "action",
        "id:int name:text? description:text tags:[text] post_to_slack:bool \
         slack_message_format:text steps:[step] created_at:time created_by:user? deleted:bool \
         is_calculating:bool last_calculated_at:time is_action:true bytecode_error:any \
         pinned_at:time? creation_context:any",
    ),
    (
        "step",
        "event:text? properties:any selector:text? tag_name:text? text:text? text_matching:text? \
         href:text? href_matching:text? url:text? url_matching:text?",
    ),
    (
        "insight",
        "id:int short_id:text name:text? derived_name:text? description:text? query:object? \
         filters:object order:int? deleted:bool dashboards:[int] last_refresh:time? refreshing:bool \
         result:any hasMore:bool columns:any types:any query_status:any cache_target_age:any \
         next_allowed_client_refresh:time? dashboard_tiles:[any] created_at:time created_by:user? updated_at:time favorited:bool saved:bool \
         tags:[text] last_modified_at:time last_modified_by:user? is_sample:bool \
         effective_restriction_level:int effective_privilege_level:int timezone:text \
         is_cached:bool",
    ),
    (
        "annotation",
        "id:int content:text? date_marker:time? creation_type:text dashboard_item:int? \
         dashboard_id:int? insight_short_id:text? created_by:user? created_at:time \
         updated_at:time deleted:bool scope:text",
    ),
    (
        "dashboard",
        "id:int name:text? description:text pinned:bool tags:[text] filters:object variables:object \
         breakdown_colors:any data_color_theme_id:int? restriction_level:int creation_mode:text \
         effective_restriction_level:int effective_privilege_level:int is_shared:bool \
         last_refresh:time? deleted:bool created_by:user? created_at:time updated_at:time",
    ),
    (
        "sharing",
        "created_at:time? enabled:bool access_token:text? settings:object? password_required:bool \
         share_passwords:[share_password]",
    ),
    ("share_password", "id:int created_at:time note:text created_by_email:text is_active:true"),
    (
        "new_share_password",
        "id:int created_at:time note:text created_by_email:text is_active:true password:text",
    ),
    ("ran", "results:[result]"),
    ("result", "id:int insight:short_insight error:any"),
    ("short_insight", "id:int short_id:text name:text? derived_name:text? result:any"),
    ("person", "id:int name:text distinct_ids:[text] properties:object created_at:time uuid:uuid"),
    ("changed", "success:true id:int distinct_ids:[text] properties:object uuid:uuid"),
    (
        "event_definition",
        "id:uuid name:text created_at:time last_seen_at:time? last_updated_at:time? tags:[text] \
         is_action:bool action_id:int? is_calculating:bool last_calculated_at:time? created_by:user? \
         post_to_slack:bool owner:user? description:text? updated_at:time? updated_by:user? \
         verified:bool verified_at:time? verified_by:user? hidden:bool default_columns:[text]",
    ),
    (
        "property_definition",
        "id:uuid name:text is_numerical:bool property_type:text? tags:[text] \
         is_seen_on_filtered_events:bool? description:text? updated_at:time? updated_by:user? \
         verified:bool verified_at:time? verified_by:user? hidden:bool",
    ),
    ("log", "results:[entry] next:text? previous:text? total_count:int"),
    ("entry", "user:author activity:text scope:text item_id:text detail:detail created_at:time"),
    ("author", "first_name:text email:text?"),
    ("detail", "changes:any trigger:any name:text? short_id:text? type:text?"),
    (
        "of_point",
        "results:any next:text? initial:text missing_persons:int is_cached:bool last_refresh:any",
    ),
    ("of_number", "results:any next:text?"),
    ("of_row", "result:any next:text? missing_persons:int"),
    ("retention", "result:[row] timezone:text is_cached:bool last_refresh:time timings:any"),
    ("row", "values:[cell] label:text date:moment people_url:text"),
    ("cell", "count:int label:text people:any people_url:text"),
    ("paths", "result:[edge] timezone:text is_cached:bool last_refresh:time timings:any next:any"),
    ("edge", "source:text target:text value:int average_conversion_time:any"),
    ("correlation", "result:correlated timezone:text is_cached:bool last_refresh:time timings:any"),
    ("correlated", "events:any skewed:bool"),
    ("funnel", "result:[funnel_step] timezone:text is_cached:bool last_refresh:time timings:any"),
    (
        "funnel_step",
        "action_id:text name:text custom_name:text? order:int people:any count:int type:text \
         average_conversion_time:any median_conversion_time:any converted_people_url:text \
         dropped_people_url:text?",
    ),
    (
        "people_over_time",
        "result:any timezone:text is_cached:bool last_refresh:time timings:any next:any",
    ),
    (
        "trend",
        "result:[series] timezone:text is_cached:bool last_refresh:time timings:any next:any",
    ),
    (
        "series",
        "action:object label:text count:any data:any labels:[text] days:[text] order:int \
         persons_urls:any",
    ),
    (
        "timeline",
        "points:[point] crucial_property_keys:[text] effective_date_from:moment \
         effective_date_to:moment",
    ),
    ("point", "timestamp:time properties:object relevant_event_count:int"),
    ("cohorts", "results:[cohort]"),
    ("cohort", "id:int name:text filters:object is_static:bool"),
    ("value", "name:text count:int"),
    (
        "bulk",
        "persons_found:int persons_deleted:int events_queued_for_deletion:bool \
         recordings_queued_for_deletion:bool deletion_errors:[any]",
    ),
    ("deletion", "person_uuid:uuid status:text created_at:time delete_verified_at:time?"),
    ("events", "results:[event] next:text?"),
    (
        "event",
        "id:uuid distinct_id:text properties:object event:text timestamp:time person:object? \
         elements_chain:text",
    ),
    ("name", "name:text"),
    ("group", "group_type_index:int group_key:text group_properties:object created_at:time"),
    ("group_type", "group_type:text group_type_index:int name_singular:text? name_plural:text?"),
    ("usage", "query_usage_30_day:int"),
    ("primary", "primary_properties:object"),
    ("tagged", "updated:[tags] skipped:[any]"),
    ("tags", "id:uuid tags:[text]"),
    ("verified", "updated:[mark] skipped:[any]"),
    ("mark", "id:uuid verified:bool"),
    (
        "project",
        "id:int organization:uuid name:text api_token:text timezone:text week_start_day:int \
         anonymize_ips:bool test_account_filters:[any] person_display_name_properties:any \
         event_retention_days:int? events_kept_from:time? created_at:time",
    ),
    (
        "me",
        "id:int uuid:uuid distinct_id:text first_name:text email:text is_email_verified:bool \
         date_joined:time team:object organization:organization organizations:[organization]",
    ),
    ("organization", "id:uuid name:text created_at:time membership_level:int"),
    ("member", "id:uuid user:user level:int joined_at:time"),
    ("new_member", "id:uuid user:user level:int joined_at:time personal_api_key:text"),
    (
        "key",
        "label:text scopes:[text] scoped_teams:[int] scoped_organizations:[text] created_at:time last_used_at:time? \
         mask_value:text",
    ),
    ("new_key", "label:text scopes:[text] value:text created_at:time"),
];

/// Method, path, query, body, and the expected status and format, or an empty body. In this order; rows that
/// end something come last.
const OPERATIONS: &[(&str, &str, &str, &str, u16, &str)] = &[
    ("GET", "P/actions/", "", "", 200, "page action"),
    ("POST", "P/actions/", "", r#"{"name": "b", "steps": [{"event": "x"}]}"#, 201, "action"),
    ("GET", "P/actions/:id/", "", "", 200, "action"),
    ("PUT", "P/actions/:id/", "", r#"{"name": "c"}"#, 200, "action"),
    ("PATCH", "P/actions/:id/", "", r#"{"tags": ["a"]}"#, 200, "action"),
    ("GET", "P/actions/activity/", "", "", 200, "log"),
    ("GET", "P/actions/:id/activity/", "", "", 200, "log"),
    ("GET", "P/annotations/", "", "", 200, "page annotation"),
    ("POST", "P/annotations/", "", r#"{"content": "b"}"#, 201, "annotation"),
    ("GET", "P/annotations/:id/", "", "", 200, "annotation"),
    ("PUT", "P/annotations/:id/", "", r#"{"content": "d"}"#, 200, "annotation"),
    ("PATCH", "P/annotations/:id/", "", r#"{"content": "c"}"#, 200, "annotation"),
    ("GET", "P/annotations/activity/", "", "", 200, "log"),
    ("GET", "P/annotations/:id/activity/", "", "", 200, "log"),
    ("GET", "P/dashboards/", "", "", 200, "page dashboard"),
    ("POST", "P/dashboards/", "", r#"{"name": "b"}"#, 201, "dashboard"),
    ("GET", "P/dashboards/:id/", "", "", 200, "dashboard"),
    ("PUT", "P/dashboards/:id/", "", r#"{"name": "c"}"#, 200, "dashboard"),
    ("PATCH", "P/dashboards/:id/", "", r#"{"pinned": false}"#, 200, "dashboard"),
    ("GET", "P/dashboards/activity/", "", "", 200, "log"),
    ("GET", "P/dashboards/:id/activity/", "", "", 200, "log"),
    ("PATCH", "P/dashboards/:id/move_tile/", "", "{}", 400, "error"),
    ("POST", "P/dashboards/:id/copy_tile/", "", "{}", 400, "error"),
    ("POST", "P/dashboards/:id/reorder_tiles/", "", r#"{"tile_order": []}"#, 400, "error"),
    ("GET", "P/dashboards/:id/sharing/", "", "", 200, "sharing"),
    ("PATCH", "P/dashboards/:id/sharing/", "", r#"{"password_required": true}"#, 200, "sharing"),
    ("POST", "P/dashboards/:id/sharing/passwords/", "", "{}", 201, "new_share_password"),
    ("GET", "P/dashboards/:id/sharing/", "", "", 200, "sharing"),
    ("DELETE", "P/dashboards/:id/sharing/passwords/:password/", "", "", 204, ""),
    ("POST", "P/dashboards/:id/sharing/refresh/", "", "", 200, "sharing"),
    ("GET", "P/dashboards/:id/run_insights/", "refresh=blocking", "", 200, "ran"),
    ("GET", "P/insights/", "saved=true", "", 200, "page insight"),
    ("POST", "P/insights/", "", r#"{"query": {"kind": "TrendsQuery"}}"#, 201, "insight"),
    ("GET", "P/insights/:id/", "", "", 200, "insight"),
    ("PUT", "P/insights/:id/", "", r#"{"name": "c"}"#, 200, "insight"),
    ("PATCH", "P/insights/:id/", "", r#"{"favorited": true}"#, 200, "insight"),
    ("GET", "P/insights/activity/", "", "", 200, "log"),
    ("GET", "P/insights/:id/activity/", "", "", 200, "log"),
    ("GET", "P/insights/:id/sharing/", "", "", 200, "sharing"),
    ("PATCH", "P/insights/:id/sharing/", "", r#"{"password_required": true}"#, 200, "sharing"),
    ("POST", "P/insights/:id/sharing/passwords/", "", "{}", 201, "new_share_password"),
    ("GET", "P/insights/:id/sharing/", "", "", 200, "sharing"),
    ("DELETE", "P/insights/:id/sharing/passwords/:password/", "", "", 204, ""),
    ("POST", "P/insights/:id/sharing/refresh/", "", "", 200, "sharing"),
    ("POST", "P/insights/:id/viewed/", "", "", 201, ""),
    ("GET", "P/insights/my_last_viewed/", "", "", 200, "[insight]"),
    ("DELETE", "P/actions/:id/", "", "", 405, "error"),
    ("DELETE", "P/annotations/:id/", "", "", 405, "error"),
    ("DELETE", "P/dashboards/:id/", "", "", 405, "error"),
    ("DELETE", "P/insights/:id/", "", "", 405, "error"),
    ("GET", "P/events/", "", "", 200, "events"),
    ("GET", "P/events/values/", "key=secret", "", 200, "[name]"),
    ("GET", "P/events/:uuid/", "", "", 200, "event"),
    ("GET", "P/groups/", "group_type_index=0", "", 200, "page group"),
    ("GET", "P/groups/find/", "group_type_index=0&group_key=same", "", 200, "group"),
    ("GET", "P/groups/property_definitions/", "", "", 200, "object"),
    ("GET", "P/groups/property_values/", "group_type_index=0&key=name", "", 200, "[value]"),
    (
        "POST",
        "P/groups/",
        "",
        r#"{"group_type_index": 0, "group_key": "new", "group_properties": {"a": 1}}"#,
        201,
        "group",
    ),
    (
        "POST",
        "P/groups/update_property/",
        "group_type_index=0&group_key=new",
        r#"{"key": "b", "value": 2}"#,
        200,
        "group",
    ),
    (
        "POST",
        "P/groups/delete_property/",
        "group_type_index=0&group_key=new",
        r#"{"$unset": "b"}"#,
        200,
        "group",
    ),
    ("GET", "P/groups/activity/", "group_type_index=0&group_key=same", "", 200, "log"),
    ("GET", "P/groups_types/", "", "", 200, "[group_type]"),
    (
        "PATCH",
        "P/groups_types/update_metadata/",
        "",
        r#"[{"group_type_index": 0, "name_singular": "Company"}]"#,
        200,
        "[group_type]",
    ),
    ("GET", "P/event_definitions/", "", "", 200, "page event_definition"),
    ("POST", "P/event_definitions/", "", r#"{"name": "to come"}"#, 201, "event_definition"),
    ("GET", "P/event_definitions/:id/", "", "", 200, "event_definition"),
    ("PATCH", "P/event_definitions/:id/", "", r#"{"tags": ["a"]}"#, 200, "event_definition"),
    ("PUT", "P/event_definitions/:id/", "", r#"{"verified": true}"#, 200, "event_definition"),
    ("GET", "P/event_definitions/by_name/", "name=same event", "", 200, "event_definition"),
    ("GET", "P/event_definitions/:id/metrics/", "", "", 200, "usage"),
    ("GET", "P/event_definitions/primary_properties/", "", "", 200, "primary"),
    (
        "POST",
        "P/event_definitions/bulk_update_tags/",
        "",
        r#"{"ids": ["DEFINITION"], "action": "add", "tags": ["b"]}"#,
        200,
        "tagged",
    ),
    (
        "POST",
        "P/event_definitions/bulk_update_verified/",
        "",
        r#"{"ids": ["DEFINITION"], "verified": false}"#,
        200,
        "verified",
    ),
    ("GET", "P/event_definitions/activity/", "", "", 200, "log"),
    ("GET", "P/event_definitions/:id/activity/", "", "", 200, "log"),
    ("DELETE", "P/event_definitions/:id/", "", "", 204, ""),
    ("GET", "P/property_definitions/", "", "", 200, "page property_definition"),
    (
        "GET",
        "P/property_definitions/seen_together/",
        "event_names=[\"same event\"]&property_name=secret",
        "",
        200,
        "object",
    ),
    ("GET", "P/property_definitions/:id/", "", "", 200, "property_definition"),
    ("PATCH", "P/property_definitions/:id/", "", r#"{"tags": ["a"]}"#, 200, "property_definition"),
    ("PUT", "P/property_definitions/:id/", "", r#"{"hidden": true}"#, 200, "property_definition"),
    ("DELETE", "P/property_definitions/:id/", "", "", 204, ""),
    ("GET", "P/persons/", "", "", 200, "page person"),
    ("POST", "P/persons/", "", "{}", 405, "error"),
    ("GET", "P/persons/values/", "key=email", "", 200, "[value]"),
    ("GET", "P/persons/:id/", "", "", 200, "person"),
    ("PUT", "P/persons/:id/", "", r#"{"properties": {"a": 1}}"#, 202, "person"),
    ("PATCH", "P/persons/:id/", "", r#"{"properties": {"a": {"b": null}}}"#, 202, "person"),
    ("POST", "P/persons/:id/update_property/", "", r#"{"key": "a", "value": 0}"#, 202, "person"),
    ("POST", "P/persons/:id/delete_property/", "", r#"{"$unset": "a"}"#, 201, "changed"),
    ("POST", "P/persons/:id/split/", "", "{}", 201, "changed"),
    ("GET", "P/persons/:id/properties_timeline/", "", "", 200, "timeline"),
    ("GET", "P/persons/cohorts/", "person_id=PERSON", "", 200, "cohorts"),
    ("GET", "P/persons/funnel/", FUNNEL_STEP, "", 200, "of_point"),
    (
        "POST",
        "P/persons/funnel/",
        "",
        r#"{"events": [{"id": "buy"}], "funnel_step": 1}"#,
        200,
        "of_point",
    ),
    ("GET", "P/persons/funnel/correlation/", CORRELATION, "", 200, "of_point"),
    (
        "POST",
        "P/persons/funnel/correlation/",
        "",
        r#"{"events": [{"id": "buy"}], "funnel_correlation_person_entity": {"id": "view"}}"#,
        200,
        "of_point",
    ),
    (
        "GET",
        "P/persons/lifecycle/",
        "date_from=2026-03-01&date_to=2026-03-02&target_date=2026-03-01&lifecycle_type=new",
        "",
        200,
        "of_number",
    ),
    ("GET", "P/persons/path/", "path_start_key=1_buy", "", 200, "of_point"),
    ("POST", "P/persons/path/", "", "{}", 200, "of_point"),
    ("GET", "P/persons/retention/", "", "", 200, "of_row"),
    ("GET", "P/persons/stickiness/", "entity_id=buy&entity_type=events", "", 200, "of_number"),
    ("GET", "P/persons/trends/", "entity_id=buy&entity_type=events", "", 200, "of_point"),
    ("GET", "P/insights/retention/", "", "", 200, "retention"),
    ("POST", "P/insights/retention/", "", "{}", 200, "retention"),
    ("GET", "P/query/:id/", "", "", 404, "error"),
    ("DELETE", "P/query/:id/", "", "", 404, "error"),
    ("GET", "P/insights/path/", "", "", 200, "paths"),
    ("POST", "P/insights/path/", "", "{}", 200, "paths"),
    ("GET", "P/insights/funnel/", FUNNEL_STEP, "", 200, "funnel"),
    ("POST", "P/insights/funnel/", "", r#"{"events": [{"id": "buy"}]}"#, 200, "funnel"),
    ("GET", "P/insights/funnel/correlation/", CORRELATION, "", 200, "correlation"),
    (
        "POST",
        "P/insights/funnel/correlation/",
        "",
        r#"{"events": [{"id": "buy"}, {"id": "sell"}]}"#,
        200,
        "correlation",
    ),
    ("POST", "P/insights/cancel/", "", r#"{"client_query_id": "x"}"#, 201, "object"),
    ("GET", "P/insights/lifecycle/", "", "", 200, "people_over_time"),
    ("POST", "P/insights/lifecycle/", "", "{}", 200, "people_over_time"),
    ("GET", "P/insights/stickiness/", "", "", 200, "people_over_time"),
    ("POST", "P/insights/stickiness/", "", "{}", 200, "people_over_time"),
    ("GET", "P/insights/trend/", "", "", 200, "trend"),
    ("POST", "P/insights/trend/", "", "{}", 200, "trend"),
    ("GET", "P/persons/activity/", "", "", 200, "log"),
    ("GET", "P/persons/:id/activity/", "", "", 200, "log"),
    ("POST", "P/persons/:id/delete_recordings/", "", "{}", 202, ""),
    ("POST", "P/persons/:id/delete_events/", "", "{}", 202, ""),
    ("GET", "P/persons/deletion_status/", "", "", 200, "page deletion"),
    (
        "POST",
        "P/persons/bulk_delete/",
        "",
        r#"{"distinct_ids": ["second"], "delete_events": true}"#,
        202,
        "bulk",
    ),
    ("POST", "P/persons/reset_person_distinct_id/", "", r#"{"distinct_id": "second"}"#, 202, ""),
    ("DELETE", "P/persons/:id/", "", "", 202, ""),
    ("GET", "/api/projects/", "", "", 200, "page project"),
    ("POST", "/api/projects/", "", r#"{"name": "Second"}"#, 201, "project"),
    ("GET", "P/", "", "", 200, "project"),
    ("PUT", "P/", "", r#"{"name": "First", "anonymize_ips": true}"#, 200, "project"),
    ("PATCH", "P/", "", r#"{"timezone": "Asia/Tokyo"}"#, 200, "project"),
    ("PATCH", "P/reset_token/", "", "{}", 200, "project"),
    ("GET", "O/projects/", "", "", 200, "page project"),
    ("POST", "O/projects/", "", r#"{"name": "Third"}"#, 201, "project"),
    ("GET", "O/projects/:id/", "", "", 200, "project"),
    ("PUT", "O/projects/:id/", "", r#"{"name": "First again"}"#, 200, "project"),
    ("PATCH", "O/projects/:id/", "", r#"{"week_start_day": 1}"#, 200, "project"),
    ("GET", "/api/users/:uuid/", "", "", 200, "me"),
    ("PATCH", "/api/users/:uuid/", "", r#"{"first_name": "Ada"}"#, 200, "me"),
    ("GET", "/api/organizations/", "", "", 200, "page organization"),
    ("GET", "O/", "", "", 200, "organization"),
    ("PATCH", "O/", "", r#"{"name": "Acme"}"#, 200, "organization"),
    ("GET", "O/members/", "", "", 200, "page member"),
    ("POST", "O/members/", "", r#"{"email": "new@acme.com"}"#, 201, "new_member"),
    ("PATCH", "O/members/:uuid/", "", r#"{"level": 8}"#, 200, "member"),
    ("DELETE", "O/members/:uuid/", "", "", 204, ""),
    ("GET", "/api/personal_api_keys/", "", "", 200, "page key"),
    ("POST", "/api/personal_api_keys/", "", r#"{"label": "x", "scopes": ["*"]}"#, 201, "new_key"),
    ("GET", "/api/personal_api_keys/:id/", "", "", 200, "key"),
    ("PATCH", "/api/personal_api_keys/:id/", "", r#"{"label": "y"}"#, 200, "key"),
    ("DELETE", "/api/personal_api_keys/:id/", "", "", 204, ""),
];

/// The endpoints that the rows are about.
pub(crate) fn endpoints() -> impl Iterator<Item = (&'static Endpoint, &'static str)> {
    let is_own = |path: &str| {
        let below = |root: &&str| path.starts_with(*root);
        ABOUT.iter().any(below)
            || OF_PROJECT.contains(&path)
            || path == "O/"
            || OF_ORGANIZATION.iter().skip(1).any(below)
    };
    let own = TABLE.iter().filter(move |line| is_own(line.path));
    let all = own.flat_map(|line| line.methods().map(move |method| (line, method)));
    // What ends the project has tests of its own: `project_deletion`.
    all.filter(|(line, method)| *method != "DELETE" || !ENDS_PROJECT.contains(&line.path))
}

/// The error of a value that should have this format, if there is one.
fn wrong(value: &Value, shape: &str) -> Option<String> {
    let told = |is_right: bool| (!is_right).then(|| format!("{value} is no {shape}"));
    if let Some(shape) = shape.strip_suffix('?') {
        return if value.is_null() { None } else { wrong(value, shape) };
    }
    if let Some(items) = shape.strip_prefix('[').and_then(|shape| shape.strip_suffix(']')) {
        let Some(list) = value.as_array() else { return told(false) };
        return list.iter().find_map(|item| wrong(item, items));
    }
    if let Some(items) = shape.strip_prefix("page ") {
        let count = value["count"].as_u64();
        let list = value["results"].as_array().map_or(0, Vec::len);
        // Nothing on the page would prove nothing about what is on it.
        let is_filled = list > 0 && count == u64::try_from(list).ok();
        let has_links = ["next", "previous"].iter().all(|name| value.get(*name).is_some());
        return told(is_filled && has_links)
            .or_else(|| wrong(&value["results"], &format!("[{items}]")));
    }
    let as_text = || value.as_str().unwrap_or_default();
    let parses = |text: &str| chrono::DateTime::parse_from_rfc3339(text).is_ok();
    match shape {
        "any" => None,
        "true" => told(*value == json!(true)),
        "int" => told(value.is_i64()),
        "bool" => told(value.is_boolean()),
        "text" => told(value.is_string()),
        "object" => told(value.is_object()),
        "uuid" => told(Uuid::try_parse(as_text()).is_ok()),
        "moment" => told(parses(as_text())),
        "time" => told(parses(as_text()) && as_text().ends_with('Z')),
        _ => {
            let fields = SHAPES.iter().find(|(name, _)| *name == shape);
            let (_, fields) = fields.unwrap_or_else(|| panic!("there is no shape {shape}"));
            fields.split_whitespace().find_map(|field| {
                let (name, shape) = field.split_once(':').expect("a shape");
                let Some(found) = value.get(name) else {
                    return Some(format!("{name} is not in {value}"));
                };
                wrong(found, shape).map(|what| format!("{name}: {what}"))
            })
        }
    }
}

#[test]
fn every_operation_answers_as_documented() {
    for (line, method) in endpoints() {
        let is_told = OPERATIONS.iter().any(|(of, path, ..)| (*of, *path) == (method, line.path));
        assert!(is_told, "tell what {method} {} answers", line.path);
    }
    let (server, mut ids) = furnished();
    let more = json!([{"event": "x", "distinct_id": "second"}]);
    assert_eq!(server.capture(&more).status, 200);
    let key = json!({"label": "x", "scopes": ["person:read"]});
    let key = server.post("/api/personal_api_keys/", &key).created();
    let member = json!({"email": "mel@acme.com"});
    let member = server.post("/api/organizations/@current/members/", &member).created();
    ids.extend([
        ("personal_api_keys/:id", text(&key["id"])),
        ("members/:uuid", text(&member["id"])),
    ]);
    let own = |template: &str| {
        let names = ["PERSON", "DEFINITION"];
        names.iter().fold(template.to_owned(), |text, name| text.replace(name, &ids[name]))
    };
    for (method, path, query, body, status, shape) in OPERATIONS {
        let path = with(&fill_in(path, "1", &ids), &own(query));
        let json_type = [("content-type", "application/json")];
        let answer = send(&server, method, &path, &json_type, &own(body));
        assert_eq!(answer.status, *status, "{method} {path}: {answer}");
        match *shape {
            "" => assert_eq!(answer.body, b"", "{method} {path}"),
            // In its own words; see `persons`.
            "error" => assert!(answer.json()["detail"].is_string(), "{method} {path}: {answer}"),
            shape => {
                assert_eq!(answer.header("content-type"), Some("application/json"), "{path}");
                let wrong = wrong(&answer.json(), shape);
                assert_eq!(wrong, None, "{method} {path}");
            }
        }
    }
    // What was ended is not there any more.
    for (method, path, ..) in OPERATIONS.iter().filter(|row| row.0 == "DELETE" && row.4 != 405) {
        let path = fill_in(path, "1", &ids);
        let answer = send(&server, method, &path, &[], "");
        let expected = error("invalid_request", "not_found", "Not found.");
        assert_eq!((answer.status, answer.json()), (404, expected), "{method} {path}");
    }
}

/// The operations of persons that take `format`, as the API specification has them.
const FORMATTED: [(&str, &str); 12] = [
    ("GET", "P/persons/"),
    ("GET", "P/persons/:id/"),
    ("PATCH", "P/persons/:id/"),
    ("DELETE", "P/persons/:id/"),
    ("GET", "P/persons/:id/activity/"),
    ("POST", "P/persons/:id/delete_property/"),
    ("GET", "P/persons/:id/properties_timeline/"),
    ("POST", "P/persons/:id/split/"),
    ("POST", "P/persons/:id/update_property/"),
    ("GET", "P/persons/activity/"),
    ("GET", "P/persons/cohorts/"),
    ("GET", "P/persons/values/"),
];

#[test]
fn operations_of_persons_answer_in_the_form_that_is_asked_for() {
    let (server, ids) = furnished();
    let mut count = 0;
    for (method, path, query, body, status, shape) in OPERATIONS {
        if !FORMATTED.contains(&(*method, *path)) {
            continue;
        }
        count += 1;
        let query = query.replace("PERSON", &ids["PERSON"]);
        let ask = |form: &str| {
            let query = [&*query, form].into_iter().filter(|part| !part.is_empty());
            let path = with(&fill_in(path, "1", &ids), &query.collect::<Vec<_>>().join("&"));
            let answer = send(&server, method, &path, &[("accept", "*/*")], body);
            assert_eq!(answer.status, *status, "{method} {path}: {answer}");
            answer
        };
        // What ends something is asked once.
        if !shape.is_empty() {
            let json = ask("format=json");
            assert_eq!(json.header("content-type"), Some("application/json"), "{method} {path}");
        }
        let csv = ask("format=csv");
        let kind = (!shape.is_empty()).then_some("text/csv; charset=utf-8");
        assert_eq!(csv.header("content-type"), kind, "{method} {path}");
        let text = String::from_utf8(csv.body).expect("UTF-8");
        let lines = text.split_terminator("\r\n").count();
        assert!(lines >= 2 || shape.is_empty(), "{method} {path}: {text}");
    }
    assert_eq!(count, FORMATTED.len());
}

/// Django REST Framework: an invalid number counts as absent, and an offset behind the end gives an empty
/// page.
#[test]
fn odd_pages_are_empty_or_the_first() {
    let (server, ids) = furnished();
    let mut count = 0;
    let is_list = |row: &&(&str, &str, &str, &str, u16, &str)| {
        row.0 == "GET" && (row.5.starts_with("page ") || row.5 == "log")
    };
    for (_, path, query, _, _, shape) in OPERATIONS.iter().filter(is_list) {
        let own = |query: &str| with(&fill_in(path, "1", &ids), query);
        let plain = server.get(&own(query)).json();
        let ask = |more: &str| {
            let query = [*query, more].into_iter().filter(|part| !part.is_empty());
            let query = own(&query.collect::<Vec<_>>().join("&"));
            let answer = server.get(&query);
            assert_eq!(answer.status, 200, "{query}: {answer}");
            answer.json()
        };
        for first in ["limit=0", "limit=-1&offset=-1&page=-1", "limit=many&offset=&page=first"] {
            assert_eq!(ask(first)["results"], plain["results"], "{path}?{first}");
        }
        for last in [u64::MAX, u64::MAX / 2, u64::MAX / 3] {
            let page = ask(&format!("offset={last}&limit={last}&page={last}"));
            let expected = (&json!([]), &Value::Null);
            assert_eq!((&page["results"], &page["next"]), expected, "{path}: {last}");
            let counted = if *shape == "log" { "total_count" } else { "count" };
            assert_eq!(page[counted], plain[counted], "{path}: {last}");
        }
        count += 1;
    }
    assert!(count > 10, "{count}");
}

/// PostHog's own test of pages of event definitions: 306 of them, 100 per page.
#[test]
fn pages_of_definitions_have_a_hundred() {
    let server = TestServer::start();
    let event = |number| json!({"event": format!("event {number:03}"), "distinct_id": "a"});
    assert_eq!(server.capture(&(0..306).map(event).collect()).status, 200);
    let mut next = "/api/projects/1/event_definitions/".to_owned();
    let mut names: Vec<String> = Vec::new();
    for expected in [100, 100, 100, 6] {
        let page = server.get(&next).json();
        let results = page["results"].as_array().expect("results");
        assert_eq!((results.len(), &page["count"]), (expected, &json!(306)), "{next}");
        names.extend(results.iter().map(|one| text(&one["name"])));
        let link = page["next"].as_str().unwrap_or_default();
        next = link.strip_prefix(&server.url()).unwrap_or_default().to_owned();
    }
    let expected: Vec<String> = (0..306).map(|number| format!("event {number:03}")).collect();
    assert_eq!((names, next.as_str()), (expected, ""));
}

/// Aliases of paths: the newer names, the user's current project, paths without a project, and without the
/// slash. And HEAD, which returns the headers of GET.
#[test]
fn other_names_of_a_path_mean_the_same() {
    const FLAT: [(&str, &str); 6] = [
        ("cohort", "cohorts"),
        ("event", "events"),
        ("event_definition", "event_definitions"),
        ("feature_flag", "feature_flags"),
        ("person", "persons"),
        ("property_definition", "property_definitions"),
    ];
    let (server, ids) = furnished();
    settle(&server, 1, &ids);
    let mut aliases = 0;
    for line in TABLE.iter().filter(|line| line.methods().any(|method| method == "GET")) {
        let path = fill_in(line.path, "1", &ids);
        let Some(rest) = path.strip_prefix("/api/projects/1/") else { continue };
        let told = OPERATIONS.iter().find(|(of, own, ..)| (*of, *own) == ("GET", line.path));
        let query = told.map_or("", |(_, _, query, ..)| query).replace("PERSON", &ids["PERSON"]);
        let ask = |method: &str, path: &str| send(&server, method, &with(path, &query), &[], "");
        let answer = ask("GET", &path);
        let is_absent = told.is_some_and(|(.., status, _)| *status == 404);
        assert!(matches!(answer.status, 200 | 400) || is_absent, "{path}: {answer}");
        let of = |path: &str| {
            let answer = ask("GET", path);
            let mut body = answer.json();
            strip(&mut body);
            // The links of a page are to its own name; views of files name the time.
            if let Some(page) = body.as_object_mut() {
                page.remove("next");
                page.remove("initial");
                page.remove("views");
            }
            (answer.status, body)
        };
        let expected = of(&path);
        let mut names = vec![
            path.trim_end_matches('/').to_owned(),
            format!("/api/environments/1/{rest}"),
            format!("/api/projects/@current/{rest}"),
        ];
        names.extend(FLAT.iter().filter_map(|(flat, name)| {
            Some(format!("/api/{flat}/{}", rest.strip_prefix(name)?.strip_prefix('/')?))
        }));
        aliases += names.len();
        for name in names {
            assert_eq!(of(&name), expected, "{name} is not {path}");
        }
        let head = ask("HEAD", &path);
        assert_eq!((head.status, head.body.len()), (expected.0, 0), "HEAD {path}");
        assert_eq!(head.header("content-type"), answer.header("content-type"), "HEAD {path}");
    }
    assert!(aliases > 150, "{aliases}");
}
