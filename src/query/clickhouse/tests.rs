//! What functions of ClickHouse become.

use std::collections::BTreeSet;

use datafusion::sql::parser::DFParser;
use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::ast::Value;

use crate::query::calendar::Calendar;
use crate::query::clickhouse::Parts;
use crate::query::clickhouse::TEMPLATES;
use crate::query::clickhouse::rewrite;
use crate::query::clickhouse::times::UNITS;
use crate::query::clickhouse::times::date_diff;

fn rewritten(sql: &str) -> Result<String, String> {
    let mut statement = DFParser::parse_sql(sql).expect("it parses").pop_front().expect("one");
    let calendar = Calendar { zone: "Europe/Berlin".to_owned(), is_monday_first: false };
    rewrite(&mut statement, &calendar).map_err(|error| error.to_string())?;
    Ok(statement.to_string())
}

#[test]
fn templates_have_each_argument_once() {
    let mut names = BTreeSet::new();
    let of_diff = UNITS.map(|unit| ("dateDiff", 3, date_diff(unit)));
    let all = TEMPLATES.map(|(name, count, template)| (name, count, template.to_owned()));
    for (name, count, template) in all {
        assert!(names.insert((name.to_lowercase(), count)), "{name} twice");
        let used: Vec<usize> =
            (1..=9).map(|at| template.matches(&format!("${at}")).count()).collect();
        assert!(used.iter().take(count).all(|used| *used == 1), "{template}");
        assert!(used.iter().skip(count).all(|used| *used == 0), "{template}");
    }
    for (_, count, template) in of_diff {
        let arguments = vec![Expr::Value(Value::Null.into()); count];
        Parts { arguments, zone: "UTC" }.filled(&template).unwrap();
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
            "SELECT toFloat(a) AS v WHERE notEmpty(b)",
            "SELECT TRY_CAST((a) AS DOUBLE) AS v WHERE ((b) <> '')",
        ),
        (
            "SELECT count(*), lower(a), b",
            "SELECT count(*) AS \"count(*)\", lower(a) AS \"lower(a)\", b",
        ),
        (
            "SELECT DISTINCT lower(a), empty(b)",
            "SELECT DISTINCT lower(a), ((b) = '') AS \"empty(b)\"",
        ),
        ("SELECT equals($1, 2) AS v", "SELECT (($1) = (2)) AS v"),
        (
            "SELECT uniq(a) FILTER (WHERE b) AS v",
            "SELECT count(DISTINCT (a)) FILTER (WHERE b) AS v",
        ),
        ("SELECT a FROM t PREWHERE empty(b)", "SELECT a FROM t WHERE ((b) = '')"),
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
        ("SELECT match(a, '^x') AS v", "SELECT regexp_like((a), ('^x')) AS v"),
        (
            "SELECT toStartOfInterval(a, INTERVAL 1 week) AS v",
            "SELECT date_trunc('week', (a) AT TIME ZONE 'Europe/Berlin') AS v",
        ),
        (
            "SELECT toStartOfInterval(a, INTERVAL '10 minutes') AS v",
            "SELECT date_bin(INTERVAL '10 minute', (a)) AS v",
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
            "SELECT array_slice(array_agg((a)), 1, 3) AS x, least(count(DISTINCT (b)), 11) AS y",
        ),
        // Names of columns are the texts as they were sent, and differ.
        (
            "SELECT a, empty(b), (SELECT isNull(c)), empty(b), a",
            "SELECT a, ((b) = '') AS \"empty(b)\", (SELECT ((c) IS NULL) AS \"isNull(c)\") AS \"(SELECT isNull(c))\", \
             ((b) = '') AS \"empty(b) (2)\", a AS \"a (2)\"",
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
        "SELECT topK(3)(a)",
        "SELECT windowFunnel(10)(a, b)",
        "SELECT sum(1)(a)",
        "SELECT sum(1)(DISTINCT a)",
        "SELECT countIf(a) FILTER (WHERE b)",
        "SELECT empty(a) FILTER (WHERE b)",
        "SELECT quantile(0.5)(a) FILTER (WHERE b)",
        "SELECT groupArray(a ORDER BY b)",
        "SELECT argMax(a, b) IGNORE NULLS",
    ] {
        assert!(rewritten(sql).is_err(), "{sql}");
    }
    let many = |n: usize| format!("SELECT {}1", "toStartOfWeek(a), ".repeat(n));
    assert!(rewritten(&many(50)).is_ok());
    assert!(rewritten(&many(600)).is_err(), "it became too long");
}
