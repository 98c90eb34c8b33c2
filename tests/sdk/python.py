"""Drives the `posthog` package of the environment it runs in against a server.

    python.py URL PROJECT_KEY WHO plain|gzip|v1-none|v1-gzip|v1-deflate|v1-zstd

Says on standard output, one JSON object a line, what the server should know afterwards:

    lib      what the SDK calls itself, in every event
    event    as given to the SDK: no uuid where the SDK takes none, no distinct id where it makes one
    person   distinct ids and properties; `absent` are properties that it has not
    nobody   a distinct id without a person
    group    type, key and properties
    flag     what the server answered for one flag; `flags`: for all of them; `payload`: that of `colour`

WHO is in every id, so that many drivers can share a server; it is also the seed. Fails if the SDK
reports or logs anything above the level INFO. All majors take most calls in the same form.
"""

import datetime
import json
import logging
import sys
import uuid
import warnings

import posthog
from posthog import Posthog
from posthog.version import VERSION

# Of calls that are still the ones that users make.
warnings.simplefilter("ignore", DeprecationWarning)

URL, KEY, WHO, CODING = sys.argv[1:]
MAJOR = int(VERSION.split(".")[0])
EVENTS = 150
USERS = 10

complaints = []


class Complaints(logging.Handler):
    def emit(self, record):
        complaints.append(record.getMessage())


logging.getLogger("posthog").addHandler(Complaints(level=logging.WARNING))
logging.getLogger("backoff").addHandler(Complaints(level=logging.WARNING))


def say(kind, **what):
    print(json.dumps({"kind": kind, **what}))


def event_id(name):
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{WHO}/{name}"))


def failed(error, batch):
    complaints.append(f"on_error: {error!r}, {len(batch or [])} events")


def client(**more):
    options = {"gzip": CODING == "gzip", "on_error": failed, "max_retries": 0}
    if CODING.startswith("v1-"):
        # Of two ways to choose the protocol the variable POSTHOG_CAPTURE_MODE is the other.
        options["capture_compression"] = CODING.removeprefix("v1-")
    return Posthog(KEY, host=URL, **options, **more)


def capture(id, event, distinct_id, properties, **more):
    """Captures an event with an id of ours and says so; every major understands this call."""
    given = {"uuid": event_id(id), "event": event, "distinct_id": distinct_id}
    said = {}
    if "timestamp" in more:
        said["timestamp"] = more["timestamp"].isoformat()
    if "groups" in more:
        said["group_0"] = more["groups"]["company"]
        said["properties"] = {**properties, "$groups": more["groups"]}
    # A copy: old majors write into what they are given.
    ph.capture(properties=dict(properties), **given, **more)
    say("event", **{"properties": properties, **given, **said})


ph = client(flush_at=40, flush_interval=0.1)
say("lib", name="posthog-python", version=VERSION)

values = {
    "text": "naïve \"quoted\" \\ \u2028 😀",
    "empty": "",
    "integer": -42,
    "large": 2**63,
    "larger": 10**25,
    "float": 0.1,
    "exponent": 1e-7,
    "true": True,
    "false": False,
    "nothing": None,
    "list": [1, "two", [3.5, None], {}],
    "object": {"a": {"b": {"c": [True]}}, "": 0},
    "$current_url": "https://shop.example/cart?x=1#y",
    "$screen_width": 1440,
}
moment = datetime.datetime(2026, 2, 3, 4, 5, 6, 789000, tzinfo=datetime.timezone.utc)

for number in range(EVENTS):
    properties = {"number": number, "who": WHO}
    properties.update(values if number % 3 == 0 else {"pad": "x" * (number * 50)})
    more = {}
    if number % 2 == 0:
        more["timestamp"] = moment - datetime.timedelta(days=number)
    if number % 5 == 0:
        more["groups"] = {"company": f"{WHO}-acme"}
    capture(number, "ordinary", f"{WHO}-user-{number % USERS}", properties, **more)

user = f"{WHO}-user-0"

# Values that are no JSON, and what the SDK makes of them.
day = datetime.date(2026, 5, 6)
given = {"uuid": event_id("dates"), "event": "dates", "distinct_id": user}
ph.capture(properties={"at": moment, "day": day, "id": uuid.UUID(int=5)}, **given)
properties = {"at": moment.isoformat(), "day": day.isoformat(), "id": str(uuid.UUID(int=5))}
say("event", properties=properties, **given)

# Properties that capture v1 carries outside of the properties.
capture("session", "in a session", user, {"$session_id": event_id("a session"), "$window_id": event_id("a window")})
capture("nobody", "without a person", f"{WHO}-nobody", {"$process_person_profile": False, "step": 0})
say("nobody", distinct_id=f"{WHO}-nobody")

# Without a distinct id, a new one and no person.
if MAJOR >= 6:
    id = event_id("anybody")
    ph.capture("of anybody", uuid=id, properties={"step": 0})
    say("event", uuid=id, event="of anybody", properties={"step": 0, "$process_person_profile": False})

# What is set first stays where it was set once; what is set last wins elsewhere.
person = f"{WHO}-member"
for number, (kind, properties) in enumerate([
    ("set_once", {"first": 1, "plan": "free"}),
    ("set", {"email": f"{WHO}@shop.example", "age": 41, "address": {"city": "Bern"}}),
    ("set_once", {"first": 2, "age": 7}),
    ("set", {"age": 42, "plan": "pro"}),
]):
    id = event_id(f"{kind} {number}")
    getattr(ph, kind)(distinct_id=person, properties=properties, uuid=id)
    say("event", uuid=id, event=f"${kind}", distinct_id=person, properties={f"${kind}": properties})

# A call that newer majors do without.
if MAJOR < 6:
    id = event_id("identify")
    ph.identify(person, {"identified": True}, uuid=id)
    say("event", uuid=id, event="$identify", distinct_id=person, properties={"$set": {"identified": True}})
    id = event_id("page")
    ph.page(person, "https://shop.example/", {"step": 1}, uuid=id)
    properties = {"step": 1, "$current_url": "https://shop.example/"}
    say("event", uuid=id, event="$pageview", distinct_id=person, properties=properties)

# `alias` joins the person with the one who came without a name.
anonymous = f"{WHO}-anonymous"
capture("before", "before alias", anonymous, {"step": 1})
ph.alias(previous_id=anonymous, distinct_id=person)
properties = {"distinct_id": anonymous, "alias": person}
say("event", event="$create_alias", distinct_id=anonymous, properties=properties)
capture("unset", "$set", person, {"$set": {"nickname": "ada"}})
capture("unset again", "later", person, {"$unset": ["nickname"], "$set": {"seen": 1}, "$set_once": {"seen": 2}})
say(
    "person",
    distinct_ids=[anonymous, person],
    properties={
        "first": 1,
        "plan": "pro",
        "email": f"{WHO}@shop.example",
        "age": 42,
        "address": {"city": "Bern"},
        "seen": 1,
        **({"identified": True} if MAJOR < 6 else {}),
    },
    absent=["nickname"],
)

id = event_id("group")
properties = {"name": "Acme", "size": 7, "tags": ["a", "b"]}
given = {"$group_type": "company", "$group_key": f"{WHO}-acme", "$group_set": properties}
if MAJOR == 2:
    ph.group_identify("company", f"{WHO}-acme", properties, uuid=id)
    say("event", uuid=id, event="$groupidentify", distinct_id=f"$company_{WHO}-acme", properties=given)
else:
    ph.group_identify("company", f"{WHO}-acme", properties, uuid=id, distinct_id=person)
    say("event", uuid=id, event="$groupidentify", distinct_id=person, properties=given)
say("group", group_type="company", key=f"{WHO}-acme", properties=properties)

if MAJOR >= 3:
    id = event_id("exception")
    try:
        values["no such key"]
    except KeyError as error:
        ph.capture_exception(error, distinct_id=user, properties={"step": "failing"}, uuid=id)
    say("event", uuid=id, event="$exception", distinct_id=user, properties={"step": "failing"})

# An address of their own for events about language models.
if MAJOR >= 7:
    id = event_id("ai")
    properties = {"$ai_model": "none", "$ai_input": [{"role": "user", "content": "hello"}], "$ai_input_tokens": 1}
    ph.capture_ai("$ai_generation", distinct_id=user, properties=properties, uuid=id)
    say("event", uuid=id, event="$ai_generation", distinct_id=user, properties=properties)

# The server knows the e-mail address and the group only from the events above.
ph.flush()
company = {"company": f"{WHO}-acme"}
for key, distinct_id, groups in [
    ("everyone", person, None),
    ("nobody", person, None),
    ("colour", person, None),
    ("by-email", person, None),
    ("by-email", user, None),
    ("by-group", person, company),
]:
    given = {"groups": groups} if groups else {}
    value = ph.get_feature_flag(key, distinct_id, **given)
    say("flag", key=key, distinct_id=distinct_id, value=value)
    said = {"properties": {"$feature_flag": key, "$feature_flag_response": value}}
    if groups:
        said["properties"]["$groups"] = groups
        said["group_0"] = groups["company"]
    say("event", event="$feature_flag_called", distinct_id=distinct_id, **said)
    if ph.feature_enabled(key, distinct_id, **given) is not bool(value):
        complaints.append(f"feature_enabled of {key}")
# The first major would report a flag that it has not asked for.
given = {"match_value": "blue"} if MAJOR == 2 else {}
payload = ph.get_feature_flag_payload("colour", person, **given)
say("payload", value=json.loads(payload) if isinstance(payload, str) else payload)
say("flags", distinct_id=person, values=ph.get_all_flags(person, groups=company))

# The SDK asks for the flags of the person and writes them into the event.
flags = {"everyone": True, "colour": "blue", "by-email": True, "by-group": True}
properties = {f"$feature/{key}": value for key, value in flags.items()}
if MAJOR > 2:
    properties["$feature/nobody"] = False
given = {"uuid": event_id("flags"), "event": "with flags", "distinct_id": person}
ph.capture(properties={"step": 2}, groups=company, send_feature_flags=True, **given)
properties.update({"step": 2, "$groups": company})
unordered = {"$active_feature_flags": sorted(flags)}
say("event", properties=properties, unordered=unordered, group_0=company["company"], **given)

ph.flush()
ph.shutdown()

# A client that sends within the call; and one that marks what it sends as old.
ph = client(sync_mode=True)
capture("synchronous", "synchronous", user, {"step": 3})
if MAJOR >= 3:
    ph = client(historical_migration=True)
    for number in range(3):
        at = datetime.datetime(2020, 9, 13, 12, 26, 40 + number, tzinfo=datetime.timezone.utc)
        capture(f"historical {number}", "historical", user, {"number": number}, timestamp=at)
    ph.shutdown()

if complaints:
    sys.exit("the SDK complains:\n" + "\n".join(complaints))
