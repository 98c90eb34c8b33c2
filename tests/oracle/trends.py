"""Trends: numbers of each interval and value of a breakdown."""

from asking import EXPRESSIONS, FILTERS, NULL, OF_SESSIONS, OTHER, SUNDAY, Entity, Range, dense, number_of, quote, same

STATISTICS = ["sum", "avg", "min", "max", "median", "p75", "p90", "p95", "p99"]
MATHS = [
    "total", "total", "dau", "dau", "weekly_active", "monthly_active", "unique_session", "unique_group",
    "first_time_for_user", "first_matching_event_for_user",
]
BREAKDOWNS = {
    "$browser": "browser", "plan": "plan", "price": "price_text", "tier": "tier", "event": "event", **OF_SESSIONS,
    **EXPRESSIONS,
}
# What an expression is of events together, and its SQL.
SUMS = {
    "sum(toFloat(JSONExtractString(properties, 'price'))) + count()": "sum(price) + count(*)",
    "uniq(person.properties.tier)": "count(DISTINCT tier)",
    "countIf(properties.plan = 'pro') / count()": "(count(*) FILTER (plan = 'pro')) // count(*)",
    "max(toFloat(JSONExtractString(properties, 'price'))) - min(toFloat(JSONExtractString(properties, 'price')))": "max(price) - min(price)",
}
CUMULATIVE, TOTAL = "ActionsLineGraphCumulative", "BoldNumber"


def statistic(name, of):
    if name in ("sum", "avg", "min", "max"):
        return f"coalesce({name}({of}), 0)"
    part = 0.5 if name == "median" else int(name[1:]) / 100
    return f"coalesce(quantile_cont({of}, {part}), 0)"


class Question:
    def __init__(self, pick, world, settings):
        self.display = pick.choice(["ActionsLineGraph", "ActionsLineGraph", CUMULATIVE, TOTAL])
        interval = self.interval = pick.choice(["hour", "day", "day", "week", "month"])
        if self.display == TOTAL:
            # Whatever is asked for.
            interval = "day"
        self.range = Range(pick, world, settings, interval, 40 if interval == "day" else 75)
        self.entity = Entity(pick)
        self.filters, self.holds = pick.choice(FILTERS)
        chosen = pick.random()
        self.math = pick.choice(MATHS if chosen < 0.7 else STATISTICS)
        if chosen > 0.9:
            self.math += "_count_per_actor"
        self.is_of_sessions = self.math in STATISTICS and pick.random() < 0.4
        self.sum = pick.choice(list(SUMS)) if pick.random() < 0.12 else None
        if self.sum:
            self.math, self.is_of_sessions = "hogql", False
        self.breakdown = pick.choice([None, None, *BREAKDOWNS])
        self.limit = pick.choice([1, 2, 3, 25])
        # The order of such sums is left open, and with it which values are the largest.
        self.is_exact = not any(name in self.math for name in ("avg", "median", "p7", "p9"))
        if not self.is_exact:
            self.breakdown, self.limit = self.breakdown and "$browser", 25
        is_of_range = not self.math.startswith("first") and not self.math.endswith("_active")
        is_binned = self.breakdown == "price" and is_of_range and pick.random() < 0.6
        self.bins = pick.choice([1, 3, 8, 40]) if is_binned else None
        is_comparable = interval != "hour" and not self.range.from_time
        self.is_compared = is_comparable and pick.random() < 0.2

    def node(self):
        series = {**self.entity.node(), "math": self.math, "math_property": "price", "math_group_type_index": 0}
        if self.sum:
            series["math_hogql"] = self.sum
        if self.is_of_sessions:
            series.update({"math_property": "$session_duration", "math_property_type": "session_properties"})
        node = {
            "kind": "TrendsQuery", "series": [series], "interval": self.interval, "dateRange": self.range.node,
            "properties": self.filters, "trendsFilter": {"display": self.display},
        }
        if self.breakdown:
            kind = "person" if self.breakdown == "tier" else "session" if self.breakdown in OF_SESSIONS else "event"
            kind = "hogql" if self.breakdown in EXPRESSIONS else "event_metadata" if self.breakdown == "event" else kind
            node["breakdownFilter"] = {"breakdown": self.breakdown, "breakdown_type": kind, "breakdown_limit": self.limit}
            if self.bins:
                node["breakdownFilter"]["breakdown_histogram_bin_count"] = self.bins
        if self.is_compared:
            node["compareFilter"] = {"compare": True}
        return node

    def expected(self, ask):
        ranges = [self.range] + ([self.range.before()] if self.is_compared else [])
        return [line for dates in ranges for line in self.lines(ask, dates)]

    def lines(self, ask, dates):
        width, first = (1, 0) if self.display == TOTAL else (dates.width(), dates.first())
        bins = self.binned(ask, dates) if self.bins else None
        # The largest values, then null, then all others together.
        rows = ask(f"""
            WITH counted AS ({self.counted(dates, bins)}),
            ranks AS (SELECT v, row_number() OVER (ORDER BY sum(n) DESC, v) AS rank
                      FROM counted WHERE v <> {quote(NULL)} GROUP BY v),
            named AS (SELECT k, n,
                      CASE WHEN rank <= {self.limit} THEN rank WHEN rank IS NULL THEN 1000 ELSE 1001 END AS place,
                      CASE WHEN rank > {self.limit} THEN {quote(OTHER)} ELSE v END AS v
                      FROM counted LEFT JOIN ranks USING (v))
            SELECT v, list((k - {first}, n)) FROM named GROUP BY v, place ORDER BY place""")
        lines = [[value, self.finished(dense(cells, width))] for value, cells in rows]
        return lines if lines or self.breakdown else [["", [0] * width]]

    def finished(self, data):
        if self.display == CUMULATIVE:
            for at in range(1, len(data)):
                data[at] += data[at - 1]
        return data

    def counted(self, dates, bins):
        """Rows of an interval k, a value v and a number n."""
        events = f"({self.events(dates, bins)})"
        if self.is_of_sessions:
            numbers = f"(SELECT k, v, min(session_seconds) AS s FROM {events} GROUP BY k, v, session)"
            return f"SELECT k, v, {statistic(self.math, 's')} AS n FROM {numbers} GROUP BY k, v"
        if self.sum:
            return f"SELECT k, v, coalesce({SUMS[self.sum]}, 0) AS n FROM {events} GROUP BY k, v"
        if self.math in STATISTICS:
            return f"SELECT k, v, {statistic(self.math, 'price')} AS n FROM {events} GROUP BY k, v"
        if self.math.endswith("_count_per_actor"):
            counts = f"(SELECT k, v, count(*)::DOUBLE AS c FROM {events} GROUP BY k, v, person)"
            return f"SELECT k, v, {statistic(self.math.split('_')[0], 'c')} AS n FROM {counts} GROUP BY k, v"
        if self.math == "total":
            return f"SELECT k, v, count(*) AS n FROM {events} GROUP BY k, v"
        who = {"unique_session": "coalesce(session, '')", "unique_group": "nullif(group_0, '')"}.get(self.math, "person")
        place, of = "k", "k, v, who"
        if self.display == CUMULATIVE and self.math in ("dau", "unique_group"):
            place, of = "min(k)", "v, who"
        actors = f"(SELECT {place} AS k, v, {who} AS who FROM {events} WHERE who IS NOT NULL GROUP BY {of})"
        return f"SELECT k, v, count(*) AS n FROM {actors} GROUP BY k, v"

    def binned(self, ask, dates):
        """The bin of a price: bins are of equal width from the smallest price of the events that count to the largest."""
        least, most = ask(f"SELECT min(price), max(price) FROM ({self.events(dates)})")[0]
        if least is None:
            return quote(NULL)
        edges = [(most - least) / self.bins * at + least for at in range(self.bins + 1)]
        edges[-1] += 0.01
        written = [repr(edge).removesuffix(".0") for edge in edges]
        whens = " ".join(
            f"WHEN price >= {quote(repr(low))}::DOUBLE AND price < {quote(repr(high))}::DOUBLE THEN {quote(f'[{own},{following}]')}"
            for low, high, own, following in zip(edges, edges[1:], written, written[1:]))
        return f"CASE {whens} ELSE {quote(NULL)} END"

    def events(self, dates, bins=None):
        """The events that count, with their interval and their value; one may be in several intervals."""
        value = f"coalesce(nullif({BREAKDOWNS[self.breakdown]}, ''), {quote(NULL)})" if self.breakdown else "''"
        value = value if bins is None else bins
        place = "0" if self.display == TOTAL else dates.place()
        holds = f"({self.holds} AND {self.entity.holds})"
        named = f"(SELECT *, {place} AS k, {value} AS v, {holds} AS holds FROM e WHERE {self.entity.is_named})"
        if self.math.startswith("first"):
            return self.firsts(dates, named)
        if self.math in ("weekly_active", "monthly_active"):
            days = 7 if self.math == "weekly_active" else 30
            if self.display == TOTAL:
                is_in = f"day > DATE '{dates.to_day}' - {days} AND day <= DATE '{dates.to_day}'"
                return f"SELECT * FROM {named} WHERE holds AND {is_in}"
            if dates.interval in ("hour", "day") or (dates.interval, days) == ("week", 30):
                return self.windows(dates, named, days)
        return f"SELECT * FROM {named} WHERE holds AND {dates.counts()}"

    def windows(self, dates, named, days):
        """Those of the days up to the beginning of each interval."""
        steps = dates.place() if dates.interval == "hour" else number_of("day")
        length = days * 24 if dates.interval == "hour" else days
        point = dates.start("i")
        points = f"generate_series({dates.first()}, {dates.last()}) g(i)"
        return f"""
            SELECT i AS k, v, person FROM (SELECT *, {steps} AS step FROM {named} WHERE holds AND {dates.until()}), {points}
            WHERE step > {point} - {length} AND step <= {point}"""

    def firsts(self, dates, named):
        """Of each person the first of all events, or of those that match. Of several at one time, one that matches is
        enough."""
        which = "holds AND" if "matching" in self.math else ""
        return f"""
            SELECT k, min(v) AS v, person FROM {named}
            JOIN (SELECT person, min(us) AS us FROM {named} WHERE {which} {dates.until()} GROUP BY person) USING (person, us)
            WHERE holds AND {dates.counts()} GROUP BY person, k"""

    def found(self, results):
        lines = []
        for line in results:
            value = line.get("breakdown_value")
            data = [line["aggregated_value"]] if self.display == TOTAL else line["data"]
            lines.append(["" if value is None else value, data])
            if self.display != TOTAL:
                assert len(line["days"]) == len(line["labels"]) == len(line["data"])
        return lines

    def is_same(self, found, expected):
        if not self.is_exact:
            found, expected = sorted(found), sorted(expected)
        return same(found, expected)
