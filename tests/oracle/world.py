"""Random histories: events of two projects, sent in random order and batches, with merged persons.

`Project` makes the events and says whose they are by the rules of identification, which it follows on its own
([`People`]). It sends them to a server over HTTP.
"""

import datetime
import json
import uuid

IDS = 30
NAMES = ["view", "view", "buy", "sign up", "leave/", "$pageview", "$pageview", "$screen"]
URLS = ["https://x/", "https://x/a", "https://x/a/", "https://x/b/1", "https://x/b/2/", "/", ""]
BROWSERS = [None, None, "", "Chrome", "Firefox", "Safari", "Edge", 7, True]
HOUR = 3_600_000_000
DAY = 24 * HOUR

# Spans of time in which clocks change, and when they do.
SEASONS = [
    (
        datetime.date(2025, 2, 20),
        datetime.date(2025, 5, 5),
        {
            "Europe/Berlin": "2025-03-30T01:00", "America/New_York": "2025-03-09T07:00", "Asia/Beirut": "2025-03-29T22:00",
            "America/Santiago": "2025-04-06T03:00", "America/Havana": "2025-03-09T05:00",
            "Pacific/Auckland": "2025-04-05T14:00",
        },
    ),
    (
        datetime.date(2025, 9, 1),
        datetime.date(2025, 11, 20),
        {
            "Europe/Berlin": "2025-10-26T01:00", "America/New_York": "2025-11-02T06:00", "Asia/Beirut": "2025-10-25T21:00",
            "America/Santiago": "2025-09-07T04:00", "America/Havana": "2025-11-02T05:00",
            "Pacific/Auckland": "2025-09-27T14:00",
        },
    ),
]


def micros(text):
    time = datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.timezone.utc)
    return round(time.timestamp()) * 1_000_000


class Person:
    def __init__(self, number, created):
        self.number, self.created, self.is_identified, self.tier = number, created, False, None


class People:
    """Who is who, by what was sent so far."""

    def __init__(self):
        self.of = {}
        self.count = 0

    def create(self, at):
        self.count += 1
        return Person(self.count, at)

    def take(self, event):
        own, at, properties = event["distinct_id"], event["at"], event["properties"]
        if properties.get("$process_person_profile") is False:
            return
        key = {"$identify": "$anon_distinct_id", "$create_alias": "alias", "$merge_dangerously": "alias"}
        other = properties.get(key.get(event["event"]), own)
        one, two = self.of.get(own), self.of.get(other)
        person = one or two or self.create(at)
        if one and two and one is not two:
            if not two.is_identified or event["event"] == "$merge_dangerously":
                one.created, one.tier = min(one.created, two.created), one.tier or two.tier
                self.of.update({distinct_id: one for distinct_id, of in self.of.items() if of is two})
        else:
            self.of[own] = self.of[other] = person
        person.is_identified |= other != own
        person.tier = properties.get("$set", {}).get("tier", person.tier)


class Project:
    def __init__(self, pick, season, size):
        self.pick, self.people, self.events = pick, People(), []
        self.first, self.last, changes = season
        self.changes = {zone: micros(change) for zone, change in changes.items()}
        self.since = micros(f"{self.first}T00:00")
        self.until = micros(f"{self.last}T00:00")
        while len(self.events) < size:
            self.add_session() if pick.random() < 0.2 else self.events.append(self.event(self.time()))
        self.add_merges(size // 40)

    def change(self, pick, zone=None):
        """When clocks change: mostly those of the zone, if they do."""
        own = self.changes.get(zone) if pick.random() < 0.8 else None
        return own or pick.choice(list(self.changes.values()))

    def time(self):
        pick = self.pick
        if pick.random() < 0.4:
            time = self.change(pick) + pick.randrange(-30, 30) * HOUR
            return time + pick.choice([0, 0, -1000, 1000, pick.randrange(0, 3600) * 1_000_000])
        time = pick.randrange(self.since, self.until) // 1000 * 1000
        return time // HOUR * HOUR if pick.random() < 0.3 else time

    def id(self):
        """Some are much busier than others."""
        return f"d{int(IDS * self.pick.random() ** 1.5)}"

    def event(self, at, distinct_id=None, name=None):
        pick = self.pick
        name = name or pick.choice(NAMES)
        properties = {"plan": pick.choice(["free", "pro"])}
        browser = pick.choice(BROWSERS)
        if browser is not None:
            properties["$browser"] = browser
        if pick.random() < 0.8:
            number = pick.randrange(0, 2000) / 2
            properties["price"] = pick.choice([number, number, int(number), str(number), "free", None])
        if pick.random() < 0.7:
            # No session is longer than a day.
            properties["$session_id"] = pick.choice([f"{at // DAY} s{pick.randrange(3)}", f"{at // HOUR} s", ""])
        if name == "$pageview" and pick.random() < 0.95:
            properties["$current_url"] = pick.choice(URLS)
        if name == "$screen" and pick.random() < 0.95:
            properties["$screen_name"] = pick.choice(["Home", "Shop/", "buy"])
        if pick.random() < 0.5:
            properties["$groups"] = {"company": f"c{pick.randrange(5)}"}
        if pick.random() < 0.15:
            properties["$set"] = {"tier": pick.choice(["gold", "silver"])}
        distinct_id = distinct_id or self.id()
        # Some ids never have a person, others now and then not.
        if distinct_id in ("d3", "d20") or pick.random() < 0.05:
            properties["$process_person_profile"] = False
            properties.pop("$set", None)
        return self.made(name, distinct_id, at, properties)

    def made(self, name, distinct_id, at, properties):
        text = str(uuid.UUID(int=self.pick.getrandbits(128), version=4))
        return {"event": name, "distinct_id": distinct_id, "at": at, "uuid": text, "properties": properties}

    def add_session(self):
        """Events of one person with short pauses."""
        at, distinct_id = self.time(), self.id()
        for _ in range(self.pick.randrange(2, 12)):
            self.events.append(self.event(at, distinct_id))
            at += self.pick.choice([0, 0, 5, 10, 29, 30, 31]) * 60_000_000

    def add_merges(self, count):
        pick = self.pick
        for _ in range(count):
            name = pick.choice(["$identify", "$identify", "$identify", "$create_alias", "$merge_dangerously"])
            key = "$anon_distinct_id" if name == "$identify" else "alias"
            # Some are of ids without events.
            properties = {key: pick.choice([self.id(), f"d{IDS + pick.randrange(5)}"])}
            if pick.random() < 0.5:
                properties["$set"] = {"tier": pick.choice(["gold", "bronze"])}
            self.events.append(self.made(name, self.id(), self.time(), properties))
            if pick.random() < 0.5:
                self.events.append(self.made("$set", self.id(), self.time(), {"$set": {"tier": "gold"}}))

    def batches(self):
        """In a random order, with what is sent twice."""
        pick = self.pick
        sent = self.events + pick.sample(self.events, len(self.events) // 30)
        pick.shuffle(sent)
        while sent:
            count = pick.choice([1, 2, 5, 20, 60, 200])
            yield sent[:count]
            sent = sent[count:]

    def send(self, post, token, between):
        """Sends all events in batches, and does something between them."""
        for batch in self.batches():
            body = {"api_key": token, "batch": [self.written(event) for event in batch]}
            post("/batch/", body)
            for event in batch:
                self.people.take(event)
            between()

    def written(self, event):
        at = event["at"]
        zone = datetime.timezone(datetime.timedelta(hours=self.pick.choice([0, 0, 2, -7])))
        time = datetime.datetime.fromtimestamp(at // 1_000_000, zone).replace(microsecond=at % 1_000_000)
        written = {name: event[name] for name in ("event", "distinct_id", "uuid", "properties")}
        return {**json.loads(json.dumps(written)), "timestamp": time.isoformat()}

    def owners(self):
        """Rows of a distinct id, its person, when that was created, and its tier; without a person it is on its own."""
        for distinct_id in {event["distinct_id"] for event in self.events}:
            person = self.people.of.get(distinct_id)
            if person:
                yield distinct_id, f"p{person.number}", person.created, person.tier
            else:
                yield distinct_id, f"alone {distinct_id}", None, None
