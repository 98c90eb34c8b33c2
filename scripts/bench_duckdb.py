"""The measuring half of bench-ingest.sh. Prints CPU seconds or counts; decides nothing.

cpu REPORT COMMAND...  Runs a command, hands SIGTERM on to it, writes its process id to REPORT.pid and, when it
                       is over, the CPU seconds of its whole life to REPORT.
copy NDJSON PARQUET    DuckDB: NDJSON -> Parquet. Prints CPU seconds without the start of Python and the import.
count PATH             Rows and distinct uuids in a Parquet file, or in the live files of a Delta table.
summary EVENTS FILE    Figures of all runs ("name seconds" lines) as CPU-microseconds per event.
"""

import json
import resource
import signal
import statistics
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

# Top-level members of events; what SDKs put into `properties` stays JSON.
COLUMNS = "{uuid: 'VARCHAR', event: 'VARCHAR', distinct_id: 'VARCHAR', timestamp: 'TIMESTAMP', properties: 'JSON', '$set': 'JSON', '$set_once': 'JSON'}"

def cpu_seconds(who):
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime

def cpu(report, *command):
    child = subprocess.Popen(command)
    signal.signal(signal.SIGTERM, lambda number, _frame: child.send_signal(number))
    Path(report + ".pid").write_text(str(child.pid))
    status = child.wait()
    Path(report).write_text(str(cpu_seconds(resource.RUSAGE_CHILDREN)))
    sys.exit(status)

def copy(ndjson, parquet):
    import duckdb
    before = cpu_seconds(resource.RUSAGE_SELF)
    with duckdb.connect() as database:
        source = f"SELECT * FROM read_json('{ndjson}', format='newline_delimited', columns={COLUMNS})"
        database.execute(f"COPY ({source}) TO '{parquet}' (FORMAT parquet, COMPRESSION zstd)")
    print(cpu_seconds(resource.RUSAGE_SELF) - before)

def count(path):
    import duckdb
    files = set() if Path(path).is_dir() else {path}
    for commit in sorted(Path(path).glob("_delta_log/*.json")):
        for action in map(json.loads, commit.read_text().splitlines()):
            for change, apply in (("remove", files.discard), ("add", files.add)):
                if change in action:
                    apply(str(Path(path, unquote(action[change]["path"]))))
    print(*duckdb.execute("SELECT count(*), count(DISTINCT uuid) FROM read_parquet(?)", [sorted(files)]).fetchone())

def summary(events, path):
    runs = {}
    for name, seconds in map(str.split, Path(path).read_text().splitlines()):
        runs.setdefault(name, []).append(float(seconds) * 1e6 / int(events))
    for name, figures in runs.items():
        print(f"{name:8} {min(figures):6.2f} min {statistics.median(figures):6.2f} median CPU-us per event, {len(figures)} runs")
    print(f"weir / duckdb = {statistics.median(runs['weir']) / statistics.median(runs['duckdb']):.2f} (medians)")

globals()[sys.argv[1]](*sys.argv[2:])
