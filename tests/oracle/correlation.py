"""Correlations: what those who come through a funnel do or have more often, or less often, than the others."""

from asking import FILTERS, Entity, Range, quote, same, unit
from funnels import HOUR, best_of, thinned

KINDS = ["events", "event_with_properties", "properties"]
STEPS = ["view", "view", "buy", "sign up", "$pageview", None]
NAMES = ["view", "buy", "sign up", "leave/", "$pageview", "$screen", "none of this name"]
# All properties that events have but for two.
LEFT_OUT = [
    "price", "$session_id", "$current_url", "$screen_name", "$groups", "$group_0", "$set", "$process_person_profile",
    "$anon_distinct_id", "alias", "$ip", "$sent_at",
]
ROWS_MAX = 10


class Question:
    def __init__(self, pick, world, settings):
        self.range = Range(pick, world, settings, "day", 90)
        self.steps = [Entity(pick, STEPS) for _ in range(pick.choice([2, 2, 3]))]
        self.filters, self.holds = pick.choice(FILTERS)
        # Few persons are on both sides of a funnel with many filters.
        if pick.random() < 0.7:
            self.filters, self.holds = [], "true"
            for step in self.steps[1:]:
                step.filters, step.condition = [], step.is_named
        self.hours = pick.choice([1, 6, 24, 72, 300])
        self.unit, self.actor = unit(pick)
        self.kind = pick.choice(KINDS[:2] if self.unit else KINDS)
        self.names = pick.sample(NAMES, pick.randrange(1, len(NAMES)))
        # Those who did a step, or left before it; None for all.
        self.step = pick.choice([*[None] * 8, 1, 2, -2])

    def node(self):
        actors = {"kind": "FunnelsActorsQuery", "source": {
            "kind": "FunnelsQuery", "series": [step.node() for step in self.steps], "dateRange": self.range.node,
            "properties": self.filters, **self.unit,
            "funnelsFilter": {"funnelWindowInterval": self.hours, "funnelWindowIntervalUnit": "hour"},
        }}
        if self.step:
            actors["funnelStep"] = self.step
        return {
            "kind": "FunnelCorrelationQuery", "source": actors, "funnelCorrelationType": self.kind,
            **{
                "events": {"funnelCorrelationExcludeEventNames": self.names},
                "event_with_properties": {
                    "funnelCorrelationEventNames": self.names, "funnelCorrelationEventExcludePropertyNames": LEFT_OUT,
                },
                "properties": {"funnelCorrelationNames": ["tier", "nothing"]},
            }[self.kind],
        }

    def things(self):
        """Who did or has what, and when."""
        steps = {step.name for step in self.steps} - {None}
        listed = lambda names: ", ".join(map(quote, names))
        beside = f"""SELECT {self.actor} AS who, us, event, browser, plan FROM e
                     WHERE {self.range.bounds()} AND event NOT IN ({listed(steps | {''})})"""
        if self.kind == "events":
            return f"SELECT who, us, event AS name FROM ({beside}) WHERE event NOT IN ({listed(self.names)})"
        if self.kind == "event_with_properties":
            value = lambda key, column: f"""
                SELECT who, us, event || '::{key}::' || {column} AS name FROM ({beside})
                WHERE event IN ({listed(self.names)}) AND {column} IS NOT NULL"""
            return f"{value('$browser', 'browser')} UNION ALL {value('plan', 'plan')}"
        # Who has no person has no properties either.
        return """SELECT DISTINCT person AS who, NULL AS us, unnest(['tier::' || coalesce(tier, ''), 'nothing::']) AS name
                  FROM e WHERE created IS NOT NULL"""

    def expected(self, ask):
        """Name, successes, failures and odds ratio of each row, and whether there are far more of the ones."""
        count = len(self.steps)
        flags = ", ".join(f"{step.condition} AS s{at}" for at, step in enumerate(self.steps))
        mask = " + ".join(f"s{at}::INT * {1 << at}" for at in range(count))
        asked = "true" if not self.step else f"steps >= {self.step}" if self.step > 0 else f"steps = {-self.step - 1}"
        is_within = "true" if self.kind == "properties" else "us > first AND us < last"
        events = f"""SELECT who, us, '' AS text, '' AS v, true AS is_own, {mask} AS mask
                     FROM (SELECT {self.actor} AS who, us, {flags} FROM e WHERE {self.holds} AND {self.range.bounds()})
                     WHERE who IS NOT NULL AND mask > 0"""
        found = ask(f"""
            WITH {best_of(ask, thinned(events), count, self.hours)},
            ways AS MATERIALIZED (
                SELECT who, times[1] AS first, steps = {count} AS won,
                       CASE WHEN won THEN times[{count}] ELSE first + {self.hours * HOUR} END AS last
                FROM best WHERE {asked}),
            done AS (SELECT DISTINCT who, won, name FROM ways JOIN ({self.things()}) USING (who) WHERE {is_within}),
            counted AS (SELECT name, count(*) FILTER (won) AS good, count(*) FILTER (NOT won) AS bad FROM done GROUP BY name),
            totals AS (SELECT count(*) FILTER (won) AS all_good, count(*) FILTER (NOT won) AS all_bad FROM ways)
            SELECT name, good, bad, all_good, all_bad FROM totals LEFT JOIN counted ON true""")
        _, _, _, all_good, all_bad = found[0]
        if not all_good or not all_bad:
            return [[], True]
        least = 3 if self.kind == "event_with_properties" else 1
        rows = []
        for name, good, bad, _, _ in found:
            if name is not None and good + bad >= least and (good + bad >= 25 or 50 * (good + bad) >= all_good + all_bad):
                odds = ((good + 1) * (all_bad - bad + 1)) / ((all_good - good + 1) * (bad + 1))
                rows.append([name, good, bad, odds])
        with_success = sorted((row for row in rows if row[3] > 1), key=lambda row: (-row[3], row[0]))
        with_failure = sorted((row for row in rows if row[3] <= 1), key=lambda row: (row[3], row[0]))
        is_skewed = all_good > 10 * all_bad or all_bad > 10 * all_good
        return [with_success[:ROWS_MAX] + with_failure[:ROWS_MAX], is_skewed]

    def found(self, results):
        row = lambda own: [own["event"]["event"], own["success_count"], own["failure_count"], own["odds_ratio"]]
        return [[row(own) for own in results["events"]], results["skewed"]]

    def is_same(self, found, expected):
        return same(found, expected)
