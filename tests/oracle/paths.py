"""Paths: which steps persons take one after another."""

from asking import FILTERS, Range, quote, same, unit

KINDS = {"$pageview": "event = '$pageview'", "$screen": "event = '$screen'", "custom_event": "NOT starts_with(event, '$')"}
POINTS = ["https://x/a/", "https://x", "buy", "Shop/", "https://x/b/<id>", "x/b*", "view", "nowhere"]
GAP = 30 * 60 * 1_000_000


class Question:
    def __init__(self, pick, world, settings):
        self.range = Range(pick, world, settings, "day", 75)
        self.kinds = [kind for kind in KINDS if pick.random() < 0.4]
        self.filters, self.holds = pick.choice(FILTERS)
        self.unit, self.actor = unit(pick)
        self.is_clean, self.is_grouped = pick.random() < 0.4, pick.random() < 0.3
        self.excluded = [item for item in ("https://x", "Home", "buy") if pick.random() < 0.2]
        self.start, self.end = [pick.choice(POINTS) if pick.random() < 0.15 else None for _ in range(2)]
        self.steps = pick.choice([None, None, *range(1, 9)])
        self.edges = pick.choice([None, None, *range(1, 30)])
        self.least, self.most = pick.choice([None, None, None, 0, 1, 2, 3]), pick.choice([None, None, None, 1, 2, 5])

    def node(self):
        return {
            "kind": "PathsQuery", "dateRange": self.range.node, "properties": self.filters, **self.unit,
            "pathsFilter": {
                "includeEventTypes": self.kinds, "startPoint": self.start, "endPoint": self.end, "stepLimit": self.steps,
                "excludeEvents": self.excluded, "edgeLimit": self.edges, "minEdgeWeight": self.least,
                "maxEdgeWeight": self.most, "pathGroupings": ["x/b*", "v*w"] if self.is_grouped else [],
                "localPathCleaningFilters": [{"regex": r"(b)/\d", "alias": r"\1/<id>"}] if self.is_clean else [],
            },
        }

    def item(self):
        """The name of a step: clean, then grouped."""
        item = "CASE WHEN is_page AND length(text) > 1 AND ends_with(text, '/') THEN left(text, -1) ELSE text END"
        if self.is_clean:
            item = rf"regexp_replace({item}, '(b)/\d', '\1/<id>', 'g')"
        if self.is_grouped:
            group = "CASE WHEN contains(i, 'x/b') THEN 'x/b*' WHEN regexp_matches(i, 'v.*w') THEN 'v*w' ELSE i END"
            item = f"(SELECT {group} FROM (SELECT {item} AS i))"
        return item

    def expected(self, ask):
        kinds = " OR ".join(KINDS[kind] for kind in self.kinds) or "true"
        excluded = ", ".join(map(quote, self.excluded)) or "NULL"
        start, end = [point and quote(point.removesuffix("/")) for point in (self.start, self.end)]
        most = self.steps or 5
        # Parts of sessions as (session, n, us, item), n from 1 on.
        from_start = f"""
            SELECT session, us, item, n FROM runs JOIN (
                SELECT session, min(n) AS first FROM runs WHERE item = {start} GROUP BY session)
            USING (session) WHERE n >= first""" if start else "SELECT * FROM runs"
        to_end = f"""
            SELECT session, us, item, n FROM begun JOIN (
                SELECT session, min(n) AS last FROM begun WHERE item = {end} GROUP BY session)
            USING (session) WHERE n <= last""" if end else "SELECT * FROM begun"
        half = most // 2
        if start and end:
            cut = f"""
                SELECT session, us, item, place FROM counted WHERE count <= {most} OR place <= {half}
                UNION ALL SELECT session, us, '...', place FROM counted WHERE count > {most} AND place = {half + 1}
                UNION ALL SELECT session, us, item, {half + 1} + place - (count - {half}) FROM counted
                          WHERE count > {most} AND place > count - {half}"""
        elif end:
            cut = f"""
                SELECT session, us, item, place - greatest(count - {most}, 0) AS place FROM counted
                WHERE place > count - {most}"""
        else:
            cut = f"SELECT session, us, item, place FROM counted WHERE place <= {most}"
        return ask(f"""
            WITH RECURSIVE named AS (
                SELECT {self.actor} AS who, us, event = '$pageview' AS is_page,
                       CASE event WHEN '$pageview' THEN url WHEN '$screen' THEN screen ELSE event END AS raw,
                       coalesce(raw, '') AS text, {self.item()} AS item
                FROM e WHERE {self.holds} AND {self.range.bounds()} AND ({kinds}) AND who IS NOT NULL),
            ordered AS (SELECT who, us, item, row_number() OVER (PARTITION BY who ORDER BY us, is_page, raw NULLS FIRST) AS n
                        FROM named WHERE coalesce(item NOT IN ({excluded}), true)),
            gaps AS (SELECT *, coalesce(us - lag(us) OVER (PARTITION BY who ORDER BY n) >= {GAP}, true) AS is_new
                     FROM ordered),
            sessions AS (SELECT us, item, n, (who, sum(is_new::INT) OVER (PARTITION BY who ORDER BY n)) AS session FROM gaps),
            runs AS (SELECT * FROM sessions QUALIFY item IS DISTINCT FROM lead(item) OVER (PARTITION BY session ORDER BY n)),
            begun AS ({from_start}), ended AS ({to_end}),
            counted AS (SELECT session, us, item, row_number() OVER (PARTITION BY session ORDER BY n) AS place,
                               count(*) OVER (PARTITION BY session) AS count FROM ended),
            paths AS ({cut}),
            pairs AS (SELECT lag(place || '_' || item) OVER own AS source, place || '_' || item AS target,
                             us - lag(us) OVER own AS took FROM paths WINDOW own AS (PARTITION BY session ORDER BY place)),
            edges AS (SELECT source, target, count(*) AS number, avg(took) / 1000 AS took FROM pairs WHERE source IS NOT NULL
                      GROUP BY source, target HAVING number BETWEEN {self.least or 0} AND {self.most or 1 << 60}
                      ORDER BY number DESC, source, target LIMIT {self.edges or 50}),
            reached AS (SELECT source AS key FROM edges WHERE starts_with(source, '1_')
                        UNION SELECT target FROM edges JOIN reached ON source = key)
            SELECT source, target, number, took FROM edges WHERE source IN (SELECT key FROM reached)
            ORDER BY number DESC, source, target""")

    def found(self, results):
        return [[edge["source"], edge["target"], edge["value"], edge["average_conversion_time"]] for edge in results]

    def is_same(self, found, expected):
        return same(found, expected)
