"""Ordered funnels, with steps that may be skipped: how far persons come, how long they take, and by values of a breakdown."""

from itertools import groupby, permutations

from asking import EXPRESSIONS, FILTERS, OF_SESSIONS, Entity, Range, quote, same, unit

HOUR = 3_600_000_000
NAMES = ["view", "view", "buy", "buy", "sign up", "$pageview", None]
BREAKDOWNS = {"$browser": "browser", **OF_SESSIONS, **EXPRESSIONS}
ATTRIBUTIONS = [None, None, "first_touch", "last_touch", "all_events", "step"]


def thinned(rows):
    """The rows without those of one step alone that lie between two others of this step and value, at other times."""
    return f"""SELECT * FROM ({rows}) WINDOW own AS (PARTITION BY who ORDER BY us, mask, text)
               QUALIFY NOT coalesce(bit_count(mask) = 1 AND mask = lag(mask) OVER own AND mask = lead(mask) OVER own
                                    AND text = lag(text) OVER own AND text = lead(text) OVER own
                                    AND us > lag(us) OVER own AND us < lead(us) OVER own, false)"""


def best_of(ask, rows, count, hours, optional=(), chosen=None):
    """A part of a WITH, `best`: how far each actor of `rows` comes, by value, and the times of its steps, which are NULL
    where it skips one. Rows have who, v, us, mask (bit k for step k), text and is_own, whether the value is that of v."""
    found = ask(f"SELECT who, v, us, mask, is_own FROM ({rows}) ORDER BY who, v, us, mask, text")
    best = []
    for (who, value), events in groupby(found, key=lambda row: row[:2]):
        times = way([event[2:] for event in events], count, hours * HOUR, optional, chosen)
        if times:
            listed = ", ".join("NULL" if time is None else str(time) for time in times)
            best.append(f"({quote(who)}, {quote(value)}, {len(times)}, [{listed}]::BIGINT[])")
    none = "(NULL, NULL, NULL, NULL::BIGINT[])"
    return f"""best AS MATERIALIZED (
        SELECT * FROM (VALUES {', '.join(best or [none])}) b(who, v, steps, times) WHERE who IS NOT NULL)"""


def way(events, count, window, optional, chosen):
    """The times of the steps of the attempt that comes furthest, and of those the one that is there first.

    Each event of the first step begins an attempt. An event of another step goes on from the attempt that came last to the
    step before; if this may be skipped and nobody is there whose window is open, from the one before that. Who has been at
    a step stays there as it came. Different events of one time go step by step, each for one step of an attempt.
    """
    is_of = lambda event, step: event[1] >> step & 1
    # The value matters for the event that goes on from the step before the chosen one, whichever step it is of.
    brings = lambda event, step, following: is_of(event, step) and (following != chosen or event[2])
    last, best = [None] * count, []

    def before(step, at):
        if step == 0:
            return []
        if last[step - 1] and at - last[step - 1][0] <= window:
            return last[step - 1]
        return before(step - 1, at) if step - 1 in optional and step > 1 else None

    def advance(step, at, event, tied):
        nonlocal best
        attempt = before(step, at)
        if attempt is None or last[step] and last[step][0] == (attempt or [at])[0]:
            return
        same = [other for other, time in enumerate(attempt) if time == at] + [step]
        done = [place for place, time in enumerate(attempt) if time is not None]
        following = lambda other: max([place + 1 for place in done if place < other], default=0)
        fits = lambda own: all(brings(event, other, following(other)) for event, other in zip(own, same))
        if not (any(map(fits, permutations(tied, len(same)))) if tied else brings(event, step, following(step))):
            return
        last[step] = attempt + [None] * (step - len(attempt)) + [at]
        if step >= len(best):
            best = last[step]

    for at, group in groupby(events, key=lambda event: event[0]):
        group = list(group)
        if len({mask for _, mask, _ in group}) > 1:
            for step in range(count):
                if any(is_of(event, step) for event in group):
                    advance(step, at, None, group)
        else:
            for event in group:
                for step in reversed(range(count)):
                    if is_of(event, step):
                        advance(step, at, event, [])
        if last[-1]:
            break
    return best


def is_within(step, other):
    """Whether every event of a step is one of another step, as far as their filters show."""
    is_named = other.name is None or step.name == other.name
    return is_named and all(rule in step.filters for rule in other.filters)


class Question:
    def __init__(self, pick, world, settings):
        self.range = Range(pick, world, settings, "day", 12)
        self.steps = [Entity(pick, NAMES) for _ in range(pick.randrange(2, 5))]
        self.filters, self.holds = pick.choice(FILTERS)
        self.hours = pick.choice([1, 2, 24, 72, 400])
        self.unit, self.actor = unit(pick)
        self.attribution, self.attribution_step = pick.choice(ATTRIBUTIONS), pick.randrange(0, len(self.steps))
        self.breakdown = pick.choice(["$browser", "$browser", *OF_SESSIONS, *EXPRESSIONS])
        self.aggregate = None
        if not self.unit and pick.random() < 0.2:
            self.aggregate, self.actor = "properties.$session_id", "nullif(session, '')"
        self.limit = pick.choice([1, 2, 25])
        self.optional = set()
        for at in reversed(range(1, len(self.steps))):
            following = self.steps[at + 1:at + 2] if at + 1 not in self.optional else []
            if pick.random() < 0.25 and not any(is_within(self.steps[at], other) for other in following):
                self.optional.add(at)

    def node(self):
        node = {
            "kind": "FunnelsQuery", "series": [step.node() for step in self.steps], "dateRange": self.range.node,
            "properties": self.filters, **self.unit,
            "funnelsFilter": {
                "funnelWindowInterval": self.hours, "funnelWindowIntervalUnit": "hour", "funnelOrderType": "ordered",
                "breakdownAttributionType": self.attribution, "breakdownAttributionValue": self.attribution_step,
                "funnelAggregateByHogQL": self.aggregate,
            },
        }
        for at in self.optional:
            node["series"][at]["optionalInFunnel"] = True
        if self.attribution:
            kind = "session" if self.breakdown in OF_SESSIONS else "hogql" if self.breakdown in EXPRESSIONS else "event"
            node["breakdownFilter"] = {"breakdown": self.breakdown, "breakdown_type": kind, "breakdown_limit": self.limit}
        return node

    def expected(self, ask):
        """Steps of each value: how many reached it, the mean and the median of the times that it took."""
        count = len(self.steps)
        flags = ", ".join(f"{step.condition} AS s{at}" for at, step in enumerate(self.steps))
        mask = " + ".join(f"s{at}::INT * {1 << at}" for at in range(count))
        # Who counts, and under which value.
        first = "SELECT who, coalesce(arg_min(text, (us, mask, text)) FILTER (text <> ''), '') AS v FROM r GROUP BY who"
        actors = {
            None: "SELECT *, '' AS v, true AS is_own FROM r",
            "first_touch": f"SELECT *, true AS is_own FROM r JOIN ({first}) USING (who)",
            "last_touch": f"SELECT *, true AS is_own FROM r JOIN ({first.replace('arg_min', 'arg_max')}) USING (who)",
            "all_events": "SELECT *, text AS v, true AS is_own FROM r",
            # Of the step only the events with the value count.
            "step": f"""SELECT r.*, v, text = v AS is_own FROM r
                        JOIN (SELECT DISTINCT who, text AS v FROM r WHERE mask >> {self.attribution_step} & 1 = 1) USING (who)""",
        }[self.attribution]
        value = f"coalesce({BREAKDOWNS[self.breakdown]}, '')" if self.attribution else "''"
        events = f"""SELECT who, us, text, {mask} AS mask
                     FROM (SELECT {self.actor} AS who, us, {value} AS text, {flags} FROM e
                           WHERE {self.holds} AND {self.range.bounds()})
                     WHERE who IS NOT NULL AND mask > 0"""
        rows = f"WITH r AS MATERIALIZED ({thinned(events)}) {actors}"
        chosen = self.attribution_step if self.attribution == "step" else None
        best = best_of(ask, rows, count, self.hours, self.optional, chosen)
        # The time since the required step before.
        required = [at for at in range(count) if at not in self.optional]
        cases = [f"WHEN {at} THEN times[{at + 1}] - times[{before + 1}]" for before, at in zip(required, required[1:])]
        took = f"CASE step {' '.join(cases)} END" if cases else "NULL::BIGINT"
        is_later = f"{took} > 0"
        ranking = ", ".join(f"c{at} DESC" for at in reversed(range(count)))
        found = ask(f"""
            WITH {best},
            reached AS (SELECT v, {', '.join(f'count(*) FILTER (times[{at + 1}] IS NOT NULL) AS c{at}' for at in range(count))}
                        FROM best GROUP BY v),
            ranks AS (SELECT v, row_number() OVER (ORDER BY {ranking}, v) AS rank FROM reached),
            shown AS (SELECT steps, times, CASE WHEN rank > {self.limit} THEN {self.limit + 1} ELSE rank END AS place,
                             CASE WHEN rank > {self.limit} THEN 'Other' ELSE v END AS v FROM best JOIN ranks USING (v))
            SELECT v, step, count(*) FILTER (times[step + 1] IS NOT NULL),
                   avg({took}) FILTER ({is_later}) / 1e6, median({took}) FILTER ({is_later}) / 1e6
            FROM shown, range({count}) g(step) GROUP BY v, place, step ORDER BY place, step""")
        values = []
        for value, step, reached, mean, median in found:
            if step == 0:
                values.append([value, []])
                mean = median = None
            values[-1][1].append([reached, mean, median])
        if not self.attribution and not values:
            values = [["", [[0, None, None]] * count]]
        return values

    def found(self, results):
        step = lambda own: [own["count"], own["average_conversion_time"], own["median_conversion_time"]]
        if not self.attribution:
            return [["", [step(own) for own in results]]]
        return [[steps[0]["breakdown_value"][0], [step(own) for own in steps]] for steps in results]

    def is_same(self, found, expected):
        return same(found, expected)
