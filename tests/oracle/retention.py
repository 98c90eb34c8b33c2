"""Retention: how many of those who did something in an interval came back in each of the next ones."""

from asking import FILTERS, Entity, Range, same, unit

PERIODS = ["hour", "day", "day", "week", "month"]
KINDS = ["retention_recurring", "retention_recurring", "retention_first_time", "retention_first_ever_occurrence"]


class Question:
    def __init__(self, pick, world, settings):
        period = pick.choice(PERIODS)
        self.range = Range(pick, world, settings, period, {"month": 75}.get(period, 25), 20)
        self.kind = pick.choice(KINDS)
        self.target, self.returning = Entity(pick), Entity(pick)
        self.filters, self.holds = pick.choice(FILTERS)
        self.cells, self.is_cumulative = pick.randrange(1, 12), pick.random() < 0.3
        self.occurrences = pick.choice([1, 1, 2, 3])
        self.unit, self.actor = unit(pick)
        self.has_start = pick.random() < 0.6

    def node(self):
        dates = self.range.node if self.has_start else {"date_to": self.range.node["date_to"]}
        return {
            "kind": "RetentionQuery", "dateRange": dates, "properties": self.filters, **self.unit,
            "retentionFilter": {
                "period": self.range.interval.capitalize(), "totalIntervals": self.cells, "retentionType": self.kind,
                "targetEntity": self.target.entity(), "returningEntity": self.returning.entity(),
                "cumulative": self.is_cumulative, "minimumOccurrences": self.occurrences,
            },
        }

    def expected(self, ask):
        last = self.range.last()
        first = self.range.first() if self.has_start else last - self.cells + 1
        place = self.range.place()
        starts = {
            "retention_recurring": "SELECT DISTINCT who, k FROM own WHERE is_target",
            "retention_first_time": "SELECT who, min(k) AS k FROM own WHERE is_target GROUP BY who",
            # Of several at one time, one of the target is enough.
            "retention_first_ever_occurrence": """
                SELECT DISTINCT who, k FROM own JOIN (SELECT who, min(us) AS us FROM own WHERE is_named GROUP BY who)
                USING (who, us) WHERE is_target""",
        }[self.kind]
        seen = "least" if self.is_cumulative else "cell"
        rows = ask(f"""
            WITH own AS (SELECT {self.actor} AS who, us, {place} AS k, {self.target.condition} AS is_target,
                                {self.target.is_named} AS is_named, {self.returning.condition} AS is_back
                         FROM e WHERE {self.holds} AND who IS NOT NULL AND {place} <= {last}),
            starts AS ({starts}),
            backs AS (SELECT who, k FROM own WHERE is_back AND k >= {first} GROUP BY who, k
                      HAVING count(*) >= {self.occurrences}),
            cells AS (SELECT s.who, s.k AS row, 0 AS cell FROM starts s WHERE s.k BETWEEN {first} AND {last}
                      UNION SELECT s.who, s.k, b.k - s.k FROM starts s JOIN backs b ON b.who = s.who AND b.k > s.k
                            AND b.k < s.k + {self.cells} WHERE s.k BETWEEN {first} AND {last}),
            furthest AS (SELECT who, row, max(cell) AS most FROM cells GROUP BY who, row),
            earlier AS (SELECT who, row, least FROM furthest, generate_series(0, most) g(least))
            SELECT row - {first}, {seen}, count(*) FROM {'earlier' if self.is_cumulative else 'cells'} GROUP BY ALL""")
        table = [[0] * self.cells for _ in range(last - first + 1)]
        for row, cell, count in rows:
            table[row][cell] = count
        return table

    def found(self, results):
        return [[cell["count"] for cell in row["values"]] for row in results]

    def is_same(self, found, expected):
        return same(found, expected)
