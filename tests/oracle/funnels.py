"""Ordered funnels, with steps that may be skipped: how far persons come, how long they take, and by values of a breakdown."""

from asking import EXPRESSIONS, FILTERS, OF_SESSIONS, Entity, Range, same, unit

HOUR = 3_600_000_000
NAMES = ["view", "view", "buy", "buy", "sign up", "$pageview", None]
BREAKDOWNS = {"$browser": "browser", **OF_SESSIONS, **EXPRESSIONS}
ATTRIBUTIONS = [None, None, "first_touch", "last_touch", "all_events", "step"]


def ways_of(count, hours, optional=()):
    """Parts of a WITH that end with `best`: how far each actor of `rows` comes, by value, and the times of its steps,
    which are NULL where it skips one."""
    # Each step is another event, no earlier than the one before and within the window since the first.
    attempts = ["a0 AS MATERIALIZED (SELECT who, v, us AS t0, id AS i0 FROM rows WHERE s0)"]
    for at in range(1, count):
        ways = []
        for before in reversed(range(at)):
            done = [f"a.{letter}{step}" for letter in "ti" for step in range(before + 1)]
            skipped = [f"NULL AS {letter}{step}" for letter in "ti" for step in range(before + 1, at)]
            others = " AND ".join(f"r.id IS DISTINCT FROM a.i{other}" for other in range(before + 1))
            ways.append(f"""
                SELECT a.who, a.v, {', '.join(done + skipped)}, r.us AS t{at}, r.id AS i{at} FROM a{before} a
                JOIN rows r ON r.who = a.who AND r.v = a.v
                AND s{at} AND r.us >= a.t{before} AND r.us <= a.t0 + {hours * HOUR} AND {others}""")
            if before not in optional:
                break
        attempts.append(f"a{at} AS MATERIALIZED ({' UNION ALL BY NAME '.join(ways)})")
    # What counts is the furthest, of those the one that is first there, of those the one that skips fewest of the steps
    # nearest to its end, and of those the one with the latest steps.
    best = []
    for at in range(count):
        times = [f"t{step}" for step in range(at + 1)]
        order = ", ".join([*(f"{time} IS NULL" for time in reversed(times)), *(f"{time} DESC" for time in times)])
        further = " AND ".join(f"(who, v) NOT IN (SELECT who, v FROM a{later})" for later in range(at + 1, count))
        best.append(f"""
            SELECT DISTINCT ON (who, v) who, v, {at + 1} AS steps, [{', '.join(times)}] AS times FROM a{at}
            {f"WHERE {further}" if further else ""}
            ORDER BY who, v, t{at}, {order}""")
    return [*attempts, f"best AS ({' UNION ALL '.join(f'(SELECT * FROM ({own}))' for own in best)})"]


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
        chosen = f"s{self.attribution_step}"
        first = """SELECT who, coalesce(arg_min(text, (us, mask, text)) FILTER (text IS NOT NULL), '') AS v
                   FROM r GROUP BY who"""
        actors = {
            None: "SELECT *, '' AS v FROM r",
            "first_touch": f"SELECT * FROM r JOIN ({first}) USING (who)",
            "last_touch": f"SELECT * FROM r JOIN ({first.replace('arg_min', 'arg_max')}) USING (who)",
            "all_events": "SELECT *, coalesce(text, '') AS v FROM r",
            # Of the step only the events with the value count.
            "step": f"""SELECT r.* REPLACE ({chosen} AND coalesce(text, '') = v AS {chosen}), v
                        FROM r JOIN (SELECT DISTINCT who, coalesce(text, '') AS v FROM r WHERE {chosen}) USING (who)""",
        }[self.attribution]
        ways = ", ".join(ways_of(count, self.hours, self.optional))
        # The time since the required step before.
        required = [at for at in range(count) if at not in self.optional]
        cases = [f"WHEN {at} THEN times[{at + 1}] - times[{before + 1}]" for before, at in zip(required, required[1:])]
        took = f"CASE step {' '.join(cases)} END" if cases else "NULL::BIGINT"
        is_later = f"{took} > 0"
        ranking = ", ".join(f"c{at} DESC" for at in reversed(range(count)))
        found = ask(f"""
            WITH r AS MATERIALIZED (
                SELECT who, us, id, text, {', '.join(f's{at}' for at in range(count))}, {mask} AS mask FROM (
                    SELECT {self.actor} AS who, us, id, nullif({BREAKDOWNS[self.breakdown]}, '') AS text, {flags} FROM e
                    WHERE {self.holds} AND {self.range.bounds()})
                WHERE who IS NOT NULL AND mask > 0),
            rows AS MATERIALIZED ({actors}), {ways},
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
