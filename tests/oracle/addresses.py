"""Reads results of SQL from an address with older readers: DuckDB with httpfs, pandas, PyArrow 10, polars.

    addresses.py URL KEY ROWS

Prints what differs; the status says whether anything does.
"""

import glob
import io
import os
import sys
import urllib.parse
import urllib.request

import duckdb
import duckdb_extension_httpfs
import pandas
import polars
import pyarrow
import pyarrow.ipc
import pyarrow.parquet

url, key, rows = sys.argv[1:]
rows = int(rows)
assert pyarrow.__version__.startswith("10."), pyarrow.__version__
bearer = {"Authorization": f"Bearer {key}"}


def address(sql, form, **more):
    return f"{url}/api/projects/1/query/?" + urllib.parse.urlencode({"query": sql, "format": form, **more})


def same(what, found, expected):
    if found != expected:
        print(f"{what}: {found!r}, not {expected!r}")
        sys.exit(1)


SHORT = "SELECT event, count(*) AS n FROM events GROUP BY event ORDER BY event"
LONG = "SELECT distinct_id, \"p_$screen_width\" AS width, properties FROM events"
events = [(f"event {number}", rows // 3) for number in range(3)]
half = sum(number for number in range(rows) if number % 2 == 0)

# pandas, with the key in a header.
frame = pandas.read_csv(address(SHORT, "csv"), storage_options=bearer)
same("pandas, csv", list(frame.itertuples(index=False, name=None)), events)
frame = pandas.read_csv(address(LONG, "csv"), storage_options=bearer)
same("pandas, long csv", (len(frame), frame["width"].sum()), (rows, half))
frame = pandas.read_json(address(LONG, "jsonl"), lines=True, storage_options=bearer)
same("pandas, jsonl", (len(frame), frame["width"].sum()), (rows, half))
frame = pandas.read_parquet(address(LONG, "parquet"), storage_options=bearer)
same("pandas, parquet", (len(frame), frame["width"].sum()), (rows, half))

# DuckDB, with the key in a secret, and in the address.
database = duckdb.connect()
extensions = os.path.join(os.path.dirname(duckdb_extension_httpfs.__file__), "extensions/*/httpfs.duckdb_extension")
[extension] = glob.glob(extensions)
database.execute(f"LOAD '{extension}'")
with_key = address(SHORT, "csv", personal_api_key=key)
same("duckdb, key in the address", database.execute("SELECT * FROM read_csv(?)", [with_key]).fetchall(), events)
database.execute(f"CREATE SECRET weir (TYPE http, BEARER_TOKEN '{key}')")
same("duckdb, csv", database.execute("SELECT * FROM read_csv(?)", [address(SHORT, "csv")]).fetchall(), events)
same("duckdb, parquet", database.execute("SELECT * FROM read_parquet(?)", [address(SHORT, "parquet")]).fetchall(), events)
for form in ["csv", "json_auto"]:
    found = database.execute(f"SELECT count(*), sum(width) FROM read_{form}(?)", [address(LONG, "jsonl" if form != "csv" else form)])
    same(f"duckdb, long {form}", found.fetchall(), [(rows, half)])
found = database.execute("SELECT count(*), sum(width) FROM read_parquet(?)", [address(LONG, "parquet")]).fetchall()
same("duckdb, long parquet", found, [(rows, half)])

# Types of every kind, in an Arrow stream for PyArrow 10 and for polars.
TYPES = """SELECT 'word' AS word, max(event) AS view, decode('6279746573', 'hex') AS bytes, make_array('a', max(event)) AS list,
    named_struct('x', max(event)) AS pair, CAST(1.25 AS DECIMAL(9, 2)) AS price, CAST('2026-02-03' AS DATE) AS day, CAST('2026-02-03T04:05:06.000007Z' AS TIMESTAMPTZ) AS at,
    CAST(NULL AS BIGINT) AS nothing, true AS yes FROM events"""


def stream(form):
    return io.BytesIO(urllib.request.urlopen(urllib.request.Request(address(TYPES, form), headers=bearer)).read())


table = pyarrow.ipc.open_stream(stream("arrow")).read_all()
row = table.to_pylist()[0]
at = row.pop("at")
same("pyarrow, time", at.isoformat(), "2026-02-03T04:05:06.000007+00:00")
same("pyarrow, types", {name: str(value) for name, value in row.items()}, {
    "word": "word", "view": "event 2", "bytes": "b'bytes'", "list": "['a', 'event 2']", "pair": "{'x': 'event 2'}", "price": "1.25",
    "day": "2026-02-03", "nothing": "None", "yes": "True",
})
same("pyarrow, parquet", pyarrow.parquet.read_table(stream("parquet")).to_pylist(), table.to_pylist())
same("polars, arrow", polars.read_ipc_stream(stream("arrow")).drop("at").to_dicts()[0]["word"], "word")
same("polars, parquet", polars.read_parquet(stream("parquet")).drop("at").to_dicts()[0]["list"], ["a", "event 2"])
