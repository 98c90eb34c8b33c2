"""Compares the server's answers on flags with what the Python SDK computes itself.

    differential.py URL PROJECT_KEY PERSONAL_KEY SEED COMPARISONS CASES

Random flags and cohorts are made through the management API; the SDK loads their definitions from the
server and evaluates them locally for random persons, whose properties were captured before, come with
the question, or both; /flags and /decide must give the same value and payload for every flag that the
SDK resolves. Each round starts from other flags, and every second round compares truth values the other
way. Prints one line of JSON: what was compared, what was left open, what differs. CASES is written: the
questions of the last round with the server's answers, for differential.mjs.

Left out is what the two see differently by design (tests/server/differential.rs has it as a table):
properties that are absent, dates without an offset, pre-releases of versions, ranges and lists of texts,
and identifiers that are empty.
"""

import http.client
import json
import logging
import random
import sys
import threading
from urllib.parse import urlparse

from posthog import Posthog

url, project_key, personal_key, seed, wanted, cases = sys.argv[1:]
wanted = int(wanted)
pick = random.Random(int(seed))
address = urlparse(url).netloc
THREADS = 4
FLAGS = 60
COHORTS = 12
USERS = 900

complaints = []


class Listener(logging.Handler):
    def emit(self, record):
        complaints.append(record.getMessage())


logging.getLogger("posthog").addHandler(Listener(level=logging.WARNING))

TEXTS = ["pro", "PRO", "free", "", "a.b", "user@posthog.com", "Ärger", "ärger", "true", "False", "null", "10"]
NUMBERS = [0, 1, 2, 9, 10, 2.5, -1]
VERSIONS = ["1.2.3", "1.2", "v1.3.0", "2", "0.2.9", "0.0.3", "1.2.99", "2.0.0", "10.0.0"]
DATES = ["2001-02-03T04:05:06Z", "2091-02-03T04:05:06Z", "2001-02-03T04:05:06+02:00", "2014-06-01T00:00:00-05:00"]
JSONS = [True, False, None, [], [True], ["pro", "free"], {"a": 1}, [False, "x"]]
PATTERNS = ["^p", "o$", "^[Pp][Rr]", "[0-9]+", "a.b", "@posthog\\.com$"]
SPANS = ["-7d", "30d", "-2w", "-3m", "1y", "-48h"]
PROPERTIES = {
    "text": lambda: pick.choice(TEXTS),
    "number": lambda: pick.choice(NUMBERS + ["3", "abc"]),
    "version": lambda: pick.choice(VERSIONS),
    "date": lambda: pick.choice(DATES),
    "any": lambda: pick.choice(TEXTS + NUMBERS + JSONS),
}
SEMVER = ["eq", "neq", "gt", "gte", "lt", "lte", "tilde", "caret"]
QUESTIONS = {
    "text": [
        (["exact", "is_not"], lambda: pick.choice(TEXTS + [["pro", "free"], ["true"], []])),
        (["icontains", "not_icontains"], lambda: pick.choice(["P", "o", "Är", "@", "1"])),
        (["starts_with", "ends_with", "not_starts_with", "not_ends_with"], lambda: pick.choice(["P", "o", "M"])),
        (["regex", "not_regex"], lambda: pick.choice(PATTERNS)),
        (["is_set"], lambda: "is_set"),
    ],
    "number": [
        (["gt", "gte", "lt", "lte"], lambda: pick.choice(["0", "1", "2.5", "2", "10"])),
        (["exact", "is_not"], lambda: pick.choice([0, 1, 2.5, "2", 10])),
    ],
    "version": [
        (["semver_" + name for name in SEMVER], lambda: pick.choice(["1.2.3", "1.2.0", "0.2.3", "0.0.3", "2.0.0"])),
        (["semver_wildcard"], lambda: pick.choice(["1.2.*", "1.*", "0.2.*"])),
    ],
    "date": [(["is_date_before", "is_date_after"], lambda: pick.choice(DATES + SPANS))],
    "any": [
        (["exact", "is_not"], lambda: pick.choice(TEXTS + NUMBERS + [x for x in JSONS if x is not None])),
        (["icontains", "not_icontains"], lambda: pick.choice(["TRUE", "a", "1", '"'])),
    ],
}


def leave_out_what_node_leaves_open():
    """posthog-node knows no enrollments, takes numbers of JSON for undecided where texts are compared, orders
    texts that are no numbers, and writes lists as JavaScript does."""
    global enrollments
    enrollments = False
    QUESTIONS["number"].pop()
    QUESTIONS["any"] = [(["exact", "is_not"], lambda: pick.choice(TEXTS + [True, ["pro", "free"]]))]
    PROPERTIES["number"] = lambda: pick.choice(NUMBERS)
    PROPERTIES["any"] = lambda: pick.choice(TEXTS + [True, False])


enrollments = True
local = threading.local()


def ask(method, path, body=None, key=None):
    """One request; what it answers as JSON. Connections are kept, one for each thread."""
    headers = {"content-type": "application/json"}
    if key:
        headers["authorization"] = f"Bearer {key}"
    if not hasattr(local, "connection"):
        local.connection = http.client.HTTPConnection(address, timeout=60)
    local.connection.request(method, path, json.dumps(body) if body is not None else None, headers)
    response = local.connection.getresponse()
    text = response.read()
    if response.status >= 300:
        raise SystemExit(f"{method} {path}: {response.status} {text!r}\n{json.dumps(body)}")
    return json.loads(text)


def manage(method, path, body):
    return ask(method, f"/api/projects/@current/{path}", body, personal_key)


def property_filter(kind):
    name = pick.choice(list(QUESTIONS))
    operators, value = pick.choice(QUESTIONS[name])
    operator = pick.choice(operators)
    out = {"key": name, "value": value(), "operator": operator, "type": kind}
    if kind == "group":
        out["group_type_index"] = 0
    if operator == "exact" and pick.random() < 0.3:
        del out["operator"]
    return out


def in_cohort(cohorts, negate=True):
    out = {"key": "id", "type": "cohort", "value": pick.choice(cohorts)}
    operator = pick.choice(["in", "not_in", None]) if negate else "in"
    if operator:
        out["operator"] = operator
    return out


def make_cohort(number, cohorts):
    def leaf():
        out = in_cohort(cohorts, False) if cohorts and pick.random() < 0.2 else property_filter("person")
        if pick.random() < 0.3:
            out["negation"] = True
        return out

    def group(of, most):
        return {"type": pick.choice(["AND", "OR"]), "values": [of() for _ in range(pick.randint(1, most))]}

    rule = group(lambda: group(leaf, 3), 3) if pick.random() < 0.7 else group(leaf, 3)
    return manage("POST", "cohorts/", {"name": f"cohort {number}", "filters": {"properties": rule}})["id"]


def condition(kind, variants, cohorts):
    properties = [property_filter(kind) for _ in range(pick.choice([0, 1, 1, 1, 2]))]
    if kind == "person" and cohorts and pick.random() < 0.3:
        properties.append(in_cohort(cohorts))
    out = {"properties": properties, "rollout_percentage": pick.choice([None, 100, 100, 0, 50, 33.3, 80])}
    if variants and pick.random() < 0.3:
        out["variant"] = pick.choice(variants)
    return out


def make_flag(key, earlier, cohorts):
    kind = "group" if pick.random() < 0.2 else "person"
    variants = pick.choice([[], [], ["a", "b"], ["a", "b", "c"]])
    filters = {"groups": [condition(kind, variants, cohorts) for _ in range(pick.randint(1, 3))]}
    if kind == "group":
        filters["aggregation_group_type_index"] = 0
    if variants:
        share = pick.choice([20, 33.4, 50]) if len(variants) > 2 else pick.choice([20, 33.4, 50, 99])
        shares = [share] * (len(variants) - 1)
        shares.append(round(100 - sum(shares), 1))
        filters["multivariate"] = {
            "variants": [{"key": k, "rollout_percentage": s} for k, s in zip(variants, shares)]
        }
    if pick.random() < 0.4:
        filters["payloads"] = {k: json.dumps({"for": k}) for k in (variants or ["true"])}
    if kind == "person" and pick.random() < 0.15:
        filters["holdout"] = {"id": pick.randint(1, 99), "exclusion_percentage": pick.choice([0, 10, 50])}
    if enrollments and kind == "person" and pick.random() < 0.1:
        filters["feature_enrollment"] = True
    if pick.random() < 0.2:
        filters["early_exit"] = True
    if earlier and kind == "person" and pick.random() < 0.3:
        value = pick.choice([True, True, False, "a"])
        other = {"key": str(pick.choice(earlier)), "type": "flag", "operator": "flag_evaluates_to", "value": value}
        filters["groups"][0]["properties"].append(other)
    flag = manage("POST", "feature_flags/", {"key": key, "name": key, "filters": filters, "active": True})
    if kind == "person":
        earlier.append(flag["id"])
    return flag


def make_flags(number):
    """Replaces all flags and cohorts."""
    flags = manage("GET", "feature_flags/?limit=1000", None)["results"]
    for flag in sorted(flags, key=lambda flag: -flag["id"]):
        manage("PATCH", f"feature_flags/{flag['id']}/", {"deleted": True})
    cohorts = []
    for index in range(COHORTS):
        cohorts.append(make_cohort(f"{number}.{index}", cohorts))
    earlier, flags = [], []
    for index in range(FLAGS):
        flags.append(make_flag(f"flag-{number}-{index}", earlier, cohorts))
    needed = {
        str(part["key"])
        for flag in flags
        for group in flag["filters"]["groups"]
        for part in group["properties"]
        if part.get("type") == "flag"
    }
    for flag in flags:
        if str(flag["id"]) not in needed and pick.random() < 0.1:
            manage("PATCH", f"feature_flags/{flag['id']}/", {"active": False})
            flag["active"] = False
    return flags


def make_users(number, flags):
    """Persons, of whom the server is told something before."""
    enrollments = [f["key"] for f in flags if f["filters"].get("feature_enrollment")]
    users, events, groups = [], [], {}
    for name in ["acme", "7", "ünï"]:
        groups[name] = {key: make() for key, make in PROPERTIES.items()}
        group = {"$group_type": "organization", "$group_key": name, "$group_set": groups[name]}
        events.append({"event": "$groupidentify", "distinct_id": "somebody", "properties": group})
    for index in range(USERS):
        person = {name: make() for name, make in PROPERTIES.items()}
        for key in enrollments:
            person[f"$feature_enrollment/{key}"] = pick.choice([True, True, False, "true", "false", "TRUE"])
        user = {"distinct_id": f"user-{number}-{index}-{pick.randint(1, 10**6)}", "person": person}
        stored, supplied = {}, {}
        for name, value in person.items():
            where = pick.choice(["stored", "supplied", "both"]) if index % 3 == 0 else ["stored", "supplied"][index % 2]
            if where != "supplied":
                stored[name] = value if where == "stored" else "of before"
            if where != "stored":
                supplied[name] = value
        user["supplied"] = supplied
        if stored:
            event = {"event": "$set", "distinct_id": user["distinct_id"], "properties": {"$set": stored}}
            events.append(event)
        user["groups"], user["group_properties"], user["group"] = {}, {}, {}
        if pick.random() < 0.8:
            name = pick.choice(list(groups))
            user["groups"] = {"organization": name}
            user["group"] = {"organization": {"$group_key": name, **groups[name]}}
            if pick.random() < 0.5:
                user["group_properties"] = {"organization": groups[name]}
        users.append(user)
    ask("POST", "/batch/", {"api_key": project_key, "batch": events})
    return users


def told(user):
    """What the server says: two times a pair of value and payload for each flag."""
    body = {
        "api_key": project_key,
        "distinct_id": user["distinct_id"],
        "groups": user["groups"],
        "person_properties": user["supplied"],
        "group_properties": user["group_properties"],
        "geoip_disable": True,
    }
    flags = ask("POST", "/flags/?v=2", body)
    decide = ask("POST", "/decide/?v=3", body)
    for answer in (flags, decide):
        if answer["errorsWhileComputingFlags"]:
            raise SystemExit(f"flags failed for {json.dumps(user)}: {json.dumps(answer)}")
    by_flags = {
        key: (flag["variant"] or flag["enabled"], flag["metadata"]["payload"]) for key, flag in flags["flags"].items()
    }
    payloads = decide["featureFlagPayloads"]
    return by_flags, {key: (value, payloads.get(key)) for key, value in decide["featureFlags"].items()}


def all_told(users):
    answers = [None] * len(users)

    def work(first):
        for index in range(first, len(users), THREADS):
            answers[index] = told(users[index])

    threads = [threading.Thread(target=work, args=(first,)) for first in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if None in answers:
        raise SystemExit("not all questions were answered")
    return answers


compared = unresolved = round_number = 0
differences, values = [], {}
client = Posthog(
    project_key, host=url, secret_key=personal_key, enable_local_evaluation=False, send=False, sync_mode=True
)
complaints.clear()
while not differences and enrollments:
    if compared >= wanted:
        leave_out_what_node_leaves_open()
    manage("PATCH", "feature_flags/settings/", {"property_matching_version": 1 + round_number % 2})
    flags = make_flags(round_number)
    users = make_users(round_number, flags)
    client.load_feature_flags()
    answers = all_told(users)
    for user, both in zip(users, answers):
        result, _, _ = client._get_all_flags_and_payloads_locally(
            user["distinct_id"],
            groups=user["groups"],
            person_properties=user["person"],
            group_properties=user["group"],
        )
        sdk, payloads = result["featureFlags"], result["featureFlagPayloads"]
        for flag in flags:
            key = flag["key"]
            if key not in sdk:
                unresolved += 2
                continue
            value = sdk[key]
            expected = (value, payloads.get(key))
            # The server sends the payload with a refused enrollment too.
            told_as = (lambda told: (told[0], told[0] and told[1])) if value is False else (lambda told: told)
            values[str(value)] = values.get(str(value), 0) + 1
            for name, answer in zip(["flags", "decide"], both):
                compared += 1
                actual = answer.get(key, (False, None))
                if told_as(actual) != told_as(expected) and len(differences) < 20:
                    differences.append(
                        {"endpoint": name, "flag": flag, "user": user, "sdk": expected, "server": actual}
                    )
    round_number += 1

with open(cases, "w") as file:
    file.write(json.dumps({flag["key"]: flag["filters"] for flag in flags}) + "\n")
    for user, (by_flags, _) in zip(users, answers):
        file.write(json.dumps({"user": user, "flags": {key: list(told) for key, told in by_flags.items()}}) + "\n")

print(
    json.dumps(
        {
            "seed": int(seed),
            "rounds": round_number,
            "compared": compared,
            "unresolved": unresolved,
            "values": values,
            "differences": differences,
            "complaints": complaints,
        }
    )
)
