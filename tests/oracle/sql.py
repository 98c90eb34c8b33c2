"""SQL over all tables with what a world has, whose answer nobody is free to choose: rows have an order, or are compared
without one, nothing in them is of the moment when it was sent or asked, and persons have no numbers, which count those of
all projects of a shard."""

import datetime

PRICE = "toFloat(JSONExtractString(properties, 'price'))"

# What events have.
TEXTS = [
    "event", "distinct_id", "properties.plan", "properties.$browser", "properties.price", "group_0", "session_id", "person_id",
    "person.properties.tier", "p_$current_url", "coalesce(properties.plan, 'none')", "upper(event)",
    "if(event = 'buy', 'buys', properties.plan)", "path(coalesce(properties.$current_url, ''))",
    "substring(toString(uuid), 1, 1)", "event || '-' || properties.plan", "JSONExtractRaw(properties, '$browser')",
]
TIMES = [
    "toStartOfDay(timestamp)", "toStartOfHour(timestamp)", "toStartOfWeek(timestamp)", "toStartOfMonth(timestamp)",
    "toDate(timestamp)", "toHour(timestamp)", "date_trunc('quarter', timestamp)", "toDayOfWeek(timestamp)",
]
NUMBERS = [
    PRICE, "p_price", "length(properties)", "toHour(timestamp)", f"if({PRICE} > 500, 1, 0)", "if(person.properties.tier = 'gold', 1, 0)",
    "toUnixTimestamp(timestamp) % 97", "toUnixTimestamp(person.created_at) % 89",
]
CONDITIONS = [
    "event = 'buy'", "event <> 'view'", "event IN ('buy', 'sign up')", "event LIKE '$%'", "match(event, '^(v|b)')",
    "properties.plan = 'pro'", "properties.$browser IS NULL", "properties.$browser IN ('Chrome', 'Edge', '7')",
    "properties.price > 300", "p_price BETWEEN 100 AND 700", f"{PRICE} > 300", "person.properties.tier = 'gold'",
    "person.properties.tier IS NULL", "distinct_id IN ('d0', 'd1', 'd7', 'd20')", "distinct_id NOT LIKE '%1'",
    "group_0 = 'c1'", "session_id IS NOT NULL", "toHour(timestamp) < 9", "toDayOfWeek(timestamp) = 2",
]
# Those that only WHERE may have.
QUERIES = [
    "person_id IN (SELECT person_id FROM events WHERE event = 'buy')",
    "person_id IN (SELECT id FROM persons WHERE is_identified)",
    "timestamp > (SELECT min(timestamp) FROM events WHERE event = 'buy')",
]
AGGREGATES = [
    "count()", "count()", "uniq(person_id)", "count(DISTINCT distinct_id)", "min(timestamp)", "max(timestamp)",
    "min({text})", "max({text})", "uniq({text})", "count({text})", "sum({number})", "avg({number})", "min({number})",
    "max({number})", "median({number})", "quantile(0.9)({number})", "countIf({condition})", "sumIf({number}, {condition})",
    "uniqIf(person_id, {condition})", "argMin(event, uuid)", "argMax({text}, uuid)", "arraySort(groupUniqArray({text}))",
    "length(groupArray(event))", "round(stddevPop({number}), 6)", "sum({number}) / count()", "max(timestamp) - min(timestamp)",
]
WINDOWS = [
    "row_number() OVER own", "lag(event) OVER own", "lead(timestamp) OVER own", "count() OVER own",
    "first_value({text}) OVER own", "sum({number}) OVER own", "countIf({condition}) OVER own", "max({number}) OVER own",
]
# What the other tables have: columns that tell rows apart, and others.
TABLES = {
    "persons": ("id", ["properties.tier", "created_at", "is_identified", "properties", "toStartOfDay(created_at)"]),
    "person_distinct_ids": ("distinct_id", ["person_id", "length(distinct_id)"]),
    "sessions": ("session_id", [
        "person_id", "$start_timestamp", "$end_timestamp", "$session_duration", "$pageview_count", "$is_bounce",
        "$entry_current_url", "$end_pathname",
    ]),
}


class Question:
    def __init__(self, pick, world, settings):
        self.pick, self.world = pick, world
        # Whether the order of the rows is asked for.
        self.is_exact = pick.random() < 0.7
        forms = [self.grouped, self.grouped, self.rows, self.windows, self.nested, self.joined, self.together, self.others]
        self.sql = pick.choice(forms)()

    def node(self):
        return {"kind": "HogQLQuery", "query": self.sql}

    def filled(self, text):
        """With random parts in the places of names in braces."""
        for name, parts in (("text", TEXTS), ("number", NUMBERS), ("condition", CONDITIONS)):
            text = text.replace(f"{{{name}}}", self.pick.choice(parts))
        return text

    def some(self, parts, most):
        return [self.filled(part) for part in self.pick.sample(parts, self.pick.randrange(1, most + 1))]

    def where(self):
        """Of all events, or of some."""
        pick = self.pick
        conditions = [condition for condition in pick.sample(CONDITIONS + QUERIES, 2) if pick.random() < 0.4]
        if pick.random() < 0.3:
            day = self.world.first + datetime.timedelta(pick.randrange(60))
            conditions.append(f"timestamp {pick.choice(['>=', '<'])} toDateTime('{day} 00:00:00')")
        if len(conditions) > 1 and pick.random() < 0.3:
            conditions = [f"({' OR '.join(conditions)})"]
        if conditions and pick.random() < 0.15:
            conditions[0] = f"NOT ({conditions[0]})"
        return f" WHERE {' AND '.join(conditions)}" if conditions else ""

    def ordered(self, sql, columns):
        """By all of these columns, so that rows are the first ones of few, or in no order."""
        pick = self.pick
        if not self.is_exact:
            return sql
        keys = [f"{column}{pick.choice(['', ' DESC'])}{pick.choice(['', ' NULLS FIRST', ' NULLS LAST'])}" for column in columns]
        limit = f" LIMIT {pick.choice([1, 7, 30])}" if pick.random() < 0.5 else ""
        offset = f" OFFSET {pick.choice([1, 5])}" if limit and pick.random() < 0.3 else ""
        return f"{sql} ORDER BY {', '.join(keys)}{limit}{offset}"

    def grouped(self):
        keys = self.some(TEXTS + TIMES, 2) if self.pick.random() < 0.9 else []
        values = self.some(AGGREGATES, 3)
        columns = [f"{key} AS k{at}" for at, key in enumerate(keys)] + [f"{value} AS v{at}" for at, value in enumerate(values)]
        names = [f"k{at}" for at in range(len(keys))]
        sql = f"SELECT {', '.join(columns)} FROM events{self.where()}"
        if not keys:
            return sql
        having = self.pick.choice(["", "", "", " HAVING count() > 3", " HAVING uniq(person_id) > 1"])
        first = ["v0"] if self.pick.random() < 0.3 and "[" not in values[0] and "Array" not in values[0] else []
        return self.ordered(f"{sql} GROUP BY {', '.join(names)}{having}", first + names)

    def rows(self):
        columns = self.some(TEXTS + TIMES + NUMBERS + ["properties", "elements_chain", "person.created_at"], 4)
        named = [f"{column} AS c{at}" for at, column in enumerate(columns)]
        first = self.pick.choice([[], ["timestamp"], ["c0"]])
        return self.ordered(f"SELECT uuid, {', '.join(named)} FROM events{self.where()}", [*first, "uuid"])

    def windows(self):
        columns = [f"{window} AS c{at}" for at, window in enumerate(self.some(WINDOWS, 2))]
        by = self.pick.choice(["person_id", "session_id", "event", "distinct_id"])
        order = self.pick.choice(["timestamp, uuid", "uuid DESC"])
        own = f"(PARTITION BY {by} ORDER BY {order})"
        columns = [column.replace("OVER own", f"OVER {own}") for column in columns]
        return self.ordered(f"SELECT uuid, {', '.join(columns)} FROM events{self.where()}", ["uuid"])

    def nested(self):
        """How often there is how much of each."""
        by, value = self.filled("{text}"), self.filled(self.pick.choice(["count()", "uniq({text})", "countIf({condition})"]))
        inner = f"SELECT {by} AS k, {value} AS n FROM events{self.where()} GROUP BY k"
        if self.pick.random() < 0.5:
            sql = f"SELECT n, count() AS times FROM ({inner}) GROUP BY n"
        else:
            sql = f"WITH own AS ({inner}) SELECT n, count() AS times FROM own WHERE n > 1 GROUP BY n"
        return self.ordered(sql, ["n"])

    def joined(self):
        pick = self.pick
        if pick.random() < 0.4:
            sql = "SELECT p.id AS k, p.properties.tier AS tier, count() AS n FROM events e JOIN persons p ON p.id = e.person_id"
            return self.ordered(f"{sql} GROUP BY p.id, p.properties.tier", ["k"])
        if pick.random() < 0.5:
            by = pick.choice(["person_id", "session_id", "distinct_id"])
            which = pick.choice(["= 'buy'", "<> 'view'"])
            on = f"a.{by} = b.{by} AND a.event {which} AND a.timestamp < b.timestamp"
            sql = f"SELECT a.event AS k, b.event AS l, count() AS n FROM events a JOIN events b ON {on} GROUP BY k, l"
            return self.ordered(sql, ["k", "l"])
        kind = pick.choice(["JOIN", "LEFT JOIN"])
        inner = f"SELECT person_id, count() AS n FROM events{self.where()} GROUP BY person_id"
        sql = f"SELECT d.distinct_id AS k, d.person_id AS person, o.n FROM person_distinct_ids d {kind} ({inner}) o"
        return self.ordered(f"{sql} ON o.person_id = d.person_id", ["k"])

    def together(self):
        """The rows of two questions."""
        parts = [f"SELECT {self.filled('{text}')} AS k, count() AS n FROM events{self.where()} GROUP BY k" for _ in range(2)]
        kind = self.pick.choice(["UNION ALL", "UNION ALL", "UNION", "EXCEPT", "INTERSECT"])
        return self.ordered(f"SELECT k, n FROM ({parts[0]} {kind} {parts[1]})", ["k", "n"])

    def others(self):
        pick = self.pick
        table, (key, columns) = pick.choice(list(TABLES.items()))
        if pick.random() < 0.4:
            by = pick.choice(columns)
            return self.ordered(f"SELECT {by} AS k, count() AS n FROM {table} GROUP BY k", ["k"])
        chosen = pick.sample(columns, pick.randrange(1, len(columns) + 1))
        named = [f"{column} AS c{at}" for at, column in enumerate(chosen)]
        return self.ordered(f"SELECT {key}, {', '.join(named)} FROM {table}", [key])
