"""Opens a Delta table with the library `deltalake`, and changes it if asked.

    delta.py TABLE read             prints what the table is
    delta.py TABLE change ID...     appends rows with these ids, deletes one row, merges files,
                                    writes a checkpoint, removes the log before it, and prints

Prints one JSON object per reader: {"engine", "version", "ids", "node", "files"}; `node` is the last
transaction of the application node/1.
"""

import datetime
import json
import os
import sys

import deltalake
import polars
import pyarrow

path, what, ids = sys.argv[1], sys.argv[2], [int(number) for number in sys.argv[3:]]
NOW = datetime.datetime(2026, 11, 21, 8, tzinfo=datetime.timezone.utc)


def change():
    rows = {
        "id": pyarrow.array(ids, pyarrow.int64()),
        "event": pyarrow.array([None if number % 2 else f"event {number}" for number in ids], pyarrow.string()),
        "timestamp": pyarrow.array([NOW] * len(ids), pyarrow.timestamp("us", "UTC")),
        "month": pyarrow.array(["2026-11" if number % 3 else "odd % month" for number in ids], pyarrow.string()),
    }
    schema = pyarrow.schema([pyarrow.field(name, array.type, name != "id") for name, array in rows.items()])
    deltalake.write_deltalake(path, pyarrow.Table.from_arrays(list(rows.values()), schema=schema), mode="append")
    deltalake.DeltaTable(path).delete(f"id = {ids[0]}")
    deltalake.DeltaTable(path).optimize.compact()
    deltalake.DeltaTable(path).create_checkpoint()
    table = deltalake.DeltaTable(path)
    # As a clean-up after the retention would.
    for version in range(table.version() + 1):
        commit = os.path.join(path, "_delta_log", f"{version:020}.json")
        if os.path.exists(commit):
            os.remove(commit)


if what == "change":
    change()
table = deltalake.DeltaTable(path)
protocol = table.protocol()
assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2), protocol
assert table.metadata().name == "events", table.metadata()
assert table.metadata().configuration["delta.checkpointInterval"] == "100", table.metadata()
adds = pyarrow.table(table.get_add_actions(flatten=True)).to_pylist()
for add in adds:
    assert add["num_records"] > 0 and add["min.id"] <= add["max.id"], add
    assert add["partition.month"] in add["path"] or "%" in add["path"], add
readers = {
    "deltalake": table.to_pyarrow_dataset().to_table().column("id").to_pylist(),
    "polars": polars.read_delta(path).get_column("id").to_list(),
}
for engine, found in readers.items():
    print(json.dumps({
        "engine": engine,
        "version": table.version(),
        "ids": sorted(found),
        "node": table.transaction_version("node/1"),
        "files": len(adds),
    }))
