//! Compares queries with limits with the same queries without, and tests queries that the limits refuse.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use arrow::util::pretty::pretty_format_batches;
use datafusion::error::DataFusionError;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};

use super::{BATCH_BYTES, Pools, Running, batch_rows, with_limits, without_absent};

const POOL_BYTES: usize = 64 << 20;

/// Rows of the table.
const ROWS: i64 = 3000;

struct World {
    limited: SessionContext,
    plain: SessionContext,
    pool: Arc<dyn MemoryPool>,
    running: Running,
}

fn world() -> World {
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(POOL_BYTES));
    let running = Running::default();
    let environment = RuntimeEnvBuilder::new().with_memory_pool(Arc::clone(&pool));
    let mut config = SessionConfig::new().with_target_partitions(2);
    config.options_mut().extensions.insert(running.clone());
    let builder = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(environment.build_arc().unwrap())
        .with_default_features();
    let pools = Pools { values: Arc::clone(&pool), rows: Arc::clone(&pool) };
    let mut state = with_limits(builder, &pools).build();
    datafusion_functions_json::register_all(&mut state).unwrap();
    let limited = SessionContext::new_with_state(without_absent(state).unwrap());
    let mut state = SessionStateBuilder::new().with_default_features().build();
    datafusion_functions_json::register_all(&mut state).unwrap();
    let plain = SessionContext::new_with_state(state);
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS));
    let texts = (0..ROWS).map(|n| match n % 7 {
        0 => None,
        1 => Some(format!("Grüße {n}, a text that is longer than a view")),
        _ => Some(format!("text {n}")),
    });
    let texts: ArrayRef = Arc::new(StringViewArray::from_iter(texts));
    let json = (0..ROWS).map(|n| format!(r#"{{"a": {n}, "b": "x{n}", "c": [1,{n}]}}"#));
    let json: ArrayRef = Arc::new(StringViewArray::from_iter_values(json));
    let columns = [("n", numbers), ("s", texts), ("j", json)];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    for context in [&limited, &plain] {
        context.register_batch("t", batch.clone()).unwrap();
    }
    World { limited, plain, pool, running }
}

async fn answer(context: &SessionContext, sql: &str) -> Result<String, DataFusionError> {
    let batches = context.sql(sql).await?.collect().await?;
    Ok(pretty_format_batches(&batches)?.to_string())
}

/// Expressions over the table.
const OVER_ROWS: &[&str] = &[
    "repeat(s, n % 5)",
    "lpad(s, 20, 'é')",
    "rpad(s, 3)",
    "replace(s, 't', '<t>')",
    "replace(s, '', '-')",
    "translate(s, 'tx', 'é')",
    "overlay(s placing 'X' from 2 for 3)",
    "s || s",
    "s || '-' || n",
    "s || '-' || n || (s || '+') || NULL || 'x'",
    "n || '-' || s || 'x' || 1.5",
    "n + 1 - 2 * n + (n - (3 - n)) - -n",
    "n * 7 / 2 % 5 * 3 / 2 + n",
    "n / 2 * 2 / 3 * CAST(n AS SMALLINT)",
    "CAST(n % 100 AS TINYINT) + CAST(2 AS SMALLINT) - n + 1.5 - 1",
    "n + 1 - NULL + 2",
    "concat(s, n, '-')",
    "concat_ws('-', s, s, n)",
    "upper(s)",
    "lower(s)",
    "initcap(s)",
    "reverse(s)",
    "substr(s, 2, 3)",
    "split_part(s, ' ', 2)",
    "levenshtein(s, 'text 5')",
    "strpos(s, 'x')",
    "position('x' in s)",
    "regexp_replace(s, '([a-z])([0-9])', '\\2\\1', 'g')",
    "regexp_match(s, '([a-z]+) ([0-9]+)')",
    "regexp_like(s, '^t.*[0-9]{2,3}$')",
    "s ~ '^t.*[0-9]{2,3}$'",
    "s !~* '^T.*[0-9]{2,3}$'",
    "s ~ 'text'",
    "s SIMILAR TO 'text [0-9]+'",
    "s LIKE 'text 1%'",
    "upper(s) LIKE 'TEXT _%1'",
    "upper(s) NOT ILIKE 'text _%1'",
    "upper(s) LIKE '%EXT 1%'",
    "s LIKE '%' || n || '_'",
    "upper(s) ~ '^T.*1'",
    "upper(s) SIMILAR TO 'TEXT [0-9]+'",
    "s NOT SIMILAR TO 'text [0-9]+'",
    "encode(CAST(s AS BYTEA), 'hex')",
    "CAST(s AS VARCHAR)",
    "TRY_CAST(s AS BIGINT)",
    "CAST(n AS VARCHAR)",
    "to_char(to_timestamp(n), '%Y-%m-%d %H')",
    "date_trunc('day', to_timestamp(n * 3600))",
    "array_repeat(s, n % 3)",
    "range(0, n % 9, 2)",
    "array_to_string([s, 'x', NULL], ',', '?')",
    "string_to_array(s, ' ')",
    "array_resize([n, 2], n % 4, 7)",
    "array_replace([n, 2], 2, n)",
    "array_concat([n], [n, 1])",
    "[n] || [2]",
    "array_append([s], 'x')",
    "array_distinct([n, n, 1])",
    "array_sort([n, 3, 1])",
    "flatten([[n], [1]])",
    "array_has([n, 1], 1)",
    "array_has_all([n, 1], [1])",
    "arrays_zip([n], ['x', 'y'])",
    "arrays_zip(range(0, n % 5), [s, 'y'])",
    "array_resize([s], n % 4)",
    "array_positions([n, 1, n], n)",
    "make_array(s, s)[2]",
    "named_struct('a', s, 'b', n)['a']",
    "map(['k'], [s])",
    "coalesce(s, 'none')",
    "nullif(s, 'text 2')",
    "nvl(s, 'none')",
    "greatest(s, 'm')",
    "json_get_str(j, 'b')",
    "j->>'b'",
    "j->'c'->1",
    "CAST(j->'a' AS BIGINT)",
    "json_as_text(j, 'c')",
    "json_object_keys(j)",
    "json_length(j, 'c')",
    "chr(65 + n % 20)",
    "abs(n - 5)",
    "round(n / 7.0, 2)",
    "to_hex(n)",
    "find_in_set(s, 'a,b')",
    "CASE WHEN n > 5 THEN s ELSE 'few' END",
    "n IN (1, 2, 3)",
    "character_length(s)",
];

/// Goal: limits change no result. Method: functions and operators over a table, and over constants, compared with plain
/// DataFusion.
#[tokio::test]
async fn answers_are_as_without_limits() {
    let world = world();
    let queries =
        OVER_ROWS.iter().map(|e| format!("SELECT n, {e} AS v FROM t ORDER BY n LIMIT 500"));
    let over_constants = [
        "SELECT repeat('ab', 3) AS v, 'a' || 'b' AS w, generate_series(1, 5) AS x",
        "SELECT range(DATE '2024-01-01', DATE '2024-03-01', INTERVAL '1 month') AS v",
        "SELECT generate_series(TIMESTAMP '2024-01-01', TIMESTAMP '2024-01-02', INTERVAL '6 hours') AS v",
        "SELECT length(repeat('x', 1000000)) AS v",
        "SELECT sum(v) AS v FROM (SELECT unnest(range(1, 100000)) AS v)",
        "SELECT count(*) AS v FROM range(1, 100000)",
        "SELECT a.n, unnest(array_repeat(b.s, 3)) AS v FROM t a JOIN t b ON a.n = b.n ORDER BY 1 LIMIT 50",
        "SELECT count(*) AS v, max(a.s || b.s) AS w FROM t a CROSS JOIN (SELECT s FROM t LIMIT 3) b",
        "SELECT n, sum(n) OVER () AS v, lag(s) OVER (ORDER BY n) AS w FROM t ORDER BY n LIMIT 50",
        "SELECT s, (SELECT max(s) FROM t) AS v FROM t ORDER BY n LIMIT 50",
        "SELECT upper(s) AS v, count(*) AS w FROM t GROUP BY upper(s) ORDER BY 2, 1 LIMIT 50",
        "SELECT string_agg(s, ',' ORDER BY n) AS v, array_agg(n ORDER BY n) AS w FROM t WHERE n < 50",
        "WITH RECURSIVE r AS (SELECT 'a' AS x UNION ALL SELECT x || 'b' FROM r WHERE length(x) < 9) \
         SELECT * FROM r ORDER BY x",
        "SELECT CAST([1, 2, 3] AS BIGINT[3]) AS v",
        "SELECT n FROM t WHERE s ~ 'text' AND s || 'x' LIKE '%1x' ORDER BY n LIMIT 50",
        "SELECT s || '-' || n AS v, count(*) AS w FROM t WHERE n < 9 GROUP BY ROLLUP(s || '-' || n) ORDER BY 1",
        "SELECT s || 'x' AS v, n, count(*) AS w FROM t WHERE n < 9 \
         GROUP BY GROUPING SETS ((s || 'x'), (s || 'x', n), ()) ORDER BY 1, 2, 3",
        "SELECT s ~ 'x{2}' AS v, CAST(s AS VARCHAR) AS w, count(*) AS x FROM t WHERE n < 9 \
         GROUP BY CUBE(s ~ 'x{2}', CAST(s AS VARCHAR)) ORDER BY 1, 2, 3",
        "SELECT approx_percentile_cont(n, 0.5, 100) AS v FROM t",
        "SELECT n, max(upper(s)) OVER (ORDER BY n) AS v, first_value(s) OVER (PARTITION BY n % 3 ORDER BY n \
         ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS w FROM t ORDER BY n",
        "SELECT n, max(s) OVER (ORDER BY n) AS v, lead(s, 3) OVER (ORDER BY n) AS w, \
         sum(n) OVER (ORDER BY n ROWS BETWEEN 5 PRECEDING AND CURRENT ROW) AS x, \
         sum(n) OVER (ORDER BY n ROWS BETWEEN CURRENT ROW AND 1500 FOLLOWING) AS y FROM t ORDER BY n",
        "SELECT array_length(range(1, 4000000000)) AS v FROM (VALUES (1)) a(x) JOIN (VALUES (2)) b(y) ON a.x > b.y",
        "SELECT repeat('x', 9) LIKE '%x_x%' AS v, 'abc' ~ 'b' AS w, CAST(NULL AS VARCHAR[3]) AS x",
        "SELECT l, unnest(unnest(m)) AS v FROM (SELECT n AS l, [range(1, 3), [n]] AS m FROM t) ORDER BY 1, 2 LIMIT 50",
        "SELECT approx_percentile_cont_with_weight(n, 1, 0.5, 100) AS v FROM t",
    ];
    for sql in queries.chain(over_constants.map(str::to_owned)) {
        let expected = answer(&world.plain, &sql).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
        let found = answer(&world.limited, &sql).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
        assert_eq!(found, expected, "{sql}");
        assert_eq!(world.pool.reserved(), 0, "{sql}");
    }
}

/// Each takes gigabytes, of constants or of rows, or minutes.
const TOO_MUCH: &[&str] = &[
    "SELECT length(repeat('x', 1000000000))",
    "SELECT repeat(repeat(repeat('x', 1000), 1000), 1000)",
    "SELECT max(repeat(s, 100000)) FROM t",
    "SELECT max(repeat(repeat(s, 100), 100)) FROM t",
    "SELECT array_length(range(1, 200000000))",
    "SELECT array_length(range(n, 200000000)) FROM t",
    "SELECT range(DATE '0001-01-01', DATE '9999-01-01', INTERVAL '1 month -28 days')",
    "SELECT range(TIMESTAMP '1970-01-01', TIMESTAMP '2200-01-01', INTERVAL '1 second')",
    "SELECT array_repeat(n, 200000000) FROM t",
    "SELECT array_repeat(array_repeat(1, 10000), 10000)",
    "SELECT array_resize([n], 200000000, 1) FROM t",
    "SELECT max(replace(j, 'x', repeat('y', 60000))) FROM t",
    "SELECT max(regexp_replace(j, '.', repeat('\\0', 10000), 'g')) FROM t",
    "SELECT max(lpad(s, 1000000)) FROM t",
    "SELECT rpad('a', 1000000000, 'é')",
    "SELECT max(concat(s, repeat('x', 60000))) FROM t",
    "SELECT max(s || repeat('x', 60000)) FROM t",
    "SELECT max(concat_ws(repeat('x', 60000), s, s)) FROM t",
    "SELECT array_to_string(range(1, 100000), repeat('x', 60000))",
    "SELECT encode(repeat('x', 500000000), 'hex')",
    "SELECT to_char(to_timestamp(n), repeat('%c', 10000)) FROM t",
    "SELECT upper(repeat(s, 100000)) FROM t",
    "SELECT levenshtein(repeat('a', 400000), repeat('b', 400000))",
    "SELECT max(levenshtein(repeat(s, 10000), repeat(s, 10000))) FROM t",
    "SELECT strpos(repeat('aé', 400000), repeat('a', 400000))",
    "SELECT array_has_all(range(1, 100000), range(1, 100000))",
    "SELECT CAST(NULL AS BIGINT[1000000000])",
    "SELECT CAST([1] AS BIGINT[1000000000])",
    "SELECT TRY_CAST(s AS BIGINT[100][100]) FROM t",
    "SELECT s SIMILAR TO '(a{1000}){1000}' FROM t",
    "SELECT input_file_name() FROM t",
    "SELECT arrow_cast(NULL, 'FixedSizeBinary(2000000000)')",
    "SELECT array_transform([1, 2], x -> x + 1)",
    "SELECT s, (SELECT repeat(s, 10000) FROM t WHERE n = 2) FROM t",
    "SELECT array_agg(a.j || b.j) FROM t a CROSS JOIN (SELECT * FROM t LIMIT 1000) b",
    "SELECT approx_percentile_cont(n, 0.5, 1000000000000000) FROM t",
    "SELECT max(v) FROM (SELECT sum(length(s)) OVER (ORDER BY n ROWS BETWEEN CURRENT ROW AND 1000000000 \
     FOLLOWING) AS v FROM (SELECT repeat(s, 2000) AS s, n FROM t))",
    "SELECT max(length(v)) FROM (SELECT lead(s, 1000000) OVER (ORDER BY n) AS v FROM \
     (SELECT repeat(s, 2000) AS s, n FROM t))",
    "SELECT max(length(v)) FROM (SELECT max(a) OVER () AS v FROM \
     (SELECT CASE WHEN n = 5 THEN repeat('z', 1000000) ELSE s END AS a FROM t))",
    "SELECT max(length(v)) FROM (SELECT max(CASE WHEN n = 5 THEN repeat('z', 1000000) ELSE s END) OVER () \
     AS v FROM t)",
    "SELECT CAST(NULL AS VARCHAR[1000][1000][1000])",
    "SELECT CAST(NULL AS VARCHAR[100])",
    "SELECT TRY_CAST(s AS VARCHAR[1000][1000][1000][1000][1000]) FROM t",
    "SELECT repeat('a', 10000000) LIKE ('%a' || repeat('_', 5000) || 'b%')",
    "SELECT repeat(s, 200000) LIKE '%a____b%' FROM t WHERE n = 1",
    "SELECT x ILIKE '%a____b%' FROM (SELECT repeat(s, 200000) AS x FROM t WHERE n = 1)",
    "SELECT x ~ 'a....b' FROM (SELECT repeat(s, 200000) AS x FROM t WHERE n = 1)",
    "SELECT x SIMILAR TO 'a....b' FROM (SELECT repeat(s, 200000) AS x FROM t WHERE n = 1)",
    "SELECT array_resize([CAST(NULL AS BIGINT[128])], 10000000)",
    "SELECT arrays_zip(range(1, 1000000), [CAST(NULL AS BIGINT[128])])",
    "SELECT l, unnest(unnest(m)) FROM (SELECT range(1, 100000) AS l, [range(1, 100000)] AS m)",
    "SELECT approx_percentile_cont(n, 0.5, 1000000 * 1000000) FROM t",
    "SELECT approx_percentile_cont(n, 0.5, 1000000000000000) OVER () FROM t",
    "SELECT approx_percentile_cont_with_weight(n, 1, 0.5, 1000000000000000) FROM t",
    "SELECT approx_percentile_cont(0.5, 1000000000000000) WITHIN GROUP (ORDER BY n) FROM t",
    "SELECT max(array_length(a)) FROM (SELECT array_agg(s) OVER () AS a FROM t)",
    "SELECT max(length(a)) FROM (SELECT string_agg(s, ',') OVER (ORDER BY n) AS a FROM t)",
    "SELECT sum(length(repeat(s, 100))) OVER (), a FROM (SELECT repeat(s, 3000) AS a, s FROM t) x",
];

/// Goal: no function or operator takes more memory than there is, nor longer than a query may.
#[tokio::test]
async fn what_takes_too_much_is_refused() {
    let world = world();
    for sql in TOO_MUCH {
        let error = match answer(&world.limited, sql).await {
            Ok(answer) => panic!("{sql}: {}", answer.len()),
            Err(error) => error,
        };
        let root = error.find_root();
        let is_refused = matches!(root, DataFusionError::ResourcesExhausted(_))
            || matches!(root, DataFusionError::Plan(_) | DataFusionError::SQL(..));
        assert!(is_refused, "{sql}: {error}");
        // Background tasks of the query end a little later.
        for _ in 0..10_000 {
            if world.pool.reserved() == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(world.pool.reserved(), 0, "{sql}");
    }
}

/// Goal: a plan contains no large values. Method: a constant that is larger than its expression, planned as the engine
/// does.
#[tokio::test]
async fn large_constants_are_left_to_run_time() {
    let world = world();
    for (sql, is_folded) in
        [("SELECT repeat('x', 1000) || 'y'", true), ("SELECT repeat('x', 1000000) || 'y'", false)]
    {
        let plan = world.limited.state().create_logical_plan(sql).await.unwrap();
        world.running.set_planning(true);
        let plan = world.limited.state().optimize(&plan).unwrap().display_indent().to_string();
        world.running.set_planning(false);
        assert_eq!(plan.contains("xxxxxxxxxxxxxxxxxxxx"), is_folded, "{}", &plan[..200]);
        assert!(plan.len() < 10_000, "{}", plan.len());
    }
}

/// Goal: a cancelled query ends inside a function. Method: it is cancelled before it begins.
#[tokio::test]
async fn functions_stop_with_their_query() {
    let world = world();
    let sql = "SELECT max(upper(s)) FROM t";
    assert!(answer(&world.limited, sql).await.is_ok());
    drop(world.running.stopped_on_drop());
    let error = answer(&world.limited, sql).await.unwrap_err();
    assert!(error.to_string().contains("the query was stopped"), "{error}");
}

/// Goal: planning time of a chain of operators is linear in its length. Method: the chain is one function, and nesting
/// that takes more is refused.
#[tokio::test]
async fn chains_are_one_function() {
    let world = world();
    for (sql, name) in [
        (format!("SELECT n{} AS v FROM t", " + n".repeat(500)), "+("),
        (format!("SELECT n{} AS v FROM t", " - n * 2 / 2".repeat(200)), "-("),
        (format!("SELECT s{} AS v FROM t", " || s".repeat(500)), "||("),
    ] {
        let plan = world.limited.state().create_logical_plan(&sql).await.unwrap();
        let plan = world.limited.state().optimize(&plan).unwrap().display_indent().to_string();
        assert_eq!(plan.matches(name).count(), 1, "{}", &plan[..200]);
        answer(&world.limited, &sql).await.unwrap();
    }
    let nested = |times: usize| {
        format!(
            "SELECT {}s{} AS v FROM t",
            "coalesce(lower(".repeat(times),
            "), 'x')".repeat(times)
        )
    };
    answer(&world.limited, &nested(5)).await.unwrap();
    let error = answer(&world.limited, &nested(20)).await.unwrap_err();
    assert!(error.to_string().contains("written out"), "{error}");
}

#[tokio::test]
async fn plans_with_large_constants_have_small_batches() {
    let world = world();
    let long = "x".repeat(100_000);
    for (sql, expected) in [
        ("SELECT s FROM t".to_owned(), 8192),
        (format!("SELECT s FROM t WHERE s IN ('{long}', 'a', 'b', 'c')"), 8192),
        (format!("SELECT '{long}' AS v, s FROM t"), BATCH_BYTES / 100_000),
        (format!("SELECT s FROM t WHERE (SELECT max('{long}') FROM t) = s"), BATCH_BYTES / 100_000),
    ] {
        let plan = world.limited.state().create_logical_plan(&sql).await.unwrap();
        let rows = batch_rows(&plan, 8192).unwrap();
        // A constant counts with its overhead.
        assert!(rows <= expected && rows * 101 / 100 >= expected, "{rows} {expected}");
    }
}

/// Goal: of duplicate keys in an object the last one counts, however a function is called.
#[tokio::test]
async fn the_last_one_of_a_key_counts() {
    let World { limited, .. } = world();
    let text =
        r#"{"k":1,"o":{"i":"x"},"k":2,"l":[{"i":1,"i":"z"}],"o":{"i":"y","i":"z","n":true}}"#;
    let json: ArrayRef = Arc::new(StringViewArray::from_iter([Some(text), Some("{}"), None]));
    let keys: ArrayRef = Arc::new(StringViewArray::from_iter_values(["k", "k", "k"]));
    let batch = RecordBatch::try_from_iter([("j", json), ("key", keys)]).unwrap();
    limited.register_batch("d", batch).unwrap();
    for (call, expected) in [
        ("json_get_int(j, 'k')", "2"),
        ("json_get_str(j, 'o', 'i')", "z"),
        ("json_get_str(j, 'l', 0, 'i')", "z"),
        ("json_as_text(j, 'k')", "2"),
        ("json_as_text(j, key)", "2"),
        ("json_get_json(j, 'o')", r#"{"i":"y","i":"z","n":true}"#),
        ("json_length(j)", "3"),
        ("json_length(j, 'o')", "2"),
        ("json_get_bool(j, 'o', 'n')", "true"),
        ("json_contains(j, 'o', 'n')", "true"),
        ("json_get_int(CAST(j AS VARCHAR), 'k')", "2"),
        (r#"json_get_int('{"k":1,"k":2}', 'k')"#, "2"),
        ("array_to_string(json_object_keys(j, 'o'), ',')", "i,n"),
    ] {
        let sql = format!("SELECT CAST({call} AS VARCHAR) AS v FROM d WHERE j LIKE '%k%'");
        let found = answer(&limited, &sql).await.unwrap();
        assert!(found.contains(&format!("| {expected} ")), "{sql}: {found}");
    }
}

/// The result of a query, or its error.
async fn query_in(context: &SessionContext, sql: &str) -> Result<String, String> {
    let batches = match context.sql(sql).await {
        Ok(frame) => frame.collect().await,
        Err(error) => Err(error),
    };
    let batches = batches.map_err(|error| error.to_string())?;
    Ok(pretty_format_batches(&batches).unwrap().to_string())
}

#[tokio::test]
async fn integers_do_not_overflow_in_silence() {
    let World { limited, .. } = world();
    for sql in [
        "SELECT 9223372036854775807 + 1",
        "SELECT -9223372036854775807 - 2",
        "SELECT 9223372036854775807 * 2",
        "SELECT n + 9223372036854775807 FROM t WHERE n = 1",
        "SELECT max(n * 9223372036854775807) FROM t",
        "SELECT -(n - 9223372036854775807 - 1) FROM t WHERE n = 0",
        "SELECT n FROM t WHERE n + 9223372036854775807 > 5",
        "SELECT n - 1 + 9223372036854775807 - 5 + 1 FROM t WHERE n = 2",
        "SELECT n * 2 / 2 * 9223372036854775807 FROM t WHERE n = 2",
        "SELECT 1 + 9223372036854775806 + 1 - 1",
        "SELECT CAST(n AS TINYINT) + CAST(127 AS TINYINT) FROM t WHERE n = 1",
    ] {
        let error = query_in(&limited, sql).await.unwrap_err();
        assert!(error.to_lowercase().contains("overflow"), "{sql}: {error}");
    }
    for (sql, expected) in [
        ("SELECT 9223372036854775806 + 1 AS x", "9223372036854775807"),
        ("SELECT -n * 2 - 1 AS x FROM t WHERE n = 3", "-7"),
        ("SELECT n + NULL AS x FROM t WHERE n = 3", "|   |"),
        ("SELECT n - (1 + n) + 1, n - 1 + n + 1 AS x FROM t WHERE n = 3", "6"),
        ("SELECT sum(n - 1 + 1), sum(n + 1 - 1) AS x FROM t WHERE n = 3", "3"),
        ("SELECT sum(n) * 2 AS x FROM t", "8997000"),
    ] {
        let found = query_in(&limited, sql).await.unwrap();
        assert!(found.contains(expected), "{sql}: {found}");
    }
}

/// Computed by hand: `s` is null in each seventh of 3,000 rows.
#[tokio::test]
async fn conditions_of_null_are_null_behind_not() {
    let World { limited, .. } = world();
    for (condition, expected) in [
        ("NOT (s IN ('a') AND s IN ('b'))", 2571),
        ("NOT (s IN ('a', 'b') AND s IN ('c', 'd'))", 2571),
        ("s NOT IN ('a') OR s NOT IN ('b')", 2571),
        ("NOT (s IN ('a') AND s NOT IN ('a', 'b'))", 2571),
        ("NOT (s IN ('text 2', 'b') AND s IN ('text 2'))", 2570),
        ("s IN ('text 2') AND s IN ('text 3')", 0),
    ] {
        let column = format!("SELECT sum(CASE WHEN {condition} THEN 1 ELSE 0 END) AS x FROM t");
        let filter = format!("SELECT count(*) AS x FROM t WHERE {condition}");
        for sql in [column, filter] {
            let found = query_in(&limited, &sql).await.unwrap();
            assert!(found.contains(&format!("| {expected} ")), "{sql}: {found}");
        }
    }
}

#[tokio::test]
async fn what_would_be_answered_wrongly_is_refused() {
    let World { limited, .. } = world();
    for (sql, why) in [
        ("SELECT lead(s, 2) IGNORE NULLS OVER (ORDER BY n) FROM t", "IGNORE NULLS"),
        ("SELECT lead(s, 1 + 1) IGNORE NULLS OVER (ORDER BY n) FROM t", "IGNORE NULLS"),
        ("SELECT lag(s, -2) IGNORE NULLS OVER (ORDER BY n) FROM t", "IGNORE NULLS"),
        ("SELECT n IN (SELECT n FROM t) FROM t", "WHERE and HAVING"),
        ("SELECT count(CASE WHEN n IN (SELECT n FROM t) THEN 1 END) FROM t", "WHERE and HAVING"),
        ("SELECT EXISTS (SELECT 1 FROM t)", "WHERE and HAVING"),
    ] {
        let error = query_in(&limited, sql).await.unwrap_err();
        assert!(error.contains(why), "{sql}: {error}");
    }
    for (sql, expected) in [
        (
            "SELECT lead(s) IGNORE NULLS OVER (ORDER BY n) AS x FROM t ORDER BY n LIMIT 1",
            "that is longer",
        ),
        ("SELECT lag(n, 2) IGNORE NULLS OVER (ORDER BY n) AS x FROM t ORDER BY n LIMIT 3", "0"),
        ("SELECT count(*) AS x FROM t WHERE n IN (SELECT n FROM t WHERE n < 5)", "5"),
    ] {
        let found = query_in(&limited, sql).await.unwrap();
        assert!(found.contains(expected), "{sql}: {found}");
    }
}
