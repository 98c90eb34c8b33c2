//! Tests of the rewriting of ClickHouse functions.

use std::collections::BTreeSet;

use datafusion::sql::sqlparser::ast::{Expr, Value};

use crate::dialect::clickhouse::times::{UNITS, date_diff};
use crate::dialect::clickhouse::{Parts, rewrite, tables};
use crate::dialect::hogql;
use crate::functions::calendar::Calendar;

fn rewritten(sql: &str) -> Result<String, String> {
    let mut statement = hogql::statement(sql, 50).expect("it parses");
    let calendar = Calendar { zone: "Europe/Berlin".to_owned(), is_monday_first: false };
    rewrite(&mut statement, &calendar).map_err(|error| error.to_string())?;
    Ok(statement.to_string())
}

#[test]
fn templates_have_all_arguments() {
    let mut names = BTreeSet::new();
    for (name, count, template) in tables().into_iter().flatten() {
        assert!(names.insert((name.to_lowercase(), count)), "{name} twice");
        let parsed = Parts::parsed(template).unwrap();
        assert_eq!(Parts::width(&parsed), *count, "{name}: {template}");
    }
    for template in UNITS.map(date_diff) {
        let parsed = Parts::parsed(&template).unwrap();
        let arguments = vec![Expr::Value(Value::Null.into()); 3];
        Parts::of(&parsed, arguments, "UTC").filled(parsed.clone()).unwrap();
    }
}

#[test]
fn functions_become_those_that_there_are() {
    for (sql, expected) in [
        ("SELECT countIf(a > 1) AS v", "SELECT count(*) FILTER (WHERE (a > 1)) AS v"),
        (
            "SELECT COUNTIF(a) OVER (PARTITION BY b) AS v",
            "SELECT count(*) FILTER (WHERE (a)) OVER (PARTITION BY b) AS v",
        ),
        (
            "SELECT toStartOfDay(timestamp) AS v",
            "SELECT date_trunc('day', (timestamp) AT TIME ZONE 'Europe/Berlin') AS v",
        ),
        (
            "SELECT multiIf(a, 1, b, 2, if(c, 3, 4)) AS v",
            "SELECT CASE WHEN (a) THEN (1) WHEN (b) THEN (2) ELSE (CASE WHEN (c) THEN (3) ELSE (4) END) END AS v",
        ),
        (
            "SELECT toFloat(a) AS v WHERE equals(b, '')",
            "SELECT TRY_CAST((a) AS DOUBLE) AS v WHERE ((b) = (''))",
        ),
        (
            "SELECT count(*), lower(a), b",
            "SELECT count(*) AS \"count(*)\", lower(a) AS \"lower(a)\", b",
        ),
        (
            "SELECT DISTINCT lower(a), isNull(b)",
            "SELECT DISTINCT lower(a), ((b) IS NULL) AS \"isNull(b)\"",
        ),
        ("SELECT equals($1, 2) AS v", "SELECT (($1) = (2)) AS v"),
        (
            "SELECT uniq(a) FILTER (WHERE b) AS v",
            "SELECT count(DISTINCT (a)) FILTER (WHERE b) AS v",
        ),
        ("SELECT a FROM t PREWHERE isNull(b)", "SELECT a FROM t WHERE ((b) IS NULL)"),
        ("SELECT a FROM t PREWHERE b OR c WHERE d", "SELECT a FROM t WHERE (b OR c) AND (d)"),
    ] {
        assert_eq!(rewritten(sql).as_deref(), Ok(expected), "{sql}");
    }
}

#[test]
fn further_functions_become_those_that_there_are() {
    for (sql, expected) in [
        (
            "SELECT any(a) AS v, anyIf(a, b) AS w",
            "SELECT first_value((a)) IGNORE NULLS AS v, first_value((a)) FILTER (WHERE (b)) IGNORE NULLS AS w",
        ),
        ("SELECT match(a, '^x') AS v", "SELECT regexp_like((a), ('^x'), 's') AS v"),
        (
            "SELECT toStartOfInterval(a, INTERVAL 1 week) AS v",
            "SELECT date_trunc('week', (a) AT TIME ZONE 'Europe/Berlin') AS v",
        ),
        (
            "SELECT toStartOfInterval(a, INTERVAL '10 minutes') AS v",
            "SELECT CAST(date_bin(INTERVAL '10 minute', (a)) AS TIMESTAMP(6) WITH TIME ZONE) AS v",
        ),
        ("SELECT dateAdd(a, INTERVAL 1 day) AS v", "SELECT ((a) + (INTERVAL 1 DAY)) AS v"),
        (
            "SELECT dateSub(day, b, a) AS v",
            "SELECT ((a) - CAST(concat(CAST((b) AS VARCHAR), ' day') AS INTERVAL)) AS v",
        ),
        (
            "SELECT quantile(0.9)(a) AS x, quantilesIf(0.25, 1)(a, b) AS y",
            "SELECT quantiles_of_list(array_agg(TRY_CAST((a) AS DOUBLE)), make_array(0.9))[1] AS x, \
             quantiles_of_list(array_agg(TRY_CAST((a) AS DOUBLE)) FILTER (WHERE (b)), make_array(0.25, 1.0)) AS y",
        ),
        (
            "SELECT groupArray(3)(a) AS x, uniqUpTo(10)(b) AS y",
            "SELECT array_slice(list_or_empty(array_agg((a)) FILTER (WHERE (a) IS NOT NULL)), 1, 3) AS x, \
             least(count(DISTINCT (b)), 11) AS y",
        ),
        (
            "SELECT argMax(a, b) AS x, argMinIf(a, b, c) FILTER (WHERE d) AS y",
            "SELECT first_value((a) ORDER BY (b) DESC NULLS LAST) FILTER (WHERE (a) IS NOT NULL AND (b) IS NOT NULL) AS x, \
             first_value((a) ORDER BY (b) ASC) FILTER (WHERE ((c) AND (a) IS NOT NULL AND (b) IS NOT NULL) AND (d)) AS y",
        ),
        (
            "SELECT groupArrayIf(a, b) FILTER (WHERE c) AS x, topK(2)(a) AS y",
            "SELECT list_or_empty(array_agg((a)) FILTER (WHERE ((b) AND (a) IS NOT NULL) AND (c))) AS x, \
             most_frequent(array_agg((a)) FILTER (WHERE (a) IS NOT NULL), 2) AS y",
        ),
        (
            "SELECT windowFunnel(60)(a, b, c) AS x",
            "SELECT window_funnel(array_agg(funnel_steps((a), (b), (c))) FILTER (WHERE (a) IS NOT NULL), 60) AS x",
        ),
        (
            "SELECT lagInFrame(a, 1) OVER (ORDER BY b) AS x, toIntOrZero(a) AS y, toFloatOrDefault(a, b) AS z",
            "SELECT lag(a, 1) OVER (ORDER BY b) AS x, \
             CASE WHEN (a) IS NOT NULL THEN coalesce(TRY_CAST((a) AS BIGINT), 0) END AS y, \
             CASE WHEN (a) IS NOT NULL THEN coalesce(TRY_CAST((a) AS DOUBLE), (b)) END AS z",
        ),
        (
            "SELECT JSONExtractString(a, 'b', 1, -1) AS x, JSONExtract(a, 'b', 'Float64') AS y",
            "SELECT json_as_text(a, 'b', 0, -1) AS x, json_get_float(a, 'b') AS y",
        ),
        (
            "SELECT arraySum(x -> x + 1, a) AS x, arrayFirst(x -> x > 1, a) AS y, arraySort(x -> -x, a) AS z",
            "SELECT arraySum(arrayMap(x -> x + 1, a)) AS x, arrayFilter(x -> x > 1, a)[1] AS y, \
             array_sort_by(x -> -x, a) AS z",
        ),
        (
            "SELECT transform(a, [1, 2], ['x', 'y'], 'z') AS x, toHour(a, 'Asia/Tokyo') AS y",
            "SELECT CASE a WHEN 1 THEN 'x' WHEN 2 THEN 'y' ELSE 'z' END AS x, \
             date_part('hour', (a) AT TIME ZONE 'Asia/Tokyo') AS y",
        ),
        // Column names are the texts as sent, made unique.
        (
            "SELECT a, isNotNull(b), (SELECT isNull(c)), isNotNull(b), a",
            "SELECT a, ((b) IS NOT NULL) AS \"isNotNull(b)\", (SELECT ((c) IS NULL) AS \"isNull(c)\") AS \"(SELECT isNull(c))\", \
             ((b) IS NOT NULL) AS \"isNotNull(b) (2)\", a AS \"a (2)\"",
        ),
    ] {
        assert_eq!(rewritten(sql).as_deref(), Ok(expected), "{sql}");
    }
}

#[test]
fn other_arguments_are_refused() {
    for sql in [
        "SELECT countIf()",
        "SELECT dateDiff('eon', a, b)",
        "SELECT dateAdd(eon, 1, a)",
        "SELECT dateAdd(a)",
        "SELECT toStartOfInterval(a, INTERVAL 3 month)",
        "SELECT toStartOfInterval(a, b)",
        "SELECT toStartOfInterval(a)",
        "SELECT if(a, b)",
        "SELECT if(a, b, c) OVER ()",
        "SELECT quantile(2)(a)",
        "SELECT quantile(-0.5)(a)",
        "SELECT quantile('x')(a)",
        "SELECT quantile(b)(a)",
        "SELECT quantile(0.1, 0.2)(a)",
        "SELECT quantile(0.5)(a, b)",
        "SELECT quantiles()(a)",
        "SELECT quantiles(0.5)(a) OVER ()",
        "SELECT groupArray(0)(a)",
        "SELECT topK(3)",
        "SELECT topK(a)",
        "SELECT windowFunnel(a, b)",
        "SELECT windowFunnel(10, 'strict_order')(a, b)",
        "SELECT windowFunnel(10)(a)",
        "SELECT leadInFrame(a) OVER (ORDER BY b)",
        "SELECT argMax(a, b) OVER (PARTITION BY c)",
        "SELECT anyIf(a, b) OVER (PARTITION BY c)",
        "SELECT JSONExtractInt(a, 0)",
        "SELECT JSONExtractInt(a, b)",
        "SELECT transform(a, b, c, d)",
        "SELECT age('eon', a, b)",
        "SELECT sum(1)(a)",
        "SELECT sum(1)(DISTINCT a)",
        "SELECT isNull(a) FILTER (WHERE b)",
        "SELECT groupArray(a ORDER BY b)",
        "SELECT argMax(a, b) IGNORE NULLS",
    ] {
        assert!(rewritten(sql).is_err(), "{sql}");
    }
    let nested = |n: usize| format!("SELECT {}a{}", "toYYYYMMDD(".repeat(n), ")".repeat(n));
    assert!(rewritten(&nested(3)).is_ok());
    assert!(rewritten(&nested(30)).unwrap_err().contains("too long"), "it became too long");
    let many = |n: usize| format!("SELECT {}1", "toStartOfWeek(a), ".repeat(n));
    assert!(rewritten(&many(50)).is_ok());
    assert!(rewritten(&many(600)).is_err(), "it became too long");
}
