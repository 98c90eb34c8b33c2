"""Opens the events table of a data directory with other engines.

    weir inspect --files --data-dir DATA_DIR | read.py DATA_DIR

Reads the live files from standard input, as tools do that read no Delta, and the Delta log with
those that do. Prints one JSON object per engine: {"engine", "rows": [[...COLUMNS], ...]}, sorted.
"""

import json
import os
import sys

import deltalake
import duckdb
import polars
import pyarrow
import pyarrow.parquet

COLUMNS = ["uuid", "event", "distinct_id", "group_0", "properties", "p_$screen_width"]

table = os.path.join(sys.argv[1], "tables", "events")
files = sys.stdin.read().split("\n")[:-1]
names = ", ".join(f'"{name}"' for name in COLUMNS)


def say(engine, rows):
    print(json.dumps({"engine": engine, "rows": sorted(rows)}, ensure_ascii=False))


def of_arrow(arrow):
    arrow = arrow.select([*COLUMNS, "timestamp"])
    columns = [arrow.column(name).to_pylist() for name in COLUMNS]
    assert str(arrow.schema.field("timestamp").type) == "timestamp[us, tz=UTC]", arrow.schema
    columns.append(arrow.column("timestamp").cast("int64").to_pylist())
    return [list(row) for row in zip(*columns)]


def of_polars(frame):
    frame = frame.select(*COLUMNS, polars.col("timestamp").dt.timestamp("us"))
    return [list(row) for row in frame.rows()]


def of_duckdb(source, parameters):
    sql = f'SELECT {names}, epoch_us("timestamp") FROM {source}'
    return [list(row) for row in duckdb.execute(sql, parameters).fetchall()]


say("duckdb, files", of_duckdb("read_parquet(?)", [files]))
say("polars, files", of_polars(polars.read_parquet(files)))
say("pyarrow, files", [row for file in files for row in of_arrow(pyarrow.parquet.read_table(file, partitioning=None))])


def checked(source):
    return pyarrow.parquet.ParquetFile(source, page_checksum_verification=True).read()


def is_damage_found(data, at):
    damaged = bytearray(data)
    damaged[at] ^= 1
    try:
        checked(pyarrow.BufferReader(bytes(damaged)))
    except OSError as error:
        return "CRC checksum verification failed" in str(error)
    return False


for file in files:
    data = open(file, "rb").read()
    checked(pyarrow.BufferReader(data))
    for column in range(pyarrow.parquet.ParquetFile(file).metadata.num_columns):
        chunk = pyarrow.parquet.ParquetFile(file).metadata.row_group(0).column(column)
        pages = [chunk.data_page_offset + chunk.total_compressed_size]
        if chunk.dictionary_page_offset is not None:
            # The last byte of the dictionary, and that of the last page.
            pages = [chunk.data_page_offset, chunk.dictionary_page_offset + chunk.total_compressed_size]
        for end in pages:
            assert is_damage_found(data, end - 1), (file, chunk.path_in_schema, end)
delta = deltalake.DeltaTable(table)
say("deltalake", of_arrow(delta.to_pyarrow_dataset().to_table()))
say("polars, delta", of_polars(polars.read_delta(table)))
listed = sorted(file.removeprefix("file://") for file in delta.file_uris())
assert listed == sorted(files), (listed, files)
protocol = delta.protocol()
assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2), protocol
