"""Stickiness: in how many intervals persons did something."""

from asking import FILTERS, Entity, Range, dense, same, unit

OPERATORS = {"gte": ">=", "lte": "<=", "exact": "="}


class Question:
    def __init__(self, pick, world, settings):
        interval = pick.choice(["hour", "day", "day", "week", "month"])
        self.range = Range(pick, world, settings, interval, 40 if interval == "day" else 75)
        self.series = [Entity(pick) for _ in range(pick.randrange(1, 3))]
        self.filters, self.holds = pick.choice(FILTERS)
        self.length, self.is_cumulative = pick.choice([1, 1, 2, 3]), pick.random() < 0.4
        criteria = [(name, pick.randrange(1, 4)) for name in OPERATORS]
        self.operator, self.value = pick.choice([("gte", 1), ("gte", 1), *criteria])
        self.unit, self.actor = unit(pick)
        is_comparable = interval != "hour" and not self.range.from_time
        self.is_compared = is_comparable and pick.random() < 0.3

    def node(self):
        return {
            "kind": "StickinessQuery", "interval": self.range.interval, "intervalCount": self.length, **self.unit,
            "series": [series.node() for series in self.series], "dateRange": self.range.node, "properties": self.filters,
            "stickinessFilter": {
                "computedAs": "cumulative" if self.is_cumulative else "non_cumulative",
                "stickinessCriteria": {"operator": self.operator, "value": self.value},
            },
            "compareFilter": {"compare": self.is_compared},
        }

    def expected(self, ask):
        ranges = [self.range] + ([self.range.before()] if self.is_compared else [])
        return [self.numbers(ask, dates, series) for dates in ranges for series in self.series]

    def numbers(self, ask, dates, series):
        largest = -(-dates.width() // self.length)
        # Intervals are put together from the last one backwards.
        rows = ask(f"""
            WITH active AS (SELECT {self.actor} AS who, ({dates.last()} - {dates.place()}) // {self.length} AS k
                            FROM e WHERE {series.condition} AND {self.holds} AND {dates.counts()} AND who IS NOT NULL
                            GROUP BY who, k HAVING count(*) {OPERATORS[self.operator]} {self.value}),
            numbers AS (SELECT who, count(*) AS number FROM active GROUP BY who)
            SELECT number - 1, count(*) FROM numbers GROUP BY number""")
        data = dense(rows, largest)
        count = sum(data)
        if self.is_cumulative:
            data = [sum(data[at:]) for at in range(largest)]
        return [data, count]

    def found(self, results):
        return [[line["data"], line["count"]] for line in results]

    def is_same(self, found, expected):
        return same(found, expected)

