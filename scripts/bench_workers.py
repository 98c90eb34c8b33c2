"""The measuring half of bench-workers.sh. Usage: bench_workers.py WORKERS...

CPU seconds of each question as medians of ROUNDS runs, without the time of the first one, which fills caches. `total` is all
processes, `largest` the busiest of them, both in relation to the server alone; `server` is its share of the total.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench_bucket import EVENTS, ROUNDS, WEIR, Server, Services, ask, free_port, sql, wait_until

PERSONS = int(os.environ.get("PERSONS", 200_000))
RANGE = {"date_from": "-29d"}
QUIET_SECONDS = 30
STEPS = ["video played", "message sent", "file uploaded"]

def node(kind, series, **more):
    return {"query": {"kind": kind, "series": series, "dateRange": RANGE, **more}, "refresh": "force_blocking"}

def event(name, **more):
    return {"kind": "EventsNode", "event": name, **more}

RETENTION = {"period": "Week", "totalIntervals": 4, "targetEntity": {"id": STEPS[0], "type": "events"},
             "returningEntity": {"id": STEPS[1], "type": "events"}}
QUESTIONS = {
    "SQL: events by day": sql("SELECT toStartOfDay(timestamp) AS d, count() FROM events GROUP BY d ORDER BY d"),
    "SQL: persons by day": sql("SELECT toStartOfDay(timestamp) AS d, uniq(person_id) FROM events GROUP BY d ORDER BY d"),
    "SQL: top URLs": sql("SELECT properties.$current_url AS u, count() AS n FROM events GROUP BY u ORDER BY n DESC, u LIMIT 10"),
    "trend: total by browser": node("TrendsQuery", [event("$pageview")], breakdownFilter={"breakdown": "$browser"}),
    "trend: unique persons": node("TrendsQuery", [event(None, math="dau")]),
    "trend: monthly actives": node("TrendsQuery", [event(None, math="monthly_active")]),
    "trend: property filter": node("TrendsQuery", [event("$pageview")], properties=[
        {"key": "$current_url", "type": "event", "operator": "icontains", "value": "pricing"}]),
    "trend: persons with a property": node("TrendsQuery", [event("$pageview", math="dau")], properties=[
        {"key": "email", "type": "person", "operator": "icontains", "value": "7@"}]),
    "trend: by a property of persons": node("TrendsQuery", [event("$pageview")], breakdownFilter={
        "breakdown": "plan", "breakdown_type": "person"}),
    "SQL: events of persons": sql("SELECT person.properties.plan AS plan, count() FROM events GROUP BY plan ORDER BY plan"),
    "funnel: 3 steps": node("FunnelsQuery", [event(step) for step in STEPS]),
    "funnel: by browser": node("FunnelsQuery", [event(step) for step in STEPS], breakdownFilter={"breakdown": "$browser"}),
    "retention: 4 weeks": {"query": {"kind": "RetentionQuery", "dateRange": RANGE, "retentionFilter": RETENTION},
                           "refresh": "force_blocking"},
    "stickiness": node("StickinessQuery", [event("$pageview")]),
    "lifecycle": node("LifecycleQuery", [event("$pageview")]),
    "paths": {"query": {"kind": "PathsQuery", "dateRange": RANGE, "pathsFilter": {"includeEventTypes": ["custom_event"]}},
              "refresh": "force_blocking"},
}

def seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

def metric(port, name):
    _, body = ask(port, "GET", "/metrics")
    return next((float(line.rsplit(" ", 1)[1]) for line in body.decode().splitlines() if line.startswith(name + " ")), 0)

def quiet(port):
    """Waits until no files are merged any more: they would be others in the next measurement."""
    merges, since = -1, time.monotonic()
    while time.monotonic() - since < QUIET_SECONDS:
        time.sleep(1)
        now = metric(port, 'weir_compactions_total{table="events"}')
        if now != merges:
            merges, since = now, time.monotonic()

class Nodes:
    """A server, and so many workers."""

    def __init__(self, place, settings, count):
        secret = {"WEIR_CLUSTER_SECRET": "0123456789abcdef0123456789abcdef"}
        ports = [free_port() for _ in range(count)]
        self.workers = []
        for number, port in enumerate(ports):
            own = {"WEIR_DATA_DIR": str(place / f"worker-{count}-{number}"), "WEIR_LISTEN": "127.0.0.1:0", "WEIR_LOG": "warn",
                   "WEIR_CLUSTER_LISTEN": f"127.0.0.1:{port}"}
            self.workers.append(subprocess.Popen([WEIR, "worker"], env=os.environ | settings | secret | own,
                                                 stdout=subprocess.DEVNULL))
        if count:
            urls = ",".join(f"http://127.0.0.1:{port}" for port in ports)
            settings = settings | secret | {"WEIR_CLUSTER_LISTEN": "127.0.0.1:0", "WEIR_CLUSTER_WORKERS": urls,
                                            "WEIR_CLUSTER_QUERY_MIN_BYTES": "0B"}
        self.server = Server(place / "server", settings).start().ready()
        wait_until(lambda: metric(self.server.port, "weir_cluster_workers") == count)

    def ask(self, body):
        """The answer, and the CPU seconds of the server and of each worker."""
        pids = [self.server.process.pid, *(worker.pid for worker in self.workers)]
        before = [seconds(pid) for pid in pids]
        status, answer = ask(self.server.port, "POST", "/api/projects/1/query/", body)
        if status != 200:
            sys.exit(f"{status}: {answer[:500]!r}")
        answer = json.loads(answer)
        return answer.get("results", answer.get("result")), [seconds(pid) - own for pid, own in zip(pids, before)]

    def end(self):
        self.server.end()
        for worker in self.workers:
            worker.terminate()
            worker.wait()

def measure(nodes):
    """The answer of each question, its CPU seconds by process, and whether other nodes executed parts of it."""
    measured = {}
    for name, body in QUESTIONS.items():
        begun = metric(nodes.server.port, "weir_cluster_queries_total")
        answer, _ = nodes.ask(body)
        rounds = [nodes.ask(body)[1] for _ in range(ROUNDS)]
        is_shared = metric(nodes.server.port, "weir_cluster_queries_total") > begun
        measured[name] = answer, [statistics.median(own) for own in zip(*rounds)], is_shared
    failed = metric(nodes.server.port, "weir_cluster_queries_failed_total")
    if failed:
        print(f"{failed:.0f} queries failed over workers and were run again")
    nodes.end()
    return measured

def main():
    place = Path(tempfile.mkdtemp(prefix="weir-bench."))
    place.chmod(0o755)
    services = Services(place)
    try:
        settings = services.settings("tables", "workers")
        server = Server(place / "server", settings).start().ready()
        server.load("--events", str(EVENTS), "--distinct-ids", str(PERSONS), "--span", "720h", "--connections", "8")
        quiet(server.port)
        server.end()
        alone = measure(Nodes(place, settings, 0))
        for count in map(int, sys.argv[1:]):
            shared = measure(Nodes(place, settings, count))
            print(f"{str(count) + ' workers, ' + str(EVENTS) + ' events':36}{'alone, CPU-s':>13}{'total':>8}{'largest':>9}{'server':>8}")
            for name, (answer, own, _) in alone.items():
                found, parts, is_shared = shared[name]
                note = "" if is_shared else "  not over workers"
                note += "" if found == answer else "  ANOTHER ANSWER"
                print(f"{name:36}{own[0]:13.2f}{sum(parts) / own[0]:8.2f}{max(parts) / own[0]:9.2f}"
                      f"{parts[0] / sum(parts):8.2f}{note}")
    finally:
        services.end()
        shutil.rmtree(place)

main()
