"""Counts the events and the persons of one project in the tables of a server, with other engines.

    engines.py TABLES PROJECT ENGINE...

TABLES is {"events": {"at", "files"}, "person_distinct_ids": {"at", "files"}}: where the Delta table is, and the
live files. A bucket is found by AWS's variables. Prints one JSON object per engine: {"engine", "rows"}, with
[event, events, persons as stored, persons of today] for each event.
"""

import json
import os
import sys

tables, project, *engines = sys.argv[1:]
tables = json.loads(tables)
events, ids = tables["events"], tables["person_distinct_ids"]
is_in_bucket = events["at"].startswith("s3://")
endpoint = os.environ.get("AWS_ENDPOINT_URL")

SQL = f"""
    SELECT e.event AS event, count(*) AS events, count(DISTINCT e.person_id) AS stored,
        count(DISTINCT coalesce(d.person_id, e.person_id)) AS persons
    FROM events e LEFT JOIN person_distinct_ids d ON d.project_id = e.project_id AND d.distinct_id = e.distinct_id
    WHERE e.project_id = {project} GROUP BY e.event ORDER BY event"""


def by_duckdb():
    import duckdb

    for name, table in tables.items():
        duckdb.read_parquet(table["files"], union_by_name=True).create_view(name)
    return duckdb.sql(SQL).fetchall()


def by_deltalake():
    import deltalake
    import pyarrow

    asked = deltalake.QueryBuilder()
    for name, table in tables.items():
        asked.register(name, deltalake.DeltaTable(table["at"]))
    return rows_of(pyarrow.table(asked.execute(SQL).read_all()).to_pylist())


def by_polars():
    import polars

    today = polars.scan_delta(ids["at"]).select("project_id", "distinct_id", today="person_id")
    joined = polars.scan_delta(events["at"]).join(today, on=["project_id", "distinct_id"], how="left")
    counts = (
        polars.len().alias("events"),
        polars.col("person_id").n_unique().alias("stored"),
        polars.coalesce("today", "person_id").n_unique().alias("persons"),
    )
    found = joined.filter(polars.col("project_id") == int(project)).group_by("event").agg(counts)
    return found.sort("event").collect().rows()


def by_daft():
    import daft
    from daft.io import IOConfig, S3Config

    # Without an endpoint of its own it goes to Amazon, whatever AWS's variables say.
    store = IOConfig(s3=S3Config.from_env().replace(endpoint_url=endpoint, use_ssl=False)) if is_in_bucket else None
    frames = {name: daft.read_deltalake(table["at"], io_config=store) for name, table in tables.items()}
    return rows_of(daft.sql(SQL, **frames).to_pylist())


def by_sail():
    # Its driver and its workers, each with a port of its own, in this process.
    os.environ["SAIL_MODE"] = "local-cluster"
    from pysail.spark import SparkConnectServer
    from pyspark.sql import SparkSession

    server = SparkConnectServer()
    server.start()
    spark = SparkSession.builder.remote(f"sc://localhost:{server.listening_address[1]}").getOrCreate()
    for name, table in tables.items():
        spark.read.format("delta").load(table["at"]).createOrReplaceTempView(name)
    rows = [tuple(row) for row in spark.sql(SQL).collect()]
    spark.stop()
    server.stop()
    return rows


def by_spark():
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", False)
    spark = builder.config("spark.sql.shuffle.partitions", 4).getOrCreate()
    for name, table in tables.items():
        spark.read.option("mergeSchema", True).parquet(*table["files"]).createOrReplaceTempView(name)
    rows = [tuple(row) for row in spark.sql(SQL).collect()]
    spark.stop()
    return rows


def by_chdb():
    import chdb

    def source(at):
        if not is_in_bucket:
            return f"deltaLakeLocal('{at}')"
        keys = f"'{os.environ['AWS_ACCESS_KEY_ID']}', '{os.environ['AWS_SECRET_ACCESS_KEY']}'"
        return f"deltaLake('{endpoint}/{at.removeprefix('s3://')}/', {keys})"

    sql = SQL.replace("FROM events e", f"FROM {source(events['at'])} AS e")
    sql = sql.replace("JOIN person_distinct_ids d", f"JOIN {source(ids['at'])} AS d")
    said = str(chdb.query(sql + " SETTINGS join_use_nulls = 1", "JSONCompactEachRow"))
    return [[event, *map(int, counts)] for event, *counts in map(json.loads, said.splitlines())]


def rows_of(found):
    return [[row["event"], row["events"], row["stored"], row["persons"]] for row in found]


for engine in engines:
    print(json.dumps({"engine": engine, "rows": [list(row) for row in globals()[f"by_{engine}"]()]}), flush=True)
