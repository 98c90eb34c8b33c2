"""Ordered funnels: how far persons come, how long they take, and by values of a breakdown."""

from asking import FILTERS, OF_SESSIONS, Entity, Range, same, unit

HOUR = 3_600_000_000
NAMES = ["view", "view", "buy", "buy", "sign up", "$pageview", None]
BREAKDOWNS = {"$browser": "browser", **OF_SESSIONS}
ATTRIBUTIONS = [None, None, "first_touch", "last_touch", "all_events", "step"]


def ways_of(count, hours):
    """Parts of a WITH that end with `best`: how far each actor of `rows` comes, by value, and the times of its steps."""
    # Each step is another event, no earlier than the one before and within the window since the first.
    attempts = ["a0 AS (SELECT who, v, us AS t0, id AS i0 FROM rows WHERE s0)"]
    for at in range(1, count):
        others = " AND ".join(f"r.id <> i{other}" for other in range(at))
        attempts.append(f"""
            a{at} AS (SELECT a.*, r.us AS t{at}, r.id AS i{at} FROM a{at - 1} a
                      JOIN rows r ON r.who = a.who AND r.v = a.v
                      AND s{at} AND r.us >= t{at - 1} AND r.us <= t0 + {hours * HOUR} AND {others})""")
    # What counts is the furthest, of those the one that is first there, and of those the one with the latest steps.
    best = []
    for at in range(count):
        times = [f"t{step}" for step in range(at + 1)]
        latest = ", ".join(f"{time} DESC" for time in times)
        listed = ", ".join(times)
        best.append(f"""
            SELECT DISTINCT ON (who, v) who, v, {at + 1} AS steps, [{listed}] AS times FROM a{at}
            {f"WHERE (who, v) NOT IN (SELECT who, v FROM a{at + 1})" if at + 1 < count else ""}
            ORDER BY who, v, t{at}, {latest}""")
    return [*attempts, f"best AS ({' UNION ALL '.join(f'(SELECT * FROM ({own}))' for own in best)})"]


class Question:
    def __init__(self, pick, world, settings):
        self.range = Range(pick, world, settings, "day", 12)
        self.steps = [Entity(pick, NAMES) for _ in range(pick.randrange(2, 5))]
        self.filters, self.holds = pick.choice(FILTERS)
        self.hours = pick.choice([1, 2, 24, 72, 400])
        self.unit, self.actor = unit(pick)
        self.attribution, self.attribution_step = pick.choice(ATTRIBUTIONS), pick.randrange(0, len(self.steps))
        self.breakdown = pick.choice(["$browser", "$browser", *OF_SESSIONS])
        self.limit = pick.choice([1, 2, 25])

    def node(self):
        node = {
            "kind": "FunnelsQuery", "series": [step.node() for step in self.steps], "dateRange": self.range.node,
            "properties": self.filters, **self.unit,
            "funnelsFilter": {
                "funnelWindowInterval": self.hours, "funnelWindowIntervalUnit": "hour", "funnelOrderType": "ordered",
                "breakdownAttributionType": self.attribution, "breakdownAttributionValue": self.attribution_step,
            },
        }
        if self.attribution:
            kind = "session" if self.breakdown in OF_SESSIONS else "event"
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
        ways = ", ".join(ways_of(count, self.hours))
        took = "times[step + 1] - times[step]"
        is_later = "steps > step AND times[step + 1] > times[step]"
        ranking = ", ".join(f"c{at} DESC" for at in reversed(range(count)))
        found = ask(f"""
            WITH r AS MATERIALIZED (
                SELECT who, us, id, text, {', '.join(f's{at}' for at in range(count))}, {mask} AS mask FROM (
                    SELECT {self.actor} AS who, us, id, nullif({BREAKDOWNS[self.breakdown]}, '') AS text, {flags} FROM e
                    WHERE {self.holds} AND {self.range.bounds()})
                WHERE who IS NOT NULL AND mask > 0),
            rows AS MATERIALIZED ({actors}), {ways},
            reached AS (SELECT v, {', '.join(f'count(*) FILTER (steps > {at}) AS c{at}' for at in range(count))}
                        FROM best GROUP BY v),
            ranks AS (SELECT v, row_number() OVER (ORDER BY {ranking}, v) AS rank FROM reached),
            shown AS (SELECT steps, times, CASE WHEN rank > {self.limit} THEN {self.limit + 1} ELSE rank END AS place,
                             CASE WHEN rank > {self.limit} THEN 'Other' ELSE v END AS v FROM best JOIN ranks USING (v))
            SELECT v, step, count(*) FILTER (steps > step),
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
