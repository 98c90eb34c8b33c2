"""The measuring half of bench-read.sh. Usage: bench_read.py URL DATA_DIR ROUNDS SERVER_PID

Sends each query ROUNDS times over one connection, with other ids each time where there are ids, and DuckDB a tenth as
often; prints the time of the very first answer, medians and 99th percentiles in milliseconds, and the server's memory.
"""

import http.client
import json
import os
import random
import sys
import time
import urllib.parse
from pathlib import Path

import deltalake
import duckdb

KEY = os.environ["WEIR_PERSONAL_API_KEY"]
SAMPLES = 2000

class Weir:
    """One connection."""

    def __init__(self, url):
        parts = urllib.parse.urlsplit(url)
        self.connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=120)

    def get(self, path, **query):
        if query:
            path += "?" + urllib.parse.urlencode(query)
        return json.loads(self.send("GET", path))

    def sql(self, text):
        """Rows as Parquet, the form whose types are those of the engine."""
        return self.send("POST", "query/", json.dumps({"query": text, "format": "parquet"}))

    def send(self, method, path, body=None):
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        self.connection.request(method, "/api/projects/1/" + path, body=body, headers=headers)
        answer = self.connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            sys.exit(f"{path}: status {answer.status}: {body[:500]!r}")
        return body

def table(path):
    """The live files of a Delta table, for DuckDB: the columns of the table, behind which files may have others."""
    delta = deltalake.DeltaTable(str(path))
    names = ", ".join(f"'{urllib.parse.unquote(name.removeprefix('file://'))}'" for name in delta.file_uris())
    partitions = delta.metadata().partition_columns
    columns = ", ".join(f'"{field.name}"' for field in delta.schema().fields if field.name not in partitions)
    return f"(SELECT {columns} FROM read_parquet([{names}]))"

def timed(ask, rounds):
    times = []
    for number in range(rounds):
        before = time.perf_counter()
        ask(number)
        times.append((time.perf_counter() - before) * 1e3)
    times.sort()
    return times[len(times) // 2], times[min(len(times) - 1, len(times) * 99 // 100)]

def memory(pid):
    """Resident memory now and at most, MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    values = dict(line.split(":", 1) for line in lines)
    return [int(values[name].split()[0]) // 1024 for name in ("VmRSS", "VmHWM")]

def main():
    url, data, rounds, pid = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    weir, duck = Weir(url), duckdb.connect()
    persons, events = table(data / "tables/persons"), table(data / "tables/events")
    def sql(text, *values):
        return duck.sql(text, params=list(values)).to_arrow_table()
    def rows(text):
        return duck.execute(text).fetchall()
    totals = [rows(f"SELECT count(*) FROM {name}")[0][0] for name in (events, persons)]
    print(f"{totals[0]} events, {totals[1]} persons; server {memory(pid)[0]} MiB before the questions")
    sample = rows(f"SELECT id, distinct_ids->>0, properties->>'email' FROM {persons} USING SAMPLE {SAMPLES}")
    random.Random(1).shuffle(sample)
    person = lambda number: sample[number % len(sample)]
    emails = [row[2] for row in sample if row[2]]
    email = lambda number: emails[number % len(emails)]
    pro = json.dumps([{"key": "plan", "value": "enterprise", "operator": "exact"}])
    unset = json.dumps([{"key": "plan", "operator": "is_not_set"}])
    questions = [
        ("person by id", lambda n: weir.get(f"persons/{person(n)[0]}/"),
         lambda n: sql(f"SELECT * FROM {persons} WHERE id = ?", person(n)[0])),
        ("person by distinct id", lambda n: weir.get("persons/", distinct_id=person(n)[1]),
         lambda n: sql(f"SELECT * FROM {persons} WHERE list_contains(distinct_ids::JSON::VARCHAR[], ?)", person(n)[1])),
        ("persons, first page", lambda n: weir.get("persons/", limit=100),
         lambda n: sql(f"SELECT * FROM {persons} ORDER BY created_at DESC, uuid DESC LIMIT 100")),
        ("persons with an email", lambda n: weir.get("persons/", email=email(n)),
         lambda n: sql(f"SELECT * FROM {persons} WHERE properties->>'email' = ? LIMIT 100", email(n))),
        ("persons with a property", lambda n: weir.get("persons/", properties=pro, limit=100),
         lambda n: sql(f"""SELECT * FROM {persons} WHERE properties->>'plan' = 'enterprise'
                           ORDER BY created_at DESC, uuid DESC LIMIT 100""")),
        ("persons without a property", lambda n: weir.get("persons/", properties=unset, limit=100),
         lambda n: sql(f"""SELECT * FROM {persons} WHERE NOT json_exists(properties, '$.plan')
                           ORDER BY created_at DESC, uuid DESC LIMIT 100""")),
        ("persons by a part of an email", lambda n: weir.get("persons/", search=email(n)[:8], limit=100),
         lambda n: sql(f"""SELECT * FROM {persons} WHERE lower(properties->>'email') LIKE ?
                           ORDER BY created_at DESC, uuid DESC LIMIT 100""", f"%{email(n)[:8].lower()}%")),
        ("values of a property", lambda n: weir.get("persons/values/", key="plan"),
         lambda n: sql(f"SELECT properties->>'plan' AS v, count(*) FROM (SELECT properties FROM {persons} LIMIT 100000) GROUP BY v ORDER BY 2 DESC LIMIT 10")),
        ("event definitions", lambda n: weir.get("event_definitions/"),
         lambda n: sql(f"SELECT event, max(timestamp) FROM {events} GROUP BY event")),
        ("newest 100 events", lambda n: weir.get("events/", limit=100),
         lambda n: sql(f"SELECT * FROM {events} ORDER BY timestamp DESC LIMIT 100")),
        ("newest events of a person", lambda n: weir.get("events/", distinct_id=person(n)[1], limit=100),
         lambda n: sql(f"SELECT * FROM {events} WHERE distinct_id = ? ORDER BY timestamp DESC LIMIT 100", person(n)[1])),
    ]
    print(f"{'milliseconds':30} {'Weir first':>10} {'p50':>9} {'p99':>9} {'DuckDB p50':>11} {'p99':>9}")
    for name, ours, theirs in questions:
        first = timed(ours, 1)[:1]
        # What takes long is asked less often.
        before = time.perf_counter()
        ours(1)
        slow = max(1, int((time.perf_counter() - before) * 20))
        figures = first + timed(ours, max(5, rounds // slow)) + timed(theirs, max(5, rounds // 10 // slow))
        print("{:30} {:10.2f} {:9.2f} {:9.2f} {:11.1f} {:9.1f}".format(name, *figures))
    print("server {} MiB after, {} MiB at most".format(*memory(pid)))

if __name__ == "__main__":
    main()
