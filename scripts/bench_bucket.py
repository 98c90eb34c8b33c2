"""The measuring half of bench-bucket.sh. Usage: bench_bucket.py PART...

Modes: `disk` has everything in the data directory, `tables` has the tables in a bucket, `log` the log, too, without a pause
between two puts, and the metadata in PostgreSQL. The store is moto in a process of its own, without delays: times are what
Weir adds, not those of a network. Modes take turns, so that noise of the machine affects all.
"""

import http.client
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
WEIR = os.environ["WEIR_BIN"]
EVENTS = int(os.environ.get("EVENTS", 1_000_000))
PERSONS = int(os.environ.get("PERSONS", 1_000_000))
ROUNDS = int(os.environ.get("ROUNDS", 3))
RATE = int(os.environ.get("RATE", 25_000))
TOKEN, KEY = "phc_bench_project", "phx_bench_0123456789abcdef0123456789"
MODES = ("disk", "tables", "log")
# Any signature will do, but moto finds the service by it.
SIGNED = {"Host": "s3.amazonaws.com", "Authorization": "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request, "
                                                       "SignedHeaders=host, Signature=0"}

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]

def wait_until(is_done, seconds=120):
    end = time.monotonic() + seconds
    while not is_done():
        if time.monotonic() > end:
            sys.exit("waited in vain")
        time.sleep(0.02)

def ask(port, method, path, body=None, headers={"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}):
    """Status and body, or 0 where nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body=None if body is None else json.dumps(body), headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except OSError:
        return 0, b""
    finally:
        connection.close()

def cpu_seconds(pid):
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

class Services:
    """The object store, which forgets everything at the end, and PostgreSQL."""

    def __init__(self, place):
        self.place, self.port = place / "pg", free_port()
        self.moto = subprocess.Popen([sys.executable, HERE / "object_store.py", str(self.port)], stderr=subprocess.DEVNULL)
        wait_until(lambda: ask(self.port, "PUT", "/bench", headers=SIGNED)[0] == 200)
        started = subprocess.run([HERE / "postgres.sh", "start", self.place], check=True, capture_output=True, text=True)
        self.database = started.stdout.strip()

    def store_seconds(self):
        """CPU time of the object store so far."""
        return cpu_seconds(self.moto.pid)

    def settings(self, mode, prefix):
        if mode == "disk":
            return {}
        bucket = {"WEIR_STORAGE_URL": f"s3://bench/{prefix}", "WEIR_STORAGE_ENDPOINT": f"http://127.0.0.1:{self.port}",
                  "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
        if mode == "log":
            url = self.database.rsplit("/", 1)[0] + "/" + self.new_database(prefix)
            bucket |= {"WEIR_STORAGE_LOG": "bucket", "WEIR_STORAGE_LOG_LINGER": "0s", "WEIR_METADATA_URL": url}
        return bucket

    def new_database(self, prefix):
        name = prefix.replace("-", "_")
        subprocess.run(["psql", "--quiet", self.database, "-c", f"CREATE DATABASE {name}"], check=True)
        return name

    def end(self):
        self.moto.kill()
        subprocess.run([HERE / "postgres.sh", "remove", self.place], check=True)

class Server:
    def __init__(self, directory, settings):
        self.directory, self.port = directory, free_port()
        common = {"WEIR_PROJECT_API_KEY": TOKEN, "WEIR_PERSONAL_API_KEY": KEY, "WEIR_LOG": "warn"}
        self.command = [WEIR, "serve", "--data-dir", directory, "--listen", f"127.0.0.1:{self.port}"]
        self.environment, self.process = os.environ | common | settings, None

    def start(self):
        log = open(f"{self.directory}.err", "ab")
        self.process = subprocess.Popen(self.command, env=self.environment, stdout=subprocess.DEVNULL, stderr=log)
        return self

    def is_ready(self):
        if self.process.poll() is not None:
            sys.exit(Path(f"{self.directory}.err").read_text())
        return ask(self.port, "GET", "/_readiness")[0] == 200

    def ready(self):
        wait_until(self.is_ready)
        return self

    def load(self, *more):
        """What `weir load` says of its requests, and the server's CPU seconds meanwhile."""
        arguments = ["load", "--url", f"http://127.0.0.1:{self.port}", "--token", TOKEN, "--json", "--server-pid",
                     str(self.process.pid), *more]
        done = subprocess.run([WEIR, *arguments], check=True, capture_output=True, text=True)
        return json.loads(done.stdout)

    def end(self, how=signal.SIGTERM):
        """Ends it. Returns the CPU seconds of its life."""
        self.process.send_signal(how)
        _, _, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = 0
        return usage.ru_utime + usage.ru_stime

    def lose_disk(self):
        shutil.rmtree(self.directory)

def ingest(services, place):
    """CPU time is that of the whole life of a server, at a rate that all modes sustain, so that all merge as often."""
    figures = {mode: [] for mode in MODES}
    for number in range(ROUNDS):
        for mode in MODES:
            def server(what):
                prefix = f"{what}-{mode}-{number}"
                return Server(place / prefix, services.settings(mode, prefix)).start().ready()
            busy, before = server("busy"), services.store_seconds()
            loaded = busy.load("--events", str(EVENTS), "--connections", "8")
            store = (services.store_seconds() - before) / loaded["seconds"]
            one = busy.load("--events", "400", "--batch", "1", "--connections", "1")
            busy.end()
            busy.lose_disk()
            paced = server("paced")
            paced.load("--events", str(EVENTS), "--connections", "8", "--rate", str(RATE))
            cpu = paced.end() * 1e6 / EVENTS
            paced.lose_disk()
            figures[mode].append((cpu, loaded["events_per_second"], store, one["latency_ms"]["p50"]))
    print(f"{'ingest of ' + str(EVENTS) + ' events':32}{'CPU-us/event':>14}{'of disk':>9}{'events/s':>10}{'of disk':>9}"
          f"{'cores of store':>16}{'one event, p50 ms':>19}")
    base = [statistics.median(values) for values in zip(*figures["disk"])]
    for mode in MODES:
        cpu, rate, store, alone = (statistics.median(values) for values in zip(*figures[mode]))
        print(f"{mode:32}{cpu:14.2f}{cpu / base[0]:9.2f}{rate:10.0f}{rate / base[1]:9.2f}{store:16.2f}{alone:19.1f}")

def sql(text):
    return {"query": {"kind": "HogQLQuery", "query": text}, "refresh": "force_blocking"}

def trend(**more):
    series = [{"kind": "EventsNode", "event": "$pageview"}]
    query = {"kind": "TrendsQuery", "series": series, "dateRange": {"date_from": "-29d"}, "interval": "day", **more}
    return {"query": query, "refresh": "force_blocking"}

QUESTIONS = {
    "events of a name by day": sql("SELECT toStartOfDay(timestamp) AS d, count() FROM events WHERE event = '$pageview' GROUP BY d"),
    "daily actives": sql("SELECT toStartOfDay(timestamp) AS d, uniq(person_id) FROM events GROUP BY d"),
    "top URLs": sql("SELECT properties.$current_url AS u, count() AS n FROM events GROUP BY u ORDER BY n DESC LIMIT 10"),
    "sum of a property": sql("SELECT sum(toFloat(properties.revenue)) FROM events"),
    "trend by browser": trend(breakdownFilter={"breakdown": "$browser"}),
}

def questions(services, place):
    modes = ("disk", "tables")
    servers = {mode: Server(place / mode, services.settings(mode, f"questions-{mode}")) for mode in modes}
    for mode, server in servers.items():
        server.start().ready().load("--events", str(EVENTS), "--span", "720h", "--connections", "8")
        server.end()

    def timed(server, body):
        before = time.perf_counter()
        status, answer = ask(server.port, "POST", "/api/projects/1/query/", body)
        if status != 200:
            sys.exit(f"{status}: {answer[:500]!r}")
        return (time.perf_counter() - before) * 1e3

    cold = {mode: {name: [] for name in QUESTIONS} for mode in modes}
    warm = {mode: {name: [] for name in QUESTIONS} for mode in modes}
    for _ in range(ROUNDS):
        for name, body in QUESTIONS.items():
            for mode, server in servers.items():
                # Nothing of the files in the process and, of those in the bucket, nothing on the disk.
                shutil.rmtree(server.directory / "bucket-cache", ignore_errors=True)
                server.start().ready()
                cold[mode][name].append(timed(server, body))
                warm[mode][name] += [timed(server, body) for _ in range(7)]
                server.end()
    print(f"{'questions, ms':32}{'disk':>9}{'tables':>9}{'ratio':>7}{'disk cold':>12}{'tables':>9}{'ratio':>7}")
    for name in QUESTIONS:
        times = [statistics.median(all_times[mode][name]) for all_times in (warm, cold) for mode in modes]
        print(f"{name:32}{times[0]:9.1f}{times[1]:9.1f}{times[1] / times[0]:7.2f}"
              f"{times[2]:12.1f}{times[3]:9.1f}{times[3] / times[2]:7.2f}")

def takeover(services, place):
    settings = services.settings("log", "takeover")
    owner, standby = Server(place / "owner", settings).start().ready(), Server(place / "standby", settings).start()
    loaded = owner.load("--events", str(PERSONS), "--distinct-ids", str(PERSONS), "--persons-choice", "even", "--connections", "8")
    event = {"api_key": TOKEN, "event": "after the kill", "distinct_id": "someone", "properties": {}}
    flags = {"api_key": TOKEN, "distinct_id": "someone"}
    owner.end(signal.SIGKILL)
    owner.lose_disk()
    killed = time.perf_counter()
    wait_until(lambda: ask(standby.port, "POST", "/i/v0/e/", event)[0] == 200)
    captures = time.perf_counter() - killed
    wait_until(lambda: ask(standby.port, "POST", "/flags/?v=2", flags)[0] == 200)
    answers = time.perf_counter() - killed
    count = {"query": {"kind": "HogQLQuery", "query": "SELECT count() FROM events"}}
    _, answer = ask(standby.port, "POST", "/api/projects/1/query/", count)
    standby.end()
    print(f"take-over after {loaded['events_accepted']} events of up to {PERSONS} persons: capture {captures:.1f} s, "
          f"flags {answers:.1f} s after the kill; events found {json.loads(answer)['results'][0][0]}")

def reads(services, place):
    """The same requests to the server that writes and to one that stands by, and what following costs for each event."""
    settings = services.settings("log", "reads")
    owner = Server(place / "writes", settings).start().ready()
    follower = Server(place / "follows", settings).start().ready()
    servers = {"writes": owner, "follows": follower}
    before = {name: cpu_seconds(server.process.pid) for name, server in servers.items()}
    loaded = owner.load("--events", str(EVENTS), "--connections", "8", "--rate", str(RATE))
    count = {"query": {"kind": "HogQLQuery", "query": "SELECT count(), count(DISTINCT person_id) FROM events"}}
    requests = {"flags of a person": ("POST", "/flags/?v=2", {"api_key": TOKEN, "distinct_id": "someone"}),
                "newest 100 events": ("GET", "/api/projects/1/events/?limit=100", None),
                "newest 100 persons": ("GET", "/api/projects/1/persons/?limit=100", None),
                "all events and persons": ("POST", "/api/projects/1/query/", count | {"refresh": "force_blocking"})}
    answers = {name: json.loads(ask(server.port, "POST", "/api/projects/1/query/", count)[1])["results"]
               for name, server in servers.items()}
    if answers["writes"] != answers["follows"]:
        sys.exit(f"other answers: {answers}")
    for name, server in servers.items():
        used = cpu_seconds(server.process.pid) - before[name]
        print(f"{name}: {used / loaded['events_accepted'] * 1e6:.1f} us of CPU time for each event")
    print(f"{'requests, ms':32}{'writes':>9}{'follows':>9}{'ratio':>7}")
    for name, request in requests.items():
        times = {server: [] for server in servers}
        for _ in range(100 if "all" not in name else 10):
            for which, server in servers.items():
                began = time.perf_counter()
                if ask(server.port, *request)[0] != 200:
                    sys.exit(f"{name}: refused")
                times[which].append((time.perf_counter() - began) * 1000)
        medians = [statistics.median(own) for own in times.values()]
        print(f"{name:32}{medians[0]:9.1f}{medians[1]:9.1f}{medians[1] / medians[0]:7.2f}")
    for server in servers.values():
        server.end(signal.SIGKILL)

def shards(services, place):
    """Six projects on one server, and on three nodes with a shard for each, where two requests of three come to a node that has
    not the shard. CPU time is that of the whole lives of all servers, at the same rate."""
    projects, figures = 6, {1: [], 3: []}
    for number in range(ROUNDS):
        for nodes in figures:
            prefix = f"shards-{nodes}-{number}"
            settings = services.settings("log", prefix)
            servers = [Server(place / f"{prefix}-{node}", settings) for node in range(nodes)]
            if nodes > 1:
                # Shards are added to a database that is there.
                servers[0].start().ready().end()
                shards = [WEIR, "shards"]
                quiet = {"check": True, "env": os.environ | settings, "stdout": subprocess.DEVNULL}
                subprocess.run([*shards, "add", str(projects - 1)], **quiet)
            for server in servers:
                server.start().ready()
            if nodes > 1:
                subprocess.run([*shards, "wait"], **quiet, stderr=subprocess.DEVNULL)
            tokens = [TOKEN]
            for project in range(1, projects):
                status, made = ask(servers[0].port, "POST", "/api/organizations/@current/projects/", {"name": f"p{project}"})
                if status != 201:
                    sys.exit(f"{status}: {made[:500]!r}")
                tokens.append(json.loads(made)["api_token"])
            each = EVENTS // projects // nodes
            for turn in range(nodes):
                loads = []
                for project, token in enumerate(tokens):
                    port = servers[(turn + project) % nodes].port
                    command = ["load", "--url", f"http://127.0.0.1:{port}", "--token", token, "--json", "--events", str(each)]
                    command += ["--connections", "4", "--rate", str(RATE // projects)]
                    loads.append(subprocess.Popen([WEIR, *command], stdout=subprocess.PIPE, text=True))
                told = [json.loads(load.communicate()[0]) for load in loads]
                if any(load["events_accepted"] != each for load in told):
                    sys.exit(f"not all events were accepted: {told}")
            alone = servers[0].load("--events", "400", "--batch", "1", "--connections", "1")
            sent = each * projects * nodes
            used = [server.end() * 1e6 / sent for server in servers]
            figures[nodes].append((sum(used), max(used), alone["latency_ms"]["p50"]))
            for server in servers:
                server.lose_disk()
    print(f"{'six projects, ' + str(EVENTS) + ' events':32}{'CPU-us/event':>14}{'of one':>8}{'largest':>9}{'of one':>8}"
          f"{'one event, p50 ms':>19}")
    base = statistics.median(used for used, _, _ in figures[1])
    for nodes, rounds in figures.items():
        used, largest, alone = (statistics.median(values) for values in zip(*rounds))
        print(f"{str(nodes) + ' nodes':32}{used:14.2f}{used / base:8.2f}{largest:9.2f}{largest / base:8.2f}{alone:19.1f}")

def main():
    place = Path(tempfile.mkdtemp(prefix="weir-bench."))
    # PostgreSQL runs as another user.
    place.chmod(0o755)
    services = Services(place)
    try:
        for part in dict.fromkeys(sys.argv[1:]):
            {"ingest": ingest, "questions": questions, "takeover": takeover, "reads": reads,
             "shards": shards}[part](services, place)
    finally:
        services.end()
        shutil.rmtree(place)

if __name__ == "__main__":
    main()
