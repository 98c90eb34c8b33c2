"""Drives the `posthog` package of the environment it runs in against a server.

    python.py URL PROJECT_KEY WHO GZIP

Says on standard output, one JSON object a line, what the server should know afterwards: `event`
(as given to the SDK; no uuid where the SDK takes none), `person`, `group`, and `flag` (what the
server answered). WHO is in every id, so that many drivers can share a server; it is also the seed.
Fails if the SDK reports or logs anything above the level INFO. Current and old majors take the same calls.
"""

import datetime
import json
import logging
import sys
import uuid
import warnings

from posthog import Posthog

# Of calls that are still the ones that users make.
warnings.simplefilter("ignore", DeprecationWarning)

URL, KEY, WHO, GZIP = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4] == "gzip"
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


def event_id(number):
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{WHO}/{number}"))


def failed(error, batch):
    complaints.append(f"on_error: {error!r}, {len(batch or [])} events")


ph = Posthog(KEY, host=URL, gzip=GZIP, flush_at=40, flush_interval=0.1, on_error=failed, max_retries=0)

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
    user = f"{WHO}-user-{number % USERS}"
    properties = {"number": number, "who": WHO}
    properties.update(values if number % 3 == 0 else {"pad": "x" * (number * 50)})
    given = {"uuid": event_id(number), "event": "ordinary", "distinct_id": user}
    more, said = {}, {}
    if number % 2 == 0:
        more["timestamp"] = moment + datetime.timedelta(days=number)
        said["timestamp"] = more["timestamp"].isoformat()
    if number % 5 == 0:
        more["groups"] = {"company": f"{WHO}-acme"}
        said["group_0"] = f"{WHO}-acme"
    ph.capture(properties=properties, **given, **more)
    say("event", properties=properties, **given, **said)

# Values that are no JSON, and what the SDK makes of them.
day = datetime.date(2026, 5, 6)
given = {"uuid": event_id("dates"), "event": "dates", "distinct_id": f"{WHO}-user-0"}
ph.capture(properties={"at": moment, "day": day, "id": uuid.UUID(int=5)}, **given)
properties = {"at": moment.isoformat(), "day": day.isoformat(), "id": str(uuid.UUID(int=5))}
say("event", properties=properties, **given)

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

# `alias` joins the person with the one who came without a name.
anonymous = f"{WHO}-anonymous"
given = {"uuid": event_id("before"), "event": "before alias", "distinct_id": anonymous}
ph.capture(properties={"step": 1}, **given)
say("event", properties={"step": 1}, **given)
ph.alias(previous_id=anonymous, distinct_id=person)
say("event", event="$create_alias", distinct_id=anonymous, properties={"alias": person})
say(
    "person",
    distinct_ids=[anonymous, person],
    properties={
        "first": 1,
        "plan": "pro",
        "email": f"{WHO}@shop.example",
        "age": 42,
        "address": {"city": "Bern"},
    },
)

id = event_id("group")
properties = {"name": "Acme", "size": 7, "tags": ["a", "b"]}
ph.group_identify("company", f"{WHO}-acme", properties, uuid=id, distinct_id=person)
given = {"$group_type": "company", "$group_key": f"{WHO}-acme", "$group_set": properties}
say("event", uuid=id, event="$groupidentify", distinct_id=person, properties=given)
say("group", group_type="company", key=f"{WHO}-acme", properties=properties)

# The server knows the e-mail address only from the events above.
ph.flush()
for key, distinct_id in [
    ("everyone", person),
    ("nobody", person),
    ("colour", person),
    ("by-email", person),
    ("by-email", f"{WHO}-user-0"),
]:
    value = ph.get_feature_flag(key, distinct_id)
    say("flag", key=key, distinct_id=distinct_id, value=value)
    say(
        "event",
        event="$feature_flag_called",
        distinct_id=distinct_id,
        properties={"$feature_flag": key, "$feature_flag_response": value},
    )
payload = ph.get_feature_flag_payload("colour", person)
say("payload", value=json.loads(payload) if isinstance(payload, str) else payload)

ph.flush()
ph.shutdown()
if complaints:
    sys.exit("the SDK complains:\n" + "\n".join(complaints))
