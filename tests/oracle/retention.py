"""Retention: how many of those who did something in an interval came back in each of the next ones, or in brackets of
them, also by the value of a breakdown; and the sums and means of a property of the events that count there."""

from asking import FILTERS, OTHER, Entity, Range, quote, same, unit

PERIODS = ["hour", "day", "day", "week", "month"]
KINDS = ["retention_recurring", "retention_recurring", "retention_first_time", "retention_first_ever_occurrence"]
BREAKDOWNS = {
    ("$browser",): "coalesce(browser, '')", ("plan",): "coalesce(plan, '')", ("price",): "coalesce(price_text, '')",
    ("tier",): "coalesce(tier, '')", ("tier", "$browser"): "coalesce(tier, '') || '::' || coalesce(browser, '')",
}


class Question:
    def __init__(self, pick, world, settings):
        period = pick.choice(PERIODS)
        self.range = Range(pick, world, settings, period, {"month": 75}.get(period, 25), 20)
        self.kind = pick.choice(KINDS)
        self.target, self.returning = Entity(pick), Entity(pick)
        self.filters, self.holds = pick.choice(FILTERS)
        self.count, self.is_cumulative = pick.randrange(1, 12), pick.random() < 0.3
        self.occurrences = pick.choice([1, 1, 2, 3])
        self.measure = pick.choice([None, None, None, "sum", "avg"])
        if self.measure:
            self.is_cumulative, self.occurrences = False, 1
            self.returning = pick.choice([self.target, self.returning])
        self.unit, self.actor = unit(pick)
        self.has_start = pick.random() < 0.6
        is_bracketed = pick.random() < 0.3
        self.brackets = [pick.choice([1, 1, 2, 3, 7]) for _ in range(pick.randrange(1, 6))] if is_bracketed else []
        self.cells = len(self.brackets) + 1 if is_bracketed else self.count
        self.breakdown = pick.choice([None, None, *BREAKDOWNS])
        self.limit = pick.choice([1, 2, 25])

    def node(self):
        dates = self.range.node if self.has_start else {"date_to": self.range.node["date_to"]}
        node = {
            "kind": "RetentionQuery", "dateRange": dates, "properties": self.filters, **self.unit,
            "retentionFilter": {
                "period": self.range.interval.capitalize(), "totalIntervals": self.count, "retentionType": self.kind,
                "targetEntity": self.target.entity(), "returningEntity": self.returning.entity(),
                "cumulative": self.is_cumulative, "minimumOccurrences": self.occurrences,
                "retentionCustomBrackets": self.brackets, "aggregationType": self.measure or "count",
                "aggregationProperty": "price" if self.measure else None,
            },
        }
        if self.breakdown:
            parts = [{"property": key, "type": "person" if key == "tier" else "event"} for key in self.breakdown]
            node["breakdownFilter"] = {"breakdowns": parts, "breakdown_limit": self.limit}
        return node

    def cell(self, later):
        """The cell of an interval that is so much later, as SQL; null if there is none."""
        if not self.brackets:
            return f"CASE WHEN {later} < {self.cells} THEN {later} END"
        ends = [sum(self.brackets[: at + 1]) for at in range(len(self.brackets))]
        return f"CASE {' '.join(f'WHEN {later} <= {end} THEN {at + 1}' for at, end in enumerate(ends))} END"

    def expected(self, ask):
        last = self.range.last()
        first = self.range.first() if self.has_start else last - self.count + 1
        place = self.range.place()
        value = BREAKDOWNS[self.breakdown] if self.breakdown else "''"
        is_ever = self.kind == "retention_first_ever_occurrence"
        starts = {
            "retention_recurring": "SELECT DISTINCT who, v, k FROM own WHERE is_target",
            "retention_first_time": "SELECT who, v, min(k) AS k FROM own WHERE is_target GROUP BY who, v",
            # Of several at one time, one of the target is enough.
            "retention_first_ever_occurrence": """
                SELECT who, min(v) AS v, k FROM own
                JOIN (SELECT who, min(us) AS us FROM own WHERE is_named GROUP BY who)
                USING (who, us) WHERE is_target GROUP BY who, k""",
        }[self.kind]
        # Who began with a value comes back with it; but the first event ever is one of all values.
        of = "''" if is_ever else "v"
        seen = "least" if self.is_cumulative else "cell"
        tables = f"""
            WITH own AS (SELECT {self.actor} AS who, us, {place} AS k, {value} AS v,
                                {self.target.condition} AS is_target,
                                {self.target.is_named} AS is_named, {self.returning.condition} AS is_back,
                                coalesce(price, 0) AS n
                         FROM e WHERE {self.holds} AND who IS NOT NULL AND {place} <= {last}),
            starts AS (SELECT who, v, k, {of} AS part FROM ({starts}) WHERE k BETWEEN {first} AND {last}),
            backs AS (SELECT who, k, {of} AS part FROM own WHERE is_back AND k >= {first} GROUP BY who, k, part
                      HAVING count(*) >= {self.occurrences}),
            cells AS (SELECT s.who, s.v, s.k AS row, 0 AS cell FROM starts s
                      UNION SELECT s.who, s.v, s.k, {self.cell('b.k - s.k')} AS cell
                            FROM starts s JOIN backs b ON b.who = s.who AND b.part = s.part AND b.k > s.k
                            WHERE cell IS NOT NULL),
            furthest AS (SELECT who, v, row, max(cell) AS most FROM cells GROUP BY who, v, row),
            earlier AS (SELECT who, v, row, least FROM furthest, generate_series(0, most) g(least)),
            ranks AS (SELECT v, row_number() OVER (ORDER BY count(*) DESC, v) AS rank
                      FROM cells WHERE cell = 0 GROUP BY v),"""
        value = f"CASE WHEN rank > {self.limit} THEN {quote(OTHER)} ELSE v END AS v"
        rows = ask(f"""{tables}
            named AS (SELECT row, {seen} AS cell, least(rank, {self.limit} + 1) AS rank, {value}
                      FROM {'earlier' if self.is_cumulative else 'cells'} JOIN ranks USING (v))
            SELECT v, row - {first}, cell, count(*) FROM named GROUP BY ALL ORDER BY min(rank)""")
        answer = {} if self.breakdown else {"": self.empty(first, last)}
        for own, row, cell, count in rows:
            answer.setdefault(own, self.empty(first, last))[row][cell][0] = count
        if self.measure:
            sums = ask(f"""{tables} {self.sums(of)},
                named AS (SELECT row, cell, n, {value} FROM added JOIN ranks USING (v))
                SELECT v, row - {first}, cell, sum(n) FROM named WHERE cell IS NOT NULL GROUP BY ALL""")
            for own, row, cell, number in sums:
                counted = answer[own][row][cell]
                counted[1] = number / max(counted[0], 1) if self.measure == "avg" else number
        return [[own, table] for own, table in answer.items()]

    def sums(self, of):
        """What the events of those in a row add to its cells."""
        is_same = self.target.node() == self.returning.node()
        # The first cell has what is the same again, or what comes after the first event of the target in the interval.
        counts = "o.is_target" if is_same else "o.is_back AND o.us > f.us"
        return f"""
            firsts AS (SELECT who, k, {of} AS part, min(us) AS us FROM own WHERE is_target GROUP BY ALL),
            added AS (
                SELECT s.who, s.v, s.k AS row, 0 AS cell, o.n FROM starts s
                JOIN (SELECT *, {of} AS part FROM own) o ON o.who = s.who AND o.part = s.part AND o.k = s.k
                JOIN firsts f ON f.who = s.who AND f.part = s.part AND f.k = s.k WHERE {counts}
                UNION ALL
                SELECT s.who, s.v, s.k, {self.cell('o.k - s.k')}, o.n FROM starts s
                JOIN (SELECT *, {of} AS part FROM own) o ON o.who = s.who AND o.part = s.part AND o.k > s.k
                WHERE o.is_back)"""

    def empty(self, first, last):
        return [[[0, 0] for _ in range(self.cells)] for _ in range(last - first + 1)]

    def found(self, results):
        answer = {}
        for row in results:
            cells = [[cell["count"], cell.get("aggregation_value", 0)] for cell in row["values"]]
            answer.setdefault(row.get("breakdown_value", ""), []).append(cells)
        return [[value, table] for value, table in answer.items()]

    def is_same(self, found, expected):
        return same(found, expected)
