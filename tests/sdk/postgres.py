"""Clients of PostgreSQL against the port of a server: each answer equals that of HTTP, cell by cell.

    postgres.py CLIENT HTTP_URL KEY PORT [TLS_CA]

Prints what differs and fails, or prints `ok`. The statements below have every type, NULLs, and empty results."""

import asyncio
import datetime as dt
import decimal
import json
import math
import sys
import urllib.request

import pyarrow as pa
import pyarrow.ipc

CLIENT, URL, KEY, PORT = sys.argv[1:5]
DSN = f"host=127.0.0.1 port={PORT} user=anyone dbname=1 password={KEY}"
ADDRESS = f"postgresql://anyone:{KEY}@127.0.0.1:{PORT}/1"

EVENTS = "SELECT uuid, event, distinct_id, timestamp, properties, person_id, session_id, properties.plan AS plan FROM events ORDER BY uuid"
TYPES = """SELECT CAST(1 AS SMALLINT) AS i2, CAST(-2 AS INT) AS i4, 9223372036854775807 AS i8, CAST(1.5 AS REAL) AS f4,
    0.1 AS f8, 1e300 AS big, -1e-7 AS small, true AS yes, false AS no, CAST('12.345' AS DECIMAL(10, 3)) AS num,
    DATE '2026-01-02' AS day, CAST('2026-01-02 03:04:05.678901' AS TIMESTAMP(6)) AS at,
    CAST('2026-01-02T03:04:05.678901Z' AS TIMESTAMP(6) WITH TIME ZONE) AS instant,
    [1, 2, NULL] AS ints, ['a', 'b c', NULL, '', 'NULL', '"\\,{}'] AS texts, [true, false] AS truths, [0.5, 1e20] AS floats,
    CAST(NULL AS BIGINT) AS none, CAST(NULL AS TEXT) AS no_text, CAST(NULL AS DOUBLE) AS no_number,
    CAST(NULL AS DATE) AS no_day, 'é "quoted" \\ back' AS text, '' AS empty"""
GROUPED = """SELECT event, count(*) AS n, uniq(distinct_id) AS people, avg(toFloat(properties.n)) AS mean, max(timestamp) AS last,
    array_agg(distinct_id ORDER BY distinct_id) AS who FROM events GROUP BY event ORDER BY event"""
NOTHING = "SELECT uuid, timestamp, properties FROM events WHERE event = 'no such event'"
MANY = "SELECT uuid, distinct_id, timestamp, toFloat(properties.n) AS n FROM events ORDER BY uuid"
STATEMENTS = [EVENTS, TYPES, GROUPED, NOTHING, MANY]


def http(sql):
    """Names and rows of the answer over HTTP, with the types of Arrow."""
    body = json.dumps({"query": sql, "format": "arrow"}).encode()
    request = urllib.request.Request(f"{URL}/api/projects/1/query/", body, {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        table = pa.ipc.open_stream(answer.read()).read_all()
    columns = [column.to_pylist() for column in table.columns]
    return table.column_names, [list(row) for row in zip(*columns)]


def plain(value):
    """A value without the choices of a client: times in UTC, decimals as they are, JSON as what it means."""
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.timezone.utc).replace(tzinfo=None) if value.tzinfo else value
    if isinstance(value, decimal.Decimal):
        return value.normalize()
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, str) and value.startswith("{"):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def same(names, rows, sql, what):
    expected_names, expected = http(sql)
    assert list(names) == expected_names, f"{what}: {sql}: {names} instead of {expected_names}"
    rows = [[plain(value) for value in row] for row in rows]
    expected = [[plain(value) for value in row] for row in expected]
    for at, (row, wanted) in enumerate(zip(rows, expected)):
        for name, found, other in zip(names, row, wanted):
            assert found == other, f"{what}: {sql}: row {at}, {name}: {found!r} instead of {other!r}"
    assert len(rows) == len(expected), f"{what}: {sql}: {len(rows)} rows instead of {len(expected)}"


def psycopg():
    import psycopg
    from psycopg import sql as compose

    with psycopg.connect(DSN) as connection:
        assert connection.info.server_version == 150000, connection.info.server_version
        for sql in STATEMENTS:
            for binary in [False, True]:
                with connection.cursor(binary=binary) as cursor:
                    cursor.execute(sql)
                    same([own.name for own in cursor.description], cursor.fetchall(), sql, f"binary={binary}")
                    cursor.execute(sql, prepare=True)
                    same([own.name for own in cursor.description], cursor.fetchall(), sql, f"prepared, binary={binary}")
        # Parameters are values, whatever is in them.
        day = dt.datetime(2026, 3, 1, 12, tzinfo=dt.timezone.utc)
        for value, cast in [
            (5, "int"), (2**40, "bigint"), (-7, "bigint"), (0.25, "double precision"), (True, "boolean"), ("it's $1 \\ \"", "text"),
            (None, "text"), (day, "timestamptz"), (dt.date(2026, 3, 1), "date"), (decimal.Decimal("1.50"), "numeric"),
            ([1, 2, 3], "bigint[]"), (["a", None, "b,c"], "text[]"),
        ]:
            for binary in [False, True]:
                with connection.cursor(binary=binary) as cursor:
                    cursor.execute(f"SELECT %s::{cast} AS own", [value])
                    found = plain(cursor.fetchone()[0])
                    assert found == plain(value), f"{value!r} as {cast}, binary={binary}: {found!r}"
        names = [row[0] for row in connection.execute("SELECT DISTINCT event FROM events ORDER BY event").fetchall()]
        for name in [*names, "it's", "x'; DROP TABLE events; --"]:
            for placeholder in ["%s", "%b", "%t"]:
                found = connection.execute(f"SELECT count(*) FROM events WHERE event = {placeholder}", [name]).fetchone()[0]
                quoted = name.replace("'", "''")
                assert found == http(f"SELECT count(*) AS n FROM events WHERE event = '{quoted}'")[1][0][0], name
        found = connection.execute("SELECT uuid FROM events WHERE timestamp >= %s AND event = ANY(%s) ORDER BY uuid LIMIT %s OFFSET %s", [day, names, 3, 1])
        same(["uuid"], found.fetchall(), "SELECT uuid FROM events WHERE timestamp >= '2026-03-01T12:00:00Z' ORDER BY uuid LIMIT 3 OFFSET 1", "parameters")
        # Cursors of the server.
        for sql in [MANY, NOTHING, TYPES]:
            for scrollable, binary in [(None, False), (False, True)]:
                with connection.cursor(name="rows", scrollable=scrollable, binary=binary) as cursor:
                    cursor.itersize = 97
                    cursor.execute(sql)
                    rows = list(cursor)
                    same([own.name for own in cursor.description], rows, sql, "cursor")
        with connection.cursor(name="held", withhold=True) as cursor:
            cursor.execute(MANY)
            first = cursor.fetchmany(10)
            connection.commit()
            assert first + cursor.fetchall() == connection.execute(MANY).fetchall()
        connection.commit()
        # Copies.
        for sql in STATEMENTS:
            types = [own.type_code for own in connection.execute(sql).description]
            for options in ["(FORMAT binary)", ""]:
                with connection.cursor() as cursor, cursor.copy(f"COPY ({sql}) TO STDOUT {options}") as copy:
                    copy.set_types(types)
                    rows = list(copy.rows())
                same(http(sql)[0], rows, sql, f"COPY {options}")
        # Several statements, and one that fails.
        with connection.pipeline():
            several = [connection.execute("SELECT %s::int", [n]) for n in range(20)]
            assert [own.fetchone()[0] for own in several] == list(range(20))
        for sql, state in [
            ("SELEC 1", "42601"), ("SELECT * FROM nothing", "42P01"), ("SELECT nothing FROM events", "42703"),
            ("SELECT nothing(1)", "42883"), ("INSERT INTO events VALUES (1)", "25006"), ("DELETE FROM events", "25006"),
            ("CREATE TABLE x (y int)", "25006"), ("COPY events FROM STDIN", "25006"), ("SELECT 'x'::bigint", "42000"),
            ("FETCH 1 FROM nothing", "34000"), ("SHOW nothing", "42704"),
        ]:
            try:
                connection.execute(sql)
                raise AssertionError(f"{sql} is answered")
            except psycopg.Error as error:
                assert error.sqlstate == state, f"{sql}: {error.sqlstate} instead of {state}: {error}"
            connection.rollback()
        try:
            connection.execute("SELECT 1; SELECT nothing; SELECT 2")
        except psycopg.errors.UndefinedColumn:
            assert connection.info.transaction_status == psycopg.pq.TransactionStatus.INERROR
            try:
                connection.execute("SELECT 1")
                raise AssertionError("a failed transaction goes on")
            except psycopg.errors.InFailedSqlTransaction:
                connection.rollback()
        assert connection.execute("SELECT 1").fetchone() == (1,)
        assert connection.execute(compose.SQL("SELECT {}").format(compose.Literal("a'b"))).fetchone() == ("a'b",)


def asyncpg():
    import asyncpg

    async def run():
        connection = await asyncpg.connect(host="127.0.0.1", port=int(PORT), user="anyone", password=KEY, database="1", ssl=False)
        for sql in STATEMENTS:
            statement = await connection.prepare(sql)
            rows = await statement.fetch()
            same([own.name for own in statement.get_attributes()], [list(row) for row in rows], sql, "asyncpg")
        day = dt.datetime(2026, 3, 1, 12, tzinfo=dt.timezone.utc)
        row = await connection.fetchrow(
            "SELECT $1::int AS a, $2::text AS b, $3::float8 AS c, $4::timestamptz AS d, $5::text[] AS e, $6::bool AS f, $7::date AS g",
            5, "x'y", 0.5, day, ["a", None], True, day.date(),
        )
        assert list(row) == [5, "x'y", 0.5, day, ["a", None], True, day.date()], row
        # Types that follow from what a parameter is compared with.
        found = await connection.fetch("SELECT uuid FROM events WHERE timestamp >= $1 AND distinct_id = $2 ORDER BY uuid LIMIT $3", day, "u1", 5)
        same(["uuid"], [list(own) for own in found], "SELECT uuid FROM events WHERE timestamp >= '2026-03-01T12:00:00Z' AND distinct_id = 'u1' ORDER BY uuid LIMIT 5", "parameters")
        async with connection.transaction(readonly=True):
            rows = [list(own) async for own in connection.cursor(MANY, prefetch=50)]
            same(http(MANY)[0], rows, MANY, "cursor")
        out = bytearray()

        async def take(data):
            out.extend(data)

        await connection.copy_from_query(MANY, output=take, format="csv", header=True)
        assert out.count(b"\n") == len(http(MANY)[1]) + 1
        await connection.reset()
        try:
            await connection.fetch("SELECT count(*) FROM events a, events b, events c, events d", timeout=0.5)
            raise AssertionError("a long statement is answered")
        except (TimeoutError, asyncio.TimeoutError):
            pass
        assert await connection.fetchval("SELECT 1") == 1
        await connection.close()

    asyncio.run(run())


def sqlalchemy():
    import sqlalchemy as sa

    engine = sa.create_engine(ADDRESS.replace("postgresql:", "postgresql+psycopg:"))
    inspector = sa.inspect(engine)
    tables = inspector.get_table_names()
    described = [row[0] for row in http("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY table_name")[1]]
    assert sorted(tables) == described, (tables, described)
    assert inspector.get_schema_names() == ["information_schema", "public"], inspector.get_schema_names()
    assert inspector.get_view_names() == []
    for table in tables:
        columns = inspector.get_columns(table)
        assert columns, table
        with engine.connect() as connection:
            answer = connection.execute(sa.text(f'SELECT * FROM "{table}" LIMIT 0'))
            assert [own["name"] for own in columns] == list(answer.keys()), table
        inspector.get_indexes(table)
        inspector.get_foreign_keys(table)
        inspector.get_unique_constraints(table)
        inspector.get_check_constraints(table)
        inspector.get_table_comment(table)
    assert inspector.get_pk_constraint("events")["constrained_columns"] == ["uuid"]
    assert inspector.get_pk_constraint("groups")["constrained_columns"] == ["group_type_index", "key"]
    kinds = {own["name"]: str(own["type"]) for own in inspector.get_columns("events")}
    assert (kinds["uuid"], kinds["timestamp"], kinds["properties"]) == ("TEXT", "TIMESTAMP", "JSON"), kinds
    metadata = sa.MetaData()
    metadata.reflect(engine)
    events = metadata.tables["events"]
    with engine.connect() as connection:
        statement = sa.select(events.c.event, sa.func.count().label("n")).where(events.c.event.in_(["buy", "view"])).group_by(events.c.event).order_by(events.c.event)
        same(["event", "n"], [list(row) for row in connection.execute(statement)], "SELECT event, count(*) AS n FROM events WHERE event IN ('buy', 'view') GROUP BY event ORDER BY event", "select")
    for level in ["READ COMMITTED", "AUTOCOMMIT", "SERIALIZABLE"]:
        with engine.connect().execution_options(isolation_level=level) as connection:
            assert connection.execute(sa.text("SELECT 1")).scalar() == 1
    with engine.connect().execution_options(stream_results=True, yield_per=100) as connection:
        rows = [list(row) for row in connection.execute(sa.text(MANY))]
        same(http(MANY)[0], rows, MANY, "stream_results")


def adbc():
    import adbc_driver_postgresql.dbapi as dbapi

    with dbapi.connect(ADDRESS) as connection:
        for sql in STATEMENTS:
            for use_copy in ["true", "false"]:
                with connection.cursor(adbc_stmt_kwargs={"adbc.postgresql.use_copy": use_copy}) as cursor:
                    cursor.execute(sql)
                    table = cursor.fetch_arrow_table()
                    rows = [list(row) for row in zip(*[column.to_pylist() for column in table.columns])]
                    rows = [[decimal.Decimal(own) if name == "num" and own is not None else own for name, own in zip(table.column_names, row)] for row in rows]
                    same(table.column_names, rows, sql, f"use_copy={use_copy}")
        schema = connection.adbc_get_table_schema("events")
        assert "timestamp" in schema.names and pa.types.is_timestamp(schema.field("timestamp").type), schema
        objects = connection.adbc_get_objects(depth="all").read_all().to_pylist()
        names = [table["table_name"] for own in objects for schema in own["catalog_db_schemas"] if schema["db_schema_name"] == "public" for table in schema["db_schema_tables"]]
        assert "events" in names and "persons" in names, names


def connectorx():
    import connectorx

    for sql in [MANY, GROUPED.replace(",\n    array_agg(distinct_id ORDER BY distinct_id) AS who", "")]:
        names, expected = http(sql)
        for protocol in ["binary", "csv", "cursor"]:
            table = connectorx.read_sql(ADDRESS, sql, return_type="arrow", protocol=protocol)
            rows = [list(row) for row in zip(*[column.to_pylist() for column in table.columns])]
            same(table.column_names, rows, sql, protocol)
    parts = connectorx.read_sql(ADDRESS, "SELECT uuid, CAST(toFloat(properties.n) AS BIGINT) AS n FROM events", return_type="arrow", partition_on="n", partition_num=3)
    with_number = http("SELECT count(*) AS n FROM events WHERE toFloat(properties.n) IS NOT NULL")[1][0][0]
    assert parts.num_rows == with_number, (parts.num_rows, with_number)


def pgcli():
    from pgcli.pgexecute import PGExecute

    executor = PGExecute("1", "anyone", KEY, "127.0.0.1", PORT, None)
    tables = [name for schema, name in executor.tables() if schema == "public"]
    assert "events" in tables and "persons" in tables, tables
    columns = [(table, name) for schema, table, name, *_ in executor.table_columns() if schema == "public"]
    assert ("events", "timestamp") in columns, columns[:5]
    assert executor.databases() == ["1"], executor.databases()
    assert "public" in executor.schemata()
    for ask in [executor.views, executor.view_columns, executor.functions, executor.datatypes, executor.foreignkeys]:
        list(ask())
    assert executor.search_path()
    assert list(executor.run("SELECT 1"))


def startup():
    """What tools send when they start: `postgres_startup.sql` beside this file, statements with an empty line between them."""
    import psycopg

    path = __file__.replace("postgres.py", "postgres_startup.sql")
    with open(path) as file:
        blocks = file.read().split("\n\n")
    failed = []
    with psycopg.connect(DSN, autocommit=True) as connection:
        tool = ""
        for block in blocks:
            lines = block.strip().splitlines()
            if lines and lines[0].startswith("-- "):
                tool = lines[0].removeprefix("-- ")
            sql = "\n".join(line for line in lines if not line.startswith("-- "))
            if not sql.strip():
                continue
            try:
                cursor = connection.execute(sql)
                wanted = [line.removeprefix("-- rows: ") for line in lines if line.startswith("-- rows: ")]
                if wanted:
                    found = str(len(cursor.fetchall()))
                    assert found == wanted[0], f"{found} rows instead of {wanted[0]}"
            except Exception as error:
                failed.append(f"{tool}: {sql[:300]}\n  {error}")
    assert not failed, "\n".join(failed)


def tls():
    """A connection that trusts the certificate alone, and one that encrypts at once."""
    import psycopg

    authority = sys.argv[5]
    for mode in ["verify-ca", "require"]:
        with psycopg.connect(DSN, sslmode=mode, sslrootcert=authority) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
            assert connection.info.pgconn.ssl_in_use
    try:
        psycopg.connect(DSN, sslmode="disable")
        raise AssertionError("a connection without TLS is accepted")
    except psycopg.OperationalError as error:
        assert "TLS" in str(error), error


globals()[CLIENT]()
print("ok")
