"""Compares long results of SQL in each format with what DuckDB reads from the files of the events table, cell by cell.

    streams.py URL KEY ROWS FILE...

The results are fetched by GET, one format after the other, and read by DuckDB, PyArrow and polars. Prints what differs; the
status says whether anything does.
"""

import sys
import tempfile
import urllib.parse
import urllib.request

import duckdb
import polars
import pyarrow
import pyarrow.ipc
import pyarrow.parquet

url, key, rows, *files = sys.argv[1:]
rows = int(rows)

SQL = """SELECT uuid, event, distinct_id, timestamp, properties, "p_$screen_width" AS width, person_id FROM events"""
COLUMNS = ["uuid", "event", "distinct_id", "timestamp", "properties", "width", "person_id"]

# Readers agree on types, and times are numbers.
CELLS = """uuid::VARCHAR AS uuid, event, distinct_id, epoch_us(timestamp::TIMESTAMPTZ) AS at, properties, width::DOUBLE AS width,
    person_id::VARCHAR AS person_id"""

database = duckdb.connect()
database.execute(
    f"""CREATE TABLE expected AS SELECT {CELLS} FROM
        (SELECT *, "p_$screen_width" AS width FROM read_parquet(?, hive_partitioning = false))""",
    [files],
)
assert database.execute("SELECT count(*) FROM expected").fetchone() == (rows,), "the files"
failed = False


def fetched(form):
    query = urllib.parse.urlencode({"query": SQL, "format": form})
    request = urllib.request.Request(f"{url}/api/projects/1/query/?{query}", headers={"Authorization": f"Bearer {key}"})
    file = tempfile.NamedTemporaryFile(suffix=f".{form}")
    with urllib.request.urlopen(request) as response:
        assert response.headers["Transfer-Encoding"] == "chunked", "a long answer is streamed"
        while piece := response.read(1 << 20):
            file.write(piece)
    file.flush()
    return file


def compare(reader, relation):
    global failed
    database.execute(f"CREATE OR REPLACE TABLE found AS SELECT {CELLS} FROM {relation}")
    for one, other in [("expected", "found"), ("found", "expected")]:
        differ = database.execute(f"SELECT * FROM {one} EXCEPT ALL SELECT * FROM {other}").fetchall()
        if differ:
            failed = True
            print(f"{reader}: {len(differ)} rows are only in {one}, such as {differ[0]}")


csv = fetched("csv")
types = "{'uuid': 'VARCHAR', 'event': 'VARCHAR', 'distinct_id': 'VARCHAR', 'timestamp': 'TIMESTAMPTZ', 'properties': 'VARCHAR', 'width': 'DOUBLE', 'person_id': 'VARCHAR'}"
compare("duckdb, csv", f"read_csv('{csv.name}', header = true, columns = {types}, strict_mode = true)")
lines = fetched("jsonl")
compare("duckdb, jsonl", f"read_json('{lines.name}', format = 'newline_delimited', columns = {types})")

parquet = fetched("parquet")
compare("duckdb, parquet", f"read_parquet('{parquet.name}')")
arrow_table = pyarrow.parquet.read_table(parquet.name)
compare("pyarrow, parquet", "arrow_table")
frame = polars.read_parquet(parquet.name)
compare("polars, parquet", "frame")
metadata = pyarrow.parquet.ParquetFile(parquet.name).metadata
groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
sizes = [sum(group.column(at).total_compressed_size for at in range(group.num_columns)) for group in groups]
assert max(sizes) < 32 << 20, sizes

arrow = fetched("arrow")
arrow_table = pyarrow.ipc.open_stream(arrow.name).read_all()
assert [str(field.type) for field in arrow_table.schema] == [
    "string", "string", "string", "timestamp[us, tz=UTC]", "string", "double", "string",
], arrow_table.schema
compare("pyarrow, arrow", "arrow_table")
frame = polars.read_ipc_stream(arrow.name)
compare("polars, arrow", "frame")
sys.exit(failed)
