//! Every operation of persons, events, groups, definitions, projects, users, keys, organizations and
//! members: what it answers if all is well, in the documented shape, and what each of them refuses, in
//! the documented words. Expectations are those of the API specification, of PostHog's API, and of
//! Django REST Framework, on which that stands. A row of the table of endpoints that stands in no row
//! here is a failure. What all endpoints refuse alike is in `errors`.

use serde_json::Value;
use serde_json::json;
use uuid::Uuid;
use weir::http::table::Endpoint;
use weir::http::table::TABLE;

use crate::errors::error;
use crate::errors::furnished;
use crate::errors::send;
use crate::harness::TestServer;
use crate::isolation::fill_in;
use crate::isolation::strip;
use crate::isolation::text;
use crate::isolation::with;

/// What the rows are about, and what is told elsewhere: flags and what belongs to them.
const ABOUT: [&str; 9] = [
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
const OF_PROJECT: [&str; 2] = ["P/", "P/reset_token/"];
const OF_ORGANIZATION: [&str; 3] = ["O/", "O/members/", "O/projects/"];

/// The shapes of objects: names of fields, and what they hold. A `?` is for what may be null, brackets
/// for lists; `text`, `int`, `bool`, `object`, `time`, `uuid` and `any` are themselves, all else is
/// another shape.
const SHAPES: &[(&str, &str)] = &[
    ("user", "id:int uuid:uuid distinct_id:text first_name:text email:text is_email_verified:bool"),
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
        "timeline",
        "points:[point] crucial_property_keys:[text] effective_date_from:time effective_date_to:time",
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
         created_at:time",
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
        "label:text scopes:[text] scoped_teams:any created_at:time last_used_at:time? \
         mask_value:text",
    ),
    ("new_key", "label:text scopes:[text] value:text created_at:time"),
];

/// Method, path, query, body, and what is answered: status and shape, or an empty body. In this order,
/// so that what ends something comes last.
const OPERATIONS: &[(&str, &str, &str, &str, u16, &str)] = &[
    ("GET", "P/events/", "", "", 200, "events"),
    ("GET", "P/events/values/", "key=secret", "", 200, "[name]"),
    ("GET", "P/events/:uuid/", "", "", 200, "event"),
    ("GET", "P/groups/", "group_type_index=0", "", 200, "page group"),
    ("GET", "P/groups/find/", "group_type_index=0&group_key=same", "", 200, "group"),
    ("GET", "P/groups/property_definitions/", "", "", 200, "object"),
    ("GET", "P/groups/property_values/", "group_type_index=0&key=name", "", 200, "[value]"),
    ("GET", "P/groups_types/", "", "", 200, "[group_type]"),
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
fn endpoints() -> impl Iterator<Item = (&'static Endpoint, &'static str)> {
    let is_own = |path: &str| {
        let below = |root: &&str| path.starts_with(*root);
        ABOUT.iter().any(below)
            || OF_PROJECT.contains(&path)
            || path == "O/"
            || OF_ORGANIZATION.iter().skip(1).any(below)
    };
    let own = TABLE.iter().filter(move |line| is_own(line.path));
    own.flat_map(|line| line.methods().map(move |method| (line, method)))
}

/// What is wrong about a value that should have this shape, if anything is.
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
    for (method, path, ..) in OPERATIONS.iter().filter(|(method, ..)| *method == "DELETE") {
        let path = fill_in(path, "1", &ids);
        let answer = send(&server, method, &path, &[], "");
        let expected = error("invalid_request", "not_found", "Not found.");
        assert_eq!((answer.status, answer.json()), (404, expected), "{method} {path}");
    }
}

const REQUIRED: &str = "This field is required.";
const BLANK: &str = "This field may not be blank.";
const NULL: &str = "This field may not be null.";
const NO_BOOLEAN: &str = "Must be a valid boolean.";
const NO_UUID: &str = "Must be a valid UUID.";
const NO_INTEGER: &str = "A valid integer is required.";
const NO_OBJECT: &str = "Invalid pk \"99\" - object does not exist.";
const NO_TIME: &str = "Datetime has wrong format. Use one of these formats instead: \
                       YYYY-MM-DDThh:mm[:ss[.uuuuuu]][+HH:MM|-HH:MM|Z].";
const NO_LIST: &str = "Expected a list of items but got type \"str\".";

/// Method, path and query, body, and the refusal with 400: attr (empty for null), code, detail.
const REFUSALS: &[(&str, &str, &str, &str, &str, &str)] = &[
    // Of these PostHog's code and detail stand in each other's place.
    ("PATCH", "P/persons/:id/", "{}", "properties", REQUIRED, "required"),
    ("PUT", "P/persons/:id/", "", "properties", REQUIRED, "required"),
    ("PATCH", "P/persons/:id/", r#"{"properties": null}"#, "properties", REQUIRED, "required"),
    ("POST", "P/persons/:id/update_property/", r#"{"key": "a"}"#, "value", REQUIRED, "required"),
    ("POST", "P/persons/:id/update_property/", r#"{"value": 1}"#, "key", REQUIRED, "required"),
    (
        "POST",
        "P/persons/:id/update_property/",
        r#"{"key": "a", "value": null}"#,
        "value",
        REQUIRED,
        "required",
    ),
    (
        "POST",
        "P/persons/:id/update_property/",
        r#"{"key": null, "value": 1}"#,
        "key",
        REQUIRED,
        "required",
    ),
    (
        "POST",
        "P/persons/bulk_delete/",
        "{}",
        "",
        "invalid_input",
        "You need to specify either distinct_ids or ids",
    ),
    (
        "POST",
        "P/persons/bulk_delete/",
        r#"{"ids": [], "distinct_ids": []}"#,
        "",
        "invalid_input",
        "You must provide either distinct_ids or ids, not both",
    ),
    ("POST", "P/persons/bulk_delete/", r#"{"ids": ["ann"]}"#, "ids", "invalid_input", NO_UUID),
    (
        "POST",
        "P/persons/bulk_delete/",
        r#"{"distinct_ids": "ann"}"#,
        "distinct_ids",
        "not_a_list",
        NO_LIST,
    ),
    (
        "POST",
        "P/persons/reset_person_distinct_id/",
        "{}",
        "",
        "invalid_input",
        "distinct_id is required",
    ),
    (
        "GET",
        "P/persons/deletion_status/?status=odd",
        "",
        "status",
        "invalid_choice",
        "\"odd\" is not a valid choice.",
    ),
    (
        "GET",
        "P/persons/deletion_status/?person_uuid=1",
        "",
        "person_uuid",
        "invalid_input",
        NO_UUID,
    ),
    ("GET", "P/persons/cohorts/", "", "person_id", "required", REQUIRED),
    ("GET", "P/persons/?cohort=mine", "", "cohort", "invalid_input", NO_INTEGER),
    ("GET", "P/events/purchase/", "", "", "invalid", "Invalid UUID"),
    (
        "GET",
        "P/events/?properties=%7B",
        "",
        "properties",
        "invalid_input",
        "Properties are unparsable!",
    ),
    ("GET", "P/event_definitions/by_name/", "", "name", "required", REQUIRED),
    (
        "GET",
        "P/event_definitions/?event_type=odd",
        "",
        "event_type",
        "invalid_choice",
        "\"odd\" is not a valid choice.",
    ),
    ("PATCH", "P/event_definitions/:id/", r#"{"name": " "}"#, "name", "blank", BLANK),
    ("PATCH", "P/event_definitions/:id/", r#"{"name": null}"#, "name", "null", NULL),
    ("PATCH", "P/event_definitions/:id/", r#"{"tags": "x"}"#, "tags", "not_a_list", NO_LIST),
    (
        "PATCH",
        "P/event_definitions/:id/",
        r#"{"tags": ["x", {}]}"#,
        "tags__1",
        "invalid_input",
        "Not a valid string.",
    ),
    (
        "PATCH",
        "P/event_definitions/:id/",
        r#"{"created_at": "soon"}"#,
        "created_at",
        "invalid_input",
        NO_TIME,
    ),
    (
        "PATCH",
        "P/event_definitions/:id/",
        r#"{"last_seen_at": 7}"#,
        "last_seen_at",
        "invalid_input",
        NO_TIME,
    ),
    (
        "PATCH",
        "P/event_definitions/:id/",
        r#"{"post_to_slack": "perhaps"}"#,
        "post_to_slack",
        "invalid_input",
        NO_BOOLEAN,
    ),
    ("PATCH", "P/event_definitions/:id/", r#"{"owner": 99}"#, "owner", "does_not_exist", NO_OBJECT),
    (
        "PATCH",
        "P/event_definitions/:id/",
        r#"{"verified": true, "hidden": true}"#,
        "",
        "invalid_input",
        "An event cannot be both hidden and verified",
    ),
    (
        "PATCH",
        "P/property_definitions/:id/",
        r#"{"property_type": "Text"}"#,
        "property_type",
        "invalid_choice",
        "\"Text\" is not a valid choice.",
    ),
    ("PATCH", "P/property_definitions/:id/", r#"{"hidden": null}"#, "hidden", "null", NULL),
    (
        "GET",
        "P/property_definitions/?type=group",
        "",
        "",
        "invalid_input",
        "`group_type_index` must be set for `group` type",
    ),
    (
        "GET",
        "P/property_definitions/?group_type_index=0",
        "",
        "",
        "invalid_input",
        "`group_type_index` can only set for `group` type",
    ),
    (
        "GET",
        "P/property_definitions/?type=group&group_type_index=5",
        "",
        "",
        "invalid_input",
        "Invalid value for `group_type_index`",
    ),
    (
        "GET",
        "P/property_definitions/?type=person&event_names=%5B%22a%22%5D",
        "",
        "",
        "invalid_input",
        "`event_names` can only be set for `event` type",
    ),
    ("POST", "/api/projects/", "{}", "name", "required", REQUIRED),
    ("POST", "/api/projects/", r#"{"name": " "}"#, "name", "blank", BLANK),
    ("POST", "O/projects/", r#"{"name": null}"#, "name", "null", NULL),
    ("PATCH", "P/", r#"{"name": ""}"#, "name", "blank", BLANK),
    (
        "PATCH",
        "P/",
        r#"{"timezone": "Mars/Olympus"}"#,
        "timezone",
        "invalid_choice",
        "\"Mars/Olympus\" is not a valid choice.",
    ),
    (
        "PATCH",
        "O/projects/:id/",
        r#"{"anonymize_ips": "perhaps"}"#,
        "anonymize_ips",
        "invalid_input",
        NO_BOOLEAN,
    ),
    ("PUT", "P/", r#"{"week_start_day": "monday"}"#, "week_start_day", "invalid_input", NO_INTEGER),
    (
        "PATCH",
        "/api/users/:uuid/",
        r#"{"set_current_team": 99}"#,
        "set_current_team",
        "does_not_exist",
        NO_OBJECT,
    ),
    (
        "PATCH",
        "/api/users/:uuid/",
        r#"{"email": "nobody"}"#,
        "email",
        "invalid_input",
        "Enter a valid email address.",
    ),
    ("PATCH", "/api/users/:uuid/", r#"{"first_name": null}"#, "first_name", "null", NULL),
    ("PATCH", "O/", r#"{"name": ""}"#, "name", "blank", BLANK),
    ("POST", "O/members/", "{}", "email", "required", REQUIRED),
    (
        "POST",
        "O/members/",
        r#"{"email": "new@acme.com", "level": 7}"#,
        "level",
        "invalid_choice",
        "\"7\" is not a valid choice.",
    ),
    ("PATCH", "O/members/:uuid/", "{}", "level", "required", REQUIRED),
    ("POST", "/api/personal_api_keys/", r#"{"scopes": ["*"]}"#, "label", "required", REQUIRED),
    ("POST", "/api/personal_api_keys/", r#"{"label": "x"}"#, "scopes", "required", REQUIRED),
    (
        "POST",
        "/api/personal_api_keys/",
        r#"{"label": "x", "scopes": []}"#,
        "scopes",
        "empty",
        "This list may not be empty.",
    ),
    (
        "POST",
        "/api/personal_api_keys/",
        r#"{"label": "x", "scopes": ["*"], "scoped_teams": [99]}"#,
        "scoped_teams",
        "does_not_exist",
        NO_OBJECT,
    ),
    ("PATCH", "/api/personal_api_keys/:id/", r#"{"label": ""}"#, "label", "blank", BLANK),
];

#[test]
fn what_is_wrong_is_refused_in_the_documented_words() {
    let (server, ids) = furnished();
    let json_type = [("content-type", "application/json")];
    for (method, path, body, attr, code, detail) in REFUSALS {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let path = format!("{}?{query}", fill_in(path, "1", &ids));
        let answer = send(&server, method, &path, &json_type, body);
        let mut expected = error("validation_error", code, detail);
        if !attr.is_empty() {
            expected["attr"] = json!(attr);
        }
        assert_eq!((answer.status, answer.json()), (400, expected), "{method} {path} {body}");
    }
    for (body, attr) in [("ids", "ids"), ("distinct_ids", "distinct_ids")] {
        let many = json!({body: vec!["x"; 1001]});
        let answer = server.post("/api/projects/1/persons/bulk_delete/", &many);
        let detail = format!("You can only pass 1000 {attr} in one call");
        let expected = error("validation_error", "invalid_input", &detail);
        assert_eq!((answer.status, answer.json()), (400, expected), "{body}");
    }
}

/// Ids that name nothing, or are none, wherever an id stands.
#[test]
fn ids_that_name_nothing_are_told_by_every_operation() {
    const NOBODY: &str = "0192f0c1-7f3a-7b9e-8a53-1f0e6a9b3c4d";
    let (server, ids) = furnished();
    let missing = || (404, error("invalid_request", "not_found", "Not found."));
    let no_person = "The ID provided does not look like a personID. If you are using a distinctId, \
                     please use /persons?distinct_id=<id> instead.";
    let no_event = format!("No events exist for event UUID {NOBODY}");
    let invalid = |code: &str, detail: &str| (400, error("validation_error", code, detail));
    let not_found = |detail: &str| (404, error("invalid_request", "not_found", detail));
    let mut count = 0;
    for (line, method) in endpoints() {
        let Some(place) = line.path.split('/').find(|part| part.starts_with(':')) else { continue };
        let is_log = line.path == "P/event_definitions/:id/activity/";
        for id in ["999999", NOBODY, "ann", "99999999999999999999", "-1", "%F0%9F%A6%80"] {
            let is_integer = id.trim_start_matches('-').bytes().all(|byte| byte.is_ascii_digit());
            let expected = match line.path.split('/').nth(1) {
                Some("persons") if is_integer || id == NOBODY => missing(),
                Some("persons") => invalid("invalid_input", no_person),
                Some("events") if id == NOBODY => not_found(&no_event),
                Some("events") => invalid("invalid", "Invalid UUID"),
                Some("projects") => not_found("Project not found."),
                // The log also has what became of those that are gone.
                Some("event_definitions") if is_log && id == NOBODY => continue,
                _ => missing(),
            };
            let path = fill_in(&line.path.replace(place, "PLACE"), "1", &ids).replace("PLACE", id);
            let json_type = [("content-type", "application/json")];
            let answer = send(&server, method, &path, &json_type, "{}");
            assert_eq!((answer.status, answer.json()), expected, "{method} {path}");
            count += 1;
        }
    }
    assert!(count > 150, "{count}");
}

/// White space is a part of the ids and names in events, so it is one of those that operators name.
#[test]
fn ids_and_names_are_taken_as_they_are() {
    let server = TestServer::start();
    let persons = "/api/projects/1/persons/";
    let set = json!({"plan": "a", " plan ": "b"});
    let event = |id: &str| json!({"event": "x", "distinct_id": id, "properties": {"$set": set}});
    assert_eq!(server.capture(&json!([event("ann"), event(" ann ")])).status, 200);
    let find = |id: &str| {
        let page = server.get(&with(persons, &format!("distinct_id={id}"))).json();
        page["results"][0].clone()
    };
    let id = find("ann")["id"].clone();
    let path = format!("{persons}{id}/");
    let answer = server.post(&format!("{path}delete_property/"), &json!({"$unset": " plan "}));
    assert_eq!((answer.status, &answer.json()["properties"]["plan"]), (201, &json!("a")));
    assert_eq!(answer.json()["properties"].get(" plan "), None);
    let value = json!({"key": " plan ", "value": "c"});
    let answer = server.post(&format!("{path}update_property/"), &value);
    let told = answer.json()["properties"].clone();
    assert_eq!((&told["plan"], &told[" plan "]), (&json!("a"), &json!("c")), "{answer}");
    let cohort = json!({"name": "one", "is_static": true, "distinct_ids": [" ann "]});
    let cohort = server.post("/api/projects/1/cohorts/", &cohort).created();
    let page = server.get(&format!("/api/projects/1/cohorts/{}/persons/", cohort["id"])).json();
    assert_eq!(page["results"][0]["distinct_ids"], json!([" ann "]));
    let answer =
        server.post(&format!("{persons}bulk_delete/"), &json!({"distinct_ids": [" ann "]}));
    assert_eq!((answer.status, &answer.json()["persons_deleted"]), (202, &json!(1)), "{answer}");
    assert_eq!((find("ann")["id"].clone(), find(" ann ")), (id, Value::Null));
}

/// Django REST Framework: what is no number counts as absent, and behind the end there is nothing.
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

/// PostHog's own test of pages of event definitions: 306 of them, a hundred to a page.
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

/// The key of one user is no business of another.
#[test]
fn keys_and_users_are_told_to_their_owners_alone() {
    let server = TestServer::start();
    let member = json!({"email": "mel@acme.com", "level": 8});
    let member = server.post("/api/organizations/@current/members/", &member).created();
    let theirs = text(&member["personal_api_key"]);
    let mine = server.get("/api/personal_api_keys/@current/").json()["id"].clone();
    let me = text(&server.get("/api/users/@me/").json()["uuid"]);
    let bearer = format!("Bearer {theirs}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let missing = error("invalid_request", "not_found", "Not found.");
    for (method, path) in [
        ("GET", format!("/api/personal_api_keys/{mine}/")),
        ("PATCH", format!("/api/personal_api_keys/{mine}/")),
        ("DELETE", format!("/api/personal_api_keys/{mine}/")),
        ("GET", format!("/api/users/{me}/")),
        ("PATCH", format!("/api/users/{me}/")),
    ] {
        let body = r#"{"label": "stolen", "first_name": "stolen"}"#;
        let answer = server.send(method, &path, &headers, body);
        assert_eq!((answer.status, answer.json()), (404, missing.clone()), "{method} {path}");
    }
    let keys = server.send("GET", "/api/personal_api_keys/", &headers, "").json();
    assert_eq!(
        (&keys["count"], &keys["results"][0]["user_id"]),
        (&json!(1), &member["user"]["id"])
    );
    assert_eq!(server.get("/api/personal_api_keys/").json()["count"], 1);
}

/// Other names of the same: the newer ones, the user's own project, those of before projects, and
/// without the slash. And HEAD, which tells what GET would.
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
    let mut aliases = 0;
    for line in TABLE.iter().filter(|line| line.methods().any(|method| method == "GET")) {
        let path = fill_in(line.path, "1", &ids);
        let Some(rest) = path.strip_prefix("/api/projects/1/") else { continue };
        let told = OPERATIONS.iter().find(|(of, own, ..)| (*of, *own) == ("GET", line.path));
        let query = told.map_or("", |(_, _, query, ..)| query).replace("PERSON", &ids["PERSON"]);
        let ask = |method: &str, path: &str| send(&server, method, &with(path, &query), &[], "");
        let answer = ask("GET", &path);
        assert!(matches!(answer.status, 200 | 400), "{path}: {answer}");
        let of = |path: &str| {
            let answer = ask("GET", path);
            let mut body = answer.json();
            strip(&mut body);
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
