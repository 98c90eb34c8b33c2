"""Insights over the events of bench-read.sh. Usage: bench_insights.py URL DATA_DIR ROUNDS SERVER_PID

Asks Weir over HTTP, DuckDB on the same live files, and chDB on them if it is installed, in turn, ROUNDS times each;
prints medians in milliseconds and the ratio of Weir to the faster of the others. The numbers of the answers have to be
equal, except where the others count persons: files have the person as at ingest, and Weir follows the merges since.
WEIR_BENCH_DAYS is the length of the range (30).
"""

import json
import os
import sys
import time
from pathlib import Path

import duckdb

from bench_read import Weir, memory, table

try:
    import chdb
except ImportError:
    chdb = None

STEPS = ["video played", "message sent", "file uploaded"]
DAYS_ASKED = int(os.environ.get("WEIR_BENCH_DAYS", "30"))
BACK = DAYS_ASKED - 1
RANGE = {"date_from": f"-{BACK}d"}

def series(event, **more):
    return {"kind": "EventsNode", "event": event, **more}

def trend(event, **more):
    node = {"kind": "TrendsQuery", "series": [series(event)], "dateRange": RANGE, "interval": "day"}
    return {**node, **more}

def total(results):
    return sum(sum(line["data"]) for line in results)

def steps(results):
    return [step["count"] for step in results]

def cells(results):
    return sum(cell["count"] for row in results for cell in row["values"])

# The events of the range, as the columns that a question reads.
DAYS = "date_trunc('day', timestamp)"
SINCE = f"timestamp >= date_trunc('day', now()::TIMESTAMPTZ) - INTERVAL {BACK} DAY"

def funnel(is_split):
    """Three steps within 7 days, or the same by the browser of the first one."""
    own, browser, by = (', "p_$browser" AS browser', ", browser", " GROUP BY browser") if is_split else ("", "", "")
    return f"""WITH a AS (SELECT person_id AS p, timestamp AS t{own} FROM {{events}} WHERE event = '{STEPS[0]}' AND {SINCE}),
        b AS (SELECT person_id AS p, timestamp AS t FROM {{events}} WHERE event = '{STEPS[1]}' AND {SINCE}),
        c AS (SELECT person_id AS p, timestamp AS t FROM {{events}} WHERE event = '{STEPS[2]}' AND {SINCE}),
        ab AS (SELECT a.p, a.t, b.t AS t2{browser} FROM a ASOF LEFT JOIN b ON a.p = b.p AND b.t >= a.t),
        ab2 AS (SELECT p, t, CASE WHEN t2 <= t + INTERVAL 7 DAY THEN t2 END AS t2{browser} FROM ab),
        abc AS (SELECT ab2.p, ab2.t, t2, c.t AS t3{browser} FROM ab2 ASOF LEFT JOIN c ON ab2.p = c.p AND c.t >= ab2.t2)
        SELECT count(DISTINCT p), count(DISTINCT p) FILTER (WHERE t2 IS NOT NULL),
            count(DISTINCT p) FILTER (WHERE t3 <= t + INTERVAL 7 DAY) FROM abc{by}"""

# The same for chDB.
CH_DAY = "toDate(timestamp, 'UTC')"
CH_SINCE = f"timestamp >= toStartOfDay(now('UTC')) - INTERVAL {BACK} DAY"
CH_DAYS_OF_PERSONS = f"""(SELECT arraySort(groupUniqArray({CH_DAY})) AS days FROM {{events}}
    WHERE event = '{{event}}' AND {CH_SINCE} GROUP BY person_id)"""

def ch_funnel(is_split):
    browser = f""", argMinIf("p_$browser", timestamp, event = '{STEPS[0]}') AS browser""" if is_split else ""
    return f"""SELECT countIf(n >= 1), countIf(n >= 2), countIf(n >= 3) FROM (SELECT windowFunnel(604800000000)(
        toUInt64(toUnixTimestamp64Micro(timestamp)), event = '{STEPS[0]}', event = '{STEPS[1]}', event = '{STEPS[2]}') AS n{browser}
        FROM {{events}} WHERE event IN ('{STEPS[0]}', '{STEPS[1]}', '{STEPS[2]}') AND {CH_SINCE} GROUP BY person_id)
        {"GROUP BY browser" if is_split else ""}"""

def ch_by_day(value, where="1", more=""):
    return f"SELECT sum(n) FROM (SELECT {CH_DAY} AS d{more}, {value} AS n FROM {{events}} WHERE {where} AND {CH_SINCE} GROUP BY ALL)"

# Name, node, what is compared, SQL of DuckDB, SQL of chDB.
QUESTIONS = [
    ("trend by day and browser", trend("$pageview", breakdownFilter={"breakdown": "$browser"}), total,
        f"SELECT sum(n) FROM (SELECT {DAYS}, \"p_$browser\", count(*) AS n FROM {{events}} WHERE event = '$pageview' AND {SINCE} GROUP BY ALL)",
        ch_by_day("count()", "event = '$pageview'", ', "p_$browser"')),
    ("daily actives", trend(None, series=[series(None, math="dau")]), total,
        f"SELECT sum(n) FROM (SELECT {DAYS}, count(DISTINCT person_id) AS n FROM {{events}} WHERE {SINCE} GROUP BY ALL)",
        ch_by_day("uniqExact(person_id)")),
    ("weekly actives", trend(None, series=[series(None, math="weekly_active")]), total,
        f"""WITH active AS (SELECT DISTINCT person_id, {DAYS} AS day FROM {{events}}
            WHERE timestamp >= date_trunc('day', now()::TIMESTAMPTZ) - INTERVAL {BACK + 7} DAY),
            days AS (SELECT date_trunc('day', now()::TIMESTAMPTZ) - n * INTERVAL 1 DAY AS d FROM range({DAYS_ASKED}) t(n))
            SELECT sum(n) FROM (SELECT d, count(DISTINCT person_id) AS n FROM days
                JOIN active ON day <= d AND day > d - INTERVAL 7 DAY GROUP BY d)""",
        f"""WITH active AS (SELECT person_id, {CH_DAY} AS day FROM {{events}}
            WHERE timestamp >= toStartOfDay(now('UTC')) - INTERVAL {BACK + 7} DAY GROUP BY person_id, day)
            SELECT sum(n) FROM (SELECT day + arrayJoin(range(7)) AS d, uniqExact(person_id) AS n FROM active GROUP BY d)
            WHERE d BETWEEN toDate(now('UTC')) - {BACK} AND toDate(now('UTC'))"""),
    ("sum of a property", trend(None, series=[series(None, math="sum", math_property="revenue")]),
        lambda results: round(total(results)), f"SELECT round(sum(n)) FROM (SELECT {DAYS}, sum(p_revenue) AS n FROM {{events}} WHERE {SINCE} GROUP BY ALL)",
        ch_by_day("sum(p_revenue)")),
    ("filter on a promoted property", trend(None, properties=[
        {"key": "$browser", "value": ["Firefox"], "operator": "exact", "type": "event"}]), total,
        f"SELECT sum(n) FROM (SELECT {DAYS}, count(*) AS n FROM {{events}} WHERE \"p_$browser\" = 'Firefox' AND {SINCE} GROUP BY ALL)",
        ch_by_day("count()", "\"p_$browser\" = 'Firefox'")),
    ("newest hour", trend("$pageview", dateRange={"date_from": "-1h"}, interval="hour"), total, None, None),
    ("three-step funnel in 7 days", {"kind": "FunnelsQuery", "dateRange": RANGE, "series": [series(step) for step in STEPS],
        "funnelsFilter": {"funnelWindowInterval": 7, "funnelWindowIntervalUnit": "day"}}, steps, funnel(False), ch_funnel(False)),
    ("the same by browser", {"kind": "FunnelsQuery", "dateRange": RANGE, "series": [series(step) for step in STEPS],
        "breakdownFilter": {"breakdown": "$browser"},
        "funnelsFilter": {"funnelWindowInterval": 7, "funnelWindowIntervalUnit": "day"}}, lambda _: None, funnel(True), ch_funnel(True)),
    ("daily retention", {"kind": "RetentionQuery", "dateRange": RANGE, "retentionFilter": {"period": "Day", "totalIntervals": 8,
        "targetEntity": {"id": STEPS[0], "type": "events"}, "returningEntity": {"id": STEPS[0], "type": "events"}}}, cells,
        f"""WITH active AS (SELECT DISTINCT person_id AS p, {DAYS} AS d FROM {{events}} WHERE event = '{STEPS[0]}'
                AND timestamp >= date_trunc('day', now()::TIMESTAMPTZ) - INTERVAL {BACK} DAY)
            SELECT sum(n) FROM (SELECT a.d, b.d, count(*) AS n FROM active a JOIN active b ON a.p = b.p
                AND b.d >= a.d AND b.d <= a.d + INTERVAL 7 DAY GROUP BY ALL)""",
        """SELECT sum(n) FROM (SELECT arrayJoin(days) AS d, arrayJoin(arrayFilter(day -> day BETWEEN d AND d + 7, days)) AS e,
            count() AS n FROM {days} GROUP BY d, e)""".replace("{days}", CH_DAYS_OF_PERSONS.replace("{event}", STEPS[0]))),
    ("lifecycle", {"kind": "LifecycleQuery", "dateRange": RANGE, "interval": "day", "series": [series("$pageview")]},
        lambda _: None, f"""WITH active AS (SELECT DISTINCT person_id AS p, {DAYS} AS d FROM {{events}} WHERE event = '$pageview'
                AND timestamp >= date_trunc('day', now()::TIMESTAMPTZ) - INTERVAL {DAYS_ASKED} DAY),
            near AS (SELECT p, d, lag(d) OVER w AS before, lead(d) OVER w AS after FROM active WINDOW w AS (PARTITION BY p ORDER BY d))
            SELECT d, count(*) FILTER (WHERE before = d - INTERVAL 1 DAY), count(*) FILTER (WHERE before IS NULL),
                count(*) FILTER (WHERE before < d - INTERVAL 1 DAY),
                count(*) FILTER (WHERE after IS NULL OR after > d + INTERVAL 1 DAY) FROM near GROUP BY d""",
        """SELECT day.1 AS d, countIf(day.2 = d - 1), countIf(day.2 = toDate(0)), countIf(day.2 > toDate(0) AND day.2 < d - 1),
            countIf(day.3 != d + 1)
            FROM (SELECT arrayJoin(arrayZip(days, arrayPushFront(arrayPopBack(days), toDate(0)),
                arrayPushBack(arrayPopFront(days), toDate(0)))) AS day FROM {days}) GROUP BY d ORDER BY d"""
            .replace("{days}", CH_DAYS_OF_PERSONS.replace("{event}", "$pageview"))),
    ("paths", {"kind": "PathsQuery", "dateRange": RANGE, "pathsFilter": {"includeEventTypes": ["$pageview"]}},
        lambda _: None, f"""WITH e AS (SELECT person_id AS p, timestamp AS t, "p_$current_url" AS u FROM {{events}}
                WHERE event = '$pageview' AND {SINCE}),
            g AS (SELECT *, CASE WHEN t - lag(t) OVER w < INTERVAL 30 MINUTE THEN 0 ELSE 1 END AS is_new FROM e WINDOW w AS (PARTITION BY p ORDER BY t)),
            s AS (SELECT *, sum(is_new) OVER (PARTITION BY p ORDER BY t) AS session FROM g),
            n AS (SELECT *, row_number() OVER w AS place, lead(u) OVER w AS next FROM s WINDOW w AS (PARTITION BY p, session ORDER BY t))
            SELECT place, u, next, count(*) FROM n WHERE place < 5 AND next IS NOT NULL GROUP BY ALL ORDER BY 4 DESC LIMIT 50""", None),
]

def ask(weir, node):
    body = json.dumps({"query": node, "refresh": "force_blocking"})
    return json.loads(weir.send("POST", "query/", body))["results"]

def clickhouse(sql, events):
    """The first row of chDB on the files of DuckDB's expression `events`."""
    files = [Path(name.strip(" '")) for name in events[events.index("[") + 1 : events.index("]")].split(",")]
    globbed = f"{files[0].parent.parent}/*/{{{','.join(file.name for file in files)}}}"
    return json.loads(str(chdb.query(sql.format(events=f"file('{globbed}', Parquet)"), "JSONCompact")))["data"][0]

def timed(work):
    before = time.perf_counter()
    answer = work()
    return answer, (time.perf_counter() - before) * 1e3

def main():
    url, data, rounds, pid = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    weir, duck = Weir(url), duckdb.connect()
    duck.execute("SET TimeZone = 'UTC'")
    events = table(data / "tables" / "events")
    idle = memory(pid)[0]
    print(f"{'milliseconds':32} {'Weir':>9} {'DuckDB':>9} {'chDB':>9} {'ratio':>6}")
    for name, node, compared, sql, native in QUESTIONS:
        times = ([], [], [])
        for _ in range(rounds + 1):
            results, took = timed(lambda: ask(weir, node))
            times[0].append(took)
            if sql:
                rows, took = timed(lambda: duck.sql(sql.format(events=events)).to_arrow_table())
                times[1].append(took)
            if native and chdb:
                others_row, took = timed(lambda: clickhouse(native, events))
                times[2].append(took)
        # The first round warms caches.
        medians = [sorted(of[1:])[len(of[1:]) // 2] if of else None for of in times]
        others = [own for own in medians[1:] if own]
        shown = [f"{own:9.1f}" if own else f"{'':9}" for own in medians]
        ratio = f"{medians[0] / min(others):6.2f}" if others else ""
        value = compared(results)
        value = value if isinstance(value, list) else [value]
        expected = []
        if sql and value != [None]:
            expected.append([float(cell or 0) for cell in rows.slice(0, 1).to_pylist()[0].values()])
            if native and chdb:
                expected.append([float(round(float(cell))) for cell in others_row])
        note = "" if all(row == [float(cell) for cell in value] for row in expected) else f"  {value} and {expected}"
        print(f"{name:32} {' '.join(shown)} {ratio}{note}", flush=True)
    print("server {} MiB idle, {} MiB after, {} MiB at most".format(idle, *memory(pid)))

if __name__ == "__main__":
    main()
