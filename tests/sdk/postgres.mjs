// The client of PostgreSQL for Node against the port of a server: each answer equals that of HTTP.
//
//   node postgres.mjs NODE_MODULES HTTP_URL KEY PORT

import { createRequire } from "node:module";
import assert from "node:assert/strict";

const [modules, url, key, port] = process.argv.slice(2);
const require = createRequire(`${modules}/index.js`);
const { Client } = require("pg");
const Cursor = require("pg-cursor");

async function http(query) {
  const response = await fetch(`${url}/api/projects/1/query/`, {
    method: "POST",
    headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
    body: JSON.stringify({ query }),
  });
  const text = await response.text();
  assert.equal(response.status, 200, text);
  return text.trim().split("\n").filter(Boolean).map((line) => JSON.parse(line));
}

// The client gives whole numbers of 8 bytes as texts, and times as dates.
function plain(value) {
  if (value instanceof Date) return value.getTime();
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value === "string" && /^\d{4}-\d\d-\d\dT.*Z$/.test(value)) return Date.parse(value);
  if (typeof value === "string" && value.startsWith("{")) return JSON.parse(value);
  if (typeof value === "string" && /^-?\d+$/.test(value)) return Number(value);
  return value;
}
const plainRows = (rows) => rows.map((row) => Object.fromEntries(Object.entries(row).map(([name, value]) => [name, plain(value)])));

const client = new Client({ host: "127.0.0.1", port: Number(port), user: "anyone", password: key, database: "1" });
await client.connect();
const statements = [
  "SELECT uuid, event, distinct_id, timestamp, properties, session_id, properties.plan AS plan FROM events ORDER BY uuid",
  "SELECT event, count(*) AS n, avg(toFloat(properties.n)) AS mean, array_agg(distinct_id ORDER BY distinct_id) AS who FROM events GROUP BY event ORDER BY event",
  "SELECT 0.1 AS a, true AS b, CAST(NULL AS BIGINT) AS c, [1.5, NULL] AS d, ['x', 'y z'] AS e, 'é' AS f",
  "SELECT uuid FROM events WHERE event = 'nothing'",
];
for (const sql of statements) {
  const expected = plainRows(await http(sql));
  const simple = await client.query(sql);
  assert.deepEqual(plainRows(simple.rows), expected, sql);
  const prepared = await client.query({ name: `s${statements.indexOf(sql)}`, text: sql });
  assert.deepEqual(plainRows(prepared.rows), expected, sql);
  const cursor = client.query(new Cursor(sql));
  const rows = [];
  for (;;) {
    const piece = await cursor.read(7);
    if (piece.length === 0) break;
    rows.push(...piece);
  }
  await cursor.close();
  assert.deepEqual(plainRows(rows), expected, sql);
}
const day = new Date("2026-03-01T12:00:00Z");
const found = await client.query("SELECT $1::int AS a, $2::text AS b, $3::float8 AS c, $4::timestamptz AS d, $5::bool AS e, $6::text[] AS f", [5, "x'y", 0.5, day, true, ["a", null, 'b"c']]);
assert.deepEqual(found.rows[0], { a: 5, b: "x'y", c: 0.5, d: day, e: true, f: ["a", null, 'b"c'] });
const counted = await client.query("SELECT count(*) AS n FROM events WHERE event = $1 AND timestamp >= $2 LIMIT $3", ["buy", day, 1]);
assert.equal(Number(counted.rows[0].n), (await http("SELECT count(*) AS n FROM events WHERE event = 'buy' AND timestamp >= '2026-03-01T12:00:00Z'"))[0].n);
await assert.rejects(client.query("DELETE FROM events"), { code: "25006" });
await assert.rejects(client.query("SELECT $1::int", ["x"]), { code: "22P02" });
await client.end();
console.log("ok");
