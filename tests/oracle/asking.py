"""What the questions of all kinds have in common: the settings of a project, ranges of dates, events, and their SQL."""

import datetime

NULL = "$$_posthog_breakdown_null_$$"
OTHER = "$$_posthog_breakdown_other_$$"

HOUR = 3_600_000_000

# Days are counted from a Sunday on.
SUNDAY = datetime.date(1969, 12, 28)

# The names of events that are asked for; None for all.
NAMES = [None, None, "view", "buy", "sign up", "$pageview", "$set"]

# What a request says, and its condition.
FILTERS = [
    ([], "true"),
    ([], "true"),
    ([], "true"),
    (
        [{"key": "$browser", "value": ["Chrome", "Edge"], "operator": "exact", "type": "event"}],
        "coalesce(browser IN ('Chrome', 'Edge'), false)",
    ),
    ([{"key": "plan", "value": "pro", "operator": "exact", "type": "event"}], "coalesce(plan = 'pro', false)"),
    (
        [{"key": "$browser", "value": ["Chrome"], "operator": "is_not", "type": "event"}],
        "coalesce(browser <> 'Chrome', true)",
    ),
    ([{"key": "tier", "value": ["gold"], "operator": "exact", "type": "person"}], "coalesce(tier = 'gold', false)"),
    (
        [{"key": "$session_duration", "value": 600, "operator": "gt", "type": "session"}],
        "coalesce(session_seconds > 600, false)",
    ),
    (
        [{"key": "$entry_current_url", "value": "/a", "operator": "icontains", "type": "session"}],
        "coalesce(contains(session_entry, '/a'), false)",
    ),
    (
        [{"key": "toFloat(JSONExtractString(properties, 'price')) > 300 or event = 'view'", "type": "hogql"}],
        "coalesce(price > 300 OR event = 'view', false)",
    ),
    (
        [{"key": "person.properties.tier = 'gold' and properties.plan = 'pro'", "type": "hogql"}],
        "coalesce(tier = 'gold' AND plan = 'pro', false)",
    ),
    ([{"key": "$is_bounce", "value": ["true"], "operator": "exact", "type": "session"}], "coalesce(session_bounces, false)"),
]

# Properties of sessions by which questions are split.
OF_SESSIONS = {
    "$session_duration": "session_seconds::VARCHAR", "$entry_current_url": "session_entry",
    "$end_current_url": "session_end", "$pageview_count": "session_pages::VARCHAR",
    "$is_bounce": "session_bounces::VARCHAR",
}


# Expressions by which questions are split, and their SQL. Prices are read from the JSON, whose texts may be numbers, too: the
# column of the property has none of these.
EXPRESSIONS = {
    "properties.plan || event": "plan || event",
    "if(toFloat(JSONExtractString(properties, 'price')) > 500, 'high', person.properties.tier)":
        "CASE WHEN price > 500 THEN 'high' ELSE tier END",
}


def quote(text):
    return "'" + text.replace("'", "''") + "'"


class Settings:
    """The time zone and the first day of the week of a project."""

    ZONES = [
        "UTC", "Europe/Berlin", "America/New_York", "Asia/Beirut", "America/Santiago", "America/Havana",
        "Asia/Kathmandu", "Pacific/Auckland",
    ]

    def __init__(self, pick):
        self.zone, self.is_monday_first = pick.choice(self.ZONES), pick.random() < 0.5
        # How much later hours begin than in UTC.
        self.phase = HOUR // 4 * 3 if self.zone == "Asia/Kathmandu" else 0

    def body(self):
        return {"timezone": self.zone, "week_start_day": int(self.is_monday_first)}


class Entity:
    """Events of a name that match filters."""

    def __init__(self, pick, names=NAMES):
        self.name = pick.choice(names)
        self.filters, self.holds = pick.choice(FILTERS)
        self.is_named = "true" if self.name is None else f"event = {quote(self.name)}"
        self.condition = f"({self.is_named} AND {self.holds})"

    def node(self):
        return {"kind": "EventsNode", "event": self.name, "properties": self.filters}

    def entity(self):
        return {"id": self.name, "type": "events", "properties": self.filters}


class Range:
    """A range of dates and its intervals. Days, weeks and months are those of the clocks on the wall, so nothing here
    knows how long they are; hours are those that pass. Intervals have numbers without gaps."""

    def __init__(self, pick, world, settings, interval, days_max, hours_max=40):
        self.settings, self.interval = settings, interval
        change = world.change(pick, settings.zone)
        if interval == "hour":
            self.from_us = change + pick.randrange(-30, 20) * HOUR + pick.choice([0, 0, HOUR // 2])
            self.to_us = self.from_us + pick.randrange(0, hours_max) * HOUR
            written = [datetime.datetime.fromtimestamp(at // 1_000_000, datetime.timezone.utc).isoformat()
                       for at in (self.from_us, self.to_us)]
            self.node = {"date_from": written[0], "date_to": written[1]}
            return
        # Many begin or end where clocks change.
        near = datetime.date(1970, 1, 1) + datetime.timedelta(change // (24 * HOUR))
        anywhere = world.first + datetime.timedelta(pick.randrange(-3, (world.last - world.first).days))
        day = pick.choice([near, anywhere]) + datetime.timedelta(pick.randrange(-2, 2))
        length = datetime.timedelta(pick.randrange(0, days_max))
        self.from_day, self.to_day = (day, day + length) if pick.random() < 0.6 else (day - length, day)
        self.from_time = " 10:00" if pick.random() < 0.15 else ""
        self.node = {"date_from": f"{self.from_day}{self.from_time}", "date_to": str(self.to_day)}

    def before(self):
        """The days right before, as many."""
        length = self.to_day - self.from_day + datetime.timedelta(1)
        other = object.__new__(Range)
        other.settings, other.interval, other.from_time = self.settings, self.interval, ""
        other.from_day, other.to_day = self.from_day - length, self.to_day - length
        return other

    def first(self):
        return self.number(self.from_us if self.interval == "hour" else self.from_day)

    def last(self):
        return self.number(self.to_us if self.interval == "hour" else self.to_day)

    def width(self):
        return self.last() - self.first() + 1

    def number(self, of):
        """The number of the interval of a day or a time."""
        if self.interval == "hour":
            return (of + self.settings.phase) // HOUR
        if self.interval == "month":
            return of.year * 12 + of.month
        days = (of - SUNDAY).days
        return (days - self.settings.is_monday_first) // 7 if self.interval == "week" else days

    def start(self, number):
        """The day, or the hour, with which an interval begins, as SQL."""
        return f"({number} * 7 + {int(self.settings.is_monday_first)})" if self.interval == "week" else number

    def place(self, day="day", at="us"):
        """The number of the interval of an event, as SQL."""
        if self.interval == "hour":
            return f"(({at} + {self.settings.phase}) // {HOUR})"
        if self.interval == "month":
            return f"(year({day}) * 12 + month({day}))"
        if self.interval == "week":
            return f"(({number_of(day)} - {int(self.settings.is_monday_first)}) // 7)"
        return number_of(day)

    def until(self):
        return f"us <= {self.to_us}" if self.interval == "hour" else f"day <= DATE '{self.to_day}'"

    def since(self):
        if self.interval == "hour":
            return f"us >= {self.from_us}"
        if self.from_time:
            return f"wall >= TIMESTAMP '{self.from_day}{self.from_time}'"
        return f"day >= DATE '{self.from_day}'"

    def bounds(self):
        """Whether an event lies in the range as it is written."""
        return f"({self.since()} AND {self.until()})"

    def counts(self):
        """Whether an event counts: from the beginning of the first interval on. Of the first week only what lies in the
        range counts."""
        since = self.since() if self.interval == "week" else f"{self.place()} >= {self.first()}"
        return f"({since} AND {self.until()})"

    def is_whole(self):
        """Whether an event lies in any interval, of which all are whole."""
        return f"({self.place()} BETWEEN {self.first()} AND {self.last()})"


def number_of(day):
    return f"({day} - DATE '{SUNDAY}')"


def unit(pick):
    """Persons or groups: what a node says, and the column."""
    if pick.random() < 0.15:
        return {"aggregation_group_type_index": 0}, "nullif(group_0, '')"
    return {}, "person"


def dense(cells, width):
    """Numbers by place."""
    data = [0] * width
    for place, number in cells:
        data[place] += number
    return data


def same(found, expected):
    """Whether two answers are equal; numbers nearly."""
    if isinstance(expected, (list, tuple)) and isinstance(found, (list, tuple)):
        return len(found) == len(expected) and all(map(same, found, expected))
    if is_number(found) and is_number(expected):
        return abs(found - expected) <= 1e-9 * max(1, abs(expected))
    return found == expected


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)
