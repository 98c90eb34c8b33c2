"""Lifecycle: who is new in an interval, comes back, comes back after a pause, or stays away."""

from asking import FILTERS, Entity, Range, dense, same

STATUSES = ["new", "returning", "resurrecting", "dormant"]


class Question:
    def __init__(self, pick, world, settings):
        interval = pick.choice(["hour", "day", "day", "week", "month"])
        self.range = Range(pick, world, settings, interval, 40 if interval == "day" else 75)
        self.entity = Entity(pick)
        self.filters, self.holds = pick.choice(FILTERS)

    def node(self):
        return {
            "kind": "LifecycleQuery", "interval": self.range.interval, "series": [self.entity.node()],
            "properties": self.filters, "dateRange": self.range.node,
        }

    def expected(self, ask):
        first, last = self.range.first(), self.range.last()
        # Who was active in the interval before the range is seen, what was before that is not. Events that say that they
        # make no person count for nobody.
        rows = ask(f"""
            WITH active AS (SELECT person, {self.range.place()} AS k,
                                   any_value({self.range.place('created_day', 'created')}) AS c
                            FROM e WHERE {self.entity.condition} AND {self.holds} AND NOT is_personless
                            AND k BETWEEN {first - 1} AND {last} GROUP BY person, k),
            around AS (SELECT *, lag(k) OVER own AS before, lead(k) OVER own AS after FROM active
                       WINDOW own AS (PARTITION BY person ORDER BY k)),
            stages AS (SELECT k, CASE WHEN before IS NULL AND c = k THEN 'new' WHEN before = k - 1 THEN 'returning'
                                      ELSE 'resurrecting' END AS status, 1 AS n FROM around
                       UNION ALL SELECT k + 1, 'dormant', -1 FROM around WHERE after IS NULL OR after > k + 1)
            SELECT status, k - {first}, sum(n)::BIGINT FROM stages WHERE k BETWEEN {first} AND {last} GROUP BY ALL""")
        width = self.range.width()
        return [[status, dense([row[1:] for row in rows if row[0] == status], width)] for status in STATUSES]

    def found(self, results):
        return [[line["status"], line["data"]] for line in results]

    def is_same(self, found, expected):
        return same(found, expected)
