"""Leads the fuzzer past the doors: real ids in paths, a real token in bodies, conditions and SQL that mean something.

Schemathesis makes requests from the description alone, and nearly all of them would end at "no such flag". Here three
quarters of them are led to objects that exist, some made beforehand, the rest learned from answers.

WEIR_FUZZ_URL, WEIR_FUZZ_TOKEN, WEIR_FUZZ_KEY and WEIR_FUZZ_SEED say which server, and which run to repeat.
"""

import json
import os
import random
import re
import urllib.request

import schemathesis

URL = os.environ["WEIR_FUZZ_URL"]
KEY = os.environ["WEIR_FUZZ_KEY"]
SHARE = 0.75
KNOWN_MAX = 50

choice = random.Random(int(os.environ["WEIR_FUZZ_SEED"]))
token = os.environ["WEIR_FUZZ_TOKEN"]

FILTERS = [
    {"groups": [{"properties": [], "rollout_percentage": 100}]},
    {"groups": [{"properties": [{"key": "plan", "type": "person", "operator": "exact", "value": ["pro"]}]}]},
    {"groups": [{"properties": [{"key": "plan", "type": "person", "operator": "regex", "value": "["}]}]},
    {"groups": [{"properties": [], "rollout_percentage": 33.3}], "payloads": {"true": "{\"a\": 1}"}},
    {"groups": [{"properties": [], "variant": "a"}], "aggregation_group_type_index": 0,
     "multivariate": {"variants": [{"key": "a", "rollout_percentage": 50}, {"key": "b", "rollout_percentage": 50}]}},
    {"groups": [{"properties": [{"key": "id", "type": "cohort", "value": 1}]}], "feature_enrollment": True},
    {"groups": [{"properties": [{"key": "1", "type": "flag", "operator": "flag_evaluates_to", "value": True}]}]},
]
RULES = [
    {"properties": {"type": "OR", "values": [{"type": "AND", "values": [
        {"key": "plan", "type": "person", "operator": "exact", "value": ["pro"]}]}]}},
    {"properties": {"type": "AND", "values": []}},
    {"properties": {"type": "OR", "values": [{"key": "id", "type": "cohort", "value": 1}]}},
]
QUERIES = [
    "SELECT event, count(*) AS n FROM events GROUP BY event",
    "SELECT * FROM persons", "SELECT * FROM groups", "SELECT * FROM event_definitions",
    "SELECT 1/0", "SELECT CAST('x' AS INT)", "SELECT timestamp, properties FROM events LIMIT 2",
    "SELECT", "", "DROP TABLE events", "SELECT * FROM nothing", "SELECT 1; SELECT 2", "SELECT now(), interval '1 day'",
    "SELECT array_agg(event) FROM events", "SELECT NULL", "EXPLAIN SELECT 1", "SHOW TABLES",
]
PROPERTIES = [
    '[{"key": "plan", "value": "pro"}]', '[{"key": "plan", "operator": "is_set", "type": "person"}]',
    '{"type": "AND", "values": [{"key": "plan", "operator": "regex", "value": "("}]}', "[", "[]", "{}", "[1]",
    '[{"key": "$browser", "operator": "gt", "value": "7", "type": "event"}]', '[{"key": "id", "type": "cohort", "value": 1}]',
]

PAYLOADS = [
    {"operation": "update_status", "value": False}, {"operation": "update_status", "value": True},
    {"operation": "add_release_condition", "value": FILTERS[1]}, {"operation": "add_release_condition", "value": FILTERS[2]},
    {"operation": "update_variants", "value": {"variants": FILTERS[4]["multivariate"]["variants"]}},
    {"operation": "update_status", "value": "on"}, {"operation": "delete", "value": 1}, [],
]
TIMES = [
    "2020-01-01T00:00:00Z", "2031-02-28T23:59:59+05:30", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "1969-07-20", "never",
]

EVENTS = [
    {"event": "order", "distinct_id": "user-1", "properties": {"plan": "free", "$set": {"plan": "pro"}}},
    {"event": "$identify", "distinct_id": "user-9", "properties": {"$anon_distinct_id": "anon-9"}},
    {"event": "$merge_dangerously", "distinct_id": "user-2", "properties": {"alias": "user-3"}},
    {"event": "$create_alias", "distinct_id": "user-4", "properties": {"alias": 7}},
    {"event": "order", "distinct_id": "", "timestamp": "never"}, {"distinct_id": "user-5"}, {"event": 5, "distinct_id": {}},
    {"event": "$set", "distinct_id": "user-6", "properties": {"$unset": ["plan"], "$set_once": {"a": None}}},
    {"event": "$groupidentify", "distinct_id": "user-6", "properties": {"$group_type": "team", "$group_key": "a"}},
    {"event": "old", "distinct_id": "user-7", "timestamp": "1870-01-01T00:00:00Z", "properties": {"$ip": "::1", "x": 1e300}},
    {"event": "$feature_flag_called", "distinct_id": "user-7", "properties": {"$feature_flag": "flag-0"}},
]
CAPTURE = {"/capture", "/batch", "/engage", "/e", "/track", "/i/v0/e", "/i/v0/ai/batch", "/s"}

# What is sent instead of a body, or beside it.
BODIES = [
    b"{\"a\": ", b"[]", b"{}", b"\"text\"", b"null", b"\xff\xfe", b" ", b"[" * 3000, b"{\"a\":" * 200, b"{\"key\": 1e999}",
    b"{\"name\": \"\\ud800\"}", b"{\"key\": \"\\u0000\"}", b"{\"distinct_id\": \"" + b"x" * 70_000 + b"\"}",
    b"{\"name\": \"" + b"x" * 3_000_000 + b"\"}",
]
HEADERS = [
    {"Accept": "text/html"}, {"Accept": "text/csv"}, {"Accept": "image/png, */*;q=0.1"}, {"Accept": ";,;"},
    {"Content-Type": "text/plain"}, {"Content-Type": "application/xml; a=b"}, {"Content-Type": "application/json; charset=x"},
    {"Content-Encoding": "gzip"}, {"Content-Encoding": "br"}, {"Content-Encoding": "zstd"}, {"Content-Encoding": "nonsense"},
    {"Origin": "https://example.com"}, {"If-None-Match": "*"}, {"X-Forwarded-For": "nobody"}, {"X-Forwarded-Proto": "https"},
]


def ask(method, path, body=None):
    """The JSON that the server answers to one request with the key."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    request = urllib.request.Request(URL + path, data, headers, method=method)
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read() or b"null")


def furnish():
    """Makes one or more of everything that has an id."""
    for number in range(8):
        properties = {"plan": "pro" if number % 2 else "free", "n": number, "$set": {"plan": "pro", "n": number}}
        batch = [
            {"event": "order", "distinct_id": f"user-{number}", "properties": properties},
            {"event": "$pageview", "distinct_id": f"user-{number}", "properties": {"$groups": {"company": "acme"}}},
            {"event": "$groupidentify", "distinct_id": f"user-{number}", "properties": {
                "$group_type": "company", "$group_key": "acme", "$group_set": {"size": number}}},
        ]
        ask("POST", "/batch/", {"api_key": token, "batch": batch})
    ask("POST", "/batch/", {"api_key": token, "batch": [
        {"event": "$create_alias", "distinct_id": "user-1", "properties": {"alias": "alias-1"}}]})
    project = "/api/projects/1"
    role = ask("POST", "/api/organizations/@current/roles/", {"name": "editors"})
    me = ask("GET", "/api/users/@me/")
    ask("POST", f"/api/organizations/@current/roles/{role['id']}/role_memberships/", {"user_uuid": me["uuid"]})
    ask("POST", f"{project}/cohorts/", {"name": "pro", "filters": RULES[0]})
    ask("POST", f"{project}/cohorts/", {"name": "list", "is_static": True, "distinct_ids": ["user-1"]})
    for number, filters in enumerate(FILTERS[:2] + FILTERS[3:6]):
        flag = ask("POST", f"{project}/feature_flags/", {"key": f"flag-{number}", "filters": filters})
        ask("PATCH", f"{project}/feature_flags/{flag['id']}/", {"name": "second", "is_remote_configuration": number == 2})
        ask("POST", f"{project}/feature_flags/{flag['id']}/role_access/", {"role_id": role["id"]})
        ask("POST", f"{project}/scheduled_changes/", {
            "record_id": str(flag["id"]), "model_name": "FeatureFlag", "payload": PAYLOADS[number % 2],
            "scheduled_at": "2090-01-01T00:00:00Z", "is_recurring": number == 1,
            "recurrence_interval": "monthly" if number == 1 else None})
    ask("POST", "/api/personal_api_keys/", {"label": "other", "scopes": ["person:read"]})
    ask("POST", "/api/organizations/@current/members/", {"email": "other@example.com"})
    ask("POST", "/api/projects/", {"name": "Other"})


furnish()
LESSER_KEY = ask("POST", "/api/personal_api_keys/", {"label": "lesser", "scopes": ["group:read"]})["value"]
OWN_KEY = ask("GET", "/api/personal_api_keys/@current/")["id"]
ME = ask("GET", "/api/users/@me/")["uuid"]

# What may stand in a place of a path, by what is before it.
known = {
    "projects": ["1", "1", "@current"], "organizations": ["@current"], "users": ["@me", ME], "array": [token],
    "versions": ["1", "2"], "static": ["array.js", "1.2"], "flags": ["flag-0", "flag-1", "a b"],
}
for name, path in {
    "feature_flags": "/api/projects/1/feature_flags/", "cohorts": "/api/projects/1/cohorts/",
    "persons": "/api/projects/1/persons/", "events": "/api/projects/1/events/",
    "event_definitions": "/api/projects/1/event_definitions/",
    "property_definitions": "/api/projects/1/property_definitions/",
    "scheduled_changes": "/api/projects/1/scheduled_changes/",
    "roles": "/api/organizations/@current/roles/", "members": "/api/organizations/@current/members/",
    "personal_api_keys": "/api/personal_api_keys/",
}.items():
    results = ask("GET", path)["results"]
    known.setdefault(name, []).extend(str(item["id"]) for item in results)
    known[name].extend(item["uuid"] for item in results if name == "persons")

# Persons and definitions that may be deleted, so that the others stay; a role that may not.
VICTIMS = known["persons"][:4]
FORGOTTEN = {name: known[name][:2] for name in ("event_definitions", "property_definitions")}
ROLE = known["roles"][0]

# What is known of the second id of a path goes with the first.
pairs = {"role_access": [], "role_memberships": []}
for owners, name in (("/api/projects/1/feature_flags", "role_access"),
                     ("/api/organizations/@current/roles", "role_memberships")):
    for owner in known[owners.rsplit("/", 1)[1]]:
        results = ask("GET", f"{owners}/{owner}/{name}/")["results"]
        pairs[name].extend((owner, str(item["id"])) for item in results)


# Projects to delete.
PROJECTS = {"/api/projects/{project}/": "project", "/api/organizations/{organization}/projects/{id}/": "id"}
doomed = [str(ask("POST", "/api/projects/", {"name": f"doomed {number}"})["id"]) for number in range(9)]


def is_suicide(method, path, value):
    """Whether the fuzzer would take its own key or its own rights away."""
    is_own = path.startswith("/api/personal_api_keys/") and value in (str(OWN_KEY), "@current")
    is_own |= path.endswith("/members/{uuid}/") and value.lower() in (ME, "@me")
    return method != "GET" and is_own


def lead_path(case):
    path, values = case.operation.path, case.path_parameters
    for before, name in re.findall(r"(\w+)/\{(\w+)\}", path):
        if name in values and choice.random() < SHARE and known.get(before):
            values[name] = choice.choice(known[before])
        if name in values and is_suicide(case.method, path, str(values[name])):
            values[name] = "999999999"
        if before in pairs and pairs[before] and choice.random() < SHARE:
            values["id"], values[name] = pairs[before].pop() if case.method == "DELETE" else choice.choice(pairs[before])
    if case.method == "DELETE" and path.endswith("/persons/{id}/") or path.endswith("/delete_events/"):
        values["id"] = choice.choice(VICTIMS)
    for name, victims in FORGOTTEN.items():
        if case.method == "DELETE" and path.endswith(f"/{name}/{{id}}/"):
            values["id"] = choice.choice(victims)
    if case.method == "DELETE" and path.endswith("/roles/{id}/") and values["id"] == ROLE:
        values["id"] = choice.choice(known["roles"][1:] or ["0"])


def lead_query(case):
    query = case.query
    if "token" in query and not case.operation.path.startswith("/i/v1/") and choice.random() < SHARE:
        query["token"] = token
    for name, values in {
        "properties": PROPERTIES, "events": ['[{"id": "order"}]', "{}", "[7]"], "group_type_index": ["0", "1", "4"], "key": ["plan", "size", "n"],
        "distinct_id": ["user-1", "user-7"], "person_id": known["persons"], "group_key": ["acme"],
        "person_uuid": known["persons"], "event_names": [["order"], ["order", "$pageview", "nothing"], ['["order"]'], ["[7]"]],
        "property_name": ["plan", "n"], "record_id": known["feature_flags"], "team_ids": ["1", "1,2", "x"],
        "current_team_id": ["2"], "excluded_properties": ['["flag-0", "order"]', "order", "[7]"],
        "after": ["-7d", "2020-01-01", "all"], "name": ["order"], "limit": ["1", "2"], "select": ['["*", "properties.plan"]'],
        "data": [json.dumps({"api_key": token, "event": "pixel", "distinct_id": "user-3"})],
    }.items():
        if name in query and choice.random() < SHARE:
            query[name] = choice.choice(values)


def lead_capture(case):
    """Bodies that are taken: nearly all made from the description lack a token that counts."""
    if choice.random() > SHARE:
        return
    events = choice.sample(EVENTS, choice.randrange(1, 4))
    single = {"api_key": token, **events[0]}
    if case.media_type == "application/x-www-form-urlencoded":
        case.body = {"data": json.dumps(single)}
    elif case.media_type == "text/plain":
        case.body = json.dumps([single])
    elif isinstance(case.body, dict):
        case.body["api_key"] = token
        if choice.random() < 0.5:
            case.body = {"api_key": token, "batch": events, "historical_migration": choice.random() < 0.2}


def lead_body(case):
    if case.operation.path in CAPTURE and case.method == "POST":
        lead_capture(case)
    body = case.body
    if isinstance(body, list):
        body = next((item for item in body if isinstance(item, dict)), None)
    if not isinstance(body, dict):
        return
    path = case.operation.path
    if "api_key" in body and choice.random() < SHARE:
        body["api_key"] = token
    for name, values in {
        "filters": RULES if "/cohorts/" in path else FILTERS, "query": QUERIES, "condition": [item["groups"][0] for item in FILTERS],
        "ids": [VICTIMS[1::2]] if "/persons/" in path else [[1], [2, 3]], "distinct_ids": [["user-6"], ["user-7", "nobody"]], "distinct_id": ["user-4"],
        "person_id": known["persons"][-2:], "main_distinct_id": ["user-1", "alias-1"], "user_uuid": [ME],
        "role_id": known["roles"], "scoped_teams": [[1]], "scopes": [["person:read"], ["*"]], "timezone": ["Europe/Berlin"],
        "set_current_team": [1], "feature_flag_key": ["flag-0"], "from_project": [1], "target_project_ids": [[1, 2], [2]],
        "payload": PAYLOADS, "scheduled_at": TIMES, "end_date": TIMES, "record_id": known["feature_flags"],
        "model_name": ["FeatureFlag"], "cron_expression": ["0 9 * * 1-5", "* * * * *", "0 0 30 2 *", "x", None],
        "$unset": ["plan", "n", "nothing"], "tags": [["a", "B "], [], ["a", "a"]], "action": ["add", "remove", "set"],
        "distinct_ids_to_split": [["alias-1"], ["user-1"], ["nobody"], []],
        "key": [f"key-{choice.randrange(1000)}"], "test_account_filters": [json.loads(PROPERTIES[0])],
    }.items():
        if name in body and choice.random() < 0.5:
            body[name] = choice.choice(values)


def spoil(case, kwargs):
    """Sends what the description cannot say: broken bodies, other media types, a key that may nearly nothing."""
    kind = choice.random()
    if kind < 0.05 and case.method not in ("GET", "HEAD"):
        kwargs["data"] = choice.choice(BODIES)
        case.headers["Content-Type"] = "application/json"
    elif kind < 0.12:
        case.headers.update(choice.choice(HEADERS))
    elif kind < 0.17 and case.headers.get("Authorization") == f"Bearer {KEY}":
        case.headers["Authorization"] = f"Bearer {LESSER_KEY}"


@schemathesis.hook
def before_call(context, case, kwargs):
    spoil(case, kwargs)
    lead_path(case)
    lead_query(case)
    lead_body(case)
    if case.operation.path == "/api/projects/{project}/reset_token/":
        # Of another project: the token of this one is known to all.
        case.path_parameters["project"] = "2"
    if case.method == "DELETE" and case.operation.path in PROJECTS:
        # Projects that nothing else is asked about, and one that is not there.
        case.path_parameters[PROJECTS[case.operation.path]] = doomed.pop() if doomed else "999999999"


@schemathesis.hook
def after_call(context, case, response):
    if case.method != "POST" or response.status_code != 201:
        return
    name = case.operation.path.rstrip("/").rsplit("/", 1)[-1]
    try:
        made = json.loads(response.content)
    except ValueError:  # CSV
        return
    # Another project's objects are not found in this one.
    if "id" not in made or name == "projects" or case.path_parameters.get("project", "1") not in ("1", "@current"):
        return
    if name in pairs:
        pairs[name].append((str(case.path_parameters["id"]), str(made["id"])))
    elif len(known.get(name, [])) < KNOWN_MAX:
        known.setdefault(name, []).append(str(made["id"]))
