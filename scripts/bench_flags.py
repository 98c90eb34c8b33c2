"""The measuring half of bench-flags.sh: makes the same flags for both servers, drives them with wrk, prints figures.

await-line FILE              Waits for the server's first line in FILE and prints the URL in it.
free-port                    Prints a port that nobody listens on.
prepare URL COUNT FEATURES   Captures persons, makes COUNT flags through the management API, and writes the same flags
                             to FEATURES in the form that Unleash Edge reads.
compare COUNT SECONDS RUNS DIR PID=URL PID=URL
                             Checks that both servers (Weir, then Edge) answer all flags, and measures them.

Half of the flags are for persons with `plan` "pro" only, which half of the persons have; a third has two variants; half
are rolled out to all, half to 50 %. Weir reads `plan` from the stored person. Edge stores no persons: it gets `plan`
with each request.
"""

import json
import os
import re
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

TOKEN, PERSONAL = os.environ["WEIR_PROJECT_API_KEY"], os.environ["WEIR_PERSONAL_API_KEY"]
CLIENT_TOKEN, PAGE_TOKEN = "*:development.all", "*:development.page"
PERSONS = 1000
SDK = {"User-Agent": "posthog-python/7.91.1"}
# Closed loops of the full load; the half load has more, each of which pauses between two requests.
FULL_CONNECTIONS, HALF_CONNECTIONS = 16, 64
WARM_UP_SECONDS = 1
PATIENCE_SECONDS = 60
TICKS = os.sysconf("SC_CLK_TCK")

def ask(method, url, headers=(), body=None):
    """Status, headers and body of an answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, dict(headers), method=method)
    if data is not None:
        request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.headers, refusal.read()

def expect(status, answer):
    if answer[0] != status:
        sys.exit(f"status {answer[0]}, not {status}: {answer[2][:500]!r}")
    return answer

def patiently(attempt):
    """The first result of `attempt` that is neither None nor a refused connection."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            if (result := attempt()) is not None:
                return result
        except OSError:
            pass
        time.sleep(0.1)
    sys.exit("the server is not ready")

def await_line(path):
    def line():
        found = re.search(r"http://127\.0\.0\.1:\d+", Path(path).read_text())
        return found and found[0]
    url = patiently(line)
    patiently(lambda: ask("GET", url + "/_readiness")[0] == 200 or None)
    print(url)

def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        print(listener.getsockname()[1])

# Flags and persons.

def plan(person):
    return "pro" if person % 2 else "free"

def is_targeted(flag):
    return flag % 2 == 1

def has_variants(flag):
    return flag % 3 == 0

def rollout(flag):
    return 100 if flag // 2 % 2 else 50

def weir_flag(flag):
    constraint = {"key": "plan", "type": "person", "operator": "exact", "value": "pro"}
    group = {"properties": [constraint] if is_targeted(flag) else [], "rollout_percentage": rollout(flag)}
    filters = {"groups": [group]}
    if has_variants(flag):
        filters["multivariate"] = {"variants": [{"key": key, "rollout_percentage": 50} for key in ("control", "test")]}
    return {"key": f"flag-{flag}", "name": f"Flag {flag}", "active": True, "filters": filters}

def edge_flag(flag):
    name = f"flag-{flag}"
    constraint = {"contextName": "plan", "operator": "IN", "values": ["pro"], "inverted": False, "caseInsensitive": False}
    strategy = {
        "name": "flexibleRollout",
        "parameters": {"rollout": str(rollout(flag)), "stickiness": "userId", "groupId": name},
        "constraints": [constraint] if is_targeted(flag) else [],
    }
    variant = {"weight": 500, "weightType": "variable", "stickiness": "userId", "overrides": []}
    variants = [{"name": key, **variant} for key in ("control", "test")] if has_variants(flag) else []
    return {
        "name": name, "type": "release", "enabled": True, "project": "default", "impressionData": False,
        "strategies": [strategy], "variants": variants,
    }

def person_event(person):
    properties = {
        "plan": plan(person), "email": f"person-{person}@example.com", "name": f"Person {person}", "seats": person % 20,
        "country": "de", "locale": "de-DE", "is_admin": person % 7 == 0, "signed_up": "2026-01-15T10:00:00Z",
    }
    return {"event": "$identify", "distinct_id": f"person-{person}", "properties": {"$set": properties}}

def prepare(url, count, features):
    batch = {"api_key": TOKEN, "batch": [person_event(person) for person in range(PERSONS)]}
    expect(200, ask("POST", url + "/batch/", body=batch))
    flags = range(int(count))
    for flag in flags:
        headers = {"Authorization": f"Bearer {PERSONAL}"}
        expect(201, ask("POST", url + "/api/projects/@current/feature_flags/", headers, weir_flag(flag)))
    Path(features).write_text(json.dumps({"version": 2, "features": [edge_flag(flag) for flag in flags]}))

# Requests. Each kind has a function from the number of a person to (method, path, headers, body).

def weir_flags(person):
    body = {"token": TOKEN, "distinct_id": f"person-{person}", "groups": {}, "person_properties": {}, "geoip_disable": True}
    return "POST", "/flags/?v=2", {"Content-Type": "application/json", **SDK}, json.dumps(body)

def edge_flags(person):
    context = urllib.parse.urlencode({"userId": f"person-{person}", "properties[plan]": plan(person)})
    return "GET", f"/api/frontend/all?{context}", {"Authorization": PAGE_TOKEN, **SDK}, None

def definitions(url, path, headers):
    tag = expect(200, ask("GET", url + path, headers))[1]["ETag"]
    known = {**headers, **SDK, "If-None-Match": tag}
    expect(304, ask("GET", url + path, known))
    return lambda _person: ("GET", path, known, None)

def check(count, weir, edge):
    """Both answer all flags, and which of them are on follows from the plan in both."""
    for person in range(2):
        method, path, headers, body = weir_flags(person)
        answer = expect(200, ask(method, weir + path, headers, json.loads(body)))[2]
        of_weir = {key: record["enabled"] for key, record in json.loads(answer)["flags"].items()}
        method, path, headers, _ = edge_flags(person)
        bytes_of_edge = expect(200, ask(method, edge + path, headers))[2]
        of_edge = {toggle["name"]: toggle["enabled"] for toggle in json.loads(bytes_of_edge)["toggles"]}
        for name, found in ("weir", of_weir), ("edge", of_edge):
            if len(found) != count:
                sys.exit(f"{name} answers {len(found)} flags, not {count}")
            for flag in range(count):
                is_for_person = not is_targeted(flag) or plan(person) == "pro"
                if rollout(flag) == 100 and found[f"flag-{flag}"] != is_for_person:
                    sys.exit(f"{name}: flag-{flag} is {found[f'flag-{flag}']} for a person with the plan {plan(person)}")
    print(f"{count} flags: answers of {len(answer)} bytes (weir) and {len(bytes_of_edge)} bytes (edge)", flush=True)

LUA = """
local requests = {{ {requests} }}
local delay_ms, last = {delay_ms}, 0
local made = {{}}
function init()
  math.randomseed(1)
  for i, r in ipairs(requests) do made[i] = wrk.format(r[1], r[2], r[3], r[4]) end
end
function request()
  last = last % #requests + 1
  return made[last]
end
{pause}
function done(summary, latency)
  local e = summary.errors
  print(string.format("FIGURES %d %d %f %f %d", summary.requests, summary.duration, latency:percentile(50),
    latency:percentile(99), e.connect + e.read + e.write + e.timeout + e.status))
end
"""
# Evenly between no pause and twice the mean, rounded at random to what wrk can do, whole milliseconds.
PAUSE = "function delay() return math.floor(2 * delay_ms * math.random() + math.random()) end"

def lua(request, delay_ms):
    def text(value):
        return "nil" if value is None else "[==[" + value + "]==]"
    def table(headers):
        return "{" + ",".join(f"[ {text(name)} ] = {text(value)}" for name, value in headers.items()) + "}"
    made = [request(person) for person in range(PERSONS)]
    items = ",\n".join(f"{{{text(m)},{text(p)},{table(h)},{text(b)}}}" for m, p, h, b in made)
    pause = PAUSE if delay_ms else ""
    return LUA.format(requests=items, delay_ms=delay_ms, pause=pause)

def cpu_seconds(pid):
    # The name of the process stands in parentheses and may have spaces.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS

def drive(script, url, seconds, connections):
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(script), url]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.search(r"FIGURES (\d+) (\d+) (\S+) (\S+) (\d+)", output)
    requests, micros, p50, p99, errors = (float(figure) for figure in found.groups())
    if errors:
        sys.exit(f"{errors:.0f} requests failed:\n{output}")
    return requests, requests / micros * 1e6, p50 / 1e3, p99 / 1e3

def run(server, seconds, half):
    """One run. `half` is a rate to keep, or None for as many as the server answers."""
    connections, delay_ms = FULL_CONNECTIONS, 0.0
    if half:
        connections, delay_ms = HALF_CONNECTIONS, HALF_CONNECTIONS / half * 1e3
    server["script"].write_text(lua(server["request"], delay_ms))
    drive(server["script"], server["url"], WARM_UP_SECONDS, connections)
    before = cpu_seconds(server["pid"])
    requests, rate, p50, p99 = drive(server["script"], server["url"], seconds, connections)
    return {"rate": rate, "per_cpu": requests / (cpu_seconds(server["pid"]) - before), "p50": p50, "p99": p99}

def measure(title, seconds, runs, servers, with_half):
    full, half = {name: [] for name in servers}, {name: [] for name in servers}
    middle = lambda found, what: statistics.median(figures[what] for figures in found)
    for _ in range(runs):
        for name, server in servers.items():
            full[name].append(run(server, seconds, None))
        for name, server in servers.items():
            if with_half:
                half[name].append(run(server, seconds, middle(full[name], "rate") / 2))
    print(f"{title}, medians of {runs} runs of {seconds} s")
    for load, found in (("full", full), ("half", half)):
        for name, of_one in found.items():
            if of_one:
                print(f"  {name} {load} load {middle(of_one, 'rate'):8.0f} requests/s {middle(of_one, 'per_cpu'):8.0f} per "
                      f"CPU-second  p50 {middle(of_one, 'p50'):6.2f} ms  p99 {middle(of_one, 'p99'):6.2f} ms")
    weir, edge = (middle(full[name], "per_cpu") for name in servers)
    print(f"  weir / edge = {weir / edge:.2f} in requests per server CPU-second", flush=True)

def compare(count, seconds, runs, directory, *processes):
    count, seconds, runs = int(count), int(seconds), int(runs)
    (weir_pid, weir), (edge_pid, edge) = (process.split("=", 1) for process in processes)
    page = {"Authorization": PAGE_TOKEN}
    patiently(lambda: ask("GET", edge + "/api/frontend/all", page)[0] == 200 or None)
    check(count, weir, edge)
    def servers(of_weir, of_edge):
        script = Path(directory, "requests.lua")
        return {
            "weir": {"pid": weir_pid, "url": weir, "request": of_weir, "script": script},
            "edge": {"pid": edge_pid, "url": edge, "request": of_edge, "script": script},
        }
    measure(f"{count} flags", seconds, runs, servers(weir_flags, edge_flags), True)
    of_weir = definitions(weir, "/flags/definitions/?token=" + TOKEN, {"Authorization": f"Bearer {PERSONAL}"})
    of_edge = definitions(edge, "/api/client/features", {"Authorization": CLIENT_TOKEN})
    measure(f"{count} flags, definitions known", seconds, runs, servers(of_weir, of_edge), False)

COMMANDS = {"await-line": await_line, "free-port": free_port, "prepare": prepare, "compare": compare}
if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
