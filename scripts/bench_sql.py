"""SQL over the events of bench-read.sh. Usage: bench_sql.py URL DATA_DIR ROUNDS SERVER_PID

Asks Weir over HTTP and DuckDB on the same live files in turn, ROUNDS times each, with as many threads as there are
cores; prints the median of time and the mean of processor time in milliseconds, and their ratios: what else the
machine does changes the first more than the second. Answers have to be equal, except where they are about persons: files have the
person as at ingest, and Weir follows the merges since.
"""

import io
import os
import statistics
import sys
import time
from pathlib import Path

import duckdb
import pyarrow.parquet

from bench_read import Weir, memory, table

# Name, SQL of Weir, SQL of DuckDB where it differs. {events} and {persons} are the tables, {distinct_id} one of the
# busiest persons. A property without a column is read from the JSON text.
QUESTIONS = [
    ("count", "SELECT count(*) FROM {events}", None),
    ("by day and a promoted property", '''SELECT date_trunc('day', timestamp) AS day, "p_$browser" AS browser, count(*) AS n
        FROM {events} WHERE event = '$pageview' GROUP BY 1, 2''', None),
    ("daily actives", """SELECT date_trunc('day', timestamp) AS day, count(DISTINCT person_id) AS n
        FROM {events} GROUP BY 1""", None),
    ("top URLs", '''SELECT "p_$current_url" AS url, count(*) AS n FROM {events} GROUP BY 1
        ORDER BY n DESC, url LIMIT 10''', None),
    ("sum of a JSON number", """SELECT sum(json_get_float(properties, 'size_bytes')) AS n FROM {events}
        WHERE event = 'file uploaded'""",
        """SELECT sum(TRY_CAST(properties->>'size_bytes' AS DOUBLE)) AS n FROM {events} WHERE event = 'file uploaded'"""),
    ("sum of a promoted number", "SELECT sum(p_revenue) AS n FROM {events}", None),
    ("by a JSON text", """SELECT json_as_text(properties, 'mime_type') AS kind, count(*) AS n FROM {events} GROUP BY 1""",
        "SELECT properties->>'mime_type' AS kind, count(*) AS n FROM {events} GROUP BY 1"),
    ("filter on a promoted property", '''SELECT count(*) AS n FROM {events} WHERE "p_$browser" = 'Firefox''' + "'", None),
    ("one person's events", "SELECT event, timestamp FROM {events} WHERE distinct_id = '{distinct_id}'", None),
    ("join with person properties", """SELECT json_as_text(p.properties, 'plan') AS plan, count(*) AS n
        FROM {events} e JOIN {persons} p ON e.person_id = p.uuid GROUP BY 1""",
        """SELECT p.properties->>'plan' AS plan, count(*) AS n
        FROM {events} e JOIN {persons} p ON e.person_id = p.uuid GROUP BY 1"""),
    ("persons by a property", """SELECT json_as_text(properties, 'plan') AS plan, count(*) AS n FROM {persons} GROUP BY 1""",
        "SELECT properties->>'plan' AS plan, count(*) AS n FROM {persons} GROUP BY 1"),
    ("three steps as SQL", """SELECT count(DISTINCT a.person_id) AS n FROM {events} a
        JOIN {events} b ON a.person_id = b.person_id AND b.timestamp > a.timestamp
        JOIN {events} c ON b.person_id = c.person_id AND c.timestamp > b.timestamp
        WHERE a.event = 'video played' AND b.event = 'message sent' AND c.event = 'file uploaded'""", None),
]

OF_PERSONS = {"daily actives", "join with person properties", "three steps as SQL"}

def rows(answer):
    """Rows as a set to be compared: times as numbers, numbers with ten digits."""
    def value(cell):
        if hasattr(cell, "timestamp"):
            return cell.timestamp()
        return float(f"{cell:.10g}") if isinstance(cell, (int, float)) else cell
    return sorted((tuple(map(value, row.values())) for row in answer.to_pylist()), key=repr)

def processor_seconds(pid):
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

def measured(ask, pid):
    """The answer, its seconds, and the processor seconds that PID spent on it."""
    before, spent = time.perf_counter(), processor_seconds(pid)
    answer = ask()
    return answer, time.perf_counter() - before, processor_seconds(pid) - spent

def main():
    url, data, rounds, pid = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    weir, duck = Weir(url), duckdb.connect()
    duck.execute("SET TimeZone = 'UTC'")
    files = {name: table(data / "tables" / name) for name in ("events", "persons")}
    busiest = f"""SELECT distinct_id FROM {files["events"]} GROUP BY 1 ORDER BY count(*) DESC, 1 OFFSET 100 LIMIT 1"""
    distinct_id = duck.sql(busiest).fetchall()[0][0]
    own = {"events": "events", "persons": "persons", "distinct_id": distinct_id}
    theirs = {**files, "distinct_id": distinct_id}
    print(f"{'milliseconds':32} {'Weir':>9} {'DuckDB':>9} {'ratio':>6} {'Weir CPU':>9} {'DuckDB':>9} {'ratio':>6}")
    for name, text, other in QUESTIONS:
        ours, duckdbs = [], []
        for _ in range(rounds + 1):
            answer, *spent = measured(lambda: weir.sql(text.format(**own)), pid)
            ours.append(spent)
            ask = lambda: duck.sql((other or text).format(**theirs)).to_arrow_table()
            expected, *spent = measured(ask, os.getpid())
            duckdbs.append(spent)
        answer = pyarrow.parquet.read_table(io.BytesIO(answer))
        if name not in OF_PERSONS and rows(answer) != rows(expected):
            sys.exit(f"{name}: answers differ: {rows(answer)[:3]} and {rows(expected)[:3]}")
        # The first round warms caches. Processor time is counted in steps of 10 ms: its mean, not its median.
        figures = []
        for at, middle in ((0, statistics.median), (1, statistics.mean)):
            pair = [middle(spent[at] for spent in of[1:]) * 1e3 for of in (ours, duckdbs)]
            figures += [*pair, pair[0] / pair[1] if pair[1] else float("nan")]
        print("{:32} {:9.1f} {:9.1f} {:6.2f} {:9.1f} {:9.1f} {:6.2f}".format(name, *figures), flush=True)
    print("server {} MiB after, {} MiB at most".format(*memory(pid)))

if __name__ == "__main__":
    main()
