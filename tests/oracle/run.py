"""Compares answers to insights with those of SQL that DuckDB computes over the files of the events table.

    run.py KIND URL PROJECT_KEY PERSONAL_KEY WEIR DATA_DIR SEED QUESTIONS

A random world of two projects is sent to the server at URL, with flushes in between. Random questions of the kind are
asked with several settings of the projects: half of them while events are in files and in memory, half when all are in
files. Then DuckDB reads the files, gets whose each distinct id is from the world, and answers the same; the steps of
funnels are followed from row to row here. Nothing is shared with the server but the files. Prints one line of JSON: what
was compared and what differs.
"""

import concurrent.futures
import http.client
import importlib
import json
import random
import subprocess
import sys
import threading
import time
from urllib.parse import urlparse

import duckdb

import world
from asking import Settings

THREADS = 4
ROUNDS = 8
EVENTS = (1500, 400)
DIFFERENCES_MAX = 5

kind, url, project_key, personal_key, weir, directory, seed, wanted = sys.argv[1:]
pick = random.Random(int(seed))
local = threading.local()


def request(method, path, body=None):
    """JSON over a connection that each thread keeps."""
    if not hasattr(local, "connection"):
        local.connection = http.client.HTTPConnection(urlparse(url).netloc, timeout=120)
    headers = {"authorization": f"Bearer {personal_key}", "content-type": "application/json"}
    local.connection.request(method, path, json.dumps(body), headers)
    response = local.connection.getresponse()
    text = response.read()
    if response.status not in (200, 201):
        raise RuntimeError(f"{method} {path}: {response.status} {text.decode()} for {json.dumps(body)[:2000]}")
    return json.loads(text)


def command(*arguments):
    done = subprocess.run([weir, *arguments, "--data-dir", directory], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


class Sent:
    """A project of the server and what is sent to it."""

    def __init__(self, project, season, size):
        self.id, self.token = project["id"], project["api_token"]
        self.world = world.Project(pick, season, size)

    def settle(self):
        """Other settings of the project."""
        settings = Settings(pick)
        request("PATCH", f"/api/projects/{self.id}/", settings.body())
        return settings

    def ask(self, question):
        body = {"query": question.node(), "refresh": "force_blocking"}
        return request("POST", f"/api/projects/{self.id}/query/", body)["results"]


class Reference:
    """The events as DuckDB reads them."""

    def __init__(self, files, projects):
        self.duckdb = duckdb.connect()
        self.duckdb.execute("SET threads = 1")
        self.duckdb.execute("""
            CREATE TABLE owners (project BIGINT, distinct_id VARCHAR, person VARCHAR, created BIGINT, tier VARCHAR)""")
        for project in projects:
            rows = [(project.id, *row) for row in project.world.owners()]
            self.duckdb.executemany("INSERT INTO owners VALUES (?, ?, ?, ?, ?)", rows)
        text = lambda key: f"""json_extract_string(properties, '$."{key}"')"""
        self.duckdb.execute(f"""
            CREATE TABLE all_events AS
            SELECT f.project_id AS project, uuid, event, person, created, tier, timestamp AS time, epoch_us(timestamp) AS us,
                   {text('$browser')} AS browser, {text('plan')} AS plan, {text('price')} AS price_text,
                   TRY_CAST({text('price')} AS DOUBLE) AS price, {text('$session_id')} AS session, group_0,
                   {text('$current_url')} AS url, {text('$screen_name')} AS screen,
                   coalesce({text('$process_person_profile')} = 'false', false) AS is_personless
            FROM read_parquet(?) f JOIN owners o ON f.project_id = o.project AND f.distinct_id = o.distinct_id
            """, [files])
        for project in projects:
            ids = self.ask(f"SELECT uuid FROM all_events WHERE project = {project.id} ORDER BY uuid")
            assert [row[0] for row in ids] == sorted(event["uuid"] for event in project.world.events)

    def settle(self, project, settings):
        """What is asked from now on is of this project with these settings."""
        self.duckdb.execute(f"""
            CREATE OR REPLACE TEMP TABLE sessions AS SELECT session,
                   date_diff('second', make_timestamp(min(us)), make_timestamp(max(us))) AS session_seconds,
                   (min({{'us': us, 'url': url}}) FILTER (url <> '')).url AS session_entry,
                   (max({{'us': us, 'url': url}}) FILTER (url <> '')).url AS session_end,
                   count(*) FILTER (event = '$pageview') AS session_pages,
                   CASE WHEN session_pages > 0 THEN session_pages = 1 AND session_seconds < 10 END AS session_bounces
            FROM all_events WHERE project = {project.id} AND session <> '' GROUP BY session""")
        self.duckdb.execute(f"""
            CREATE OR REPLACE TEMP TABLE e AS SELECT *, timezone('{settings.zone}', time) AS wall, wall::DATE AS day,
                   timezone('{settings.zone}', make_timestamptz(created))::DATE AS created_day,
                   row_number() OVER (ORDER BY uuid) AS id
            FROM all_events LEFT JOIN sessions USING (session) WHERE project = {project.id}""")

    def ask(self, sql):
        return self.duckdb.execute(sql).fetchall()


def asked(projects, count):
    """Questions and the server's answers, by project and settings."""
    rounds = []
    for number in range(ROUNDS):
        project = projects[number % len(projects)]
        settings = project.settle()
        own = count * (number + 1) // ROUNDS - count * number // ROUNDS
        questions = [module.Question(pick, project.world, settings) for _ in range(own)]
        with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
            rounds.append((project, settings, list(zip(questions, pool.map(project.ask, questions)))))
    return rounds


module = importlib.import_module(kind)
season = pick.choice(world.SEASONS)
started = time.monotonic()
first = request("GET", "/api/projects/@current/")
second = request("POST", "/api/projects/", {"name": f"Other {seed}"})
projects = [Sent(project, season, size) for project, size in zip((first, second), EVENTS)]
for project in projects:
    project.world.send(lambda path, body: request("POST", path, body), project.token,
                       lambda: pick.random() < 0.1 and command("flush"))
timings = {"send": time.monotonic() - started}
started = time.monotonic()
rounds = asked(projects, int(wanted) // 2)
command("flush")
rounds += asked(projects, int(wanted) - int(wanted) // 2)
timings["server"] = time.monotonic() - started
started = time.monotonic()
reference = Reference(command("inspect", "--files").split("\n")[:-1], projects)
compared, differences, filled = 0, [], 0
for project, settings, answers in rounds:
    reference.settle(project, settings)
    for question, results in answers:
        expected = question.expected(reference.ask)
        found = question.found(results)
        compared += 1
        filled += any(character in "123456789" for character in str(expected))
        if not question.is_same(found, expected):
            place = {"project": project.id, "zone": settings.zone, "monday": settings.is_monday_first, "at": compared}
            differences.append({"question": question.node(), "found": found, "expected": expected, **place})
timings["duckdb"] = time.monotonic() - started
print(json.dumps({
    "compared": compared, "filled": filled, "different": len(differences), "differences": differences[:DIFFERENCES_MAX],
    "seconds": timings,
}))
